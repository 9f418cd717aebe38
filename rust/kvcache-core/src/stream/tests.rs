//! The state machine against a tiny view, without socket or clock.

mod calibration;
mod channel;
mod doubts;
mod limits;
mod losses;
mod merging;
pub(crate) mod rig;
mod walk;
