//! The known blocks of one stream, each once, found by content key.
//!
//! Blocks refer to their parents by id; an id is valid until its block is removed, which must not
//! happen while another block names it as its parent. Knows nothing of wire hashes but to carry one.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::model::{ContentKey, TierSet, WireHash};

/// A block's place in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct BlockId(u32);

/// A block that an engine named at least once.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) key: ContentKey,
    pub(super) parent: Option<BlockId>,
    /// Known blocks that name this one as their parent.
    pub(super) children: u32,
    pub(super) tiers: TierSet,
    /// Its first wire hash; further ones are rare and kept elsewhere.
    pub(super) name: WireHash,
    /// When it lost its last copy, or was learned without one. Unique among stamps.
    pub(super) since: u64,
}

impl Block {
    /// Whether nothing needs it: no copy, and nobody descends from it.
    pub(super) fn is_evictable(&self) -> bool {
        self.tiers.is_empty() && self.children == 0
    }
}

/// Blocks by id and by content key.
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    blocks: Vec<Block>,
    /// Places in `blocks` whose block was removed.
    free: Vec<BlockId>,
    by_key: HashTable<BlockId>,
    hasher: RandomState,
}

impl Arena {
    /// More blocks than an id can number; owners must stay below.
    pub(super) const MAX_BLOCKS: usize = u32::MAX as usize;

    pub(super) fn get(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    pub(super) fn get_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }

    pub(super) fn find(&self, key: ContentKey) -> Option<BlockId> {
        self.by_key
            .find(self.hasher.hash_one(key.0), |id| self.get(*id).key == key)
            .copied()
    }

    /// Adds a block, whose key must be new.
    pub(super) fn insert(&mut self, block: Block) -> BlockId {
        let hash = self.hasher.hash_one(block.key.0);
        let id = if let Some(id) = self.free.pop() {
            self.blocks[id.0 as usize] = block;
            id
        } else {
            let id = BlockId(u32::try_from(self.blocks.len()).unwrap_or(u32::MAX));
            self.blocks.push(block);
            id
        };
        let Self {
            blocks,
            by_key,
            hasher,
            ..
        } = self;
        by_key.insert_unique(hash, id, |id| hasher.hash_one(blocks[id.0 as usize].key.0));
        id
    }

    pub(super) fn remove(&mut self, id: BlockId) {
        let hash = self.hasher.hash_one(self.get(id).key.0);
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == id) {
            entry.remove();
            self.free.push(id);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The ids of all blocks, in no order.
    pub(super) fn ids(&self) -> impl Iterator<Item = BlockId> {
        self.by_key.iter().copied()
    }

    /// Every block, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.by_key.iter().map(|id| self.get(*id))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + self.free.capacity() * size_of::<BlockId>()
            + self.by_key.allocation_size()
    }
}
