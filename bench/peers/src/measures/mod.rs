//! What can be measured, one kind a file. All contestants take part in alternating rounds.

mod concurrent;
mod holes;
mod queries;
mod rounds;
mod updates;

pub use concurrent::Concurrent;
pub use holes::Holes;
pub use queries::Queries;
pub use rounds::{Measurement, Rounds, run};
pub use updates::Updates;
