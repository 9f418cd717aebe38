//! Values that a journal holds.

use std::time::Duration;

use crate::model::{Sequence, StreamKey};

/// A view shows this when it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The last message that it included.
    pub sequence: Sequence,
    /// Blocks with a Device copy.
    pub device_blocks: usize,
    /// Blocks with a Host copy.
    pub host_blocks: usize,
}

/// A stream comes or goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is synchronized for the first time.
    First {
        /// Since it is followed.
        after: Duration,
        /// Its view.
        shown: Shown,
    },
    /// Its view is not believed any more.
    Lost {
        /// The last message that the view included.
        sequence: Option<Sequence>,
        /// The doubt, for a person.
        reason: String,
    },
    /// It is synchronized again.
    Returned {
        /// Since it was lost.
        after: Duration,
        /// Its new view.
        shown: Shown,
    },
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Which stream.
    pub key: StreamKey,
    /// What became of it.
    pub change: Change,
    /// Lines of this stream, before this one, that its budget left out.
    pub left_out: u64,
}

/// A reader takes these at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// In the order in which they were written.
    pub transitions: Vec<Transition>,
    /// Older ones that were dropped as nobody read them in time.
    pub dropped: u64,
}

impl Entries {
    pub(super) fn is_empty(&self) -> bool {
        self.transitions.is_empty() && self.dropped == 0
    }
}
