//! Resident memory of a full directory: every stream at its limit, no block in two of them.

use anyhow::{Context, Result, ensure};
use kvcache_core::hash::BlockKeys;
use kvcache_core::index::StreamWriter;
use kvcache_core::model::{BlockHash, Tier, WireHash};
use serde_json::json;

use crate::cli::Cli;
use crate::figures::Subject;
use crate::scene;

const BLOCKS_A_PROMPT: usize = 256;
const PAGE_BYTES: usize = 4096;

/// Fills it once.
///
/// # Errors
/// Whatever fails.
pub fn run(cli: &Cli) -> Result<()> {
    let index = scene::index(128)?;
    let mut random = fastrand::Rng::with_seed(9);
    let before = resident_bytes()?;
    let mut writers = Vec::new();
    let mut wires = [WireHash(0); BLOCKS_A_PROMPT];
    let mut hashes = [BlockHash(0); BLOCKS_A_PROMPT];
    for name in 0..cli.streams {
        let mut writer = scene::stream(&index, &format!("{name:03}"))?;
        for _ in 0..cli.blocks / BLOCKS_A_PROMPT {
            wires.fill_with(|| WireHash(random.u64(..)));
            hashes.fill_with(|| BlockHash(random.u128(..)));
            writer.store_hashed(None, &wires, &hashes, Some(Tier::Device))?;
        }
        ensure!(
            writer.counts().device_blocks == cli.blocks,
            "blocks are missing"
        );
        writers.push(writer);
    }
    let resident = resident_bytes()? - before;
    // That nothing was left out to save memory.
    for (name, writer) in writers.iter_mut().enumerate() {
        let prompt = &scene::prompts(name as u64, 1, 128 * 64)[0];
        let keys = BlockKeys::compute(prompt, index.spec());
        scene::hold(writer, &keys, keys.len(), 0)?;
        let matches = index.query_tokens(prompt);
        let held = matches.get(name).context("no such stream")?.1;
        ensure!(held.device_hit_tokens == 128 * 64, "a prompt is missing");
    }
    let entries = cli.blocks * cli.streams;
    let own: usize = writers.iter().map(StreamWriter::memory_bytes).sum();
    Subject {
        measure: "full directory",
        variant: "no block in two streams",
        block_size: 128,
        streams: cli.streams,
        entries,
    }
    .print(json!({
        "resident_bytes": resident,
        "index_bytes": index.memory_bytes(),
        "writers_bytes": own,
        "bytes_per_entry": resident / entries,
    }));
    Ok(())
}

fn resident_bytes() -> Result<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).context("no resident pages")?;
    Ok(pages.parse::<usize>()? * PAGE_BYTES)
}
