//! Snapshots and messages, merged.

use super::rig::{Rig, removed, stored};
use crate::stream::{DoubtKind, StreamState};

#[test]
fn asks_for_a_snapshot_as_soon_as_it_is_connected() {
    let mut rig = Rig::new();
    assert_eq!(rig.state(), StreamState::Connecting);
    assert_eq!(rig.machine.wanted_fetch(), None);
    rig.connect();
    assert_eq!(rig.state(), StreamState::Snapshotting);
    rig.answer(5, &[stored(&[1, 2], None)]);
    assert_eq!(
        (rig.state(), rig.sequence(), rig.holds()),
        (StreamState::Synchronized, Some(5), vec![1, 2])
    );
    assert_eq!(rig.machine.error(), "");
}

#[test]
fn merges_the_snapshot_with_what_was_buffered() {
    let mut rig = Rig::connected();
    rig.live(4, &[stored(&[1], None)]);
    rig.live(5, &[stored(&[2], Some(1))]);
    rig.live(6, &[stored(&[3], Some(2))]);
    assert!(rig.views.published.is_none());
    rig.answer(5, &[stored(&[1, 2], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(6), vec![1, 2, 3]));
    assert_eq!(
        rig.views.history,
        [Some(6)],
        "one publication, of the whole"
    );
    rig.live(7, &[removed(&[3])]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(7), vec![1, 2]));
}

#[test]
fn a_buffer_that_starts_too_late_needs_another_snapshot() {
    let mut rig = Rig::connected();
    rig.live(12, &[stored(&[1], None)]);
    rig.answer(9, &[]);
    assert_eq!(rig.state(), StreamState::Snapshotting);
    assert!(
        rig.machine.error().contains("watermark 9"),
        "{}",
        rig.machine.error()
    );
    rig.pass_until_wanted();
    rig.answer(12, &[stored(&[1], None)]);
    assert_eq!(rig.sequence(), Some(12));
}

#[test]
fn messages_overtaken_by_their_snapshot_are_dropped() {
    let mut rig = Rig::synchronized(5, &[1, 2]);
    rig.live(4, &[stored(&[1], None)]);
    rig.live(5, &[stored(&[2], Some(1))]);
    rig.live(6, &[removed(&[2])]);
    assert_eq!(
        (rig.state(), rig.sequence(), rig.holds()),
        (StreamState::Synchronized, Some(6), vec![1])
    );
    assert_eq!(rig.machine.counters().covered, 2);
}

#[test]
fn overtaken_messages_must_be_in_order_and_soon() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.live(3, &[]);
    rig.live(3, &[]);
    rig.assert_doubted(DoubtKind::SequenceReset);

    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass(2000);
    rig.live(3, &[]);
    rig.assert_doubted(DoubtKind::SequenceReset);
}
