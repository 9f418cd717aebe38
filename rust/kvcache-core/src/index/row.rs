//! One line of an answer, but for the hits.
//!
//! Rows are immutable and shared by answers; what changes with every message is behind the view.

use std::sync::Arc;

use super::view::ViewStats;
use crate::model::{Sequence, StreamKey};

/// A stream for as long as it is followed. The same key followed anew is another member, so that what is left of the
/// old one can change nothing of the new one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    key: StreamKey,
    identity: Option<Arc<str>>,
}

impl Member {
    /// `identity` tells processes behind one key apart, `None` where nobody knows.
    #[must_use]
    pub fn new(key: StreamKey, identity: Option<Arc<str>>) -> Self {
        Self { key, identity }
    }

    /// The stream.
    #[must_use]
    pub fn key(&self) -> &StreamKey {
        &self.key
    }
}

impl From<StreamKey> for Member {
    fn from(key: StreamKey) -> Self {
        Self::new(key, None)
    }
}

/// One stream, as answers show it.
#[derive(Clone, Debug)]
pub struct Row {
    pub(super) member: Arc<Member>,
    /// `None` while the stream is not synchronized.
    pub(super) view: Option<Arc<ViewStats>>,
    /// The last sequence of the last view, for as long as there is none.
    pub(super) last_sequence: Option<Sequence>,
    pub(super) error: Arc<str>,
}

impl Row {
    /// A stream as an answer from elsewhere showed it; `stats` is what its view held then, `None` if it had none.
    pub(super) fn shown(
        member: Member,
        error: Arc<str>,
        sequence: Option<Sequence>,
        stats: Option<ViewStats>,
    ) -> Self {
        Self {
            member: Arc::new(member),
            view: stats.map(Arc::new),
            last_sequence: sequence,
            error,
        }
    }

    /// The stream.
    #[must_use]
    pub fn key(&self) -> &StreamKey {
        &self.member.key
    }

    /// Which process the stream was followed as; `None` where nobody knows.
    #[must_use]
    pub fn identity(&self) -> Option<&str> {
        self.member.identity.as_deref()
    }

    /// The published view, or `None` when the stream is not synchronized.
    #[must_use]
    pub fn view(&self) -> Option<&ViewStats> {
        self.view.as_deref()
    }

    /// Why the stream is not synchronized; empty when it is.
    #[must_use]
    pub fn error(&self) -> &str {
        &self.error
    }
}
