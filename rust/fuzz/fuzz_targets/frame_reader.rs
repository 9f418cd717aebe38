//! Feeds the frame reader arbitrary bytes in arbitrary pieces.
//!
//! It must never panic, never hold more bytes than it was fed, never reserve memory that a header merely announced,
//! and say the same however the stream is split. The input is one byte with the number of pieces, so many lengths of
//! pieces, then the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zmtp::{Frame, FrameReader, Limits};

/// What a buffer may reserve beyond twice its contents: one fresh read buffer.
const SPARE_BYTES: usize = 64 << 10;

const LIMITS: Limits = Limits {
    max_frame_bytes: 1 << 40,
    max_message_bytes: 1 << 41,
    max_frames: 16,
    max_command_bytes: 512,
};

fuzz_target!(|input: &[u8]| {
    let Some((&pieces, rest)) = input.split_first() else {
        return;
    };
    let (lengths, stream) = rest.split_at(rest.len().min(usize::from(pieces)));
    let in_pieces = read(stream, lengths);
    let whole = read(stream, &[]);
    assert_eq!(in_pieces, whole);
});

/// Frames and the final error of `stream`, fed in pieces of `lengths` and then the remainder at once.
fn read(stream: &[u8], lengths: &[u8]) -> (Vec<Frame>, Option<String>) {
    let mut reader = FrameReader::new(LIMITS);
    let mut lengths = lengths.iter();
    let mut rest = stream;
    let (mut fed, mut taken) = (0, 0);
    let mut frames = Vec::new();
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                taken += match &frame {
                    Frame::Message { body, .. } | Frame::Command(body) => body.len(),
                };
                frames.push(frame);
            }
            Ok(None) if rest.is_empty() => return (frames, None),
            Ok(None) => {
                let length = lengths
                    .next()
                    .map_or(rest.len(), |&length| usize::from(length) + 1);
                let (piece, later) = rest.split_at(length.min(rest.len()));
                reader.feed(piece);
                fed += piece.len();
                rest = later;
            }
            Err(error) => return (frames, Some(error.to_string())),
        }
        assert!(reader.buffered_bytes() + taken <= fed);
        assert!(reader.reserved_bytes() <= 2 * fed + SPARE_BYTES);
    }
}
