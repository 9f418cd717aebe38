//! First names: what the stream that brought a block calls it, which other streams mostly do too.
//!
//! A block of a stream whose names are all private is *nameless* until some other stream that shares names meets it: a name in two
//! tables would cost twice.

use std::convert::Infallible;

use super::block_ids::{Extent, PAGE};
use super::editor::Editor;
use super::line::ones;
use super::wires::Scrambled;
use super::{BlockId, NONE};
use crate::model::WireHash;

impl Editor<'_> {
    /// Blocks that may have `wire` for their first name and do have it.
    #[inline]
    pub(in crate::index) fn first_named(&self, wire: WireHash) -> impl Iterator<Item = BlockId> {
        self.own
            .names
            .candidates(wire)
            .map(BlockId)
            .filter(move |block| self.wire_of(*block) == wire)
    }

    /// Whether every block of `piece` has the name at its position, and no other block has it.
    #[inline]
    pub(in crate::index) fn are_first_names(&self, piece: Extent, wires: &[WireHash]) -> bool {
        !self.has_twin(piece) && self.nameless(piece) == 0 && {
            let names = &self.own.wire_of.tail(piece.base)[..piece.len as usize];
            names.iter().zip(wires).all(|(name, wire)| *name == wire.0)
        }
    }

    /// Gives a block its first name.
    #[inline]
    pub(super) fn name(
        &mut self,
        id: u32,
        (wire, name): (WireHash, Scrambled),
        is_taken: &impl Fn(&Self, BlockId, WireHash) -> bool,
    ) -> Result<(), Option<WireHash>> {
        let own = &mut *self.own;
        let is_first = own.names.insert(name, id, |other| {
            let is_twin = *own.wire_of.get(other) == wire.0;
            if is_twin { Err(()) } else { Ok(()) }
        });
        if is_first.is_ok() {
            return Ok(());
        }
        let others: Vec<BlockId> = self.first_named(wire).collect();
        for &other in &others {
            if self.is_claimed(other) || is_taken(self, other, wire) {
                return Err(Some(wire));
            }
        }
        self.own.twins += 1;
        for other in others {
            self.set_twin(other.0, true);
        }
        self.set_twin(id, true);
        let Ok(()) = self
            .own
            .names
            .insert(name, id, |_| Ok::<(), Infallible>(()));
        Ok(())
    }

    /// Gives a nameless block its first name; does nothing to others. The stream uses the name of no other block.
    pub(in crate::index) fn name_nameless(&mut self, block: BlockId, wire: WireHash) {
        let BlockId(id) = block;
        let extent = Extent { base: id, len: 1 };
        if self.nameless(extent) == 0 {
            return;
        }
        self.forget_nameless(extent);
        self.own.wire_of.reach(id);
        *self.own.wire_of.get_mut(id) = wire.0;
        let [name, ..] = self.own.names.touch([wire].into_iter());
        let named = self.name(id, (wire, name), &|_: &Self, _, _| false);
        debug_assert!(named.is_ok(), "a name in use");
    }

    /// Says of new blocks of one run that they have no first name.
    pub(super) fn make_nameless(&mut self, Extent { base, len }: Extent) {
        self.own.nameless += len as usize;
        self.own.nameless_pages.reach(base / PAGE);
        *self.own.nameless_pages.get_mut(base / PAGE) |= ones(len) << (base % PAGE);
    }

    /// Which blocks of one run have no first name: a bit each, the first one's lowest.
    #[inline]
    fn nameless(&self, Extent { base, len }: Extent) -> u64 {
        if self.own.nameless == 0 {
            return 0;
        }
        let page = self.own.nameless_pages.try_get(base / PAGE);
        page.map_or(0, |page| (page >> (base % PAGE)) & ones(len))
    }

    fn forget_nameless(&mut self, extent: Extent) {
        let nameless = self.nameless(extent);
        if nameless != 0 {
            let page = self.own.nameless_pages.get_mut(extent.base / PAGE);
            *page &= !(nameless << (extent.base % PAGE));
            self.own.nameless -= nameless.count_ones() as usize;
        }
    }

    /// A block's first name, if it has one.
    #[inline]
    pub(in crate::index) fn first_name(&self, block: BlockId) -> Option<WireHash> {
        let extent = Extent {
            base: block.0,
            len: 1,
        };
        (self.nameless(extent) == 0).then(|| self.wire_of(block))
    }

    /// Whether a block's first name may be another block's too.
    #[inline]
    fn has_twin(&self, Extent { base, len }: Extent) -> bool {
        self.own.twins > 0 && {
            let page = self.own.twin_pages.try_get(base / PAGE);
            page.is_some_and(|page| (page >> (base % PAGE)) & ones(len) != 0)
        }
    }

    fn set_twin(&mut self, id: u32, is_twin: bool) {
        self.own.twin_pages.reach(id / PAGE);
        let page = self.own.twin_pages.get_mut(id / PAGE);
        let bit = 1 << (id % PAGE);
        *page = if is_twin { *page | bit } else { *page & !bit };
    }

    /// Whether the block has an id and a name only, by the claim that is being made.
    fn is_claimed(&self, block: BlockId) -> bool {
        let node = self.own.node_of.get(block.0);
        node == NONE || {
            let (base, len) = self.line_of(node).extent();
            !(base..base + len).contains(&block.0)
        }
    }

    /// Takes the first names of one run's blocks, as far as they have any, from them.
    pub(super) fn unname_all(&mut self, extent: Extent) {
        let nameless = self.nameless(extent);
        self.forget_nameless(extent);
        let Extent { base, len } = extent;
        if nameless == ones(len) {
            return;
        }
        let names = &self.own.wire_of.tail(base)[..len as usize];
        self.own.names.touch(names.iter().copied().map(WireHash));
        for offset in 0..len {
            if nameless >> offset & 1 == 0 {
                self.unname(base + offset);
            }
        }
    }

    /// Takes a block's first name, which it has, from it.
    fn unname(&mut self, id: u32) {
        let wire = self.wire_of(BlockId(id));
        self.own.names.remove(wire, id);
        if self.own.twins > 0 && self.first_named(wire).next().is_some() {
            self.own.twins -= 1;
            // A block that is left alone keeps its mark, which only costs time.
            self.set_twin(id, false);
        }
    }

    /// The name of a block that is not nameless.
    #[inline]
    pub(super) fn wire_of(&self, block: BlockId) -> WireHash {
        WireHash(*self.own.wire_of.get(block.0))
    }
}
