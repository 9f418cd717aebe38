//! Bytes that nobody should send: cut, changed, deep, or full of promises.

use super::*;
use crate::decode::DecodeErrorKind;
use crate::model::Event;

/// Valid batches that use every form the decoder knows.
fn corpus() -> Vec<Vec<u8>> {
    let mut digest = vec![7; 32];
    digest[31] = 9;
    let mut late = vec![
        ("token_ids", ints([1, 200, 60_000, 100_000])),
        ("block_hashes", V::Array(vec![V::Bin(digest), V::Int(-5)])),
        ("block_size", V::Int(2)),
        (
            "extra",
            map(&[("a", V::Array(vec![V::F64(0.5), V::Nil, map(&[])]))]),
        ),
        ("medium", V::Str("cpu_pinned")),
    ];
    late.push(("type", V::Str("BlockStored")));
    let long = stored(
        ints(1000..1040),
        ints((0..80).map(|id| id * 997)),
        V::Int(2),
    );
    let trailing = V::Array(vec![
        V::Int(1_700_000_000_123),
        V::Array(vec![
            map(&[("type", V::Str("AllBlocksCleared"))]),
            long.clone(),
        ]),
        V::Nil,
        V::Bin(vec![0; 16]),
        V::Raw(vec![0xd6, 1, 0, 0, 0, 0]),
    ]);
    vec![
        batch(vec![]),
        batch(vec![map(&late), removed(ints([-5]), V::Str("GPU"))]),
        batch(vec![long, stored(ints([3]), V::Nil, V::Nil)]),
        trailing.bytes(),
    ]
}

/// What holds for any input: no more records than bytes, and events that fit the arenas and the stream.
fn check(payload: &[u8], context: &str) -> bool {
    let Ok(batch) = decode(payload) else {
        return false;
    };
    let records = batch.events.len() + batch.wire_hashes.len() + batch.token_ids.len();
    assert!(records <= payload.len(), "{context}");
    // What was reserved, too, is bounded by the bytes.
    assert!(
        batch.token_ids.capacity() <= 2 * payload.len() + 8,
        "{context}"
    );
    for event in &batch.events {
        let (wire_hashes, token_ids) = match event {
            Event::Stored(store) => (store.wire_hashes.clone(), store.token_ids.clone()),
            Event::Removed { wire_hashes, .. } => (wire_hashes.clone(), 0..0),
            Event::Cleared => continue,
        };
        let blocks = batch.wire_hashes[wire_hashes].len();
        let tokens = batch.token_ids[token_ids].len();
        assert!(tokens == 0 || tokens == 2 * blocks, "{context}");
    }
    true
}

#[test]
fn every_truncation_is_an_error() {
    for payload in corpus() {
        decode(&payload).expect("whole");
        for length in 0..payload.len() {
            let error = decode(&payload[..length]).expect_err("cut");
            assert_eq!(
                error.kind,
                DecodeErrorKind::Truncated,
                "cut to {length}: {error}"
            );
        }
    }
}

#[test]
fn changed_bytes_never_panic() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut accepted = 0;
    for payload in corpus() {
        for at in 0..payload.len() {
            for value in 0..=u8::MAX {
                let mut changed = payload.clone();
                changed[at] = value;
                accepted += usize::from(check(&changed, &format!("byte {at} = {value}")));
            }
        }
        for round in 0..20_000 {
            let mut changed = payload.clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..changed.len());
                changed[at] = random.u8(..);
            }
            changed.truncate(random.usize(1..=changed.len() * 2).min(changed.len()));
            accepted += usize::from(check(&changed, &format!("seed {seed}, round {round}")));
        }
    }
    assert!(accepted > 0, "some changes are harmless");
}

#[test]
fn random_bytes_never_panic() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..50_000 {
        // A plausible start, or nearly all of them end at the first byte.
        let mut payload = hex("93c0918384");
        payload.truncate(random.usize(0..=5));
        payload.extend((0..random.usize(0..64)).map(|_| random.u8(..)));
        check(&payload, &format!("seed {seed}, round {round}"));
    }
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    let nested = |levels: usize| {
        let mut bytes = vec![0x91; levels];
        bytes.push(0xc0);
        let key = map(&[
            ("type", V::Str("AllBlocksCleared")),
            ("x", V::Raw(bytes.clone())),
        ]);
        [
            batch(vec![key]),
            batch(vec![V::Map(vec![(V::Raw(bytes), V::Nil)])]),
        ]
    };
    assert!(decode(&nested(32)[0]).is_ok());
    for levels in [33, 1_000_000] {
        for payload in nested(levels) {
            let error = decode(&payload).expect_err("too deep");
            assert_eq!(error.kind, DecodeErrorKind::Depth(32));
        }
    }
    let maps = [0x81, 0xc0].repeat(1_000_000);
    let error = decode(&batch(vec![map(&[("x", V::Raw(maps))])])).expect_err("deep maps");
    assert_eq!(error.kind, DecodeErrorKind::Depth(32));
}

#[test]
fn announced_lengths_are_not_believed() {
    let event = |key: &'static str, value: &str| {
        map(&[("type", V::Str("BlockStored")), (key, V::Raw(hex(value)))])
    };
    let huge = [
        ("block_hashes", "ddffffffff"),
        ("token_ids", "ddffffffff"),
        ("token_ids", "dcffff"),
        ("other", "ddffffffff"),
        ("other", "dfffffffff"),
        ("other", "deffff"),
        ("other", "dbffffffff"),
        ("other", "c6ffffffff"),
        ("other", "c9ffffffff00"),
        ("medium", "dbffffffff"),
    ];
    let mut into = Batch::default();
    for (key, value) in huge {
        let payload = batch(vec![event(key, value)]);
        let error = xllm::decode(&payload, &expectation(0, 2), &mut into).expect_err("a promise");
        assert_eq!(error.kind, DecodeErrorKind::Truncated, "{key} {value}");
    }
    for payload in [
        "ddffffffff",
        "93c0ddffffffff",
        "93c091dfffffffff",
        "93c091de0002c0c0c0",
    ] {
        let error =
            xllm::decode(&hex(payload), &expectation(0, 2), &mut into).expect_err("a promise");
        assert_eq!(error.kind, DecodeErrorKind::Truncated, "{payload}");
    }
    let capacity = (
        into.events.capacity(),
        into.wire_hashes.capacity(),
        into.token_ids.capacity(),
    );
    assert_eq!(capacity, (0, 0, 0));
}

#[test]
fn byte_that_begins_no_value() {
    let never = || V::Raw(vec![0xc1]);
    for payload in [
        never().bytes(),
        batch(vec![never()]),
        batch(vec![stored(V::Array(vec![never()]), V::Nil, V::Nil)]),
        batch(vec![stored(
            ints([1]),
            V::Array(vec![V::Int(1), never()]),
            V::Int(2),
        )]),
        batch(vec![map(&[("other", never())])]),
    ] {
        let error = decode(&payload).expect_err("0xc1");
        assert_eq!(error.kind, DecodeErrorKind::Malformed(0xc1));
        assert_eq!(payload[error.offset], 0xc1, "{error}");
    }
}
