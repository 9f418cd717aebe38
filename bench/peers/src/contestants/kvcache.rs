//! This project's index, by its public interface.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kvcache_core::hash::{BlockKeys, Hasher};
use kvcache_core::index::{Matches, PrefixIndex, StreamWriter};
use kvcache_core::model::{
    Batch, BlockHash, BlockSpec, Event, Sequence, StreamKey, Tier, WireHash,
};

use crate::contestant::{Contestant, Reader};
use crate::workload::{Scores, Span, Workload};

/// Out of the way: W1 is larger than one engine's memory.
const MAX_BLOCKS: usize = 1 << 26;

pub struct Kvcache {
    index: Arc<PrefixIndex>,
    /// By worker.
    writers: Vec<StreamWriter>,
}

pub struct Message {
    worker: usize,
    change: Change,
}

enum Change {
    Store {
        parent: Option<WireHash>,
        wire_hashes: Vec<WireHash>,
        block_hashes: Vec<BlockHash>,
    },
    Remove(Batch),
}

impl Contestant for Kvcache {
    const NAME: &'static str = "kvcache";
    type Event = Message;
    type Reader = Queries;

    fn new(workload: &Workload) -> Result<Self> {
        let block_size_tokens =
            NonZeroU32::new(workload.block_size).context("blocks without tokens")?;
        let index = PrefixIndex::new(BlockSpec {
            block_size_tokens,
            hash_seed: 0,
        });
        let writers = (0..workload.workers).map(|worker| {
            // Answers are ordered by name: zeros keep the order of numbers.
            let key = StreamKey::new(&format!("{worker:03}"), 0);
            let mut writer = index.add_stream(key, MAX_BLOCKS)?;
            let empty = writer.new_draft();
            writer.publish(empty, Some(Sequence(0)))?;
            Ok(writer)
        });
        let writers = writers.collect::<Result<_>>()?;
        Ok(Self { index, writers })
    }

    fn store(workload: &Workload, span: &Span) -> Message {
        let size = workload.block_size as usize;
        let blocks = workload.tokens(span).chunks_exact(size);
        let hasher = Hasher::new(0);
        Message {
            worker: span.worker as usize,
            change: Change::Store {
                parent: workload.parent(span).map(WireHash),
                wire_hashes: workload.wires(span).map(WireHash).collect(),
                block_hashes: blocks.map(|block| hasher.block(block)).collect(),
            },
        }
    }

    fn remove(workload: &Workload, span: &Span) -> Message {
        let wire_hashes: Vec<WireHash> = workload.wires(span).rev().map(WireHash).collect();
        let removed = Event::Removed {
            wire_hashes: 0..wire_hashes.len(),
            tier: Some(Tier::Device),
        };
        Message {
            worker: span.worker as usize,
            change: Change::Remove(Batch {
                events: vec![removed],
                wire_hashes,
                token_ids: Vec::new(),
            }),
        }
    }

    fn apply(&mut self, events: Vec<Message>) -> Result<Duration> {
        let start = Instant::now();
        for Message { worker, change } in &events {
            let writer = &mut self.writers[*worker];
            match change {
                Change::Store {
                    parent,
                    wire_hashes,
                    block_hashes,
                } => writer.store_hashed(*parent, wire_hashes, block_hashes, Some(Tier::Device))?,
                Change::Remove(batch) => writer.apply(batch, Some(Sequence(0)))?,
            };
        }
        Ok(start.elapsed())
    }

    fn reader(&self) -> Self::Reader {
        Queries {
            index: self.index.clone(),
            answer: RefCell::default(),
        }
    }
}

/// The index, and the memory of its last answer.
pub struct Queries {
    index: Arc<PrefixIndex>,
    answer: RefCell<Matches>,
}

impl Reader for Queries {
    type Keys = BlockKeys;
    type Answer = Option<Matches>;

    fn hash(&self, tokens: &[u32]) -> BlockKeys {
        BlockKeys::compute(tokens, self.index.spec())
    }

    fn query_tokens(&self, tokens: &[u32]) -> Option<Matches> {
        Some(self.index.query_tokens(tokens))
    }

    fn query_keys(&self, keys: &BlockKeys) -> Option<Matches> {
        self.index.query_keys(keys).ok()
    }

    fn score_into(&self, keys: &BlockKeys, scores: &mut [u32]) -> bool {
        let mut answer = self.answer.borrow_mut();
        let block_size = self.index.spec().block_size_tokens.get();
        if self.index.query_keys_into(keys, &mut answer).is_err() {
            return false;
        }
        for (score, (device, _)) in scores.iter_mut().zip(answer.hit_tokens()) {
            *score = device / block_size;
        }
        true
    }

    fn scores(&self, answer: &Option<Matches>) -> Scores {
        let block_size = u64::from(self.index.spec().block_size_tokens.get());
        let rows = answer.iter().flat_map(Matches::iter);
        let held = rows.filter_map(|(row, hit)| {
            let worker = row.key().instance_name.parse().ok()?;
            let blocks = u32::try_from(hit.device_hit_tokens / block_size).ok()?;
            (blocks > 0).then_some((worker, blocks))
        });
        held.collect()
    }
}
