//! Joins a stream's state machine to its place in the index.

use std::time::Instant;

use super::journal::{Scribe, Shown};
use crate::index::{Draft, Origin, StreamWriter};
use crate::model::{ApplyError, ApplyReport, Batch, Sequence};
use crate::stream::{Sizes, Views};

/// What a block costs in the tree that all streams share, if one stream alone holds it; see `docs/index.md`.
const BLOCK_BYTES: usize = 40;

/// One stream's published view and draft.
#[derive(Debug)]
pub(super) struct StreamViews {
    writer: StreamWriter,
    draft: Option<Draft>,
    /// Told when the view comes and goes.
    scribe: Option<Scribe>,
}

impl StreamViews {
    pub(super) fn new(writer: StreamWriter) -> Self {
        Self {
            writer,
            draft: None,
            scribe: None,
        }
    }

    pub(super) fn told_to(self, scribe: Scribe) -> Self {
        Self {
            scribe: Some(scribe),
            ..self
        }
    }

    fn draft(&mut self, batch: &Batch, origin: Origin) -> Result<ApplyReport, ApplyError> {
        let Self { writer, draft, .. } = self;
        draft
            .get_or_insert_with(|| writer.new_draft())
            .apply(batch, origin)
    }
}

impl Views for StreamViews {
    fn apply(&mut self, batch: &Batch, sequence: Sequence) -> Result<ApplyReport, ApplyError> {
        let report = self.writer.apply(batch, Some(sequence))?;
        if let Some(scribe) = &mut self.scribe {
            scribe.advanced(sequence);
        }
        Ok(report)
    }

    fn begin_draft(&mut self) {
        self.draft = Some(self.writer.new_draft());
    }

    fn draft_snapshot(&mut self, batch: &Batch) -> Result<ApplyReport, ApplyError> {
        self.draft(batch, Origin::Snapshot)
    }

    fn draft_delta(&mut self, batch: &Batch) -> Result<ApplyReport, ApplyError> {
        self.draft(batch, Origin::Live)
    }

    fn publish_draft(&mut self, sequence: Sequence) -> Result<u64, ApplyError> {
        let draft = self.draft.take().unwrap_or_else(|| self.writer.new_draft());
        let changed = self.writer.copies_changed_by(&draft);
        self.writer.publish(draft, Some(sequence))?;
        if let Some(scribe) = &mut self.scribe {
            let counts = self.writer.counts();
            let shown = Shown {
                sequence,
                device_blocks: counts.device_blocks,
                host_blocks: counts.host_blocks,
            };
            scribe.published(Instant::now(), shown);
        }
        Ok(changed as u64)
    }

    fn discard_draft(&mut self) {
        self.draft = None;
    }

    fn unpublish(&mut self, error: &str) {
        self.writer.unpublish(error);
        if let Some(scribe) = &mut self.scribe {
            scribe.unpublished(Instant::now(), error);
        }
    }

    fn sizes(&self) -> Sizes {
        let counts = self.writer.counts();
        Sizes {
            known_blocks: counts.known,
            orphan_blocks: counts.orphans,
            // As if it shared nothing: a bound, and cheap enough to be asked for after every burst.
            memory_bytes: self.writer.memory_bytes() + counts.known * BLOCK_BYTES,
        }
    }
}

#[cfg(test)]
mod tests;
