//! Any payload is a batch that fits the stream, or an error that leaves nothing behind.
//!
//! The first byte chooses the stream's block size, so that one corpus covers several.

#![no_main]

use kvcache_core::decode::xllm::{self, Expectation};
use kvcache_core::model::{Batch, DpRank, Event};
use libfuzzer_sys::fuzz_target;

const BLOCK_SIZES: [u32; 4] = [1, 2, 16, 128];

fuzz_target!(|data: &[u8]| {
    let Some((choice, payload)) = data.split_first() else {
        return;
    };
    let block_size_tokens = BLOCK_SIZES[usize::from(choice % 4)];
    let expect = Expectation {
        dp_rank: DpRank(0),
        block_size_tokens: block_size_tokens.try_into().expect("not 0"),
    };
    let mut batch = Batch::default();
    match xllm::decode(payload, &expect, &mut batch) {
        Ok(()) => check(&batch, payload.len(), block_size_tokens),
        Err(error) => {
            assert_eq!(batch, Batch::default());
            assert!(error.offset <= payload.len());
            assert!(error.to_string().len() < 1024);
        }
    }
    // What a batch held before makes no difference.
    let mut again = batch.clone();
    let repeated = xllm::decode(payload, &expect, &mut again);
    assert_eq!(again, batch);
    assert!(repeated.is_ok() || batch.events.is_empty());
});

/// No more records than bytes; ranges follow one another within the arenas; tokens are whole blocks.
fn check(batch: &Batch, payload_bytes: usize, block_size_tokens: u32) {
    let records = batch.events.len() + batch.wire_hashes.len() + batch.token_ids.len();
    assert!(records <= payload_bytes);
    let (mut hashes_end, mut tokens_end) = (0, 0);
    for event in &batch.events {
        let wire_hashes = match event {
            Event::Stored(stored) => {
                let tokens = &stored.token_ids;
                if !tokens.is_empty() {
                    assert_eq!(tokens.start, tokens_end);
                    assert_eq!(
                        tokens.len(),
                        stored.wire_hashes.len() * block_size_tokens as usize
                    );
                    tokens_end = tokens.end;
                }
                &stored.wire_hashes
            }
            Event::Removed { wire_hashes, .. } => wire_hashes,
            Event::Cleared => continue,
        };
        assert_eq!(wire_hashes.start, hashes_end);
        hashes_end = wire_hashes.end;
    }
    assert_eq!(hashes_end, batch.wire_hashes.len());
    assert_eq!(tokens_end, batch.token_ids.len());
}
