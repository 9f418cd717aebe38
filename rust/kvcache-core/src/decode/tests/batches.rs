//! The batch around the events: rank, trailing elements, and captures from other engines.

use super::*;
use crate::decode::DecodeErrorKind;
use crate::model::{Event, Stored, Tier, WireHash};

fn with_rank(rank: V) -> Vec<u8> {
    V::Array(vec![V::F64(1.5), V::Array(vec![]), rank]).bytes()
}

#[test]
fn rank_must_be_the_streams() {
    let two = V::Array(vec![V::F64(1.5), V::Array(vec![])]).bytes();
    for payload in [&two, &with_rank(V::Nil), &with_rank(V::Int(0))] {
        decode(payload).expect("counts as rank 0");
        let error = decode_for(payload, expectation(1, 2)).expect_err("not rank 1");
        assert!(matches!(
            error.kind,
            DecodeErrorKind::Rank {
                found: 0,
                configured: DpRank(1)
            }
        ));
    }
    decode_for(&with_rank(V::Int(3)), expectation(3, 2)).expect("rank 3");
    for found in [1, -1, 1 << 32, (1 << 64) - 1] {
        let error = decode(&with_rank(V::Int(found))).expect_err("not rank 0");
        assert_eq!(
            error.to_string(),
            format!("dp_rank {found}, configured 0 (at byte 11)")
        );
    }
    for rank in [V::F64(0.0), V::Bool(false), V::Str("0"), ints([])] {
        assert_eq!(
            error_of(&with_rank(rank)),
            "dp_rank must be an integer or nil (at byte 11)"
        );
    }
}

#[test]
fn batch_is_an_array_of_at_least_two() {
    let expected = "batch must be an array of timestamp, events and dp_rank (at byte 0)";
    let events = || V::Array(vec![]);
    for value in [
        V::Array(vec![]),
        V::Array(vec![V::Nil]),
        V::Nil,
        map(&[("ts", V::Nil), ("events", events())]),
    ] {
        assert_eq!(error_of(&value.bytes()), expected);
    }
    assert_eq!(error_of(&[]), "message ends within a value (at byte 0)");
    let no_events = V::Array(vec![V::Nil, V::Nil]).bytes();
    assert_eq!(error_of(&no_events), "events must be an array (at byte 2)");
}

#[test]
fn timestamp_is_any_number_or_nil() {
    let with_time = |time| V::Array(vec![time, V::Array(vec![])]).bytes();
    let f32 = V::Raw(vec![0xca, 0, 0, 0, 0]);
    for time in [V::Nil, V::Int(-1), V::Int(1 << 63), V::F64(f64::NAN), f32] {
        decode(&with_time(time)).expect("a time");
    }
    for time in [V::Str("1.5"), V::Bool(true), V::Bin(vec![0; 8]), ints([1])] {
        let error = error_of(&with_time(time));
        assert_eq!(error, "timestamp must be a number or nil (at byte 1)");
    }
}

#[test]
fn trailing_elements_are_ignored_and_trailing_bytes_are_not() {
    let nested = map(&[("x", V::Array(vec![V::Map(vec![(V::Nil, V::Bool(true))])]))]);
    let mut elements = vec![V::Nil, V::Array(vec![]), V::Int(0)];
    elements.extend([V::Bin(vec![0]), nested, V::Raw(hex("d60000000000"))]);
    let mut payload = V::Array(elements).bytes();
    decode(&payload).expect("more elements");
    let length = payload.len();
    payload.push(0xc0);
    let error = error_of(&payload);
    assert_eq!(
        error,
        format!("bytes after the batch: 1 (at byte {length})")
    );
}

/// Cases 1: one capture in each form; only the map form is of this protocol.
#[test]
fn array_events_are_refused_and_map_events_with_unknown_keys_are_read() {
    let array = hex(
        "93cb3ff80000000000009197ab426c6f636b53746f72656491cf1122334455667788c0940102030404c0a363707500",
    );
    let error = decode(&array).expect_err("array form");
    assert_eq!(
        (error.kind.clone(), error.offset),
        (DecodeErrorKind::ArrayEvent, 11)
    );
    assert!(
        error.to_string().contains("event is an array, not a map"),
        "{error}"
    );

    let future = V::Array(vec![
        V::Nil,
        V::Array(vec![map(&[
            ("type", V::Str("BlockStored")),
            ("block_hashes", ints([2])),
            ("parent_block_hash", V::Int(1)),
            ("token_ids", ints([3, 4])),
            ("block_size", V::Int(2)),
            ("medium", V::Str("GPU")),
            ("future_key", map(&[("x", ints([1]))])),
        ])]),
        V::Int(0),
        V::Bin(vec![0]),
    ]);
    let decoded = decode(&future.bytes()).expect("map form");
    let parent = Some(WireHash(1));
    let store = |parent| Stored {
        wire_hashes: 0..1,
        token_ids: 0..2,
        parent,
        tier: Some(Tier::Device),
    };
    assert_eq!(decoded.events, [Event::Stored(store(parent))]);
    assert_eq!(
        (decoded.wire_hashes, decoded.token_ids),
        (vec![WireHash(2)], vec![3, 4])
    );
}

/// Captured from vLLM after it went over to maps.
#[test]
fn captured_map_events() {
    let hash = WireHash(0xf0e0_d0c0_b0a0_9080);
    let store_and_remove = hex(concat!(
        "93cb3ff8000000000000928ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf",
        "f0e0d0c0b0a09080b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473920102aa626c6f",
        "636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472",
        "615f6b65797391c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f",
        "617474656e74696f6e84a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cff0",
        "e0d0c0b0a09080a66d656469756da3475055a967726f75705f6964780000"
    ));
    let decoded = decode(&store_and_remove).expect("A5");
    let tier = Some(Tier::Device);
    let store = Stored {
        wire_hashes: 0..1,
        token_ids: 0..2,
        parent: None,
        tier,
    };
    let removal = Event::Removed {
        wire_hashes: 1..2,
        tier,
    };
    assert_eq!(decoded.events, [Event::Stored(store), removal]);
    assert_eq!(
        (decoded.wire_hashes, decoded.token_ids),
        (vec![hash, hash], vec![1, 2])
    );

    let placeholder_and_clear = hex(concat!(
        "93cb3ff80000000000009288a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf",
        "f0e0d0c0b0a09080b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f69647390aa626c6f636b",
        "5f73697a6500a76c6f72615f6964c0a66d656469756da3435055a96c6f72615f6e616d65c081a474797065b0",
        "416c6c426c6f636b73436c656172656400"
    ));
    let decoded = decode(&placeholder_and_clear).expect("A6");
    let store = Stored {
        wire_hashes: 0..1,
        token_ids: 0..0,
        parent: None,
        tier: Some(Tier::Host),
    };
    assert!(store.is_tokenless());
    assert_eq!(decoded.events, [Event::Stored(store), Event::Cleared]);
}

#[test]
fn memory_is_reused_and_former_contents_forgotten() {
    let mut reused = Batch::default();
    let many = batch(vec![stored(ints(0..100), ints(0..200), V::Int(2))]);
    xllm::decode(&many, &expectation(0, 2), &mut reused).expect("many");
    let room = reused.token_ids.capacity();
    let few = batch(vec![removed(ints([7]), V::Nil)]);
    xllm::decode(&few, &expectation(0, 2), &mut reused).expect("few");
    assert_eq!(reused, decode(&few).expect("few"));
    assert_eq!(reused.token_ids.capacity(), room);
}

/// A snapshot is decoded and applied a piece at a time, so that its bytes and all that they say need not fit in memory
/// together.
#[test]
fn pieces_are_small_whatever_the_batch_is() {
    let events = (0..600_i128).map(|event| {
        let hashes = ints(event * 100..event * 100 + 100);
        stored(hashes, ints((0..200).map(|token| token * event)), V::Int(2))
    });
    let payload = batch(events.collect());
    let whole = decode(&payload).expect("decodes");
    let mut pieces = xllm::Pieces::open(&payload, expectation(0, 2)).expect("opens");
    let (mut piece, mut sizes, mut events) = (Batch::default(), Vec::new(), 0);
    while pieces.next(&mut piece).expect("decodes") {
        sizes.push(piece.token_ids.len() + piece.wire_hashes.len());
        events += piece.events.len();
    }
    assert_eq!(events, whole.events.len());
    assert_eq!(sizes.iter().sum::<usize>(), 600 * 300);
    assert_eq!(sizes.len(), 3, "{sizes:?}");
    assert!(
        sizes.iter().all(|size| *size < (1 << 16) + 300),
        "{sizes:?}"
    );
    assert!(!pieces.next(&mut piece).expect("stays at its end"));
}

/// What is wrong behind the last event is found when the last piece is asked for, at the latest.
#[test]
fn pieces_end_with_the_errors_of_the_whole() {
    let events = || vec![stored(ints([1]), ints([1, 2]), V::Int(2))];
    let mut trailing = batch(events());
    trailing.push(0xc0);
    let foreign = V::Array(vec![V::Nil, V::Array(events()), V::Int(7)]).bytes();
    for payload in [trailing, foreign] {
        let expected = decode(&payload).expect_err("not a batch of this stream");
        let mut pieces = xllm::Pieces::open(&payload, expectation(0, 2)).expect("opens");
        let error = pieces.next(&mut Batch::default()).expect_err("at its end");
        assert_eq!(error, expected);
    }
}
