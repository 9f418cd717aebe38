//! The journal of a directory: which streams were lost and which returned, kept until somebody
//! reads it.
//!
//! Workers write, one reader takes, usually a thread that logs. Writing never waits for the reader:
//! each stream has a budget of lines and the whole a bound, and what does not fit is counted. The
//! lock is held for a few moves of memory.

mod backlog;
mod budget;
mod scribe;
mod transition;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use self::backlog::Backlog;
pub(super) use self::scribe::{Scribe, Story};
pub use self::transition::{Change, Entries, Shown, Transition};
use crate::model::StreamKey;

#[derive(Debug, Default)]
struct Inner {
    backlog: Backlog,
    closed: bool,
}

/// Transitions of all streams of one directory.
#[derive(Debug, Default)]
pub struct Journal {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Journal {
    /// A place for one stream that is followed from now on.
    pub(super) fn open(self: &Arc<Self>, key: StreamKey, now: Instant) -> (Story, Scribe) {
        let stream = self.lock().backlog.open(key, now);
        (
            Story::new(self.clone(), stream),
            Scribe::new(self.clone(), stream, now),
        )
    }

    /// Waits until there is something to be read, and takes it; `None` once the journal is closed
    /// and read to its end.
    #[must_use]
    pub fn wait(&self) -> Option<Entries> {
        let mut inner = self.lock();
        loop {
            let now = Instant::now();
            let entries = inner.backlog.take(now);
            if !entries.is_empty() {
                return Some(entries);
            }
            if inner.closed {
                return None;
            }
            inner = match inner.backlog.next_due(now) {
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(inner, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .changed
                    .wait(inner)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Ends the journal: nothing is written any more, and the reader is woken for the rest.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.backlog.end();
        drop(inner);
        self.changed.notify_all();
    }

    fn record(&self, now: Instant, stream: u64, change: Change) {
        self.lock().backlog.record(now, stream, change);
        self.changed.notify_all();
    }

    fn forget(&self, stream: u64) {
        self.lock().backlog.forget(stream);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
