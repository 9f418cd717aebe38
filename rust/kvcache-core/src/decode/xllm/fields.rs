//! The values of an event's keys, each read from where its value begins.
//!
//! Arenas grow by what was parsed; room is reserved only for elements that the remaining bytes could hold.

use std::ops::Range;

use crate::decode::DecodeError;
use crate::decode::msgpack::{Item, Reader};
use crate::model::{Tier, WireHash};

/// A key that means something, other than `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    BlockHashes,
    ParentBlockHash,
    TokenIds,
    BlockSize,
    Medium,
}

impl Field {
    pub(super) const ALL: [Self; 5] = [
        Self::BlockHashes,
        Self::ParentBlockHash,
        Self::TokenIds,
        Self::BlockSize,
        Self::Medium,
    ];

    pub(super) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"block_hashes" => Some(Self::BlockHashes),
            b"parent_block_hash" => Some(Self::ParentBlockHash),
            b"token_ids" => Some(Self::TokenIds),
            b"block_size" => Some(Self::BlockSize),
            b"medium" => Some(Self::Medium),
            _ => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BlockHashes => "block_hashes",
            Self::ParentBlockHash => "parent_block_hash",
            Self::TokenIds => "token_ids",
            Self::BlockSize => "block_size",
            Self::Medium => "medium",
        }
    }

    /// The error for a value at `offset` that is not `expected`.
    fn error(self, offset: usize, expected: &'static str) -> DecodeError {
        DecodeError::field(offset, self.name(), expected)
    }
}

/// Appends to `hashes` and says where.
pub(super) fn block_hashes(
    reader: &mut Reader<'_>,
    hashes: &mut Vec<WireHash>,
) -> Result<Range<usize>, DecodeError> {
    let start = reader.offset();
    let Item::Array(count) = reader.read()? else {
        return Err(Field::BlockHashes.error(start, "an array of hashes"));
    };
    let first = hashes.len();
    hashes.reserve(count);
    for _ in 0..count {
        // Nearly all hashes are spelled so.
        if let Some(hash) = reader.read_u64() {
            hashes.push(WireHash(hash));
            continue;
        }
        let start = reader.offset();
        let hash = wire_hash(reader.read()?).ok_or_else(|| {
            Field::BlockHashes.error(start, "64-bit integers or bins of at least 8 bytes")
        })?;
        hashes.push(hash);
    }
    Ok(first..hashes.len())
}

pub(super) fn parent_block_hash(reader: &mut Reader<'_>) -> Result<Option<WireHash>, DecodeError> {
    let start = reader.offset();
    match reader.read()? {
        Item::Nil => Ok(None),
        item => wire_hash(item).map(Some).ok_or_else(|| {
            let expected = "nil, a 64-bit integer or a bin of at least 8 bytes";
            Field::ParentBlockHash.error(start, expected)
        }),
    }
}

/// Appends to `ids` and says where; nil is as good as an empty array.
pub(super) fn token_ids(
    reader: &mut Reader<'_>,
    ids: &mut Vec<u32>,
) -> Result<Range<usize>, DecodeError> {
    let start = reader.offset();
    let count = match reader.read()? {
        Item::Nil => 0,
        Item::Array(count) => count,
        _ => return Err(Field::TokenIds.error(start, "an array of integers or nil")),
    };
    let first = ids.len();
    ids.resize(first + count, 0);
    let mut next = first;
    while next < ids.len() {
        next += reader.read_u32s(&mut ids[next..]);
        // Whatever is not compact, or ends the payload.
        if let Some(id) = ids.get_mut(next) {
            *id = token_id(reader)?;
            next += 1;
        }
    }
    Ok(first..ids.len())
}

/// One token id in any integer encoding.
fn token_id(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let start = reader.offset();
    let id = match reader.read()? {
        Item::Integer(id) => u32::try_from(id).ok(),
        _ => None,
    };
    id.ok_or_else(|| Field::TokenIds.error(start, "integers from 0 to 4294967295"))
}

pub(super) fn block_size(reader: &mut Reader<'_>) -> Result<Option<i128>, DecodeError> {
    let start = reader.offset();
    match reader.read()? {
        Item::Nil => Ok(None),
        Item::Integer(size) => Ok(Some(size)),
        _ => Err(Field::BlockSize.error(start, "an integer or nil")),
    }
}

/// The tier; `None` for one that is not counted.
pub(super) fn medium(reader: &mut Reader<'_>) -> Result<Option<Tier>, DecodeError> {
    let start = reader.offset();
    match reader.read()? {
        Item::Nil => Ok(Some(Tier::Device)),
        Item::Str(name) => Ok(tier(name)),
        _ => Err(Field::Medium.error(start, "a string or nil")),
    }
}

fn tier(name: &[u8]) -> Option<Tier> {
    if name.eq_ignore_ascii_case(b"gpu") {
        Some(Tier::Device)
    } else if name.eq_ignore_ascii_case(b"cpu") || name.eq_ignore_ascii_case(b"cpu_pinned") {
        Some(Tier::Host)
    } else {
        None
    }
}

/// Signed, unsigned and digest spellings of one hash are one hash (spec: live protocol).
fn wire_hash(item: Item<'_>) -> Option<WireHash> {
    match item {
        Item::Integer(number) => u64::try_from(number)
            .or_else(|_| i64::try_from(number).map(i64::cast_unsigned))
            .ok()
            .map(WireHash),
        Item::Bin(digest) => digest
            .last_chunk()
            .map(|tail| WireHash(u64::from_be_bytes(*tail))),
        _ => None,
    }
}
