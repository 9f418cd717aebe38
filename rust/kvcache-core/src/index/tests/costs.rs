//! The cheapest candidates (spec: CAR).

use super::{Events, published, spec};
use crate::index::{CandidateCosts, Cheapest, Matches, PrefixIndex};
use crate::model::Tier::{Device, Host};

const PROMPT: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Of 8 tokens: `a` holds 4 on Device and 2 in Host only, `b` holds 2 on Device.
fn asked(prompt: &[u32]) -> Matches {
    let index = PrefixIndex::new(spec(2));
    let mut a = published(&index, "a", 100);
    let mut b = published(&index, "b", 100);
    let held = Events::default().store(None, &[1, 2], &PROMPT[..4], Device);
    let held = held.store(Some(2), &[3], &PROMPT[4..6], Host);
    held.apply(&mut a).unwrap();
    let held = Events::default().store(None, &[1], &PROMPT[..2], Device);
    held.apply(&mut b).unwrap();
    index.query_tokens(prompt)
}

fn cheapest(
    candidates: &[(&[usize], f64)],
    miss_weight: f64,
    host_hit_weight: f64,
    prompt: &[u32],
) -> Cheapest {
    let candidates = candidates
        .iter()
        .map(|(places, base)| (places.to_vec(), *base));
    let costs = CandidateCosts::new(candidates, miss_weight, host_hit_weight);
    costs.cheapest(&asked(prompt), prompt.len())
}

fn found(candidates: &[usize], hit_tokens: &[u64], best_hit_tokens: u64) -> Cheapest {
    Cheapest {
        candidates: candidates.to_vec(),
        hit_tokens: hit_tokens.to_vec(),
        best_hit_tokens,
    }
}

#[test]
fn reuse_makes_cheaper_and_a_base_cost_dearer() {
    // Ratios are 5/8 and 2/8.
    let warm = cheapest(&[(&[0], 0.0), (&[1], 0.0)], 0.5, 0.5, &PROMPT);
    assert_eq!(warm, found(&[0], &[6], 6));
    let busy = cheapest(&[(&[0], 0.25), (&[1], 0.0)], 0.5, 0.5, &PROMPT);
    assert_eq!(busy, found(&[1], &[2], 6));
    let equal = cheapest(&[(&[0], 0.1875), (&[1], 0.0)], 0.5, 0.5, &PROMPT);
    assert_eq!(equal, found(&[0, 1], &[6, 2], 6));
}

#[test]
fn the_worst_stream_counts_and_none_is_nothing() {
    let both = cheapest(
        &[(&[0, 1], 0.0), (&[1], 0.0), (&[], 0.0)],
        1.0,
        1.0,
        &PROMPT,
    );
    assert_eq!(both, found(&[0, 1], &[2, 2], 2));
    let none = cheapest(&[(&[], 0.0), (&[9], 0.0)], 1.0, 1.0, &PROMPT);
    assert_eq!(none, found(&[0, 1], &[0, 0], 0));
    assert_eq!(cheapest(&[], 1.0, 1.0, &PROMPT), Cheapest::default());
}

#[test]
fn an_empty_prompt_has_no_ratio() {
    let empty = cheapest(&[(&[0], 0.25), (&[1], 0.0)], 0.5, 0.5, &[]);
    assert_eq!(empty, found(&[1], &[0], 0));
}

#[test]
fn what_is_no_number_is_never_the_cheapest() {
    let nan = cheapest(&[(&[0], f64::NAN), (&[1], 9.0)], 0.5, 0.5, &PROMPT);
    assert_eq!(nan.candidates, [1]);
}

#[test]
fn base_costs_are_changed_all_or_not_at_all() {
    let costs = CandidateCosts::new([(vec![0], 0.0), (vec![1], 0.0)], 0.5, 0.5);
    assert!(costs.with_base_costs(vec![1.0]).is_none());
    let changed = costs.with_base_costs(vec![1.0, 0.0]).unwrap();
    let matches = asked(&PROMPT);
    assert_eq!(changed.cheapest(&matches, 8).candidates, [1]);
    assert_eq!(costs.cheapest(&matches, 8).candidates, [0]);
    assert_eq!((costs.len(), costs.is_empty()), (2, false));
}
