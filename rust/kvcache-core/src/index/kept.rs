//! What a view knows without holding it, in the order in which it will be forgotten.
//!
//! Blocks that lost their last copy, and orphans: whatever has been without a copy longest and has no
//! known block below it goes first (spec: content keys). Kept as a queue of 12-byte entries. An entry
//! whose block has got a copy again is skipped when its turn comes; one whose block is needed by
//! others waits aside until it is not.

use std::collections::{BTreeSet, VecDeque};

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::trie::BlockId;
use crate::model::WireHash;

/// Stands for a block's number in an orphan's entry.
const ORPHAN: u32 = u32::MAX;
/// The first entry's turn, with room for those that are put before it.
const FIRST_TURN: u64 = 1 << 62;

/// One entry: the block, and one of its names in two halves.
type Packed = [u32; 3];

/// What may be forgotten next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// A block without copies, and one of its names. Whether others need it is to be checked.
    Block(BlockId, WireHash),
    Orphan(WireHash),
}

/// A block that was needed when its turn came.
#[derive(Clone, Copy, Debug)]
struct Passed {
    turn: u64,
    wire: WireHash,
    /// Known blocks right below it.
    children: usize,
}

/// Entries whose turn has come, and that have to stay nonetheless.
#[derive(Debug, Default)]
pub(super) struct Aside {
    bereft: Vec<(u64, BlockId)>,
    queue: Vec<Candidate>,
}

#[derive(Debug)]
pub(super) struct Kept {
    queue: VecDeque<Packed>,
    /// The turn of the queue's first entry; the others follow.
    first_turn: u64,
    /// Entries in the queue whose blocks got a copy since.
    stale: HashMap<BlockId, u32, RandomState>,
    stale_entries: usize,
    /// Older than the whole queue.
    passed: HashMap<BlockId, Passed, RandomState>,
    /// Those of them that nobody needs any more.
    bereft: BTreeSet<(u64, BlockId)>,
    /// With their turns.
    orphans: HashMap<WireHash, u64, RandomState>,
}

impl Kept {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            first_turn: FIRST_TURN,
            stale: HashMap::default(),
            stale_entries: 0,
            passed: HashMap::default(),
            bereft: BTreeSet::new(),
            orphans: HashMap::default(),
        }
    }

    pub(super) fn orphans(&self) -> usize {
        self.orphans.len()
    }

    pub(super) fn is_orphan(&self, wire: WireHash) -> bool {
        !self.orphans.is_empty() && self.orphans.contains_key(&wire)
    }

    /// Whether no block is kept and no orphan remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.orphans.is_empty() && self.passed.is_empty() && self.queue.len() == self.stale_entries
    }

    /// Whether some block was needed when its turn came.
    #[inline]
    pub(super) fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    /// A known block has no copy, from now on; `wire` names it.
    pub(super) fn add(&mut self, block: BlockId, wire: WireHash) {
        self.queue.push_back(pack(block.0, wire));
    }

    pub(super) fn add_orphan(&mut self, wire: WireHash) {
        let turn = self.first_turn + self.queue.len() as u64;
        self.orphans.insert(wire, turn);
        self.queue.push_back(pack(ORPHAN, wire));
    }

    /// A kept block has got a copy.
    pub(super) fn take_out(&mut self, block: BlockId) {
        if !self.passed.is_empty()
            && let Some(passed) = self.passed.remove(&block)
        {
            self.bereft.remove(&(passed.turn, block));
            return;
        }
        *self.stale.entry(block).or_default() += 1;
        self.note_stale();
    }

    pub(super) fn forget_orphan(&mut self, wire: WireHash) {
        // Its entry is skipped by its turn.
        if !self.orphans.is_empty() && self.orphans.remove(&wire).is_some() {
            self.note_stale();
        }
    }

    fn note_stale(&mut self) {
        self.stale_entries += 1;
        if self.stale_entries > self.queue.len() / 2 + 64 {
            self.compact();
        }
    }

    /// A block below `parent` has become known.
    #[inline]
    pub(super) fn gains_child(&mut self, parent: BlockId) {
        if !self.passed.is_empty()
            && let Some(passed) = self.passed.get_mut(&parent)
        {
            passed.children += 1;
            self.bereft.remove(&(passed.turn, parent));
        }
    }

    /// A block below `parent` has been forgotten.
    pub(super) fn loses_child(&mut self, parent: BlockId) {
        if let Some(passed) = self.passed.get_mut(&parent) {
            passed.children -= 1;
            if passed.children == 0 {
                self.bereft.insert((passed.turn, parent));
            }
        }
    }

    /// Takes the oldest entry that is not protected and not needed. Protected ones that are met are put aside, to be
    /// given to [`Kept::put_back`] when no more are wanted.
    pub(super) fn pop(
        &mut self,
        aside: &mut Aside,
        is_protected: impl Fn(Candidate) -> bool,
        children: impl Fn(BlockId) -> usize,
    ) -> Option<Candidate> {
        while let Some((turn, block)) = self.bereft.pop_first() {
            let Some(passed) = self.passed.get(&block) else {
                continue;
            };
            let candidate = Candidate::Block(block, passed.wire);
            if is_protected(candidate) {
                aside.bereft.push((turn, block));
                continue;
            }
            self.passed.remove(&block);
            return Some(candidate);
        }
        while let Some((turn, candidate)) = self.pop_entry() {
            if is_protected(candidate) {
                aside.queue.push(candidate);
                continue;
            }
            match candidate {
                Candidate::Orphan(wire) => {
                    self.orphans.remove(&wire);
                }
                Candidate::Block(block, wire) => {
                    let children = children(block);
                    if children > 0 {
                        let passed = Passed {
                            turn,
                            wire,
                            children,
                        };
                        self.passed.insert(block, passed);
                        continue;
                    }
                }
            }
            return Some(candidate);
        }
        None
    }

    /// Gives protected entries their turns back.
    pub(super) fn put_back(&mut self, aside: Aside) {
        self.bereft.extend(aside.bereft);
        for candidate in aside.queue.into_iter().rev() {
            self.put_first(candidate);
        }
    }

    /// Puts an entry before all others in the queue.
    pub(super) fn put_first(&mut self, candidate: Candidate) {
        self.first_turn -= 1;
        match candidate {
            Candidate::Block(block, wire) => self.queue.push_front(pack(block.0, wire)),
            Candidate::Orphan(wire) => {
                self.orphans.insert(wire, self.first_turn);
                self.queue.push_front(pack(ORPHAN, wire));
            }
        }
    }

    /// The kept blocks, oldest first, each with one of its names.
    pub(super) fn blocks(&self) -> Vec<(BlockId, WireHash)> {
        let mut passed: Vec<_> = self
            .passed
            .iter()
            .map(|(block, passed)| (passed.turn, *block, passed.wire))
            .collect();
        passed.sort_unstable();
        let mut blocks: Vec<_> = passed
            .into_iter()
            .map(|(_, block, wire)| (block, wire))
            .collect();
        let mut stale = self.stale.clone();
        for &entry in &self.queue {
            let (block, wire) = unpack(entry);
            if block != ORPHAN && !skip(&mut stale, BlockId(block)) {
                blocks.push((BlockId(block), wire));
            }
        }
        blocks
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Packed>()
            + self.stale.allocation_size()
            + self.passed.allocation_size()
            + self.bereft.len() * size_of::<(u64, BlockId)>() * 3 / 2
            + self.orphans.allocation_size()
    }

    /// The first entry that still counts, with its turn.
    fn pop_entry(&mut self) -> Option<(u64, Candidate)> {
        loop {
            let (block, wire) = unpack(self.queue.pop_front()?);
            let turn = self.first_turn;
            self.first_turn += 1;
            if block == ORPHAN {
                if self.orphans.get(&wire) == Some(&turn) {
                    return Some((turn, Candidate::Orphan(wire)));
                }
                self.stale_entries -= 1;
            } else if skip(&mut self.stale, BlockId(block)) {
                self.stale_entries -= 1;
            } else {
                return Some((turn, Candidate::Block(BlockId(block), wire)));
            }
        }
    }

    /// Drops entries that do not count.
    fn compact(&mut self) {
        let queue = std::mem::take(&mut self.queue);
        let mut stale = std::mem::take(&mut self.stale);
        self.stale_entries = 0;
        let mut kept = VecDeque::with_capacity(queue.len() / 2);
        for (turn, entry) in (self.first_turn..).zip(queue) {
            let (block, wire) = unpack(entry);
            if block == ORPHAN {
                let new_turn = self.first_turn + kept.len() as u64;
                match self.orphans.get_mut(&wire) {
                    Some(own) if *own == turn => *own = new_turn,
                    _ => continue,
                }
            } else if skip(&mut stale, BlockId(block)) {
                continue;
            }
            kept.push_back(entry);
        }
        self.queue = kept;
    }
}

/// Whether the block's next entry is one that does not count; if so, it is crossed off.
fn skip(stale: &mut HashMap<BlockId, u32, RandomState>, block: BlockId) -> bool {
    if stale.is_empty() {
        return false;
    }
    let Some(count) = stale.get_mut(&block) else {
        return false;
    };
    *count -= 1;
    if *count == 0 {
        stale.remove(&block);
    }
    true
}

fn pack(block: u32, wire: WireHash) -> Packed {
    #[expect(clippy::cast_possible_truncation, reason = "each half on its own")]
    [block, (wire.0 >> 32) as u32, wire.0 as u32]
}

fn unpack([block, high, low]: Packed) -> (u32, WireHash) {
    (block, WireHash((u64::from(high) << 32) | u64::from(low)))
}
