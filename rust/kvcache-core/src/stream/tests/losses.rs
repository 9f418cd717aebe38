//! What only calibrations bring is counted, and what is merely late is not.

use super::rig::{Rig, removed, stored};
use crate::model::Limits;
use crate::stream::StreamState;

/// Sequences and copies found to be lost.
fn lost(rig: &Rig) -> (u64, u64) {
    let counters = rig.machine.counters();
    (counters.sequences_lost, counters.blocks_lost)
}

#[test]
fn a_calibration_that_confirms_the_view_finds_no_loss() {
    let mut rig = Rig::synchronized(5, &[1]);
    for _ in 0..3 {
        rig.pass_until_wanted();
        rig.answer(5, &[stored(&[1], None)]);
    }
    rig.live(6, &[stored(&[2], Some(1))]);
    rig.pass_until_wanted();
    rig.live(7, &[stored(&[3], Some(2))]);
    rig.answer(6, &[stored(&[1, 2], None)]);
    rig.pass(10_000);
    assert_eq!((lost(&rig), rig.sequence()), ((0, 0), Some(7)));
}

#[test]
fn the_first_snapshot_of_a_connection_brings_no_loss() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass(10_000);
    rig.lose();
    rig.connect();
    rig.answer(50, &[stored(&[1, 2, 3], None)]);
    rig.pass(10_000);
    rig.live(51, &[]);
    assert_eq!(
        (rig.state(), lost(&rig)),
        (StreamState::Synchronized, (0, 0))
    );
}

#[test]
fn late_messages_are_no_loss() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    rig.answer(8, &[stored(&[1, 2, 3, 4], None)]);
    assert_eq!(lost(&rig), (0, 0), "nobody knows yet");
    for sequence in 6..=8 {
        rig.pass(600);
        rig.live(sequence, &[stored(&[sequence - 4], Some(sequence - 5))]);
    }
    rig.live(9, &[]);
    rig.pass(10_000);
    assert_eq!((rig.sequence(), lost(&rig)), (Some(9), (0, 0)));
}

#[test]
fn messages_that_do_not_come_in_time_are_lost() {
    let mut rig = Rig::synchronized(5, &[1, 2]);
    rig.pass_until_wanted();
    rig.answer(8, &[stored(&[1, 3, 4], None)]);
    rig.pass(1999);
    assert_eq!(lost(&rig), (0, 0));
    assert!(rig.machine.deadline().is_some_and(|at| at > rig.now));
    rig.pass(1);
    // Two copies came and one went.
    assert_eq!(lost(&rig), (3, 3));
    rig.pass_until_wanted();
    rig.answer(8, &[stored(&[1, 3, 4], None)]);
    rig.pass(10_000);
    assert_eq!(
        (rig.state(), lost(&rig)),
        (StreamState::Synchronized, (3, 3))
    );
}

#[test]
fn overtaken_messages_are_lost_at_once() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    rig.answer(8, &[stored(&[1, 2], None)]);
    rig.live(9, &[removed(&[2])]);
    assert_eq!((rig.holds(), lost(&rig)), (vec![1], (3, 1)));
    // Over one connection messages keep their order: 12 has come, so that 13 and 14 are lost when
    // 15 comes.
    rig.pass_until_wanted();
    rig.live(10, &[]);
    rig.answer(14, &[stored(&[1, 3], None)]);
    rig.live(11, &[]);
    rig.live(12, &[]);
    assert_eq!(lost(&rig), (3, 1));
    rig.live(15, &[]);
    // Whose block it was nobody can tell.
    assert_eq!((rig.sequence(), lost(&rig)), (Some(15), (5, 1)));
}

#[test]
fn a_difference_at_one_sequence_is_a_loss() {
    let mut rig = Rig::synchronized(5, &[1, 2]);
    rig.pass_until_wanted();
    rig.answer(5, &[stored(&[1, 3], None)]);
    assert_eq!(lost(&rig), (0, 2));
}

#[test]
fn the_first_message_of_an_idle_engine_may_be_late() {
    let mut rig = Rig::connected();
    rig.answer(0, &[]);
    rig.pass_until_wanted();
    rig.answer(0, &[stored(&[1], None)]);
    rig.live(0, &[stored(&[1], None)]);
    rig.live(1, &[]);
    rig.pass(10_000);
    assert_eq!((rig.sequence(), lost(&rig)), (Some(1), (0, 0)));

    let mut rig = Rig::connected();
    rig.answer(0, &[]);
    rig.pass_until_wanted();
    rig.answer(0, &[stored(&[1], None)]);
    rig.pass(2000);
    assert_eq!(lost(&rig), (1, 1));
}

#[test]
fn what_a_connection_still_owed_is_not_known_to_be_lost() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    rig.answer(8, &[stored(&[1], None)]);
    rig.lose();
    rig.connect();
    rig.answer(8, &[stored(&[1], None)]);
    rig.pass(10_000);
    // A restart behind the connection.
    rig.live(9, &[]);
    rig.pass_until_wanted();
    rig.answer(11, &[stored(&[1], None)]);
    rig.live(0, &[]);
    assert_eq!(rig.state(), StreamState::Snapshotting);
    rig.pass(10_000);
    assert_eq!(lost(&rig), (0, 0));
}

#[test]
fn a_restart_that_clears_is_no_loss() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    rig.answer(8, &[stored(&[1], None)]);
    rig.live(0, &[super::rig::cleared()]);
    rig.pass(10_000);
    assert_eq!(
        (rig.state(), lost(&rig)),
        (StreamState::Synchronized, (0, 0))
    );
}

#[test]
fn more_calibrations_than_are_told_apart_lose_nothing_of_the_count() {
    let mut rig = Rig::with(Limits {
        resync_interval_ms: 1,
        ..Limits::default()
    });
    rig.connect();
    rig.answer(0, &[stored(&[1], None)]);
    for sequence in 1..=40 {
        rig.pass_until_wanted();
        rig.answer(sequence, &[stored(&[1, 1 + sequence], None)]);
    }
    rig.live(41, &[]);
    assert_eq!((rig.sequence(), lost(&rig)), (Some(41), (40, 79)));
}
