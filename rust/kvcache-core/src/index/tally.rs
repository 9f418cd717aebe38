//! How far each view slot came along a prompt, and how much of it in Host memory only.
//!
//! Two tiers in one walk: a run costs a few words, whatever the number of streams. Numbers of single
//! slots are touched only when something changes for them, those of neighbours together.

use super::slot_map::SlotMap;
use super::slot_mask::{Slot, SlotMask};

/// What a walk counts of one slot: tokens of the blocks held from the start, and of which those with a Host copy only. One
/// word, so that one addition counts both: a prompt has fewer than 2^32 tokens, and no half overflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count(pub(super) u64);

impl Count {
    #[inline]
    pub(super) fn new(depth: u32, host_only: u32) -> Self {
        Self(u64::from(depth) << 32 | u64::from(host_only))
    }

    pub(super) fn depth(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(super) fn host_only(self) -> u32 {
        self.0 as u32
    }
}

pub(super) struct Tally<'a> {
    /// By slot: what [`Count`] wraps.
    counts: &'a mut [u64],
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
    /// `counts` has a place for each slot of `map`, with nothing counted.
    pub(super) fn new(map: &SlotMap, counts: &'a mut [u64], block_size_tokens: u32) -> Self {
        Self {
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

    /// Some blocks, which a slot holds either all or not at all.
    #[inline]
    pub(super) fn run(&mut self, blocks: u32, device: SlotMask, host: SlotMask) {
        let alive = self.alive.and(device.or(host));
        if alive != self.alive {
            self.end(self.alive.and_not(alive), 0);
            self.alive = alive;
        }
        self.pend(alive.and_not(device), blocks);
    }

    /// The next run's blocks, for a slot that does not simply hold them all: how many it holds from the run's start, and
    /// of those in Host only. To be followed by [`Tally::run_beside`].
    #[inline]
    pub(super) fn part(&mut self, slot: Slot, held: u32, host_only: u32, goes_on: bool) {
        let mut depth = 0;
        if !goes_on {
            depth = self.tokens(self.blocks + held);
            self.alive.remove(slot);
        }
        self.counts[slot.index()] += Count::new(depth, self.tokens(host_only)).0;
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
        self.end(lost, 0);
        self.alive = self.alive.and_not(lost);
        self.pend(hold.and_not(device), blocks);
    }

    /// No block follows.
    #[inline]
    pub(super) fn finish(mut self) {
        if self.pending_blocks > 0 {
            // Mostly the same streams: each is gone to once.
            let both = self.alive.and(self.pending);
            self.end(both, self.tokens(self.pending_blocks));
            self.alive = self.alive.and_not(both);
            self.pending = self.pending.and_not(both);
            self.flush();
        }
        self.end(self.alive, 0);
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

    /// `slots` hold nothing more. Of what they hold, `host_only` tokens have Host copies only and were not counted yet.
    #[inline]
    fn end(&mut self, slots: SlotMask, host_only: u32) {
        if self.blocks == 0 {
            return;
        }
        let more = Count::new(self.tokens(self.blocks), host_only);
        slots.add_to(self.counts, more.0);
    }

    #[inline]
    fn flush(&mut self) {
        let more = Count::new(0, self.tokens(self.pending_blocks));
        self.pending.add_to(self.counts, more.0);
        self.pending_blocks = 0;
    }
}
