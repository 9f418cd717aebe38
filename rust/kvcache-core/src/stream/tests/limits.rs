//! Orphans and bounds.

use super::rig::{Rig, batch, removed, stored};
use crate::model::Limits;
use crate::stream::{DoubtKind, StreamState};

#[test]
fn orphans_cause_no_snapshot_after_snapshot() {
    // cases: unknown parent
    let mut rig = Rig::connected();
    rig.answer(
        5,
        &[
            stored(&[1], None),
            stored(&[2], Some(1)),
            stored(&[9], Some(8)),
            stored(&[10], Some(9)),
        ],
    );
    assert_eq!(
        (rig.state(), rig.holds()),
        (StreamState::Synchronized, vec![1, 2])
    );
    rig.live(6, &[stored(&[11], Some(10))]);
    rig.live(7, &[stored(&[12], Some(11))]);
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(7))
    );
    rig.live(8, &[stored(&[14], Some(13))]);
    rig.assert_doubted(DoubtKind::UnknownParent);
}

#[test]
fn the_buffer_has_a_budget() {
    let mut rig = Rig::with(Limits {
        max_buffered_bytes: 2000,
        ..Limits::default()
    });
    rig.connect();
    for sequence in 1..40 {
        rig.live(sequence, &[stored(&[sequence], None)]);
        assert!(rig.machine.buffered_bytes() <= 2000);
    }
    assert!(rig.machine.counters().doubts(DoubtKind::BufferLimit) >= 1);
    rig.pass_until_wanted();
    rig.answer(39, &[stored(&[1], None)]);
    assert_eq!(rig.sequence(), Some(39));
    // While calibrating the live view is sound: only the calibration is given up.
    rig.pass_until_wanted();
    for sequence in 40..80 {
        rig.live(sequence, &[stored(&[sequence], None)]);
    }
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(79))
    );
    assert!(rig.machine.counters().calibration_failures >= 1);
}

#[test]
fn too_many_blocks_are_a_doubt_wherever_they_come_from() {
    let limits = Limits {
        max_blocks_per_stream: 3,
        ..Limits::default()
    };
    let mut rig = Rig::with(limits);
    rig.connect();
    rig.answer(1, &[stored(&[1, 2, 3, 4], None)]);
    rig.assert_doubted(DoubtKind::BlockLimit);
    rig.pass_until_wanted();
    rig.answer(1, &[stored(&[1, 2, 3], None)]);
    rig.live(2, &[stored(&[4], Some(3))]);
    assert_eq!(rig.machine.counters().doubts(DoubtKind::BlockLimit), 2);
    rig.pass_until_wanted();
    rig.answer(2, &[stored(&[1], None)]);
    rig.pass_until_wanted();
    rig.answer(2, &[stored(&[1, 2, 3, 4], None)]);
    assert_eq!(rig.machine.counters().doubts(DoubtKind::BlockLimit), 3);
    assert!(rig.views.published.is_none());
}

#[test]
fn without_a_view_slot_it_tries_again() {
    let mut rig = Rig::connected();
    rig.views.no_slots = 1;
    rig.answer(1, &[]);
    assert_eq!(rig.state(), StreamState::Snapshotting);
    rig.pass_until_wanted();
    rig.answer(1, &[]);
    assert_eq!(rig.state(), StreamState::Synchronized);
}

#[test]
fn further_doubts_do_not_postpone_the_snapshot() {
    let mut rig = Rig::connected();
    for _ in 0..8 {
        rig.fail();
        rig.pass_until_wanted();
    }
    rig.fail();
    let due = rig.machine.deadline();
    rig.raw(1, b"nonsense".to_vec());
    assert_eq!(rig.machine.deadline(), due);
}

#[track_caller]
fn assert_small_scratch(rig: &Rig) {
    let kept = rig.machine.scratch_bytes();
    assert!(kept <= 1 << 20, "kept for ever: {kept}");
}

#[test]
fn memory_for_huge_messages_is_given_back() {
    let huge: Vec<Vec<u8>> = (0..40_000).map(|_| removed(&[1])).collect();
    // One that fails at its last byte leaves its room behind, and nothing in it.
    let mut rig = Rig::calm(4, &[1]);
    rig.raw(5, [batch(&huge), vec![0]].concat());
    rig.assert_doubted(DoubtKind::Decode);
    assert_small_scratch(&rig);
    // A small one that is merged after a huge one has much more room than it needs.
    let mut rig = Rig::connected();
    rig.live(6, &huge);
    rig.live(7, &[stored(&[1], None)]);
    rig.answer(5, &[]);
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(7))
    );
    assert_small_scratch(&rig);
    // What is small stays.
    rig.live(8, &[stored(&[2], Some(1))]);
    assert!(rig.machine.scratch_bytes() > 0);
}
