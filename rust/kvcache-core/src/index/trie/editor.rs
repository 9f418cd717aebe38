//! Writing the tree: following a path, naming new blocks, building their runs.
//!
//! New blocks come in two steps. [`Editor::claim`] gives them ids and names and may find a conflict;
//! nothing can reach them, and [`Editor::give_up`] takes them back. [`Editor::build`] cannot fail.

use std::sync::MutexGuard;

use super::BlockId;
use super::block_ids::{Extent, PAGE};
use super::line::{Holding, MAX_RUN, ones};
use super::shared_trie::{ROOT, Visible, Workshop};
use crate::index::slot_mask::Slot;
use crate::model::{BlockHash, ContentKey, Tier, WireHash};

/// The right to change the tree, while it lasts.
pub(in crate::index) struct Editor<'a> {
    pub(super) visible: &'a Visible,
    pub(super) own: MutexGuard<'a, Workshop>,
}

/// Which of an event's blocks the tree has, in order, whoever knows them.
#[derive(Debug, Default)]
pub(in crate::index) struct Path {
    /// Consecutive ids, each within one run when the path was followed.
    pub(in crate::index) pieces: Vec<Extent>,
    /// Blocks in all pieces.
    pub(in crate::index) len: usize,
    /// The last of them, or the event's parent.
    pub(in crate::index) end: Option<BlockId>,
}

/// Ids for blocks that the tree does not have.
#[derive(Debug, Default)]
pub(in crate::index) struct Claim {
    runs: Vec<ClaimedRun>,
    /// Blocks that have a name by now, or are to have none.
    named: usize,
}

#[derive(Clone, Copy, Debug)]
struct ClaimedRun {
    base: u32,
    len: u32,
    /// Ids from `base` on that belong to it; 0 when it continues a run that is there.
    reserved: u32,
}

impl Claim {
    /// The new blocks' ids, in order.
    fn ids(&self) -> impl Iterator<Item = u32> {
        self.runs
            .iter()
            .flat_map(|run| run.base..run.base + run.len)
    }

    /// Consecutive ids, in order.
    pub(in crate::index) fn runs(&self) -> impl Iterator<Item = Extent> {
        self.runs.iter().map(|run| Extent {
            base: run.base,
            len: run.len,
        })
    }

    /// The new blocks, run by run.
    pub(in crate::index) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.ids().map(BlockId)
    }
}

impl Path {
    fn clear(&mut self, parent: Option<BlockId>) {
        self.pieces.clear();
        self.len = 0;
        self.end = parent;
    }

    fn push(&mut self, base: u32, len: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "within one run")]
        let len_ids = len as u32;
        debug_assert!(len > 0, "a piece of nothing");
        self.pieces.push(Extent { base, len: len_ids });
        self.len += len;
        self.end = Some(BlockId(base + len_ids - 1));
    }

    /// Whether the block is the path's, and where.
    pub(in crate::index) fn position(&self, block: BlockId) -> Option<usize> {
        let mut before = 0;
        for Extent { base, len } in &self.pieces {
            if (*base..base + len).contains(&block.0) {
                return Some(before + (block.0 - base) as usize);
            }
            before += *len as usize;
        }
        None
    }
}

impl Editor<'_> {
    /// Follows `hashes` below `parent` as far as the tree has them.
    pub(in crate::index) fn follow(
        &self,
        parent: Option<BlockId>,
        hashes: &[BlockHash],
        path: &mut Path,
    ) {
        path.clear(parent);
        while path.len < hashes.len() {
            let rest = &hashes[path.len..];
            let edge = match path.end {
                None => ROOT,
                Some(end) => {
                    let (node, place) = self.locate(end);
                    let (_, len) = self.line_of(node).extent();
                    let left = (len - place - 1) as usize;
                    if left > 0 {
                        let matching = self.visible.matching(end.0 + 1, left, rest);
                        if matching > 0 {
                            path.push(end.0 + 1, matching);
                        }
                        if matching < left {
                            return;
                        }
                        continue;
                    }
                    self.own.nodes.get(node).edge
                }
            };
            let Some(child) = self.child(edge, rest[0]) else {
                return;
            };
            let (base, len) = self.line_of(child).extent();
            let matching = self.visible.matching(base, len as usize, rest);
            path.push(base, matching);
            if matching < len as usize {
                return;
            }
        }
    }

    /// Gives ids and first names to `wires`, new blocks below `end`, for `slot` to store; no names, if `nameless`.
    ///
    /// `is_taken` says whether the stream uses a name of another block already.
    ///
    /// # Errors
    /// The name that is taken, or that comes twice; `None` when there are no more ids. The claim must be
    /// given up then.
    pub(in crate::index) fn claim(
        &mut self,
        (slot, end): (Slot, Option<BlockId>),
        wires: &[WireHash],
        nameless: bool,
        claim: &mut Claim,
        is_taken: impl Fn(&Self, BlockId, WireHash) -> bool,
    ) -> Result<(), Option<WireHash>> {
        claim.runs.clear();
        claim.named = 0;
        self.claim_ids(slot, end, wires.len(), claim).ok_or(None)?;
        if nameless {
            for run in claim.runs() {
                self.make_nameless(run);
            }
            claim.named = wires.len();
            return Ok(());
        }
        let mut rest = wires;
        for index in 0..claim.runs.len() {
            let ClaimedRun { base, len, .. } = claim.runs[index];
            let (here, later) = rest.split_at(len as usize);
            self.own.wire_of.reach(base);
            let names = self.own.wire_of.tail_mut(base);
            for (name, wire) in names.iter_mut().zip(here) {
                *name = wire.0;
            }
            let scrambled = self.own.names.touch(here.iter().copied());
            for (id, (&wire, name)) in (base..).zip(here.iter().zip(scrambled)) {
                self.name(id, (wire, name), &is_taken)?;
                claim.named += 1;
            }
            rest = later;
        }
        Ok(())
    }

    /// Undoes a claim.
    pub(in crate::index) fn give_up(&mut self, claim: &mut Claim) {
        let mut named = claim.named;
        for run in claim.runs.drain(..) {
            let len = run.len.min(u32::try_from(named).unwrap_or(run.len));
            if len > 0 {
                self.unname_all(Extent {
                    base: run.base,
                    len,
                });
            }
            named -= len as usize;
            if run.reserved > 0 {
                self.own.ids.give(Extent {
                    base: run.base,
                    len: run.reserved,
                });
            }
        }
        claim.named = 0;
    }

    /// Makes claimed blocks real, below `end`, known to `slot` and with copies in `tier`.
    pub(in crate::index) fn build(
        &mut self,
        slot: Slot,
        end: Option<BlockId>,
        claim: &Claim,
        hashes: &[BlockHash],
        tier: Option<Tier>,
    ) {
        let mut rest = hashes;
        let mut end = end;
        let mut key = None;
        for run in &claim.runs {
            let (here, later) = rest.split_at(run.len as usize);
            self.visible.write_hashes(run.base, here);
            let parent_key = key.or_else(|| end.map(|end| self.key_of(end)));
            let last_key = self.chain(parent_key, here);
            if run.reserved == 0 {
                self.lengthen(slot, run.base - 1, run.len, tier, last_key);
            } else {
                self.add_run(slot, end, *run, tier, last_key);
            }
            key = Some(last_key);
            end = Some(BlockId(run.base + run.len - 1));
            rest = later;
        }
    }

    fn add_run(
        &mut self,
        slot: Slot,
        end: Option<BlockId>,
        run: ClaimedRun,
        tier: Option<Tier>,
        last_key: ContentKey,
    ) {
        let edge = self.edge_below(end);
        let node = self.new_node(run.reserved);
        let extent = Extent {
            base: run.base,
            len: run.reserved,
        };
        self.own_ids(extent, node);
        let shape = self.shape(node, (run.base, run.len), edge, last_key);
        let line = self.new_line(&shape);
        self.own.nodes.get_mut(node).line = line;
        self.touch(slot, node);
        self.set_holding(slot, node, fresh(run.len, tier));
        self.hang(node, edge);
    }

    /// Ids for `count` blocks below `end`: first those reserved there, if nobody else can mind.
    fn claim_ids(
        &mut self,
        slot: Slot,
        end: Option<BlockId>,
        count: usize,
        claim: &mut Claim,
    ) -> Option<()> {
        let mut left = count;
        let mut grown = 0;
        if let Some(end) = end {
            let (node, place) = self.locate(end);
            let line = self.line_of(node);
            let (base, len) = line.extent();
            let info = *self.own.nodes.get(node);
            let is_leaf = place + 1 == len && self.children_of(info.edge).next().is_none();
            if is_leaf && self.is_only_of(slot, line) {
                let room = info.reserved - len;
                let taken = room.min(u32::try_from(left).unwrap_or(u32::MAX));
                if taken > 0 {
                    claim.runs.push(ClaimedRun {
                        base: base + len,
                        len: taken,
                        reserved: 0,
                    });
                    left -= taken as usize;
                }
                // A run that filled its ids is likely to go on.
                grown = info.reserved * 2;
            }
        }
        while left > 0 {
            let want = u32::try_from(left).unwrap_or(MAX_RUN).min(MAX_RUN);
            let extent = self.own.ids.take(want.max(grown.min(MAX_RUN)))?;
            let len = want.min(extent.len);
            claim.runs.push(ClaimedRun {
                base: extent.base,
                len,
                reserved: extent.len,
            });
            let last = extent.base + extent.len - 1;
            self.own.node_of.reach(last);
            left -= len as usize;
        }
        Some(())
    }

    /// The identity of the prefix that the block ends.
    pub(super) fn key_of(&self, block: BlockId) -> ContentKey {
        let (node, place) = self.locate(block);
        let line = self.line_of(node);
        let (base, len) = line.extent();
        if place + 1 == len {
            return line.last_key();
        }
        let above = self.last_block(self.own.edges.get(line.parent_edge()).owner);
        let above = above.map(|above| self.key_of(above));
        let hashes: Vec<_> = (base..=block.0).map(|id| self.visible.hash(id)).collect();
        self.chain(above, &hashes)
    }

    /// The key that `hashes`, at least one, end after `key`.
    fn chain(&self, key: Option<ContentKey>, hashes: &[BlockHash]) -> ContentKey {
        let seeded = &self.own.hasher;
        let last = hashes
            .iter()
            .fold(key, |key, hash| Some(seeded.key(key, *hash)));
        last.unwrap_or(ContentKey(0))
    }
}

/// What a stream has of blocks that it brought.
pub(super) fn fresh(len: u32, tier: Option<Tier>) -> Holding {
    let mut holding = Holding {
        known: len,
        ..Holding::default()
    };
    if let Some(tier) = tier {
        holding.copies[tier as usize] = ones(len);
    }
    holding
}

const _: () = assert!(PAGE >= MAX_RUN);
