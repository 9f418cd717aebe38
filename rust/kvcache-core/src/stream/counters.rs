//! What one stream has been through; everything only grows.

use super::DoubtKind;
use crate::model::ApplyReport;

/// Totals since the stream was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Live messages of any topic.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages of another topic that the prefix filter let through.
    pub foreign_topic: u64,
    /// Live messages that a snapshot already included.
    pub covered: u64,
    /// Times that the subscription came up.
    pub connects: u64,
    /// Snapshots published.
    pub snapshots: u64,
    /// Snapshots that could not be had or used.
    pub snapshot_failures: u64,
    /// Calibrations completed.
    pub calibrations: u64,
    /// Calibrations that could not be completed.
    pub calibration_failures: u64,
    /// Sequences that a calibration brought and no live message.
    pub sequences_lost: u64,
    /// Copies that such sequences, or a calibration at the view's own, added and removed.
    pub blocks_lost: u64,
    /// What live messages and snapshots did to the view.
    pub applied: ApplyReport,
    doubts: [u64; DoubtKind::ALL.len()],
}

impl Counters {
    /// How often the stream was doubted for `kind`.
    #[must_use]
    pub fn doubts(&self, kind: DoubtKind) -> u64 {
        self.doubts[kind as usize]
    }

    pub(super) fn count_doubt(&mut self, kind: DoubtKind) {
        self.doubts[kind as usize] += 1;
    }
}
