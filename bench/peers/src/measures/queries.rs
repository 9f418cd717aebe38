//! What a query costs: from tokens, from keys, into a caller's array; and hashing alone.
//!
//! One thread. Each query's figure is its best of all rounds.

use std::hint::black_box;
use std::time::Instant;

use super::{Measurement, Rounds};
use crate::contestant::{Contestant, Reader, filled, wrong_answers};
use crate::figures::{Latencies, micros, print};
use crate::workload::{Prompt, Workload};
use anyhow::Result;
use serde_json::json;

struct QueriesRounds<C: Contestant> {
    index: C,
    wrong: usize,
    tokens: Latencies,
    keys: Latencies,
    hashing: Latencies,
    /// Empty in an index that does not offer it.
    score_into: Latencies,
}

/// Begins it.
pub struct Queries;

impl Measurement for Queries {
    fn begin<C: Contestant + 'static>(&self, workload: &Workload) -> Result<Box<dyn Rounds>> {
        let index = filled::<C>(workload)?;
        Ok(Box::new(QueriesRounds {
            wrong: wrong_answers(&index.reader(), workload),
            index,
            tokens: Latencies::default(),
            keys: Latencies::default(),
            hashing: Latencies::default(),
            score_into: Latencies::default(),
        }))
    }
}

impl<C: Contestant> Rounds for QueriesRounds<C> {
    fn round(&mut self, workload: &Workload) -> Result<()> {
        let reader = self.index.reader();
        self.tokens.keep_best(each(workload, |prompt| {
            clock(|| reader.query_tokens(black_box(&prompt.tokens)))
        }));
        self.keys.keep_best(each(workload, |prompt| {
            let keys = reader.hash(&prompt.tokens);
            clock(|| reader.query_keys(black_box(&keys)))
        }));
        self.hashing.keep_best(each(workload, |prompt| {
            clock(|| reader.hash(black_box(&prompt.tokens)))
        }));
        self.round_score_into(workload, &reader);
        Ok(())
    }

    fn print(&self, variant: &str, workload: &Workload) {
        for (measure, figures) in [
            ("query from tokens", &self.tokens),
            ("query from keys", &self.keys),
            ("hashing alone", &self.hashing),
            ("score_into", &self.score_into),
        ] {
            if figures.0.is_empty() {
                continue;
            }
            let figures = json!({
                "p50_us": figures.percentile(0.5),
                "p99_us": figures.percentile(0.99),
                "by_length": by_length(workload, figures),
                "wrong": self.wrong,
                "queries": workload.queries.len(),
            });
            print::<C>(measure, variant, workload, figures);
        }
    }
}

impl<C: Contestant> QueriesRounds<C> {
    fn round_score_into(&mut self, workload: &Workload, reader: &C::Reader) {
        let mut scores = vec![0; workload.workers as usize];
        let mut offered = false;
        let round = each(workload, |prompt| {
            let keys = reader.hash(&prompt.tokens);
            scores.fill(0);
            clock(|| {
                offered = reader.score_into(black_box(&keys), black_box(&mut scores));
            })
        });
        if offered {
            self.score_into.keep_best(round);
        }
    }
}

/// Microseconds of `work`, without dropping what it returns.
fn clock<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    let result = black_box(work());
    let time = start.elapsed();
    drop(result);
    micros(time)
}

fn each(workload: &Workload, mut query: impl FnMut(&Prompt) -> f64) -> Latencies {
    let prompts = workload.queries.iter().map(|query| &query.prompt);
    Latencies(prompts.map(&mut query).collect())
}

/// (longest prompt in tokens, median) for each half octave of prompt lengths.
fn by_length(workload: &Workload, figures: &Latencies) -> Vec<(f64, f64)> {
    let bounds = (0..10).map(|half_octave| 1000.0 * 2_f64.powf(f64::from(half_octave + 1) / 2.0));
    let mut shortest = 0.0;
    let mut medians = Vec::new();
    for longest in bounds {
        let queries = workload.queries.iter().zip(&figures.0);
        let inside = queries.filter(|(query, _)| {
            let length = f64::from(u32::try_from(query.prompt.tokens.len()).unwrap_or(u32::MAX));
            shortest < length && length <= longest
        });
        let inside = Latencies(inside.map(|(_, figure)| *figure).collect());
        if !inside.0.is_empty() {
            medians.push((longest, inside.percentile(0.5)));
        }
        shortest = longest;
    }
    medians
}
