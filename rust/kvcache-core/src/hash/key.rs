//! The chain that turns block hashes into identities of whole prefixes.
//!
//! Invariant: equal keys mean equal token prefixes, block for block, under the same block size and
//! seed. Knows nothing of tokens.

use twox_hash::XxHash3_128;

use crate::model::{BlockHash, ContentKey};

/// XXH3-128, seeded, of the parent's key and the block's hash, 16 little-endian bytes each. A root has
/// 16 zero bytes for its parent.
#[must_use]
pub fn content_key(parent: Option<ContentKey>, block: BlockHash, seed: u64) -> ContentKey {
    let mut bytes = [0; 32];
    let (parent_bytes, block_bytes) = bytes.split_at_mut(16);
    if let Some(parent) = parent {
        parent_bytes.copy_from_slice(&parent.0.to_le_bytes());
    }
    block_bytes.copy_from_slice(&block.0.to_le_bytes());
    ContentKey(XxHash3_128::oneshot_with_seed(seed, &bytes))
}
