//! Which run each block is of.
//!
//! Most pages of 64 ids belong to one run, and cost one word; a page of several has a word for each id.
//! Knows runs by their numbers only.

use super::NONE;
use super::block_ids::{Extent, PAGE};
use super::columns::Own;

/// Marks the number of a detailed page.
const DETAILED: u32 = 1 << 31;

#[derive(Debug, Default)]
pub(super) struct PageNodes {
    /// By page: a node, a detailed page, or [`FREE`].
    pages: Own<Page>,
    detailed: Vec<[u32; PAGE as usize]>,
    /// Detailed pages that are not in use.
    spare: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page(u32);

const FREE: Page = Page(NONE);

impl Default for Page {
    fn default() -> Self {
        FREE
    }
}

impl PageNodes {
    /// The node of a block. Of an id that is nobody's it says anything: [`NONE`], or a node of its page.
    #[inline]
    pub(super) fn get(&self, id: u32) -> u32 {
        let page = *self.pages.get(id / PAGE);
        if page == FREE || page.0 & DETAILED == 0 {
            return page.0;
        }
        self.detailed[(page.0 & !DETAILED) as usize][(id % PAGE) as usize]
    }

    /// Makes the page of `id` exist.
    pub(super) fn reach(&mut self, id: u32) {
        self.pages.reach(id / PAGE);
    }

    /// Gives the ids of `extent`, within one page, to `node`. `extent_of` says which ids a node has by now.
    pub(super) fn set(&mut self, extent: Extent, node: u32, extent_of: impl Fn(u32) -> Extent) {
        let page = *self.pages.get(extent.base / PAGE);
        if page == FREE || page == Page(node) {
            *self.pages.get_mut(extent.base / PAGE) = Page(node);
            return;
        }
        let details = if page.0 & DETAILED == 0 {
            let number = self.new_details();
            *self.pages.get_mut(extent.base / PAGE) = Page(number | DETAILED);
            self.fill(number, extent_of(page.0), page.0);
            number
        } else {
            page.0 & !DETAILED
        };
        self.fill(details, extent, node);
    }

    /// Takes the ids of `extent`, within one page, from their node; all that it has, or the last ones.
    pub(super) fn clear(&mut self, extent: Extent, is_all: bool) {
        let page = *self.pages.get(extent.base / PAGE);
        if page.0 & DETAILED == 0 {
            if is_all {
                *self.pages.get_mut(extent.base / PAGE) = FREE;
            }
        } else if page != FREE {
            let number = page.0 & !DETAILED;
            self.fill(number, extent, NONE);
            if self.detailed[number as usize]
                .iter()
                .all(|node| *node == NONE)
            {
                *self.pages.get_mut(extent.base / PAGE) = FREE;
                self.spare.push(number);
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.pages.heap_bytes()
            + self.detailed.capacity() * size_of::<[u32; PAGE as usize]>()
            + self.spare.capacity() * size_of::<u32>()
    }

    fn new_details(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.detailed.push([NONE; PAGE as usize]);
            u32::try_from(self.detailed.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn fill(&mut self, number: u32, Extent { base, len }: Extent, node: u32) {
        let first = (base % PAGE) as usize;
        self.detailed[number as usize][first..first + len as usize].fill(node);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{Extent, NONE, PAGE, PageNodes};

    #[test]
    fn agrees_with_a_word_for_each_id() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut pages = PageNodes::default();
        let mut expected = [NONE; 3 * PAGE as usize];
        let mut extents: HashMap<u32, Extent> = HashMap::new();
        (0..3).for_each(|page| pages.reach(page * PAGE));
        for node in 0..5_000 {
            let len = rng.u32(1..=PAGE);
            let base = rng.u32(0..3) * PAGE + rng.u32(0..=PAGE - len);
            let extent = Extent { base, len };
            let places = &mut expected[base as usize..(base + len) as usize];
            if places.iter().all(|place| *place == NONE) {
                pages.set(extent, node, |node| extents[&node]);
                extents.insert(node, extent);
                places.fill(node);
            } else if let Some(&victim) = places.iter().find(|place| **place != NONE) {
                let Extent { base, len } = extents.remove(&victim).unwrap();
                pages.clear(Extent { base, len }, true);
                expected[base as usize..(base + len) as usize].fill(NONE);
            }
            for (id, node) in (0..).zip(&expected) {
                assert!(*node == NONE || pages.get(id) == *node);
            }
        }
    }
}
