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
    let result = Pieces::open(payload, *expect).and_then(|mut pieces| {
        while pieces.read_event(into)? {}
        Ok(())
    });
    if result.is_err() {
        into.clear();
    }
    result
}

/// A batch that is decoded a piece at a time, for one too large to lie decoded in memory as a whole.
#[derive(Debug)]
pub struct Pieces<'a> {
    reader: Reader<'a>,
    expect: Expectation,
    /// Elements of the batch.
    elements: usize,
    /// Events still to come; `None` when the batch was read to its end.
    events: Option<usize>,
}

impl<'a> Pieces<'a> {
    /// Tokens and hashes from which on a piece is full.
    const FULL: usize = 1 << 16;

    /// Reads up to the first event.
    ///
    /// # Errors
    ///
    /// When what precedes the events is not a batch's.
    pub fn open(payload: &'a [u8], expect: Expectation) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let Item::Array(elements @ 2..) = reader.read()? else {
            return Err(DecodeError::field(
                0,
                "batch",
                "an array of timestamp, events and dp_rank",
            ));
        };
        read_timestamp(&mut reader)?;
        let start = reader.offset();
        let Item::Array(events) = reader.read()? else {
            return Err(DecodeError::field(start, "events", "an array"));
        };
        Ok(Self {
            reader,
            expect,
            elements,
            events: Some(events),
        })
    }

    /// Decodes the next whole events into `into`, whose former contents are forgotten; says whether there were any.
    /// Events are not split: a piece is as large as its last event makes it.
    ///
    /// # Errors
    ///
    /// As [`decode`], when it comes to that place: earlier pieces count for nothing then.
    pub fn next(&mut self, into: &mut Batch) -> Result<bool, DecodeError> {
        into.clear();
        while self.read_event(into)? {
            if into.token_ids.len() + into.wire_hashes.len() >= Self::FULL {
                break;
            }
        }
        Ok(!into.events.is_empty())
    }

    /// Appends an event, or reads what follows the last one and says that there is none.
    fn read_event(&mut self, into: &mut Batch) -> Result<bool, DecodeError> {
        match &mut self.events {
            // No room was reserved: an event takes more bytes in memory than the smallest one on the wire.
            Some(events @ 1..) => {
                *events -= 1;
                let reader = EventReader::new(&mut self.reader, into);
                let event = reader.read(self.expect.block_size_tokens)?;
                into.events.push(event);
                Ok(true)
            }
            Some(0) => {
                self.events = None;
                self.read_end().map(|()| false)
            }
            None => Ok(false),
        }
    }

    fn read_end(&mut self) -> Result<(), DecodeError> {
        let reader = &mut self.reader;
        check_rank(reader, self.elements > 2, self.expect.dp_rank)?;
        for _ in 3..self.elements {
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
}

/// The time is of no use here, but something else in its place means another protocol.
fn read_timestamp(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let start = reader.offset();
    match reader.read()? {
        Item::Integer(_) | Item::Float | Item::Nil => Ok(()),
        _ => Err(DecodeError::field(start, "timestamp", "a number or nil")),
    }
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
