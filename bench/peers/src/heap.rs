//! Bytes that the allocator has given out.

/// Bytes in use in all arenas and mappings, free memory returned to the system first.
#[must_use]
pub fn bytes() -> usize {
    // SAFETY: both functions are thread-safe, take no pointers and return plain numbers.
    let info = unsafe {
        libc::malloc_trim(0);
        libc::mallinfo2()
    };
    info.uordblks + info.hblkhd
}
