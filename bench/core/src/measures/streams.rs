//! Queries over many streams beside the same queries over few: the same prompts, half of each in Host only.
//!
//! Once with every stream holding whole prompts, once each to a depth of its own. A query's figure is its best of all
//! rounds.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use kvcache_core::hash::BlockKeys;
use kvcache_core::index::{Matches, PrefixIndex, StreamWriter};
use serde_json::json;

use crate::cli::Cli;
use crate::figures::{Subject, micros, percentile};
use crate::scene;

const FEW: usize = 8;
const PROMPTS: usize = 64;
const TOKENS: usize = 8192;

struct Side {
    index: Arc<PrefixIndex>,
    _writers: Vec<StreamWriter>,
    tokens: Vec<f64>,
    keys: Vec<f64>,
}

/// Both block sizes, both kinds of holders.
///
/// # Errors
/// Whatever fails.
pub fn run(cli: &Cli) -> Result<()> {
    for block_size in [16, 128] {
        for whole in [true, false] {
            one(cli, block_size, whole)?;
        }
    }
    Ok(())
}

fn one(cli: &Cli, block_size: u32, whole: bool) -> Result<()> {
    let prompts = scene::prompts(7, PROMPTS, TOKENS);
    let spec = scene::index(block_size)?.spec();
    let hashed: Vec<BlockKeys> = prompts
        .iter()
        .map(|prompt| BlockKeys::compute(prompt, spec))
        .collect();
    let mut sides = [FEW, cli.streams].map(|streams| side(block_size, streams, &hashed, whole));
    for _ in 0..cli.rounds * 4 {
        for side in &mut sides {
            let Ok(side) = side else { continue };
            let mut matches = Matches::default();
            for at in 0..PROMPTS {
                let start = Instant::now();
                side.index
                    .query_tokens_into(black_box(&prompts[at]), &mut matches);
                black_box(&matches);
                side.tokens[at] = side.tokens[at].min(micros(start.elapsed()));
                let start = Instant::now();
                side.index
                    .query_keys_into(black_box(&hashed[at]), &mut matches)?;
                black_box(&matches);
                side.keys[at] = side.keys[at].min(micros(start.elapsed()));
            }
        }
    }
    let [few, many] = sides;
    let (few, many) = (few?, many?);
    let kinds = [
        ("from tokens", &few.tokens, &many.tokens),
        ("from keys", &few.keys, &many.keys),
    ];
    for (from, few, many) in kinds {
        let (few, many) = (percentile(few, 0.5), percentile(many, 0.5));
        Subject {
            measure: &format!("many streams, {from}"),
            variant: if whole {
                "whole prompts"
            } else {
                "prompts to random depths"
            },
            block_size,
            streams: cli.streams,
            entries: 0,
        }
        .print(json!({ "few_p50_us": few, "p50_us": many, "ratio": many / few }));
    }
    Ok(())
}

fn side(block_size: u32, streams: usize, hashed: &[BlockKeys], whole: bool) -> Result<Side> {
    let index = scene::index(block_size)?;
    let mut random = fastrand::Rng::with_seed(8);
    let mut writers = Vec::new();
    for name in 0..streams {
        let mut writer = scene::stream(&index, &format!("{name:03}"))?;
        for keys in hashed {
            let depth = if whole {
                keys.len()
            } else {
                random.usize(2..=keys.len())
            };
            scene::hold(&mut writer, keys, depth / 2, depth - depth / 2)?;
        }
        writers.push(writer);
        let hits = index.query_keys(&hashed[0])?;
        let held = hits
            .get(name)
            .map_or(0, |(_, hit)| hit.host_only_hit_tokens);
        ensure!(held > 0, "a prompt is missing");
    }
    Ok(Side {
        index,
        _writers: writers,
        tokens: vec![f64::INFINITY; PROMPTS],
        keys: vec![f64::INFINITY; PROMPTS],
    })
}
