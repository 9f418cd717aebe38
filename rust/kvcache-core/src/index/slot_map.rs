//! What a query reads once: the streams in the order of answers, and which view slots are live.
//!
//! Immutable; a change builds a new one and swaps it in. Answers keep its rows, never the whole: a
//! retired slot waits until the last `SlotMap` that shows it is gone.

use std::sync::Arc;

use super::row::Row;
use super::rows::Rows;
use super::slot_mask::SlotMask;

/// Rows, and the slots of their views.
#[derive(Debug)]
pub(super) struct SlotMap {
    rows: Arc<Rows>,
    live: SlotMask,
    /// All live slots have lower numbers.
    slots: usize,
}

impl SlotMap {
    pub(super) fn new(rows: &[Row]) -> Self {
        let mut live = SlotMask::EMPTY;
        let mut slots = 0;
        for view in rows.iter().filter_map(Row::view) {
            live.insert(view.slot());
            slots = slots.max(view.slot().index() + 1);
        }
        Self {
            rows: Arc::new(Rows::new(rows)),
            live,
            slots,
        }
    }

    pub(super) fn rows(&self) -> &Arc<Rows> {
        &self.rows
    }

    /// How many slots there are up to the last live one.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn live(&self) -> SlotMask {
        self.live
    }
}
