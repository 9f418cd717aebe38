//! Dynamo's concurrent indexes, driven as its own thread pool drives them, with one thread.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use dynamo_kv_router::indexer::{SyncIndexer, WorkerTask};
use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData,
    KvCacheStoreData, KvCacheStoredBlockData,
};
use dynamo_kv_router::{
    ConcurrentRadixTreeCompressed, LocalBlockHash, OverlapScores, PositionalIndexer, RouterEvent,
    compute_block_hash_for_seq,
};

use super::flush_mark::FlushMark;
use crate::contestant::{Contestant, Reader};
use crate::workload::{Scores, Span, Workload};

/// Which of Dynamo's indexes.
pub trait Kind: Send {
    const NAME: &'static str;
    type Indexer: SyncIndexer;

    fn indexer() -> Self::Indexer;
}

/// The concurrent, compressed radix tree.
pub struct Compressed;

impl Kind for Compressed {
    const NAME: &'static str = "dynamo-compressed";
    type Indexer = ConcurrentRadixTreeCompressed;

    fn indexer() -> Self::Indexer {
        ConcurrentRadixTreeCompressed::new()
    }
}

/// The positional index, with the jump that its documentation suggests.
pub struct Positional;

impl Kind for Positional {
    const NAME: &'static str = "dynamo-positional";
    type Indexer = PositionalIndexer;

    fn indexer() -> Self::Indexer {
        PositionalIndexer::new(32)
    }
}

pub struct Dynamo<K: Kind> {
    reader: DynamoReader<K::Indexer>,
    queue: flume::Sender<WorkerTask>,
    thread: Option<JoinHandle<Result<()>>>,
    kind: PhantomData<K>,
}

pub struct DynamoReader<I> {
    indexer: Arc<I>,
    block_size: u32,
}

impl<K: Kind> Contestant for Dynamo<K> {
    const NAME: &'static str = K::NAME;
    type Event = RouterEvent;
    type Reader = DynamoReader<K::Indexer>;

    fn new(workload: &Workload) -> Result<Self> {
        let indexer = Arc::new(K::indexer());
        let (queue, tasks) = flume::unbounded();
        let drained = indexer.clone();
        let thread = std::thread::Builder::new().name("dynamo".into());
        Ok(Self {
            reader: DynamoReader {
                indexer,
                block_size: workload.block_size,
            },
            queue,
            thread: Some(thread.spawn(move || drained.worker(tasks, None))?),
            kind: PhantomData,
        })
    }

    fn store(workload: &Workload, span: &Span) -> RouterEvent {
        let local = &workload.sequences[span.sequence].local[span.range()];
        let blocks = workload
            .wires(span)
            .zip(local)
            .map(|(wire, local)| KvCacheStoredBlockData {
                block_hash: ExternalSequenceBlockHash(wire),
                tokens_hash: LocalBlockHash(*local),
                mm_extra_info: None,
            });
        event(
            span,
            KvCacheEventData::Stored(KvCacheStoreData {
                parent_hash: workload.parent(span).map(ExternalSequenceBlockHash),
                start_position: None,
                blocks: blocks.collect(),
            }),
        )
    }

    fn remove(workload: &Workload, span: &Span) -> RouterEvent {
        let block_hashes = workload
            .wires(span)
            .rev()
            .map(ExternalSequenceBlockHash)
            .collect();
        event(
            span,
            KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }),
        )
    }

    fn apply(&mut self, events: Vec<RouterEvent>) -> Result<Duration> {
        let (open, gate) = channel();
        let (first, flush) = FlushMark::new(Some(gate));
        self.send(WorkerTask::Flush(flush))?;
        for event in events {
            self.send(WorkerTask::Event(event))?;
        }
        let (last, flush) = FlushMark::new(None);
        self.send(WorkerTask::Flush(flush))?;
        open.send(())?;
        let start = first.wait()?;
        Ok(last.wait()?.duration_since(start))
    }

    fn reader(&self) -> Self::Reader {
        DynamoReader {
            indexer: self.reader.indexer.clone(),
            block_size: self.reader.block_size,
        }
    }
}

impl<K: Kind> Dynamo<K> {
    fn send(&self, task: WorkerTask) -> Result<()> {
        self.queue
            .send(task)
            .ok()
            .context("Dynamo's thread has ended")
    }
}

impl<K: Kind> Drop for Dynamo<K> {
    fn drop(&mut self) {
        let _ = self.queue.send(WorkerTask::Terminate);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn event(span: &Span, data: KvCacheEventData) -> RouterEvent {
    let event = KvCacheEvent {
        event_id: 0,
        data,
        dp_rank: 0,
    };
    RouterEvent::new(u64::from(span.worker), event)
}

impl<I: SyncIndexer> Reader for DynamoReader<I> {
    type Keys = Vec<LocalBlockHash>;
    type Answer = OverlapScores;

    fn hash(&self, tokens: &[u32]) -> Self::Keys {
        compute_block_hash_for_seq(tokens, self.block_size, BlockHashOptions::default())
    }

    fn query_tokens(&self, tokens: &[u32]) -> OverlapScores {
        self.indexer.find_matches(&self.hash(tokens), false)
    }

    fn query_keys(&self, keys: &Self::Keys) -> OverlapScores {
        self.indexer.find_matches(keys, false)
    }

    fn scores(&self, answer: &OverlapScores) -> Scores {
        let scores = answer.scores.iter();
        let held = scores
            .filter_map(|(worker, blocks)| Some((u32::try_from(worker.worker_id).ok()?, *blocks)));
        held.filter(|(_, blocks)| *blocks > 0).collect()
    }
}
