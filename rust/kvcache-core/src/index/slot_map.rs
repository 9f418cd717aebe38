//! What a query reads once: the streams in the order of answers, and which view slots are live.
//!
//! Immutable; a change builds a new one and swaps it in. Answers keep its rows, never the whole: a
//! retired slot waits until the last `SlotMap` that shows it is gone.

use std::sync::Arc;

use super::row::Row;
use super::slot_mask::{Slot, SlotMask};
use super::view::NO_SLOT;

/// Rows, and which slot belongs to which.
#[derive(Debug)]
pub(super) struct SlotMap {
    rows: Arc<[Row]>,
    live: SlotMask,
    /// Meaningful for live slots only.
    row_of_slot: [u8; Slot::COUNT],
    /// The number of the slot of each row's view, or [`NO_SLOT`].
    slots: Box<[u8]>,
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
            slots: rows.iter().map(slot_number).collect(),
        }
    }

    pub(super) fn rows(&self) -> &Arc<[Row]> {
        &self.rows
    }

    /// By row: a slot's number, or [`NO_SLOT`].
    pub(super) fn slots(&self) -> &[u8] {
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

fn slot_number(row: &Row) -> u8 {
    row.view().map_or(NO_SLOT, |view| view.slot().number())
}
