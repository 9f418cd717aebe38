//! Arrays that grow and never move, so that what is in them can be read while they do.
//!
//! Elements live in chunks: small ones at first, doubling up to [`CHUNK`], so that a small index is
//! small and no growth copies anything. An aligned group of 64 elements is never split over chunks.
//! [`Shared`] is read by anyone and has interior mutability in its elements; [`Own`] belongs to writers.

use std::sync::OnceLock;

use bytemuck::Zeroable;

const FIRST_BITS: u32 = 8;
const CHUNK_BITS: u32 = 16;
/// Elements of a full chunk.
const CHUNK: usize = 1 << CHUNK_BITS;
/// Chunks below the first full one.
const SMALL_CHUNKS: usize = (CHUNK_BITS - FIRST_BITS) as usize;
/// More elements than this do not fit.
pub(super) const MAX_ELEMENTS: u32 = 1 << 28;
const MAX_CHUNKS: usize = SMALL_CHUNKS + (MAX_ELEMENTS >> CHUNK_BITS) as usize;

/// The chunk of an element, and its place there.
#[inline]
const fn place(index: u32) -> (usize, usize) {
    // Counted so, a chunk of each size begins at that size.
    let index = index as usize + (1 << FIRST_BITS);
    let full = index >> CHUNK_BITS;
    if full > 0 {
        return (SMALL_CHUNKS + full - 1, index % CHUNK);
    }
    let log2 = index.ilog2();
    ((log2 - FIRST_BITS) as usize, index ^ (1 << log2))
}

const fn chunk_len(chunk: usize) -> usize {
    if chunk < SMALL_CHUNKS {
        1 << (FIRST_BITS as usize + chunk)
    } else {
        CHUNK
    }
}

/// Elements that readers see; writers change them through atomics.
#[derive(Debug)]
pub(super) struct Shared<T> {
    chunks: Box<[OnceLock<Box<[T]>>]>,
    new_chunk: fn(usize) -> Box<[T]>,
}

impl<T: Default> Shared<T> {
    pub(super) fn new() -> Self {
        Self::with(|len| (0..len).map(|_| T::default()).collect())
    }
}

impl<T: Zeroable> Shared<T> {
    /// Elements that begin as zeros: memory fresh from the system is that already, and is not touched before it is used.
    pub(super) fn zeroed() -> Self {
        Self::with(bytemuck::zeroed_slice_box)
    }
}

impl<T> Shared<T> {
    fn with(new_chunk: fn(usize) -> Box<[T]>) -> Self {
        Self {
            chunks: (0..=MAX_CHUNKS).map(|_| OnceLock::new()).collect(),
            new_chunk,
        }
    }

    /// The element; its chunk is made if it is the first there. Indexes below [`MAX_ELEMENTS`] exist.
    #[inline]
    pub(super) fn get(&self, index: u32) -> &T {
        let (chunk, offset) = place(index);
        &self.chunk(chunk)[offset]
    }

    /// The elements from `index` on, at least to the end of its aligned group of 64.
    #[inline]
    pub(super) fn tail(&self, index: u32) -> &[T] {
        let (chunk, offset) = place(index);
        &self.chunk(chunk)[offset..]
    }

    #[inline]
    fn chunk(&self, chunk: usize) -> &[T] {
        self.chunks[chunk].get_or_init(|| (self.new_chunk)(chunk_len(chunk)))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let elements = self
            .chunks
            .iter()
            .filter_map(OnceLock::get)
            .map(|chunk| chunk.len());
        elements.sum::<usize>() * size_of::<T>() + size_of_val(&*self.chunks)
    }
}

/// Elements of the writers' own. A chunk is made when it is first reached.
#[derive(Debug, Default)]
pub(super) struct Own<T> {
    chunks: Vec<Box<[T]>>,
}

impl<T: Clone + Default> Own<T> {
    #[inline]
    pub(super) fn get(&self, index: u32) -> &T {
        let (chunk, offset) = place(index);
        &self.chunks[chunk][offset]
    }

    /// The element, if it was made to exist.
    pub(super) fn try_get(&self, index: u32) -> Option<&T> {
        let (chunk, offset) = place(index);
        self.chunks.get(chunk)?.get(offset)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> &mut T {
        let (chunk, offset) = place(index);
        &mut self.chunks[chunk][offset]
    }

    /// The elements from `index` on, at least to the end of its aligned group of 64.
    #[inline]
    pub(super) fn tail(&self, index: u32) -> &[T] {
        let (chunk, offset) = place(index);
        &self.chunks[chunk][offset..]
    }

    #[inline]
    pub(super) fn tail_mut(&mut self, index: u32) -> &mut [T] {
        let (chunk, offset) = place(index);
        &mut self.chunks[chunk][offset..]
    }

    /// Makes the element exist, and its chunk with it.
    #[inline]
    pub(super) fn reach(&mut self, index: u32) {
        let (chunk, _) = place(index);
        if self.chunks.get(chunk).is_none_or(|chunk| chunk.is_empty()) {
            self.make_chunk(chunk);
        }
    }

    fn make_chunk(&mut self, chunk: usize) {
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, Box::default);
        }
        self.chunks[chunk] = vec![T::default(); chunk_len(chunk)].into();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let elements = self.chunks.iter().map(|chunk| chunk.len());
        elements.sum::<usize>() * size_of::<T>() + self.chunks.capacity() * size_of::<Box<[T]>>()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, MAX_CHUNKS, MAX_ELEMENTS, Own, SMALL_CHUNKS, chunk_len, place};

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for index in 0..4 * u32::try_from(CHUNK).unwrap() {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == chunk_len(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        let (chunk, offset) = place(MAX_ELEMENTS - 1);
        assert!(chunk <= MAX_CHUNKS && offset < CHUNK);
        assert!((0..=SMALL_CHUNKS).all(|chunk| chunk_len(chunk).is_multiple_of(64)));
    }

    #[test]
    fn elements_stay() {
        let mut column = Own::<u32>::default();
        for index in 0..200_000 {
            column.reach(index);
            *column.get_mut(index) = index;
        }
        assert!((0..200_000).all(|index| *column.get(index) == index));
        assert_eq!(column.tail(64)[..64], (64..128).collect::<Vec<_>>());
    }
}
