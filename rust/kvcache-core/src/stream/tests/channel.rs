//! Live messages that never come.

use bytes::Bytes;

use super::rig::{Rig, cleared, stored};
use crate::model::Limits;
use crate::stream::{DoubtKind, StreamState};

/// A calibration that advances the view to `watermark`, and some block with it.
fn advance(rig: &mut Rig, watermark: u64) {
    rig.pass_until_wanted();
    rig.answer(watermark, &[stored(&[1, watermark], None)]);
}

/// Two calibrations in a row have advanced the view from 5 to 9, and no live message has come.
fn silent() -> Rig {
    let mut rig = Rig::calm(5, &[1]);
    advance(&mut rig, 7);
    advance(&mut rig, 9);
    rig.pass(1000);
    rig.assert_doubted(DoubtKind::LiveChannel);
    rig
}

fn topics(names: &[&str]) -> Vec<Box<[u8]>> {
    let bytes = names.iter().map(|name| name.as_bytes().into());
    bytes.collect()
}

/// Says whether the subscription is to be made anew.
fn probed(rig: &mut Rig, seen: Result<Vec<Box<[u8]>>, String>) -> bool {
    let id = rig.machine.wanted_probe().expect("no probe is wanted");
    let is_lost = rig.machine.probed(id, seen, &mut rig.views);
    assert_eq!(rig.machine.wanted_probe(), None);
    assert_eq!(rig.views.error, rig.machine.error());
    is_lost
}

#[test]
fn two_calibrations_ahead_and_no_message_end_belief() {
    let mut rig = Rig::calm(5, &[1]);
    advance(&mut rig, 7);
    rig.pass(20_000);
    assert_eq!(
        rig.state(),
        StreamState::Synchronized,
        "once proves nothing"
    );
    advance(&mut rig, 9);
    rig.pass(999);
    assert_eq!(
        (rig.state(), rig.machine.wanted_probe()),
        (StreamState::Synchronized, None),
        "they may be late"
    );
    rig.pass(1);
    rig.assert_doubted(DoubtKind::LiveChannel);
    for part in ["\"kv\"", "from sequence 5 to 9"] {
        assert!(
            rig.machine.error().contains(part),
            "{}",
            rig.machine.error()
        );
    }
    // What the first calibration brought is lost beyond doubt.
    assert_eq!(rig.machine.counters().sequences_lost, 2);
    rig.pass(1000);
    assert_eq!(rig.machine.counters().sequences_lost, 4);
    // Another view of 7, and one of 9 in its place.
    assert_eq!(rig.machine.counters().blocks_lost, 3);
}

#[test]
fn the_error_says_what_a_probe_has_seen() {
    let mut rig = silent();
    assert!(!probed(&mut rig, Ok(topics(&["kw", "metrics"]))));
    let error = rig.machine.error();
    assert!(
        error.contains("\"kv\"") && error.contains(": \"kw\", \"metrics\""),
        "{error}"
    );
    assert_eq!(rig.machine.last_error(), error);

    let mut rig = silent();
    assert!(!probed(&mut rig, Ok(topics(&[]))));
    let error = rig.machine.error();
    assert!(
        error.contains("nothing arrives at the live endpoint on any topic"),
        "{error}"
    );

    let mut rig = silent();
    assert!(probed(&mut rig, Ok(topics(&["other", "kv"]))));
    assert!(
        rig.machine.error().contains("does receive it"),
        "{}",
        rig.machine.error()
    );

    let mut rig = silent();
    assert!(!probed(&mut rig, Err("connection refused".to_owned())));
    assert!(
        rig.machine.error().ends_with(": connection refused"),
        "{}",
        rig.machine.error()
    );
}

#[test]
fn a_strange_topic_is_shown_short_and_escaped() {
    let mut rig = silent();
    let strange = [b"\n\xff".as_slice(), &[b'x'; 300]].concat();
    assert!(!probed(&mut rig, Ok(vec![strange.into()])));
    let error = rig.machine.error();
    assert!(
        error.contains("\"\\n\u{fffd}xxx") && error.ends_with("x\"…"),
        "{error}"
    );
    assert!(error.len() < 300, "{error}");
}

#[test]
fn a_probe_is_wanted_again_as_long_as_nothing_was_seen() {
    let mut rig = silent();
    let first = rig.machine.wanted_probe();
    rig.pass_until_wanted();
    rig.answer(11, &[]);
    assert_eq!(rig.machine.wanted_probe(), first, "it is still looking");
    assert!(!probed(&mut rig, Ok(Vec::new())));
    rig.pass_until_wanted();
    rig.answer(11, &[]);
    assert_eq!(
        rig.machine.wanted_probe(),
        None,
        "a quiet engine shows nothing"
    );
    rig.pass_until_wanted();
    rig.answer(12, &[]);
    assert!(!probed(&mut rig, Ok(topics(&["kw"]))));
    rig.pass_until_wanted();
    rig.answer(13, &[]);
    assert_eq!(rig.machine.wanted_probe(), None);
    // A late answer is not taken for a newer one.
    let is_lost = rig
        .machine
        .probed(first.unwrap(), Ok(topics(&["kv"])), &mut rig.views);
    assert!(!is_lost);
    assert!(
        rig.machine.error().contains("kw"),
        "{}",
        rig.machine.error()
    );
}

#[test]
fn snapshots_alone_never_make_it_believable_again() {
    let mut rig = silent();
    for watermark in [9, 12, 12, 12, 13, 3, 3] {
        let waited = rig.pass_until_wanted();
        assert!(
            waited.as_secs() >= 25,
            "no more often than it calibrates: {waited:?}"
        );
        rig.answer(watermark, &[stored(&[1], None)]);
        rig.assert_doubted(DoubtKind::LiveChannel);
    }
    // Failing ones say so, and change as little.
    rig.pass_until_wanted();
    rig.fail();
    assert_eq!(rig.machine.error(), "no answer in time");
    rig.pass_until_wanted();
    rig.answer(3, &[stored(&[1], None)]);
    rig.assert_doubted(DoubtKind::LiveChannel);
    assert_eq!(rig.views.history.last(), Some(&None));
}

#[test]
fn a_live_message_makes_it_believable_again() {
    let mut rig = silent();
    rig.pass(100);
    rig.live(10, &[stored(&[3], Some(1))]);
    assert_eq!(
        (rig.state(), rig.machine.wanted_probe()),
        (StreamState::Snapshotting, None)
    );
    rig.answer(9, &[stored(&[1, 2], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(10), vec![1, 2, 3]));
    assert_eq!(rig.machine.error(), "");
    // While a snapshot is on its way, too.
    let mut rig = silent();
    rig.pass_until_wanted();
    rig.live(20, &[stored(&[3], Some(1))]);
    rig.answer(20, &[stored(&[1, 3], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(20), vec![1, 3]));
    // Or one that is not understood: the channel works.
    let mut rig = silent();
    rig.raw(10, b"nonsense".to_vec());
    rig.pass_until_wanted();
    rig.answer(10, &[stored(&[1], None)]);
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(10))
    );
    // Or one that describes everything.
    let mut rig = silent();
    rig.live(77, &[cleared(), stored(&[4], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(77), vec![4]));
    assert!(rig.machine.deadline().is_some());
}

#[test]
fn a_message_of_another_topic_is_no_live_message() {
    let foreign = |rig: &mut Rig| {
        let frames = [
            Bytes::from_static(b"kv2"),
            8_u64.to_be_bytes().to_vec().into(),
            Bytes::from_static(b"x"),
        ];
        rig.machine.message(rig.now, &frames, &mut rig.views);
    };
    let mut rig = Rig::calm(5, &[1]);
    for watermark in [7, 9] {
        advance(&mut rig, watermark);
        foreign(&mut rig);
    }
    rig.pass(1000);
    rig.assert_doubted(DoubtKind::LiveChannel);
    foreign(&mut rig);
    rig.pass_until_wanted();
    rig.answer(9, &[stored(&[1], None)]);
    rig.assert_doubted(DoubtKind::LiveChannel);
}

#[test]
fn a_quiet_engine_is_believed_for_ever() {
    let mut rig = Rig::calm(5, &[1]);
    for _ in 0..50 {
        rig.pass_until_wanted();
        rig.answer(5, &[stored(&[1], None)]);
    }
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(5))
    );
    // What is rarely said is missed as well.
    advance(&mut rig, 6);
    for _ in 0..5 {
        advance(&mut rig, 6);
    }
    advance(&mut rig, 7);
    rig.pass(1000);
    rig.assert_doubted(DoubtKind::LiveChannel);
}

/// Every calibration overtakes the live messages, by as much as they can be late; each of them
/// comes.
#[test]
fn messages_that_are_always_late_are_no_silence() {
    for (interval_ms, lateness_ms) in [
        (1, 0),
        (1, 300),
        (50, 300),
        (1000, 800),
        (30_000, 999),
        (30_000, 1999),
    ] {
        let mut rig = Rig::with(Limits {
            resync_interval_ms: interval_ms,
            ..Limits::default()
        });
        rig.connect();
        rig.answer(0, &[]);
        let mut due = std::collections::VecDeque::new();
        for watermark in 1..200 {
            let mut at = rig.machine.deadline().unwrap();
            while rig.machine.wanted_fetch().is_none() {
                // Late messages come when it is time, whatever the machine waits for.
                while due.front().is_some_and(|(late, _)| *late <= at) {
                    let (late, sequence) = due.pop_front().unwrap();
                    rig.now = rig.now.max(late);
                    rig.live(sequence, &[]);
                }
                rig.now = rig.now.max(at);
                rig.pass(0);
                at = rig.machine.deadline().unwrap_or(at);
            }
            // Published right before the snapshot.
            due.push_back((
                rig.now + std::time::Duration::from_millis(lateness_ms),
                watermark,
            ));
            rig.answer(watermark, &[]);
            assert_eq!(
                rig.state(),
                StreamState::Synchronized,
                "{interval_ms} {lateness_ms} {watermark}: {}",
                rig.machine.error()
            );
        }
        let counters = rig.machine.counters();
        assert_eq!(
            (
                counters.sequences_lost,
                counters.doubts(DoubtKind::LiveChannel)
            ),
            (0, 0)
        );
    }
}

#[test]
fn one_message_between_is_enough() {
    let mut rig = Rig::calm(5, &[1]);
    for round in 0..20 {
        let before = 5 + 3 * round;
        // The first two of three messages are lost, and the third comes right after the
        // calibration.
        rig.pass_until_wanted();
        rig.answer(before + 2, &[stored(&[1], None)]);
        rig.pass(999);
        rig.live(before + 3, &[]);
        assert_eq!(rig.state(), StreamState::Synchronized);
    }
    rig.pass(1000);
    assert_eq!(rig.machine.counters().doubts(DoubtKind::LiveChannel), 0);
    assert_eq!(rig.machine.counters().sequences_lost, 40);
}

#[test]
fn a_message_may_come_after_the_second_calibration() {
    let mut rig = Rig::calm(5, &[1]);
    advance(&mut rig, 6);
    advance(&mut rig, 7);
    rig.pass(999);
    rig.live(8, &[]);
    rig.pass(5000);
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(8))
    );
    assert_eq!(rig.machine.counters().sequences_lost, 2);
}

#[test]
fn a_reconnect_starts_the_count_anew() {
    let mut rig = Rig::calm(5, &[1]);
    for watermark in [10, 20, 30, 40] {
        advance(&mut rig, watermark);
        rig.lose();
        rig.connect();
        rig.pass_until_wanted();
        rig.answer(watermark + 5, &[stored(&[1], None)]);
        rig.pass(5000);
        assert_eq!(rig.state(), StreamState::Synchronized);
    }
    assert_eq!(rig.machine.counters().doubts(DoubtKind::LiveChannel), 0);
}

#[test]
fn a_restarted_engine_is_not_miscounted() {
    let mut rig = Rig::calm(500, &[1]);
    advance(&mut rig, 510);
    rig.lose();
    rig.connect();
    rig.pass_until_wanted();
    rig.answer(0, &[]);
    advance(&mut rig, 3);
    rig.live(1, &[]);
    rig.live(2, &[]);
    rig.live(3, &[]);
    rig.pass(5000);
    assert_eq!(rig.state(), StreamState::Synchronized);
    assert_eq!(rig.machine.counters().sequences_lost, 0);
}

#[test]
fn after_a_reconnect_only_a_quiet_engine_is_believed_unheard() {
    let mut rig = silent();
    assert!(!probed(&mut rig, Ok(topics(&["kw"]))));
    rig.lose();
    assert_eq!(rig.machine.wanted_probe(), None);
    rig.connect();
    // As loud as before, and as mute.
    for watermark in [20, 21, 22] {
        rig.pass_until_wanted();
        rig.answer(watermark, &[stored(&[1], None)]);
        assert_eq!(rig.state(), StreamState::Snapshotting);
        assert!(
            rig.machine.error().contains("\"kv\""),
            "{}",
            rig.machine.error()
        );
    }
    assert!(
        rig.machine.wanted_probe().is_some(),
        "other topics may arrive now"
    );
    rig.pass_until_wanted();
    rig.answer(22, &[stored(&[1], None)]);
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(22))
    );
    assert_eq!(rig.machine.wanted_probe(), None);
    // It is judged anew.
    advance(&mut rig, 23);
    rig.pass(10_000);
    assert_eq!(rig.state(), StreamState::Synchronized);
    advance(&mut rig, 24);
    rig.pass(1000);
    assert_eq!(rig.machine.counters().doubts(DoubtKind::LiveChannel), 2);
}
