//! The directory: a set of streams that can be changed while it is asked, followed until it is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zmtp::Endpoint;

use super::indexes::Indexes;
use super::journal::{Journal, Story};
use super::stream_views::StreamViews;
use crate::decode::xllm::Expectation;
use crate::hash::BlockKeys;
use crate::index::{Hit, IndexError, Matches, Member, PrefixIndex};
use crate::ingest::{IngestRuntime, StreamSource, StreamStatus, StreamTask};
use crate::model::{BlockSpec, Limits, StreamKey};
use crate::stream::{StreamSettings, StreamState};

/// One rank of one instance, to be followed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// Which process this is, for whoever compares; `None` where nobody knows. With another one the stream is another.
    pub identity: Option<Arc<str>>,
}

/// What [`Directory::set_streams`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamChanges {
    /// Streams that are followed from now on.
    pub added: usize,
    /// Streams that are not followed any more.
    pub retired: usize,
    /// Streams that were not touched.
    pub kept: usize,
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
    /// A directory keeps an index for each way of naming blocks, for ever.
    #[error("streams of more than {max} block sizes and seeds", max = Indexes::MAX)]
    TooManySpecs,
    /// A stream is followed once.
    #[error("two streams with one instance and rank: {0}")]
    DuplicateStream(StreamKey),
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
    index: Arc<PrefixIndex>,
    member: Arc<Member>,
    /// Goes before the task, whose end is no loss then.
    story: Story,
    task: StreamTask,
}

impl Followed {
    /// Takes the stream out of answers, from this instant, and then ends its tasks. Whatever they do until they have
    /// ended, nobody sees.
    fn retire(self) {
        self.index.retire(&self.member);
        drop(self.story);
        drop(self.task);
    }
}

/// What ends when the directory is closed.
#[derive(Debug)]
struct Running {
    runtime: IngestRuntime,
    streams: BTreeMap<StreamKey, Followed>,
}

/// Follows streams and answers queries. Queries wait for nothing: neither for ingest nor for each other.
#[derive(Debug)]
pub struct Directory {
    limits: Limits,
    indexes: Indexes,
    journal: Arc<Journal>,
    closed: std::sync::atomic::AtomicBool,
    /// Guards starting and stopping only.
    running: Mutex<Option<Running>>,
}

impl Directory {
    /// Starts to follow `specs`.
    ///
    /// # Errors
    /// As [`Directory::set_streams`]; no threads.
    pub fn start(specs: Vec<StreamSpec>, limits: Limits) -> Result<Self, DirectoryError> {
        check(&specs, limits)?;
        let directory = Self {
            limits,
            indexes: Indexes::default(),
            journal: Arc::default(),
            closed: false.into(),
            running: Mutex::new(Some(Running {
                runtime: IngestRuntime::start()?,
                streams: BTreeMap::new(),
            })),
        };
        directory.set_streams(specs)?;
        Ok(directory)
    }

    /// Follows exactly `specs` from now on. A stream that is followed with an equal spec is not touched. One that is not
    /// among them, or among them with another spec, gives no hit from this instant; the other gives none before its own
    /// snapshot.
    ///
    /// # Errors
    /// Too many streams, or one twice: nothing is changed then. [`DirectoryError::TooManySpecs`],
    /// [`DirectoryError::Closed`].
    pub fn set_streams(&self, specs: Vec<StreamSpec>) -> Result<StreamChanges, DirectoryError> {
        check(&specs, self.limits)?;
        for spec in &specs {
            self.indexes.get_or_add(spec.block_spec)?;
        }
        let wanted = specs.into_iter().map(|spec| (spec.key.clone(), spec));
        let mut wanted: BTreeMap<StreamKey, StreamSpec> = wanted.collect();
        let mut running = self.running();
        let running = running.as_mut().ok_or(DirectoryError::Closed)?;
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = mem::take(&mut running.streams)
            .into_iter()
            .partition(|(key, stream)| wanted.get(key) == Some(&*stream.spec));
        running.streams = kept;
        let retired = gone.len();
        // All out of answers before the first is added: their places may be needed.
        gone.into_values().for_each(Followed::retire);
        wanted.retain(|key, _| !running.streams.contains_key(key));
        let (kept, added) = (running.streams.len(), wanted.len());
        for (key, spec) in wanted {
            let stream = self.follow(&running.runtime, spec)?;
            running.streams.insert(key, stream);
        }
        running.runtime.changes().notify();
        Ok(StreamChanges {
            added,
            retired,
            kept,
        })
    }

    fn follow(
        &self,
        runtime: &IngestRuntime,
        spec: StreamSpec,
    ) -> Result<Followed, DirectoryError> {
        let index = self.indexes.get_or_add(spec.block_spec)?;
        let member = Member::new(spec.key.clone(), spec.identity.clone());
        let writer = index.add_stream(member, self.limits.max_blocks_per_stream)?;
        let member = writer.member().clone();
        let (source, settings) = stream_parts(&spec, self.limits);
        let (story, scribe) = self.journal.open(spec.key.clone(), Instant::now());
        let views = StreamViews::new(writer).told_to(scribe);
        let task = runtime.follow(source, settings, views);
        Ok(Followed {
            spec: Arc::new(spec),
            index,
            member,
            story,
            task,
        })
    }

    /// Who holds how much of a prompt.
    ///
    /// # Errors
    /// [`DirectoryError::Closed`].
    pub fn query(&self, token_ids: &[u32]) -> Result<Matches, DirectoryError> {
        self.check_open()?;
        match self.indexes.only() {
            Some(index) => Ok(index.query_tokens(token_ids)),
            None => Ok(Matches::merge(
                self.indexes
                    .iter()
                    .map(|index| index.query_tokens(token_ids)),
            )),
        }
    }

    /// The same for a prompt hashed before. Streams that name blocks otherwise hold nothing of it.
    ///
    /// # Errors
    /// [`DirectoryError::Closed`]; an [`IndexError`] when no stream names blocks as the keys do.
    pub fn query_keys(&self, keys: &BlockKeys) -> Result<Matches, DirectoryError> {
        self.check_open()?;
        let is_known = self.indexes.iter().any(|index| index.spec() == keys.spec());
        if !is_known && let Some(index) = self.indexes.iter().next() {
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
        let running = self.running();
        let running = running.as_ref().ok_or(DirectoryError::Closed)?;
        let views = self.query(&[])?;
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
        Ok(running.streams.values().map(info).collect())
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
                    .values()
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
            .values()
            .map(|stream| (&stream.spec.key, stream.task.status()));
        let named: Vec<String> = waiting
            .filter(|(_, status)| status.state != StreamState::Synchronized)
            .map(|(key, status)| format!("{key} ({})", status.error))
            .collect();
        Ok(named.join(", "))
    }

    /// Gives the journal of lost and returned streams, for one reader. It ends when the directory
    /// is closed, and does not hold it.
    #[must_use]
    pub fn journal(&self) -> Arc<Journal> {
        self.journal.clone()
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
        // Before the tasks end: that is no loss.
        self.journal.close();
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

/// Whether a directory can follow all of `specs`.
fn check(specs: &[StreamSpec], limits: Limits) -> Result<(), DirectoryError> {
    if specs.len() > limits.max_streams.min(Limits::MAX_STREAMS) {
        return Err(DirectoryError::TooManyStreams(specs.len()));
    }
    let mut keys = BTreeSet::new();
    match specs.iter().find(|spec| !keys.insert(&spec.key)) {
        Some(spec) => Err(DirectoryError::DuplicateStream(spec.key.clone())),
        None => Ok(()),
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
