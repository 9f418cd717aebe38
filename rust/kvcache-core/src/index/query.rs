//! Answers: what each stream holds of a prompt.
//!
//! The slot map is read once before the walk, so that no answer mixes two views. Knows nothing of
//! writers.

use std::sync::Arc;

use super::row::Row;
use super::slot_map::SlotMap;
use super::tally::{Count, Counted, Tally};
use super::trie::{self, Prompt, Trie};
use super::view::{Sequences, ViewStats};
use crate::model::{BlockSpec, Sequence};

/// What one stream holds of a prompt (spec: query).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// Whether the stream has a published view; without one it holds nothing.
    pub synchronized: bool,
    /// The last sequence that the view includes, or that the last one did.
    pub sequence: Option<Sequence>,
    /// Tokens of the walked blocks with a Device copy.
    pub device_hit_tokens: u64,
    /// Tokens of the walked blocks with a Host copy only.
    pub host_only_hit_tokens: u64,
    /// Blocks of the view with a Device copy, when the hit was made.
    pub device_blocks: u64,
    /// Blocks of the view with a Host copy, when the hit was made.
    pub host_blocks: u64,
}

/// What a query found out about one stream; the rest is in its row.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// [`Sequence::END`] for none.
    sequence: Sequence,
    /// In tokens, when all is counted.
    count: Count,
}

impl Counted for Found {
    #[inline]
    fn count_mut(&mut self) -> &mut Count {
        &mut self.count
    }
}

/// One [`Hit`] a stream, by instance name, then rank; made when asked for.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    rows: Arc<[Row]>,
    found: Vec<Found>,
}

impl Matches {
    /// Streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether there is no stream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The stream at `index`, and what it holds.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&Row, Hit)> {
        let (row, found) = (self.rows.get(index)?, self.found.get(index)?);
        Some((row, hit(row, found)))
    }

    /// Every stream, and what it holds.
    pub fn iter(&self) -> impl Iterator<Item = (&Row, Hit)> {
        let pairs = self.rows.iter().zip(&self.found);
        pairs.map(|(row, found)| (row, hit(row, found)))
    }

    /// Tokens held on Device, and in Host only, a pair for each stream.
    #[must_use]
    pub fn hit_tokens(&self) -> impl ExactSizeIterator<Item = (u32, u32)> {
        self.found
            .iter()
            .map(|Found { count, .. }| (count.depth - count.host_only, count.host_only))
    }

    /// Answers of several indexes as one, in the same order.
    #[must_use]
    pub fn merge(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts: Vec<Self> = parts.into_iter().collect();
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return only;
        }
        let pairs = parts
            .iter()
            .flat_map(|part| part.rows.iter().zip(&part.found));
        let mut pairs: Vec<(&Row, &Found)> = pairs.collect();
        pairs.sort_by(|a, b| a.0.key.cmp(&b.0.key));
        Self {
            rows: pairs.iter().map(|(row, _)| (*row).clone()).collect(),
            found: pairs.iter().map(|(_, found)| **found).collect(),
        }
    }
}

fn hit(row: &Row, found: &Found) -> Hit {
    let sequence = Some(found.sequence).filter(|sequence| *sequence != Sequence::END);
    let view = row.view();
    Hit {
        synchronized: view.is_some(),
        sequence: if view.is_some() {
            sequence
        } else {
            row.last_sequence
        },
        device_hit_tokens: u64::from(found.count.depth - found.count.host_only),
        host_only_hit_tokens: u64::from(found.count.host_only),
        device_blocks: view.map_or(0, ViewStats::device_blocks),
        host_blocks: view.map_or(0, ViewStats::host_blocks),
    }
}

/// Walks along `prompt` and says in `matches` how far each stream came.
pub(super) fn answer(
    map: &SlotMap,
    sequences: &Sequences,
    trie: &Trie,
    spec: BlockSpec,
    mut prompt: impl Prompt,
    matches: &mut Matches,
) {
    let Matches { rows, found } = matches;
    // Sequences first: the walk sees at least what they promise.
    found.clear();
    found.extend(map.slots().iter().map(|slot| Found {
        sequence: slot.map_or(Sequence::END, |slot| sequences.get(slot)),
        count: Count::default(),
    }));
    let reached = trie::walk(trie, &mut prompt, Tally::new(map, found));
    let block_size = spec.block_size_tokens.get();
    for slot in reached.iter() {
        let count = found[map.row_of(slot)].count_mut();
        count.depth *= block_size;
        count.host_only *= block_size;
    }
    if !Arc::ptr_eq(rows, map.rows()) {
        *rows = map.rows().clone();
    }
}
