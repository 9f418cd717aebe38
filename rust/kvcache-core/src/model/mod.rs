//! The words that cross room borders: identifiers, events, limits.
//!
//! Pure data. Nothing here does I/O, knows a wire format or an index structure.

mod apply;
mod batch;
mod ids;
mod limits;
mod tier;

pub use apply::{ApplyError, ApplyReport};
pub use batch::{Batch, Event, Stored};
pub use ids::{BlockHash, BlockSpec, ContentKey, DpRank, Sequence, StreamKey, WireHash};
pub use limits::Limits;
pub use tier::{Tier, TierSet};
