//! One stream's protocol: when its view may be believed, and what must be asked for when not.
//!
//! Sans I/O: bytes and times come in as arguments, the view is changed through [`Views`], and what the world should do is
//! read from [`StreamMachine::wanted_fetch`], [`StreamMachine::wanted_probe`] and
//! [`StreamMachine::deadline`]. Knows neither sockets nor the index.

mod buffer;
mod channel;
mod counters;
mod cursor;
mod doubt;
mod losses;
mod machine;
mod pacer;
mod settings;
mod snapshot;
mod state;
mod views;

#[cfg(test)]
pub(crate) mod tests;

pub use channel::ProbeId;
pub use counters::Counters;
pub use doubt::{Doubt, DoubtKind};
pub use machine::{FetchId, StreamMachine};
pub use settings::StreamSettings;
pub use snapshot::{ReplayFailure, Snapshot};
pub use state::StreamState;
pub use views::{Sizes, Views};
