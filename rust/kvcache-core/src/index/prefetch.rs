//! Asks the processor for memory that will be read soon, so that it comes while something else is done.
//!
//! The only file of this crate with `unsafe`: the library has no safe prefetch. A load is no substitute, as everything
//! after it waits for it. What is asked for is a reference's, so that no caller has anything to keep to.

/// Asks for the cache line in which `place` begins. Reads nothing and waits for nothing; does nothing where there is no such
/// instruction.
#[inline(always)]
#[expect(clippy::inline_always, reason = "one instruction")]
#[cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(unsafe_code, reason = "there is no safe way to prefetch")
)]
pub(super) fn prefetch<T>(place: &T) {
    let place = std::ptr::from_ref(place);
    // SAFETY: a hint that neither reads nor writes nor faults, wherever it points; and a reference points to memory that
    // may be read. Every x86-64 has SSE.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    // SAFETY: the same; the instruction changes no register, flag or memory.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{place}]",
            place = in(reg) place,
            options(readonly, nostack, preserves_flags)
        );
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = place;
}

/// Asks for the cache line in which the element at `index` begins, if there is one.
#[inline]
pub(super) fn prefetch_at<T>(slice: &[T], index: usize) {
    if let Some(place) = slice.get(index) {
        prefetch(place);
    }
}

#[cfg(test)]
mod tests {
    use super::{prefetch, prefetch_at};

    #[test]
    fn changes_nothing() {
        let words = [1_u64, 2, 3];
        prefetch(&words);
        (0..5).for_each(|index| prefetch_at(&words, index));
        prefetch_at::<u64>(&[], 0);
        prefetch(&());
        assert_eq!(words, [1, 2, 3]);
    }
}
