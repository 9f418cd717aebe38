//! Splits the byte stream into frames, without a socket.
//!
//! Invariant: everything that a header announces is checked before its body is waited for, and the buffer grows
//! with bytes received, never with bytes announced. Bodies are cut off the read buffer without a copy. Knows nothing
//! of what commands mean; the caller puts frames together into messages.

use bytes::{Buf, Bytes, BytesMut};

use crate::{Error, Limits};

/// Room offered to one read.
const READ_BYTES: usize = 64 << 10;
/// Below this much room the buffer is renewed, so that reads do not become small.
const MIN_READ_BYTES: usize = 8 << 10;
/// A body above this takes its allocation along when it leaves, so that a small frame that is read later neither
/// keeps a large allocation alive nor fills one.
const LARGE_BODY_BYTES: usize = 256 << 10;

const FLAG_MORE: u8 = 0x01;
const FLAG_LONG: u8 = 0x02;
const FLAG_COMMAND: u8 = 0x04;
const FLAGS_RESERVED: u8 = !(FLAG_MORE | FLAG_LONG | FLAG_COMMAND);

/// One unit of the byte stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A part of a message.
    Message {
        /// The contents.
        body: Bytes,
        /// Whether further parts of the same message follow.
        more: bool,
        /// Bytes on the wire: header and body.
        wire_bytes: usize,
    },
    /// A command: its name, preceded by the name's length, and its data.
    Command(Bytes),
}

/// An incremental parser of frames that enforces [`Limits`].
///
/// After an error it stays at the offending header and gives the same error again.
#[derive(Debug)]
pub struct FrameReader {
    limits: Limits,
    buffer: BytesMut,
    /// A header that was checked and consumed, whose body is not complete.
    pending: Option<Header>,
    /// Frames of the current message with the pending one; 0 between messages.
    frames: usize,
    /// Sum of the current message's bodies with the pending one.
    message_bytes: u64,
    /// Until the handshake is over a peer may not send messages.
    commands_only: bool,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    flags: u8,
    /// Length of the header itself.
    size: usize,
    body_bytes: usize,
}

impl FrameReader {
    /// A reader at the start of a frame that accepts messages and commands.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            buffer: BytesMut::new(),
            pending: None,
            frames: 0,
            message_bytes: 0,
            commands_only: false,
        }
    }

    /// Admits messages of `bytes` at most from the next one on, or of less if the limit is lower already.
    pub fn lower_message_limit(&mut self, bytes: usize) {
        self.limits.max_message_bytes = self.limits.max_message_bytes.min(bytes);
    }

    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame; `None` until more bytes are fed.
    ///
    /// # Errors
    /// A header that exceeds a limit or that ZMTP does not define, as soon as it arrives.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        let header = match self.pending {
            Some(header) => header,
            None => match self.next_header()? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        if self.buffer.len() < header.body_bytes {
            self.pending = Some(header);
            return Ok(None);
        }
        self.pending = None;
        let body = self.split_body(header.body_bytes);
        if header.flags & FLAG_COMMAND != 0 {
            return Ok(Some(Frame::Command(body)));
        }
        let more = header.flags & FLAG_MORE != 0;
        if !more {
            self.frames = 0;
            self.message_bytes = 0;
        }
        Ok(Some(Frame::Message {
            body,
            more,
            wire_bytes: header.size + header.body_bytes,
        }))
    }

    /// Bytes fed that no frame has taken yet.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes reserved for the buffer, spare room included.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Whether the bytes so far end within a message or a frame.
    #[must_use]
    pub fn is_mid_message(&self) -> bool {
        self.frames > 0 || self.pending.is_some() || !self.buffer.is_empty()
    }

    /// Refuses messages, or accepts them again.
    pub(crate) fn set_commands_only(&mut self, commands_only: bool) {
        self.commands_only = commands_only;
    }

    /// The raw buffer with room for a read.
    pub(crate) fn spare(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() - self.buffer.len() < MIN_READ_BYTES {
            self.buffer.reserve(READ_BYTES);
        }
        &mut self.buffer
    }

    /// The bytes that no frame has taken yet, for what precedes the first frame.
    pub(crate) fn raw(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    fn split_body(&mut self, body_bytes: usize) -> Bytes {
        if body_bytes == 0 {
            return Bytes::new();
        }
        let body = self.buffer.split_to(body_bytes).freeze();
        if body_bytes > LARGE_BODY_BYTES {
            let mut renewed = BytesMut::with_capacity(self.buffer.len().max(READ_BYTES));
            renewed.extend_from_slice(&self.buffer);
            self.buffer = renewed;
        }
        body
    }

    /// Consumes a header once it is complete and allowed.
    fn next_header(&mut self) -> Result<Option<Header>, Error> {
        let Some(&flags) = self.buffer.first() else {
            return Ok(None);
        };
        check_flags(flags)?;
        let (announced, header_bytes) = if flags & FLAG_LONG == 0 {
            match self.buffer.get(1) {
                Some(&size) => (u64::from(size), 2),
                None => return Ok(None),
            }
        } else {
            match self.buffer.get(1..).and_then(<[u8]>::first_chunk) {
                Some(size) => (u64::from_be_bytes(*size), 9),
                None => return Ok(None),
            }
        };
        let body_bytes = if flags & FLAG_COMMAND == 0 {
            self.admit_message_frame(announced)?
        } else {
            self.admit_command(announced)?
        };
        self.buffer.advance(header_bytes);
        Ok(Some(Header {
            flags,
            size: header_bytes,
            body_bytes,
        }))
    }

    fn admit_command(&self, announced: u64) -> Result<usize, Error> {
        let limit = self.limits.max_command_bytes;
        within(announced, limit).ok_or(Error::CommandTooLarge { announced, limit })
    }

    fn admit_message_frame(&mut self, announced: u64) -> Result<usize, Error> {
        let limits = &self.limits;
        if self.commands_only {
            return Err(Error::MalformedHandshake("a message before READY"));
        }
        let body_bytes = within(announced, limits.max_frame_bytes).ok_or(Error::FrameTooLarge {
            announced,
            limit: limits.max_frame_bytes,
        })?;
        if self.frames >= limits.max_frames {
            return Err(Error::TooManyFrames(limits.max_frames));
        }
        let message_bytes = self.message_bytes.saturating_add(announced);
        within(message_bytes, limits.max_message_bytes).ok_or(Error::MessageTooLarge {
            announced: message_bytes,
            limit: limits.max_message_bytes,
        })?;
        self.frames += 1;
        self.message_bytes = message_bytes;
        Ok(body_bytes)
    }
}

/// Appends one message frame to `out`.
pub(crate) fn put_message_frame(out: &mut BytesMut, body: &[u8], more: bool) {
    put_frame(out, if more { FLAG_MORE } else { 0 }, body);
}

/// Appends one command frame to `out`.
pub(crate) fn put_command_frame(out: &mut BytesMut, body: &[u8]) {
    put_frame(out, FLAG_COMMAND, body);
}

fn put_frame(out: &mut BytesMut, flags: u8, body: &[u8]) {
    out.reserve(9 + body.len());
    if let Ok(size) = u8::try_from(body.len()) {
        out.extend_from_slice(&[flags, size]);
    } else {
        out.extend_from_slice(&[flags | FLAG_LONG]);
        out.extend_from_slice(&(body.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(body);
}

fn check_flags(flags: u8) -> Result<(), Error> {
    if flags & FLAGS_RESERVED != 0 {
        return Err(Error::ReservedFlags(flags));
    }
    if flags & FLAG_COMMAND != 0 && flags & FLAG_MORE != 0 {
        return Err(Error::MoreOnCommand);
    }
    Ok(())
}

/// `announced` as a size of this machine, if `limit` allows it.
fn within(announced: u64, limit: usize) -> Option<usize> {
    usize::try_from(announced)
        .ok()
        .filter(|bytes| *bytes <= limit)
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
