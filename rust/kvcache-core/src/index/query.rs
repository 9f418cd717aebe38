//! Answers: what each stream holds of a prompt.
//!
//! The slot map is read once before the walk, so that no answer mixes two views. Knows nothing of
//! writers.

use std::sync::Arc;

use super::row::{Member, Row};
use super::slot_map::SlotMap;
use super::tally::{Count, Tally};
use super::trie::{Prompt, Trie, Walk};
use super::view::{Sequences, ViewStats};
use crate::model::{BlockSpec, Sequence};

/// What one stream holds of a prompt (spec: query).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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

/// One [`Hit`] a stream, by instance name, then rank; made when asked for.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// `None` only when there is no row.
    rows: Option<Arc<[Row]>>,
    /// By row.
    counts: Vec<Count>,
}

impl Matches {
    /// An answer that was made elsewhere: a stream, why it was not synchronized, and what it held, in the order of the
    /// answer. `None` for more tokens than an answer can hold.
    #[must_use]
    pub fn shown(hits: impl IntoIterator<Item = (Member, Arc<str>, Hit)>) -> Option<Self> {
        let shown = hits
            .into_iter()
            .map(|(member, error, hit)| Some((row(member, error, hit), count(hit)?)));
        let (rows, counts): (Vec<Row>, Vec<Count>) =
            shown.collect::<Option<Vec<_>>>()?.into_iter().unzip();
        let rows = (!rows.is_empty()).then(|| rows.into());
        Some(Self { rows, counts })
    }

    /// Streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether there is no stream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The stream at `index`, and what it holds.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&Row, Hit)> {
        let (row, count) = (self.row(index)?, *self.counts.get(index)?);
        Some((row, hit(row, count)))
    }

    /// Every stream, and what it holds.
    pub fn iter(&self) -> impl Iterator<Item = (&Row, Hit)> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Tokens held on Device, and in Host only, a pair for each stream.
    #[must_use]
    pub fn hit_tokens(&self) -> impl ExactSizeIterator<Item = (u32, u32)> {
        let counts = self.counts.iter();
        counts.map(|count| (count.depth - count.host_only, count.host_only))
    }

    fn row(&self, index: usize) -> Option<&Row> {
        self.rows.as_ref()?.get(index)
    }

    /// Tokens held on Device, and in Host only, of the stream at `index`; nothing where there is none.
    #[must_use]
    pub fn hit_tokens_at(&self, index: usize) -> (u32, u32) {
        let count = self.counts.get(index);
        count.map_or((0, 0), |count| {
            (count.depth - count.host_only, count.host_only)
        })
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
        let places = parts.iter().flat_map(|part| {
            let rows = part.rows.iter().flat_map(|rows| rows.iter());
            rows.zip(part.counts.iter().copied())
        });
        let mut places: Vec<(&Row, Count)> = places.collect();
        places.sort_by(|a, b| a.0.key().cmp(b.0.key()));
        let (rows, counts): (Vec<Row>, _) = places
            .into_iter()
            .map(|(row, count)| (row.clone(), count))
            .unzip();
        Self {
            rows: Some(rows.into()),
            counts,
        }
    }
}

/// The inverse of [`hit`], with [`count`].
fn row(member: Member, error: Arc<str>, hit: Hit) -> Row {
    let stats = hit
        .synchronized
        .then(|| ViewStats::elsewhere(hit.device_blocks, hit.host_blocks));
    Row::shown(member, error, hit.sequence, stats)
}

fn count(hit: Hit) -> Option<Count> {
    let mut count = Count::new(hit.sequence.unwrap_or(Sequence::END));
    count.host_only = u32::try_from(hit.host_only_hit_tokens).ok()?;
    let depth = hit
        .device_hit_tokens
        .checked_add(hit.host_only_hit_tokens)?;
    count.depth = u32::try_from(depth).ok()?;
    Some(count)
}

fn hit(row: &Row, count: Count) -> Hit {
    let view = row.view();
    let sequence = Some(count.sequence).filter(|sequence| *sequence != Sequence::END);
    Hit {
        synchronized: view.is_some(),
        sequence: if view.is_some() {
            sequence
        } else {
            row.last_sequence
        },
        device_hit_tokens: u64::from(count.depth - count.host_only),
        host_only_hit_tokens: u64::from(count.host_only),
        device_blocks: view.map_or(0, ViewStats::device_blocks),
        host_blocks: view.map_or(0, ViewStats::host_blocks),
    }
}

/// Makes the walk and says in `matches` how far each stream came.
pub(super) fn answer(
    map: &SlotMap,
    sequences: &Sequences,
    trie: &Trie,
    spec: BlockSpec,
    walk: Walk<'_, impl Prompt>,
    matches: &mut Matches,
) {
    let Matches { rows, counts } = matches;
    walk.prefetch(trie);
    // Sequences first: the walk sees at least what they promise.
    counts.clear();
    if counts.capacity() < map.slots().len() {
        *counts = Vec::with_capacity(map.slots().len());
    }
    let slots = map.slots().iter();
    counts.extend(slots.map(|slot| Count::new(sequences.get(*slot))));
    let tally = Tally::new(map, counts, spec.block_size_tokens.get());
    walk.run(trie, tally);
    if !rows
        .as_ref()
        .is_some_and(|rows| Arc::ptr_eq(rows, map.rows()))
    {
        *rows = Some(map.rows().clone());
    }
}
