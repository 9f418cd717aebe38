//! Bytes to events: the only room that knows what the wire looks like.
//!
//! [`LiveMessage`] and [`ReplayFrame`] tell a message's frames apart, [`xllm`] reads a payload into a
//! [`Batch`](crate::model::Batch). Invariant: a message is taken whole or not at all, and no length that it announces
//! is believed before the bytes are there. Must not know what events mean for an index or a stream's state.

mod compact;
mod error;
mod frames;
mod msgpack;
pub mod xllm;

#[cfg(test)]
mod tests;

pub use error::{DecodeError, DecodeErrorKind, FrameError};
pub use frames::{LiveMessage, ReplayFrame, replay_request};
