//! How many lines one stream may have.

use std::time::{Duration, Instant};

/// A few lines at once, then one in a while.
#[derive(Debug)]
pub(super) struct Budget {
    left: u32,
    /// When the next line is counted from.
    since: Instant,
}

impl Budget {
    /// A start and several restarts of an engine are told in full.
    pub(super) const BURST: u32 = 10;
    /// Two lines a minute of a stream that flaps for ever; 128 such streams make four a second.
    pub(super) const EVERY: Duration = Duration::from_secs(30);

    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: Self::BURST,
            since: now,
        }
    }

    /// Spends a line, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        while self.left < Self::BURST && now.saturating_duration_since(self.since) >= Self::EVERY {
            self.left += 1;
            self.since += Self::EVERY;
        }
        if self.left == Self::BURST {
            self.since = now;
        }
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }

    /// When there is a line again.
    pub(super) fn next(&self, now: Instant) -> Instant {
        if self.left > 0 {
            now
        } else {
            self.since + Self::EVERY
        }
    }
}
