//! Snapshots: merged with the messages kept meanwhile, and published as one.

use std::time::{Duration, Instant};

use super::super::cursor::Cursor;
use super::{Phase, Snapshot, StreamMachine};
use crate::decode::{DecodeError, xllm};
use crate::model::{ApplyReport, Batch, Sequence};
use crate::stream::{Doubt, DoubtKind, Views};

impl StreamMachine {
    /// Merges a snapshot with the buffered messages into a draft and publishes it. Says in how many
    /// copies the view that it replaces differed from it.
    pub(super) fn build(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        views: &mut impl Views,
    ) -> Result<(Cursor, u64), Doubt> {
        let watermark = snapshot.watermark;
        self.check_bridge(watermark)?;
        let mut deltas = std::mem::take(&mut self.scratch);
        let built = self.build_with(now, snapshot, &mut deltas, views);
        self.keep_scratch(deltas);
        let (cursor, report, changed) = built?;
        self.counters.applied += report;
        Ok((cursor, changed))
    }

    fn build_with(
        &self,
        now: Instant,
        snapshot: &Snapshot,
        delta_batch: &mut Batch,
        views: &mut impl Views,
    ) -> Result<(Cursor, ApplyReport, u64), Doubt> {
        let expectation = &self.settings.expectation;
        let watermark = snapshot.watermark;
        let (mut report, idle) = self.draft_snapshot(snapshot, views)?;
        // An engine that was asked before it published anything says 0, and numbers its first message 0 too.
        let unheard = self.heard_before_fetch.is_none();
        let mut last = watermark;
        for delta in self.buffer.iter() {
            let first_of_all = unheard && idle && [watermark, delta.sequence] == [Sequence(0); 2];
            if delta.sequence <= watermark && !first_of_all {
                continue;
            }
            xllm::decode(&delta.payload, expectation, delta_batch)
                .map_err(|error| Doubt::from(&error))?;
            if delta_batch.is_full_state() {
                views.begin_draft();
            }
            report += views
                .draft_delta(delta_batch)
                .map_err(|error| Doubt::from(error).within("buffered message"))?;
            last = delta.sequence;
        }
        let changed = views.publish_draft(last)?;
        let until = now + Duration::from_millis(self.settings.limits.replay_timeout_ms);
        let idle = idle && self.may_still_start_at_zero();
        let cursor = Cursor::from_snapshot(last, self.heard, idle, until);
        Ok((cursor, report, changed))
    }

    /// Starts the draft with the snapshot, a piece at a time, so that never the whole of it lies decoded beside its bytes.
    /// Says whether it was empty too.
    fn draft_snapshot(
        &self,
        snapshot: &Snapshot,
        views: &mut impl Views,
    ) -> Result<(ApplyReport, bool), Doubt> {
        let undecodable = |error: DecodeError| Doubt::from(&error).within("snapshot");
        let mut pieces = xllm::Pieces::open(&snapshot.payload, self.settings.expectation)
            .map_err(undecodable)?;
        views.begin_draft();
        let (mut report, mut idle) = (ApplyReport::default(), true);
        let mut piece = Batch::default();
        while pieces.next(&mut piece).map_err(undecodable)? {
            idle &= piece.wire_hashes.is_empty();
            report += views
                .draft_snapshot(&piece)
                .map_err(|error| Doubt::from(error).within("snapshot"))?;
        }
        Ok((report, idle))
    }

    /// Every message heard must be in the snapshot or in the buffer.
    fn check_bridge(&self, watermark: Sequence) -> Result<(), Doubt> {
        let shown = match &self.phase {
            Phase::Synchronized(cursor, _) => Some(cursor.last()),
            _ => None,
        };
        let Some(heard) = self.heard.max(shown).filter(|heard| *heard > watermark) else {
            return Ok(());
        };
        match self.buffer.first() {
            Some(first) if watermark.next().is_some_and(|next| first <= next) => Ok(()),
            _ => Err(Doubt::new(
                DoubtKind::Replay,
                format!(
                    "snapshot is older than the messages kept: watermark {watermark}, last message {heard}"
                ),
            )),
        }
    }

    fn may_still_start_at_zero(&self) -> bool {
        match &self.phase {
            Phase::Synchronized(cursor, _) => cursor.may_start_at_zero(),
            _ => true,
        }
    }
}
