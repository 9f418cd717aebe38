//! The core beside what bounds it: hashing alone, an idle machine, a bare socket.
//!
//! Each file in [`measures`] is one measure; every figure of it comes from one process, in alternating rounds.

pub mod cli;
pub mod encode;
pub mod figures;
pub mod measures;
pub mod publisher;
pub mod scene;
pub mod story;
