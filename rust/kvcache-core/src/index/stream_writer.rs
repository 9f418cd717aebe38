//! One stream's way into the index.
//!
//! Owns the stream's ledger, whose slot is live while it is published. A draft is a ledger in a slot that
//! no query sees; publishing it is one step for every query.

use std::sync::Arc;

use super::apply::Applier;
use super::ledger::{Counts, Ledger, Origin};
use super::prefix_index::PrefixIndex;
use super::row::{Member, Row};
use super::slot_mask::Slot;
use super::view::ViewStats;
use crate::model::{
    ApplyError, ApplyReport, Batch, BlockHash, Sequence, StreamKey, Tier, WireHash,
};

/// A view under construction.
#[derive(Debug)]
pub struct Draft {
    index: Arc<PrefixIndex>,
    applier: Applier,
    max_blocks: usize,
    private_names: bool,
    /// From the first batch on.
    ledger: Option<Ledger>,
}

impl Draft {
    pub(super) fn new(index: Arc<PrefixIndex>, max_blocks: usize, private_names: bool) -> Self {
        Self {
            applier: Applier::new(index.spec()),
            index,
            max_blocks,
            private_names,
            ledger: None,
        }
    }

    /// Applies a batch; nobody sees it yet.
    ///
    /// # Errors
    /// The first event that cannot be applied, while those before it stay; [`ApplyError::NoSlot`].
    pub fn apply(&mut self, batch: &Batch, origin: Origin) -> Result<ApplyReport, ApplyError> {
        let mut ledger = self.take_ledger()?;
        let applied = self
            .applier
            .apply(self.index.trie(), &mut ledger, batch, origin);
        self.ledger = Some(ledger);
        self.index.sweep();
        applied
    }

    /// What the draft holds.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.ledger
            .as_ref()
            .map_or_else(Counts::default, Ledger::counts)
    }

    /// Estimated heap bytes, without what all streams share.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.ledger.as_ref().map_or(0, Ledger::heap_bytes)
    }

    fn take_ledger(&mut self) -> Result<Ledger, ApplyError> {
        if let Some(ledger) = self.ledger.take() {
            return Ok(ledger);
        }
        let slot = self.index.take_slot().ok_or(ApplyError::NoSlot)?;
        Ok(Ledger::new(slot, self.max_blocks, self.private_names))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(ledger) = self.ledger.take()
            && !std::thread::panicking()
        {
            self.index.empty_slot(ledger.slot());
        }
    }
}

/// How a draft became the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Queries moved over to new bits.
    Flipped,
    /// The published view said the same already, and stays.
    Unchanged,
}

#[derive(Debug)]
struct View {
    ledger: Ledger,
    stats: Arc<ViewStats>,
    sequence: Option<Sequence>,
}

/// The one owner of a stream in an index. Dropping it takes the stream out of answers at once.
#[derive(Debug)]
pub struct StreamWriter {
    index: Arc<PrefixIndex>,
    member: Arc<Member>,
    max_blocks: usize,
    view: Option<View>,
    /// Of the last view, for as long as there is none.
    last_sequence: Option<Sequence>,
    applier: Applier,
}

impl StreamWriter {
    pub(super) fn new(index: Arc<PrefixIndex>, member: Arc<Member>, max_blocks: usize) -> Self {
        Self {
            applier: Applier::new(index.spec()),
            index,
            member,
            max_blocks,
            view: None,
            last_sequence: None,
        }
    }

    /// The stream.
    #[must_use]
    pub fn key(&self) -> &StreamKey {
        self.member.key()
    }

    /// What [`PrefixIndex::retire`] knows the stream by.
    #[must_use]
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Applies a live batch to the published view, which then includes `sequence`, if one is given.
    /// Without a published view there is nothing to apply it to: no event does anything.
    ///
    /// # Errors
    /// The first event that cannot be applied; those before it stay and the sequence does not move.
    pub fn apply(
        &mut self,
        batch: &Batch,
        sequence: Option<Sequence>,
    ) -> Result<ApplyReport, ApplyError> {
        let Some(View { ledger, stats, .. }) = &mut self.view else {
            return Ok(ApplyReport::default());
        };
        let applied = self
            .applier
            .apply(self.index.trie(), ledger, batch, Origin::Live);
        stats.set_counts(ledger.counts());
        if applied.is_ok() && sequence.is_some() {
            self.set_sequence(sequence);
        }
        self.index.sweep();
        applied
    }

    fn set_sequence(&mut self, sequence: Option<Sequence>) {
        if let Some(view) = &mut self.view {
            view.sequence = sequence;
            self.index.sequences().set(view.slot(), sequence);
        }
    }

    /// Stores blocks that were hashed before, after `parent`, as [`StreamWriter::apply`] would store their tokens: one
    /// hash a wire hash.
    ///
    /// # Errors
    /// As there; [`ApplyError::Shape`] for unequal lengths.
    pub fn store_hashed(
        &mut self,
        parent: Option<WireHash>,
        wire_hashes: &[WireHash],
        block_hashes: &[BlockHash],
        tier: Option<Tier>,
    ) -> Result<ApplyReport, ApplyError> {
        let Some(View { ledger, stats, .. }) = &mut self.view else {
            return Ok(ApplyReport::default());
        };
        if wire_hashes.len() != block_hashes.len() {
            return Err(ApplyError::Shape {
                tokens: block_hashes.len(),
                blocks: wire_hashes.len(),
                block_size_tokens: 1,
            });
        }
        let blocks = (wire_hashes, block_hashes);
        let mut editor = self.index.trie().edit();
        let stored = ledger.store(&mut editor, parent, blocks, tier, Origin::Live);
        drop(editor);
        stats.set_counts(ledger.counts());
        self.index.sweep();
        stored
    }

    /// An empty view to build beside the published one.
    #[must_use]
    pub fn new_draft(&self) -> Draft {
        let view = self.view.as_ref();
        let private_names = view.is_some_and(|view| view.ledger.has_private_names());
        Draft::new(self.index.clone(), self.max_blocks, private_names)
    }

    /// Counts copies that publishing `draft` would add to the published view, and those that it
    /// would take away, together. None without a published view: there is nothing to compare with.
    #[must_use]
    pub fn copies_changed_by(&self, draft: &Draft) -> usize {
        match (&self.view, &draft.ledger) {
            (Some(View { ledger, .. }), Some(new)) => {
                new.differing_copies(&self.index.trie().edit(), ledger)
            }
            (Some(View { ledger, .. }), None) => {
                let held = ledger.counts();
                held.device_blocks + held.host_blocks
            }
            (None, _) => 0,
        }
    }

    /// Makes `draft` the published view, in one step for every query. What only the view that it replaces knows stays
    /// known, without copies, as far as there is room (spec: content keys).
    ///
    /// # Errors
    /// [`ApplyError::NoSlot`], [`ApplyError::ForeignDraft`]; the old view, if any, stays published.
    pub fn publish(
        &mut self,
        mut draft: Draft,
        sequence: Option<Sequence>,
    ) -> Result<Publication, ApplyError> {
        if !Arc::ptr_eq(&draft.index, &self.index) {
            return Err(ApplyError::ForeignDraft);
        }
        let mut ledger = draft.take_ledger()?;
        if let Some(View { ledger: old, .. }) = &mut self.view {
            let mut editor = self.index.trie().edit();
            if old.includes(&ledger) && ledger.same_copies(&editor, old) {
                drop(editor);
                draft.ledger = Some(ledger);
                self.set_sequence(sequence);
                return Ok(Publication::Unchanged);
            }
            ledger.keep_known(&mut editor, old);
        }
        let stats = Arc::new(ViewStats::new(ledger.slot(), ledger.counts()));
        let row = Row {
            member: self.member.clone(),
            view: Some(stats.clone()),
            last_sequence: None,
            error: "".into(),
        };
        self.index.sequences().set(ledger.slot(), sequence);
        let view = View {
            ledger,
            stats,
            sequence,
        };
        let old = self.view.replace(view);
        self.index.show(row, old.as_ref().map(View::slot));
        Ok(Publication::Flipped)
    }

    /// Takes the published view, if any, away at once; queries answer 0 hits, the last sequence and `error`.
    pub fn unpublish(&mut self, error: &str) {
        self.last_sequence = self.sequence();
        let old = self.view.take();
        let row = Row {
            member: self.member.clone(),
            view: None,
            last_sequence: self.last_sequence,
            error: error.into(),
        };
        self.index.show(row, old.as_ref().map(View::slot));
    }

    /// Says anew why there is no view; does nothing while there is one.
    pub fn set_error(&mut self, error: &str) {
        if self.view.is_none() {
            self.unpublish(error);
        }
    }

    /// The last sequence that the view includes, or that the last one did.
    #[must_use]
    pub fn sequence(&self) -> Option<Sequence> {
        match &self.view {
            Some(view) => view.sequence,
            None => self.last_sequence,
        }
    }

    /// What the published view holds; nothing without one.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let view = self.view.as_ref();
        view.map_or_else(Counts::default, |view| view.ledger.counts())
    }

    /// Whether queries see a view.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.view.is_some()
    }

    /// Estimated heap bytes of the view's own bookkeeping, without the tree that streams share.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.view
            .as_ref()
            .map_or(0, |view| view.ledger.heap_bytes())
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The stream is followed still, by nobody. What the view had cannot be trusted to be found again,
            // so that its slot is never given to another.
            let sequence = self.sequence();
            std::mem::forget(self.view.take());
            self.last_sequence = sequence;
            self.unpublish("an internal fault ended this stream's task; restart the process to follow it again");
            return;
        }
        let old = self.view.take();
        self.index
            .take_out(&self.member, old.as_ref().map(View::slot));
    }
}

impl View {
    fn slot(&self) -> Slot {
        self.ledger.slot()
    }
}
