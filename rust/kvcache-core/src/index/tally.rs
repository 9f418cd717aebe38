//! How far each view slot came along a prompt, and how much of it in Host memory only.
//!
//! Two tiers in one walk: a run costs a few words, whatever the number of streams. Numbers of single
//! slots are touched only when something changes for them.

use super::slot_mask::{Slot, SlotMask};

#[derive(Debug)]
pub(super) struct Tally {
    /// Slots that hold every block so far.
    alive: SlotMask,
    /// Slots with a number in `depth`.
    reached: SlotMask,
    /// Blocks so far.
    blocks: u32,
    /// Slots that had Host copies only in the last `pending_blocks` blocks, not yet counted.
    pending: SlotMask,
    pending_blocks: u32,
    /// Blocks held, for slots that are no longer alive.
    depth: [u32; Slot::COUNT],
    /// Of which with a Host copy only.
    host_only: [u32; Slot::COUNT],
}

impl Tally {
    pub(super) fn new(live: SlotMask) -> Self {
        Self {
            alive: live,
            reached: SlotMask::EMPTY,
            blocks: 0,
            pending: SlotMask::EMPTY,
            pending_blocks: 0,
            depth: [0; Slot::COUNT],
            host_only: [0; Slot::COUNT],
        }
    }

    /// Slots that held the first block. After the end.
    pub(super) fn reached(&self) -> SlotMask {
        self.reached
    }

    /// Slots that hold every block so far.
    #[inline]
    pub(super) fn alive(&self) -> SlotMask {
        self.alive
    }

    /// Blocks that the slot held from the start, and how many of them in Host only. After the end.
    pub(super) fn of(&self, slot: Slot) -> (u32, u32) {
        (self.depth[slot.index()], self.host_only[slot.index()])
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
    pub(super) fn part(&mut self, slot: Slot, held: u32, host_only: u32, goes_on: bool) {
        self.host_only[slot.index()] += host_only;
        if !goes_on {
            self.depth[slot.index()] = self.blocks + held;
            self.reached.insert(slot);
            self.alive.remove(slot);
        }
    }

    /// As [`Tally::run`], for the slots in `whole` only; others were told by [`Tally::part`].
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
    pub(super) fn finish(&mut self) {
        self.end(self.alive);
        self.flush();
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
        if self.blocks == 0 {
            return;
        }
        self.reached = self.reached.or(slots);
        for slot in slots.iter() {
            self.depth[slot.index()] = self.blocks;
        }
    }

    fn flush(&mut self) {
        for slot in self.pending.iter() {
            self.host_only[slot.index()] += self.pending_blocks;
        }
        self.pending_blocks = 0;
    }
}
