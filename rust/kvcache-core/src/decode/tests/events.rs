//! The keys of an event, one rule a test.

use super::*;
use crate::model::{Event, Stored, Tier, WireHash};

/// Case 2: signed, unsigned and digest names of one block.
#[test]
fn spellings_of_a_hash_are_one_hash() {
    let mut digest = vec![0xaa; 24];
    digest.extend(5_u64.to_be_bytes());
    let forms = V::Array(vec![
        V::Int(-1),
        V::Int((1 << 64) - 1),
        V::Raw(vec![0xd1, 0xff, 0xff]),
        V::Bin(digest),
        V::Int(5),
        V::Raw(hex("cf0000000000000005")),
        V::Raw(hex("d30000000000000005")),
        V::Bin(5_u64.to_be_bytes().to_vec()),
        V::Int(0),
        V::Int(-(1 << 63)),
        V::Int(1 << 63),
        V::Int(-33),
    ]);
    let found = decode(&batch(vec![removed(forms, V::Nil)]))
        .expect("hashes")
        .wire_hashes;
    let max = u64::MAX;
    let expected = [max, max, max, 5, 5, 5, 5, 5, 0, 1 << 63, 1 << 63, max - 32];
    assert_eq!(found, expected.map(WireHash));
}

#[test]
fn what_is_not_a_hash_is_an_error() {
    for wrong in [
        V::Bin(vec![]),
        V::Bin(vec![1; 7]),
        V::Str("12345678"),
        V::F64(1.0),
        V::Bool(true),
        V::Nil,
        ints([1]),
        V::Raw(hex("d7000000000000000005")),
    ] {
        let error = error_of(&batch(vec![removed(V::Array(vec![wrong.clone()]), V::Nil)]));
        assert!(error.starts_with("block_hashes must be 64-bit"), "{error}");
        let parent = map(&[
            ("type", V::Str("BlockStored")),
            ("block_hashes", ints([])),
            ("parent_block_hash", wrong.clone()),
        ]);
        match (wrong, decode(&batch(vec![parent]))) {
            (V::Nil, result) => assert!(result.is_ok()),
            (_, Err(error)) => assert!(error.to_string().starts_with("parent_block_hash must")),
            (wrong, Ok(_)) => panic!("taken for a parent: {wrong:?}"),
        }
    }
    for hashes in [V::Nil, V::Int(5), map(&[])] {
        let error = error_of(&batch(vec![removed(hashes, V::Nil)]));
        assert!(
            error.starts_with("block_hashes must be an array"),
            "{error}"
        );
    }
    for kind in ["BlockStored", "BlockRemoved"] {
        let error = error_of(&batch(vec![map(&[("type", V::Str(kind))])]));
        assert_eq!(error, "event without key: block_hashes (at byte 11)");
    }
}

/// Case 16: tiers.
#[test]
fn medium_names_a_tier_in_any_case() {
    let tier_of = |medium| match decode(&batch(vec![removed(ints([1]), medium)])) {
        Ok(batch) => match batch.events.as_slice() {
            [Event::Removed { tier, .. }] => Ok(*tier),
            other => panic!("not one removal: {other:?}"),
        },
        Err(error) => Err(error.to_string()),
    };
    for gpu in [V::Nil, V::Str("gpu"), V::Str("GPU"), V::Str("Gpu")] {
        assert_eq!(tier_of(gpu), Ok(Some(Tier::Device)));
    }
    for cpu in ["cpu", "CPU", "cpu_pinned", "CPU_PINNED", "Cpu_Pinned"] {
        assert_eq!(tier_of(V::Str(cpu)), Ok(Some(Tier::Host)));
    }
    for other in ["disk", "REMOTE", "", "CPU_TIER1", "gpu ", "cpu-pinned"] {
        assert_eq!(tier_of(V::Str(other)), Ok(None));
    }
    for wrong in [
        V::Int(0),
        V::Bin(b"gpu".to_vec()),
        V::Bool(true),
        ints([]),
        V::F64(0.0),
    ] {
        let error = tier_of(wrong).expect_err("no string");
        assert!(
            error.starts_with("medium must be a string or nil"),
            "{error}"
        );
    }
    let absent = map(&[
        ("type", V::Str("BlockRemoved")),
        ("block_hashes", ints([1])),
    ]);
    let decoded = decode(&batch(vec![absent])).expect("no medium");
    assert_eq!(
        decoded.events,
        [Event::Removed {
            wire_hashes: 0..1,
            tier: Some(Tier::Device)
        }]
    );
}

/// Cases 13 and 16: removals and tiers in one batch keep their order and their own ranges.
#[test]
fn events_keep_their_order_and_share_the_arenas() {
    let decoded = decode(&batch(vec![
        removed(ints([42]), V::Nil),
        stored(ints([42]), ints([1, 2]), V::Int(2)),
        removed(ints([42, 42, 43]), V::Str("CPU_PINNED")),
        map(&[("type", V::Str("AllBlocksCleared"))]),
        removed(ints([]), V::Nil),
    ]))
    .expect("decodes");
    let (device, host) = (Some(Tier::Device), Some(Tier::Host));
    let store = Stored {
        wire_hashes: 1..2,
        token_ids: 0..2,
        parent: None,
        tier: device,
    };
    let removal = |wire_hashes, tier| Event::Removed { wire_hashes, tier };
    let expected = [
        removal(0..1, device),
        Event::Stored(store),
        removal(2..5, host),
        Event::Cleared,
        removal(5..5, device),
    ];
    assert_eq!(decoded.events, expected);
    assert_eq!(decoded.wire_hashes, [42, 42, 42, 42, 43].map(WireHash));
}

#[test]
fn order_of_keys_does_not_matter() {
    let keys = [
        ("type", V::Str("BlockStored")),
        ("block_hashes", ints([8, 9])),
        ("parent_block_hash", V::Int(-7)),
        ("token_ids", ints([1, 200, 60_000, 100_000])),
        ("block_size", V::Int(2)),
        ("medium", V::Str("cpu")),
        (
            "future",
            map(&[("type", V::Str("x")), ("token_ids", V::Nil)]),
        ),
    ];
    let expected = decode(&batch(vec![map(&keys)])).expect("decodes");
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..200 {
        let mut keys = keys.clone();
        random.shuffle(&mut keys);
        let found = decode(&batch(vec![
            map(&keys),
            map(&[("type", V::Str("AllBlocksCleared"))]),
        ]));
        let mut found = found.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(found.events.pop(), Some(Event::Cleared));
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn unknown_keys_of_any_type_are_ignored() {
    let keys = [
        V::Nil,
        V::Bool(true),
        V::Int(-5),
        V::F64(0.5),
        V::Bin(b"type".to_vec()),
        ints([1, 2]),
        map(&[("type", ints([]))]),
        V::Raw(hex("c7030501020300")[..6].to_vec()),
        V::Str("types"),
        V::Raw(vec![0xa2, 0xff, 0xfe]),
    ];
    for first in [true, false] {
        let mut pairs = vec![
            (V::Str("type"), V::Str("BlockRemoved")),
            (V::Str("block_hashes"), ints([1])),
        ];
        for key in &keys {
            pairs.insert(
                if first { 0 } else { pairs.len() },
                (key.clone(), key.clone()),
            );
        }
        let decoded = decode(&batch(vec![V::Map(pairs)])).expect("ignored");
        assert_eq!(decoded.wire_hashes, [WireHash(1)]);
    }
}

#[test]
fn duplicate_keys_are_errors_where_they_mean_something() {
    let event = |kind, type_at: usize, name, value: &V| {
        let mut pairs = vec![
            ("block_hashes", ints([])),
            (name, value.clone()),
            (name, value.clone()),
        ];
        if name == "block_hashes" {
            pairs.remove(0);
        }
        pairs.insert(type_at.min(pairs.len()), ("type", V::Str(kind)));
        batch(vec![map(&pairs)])
    };
    let fields = [
        ("block_hashes", ints([])),
        ("parent_block_hash", V::Nil),
        ("token_ids", V::Nil),
        ("block_size", V::Int(2)),
        ("medium", V::Nil),
        ("other", V::Nil),
    ];
    for (name, value) in &fields {
        for type_at in 0..4 {
            for kind in ["BlockStored", "BlockRemoved", "AllBlocksCleared"] {
                let known = match kind {
                    "BlockStored" => *name != "other",
                    "BlockRemoved" => ["block_hashes", "medium"].contains(name),
                    _ => false,
                };
                match decode(&event(kind, type_at, name, value)) {
                    Ok(_) => assert!(!known, "{kind} with two {name}, type at {type_at}"),
                    Err(error) => {
                        assert!(known, "{kind}: {error}");
                        let text = error.to_string();
                        assert!(
                            text.starts_with(&format!("duplicate key: {name} (at")),
                            "{text}"
                        );
                    }
                }
            }
        }
    }
    let clear = ("type", V::Str("AllBlocksCleared"));
    let error = error_of(&batch(vec![map(&[clear.clone(), clear])]));
    assert!(error.starts_with("duplicate key: type"), "{error}");
}

#[test]
fn keys_of_other_types_are_ignored_whatever_their_value() {
    let junk = || {
        [
            ("token_ids", V::F64(1.5)),
            ("block_size", V::Str("x")),
            ("parent_block_hash", V::Bool(true)),
        ]
    };
    for type_first in [true, false] {
        let mut removal = vec![
            ("type", V::Str("BlockRemoved")),
            ("block_hashes", ints([3])),
        ];
        let mut clear = vec![
            ("type", V::Str("AllBlocksCleared")),
            ("block_hashes", V::Nil),
            ("medium", V::Int(1)),
        ];
        removal.extend(junk());
        clear.extend(junk());
        if !type_first {
            removal.reverse();
            clear.reverse();
        }
        let decoded = decode(&batch(vec![map(&removal), map(&clear)])).expect("ignored");
        assert_eq!(decoded.wire_hashes, [WireHash(3)]);
        assert_eq!(decoded.events[1], Event::Cleared);
    }
}

#[test]
fn type_is_needed_known_and_shown_safely() {
    assert_eq!(
        error_of(&batch(vec![map(&[])])),
        "event without key: type (at byte 11)"
    );
    let error = error_of(&batch(vec![map(&[("type", V::Str("BlockTransferred"))])]));
    assert_eq!(error, "unknown event type: BlockTransferred (at byte 17)");
    let long: &'static str = Box::leak("\u{1b}[2J\nä".repeat(100_000).into_boxed_str());
    let error = error_of(&batch(vec![map(&[("type", V::Str(long))])]));
    assert!(
        error.len() < 1_000 && !error.chars().any(char::is_control),
        "{error}"
    );
    for wrong in [V::Nil, V::Int(1), V::Bin(b"BlockStored".to_vec()), ints([])] {
        let error = error_of(&batch(vec![map(&[("type", wrong)])]));
        assert_eq!(error, "type must be a string (at byte 17)");
    }
    for event in [V::Nil, V::Int(1), V::Str("AllBlocksCleared")] {
        assert_eq!(
            error_of(&batch(vec![event])),
            "event must be a map with a type (at byte 11)"
        );
    }
}
