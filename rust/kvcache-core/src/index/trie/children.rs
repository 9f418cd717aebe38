//! Children of runs that have more than one: edge and first block to line.
//!
//! Sharded open addressing over words of a tag and a line's number; whoever asks verifies what it
//! finds. Readers take no lock: a shard that grows or drops dead entries is copied and swapped.
//! Changed under the writers' lock only.

use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::NONE;

const SHARD_BITS: u32 = 6;
const MIN_PLACES: usize = 8;
/// A place that was never used.
const FREE: u64 = 0;
/// A place whose entry is gone; searches go on.
const DEAD: u64 = 1;

#[derive(Debug)]
pub(super) struct Children {
    shards: Box<[Shard]>,
    seeds: [u64; 2],
}

#[derive(Debug)]
struct Shard {
    places: ArcSwap<Box<[AtomicU64]>>,
    /// Used places, dead ones too.
    used: AtomicU64,
    live: AtomicU64,
}

/// Where a child is looked for.
#[derive(Clone, Copy)]
struct Spot {
    shard: usize,
    /// Never 0, so that no entry looks like [`FREE`] or [`DEAD`].
    tag: u32,
}

impl Children {
    pub(super) fn new() -> Self {
        let shard = || Shard {
            places: ArcSwap::from_pointee(new_places(MIN_PLACES)),
            used: AtomicU64::new(0),
            live: AtomicU64::new(0),
        };
        Self {
            shards: (0..1 << SHARD_BITS).map(|_| shard()).collect(),
            seeds: [(); 2].map(|()| fastrand::u64(..) | 1),
        }
    }

    /// The first line that may hang on `edge` with that first block and that `check` finds right.
    #[inline]
    pub(super) fn find<T>(
        &self,
        edge: u32,
        first_hash: u64,
        mut check: impl FnMut(u32) -> Option<T>,
    ) -> Option<T> {
        let spot = self.spot(edge, first_hash);
        let places = self.shards[spot.shard].places.load();
        for place in probe(&places, spot.tag) {
            let word = place.load(Ordering::Acquire);
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

    pub(super) fn insert(&self, edge: u32, first_hash: u64, line: u32) {
        let spot = self.spot(edge, first_hash);
        let shard = &self.shards[spot.shard];
        let used = shard.used.load(Ordering::Relaxed);
        if (used + 1) * 3 > shard.places.load().len() as u64 * 2 {
            shard.rebuild();
        }
        let places = shard.places.load();
        let free = probe(&places, spot.tag).find(|place| place.load(Ordering::Relaxed) == FREE);
        if let Some(place) = free {
            place.store(word(spot.tag, line), Ordering::Release);
            shard.used.fetch_add(1, Ordering::Relaxed);
            shard.live.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes the entry of `old` lead to `new`.
    pub(super) fn replace(&self, edge: u32, first_hash: u64, old: u32, new: u32) {
        let spot = self.spot(edge, first_hash);
        self.store(spot, old, word(spot.tag, new));
    }

    pub(super) fn remove(&self, edge: u32, first_hash: u64, line: u32) {
        let spot = self.spot(edge, first_hash);
        if self.store(spot, line, DEAD) {
            let shard = &self.shards[spot.shard];
            let left = shard.live.fetch_sub(1, Ordering::Relaxed) - 1;
            if shard.places.load().len() > MIN_PLACES && left * 8 < shard.places.load().len() as u64
            {
                shard.rebuild();
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let places = self.shards.iter().map(|shard| shard.places.load().len());
        places.sum::<usize>() * size_of::<AtomicU64>() + size_of_val(&*self.shards)
    }

    fn store(&self, spot: Spot, line: u32, new: u64) -> bool {
        let places = self.shards[spot.shard].places.load();
        let old = word(spot.tag, line);
        let place = probe(&places, spot.tag)
            .take_while(|place| place.load(Ordering::Relaxed) != FREE)
            .find(|place| place.load(Ordering::Relaxed) == old);
        if let Some(place) = place {
            place.store(new, Ordering::Release);
        }
        place.is_some()
    }

    #[inline]
    fn spot(&self, edge: u32, first_hash: u64) -> Spot {
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

impl Shard {
    /// Copies the live entries into places for as many again.
    fn rebuild(&self) {
        let live = self.live.load(Ordering::Relaxed);
        let count = usize::try_from((live + 1) * 2)
            .unwrap_or(usize::MAX)
            .next_power_of_two();
        let new = new_places(count.max(MIN_PLACES));
        for old in self.places.load().iter() {
            let old = old.load(Ordering::Relaxed);
            if old != FREE && old != DEAD {
                let free =
                    probe(&new, tag_of(old)).find(|place| place.load(Ordering::Relaxed) == FREE);
                if let Some(place) = free {
                    place.store(old, Ordering::Relaxed);
                }
            }
        }
        self.used.store(live, Ordering::Relaxed);
        self.places.store(new.into());
    }
}

fn new_places(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(FREE)).collect()
}

/// Every place once, from the tag's on. There are a power of two of them.
#[inline]
fn probe(places: &[AtomicU64], tag: u32) -> impl Iterator<Item = &AtomicU64> {
    let wrap = places.len() - 1;
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

const _: () = assert!(tag_of(DEAD) == 0 && line_of(word(1, NONE)) == NONE);
