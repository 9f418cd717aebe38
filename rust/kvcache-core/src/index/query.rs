//! Answers: what each stream holds of a prompt.
//!
//! The slot map is read once before the walk, so that no answer mixes two views. Knows nothing of
//! writers.

use std::sync::Arc;

use super::row::{Member, Row};
use super::rows::Rows;
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
    rows: Option<Arc<Rows>>,
    /// All sequences, by place, then all counts: one allocation. A sequence is the last that the view included before the
    /// walk, [`Sequence::END`] for none; a count is what [`Count`] wraps.
    cells: Vec<u64>,
}

impl Matches {
    /// An answer that was made elsewhere: a stream, why it was not synchronized, and what it held, in the order of the
    /// answer. `None` for more tokens than an answer can hold.
    #[must_use]
    pub fn shown(hits: impl IntoIterator<Item = (Member, Arc<str>, Hit)>) -> Option<Self> {
        let shown = hits.into_iter().map(|(member, error, hit)| {
            let sequence = hit.sequence.unwrap_or(Sequence::END);
            Some((row(member, error, hit), sequence, count(hit)?))
        });
        Some(Self::in_order(shown.collect::<Option<_>>()?))
    }

    /// Rows with what they hold, in the order of the answer.
    fn in_order(all: Vec<(Row, Sequence, Count)>) -> Self {
        let sequences = all.iter().map(|(_, sequence, _)| sequence.0);
        let counts = all.iter().map(|(.., count)| count.0);
        Self {
            cells: sequences.chain(counts).collect(),
            rows: (!all.is_empty()).then(|| {
                let rows = all.into_iter().map(|(row, ..)| row);
                Arc::new(Rows::in_order(rows.collect()))
            }),
        }
    }

    /// Streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.as_ref().map_or(0, |rows| rows.len())
    }

    /// Whether there is no stream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stream at `index`, and what it holds.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&Row, Hit)> {
        let (row, sequence, count) = self.parts(index)?;
        Some((row, hit(row, sequence, count)))
    }

    fn parts(&self, index: usize) -> Option<(&Row, Sequence, Count)> {
        let rows = self.rows.as_ref()?;
        let (row, place) = (rows.get(index)?, rows.place(index)?);
        let (sequences, counts) = self.cells.split_at(self.cells.len() / 2);
        Some((
            row,
            Sequence(*sequences.get(place)?),
            Count(*counts.get(place)?),
        ))
    }

    /// Every stream, and what it holds.
    pub fn iter(&self) -> impl Iterator<Item = (&Row, Hit)> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Tokens held on Device, and in Host only, a pair for each stream.
    pub fn hit_tokens(&self) -> impl Iterator<Item = (u32, u32)> {
        let counts = self.counts();
        let places = self.rows.iter().flat_map(|rows| rows.places());
        places.map(|place| pair(counts.get(place)))
    }

    /// Tokens held on Device, and in Host only, of the stream at `index`; nothing where there is none.
    #[must_use]
    pub fn hit_tokens_at(&self, index: usize) -> (u32, u32) {
        let place = self.rows.as_ref().and_then(|rows| rows.place(index));
        pair(place.and_then(|place| self.counts().get(place)))
    }

    fn counts(&self) -> &[u64] {
        &self.cells[self.cells.len() / 2..]
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
        let parts = parts
            .iter()
            .flat_map(|part| (0..part.len()).filter_map(|index| part.parts(index)));
        let mut all: Vec<(&Row, Sequence, Count)> = parts.collect();
        all.sort_by(|a, b| a.0.key().cmp(b.0.key()));
        let all = all.into_iter();
        Self::in_order(
            all.map(|(row, sequence, count)| (row.clone(), sequence, count))
                .collect(),
        )
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
    let depth = hit
        .device_hit_tokens
        .checked_add(hit.host_only_hit_tokens)?;
    let host_only = u32::try_from(hit.host_only_hit_tokens).ok()?;
    Some(Count::new(u32::try_from(depth).ok()?, host_only))
}

fn pair(count: Option<&u64>) -> (u32, u32) {
    count.copied().map_or((0, 0), |count| {
        let count = Count(count);
        (count.depth() - count.host_only(), count.host_only())
    })
}

fn hit(row: &Row, sequence: Sequence, count: Count) -> Hit {
    let view = row.view();
    let sequence = Some(sequence).filter(|sequence| *sequence != Sequence::END);
    let (device, host_only) = pair(Some(&count.0));
    Hit {
        synchronized: view.is_some(),
        sequence: if view.is_some() {
            sequence
        } else {
            row.last_sequence
        },
        device_hit_tokens: device.into(),
        host_only_hit_tokens: host_only.into(),
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
    let Matches { rows, cells } = matches;
    walk.prefetch(trie);
    // The slots' places, and that of rows without a view.
    let places = map.slots() + 1;
    cells.clear();
    cells.reserve_exact(2 * places);
    // Sequences first: the walk sees at least what they promise.
    cells.extend(sequences.read(places - 1));
    cells.push(Sequence::END.0);
    cells.resize(2 * places, 0);
    let tally = Tally::new(map, &mut cells[places..], spec.block_size_tokens.get());
    walk.run(trie, tally);
    if !rows
        .as_ref()
        .is_some_and(|rows| Arc::ptr_eq(rows, map.rows()))
    {
        *rows = Some(map.rows().clone());
    }
}
