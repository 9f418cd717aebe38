//! What readers see of a run of blocks: two cache lines of atomics.
//!
//! The *shape* (ids, keys, the edge above) never changes while a line can be reached; a run that is
//! split, grown or cut gets a new line, and the link to it is swapped. Holders change in place, word by
//! word, so that a reader finds each stream as it was before or after a change, never without what it
//! holds: a whole-run bit is set after, and cleared after, the partial record that says the same.

use std::sync::atomic::{AtomicU64, Ordering};

use super::NONE;
use super::columns::Shared;
use crate::index::prefetch::prefetch;
use crate::index::slot_mask::{Slot, SlotMask};
use crate::model::{ContentKey, Tier};

/// The longest run: the blocks that one word has bits for.
pub(in crate::index) const MAX_RUN: u32 = u64::BITS;

/// Says in a child's place that the children are in the table.
pub(super) const TABLED: u32 = NONE - 1;

/// The first cache line is all that a walk reads where everyone alive holds the whole run on Device.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Line {
    /// Streams that hold the whole run on Device.
    device: Mask,
    /// Base id, and the run's length.
    extent: AtomicU64,
    /// The only child's line, [`TABLED`] or [`NONE`], and the edge that children hang on.
    child: AtomicU64,
    /// Identity of the prefix that the run's last block ends: low half, high half.
    last_key: [AtomicU64; 2],
    /// The edge that the run hangs on, and the first partial record.
    parent_edge: AtomicU64,
    /// Streams that hold the whole run in Host.
    host: Mask,
    /// Low half of the first block's hash.
    first_hash: AtomicU64,
    /// The writers' own number of the run.
    node: AtomicU64,
}

type Mask = [AtomicU64; SlotMask::WORDS];

const _: () = assert!(std::mem::offset_of!(Line, host) == 64);

/// What a new line says, but for holders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) base: u32,
    pub(super) len: u32,
    pub(super) child: u32,
    pub(super) edge: u32,
    pub(super) parent_edge: u32,
    pub(super) node: u32,
    pub(super) first_hash: u64,
    pub(super) last_key: ContentKey,
}

impl Line {
    /// Writes a line that nobody can reach yet; its holders are none.
    pub(super) fn write(&self, shape: &Shape) {
        let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        let masks = self.device.iter().chain(&self.host);
        masks.for_each(|word| set(word, 0));
        set(&self.extent, pair(shape.base, shape.len));
        set(&self.child, pair(shape.child, shape.edge));
        let (low, high) = halves(shape.last_key.0);
        set(&self.last_key[0], low);
        set(&self.last_key[1], high);
        set(&self.first_hash, shape.first_hash);
        set(&self.parent_edge, pair(shape.parent_edge, NONE));
        set(&self.node, u64::from(shape.node));
    }

    /// Base id, and the run's length.
    #[inline]
    pub(super) fn extent(&self) -> (u32, u32) {
        unpair(self.extent.load(Ordering::Relaxed))
    }

    /// The only child's line, [`TABLED`] or [`NONE`], and the edge that children hang on.
    #[inline]
    pub(super) fn child(&self) -> (u32, u32) {
        unpair(self.child.load(Ordering::Acquire))
    }

    pub(super) fn set_child(&self, child: u32, edge: u32) {
        self.child.store(pair(child, edge), Ordering::Release);
    }

    #[inline]
    pub(super) fn last_key(&self) -> ContentKey {
        let [low, high] = &self.last_key;
        let half = |word: &AtomicU64| u128::from(word.load(Ordering::Relaxed));
        ContentKey(half(low) | (half(high) << 64))
    }

    #[inline]
    pub(super) fn first_hash(&self) -> u64 {
        self.first_hash.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn parent_edge(&self) -> u32 {
        unpair(self.parent_edge.load(Ordering::Relaxed)).0
    }

    /// Asks for both cache lines.
    #[inline]
    pub(super) fn prefetch_both(&self) {
        prefetch(&self.device);
        prefetch(&self.host);
    }

    pub(super) fn node(&self) -> u32 {
        unpair(self.node.load(Ordering::Relaxed)).1
    }

    #[inline]
    fn words(&self, tier: Tier) -> &Mask {
        match tier {
            Tier::Device => &self.device,
            Tier::Host => &self.host,
        }
    }

    /// The slots that hold the whole run in `tier`.
    #[inline]
    pub(super) fn mask(&self, tier: Tier) -> SlotMask {
        let words = self.words(tier);
        SlotMask(std::array::from_fn(|word| {
            words[word].load(Ordering::Acquire)
        }))
    }

    #[inline]
    pub(super) fn has(&self, tier: Tier, slot: Slot) -> bool {
        let (word, bit) = slot.word_and_bit();
        self.words(tier)[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Called by the one writer at a time, so that a load and a store make an update.
    #[inline]
    pub(super) fn set(&self, tier: Tier, slot: Slot, holds: bool) {
        let (word, bit) = slot.word_and_bit();
        let word = &self.words(tier)[word];
        let old = word.load(Ordering::Relaxed);
        word.store(
            if holds { old | bit } else { old & !bit },
            Ordering::Release,
        );
    }

    /// The first partial record, or [`NONE`].
    #[inline]
    pub(super) fn records(&self) -> u32 {
        unpair(self.parent_edge.load(Ordering::Acquire)).1
    }

    pub(super) fn set_records(&self, first: u32) {
        let (edge, _) = unpair(self.parent_edge.load(Ordering::Relaxed));
        self.parent_edge.store(pair(edge, first), Ordering::Release);
    }
}

/// What one slot knows and holds of a run that it does not simply hold whole.
///
/// Belongs to one line. Its successor stays as it is while it can be reached; its slot, until no query can see that.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The next record's number, then the known blocks (the writers' business), then the slot.
    tag: AtomicU64,
    /// A bit for each block with a copy, by tier.
    copies: [AtomicU64; 2],
}

/// A record that is nobody's any more.
const NOBODY: u8 = u8::MAX;

impl Record {
    pub(super) fn write(&self, slot: Slot, next: u32, state: Holding) {
        self.copies[0].store(state.copies[0], Ordering::Relaxed);
        self.copies[1].store(state.copies[1], Ordering::Relaxed);
        let known = state.known << 8;
        self.tag.store(
            pair(next, known | u32::from(slot.number())),
            Ordering::Release,
        );
    }

    /// The slot, if it is somebody's, and the next record.
    #[inline]
    pub(super) fn slot_and_next(&self) -> (Option<Slot>, u32) {
        let (next, low) = unpair(self.tag.load(Ordering::Acquire));
        (Slot::from_number((low & 0xFF) as u8), next)
    }

    /// The blocks with a copy on Device, and in Host. A copy that moves between the two is seen in one of them at least:
    /// engines store the new one first, in either direction.
    #[inline]
    pub(super) fn both_copies(&self) -> (u64, u64) {
        let host = self.copies(Tier::Host);
        let device = self.copies(Tier::Device);
        (device, host | self.copies(Tier::Host))
    }

    #[inline]
    pub(super) fn copies(&self, tier: Tier) -> u64 {
        self.copies[tier as usize].load(Ordering::Acquire)
    }

    pub(super) fn holding(&self) -> Holding {
        let (_, low) = unpair(self.tag.load(Ordering::Relaxed));
        Holding {
            known: low >> 8,
            copies: [self.copies(Tier::Device), self.copies(Tier::Host)],
        }
    }

    /// Changes what its slot has, in place.
    pub(super) fn set(&self, holding: Holding) {
        let (next, low) = unpair(self.tag.load(Ordering::Relaxed));
        self.copies[0].store(holding.copies[0], Ordering::Release);
        self.copies[1].store(holding.copies[1], Ordering::Release);
        let low = (holding.known << 8) | (low & 0xFF);
        self.tag.store(pair(next, low), Ordering::Release);
    }

    /// Whether the record is nobody's, for another slot to take over.
    pub(super) fn is_free(&self) -> bool {
        let (_, low) = unpair(self.tag.load(Ordering::Relaxed));
        low & 0xFF == u32::from(NOBODY)
    }

    /// The record after this one in the list of its line.
    pub(super) fn next(&self) -> u32 {
        unpair(self.tag.load(Ordering::Relaxed)).0
    }

    /// Takes the record from its slot, which no query can see any more.
    pub(super) fn disown(&self) {
        let (next, _) = unpair(self.tag.load(Ordering::Relaxed));
        self.tag
            .store(pair(next, u32::from(NOBODY)), Ordering::Release);
    }
}

/// What one slot knows and holds of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// Known blocks: always the first ones, as no block is known without its parent.
    pub(super) known: u32,
    /// A bit for each block with a copy: Device, Host.
    pub(super) copies: [u64; 2],
}

impl Holding {
    /// The blocks with a copy anywhere.
    pub(super) fn resident(&self) -> u64 {
        self.copies[0] | self.copies[1]
    }

    /// Whether masks alone can say it of a run of `len` blocks.
    pub(super) fn is_plain(&self, len: u32) -> bool {
        let whole = ones(len);
        self.known == len
            && self.resident() == whole
            && self
                .copies
                .iter()
                .all(|copies| *copies == 0 || *copies == whole)
    }

    /// The holding of the run's blocks from `first` on, `len` at most.
    pub(super) fn part(&self, first: u32, len: u32) -> Self {
        let cut = |copies: u64| {
            if first < MAX_RUN {
                (copies >> first) & ones(len)
            } else {
                0
            }
        };
        Self {
            known: self.known.saturating_sub(first).min(len),
            copies: self.copies.map(cut),
        }
    }
}

/// The holders of a line, one by one.
pub(super) struct Records<'a> {
    records: &'a Shared<Record>,
    next: u32,
}

impl<'a> Records<'a> {
    #[inline]
    pub(super) fn new(records: &'a Shared<Record>, line: &Line) -> Self {
        Self {
            records,
            next: line.records(),
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (Slot, &'a Record);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.next != NONE {
            let record = self.records.get(self.next);
            let (slot, next) = record.slot_and_next();
            self.next = next;
            if let Some(slot) = slot {
                return Some((slot, record));
            }
        }
        None
    }
}

/// The lowest `count` bits, 64 at most.
#[inline]
pub(in crate::index) const fn ones(count: u32) -> u64 {
    if count == 0 {
        0
    } else {
        u64::MAX >> (u64::BITS - count)
    }
}

pub(super) const fn halves(bits: u128) -> (u64, u64) {
    #[expect(clippy::cast_possible_truncation, reason = "each half on its own")]
    (bits as u64, (bits >> 64) as u64)
}

#[inline]
const fn pair(high: u32, low: u32) -> u64 {
    ((high as u64) << 32) | low as u64
}

#[inline]
const fn unpair(bits: u64) -> (u32, u32) {
    #[expect(clippy::cast_possible_truncation, reason = "each half on its own")]
    ((bits >> 32) as u32, bits as u32)
}
