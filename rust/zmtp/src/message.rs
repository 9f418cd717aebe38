//! Multipart messages, and putting them together from frames.
//!
//! Sizes were checked by the frame reader; here nothing can fail.

use bytes::Bytes;

/// A complete multipart message.
///
/// Small frames share the connection's read buffer: copy what is kept for longer than the message is worked on,
/// or a few bytes keep 64 KiB alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    frames: Vec<Bytes>,
    wire_bytes: usize,
}

impl Message {
    /// The parts, in order; at least one.
    #[must_use]
    pub fn frames(&self) -> &[Bytes] {
        &self.frames
    }

    /// The parts, by value.
    #[must_use]
    pub fn into_frames(self) -> Vec<Bytes> {
        self.frames
    }

    /// Bytes that the message took on the wire: all bodies and their headers.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }
}

/// The parts of a message that is not complete yet.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    frames: Vec<Bytes>,
    wire_bytes: usize,
}

impl Assembler {
    /// Adds a part; gives the message back with its last one.
    pub(crate) fn push(&mut self, body: Bytes, more: bool, wire_bytes: usize) -> Option<Message> {
        self.frames.push(body);
        self.wire_bytes += wire_bytes;
        if more {
            return None;
        }
        let Self { frames, wire_bytes } = std::mem::take(self);
        Some(Message { frames, wire_bytes })
    }
}
