//! What ends belief, and what ends that.

use std::time::Duration;

use bytes::Bytes;

use super::rig::{Rig, batch, cleared, pack, stored};
use crate::stream::{DoubtKind, StreamState};

#[test]
fn a_gap_ends_belief_before_it_is_applied() {
    // cases: gap beyond the replay window
    let mut rig = Rig::calm(9, &[1]);
    rig.live(15, &[stored(&[2], Some(1))]);
    rig.assert_doubted(DoubtKind::Gap);
    assert!(
        rig.machine.error().contains("expected 10, got 15"),
        "{}",
        rig.machine.error()
    );
    // A snapshot that does not reach the messages kept heals nothing.
    rig.answer(12, &[stored(&[1], None)]);
    assert!(rig.views.published.is_none());
    rig.pass_until_wanted();
    for sequence in 16..=21 {
        rig.live(sequence, &[]);
    }
    rig.live(22, &[stored(&[7], None)]);
    rig.answer(20, &[stored(&[1, 2], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(22), vec![1, 2, 7]));
}

#[test]
fn a_sequence_at_or_below_the_last_one_is_a_restart() {
    // cases: in-place restart
    let mut rig = Rig::calm(41, &[1]);
    rig.live(42, &[]);
    rig.live(0, &[stored(&[99], None)]);
    rig.assert_doubted(DoubtKind::SequenceReset);
    rig.answer(0, &[stored(&[99], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(0), vec![99]));
    rig.live(1, &[stored(&[98], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(1), vec![98, 99]));
}

#[test]
fn a_restart_while_a_snapshot_is_on_its_way_asks_again() {
    let mut rig = Rig::connected();
    rig.live(40, &[]);
    let old = rig.machine.wanted_fetch().unwrap();
    rig.live(0, &[stored(&[9], None)]);
    assert_ne!(rig.machine.wanted_fetch(), Some(old));
    rig.answer_to(old, 41, &[stored(&[1], None)]);
    assert!(
        rig.views.published.is_none(),
        "the answer of the engine before"
    );
    rig.pass_until_wanted();
    rig.answer(0, &[stored(&[9], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(0), vec![9]));
}

#[test]
fn an_idle_engine_may_start_at_zero_or_one() {
    for first in [0, 1] {
        let mut rig = Rig::connected();
        rig.answer(0, &[]);
        assert_eq!(rig.state(), StreamState::Synchronized);
        rig.live(first, &[stored(&[1], None)]);
        assert_eq!(
            (rig.sequence(), rig.holds()),
            (Some(first), vec![1]),
            "first message {first}"
        );
        rig.live(first + 1, &[stored(&[2], Some(1))]);
        assert_eq!(rig.holds(), [1, 2]);
    }
    let mut rig = Rig::connected();
    rig.live(0, &[stored(&[1], None)]);
    rig.answer(0, &[]);
    assert_eq!(
        (rig.sequence(), rig.holds()),
        (Some(0), vec![1]),
        "buffered before the answer"
    );
}

#[test]
fn a_bad_first_message_is_included_in_the_snapshot_asked_for_after_it() {
    let mut rig = Rig::connected();
    rig.answer(0, &[]);
    rig.pass(2500);
    rig.live(0, &[stored(&[5], Some(77))]);
    rig.assert_doubted(DoubtKind::UnknownParent);
    rig.answer(0, &[]);
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(0))
    );
}

#[test]
fn zero_is_not_the_start_when_something_was_published() {
    let mut rig = Rig::synchronized(0, &[1]);
    rig.live(0, &[stored(&[1], None)]);
    assert_eq!(
        (rig.state(), rig.machine.counters().covered),
        (StreamState::Synchronized, 1)
    );
    rig.live(2, &[]);
    rig.assert_doubted(DoubtKind::Gap);
}

#[test]
fn every_kind_of_bad_message_is_a_doubt() {
    let rank = pack::array(&[pack::int(0), pack::array(&[]), pack::int(3)]);
    let size = pack::map(&[
        ("type", pack::text("BlockStored")),
        ("block_hashes", pack::ints(&[1])),
        ("token_ids", pack::ints(&[1, 2, 3, 4])),
        ("block_size", pack::int(4)),
    ]);
    for (kind, payload) in [
        (DoubtKind::UnknownParent, batch(&[stored(&[5], Some(77))])),
        (DoubtKind::Decode, b"nonsense".to_vec()),
        (DoubtKind::Decode, Vec::new()),
        (DoubtKind::DpRank, rank),
        (DoubtKind::BlockSize, batch(&[size])),
    ] {
        let mut rig = Rig::calm(3, &[1]);
        rig.raw(4, payload);
        rig.assert_doubted(kind);
        assert!(
            rig.machine.wanted_fetch().is_some(),
            "a snapshot is asked for at once"
        );
        rig.answer(4, &[stored(&[1], None)]);
        assert_eq!(rig.sequence(), Some(4));
    }
    let mut rig = Rig::calm(3, &[1]);
    rig.machine
        .message(rig.now, &[Bytes::from_static(b"kv")], &mut rig.views);
    rig.assert_doubted(DoubtKind::Decode);
}

#[test]
fn a_message_not_understood_must_be_in_the_snapshot() {
    let mut rig = Rig::calm(3, &[1]);
    rig.raw(4, b"nonsense".to_vec());
    rig.answer(3, &[stored(&[1], None)]);
    assert_eq!(
        rig.state(),
        StreamState::Snapshotting,
        "message 4 is in neither"
    );
}

#[test]
fn other_topics_are_dropped_and_counted() {
    let mut rig = Rig::synchronized(3, &[1]);
    let frames = [
        Bytes::from_static(b"kv2"),
        9_u64.to_be_bytes().to_vec().into(),
        Bytes::from_static(b"x"),
    ];
    rig.machine.message(rig.now, &frames, &mut rig.views);
    assert_eq!(
        (rig.state(), rig.machine.counters().foreign_topic),
        (StreamState::Synchronized, 1)
    );
}

#[test]
fn a_disconnect_ends_belief_at_once() {
    let mut rig = Rig::calm(5, &[1]);
    rig.lose();
    rig.assert_doubted(DoubtKind::Disconnect);
    assert_eq!(rig.state(), StreamState::Connecting);
    assert_eq!(rig.machine.wanted_fetch(), None);
    // The restarted engine's numbers seem to go on: only the disconnect tells.
    rig.connect();
    rig.live(6, &[stored(&[9], None)]);
    assert!(rig.views.published.is_none());
    rig.answer(6, &[stored(&[9], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(6), vec![9]));
}

#[test]
fn failed_connections_are_reported_and_not_doubts() {
    let mut rig = Rig::new();
    rig.lose();
    rig.lose();
    assert_eq!(rig.machine.counters().doubts(DoubtKind::Disconnect), 0);
    assert_eq!(rig.machine.error(), "peer closed");
}

#[test]
fn failing_snapshots_are_retried_for_ever_and_never_at_once() {
    let mut rig = Rig::connected();
    rig.fail();
    let mut last = Duration::ZERO;
    for attempt in 0..40 {
        let waited = rig.pass_until_wanted();
        assert!(
            waited >= Duration::from_millis(50),
            "attempt {attempt} after {waited:?}"
        );
        assert!(
            waited <= Duration::from_secs(5),
            "attempt {attempt} after {waited:?}"
        );
        last = waited;
        rig.fail();
    }
    assert!(last >= Duration::from_millis(2500), "no backoff: {last:?}");
    assert_eq!(rig.machine.counters().snapshot_failures, 41);
    rig.pass_until_wanted();
    rig.answer(0, &[]);
    assert_eq!(rig.state(), StreamState::Synchronized);
}

#[test]
fn good_snapshots_and_bad_messages_are_no_busy_loop() {
    let mut rig = Rig::synchronized(0, &[1]);
    let start = rig.now;
    let mut sequence = 0;
    for _ in 0..20 {
        sequence += 2;
        rig.live(sequence, &[]);
        rig.pass_until_wanted();
        rig.answer(sequence, &[]);
        assert_eq!(rig.state(), StreamState::Synchronized);
    }
    assert!(
        rig.now - start > Duration::from_secs(30),
        "20 snapshots in {:?}",
        rig.now - start
    );
}

#[test]
fn a_full_batch_recovers_from_anything() {
    let mut rig = Rig::connected();
    rig.live(70, &[cleared(), stored(&[1, 2], None)]);
    assert_eq!(
        (rig.state(), rig.sequence(), rig.holds()),
        (StreamState::Synchronized, Some(70), vec![1, 2])
    );
    rig.live(71, &[stored(&[3], Some(2))]);
    assert_eq!(rig.holds(), [1, 2, 3]);
    // Over a gap, and back to the start, without a moment of disbelief.
    rig.live(90, &[cleared()]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(90), vec![]));
    rig.live(0, &[cleared(), stored(&[4], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(0), vec![4]));
    assert_eq!(rig.views.history, [Some(70), Some(90), Some(0)]);
    rig.live(2, &[]);
    rig.assert_doubted(DoubtKind::Gap);
}

#[test]
fn a_full_batch_among_the_buffered_ones_starts_anew() {
    let mut rig = Rig::connected();
    rig.live(7, &[stored(&[2], Some(1))]);
    let fetch = rig.machine.wanted_fetch().unwrap();
    rig.live(8, &[cleared(), stored(&[5], None)]);
    assert_eq!(rig.holds(), [5]);
    rig.answer_to(fetch, 7, &[stored(&[1, 2], None)]);
    assert_eq!(
        rig.holds(),
        [5],
        "the snapshot before it is of no use any more"
    );
}
