//! What a peer may make us hold, and how long it may make us wait.
//!
//! Nothing here is read from the wire: the numbers come from configuration, and the protocol modules compare what
//! a peer announces with them before they keep a byte of it.

use std::time::Duration;

/// Sizes that a peer may not exceed. All are checked when a frame's header arrives, before its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body of one message frame, bytes.
    pub max_frame_bytes: usize,
    /// Largest sum of the bodies of one multipart message, bytes.
    pub max_message_bytes: usize,
    /// Most frames in one multipart message.
    pub max_frames: usize,
    /// Largest body of a command (READY, ERROR, PING…), bytes.
    pub max_command_bytes: usize,
}

impl Limits {
    /// Limits for messages of up to `max_message_bytes`, in one frame or several, the rest at its default.
    #[must_use]
    pub fn for_messages_of(max_message_bytes: usize) -> Self {
        Self {
            max_frame_bytes: max_message_bytes,
            max_message_bytes,
            max_frames: 64,
            max_command_bytes: 512,
        }
    }
}

impl Default for Limits {
    /// 8 MiB a message, 64 frames, 512 bytes a command.
    fn default() -> Self {
        Self::for_messages_of(8 << 20)
    }
}

/// How long a peer may keep us waiting. Anything above a day counts as a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// One deadline for name resolution, TCP connect, greeting and handshake together.
    pub connect: Duration,
    /// A peer of ZMTP 3.1 that was silent for so long is sent a PING.
    pub heartbeat_interval: Duration,
    /// A peer of ZMTP 3.1 that was silent for so long is taken for gone. Also how long a write may stall, and after
    /// how much silence TCP keepalive starts to probe. Should exceed `heartbeat_interval`; if it does not, it counts
    /// from the PING.
    pub heartbeat_timeout: Duration,
}

impl Timeouts {
    /// Longer times count as this one.
    pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
}

impl Default for Timeouts {
    /// 5 s to connect, a PING after 5 s, gone after 15 s.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            heartbeat_interval: Duration::from_secs(5),
            heartbeat_timeout: Duration::from_secs(15),
        }
    }
}
