//! The walk along a prompt, for all streams at once.
//!
//! Two tiers in one walk: a block costs a few words, whatever the number of streams. The slot map is
//! read once before, so that no answer mixes two views. Knows nothing of writers.

use std::sync::Arc;

use super::row::Row;
use super::slot_map::SlotMap;
use super::slot_mask::{Slot, SlotMask};
use super::table::Table;
use crate::model::{BlockSpec, ContentKey, Sequence};

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
    /// Blocks of the view with a Device copy.
    pub device_blocks: u64,
    /// Blocks of the view with a Host copy.
    pub host_blocks: u64,
}

/// One [`Hit`] a stream, by instance name, then rank.
#[derive(Clone, Debug)]
pub struct Matches {
    rows: Arc<[Row]>,
    hits: Vec<Hit>,
}

impl Matches {
    /// Streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hits.len()
    }

    /// Whether there is no stream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hits.is_empty()
    }

    /// The stream at `index`, and what it holds.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&Row, &Hit)> {
        Some((self.rows.get(index)?, self.hits.get(index)?))
    }

    /// Every stream, and what it holds.
    pub fn iter(&self) -> impl Iterator<Item = (&Row, &Hit)> {
        self.rows.iter().zip(&self.hits)
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
        let mut both: Vec<(&Row, Hit)> = parts
            .iter()
            .flat_map(|part| part.rows.iter().zip(part.hits.iter().copied()))
            .collect();
        both.sort_by(|a, b| a.0.key.cmp(&b.0.key));
        Self {
            hits: both.iter().map(|(_, hit)| *hit).collect(),
            rows: both.iter().map(|(row, _)| (*row).clone()).collect(),
        }
    }
}

/// Walks `keys` for as long as some live view holds them.
pub(super) fn walk(
    map: &SlotMap,
    table: &Table,
    spec: BlockSpec,
    keys: impl Iterator<Item = ContentKey>,
) -> Matches {
    // Sequences first: the walk sees at least what they promise.
    let mut hits: Vec<Hit> = map.rows().iter().map(status).collect();
    let mut tally = Tally::new(map.live());
    // Asked before the next key is: hashing it may be most of the work.
    let mut keys = keys;
    while !tally.alive.is_empty() {
        let Some(key) = keys.next() else { break };
        let (device, host) = table.get(key).unwrap_or_default();
        tally.block(device, host);
    }
    tally.finish();
    let block_size = u64::from(spec.block_size_tokens.get());
    for slot in map.live().iter() {
        let host_only = tally.host_only[slot.index()];
        let hit = &mut hits[map.row_of(slot)];
        hit.device_hit_tokens = (tally.depth[slot.index()] - host_only) * block_size;
        hit.host_only_hit_tokens = host_only * block_size;
    }
    Matches {
        rows: map.rows().clone(),
        hits,
    }
}

fn status(row: &Row) -> Hit {
    match &row.view {
        None => Hit {
            sequence: row.last_sequence,
            ..Hit::default()
        },
        Some(view) => Hit {
            synchronized: true,
            sequence: view.sequence(),
            device_blocks: view.device_blocks(),
            host_blocks: view.host_blocks(),
            ..Hit::default()
        },
    }
}

/// How far each slot came. Per-slot numbers are touched only when something changes.
struct Tally {
    /// Slots that hold every block so far.
    alive: SlotMask,
    blocks: u64,
    /// Slots that had Host copies only in the last `pending_blocks` blocks, not yet counted.
    pending: SlotMask,
    pending_blocks: u64,
    /// Blocks held, for slots that are no longer alive.
    depth: [u64; Slot::COUNT],
    /// Of which with a Host copy only.
    host_only: [u64; Slot::COUNT],
}

impl Tally {
    fn new(live: SlotMask) -> Self {
        Self {
            alive: live,
            blocks: 0,
            pending: SlotMask::EMPTY,
            pending_blocks: 0,
            depth: [0; Slot::COUNT],
            host_only: [0; Slot::COUNT],
        }
    }

    fn block(&mut self, device: SlotMask, host: SlotMask) {
        let alive = self.alive.and(device.or(host));
        if alive != self.alive {
            self.end(self.alive.and_not(alive));
            self.alive = alive;
        }
        let host_only = alive.and_not(device);
        if host_only != self.pending {
            self.flush();
            self.pending = host_only;
        }
        self.pending_blocks += 1;
        self.blocks += 1;
    }

    fn end(&mut self, slots: SlotMask) {
        for slot in slots.iter() {
            self.depth[slot.index()] = self.blocks;
        }
    }

    fn flush(&mut self) {
        for slot in self.pending.iter() {
            self.host_only[slot.index()] += self.pending_blocks;
        }
        self.pending_blocks = 0;
    }

    fn finish(&mut self) {
        self.end(self.alive);
        self.flush();
    }
}
