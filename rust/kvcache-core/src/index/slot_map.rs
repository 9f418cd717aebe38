//! What a query reads once: the streams in the order of answers, and which view slots are live.
//!
//! Immutable; a change builds a new one and swaps it in. Answers keep its rows, never the whole: a
//! retired slot waits until the last `SlotMap` that shows it is gone.

use std::sync::Arc;

use super::row::Row;
use super::slot_mask::{Slot, SlotMask};
use super::view::ViewStats;

/// Rows, and which slot belongs to which.
#[derive(Debug)]
pub(super) struct SlotMap {
    rows: Arc<[Row]>,
    live: SlotMask,
    /// Meaningful for live slots only.
    row_of_slot: [u8; Slot::COUNT],
    /// The slot of each row's view, if it has one.
    slots: Box<[Option<Slot>]>,
}

impl SlotMap {
    pub(super) fn new(rows: &[Row]) -> Self {
        let mut live = SlotMask::EMPTY;
        let mut row_of_slot = [0; Slot::COUNT];
        for (position, row) in (0u8..).zip(rows) {
            if let Some(view) = &row.view {
                live.insert(view.slot());
                row_of_slot[view.slot().index()] = position;
            }
        }
        Self {
            rows: rows.into(),
            live,
            row_of_slot,
            slots: rows
                .iter()
                .map(|row| row.view().map(ViewStats::slot))
                .collect(),
        }
    }

    pub(super) fn rows(&self) -> &Arc<[Row]> {
        &self.rows
    }

    /// By row.
    pub(super) fn slots(&self) -> &[Option<Slot>] {
        &self.slots
    }

    pub(super) fn live(&self) -> SlotMask {
        self.live
    }

    /// The row whose view has `slot`, which must be live.
    #[inline]
    pub(super) fn row_of(&self, slot: Slot) -> usize {
        usize::from(self.row_of_slot[slot.index()])
    }
}
