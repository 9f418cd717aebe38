//! Content key to holder sets, shared by all streams.
//!
//! Sharded open addressing; a bucket is one cache line. Readers take no lock: a bucket's key never
//! changes within one generation of a shard, masks are single words, and a shard that grows, shrinks
//! or drops emptied buckets is copied and swapped under its writers' lock. Knows nothing of streams.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;

use super::slot_mask::{Slot, SlotMask};
use crate::model::{ContentKey, Tier};

/// Enough that writers of different streams rarely meet, and that copying a shard is short.
const SHARD_BITS: u32 = 7;
/// Buckets of an empty shard.
const MIN_BUCKETS: usize = 8;
/// Stands for a low half of 0, which marks a free bucket. Two keys that this makes one are as likely as
/// any other collision of 128-bit hashes.
const LOW_OF_ZERO: u64 = 0x9E37_79B9_7F4A_7C15;

/// The shared table.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Shard]>,
    /// Seeded, since engines choose the tokens that keys are made of.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Shard {
    buckets: ArcSwap<Buckets>,
    /// Held by whoever changes the shard; readers never take it.
    usage: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    /// Buckets that have a key, emptied ones too.
    keyed: usize,
    /// Buckets with a holder.
    held: usize,
}

#[derive(Debug)]
struct Buckets(Box<[Bucket]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// 0 while free; set last, once.
    key_low: AtomicU64,
    key_high: AtomicU64,
    device: [AtomicU64; SlotMask::WORDS],
    host: [AtomicU64; SlotMask::WORDS],
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..1 << SHARD_BITS).map(|_| Shard::default()).collect(),
            hasher: RandomState::default(),
        }
    }

    /// The slots that hold the block on Device, and on Host. Waits for nobody.
    pub(super) fn get(&self, key: ContentKey) -> Option<(SlotMask, SlotMask)> {
        let key = halves(key);
        let (shard, hash) = self.place(key);
        let buckets = shard.buckets.load();
        let bucket = buckets.find(key, hash)?;
        Some((read(&bucket.device), read(&bucket.host)))
    }

    /// Adds a copy in `tier` to the view `slot`.
    pub(super) fn set(&self, key: ContentKey, tier: Tier, slot: Slot) {
        let key = halves(key);
        let (shard, hash) = self.place(key);
        let mut usage = shard.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = shard.buckets.load();
        if let Some(bucket) = buckets.find(key, hash) {
            usage.held += usize::from(bucket.is_empty());
            bucket.insert(tier, slot);
            return;
        }
        // A quarter stays free, so that every search ends soon.
        let grown = (usage.keyed + 1) * 4 > buckets.0.len() * 3;
        if grown {
            self.rebuild(shard, &mut usage, &buckets);
        }
        let buckets = if grown { shard.buckets.load() } else { buckets };
        if let Some(bucket) = buckets.free(hash) {
            bucket.insert(tier, slot);
            bucket.publish(key);
            usage.keyed += 1;
            usage.held += 1;
        }
    }

    /// Takes the copy in `tier` of the view `slot` away.
    pub(super) fn clear(&self, key: ContentKey, tier: Tier, slot: Slot) {
        let key = halves(key);
        let (shard, hash) = self.place(key);
        let mut usage = shard.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = shard.buckets.load();
        let Some(bucket) = buckets.find(key, hash) else {
            return;
        };
        if bucket.is_empty() {
            return;
        }
        bucket.remove(tier, slot);
        usage.held -= usize::from(bucket.is_empty());
        if buckets.0.len() > MIN_BUCKETS && usage.held * 8 < buckets.0.len() {
            self.rebuild(shard, &mut usage, &buckets);
        }
    }

    /// Bytes of the buckets.
    pub(super) fn heap_bytes(&self) -> usize {
        let buckets = self.shards.iter().map(|shard| shard.buckets.load().0.len());
        buckets.sum::<usize>() * size_of::<Bucket>() + size_of_val(&*self.shards)
    }

    /// The key's shard, and the hash that places it there.
    fn place(&self, key: (u64, u64)) -> (&Shard, usize) {
        let hash = self.hasher.hash_one(key);
        // The top bits choose the shard, the low ones the bucket: they must not be the same.
        let shard = hash >> (u64::BITS - SHARD_BITS);
        (&self.shards[index(shard)], index(hash))
    }

    /// Copies what is held into a new generation with room for as much again. The caller holds the lock.
    fn rebuild(&self, shard: &Shard, usage: &mut Usage, old: &Buckets) {
        let count = ((usage.held + 1) * 2).next_power_of_two();
        let new = Buckets::new(count.max(MIN_BUCKETS));
        let mut held = 0;
        for bucket in old.0.iter().filter(|bucket| !bucket.is_empty()) {
            let key = bucket.key();
            let hash = self.hasher.hash_one(key);
            if let Some(free) = new.free(index(hash)) {
                free.copy_masks(bucket);
                free.publish(key);
                held += 1;
            }
        }
        *usage = Usage { keyed: held, held };
        shard.buckets.store(new.into());
    }
}

impl Buckets {
    /// `count` free buckets, a power of two.
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Bucket::default()).collect())
    }

    /// The buckets to look at for `hash`, each once.
    fn probe(&self, hash: usize) -> impl Iterator<Item = &Bucket> {
        let wrap = self.0.len() - 1;
        (0..self.0.len()).map(move |step| &self.0[hash.wrapping_add(step) & wrap])
    }

    fn find(&self, key: (u64, u64), hash: usize) -> Option<&Bucket> {
        for bucket in self.probe(hash) {
            match bucket.key_low.load(Ordering::Acquire) {
                0 => return None,
                low if low == key.0 && bucket.key_high.load(Ordering::Relaxed) == key.1 => {
                    return Some(bucket);
                }
                _ => {}
            }
        }
        None
    }

    fn free(&self, hash: usize) -> Option<&Bucket> {
        self.probe(hash)
            .find(|bucket| bucket.key_low.load(Ordering::Relaxed) == 0)
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Self::new(MIN_BUCKETS)
    }
}

/// Everything but `key` is called under the shard's lock, so that a load and a store make an update.
impl Bucket {
    fn key(&self) -> (u64, u64) {
        let low = self.key_low.load(Ordering::Acquire);
        (low, self.key_high.load(Ordering::Relaxed))
    }

    /// Shows the bucket to readers; its masks are there already.
    fn publish(&self, (low, high): (u64, u64)) {
        self.key_high.store(high, Ordering::Relaxed);
        self.key_low.store(low, Ordering::Release);
    }

    fn masks(&self, tier: Tier) -> &[AtomicU64; SlotMask::WORDS] {
        match tier {
            Tier::Device => &self.device,
            Tier::Host => &self.host,
        }
    }

    fn insert(&self, tier: Tier, slot: Slot) {
        let (word, bit) = slot.word_and_bit();
        let mask = &self.masks(tier)[word];
        mask.store(mask.load(Ordering::Relaxed) | bit, Ordering::Release);
    }

    fn remove(&self, tier: Tier, slot: Slot) {
        let (word, bit) = slot.word_and_bit();
        let mask = &self.masks(tier)[word];
        mask.store(mask.load(Ordering::Relaxed) & !bit, Ordering::Release);
    }

    fn copy_masks(&self, other: &Self) {
        for tier in [Tier::Device, Tier::Host] {
            for (to, from) in self.masks(tier).iter().zip(other.masks(tier)) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    fn is_empty(&self) -> bool {
        read(&self.device).or(read(&self.host)).is_empty()
    }
}

fn read(mask: &[AtomicU64; SlotMask::WORDS]) -> SlotMask {
    SlotMask(std::array::from_fn(|word| {
        mask[word].load(Ordering::Acquire)
    }))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a hash, of which a few bits are used"
)]
fn index(hash: u64) -> usize {
    hash as usize
}

/// Low and high half of a key as buckets hold them: the low one is never 0.
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn halves(key: ContentKey) -> (u64, u64) {
    let low = key.0 as u64;
    let low = if low == 0 { LOW_OF_ZERO } else { low };
    (low, (key.0 >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::{MIN_BUCKETS, SHARD_BITS, Table};
    use crate::index::slot_mask::{Slot, SlotMask};
    use crate::model::{ContentKey, Tier};

    fn slot(index: usize) -> Slot {
        SlotMask::ALL.iter().nth(index).unwrap()
    }

    fn mask(indexes: &[usize]) -> SlotMask {
        let mut mask = SlotMask::EMPTY;
        for &index in indexes {
            mask.insert(slot(index));
        }
        mask
    }

    fn buckets(table: &Table) -> usize {
        let counts = table
            .shards
            .iter()
            .map(|shard| shard.buckets.load().0.len());
        counts.sum()
    }

    #[test]
    fn tiers_and_slots_are_apart() {
        let table = Table::new();
        let key = ContentKey(5);
        assert_eq!(table.get(key), None);
        table.set(key, Tier::Device, slot(0));
        table.set(key, Tier::Host, slot(191));
        table.set(key, Tier::Host, slot(64));
        assert_eq!(table.get(key), Some((mask(&[0]), mask(&[64, 191]))));
        table.clear(key, Tier::Device, slot(64));
        table.clear(key, Tier::Host, slot(64));
        assert_eq!(table.get(key), Some((mask(&[0]), mask(&[191]))));
    }

    #[test]
    fn keys_with_a_zero_half_are_ordinary() {
        let table = Table::new();
        let keys = [0, 1, 1 << 64, u128::MAX << 64, u128::MAX].map(ContentKey);
        for (index, key) in keys.into_iter().enumerate() {
            table.set(key, Tier::Device, slot(index));
        }
        for (index, key) in keys.into_iter().enumerate() {
            assert_eq!(table.get(key).unwrap().0, mask(&[index]), "{key:?}");
        }
    }

    #[test]
    fn grows_and_shrinks_and_keeps_everything() {
        let table = Table::new();
        let count = 20_000;
        let key = |index: u128| ContentKey((index << 64) | (index * 7));
        for index in 0..count {
            table.set(key(index), Tier::Device, slot(1));
            table.set(key(index), Tier::Host, slot(2));
        }
        assert!(buckets(&table) >= 20_000);
        for index in 0..count {
            assert_eq!(table.get(key(index)), Some((mask(&[1]), mask(&[2]))));
        }
        for index in 100..count {
            table.clear(key(index), Tier::Device, slot(1));
            table.clear(key(index), Tier::Host, slot(2));
        }
        let smallest = MIN_BUCKETS << SHARD_BITS;
        assert!(buckets(&table) <= 2 * smallest, "{}", buckets(&table));
        for index in 0..count {
            let held = table
                .get(key(index))
                .is_some_and(|found| found.0 == mask(&[1]));
            assert_eq!(held, index < 100);
        }
    }

    #[test]
    fn a_long_churn_stays_small() {
        let table = Table::new();
        for index in 0..200_000_u128 {
            table.set(ContentKey(index), Tier::Host, slot(3));
            table.clear(ContentKey(index), Tier::Host, slot(3));
        }
        assert_eq!(buckets(&table), MIN_BUCKETS << SHARD_BITS);
    }
}
