//! What one attempt accepts, from a peer that speaks ZMTP by hand.

use std::thread;

use super::*;
use crate::ingest::peer::{self, PATIENCE, Peer};
use crate::model::Limits;

const MAX_MESSAGE_BYTES: usize = 100_000;
const TOPIC: &[u8] = b"kv-events";

/// What an attempt makes of a reply of these messages, each as `[topic, sequence, payload]` after the delimiter.
fn fetch_from(messages: Vec<[Vec<u8>; 3]>) -> Result<Snapshot, ReplayFailure> {
    let engine = Peer::listen();
    let source = StreamSource {
        endpoint: engine.endpoint(),
        replay_endpoint: engine.endpoint(),
        topic: TOPIC.into(),
        limits: Limits {
            max_message_bytes: MAX_MESSAGE_BYTES,
            replay_timeout_ms: 10_000,
            ..Limits::default()
        },
        seed: 7,
    };
    let engine = thread::spawn(move || {
        let mut stream = engine.welcome("ROUTER");
        for [topic, sequence, payload] in &messages {
            peer::say(&mut stream, &[b"", topic, sequence, payload]);
        }
        peer::wait_for_hangup(&mut stream);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let fetched = runtime.block_on(async { timeout(PATIENCE, fetch(&source)).await.unwrap() });
    engine.join().unwrap();
    fetched
}

fn snapshot(watermark: u64, payload_bytes: usize) -> [Vec<u8>; 3] {
    [
        TOPIC.to_vec(),
        watermark.to_be_bytes().to_vec(),
        vec![7; payload_bytes],
    ]
}

fn end(topic: &[u8]) -> [Vec<u8>; 3] {
    let number = Sequence::END.0.to_be_bytes();
    [topic.to_vec(), number.to_vec(), Vec::new()]
}

#[track_caller]
fn assert_too_large(fetched: Result<Snapshot, ReplayFailure>) {
    match fetched {
        Err(ReplayFailure::TooLarge(reason)) => {
            assert!(reason.contains("100000"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_payload_of_max_message_bytes_fits_with_its_envelope() {
    let fetched = fetch_from(vec![snapshot(5, MAX_MESSAGE_BYTES), end(TOPIC)]).unwrap();
    assert_eq!(fetched.watermark, Sequence(5));
    assert_eq!(fetched.payload.len(), MAX_MESSAGE_BYTES);
}

#[test]
fn one_byte_more_does_not() {
    assert_too_large(fetch_from(vec![snapshot(5, MAX_MESSAGE_BYTES + 1)]));
}

#[test]
fn messages_that_fit_one_by_one_are_too_large_together() {
    let topic = vec![7; MAX_MESSAGE_BYTES * 6 / 10];
    assert_too_large(fetch_from(vec![
        snapshot(5, MAX_MESSAGE_BYTES * 6 / 10),
        end(&topic),
    ]));
    assert_too_large(fetch_from(vec![
        snapshot(5, MAX_MESSAGE_BYTES * 6 / 10),
        snapshot(6, MAX_MESSAGE_BYTES * 6 / 10),
        end(TOPIC),
    ]));
}
