//! When the next snapshot may be asked for: at once after a calm, later and later in a storm.

use std::time::{Duration, Instant};

use fastrand::Rng;

/// Delays between attempts: none, then doubling from [`Pacer::FIRST`] to [`Pacer::MAX`], with jitter.
#[derive(Debug)]
pub(super) struct Pacer {
    attempts: u32,
    calm_since: Option<Instant>,
    rng: Rng,
}

impl Pacer {
    pub(super) const FIRST: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(5);
    /// A view that held this long ends a storm. Success alone must not: an engine whose snapshots are fine and whose
    /// messages are not would be asked for snapshot after snapshot.
    const CALM: Duration = Duration::from_secs(2);

    pub(super) fn new(seed: u64) -> Self {
        Self {
            attempts: 0,
            calm_since: None,
            rng: Rng::with_seed(seed),
        }
    }

    /// The view was published.
    pub(super) fn succeeded(&mut self, now: Instant) {
        self.calm_since = Some(now);
    }

    /// How long to wait before the next attempt.
    pub(super) fn delay(&mut self, now: Instant) -> Duration {
        if self
            .calm_since
            .take()
            .is_some_and(|since| now.saturating_duration_since(since) >= Self::CALM)
        {
            self.attempts = 0;
        }
        let attempt = self.attempts;
        self.attempts = self.attempts.saturating_add(1);
        if attempt == 0 {
            return Duration::ZERO;
        }
        let full = Self::FIRST
            .saturating_mul(1 << (attempt - 1).min(10))
            .min(Self::MAX);
        full.mul_f64(self.rng.f64().mul_add(0.5, 0.5))
    }

    /// `interval`, spread by up to a tenth so that streams which started together do not calibrate together.
    pub(super) fn spread(&mut self, interval: Duration) -> Duration {
        interval.mul_f64(self.rng.f64().mul_add(0.1, 0.9))
    }
}
