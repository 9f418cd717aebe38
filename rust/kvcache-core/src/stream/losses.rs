//! Counts what only calibrations have brought: it is lost, unless its messages are still on their
//! way.
//!
//! Messages come in order over one connection, so that one which is overtaken will not come any
//! more. Invariant: what is pending is in ascending order and does not overlap.

use std::collections::VecDeque;
use std::time::Instant;

use crate::model::Sequence;

/// Beyond so many, calibrations are counted as one.
const MAX_PENDING: usize = 16;

/// A number of messages, and of copies that they changed, known to be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) sequences: u64,
    pub(super) blocks: u64,
}

/// Sequences that one calibration brought before their messages.
#[derive(Debug)]
struct Brought {
    first: Sequence,
    last: Sequence,
    /// It added and removed so many copies.
    blocks: u64,
    /// None of its messages has come. Otherwise nobody can tell which copies were the others'.
    is_whole: bool,
    /// After this moment a message is not late but lost.
    until: Instant,
}

impl Brought {
    fn lost(&self) -> Lost {
        Lost {
            sequences: (self.last.0 - self.first.0).saturating_add(1),
            blocks: if self.is_whole { self.blocks } else { 0 },
        }
    }
}

/// Remembers what calibrations brought and may yet come.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pending: VecDeque<Brought>,
}

impl std::ops::AddAssign for Lost {
    fn add_assign(&mut self, other: Self) {
        self.sequences += other.sequences;
        self.blocks += other.blocks;
    }
}

impl Losses {
    /// A calibration brought the messages from `first` to `last`, which changed `blocks` copies in
    /// all.
    pub(super) fn brought(&mut self, first: Sequence, last: Sequence, blocks: u64, until: Instant) {
        if self.pending.len() >= MAX_PENDING
            && let Some(latest) = self.pending.back_mut()
        {
            latest.last = last;
            latest.blocks += blocks;
            latest.until = until;
            return;
        }
        self.pending.push_back(Brought {
            first,
            last,
            blocks,
            is_whole: true,
            until,
        });
    }

    /// The live message `sequence` has come: those before it that have not are lost.
    pub(super) fn heard(&mut self, sequence: Sequence) -> Lost {
        let mut lost = Lost::default();
        while let Some(front) = self.pending.front_mut() {
            if sequence < front.first {
                break;
            }
            if sequence < front.last {
                lost.sequences += sequence.0 - front.first.0;
                front.first = Sequence(sequence.0 + 1);
                front.is_whole = false;
                break;
            }
            if sequence == front.last {
                lost.sequences += sequence.0 - front.first.0;
            } else {
                lost += front.lost();
            }
            self.pending.pop_front();
        }
        lost
    }

    /// Says when something will be lost that has not come by then.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.front().map(|front| front.until)
    }

    /// Gives up what has not come in time.
    pub(super) fn overdue(&mut self, now: Instant) -> Lost {
        let mut lost = Lost::default();
        while self.pending.front().is_some_and(|front| front.until <= now) {
            lost += self
                .pending
                .pop_front()
                .map_or_else(Lost::default, |front| front.lost());
        }
        lost
    }

    /// Gives up everything but what the latest calibration brought, which may yet come.
    pub(super) fn all_but_latest(&mut self) -> Lost {
        let mut lost = Lost::default();
        while self.pending.len() > 1 {
            lost += self
                .pending
                .pop_front()
                .map_or_else(Lost::default, |front| front.lost());
        }
        lost
    }

    /// Drops what was on its way: nobody will know.
    pub(super) fn forget(&mut self) {
        self.pending.clear();
    }
}
