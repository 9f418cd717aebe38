//! The two hashes of one seed: of a block's own tokens, and along the chain of blocks.
//!
//! Everything is XXH3-128. Long inputs go to the library, which chooses SIMD at run time; the sizes that
//! come millions of times, a link of the chain and small blocks, are written out here, where what a seed
//! alone decides is computed once. Blocks are independent of each other, so that several overlap.

use twox_hash::XxHash3_128;

use super::mid::{self, MidKeys};
use super::secret;
use crate::model::{BlockHash, ContentKey};

/// Computes hashes of one seed.
#[derive(Clone, Debug)]
pub struct Hasher {
    seed: u64,
    mid: MidKeys,
    /// What the library would derive from the seed at each long input.
    long_secret: [u8; secret::BYTES],
}

impl Hasher {
    /// For the `hash_seed` of a [`crate::model::BlockSpec`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            mid: MidKeys::new(seed),
            long_secret: secret::derived(seed),
        }
    }

    /// XXH3-128, seeded, of `tokens` as 32-bit little-endian integers (spec: content keys).
    #[inline]
    #[must_use]
    pub fn block(&self, tokens: &[u32]) -> BlockHash {
        if let Ok(tokens) = <&[u32; 16]>::try_from(tokens) {
            return BlockHash(mid::hash(&mid::words::<16, 8>(tokens), &self.mid));
        }
        self.any_block(tokens)
    }

    /// The hashes of consecutive blocks of `block_size` tokens, as many as `hashes` has places.
    #[inline]
    pub fn blocks(&self, tokens: &[u32], block_size: usize, hashes: &mut [BlockHash]) {
        match block_size {
            8 => self.small_blocks::<8, 4>(tokens, hashes),
            16 => self.small_blocks::<16, 8>(tokens, hashes),
            32 => self.small_blocks::<32, 16>(tokens, hashes),
            _ => {
                for (hash, block) in hashes.iter_mut().zip(tokens.chunks_exact(block_size)) {
                    *hash = self.any_block(block);
                }
            }
        }
    }

    /// XXH3-128, seeded, of the parent's key and the block's hash, 16 little-endian bytes each. A root has 16 zero bytes
    /// for its parent (spec: content keys).
    #[inline]
    #[must_use]
    pub fn key(&self, parent: Option<ContentKey>, block: BlockHash) -> ContentKey {
        let [parent, block] = [parent.map_or(0, |parent| parent.0), block.0].map(halves);
        ContentKey(mid::hash(
            &[parent[0], parent[1], block[0], block[1]],
            &self.mid,
        ))
    }

    #[inline]
    fn small_blocks<const TOKENS: usize, const WORDS: usize>(
        &self,
        tokens: &[u32],
        hashes: &mut [BlockHash],
    ) {
        let (blocks, _) = tokens.as_chunks::<TOKENS>();
        for (hash, block) in hashes.iter_mut().zip(blocks) {
            *hash = BlockHash(mid::hash(&mid::words::<TOKENS, WORDS>(block), &self.mid));
        }
    }

    #[inline]
    fn any_block(&self, tokens: &[u32]) -> BlockHash {
        // On a little-endian machine the tokens in memory are the hash's input; no copy.
        #[cfg(target_endian = "little")]
        let bytes: &[u8] = bytemuck::cast_slice(tokens);
        #[cfg(target_endian = "big")]
        let bytes: &[u8] = &tokens
            .iter()
            .flat_map(|token| token.to_le_bytes())
            .collect::<Vec<u8>>();
        let hash = XxHash3_128::oneshot_with_seed_and_secret(self.seed, &self.long_secret, bytes);
        // Refused only if the secret were too short, which it is not.
        BlockHash(hash.unwrap_or_else(|_| XxHash3_128::oneshot_with_seed(self.seed, bytes)))
    }
}

#[inline]
const fn halves(bits: u128) -> [u64; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "each half on its own")]
    [bits as u64, (bits >> 64) as u64]
}
