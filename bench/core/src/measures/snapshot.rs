//! A large snapshot from its bytes until it is published, and what queries in another thread feel of it.
//!
//! A query that the scheduler interrupted does not count. Then the same snapshot again, as a calibration that finds nothing new, and once more with one block less.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use kvcache_core::decode::xllm::{self, Expectation};
use kvcache_core::index::{Origin, Publication, StreamWriter};
use kvcache_core::model::{Batch, DpRank, Sequence};
use serde_json::json;

use crate::cli::Cli;
use crate::encode;
use crate::figures::{Subject, least, micros, percentile};
use crate::scene;
use crate::story;

const BLOCK_SIZE: u32 = 128;
const IDLE: Duration = Duration::from_millis(500);
const PHASES: [&str; 4] = ["idle", "first snapshot", "nothing new", "one block less"];

/// With events of many blocks, and of one.
///
/// # Errors
/// Whatever fails.
pub fn run(cli: &Cli) -> Result<()> {
    one(cli, "256 blocks an event", 256)?;
    one(cli, "one block an event", 1)
}

fn one(cli: &Cli, variant: &str, in_event: usize) -> Result<()> {
    let (whole, less) = payloads(cli.blocks, in_event);
    let index = scene::index(BLOCK_SIZE)?;
    let prompts = scene::prompts(4, 64, 8192);
    let _others = scene::holders(&index, &prompts)?;

    let mut seconds: [Vec<f64>; 4] = Default::default();
    let mut parts: [Vec<f64>; 3] = Default::default();
    // Of each round, by phase.
    let mut longest: [Vec<f64>; 4] = Default::default();
    let mut p99: [Vec<f64>; 4] = Default::default();
    for _ in 0..cli.rounds {
        let phase = AtomicUsize::new(0);
        let latencies = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut latencies: [Vec<f64>; 4] = Default::default();
                let waits = Waits::of_this_thread();
                for prompt in prompts.iter().cycle() {
                    let now = phase.load(Ordering::Relaxed);
                    let Some(of_phase) = latencies.get_mut(now) else {
                        break;
                    };
                    let before = waits.so_far();
                    let start = Instant::now();
                    black_box(index.query_tokens(black_box(prompt)));
                    let time = start.elapsed();
                    if waits.so_far() == before {
                        of_phase.push(micros(time));
                    }
                }
                latencies
            });
            let done = (|| {
                std::thread::sleep(IDLE);
                let mut writer = scene::stream(&index, "one")?;
                for (number, payload, expected) in [
                    (1, &whole, Publication::Flipped),
                    (2, &whole, Publication::Unchanged),
                    (3, &less, Publication::Flipped),
                ] {
                    phase.store(number, Ordering::Relaxed);
                    let start = Instant::now();
                    let (published, times) = take(&mut writer, payload)?;
                    seconds[number].push(start.elapsed().as_secs_f64());
                    ensure!(
                        published == expected,
                        "{} was {published:?}",
                        PHASES[number]
                    );
                    if number == 1 {
                        for (part, time) in parts.iter_mut().zip(times) {
                            part.push(time);
                        }
                    }
                }
                Ok(())
            })();
            phase.store(4, Ordering::Relaxed);
            let latencies = reader
                .join()
                .map_err(|_| anyhow!("the reader has panicked"));
            done.and(latencies)
        })?;
        for (phase, of_phase) in latencies.iter().enumerate() {
            longest[phase].push(percentile(of_phase, 1.0));
            p99[phase].push(percentile(of_phase, 0.99));
        }
    }
    let idle_p99_us = least(&p99[0]);
    for (number, phase) in PHASES.iter().enumerate().skip(1) {
        let mut figures = json!({
            "seconds": least(&seconds[number]),
            "payload_bytes": whole.len(),
            "idle_p99_us": idle_p99_us,
            "idle_longest_us": percentile(&longest[0], 0.5),
            "p99_us": least(&p99[number]),
            "longest_us": least(&longest[number]),
            "median_longest_us": percentile(&longest[number], 0.5),
            "ratio": least(&longest[number]) / idle_p99_us,
        });
        if number == 1 {
            for (name, part) in ["decode_s", "apply_s", "publish_s"].iter().zip(&parts) {
                figures[*name] = least(part).into();
            }
        }
        Subject {
            measure: phase,
            variant,
            block_size: BLOCK_SIZE,
            streams: 1,
            entries: cli.blocks,
        }
        .print(figures);
    }
    Ok(())
}

/// A snapshot, and one without its last block.
fn payloads(blocks: usize, in_event: usize) -> (Vec<u8>, Vec<u8>) {
    let mut spans = story::tell(3, blocks, BLOCK_SIZE, 256, in_event);
    let whole = encode::snapshot(&spans, BLOCK_SIZE);
    if let Some(last) = spans.last_mut() {
        last.wire_hashes.pop();
        last.token_ids
            .truncate(last.wire_hashes.len() * BLOCK_SIZE as usize);
    }
    spans.retain(|span| !span.wire_hashes.is_empty());
    let less = encode::snapshot(&spans, BLOCK_SIZE);
    (whole, less)
}

/// How long a thread has been ready to run and not run: another process's doing, which no figure is to show.
struct Waits(Option<File>);

impl Waits {
    fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    fn so_far(&self) -> u64 {
        let mut bytes = [0; 64];
        let read = self.0.as_ref().map(|file| file.read_at(&mut bytes, 0));
        let Some(Ok(length)) = read else { return 0 };
        let text = str::from_utf8(&bytes[..length]).unwrap_or_default();
        // It has run for, it has waited for, how often: nanoseconds.
        let waited = text.split(' ').nth(1).map(str::parse);
        waited.and_then(Result::ok).unwrap_or(0)
    }
}

/// As a stream does it; the seconds of decoding, applying, publishing.
fn take(writer: &mut StreamWriter, payload: &[u8]) -> Result<(Publication, [f64; 3])> {
    let start = Instant::now();
    let expect = Expectation {
        dp_rank: DpRank(0),
        block_size_tokens: std::num::NonZeroU32::MIN.saturating_add(BLOCK_SIZE - 1),
    };
    let mut batch = Batch::default();
    xllm::decode(payload, &expect, &mut batch)?;
    let decoded = start.elapsed().as_secs_f64();
    let mut draft = writer.new_draft();
    draft.apply(&batch, Origin::Snapshot)?;
    drop(batch);
    let applied = start.elapsed().as_secs_f64();
    // What a calibration is asked first.
    black_box(writer.copies_changed_by(&draft));
    let published = writer.publish(draft, Some(Sequence(1)))?;
    let all = start.elapsed().as_secs_f64();
    Ok((published, [decoded, applied - decoded, all - applied]))
}
