//! The prefix tree that all streams share, in runs of up to 64 blocks.
//!
//! A path from the root is a prompt; a node is a *run* of consecutive blocks, compared by their own
//! hashes, as the path is their context. Who holds a run is a bit for each slot, and a record for who
//! holds a part of it. Readers take no lock: they follow links between lines of atomics; what a link no
//! longer leads to is kept until no query can see it. Writers take turns ([`Trie::edit`]).
//! Knows nothing of limits, kept names or events.

mod block_ids;
mod bucket_table;
mod children;
mod columns;
mod editor;
mod first_names;
mod garbage;
mod holders;
mod line;
mod page_nodes;
mod reshape;
mod shared_trie;
mod walk;
mod wires;

#[cfg(test)]
mod check;

pub(super) use block_ids::Extent;
pub(super) use editor::{Claim, Editor, Path};
pub(super) use holders::Reach;
pub(super) use line::{MAX_RUN, ones};
pub(super) use shared_trie::Trie;
pub(super) use walk::{Prompt, Walk};
pub(super) use wires::{PrivateNames, Scrambled};

/// Stands for no node, line, record or edge.
const NONE: u32 = u32::MAX;

/// A block's number, for as long as some stream knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct BlockId(pub(super) u32);
