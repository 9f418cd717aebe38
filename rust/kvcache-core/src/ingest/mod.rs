//! The only room with sockets, tokio and a clock: it feeds state machines and fetches what they want.
//!
//! Two tasks a stream: [`subscription`] owns the connection and puts what it receives into a queue bounded in bytes;
//! [`worker`] owns the state machine and the view. Knows nothing of the index but [`crate::stream::Views`].

mod queue;
mod rate;
mod replay;
mod runtime;
mod status;
mod subscription;
mod topic_probe;
mod worker;

#[cfg(test)]
pub(crate) mod peer;

pub use runtime::{IngestRuntime, StreamTask};
pub use status::{StateChanges, StreamStatus};
pub use worker::StreamSource;
