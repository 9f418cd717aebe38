//! Copies frames out of the read buffer into memory that holds nothing else.
//!
//! A frame is a slice of what was read at once: a few bytes, queued, would keep 64 KiB of other frames and PINGs. Small
//! frames are packed into chunks: one allocation each, freed by another thread, would cost more than what is done with
//! them. Frames leave the queue in order, so that only its first and its last chunk are held for less than they are worth.

use bytes::{Bytes, BytesMut};

/// What is allocated at once for small frames.
const CHUNK_BYTES: usize = 64 << 10;
/// A frame up to this goes into a chunk, of which it may leave so much unused at the end.
const SMALL_BYTES: usize = CHUNK_BYTES / 8;
/// What the allocator adds to a frame outside chunks, about.
const ALLOCATION_BYTES: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Packer {
    /// The unused rest of the current chunk.
    chunk: BytesMut,
}

impl Packer {
    pub(super) fn pack(&mut self, frame: &[u8]) -> Bytes {
        if frame.len() > SMALL_BYTES {
            return Bytes::copy_from_slice(frame);
        }
        if self.chunk.capacity() < frame.len() {
            self.chunk = BytesMut::with_capacity(CHUNK_BYTES);
        }
        self.chunk.extend_from_slice(frame);
        self.chunk.split().freeze()
    }

    /// What a frame holds once it is packed, its handle excepted: its bytes and its share of a chunk's unused end.
    pub(super) fn cost_bytes(frame: &[u8]) -> usize {
        if frame.len() > SMALL_BYTES {
            frame.len() + ALLOCATION_BYTES
        } else {
            // An eighth of a chunk is a seventh of what it holds.
            frame.len() + frame.len().div_ceil(7)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_any_size_hold_no_more_than_they_cost() {
        for frame_bytes in [
            1,
            100,
            SMALL_BYTES - 1,
            SMALL_BYTES,
            SMALL_BYTES + 1,
            100_000,
        ] {
            let mut packer = Packer::default();
            let frame = vec![7; frame_bytes];
            let frames: Vec<Bytes> = (0..1000).map(|_| packer.pack(&frame)).collect();
            let cost: usize = frames.iter().map(|frame| Packer::cost_bytes(frame)).sum();
            assert!(frames.iter().all(|packed| packed[..] == frame[..]));
            // A chunk ends where the next frame does not follow the last.
            let gaps = frames
                .windows(2)
                .filter(|pair| pair[0].as_ptr_range().end != pair[1].as_ptr())
                .count();
            let chunk_bytes = if frame_bytes > SMALL_BYTES {
                frame_bytes
            } else {
                CHUNK_BYTES
            };
            assert!(gaps * chunk_bytes <= cost, "{frame_bytes}: {gaps} chunks");
        }
    }
}
