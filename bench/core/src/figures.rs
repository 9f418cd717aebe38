//! Figures, and how they are printed: one JSON object a line.

use std::time::Duration;

use serde_json::{Map, Value};

/// What a figure is of.
pub struct Subject<'a> {
    pub measure: &'a str,
    pub variant: &'a str,
    pub block_size: u32,
    pub streams: usize,
    pub entries: usize,
}

impl Subject<'_> {
    /// Prints its figures.
    pub fn print(&self, figures: Value) {
        let mut line = Map::new();
        line.insert("measure".into(), self.measure.into());
        line.insert("contestant".into(), "kvcache".into());
        line.insert("variant".into(), self.variant.into());
        line.insert("block_size".into(), self.block_size.into());
        line.insert("streams".into(), self.streams.into());
        line.insert("entries".into(), self.entries.into());
        if let Value::Object(figures) = figures {
            line.extend(figures);
        }
        println!("{}", Value::Object(line));
    }
}

/// The value that the share `rank` of all do not exceed.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank among thousands"
)]
pub fn percentile(values: &[f64], rank: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * rank) as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

#[must_use]
pub fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

#[must_use]
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Blocks in a second.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a count of blocks")]
pub fn rate(blocks: usize, seconds: f64) -> f64 {
    blocks as f64 / seconds
}
