//! Children of runs that have more than one: edge and first block to line.
//!
//! Sharded open addressing over words of a tag and a line's number; whoever asks verifies what it
//! finds. Readers take no lock: a shard that grows or drops dead entries is copied into another table and
//! swapped, and the old table is used again when no query can see it. Changed by one writer at a time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::columns::Shared;
use crate::index::prefetch::prefetch_at;

const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;
const MIN_PLACES_LOG2: usize = 3;
/// A place that was never used.
const FREE: u64 = 0;
/// A place whose entry is gone; searches go on.
const DEAD: u64 = 1;

/// What readers see.
#[derive(Debug)]
pub(super) struct Children {
    /// By shard: its table's number.
    shards: Box<[AtomicU32]>,
    tables: Shared<Table>,
    seeds: [u64; 2],
}

/// A power of two of places, made once.
#[derive(Debug, Default)]
struct Table(OnceLock<Box<[AtomicU64]>>);

/// What only writers know.
#[derive(Debug)]
pub(super) struct ChildrenBook {
    usage: Box<[Usage]>,
    tables: u32,
    /// Tables that no query can see, by the logarithm of their places.
    spare: Vec<Vec<u32>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Used places, dead ones too.
    used: usize,
    live: usize,
}

/// Where a child is looked for.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    shard: usize,
    /// Never 0, so that no entry looks like [`FREE`] or [`DEAD`].
    tag: u32,
}

impl ChildrenBook {
    /// The table, which was swapped out before, can be used again.
    pub(super) fn give(&mut self, children: &Children, table: u32) {
        let log2 = children.places(table).len().ilog2() as usize;
        if self.spare.len() <= log2 {
            self.spare.resize(log2 + 1, Vec::new());
        }
        self.spare[log2].push(table);
    }

    fn take(&mut self, children: &Children, log2: usize) -> u32 {
        if let Some(table) = self.spare.get_mut(log2).and_then(Vec::pop) {
            for place in children.places(table) {
                place.store(FREE, Ordering::Relaxed);
            }
            return table;
        }
        let table = self.tables;
        self.tables += 1;
        let places = || (0..1 << log2).map(|_| AtomicU64::new(FREE)).collect();
        children.tables.get(table).0.get_or_init(places);
        table
    }
}

impl Children {
    pub(super) fn new() -> (Self, ChildrenBook) {
        let mut children = Self {
            shards: Box::default(),
            tables: Shared::new(),
            seeds: [(); 2].map(|()| fastrand::u64(..) | 1),
        };
        let mut book = ChildrenBook {
            usage: vec![Usage::default(); SHARDS].into(),
            tables: 0,
            spare: Vec::new(),
        };
        let shards = (0..SHARDS).map(|_| book.take(&children, MIN_PLACES_LOG2).into());
        children.shards = shards.collect();
        (children, book)
    }

    /// The first line that may hang there and that `check` finds right.
    #[inline]
    pub(super) fn find<T>(&self, spot: Spot, mut check: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let places = self.places(self.table_of(spot.shard));
        let wrap = places.len().wrapping_sub(1);
        for step in 0..places.len() {
            let word = places[(spot.tag as usize + step) & wrap].load(Ordering::Acquire);
            if word == FREE {
                return None;
            }
            if tag_of(word) == spot.tag
                && let Some(found) = check(line_of(word))
            {
                return Some(found);
            }
        }
        None
    }

    /// Asks for the place where a search begins.
    #[inline]
    pub(super) fn prefetch(&self, spot: Spot) {
        let places = self.places(self.table_of(spot.shard));
        prefetch_at(places, spot.tag as usize & places.len().wrapping_sub(1));
    }

    /// What is in the place where a search begins, if the tag is right: mostly what the search finds.
    #[inline]
    pub(super) fn first(&self, spot: Spot) -> Option<u32> {
        let places = self.places(self.table_of(spot.shard));
        let place = places.get(spot.tag as usize & places.len().wrapping_sub(1))?;
        let word = place.load(Ordering::Relaxed);
        (tag_of(word) == spot.tag).then_some(line_of(word))
    }

    /// Adds a child. Returns the table that this has swapped out, if any.
    pub(super) fn insert(
        &self,
        book: &mut ChildrenBook,
        edge: u32,
        first_hash: u64,
        line: u32,
    ) -> Option<u32> {
        let spot = self.spot(edge, first_hash);
        let places = self.places(self.table_of(spot.shard)).len();
        let is_full = (book.usage[spot.shard].used + 1) * 3 > places * 2;
        let old = is_full.then(|| self.rebuild(book, spot.shard));
        let free = self
            .probe(spot)
            .find(|place| place.load(Ordering::Relaxed) == FREE);
        if let Some(place) = free {
            place.store(word(spot.tag, line), Ordering::Release);
            book.usage[spot.shard].used += 1;
            book.usage[spot.shard].live += 1;
        }
        old
    }

    /// Makes the entry of `old` lead to `new`.
    pub(super) fn replace(&self, edge: u32, first_hash: u64, old: u32, new: u32) {
        let spot = self.spot(edge, first_hash);
        self.store(spot, old, word(spot.tag, new));
    }

    /// Takes a child out. Returns the table that this has swapped out, if any.
    pub(super) fn remove(
        &self,
        book: &mut ChildrenBook,
        edge: u32,
        first_hash: u64,
        line: u32,
    ) -> Option<u32> {
        let spot = self.spot(edge, first_hash);
        if !self.store(spot, line, DEAD) {
            return None;
        }
        let usage = &mut book.usage[spot.shard];
        usage.live -= 1;
        let places = self.places(self.table_of(spot.shard)).len();
        let is_sparse = places > 1 << MIN_PLACES_LOG2 && usage.live * 8 < places;
        is_sparse.then(|| self.rebuild(book, spot.shard))
    }

    pub(super) fn heap_bytes(&self, book: &ChildrenBook) -> usize {
        let tables = (0..book.tables).map(|table| self.places(table).len());
        tables.sum::<usize>() * size_of::<AtomicU64>()
            + self.tables.heap_bytes()
            + size_of_val(&*self.shards)
            + size_of_val(&*book.usage)
    }

    #[inline]
    fn table_of(&self, shard: usize) -> u32 {
        self.shards[shard].load(Ordering::Acquire)
    }

    #[inline]
    fn places(&self, table: u32) -> &[AtomicU64] {
        self.tables.get(table).0.get().map_or(&[], |places| places)
    }

    /// Every place of the spot's table once, from the tag's on.
    #[inline]
    fn probe(&self, spot: Spot) -> impl Iterator<Item = &AtomicU64> {
        probe(self.places(self.table_of(spot.shard)), spot.tag)
    }

    fn store(&self, spot: Spot, line: u32, new: u64) -> bool {
        let old = word(spot.tag, line);
        let place = self
            .probe(spot)
            .take_while(|place| place.load(Ordering::Relaxed) != FREE)
            .find(|place| place.load(Ordering::Relaxed) == old);
        if let Some(place) = place {
            place.store(new, Ordering::Release);
        }
        place.is_some()
    }

    /// Copies the live entries into places for as many again. Returns the table that they were in.
    fn rebuild(&self, book: &mut ChildrenBook, shard: usize) -> u32 {
        let live = book.usage[shard].live;
        let log2 = ((live + 1) * 2).next_power_of_two().ilog2() as usize;
        let new = book.take(self, log2.max(MIN_PLACES_LOG2));
        let old = self.table_of(shard);
        for entry in self.places(old) {
            let entry = entry.load(Ordering::Relaxed);
            if entry != FREE && entry != DEAD {
                let free = probe(self.places(new), tag_of(entry))
                    .find(|place| place.load(Ordering::Relaxed) == FREE);
                if let Some(place) = free {
                    place.store(entry, Ordering::Relaxed);
                }
            }
        }
        book.usage[shard].used = live;
        self.shards[shard].store(new, Ordering::Release);
        old
    }

    /// Where the child of `edge` whose first block has that low half of a hash is looked for.
    #[inline]
    pub(super) fn spot(&self, edge: u32, first_hash: u64) -> Spot {
        let bits = (u64::from(edge) ^ self.seeds[0]).wrapping_mul(self.seeds[1]) ^ first_hash;
        let product = u128::from(bits) * u128::from(self.seeds[1]);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed")]
        let mixed = (product as u64) ^ ((product >> 64) as u64);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a tag is a part of the hash"
        )]
        let tag = (mixed >> 16) as u32;
        Spot {
            shard: (mixed >> (u64::BITS - SHARD_BITS)) as usize,
            tag: tag.max(1),
        }
    }
}

/// Every place once, from the tag's on. There are a power of two of them, or none.
#[inline]
fn probe(places: &[AtomicU64], tag: u32) -> impl Iterator<Item = &AtomicU64> {
    let wrap = places.len().wrapping_sub(1);
    (0..places.len()).map(move |step| &places[(tag as usize + step) & wrap])
}

#[inline]
const fn word(tag: u32, line: u32) -> u64 {
    ((tag as u64) << 32) | line as u64
}

#[inline]
const fn tag_of(word: u64) -> u32 {
    (word >> 32) as u32
}

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is wanted"
)]
const fn line_of(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::Children;

    #[test]
    fn agrees_with_a_map() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (children, mut book) = Children::new();
        let mut map: HashMap<(u32, u64), u32> = HashMap::new();
        for step in 0..40_000_u32 {
            let key = (rng.u32(..4), rng.u64(..2_000));
            // Grows and shrinks in turns.
            let grows = step / 8_000 % 2 == 0;
            let old = match map.get_mut(&key) {
                None if grows => {
                    map.insert(key, step);
                    children.insert(&mut book, key.0, key.1, step)
                }
                Some(line) if grows => {
                    children.replace(key.0, key.1, *line, step);
                    *line = step;
                    None
                }
                Some(line) => {
                    let line = *line;
                    map.remove(&key);
                    children.remove(&mut book, key.0, key.1, line)
                }
                None => None,
            };
            if let Some(table) = old {
                book.give(&children, table);
            }
            let expected = map.get(&key);
            let found = children.find(children.spot(key.0, key.1), |line| {
                expected
                    .is_some_and(|expected| *expected == line)
                    .then_some(line)
            });
            assert_eq!(found.as_ref(), expected);
        }
        // Tables are used again: a shard has a handful of sizes.
        assert!(book.tables < 64 * 9, "{}", book.tables);
    }
}
