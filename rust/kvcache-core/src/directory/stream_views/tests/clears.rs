//! Clears, through the state machine and the index: nothing from before one can be referred to after it.

use super::whole::Whole;
use crate::stream::StreamState;
use crate::stream::tests::rig::{cleared, removed, stored};

/// Synchronized with an engine that has published nothing yet.
fn idle() -> Whole {
    let mut whole = Whole::connected();
    whole.rig.answer(0, &[]);
    whole
}

#[track_caller]
fn assert_unknown_parent(whole: &Whole, parent: u64) {
    assert_eq!(whole.rig.state(), StreamState::Snapshotting);
    let error = whole.rig.machine.error();
    let named = format!("unknown parent block: {parent}");
    assert!(error.contains(&named), "{error}");
    assert_eq!(whole.hits(&[2, 3]), 0);
    assert_eq!(whole.device_blocks(), 0);
    let asks = whole.rig.machine.wanted_fetch().is_some();
    assert!(asks || whole.rig.machine.deadline().is_some());
}

#[test]
fn a_store_below_a_cleared_parent_is_a_doubt() {
    // cases: child of a cleared parent
    let mut whole = idle();
    whole.rig.live(0, &[stored(&[2], None)]);
    whole.rig.live(1, &[cleared()]);
    whole.rig.live(2, &[stored(&[3], Some(2))]);
    assert_unknown_parent(&whole, 2);
}

#[test]
fn so_it_is_when_the_parent_had_lost_its_copy_before() {
    // Both views hold nothing: the clear must count all the same.
    let mut whole = idle();
    whole.rig.live(0, &[stored(&[2], None)]);
    whole.rig.live(1, &[removed(&[2])]);
    whole.rig.live(2, &[cleared()]);
    whole.rig.live(3, &[stored(&[3], Some(2))]);
    assert_unknown_parent(&whole, 2);
}

#[test]
fn so_it_is_after_a_clear_in_the_middle_of_a_batch() {
    let mut whole = idle();
    whole.rig.live(0, &[stored(&[2], None), cleared()]);
    whole.rig.live(1, &[stored(&[3], Some(2))]);
    assert_unknown_parent(&whole, 2);
}

#[test]
fn so_it_is_after_any_number_of_clears() {
    let mut whole = idle();
    whole.rig.live(0, &[stored(&[2], None)]);
    whole.rig.live(1, &vec![cleared(); 500]);
    for sequence in 2..22 {
        whole.rig.live(sequence, &[cleared()]);
    }
    whole.rig.live(22, &[stored(&[3], Some(2))]);
    assert_unknown_parent(&whole, 2);
}

#[test]
fn so_it_is_when_the_clear_was_kept_for_a_snapshot() {
    for clear in [vec![cleared()], vec![stored(&[9], None), cleared()]] {
        let mut whole = Whole::connected();
        whole.rig.live(5, &[stored(&[2], None)]);
        whole.rig.live(6, &clear);
        if whole.rig.state() == StreamState::Snapshotting {
            whole.rig.answer(5, &[stored(&[2], None)]);
        }
        whole.rig.live(7, &[stored(&[3], Some(2))]);
        assert_unknown_parent(&whole, 2);
    }
}

#[test]
fn a_cleared_parent_may_be_stored_again_with_other_contents() {
    let mut whole = idle();
    whole.rig.live(0, &[stored(&[2, 3], None)]);
    whole.rig.live(1, &[cleared()]);
    // The name that meant `2` below nothing means another path now.
    whole.rig.live(2, &[stored(&[3, 2], None)]);
    assert_eq!(whole.rig.state(), StreamState::Synchronized);
    assert_eq!((whole.hits(&[3, 2]), whole.hits(&[2, 3])), (4, 0));
}

#[test]
fn children_of_a_snapshots_orphans_stay_orphans() {
    let mut whole = Whole::connected();
    whole.rig.answer(4, &[stored(&[9], Some(8))]);
    whole.rig.live(5, &[stored(&[10], Some(9))]);
    assert_eq!(whole.rig.state(), StreamState::Synchronized);
    assert_eq!(whole.device_blocks(), 0);
    // Not beyond a clear: the orphans were of the state before.
    whole.rig.live(6, &[cleared()]);
    whole.rig.live(7, &[stored(&[11], Some(10))]);
    assert_unknown_parent(&whole, 10);
}

#[test]
fn a_calibration_still_keeps_what_the_engine_may_refer_to() {
    let mut whole = idle();
    whole.rig.live(0, &[stored(&[2], None)]);
    whole.rig.live(1, &[removed(&[2])]);
    whole.rig.pass_until_wanted();
    whole.rig.answer(1, &[]);
    whole.rig.live(2, &[stored(&[3], Some(2))]);
    assert_eq!(whole.rig.state(), StreamState::Synchronized);
    assert_eq!(whole.device_blocks(), 1);
}
