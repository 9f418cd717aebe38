//! From wire hashes to blocks.
//!
//! Engines of one model mostly agree on wire hashes, so that blocks keep the first name that they got,
//! and [`SharedNames`] finds them by it: 8 bytes a block for all streams together, to be verified by
//! whoever has the blocks. Names that a stream alone uses are in its [`PrivateNames`], in full.

use std::hint::black_box;

use super::NONE;
use super::bucket_table::{Bucket, BucketTable};
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

/// Quarters of hashed wire hashes, and blocks: 8 bytes each, one cache line in all.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Tags {
    tags: [u32; 8],
    /// [`NONE`] where there is room.
    blocks: [u32; 8],
}

impl Bucket for Tags {
    const EMPTY: Self = Self {
        tags: [0; 8],
        blocks: [NONE; 8],
    };
    const PLACES: usize = 8;
    type Key = u32;

    #[inline]
    fn len(&self) -> usize {
        self.taken().trailing_ones() as usize
    }

    #[inline]
    fn entry(&self, place: usize) -> (u32, u32) {
        (self.tags[place], self.blocks[place])
    }

    #[inline]
    fn matching(&self, key: u32) -> u32 {
        places(&self.tags, |tag| tag == key) & self.taken()
    }

    #[inline]
    fn put(&mut self, place: usize, key: u32, block: u32) {
        self.tags[place] = key;
        self.blocks[place] = block;
    }

    fn swap_remove(&mut self, place: usize) {
        let last = self.len() - 1;
        self.tags[place] = self.tags[last];
        self.blocks[place] = self.blocks[last];
        self.blocks[last] = NONE;
    }

    #[inline]
    fn rank(key: u32) -> u32 {
        key
    }
}

impl Tags {
    #[inline]
    fn taken(&self) -> u32 {
        places(&self.blocks, |block| block != NONE)
    }
}

/// A bit for each word that is as wanted: one comparison for several words.
#[inline]
fn places<const N: usize>(words: &[u32; N], is_wanted: impl Fn(u32) -> bool) -> u32 {
    (0..N).fold(0, |bits, place| {
        bits | u32::from(is_wanted(words[place])) << place
    })
}

/// Which blocks have a wire hash for their first name, verified by the caller.
#[derive(Debug)]
pub(super) struct SharedNames {
    scramble: Scramble,
    shards: Box<[BucketTable<Tags>]>,
}

impl SharedNames {
    pub(super) fn new() -> Self {
        Self {
            scramble: Scramble::new(),
            shards: (0..SHARDS).map(|_| BucketTable::new(14)).collect(),
        }
    }

    /// Blocks that may be named so; very rarely others too.
    #[inline]
    pub(super) fn candidates(&self, wire: WireHash) -> impl Iterator<Item = u32> {
        let (shard, tag) = self.place(wire);
        self.shards[shard].find(tag)
    }

    /// Brings the places of names that are about to be added into the cache, all at once.
    #[inline]
    pub(super) fn touch(&self, wires: &[WireHash]) {
        let first_tags = wires.iter().map(|wire| {
            let (shard, tag) = self.place(*wire);
            let bucket = self.shards[shard].home_bucket(tag);
            bucket.map_or(0, |bucket| bucket.tags[0])
        });
        black_box(first_tags.fold(0, |sum, tag| sum ^ tag));
    }

    /// Names a block, unless `check` fails for one that may be named so already.
    #[inline]
    pub(super) fn insert<F>(
        &mut self,
        wire: WireHash,
        block: u32,
        check: impl FnMut(u32) -> Result<(), F>,
    ) -> Result<(), F> {
        let (shard, tag) = self.place(wire);
        self.shards[shard].insert(tag, block, check)
    }

    pub(super) fn remove(&mut self, wire: WireHash, block: u32) {
        let (shard, tag) = self.place(wire);
        self.shards[shard].remove(tag, |other| other == block);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let shards = self
            .shards
            .iter()
            .map(BucketTable::heap_bytes)
            .sum::<usize>();
        shards + size_of_val(&*self.shards)
    }

    #[inline]
    fn place(&self, wire: WireHash) -> (usize, u32) {
        let bits = self.scramble.apply(wire);
        ((bits >> 56) as usize, low_half(bits >> 24))
    }
}

/// Whole wire hashes, scrambled, and blocks: 12 bytes each, two cache lines in all.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Whole {
    high: [u32; 10],
    low: [u32; 10],
    blocks: [u32; 10],
    len: u32,
}

impl Bucket for Whole {
    const EMPTY: Self = Self {
        high: [0; 10],
        low: [0; 10],
        blocks: [0; 10],
        len: 0,
    };
    const PLACES: usize = 10;
    type Key = u64;

    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn entry(&self, place: usize) -> (u64, u32) {
        let key = (u64::from(self.high[place]) << 32) | u64::from(self.low[place]);
        (key, self.blocks[place])
    }

    #[inline]
    fn matching(&self, key: u64) -> u32 {
        let (high, low) = (low_half(key >> 32), low_half(key));
        let both = places(&self.high, |half| half == high) & places(&self.low, |half| half == low);
        both & ((1 << self.len) - 1)
    }

    #[inline]
    fn put(&mut self, place: usize, key: u64, block: u32) {
        self.high[place] = low_half(key >> 32);
        self.low[place] = low_half(key);
        self.blocks[place] = block;
        self.len += 1;
    }

    fn swap_remove(&mut self, place: usize) {
        self.len -= 1;
        let last = self.len as usize;
        self.high[place] = self.high[last];
        self.low[place] = self.low[last];
        self.blocks[place] = self.blocks[last];
    }

    #[inline]
    fn rank(key: u64) -> u32 {
        low_half(key >> 32)
    }
}

/// A stream's own names, each once.
#[derive(Debug)]
pub(in crate::index) struct PrivateNames {
    scramble: Scramble,
    table: BucketTable<Whole>,
}

impl PrivateNames {
    pub(in crate::index) fn new() -> Self {
        Self {
            scramble: Scramble::new(),
            table: BucketTable::new(15),
        }
    }

    pub(in crate::index) fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    #[inline]
    pub(in crate::index) fn get(&self, wire: WireHash) -> Option<u32> {
        self.table.find(self.scramble.apply(wire)).next()
    }

    /// Brings the places of names into the cache, all at once.
    #[inline]
    pub(in crate::index) fn touch(&self, wires: &[WireHash]) {
        let lens = wires.iter().map(|wire| {
            let bucket = self.table.home_bucket(self.scramble.apply(*wire));
            bucket.map_or(0, |bucket| bucket.len ^ bucket.high[0])
        });
        black_box(lens.fold(0, |sum, len| sum ^ len));
    }

    /// Adds a name, unless there is one; that one's block is the error then.
    #[inline]
    pub(in crate::index) fn insert(&mut self, wire: WireHash, block: u32) -> Result<(), u32> {
        self.table.insert(self.scramble.apply(wire), block, Err)
    }

    pub(in crate::index) fn remove(&mut self, wire: WireHash) {
        self.table.remove(self.scramble.apply(wire), |_| true);
    }

    pub(in crate::index) fn iter(&self) -> impl Iterator<Item = (WireHash, u32)> {
        self.table
            .iter()
            .map(|(scrambled, block)| (self.scramble.undo(scrambled), block))
    }

    pub(in crate::index) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
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
        for block in 0..5_000 {
            names
                .insert(WireHash(u64::from(block) << 40), block)
                .unwrap();
        }
        assert_eq!(names.insert(WireHash(7 << 40), 8), Err(7));
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
