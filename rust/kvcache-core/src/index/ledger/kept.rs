//! What a new view keeps of the one it replaces: the blocks that only the old one knows.
//!
//! A snapshot names resident blocks alone, but an engine may still refer to the others, as parents and
//! in tokenless events (spec: content keys). They are kept as far as there is room, without copies and
//! as the oldest of all. What the new view knows, it knows better: a wire hash that it uses is its own.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::super::arena::{Block, BlockId};
use super::Ledger;
use crate::model::WireHash;

/// Where new ledgers begin to count, so that there is room below for what they keep of older ones.
pub(super) const FIRST_STAMP: u64 = 1 << 32;

/// Blocks of the old ledger that were looked at, with their ids in the new one, if they have any.
type Moved = HashMap<BlockId, Option<BlockId>, RandomState>;

impl Ledger {
    /// Keeps what `old` knows and this ledger does not. To be called once, before this one is published.
    pub(in super::super) fn keep_known(&mut self, old: &Self) {
        let mut kept: Vec<BlockId> = old
            .arena
            .ids()
            .filter(|id| self.arena.find(old.arena.get(*id).key).is_none())
            .collect();
        // What had a copy until now has lost it last.
        kept.sort_unstable_by_key(|id| {
            let block = old.arena.get(*id);
            (!block.tiers.is_empty(), block.since)
        });
        let stamps: HashMap<BlockId, u64, RandomState> = kept.iter().copied().zip(0..).collect();
        let mut moved = Moved::default();
        for id in kept {
            self.move_with_parents(old, id, &stamps, &mut moved);
        }
        self.sorted.clear();
        let plan = self.plan(self.missing_room(0), None, None);
        self.evict(&plan);
    }

    fn move_with_parents(
        &mut self,
        old: &Self,
        id: BlockId,
        stamps: &HashMap<BlockId, u64, RandomState>,
        moved: &mut Moved,
    ) {
        let mut chain = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next.filter(|id| stamps.contains_key(id) && !moved.contains_key(id)) {
            chain.push(id);
            next = old.arena.get(id).parent;
        }
        for id in chain.into_iter().rev() {
            let here = self.move_block(old, id, stamps[&id], moved);
            moved.insert(id, here);
        }
    }

    /// Moves one block, whose parent was moved before if that is to be moved at all.
    fn move_block(
        &mut self,
        old: &Self,
        id: BlockId,
        stamp: u64,
        moved: &Moved,
    ) -> Option<BlockId> {
        let Block { key, parent, .. } = *old.arena.get(id);
        let parent = match parent {
            None => None,
            Some(parent) => Some(match moved.get(&parent) {
                Some(here) => (*here)?,
                None => self.arena.find(old.arena.get(parent).key)?,
            }),
        };
        let is_free =
            |wire: &WireHash| !self.names.contains_key(wire) && !self.orphans.contains_key(wire);
        let names: Vec<WireHash> = old.names_of(id).filter(is_free).collect();
        let here = self.add_block(key, parent, *names.first()?, stamp, false);
        for wire in names {
            self.add_name(wire, here);
        }
        Some(here)
    }
}
