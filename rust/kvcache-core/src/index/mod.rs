//! The concurrent prefix index: who holds how much of a prompt.
//!
//! One [`StreamWriter`] a stream keeps that stream's private ledger of names and copies and
//! writes the copies through to a shared table, content key to holder sets. A stream's
//! place in those sets is a *view slot*; which slot is whose is one small table that a query reads
//! once, so that a whole view appears in one step. Readers take no lock and wait for no writer.
//! Knows nothing of wire formats, sockets or the state of a stream: it does what it is told.

mod apply;
mod arena;
mod eviction;
mod ledger;
mod prefix_index;
mod query;
mod roster;
mod row;
mod slot_map;
mod slot_mask;
mod stream_writer;
mod table;
mod view;

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;

pub use ledger::{Counts, Origin};
pub use prefix_index::{IndexError, PrefixIndex};
pub use query::{Hit, Matches};
pub use row::Row;
pub use stream_writer::{Draft, Publication, StreamWriter};
pub use view::ViewStats;
