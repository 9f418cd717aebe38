//! One stream's way into the index.
//!
//! Owns the stream's ledger and, while published, a slot. The private ledger and the slot's bits in
//! the table always say the same. A draft is a ledger that no query sees; publishing it writes its
//! bits into a fresh slot first and flips the stream over in one step.

use std::sync::Arc;

use super::apply::Applier;
use super::ledger::{Counts, Ledger, Origin};
use super::prefix_index::PrefixIndex;
use super::roster::Leftovers;
use super::row::Row;
use super::view::ViewStats;
use crate::model::{ApplyError, ApplyReport, Batch, Sequence, StreamKey};

/// A view under construction.
#[derive(Debug)]
pub struct Draft {
    ledger: Ledger,
    applier: Applier,
}

impl Draft {
    /// Applies a batch; nobody sees it yet.
    ///
    /// # Errors
    /// The first event that cannot be applied; those before it stay.
    pub fn apply(&mut self, batch: &Batch, origin: Origin) -> Result<ApplyReport, ApplyError> {
        self.applier
            .apply(&mut self.ledger, batch, origin, |_, _, _| {})
    }

    /// What the draft holds.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.ledger.counts()
    }

    /// Estimated heap bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.ledger.heap_bytes()
    }
}

/// How a draft became the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Queries moved over to new bits.
    Flipped,
    /// The published view had the same copies already; its bits stay.
    Unchanged,
}

#[derive(Debug)]
struct View {
    ledger: Ledger,
    stats: Arc<ViewStats>,
}

/// The one owner of a stream in an index. Dropping it takes the stream out of answers at once.
#[derive(Debug)]
pub struct StreamWriter {
    index: Arc<PrefixIndex>,
    key: StreamKey,
    max_blocks: usize,
    view: Option<View>,
    /// Of the last view, for as long as there is none.
    last_sequence: Option<Sequence>,
    applier: Applier,
}

impl StreamWriter {
    pub(super) fn new(index: Arc<PrefixIndex>, key: StreamKey, max_blocks: usize) -> Self {
        Self {
            applier: Applier::new(index.spec()),
            index,
            key,
            max_blocks,
            view: None,
            last_sequence: None,
        }
    }

    /// The stream.
    #[must_use]
    pub fn key(&self) -> &StreamKey {
        &self.key
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
        let Some(View { ledger, stats }) = &mut self.view else {
            return Ok(ApplyReport::default());
        };
        let (table, slot) = (self.index.table(), stats.slot());
        let applied = self
            .applier
            .apply(ledger, batch, Origin::Live, |key, tier, resident| {
                if resident {
                    table.set(key, tier, slot);
                } else {
                    table.clear(key, tier, slot);
                }
            });
        stats.set_counts(ledger.counts());
        if applied.is_ok() && sequence.is_some() {
            stats.set_sequence(sequence);
        }
        applied
    }

    /// An empty view to build beside the published one.
    #[must_use]
    pub fn new_draft(&self) -> Draft {
        let spec = self.index.spec();
        Draft {
            ledger: Ledger::new(spec.hash_seed, self.max_blocks),
            applier: Applier::new(spec),
        }
    }

    /// Makes `draft` the published view, in one step for every query. What only the view that it replaces
    /// knows stays known, without copies, as far as there is room (spec: content keys).
    ///
    /// # Errors
    /// [`ApplyError::NoSlot`]; the old view, if any, stays published.
    pub fn publish(
        &mut self,
        draft: Draft,
        sequence: Option<Sequence>,
    ) -> Result<Publication, ApplyError> {
        let Draft { mut ledger, .. } = draft;
        if let Some(view) = &self.view {
            ledger.keep_known(&view.ledger);
        }
        if let Some(view) = &mut self.view
            && view.ledger.same_copies(&ledger)
        {
            view.ledger = ledger;
            view.stats.set_sequence(sequence);
            self.index.reclaim();
            return Ok(Publication::Unchanged);
        }
        let slot = self.index.take_slot().ok_or(ApplyError::NoSlot)?;
        for (key, tiers) in ledger.residents() {
            for tier in tiers.iter() {
                self.index.table().set(key, tier, slot);
            }
        }
        let stats = Arc::new(ViewStats::new(slot, sequence, ledger.counts()));
        let row = Row {
            key: self.key.clone(),
            view: Some(stats.clone()),
            last_sequence: None,
            error: "".into(),
        };
        let old = self.view.replace(View { ledger, stats });
        self.index.show(row, old.map(View::into_leftovers));
        Ok(Publication::Flipped)
    }

    /// Takes the published view, if any, away at once; queries answer 0 hits, the last sequence and `error`.
    pub fn unpublish(&mut self, error: &str) {
        self.last_sequence = self.sequence();
        let old = self.view.take();
        let row = Row {
            key: self.key.clone(),
            view: None,
            last_sequence: self.last_sequence,
            error: error.into(),
        };
        self.index.show(row, old.map(View::into_leftovers));
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
            Some(view) => view.stats.sequence(),
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

    /// Estimated heap bytes of the view's own bookkeeping, without the table that streams share.
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
            .take_out(&self.key, old.map(View::into_leftovers));
    }
}

impl View {
    fn into_leftovers(self) -> Leftovers {
        Leftovers {
            slot: self.stats.slot(),
            ledger: self.ledger,
        }
    }
}
