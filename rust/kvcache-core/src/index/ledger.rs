//! The bookkeeping of one stream's view: names, known blocks, copies and orphans.
//!
//! A copy belongs to a block's content: two wire hashes of one content name one block. An event is
//! checked whole before it changes anything, so a failing one leaves the ledger as it was. Private to
//! its writer; every change of residency is told to a sink. Knows nothing of slots or queries.

mod kept;
mod room;

use std::fmt;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::arena::{Arena, Block, BlockId};
use super::eviction::{Evictable, Evictables};
use crate::hash::content_key;
use crate::model::{ApplyError, ApplyReport, BlockHash, ContentKey, Tier, TierSet, WireHash};

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

/// Entries of scratch memory that stay from one event to the next.
const MAX_KEPT_SCRATCH: usize = 16_384;

/// One stream's view, as its writer keeps it.
pub(super) struct Ledger {
    hash_seed: u64,
    /// Names and orphans together stay within it.
    max_blocks: usize,
    arena: Arena,
    names: HashMap<WireHash, BlockId, RandomState>,
    /// Every name of a block but its first.
    aliases: HashMap<BlockId, Vec<WireHash>, RandomState>,
    /// With the stamp of when they were remembered.
    orphans: HashMap<WireHash, u64, RandomState>,
    evictables: Evictables,
    next_stamp: u64,
    device_blocks: usize,
    host_blocks: usize,
    /// Scratch: the current event's wire hashes, sorted.
    sorted: Vec<WireHash>,
    /// Scratch: the current event's chain.
    chain: Vec<(ContentKey, Option<BlockId>)>,
}

impl Ledger {
    pub(super) fn new(hash_seed: u64, max_blocks: usize) -> Self {
        Self {
            hash_seed,
            max_blocks: max_blocks.min(Arena::MAX_BLOCKS),
            arena: Arena::default(),
            names: HashMap::default(),
            aliases: HashMap::default(),
            orphans: HashMap::default(),
            evictables: Evictables::new(),
            next_stamp: kept::FIRST_STAMP,
            device_blocks: 0,
            host_blocks: 0,
            sorted: Vec::new(),
            chain: Vec::new(),
        }
    }

    /// Stores consecutive blocks after `parent`; one hash a wire hash.
    ///
    /// # Errors
    /// An unknown parent (live), a conflict, the limit; nothing has changed then.
    pub(super) fn store(
        &mut self,
        parent: Option<WireHash>,
        blocks: (&[WireHash], &[BlockHash]),
        tier: Option<Tier>,
        origin: Origin,
        sink: &mut impl FnMut(ContentKey, Tier, bool),
    ) -> Result<ApplyReport, ApplyError> {
        let (wires, hashes) = blocks;
        let parent_id = parent.and_then(|wire| self.names.get(&wire).copied());
        let below_orphan = parent_id.is_none()
            && parent
                .is_some_and(|wire| origin == Origin::Snapshot || self.orphans.contains_key(&wire));
        match parent {
            Some(wire) if parent_id.is_none() && !below_orphan => {
                return Err(ApplyError::UnknownParent(wire));
            }
            _ => {}
        }
        self.sort(wires);
        // A chain never comes back to a content, so a repeated wire hash has two.
        if let Some(pair) = self.sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ApplyError::Conflict(pair[0]));
        }
        if below_orphan {
            self.remember_orphans(parent, wires);
            self.trim_scratch();
            return Ok(ApplyReport {
                orphaned: wires.len() as u64,
                ..ApplyReport::default()
            });
        }
        self.follow_chain(parent, parent_id, wires, hashes)?;
        let mut report = ApplyReport::default();
        let chain = std::mem::take(&mut self.chain);
        let mut parent_id = parent_id;
        for (&wire, &(key, known)) in wires.iter().zip(&chain) {
            let id = known.unwrap_or_else(|| {
                let since = self.take_stamp();
                self.add_block(key, parent_id, wire, since, tier.is_some())
            });
            self.add_name(wire, id);
            self.add_copy(id, tier, &mut report, sink);
            parent_id = Some(id);
        }
        self.chain = chain;
        self.trim_scratch();
        Ok(report)
    }

    /// Stores copies of blocks known before.
    ///
    /// # Errors
    /// A block that is not known (live); nothing has changed then.
    pub(super) fn store_tokenless(
        &mut self,
        wires: &[WireHash],
        tier: Option<Tier>,
        origin: Origin,
        sink: &mut impl FnMut(ContentKey, Tier, bool),
    ) -> Result<ApplyReport, ApplyError> {
        let is_unknown =
            |wire: &&WireHash| !self.names.contains_key(*wire) && !self.orphans.contains_key(*wire);
        if let Some(&unknown) = wires.iter().find(is_unknown) {
            if origin == Origin::Live {
                return Err(ApplyError::UnknownTokenless(unknown));
            }
            self.sort(wires);
            self.sorted.dedup();
            self.remember_orphans(None, wires);
            self.trim_scratch();
        }
        let mut report = ApplyReport::default();
        for wire in wires {
            match self.names.get(wire) {
                Some(&id) => self.add_copy(id, tier, &mut report, sink),
                None => report.orphaned += 1,
            }
        }
        Ok(report)
    }

    /// Takes the copies in one tier away; the blocks stay known.
    pub(super) fn remove(
        &mut self,
        wires: &[WireHash],
        tier: Option<Tier>,
        sink: &mut impl FnMut(ContentKey, Tier, bool),
    ) -> ApplyReport {
        let mut report = ApplyReport::default();
        let Some(tier) = tier else {
            report.other_tier = wires.len() as u64;
            return report;
        };
        for wire in wires {
            let Some(&id) = self.names.get(wire) else {
                report.already_removed += 1;
                continue;
            };
            let block = self.arena.get_mut(id);
            if !block.tiers.remove(tier) {
                report.already_removed += 1;
                continue;
            }
            if block.tiers.is_empty() {
                block.since = self.next_stamp;
                self.next_stamp += 1;
            }
            if block.is_evictable() {
                self.evictables.insert(block.since, Evictable::Block(id));
            }
            sink(block.key, tier, false);
            *self.count_mut(tier) -= 1;
            report.removed += 1;
        }
        report
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, sink: &mut impl FnMut(ContentKey, Tier, bool)) -> ApplyReport {
        for (key, tiers) in self.residents() {
            for tier in tiers.iter() {
                sink(key, tier, false);
            }
        }
        let removed = (self.device_blocks + self.host_blocks) as u64;
        *self = Self::new(self.hash_seed, self.max_blocks);
        ApplyReport {
            removed,
            ..ApplyReport::default()
        }
    }

    /// The blocks with a copy, in no order.
    pub(super) fn residents(&self) -> impl Iterator<Item = (ContentKey, TierSet)> {
        self.arena
            .iter()
            .filter(|block| !block.tiers.is_empty())
            .map(|block| (block.key, block.tiers))
    }

    /// Whether both hold copies of the same blocks in the same tiers.
    pub(super) fn same_copies(&self, other: &Self) -> bool {
        let tiers = |key| other.arena.find(key).map(|id| other.arena.get(id).tiers);
        (self.device_blocks, self.host_blocks) == (other.device_blocks, other.host_blocks)
            && self.residents().all(|(key, here)| tiers(key) == Some(here))
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            device_blocks: self.device_blocks,
            host_blocks: self.host_blocks,
            known: self.names.len(),
            orphans: self.orphans.len(),
        }
    }

    /// Estimated heap bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        // A B-tree's nodes are between half full and full.
        let evictables = self.evictables.len() * size_of::<(u64, Evictable)>() * 3 / 2;
        // Asked for after every burst of messages: nothing here may walk the blocks.
        let aliases = self.names.len().saturating_sub(self.arena.len());
        self.arena.heap_bytes()
            + self.names.allocation_size()
            + self.orphans.allocation_size()
            + self.aliases.allocation_size()
            + aliases * size_of::<WireHash>()
            + evictables
            + self.sorted.capacity() * size_of::<WireHash>()
            + self.chain.capacity() * size_of::<(ContentKey, Option<BlockId>)>()
    }

    /// One huge event must not be paid for ever.
    fn trim_scratch(&mut self) {
        self.sorted.clear();
        self.sorted.shrink_to(MAX_KEPT_SCRATCH);
        self.chain.clear();
        self.chain.shrink_to(MAX_KEPT_SCRATCH);
    }

    fn sort(&mut self, wires: &[WireHash]) {
        self.sorted.clear();
        self.sorted.extend_from_slice(wires);
        self.sorted.sort_unstable();
    }

    /// Fills `chain` with the event's content keys and the blocks that have them, and makes room.
    fn follow_chain(
        &mut self,
        parent: Option<WireHash>,
        parent_id: Option<BlockId>,
        wires: &[WireHash],
        hashes: &[BlockHash],
    ) -> Result<(), ApplyError> {
        self.chain.clear();
        let mut key = parent_id.map(|id| self.arena.get(id).key);
        let mut last_known = parent_id;
        let mut new_names = 0;
        for (&wire, &hash) in wires.iter().zip(hashes) {
            let next = content_key(key, hash, self.hash_seed);
            let known = self.arena.find(next);
            match self.names.get(&wire) {
                Some(named) if Some(*named) != known => return Err(ApplyError::Conflict(wire)),
                Some(_) => {}
                // An orphan's place becomes the name's.
                None => new_names += usize::from(!self.orphans.contains_key(&wire)),
            }
            last_known = known.or(last_known);
            self.chain.push((next, known));
            key = Some(next);
        }
        let needed = self.missing_room(new_names);
        let plan = self.plan(needed, last_known, parent);
        if plan.freed < needed {
            return Err(ApplyError::Limit(self.max_blocks));
        }
        self.evict(&plan);
        Ok(())
    }

    /// Remembers those of the wire hashes (`sorted` has each once) that are not known, while there is room.
    fn remember_orphans(&mut self, parent: Option<WireHash>, wires: &[WireHash]) {
        let is_new =
            |wire: &&WireHash| !self.names.contains_key(*wire) && !self.orphans.contains_key(*wire);
        let needed = self.missing_room(self.sorted.iter().filter(is_new).count());
        let plan = self.plan(needed, None, parent);
        self.evict(&plan);
        for &wire in wires {
            if self.names.len() + self.orphans.len() >= self.max_blocks {
                return;
            }
            if !self.names.contains_key(&wire) && !self.orphans.contains_key(&wire) {
                let stamp = self.take_stamp();
                self.orphans.insert(wire, stamp);
                self.evictables.insert(stamp, Evictable::Orphan(wire));
            }
        }
    }

    /// Adds a block without copies, evictable unless it `gets_copy` at once.
    fn add_block(
        &mut self,
        key: ContentKey,
        parent: Option<BlockId>,
        name: WireHash,
        since: u64,
        gets_copy: bool,
    ) -> BlockId {
        if let Some(parent_id) = parent {
            let parent = self.arena.get_mut(parent_id);
            if parent.is_evictable() {
                self.evictables.remove(&parent.since);
            }
            parent.children += 1;
        }
        let id = self.arena.insert(Block {
            key,
            parent,
            children: 0,
            tiers: TierSet::NONE,
            name,
            since,
        });
        if !gets_copy {
            self.evictables.insert(since, Evictable::Block(id));
        }
        id
    }

    /// Names a block; an orphan of that name is one no more.
    fn add_name(&mut self, wire: WireHash, id: BlockId) {
        self.forget_orphan(wire);
        if self.names.insert(wire, id).is_none() && self.arena.get(id).name != wire {
            self.aliases.entry(id).or_default().push(wire);
        }
    }

    fn add_copy(
        &mut self,
        id: BlockId,
        tier: Option<Tier>,
        report: &mut ApplyReport,
        sink: &mut impl FnMut(ContentKey, Tier, bool),
    ) {
        let Some(tier) = tier else {
            report.other_tier += 1;
            return;
        };
        let block = self.arena.get_mut(id);
        if block.is_evictable() {
            self.evictables.remove(&block.since);
        }
        if block.tiers.insert(tier) {
            sink(block.key, tier, true);
            *self.count_mut(tier) += 1;
            report.stored += 1;
        } else {
            report.already_stored += 1;
        }
    }

    fn take_stamp(&mut self) -> u64 {
        self.next_stamp += 1;
        self.next_stamp - 1
    }

    fn count_mut(&mut self, tier: Tier) -> &mut usize {
        match tier {
            Tier::Device => &mut self.device_blocks,
            Tier::Host => &mut self.host_blocks,
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("max_blocks", &self.max_blocks)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
