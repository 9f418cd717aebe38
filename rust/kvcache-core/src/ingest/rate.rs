//! Rates over about the last ten seconds, from totals.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Totals at a moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    messages: u64,
    bytes: u64,
}

/// Remembers a total a second; what is asked for is the slope.
#[derive(Clone, Debug)]
pub(super) struct RateMeter {
    samples: VecDeque<Sample>,
}

impl RateMeter {
    const SPACING: Duration = Duration::from_secs(1);
    const SAMPLES: usize = 10;

    pub(super) fn new(now: Instant) -> Self {
        Self {
            samples: VecDeque::from([Sample {
                at: now,
                messages: 0,
                bytes: 0,
            }]),
        }
    }

    /// Takes the totals in.
    pub(super) fn record(&mut self, now: Instant, messages: u64, bytes: u64) {
        if self
            .samples
            .back()
            .is_none_or(|last| now.saturating_duration_since(last.at) >= Self::SPACING)
        {
            if self.samples.len() == Self::SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back(Sample {
                at: now,
                messages,
                bytes,
            });
        }
    }

    /// Messages and bytes a second up to `now`, given the totals now.
    pub(super) fn per_second(&self, now: Instant, messages: u64, bytes: u64) -> (f64, f64) {
        let window = Self::SPACING * u32::try_from(Self::SAMPLES).unwrap_or(u32::MAX);
        let recent = self
            .samples
            .iter()
            .find(|sample| now.saturating_duration_since(sample.at) <= window);
        let Some(from) = recent else {
            return (0.0, 0.0);
        };
        // Less than a second of history would make a single message a storm.
        let seconds = now
            .saturating_duration_since(from.at)
            .as_secs_f64()
            .max(1.0);
        #[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
        let slope = |total: u64, before: u64| total.saturating_sub(before) as f64 / seconds;
        (slope(messages, from.messages), slope(bytes, from.bytes))
    }
}
