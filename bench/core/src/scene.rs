//! An index with streams that hold prompts to be asked for.

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context, Result};
use kvcache_core::hash::BlockKeys;
use kvcache_core::index::{PrefixIndex, StreamWriter};
use kvcache_core::model::{BlockSpec, Sequence, StreamKey, Tier, WireHash};

pub const MAX_BLOCKS: usize = 1 << 26;

/// An index of blocks of `block_size` tokens.
///
/// # Errors
/// Blocks without tokens.
pub fn index(block_size: u32) -> Result<Arc<PrefixIndex>> {
    Ok(PrefixIndex::new(BlockSpec {
        block_size_tokens: NonZeroU32::new(block_size).context("blocks without tokens")?,
        hash_seed: 1024,
    }))
}

/// A new stream with an empty view.
///
/// # Errors
/// No room.
pub fn stream(index: &Arc<PrefixIndex>, name: &str) -> Result<StreamWriter> {
    let mut writer = index.add_stream(StreamKey::new(name, 0), MAX_BLOCKS)?;
    let empty = writer.new_draft();
    writer.publish(empty, Some(Sequence(0)))?;
    Ok(writer)
}

/// Prompts of `tokens` tokens that share nothing.
#[must_use]
pub fn prompts(seed: u64, count: usize, tokens: usize) -> Vec<Vec<u32>> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count)
        .map(|_| (0..tokens).map(|_| random.u32(..151_936)).collect())
        .collect()
}

/// Eight streams that hold all prompts on Device.
///
/// # Errors
/// What the index refuses.
pub fn holders(index: &Arc<PrefixIndex>, prompts: &[Vec<u32>]) -> Result<Vec<StreamWriter>> {
    let names = (0..8).map(|name| {
        let mut writer = stream(index, &format!("other {name}"))?;
        for prompt in prompts {
            let keys = BlockKeys::compute(prompt, index.spec());
            hold(&mut writer, &keys, keys.len(), 0)?;
        }
        Ok(writer)
    });
    names.collect()
}

/// Stores the first `device` blocks of a prompt on Device and the `host` blocks after them in Host only.
///
/// # Errors
/// What the index refuses.
pub fn hold(writer: &mut StreamWriter, keys: &BlockKeys, device: usize, host: usize) -> Result<()> {
    let wires: Vec<WireHash> = keys
        .content_keys()
        .iter()
        .map(|key| WireHash(u64::try_from(key.0 >> 64).unwrap_or_default()))
        .collect();
    let hashes = keys.block_hashes();
    let all = device + host;
    if device > 0 {
        writer.store_hashed(
            None,
            &wires[..device],
            &hashes[..device],
            Some(Tier::Device),
        )?;
    }
    if host > 0 {
        let parent = device.checked_sub(1).map(|last| wires[last]);
        let (wires, hashes) = (&wires[device..all], &hashes[device..all]);
        writer.store_hashed(parent, wires, hashes, Some(Tier::Host))?;
    }
    Ok(())
}
