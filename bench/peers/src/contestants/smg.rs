//! The `SGLang` model gateway's `ChainIndex`, from the crate `kv-index`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use kv_index::{
    ChainBlockMap, ChainIndex, ContentHash, OverlapScores, SequenceHash, StoredBlock,
    compute_request_content_hashes,
};

use crate::contestant::{Contestant, Reader};
use crate::workload::{Scores, Span, Workload};

pub struct Smg {
    reader: SmgReader,
    /// By worker; the names of its blocks.
    maps: Vec<ChainBlockMap>,
}

#[derive(Clone)]
pub struct SmgReader {
    index: Arc<ChainIndex>,
    /// By worker; what the index calls it.
    ids: Arc<[u32]>,
    block_size: usize,
}

pub enum Message {
    Stored {
        worker: usize,
        parent: Option<SequenceHash>,
        blocks: Vec<StoredBlock>,
    },
    Removed {
        worker: usize,
        blocks: Vec<SequenceHash>,
    },
}

impl Contestant for Smg {
    const NAME: &'static str = "smg-chain";
    type Event = Message;
    type Reader = SmgReader;

    fn new(workload: &Workload) -> Result<Self> {
        let index = ChainIndex::new();
        let ids = (0..workload.workers).map(|worker| Ok(index.intern_worker(&worker.to_string())?));
        let ids = ids.collect::<Result<_>>()?;
        Ok(Self {
            reader: SmgReader {
                index: Arc::new(index),
                ids,
                block_size: workload.block_size as usize,
            },
            maps: (0..workload.workers)
                .map(|_| ChainBlockMap::new())
                .collect(),
        })
    }

    fn store(workload: &Workload, span: &Span) -> Message {
        let local = &workload.sequences[span.sequence].local[span.range()];
        let blocks = workload
            .wires(span)
            .zip(local)
            .map(|(wire, local)| StoredBlock {
                seq_hash: SequenceHash(wire),
                content_hash: ContentHash(*local),
            });
        Message::Stored {
            worker: span.worker as usize,
            parent: workload.parent(span).map(SequenceHash),
            blocks: blocks.collect(),
        }
    }

    fn remove(workload: &Workload, span: &Span) -> Message {
        let blocks = workload.wires(span).rev().map(SequenceHash).collect();
        Message::Removed {
            worker: span.worker as usize,
            blocks,
        }
    }

    fn apply(&mut self, events: Vec<Message>) -> Result<Duration> {
        let SmgReader { index, ids, .. } = &self.reader;
        let start = Instant::now();
        for event in &events {
            match event {
                Message::Stored {
                    worker,
                    parent,
                    blocks,
                } => {
                    index.apply_stored(ids[*worker], blocks, *parent, &mut self.maps[*worker])?;
                }
                Message::Removed { worker, blocks } => {
                    index.apply_removed(ids[*worker], blocks, &mut self.maps[*worker]);
                }
            }
        }
        Ok(start.elapsed())
    }

    fn reader(&self) -> SmgReader {
        self.reader.clone()
    }
}

impl Reader for SmgReader {
    type Keys = Vec<ContentHash>;
    type Answer = OverlapScores;

    fn hash(&self, tokens: &[u32]) -> Self::Keys {
        compute_request_content_hashes(tokens, self.block_size)
    }

    fn query_tokens(&self, tokens: &[u32]) -> OverlapScores {
        self.index.find_matches(&self.hash(tokens), false)
    }

    fn query_keys(&self, keys: &Self::Keys) -> OverlapScores {
        self.index.find_matches(keys, false)
    }

    fn score_into(&self, keys: &Self::Keys, scores: &mut [u32]) -> bool {
        let report = |id: u32, blocks: u32| {
            if let Some(score) = scores.get_mut(id as usize) {
                *score = blocks;
            }
        };
        self.index.score_into(keys, |hash| hash.0, false, report);
        true
    }

    fn scores(&self, answer: &OverlapScores) -> Scores {
        let workers = (0..).zip(self.ids.iter());
        let held = workers.filter_map(|(worker, id)| Some((worker, *answer.scores.get(id)?)));
        held.collect()
    }
}
