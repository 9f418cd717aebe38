//! Where a synchronized view stands in its stream's sequence, and what the next message may be.
//!
//! Invariant: the view includes every message up to `last`, and nothing after it.

use std::time::Instant;

use crate::model::Sequence;

/// Position of a published view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    last: Sequence,
    /// An idle engine's snapshot said 0 and held nothing: its first message may be 0 or 1.
    may_start_at_zero: bool,
    /// A snapshot can overtake messages that it includes, since it comes over another connection.
    in_flight: Option<InFlight>,
}

/// Messages at or below the watermark that may still arrive, in order and soon.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// The latest that arrived; `None` when none has on this connection.
    heard: Option<Sequence>,
    /// After this moment a low sequence is a restarted engine, not a late message.
    until: Instant,
}

/// What a message's sequence means for the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Exactly the next one.
    Next,
    /// Late, and known to be included: it follows the one heard before.
    Covered,
    /// Late, and included if the engine is the same: nothing was heard before it on this connection.
    CoveredFirst,
    /// Something is missing.
    Gap,
    /// At or below the last one, out of order.
    Behind,
}

impl Cursor {
    /// A view that includes `last`, when every message up to it was received live.
    pub(super) fn live(last: Sequence) -> Self {
        Self {
            last,
            may_start_at_zero: false,
            in_flight: None,
        }
    }

    /// A view from a snapshot and the deltas behind it.
    ///
    /// `heard` is the latest message received on this connection, `idle` whether the snapshot held nothing.
    pub(super) fn from_snapshot(
        last: Sequence,
        heard: Option<Sequence>,
        idle: bool,
        until: Instant,
    ) -> Self {
        let overtaken = heard.is_none_or(|heard| heard < last);
        Self {
            last,
            may_start_at_zero: idle && last == Sequence(0) && heard.is_none(),
            in_flight: overtaken.then_some(InFlight { heard, until }),
        }
    }

    pub(super) fn last(&self) -> Sequence {
        self.last
    }

    /// Whether the next message may carry 0 because nothing was ever published.
    pub(super) fn may_start_at_zero(&self) -> bool {
        self.may_start_at_zero
    }

    pub(super) fn classify(&self, sequence: Sequence, now: Instant) -> Arrival {
        if self.last.next() == Some(sequence) || (self.may_start_at_zero && sequence == Sequence(0))
        {
            return Arrival::Next;
        }
        if sequence > self.last {
            return Arrival::Gap;
        }
        match self.in_flight {
            Some(InFlight { heard: None, until }) if now < until => Arrival::CoveredFirst,
            Some(InFlight {
                heard: Some(heard),
                until,
            }) if now < until && heard.next() == Some(sequence) => Arrival::Covered,
            _ => Arrival::Behind,
        }
    }

    /// The view now includes `sequence`, the next one.
    pub(super) fn advance(&mut self, sequence: Sequence) {
        *self = Self::live(sequence);
    }

    /// A message that the view includes already has arrived.
    pub(super) fn heard_covered(&mut self, sequence: Sequence) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.heard = Some(sequence);
        }
        if sequence >= self.last {
            self.in_flight = None;
        }
    }
}
