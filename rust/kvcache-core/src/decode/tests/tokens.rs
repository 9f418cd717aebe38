//! Token ids, and the block size that they come with.

use super::*;
use crate::model::{Event, Stored};

fn store_of(payload: &[u8]) -> Stored {
    match decode(payload).expect("decodes").events.as_slice() {
        [Event::Stored(store)] => store.clone(),
        other => panic!("not one store: {other:?}"),
    }
}

/// Case 5: blocks of another size get no credit by division.
#[test]
fn block_size_must_be_the_configured_one() {
    let payload = |size, tokens| batch(vec![stored(ints([1]), ints(0..tokens), size)]);
    let of_16 = |size, tokens| {
        decode_for(&payload(size, tokens), expectation(0, 16)).map_err(|error| error.to_string())
    };
    assert!(of_16(V::Int(16), 16).is_ok());
    for size in [64, 0, -16, 1 << 40, (1 << 64) - 1] {
        let error = of_16(V::Int(size), 64).expect_err("foreign size");
        assert!(
            error.starts_with(&format!("block size {size}, configured 16 (at byte ")),
            "{error}"
        );
    }
    let error = of_16(V::Nil, 16).expect_err("no size");
    assert!(
        error.starts_with("block size missing, configured 16"),
        "{error}"
    );
    for size in [V::F64(16.0), V::Str("16"), V::Bool(true), ints([16])] {
        let error = of_16(size, 16).expect_err("no integer");
        assert!(
            error.starts_with("block_size must be an integer or nil"),
            "{error}"
        );
    }
    let absent = map(&[
        ("type", V::Str("BlockStored")),
        ("block_hashes", ints([1])),
        ("token_ids", ints([1, 2])),
    ]);
    assert_eq!(
        error_of(&batch(vec![absent])),
        "block size missing, configured 2 (at byte 11)"
    );
}

#[test]
fn tokenless_stores_take_any_block_size() {
    for tokens in [V::Nil, ints([])] {
        for size in [0, -16, 64, 1 << 40]
            .map(V::Int)
            .into_iter()
            .chain([V::Nil])
        {
            let store = store_of(&batch(vec![stored(ints([1, 2]), tokens.clone(), size)]));
            assert!(store.is_tokenless());
            assert_eq!(store.wire_hashes, 0..2);
        }
        let error = error_of(&batch(vec![stored(ints([1]), tokens.clone(), V::F64(2.0))]));
        assert!(error.starts_with("block_size must"), "{error}");
        let nothing = store_of(&batch(vec![stored(ints([]), tokens, V::Int(2))]));
        assert!(nothing.is_tokenless() && nothing.wire_hashes.is_empty());
    }
    let no_key = map(&[("type", V::Str("BlockStored")), ("block_hashes", ints([1]))]);
    assert!(store_of(&batch(vec![no_key])).is_tokenless());
}

#[test]
fn tokens_are_as_many_as_the_blocks_need() {
    for (blocks, tokens) in [(1, 1), (1, 3), (1, 8), (2, 2), (0, 2)] {
        let error = error_of(&batch(vec![stored(
            ints(0..blocks),
            ints(0..tokens),
            V::Int(2),
        )]));
        let expected = format!("{tokens} token ids for {blocks} blocks of 2 (at byte ");
        assert!(error.starts_with(&expected), "{error}");
    }
}

/// Case 28: ids that do not fit never alias another id.
#[test]
fn token_ids_are_u32_integers() {
    let filler = || vec![V::Int(1); 40];
    for wrong in [
        V::Int(1 << 32),
        V::Int((1 << 32) + 1),
        V::Int(-1),
        V::Int(-(1 << 40)),
        V::F64(1.0),
        V::Str("1"),
        V::Bin(vec![1]),
        V::Bool(true),
        V::Nil,
        ints([1, 2]),
        map(&[]),
    ] {
        for at in [0, 3, 20, 39] {
            let mut tokens = filler();
            tokens[at] = wrong.clone();
            let error = error_of(&batch(vec![stored(
                ints(0..20),
                V::Array(tokens),
                V::Int(2),
            )]));
            let expected = "token_ids must be integers from 0 to 4294967295 (at byte ";
            assert!(error.starts_with(expected), "{wrong:?}: {error}");
        }
    }
    for wrong in [V::Int(1), V::Str("12"), map(&[]), V::Bool(false)] {
        let error = error_of(&batch(vec![stored(ints([1]), wrong, V::Int(2))]));
        assert!(error.starts_with("token_ids must be an array"), "{error}");
    }
}

#[test]
fn token_ids_of_every_encoding_and_mixture() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..200 {
        let width = random.u32(0..=32);
        let tokens: Vec<u32> = (0..2 * random.usize(0..400))
            .map(|_| {
                let bits = if round % 2 == 0 {
                    width
                } else {
                    random.u32(0..=32)
                };
                random.u32(..).unbounded_shr(32 - bits)
            })
            .collect();
        let wire = tokens.iter().map(|token| match random.u8(0..24) {
            // The encodings that nobody needs are legal too.
            0 => V::Raw([&[0xcf_u8, 0, 0, 0, 0][..], &token.to_be_bytes()].concat()),
            1 => V::Raw([&[0xd3_u8, 0, 0, 0, 0][..], &token.to_be_bytes()].concat()),
            2 => V::Raw([&[0xce_u8][..], &token.to_be_bytes()].concat()),
            3 if *token < 0x80 => V::Raw(vec![0xd0, token.to_be_bytes()[3]]),
            _ => V::Int((*token).into()),
        });
        let hashes = (0..tokens.len() as i128 / 2).collect::<Vec<_>>();
        let payload = batch(vec![stored(
            ints(hashes),
            V::Array(wire.collect()),
            V::Int(2),
        )]);
        let decoded = decode(&payload).expect("decodes");
        assert_eq!(decoded.token_ids, tokens, "seed {seed}, round {round}");
    }
}
