//! The state machine against a tiny view, without socket or clock.

mod calibration;
mod doubts;
mod limits;
mod merging;
pub(crate) mod rig;
mod walk;
