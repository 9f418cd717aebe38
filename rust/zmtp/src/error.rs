//! Everything that can go wrong with a connection, in words that an operator can act on.
//!
//! Text that came from a peer is made printable and cut before it gets here. Errors can be cloned, because a
//! connection that failed once keeps giving the same answer.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Why a connection could not be made, or ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name service did not answer usefully.
    #[error("cannot resolve host {host}: {source}")]
    Resolve {
        /// The host of the endpoint.
        host: String,
        /// What the resolver said.
        source: Arc<io::Error>,
    },
    /// The zone of a link-local address is no interface of this machine, or of this container.
    #[error("cannot find the network interface {zone}, see `ip link`: {source}")]
    Interface {
        /// The zone of the endpoint.
        zone: String,
        /// What the resolver said.
        source: Arc<io::Error>,
    },
    /// The name exists and has no address.
    #[error("host has no address: {0}")]
    NoAddress(String),
    /// Nobody listens there.
    #[error("connection refused: {0}")]
    Refused(SocketAddr),
    /// TCP could not connect for another reason.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// The address tried last.
        address: SocketAddr,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The deadline of [`Timeouts::connect`](crate::Timeouts::connect) passed.
    #[error("connecting timed out, while: {0}")]
    TimedOut(Phase),
    /// The peer hung up before the connection was usable.
    #[error("peer closed the connection, while: {0}")]
    ClosedWhileConnecting(Phase),
    /// The port belongs to a web server.
    #[error("peer speaks HTTP, not ZMTP; check the port")]
    Http,
    /// The port belongs to a TLS server.
    #[error("peer speaks TLS, not ZMTP; check the port")]
    Tls,
    /// The port belongs to something else.
    #[error("peer does not speak ZMTP, check the port; it began with: {0}")]
    NotZmtp(String),
    /// The peer is older than `libzmq` 4.
    #[error("peer speaks a protocol older than ZMTP 3.0, needed is libzmq 4 or newer")]
    OldZmtp,
    /// The peer wants authentication or encryption.
    #[error("peer demands a security mechanism other than NULL: {0}")]
    Mechanism(String),
    /// The socket at the other end is of a type that ours cannot use.
    #[error("a {ours} socket cannot talk to a peer of type: {theirs}")]
    PeerType {
        /// Our socket type's wire name.
        ours: &'static str,
        /// What the peer called its own, made printable.
        theirs: String,
    },
    /// The peer sent an ERROR command.
    #[error("peer reported an error: {0}")]
    Peer(String),
    /// A handshake command breaks the grammar.
    #[error("malformed handshake: {0}")]
    MalformedHandshake(&'static str),
    /// A command after the handshake breaks the grammar.
    #[error("malformed command: {0}")]
    MalformedCommand(&'static str),
    /// A frame header with bits that ZMTP 3 does not define.
    #[error("frame with reserved flags: {0:#04x}")]
    ReservedFlags(u8),
    /// A frame header that says both COMMAND and MORE.
    #[error("command frame that announces more frames")]
    MoreOnCommand,
    /// A frame above [`Limits::max_frame_bytes`](crate::Limits::max_frame_bytes).
    #[error("frame too large, limit {limit} bytes, announced: {announced}")]
    FrameTooLarge {
        /// Bytes in the header.
        announced: u64,
        /// Bytes allowed.
        limit: usize,
    },
    /// A command above [`Limits::max_command_bytes`](crate::Limits::max_command_bytes).
    #[error("command too large, limit {limit} bytes, announced: {announced}")]
    CommandTooLarge {
        /// Bytes in the header.
        announced: u64,
        /// Bytes allowed.
        limit: usize,
    },
    /// A message above [`Limits::max_message_bytes`](crate::Limits::max_message_bytes).
    #[error("message too large, limit {limit} bytes, announced so far: {announced}")]
    MessageTooLarge {
        /// Sum of the frames so far and the one announced.
        announced: u64,
        /// Bytes allowed.
        limit: usize,
    },
    /// A message above [`Limits::max_frames`](crate::Limits::max_frames).
    #[error("message with too many frames, limit: {0}")]
    TooManyFrames(usize),
    /// The peer closed between two messages.
    #[error("peer closed the connection")]
    PeerClosed,
    /// The peer closed within a message.
    #[error("peer closed the connection in the middle of a message")]
    Truncated,
    /// Neither data nor an answer to PING came, or a write stalled.
    #[error("peer is silent, milliseconds without progress: {0}")]
    SilentPeer(u128),
    /// The operating system ended the connection.
    #[error("connection lost: {0}")]
    Lost(Arc<io::Error>),
    /// The operation does not fit the socket type; the connection stays usable.
    #[error("wrong socket type, operation needs: {0}")]
    WrongOperation(&'static str),
    /// A message needs a frame; the connection stays usable.
    #[error("cannot send a message without frames")]
    EmptyMessage,
}

impl Error {
    /// Whether the peer sent, or announced, more than the limits allow.
    #[must_use]
    pub const fn is_size_limit(&self) -> bool {
        matches!(
            self,
            Self::FrameTooLarge { .. }
                | Self::CommandTooLarge { .. }
                | Self::MessageTooLarge { .. }
                | Self::TooManyFrames(_)
        )
    }

    pub(crate) fn lost(source: io::Error) -> Self {
        Self::Lost(Arc::new(source))
    }
}

/// Which part of connecting was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Asking the name service.
    Resolve,
    /// Opening the TCP connection.
    TcpConnect,
    /// Waiting for the first 64 bytes of the peer.
    Greeting,
    /// Waiting for READY.
    Handshake,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolving the name",
            Self::TcpConnect => "opening the tcp connection",
            Self::Greeting => "waiting for a zmtp greeting",
            Self::Handshake => "waiting for the zmtp handshake",
        })
    }
}

/// At most `max_bytes` of a peer's bytes, with everything escaped that a log or a terminal could trip over.
pub(crate) fn printable(bytes: &[u8], max_bytes: usize) -> String {
    let shown = &bytes[..bytes.len().min(max_bytes)];
    let mut text = shown.escape_ascii().to_string();
    if shown.len() < bytes.len() {
        text.push('…');
    }
    text
}
