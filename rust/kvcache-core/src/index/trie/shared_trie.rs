//! The tree's two sides: what readers see, and what only writers know.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::NONE;
use super::block_ids::BlockIds;
use super::children::{Children, ChildrenBook};
use super::columns::{Own, Shared};
use super::editor::Editor;
use super::garbage::Garbage;
use super::line::{Line, Record, halves};
use super::page_nodes::PageNodes;
use super::wires::SharedNames;
use crate::hash::Hasher;
use crate::index::prefetch::prefetch_at;
use crate::index::slot_mask::Slot;
use crate::model::BlockHash;

/// The tree. Readers use it as it is; writers take turns.
#[derive(Debug)]
pub(in crate::index) struct Trie {
    pub(super) visible: Visible,
    own: Mutex<Workshop>,
}

/// A block's hash: low half, high half. Written before the block can be reached.
pub(super) type HashHalves = [AtomicU64; 2];

/// What readers follow.
#[derive(Debug)]
pub(super) struct Visible {
    /// By block id.
    hashes: Shared<HashHalves>,
    pub(super) lines: Shared<Line>,
    pub(super) records: Shared<Record>,
    pub(super) children: Children,
}

/// The edge that prompts' first runs hang on.
pub(super) const ROOT: u32 = 0;

/// What only writers know.
#[derive(Debug)]
pub(super) struct Workshop {
    pub(super) hasher: Hasher,
    pub(super) ids: BlockIds,
    /// By block id: the first name that any stream gave it, unless it is nameless.
    pub(super) wire_of: Own<u64>,
    /// Blocks without a first name, as only streams whose names are all private have met them.
    pub(super) nameless: usize,
    /// By page, once there are some: a bit for each of them.
    pub(super) nameless_pages: Own<u64>,
    /// By block id.
    pub(super) node_of: PageNodes,
    pub(super) names: SharedNames,
    /// Blocks whose first name was another block's before. None, where engines name by content.
    pub(super) twins: usize,
    /// By page, while there are twins: a bit for each block whose first name is, or was, another block's too.
    pub(super) twin_pages: Own<u64>,
    pub(super) nodes: Own<Node>,
    pub(super) node_numbers: Numbers,
    pub(super) children: ChildrenBook,
    pub(super) edges: Own<Edge>,
    pub(super) edge_numbers: Numbers,
    pub(super) line_numbers: Numbers,
    pub(super) record_numbers: Numbers,
    /// By slot: the nodes of which it knows something, and some others.
    pub(super) touched: Box<[Touched]>,
    pub(super) garbage: Garbage,
}

/// A run, as writers know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) line: u32,
    /// Where its children hang, or [`NONE`].
    pub(super) edge: u32,
    pub(super) parent_edge: u32,
    /// Siblings, or [`NONE`].
    pub(super) previous: u32,
    pub(super) next: u32,
    /// Consecutive ids from its base on that are its own, blocks or not.
    pub(super) reserved: u32,
}

/// What hangs below one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// The run above, or [`NONE`] for the root.
    pub(super) owner: u32,
    pub(super) first_child: u32,
    pub(super) children: u32,
    /// Whether its children are in the table of children. Once so, always so.
    pub(super) tabled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) nodes: Vec<u32>,
    /// Those of which it knows something now.
    pub(super) live: usize,
}

/// Hands out numbers: those that came back first, the last of them first.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    next: u32,
    free: Vec<u32>,
}

impl Numbers {
    pub(super) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    pub(super) fn give(&mut self, number: u32) {
        self.free.push(number);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.free.capacity() * size_of::<u32>()
    }

    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.next as usize - self.free.len()
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            line: NONE,
            edge: NONE,
            parent_edge: NONE,
            previous: NONE,
            next: NONE,
            reserved: 0,
        }
    }
}

impl Default for Edge {
    fn default() -> Self {
        Self {
            owner: NONE,
            first_child: NONE,
            children: 0,
            tabled: false,
        }
    }
}

impl Trie {
    pub(in crate::index) fn new(hash_seed: u64) -> Self {
        let (children, book) = Children::new();
        Self {
            visible: Visible {
                hashes: Shared::zeroed(),
                lines: Shared::new(),
                records: Shared::new(),
                children,
            },
            own: Mutex::new(Workshop::new(hash_seed, book)),
        }
    }

    /// Waits for other writers.
    pub(in crate::index) fn edit(&self) -> Editor<'_> {
        Editor {
            visible: &self.visible,
            own: self.lock(),
        }
    }

    /// Bytes of everything, but for what streams keep for themselves.
    pub(in crate::index) fn heap_bytes(&self) -> usize {
        let Visible {
            hashes,
            lines,
            records,
            children,
        } = &self.visible;
        let own = self.lock();
        hashes.heap_bytes()
            + lines.heap_bytes()
            + records.heap_bytes()
            + children.heap_bytes(&own.children)
            + own.heap_bytes()
    }

    /// Nothing panics under the lock; a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, Workshop> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workshop {
    fn new(hash_seed: u64, children: ChildrenBook) -> Self {
        let mut edges = Own::default();
        let mut edge_numbers = Numbers::default();
        let root = edge_numbers.take();
        edges.reach(root);
        *edges.get_mut(root) = Edge {
            tabled: true,
            ..Edge::default()
        };
        Self {
            hasher: Hasher::new(hash_seed),
            ids: BlockIds::new(),
            wire_of: Own::default(),
            nameless: 0,
            nameless_pages: Own::default(),
            node_of: PageNodes::default(),
            names: SharedNames::new(),
            twins: 0,
            twin_pages: Own::default(),
            nodes: Own::default(),
            children,
            node_numbers: Numbers::default(),
            edges,
            edge_numbers,
            line_numbers: Numbers::default(),
            record_numbers: Numbers::default(),
            touched: (0..Slot::COUNT).map(|_| Touched::default()).collect(),
            garbage: Garbage::default(),
        }
    }

    fn heap_bytes(&self) -> usize {
        let touched = self.touched.iter().map(|touched| touched.nodes.capacity());
        let numbers = [
            &self.node_numbers,
            &self.edge_numbers,
            &self.line_numbers,
            &self.record_numbers,
        ];
        self.ids.heap_bytes()
            + self.wire_of.heap_bytes()
            + self.node_of.heap_bytes()
            + self.nameless_pages.heap_bytes()
            + self.twin_pages.heap_bytes()
            + self.names.heap_bytes()
            + self.nodes.heap_bytes()
            + self.edges.heap_bytes()
            + numbers.map(Numbers::heap_bytes).iter().sum::<usize>()
            + touched.sum::<usize>() * size_of::<u32>()
            + self.garbage.heap_bytes()
    }
}

impl Visible {
    /// How many of `blocks` are, in order, those from id `base` on; `len` of them are there.
    #[inline]
    pub(super) fn matching(&self, base: u32, len: usize, blocks: &[BlockHash]) -> usize {
        common_blocks(&self.hashes.tail(base)[..len], blocks)
    }

    /// The hashes of a run's blocks, the first of which are asked for.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "short, in a short loop")]
    pub(super) fn prefetch_hashes(&self, base: u32, len: u32) -> &[HashHalves] {
        let run = &self.hashes.tail(base)[..len as usize];
        prefetch_at(run, 0);
        run
    }

    #[inline]
    pub(super) fn is_block(&self, id: u32, block: BlockHash) -> bool {
        is_hash(self.hashes.get(id), block)
    }

    pub(super) fn hash(&self, id: u32) -> BlockHash {
        let [low, high] = self.hashes.get(id);
        let half = |word: &AtomicU64| u128::from(word.load(Ordering::Relaxed));
        BlockHash(half(low) | (half(high) << 64))
    }

    /// Names blocks that nobody can reach yet.
    pub(super) fn write_hashes(&self, base: u32, blocks: &[BlockHash]) {
        for ([low, high], block) in self.hashes.tail(base).iter().zip(blocks) {
            let halves = halves(block.0);
            low.store(halves.0, Ordering::Relaxed);
            high.store(halves.1, Ordering::Relaxed);
        }
    }
}

/// How many of `blocks` are, in order, the first ones of `run`.
#[inline]
pub(super) fn common_blocks(run: &[HashHalves], blocks: &[BlockHash]) -> usize {
    let run = &run[..run.len().min(blocks.len())];
    let blocks = &blocks[..run.len()];
    // Several at once: most runs are either the prompt's or differ in the first block.
    let (fours, _) = run.as_chunks::<4>();
    let (block_fours, _) = blocks.as_chunks::<4>();
    let pairs = fours.iter().zip(block_fours);
    let done = 4 * pairs
        .take_while(|(here, blocks)| are_hashes(here, blocks))
        .count();
    let rest = run[done..].iter().zip(&blocks[done..]);
    done + rest
        .take_while(|(here, block)| is_hash(here, **block))
        .count()
}

#[inline]
fn are_hashes(here: &[HashHalves; 4], blocks: &[BlockHash; 4]) -> bool {
    let pairs = here.iter().zip(blocks);
    pairs.fold(0, |differing, (here, block)| {
        differing | difference(here, *block)
    }) == 0
}

#[inline]
fn is_hash(here: &HashHalves, block: BlockHash) -> bool {
    difference(here, block) == 0
}

/// Nothing, if they are equal.
#[inline]
fn difference(here: &HashHalves, block: BlockHash) -> u64 {
    let (low, high) = halves(block.0);
    (here[0].load(Ordering::Relaxed) ^ low) | (here[1].load(Ordering::Relaxed) ^ high)
}
