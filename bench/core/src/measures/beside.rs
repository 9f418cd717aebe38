//! Queries while another thread does nothing, hashes, or ingests at full speed. Two threads: give them two cores.
//!
//! The one that hashes touches nothing of the index: what it costs queries is the machine's doing.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use kvcache_core::decode::xllm::{self, Expectation};
use kvcache_core::hash::Hasher;
use kvcache_core::index::StreamWriter;
use kvcache_core::model::{Batch, BlockHash, DpRank, Sequence};
use serde_json::json;

use crate::cli::Cli;
use crate::encode::{remove_message, store_message};
use crate::figures::{Subject, least, micros, percentile, rate};
use crate::scene;
use crate::story;

const ROUND: Duration = Duration::from_millis(700);
const BLOCKS_A_MESSAGE: usize = 64;

/// Both block sizes.
///
/// # Errors
/// Whatever fails.
pub fn run(cli: &Cli) -> Result<()> {
    for block_size in [16, 128] {
        one(cli, block_size)?;
    }
    Ok(())
}

fn one(cli: &Cli, block_size: u32) -> Result<()> {
    let index = scene::index(block_size)?;
    let prompts = scene::prompts(5, 64, 8192);
    let others = scene::holders(&index, &prompts)?;
    let blocks = cli.blocks.min(65_536);
    let spans = story::tell(6, blocks, block_size, 1024, BLOCKS_A_MESSAGE);
    let stores = spans.iter().map(|span| store_message(span, block_size));
    let removes = spans.iter().rev().map(remove_message);
    let messages: Vec<Vec<u8>> = stores.chain(removes).collect();
    let expect = Expectation {
        dp_rank: DpRank(0),
        block_size_tokens: index.spec().block_size_tokens,
    };
    let mut writer = scene::stream(&index, "writer")?;
    let mut rates = Vec::new();
    let names = ["idle", "hashing", "ingest"];
    let mut p50: [Vec<f64>; 3] = Default::default();
    let mut p99: [Vec<f64>; 3] = Default::default();
    for _ in 0..cli.rounds {
        for kind in 0..names.len() {
            let over = AtomicBool::new(false);
            let latencies = std::thread::scope(|scope| {
                let load = scope.spawn(|| match kind {
                    0 => Ok(0.0),
                    1 => {
                        hash(&over, &spans[0], block_size);
                        Ok(0.0)
                    }
                    _ => ingest(&over, &mut writer, &messages, expect),
                });
                let start = Instant::now();
                let mut latencies = Vec::new();
                for prompt in prompts.iter().cycle() {
                    if start.elapsed() > ROUND {
                        break;
                    }
                    let start = Instant::now();
                    black_box(index.query_tokens(black_box(prompt)));
                    latencies.push(micros(start.elapsed()));
                }
                over.store(true, Ordering::Relaxed);
                let rate = load
                    .join()
                    .map_err(|_| anyhow!("the writer has panicked"))??;
                if kind == 2 {
                    rates.push(rate);
                }
                anyhow::Ok(latencies)
            })?;
            p50[kind].push(percentile(&latencies, 0.5));
            p99[kind].push(percentile(&latencies, 0.99));
        }
    }
    Subject {
        measure: "query beside ingest",
        variant: "64 blocks a message",
        block_size,
        streams: others.len() + 1,
        entries: blocks,
    }
    .print(json!({
        "blocks_per_s": rates.iter().copied().fold(0.0, f64::max),
        "idle_p50_us": least(&p50[0]),
        "idle_p99_us": least(&p99[0]),
        "hashing_p50_us": least(&p50[1]),
        "hashing_p99_us": least(&p99[1]),
        "p50_us": least(&p50[2]),
        "p99_us": least(&p99[2]),
        "ratio": least(&p99[2]) / least(&p99[0]),
        "hashing_ratio": least(&p99[1]) / least(&p99[0]),
    }));
    Ok(())
}

/// Stores and evicts everything, again and again.
fn ingest(
    over: &AtomicBool,
    writer: &mut StreamWriter,
    messages: &[Vec<u8>],
    expect: Expectation,
) -> Result<f64> {
    let mut batch = Batch::default();
    let mut applied = 0;
    let start = Instant::now();
    while !over.load(Ordering::Relaxed) {
        // To the end, so that the next round begins where this one did.
        for message in messages {
            xllm::decode(message, &expect, &mut batch)?;
            writer.apply(&batch, Some(Sequence(1)))?;
        }
        applied += messages.len() * BLOCKS_A_MESSAGE;
    }
    Ok(rate(applied, start.elapsed().as_secs_f64()))
}

fn hash(over: &AtomicBool, span: &story::Span, block_size: u32) {
    let hasher = Hasher::new(1024);
    let mut places = [BlockHash(0); BLOCKS_A_MESSAGE];
    while !over.load(Ordering::Relaxed) {
        hasher.blocks(black_box(&span.token_ids), block_size as usize, &mut places);
        black_box(&places);
    }
}
