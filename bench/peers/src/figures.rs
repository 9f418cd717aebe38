//! Figures, and how they are printed: one JSON object a line.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::contestant::Contestant;
use crate::workload::Workload;

/// Microseconds of many runs, one figure a query.
#[derive(Clone, Debug, Default)]
pub struct Latencies(pub Vec<f64>);

impl Latencies {
    /// The figure that the share `rank` of all do not exceed.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among thousands"
    )]
    pub fn percentile(&self, rank: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted
            .get((last as f64 * rank) as usize)
            .copied()
            .unwrap_or(f64::NAN)
    }

    /// Keeps the smaller figure of each query: what else ran on the machine only ever adds.
    pub fn keep_best(&mut self, round: Self) {
        if self.0.is_empty() {
            self.0 = round.0;
            return;
        }
        for (best, new) in self.0.iter_mut().zip(round.0) {
            *best = best.min(new);
        }
    }
}

#[must_use]
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Blocks in a second.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a count of blocks")]
pub fn rate(blocks: usize, time: Duration) -> f64 {
    blocks as f64 / time.as_secs_f64()
}

/// Prints one measure of one contestant.
pub fn print<C: Contestant>(measure: &str, variant: &str, workload: &Workload, figures: Value) {
    let mut line = Map::new();
    line.insert("measure".into(), measure.into());
    line.insert("contestant".into(), C::NAME.into());
    line.insert("variant".into(), variant.into());
    line.insert("block_size".into(), workload.block_size.into());
    line.insert("streams".into(), workload.workers.into());
    line.insert("entries".into(), workload.entries().into());
    if let Value::Object(figures) = figures {
        line.extend(figures);
    }
    println!("{}", Value::Object(line));
}
