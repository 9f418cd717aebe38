//! The state machine of one stream (spec: a stream's life).
//!
//! `connecting → snapshotting → synchronized`, and back to `snapshotting` on any doubt. Invariant: a view is published
//! exactly while the state is `synchronized`, and includes every message up to the cursor.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::buffer::{DeltaBuffer, Overflow};
use super::cursor::{Arrival, Cursor};
use super::pacer::Pacer;
use super::{Counters, Doubt, DoubtKind, Views};
use crate::decode::{LiveMessage, xllm};
use crate::model::{ApplyReport, Batch, Limits, Sequence};

/// Names one attempt to fetch a snapshot, so that a late answer is not taken for a newer one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchId(u64);

/// What the machine must know of its stream.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// The topic that live messages must carry, exactly.
    pub topic: Box<[u8]>,
    /// What every batch must agree with.
    pub expectation: xllm::Expectation,
    /// Bounds.
    pub limits: Limits,
    /// Seed of the jitter.
    pub seed: u64,
}

/// A snapshot as it came from the replay endpoint, not yet decoded.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The last message that it includes.
    pub watermark: Sequence,
    /// The batch that describes every block.
    pub payload: Bytes,
}

/// Why a snapshot could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayFailure {
    /// Not complete within `replay_timeout_ms`.
    Timeout(String),
    /// Larger than `max_message_bytes`.
    TooLarge(String),
    /// Anything else: refused, closed, not of the protocol.
    Other(String),
}

/// The state as status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// The subscription is not up.
    Connecting,
    /// Messages are buffered until a snapshot is merged with them.
    Snapshotting,
    /// The view is published.
    Synchronized,
}

impl StreamState {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Snapshotting => "snapshotting",
            Self::Synchronized => "synchronized",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Fetch {
    /// Not before this moment.
    Due(Instant),
    Running(FetchId),
}

#[derive(Debug)]
enum Phase {
    Connecting,
    Snapshotting(Fetch),
    /// The fetch is the calibration's; it is running for a small part of the time only.
    Synchronized(Cursor, Fetch),
}

/// One stream's protocol. Owned by one task; never blocks.
#[derive(Debug)]
pub struct StreamMachine {
    settings: StreamSettings,
    phase: Phase,
    /// Collects while a fetch is running, and always while snapshotting.
    buffer: DeltaBuffer,
    /// The latest sequence received on this connection, whatever became of the message.
    heard: Option<Sequence>,
    /// What had been heard when the running fetch began: its snapshot includes all of that.
    heard_before_fetch: Option<Sequence>,
    next_fetch: u64,
    snapshot_pacer: Pacer,
    calibration_pacer: Pacer,
    counters: Counters,
    /// Why the stream is not synchronized; empty when it is.
    error: String,
    /// The latest doubt, kept after recovery.
    last_error: String,
    /// Decoded records of the message at hand; kept for its memory.
    scratch: Batch,
}

/// Scratch space above this is given back after use: one huge message must not be paid for ever.
const SCRATCH_KEPT_BYTES: usize = 1 << 20;

impl StreamMachine {
    /// A machine for a stream that is not connected yet.
    #[must_use]
    pub fn new(settings: StreamSettings) -> Self {
        Self {
            phase: Phase::Connecting,
            buffer: DeltaBuffer::new(settings.limits.max_buffered_bytes),
            heard: None,
            heard_before_fetch: None,
            next_fetch: 0,
            snapshot_pacer: Pacer::new(settings.seed),
            calibration_pacer: Pacer::new(settings.seed.wrapping_add(1)),
            counters: Counters::default(),
            error: "connecting".to_owned(),
            last_error: String::new(),
            scratch: Batch::default(),
            settings,
        }
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> StreamState {
        match self.phase {
            Phase::Connecting => StreamState::Connecting,
            Phase::Snapshotting(_) => StreamState::Snapshotting,
            Phase::Synchronized(..) => StreamState::Synchronized,
        }
    }

    /// Why the stream is not synchronized; empty when it is.
    #[must_use]
    pub fn error(&self) -> &str {
        &self.error
    }

    /// The latest doubt, kept after recovery; empty when there was none.
    #[must_use]
    pub fn last_error(&self) -> &str {
        &self.last_error
    }

    /// Totals.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What buffered messages cost now, out of `max_buffered_bytes`.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.cost_bytes()
    }

    /// The snapshot that should be on its way now. A fetch with another id is to be given up.
    #[must_use]
    pub fn wanted_fetch(&self) -> Option<FetchId> {
        match self.phase {
            Phase::Snapshotting(Fetch::Running(id))
            | Phase::Synchronized(_, Fetch::Running(id)) => Some(id),
            _ => None,
        }
    }

    /// When [`StreamMachine::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Snapshotting(Fetch::Due(at)) | Phase::Synchronized(_, Fetch::Due(at)) => {
                Some(at)
            }
            _ => None,
        }
    }

    /// The subscription is up: its topic filter was written to a publisher.
    pub fn connected(&mut self, now: Instant, views: &mut impl Views) {
        self.counters.connects += 1;
        self.heard = None;
        self.buffer.clear();
        "waiting for a snapshot".clone_into(&mut self.error);
        views.unpublish(&self.error);
        self.schedule_snapshot(now);
    }

    /// The subscription is down, or could not be brought up.
    pub fn disconnected(&mut self, doubt: Doubt, views: &mut impl Views) {
        views.unpublish(&doubt.reason);
        views.discard_draft();
        if self.state() != StreamState::Connecting {
            self.counters.count_doubt(doubt.kind);
            doubt.reason.clone_into(&mut self.last_error);
        }
        self.phase = Phase::Connecting;
        self.error = doubt.reason;
        self.heard = None;
        self.buffer.clear();
    }

    /// A deadline may have passed.
    pub fn tick(&mut self, now: Instant) {
        if self.deadline().is_some_and(|at| at <= now) {
            let id = self.new_fetch();
            self.heard_before_fetch = self.heard;
            match &mut self.phase {
                Phase::Connecting => {}
                Phase::Snapshotting(fetch) => *fetch = Fetch::Running(id),
                Phase::Synchronized(_, fetch) => {
                    // Deltas are collected from here on: the snapshot will be at or after this point.
                    self.buffer.clear();
                    *fetch = Fetch::Running(id);
                }
            }
        }
    }

    /// A live message, as its frames.
    pub fn message(&mut self, now: Instant, frames: &[Bytes], views: &mut impl Views) {
        if matches!(self.phase, Phase::Connecting) {
            return;
        }
        self.counters.messages += 1;
        self.counters.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        if frames
            .first()
            .is_some_and(|topic| topic[..] != self.settings.topic[..])
        {
            self.counters.foreign_topic += 1;
            return;
        }
        let live = match LiveMessage::parse(frames) {
            Ok(live) => live,
            Err(error) => {
                self.doubt(now, Doubt::new(DoubtKind::Decode, error.to_string()), views);
                return;
            }
        };
        let mut batch = std::mem::take(&mut self.scratch);
        match xllm::decode(live.payload, &self.settings.expectation, &mut batch) {
            Ok(()) => self.batch(now, live.sequence, live.payload, &batch, views),
            Err(error) => {
                let doubt = Doubt::from(&error).within(&format!("message {}", live.sequence));
                self.doubt(now, doubt, views);
                self.heard = Some(live.sequence);
            }
        }
        self.keep_scratch(batch);
    }

    /// What became of the fetch called `id`.
    pub fn snapshot(
        &mut self,
        now: Instant,
        id: FetchId,
        result: Result<Snapshot, ReplayFailure>,
        views: &mut impl Views,
    ) {
        if self.wanted_fetch() != Some(id) {
            return;
        }
        let built = match result {
            Ok(snapshot) => self.build(now, &snapshot, views),
            Err(failure) => Err(Doubt::from(failure)),
        };
        let calibrating = self.state() == StreamState::Synchronized;
        match built {
            Ok(cursor) => {
                let total = if calibrating {
                    &mut self.counters.calibrations
                } else {
                    &mut self.counters.snapshots
                };
                *total += 1;
                self.calibration_pacer.succeeded(now);
                self.synchronized(now, cursor);
            }
            Err(doubt) => {
                views.discard_draft();
                if !calibrating {
                    self.snapshot_failed(now, doubt, views);
                } else if doubt.kind == DoubtKind::BlockLimit {
                    // The engine holds more than may be kept, whatever the live messages said.
                    self.counters.calibration_failures += 1;
                    self.doubt(now, doubt, views);
                } else {
                    self.calibration_failed(now, &doubt);
                }
            }
        }
    }

    fn batch(
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
        if batch.is_full_state() && arrival != Some(Arrival::Covered) {
            self.full_state(now, sequence, batch, views);
            return;
        }
        match arrival {
            None => {}
            Some(Arrival::Next) => {
                self.next(now, sequence, payload, batch, views);
                return;
            }
            Some(Arrival::Covered | Arrival::CoveredFirst) => {
                self.counters.covered += 1;
                self.heard = Some(sequence);
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
                // The snapshot just asked for is the restarted engine's: nothing heard before counts any more.
                self.heard = None;
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
                self.heard = Some(sequence);
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
        self.heard = Some(sequence);
        self.buffer.clear();
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
        let went_back = self.heard.is_some_and(|heard| sequence <= heard);
        self.heard = Some(sequence);
        if let Err(Overflow) = self.buffer.push(sequence, payload, batch) {
            let reason = format!(
                "max_buffered_bytes reached: {}",
                self.settings.limits.max_buffered_bytes
            );
            self.doubt(now, Doubt::new(DoubtKind::BufferLimit, reason), views);
        } else if went_back && self.wanted_fetch().is_some() {
            // The engine restarted behind this connection; a snapshot asked for before may be its predecessor's.
            self.schedule_snapshot(now);
        }
    }

    /// Merges a snapshot with the buffered messages into a draft and publishes it.
    fn build(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        views: &mut impl Views,
    ) -> Result<Cursor, Doubt> {
        let watermark = snapshot.watermark;
        self.check_bridge(watermark)?;
        let mut batch = std::mem::take(&mut self.scratch);
        let built = self.build_with(now, snapshot, &mut batch, views);
        self.keep_scratch(batch);
        let (cursor, report) = built?;
        self.counters.applied += report;
        Ok(cursor)
    }

    fn build_with(
        &self,
        now: Instant,
        snapshot: &Snapshot,
        batch: &mut Batch,
        views: &mut impl Views,
    ) -> Result<(Cursor, ApplyReport), Doubt> {
        let expectation = &self.settings.expectation;
        let watermark = snapshot.watermark;
        xllm::decode(&snapshot.payload, expectation, batch)
            .map_err(|error| Doubt::from(&error).within("snapshot"))?;
        views.begin_draft();
        let mut report = views
            .draft_snapshot(batch)
            .map_err(|error| Doubt::from(error).within("snapshot"))?;
        let idle = batch.wire_hashes.is_empty();
        // An engine that was asked before it published anything says 0, and numbers its first message 0 too.
        let unheard = self.heard_before_fetch.is_none();
        let mut last = watermark;
        for delta in self.buffer.iter() {
            let first_of_all = unheard && idle && [watermark, delta.sequence] == [Sequence(0); 2];
            if delta.sequence <= watermark && !first_of_all {
                continue;
            }
            xllm::decode(&delta.payload, expectation, batch)
                .map_err(|error| Doubt::from(&error))?;
            if batch.is_full_state() {
                views.begin_draft();
            }
            report += views
                .draft_delta(batch)
                .map_err(|error| Doubt::from(error).within("buffered message"))?;
            last = delta.sequence;
        }
        views.publish_draft(last)?;
        let until = now + Duration::from_millis(self.settings.limits.replay_timeout_ms);
        let idle = idle && self.may_still_start_at_zero();
        Ok((Cursor::from_snapshot(last, self.heard, idle, until), report))
    }

    /// Every message heard must be in the snapshot or in the buffer.
    fn check_bridge(&self, watermark: Sequence) -> Result<(), Doubt> {
        let Some(heard) = self.heard.filter(|heard| *heard > watermark) else {
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

    fn synchronized(&mut self, now: Instant, cursor: Cursor) {
        let interval = Duration::from_millis(self.settings.limits.resync_interval_ms);
        let due = now + self.calibration_pacer.spread(interval);
        if self.state() != StreamState::Synchronized {
            self.snapshot_pacer.succeeded(now);
        }
        self.phase = Phase::Synchronized(cursor, Fetch::Due(due));
        self.buffer.clear();
        self.error.clear();
    }

    fn snapshot_failed(&mut self, now: Instant, doubt: Doubt, views: &mut impl Views) {
        self.counters.snapshot_failures += 1;
        self.counters.count_doubt(doubt.kind);
        self.error = doubt.reason;
        self.error.clone_into(&mut self.last_error);
        views.unpublish(&self.error);
        self.schedule_snapshot(now);
    }

    fn calibration_failed(&mut self, now: Instant, doubt: &Doubt) {
        self.counters.calibration_failures += 1;
        self.last_error = format!("calibration: {doubt}");
        self.buffer.clear();
        let interval = Duration::from_millis(self.settings.limits.resync_interval_ms);
        // Retried sooner than the next regular one, but never at once.
        let delay = self
            .calibration_pacer
            .delay(now)
            .max(Pacer::FIRST)
            .min(interval);
        if let Phase::Synchronized(_, fetch) = &mut self.phase {
            *fetch = Fetch::Due(now + delay);
        }
    }

    /// Stops believing the view and asks for a snapshot.
    fn doubt(&mut self, now: Instant, doubt: Doubt, views: &mut impl Views) {
        self.counters.count_doubt(doubt.kind);
        self.error = doubt.reason;
        self.error.clone_into(&mut self.last_error);
        views.unpublish(&self.error);
        self.buffer.clear();
        self.schedule_snapshot(now);
    }

    /// Gives up a running fetch and asks for a new one as soon as pacing allows.
    fn schedule_snapshot(&mut self, now: Instant) {
        let delay = self.snapshot_pacer.delay(now);
        self.phase = Phase::Snapshotting(Fetch::Due(now + delay));
        self.tick(now);
    }

    fn new_fetch(&mut self) -> FetchId {
        self.next_fetch += 1;
        FetchId(self.next_fetch)
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

    fn keep_scratch(&mut self, batch: Batch) {
        if batch.decoded_bytes() <= SCRATCH_KEPT_BYTES {
            self.scratch = batch;
        }
    }
}

impl From<ReplayFailure> for Doubt {
    fn from(failure: ReplayFailure) -> Self {
        match failure {
            ReplayFailure::Timeout(reason) => Self::new(DoubtKind::ReplayTimeout, reason),
            ReplayFailure::TooLarge(reason) => Self::new(DoubtKind::MessageSize, reason),
            ReplayFailure::Other(reason) => Self::new(DoubtKind::Replay, reason),
        }
    }
}
