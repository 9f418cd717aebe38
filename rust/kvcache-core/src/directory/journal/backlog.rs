//! Lines that were written and not read yet, within bounds. Without a lock or a clock.
//!
//! A line beyond its stream's budget is held until there is one again. Of several only the latest
//! is held, which says how the stream is now; the others are counted. So the last line of a stream
//! is always true in the end.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::time::Instant;

use super::budget::Budget;
use super::transition::{Change, Entries, Transition};
use crate::model::StreamKey;

/// Lines that wait for the reader: the bursts of 128 streams, and as many again.
const MAX_WAITING: usize = 2560;

#[derive(Debug)]
struct Slot {
    key: StreamKey,
    budget: Budget,
    held: Option<Change>,
    left_out: u64,
}

impl Slot {
    fn take_held(&mut self) -> Option<Transition> {
        let change = self.held.take()?;
        Some(Transition {
            key: self.key.clone(),
            change,
            left_out: mem::take(&mut self.left_out),
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Backlog {
    slots: BTreeMap<u64, Slot>,
    next_stream: u64,
    waiting: VecDeque<Transition>,
    dropped: u64,
}

impl Backlog {
    /// A slot for one more stream; returns its number.
    pub(super) fn open(&mut self, key: StreamKey, now: Instant) -> u64 {
        let stream = self.next_stream;
        self.next_stream += 1;
        let slot = Slot {
            key,
            budget: Budget::new(now),
            held: None,
            left_out: 0,
        };
        self.slots.insert(stream, slot);
        stream
    }

    /// Writes a line. Does nothing for a stream that is not followed any more.
    pub(super) fn record(&mut self, now: Instant, stream: u64, change: Change) {
        let Some(slot) = self.slots.get_mut(&stream) else {
            return;
        };
        if slot.held.is_none() && slot.budget.take(now) {
            let key = slot.key.clone();
            self.push(Transition {
                key,
                change,
                left_out: 0,
            });
        } else if slot.held.replace(change).is_some() {
            slot.left_out += 1;
        }
    }

    /// The stream is not followed any more; what it still had to say is said.
    pub(super) fn forget(&mut self, stream: u64) {
        let slot = self.slots.remove(&stream);
        if let Some(last) = slot.and_then(|mut slot| slot.take_held()) {
            self.push(last);
        }
    }

    /// No stream is followed any more.
    pub(super) fn end(&mut self) {
        while let Some(stream) = self.slots.keys().next().copied() {
            self.forget(stream);
        }
    }

    /// Everything that may be told now.
    pub(super) fn take(&mut self, now: Instant) -> Entries {
        let due = self.slots.values_mut().filter_map(|slot| {
            let is_due = slot.held.is_some() && slot.budget.take(now);
            is_due.then(|| slot.take_held()).flatten()
        });
        for transition in due.collect::<Vec<_>>() {
            self.push(transition);
        }
        Entries {
            transitions: mem::take(&mut self.waiting).into(),
            dropped: mem::take(&mut self.dropped),
        }
    }

    /// When the next held line may be told; `None` without any.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let holding = self.slots.values().filter(|slot| slot.held.is_some());
        holding.map(|slot| slot.budget.next(now)).min()
    }

    fn push(&mut self, transition: Transition) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(transition);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lost(number: usize) -> Change {
        Change::Lost {
            sequence: None,
            reason: number.to_string(),
        }
    }

    fn stream(backlog: &mut Backlog, name: &str, now: Instant) -> u64 {
        backlog.open(StreamKey::new(name, 0), now)
    }

    /// The reasons taken, each with what was left out before it.
    fn taken(backlog: &mut Backlog, now: Instant) -> Vec<(String, u64)> {
        let told = backlog.take(now).transitions.into_iter();
        told.map(|one| match one.change {
            Change::Lost { reason, .. } => (reason, one.left_out),
            other => panic!("{other:?}"),
        })
        .collect()
    }

    #[test]
    fn a_burst_is_told_in_full_and_then_one_line_in_a_while() {
        let (mut backlog, start) = (Backlog::default(), Instant::now());
        let a = stream(&mut backlog, "a", start);
        for number in 0..15 {
            backlog.record(start, a, lost(number));
        }
        let first = taken(&mut backlog, start);
        let whole: Vec<_> = (0..10).map(|number| (number.to_string(), 0)).collect();
        assert_eq!(first, whole);
        let due = start + Budget::EVERY;
        assert_eq!(backlog.next_due(start), Some(due));
        assert_eq!(
            taken(
                &mut backlog,
                due.checked_sub(Duration::from_nanos(1)).unwrap()
            ),
            []
        );
        assert_eq!(taken(&mut backlog, due), [("14".to_owned(), 4)]);
        assert_eq!(backlog.next_due(due), None);
        assert_eq!(taken(&mut backlog, due + Budget::EVERY), []);
    }

    #[test]
    fn a_calm_restores_the_burst_and_no_more() {
        let (mut backlog, start) = (Backlog::default(), Instant::now());
        let a = stream(&mut backlog, "a", start);
        for later in [Duration::ZERO, 100 * Budget::EVERY] {
            let now = start + later;
            for number in 0..12 {
                backlog.record(now, a, lost(number));
            }
            assert_eq!(taken(&mut backlog, now).len(), 10);
            assert_eq!(
                taken(&mut backlog, now + Budget::EVERY).len(),
                1,
                "the one held"
            );
        }
    }

    #[test]
    fn a_stream_that_flaps_costs_the_others_nothing() {
        let (mut backlog, start) = (Backlog::default(), Instant::now());
        let (a, b) = (
            stream(&mut backlog, "a", start),
            stream(&mut backlog, "b", start),
        );
        for number in 0..100_000 {
            backlog.record(start, a, lost(number));
        }
        backlog.record(start, b, lost(7));
        let told = taken(&mut backlog, start);
        assert_eq!(told.len(), 11);
        assert_eq!(told[10], ("7".to_owned(), 0));
    }

    #[test]
    fn what_nobody_reads_is_bounded_and_counted() {
        let (mut backlog, start) = (Backlog::default(), Instant::now());
        for number in 0..MAX_WAITING + 5 {
            let one = stream(&mut backlog, "a", start);
            backlog.record(start, one, lost(number));
            backlog.forget(one);
        }
        let entries = backlog.take(start);
        assert_eq!(entries.transitions.len(), MAX_WAITING);
        assert_eq!(entries.dropped, 5);
        assert_eq!(entries.transitions[0].change, lost(5), "the oldest went");
        assert!(backlog.take(start).is_empty());
    }

    #[test]
    fn the_last_word_of_a_stream_is_told_when_it_goes() {
        let (mut backlog, start) = (Backlog::default(), Instant::now());
        let a = stream(&mut backlog, "a", start);
        for number in 0..13 {
            backlog.record(start, a, lost(number));
        }
        backlog.forget(a);
        backlog.record(start, a, lost(99));
        let told = taken(&mut backlog, start);
        assert_eq!(told.last(), Some(&("12".to_owned(), 2)));
        assert_eq!(told.len(), 11);
        assert!(backlog.slots.is_empty());
    }
}
