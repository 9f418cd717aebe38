//! A state machine with its place in a real index.

mod clears;
mod histories;
mod whole;

use std::num::NonZeroU32;

use super::*;
use crate::index::PrefixIndex;
use crate::model::{BlockSpec, Event, Stored, StreamKey, Tier, WireHash};

#[test]
fn blocks_count_in_what_a_stream_occupies() {
    let index = PrefixIndex::new(BlockSpec {
        block_size_tokens: NonZeroU32::MIN,
        hash_seed: 1,
    });
    let writer = index.add_stream(StreamKey::new("a", 0), 100).unwrap();
    let mut views = StreamViews::new(writer);
    let stored = Stored {
        wire_hashes: 0..50,
        token_ids: 0..50,
        parent: None,
        tier: Some(Tier::Device),
    };
    let batch = Batch {
        events: vec![Event::Stored(stored)],
        wire_hashes: (0..50).map(WireHash).collect(),
        token_ids: (0..50).collect(),
    };
    views.draft_snapshot(&batch).unwrap();
    assert_eq!(views.sizes(), Sizes::default());
    views.publish_draft(Sequence(1)).unwrap();
    let sizes = views.sizes();
    assert_eq!(sizes.known_blocks, 50);
    assert!(sizes.memory_bytes >= 50 * BLOCK_BYTES);
}
