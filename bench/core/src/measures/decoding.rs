//! Decoding, hashing and indexing live messages, beside hashing their tokens alone. One thread, no socket.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use kvcache_core::decode::xllm::{self, Expectation};
use kvcache_core::hash::Hasher;
use kvcache_core::model::{Batch, BlockHash, DpRank, Sequence};
use serde_json::json;

use crate::cli::Cli;
use crate::encode::store_message;
use crate::figures::{Subject, least, rate};
use crate::scene;
use crate::story;

const BLOCKS_A_MESSAGE: usize = 64;

#[derive(Default)]
struct Seconds {
    hash: Vec<f64>,
    decode: Vec<f64>,
    apply: Vec<f64>,
    whole: Vec<f64>,
}

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
    let spans = story::tell(2, cli.blocks, block_size, 1024, BLOCKS_A_MESSAGE);
    let messages: Vec<Vec<u8>> = spans
        .iter()
        .map(|span| store_message(span, block_size))
        .collect();
    let batches: Vec<Batch> = spans.iter().map(story::Span::stored).collect();
    drop(spans);
    let mut seconds = Seconds::default();
    for _ in 0..cli.rounds {
        round(&mut seconds, &messages, &batches, block_size)?;
    }
    let Seconds {
        hash,
        decode,
        apply,
        whole,
    } = seconds;
    Subject {
        measure: "decode and apply",
        variant: "64 blocks a message",
        block_size,
        streams: 1,
        entries: cli.blocks,
    }
    .print(json!({
        "blocks_per_s": rate(cli.blocks, least(&whole)),
        "hashing_blocks_per_s": rate(cli.blocks, least(&hash)),
        "decoding_blocks_per_s": rate(cli.blocks, least(&decode)),
        "applying_blocks_per_s": rate(cli.blocks, least(&apply)),
        "ratio": least(&whole) / least(&hash),
    }));
    Ok(())
}

fn round(
    seconds: &mut Seconds,
    messages: &[Vec<u8>],
    batches: &[Batch],
    block_size: u32,
) -> Result<()> {
    let index = scene::index(block_size)?;
    let expect = Expectation {
        dp_rank: DpRank(0),
        block_size_tokens: index.spec().block_size_tokens,
    };
    let mut batch = Batch::default();
    let hasher = Hasher::new(index.spec().hash_seed);
    let mut places = [BlockHash(0); BLOCKS_A_MESSAGE];

    let start = Instant::now();
    for batch in batches {
        hasher.blocks(&batch.token_ids, block_size as usize, &mut places);
        black_box(&places);
    }
    seconds.hash.push(start.elapsed().as_secs_f64());

    let start = Instant::now();
    for message in messages {
        xllm::decode(message, &expect, &mut batch)?;
        black_box(&batch);
    }
    seconds.decode.push(start.elapsed().as_secs_f64());

    let mut writer = scene::stream(&index, "applied")?;
    let start = Instant::now();
    for (sequence, batch) in (1..).zip(batches) {
        writer.apply(batch, Some(Sequence(sequence)))?;
    }
    seconds.apply.push(start.elapsed().as_secs_f64());
    drop(writer);

    let index = scene::index(block_size)?;
    let mut writer = scene::stream(&index, "decoded")?;
    let start = Instant::now();
    for (sequence, message) in (1..).zip(messages) {
        xllm::decode(message, &expect, &mut batch)?;
        writer.apply(&batch, Some(Sequence(sequence)))?;
    }
    seconds.whole.push(start.elapsed().as_secs_f64());
    Ok(())
}
