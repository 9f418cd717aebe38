//! One decoded message, flat: events are ranges over two shared arrays, so that a batch costs no allocation an event.

use std::ops::Range;

use super::{Tier, WireHash};

/// A decoded batch. Reused from message to message: [`Batch::clear`] keeps its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// The wire hashes that the events point into.
    pub wire_hashes: Vec<WireHash>,
    /// The token ids that the events point into.
    pub token_ids: Vec<u32>,
}

/// One thing that an engine said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks were computed or copied into a tier.
    Stored(Stored),
    /// Copies went from one tier.
    Removed {
        /// Which of [`Batch::wire_hashes`].
        wire_hashes: Range<usize>,
        /// The tier they left; `None` for a tier that is not counted.
        tier: Option<Tier>,
    },
    /// Nothing is left in any tier.
    Cleared,
}

/// Consecutive blocks that appeared in a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Which of [`Batch::wire_hashes`], first block first.
    pub wire_hashes: Range<usize>,
    /// Which of [`Batch::token_ids`]; empty when the event is *tokenless*: a copy of blocks known before.
    pub token_ids: Range<usize>,
    /// The block before the first one, or `None` at the start of a prompt. Meaningless when tokenless.
    pub parent: Option<WireHash>,
    /// The tier; `None` for one that is not counted: the blocks become known, not resident.
    pub tier: Option<Tier>,
}

impl Stored {
    /// Whether the event names blocks without their tokens.
    #[must_use]
    pub fn is_tokenless(&self) -> bool {
        self.token_ids.is_empty()
    }
}

impl Batch {
    /// Forgets the contents, keeps the memory.
    pub fn clear(&mut self) {
        self.events.clear();
        self.wire_hashes.clear();
        self.token_ids.clear();
    }

    /// Whether the batch describes the whole state by itself (spec: a batch that begins with `AllBlocksCleared`).
    #[must_use]
    pub fn is_full_state(&self) -> bool {
        matches!(self.events.first(), Some(Event::Cleared))
    }

    /// Bytes that the arrays have allocated, used or not.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.events.capacity() * size_of::<Event>()
            + self.wire_hashes.capacity() * size_of::<WireHash>()
            + self.token_ids.capacity() * size_of::<u32>()
    }
}
