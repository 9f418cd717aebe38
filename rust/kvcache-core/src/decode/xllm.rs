//! xLLM's batches: `[timestamp, events, dp_rank, …]`, each event a map with a `type` (spec: live protocol).
//!
//! Invariant: [`decode`] fills a batch with a whole message that fits the stream, or leaves it empty. What the
//! protocol may grow by (unknown keys, trailing elements) is passed over; whatever else is unexpected is an error,
//! because a guess would be a false hit. Must not know what tokens hash to.

mod event;
mod fields;

use std::num::NonZeroU32;

use self::event::EventReader;
use super::msgpack::{Item, Reader};
use super::{DecodeError, DecodeErrorKind};
use crate::model::{Batch, DpRank};

/// What every batch of a stream must agree with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The rank that the stream is of.
    pub dp_rank: DpRank,
    /// Tokens in a block.
    pub block_size_tokens: NonZeroU32,
}

/// Decodes `payload` into `into`, whose former contents are forgotten and whose memory is reused.
///
/// # Errors
///
/// When the payload is not one whole, well-formed batch, or not one of the stream that `expect` describes; `into` is
/// empty then.
pub fn decode(payload: &[u8], expect: &Expectation, into: &mut Batch) -> Result<(), DecodeError> {
    into.clear();
    let result = read_batch(&mut Reader::new(payload), *expect, into);
    if result.is_err() {
        into.clear();
    }
    result
}

fn read_batch(
    reader: &mut Reader<'_>,
    expect: Expectation,
    into: &mut Batch,
) -> Result<(), DecodeError> {
    let Item::Array(elements @ 2..) = reader.read()? else {
        return Err(DecodeError::field(
            0,
            "batch",
            "an array of timestamp, events and dp_rank",
        ));
    };
    read_timestamp(reader)?;
    read_events(reader, expect, into)?;
    check_rank(reader, elements > 2, expect.dp_rank)?;
    for _ in 3..elements {
        reader.skip()?;
    }
    match reader.remaining() {
        0 => Ok(()),
        bytes => Err(DecodeError::new(
            reader.offset(),
            DecodeErrorKind::Trailing(bytes),
        )),
    }
}

/// The time is of no use here, but something else in its place means another protocol.
fn read_timestamp(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let start = reader.offset();
    match reader.read()? {
        Item::Integer(_) | Item::Float | Item::Nil => Ok(()),
        _ => Err(DecodeError::field(start, "timestamp", "a number or nil")),
    }
}

fn read_events(
    reader: &mut Reader<'_>,
    expect: Expectation,
    into: &mut Batch,
) -> Result<(), DecodeError> {
    let start = reader.offset();
    let Item::Array(events) = reader.read()? else {
        return Err(DecodeError::field(start, "events", "an array"));
    };
    // No room is reserved: an event takes more bytes in memory than the smallest one on the wire.
    for _ in 0..events {
        let event = EventReader::new(reader, into).read(expect.block_size_tokens)?;
        into.events.push(event);
    }
    Ok(())
}

fn check_rank(
    reader: &mut Reader<'_>,
    present: bool,
    configured: DpRank,
) -> Result<(), DecodeError> {
    let start = reader.offset();
    let item = if present { reader.read()? } else { Item::Nil };
    let found = match item {
        Item::Nil => 0,
        Item::Integer(rank) => rank,
        _ => return Err(DecodeError::field(start, "dp_rank", "an integer or nil")),
    };
    if found != i128::from(configured.0) {
        return Err(DecodeError::new(
            start,
            DecodeErrorKind::Rank { found, configured },
        ));
    }
    Ok(())
}
