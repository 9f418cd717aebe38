//! From wire hashes to blocks.
//!
//! Engines of one model mostly agree on wire hashes, so that blocks keep the first name that they got,
//! and [`SharedNames`] finds them by it: 8 bytes a block for all streams together, to be verified by
//! whoever has the blocks. Names that a stream alone uses are in its [`PrivateNames`], in full.

use std::hint::black_box;

use super::bucket_table::{Bucket, BucketTable};
use super::columns::MAX_ELEMENTS;
use super::line::MAX_RUN;
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

/// A name as a table has it, to be looked up once and used twice.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::index) struct Scrambled(u64);

/// The names of at most so many blocks are looked up at once: a run's.
const AT_ONCE: usize = MAX_RUN as usize;

/// Brings the first two buckets that a search for each of a run's names reads into the cache: memory is waited for twice, not once a
/// name. `is_full` says whether the bucket so many places after a name's home is.
#[inline]
fn touch(
    scramble: &Scramble,
    wires: impl Iterator<Item = WireHash>,
    is_full: impl Fn(u64, usize) -> bool,
) -> [Scrambled; AT_ONCE] {
    let mut names = [Scrambled::default(); AT_ONCE];
    let mut full = 0_u64;
    for (position, (name, wire)) in names.iter_mut().zip(wires).enumerate() {
        *name = Scrambled(scramble.apply(wire));
        full |= u64::from(is_full(name.0, 0)) << position;
    }
    let mut rest = full;
    while rest != 0 {
        let position = rest.trailing_zeros() as usize;
        full ^= u64::from(is_full(names[position].0, 1));
        rest &= rest - 1;
    }
    black_box(full);
    names
}

/// Quarters of hashed wire hashes, and blocks: 8 bytes each, one cache line in all.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Tags {
    tags: [u32; 8],
    /// The first has the number of blocks above [`BLOCK_BITS`].
    blocks: [u32; 8],
}

/// What a block's number fits into.
const BLOCK_BITS: u32 = MAX_ELEMENTS.ilog2();
const BLOCK: u32 = MAX_ELEMENTS - 1;

impl Bucket for Tags {
    const EMPTY: Self = Self {
        tags: [0; 8],
        blocks: [0; 8],
    };
    const PLACES: usize = 8;
    type Key = u32;

    #[inline]
    fn len(&self) -> usize {
        (self.blocks[0] >> BLOCK_BITS) as usize
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "8 at most")]
        let len = len as u32;
        self.blocks[0] = (self.blocks[0] & BLOCK) | (len << BLOCK_BITS);
    }

    #[inline]
    fn entry(&self, place: usize) -> (u32, u32) {
        (self.tags[place], self.blocks[place] & BLOCK)
    }

    #[inline]
    #[expect(clippy::needless_bitwise_bool, reason = "no branch a place")]
    fn may_have(&self, key: u32) -> bool {
        self.tags
            .iter()
            .fold(false, |found, tag| found | (*tag == key))
    }

    #[inline]
    fn matching(&self, key: u32) -> u32 {
        let places = self.tags.iter().enumerate();
        let all = places.fold(0, |bits, (place, tag)| {
            bits | u32::from(*tag == key) << place
        });
        all & ((1 << self.len()) - 1)
    }

    #[inline]
    fn put(&mut self, place: usize, key: u32, block: u32) {
        self.tags[place] = key;
        self.blocks[place] = block;
    }

    #[inline]
    fn rank(key: u32) -> u32 {
        key
    }
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
        let (shard, tag) = place(self.scramble.apply(wire));
        self.shards[shard].find(tag)
    }

    /// Looks the names of one run's blocks up, all at once, before they are added or removed.
    #[inline]
    pub(super) fn touch(&self, wires: impl Iterator<Item = WireHash>) -> [Scrambled; AT_ONCE] {
        touch(&self.scramble, wires, |bits, further| {
            let (shard, tag) = place(bits);
            self.shards[shard].is_full(tag, further)
        })
    }

    /// Names a block, unless `check` fails for one that may be named so already.
    #[inline]
    pub(super) fn insert<F>(
        &mut self,
        name: Scrambled,
        block: u32,
        check: impl FnMut(u32) -> Result<(), F>,
    ) -> Result<(), F> {
        let (shard, tag) = place(name.0);
        self.shards[shard].insert(tag, block, check)
    }

    pub(super) fn remove(&mut self, wire: WireHash, block: u32) {
        let (shard, tag) = place(self.scramble.apply(wire));
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
}

/// A name's shard, and its key there.
#[inline]
fn place(scrambled: u64) -> (usize, u32) {
    ((scrambled >> 56) as usize, low_half(scrambled >> 24))
}

/// Whole wire hashes, scrambled, and blocks: 12 bytes each, one cache line in all.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Whole {
    names: [u64; 5],
    blocks: [u32; 5],
    len: u32,
}

impl Bucket for Whole {
    const EMPTY: Self = Self {
        names: [0; 5],
        blocks: [0; 5],
        len: 0,
    };
    const PLACES: usize = 5;
    type Key = u64;

    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "5 at most")]
        let len = len as u32;
        self.len = len;
    }

    #[inline]
    fn entry(&self, place: usize) -> (u64, u32) {
        (self.names[place], self.blocks[place])
    }

    #[inline]
    #[expect(clippy::needless_bitwise_bool, reason = "no branch a place")]
    fn may_have(&self, key: u64) -> bool {
        self.names
            .iter()
            .fold(false, |found, name| found | (*name == key))
    }

    #[inline]
    fn matching(&self, key: u64) -> u32 {
        let places = self.names.iter().enumerate();
        let all = places.fold(0, |bits, (place, name)| {
            bits | u32::from(*name == key) << place
        });
        all & ((1 << self.len) - 1)
    }

    #[inline]
    fn put(&mut self, place: usize, key: u64, block: u32) {
        self.names[place] = key;
        self.blocks[place] = block;
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
            table: BucketTable::new(14),
        }
    }

    pub(in crate::index) fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    #[inline]
    pub(in crate::index) fn get(&self, wire: WireHash) -> Option<u32> {
        self.table.find_one(self.scramble.apply(wire))
    }

    /// Looks the names of at most as many blocks as a run has up, all at once.
    #[inline]
    pub(in crate::index) fn touch(&self, wires: &[WireHash]) -> [Scrambled; AT_ONCE] {
        touch(&self.scramble, wires.iter().copied(), |name, further| {
            self.table.is_full(name, further)
        })
    }

    /// Adds a name, unless there is one; that one's block is the error then.
    #[inline]
    pub(in crate::index) fn insert(&mut self, wire: WireHash, block: u32) -> Result<(), u32> {
        self.insert_touched(Scrambled(self.scramble.apply(wire)), block)
    }

    /// The same, of a name that was looked up.
    #[inline]
    pub(in crate::index) fn insert_touched(
        &mut self,
        name: Scrambled,
        block: u32,
    ) -> Result<(), u32> {
        self.table.insert(name.0, block, Err)
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
            let [name, ..] = names.touch([wire].into_iter());
            names.insert(name, block, |_| Ok::<(), ()>(())).unwrap();
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
