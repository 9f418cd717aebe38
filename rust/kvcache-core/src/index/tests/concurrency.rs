//! Queries beside a writer that replaces its view: each sees one view, whole.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Events, hit, one_stream, published};
use crate::index::{Draft, Hit, Origin, StreamWriter};
use crate::model::{ApplyError, Sequence, Tier};

const PROMPT: [u32; 24] = [1; 24];

/// View A has 12 Device blocks; view B has 5 Host blocks.
fn draft(writer: &StreamWriter, a: bool) -> Result<Draft, ApplyError> {
    let (blocks, tier) = if a {
        (12, Tier::Device)
    } else {
        (5, Tier::Host)
    };
    let wires: Vec<u64> = (0..blocks).collect();
    let mut draft = writer.new_draft();
    let events = Events::default().store(None, &wires, &PROMPT[..wires.len() * 2], tier);
    events.draft(&mut draft, Origin::Snapshot)?;
    Ok(draft)
}

/// Stops the other threads however its own ends: else a failed assertion would wait for them for ever.
struct StopsAll<'a>(&'a AtomicBool);

impl Drop for StopsAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn expected(a: bool) -> Hit {
    let blocks = if a { 12 } else { 5 };
    let (device_blocks, host_blocks) = if a { (blocks, 0) } else { (0, blocks) };
    Hit {
        synchronized: true,
        sequence: Some(Sequence(u64::from(a))),
        device_hit_tokens: device_blocks * 2,
        host_only_hit_tokens: host_blocks * 2,
        device_blocks,
        host_blocks,
    }
}

#[test]
fn an_answer_is_of_one_view() {
    let (index, mut writer) = one_stream(100);
    // Churns the same tree and slots meanwhile.
    let mut neighbour = published(&index, "b", 2_000);
    let first = draft(&writer, true).unwrap();
    writer.publish(first, Some(Sequence(1))).unwrap();
    let stop = AtomicBool::new(false);
    let seen = [AtomicU64::new(0), AtomicU64::new(0)];
    let mut flips = 0_u64;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let got = hit(&index.query_tokens(&PROMPT), 0);
                    let a = got.device_hit_tokens > 0;
                    // Told before the assertion, which must stop the others too.
                    let right = got == expected(a);
                    stop.fetch_or(!right, Ordering::Relaxed);
                    assert_eq!(got, expected(a));
                    seen[usize::from(a)].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let wires: Vec<u64> = (0..1_500).collect();
            let tokens: Vec<u32> = (0..3_000).collect();
            while !stop.load(Ordering::Relaxed) {
                let events = Events::default().store(None, &wires, &tokens, Tier::Host);
                events.clear().apply(&mut neighbour).unwrap();
            }
        });
        let _stops_all = StopsAll(&stop);
        let start = Instant::now();
        let mut a = false;
        let enough = |flips| {
            let both = seen.iter().all(|seen| seen.load(Ordering::Relaxed) > 1_000);
            (flips > 1_000 && both && start.elapsed() > Duration::from_millis(500))
                || start.elapsed() > Duration::from_secs(60)
        };
        while !enough(flips) && !stop.load(Ordering::Relaxed) {
            if flips.is_multiple_of(7) {
                // On a busy machine readers would see only the view before slots run out, always the same.
                thread::yield_now();
            }
            let sequence = Some(Sequence(u64::from(a)));
            match draft(&writer, a).and_then(|next| writer.publish(next, sequence)) {
                Ok(_) => {
                    flips += 1;
                    a = !a;
                }
                // Readers that were put to sleep hold old maps; they wake.
                Err(error) => {
                    assert_eq!(error, ApplyError::NoSlot);
                    thread::yield_now();
                }
            }
        }
    });
    let seen = seen.map(AtomicU64::into_inner);
    assert!(
        flips > 1_000 && seen.iter().all(|count| *count > 1_000),
        "{flips} flips, {seen:?} seen"
    );
    index.reclaim();
    assert_eq!(index.retired_views(), 0);
}

#[test]
fn a_sequence_promises_no_more_than_the_answer_has() {
    let (index, mut writer) = one_stream(100_000);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Message n brings block n of the prompt.
                let got = hit(&index.query_tokens(&[3; 2_000]), 0);
                let promised = got.sequence.map_or(0, |sequence| sequence.0 + 1);
                let right = got.device_hit_tokens >= promised * 2;
                stop.fetch_or(!right, Ordering::Relaxed);
                assert!(right, "{got:?}");
            }
        });
        let _stops_all = StopsAll(&stop);
        for round in 0..20 {
            for message in 0..1_000_u64 {
                let parent = message.checked_sub(1);
                let events = Events::default().store(parent, &[message], &[3, 3], Tier::Device);
                writer.apply(&events.0, Some(Sequence(message))).unwrap();
            }
            if stop.load(Ordering::Relaxed) || round == 19 {
                break;
            }
            let draft = writer.new_draft();
            writer.publish(draft, None).unwrap();
        }
    });
}

/// A stream that holds the prompt all the time, now here and now there, is never seen without it: neither while its
/// copies move between tiers, nor while others split, cut and empty the run.
#[test]
fn what_is_held_all_the_time_is_always_seen() {
    let (index, mut writer) = one_stream(10_000);
    let mut neighbour = published(&index, "b", 10_000);
    let wires: Vec<u64> = (0..24).collect();
    let prompt: Vec<u32> = (0..48).collect();
    let stop = AtomicBool::new(false);
    let queries = AtomicU64::new(0);
    let stored = Events::default().store(None, &wires, &prompt, Tier::Device);
    stored.apply(&mut writer).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let got = hit(&index.query_tokens(&prompt), 0);
                    let right = got.device_hit_tokens + got.host_only_hit_tokens == 48;
                    stop.fetch_or(!right, Ordering::Relaxed);
                    assert!(right, "{got:?}");
                    queries.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(1);
            while !stop.load(Ordering::Relaxed) {
                // Another end for the same beginning: splits the run, and goes again.
                let shared = rng.usize(1..24);
                let mut other = prompt.clone();
                other[shared * 2..].fill(99);
                let names: Vec<u64> = (0..24)
                    .map(|block| {
                        if block < shared as u64 {
                            block
                        } else {
                            100 + block
                        }
                    })
                    .collect();
                let events = Events::default().store(None, &names, &other, Tier::Host);
                events
                    .remove(&[2], Some(Tier::Host))
                    .clear()
                    .apply(&mut neighbour)
                    .unwrap();
            }
        });
        let _stops_all = StopsAll(&stop);
        let start = Instant::now();
        let mut rng = fastrand::Rng::with_seed(2);
        let mut here = Tier::Device;
        while !stop.load(Ordering::Relaxed)
            && (queries.load(Ordering::Relaxed) < 20_000
                || start.elapsed() < Duration::from_millis(500))
            && start.elapsed() < Duration::from_secs(60)
        {
            let there = if here == Tier::Device {
                Tier::Host
            } else {
                Tier::Device
            };
            // All at once, or in pieces.
            for part in wires.chunks(rng.usize(1..=24)) {
                let moved = Events::default().store(None, part, &[], there);
                moved.remove(part, Some(here)).apply(&mut writer).unwrap();
            }
            here = there;
        }
    });
    assert!(queries.into_inner() >= 20_000);
}
