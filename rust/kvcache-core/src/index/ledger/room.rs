//! Making room: what an event may push out, and how it goes.

use super::super::kept::{Aside, Candidate};
use super::super::trie::{BlockId, Editor, Extent, Path};
use super::Ledger;
use crate::model::WireHash;

/// What the event that needs room is about.
#[derive(Clone, Copy, Default)]
pub(super) struct Protected<'a> {
    pub(super) parent: Option<WireHash>,
    /// The parent's block.
    pub(super) below: Option<BlockId>,
    pub(super) wires: &'a [WireHash],
    /// Its blocks that the tree has.
    pub(super) path: Option<&'a Path>,
}

/// The same, sorted.
struct Lookup {
    blocks: Vec<Extent>,
    wires: Vec<WireHash>,
}

impl Lookup {
    fn new(
        protected: &Protected<'_>,
        named: impl Iterator<Item = BlockId>,
        has_orphans: bool,
    ) -> Self {
        let one = |block: BlockId| Extent {
            base: block.0,
            len: 1,
        };
        let pieces = protected.path.map_or(&[][..], |path| &path.pieces);
        let mut blocks = pieces.to_vec();
        blocks.extend(protected.below.map(one));
        blocks.extend(named.map(one));
        blocks.sort_unstable_by_key(|extent| extent.base);
        let mut wires = Vec::new();
        if has_orphans {
            wires.extend_from_slice(protected.wires);
            wires.extend(protected.parent);
            wires.sort_unstable();
        }
        Self { blocks, wires }
    }

    fn protects(&self, candidate: Candidate) -> bool {
        match candidate {
            Candidate::Orphan(wire) => self.wires.binary_search(&wire).is_ok(),
            Candidate::Block(block, _) => {
                let after = self.blocks.partition_point(|extent| extent.base <= block.0);
                after > 0 && {
                    let Extent { base, len } = self.blocks[after - 1];
                    block.0 < base + len
                }
            }
        }
    }
}

impl Ledger {
    /// By how many `entries` more would exceed the limit.
    pub(super) fn missing_room(&self, entries: usize) -> usize {
        (self.names.count() + self.kept.orphans() + entries).saturating_sub(self.max_blocks)
    }

    /// Forgets what has been without a copy longest until `missing` entries are free. False when there is nothing left to
    /// forget.
    pub(super) fn make_room(
        &mut self,
        editor: &mut Editor<'_>,
        missing: usize,
        protected: &Protected<'_>,
    ) -> bool {
        missing == 0 || {
            let has_orphans = self.kept.orphans() > 0;
            let lookup = Lookup::new(protected, std::iter::empty(), has_orphans);
            self.forget_oldest(editor, missing, &lookup)
        }
    }

    /// Forgets until `wanted` entries are free. False when that cannot be.
    fn forget_oldest(&mut self, editor: &mut Editor<'_>, wanted: usize, lookup: &Lookup) -> bool {
        let mut aside = Aside::default();
        let mut freed = 0;
        while freed < wanted {
            let slot = self.slot;
            let found = self.kept.pop(
                &mut aside,
                |candidate| lookup.protects(candidate),
                |block| editor.known_children(slot, block),
            );
            match found {
                None => break,
                Some(Candidate::Orphan(_)) => freed += 1,
                Some(Candidate::Block(block, wire)) => {
                    let parent = editor.parent(block);
                    freed += self.names.remove(block, wire);
                    editor.forget(slot, block);
                    if let Some(parent) = parent {
                        self.kept.loses_child(parent);
                    }
                }
            }
        }
        self.kept.put_back(aside);
        freed >= wanted
    }

    /// Remembers those of the wire hashes that are not known, while there is room.
    pub(super) fn remember_orphans(
        &mut self,
        editor: &mut Editor<'_>,
        wires: &[WireHash],
        parent: Option<WireHash>,
    ) {
        let blocks: Vec<Option<BlockId>> = wires
            .iter()
            .chain(&parent)
            .map(|wire| self.names.find(editor, self.slot, *wire))
            .collect();
        let mut new: Vec<WireHash> = wires
            .iter()
            .zip(&blocks)
            .filter(|(wire, block)| block.is_none() && !self.kept.is_orphan(**wire))
            .map(|(wire, _)| *wire)
            .collect();
        let mut seen = std::collections::HashSet::new();
        new.retain(|wire| seen.insert(*wire));
        let missing = self.missing_room(new.len());
        if missing > 0 {
            let protected = Protected {
                parent,
                wires,
                ..Protected::default()
            };
            let lookup = Lookup::new(&protected, blocks.into_iter().flatten(), true);
            self.forget_oldest(editor, missing, &lookup);
        }
        let room =
            self.max_blocks - (self.names.count() + self.kept.orphans()).min(self.max_blocks);
        for wire in new.into_iter().take(room) {
            self.kept.add_orphan(wire);
        }
    }

    /// Makes what was added without regard to the limit fit.
    pub(super) fn shrink_to_limit(&mut self, editor: &mut Editor<'_>) {
        self.make_room(editor, self.missing_room(0), &Protected::default());
    }
}
