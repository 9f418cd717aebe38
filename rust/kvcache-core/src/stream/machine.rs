//! The state machine of one stream (spec: a stream's life).
//!
//! `connecting → snapshotting → synchronized`, and back to `snapshotting` on any doubt. Invariant: a view is published
//! exactly while the state is `synchronized`, and includes every message up to the cursor.

mod channel;
mod live;
mod merge;

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::buffer::DeltaBuffer;
use super::channel::LiveChannel;
use super::cursor::Cursor;
use super::losses::Losses;
use super::pacer::Pacer;
use super::{
    Counters, Doubt, DoubtKind, ReplayFailure, Snapshot, StreamSettings, StreamState, Views,
};
use crate::decode::{LiveMessage, xllm};
use crate::model::{Batch, Sequence};

/// Names one attempt to fetch a snapshot, so that a late answer is not taken for a newer one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchId(u64);

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
    /// Whether live messages arrive at all.
    channel: LiveChannel,
    /// What calibrations brought before its live messages.
    losses: Losses,
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
            channel: LiveChannel::new(),
            losses: Losses::default(),
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
        let silence = match self.phase {
            Phase::Synchronized(..) => self.channel.deadline(),
            _ => None,
        };
        [self.fetch_due(), self.losses.deadline(), silence]
            .into_iter()
            .flatten()
            .min()
    }

    fn fetch_due(&self) -> Option<Instant> {
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
        self.channel.connected();
        self.losses.forget();
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
        self.losses.forget();
        self.buffer.clear();
    }

    /// A deadline may have passed.
    pub fn tick(&mut self, now: Instant, views: &mut impl Views) {
        let lost = self.losses.overdue(now);
        self.lose(lost);
        self.check_silence(now, views);
        self.start_due_fetch(now);
    }

    fn start_due_fetch(&mut self, now: Instant) {
        if self.fetch_due().is_some_and(|at| at <= now) {
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
        self.heard_topic(now, views);
        let live = match LiveMessage::parse(frames) {
            Ok(live) => live,
            Err(error) => {
                self.doubt(now, Doubt::new(DoubtKind::Decode, error.to_string()), views);
                return;
            }
        };
        let lost = self.losses.heard(live.sequence);
        self.lose(lost);
        let mut batch = std::mem::take(&mut self.scratch);
        match xllm::decode(live.payload, &self.settings.expectation, &mut batch) {
            Ok(()) => self.batch(now, live.sequence, live.payload, &batch, views),
            Err(error) => {
                let doubt = Doubt::from(&error).within(&format!("message {}", live.sequence));
                self.heard = Some(live.sequence);
                self.doubt(now, doubt, views);
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
        if let Ok(snapshot) = &result
            && self.is_disbelieved(now, snapshot.watermark, views)
        {
            return;
        }
        let before = match &self.phase {
            Phase::Synchronized(cursor, _) => Some(*cursor),
            _ => None,
        };
        let built = match result {
            Ok(snapshot) => self.build(now, &snapshot, views),
            Err(failure) => Err(Doubt::from(failure)),
        };
        match built {
            Ok((cursor, changed)) => {
                if let Some(before) = before {
                    self.counters.calibrations += 1;
                    self.calibrated(now, &before, &cursor, changed);
                } else {
                    self.counters.snapshots += 1;
                }
                self.calibration_pacer.succeeded(now);
                self.synchronized(now, cursor);
            }
            Err(doubt) => {
                views.discard_draft();
                if before.is_none() {
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
            .min(interval)
            .max(Pacer::FIRST);
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
        self.losses.forget();
        self.schedule_snapshot(now);
    }

    /// Gives up a running fetch and asks for a new one as soon as pacing allows.
    fn schedule_snapshot(&mut self, now: Instant) {
        if let Phase::Snapshotting(Fetch::Due(_)) = self.phase {
            // Postponing it with every further doubt could mean never.
            self.start_due_fetch(now);
            return;
        }
        let delay = self.snapshot_pacer.delay(now);
        self.phase = Phase::Snapshotting(Fetch::Due(now + delay));
        self.start_due_fetch(now);
    }

    fn new_fetch(&mut self) -> FetchId {
        self.next_fetch += 1;
        FetchId(self.next_fetch)
    }

    #[cfg(test)]
    pub(super) fn scratch_bytes(&self) -> usize {
        self.scratch.allocated_bytes()
    }

    fn keep_scratch(&mut self, batch: Batch) {
        if batch.allocated_bytes() <= SCRATCH_KEPT_BYTES {
            self.scratch = batch;
        }
    }
}
