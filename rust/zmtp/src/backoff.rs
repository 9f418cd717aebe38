//! How long to wait before the next attempt to connect.
//!
//! Delays double from the first to the largest. Each is drawn from the upper half of its step, so that a fleet
//! that lost its peers together does not come back together. Knows neither clock nor socket.

use std::time::Duration;

/// A sequence of growing delays with jitter.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    /// Upper end of the next delay.
    step: Duration,
    random: fastrand::Rng,
}

impl Backoff {
    /// Where delays start unless configured otherwise.
    pub const FIRST: Duration = Duration::from_millis(100);
    /// Where delays stop growing unless configured otherwise.
    pub const MAX: Duration = Duration::from_secs(5);

    /// Delays from `first`, doubling up to `max`; `seed` decides the jitter, so that a test can repeat it.
    /// A `max` below `first` is taken as `first`.
    #[must_use]
    pub fn new(first: Duration, max: Duration, seed: u64) -> Self {
        Self {
            first,
            max: max.max(first),
            step: first,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The delay before the next attempt: between half of the current step and all of it.
    pub fn next_delay(&mut self) -> Duration {
        let step = self.step;
        self.step = step.saturating_mul(2).min(self.max);
        step.mul_f64(0.5 + self.random.f64() / 2.0)
    }

    /// Starts over. Call it after a good message, not after a mere connect: a peer may accept and hang up for ever.
    pub fn reset(&mut self) {
        self.step = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_within_its_bounds_and_starts_over() {
        let mut backoff = Backoff::new(Backoff::FIRST, Backoff::MAX, 7);
        for step_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let step = Duration::from_millis(step_ms);
            let delay = backoff.next_delay();
            assert!(delay >= step / 2 && delay <= step, "{delay:?} of {step:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Backoff::FIRST);
    }

    #[test]
    fn the_seed_decides_the_jitter() {
        let delays = |seed| {
            let mut backoff = Backoff::new(Backoff::FIRST, Backoff::MAX, seed);
            [(); 8].map(|()| backoff.next_delay())
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
    }

    #[test]
    fn a_maximum_below_the_first_delay_does_not_shorten_it() {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(1), 0);
        assert!(backoff.next_delay() >= Duration::from_secs(1));
        assert!(backoff.next_delay() <= Duration::from_secs(2));
    }
}
