//! Every maximum, with its reason. Defaults are the specification's.

/// Bounds on what one stream may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams that one directory follows: the width of the holder sets.
    pub max_streams: usize,
    /// Resident blocks and kept mappings of one stream together: the directory's memory.
    pub max_blocks_per_stream: usize,
    /// One live message, or one snapshot reply, on the wire.
    pub max_message_bytes: usize,
    /// Live messages kept while a snapshot is fetched: wire bytes and records' overhead.
    pub max_buffered_bytes: usize,
    /// A whole snapshot must have arrived by then.
    pub replay_timeout_ms: u64,
    /// Between two calibrations.
    pub resync_interval_ms: u64,
}

impl Limits {
    /// The most streams that an index can tell apart.
    pub const MAX_STREAMS: usize = 128;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_streams: Self::MAX_STREAMS,
            max_blocks_per_stream: 262_144,
            max_message_bytes: 8 << 20,
            max_buffered_bytes: 16 << 20,
            replay_timeout_ms: 2_000,
            resync_interval_ms: 30_000,
        }
    }
}
