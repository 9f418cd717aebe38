//! Calibrations: they heal, and never flicker.

use std::time::Duration;

use super::rig::{Rig, removed, stored};
use crate::model::Limits;
use crate::stream::{DoubtKind, StreamState};

#[test]
fn calibration_heals_a_lost_tail_without_a_flicker() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.live(6, &[stored(&[2], Some(1))]);
    let waited = rig.pass_until_wanted();
    assert!(
        (27_000..=30_000).contains(&waited.as_millis()),
        "{waited:?}"
    );
    assert_eq!(
        rig.state(),
        StreamState::Synchronized,
        "it serves meanwhile"
    );
    // Messages 7 and 8 were lost without a trace.
    rig.answer(8, &[stored(&[1, 2, 3], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(8), vec![1, 2, 3]));
    assert_eq!(rig.views.history, [Some(5), Some(8)]);
    rig.live(9, &[removed(&[3])]);
    assert_eq!(
        (rig.state(), rig.holds()),
        (StreamState::Synchronized, vec![1, 2])
    );
    assert_eq!(rig.machine.counters().calibrations, 1);
}

#[test]
fn calibration_under_load_keeps_what_came_meanwhile() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    rig.live(6, &[stored(&[2], Some(1))]);
    rig.live(7, &[stored(&[3], Some(2))]);
    rig.answer(6, &[stored(&[1, 2], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(7), vec![1, 2, 3]));
    // The snapshot may be ahead of the live messages too: they are late, not lost.
    rig.pass_until_wanted();
    rig.answer(9, &[stored(&[1, 2, 3, 4], None)]);
    rig.live(8, &[stored(&[4], Some(3))]);
    rig.live(9, &[]);
    rig.live(10, &[removed(&[4])]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(10), vec![1, 2, 3]));
    assert!(
        !rig.views.history.contains(&None),
        "{:?}",
        rig.views.history
    );
}

#[test]
fn a_calibration_that_fails_is_counted_and_retried() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    rig.fail();
    assert_eq!(
        (rig.state(), rig.holds()),
        (StreamState::Synchronized, vec![1])
    );
    let waited = rig.pass_until_wanted();
    assert!(
        waited >= Duration::from_millis(100) && waited < Duration::from_secs(10),
        "{waited:?}"
    );
    // Older than what is applied, and nothing bridges it.
    rig.live(6, &[stored(&[2], Some(1))]);
    rig.answer(3, &[]);
    assert_eq!(
        (rig.state(), rig.holds()),
        (StreamState::Synchronized, vec![1, 2])
    );
    rig.pass_until_wanted();
    rig.answer(6, &[stored(&[1, 2], None)]);
    let counters = rig.machine.counters();
    assert_eq!(
        (counters.calibration_failures, counters.calibrations),
        (2, 1)
    );
    assert_eq!(rig.sequence(), Some(6));
}

#[test]
fn a_message_during_a_calibration_can_still_be_a_doubt() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    let calibration = rig.machine.wanted_fetch().unwrap();
    rig.live(9, &[]);
    rig.assert_doubted(DoubtKind::Gap);
    rig.answer_to(calibration, 9, &[stored(&[1], None)]);
    assert!(
        rig.views.published.is_none(),
        "the calibration was given up"
    );
}

#[test]
fn a_calibration_never_goes_back() {
    let mut rig = Rig::synchronized(100, &[1]);
    rig.pass_until_wanted();
    rig.answer(50, &[stored(&[2], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(100), vec![1]));
    assert_eq!(rig.machine.counters().calibration_failures, 1);
}

#[test]
fn a_tiny_interval_makes_no_busy_loop_of_failing_calibrations() {
    let mut rig = Rig::with(Limits {
        resync_interval_ms: 1,
        ..Limits::default()
    });
    rig.connect();
    rig.answer(5, &[stored(&[1], None)]);
    rig.pass_until_wanted();
    for attempt in 0..20 {
        rig.fail();
        let waited = rig.pass_until_wanted();
        assert!(
            waited >= Duration::from_millis(100),
            "attempt {attempt} after {waited:?}"
        );
    }
    assert_eq!(rig.state(), StreamState::Synchronized);
}
