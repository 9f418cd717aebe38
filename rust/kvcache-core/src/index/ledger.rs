//! One stream's view: what it calls, knows and holds, and the rules that events follow.
//!
//! What is known and held is in the tree, under the view's slot; names, kept blocks, orphans and counts
//! are here. An event is checked before it changes anything, so that a failing one leaves copies, names
//! and orphans as they were; one that finds no room may have made some. Knows nothing of queries.

mod calibration;
mod room;
mod store;

use super::kept::Kept;
use super::names::Names;
use super::slot_mask::Slot;
use super::trie::{BlockId, Claim, Editor, MAX_RUN, Path, Reach};
use crate::model::{ApplyReport, Tier, WireHash};

/// Where an event comes from, which decides what a broken chain of parents means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A live delta: what it refers to must be known.
    Live,
    /// A snapshot: blocks whose parents are gone become orphans.
    Snapshot,
}

/// What a view holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks with a Device copy.
    pub device_blocks: usize,
    /// Blocks with a Host copy.
    pub host_blocks: usize,
    /// Wire hashes that name a block, resident or not.
    pub known: usize,
    /// Wire hashes remembered as orphans.
    pub orphans: usize,
}

/// One view, as its writer keeps it.
#[derive(Debug)]
pub(super) struct Ledger {
    slot: Slot,
    /// Names and orphans together stay within it.
    max_blocks: usize,
    names: Names,
    kept: Kept,
    /// By tier.
    blocks: [usize; 2],
    /// The engine has said that it cleared its cache: whatever was known before means nothing any more.
    is_cleared: bool,
    scratch: Scratch,
}

/// Memory for one event.
#[derive(Debug, Default)]
struct Scratch {
    path: Path,
    claim: Claim,
}

/// Pieces of scratch memory that stay from one event to the next: one huge event must not be paid for ever.
const MAX_KEPT_PIECES: usize = 1_024;

impl Ledger {
    /// An empty view in a slot that has nothing in the tree. `private_names` guesses whether the engine's wire hashes are
    /// its own.
    pub(super) fn new(slot: Slot, max_blocks: usize, private_names: bool) -> Self {
        Self {
            slot,
            max_blocks,
            names: Names::new(private_names),
            kept: Kept::new(),
            blocks: [0; 2],
            is_cleared: false,
            scratch: Scratch::default(),
        }
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    pub(super) fn has_private_names(&self) -> bool {
        self.names.are_private()
    }

    /// Takes the copies in one tier away; the blocks stay known.
    pub(super) fn remove(
        &mut self,
        editor: &mut Editor<'_>,
        wires: &[WireHash],
        tier: Option<Tier>,
    ) -> ApplyReport {
        let mut report = ApplyReport::default();
        let Some(tier) = tier else {
            report.other_tier = wires.len() as u64;
            return report;
        };
        if self.names.are_private() {
            for some in wires.chunks(MAX_RUN as usize) {
                self.names.touch(some);
            }
        }
        let mut rest = wires;
        while let Some(&wire) = rest.first() {
            let Some(block) = self.names.find(editor, self.slot, wire) else {
                report.already_removed += 1;
                rest = &rest[1..];
                continue;
            };
            let reach = self.consecutive(editor, block, rest);
            let taken = editor.take_copies(self.slot, block, reach, tier);
            report.removed += u64::from(taken.removed);
            report.already_removed += u64::from(taken.count - taken.removed);
            self.blocks[tier as usize] -= taken.removed as usize;
            for (position, block) in taken.bare() {
                self.kept.add(block, rest[position]);
            }
            rest = &rest[taken.count as usize..];
        }
        report
    }

    /// How many of `wires`, of which the first names `block`, name the blocks of its run that come right before it, one by
    /// one, or right after it.
    fn consecutive(&self, editor: &Editor<'_>, block: BlockId, wires: &[WireHash]) -> Reach {
        let (before, after) = editor.run_around(self.slot, block);
        let names = |id: u32, wire: WireHash| {
            let block = BlockId(id);
            if self.names.are_first_names() {
                editor.first_name(block) == Some(wire)
            } else {
                self.names.find(editor, self.slot, wire) == Some(block)
            }
        };
        let rest = &wires[1..];
        let count = |ids: &mut dyn Iterator<Item = u32>| {
            let pairs = ids.zip(rest);
            1 + pairs.take_while(|(id, wire)| names(*id, **wire)).count()
        };
        let backward = count(&mut (block.0 - before..block.0).rev());
        let is_backward = backward > 1;
        let forward = if is_backward {
            1
        } else {
            count(&mut (block.0 + 1..=block.0 + after))
        };
        Reach {
            count: backward.max(forward),
            is_backward,
        }
    }

    /// Forgets everything; when that is live news, also for the view that this one may replace.
    pub(super) fn clear(&mut self, editor: &mut Editor<'_>, origin: Origin) -> ApplyReport {
        while !editor.clear_some(self.slot, usize::MAX, false) {}
        let removed = self.blocks.iter().sum::<usize>() as u64;
        *self = Self {
            is_cleared: self.is_cleared || origin == Origin::Live,
            ..Self::new(self.slot, self.max_blocks, self.has_private_names())
        };
        ApplyReport {
            removed,
            ..ApplyReport::default()
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let [device_blocks, host_blocks] = self.blocks;
        Counts {
            device_blocks,
            host_blocks,
            known: self.names.count(),
            orphans: self.kept.orphans(),
        }
    }

    /// Estimated heap bytes, without the tree. Asked for after every burst of messages: nothing here walks the blocks.
    pub(super) fn heap_bytes(&self) -> usize {
        self.names.heap_bytes() + self.kept.heap_bytes()
    }

    fn trim_scratch(&mut self) {
        self.scratch.path.pieces.clear();
        self.scratch.path.pieces.shrink_to(MAX_KEPT_PIECES);
    }
}
