//! A probe at an engine made of bare sockets.

use super::*;
use crate::ingest::peer::{Peer, say, wait_for_hangup};
use crate::model::Limits;

/// Looks at an engine on topic `kv` that says `messages`, each of the frames given, and no more.
fn look_at(
    limits: Limits,
    messages: &[&[&[u8]]],
    hangs_up: bool,
) -> Result<Vec<Box<[u8]>>, String> {
    let publisher = Peer::listen();
    let source = StreamSource {
        endpoint: publisher.endpoint(),
        replay_endpoint: publisher.endpoint(),
        topic: b"kv".as_slice().into(),
        limits,
        seed: 7,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = publisher.welcome("PUB");
            for frames in messages {
                say(&mut stream, frames);
            }
            if !hangs_up {
                wait_for_hangup(&mut stream);
            }
        });
        runtime.block_on(look(&source))
    })
}

fn quick() -> Limits {
    Limits {
        resync_interval_ms: 1,
        ..Limits::default()
    }
}

fn seen(topics: Result<Vec<Box<[u8]>>, String>) -> Vec<String> {
    let topics = topics.unwrap().into_iter();
    topics
        .map(|topic| String::from_utf8(topic.into()).unwrap())
        .collect()
}

#[test]
fn every_topic_is_seen_once() {
    let messages: [&[&[u8]]; 4] = [
        &[b"kw", b"1", b"x"],
        &[b"metrics"],
        &[b"kw", b"2"],
        &[b"kv2"],
    ];
    let topics = look_at(quick(), &messages, false);
    assert_eq!(seen(topics), ["kw", "metrics", "kv2"]);
}

#[test]
fn an_endpoint_that_says_nothing_has_no_topics() {
    assert_eq!(look_at(quick(), &[], false), Ok(Vec::new()));
}

#[test]
fn the_configured_topic_ends_the_look() {
    let messages: [&[&[u8]]; 3] = [&[b"kw"], &[b"kv"], &[b"later"]];
    assert_eq!(seen(look_at(patient(), &messages, false)), ["kw", "kv"]);
}

#[test]
fn topics_messages_and_bytes_are_bounded() {
    let many: Vec<[&[u8]; 1]> = [b"a", b"b", b"c", b"d", b"e"]
        .map(|name| [name.as_slice()])
        .into();
    let many: Vec<&[&[u8]]> = many.iter().map(<[&[u8]; 1]>::as_slice).collect();
    assert_eq!(seen(look_at(patient(), &many, false)), ["a", "b", "c", "d"]);

    let one: &[&[u8]] = &[b"kw"];
    assert_eq!(seen(look_at(patient(), &[one; 257], false)), ["kw"]);

    let payload = vec![0; 600];
    let limits = Limits {
        max_message_bytes: 1000,
        ..patient()
    };
    let large: &[&[u8]] = &[b"kw", &payload];
    assert_eq!(seen(look_at(limits, &[large; 2], false)), ["kw"]);

    let name = vec![b'x'; 5000];
    let topics = look_at(patient(), &[&[&name], &[b"kv"]], false);
    assert_eq!(seen(topics)[0].len(), 256);
}

#[test]
fn what_was_seen_before_it_broke_off_was_seen() {
    let messages: [&[&[u8]]; 1] = [&[b"kw"]];
    assert_eq!(seen(look_at(patient(), &messages, true)), ["kw"]);
    let reason = look_at(patient(), &[], true).unwrap_err();
    assert!(reason.contains("peer closed"), "{reason}");
}

/// Its moment is longer than any test: something else must end the look.
fn patient() -> Limits {
    Limits::default()
}
