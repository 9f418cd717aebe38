//! Single operations of the core, by criterion: what each costs, beside hashing the same tokens.
//!
//! All are of prompts of 8,192 tokens or of messages of 64 blocks, in blocks of 16 and of 128 tokens, everything in cache.

use std::hint::black_box;

use anyhow::{Context, Result};
use criterion::{BenchmarkId, Criterion};
use kvcache_core::decode::xllm::{self, Expectation};
use kvcache_core::hash::{BlockKeys, Hasher};
use kvcache_core::index::Matches;
use kvcache_core::model::{Batch, BlockHash, DpRank, Sequence};
use kvcache_goals::encode::{remove_message, store_message};
use kvcache_goals::{scene, story};

const PROMPT_TOKENS: usize = 8192;
const BLOCKS_A_MESSAGE: usize = 64;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    for block_size in [16, 128] {
        queries(&mut criterion, block_size)?;
        events(&mut criterion, block_size)?;
    }
    criterion.final_summary();
    Ok(())
}

fn queries(criterion: &mut Criterion, block_size: u32) -> Result<()> {
    let index = scene::index(block_size)?;
    let prompts = scene::prompts(1, 2, PROMPT_TOKENS);
    let [held, unknown] = &prompts[..] else {
        anyhow::bail!("two prompts were asked for")
    };
    let _holders = scene::holders(&index, std::slice::from_ref(held))?;
    let spec = index.spec();
    let keys = BlockKeys::compute(held, spec);
    let mut group = criterion.benchmark_group("prompt");
    let hasher = Hasher::new(spec.hash_seed);
    let mut places = vec![BlockHash(0); keys.len()];
    group.bench_function(BenchmarkId::new("hash", block_size), |bencher| {
        bencher.iter(|| hasher.blocks(black_box(held), block_size as usize, &mut places));
    });
    group.bench_function(BenchmarkId::new("hash and chain", block_size), |bencher| {
        bencher.iter(|| BlockKeys::compute(black_box(held), spec));
    });
    let mut matches = Matches::default();
    group.bench_function(
        BenchmarkId::new("query tokens, held", block_size),
        |bencher| {
            bencher.iter(|| index.query_tokens_into(black_box(held), &mut matches));
        },
    );
    group.bench_function(
        BenchmarkId::new("query tokens, unknown", block_size),
        |bencher| {
            bencher.iter(|| index.query_tokens_into(black_box(unknown), &mut matches));
        },
    );
    group.bench_function(
        BenchmarkId::new("query keys, held", block_size),
        |bencher| {
            bencher.iter(|| index.query_keys_into(black_box(&keys), &mut matches));
        },
    );
    group.finish();
    Ok(())
}

/// Each changes nothing in the end: what is stored anew is removed again.
fn events(criterion: &mut Criterion, block_size: u32) -> Result<()> {
    let index = scene::index(block_size)?;
    let mut writer = scene::stream(&index, "engine")?;
    let expect = Expectation {
        dp_rank: DpRank(0),
        block_size_tokens: index.spec().block_size_tokens,
    };
    let spans = story::tell(
        2,
        BLOCKS_A_MESSAGE,
        block_size,
        BLOCKS_A_MESSAGE,
        BLOCKS_A_MESSAGE,
    );
    let span = spans.first().context("a story of one message")?;
    let (message, removal) = (store_message(span, block_size), remove_message(span));
    let (mut stored, mut removed) = (Batch::default(), Batch::default());
    xllm::decode(&message, &expect, &mut stored)?;
    xllm::decode(&removal, &expect, &mut removed)?;
    let hasher = Hasher::new(index.spec().hash_seed);
    let mut places = vec![BlockHash(0); BLOCKS_A_MESSAGE];
    let mut group = criterion.benchmark_group("message");
    group.bench_function(BenchmarkId::new("hash", block_size), |bencher| {
        bencher.iter(|| {
            hasher.blocks(black_box(&span.token_ids), block_size as usize, &mut places);
        });
    });
    let mut batch = Batch::default();
    group.bench_function(BenchmarkId::new("decode", block_size), |bencher| {
        bencher.iter(|| xllm::decode(black_box(&message), &expect, &mut batch).map(drop));
    });
    let sequence = Some(Sequence(1));
    writer.apply(&stored, sequence)?;
    group.bench_function(
        BenchmarkId::new("store what is there", block_size),
        |bencher| {
            bencher.iter(|| writer.apply(black_box(&stored), sequence).map(drop));
        },
    );
    group.bench_function(
        BenchmarkId::new("remove and store again", block_size),
        |bencher| {
            bencher.iter(|| {
                let gone = writer.apply(black_box(&removed), sequence);
                gone.and_then(|_| writer.apply(black_box(&stored), sequence))
                    .map(drop)
            });
        },
    );
    group.finish();
    Ok(())
}
