//! One line of an answer, but for the hits.
//!
//! Rows are immutable and shared by answers; what changes with every message is behind the view.

use std::sync::Arc;

use super::view::ViewStats;
use crate::model::{Sequence, StreamKey};

/// One stream, as answers show it.
#[derive(Clone, Debug)]
pub struct Row {
    pub(super) key: StreamKey,
    /// `None` while the stream is not synchronized.
    pub(super) view: Option<Arc<ViewStats>>,
    /// The last sequence of the last view, for as long as there is none.
    pub(super) last_sequence: Option<Sequence>,
    pub(super) error: Arc<str>,
}

impl Row {
    /// The stream.
    #[must_use]
    pub fn key(&self) -> &StreamKey {
        &self.key
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
