//! The index as a whole: one tree, one published slot map, one roster.
//!
//! Invariant: what a live slot holds in the tree is its stream's published view; a free slot holds
//! nothing. Queries read the slot map once and walk. Writers take turns at the tree, an event each, and
//! meet on the roster's lock for the moment of a flip.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::prompts::{HashedPrompt, TokenPrompt};
use super::query::{self, Matches};
use super::roster::Roster;
use super::row::{Member, Row};
use super::slot_map::SlotMap;
use super::slot_mask::Slot;
use super::stream_writer::{Draft, StreamWriter};
use super::trie::{Prompt, Trie, Walk};
use super::view::Sequences;
use crate::hash::{BlockKeys, Hasher};
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

/// Nodes that a slot is cleared from before other writers have their turn.
const CLEARED_AT_ONCE: usize = 256;

/// Who holds how much of a prompt, for streams that share a [`BlockSpec`].
///
/// Shared by reference; queries take no lock and wait for no writer.
#[derive(Debug)]
pub struct PrefixIndex {
    spec: BlockSpec,
    hasher: Hasher,
    trie: Trie,
    sequences: Sequences,
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
            hasher: Hasher::new(spec.hash_seed),
            trie: Trie::new(spec.hash_seed),
            sequences: Sequences::new(),
            published: ArcSwap::from_pointee(SlotMap::new(&[])),
            roster: Mutex::new(Roster::new()),
        })
    }

    /// How blocks are named.
    #[must_use]
    pub fn spec(&self) -> BlockSpec {
        self.spec
    }

    /// Adds a stream, unpublished. It stays for as long as the writer does, or until it is retired.
    ///
    /// # Errors
    /// A stream that is there already, or one too many.
    pub fn add_stream(
        self: &Arc<Self>,
        member: impl Into<Member>,
        max_blocks: usize,
    ) -> Result<StreamWriter, IndexError> {
        let member = Arc::new(member.into());
        self.reclaim();
        let mut roster = self.roster();
        if roster.contains(member.key()) {
            return Err(IndexError::DuplicateStream(member.key().clone()));
        }
        if roster.len() >= Limits::MAX_STREAMS {
            return Err(IndexError::TooManyStreams(member.key().clone()));
        }
        roster.add(Row {
            member: member.clone(),
            view: None,
            last_sequence: None,
            error: "no view yet".into(),
        });
        roster.flip(&self.published, None);
        drop(roster);
        Ok(StreamWriter::new(self.clone(), member, max_blocks))
    }

    /// An empty view to build before its stream is added.
    #[must_use]
    pub fn new_draft(self: &Arc<Self>, max_blocks: usize) -> Draft {
        Draft::new(self.clone(), max_blocks, false)
    }

    /// What every stream holds of a prompt (spec: query). Hashes little further than somebody holds.
    #[must_use]
    pub fn query_tokens(&self, token_ids: &[u32]) -> Matches {
        let mut matches = Matches::default();
        self.query_tokens_into(token_ids, &mut matches);
        matches
    }

    /// The same, in the memory of an older answer.
    pub fn query_tokens_into(&self, token_ids: &[u32], matches: &mut Matches) {
        let block_size = self.spec.block_size_tokens.get() as usize;
        let prompt = TokenPrompt::new(token_ids, block_size, &self.hasher);
        self.query(prompt, matches);
    }

    /// What every stream holds of a prompt hashed before.
    ///
    /// # Errors
    /// Keys made with another block size or seed.
    pub fn query_keys(&self, keys: &BlockKeys) -> Result<Matches, IndexError> {
        let mut matches = Matches::default();
        self.query_keys_into(keys, &mut matches)?;
        Ok(matches)
    }

    /// The same, in the memory of an older answer.
    ///
    /// # Errors
    /// As there; the older answer stays then.
    pub fn query_keys_into(
        &self,
        keys: &BlockKeys,
        matches: &mut Matches,
    ) -> Result<(), IndexError> {
        if keys.spec() != self.spec {
            return Err(IndexError::SpecMismatch {
                keys: keys.spec(),
                index: self.spec,
            });
        }
        self.query(HashedPrompt(keys), matches);
        Ok(())
    }

    /// Frees the slots of old views that no query sees any more. Done by writers too, as they need slots.
    pub fn reclaim(&self) {
        let unseen = self.roster().take_unseen();
        for slot in unseen {
            self.empty_slot(slot);
        }
    }

    /// Frees a slot that no query can see.
    pub(super) fn empty_slot(&self, slot: Slot) {
        while !self.trie.edit().clear_some(slot, CLEARED_AT_ONCE, true) {}
        self.sweep();
        self.roster().free_slot(slot);
    }

    /// Frees what was taken down from the tree, when there is enough of it and no query can see it.
    pub(super) fn sweep(&self) {
        let mut editor = self.trie.edit();
        if editor.has_garbage() {
            let mut roster = self.roster();
            editor.close_garbage(roster.flip(&self.published, None));
            let oldest = roster.oldest_seen();
            drop(roster);
            editor.free_garbage(oldest);
        }
    }

    /// Old views whose slots wait for queries to end.
    #[must_use]
    pub fn retired_views(&self) -> usize {
        self.roster().retired()
    }

    /// Bytes of the tree that the streams share; each writer counts its own besides.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.trie.heap_bytes()
    }

    pub(super) fn trie(&self) -> &Trie {
        &self.trie
    }

    /// A slot that holds nothing, for a view to be built in.
    pub(super) fn take_slot(&self) -> Option<Slot> {
        self.reclaim();
        self.roster().take_slot()
    }

    /// Shows `row` instead of the stream's old one in one step, and retires the view that it leaves behind.
    pub(super) fn show(&self, row: Row, old: Option<Slot>) {
        let mut roster = self.roster();
        roster.put(row);
        roster.flip(&self.published, old);
        drop(roster);
        self.reclaim();
    }

    /// Takes a member out of all later answers. Its writer may go on until it is dropped: nobody sees what it does, and
    /// the key is free for another member at once.
    pub fn retire(&self, member: &Arc<Member>) {
        self.take_out(member, None);
    }

    /// The same for a writer that leaves its view behind.
    pub(super) fn take_out(&self, member: &Arc<Member>, old: Option<Slot>) {
        let mut roster = self.roster();
        roster.take_out(member);
        roster.flip(&self.published, old);
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
        let mut matches = Matches::default();
        let mut prompt = HashedPrompt(keys);
        let walk = Walk::new(&self.trie, &mut prompt);
        self.answer(map, walk, &mut matches);
        matches
    }

    #[inline]
    fn query(&self, mut prompt: impl Prompt, matches: &mut Matches) {
        // Before the slot map is loaded, which takes as long as the place in the table to come.
        let walk = Walk::new(&self.trie, &mut prompt);
        self.answer(&self.published.load(), walk, matches);
    }

    fn answer(&self, map: &SlotMap, walk: Walk<'_, impl Prompt>, matches: &mut Matches) {
        let Self {
            sequences, trie, ..
        } = self;
        query::answer(map, sequences, trie, self.spec, walk, matches);
    }

    pub(super) fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    /// Nothing panics under the lock; a poisoned one is as good.
    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
