//! The directory: a fixed set of streams, followed until it is closed.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zmtp::Endpoint;

use super::stream_views::StreamViews;
use crate::decode::xllm::Expectation;
use crate::hash::BlockKeys;
use crate::index::{Hit, IndexError, Matches, PrefixIndex};
use crate::ingest::{IngestRuntime, StreamSource, StreamStatus, StreamTask};
use crate::model::{BlockSpec, Limits, StreamKey};
use crate::stream::{StreamSettings, StreamState};

/// One rank of one instance, to be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// Its name.
    pub key: StreamKey,
    /// How its blocks are named.
    pub block_spec: BlockSpec,
    /// Where it publishes.
    pub endpoint: Endpoint,
    /// Where it answers with snapshots.
    pub replay_endpoint: Endpoint,
    /// The exact topic.
    pub topic: String,
}

/// A stream with what it is doing.
#[derive(Clone, Debug)]
pub struct StreamInfo {
    /// What was asked for.
    pub spec: Arc<StreamSpec>,
    /// What became of it.
    pub status: StreamStatus,
    /// Blocks resident in the Device tier of its view.
    pub device_blocks: u64,
    /// Blocks resident in the Host tier of its view.
    pub host_blocks: u64,
    /// The last sequence that its view includes, or included.
    pub sequence: Option<u64>,
}

/// Why a directory cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// More streams than allowed.
    #[error("more streams than max_streams: {0}")]
    TooManyStreams(usize),
    /// The index refuses.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// No threads to be had.
    #[error("cannot start the ingest threads: {0}")]
    Runtime(#[from] std::io::Error),
    /// Closed before.
    #[error("the directory is closed")]
    Closed,
    /// Streams are not synchronized in time.
    #[error("not synchronized within {timeout_ms} ms: {streams}")]
    WaitTimeout {
        /// What was granted.
        timeout_ms: u128,
        /// Which streams, with their reasons.
        streams: String,
    },
}

#[derive(Debug)]
struct Followed {
    spec: Arc<StreamSpec>,
    task: StreamTask,
}

/// What ends when the directory is closed.
#[derive(Debug)]
struct Running {
    runtime: IngestRuntime,
    /// Sorted by key.
    streams: Vec<Followed>,
}

/// Follows streams and answers queries. Queries wait for nothing: neither for ingest nor for each other.
#[derive(Debug)]
pub struct Directory {
    /// One for each way of naming blocks. Immutable, so that a query takes no lock to find them.
    indexes: Box<[Arc<PrefixIndex>]>,
    closed: std::sync::atomic::AtomicBool,
    /// Guards starting and stopping only.
    running: Mutex<Option<Running>>,
}

impl Directory {
    /// Starts to follow `specs`.
    ///
    /// # Errors
    /// Too many streams, a stream named twice, or no threads.
    pub fn start(specs: Vec<StreamSpec>, limits: Limits) -> Result<Self, DirectoryError> {
        if specs.len() > limits.max_streams.min(Limits::MAX_STREAMS) {
            return Err(DirectoryError::TooManyStreams(specs.len()));
        }
        let mut specs: Vec<Arc<StreamSpec>> = specs.into_iter().map(Arc::new).collect();
        specs.sort_by(|a, b| a.key.cmp(&b.key));
        let runtime = IngestRuntime::start()?;
        let mut indexes: Vec<Arc<PrefixIndex>> = Vec::new();
        let mut streams = Vec::with_capacity(specs.len());
        for spec in specs {
            let known = indexes
                .iter()
                .find(|index| index.spec() == spec.block_spec)
                .cloned();
            let index = known.unwrap_or_else(|| {
                let index = PrefixIndex::new(spec.block_spec);
                indexes.push(index.clone());
                index
            });
            let writer = index.add_stream(spec.key.clone(), limits.max_blocks_per_stream)?;
            let (source, settings) = stream_parts(&spec, limits);
            let task = runtime.follow(source, settings, StreamViews::new(writer));
            streams.push(Followed { spec, task });
        }
        Ok(Self {
            indexes: indexes.into(),
            closed: false.into(),
            running: Mutex::new(Some(Running { runtime, streams })),
        })
    }

    /// Who holds how much of a prompt.
    ///
    /// # Errors
    /// [`DirectoryError::Closed`].
    pub fn query(&self, token_ids: &[u32]) -> Result<Matches, DirectoryError> {
        self.check_open()?;
        match &self.indexes[..] {
            [index] => Ok(index.query_tokens(token_ids)),
            indexes => Ok(Matches::merge(
                indexes.iter().map(|index| index.query_tokens(token_ids)),
            )),
        }
    }

    /// The same for a prompt hashed before. Streams that name blocks otherwise hold nothing of it.
    ///
    /// # Errors
    /// [`DirectoryError::Closed`]; an [`IndexError`] when no stream names blocks as the keys do.
    pub fn query_keys(&self, keys: &BlockKeys) -> Result<Matches, DirectoryError> {
        self.check_open()?;
        if self.indexes.len() == 1 || self.indexes.iter().all(|index| index.spec() != keys.spec()) {
            let Some(index) = self.indexes.first() else {
                return Ok(Matches::merge([]));
            };
            return Ok(index.query_keys(keys)?);
        }
        let matches = self.indexes.iter().map(|index| {
            if index.spec() == keys.spec() {
                index.query_keys(keys)
            } else {
                Ok(index.query_tokens(&[]))
            }
        });
        Ok(Matches::merge(matches.collect::<Result<Vec<_>, _>>()?))
    }

    /// What every stream is doing, by key.
    ///
    /// # Errors
    /// [`DirectoryError::Closed`].
    pub fn streams(&self) -> Result<Vec<StreamInfo>, DirectoryError> {
        let views = self.query(&[])?;
        let running = self.running();
        let running = running.as_ref().ok_or(DirectoryError::Closed)?;
        let hits: BTreeMap<&StreamKey, Hit> =
            views.iter().map(|(row, hit)| (row.key(), hit)).collect();
        let info = |stream: &Followed| {
            let hit = hits.get(&stream.spec.key).copied();
            let hit = hit.unwrap_or_default();
            StreamInfo {
                spec: stream.spec.clone(),
                status: stream.task.status(),
                device_blocks: hit.device_blocks,
                host_blocks: hit.host_blocks,
                sequence: hit.sequence.map(|sequence| sequence.0),
            }
        };
        Ok(running.streams.iter().map(info).collect())
    }

    /// Waits until every stream is synchronized, `slice` at most. Callers with signals to look after call it again.
    ///
    /// # Errors
    /// [`DirectoryError::Closed`].
    pub fn wait_synchronized_slice(&self, slice: Duration) -> Result<bool, DirectoryError> {
        let deadline = Instant::now() + slice;
        let changes = self
            .running()
            .as_ref()
            .ok_or(DirectoryError::Closed)?
            .runtime
            .changes();
        loop {
            let seen = changes.count();
            let synchronized = {
                let running = self.running();
                let streams = &running.as_ref().ok_or(DirectoryError::Closed)?.streams;
                streams
                    .iter()
                    .all(|stream| stream.task.state() == StreamState::Synchronized)
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if synchronized || left.is_zero() {
                return Ok(synchronized);
            }
            changes.wait_beyond(seen, left);
        }
    }

    /// The streams that are not synchronized, with their reasons, for a person.
    ///
    /// # Errors
    /// [`DirectoryError::Closed`].
    pub fn unsynchronized(&self) -> Result<String, DirectoryError> {
        let running = self.running();
        let streams = &running.as_ref().ok_or(DirectoryError::Closed)?.streams;
        let waiting = streams
            .iter()
            .map(|stream| (&stream.spec.key, stream.task.status()));
        let named: Vec<String> = waiting
            .filter(|(_, status)| status.state != StreamState::Synchronized)
            .map(|(key, status)| format!("{key} ({})", status.error))
            .collect();
        Ok(named.join(", "))
    }

    /// Whether [`Directory::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Ends every task and thread, within a second. A second call does nothing.
    pub fn close(&self) {
        self.closed
            .store(true, std::sync::atomic::Ordering::Release);
        let running = self.running().take();
        if let Some(Running { runtime, streams }) = running {
            drop(streams);
            runtime.shutdown();
        }
    }

    fn check_open(&self) -> Result<(), DirectoryError> {
        if self.is_closed() {
            Err(DirectoryError::Closed)
        } else {
            Ok(())
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.close();
    }
}

fn stream_parts(spec: &StreamSpec, limits: Limits) -> (StreamSource, StreamSettings) {
    let topic: Box<[u8]> = spec.topic.as_bytes().into();
    let seed = fastrand::u64(..);
    let source = StreamSource {
        endpoint: spec.endpoint.clone(),
        replay_endpoint: spec.replay_endpoint.clone(),
        topic: topic.clone(),
        limits,
        seed,
    };
    let block_size_tokens: NonZeroU32 = spec.block_spec.block_size_tokens;
    let expectation = Expectation {
        dp_rank: spec.key.dp_rank,
        block_size_tokens,
    };
    (
        source,
        StreamSettings {
            topic,
            expectation,
            limits,
            seed,
        },
    )
}

#[cfg(test)]
mod tests;
