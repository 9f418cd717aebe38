//! Who knows and holds what of a run: reading and changing it, in place.

use std::collections::HashSet;

use super::block_ids::Extent;
use super::editor::Editor;
use super::garbage::Piece;
use super::line::{Holding, Line, Record, Records, ones};
use super::{BlockId, NONE};
use crate::index::slot_mask::Slot;
use crate::model::Tier;

/// What marking blocks has done.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::index) struct Marked {
    /// Blocks that had no copy before: a bit each, the first one's lowest.
    pub(in crate::index) bare: u64,
    /// Copies that are new.
    pub(in crate::index) new_copies: u32,
}

/// Blocks of one run, from one of them backward or forward.
#[derive(Clone, Copy, Debug)]
pub(in crate::index) struct Reach {
    /// The first one too.
    pub(in crate::index) count: usize,
    pub(in crate::index) is_backward: bool,
}

/// What taking copies away has done.
#[derive(Clone, Copy, Debug)]
pub(in crate::index) struct Taken {
    /// Wire hashes that it was about.
    pub(in crate::index) count: u32,
    /// Copies that were there.
    pub(in crate::index) removed: u32,
    /// The one with the lowest number.
    first: BlockId,
    /// Blocks that have lost their last copy: a bit each, the lowest block's first.
    bare: u64,
    is_backward: bool,
}

impl Taken {
    /// The blocks that have lost their last copy, with their positions among the wire hashes, in order.
    pub(in crate::index) fn bare(&self) -> impl Iterator<Item = (usize, BlockId)> {
        (0..self.count).filter_map(|position| {
            let offset = if self.is_backward {
                self.count - 1 - position
            } else {
                position
            };
            let is_bare = self.bare >> offset & 1 == 1;
            is_bare.then_some((position as usize, BlockId(self.first.0 + offset)))
        })
    }
}

const TIERS: [Tier; 2] = [Tier::Device, Tier::Host];

impl Editor<'_> {
    /// The block's node, and its place in the run.
    #[inline]
    pub(super) fn locate(&self, block: BlockId) -> (u32, u32) {
        let node = self.own.node_of.get(block.0);
        let (base, _) = self.line_of(node).extent();
        (node, block.0 - base)
    }

    #[inline]
    pub(super) fn line_of(&self, node: u32) -> &Line {
        self.visible.lines.get(self.own.nodes.get(node).line)
    }

    #[inline]
    pub(in crate::index) fn is_known(&self, slot: Slot, block: BlockId) -> bool {
        let (node, place) = self.locate(block);
        self.holding(slot, node).known > place
    }

    fn record(&self, slot: Slot, line: &Line) -> Option<&Record> {
        Records::new(&self.visible.records, line)
            .find(|(other, _)| *other == slot)
            .map(|(_, record)| record)
    }

    #[inline]
    pub(super) fn holding(&self, slot: Slot, node: u32) -> Holding {
        let line = self.line_of(node);
        if line.records() != NONE
            && let Some(record) = self.record(slot, line)
        {
            return record.holding();
        }
        let (_, len) = line.extent();
        let copies = TIERS.map(|tier| if line.has(tier, slot) { ones(len) } else { 0 });
        let known = if copies == [0; 2] { 0 } else { len };
        Holding { known, copies }
    }

    /// Changes what a slot has of a node. A reader sees what was, or what is.
    pub(super) fn set_holding(&mut self, slot: Slot, node: u32, new: Holding) {
        let line = self.line_of(node);
        let (_, len) = line.extent();
        let record = if line.records() == NONE {
            None
        } else {
            self.record(slot, line)
        };
        if let Some(record) = record {
            record.set(new);
        } else if new.known > 0 && !new.is_plain(len) {
            self.add_record(slot, node, new);
        }
        let line = self.line_of(node);
        for tier in TIERS {
            let whole = len > 0 && new.copies[tier as usize] == ones(len);
            if whole != line.has(tier, slot) {
                line.set(tier, slot, whole);
            }
        }
    }

    /// Takes over a record that is nobody's, or adds one.
    fn add_record(&mut self, slot: Slot, node: u32, holding: Holding) {
        let records = &self.visible.records;
        let mut number = self.line_of(node).records();
        while number != NONE {
            let record = records.get(number);
            if record.is_free() {
                record.write(slot, record.next(), holding);
                return;
            }
            number = record.next();
        }
        let number = self.own.record_numbers.take();
        let line = self.line_of(node);
        records.get(number).write(slot, line.records(), holding);
        line.set_records(number);
    }

    /// Makes `count` blocks from `first` on, all in one run, known to the slot, with copies in `tier`.
    pub(in crate::index) fn mark(
        &mut self,
        slot: Slot,
        first: BlockId,
        count: u32,
        tier: Option<Tier>,
    ) -> Marked {
        let (node, place) = self.locate(first);
        let old = self.holding(slot, node);
        let bits = ones(count) << place;
        let mut new = old;
        new.known = old.known.max(place + count);
        let mut marked = Marked {
            bare: (bits & !old.resident()) >> place,
            new_copies: 0,
        };
        if let Some(tier) = tier {
            let copies = &mut new.copies[tier as usize];
            marked.new_copies = (bits & !*copies).count_ones();
            *copies |= bits;
        }
        if new != old {
            if old.known == 0 {
                self.touch(slot, node);
            }
            self.set_holding(slot, node, new);
        }
        marked
    }

    /// How many blocks of `piece`, which may be of several runs, the slot does not know: the last ones.
    pub(in crate::index) fn unknown(&self, slot: Slot, piece: Extent) -> usize {
        let mut unknown = 0;
        let (mut id, end) = (piece.base, piece.base + piece.len);
        while id < end {
            let count = self.run_left(BlockId(id)).min(end - id);
            unknown += self.unknown_in_run(slot, BlockId(id), count) as usize;
            id += count;
        }
        unknown
    }

    /// The same for `count` blocks of one run.
    #[inline]
    pub(in crate::index) fn unknown_in_run(&self, slot: Slot, first: BlockId, count: u32) -> u32 {
        let (node, place) = self.locate(first);
        let known = self.holding(slot, node).known;
        count - known.saturating_sub(place).min(count)
    }

    /// Every block that the slot knows.
    pub(in crate::index) fn known_blocks(&self, slot: Slot) -> Vec<BlockId> {
        let nodes = self.touched_nodes(slot);
        let blocks = nodes.into_iter().flat_map(|node| {
            let (base, _) = self.line_of(node).extent();
            base..base + self.holding(slot, node).known
        });
        blocks.map(BlockId).collect()
    }

    /// Whether two slots hold copies of the same blocks, given that they hold equally many.
    pub(in crate::index) fn same_copies(&self, slot: Slot, other: Slot) -> bool {
        let nodes = &self.own.touched[slot.index()].nodes;
        nodes.iter().all(|&node| {
            self.own.nodes.get(node).line == NONE
                || self.holding(slot, node).copies == self.holding(other, node).copies
        })
    }

    /// Counts copies of the same blocks in the same tiers that two slots both hold.
    pub(in crate::index) fn shared_copies(&self, slot: Slot, other: Slot) -> usize {
        let shared = self.touched_nodes(slot).into_iter().map(|node| {
            let (one, two) = (self.holding(slot, node), self.holding(other, node));
            let copies = one.copies.iter().zip(two.copies);
            copies
                .map(|(one, two)| (one & two).count_ones() as usize)
                .sum::<usize>()
        });
        shared.sum()
    }

    /// What `slot` knows beyond what `other` knows, run by run, parents first: the first block, and how many.
    pub(in crate::index) fn known_beyond(&self, slot: Slot, other: Slot) -> Vec<(BlockId, u32)> {
        let mut visited = HashSet::new();
        let mut beyond = Vec::new();
        for node in self.touched_nodes(slot) {
            let mut chain = Vec::new();
            let mut next = node;
            while next != NONE && visited.insert(next) {
                chain.push(next);
                next = self
                    .own
                    .edges
                    .get(self.own.nodes.get(next).parent_edge)
                    .owner;
            }
            for node in chain.into_iter().rev() {
                let known = self.holding(slot, node).known;
                let there = self.holding(other, node).known;
                if known > there {
                    let (base, _) = self.line_of(node).extent();
                    beyond.push((BlockId(base + there), known - there));
                }
            }
        }
        beyond
    }

    /// Blocks from `block` on in its run, itself included.
    #[inline]
    pub(in crate::index) fn run_left(&self, block: BlockId) -> u32 {
        let (node, place) = self.locate(block);
        self.line_of(node).extent().1 - place
    }

    /// How many known blocks of the block's run come before it, and how many after it.
    pub(in crate::index) fn run_around(&self, slot: Slot, block: BlockId) -> (u32, u32) {
        let (node, place) = self.locate(block);
        let known = self.holding(slot, node).known;
        (place, known.saturating_sub(place + 1))
    }

    /// Takes the copies of `block` and of its neighbours in the run, which the slot knows.
    pub(in crate::index) fn take_copies(
        &mut self,
        slot: Slot,
        block: BlockId,
        reach: Reach,
        tier: Tier,
    ) -> Taken {
        let (node, place) = self.locate(block);
        let mut holding = self.holding(slot, node);
        let base = block.0 - place;
        #[expect(clippy::cast_possible_truncation, reason = "within one run")]
        let count = reach.count as u32;
        let lowest = if reach.is_backward {
            place + 1 - count
        } else {
            place
        };
        let copies = &mut holding.copies[tier as usize];
        let removed = *copies & (ones(count) << lowest);
        *copies &= !removed;
        let last_copies = removed & !holding.resident();
        if removed != 0 {
            self.set_holding(slot, node, holding);
        }
        Taken {
            count,
            removed: removed.count_ones(),
            first: BlockId(base + lowest),
            bare: last_copies >> lowest,
            is_backward: reach.is_backward,
        }
    }

    /// Makes the slot forget a block without copies and without known children.
    pub(in crate::index) fn forget(&mut self, slot: Slot, block: BlockId) {
        let (node, place) = self.locate(block);
        let mut holding = self.holding(slot, node);
        holding.known = place;
        self.set_holding(slot, node, holding);
        if place == 0 {
            self.own.touched[slot.index()].live -= 1;
        }
        self.tidy(node);
    }

    /// Children of the block that the slot knows.
    pub(in crate::index) fn known_children(&self, slot: Slot, block: BlockId) -> usize {
        let (node, place) = self.locate(block);
        let (_, len) = self.line_of(node).extent();
        if place + 1 < len {
            return usize::from(self.holding(slot, node).known > place + 1);
        }
        self.children_of(self.own.nodes.get(node).edge)
            .filter(|child| self.holding(slot, *child).known > 0)
            .count()
    }

    /// The block before, if there is one.
    pub(in crate::index) fn parent(&self, block: BlockId) -> Option<BlockId> {
        let (node, place) = self.locate(block);
        if place > 0 {
            return Some(BlockId(block.0 - 1));
        }
        self.last_block(
            self.own
                .edges
                .get(self.own.nodes.get(node).parent_edge)
                .owner,
        )
    }

    pub(super) fn last_block(&self, node: u32) -> Option<BlockId> {
        (node != NONE).then(|| {
            let (base, len) = self.line_of(node).extent();
            BlockId(base + len - 1)
        })
    }

    /// The most blocks of the run that somebody knows.
    pub(super) fn known_by_any(&self, node: u32) -> u32 {
        let line = self.line_of(node);
        if TIERS.iter().any(|tier| !line.mask(*tier).is_empty()) {
            return line.extent().1;
        }
        Records::new(&self.visible.records, line)
            .map(|(_, record)| record.holding().known)
            .max()
            .unwrap_or(0)
    }

    /// Whether nobody but the slot knows any of the run.
    pub(super) fn is_only_of(&self, slot: Slot, line: &Line) -> bool {
        let others = |tier: &Tier| {
            let mut mask = line.mask(*tier);
            mask.remove(slot);
            !mask.is_empty()
        };
        !TIERS.iter().any(others)
            && Records::new(&self.visible.records, line)
                .all(|(other, record)| other == slot || record.holding().known == 0)
    }

    /// Everyone who knows something of the run.
    pub(super) fn holdings(&self, line: &Line) -> Vec<(Slot, Holding)> {
        let (_, len) = line.extent();
        let mut plain = line.mask(Tier::Device).or(line.mask(Tier::Host));
        let mut all: Vec<(Slot, Holding)> = Vec::new();
        for (slot, record) in Records::new(&self.visible.records, line) {
            plain.remove(slot);
            let holding = record.holding();
            if holding.known > 0 {
                all.push((slot, holding));
            }
        }
        all.extend(plain.iter().map(|slot| {
            let copies = TIERS.map(|tier| if line.has(tier, slot) { ones(len) } else { 0 });
            (slot, Holding { known: len, copies })
        }));
        all
    }

    /// Takes everything of at most `limit` nodes from a slot; says whether there is no more. `unseen` says that no
    /// query can see the slot.
    pub(in crate::index) fn clear_some(&mut self, slot: Slot, limit: usize, unseen: bool) -> bool {
        let nodes = &mut self.own.touched[slot.index()].nodes;
        let some = nodes.split_off(nodes.len().saturating_sub(limit));
        let is_done = nodes.is_empty();
        for node in some {
            if self.own.nodes.get(node).line != NONE && self.holding(slot, node).known > 0 {
                self.drop_holding(slot, node, unseen);
                self.tidy(node);
            }
        }
        is_done
    }

    fn drop_holding(&mut self, slot: Slot, node: u32, unseen: bool) {
        let line = self.line_of(node);
        for tier in TIERS {
            if line.has(tier, slot) {
                line.set(tier, slot, false);
            }
        }
        if let Some(record) = self.record(slot, line) {
            if unseen {
                record.disown();
            } else {
                record.set(Holding::default());
            }
        }
        self.own.touched[slot.index()].live -= 1;
    }

    /// Notes that the slot has begun to know something of the node.
    pub(super) fn touch(&mut self, slot: Slot, node: u32) {
        let touched = &mut self.own.touched[slot.index()];
        touched.nodes.push(node);
        touched.live += 1;
        if touched.nodes.len() > 2 * touched.live + 64 {
            let nodes = self.touched_nodes(slot);
            self.own.touched[slot.index()].nodes = nodes;
        }
    }

    /// The nodes of which the slot knows something, each once.
    pub(super) fn touched_nodes(&self, slot: Slot) -> Vec<u32> {
        let mut nodes = self.own.touched[slot.index()].nodes.clone();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|node| {
            self.own.nodes.get(*node).line != NONE && self.holding(slot, *node).known > 0
        });
        nodes
    }

    pub(super) fn retire_records(&mut self, line: u32) {
        let mut next = self.visible.lines.get(line).records();
        while next != NONE {
            self.own.garbage.push(Piece::Record(next));
            next = self.visible.records.get(next).next();
        }
    }
}
