//! Where a stream is in its life.

/// The state as status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// The subscription is not up.
    Connecting,
    /// Messages are buffered until a snapshot is merged with them.
    Snapshotting,
    /// The view is published.
    Synchronized,
}

impl StreamState {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Snapshotting => "snapshotting",
            Self::Synchronized => "synchronized",
        }
    }
}
