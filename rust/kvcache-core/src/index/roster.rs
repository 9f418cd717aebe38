//! Who is in the index, and which view slots are free, live or waiting.
//!
//! A flipped-away slot may still be read by a query that holds an older slot map. It is *retired*
//! until every map swapped out up to then is gone, then its bits are cleared, then it is free. All of
//! it is behind one lock that queries never take; clearing bits is left to the caller, outside it.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use super::row::{Member, Row};
use super::slot_map::SlotMap;
use super::slot_mask::{Slot, SlotMask};
use crate::model::StreamKey;

#[derive(Debug)]
pub(super) struct Roster {
    /// In the order of answers.
    rows: Vec<Row>,
    free: SlotMask,
    /// Numbers the flips.
    epoch: u64,
    /// Maps that were swapped out and that some query may hold, oldest first, with their epochs.
    seen: VecDeque<(u64, Weak<SlotMap>)>,
    /// With the epoch of the flip that took the slot away.
    retired: Vec<(u64, Slot)>,
}

impl Roster {
    pub(super) fn new() -> Self {
        Self {
            rows: Vec::new(),
            free: SlotMask::ALL,
            epoch: 0,
            seen: VecDeque::new(),
            retired: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn contains(&self, key: &StreamKey) -> bool {
        self.position(key).is_ok()
    }

    pub(super) fn take_slot(&mut self) -> Option<Slot> {
        let slot = self.free.iter().next()?;
        self.free.remove(slot);
        Some(slot)
    }

    pub(super) fn free_slot(&mut self, slot: Slot) {
        self.free.insert(slot);
    }

    /// Adds a row, of a stream that has none.
    pub(super) fn add(&mut self, row: Row) {
        if let Err(position) = self.position(row.key()) {
            self.rows.insert(position, row);
        }
    }

    /// Replaces the member's row; does nothing if the member was taken out, whoever has its key now.
    pub(super) fn put(&mut self, row: Row) {
        if let Some(position) = self.position_of(&row.member) {
            self.rows[position] = row;
        }
    }

    /// Takes a member out, or, if `member` is not the one that has the key, nothing.
    pub(super) fn take_out(&mut self, member: &Arc<Member>) {
        if let Some(position) = self.position_of(member) {
            self.rows.remove(position);
        }
    }

    /// Shows the rows as they are to every query that starts from now on; `old` is no longer among them. Returns the
    /// epoch that has ended.
    pub(super) fn flip(&mut self, published: &ArcSwap<SlotMap>, old: Option<Slot>) -> u64 {
        let map = published.swap(Arc::new(SlotMap::new(&self.rows)));
        self.epoch += 1;
        self.seen.push_back((self.epoch, Arc::downgrade(&map)));
        self.retired.extend(old.map(|slot| (self.epoch, slot)));
        self.epoch
    }

    /// Everything that was shown in epochs before this one is seen by nobody any more.
    pub(super) fn oldest_seen(&mut self) -> u64 {
        self.seen.retain(|(_, map)| map.strong_count() > 0);
        // What the last holders of the maps read happened before anything that follows.
        fence(Ordering::Acquire);
        self.seen.front().map_or(u64::MAX, |(epoch, _)| *epoch)
    }

    /// Retired slots that nobody can see any more. To be cleared, then given to [`Roster::free_slot`].
    pub(super) fn take_unseen(&mut self) -> Vec<Slot> {
        let oldest_seen = self.oldest_seen();
        self.retired
            .extract_if(.., |(epoch, _)| *epoch < oldest_seen)
            .map(|(_, slot)| slot)
            .collect()
    }

    /// Slots that wait for queries to end.
    pub(super) fn retired(&self) -> usize {
        self.retired.len()
    }

    fn position(&self, key: &StreamKey) -> Result<usize, usize> {
        self.rows.binary_search_by(|row| row.key().cmp(key))
    }

    fn position_of(&self, member: &Arc<Member>) -> Option<usize> {
        let position = self.position(member.key()).ok()?;
        Arc::ptr_eq(&self.rows[position].member, member).then_some(position)
    }
}
