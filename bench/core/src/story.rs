//! What an engine has to say: prompts that share nothing, each stored in several events.

use kvcache_core::model::{Batch, Event, Stored, Tier, WireHash};

/// Token ids of a large vocabulary: most take five bytes on the wire, the others three.
const VOCABULARY: u32 = 151_936;

/// Consecutive blocks of a prompt.
#[derive(Clone, Debug)]
pub struct Span {
    pub parent: Option<WireHash>,
    pub wire_hashes: Vec<WireHash>,
    pub token_ids: Vec<u32>,
}

/// `blocks` blocks, `in_prompt` a prompt and `in_event` an event, in the order in which they are stored.
#[must_use]
pub fn tell(
    seed: u64,
    blocks: usize,
    block_size: u32,
    in_prompt: usize,
    in_event: usize,
) -> Vec<Span> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut spans: Vec<Span> = Vec::with_capacity(blocks / in_event);
    for first in (0..blocks).step_by(in_event) {
        let parent = if first % in_prompt == 0 {
            None
        } else {
            spans
                .last()
                .and_then(|span| span.wire_hashes.last().copied())
        };
        let tokens = in_event * block_size as usize;
        spans.push(Span {
            parent,
            wire_hashes: (0..in_event).map(|_| WireHash(random.u64(..))).collect(),
            token_ids: (0..tokens).map(|_| random.u32(..VOCABULARY)).collect(),
        });
    }
    spans
}

impl Span {
    /// As a decoder would give it.
    #[must_use]
    pub fn stored(&self) -> Batch {
        Batch {
            events: vec![Event::Stored(Stored {
                wire_hashes: 0..self.wire_hashes.len(),
                token_ids: 0..self.token_ids.len(),
                parent: self.parent,
                tier: Some(Tier::Device),
            })],
            wire_hashes: self.wire_hashes.clone(),
            token_ids: self.token_ids.clone(),
        }
    }
}
