//! Live messages that do not come are counted as lost, and are a doubt when none comes at all.

use std::time::{Duration, Instant};

use super::super::cursor::Cursor;
use super::super::losses::Lost;
use super::{Fetch, Phase, StreamMachine};
use crate::model::Sequence;
use crate::stream::{DoubtKind, ProbeId, Views};

impl StreamMachine {
    /// Names the look for other topics that should be under way now. One with another id is to be
    /// given up.
    #[must_use]
    pub fn wanted_probe(&self) -> Option<ProbeId> {
        match self.phase {
            Phase::Connecting => None,
            _ => self.channel.wanted_probe(),
        }
    }

    /// Takes the result of the probe called `id`: the topics that arrive at the live endpoint, or
    /// why it could not look. Says whether the subscription is to be made anew: it does not receive
    /// what another one does.
    #[must_use]
    pub fn probed(
        &mut self,
        id: ProbeId,
        seen: Result<Vec<Box<[u8]>>, String>,
        views: &mut impl Views,
    ) -> bool {
        if self.wanted_probe() != Some(id) {
            return false;
        }
        let is_lost = self.channel.probed(&self.settings.topic, seen);
        self.tell_silence(views);
        is_lost
    }

    /// A calibration has replaced a view at `before` by one at `after`, which changed `blocks`
    /// copies.
    pub(super) fn calibrated(
        &mut self,
        now: Instant,
        before: &Cursor,
        after: &Cursor,
        blocks: u64,
    ) {
        let (from, to) = (before.last(), after.last());
        // Whether an idle engine begins with 0 or 1 nobody knows: more than one message is counted
        // from 1 on.
        let first = if to > from {
            from.next()
        } else if before.may_start_at_zero() && !after.may_start_at_zero() {
            // An idle engine's first message of all carries the number that its snapshots had.
            Some(to)
        } else {
            None
        };
        if let Some(first) = first {
            let until = now + Duration::from_millis(self.settings.limits.replay_timeout_ms);
            self.losses.brought(first, to, blocks, until);
            self.channel.advanced(now, from, to);
        } else {
            // At one sequence, so that nothing is on its way.
            self.counters.blocks_lost += blocks;
        }
    }

    pub(super) fn lose(&mut self, lost: Lost) {
        self.counters.sequences_lost += lost.sequences;
        self.counters.blocks_lost += lost.blocks;
    }

    /// Takes note that a message on the stream's topic has come.
    pub(super) fn heard_topic(&mut self, now: Instant, views: &mut impl Views) {
        if !self.channel.heard() {
            return;
        }
        "live messages arrive again, waiting for a snapshot".clone_into(&mut self.error);
        views.unpublish(&self.error);
        if let Phase::Snapshotting(Fetch::Due(at)) = self.phase {
            // The next one may be an interval away.
            let due = (now + self.snapshot_pacer.delay(now)).min(at);
            self.phase = Phase::Snapshotting(Fetch::Due(due));
            self.start_due_fetch(now);
        }
    }

    /// Stops believing a stream whose live messages do not come. Its next snapshot is due as if it
    /// were calibrated.
    pub(super) fn check_silence(&mut self, now: Instant, views: &mut impl Views) {
        if !matches!(self.phase, Phase::Synchronized(..))
            || !self.channel.prove(now, &self.settings.topic)
        {
            return;
        }
        let lost = self.losses.all_but_latest();
        self.lose(lost);
        self.counters.count_doubt(DoubtKind::LiveChannel);
        self.buffer.clear();
        self.tell_silence(views);
        self.look_again_later(now);
    }

    /// Says whether a silent channel forbids to believe a snapshot that has arrived.
    pub(super) fn is_disbelieved(
        &mut self,
        now: Instant,
        watermark: Sequence,
        views: &mut impl Views,
    ) -> bool {
        if self.channel.may_believe(watermark) {
            return false;
        }
        self.tell_silence(views);
        self.look_again_later(now);
        true
    }

    fn tell_silence(&mut self, views: &mut impl Views) {
        self.error = self.channel.error();
        self.error.clone_into(&mut self.last_error);
        views.unpublish(&self.error);
    }

    fn look_again_later(&mut self, now: Instant) {
        let interval = Duration::from_millis(self.settings.limits.resync_interval_ms);
        // Snapshots are compared only: no storm of them is worth it, whatever the interval.
        let delay = self
            .calibration_pacer
            .spread(interval)
            .max(super::Pacer::FIRST);
        self.phase = Phase::Snapshotting(Fetch::Due(now + delay));
    }
}
