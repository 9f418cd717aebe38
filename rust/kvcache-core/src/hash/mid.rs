//! XXH3-128 of 32 to 128 bytes in whole pairs of words, written out for one size at a time.
//!
//! The same as the library's, which tests hold it against; what depends on the seed alone is prepared.

use super::secret;

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME_MIX: u64 = 0x1656_6791_9E37_79F9;

/// The part of a seeded secret that such inputs meet.
#[derive(Clone, Debug)]
pub(super) struct MidKeys {
    seed: u64,
    words: [u64; 16],
}

impl MidKeys {
    pub(super) fn new(seed: u64) -> Self {
        let mut words = [0; 16];
        for (place, word) in words.iter_mut().zip(secret::words(seed)) {
            *place = word;
        }
        Self { seed, words }
    }
}

/// Pairs of 32-bit integers as the 64-bit ones that they are in memory, on a little-endian machine.
#[inline]
pub(super) fn words<const TOKENS: usize, const WORDS: usize>(
    tokens: &[u32; TOKENS],
) -> [u64; WORDS] {
    const { assert!(TOKENS == 2 * WORDS) };
    std::array::from_fn(|word| {
        u64::from(tokens[2 * word]) | (u64::from(tokens[2 * word + 1]) << 32)
    })
}

/// XXH3-128 of `words` as little-endian bytes.
#[inline]
pub(super) fn hash<const WORDS: usize>(words: &[u64; WORDS], keys: &MidKeys) -> u128 {
    const { assert!(WORDS >= 4 && WORDS <= 16 && WORDS.is_multiple_of(4)) };
    let bytes = WORDS as u64 * 8;
    let mix = |word: usize, key: usize| {
        fold(
            words[word] ^ keys.words[key],
            words[word + 1] ^ keys.words[key + 1],
        )
    };
    let sum = |word: usize| words[word].wrapping_add(words[word + 1]);
    let (mut low, mut high) = (bytes.wrapping_mul(PRIME_1), 0_u64);
    // From the middle outward, a pair of words from each end at a time.
    for step in (0..WORDS / 4).rev() {
        let (front, back) = (2 * step, WORDS - 2 - 2 * step);
        low = low.wrapping_add(mix(front, 4 * step)) ^ sum(back);
        high = high.wrapping_add(mix(back, 4 * step + 2)) ^ sum(front);
    }
    let first = avalanche(low.wrapping_add(high));
    let second = low
        .wrapping_mul(PRIME_1)
        .wrapping_add(high.wrapping_mul(PRIME_4))
        .wrapping_add(bytes.wrapping_sub(keys.seed).wrapping_mul(PRIME_2));
    let second = avalanche(second).wrapping_neg();
    u128::from(first) | (u128::from(second) << 64)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let folded = (product as u64) ^ ((product >> 64) as u64);
    folded
}

#[inline]
fn avalanche(mut bits: u64) -> u64 {
    bits ^= bits >> 37;
    bits = bits.wrapping_mul(PRIME_MIX);
    bits ^ (bits >> 32)
}
