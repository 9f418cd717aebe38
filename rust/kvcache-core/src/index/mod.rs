//! The concurrent prefix index: who holds how much of a prompt.
//!
//! All streams share one prefix tree; a stream's place in its holder sets is a *view slot*. One
//! [`StreamWriter`] a stream keeps what that stream calls its blocks and in which order it will forget
//! them, and writes the tree. Which slot is whose is one small table that a query reads once, so that a
//! whole view appears in one step. Readers take no lock and wait for no writer.
//! Knows nothing of wire formats, sockets or the state of a stream: it does what it is told.

mod apply;
mod costs;
mod kept;
mod ledger;
mod names;
mod prefetch;
mod prefix_index;
mod prompts;
mod query;
mod roster;
mod row;
mod rows;
mod slot_map;
mod slot_mask;
mod stream_writer;
mod tally;
mod trie;
mod view;

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;

pub use costs::{CandidateCosts, Cheapest};
pub use ledger::{Counts, Origin};
pub use prefix_index::{IndexError, PrefixIndex};
pub use query::{Hit, Matches};
pub use row::{Member, Row};
pub use stream_writer::{Draft, Publication, StreamWriter};
pub use view::ViewStats;
