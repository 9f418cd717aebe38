//! Random walks that end in agreement.

use std::collections::HashSet;

use super::rig::{Rig, removed, stored};
use crate::stream::{FetchId, StreamState};

/// An engine, its published messages and a lossy world against the machine: whenever the machine says `synchronized` and
/// everything sent has arrived, its view is the engine's.
#[test]
fn random_walks_end_in_agreement() {
    let seed = std::env::var("KVCACHE_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("KVCACHE_SEED={seed}");
    for walk in 0..300 {
        random_walk(seed.wrapping_add(walk));
    }
}

fn random_walk(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::new();
    let (mut next, mut held): (u64, HashSet<u64>) = (1, HashSet::new());
    let mut pending: Option<(FetchId, u64, Vec<u64>)> = None;
    rig.connect();
    for step in 0..200 {
        match rng.u32(..100) {
            0..50 => {
                let event = match held.iter().copied().collect::<Vec<_>>() {
                    keys if keys.len() > 3 && rng.bool() => {
                        let gone = keys[rng.usize(..keys.len())];
                        held.remove(&gone);
                        removed(&[gone])
                    }
                    _ => {
                        let hash = rng.u64(1..40);
                        held.insert(hash);
                        stored(&[hash], None)
                    }
                };
                let lost = rng.u32(..100) < 5;
                if !lost {
                    rig.live(next, &[event]);
                }
                next += 1;
            }
            50..60 => {
                // The engine answers as of now; the answer arrives later.
                if let Some(id) = rig.machine.wanted_fetch() {
                    pending = Some((id, next - 1, held.iter().copied().collect()));
                }
            }
            60..80 => {
                if let Some((id, watermark, blocks)) = pending.take() {
                    let events: Vec<_> = blocks.iter().map(|hash| stored(&[*hash], None)).collect();
                    rig.answer_to(id, watermark, &events);
                }
            }
            80..95 => rig.pass(rng.u64(1..3000)),
            95..97 => {
                rig.lose();
                if rng.bool() {
                    held.clear();
                    next = rng.u64(1..60);
                }
                rig.connect();
            }
            _ => {
                // A message that names a parent which nobody announced.
                rig.live(next, &[stored(&[1], Some(999))]);
                held.insert(1);
                next += 1;
            }
        }
        assert_eq!(
            rig.state() == StreamState::Synchronized,
            rig.views.published.is_some(),
            "seed {seed} step {step}"
        );
    }
    // A quiet point: everything the machine wants, it gets. A live message ends what may have been
    // a silence.
    rig.live(next, &[]);
    next += 1;
    for _ in 0..3 {
        rig.pass(31_000);
        rig.pass_until_wanted();
        let events: Vec<_> = held.iter().map(|hash| stored(&[*hash], None)).collect();
        rig.answer(next - 1, &events);
    }
    let mut expected: Vec<u64> = held.iter().copied().collect();
    expected.sort_unstable();
    assert_eq!(
        (rig.state(), rig.holds()),
        (StreamState::Synchronized, expected),
        "seed {seed}"
    );
}
