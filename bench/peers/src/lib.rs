//! The project's index beside published ones: the same workload, the same process, alternating rounds.
//!
//! A figure means something only as a ratio to another one of the same run. [`contestant`] says what is asked
//! of an index; each file in [`contestants`] is one of them.

pub mod cli;
pub mod contestant;
pub mod contestants;
pub mod figures;
pub mod heap;
pub mod measures;
pub mod variant;
pub mod workload;
