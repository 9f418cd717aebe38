//! The hash of one block's own tokens.
//!
//! Independent of what precedes the block, so that several can be computed at once. Knows nothing of
//! chains or block sizes: it hashes whatever it is given.

use twox_hash::XxHash3_128;

use crate::model::BlockHash;

/// XXH3-128, seeded, of `tokens` as 32-bit little-endian integers.
#[must_use]
pub fn block_hash(tokens: &[u32], seed: u64) -> BlockHash {
    // On a little-endian machine the tokens in memory are the hash's input; no copy.
    #[cfg(target_endian = "little")]
    let bytes: &[u8] = bytemuck::cast_slice(tokens);
    #[cfg(target_endian = "big")]
    let bytes: &[u8] = &tokens
        .iter()
        .flat_map(|token| token.to_le_bytes())
        .collect::<Vec<u8>>();
    BlockHash(XxHash3_128::oneshot_with_seed(seed, bytes))
}
