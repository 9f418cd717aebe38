//! What no link leads to any more, until no query can see it.
//!
//! Collected in batches; a batch is safe to reuse once every query that began before the batch was
//! closed has ended. Says what is to be freed, does not free it.

use std::collections::VecDeque;

use super::block_ids::Extent;
use super::editor::Editor;

/// Enough pieces for closing a batch to be worth its price. Tests want everything to be used again soon.
const BATCH: usize = if cfg!(test) { 8 } else { 1_024 };

/// One piece that readers may still look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Line(u32),
    Record(u32),
    Edge(u32),
    Blocks(Extent),
    /// Of children.
    Table(u32),
}

#[derive(Debug, Default)]
pub(super) struct Garbage {
    open: Vec<Piece>,
    /// With the epoch that every query which may see the pieces began in, or before.
    closed: VecDeque<(u64, Vec<Piece>)>,
}

impl Garbage {
    pub(super) fn push(&mut self, piece: Piece) {
        self.open.push(piece);
    }

    pub(super) fn extend(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        self.open.extend(pieces);
    }

    /// Whether it is time to close the batch.
    pub(super) fn is_due(&self) -> bool {
        self.open.len() >= BATCH
    }

    /// Queries that begin from now on, after `epoch`, do not see what was pushed so far.
    pub(super) fn close(&mut self, epoch: u64) {
        if !self.open.is_empty() {
            self.closed
                .push_back((epoch, std::mem::take(&mut self.open)));
        }
    }

    /// What no query can see, now that all that are under way began after the epochs before `oldest`.
    pub(super) fn take_unseen(&mut self, oldest: u64) -> Vec<Piece> {
        let unseen = self.closed.partition_point(|(epoch, _)| *epoch < oldest);
        self.closed
            .drain(..unseen)
            .flat_map(|(_, pieces)| pieces)
            .collect()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let closed = self.closed.iter().map(|(_, pieces)| pieces.capacity());
        (closed.sum::<usize>() + self.open.capacity()) * size_of::<Piece>()
    }
}

impl Editor<'_> {
    /// Whether enough lies about for [`Editor::close_garbage`] to be worth its price.
    pub(in crate::index) fn has_garbage(&self) -> bool {
        self.own.garbage.is_due()
    }

    /// Queries that begin after `epoch` see nothing of what was taken down so far.
    pub(in crate::index) fn close_garbage(&mut self, epoch: u64) {
        self.own.garbage.close(epoch);
    }

    /// Frees what no query can see, now that all that are under way began in the epoch `oldest` or later.
    pub(in crate::index) fn free_garbage(&mut self, oldest: u64) {
        for piece in self.own.garbage.take_unseen(oldest) {
            match piece {
                Piece::Line(number) => self.own.line_numbers.give(number),
                Piece::Record(number) => self.own.record_numbers.give(number),
                Piece::Edge(number) => self.own.edge_numbers.give(number),
                Piece::Blocks(extent) => self.own.ids.give(extent),
                Piece::Table(table) => self.own.children.give(&self.visible.children, table),
            }
        }
    }
}
