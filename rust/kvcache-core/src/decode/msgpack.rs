//! A cursor over `MessagePack`, one value at a time.
//!
//! Never allocates, never recurses. Invariant: a length is handed out only when the bytes that remain could hold that
//! many values (an array of n takes at least n bytes, a map of n at least 2n), so that a caller may reserve for it. Knows
//! no field and no engine.

use super::{DecodeError, DecodeErrorKind, compact};

/// Containers within containers that [`Reader::skip`] follows. Known engines nest four deep.
const MAX_SKIPPED_DEPTH: usize = 32;

/// One value; of an array or a map only its header, the elements are read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    Nil,
    Bool,
    /// Any integer encoding; always within −2^63 … 2^64−1.
    Integer(i128),
    Float,
    /// The bytes of a string; they need not be UTF-8.
    Str(&'a [u8]),
    Bin(&'a [u8]),
    /// Number of elements.
    Array(usize),
    /// Number of key-value pairs.
    Map(usize),
    Ext,
}

/// A place in a payload. After an error the place is of no use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Bytes read so far: where the next value begins.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// The same payload, read from `offset` on.
    pub(super) fn at(&self, offset: usize) -> Self {
        Self {
            bytes: self.bytes,
            offset,
        }
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// Reads the next value.
    #[inline]
    pub(super) fn read(&mut self) -> Result<Item<'a>, DecodeError> {
        let start = self.offset;
        let [tag] = self.take(start)?;
        Ok(match tag {
            0x00..=0x7f => Item::Integer(tag.into()),
            0x80..=0x8f => self.map(start, usize::from(tag & 0x0f))?,
            0x90..=0x9f => self.array(start, usize::from(tag & 0x0f))?,
            0xa0..=0xbf => Item::Str(self.slice(start, usize::from(tag & 0x1f))?),
            0xc0 => Item::Nil,
            0xc1 => return Err(DecodeError::new(start, DecodeErrorKind::Malformed(tag))),
            0xc2 | 0xc3 => Item::Bool,
            0xc4 => self.bin::<1>(start)?,
            0xc5 => self.bin::<2>(start)?,
            0xc6 => self.bin::<4>(start)?,
            0xc7 => self.ext::<1>(start)?,
            0xc8 => self.ext::<2>(start)?,
            0xc9 => self.ext::<4>(start)?,
            0xca => self.take::<4>(start).map(|_| Item::Float)?,
            0xcb => self.take::<8>(start).map(|_| Item::Float)?,
            0xcc => Item::Integer(u8::from_be_bytes(self.take(start)?).into()),
            0xcd => Item::Integer(u16::from_be_bytes(self.take(start)?).into()),
            0xce => Item::Integer(u32::from_be_bytes(self.take(start)?).into()),
            0xcf => Item::Integer(u64::from_be_bytes(self.take(start)?).into()),
            0xd0 => Item::Integer(i8::from_be_bytes(self.take(start)?).into()),
            0xd1 => Item::Integer(i16::from_be_bytes(self.take(start)?).into()),
            0xd2 => Item::Integer(i32::from_be_bytes(self.take(start)?).into()),
            0xd3 => Item::Integer(i64::from_be_bytes(self.take(start)?).into()),
            0xd4..=0xd8 => self.ext_body(start, 1 << (tag - 0xd4))?,
            0xd9 => self.str::<1>(start)?,
            0xda => self.str::<2>(start)?,
            0xdb => self.str::<4>(start)?,
            0xdc => self.length::<2>(start).and_then(|n| self.array(start, n))?,
            0xdd => self.length::<4>(start).and_then(|n| self.array(start, n))?,
            0xde => self.length::<2>(start).and_then(|n| self.map(start, n))?,
            0xdf => self.length::<4>(start).and_then(|n| self.map(start, n))?,
            0xe0..=0xff => Item::Integer(tag.cast_signed().into()),
        })
    }

    /// Passes over the next value, whatever it contains.
    pub(super) fn skip(&mut self) -> Result<(), DecodeError> {
        // Values still to come in each open container, outermost first.
        let mut pending = [0_usize; MAX_SKIPPED_DEPTH];
        let mut depth = 0;
        loop {
            let start = self.offset;
            let children = match self.read()? {
                Item::Array(elements) => elements,
                Item::Map(pairs) => 2 * pairs,
                _ => 0,
            };
            if children > 0 {
                let Some(slot) = pending.get_mut(depth) else {
                    return Err(DecodeError::new(
                        start,
                        DecodeErrorKind::Depth(MAX_SKIPPED_DEPTH),
                    ));
                };
                *slot = children;
                depth += 1;
                continue;
            }
            // A value is complete, and with it each container that it was the last of.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                pending[depth - 1] -= 1;
                if pending[depth - 1] > 0 {
                    break;
                }
                depth -= 1;
            }
        }
    }

    /// Reads the next value if it is an unsigned integer of 64 bits; else reads nothing.
    #[inline]
    pub(super) fn read_u64(&mut self) -> Option<u64> {
        let &[0xcf, body @ ..] = self.bytes[self.offset..].first_chunk::<9>()? else {
            return None;
        };
        self.offset += 9;
        Some(u64::from_be_bytes(body))
    }

    /// Reads integers as long as they come in the encodings that a writer of `u32` chooses, at most as many as `out`
    /// holds, and says how many. Stops early at any other value and near the end of the payload: [`Reader::read`] takes
    /// it from there.
    pub(super) fn read_u32s(&mut self, out: &mut [u32]) -> usize {
        let done = compact::read(&self.bytes[self.offset..], out);
        self.offset += done.bytes;
        done.integers
    }

    #[inline]
    fn take<const N: usize>(&mut self, start: usize) -> Result<[u8; N], DecodeError> {
        let chunk = self.bytes[self.offset..]
            .first_chunk()
            .ok_or_else(|| truncated(start))?;
        self.offset += N;
        Ok(*chunk)
    }

    fn slice(&mut self, start: usize, length: usize) -> Result<&'a [u8], DecodeError> {
        let slice = self.bytes[self.offset..]
            .get(..length)
            .ok_or_else(|| truncated(start))?;
        self.offset += length;
        Ok(slice)
    }

    /// A big-endian length of `N` ≤ 4 bytes.
    fn length<const N: usize>(&mut self, start: usize) -> Result<usize, DecodeError> {
        let bytes = self.take::<N>(start)?;
        Ok(bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn str<const N: usize>(&mut self, start: usize) -> Result<Item<'a>, DecodeError> {
        let length = self.length::<N>(start)?;
        self.slice(start, length).map(Item::Str)
    }

    fn bin<const N: usize>(&mut self, start: usize) -> Result<Item<'a>, DecodeError> {
        let length = self.length::<N>(start)?;
        self.slice(start, length).map(Item::Bin)
    }

    fn ext<const N: usize>(&mut self, start: usize) -> Result<Item<'a>, DecodeError> {
        let length = self.length::<N>(start)?;
        self.ext_body(start, length)
    }

    fn ext_body(&mut self, start: usize, length: usize) -> Result<Item<'a>, DecodeError> {
        self.take::<1>(start)?;
        self.slice(start, length).map(|_| Item::Ext)
    }

    fn array(&self, start: usize, elements: usize) -> Result<Item<'a>, DecodeError> {
        if elements > self.remaining() {
            return Err(truncated(start));
        }
        Ok(Item::Array(elements))
    }

    fn map(&self, start: usize, pairs: usize) -> Result<Item<'a>, DecodeError> {
        if pairs > self.remaining() / 2 {
            return Err(truncated(start));
        }
        Ok(Item::Map(pairs))
    }
}

fn truncated(offset: usize) -> DecodeError {
    DecodeError::new(offset, DecodeErrorKind::Truncated)
}
