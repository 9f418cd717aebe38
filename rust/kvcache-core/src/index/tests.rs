//! Tests of the index as its users see it; those of its parts are beside the parts.

mod collisions;
mod concurrency;
mod costs;
mod history;
mod rules;
mod slots;

use std::num::NonZeroU32;
use std::sync::Arc;

use super::{Draft, Hit, Matches, Origin, PrefixIndex, StreamWriter};
use crate::model::{
    ApplyError, ApplyReport, Batch, BlockSpec, Event, Stored, StreamKey, Tier, WireHash,
};

fn spec(block_size: u32) -> BlockSpec {
    BlockSpec {
        block_size_tokens: NonZeroU32::new(block_size).unwrap(),
        hash_seed: 1024,
    }
}

/// An index of block size 2 and one published, empty stream.
fn one_stream(max_blocks: usize) -> (Arc<PrefixIndex>, StreamWriter) {
    let index = PrefixIndex::new(spec(2));
    let writer = published(&index, "a", max_blocks);
    (index, writer)
}

fn published(index: &Arc<PrefixIndex>, name: &str, max_blocks: usize) -> StreamWriter {
    let mut writer = index
        .add_stream(StreamKey::new(name, 0), max_blocks)
        .unwrap();
    let draft = writer.new_draft();
    writer.publish(draft, None).unwrap();
    writer
}

/// A batch, one event after the other.
#[derive(Default)]
struct Events(Batch);

impl Events {
    fn store(mut self, parent: Option<u64>, wires: &[u64], tokens: &[u32], tier: Tier) -> Self {
        self.push_store(parent, wires, tokens, Some(tier));
        self
    }

    fn store_elsewhere(mut self, parent: Option<u64>, wires: &[u64], tokens: &[u32]) -> Self {
        self.push_store(parent, wires, tokens, None);
        self
    }

    fn remove(mut self, wires: &[u64], tier: Option<Tier>) -> Self {
        let wire_hashes = self.push_wires(wires);
        self.0.events.push(Event::Removed { wire_hashes, tier });
        self
    }

    fn clear(mut self) -> Self {
        self.0.events.push(Event::Cleared);
        self
    }

    fn push_store(
        &mut self,
        parent: Option<u64>,
        wires: &[u64],
        tokens: &[u32],
        tier: Option<Tier>,
    ) {
        let first_token = self.0.token_ids.len();
        self.0.token_ids.extend_from_slice(tokens);
        let stored = Stored {
            wire_hashes: self.push_wires(wires),
            token_ids: first_token..self.0.token_ids.len(),
            parent: parent.map(WireHash),
            tier,
        };
        self.0.events.push(Event::Stored(stored));
    }

    fn push_wires(&mut self, wires: &[u64]) -> std::ops::Range<usize> {
        let first = self.0.wire_hashes.len();
        self.0
            .wire_hashes
            .extend(wires.iter().copied().map(WireHash));
        first..self.0.wire_hashes.len()
    }

    fn apply(self, writer: &mut StreamWriter) -> Result<ApplyReport, ApplyError> {
        writer.apply(&self.0, None)
    }

    fn draft(self, draft: &mut Draft, origin: Origin) -> Result<ApplyReport, ApplyError> {
        draft.apply(&self.0, origin)
    }
}

fn hit(matches: &Matches, index: usize) -> Hit {
    matches.get(index).unwrap().1
}

/// Device tokens and Host-only tokens of the first stream.
fn hits(index: &PrefixIndex, tokens: &[u32]) -> (u64, u64) {
    let hit = hit(&index.query_tokens(tokens), 0);
    (hit.device_hit_tokens, hit.host_only_hit_tokens)
}
