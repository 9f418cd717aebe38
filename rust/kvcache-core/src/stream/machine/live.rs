//! Live messages: applied, dropped as included already, or kept for a snapshot.

use std::time::Instant;

use super::super::buffer::Overflow;
use super::super::cursor::{Arrival, Cursor};
use super::{Fetch, Phase, StreamMachine};
use crate::model::{Batch, Sequence};
use crate::stream::{Doubt, DoubtKind, Views};

impl StreamMachine {
    pub(super) fn batch(
        &mut self,
        now: Instant,
        sequence: Sequence,
        payload: &[u8],
        batch: &Batch,
        views: &mut impl Views,
    ) {
        let arrival = match &self.phase {
            Phase::Synchronized(cursor, _) => Some(cursor.classify(sequence, now)),
            _ => None,
        };
        let heard_before = self.heard.replace(sequence);
        if batch.is_full_state() && arrival != Some(Arrival::Covered) {
            self.full_state(now, sequence, batch, views);
            return;
        }
        match arrival {
            None => {
                self.keep_for_snapshot(now, sequence, payload, batch, views);
                if heard_before.is_some_and(|before| sequence <= before)
                    && self.wanted_fetch().is_some()
                {
                    // The engine restarted behind this connection; a snapshot asked for before may be its predecessor's.
                    self.schedule_snapshot(now);
                }
                return;
            }
            Some(Arrival::Next) => {
                self.next(now, sequence, payload, batch, views);
                return;
            }
            Some(Arrival::Covered | Arrival::CoveredFirst) => {
                self.counters.covered += 1;
                if let Phase::Synchronized(cursor, _) = &mut self.phase {
                    cursor.heard_covered(sequence);
                }
                return;
            }
            Some(Arrival::Gap) => {
                let reason = format!("sequence gap: expected {}, got {sequence}", self.expected());
                self.doubt(now, Doubt::new(DoubtKind::Gap, reason), views);
            }
            Some(Arrival::Behind) => {
                let reason = format!(
                    "sequence went back: expected {}, got {sequence}",
                    self.expected()
                );
                self.doubt(now, Doubt::new(DoubtKind::SequenceReset, reason), views);
            }
        }
        self.keep_for_snapshot(now, sequence, payload, batch, views);
    }

    /// The next message of a synchronized stream.
    fn next(
        &mut self,
        now: Instant,
        sequence: Sequence,
        payload: &[u8],
        batch: &Batch,
        views: &mut impl Views,
    ) {
        match views.apply(batch, sequence) {
            Ok(report) => {
                self.counters.applied += report;
                let Phase::Synchronized(cursor, fetch) = &mut self.phase else {
                    return;
                };
                cursor.advance(sequence);
                if matches!(fetch, Fetch::Running(_))
                    && self.buffer.push(sequence, payload, batch).is_err()
                {
                    // The live view is sound; only this calibration is given up.
                    let doubt = Doubt::new(
                        DoubtKind::BufferLimit,
                        "max_buffered_bytes reached while calibrating",
                    );
                    self.calibration_failed(now, &doubt);
                }
            }
            Err(error) => {
                let doubt = Doubt::from(error).within(&format!("message {sequence}"));
                self.doubt(now, doubt, views);
                self.keep_for_snapshot(now, sequence, payload, batch, views);
            }
        }
    }

    /// A batch that begins with a clear describes the whole state by itself.
    fn full_state(
        &mut self,
        now: Instant,
        sequence: Sequence,
        batch: &Batch,
        views: &mut impl Views,
    ) {
        self.buffer.clear();
        // What was on its way may be from before the engine's restart.
        self.losses.forget();
        views.begin_draft();
        let published = views.draft_delta(batch).and_then(|report| {
            views.publish_draft(sequence)?;
            Ok(report)
        });
        match published {
            Ok(report) => {
                self.counters.applied += report;
                self.synchronized(now, Cursor::live(sequence));
            }
            Err(error) => {
                views.discard_draft();
                self.doubt(now, error.into(), views);
            }
        }
    }

    /// A message that a snapshot to come will be merged with.
    fn keep_for_snapshot(
        &mut self,
        now: Instant,
        sequence: Sequence,
        payload: &[u8],
        batch: &Batch,
        views: &mut impl Views,
    ) {
        if let Err(Overflow) = self.buffer.push(sequence, payload, batch) {
            let reason = format!(
                "max_buffered_bytes reached: {}",
                self.settings.limits.max_buffered_bytes
            );
            self.doubt(now, Doubt::new(DoubtKind::BufferLimit, reason), views);
        }
    }

    fn expected(&self) -> String {
        match &self.phase {
            Phase::Synchronized(cursor, _) => cursor
                .last()
                .next()
                .map_or_else(|| "nothing".to_owned(), |n| n.to_string()),
            _ => "nothing".to_owned(),
        }
    }
}
