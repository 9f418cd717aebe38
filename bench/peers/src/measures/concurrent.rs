//! What a query costs beside a writer that never rests, and what the writer achieves meanwhile.
//!
//! Two threads: give them two cores. A query counts only when the writer was writing before and after it; what
//! the writer is to say next is prepared while no query counts.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Measurement, Rounds};
use crate::contestant::{Contestant, Reader, filled, removes, restores, wrong_answers};
use crate::figures::{Latencies, micros, print, rate};
use crate::workload::{Workload, blocks};
use anyhow::{Result, anyhow};
use serde_json::json;

/// Writing time of one round.
const ROUND: Duration = Duration::from_millis(700);

struct ConcurrentRounds<C> {
    index: C,
    latencies: Latencies,
    written: usize,
    writing: Duration,
}

/// Begins it.
pub struct Concurrent;

impl Measurement for Concurrent {
    fn begin<C: Contestant + 'static>(&self, workload: &Workload) -> Result<Box<dyn Rounds>> {
        Ok(Box::new(ConcurrentRounds {
            index: filled::<C>(workload)?,
            latencies: Latencies::default(),
            written: 0,
            writing: Duration::ZERO,
        }))
    }
}

impl<C: Contestant> Rounds for ConcurrentRounds<C> {
    fn round(&mut self, workload: &Workload) -> Result<()> {
        let reader = self.index.reader();
        let (writing, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let time = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let written = write(&mut self.index, workload, &writing);
                done.store(true, Ordering::Relaxed);
                written
            });
            for query in workload.queries.iter().cycle() {
                let before = writing.load(Ordering::Relaxed);
                let start = Instant::now();
                let answer = black_box(reader.query_tokens(black_box(&query.prompt.tokens)));
                let time = start.elapsed();
                drop(answer);
                if before && writing.load(Ordering::Relaxed) {
                    self.latencies.0.push(micros(time));
                }
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
            writer.join()
        });
        let (written, time) = time.map_err(|_| anyhow!("the writer has panicked"))??;
        self.written += written;
        self.writing += time;
        Ok(())
    }

    fn print(&self, variant: &str, workload: &Workload) {
        let figures = json!({
            "p50_us": self.latencies.percentile(0.5),
            "p99_us": self.latencies.percentile(0.99),
            "blocks_per_s": rate(self.written, self.writing),
            "includes_hashing": C::APPLY_HASHES,
            "wrong": wrong_answers(&self.index.reader(), workload),
            "queries": workload.queries.len(),
        });
        print::<C>("query beside a writer", variant, workload, figures);
    }
}

/// Evicts and stores again for a while; the blocks, and the time without preparations.
fn write<C: Contestant>(
    index: &mut C,
    workload: &Workload,
    writing: &AtomicBool,
) -> Result<(usize, Duration)> {
    let (mut written, mut time) = (0, Duration::ZERO);
    while time < ROUND {
        let (removes, restores) = (removes::<C>(workload), restores::<C>(workload));
        writing.store(true, Ordering::Relaxed);
        let applied = index
            .apply(removes)
            .and_then(|first| Ok(first + index.apply(restores)?));
        writing.store(false, Ordering::Relaxed);
        time += applied?;
        written += 2 * blocks(&workload.removes);
    }
    Ok((written, time))
}
