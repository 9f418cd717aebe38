//! A `MessagePack` writer of the tests' own, so that the reader is not checked against its own ideas, and the cases.

mod batches;
mod events;
mod frames;
mod hostile;
mod tokens;

use std::ops::Range;

use super::{DecodeError, xllm};
use crate::model::{Batch, DpRank, Event};

/// A value to be written, in the form that the variant says.
#[derive(Clone, Debug)]
enum V {
    Nil,
    Bool(bool),
    /// In the shortest form.
    Int(i128),
    F64(f64),
    Str(&'static str),
    Bin(Vec<u8>),
    Array(Vec<V>),
    Map(Vec<(V, V)>),
    /// Bytes as they are.
    Raw(Vec<u8>),
}

impl V {
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.push(0xc0),
            Self::Bool(value) => out.push(0xc2 + u8::from(*value)),
            Self::Int(value) => write_int(*value, out),
            Self::F64(value) => {
                out.push(0xcb);
                out.extend(value.to_be_bytes());
            }
            Self::Str(text) => {
                write_header(text.len(), [0xa0, 32], [0xd9, 0xda, 0xdb], out);
                out.extend(text.as_bytes());
            }
            Self::Bin(bytes) => {
                write_header(bytes.len(), [0, 0], [0xc4, 0xc5, 0xc6], out);
                out.extend(bytes);
            }
            Self::Array(items) => {
                write_header(items.len(), [0x90, 16], [0, 0xdc, 0xdd], out);
                for item in items {
                    item.write(out);
                }
            }
            Self::Map(pairs) => {
                write_header(pairs.len(), [0x80, 16], [0, 0xde, 0xdf], out);
                for (key, value) in pairs {
                    key.write(out);
                    value.write(out);
                }
            }
            Self::Raw(bytes) => out.extend(bytes),
        }
    }
}

/// `fix` is the tag of the short form and how many lengths it covers; a long tag of 0 does not exist.
fn write_header(length: usize, fix: [u8; 2], long: [u8; 3], out: &mut Vec<u8>) {
    let body = u32::try_from(length).expect("short").to_be_bytes();
    match length {
        _ if length < usize::from(fix[1]) => out.push(fix[0] + body[3]),
        0..=0xff if long[0] != 0 => out.extend([long[0], body[3]]),
        0..=0xffff => out.extend([long[1], body[2], body[3]]),
        _ => {
            out.push(long[2]);
            out.extend(body);
        }
    }
}

fn write_int(value: i128, out: &mut Vec<u8>) {
    let tail = |tag: u8, bytes: usize, out: &mut Vec<u8>| {
        out.push(tag);
        out.extend(&value.to_be_bytes()[16 - bytes..]);
    };
    match value {
        -32..=0x7f => out.extend(&value.to_be_bytes()[15..]),
        0x80..=0xff => tail(0xcc, 1, out),
        0x100..=0xffff => tail(0xcd, 2, out),
        0x1_0000..=0xffff_ffff => tail(0xce, 4, out),
        0x1_0000_0000.. => tail(0xcf, 8, out),
        -0x80..=-33 => tail(0xd0, 1, out),
        -0x8000..=-0x81 => tail(0xd1, 2, out),
        -0x8000_0000..=-0x8001 => tail(0xd2, 4, out),
        _ => tail(0xd3, 8, out),
    }
}

fn ints(values: impl IntoIterator<Item = i128>) -> V {
    V::Array(values.into_iter().map(V::Int).collect())
}

fn map(pairs: &[(&'static str, V)]) -> V {
    V::Map(
        pairs
            .iter()
            .map(|(key, value)| (V::Str(key), value.clone()))
            .collect(),
    )
}

/// A store of root blocks in the default tier.
fn stored(hashes: V, tokens: V, block_size: V) -> V {
    map(&[
        ("type", V::Str("BlockStored")),
        ("block_hashes", hashes),
        ("parent_block_hash", V::Nil),
        ("token_ids", tokens),
        ("block_size", block_size),
    ])
}

fn removed(hashes: V, medium: V) -> V {
    map(&[
        ("type", V::Str("BlockRemoved")),
        ("block_hashes", hashes),
        ("medium", medium),
    ])
}

/// The batch of `events` for rank 0.
fn batch(events: Vec<V>) -> Vec<u8> {
    V::Array(vec![V::F64(1.5), V::Array(events), V::Int(0)]).bytes()
}

fn expectation(dp_rank: u32, block_size_tokens: u32) -> xllm::Expectation {
    xllm::Expectation {
        dp_rank: DpRank(dp_rank),
        block_size_tokens: block_size_tokens.try_into().expect("not 0"),
    }
}

/// Decodes for rank 0 and blocks of 2 tokens; checks that an error leaves nothing behind.
fn decode(payload: &[u8]) -> Result<Batch, DecodeError> {
    decode_for(payload, expectation(0, 2))
}

fn decode_for(payload: &[u8], expect: xllm::Expectation) -> Result<Batch, DecodeError> {
    let mut batch = Batch::default();
    let result = xllm::decode(payload, &expect, &mut batch);
    if let Err(error) = &result {
        assert_eq!(batch, Batch::default(), "left behind by: {error}");
        assert!(error.offset <= payload.len(), "{error}");
    }
    let result = result.map(|()| batch);
    assert_eq!(in_pieces(payload, expect), result);
    result
}

/// Decodes by [`xllm::Pieces`] and puts them together again.
fn in_pieces(payload: &[u8], expect: xllm::Expectation) -> Result<Batch, DecodeError> {
    let (mut whole, mut piece) = (Batch::default(), Batch::default());
    let mut pieces = xllm::Pieces::open(payload, expect)?;
    while pieces.next(&mut piece)? {
        let (hashes, tokens) = (whole.wire_hashes.len(), whole.token_ids.len());
        whole.wire_hashes.append(&mut piece.wire_hashes);
        whole.token_ids.append(&mut piece.token_ids);
        for mut event in piece.events.drain(..) {
            match &mut event {
                Event::Stored(stored) => {
                    stored.wire_hashes = moved(&stored.wire_hashes, hashes);
                    stored.token_ids = moved(&stored.token_ids, tokens);
                }
                Event::Removed { wire_hashes, .. } => *wire_hashes = moved(wire_hashes, hashes),
                Event::Cleared => {}
            }
            whole.events.push(event);
        }
    }
    Ok(whole)
}

fn moved(range: &Range<usize>, by: usize) -> Range<usize> {
    // A value that the event does not have is an empty range anywhere.
    if range.is_empty() {
        return range.clone();
    }
    range.start + by..range.end + by
}

fn error_of(payload: &[u8]) -> String {
    decode(payload).expect_err("must be refused").to_string()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .map(|digit| digit.to_ascii_lowercase())
        .map(|digit| {
            if digit > b'9' {
                digit - b'a' + 10
            } else {
                digit - b'0'
            }
        })
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// From `KVCACHE_SEED`, else by chance; printed, so that a failure can be repeated.
pub(super) fn seed() -> u64 {
    let given = std::env::var("KVCACHE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("KVCACHE_SEED={seed}");
    seed
}
