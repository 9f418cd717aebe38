//! Which block ids are free, in pages of 64.
//!
//! A run of blocks has consecutive ids within one page. A page is a word with a bit for each free id,
//! so that what is freed joins what was free beside it by itself. Knows nothing of blocks.

use super::columns::MAX_ELEMENTS;

/// Ids in a page.
pub(super) const PAGE: u32 = u64::BITS;

/// Consecutive block ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::index) struct Extent {
    pub(in crate::index) base: u32,
    pub(in crate::index) len: u32,
}

/// Hands out runs of ids.
#[derive(Debug)]
pub(super) struct BlockIds {
    /// One bit a free id.
    free: Vec<u64>,
    /// Pages by their longest run of free ids; entries that are no longer so are skipped.
    by_longest: [Vec<u32>; PAGE as usize + 1],
    /// Where each page is listed.
    listed: Vec<u8>,
    free_ids: usize,
}

impl BlockIds {
    pub(super) fn new() -> Self {
        Self {
            free: Vec::new(),
            by_longest: std::array::from_fn(|_| Vec::new()),
            listed: Vec::new(),
            free_ids: 0,
        }
    }

    /// Takes at most `want` ids, from 1 to 64; fewer rather than a new page while much is free in pieces.
    /// `None` when ids have run out.
    pub(super) fn take(&mut self, want: u32) -> Option<Extent> {
        for len in want..=PAGE {
            if let Some(page) = self.page_with(len) {
                return Some(self.take_from(page, want));
            }
        }
        let scattered = self.free_ids * 4 > self.free.len() * PAGE as usize;
        let pages = MAX_ELEMENTS / PAGE;
        if scattered || self.free.len() >= pages as usize {
            for len in (1..want).rev() {
                if let Some(page) = self.page_with(len) {
                    return Some(self.take_from(page, len));
                }
            }
        }
        let page = u32::try_from(self.free.len())
            .ok()
            .filter(|page| *page < pages)?;
        self.free.push(u64::MAX);
        self.listed.push(0);
        self.free_ids += PAGE as usize;
        Some(self.take_from(page, want))
    }

    /// Gives ids back.
    pub(super) fn give(&mut self, Extent { base, len }: Extent) {
        let page = base / PAGE;
        self.free[page as usize] |= bits(base % PAGE, len);
        self.free_ids += len as usize;
        self.list(page);
    }

    /// Ids that were ever handed out, free or not.
    #[cfg(test)]
    pub(super) fn reached(&self) -> usize {
        self.free.len() * PAGE as usize
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let lists = self.by_longest.iter().map(Vec::capacity).sum::<usize>();
        self.free.capacity() * size_of::<u64>() + lists * size_of::<u32>() + self.listed.capacity()
    }

    /// A page whose longest run has exactly `len` free ids.
    fn page_with(&mut self, len: u32) -> Option<u32> {
        while let Some(page) = self.by_longest[len as usize].pop() {
            if u32::from(self.listed[page as usize]) == len {
                self.listed[page as usize] = 0;
                return Some(page);
            }
        }
        None
    }

    /// Takes the first `len` consecutive ids of `page`, which has them and is not listed.
    fn take_from(&mut self, page: u32, len: u32) -> Extent {
        let mut starts = self.free[page as usize];
        for _ in 1..len {
            starts &= starts >> 1;
        }
        let start = starts.trailing_zeros();
        self.free[page as usize] &= !bits(start, len);
        self.free_ids -= len as usize;
        self.list(page);
        Extent {
            base: page * PAGE + start,
            len,
        }
    }

    fn list(&mut self, page: u32) {
        let longest = longest_run(self.free[page as usize]);
        if self.listed[page as usize] != longest {
            self.listed[page as usize] = longest;
            if longest > 0 {
                self.by_longest[usize::from(longest)].push(page);
            }
        }
    }
}

fn bits(start: u32, len: u32) -> u64 {
    (u64::MAX >> (PAGE - len)) << start
}

fn longest_run(mut bits: u64) -> u8 {
    let mut longest = 0;
    while bits != 0 {
        bits &= bits >> 1;
        longest += 1;
    }
    longest
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{BlockIds, Extent, PAGE};

    #[test]
    fn ids_are_handed_out_once() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut ids = BlockIds::new();
        let mut taken: Vec<Extent> = Vec::new();
        let mut used = HashSet::new();
        for _ in 0..20_000 {
            if rng.bool() || taken.is_empty() {
                let want = rng.u32(1..=PAGE);
                let extent = ids.take(want).unwrap();
                assert!((1..=want).contains(&extent.len));
                assert_eq!(extent.base / PAGE, (extent.base + extent.len - 1) / PAGE);
                for id in extent.base..extent.base + extent.len {
                    assert!(used.insert(id));
                }
                taken.push(extent);
            } else {
                let mut extent = taken.swap_remove(rng.usize(..taken.len()));
                if extent.len > 1 && rng.bool() {
                    // Runs are split, and their parts freed apart.
                    let len = rng.u32(1..extent.len);
                    let base = extent.base + len;
                    taken.push(Extent {
                        base,
                        len: extent.len - len,
                    });
                    extent.len = len;
                }
                (extent.base..extent.base + extent.len).for_each(|id| assert!(used.remove(&id)));
                ids.give(extent);
            }
        }
        for extent in taken {
            ids.give(extent);
        }
        assert_eq!(ids.free_ids, ids.reached());
        let pages = ids.reached();
        assert_eq!(ids.take(PAGE).unwrap().len, PAGE, "what is freed joins");
        assert_eq!(ids.reached(), pages);
    }
}
