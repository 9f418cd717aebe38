//! The two ends of one stream's place in a journal.

use std::sync::Arc;
use std::time::Instant;

use super::Journal;
use super::transition::{Change, Shown};
use crate::model::Sequence;

/// Reasons are cut here: they may quote what an engine sent.
const MAX_REASON_CHARS: usize = 512;

const ENDED: &str = "an internal fault ended this stream's task; stderr says which";

/// The directory's end: as long as it exists, the stream is followed. Dropped before the stream's
/// task ends.
#[derive(Debug)]
pub(crate) struct Story {
    journal: Arc<Journal>,
    stream: u64,
}

impl Story {
    pub(super) fn new(journal: Arc<Journal>, stream: u64) -> Self {
        Self { journal, stream }
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        self.journal.forget(self.stream);
    }
}

#[derive(Debug)]
enum Seen {
    Never { since: Instant },
    Synchronized,
    Lost { since: Instant },
}

/// The worker's end: writes when the view is published or taken away, not when it stays as it is.
#[derive(Debug)]
pub(crate) struct Scribe {
    journal: Arc<Journal>,
    stream: u64,
    seen: Seen,
    /// The last message that the view includes, or included.
    sequence: Option<Sequence>,
}

impl Scribe {
    pub(super) fn new(journal: Arc<Journal>, stream: u64, now: Instant) -> Self {
        Self {
            journal,
            stream,
            seen: Seen::Never { since: now },
            sequence: None,
        }
    }

    /// The view goes on.
    pub(crate) fn advanced(&mut self, sequence: Sequence) {
        self.sequence = Some(sequence);
    }

    /// A view is published, perhaps in place of another.
    pub(crate) fn published(&mut self, now: Instant, shown: Shown) {
        self.sequence = Some(shown.sequence);
        let change = match self.seen {
            Seen::Synchronized => return,
            Seen::Never { since } => Change::First {
                after: now.saturating_duration_since(since),
                shown,
            },
            Seen::Lost { since } => Change::Returned {
                after: now.saturating_duration_since(since),
                shown,
            },
        };
        self.seen = Seen::Synchronized;
        self.journal.record(now, self.stream, change);
    }

    /// No view is published.
    pub(crate) fn unpublished(&mut self, now: Instant, reason: &str) {
        if matches!(self.seen, Seen::Synchronized) {
            self.seen = Seen::Lost { since: now };
            let change = Change::Lost {
                sequence: self.sequence,
                reason: reason.chars().take(MAX_REASON_CHARS).collect(),
            };
            self.journal.record(now, self.stream, change);
        }
    }
}

impl Drop for Scribe {
    /// Nobody hears of this where the stream ends because it is not followed any more.
    fn drop(&mut self) {
        self.unpublished(Instant::now(), ENDED);
    }
}
