//! Newtypes, so that a wire hash is never taken for a content key, nor a watermark for a count.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

/// An engine's own name of a block, meaningful within one stream only (spec: live protocol).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireHash(pub u64);

/// XXH3-128 of one block's tokens, without what precedes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub u128);

/// XXH3-128 of the parent's content key and the block hash: the identity of a full prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentKey(pub u128);

/// Position of a message in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Marks the end of a replay; never the number of a message.
    pub const END: Self = Self(u64::MAX);

    /// The number that must follow, or `None` past the last usable one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0
            .checked_add(1)
            .map(Self)
            .filter(|next| *next != Self::END)
    }
}

/// A data-parallel rank of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DpRank(pub u32);

/// Names a stream: one rank of one instance. Ordered as answers are: by instance name, then rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// The instance's name, usually its HTTP `host:port`.
    pub instance_name: Arc<str>,
    /// The rank within the instance.
    pub dp_rank: DpRank,
}

impl StreamKey {
    /// The stream of `dp_rank` of the instance called `instance_name`.
    #[must_use]
    pub fn new(instance_name: &str, dp_rank: u32) -> Self {
        Self {
            instance_name: instance_name.into(),
            dp_rank: DpRank(dp_rank),
        }
    }
}

/// What must be equal for two streams to share block identities (spec: content keys).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSpec {
    /// Tokens in a block.
    pub block_size_tokens: NonZeroU32,
    /// Seed of both hashes.
    pub hash_seed: u64,
}

impl fmt::Display for WireHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Display for DpRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.instance_name, self.dp_rank)
    }
}
