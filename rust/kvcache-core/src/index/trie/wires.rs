//! From wire hashes to blocks.
//!
//! Engines of one model mostly agree on wire hashes, so that blocks keep the first name that they got,
//! and [`SharedNames`] finds them by it: 8 bytes a block for all streams together, to be verified by
//! whoever has the blocks. Names that a stream alone uses are in its [`PrivateNames`], in full.

use std::convert::Infallible;
use std::hint::black_box;

use super::gap_table::{Entry, GapTable};
use crate::model::WireHash;

/// One table for each top byte: a table that grows is copied in a moment.
const SHARDS: usize = 256;

/// A keyed permutation, since engines choose what they call their blocks.
#[derive(Clone, Copy, Debug)]
struct Scramble {
    add: u64,
    multiply: [u64; 2],
    /// The inverse of each factor.
    divide: [u64; 2],
}

impl Scramble {
    fn new() -> Self {
        let multiply = [(); 2].map(|()| fastrand::u64(..) | 1);
        Self {
            add: fastrand::u64(..),
            multiply,
            divide: multiply.map(inverse),
        }
    }

    #[inline]
    fn apply(&self, wire: WireHash) -> u64 {
        let mut bits = wire.0.wrapping_add(self.add);
        bits = bits.wrapping_mul(self.multiply[0]);
        bits ^= bits >> 32;
        bits = bits.wrapping_mul(self.multiply[1]);
        bits ^ (bits >> 32)
    }

    fn undo(&self, scrambled: u64) -> WireHash {
        let mut bits = scrambled ^ (scrambled >> 32);
        bits = bits.wrapping_mul(self.divide[1]);
        bits ^= bits >> 32;
        bits = bits.wrapping_mul(self.divide[0]);
        WireHash(bits.wrapping_sub(self.add))
    }
}

/// Of an odd number, modulo 2^64. Each step doubles the bits that are right.
fn inverse(odd: u64) -> u64 {
    let step =
        |inverse: u64, _| inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
    (0..6).fold(odd, step)
}

/// A quarter of the hashed wire hash, and the block.
#[derive(Clone, Copy, Debug)]
struct Tagged {
    tag: u32,
    block: u32,
}

impl Entry for Tagged {
    const GAP: Self = Self {
        tag: 0,
        block: u32::MAX,
    };
    type Key = u32;

    #[inline]
    fn is_gap(self) -> bool {
        self.block == u32::MAX
    }

    #[inline]
    fn key(self) -> u32 {
        self.tag
    }

    #[inline]
    fn rank(self) -> u32 {
        self.tag
    }
}

/// Which blocks have a wire hash for their first name, verified by the caller.
#[derive(Debug)]
pub(super) struct SharedNames {
    scramble: Scramble,
    shards: Box<[GapTable<Tagged>]>,
}

impl SharedNames {
    pub(super) fn new() -> Self {
        Self {
            scramble: Scramble::new(),
            shards: (0..SHARDS).map(|_| GapTable::default()).collect(),
        }
    }

    /// Blocks that may be named so; very rarely others too.
    #[inline]
    pub(super) fn candidates(&self, wire: WireHash) -> impl Iterator<Item = u32> {
        let (shard, tag) = self.place(wire);
        let like = Tagged { tag, block: 0 };
        self.shards[shard].find(like).map(|entry| entry.block)
    }

    /// Brings the places of names that are about to be added into the cache, all at once.
    #[inline]
    pub(super) fn touch(&self, wires: &[WireHash]) {
        let places = wires.iter().map(|wire| {
            let (shard, tag) = self.place(*wire);
            self.shards[shard].glance(Tagged { tag, block: 0 })
        });
        black_box(places.fold(0, |sum, tag| sum ^ tag.map_or(0, |entry| entry.tag)));
    }

    /// Names a block, unless `check` fails for one that may be named so already.
    #[inline]
    pub(super) fn insert<F>(
        &mut self,
        wire: WireHash,
        block: u32,
        mut check: impl FnMut(u32) -> Result<(), F>,
    ) -> Result<(), F> {
        let (shard, tag) = self.place(wire);
        self.shards[shard].insert(Tagged { tag, block }, |other| check(other.block))
    }

    pub(super) fn remove(&mut self, wire: WireHash, block: u32) {
        let (shard, tag) = self.place(wire);
        let like = Tagged { tag, block };
        self.shards[shard].remove(like, |entry| entry.block == block);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let shards = self.shards.iter().map(GapTable::heap_bytes).sum::<usize>();
        shards + size_of_val(&*self.shards)
    }

    #[inline]
    fn place(&self, wire: WireHash) -> (usize, u32) {
        let bits = self.scramble.apply(wire);
        ((bits >> 56) as usize, low_half(bits >> 24))
    }
}

/// A whole wire hash, scrambled, and the block: 12 bytes.
#[derive(Clone, Copy, Debug)]
struct Named {
    high: u32,
    low: u32,
    block: u32,
}

impl Entry for Named {
    const GAP: Self = Self {
        high: 0,
        low: 0,
        block: u32::MAX,
    };
    type Key = (u32, u32);

    #[inline]
    fn is_gap(self) -> bool {
        self.block == u32::MAX
    }

    #[inline]
    fn key(self) -> (u32, u32) {
        (self.high, self.low)
    }

    #[inline]
    fn rank(self) -> u32 {
        self.high
    }
}

/// A stream's own names, each once.
#[derive(Debug)]
pub(in crate::index) struct PrivateNames {
    scramble: Scramble,
    table: GapTable<Named>,
}

impl PrivateNames {
    pub(in crate::index) fn new() -> Self {
        Self {
            scramble: Scramble::new(),
            table: GapTable::default(),
        }
    }

    pub(in crate::index) fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    #[inline]
    pub(in crate::index) fn get(&self, wire: WireHash) -> Option<u32> {
        self.table
            .find(self.named(wire, 0))
            .map(|entry| entry.block)
            .next()
    }

    /// Adds a name that is not there yet.
    pub(in crate::index) fn insert(&mut self, wire: WireHash, block: u32) {
        let added: Result<(), Infallible> = self.table.insert(self.named(wire, block), |_| Ok(()));
        let Ok(()) = added;
    }

    pub(in crate::index) fn remove(&mut self, wire: WireHash) {
        self.table.remove(self.named(wire, 0), |_| true);
    }

    pub(in crate::index) fn iter(&self) -> impl Iterator<Item = (WireHash, u32)> {
        self.table.iter().map(|entry| {
            let scrambled = (u64::from(entry.high) << 32) | u64::from(entry.low);
            (self.scramble.undo(scrambled), entry.block)
        })
    }

    pub(in crate::index) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
    }

    #[inline]
    fn named(&self, wire: WireHash, block: u32) -> Named {
        let bits = self.scramble.apply(wire);
        Named {
            high: low_half(bits >> 32),
            low: low_half(bits),
            block,
        }
    }
}

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is wanted"
)]
const fn low_half(bits: u64) -> u32 {
    bits as u32
}

#[cfg(test)]
mod tests {
    use super::{PrivateNames, Scramble, SharedNames};
    use crate::model::WireHash;

    #[test]
    fn scrambling_can_be_undone() {
        let scramble = Scramble::new();
        for wire in [0, 1, u64::MAX, 1 << 63]
            .into_iter()
            .chain((0..100).map(|_| fastrand::u64(..)))
        {
            assert_eq!(
                scramble.undo(scramble.apply(WireHash(wire))),
                WireHash(wire)
            );
        }
    }

    #[test]
    fn one_wire_hash_may_name_several_blocks() {
        let mut names = SharedNames::new();
        for block in 0..10_000 {
            let wire = WireHash(u64::from(block) / 2);
            names.insert(wire, block, |_| Ok::<(), ()>(())).unwrap();
        }
        names.remove(WireHash(7), 14);
        let found =
            |names: &SharedNames, wire| names.candidates(WireHash(wire)).collect::<Vec<_>>();
        assert_eq!(found(&names, 7), [15]);
        assert_eq!(found(&names, 8), [16, 17]);
    }

    #[test]
    fn private_names_come_back_as_they_were() {
        let mut names = PrivateNames::new();
        (0..5_000).for_each(|block| names.insert(WireHash(u64::from(block) << 40), block));
        names.remove(WireHash(3 << 40));
        assert_eq!(names.get(WireHash(3 << 40)), None);
        let mut all: Vec<_> = names.iter().collect();
        all.sort_unstable_by_key(|(_, block)| *block);
        assert_eq!(all.len(), 4_999);
        assert!(
            all.iter()
                .all(|(wire, block)| wire.0 == u64::from(*block) << 40)
        );
    }
}
