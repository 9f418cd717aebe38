//! What a new view keeps of the one it replaces.
//!
//! A snapshot names resident blocks alone, but an engine may still refer to the others, as parents and
//! in tokenless events (spec: content keys). They are kept as far as there is room, without copies and
//! as the oldest of all. What the new view knows, it knows better: a wire hash that it uses is its own.
//! Nothing outlives a clear: an engine that has cleared its cache refers to nothing from before.

use std::collections::HashMap;

use super::super::kept::Candidate;
use super::super::trie::{BlockId, Editor};
use super::Ledger;
use crate::model::WireHash;

impl Ledger {
    /// Whether both hold copies of the same blocks in the same tiers.
    pub(in super::super) fn same_copies(&self, editor: &Editor<'_>, other: &Self) -> bool {
        self.blocks == other.blocks && editor.same_copies(self.slot, other.slot)
    }

    /// Counts copies that are in one of both views only.
    pub(in super::super) fn differing_copies(&self, editor: &Editor<'_>, other: &Self) -> usize {
        let held: usize = self.blocks.iter().chain(&other.blocks).sum();
        held - 2 * editor.shared_copies(self.slot, other.slot)
    }

    /// Whether nothing but copies is in this view, called as all engines call them.
    pub(in super::super) fn is_plain(&self) -> bool {
        self.names.are_first_names() && self.kept.is_empty()
    }

    /// Whether `other`, which has the same copies and nothing else, adds nothing to this view.
    pub(in super::super) fn includes(&self, other: &Self) -> bool {
        let knows_as_much = if other.is_cleared {
            self.is_plain()
        } else {
            self.names.are_first_names() && self.kept.orphans() == 0
        };
        other.is_plain() && knows_as_much
    }

    /// Keeps what `old` knows and this view does not, unless it was cleared. To be called once, before this one is published.
    pub(in super::super) fn keep_known(&mut self, editor: &mut Editor<'_>, old: &mut Self) {
        if self.is_cleared {
            return;
        }
        let mut carried: HashMap<BlockId, WireHash> = HashMap::new();
        for first in editor.known_beyond(old.slot, self.slot) {
            self.carry_run(editor, old, first, &mut carried);
        }
        let mut kept = Vec::new();
        for (block, _) in old.kept.blocks() {
            kept.extend(carried.remove(&block).map(|name| (block, name)));
        }
        // What had a copy until now has lost it last, all at once.
        let mut lost: Vec<(WireHash, BlockId)> = carried
            .into_iter()
            .map(|(block, name)| (name, block))
            .collect();
        lost.sort_unstable();
        kept.extend(lost.into_iter().map(|(name, block)| (block, name)));
        for (block, name) in kept.into_iter().rev() {
            self.kept.put_first(Candidate::Block(block, name));
        }
        self.shrink_to_limit(editor);
    }

    /// Carries the blocks of one run that only `old` knows, as far as they have names that are free.
    fn carry_run(
        &mut self,
        editor: &mut Editor<'_>,
        old: &mut Self,
        (first, count): (BlockId, u32),
        carried: &mut HashMap<BlockId, WireHash>,
    ) {
        if editor
            .parent(first)
            .is_some_and(|parent| !editor.is_known(self.slot, parent))
        {
            return;
        }
        let mut taken = 0;
        for id in first.0..first.0 + count {
            let block = BlockId(id);
            let mut names = old.names.of(editor, block);
            names.retain(|name| {
                self.names.find(editor, self.slot, *name).is_none() && !self.kept.is_orphan(*name)
            });
            names.sort_unstable();
            let Some(&name) = names.first() else { break };
            for (position, name) in names.into_iter().enumerate() {
                self.names.add(editor, block, name, position == 0);
            }
            editor.mark(self.slot, block, 1, None);
            carried.insert(block, name);
            taken += 1;
        }
        if taken > 0
            && let Some(parent) = editor.parent(first)
        {
            self.kept.gains_child(parent);
        }
    }
}
