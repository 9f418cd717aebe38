//! How a ledger makes room: what an event may push out, and how it goes.

use super::super::arena::{Block, BlockId};
use super::super::eviction::{self, Evictable, Plan, Protected};
use super::Ledger;
use crate::model::WireHash;

impl Ledger {
    /// By how many `entries` more would exceed the limit.
    pub(super) fn missing_room(&self, entries: usize) -> usize {
        (self.names.len() + self.orphans.len() + entries).saturating_sub(self.max_blocks)
    }

    /// Plans for `needed` entries to go, none of them the current event's.
    pub(super) fn plan(
        &self,
        needed: usize,
        block: Option<BlockId>,
        parent: Option<WireHash>,
    ) -> Plan {
        let protected = Protected {
            block,
            wires: &self.sorted,
            parent,
        };
        eviction::plan(needed, &self.evictables, &self.arena, |entry| match entry {
            Evictable::Orphan(wire) => usize::from(!protected.has_wire(wire)),
            Evictable::Block(id) if protected.block == Some(id) => 0,
            Evictable::Block(id) => {
                let mut count = 0;
                for wire in self.names_of(id) {
                    if protected.has_wire(wire) {
                        return 0;
                    }
                    count += 1;
                }
                count
            }
        })
    }

    pub(super) fn names_of(&self, id: BlockId) -> impl Iterator<Item = WireHash> {
        let aliases = self.aliases.get(&id).into_iter().flatten().copied();
        std::iter::once(self.arena.get(id).name).chain(aliases)
    }

    pub(super) fn evict(&mut self, plan: &Plan) {
        for &victim in &plan.victims {
            match victim {
                Evictable::Orphan(wire) => self.forget_orphan(wire),
                Evictable::Block(id) => self.forget_block(id),
            }
        }
    }

    pub(super) fn forget_orphan(&mut self, wire: WireHash) {
        if let Some(stamp) = self.orphans.remove(&wire) {
            self.evictables.remove(&stamp);
        }
    }

    /// Forgets a block without copies and children, and all its names.
    fn forget_block(&mut self, id: BlockId) {
        let Block {
            name,
            parent,
            since,
            ..
        } = *self.arena.get(id);
        self.names.remove(&name);
        for alias in self.aliases.remove(&id).into_iter().flatten() {
            self.names.remove(&alias);
        }
        self.evictables.remove(&since);
        self.arena.remove(id);
        let Some(parent_id) = parent else { return };
        let parent = self.arena.get_mut(parent_id);
        parent.children -= 1;
        if parent.is_evictable() {
            self.evictables
                .insert(parent.since, Evictable::Block(parent_id));
        }
    }
}
