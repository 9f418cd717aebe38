//! The index as a whole: one shared table, one published slot map, one roster.
//!
//! Invariant: a live slot's bits in the table are its stream's published view, a free slot has none.
//! Queries read the slot map once and walk; writers meet only on the roster's lock, for the moment
//! of a flip, and on the table's shards.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::query::{self, Matches};
use super::roster::{Leftovers, Roster};
use super::row::Row;
use super::slot_map::SlotMap;
use super::slot_mask::Slot;
use super::stream_writer::StreamWriter;
use super::table::Table;
use crate::hash::{BlockKeys, block_hash, content_key};
use crate::model::{BlockSpec, Limits, StreamKey};

/// Why the index refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// A stream is in an index once.
    #[error("the index has this stream already: {0}")]
    DuplicateStream(StreamKey),
    /// The holder sets have no more places.
    #[error("an index holds {max} streams at most, no room for: {0}", max = Limits::MAX_STREAMS)]
    TooManyStreams(StreamKey),
    /// Block keys made with another block size or seed never match.
    #[error(
        "keys of block size {} and seed {} in an index of block size {} and seed: {}",
        keys.block_size_tokens, keys.hash_seed, index.block_size_tokens, index.hash_seed
    )]
    SpecMismatch {
        /// How the keys were made.
        keys: BlockSpec,
        /// How the index names blocks.
        index: BlockSpec,
    },
}

/// Who holds how much of a prompt, for streams that share a [`BlockSpec`].
///
/// Shared by reference; queries take no lock and wait for no writer.
#[derive(Debug)]
pub struct PrefixIndex {
    spec: BlockSpec,
    table: Table,
    published: ArcSwap<SlotMap>,
    /// Never taken by queries; held for moments only.
    roster: Mutex<Roster>,
}

impl PrefixIndex {
    /// An index without streams.
    #[must_use]
    pub fn new(spec: BlockSpec) -> Arc<Self> {
        Arc::new(Self {
            spec,
            table: Table::new(),
            published: ArcSwap::from_pointee(SlotMap::new(&[])),
            roster: Mutex::new(Roster::new()),
        })
    }

    /// How blocks are named.
    #[must_use]
    pub fn spec(&self) -> BlockSpec {
        self.spec
    }

    /// Adds a stream, unpublished. It stays for as long as the writer does.
    ///
    /// # Errors
    /// A stream that is there already, or one too many.
    pub fn add_stream(
        self: &Arc<Self>,
        key: StreamKey,
        max_blocks: usize,
    ) -> Result<StreamWriter, IndexError> {
        self.reclaim();
        let mut roster = self.roster();
        if roster.contains(&key) {
            return Err(IndexError::DuplicateStream(key));
        }
        if roster.len() >= Limits::MAX_STREAMS {
            return Err(IndexError::TooManyStreams(key));
        }
        roster.put(Row {
            key: key.clone(),
            view: None,
            last_sequence: None,
            error: "no view yet".into(),
        });
        roster.flip(&self.published, None);
        drop(roster);
        Ok(StreamWriter::new(self.clone(), key, max_blocks))
    }

    /// What every stream holds of a prompt (spec: query). Hashes no further than somebody holds.
    #[must_use]
    pub fn query_tokens(&self, token_ids: &[u32]) -> Matches {
        let seed = self.spec.hash_seed;
        let blocks = token_ids.chunks_exact(self.spec.block_size_tokens.get() as usize);
        let keys = blocks.scan(None, |parent, block| {
            *parent = Some(content_key(*parent, block_hash(block, seed), seed));
            *parent
        });
        query::walk(&self.published.load(), &self.table, self.spec, keys)
    }

    /// The same for a prompt hashed before.
    ///
    /// # Errors
    /// Keys made with another block size or seed.
    pub fn query_keys(&self, keys: &BlockKeys) -> Result<Matches, IndexError> {
        if keys.spec() != self.spec {
            return Err(IndexError::SpecMismatch {
                keys: keys.spec(),
                index: self.spec,
            });
        }
        let content_keys = keys.content_keys().iter().copied();
        let published = self.published.load();
        Ok(query::walk(
            &published,
            &self.table,
            self.spec,
            content_keys,
        ))
    }

    /// Frees the slots of old views that no query sees any more. Done by writers too, as they need slots.
    pub fn reclaim(&self) {
        let unseen = self.roster().take_unseen();
        for Leftovers { slot, ledger } in unseen {
            for (key, tiers) in ledger.residents() {
                for tier in tiers.iter() {
                    self.table.clear(key, tier, slot);
                }
            }
            self.roster().free_slot(slot);
        }
    }

    /// Old views whose slots wait for queries to end.
    #[must_use]
    pub fn retired_views(&self) -> usize {
        self.roster().retired()
    }

    /// Bytes of the table that the streams share; each writer counts its own besides.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.heap_bytes()
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// A slot without bits in the table, for a view to be built in.
    pub(super) fn take_slot(&self) -> Option<Slot> {
        self.reclaim();
        self.roster().take_slot()
    }

    /// Shows `row` instead of the stream's old one in one step, and retires the view that it leaves behind.
    pub(super) fn show(&self, row: Row, leftovers: Option<Leftovers>) {
        let mut roster = self.roster();
        roster.put(row);
        roster.flip(&self.published, leftovers);
        drop(roster);
        self.reclaim();
    }

    /// Takes the stream out of all later answers.
    pub(super) fn take_out(&self, key: &StreamKey, leftovers: Option<Leftovers>) {
        let mut roster = self.roster();
        roster.take_out(key);
        roster.flip(&self.published, leftovers);
        drop(roster);
        self.reclaim();
    }

    /// What a query that has begun and not ended holds.
    #[cfg(test)]
    pub(super) fn pin(&self) -> Arc<SlotMap> {
        self.published.load_full()
    }

    /// The rest of such a query.
    #[cfg(test)]
    pub(super) fn walk_pinned(&self, map: &SlotMap, keys: &BlockKeys) -> Matches {
        let content_keys = keys.content_keys().iter().copied();
        query::walk(map, &self.table, self.spec, content_keys)
    }

    /// Nothing panics under the lock; a poisoned one is as good.
    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
