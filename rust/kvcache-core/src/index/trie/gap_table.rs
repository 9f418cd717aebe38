//! A hash table that keeps its entries sorted by their hashed keys, with gaps.
//!
//! An entry is at its home or after it without a gap between. As homes rise with keys, growing is one
//! pass over memory, and a search ends at the first larger key. No entry is larger than it must be.

/// What such a table holds.
pub(super) trait Entry: Copy {
    /// Marks a gap.
    const GAP: Self;
    /// Compared as a whole; its top half says where home is.
    type Key: Copy + Ord;

    fn is_gap(self) -> bool;
    fn key(self) -> Self::Key;
    /// Rises with keys.
    fn rank(self) -> u32;
}

/// Gaps after the last home, so that no probe wraps around; more are added when they are used up.
const SLACK: usize = 16;
const MIN_HOMES: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct GapTable<E> {
    slots: Vec<E>,
    homes: usize,
    len: usize,
}

impl<E> Default for GapTable<E> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            homes: 0,
            len: 0,
        }
    }
}

impl<E: Entry> GapTable<E> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<E>()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = E> {
        self.slots.iter().copied().filter(|entry| !entry.is_gap())
    }

    /// What is at the home of `like`: where a search begins.
    #[inline]
    pub(super) fn glance(&self, like: E) -> Option<E> {
        self.slots.get(self.home(like)).copied()
    }

    /// The entries with the key of `like`.
    #[inline]
    pub(super) fn find(&self, like: E) -> impl Iterator<Item = E> {
        let key = like.key();
        self.slots[self.home(like)..]
            .iter()
            .copied()
            .take_while(move |entry| !entry.is_gap() && entry.key() <= key)
            .filter(move |entry| entry.key() == key)
    }

    /// Adds an entry, after those of the same key, unless `check` fails for one of them.
    #[inline]
    pub(super) fn insert<F>(
        &mut self,
        entry: E,
        mut check: impl FnMut(E) -> Result<(), F>,
    ) -> Result<(), F> {
        if (self.len + 1) * 10 > self.homes * 9 {
            self.grow();
        }
        let key = entry.key();
        let mut at = self.home(entry);
        loop {
            let Some(&other) = self.slots.get(at) else {
                self.slots.resize(self.slots.len() + SLACK, E::GAP);
                continue;
            };
            if other.is_gap() {
                self.slots[at] = entry;
                break;
            }
            if other.key() == key {
                check(other)?;
            } else if other.key() > key {
                self.insert_before(at, entry);
                break;
            }
            at += 1;
        }
        self.len += 1;
        Ok(())
    }

    /// Takes out the first entry of the key of `like` that is `wanted`.
    pub(super) fn remove(&mut self, like: E, wanted: impl Fn(E) -> bool) -> Option<E> {
        let key = like.key();
        let mut at = self.home(like);
        let found = loop {
            let entry = *self.slots.get(at)?;
            if entry.is_gap() || entry.key() > key {
                return None;
            }
            if entry.key() == key && wanted(entry) {
                break entry;
            }
            at += 1;
        };
        // Those behind that are not at home move up.
        while let Some(&next) = self.slots.get(at + 1) {
            if next.is_gap() || self.home(next) > at {
                break;
            }
            self.slots[at] = next;
            at += 1;
        }
        self.slots[at] = E::GAP;
        self.len -= 1;
        if self.homes > MIN_HOMES && self.len * 4 < self.homes {
            self.rebuild(self.len * 3 / 2);
        }
        Some(found)
    }

    #[inline]
    fn home(&self, entry: E) -> usize {
        ((u64::from(entry.rank()) * self.homes as u64) >> 32) as usize
    }

    /// Moves the entries from `at` to the next gap up by one.
    fn insert_before(&mut self, at: usize, entry: E) {
        let room = self.slots[at..].iter().position(|other| other.is_gap());
        let room = room.unwrap_or_else(|| {
            let room = self.slots.len() - at;
            self.slots.resize(self.slots.len() + SLACK, E::GAP);
            room
        });
        self.slots.copy_within(at..at + room, at + 1);
        self.slots[at] = entry;
    }

    fn grow(&mut self) {
        self.rebuild(self.homes + self.homes / 4 + 1);
    }

    fn rebuild(&mut self, homes: usize) {
        let old = std::mem::take(&mut self.slots);
        self.homes = homes.max(MIN_HOMES);
        self.slots = vec![E::GAP; self.homes + SLACK];
        let mut next = 0;
        for entry in old.into_iter().filter(|entry| !entry.is_gap()) {
            let at = self.home(entry).max(next);
            if at >= self.slots.len() {
                self.slots.push(entry);
            } else {
                self.slots[at] = entry;
            }
            next = at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Entry, GapTable};

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Pair(u32, u32);

    impl Entry for Pair {
        const GAP: Self = Self(0, u32::MAX);
        type Key = u32;

        fn is_gap(self) -> bool {
            self.1 == u32::MAX
        }

        fn key(self) -> u32 {
            self.0
        }

        fn rank(self) -> u32 {
            self.0
        }
    }

    #[test]
    fn agrees_with_a_map_of_lists() {
        for seed in 0..20_usize {
            let mut rng = fastrand::Rng::with_seed(seed as u64);
            let mut table = GapTable::default();
            let mut map: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            // Everything at the end, in the middle, or all over.
            let keys = [u32::MAX - 40..u32::MAX, 1000..1040, 0..u32::MAX][seed % 3].clone();
            for step in 0..4_000 {
                let key = rng.u32(keys.clone());
                if rng.u8(..5) < 3 {
                    let added: Result<(), ()> = table.insert(Pair(key, step), |_| Ok(()));
                    added.unwrap();
                    map.entry(key).or_default().push(step);
                } else if let Some(values) = map.get_mut(&key) {
                    let value = values.remove(rng.usize(..values.len()));
                    let removed = table.remove(Pair(key, 0), |entry| entry.1 == value);
                    assert_eq!(removed, Some(Pair(key, value)));
                    map.retain(|_, values| !values.is_empty());
                } else {
                    assert_eq!(table.remove(Pair(key, 0), |_| true), None);
                }
                let found: Vec<u32> = table.find(Pair(key, 0)).map(|entry| entry.1).collect();
                assert_eq!(found, map.get(&key).cloned().unwrap_or_default());
            }
            let all: Vec<_> = table.iter().map(|entry| entry.0).collect();
            assert!(all.is_sorted() && all.len() == table.len());
        }
    }
}
