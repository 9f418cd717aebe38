//! Blocks that the table of children cannot tell apart.

use super::{Events, hit, one_stream, spec};
use crate::index::trie::{Prompt, Walk};
use crate::index::{Matches, PrefixIndex, query};
use crate::model::{BlockHash, ContentKey, Tier, WireHash};

/// Hashes that no tokens need to have.
struct Made<'a>(&'a [BlockHash]);

impl Prompt for Made<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn hashes(&mut self, from: usize) -> &[BlockHash] {
        &self.0[from..]
    }

    fn key(&self, _: usize) -> Option<ContentKey> {
        None
    }
}

/// Device tokens and Host-only tokens of the first stream.
fn hits(index: &PrefixIndex, hashes: &[BlockHash]) -> (u64, u64) {
    let (map, mut matches) = (index.pin(), Matches::default());
    let (sequences, trie) = (index.sequences(), index.trie());
    let mut prompt = Made(hashes);
    let walk = Walk::new(trie, &mut prompt);
    query::answer(&map, sequences, trie, spec(2), walk, &mut matches);
    let hit = hit(&matches, 0);
    (hit.device_hit_tokens, hit.host_only_hit_tokens)
}

#[test]
fn children_alike_in_half_of_their_hash_are_told_apart() {
    let (index, mut writer) = one_stream(100);
    let alike = |high: u128| BlockHash((high << 64) | 7);
    let stored = [(1, Tier::Device), (2, Tier::Host), (3, Tier::Device)];
    for (number, tier) in stored {
        let (wire, hash) = (WireHash(number), alike(number.into()));
        writer
            .store_hashed(None, &[wire], &[hash], Some(tier))
            .unwrap();
    }
    assert_eq!(hits(&index, &[alike(1)]), (2, 0));
    assert_eq!(hits(&index, &[alike(2)]), (0, 2));
    assert_eq!(hits(&index, &[alike(3), alike(3)]), (2, 0));
    assert_eq!(hits(&index, &[alike(4)]), (0, 0));
    // Kept, without a copy: whichever of them is looked at first is of no use.
    for gone in [1, 3] {
        Events::default()
            .remove(&[gone], Some(Tier::Device))
            .apply(&mut writer)
            .unwrap();
        assert_eq!(hits(&index, &[alike(gone.into())]), (0, 0));
        assert_eq!(hits(&index, &[alike(2)]), (0, 2));
    }
}
