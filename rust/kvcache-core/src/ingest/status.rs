//! What a stream's worker tells the rest of the process.
//!
//! The worker writes after each burst of messages; readers copy. Nobody holds the lock longer than a copy takes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::rate::RateMeter;
use crate::stream::{Counters, Sizes, StreamState};

/// One stream's state, as of its latest message.
#[derive(Clone, Debug)]
pub struct StreamStatus {
    /// Where it is in its life.
    pub state: StreamState,
    /// Why it is not synchronized; empty when it is.
    pub error: String,
    /// The latest doubt, kept after recovery.
    pub last_error: String,
    /// Totals.
    pub counters: Counters,
    /// What the view occupies.
    pub sizes: Sizes,
    /// Messages queued or kept for a snapshot.
    pub buffered_bytes: usize,
    /// Over about the last ten seconds.
    pub messages_per_second: f64,
    /// Over about the last ten seconds.
    pub bytes_per_second: f64,
}

/// Why a stream is not synchronized that nobody follows any more.
const ENDED: &str = "an internal fault ended this stream's task, stderr says which; restart the process to follow it again";

#[derive(Debug)]
struct Inner {
    status: StreamStatus,
    rate: RateMeter,
}

/// The place where a worker leaves its status.
#[derive(Debug)]
pub(super) struct StatusCell {
    inner: Mutex<Inner>,
    changes: Arc<StateChanges>,
}

impl StatusCell {
    pub(super) fn new(now: Instant, changes: Arc<StateChanges>) -> Self {
        let status = StreamStatus {
            state: StreamState::Connecting,
            error: "connecting".to_owned(),
            last_error: String::new(),
            counters: Counters::default(),
            sizes: Sizes::default(),
            buffered_bytes: 0,
            messages_per_second: 0.0,
            bytes_per_second: 0.0,
        };
        Self {
            inner: Mutex::new(Inner {
                status,
                rate: RateMeter::new(now),
            }),
            changes,
        }
    }

    pub(super) fn update(&self, now: Instant, change: impl FnOnce(&mut StreamStatus)) {
        let mut inner = lock(&self.inner);
        let before = inner.status.state;
        change(&mut inner.status);
        let (messages, bytes) = (inner.status.counters.messages, inner.status.counters.bytes);
        inner.rate.record(now, messages, bytes);
        let changed = inner.status.state != before;
        drop(inner);
        if changed {
            self.changes.notify();
        }
    }

    /// Nobody follows the stream any more.
    pub(super) fn end(&self, now: Instant) {
        self.update(now, |status| {
            status.state = StreamState::Connecting;
            ENDED.clone_into(&mut status.error);
            ENDED.clone_into(&mut status.last_error);
            status.sizes = Sizes::default();
            status.buffered_bytes = 0;
        });
    }

    pub(super) fn read(&self, now: Instant) -> StreamStatus {
        let inner = lock(&self.inner);
        let mut status = inner.status.clone();
        (status.messages_per_second, status.bytes_per_second) =
            inner
                .rate
                .per_second(now, status.counters.messages, status.counters.bytes);
        status
    }

    pub(super) fn state(&self) -> StreamState {
        lock(&self.inner).status.state
    }
}

/// Wakes whoever waits for some stream's state to change.
#[derive(Debug, Default)]
pub struct StateChanges {
    count: Mutex<u64>,
    changed: Condvar,
}

impl StateChanges {
    /// Changes so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        *lock(&self.count)
    }

    /// Waits until there are more than `seen` changes, or `timeout` has passed.
    pub fn wait_beyond(&self, seen: u64, timeout: Duration) {
        let count = lock(&self.count);
        drop(
            self.changed
                .wait_timeout_while(count, timeout, |count| *count <= seen),
        );
    }

    /// Wakes them: something changed that they look at.
    pub fn notify(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }
}

/// A panic elsewhere leaves plain data behind: it is as good as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
