//! A hash table of buckets that are a cache line or two, without room for anything but entries.
//!
//! An entry is in its home bucket, or in a later one when all between are full, so that a search ends at
//! the first bucket with room. Homes rise with keys: a table that grows is copied in one pass over memory.

/// Several entries, the first `len` places taken.
pub(super) trait Bucket: Copy {
    const EMPTY: Self;
    const PLACES: usize;
    type Key: Copy + Eq;

    fn len(&self) -> usize;
    /// To be called after every [`Bucket::put`].
    fn set_len(&mut self, len: usize);
    /// The key and the block at a place that is taken.
    fn entry(&self, place: usize) -> (Self::Key, u32);
    /// Whether some place has the key, taken or not: one comparison for several places.
    fn may_have(&self, key: Self::Key) -> bool;
    /// A bit for each place that is taken by the key.
    fn matching(&self, key: Self::Key) -> u32;
    /// Writes an entry.
    fn put(&mut self, place: usize, key: Self::Key, block: u32);
    /// Rises with keys, over the whole range.
    fn rank(key: Self::Key) -> u32;

    fn has_room(&self) -> bool {
        self.len() < Self::PLACES
    }

    /// Takes out an entry; the last one gets its place.
    fn swap_remove(&mut self, place: usize) {
        let last = self.len() - 1;
        let (key, block) = self.entry(last);
        self.put(place, key, block);
        self.set_len(last);
    }
}

#[derive(Clone, Debug)]
pub(super) struct BucketTable<B> {
    /// `homes`, and some more for what the last ones have no room for.
    buckets: Vec<B>,
    homes: usize,
    len: usize,
    /// Entries before the table grows.
    limit: usize,
    /// Sixteenths of all places that are used before the table grows.
    most_used: usize,
}

impl<B: Bucket> BucketTable<B> {
    pub(super) fn new(most_used: usize) -> Self {
        Self {
            buckets: Vec::new(),
            homes: 0,
            len: 0,
            limit: 0,
            most_used,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<B>()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (B::Key, u32)> {
        let places = |bucket: &B| 0..bucket.len();
        self.buckets
            .iter()
            .flat_map(move |bucket| places(bucket).map(|place| bucket.entry(place)))
    }

    /// Looks at the bucket so many places after the key's home: whether it is full.
    #[inline]
    pub(super) fn is_full(&self, key: B::Key, further: usize) -> bool {
        let bucket = self.buckets.get(self.home(key) + further);
        bucket.is_some_and(|bucket| !bucket.has_room())
    }

    /// The blocks of `key`.
    #[inline]
    pub(super) fn find(&self, key: B::Key) -> impl Iterator<Item = u32> {
        let mut goes_on = true;
        let searched = self.buckets[self.home(key)..]
            .iter()
            .take_while(move |bucket| {
                let was = goes_on;
                goes_on = !bucket.has_room();
                was
            });
        searched.flat_map(move |bucket| {
            bits(bucket.matching(key)).map(move |place| bucket.entry(place).1)
        })
    }

    /// The block of a `key` that is there once at most.
    #[inline]
    pub(super) fn find_one(&self, key: B::Key) -> Option<u32> {
        for bucket in &self.buckets[self.home(key)..] {
            let matching = bucket.matching(key);
            if matching != 0 {
                return Some(bucket.entry(matching.trailing_zeros() as usize).1);
            }
            if bucket.has_room() {
                break;
            }
        }
        None
    }

    /// Adds an entry, unless `check` fails for a block of the same key.
    #[inline]
    pub(super) fn insert<F>(
        &mut self,
        key: B::Key,
        block: u32,
        mut check: impl FnMut(u32) -> Result<(), F>,
    ) -> Result<(), F> {
        if self.len >= self.limit {
            self.rebuild(self.homes + self.homes * 3 / 8 + 1);
        }
        let mut at = self.home(key);
        loop {
            let Some(bucket) = self.buckets.get_mut(at) else {
                self.add_bucket();
                continue;
            };
            if bucket.may_have(key) {
                let mut same = bits(bucket.matching(key));
                same.try_for_each(|place| check(bucket.entry(place).1))?;
            }
            let len = bucket.len();
            if len < B::PLACES {
                bucket.put(len, key, block);
                bucket.set_len(len + 1);
                self.len += 1;
                return Ok(());
            }
            at += 1;
        }
    }

    /// Takes out an entry of `key` whose block is `wanted`.
    pub(super) fn remove(&mut self, key: B::Key, wanted: impl Fn(u32) -> bool) {
        let mut at = self.home(key);
        loop {
            let Some(bucket) = self.buckets.get_mut(at) else {
                return;
            };
            let found = bits(bucket.matching(key)).find(|place| wanted(bucket.entry(*place).1));
            let was_full = !bucket.has_room();
            if let Some(place) = found {
                bucket.swap_remove(place);
                self.len -= 1;
                if was_full {
                    self.fill_hole(at);
                }
                break;
            }
            if !was_full {
                return;
            }
            at += 1;
        }
        if self.len * 4 < self.homes * B::PLACES && self.homes > 1 {
            self.rebuild(self.homes / 2);
        }
    }

    /// The bucket at `hole` has just ceased to be full: brings back what had to go further because of it.
    fn fill_hole(&mut self, mut hole: usize) {
        let mut at = hole + 1;
        while let Some(bucket) = self.buckets.get(at) {
            let was_full = !bucket.has_room();
            let entries = (0..bucket.len()).map(|place| bucket.entry(place));
            let found = entries
                .enumerate()
                .find(|(_, (key, _))| self.home(*key) <= hole);
            if let Some((place, (key, block))) = found {
                self.buckets[at].swap_remove(place);
                let place = self.buckets[hole].len();
                self.buckets[hole].put(place, key, block);
                self.buckets[hole].set_len(place + 1);
                hole = at;
            }
            if !was_full {
                return;
            }
            at += 1;
        }
    }

    #[inline]
    fn home(&self, key: B::Key) -> usize {
        ((u64::from(B::rank(key)) * self.homes as u64) >> 32) as usize
    }

    /// One more for what the last homes have no room for: rarely, so that it need not be room for twice as many.
    fn add_bucket(&mut self) {
        self.buckets.reserve_exact(1);
        self.buckets.push(B::EMPTY);
    }

    fn rebuild(&mut self, homes: usize) {
        let old = std::mem::take(&mut self.buckets);
        self.homes = homes.max(1);
        self.limit = self.homes * B::PLACES * self.most_used / 16;
        self.buckets = vec![B::EMPTY; self.homes + 1];
        // Counting what a bucket has just got would wait for its memory.
        let mut lens = vec![0_u8; self.buckets.len()];
        for bucket in &old {
            for place in 0..bucket.len() {
                let (key, block) = bucket.entry(place);
                let mut at = self.home(key);
                while lens
                    .get(at)
                    .is_some_and(|len| usize::from(*len) == B::PLACES)
                {
                    at += 1;
                }
                if at == lens.len() {
                    self.add_bucket();
                    lens.push(0);
                }
                self.buckets[at].put(usize::from(lens[at]), key, block);
                lens[at] += 1;
            }
        }
        for (bucket, len) in self.buckets.iter_mut().zip(lens) {
            bucket.set_len(usize::from(len));
        }
    }
}

/// The places of set bits, lowest first.
#[inline]
fn bits(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        // Clears the lowest bit; of nothing, nothing is left to yield.
        bits &= bits.checked_sub(1)?;
        Some(place)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Bucket, BucketTable};

    #[derive(Clone, Copy)]
    struct Three {
        entries: [(u32, u32); 3],
        len: usize,
    }

    impl Bucket for Three {
        const EMPTY: Self = Self {
            entries: [(0, 0); 3],
            len: 0,
        };
        const PLACES: usize = 3;
        type Key = u32;

        fn len(&self) -> usize {
            self.len
        }

        fn entry(&self, place: usize) -> (u32, u32) {
            self.entries[place]
        }

        fn set_len(&mut self, len: usize) {
            self.len = len;
        }

        fn may_have(&self, key: u32) -> bool {
            self.entries.iter().any(|(other, _)| *other == key)
        }

        fn matching(&self, key: u32) -> u32 {
            let places = 0..self.len;
            places.fold(0, |bits, place| {
                bits | u32::from(self.entries[place].0 == key) << place
            })
        }

        fn put(&mut self, place: usize, key: u32, block: u32) {
            self.entries[place] = (key, block);
        }

        fn rank(key: u32) -> u32 {
            key
        }
    }

    #[test]
    fn agrees_with_a_map_of_lists() {
        for seed in 0..20_usize {
            let mut rng = fastrand::Rng::with_seed(seed as u64);
            let mut table = BucketTable::<Three>::new(14);
            let mut map: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            // Everything at the end, in the middle, or all over.
            let keys = [u32::MAX - 40..u32::MAX, 1000..1040, 0..u32::MAX][seed % 3].clone();
            for step in 0..4_000 {
                let key = rng.u32(keys.clone());
                // Grows and shrinks in turns.
                if rng.u32(..5) < 2 + step / 1_000 % 2 {
                    let added: Result<(), ()> = table.insert(key, step, |_| Ok(()));
                    added.unwrap();
                    map.entry(key).or_default().push(step);
                } else {
                    let some = map.range(key..).next().or_else(|| map.iter().next());
                    let Some(key) = some.map(|(key, _)| *key) else {
                        continue;
                    };
                    let values = map.get_mut(&key).unwrap();
                    let value = values.remove(rng.usize(..values.len()));
                    table.remove(key, |block| block == value);
                    map.retain(|_, values| !values.is_empty());
                }
                table.remove(key, |block| block == u32::MAX);
                if step % 16 == 0 {
                    for (key, values) in &map {
                        let mut found: Vec<u32> = table.find(*key).collect();
                        found.sort_unstable();
                        assert_eq!(found, *values);
                    }
                }
            }
            assert_eq!(table.len(), map.values().map(Vec::len).sum::<usize>());
            assert_eq!(table.iter().count(), table.len());
        }
    }

    #[test]
    fn a_failing_check_adds_nothing() {
        let mut table = BucketTable::<Three>::new(14);
        assert_eq!(table.insert(7, 1, |_| Err(())), Ok(()));
        assert_eq!(table.insert(7, 2, Err), Err(1));
        assert_eq!(table.find(7).collect::<Vec<_>>(), [1]);
    }
}
