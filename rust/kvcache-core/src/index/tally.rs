//! How far each view slot came along a prompt, and how much of it in Host memory only.
//!
//! Two tiers in one walk: a run costs a few words, whatever the number of streams. Numbers of single
//! slots are touched only when something changes for them.

use super::slot_map::SlotMap;
use super::slot_mask::{Slot, SlotMask};
use crate::model::Sequence;

/// What an answer says of one row, in tokens. A row's values lie together, as a query writes them together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    /// The last sequence that the row's view included before the walk; [`Sequence::END`] for none.
    pub(super) sequence: Sequence,
    /// Tokens of the blocks held from the start.
    pub(super) depth: u32,
    /// Of which those with a Host copy only.
    pub(super) host_only: u32,
}

impl Count {
    /// With nothing counted.
    #[inline]
    pub(super) fn new(sequence: Sequence) -> Self {
        Self {
            sequence,
            depth: 0,
            host_only: 0,
        }
    }
}

pub(super) struct Tally<'a> {
    map: &'a SlotMap,
    /// By row.
    counts: &'a mut [Count],
    /// Slots that hold every block so far.
    alive: SlotMask,
    block_size_tokens: u32,
    /// Blocks so far.
    blocks: u32,
    /// Slots that had Host copies only in the last `pending_blocks` blocks, not yet counted.
    pending: SlotMask,
    pending_blocks: u32,
}

impl<'a> Tally<'a> {
    /// `counts` has a place for each row of `map`, with nothing counted.
    pub(super) fn new(map: &'a SlotMap, counts: &'a mut [Count], block_size_tokens: u32) -> Self {
        Self {
            map,
            counts,
            alive: map.live(),
            block_size_tokens,
            blocks: 0,
            pending: SlotMask::EMPTY,
            pending_blocks: 0,
        }
    }

    /// Slots that hold every block so far.
    #[inline]
    pub(super) fn alive(&self) -> SlotMask {
        self.alive
    }

    #[inline]
    fn count_mut(&mut self, slot: Slot) -> &mut Count {
        &mut self.counts[self.map.row_of(slot)]
    }

    /// Some blocks, which a slot holds either all or not at all.
    #[inline]
    pub(super) fn run(&mut self, blocks: u32, device: SlotMask, host: SlotMask) {
        let alive = self.alive.and(device.or(host));
        if alive != self.alive {
            self.end(self.alive.and_not(alive));
            self.alive = alive;
        }
        self.pend(alive.and_not(device), blocks);
    }

    /// The next run's blocks, for a slot that does not simply hold them all: how many it holds from the run's start, and
    /// of those in Host only. To be followed by [`Tally::run_beside`].
    #[inline]
    pub(super) fn part(&mut self, slot: Slot, held: u32, host_only: u32, goes_on: bool) {
        self.count_mut(slot).host_only += host_only * self.block_size_tokens;
        if !goes_on {
            self.count_mut(slot).depth = (self.blocks + held) * self.block_size_tokens;
            self.alive.remove(slot);
        }
    }

    /// As [`Tally::run`], for the slots in `whole` only; others were told by [`Tally::part`].
    #[inline]
    pub(super) fn run_beside(
        &mut self,
        blocks: u32,
        whole: SlotMask,
        device: SlotMask,
        host: SlotMask,
    ) {
        let hold = whole.and(device.or(host));
        let lost = whole.and_not(hold);
        self.end(lost);
        self.alive = self.alive.and_not(lost);
        self.pend(hold.and_not(device), blocks);
    }

    /// No block follows.
    #[inline]
    pub(super) fn finish(mut self) {
        if !self.pending.is_empty() {
            self.finish_pending();
        }
        self.end(self.alive);
    }

    /// Counts what is pending, and ends those in it: mostly the same streams, so that it goes around them once.
    fn finish_pending(&mut self) {
        let (depth, host_only) = (self.tokens(self.blocks), self.tokens(self.pending_blocks));
        let both = self.alive.and(self.pending);
        both.for_each(|slot| {
            let count = self.count_mut(slot);
            count.depth = depth;
            count.host_only += host_only;
        });
        self.alive = self.alive.and_not(both);
        self.pending = self.pending.and_not(both);
        self.flush();
    }

    #[inline]
    fn tokens(&self, blocks: u32) -> u32 {
        blocks * self.block_size_tokens
    }

    #[inline]
    fn pend(&mut self, host_only: SlotMask, blocks: u32) {
        if host_only != self.pending {
            self.flush();
            self.pending = host_only;
        }
        self.pending_blocks += blocks;
        self.blocks += blocks;
    }

    fn end(&mut self, slots: SlotMask) {
        let tokens = self.tokens(self.blocks);
        if tokens > 0 {
            slots.for_each(|slot| self.count_mut(slot).depth = tokens);
        }
    }

    fn flush(&mut self) {
        let tokens = self.tokens(self.pending_blocks);
        let pending = self.pending;
        pending.for_each(|slot| self.count_mut(slot).host_only += tokens);
        self.pending_blocks = 0;
    }
}
