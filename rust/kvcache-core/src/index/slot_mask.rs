//! A set of view slots, one bit each.
//!
//! Wider than the number of streams: a stream that is rebuilt holds two slots, and one that a query
//! may still see cannot be reused.

/// A stream's bit position in the holder sets, for as long as one view lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u8);

impl Slot {
    /// 128 streams and a spare for every second one.
    pub(super) const COUNT: usize = SlotMask::WORDS * 64;
    /// For what needs one and is in no tree.
    pub(super) const FIRST: Self = Self(0);

    /// Position in arrays of [`Slot::COUNT`].
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The slot's number, below [`Slot::COUNT`].
    pub(super) const fn number(self) -> u8 {
        self.0
    }

    /// The slot of that number, if there is one.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// Which word of a mask, and the bit in it.
    pub(super) const fn word_and_bit(self) -> (usize, u64) {
        (self.0 as usize / 64, 1 << (self.0 % 64))
    }
}

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub(super) struct SlotMask(pub(super) [u64; Self::WORDS]);

impl PartialEq for SlotMask {
    /// Word by word: an array's own comparison reads words two at a time that were just written one at a time, and waits.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(other.0);
        pairs.fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

impl SlotMask {
    pub(super) const WORDS: usize = 3;
    /// Neighbours that are worth a range.
    const RANGE: u32 = 8;
    pub(super) const EMPTY: Self = Self([0; Self::WORDS]);
    pub(super) const ALL: Self = Self([u64::MAX; Self::WORDS]);

    #[inline]
    pub(super) fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    #[inline]
    pub(super) fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// What is in `self` and not in `other`.
    #[inline]
    pub(super) fn and_not(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    #[inline]
    pub(super) fn contains(self, slot: Slot) -> bool {
        let (word, bit) = slot.word_and_bit();
        self.0[word] & bit != 0
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    #[inline]
    pub(super) fn insert(&mut self, slot: Slot) {
        let (word, bit) = slot.word_and_bit();
        self.0[word] |= bit;
    }

    #[inline]
    pub(super) fn remove(&mut self, slot: Slot) {
        let (word, bit) = slot.word_and_bit();
        self.0[word] &= !bit;
    }

    /// Adds `more` to the number of each slot in the set. Many slots are mostly neighbours, and gone through as a range.
    #[inline]
    pub(super) fn add_to(self, numbers: &mut [u64], more: u64) {
        for (word, mut bits) in self.0.into_iter().enumerate() {
            let first = bits.trailing_zeros();
            let neighbors = bits.unbounded_shr(first).trailing_ones();
            if neighbors >= Self::RANGE && bits.unbounded_shr(first + neighbors) == 0 {
                let first = word * 64 + first as usize;
                for number in &mut numbers[first..first + neighbors as usize] {
                    *number += more;
                }
                continue;
            }
            while bits != 0 {
                numbers[word * 64 + bits.trailing_zeros() as usize] += more;
                bits &= bits - 1;
            }
        }
    }

    /// The slots in the set, lowest first.
    pub(super) fn iter(self) -> impl Iterator<Item = Slot> {
        (0u8..).zip(self.0).flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let position = u8::try_from(bits.trailing_zeros()).ok()?;
                // Clears the lowest bit; of nothing, nothing is left to yield.
                bits &= bits.checked_sub(1)?;
                Some(Slot(word * 64 + position))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Slot, SlotMask};

    #[test]
    fn iterates_what_was_inserted() {
        let slots = [0, 1, 63, 64, 100, 127, 128, 191].map(Slot);
        let mut mask = SlotMask::EMPTY;
        for slot in slots {
            mask.insert(slot);
        }
        assert_eq!(mask.iter().collect::<Vec<_>>(), slots);
        mask.remove(Slot(64));
        assert_eq!(mask.iter().count(), slots.len() - 1);
        assert_eq!(SlotMask::ALL.iter().count(), Slot::COUNT);
        assert!(SlotMask::EMPTY.iter().next().is_none());
    }

    #[test]
    fn adds_to_each_slot_once() {
        for mask in [
            SlotMask::EMPTY,
            SlotMask::ALL,
            SlotMask([1, 1 << 63, 0b11]),
            SlotMask([u64::MAX << 1, u64::MAX >> 1, 0b1110]),
            SlotMask([0b1011, 1 << 63 | 1, 0xf0f0]),
        ] {
            let mut numbers = [5; Slot::COUNT];
            mask.add_to(&mut numbers, 7);
            for (number, slot) in numbers.iter().zip(SlotMask::ALL.iter()) {
                assert_eq!(*number, if mask.contains(slot) { 12 } else { 5 });
            }
        }
    }

    #[test]
    fn set_algebra() {
        let a = SlotMask([0b1100, 0, 1]);
        let b = SlotMask([0b1010, 7, 0]);
        assert_eq!(a.and(b), SlotMask([0b1000, 0, 0]));
        assert_eq!(a.or(b), SlotMask([0b1110, 7, 1]));
        assert_eq!(a.and_not(b), SlotMask([0b0100, 0, 1]));
        assert!(a.and_not(a).is_empty());
    }
}
