//! Live messages kept while a snapshot is on its way.
//!
//! Invariant: the sequences kept are contiguous and end at the latest message heard; `cost_bytes ≤ max_bytes`.

use std::collections::VecDeque;

use crate::model::{Batch, Event, Sequence};

/// A live message that was decoded once, to be sure of it, and is decoded again when it is merged: its wire bytes are
/// several times smaller than its records.
#[derive(Debug)]
pub(super) struct Delta {
    pub(super) sequence: Sequence,
    pub(super) payload: Box<[u8]>,
}

/// A bounded queue of deltas.
#[derive(Debug)]
pub(super) struct DeltaBuffer {
    deltas: VecDeque<Delta>,
    cost_bytes: usize,
    max_bytes: usize,
}

/// The budget is used up; the buffer is empty now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overflow;

impl DeltaBuffer {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            deltas: VecDeque::new(),
            cost_bytes: 0,
            max_bytes,
        }
    }

    /// Keeps a message. One that does not follow the last makes those before it useless: they go.
    pub(super) fn push(
        &mut self,
        sequence: Sequence,
        payload: &[u8],
        batch: &Batch,
    ) -> Result<(), Overflow> {
        if self
            .deltas
            .back()
            .is_some_and(|last| last.sequence.next() != Some(sequence))
        {
            self.clear();
        }
        let cost = payload.len() + size_of::<Delta>() + size_of::<Event>() * batch.events.len();
        if self.cost_bytes + cost > self.max_bytes {
            self.clear();
            return Err(Overflow);
        }
        self.cost_bytes += cost;
        self.deltas.push_back(Delta {
            sequence,
            payload: payload.into(),
        });
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        // A buffer that once held megabytes gives them back: 128 streams may do so in turn.
        self.deltas = VecDeque::new();
        self.cost_bytes = 0;
    }

    pub(super) fn first(&self) -> Option<Sequence> {
        self.deltas.front().map(|delta| delta.sequence)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Delta> {
        self.deltas.iter()
    }

    pub(super) fn cost_bytes(&self) -> usize {
        self.cost_bytes
    }
}
