//! Golden vectors, the same as `tests/golden/block_keys.json`, made with python-xxhash.

use std::num::NonZeroU32;

use twox_hash::XxHash3_128;

use super::{BlockKeys, Conversation, Hasher};
use crate::model::{BlockHash, BlockSpec, ContentKey};

/// Token `i` is `first_token + i × token_step`, modulo 2^32.
struct Case {
    hash_seed: u64,
    block_size: u32,
    token_count: u32,
    first_token: u32,
    token_step: u32,
    /// Block hash and content key of each full block.
    blocks: &'static [(u128, u128)],
}

impl Case {
    fn tokens(&self) -> Vec<u32> {
        let token = |i: u32| {
            self.first_token
                .wrapping_add(i.wrapping_mul(self.token_step))
        };
        (0..self.token_count).map(token).collect()
    }

    fn spec(&self) -> BlockSpec {
        spec(self.block_size, self.hash_seed)
    }
}

fn spec(block_size: u32, hash_seed: u64) -> BlockSpec {
    BlockSpec {
        block_size_tokens: NonZeroU32::new(block_size).unwrap(),
        hash_seed,
    }
}

#[test]
fn golden_vectors() {
    for case in CASES {
        let keys = BlockKeys::compute(&case.tokens(), case.spec());
        let got: Vec<(u128, u128)> = keys
            .block_hashes()
            .iter()
            .zip(keys.content_keys())
            .map(|(hash, key)| (hash.0, key.0))
            .collect();
        assert_eq!(
            got, case.blocks,
            "seed {} block size {}",
            case.hash_seed, case.block_size
        );
        assert_eq!(keys.len(), case.blocks.len());
        assert_eq!(keys.spec(), case.spec());
    }
}

#[test]
fn a_partial_block_is_left_out() {
    let whole = BlockKeys::compute(&[1, 2, 3, 4], spec(2, 1024));
    assert_eq!(BlockKeys::compute(&[1, 2, 3, 4, 5], spec(2, 1024)), whole);
    assert!(BlockKeys::compute(&[1], spec(2, 1024)).is_empty());
}

#[test]
fn a_key_names_the_whole_prefix() {
    let hasher = Hasher::new(1024);
    let hash = hasher.block(&[3, 4]);
    let parents = [[1, 2], [1, 3]].map(|tokens| hasher.key(None, hasher.block(&tokens)));
    let [first, second] = parents.map(|parent| hasher.key(Some(parent), hash));
    assert_ne!(first, second);
    assert_eq!(
        hasher.key(None, hash),
        hasher.key(Some(ContentKey(0)), hash)
    );
}

#[test]
fn the_seed_matters() {
    let [one, other] = [1024, 1025].map(Hasher::new);
    assert_ne!(one.block(&[1, 2]), other.block(&[1, 2]));
    let hash = BlockHash(7);
    assert_ne!(one.key(None, hash), other.key(None, hash));
}

/// What is written out here is what the library computes, whatever the size and the seed.
#[test]
fn sizes_written_out_agree_with_the_library() {
    let mut rng = fastrand::Rng::with_seed(3);
    for seed in [0, 1, 1024, u64::MAX, rng.u64(..)] {
        let hasher = Hasher::new(seed);
        for size in 1..=140 {
            let tokens: Vec<u32> = (0..3 * size).map(|_| rng.u32(..)).collect();
            let mut got = [BlockHash(0); 3];
            hasher.blocks(&tokens, size, &mut got);
            let parts = tokens.chunks_exact(size);
            for (hash, block) in got.iter().zip(parts) {
                let bytes: Vec<u8> = block.iter().flat_map(|token| token.to_le_bytes()).collect();
                let expected = BlockHash(XxHash3_128::oneshot_with_seed(seed, &bytes));
                assert_eq!(
                    (*hash, hasher.block(block)),
                    (expected, expected),
                    "{size} {seed}"
                );
            }
            let (parent, block) = (rng.u128(..), BlockHash(rng.u128(..)));
            let link = [parent.to_le_bytes(), block.0.to_le_bytes()].concat();
            let expected = XxHash3_128::oneshot_with_seed(seed, &link);
            assert_eq!(hasher.key(Some(ContentKey(parent)), block).0, expected);
        }
    }
}

/// However a prompt comes in and is cut, what is hashed is what hashing all of it at once gives.
#[test]
fn a_conversation_is_its_tokens_hashed_at_once() {
    let seed = std::env::var("KVCACHE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("KVCACHE_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..300 {
        let block_size = [1, 2, 3, 8, 16, 32, 128][rng.usize(..7)];
        let spec = spec(block_size, rng.u64(..));
        let (mut conversation, mut tokens) = (Conversation::new(spec), Vec::new());
        for _ in 0..rng.usize(1..20) {
            if rng.u8(..5) == 0 {
                let asked = rng.usize(..=tokens.len() + 3);
                let left = conversation.truncate(asked);
                let asked = asked.min(tokens.len());
                assert!(left <= asked && asked < left + block_size as usize);
                tokens.truncate(left);
            } else {
                let added: Vec<u32> = (0..rng.usize(..3 * block_size as usize + 2))
                    .map(|_| rng.u32(..))
                    .collect();
                conversation.extend(&added);
                tokens.extend(added);
            }
            assert_eq!(conversation.keys(), &BlockKeys::compute(&tokens, spec));
            assert_eq!(conversation.token_count(), tokens.len());
        }
    }
}

/// A cut inside the partial block is exact; inside a full one it takes the block.
#[test]
fn a_cut_says_how_many_tokens_are_left() {
    let mut conversation = Conversation::new(spec(4, 1024));
    conversation.extend(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let lefts = [11, 10, 9, 8, 7, 4, 3, 0].map(|count| conversation.truncate(count));
    assert_eq!(lefts, [10, 10, 9, 8, 4, 4, 0, 0]);
}

const CASES: &[Case] = &[
    Case {
        hash_seed: 1_024,
        block_size: 1,
        token_count: 1,
        first_token: 3,
        token_step: 1,
        blocks: &[(
            0xd9b8_382f_8846_fa90_ee68_6d17_c63b_3b11,
            0xe739_28a0_f636_bd0f_62d9_57c2_6a1d_7da7,
        )],
    },
    Case {
        hash_seed: 1_024,
        block_size: 2,
        token_count: 5,
        first_token: 1,
        token_step: 1,
        blocks: &[
            (
                0xecda_d750_0469_504a_8f78_69ca_598a_95ed,
                0xaa08_f692_83b5_3588_3d4f_8c5c_4577_0f1d,
            ),
            (
                0x63bf_7d08_2de9_f4d7_6e53_4d05_48b9_ca08,
                0xbc63_0877_9f96_5e4c_6b60_3961_9a0b_cb67,
            ),
        ],
    },
    Case {
        hash_seed: 1_024,
        block_size: 16,
        token_count: 33,
        first_token: 7,
        token_step: 13,
        blocks: &[
            (
                0x1523_d8c9_3cfe_f791_f990_dbc0_1479_b2fc,
                0x84e6_fca8_aba8_76f7_28e2_e986_38cc_376c,
            ),
            (
                0x52ba_7153_5b00_cf6a_038e_73ea_384a_256e,
                0xafea_8640_ae7f_872b_d1b9_68a6_6543_c3e1,
            ),
        ],
    },
    Case {
        hash_seed: 1_024,
        block_size: 128,
        token_count: 300,
        first_token: 100,
        token_step: 1,
        blocks: &[
            (
                0xb535_8513_1c38_a96d_0b35_ec75_40be_8c97,
                0xae1f_2c3e_4c71_f111_315c_78c2_3f9d_d436,
            ),
            (
                0xd2c3_2310_7978_ab4f_d7cc_fceb_c346_38b1,
                0x5641_ed1f_2105_44b5_a740_ce9b_ff43_417f,
            ),
        ],
    },
    Case {
        hash_seed: 0,
        block_size: 2,
        token_count: 4,
        first_token: 4_294_967_295,
        token_step: 4_294_967_295,
        blocks: &[
            (
                0xe841_cdbd_e8d6_4087_0e4b_1de5_50f8_d491,
                0x14fd_2068_7fa2_676b_ec81_ddc0_3cb1_63f4,
            ),
            (
                0xa1f1_1239_3464_874d_9f0b_962f_01dd_29c2,
                0xbe89_39ae_af56_a6b8_155c_3cb0_9fde_db40,
            ),
        ],
    },
    Case {
        hash_seed: 18_446_744_073_709_551_615,
        block_size: 16,
        token_count: 48,
        first_token: 0,
        token_step: 2_654_435_761,
        blocks: &[
            (
                0xd814_387b_b51a_d70a_a943_96db_1188_cf3e,
                0xd040_1983_96e6_70a5_0a47_5e5d_df99_16fa,
            ),
            (
                0x39c3_e27e_0da9_5b1c_c882_df23_f713_fab6,
                0xd684_5109_e64f_de3d_ac65_19df_44cd_c743,
            ),
            (
                0xd91d_4d17_c6c4_6a76_ffd1_d2db_72e7_3d4c,
                0x4128_c530_9f94_d09e_72cb_ae43_8c53_7751,
            ),
        ],
    },
    Case {
        hash_seed: 1,
        block_size: 128,
        token_count: 256,
        first_token: 0,
        token_step: 0,
        blocks: &[
            (
                0xc255_110f_8062_1745_8a3b_1157_7f6f_69db,
                0x0fb4_3458_cdf9_9eae_4319_7c8e_fdfd_6d10,
            ),
            (
                0xc255_110f_8062_1745_8a3b_1157_7f6f_69db,
                0x4d16_2b72_424d_7030_34a0_a834_e064_24e0,
            ),
        ],
    },
    Case {
        hash_seed: 1_024,
        block_size: 128,
        token_count: 127,
        first_token: 1,
        token_step: 1,
        blocks: &[],
    },
    Case {
        hash_seed: 42,
        block_size: 1,
        token_count: 2,
        first_token: 0,
        token_step: 4_294_967_295,
        blocks: &[
            (
                0xe570_3e4f_92e5_90a1_9871_214b_43bd_c0ac,
                0xcdc7_0a00_f270_4e05_ef16_f171_a51b_f3e1,
            ),
            (
                0xffa9_8baf_78df_de57_28ec_0d3e_d8c9_1745,
                0xcca2_fc2a_39ef_09b6_9332_f725_ef91_ba19,
            ),
        ],
    },
];
