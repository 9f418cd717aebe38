//! A bounded ZMTP 3.x client: SUB and DEALER over TCP, NULL mechanism, connect only.
//!
//! Every size that a peer announces is checked before anything is kept for it, every wait has a deadline, and a
//! [`Connection`] owns its socket without a background task: dropping it closes everything.
//!
//! | module | job |
//! |---|---|
//! | `endpoint` | `tcp://host:port` |
//! | `limits` | what a peer may make us hold, how long it may make us wait |
//! | `greeting`, `handshake`, `command`, `frame`, `message`, `heartbeat` | the protocol, without socket or clock |
//! | `wire` | non-blocking reads and writes of one socket |
//! | `connect`, `connection` | opening a connection, using it |
//! | `backoff` | how long to wait before the next attempt |
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use zmtp::{Endpoint, Limits, SocketType, Timeouts};
//!
//! let endpoint = Endpoint::parse("tcp://127.0.0.1:5557")?;
//! let mut connection =
//!     zmtp::connect(&endpoint, SocketType::Sub, Limits::default(), Timeouts::default()).await?;
//! connection.subscribe(b"kv-events").await?;
//! let message = connection.recv().await?;
//! println!("{} frames, {} bytes", message.frames().len(), message.wire_bytes());
//! # Ok(())
//! # }
//! ```

mod backoff;
mod command;
mod connect;
mod connection;
mod endpoint;
mod error;
mod frame;
mod greeting;
mod handshake;
mod heartbeat;
mod limits;
mod message;
mod wire;

pub use backoff::Backoff;
pub use connect::connect;
pub use connection::Connection;
pub use endpoint::{Endpoint, EndpointError};
pub use error::{Error, Phase};
pub use frame::{Frame, FrameReader};
pub use greeting::Greeting;
pub use handshake::SocketType;
pub use limits::{Limits, Timeouts};
pub use message::Message;
