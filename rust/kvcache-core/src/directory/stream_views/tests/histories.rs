//! Random lives of one stream, compared with what its engine has said.
//!
//! The oracle knows the protocol's rules and nothing of the machine's: which hashes may be referred to after which
//! messages, what a snapshot and a clear leave of them, and which copies are there. `KVCACHE_SEED` replays one life.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::whole::Whole;
use crate::stream::tests::rig::{cleared, removed, stored};
use crate::stream::{FetchId, StreamState};

/// Blocks are named 1 to this; block `n` is a child of block `n / 2`, and 1 is a root.
const BLOCKS: u64 = 31;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    Stored(u64),
    Removed(u64),
    Cleared,
}

impl Said {
    fn encoded(self) -> Vec<u8> {
        match self {
            Self::Stored(block) => stored(&[block], parent(block)),
            Self::Removed(block) => removed(&[block]),
            Self::Cleared => cleared(),
        }
    }
}

fn parent(block: u64) -> Option<u64> {
    (block > 1).then_some(block / 2)
}

/// What a view must be.
#[derive(Clone, Debug, Default)]
struct Expected {
    known: BTreeSet<u64>,
    orphans: BTreeSet<u64>,
    device: BTreeSet<u64>,
    is_cleared: bool,
}

/// A live message referred to a block that it may not refer to.
struct UnknownParent;

impl Expected {
    fn from_snapshot(blocks: &BTreeSet<u64>) -> Self {
        let mut view = Self::default();
        for &block in blocks {
            if parent(block).is_none_or(|parent| view.known.contains(&parent)) {
                view.known.insert(block);
                view.device.insert(block);
            } else {
                view.orphans.insert(block);
            }
        }
        view
    }

    fn live(&mut self, batch: &[Said]) -> Result<(), UnknownParent> {
        for said in batch {
            match *said {
                Said::Cleared => {
                    *self = Self {
                        is_cleared: true,
                        ..Self::default()
                    }
                }
                Said::Removed(block) => {
                    self.device.remove(&block);
                }
                Said::Stored(block) => match parent(block) {
                    Some(parent) if self.orphans.contains(&parent) => {
                        if !self.known.contains(&block) {
                            self.orphans.insert(block);
                        }
                    }
                    Some(parent) if !self.known.contains(&parent) => return Err(UnknownParent),
                    _ => {
                        self.orphans.remove(&block);
                        self.known.insert(block);
                        self.device.insert(block);
                    }
                },
            }
        }
        Ok(())
    }

    /// Keeps what the view before this one knew.
    fn keep_known(&mut self, before: &Self) {
        if self.is_cleared {
            return;
        }
        for &block in &before.known {
            let hangs = parent(block).is_none_or(|parent| self.known.contains(&parent));
            if hangs && !self.orphans.contains(&block) {
                self.known.insert(block);
            }
        }
    }

    fn hits(&self, path: &[u64]) -> usize {
        path.iter()
            .take_while(|block| self.device.contains(block))
            .count()
    }
}

/// How often a life met what it is about.
#[derive(Debug, Default)]
struct Met {
    unknown_parents: u32,
    cleared_parents: u32,
    recoveries_by_clear: u32,
    calibrations: u32,
    snapshots: u32,
    gaps: u32,
}

struct Life {
    rng: Rng,
    whole: Whole,
    /// What the engine holds, and all that it has said, from message 1 on.
    held: BTreeSet<u64>,
    said: Vec<Vec<Said>>,
    /// What was known when the engine cleared its cache last.
    known_before_clear: BTreeSet<u64>,
    expected: Option<Expected>,
    pending: Option<(FetchId, u64, BTreeSet<u64>)>,
    met: Met,
}

#[test]
fn random_lives_agree_with_what_the_engine_has_said() {
    let given = std::env::var("KVCACHE_SEED").ok();
    let seeds = match given.and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..400,
    };
    let is_whole = seeds.end - seeds.start > 1;
    let mut total = [0; 6];
    for seed in seeds {
        println!("KVCACHE_SEED={seed}");
        let mut life = Life::new(seed);
        (0..150).for_each(|step| life.step(step));
        let Met {
            unknown_parents,
            cleared_parents,
            recoveries_by_clear,
            calibrations,
            snapshots,
            gaps,
        } = life.met;
        let met = [
            unknown_parents,
            cleared_parents,
            recoveries_by_clear,
            calibrations,
            snapshots,
            gaps,
        ];
        total.iter_mut().zip(met).for_each(|(sum, one)| *sum += one);
    }
    assert!(
        !is_whole || total.iter().all(|count| *count >= 100),
        "the lives miss something: {total:?}"
    );
}

impl Life {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            whole: Whole::connected(),
            held: BTreeSet::new(),
            said: Vec::new(),
            known_before_clear: BTreeSet::new(),
            expected: None,
            pending: None,
            met: Met::default(),
        }
    }

    fn step(&mut self, step: u32) {
        match self.rng.u32(..100) {
            0..60 => self.message(),
            60..66 => {
                self.whole.rig.pass(31_000);
                self.ask();
            }
            66..74 => self.ask(),
            74..92 => self.answer(),
            92..94 => {
                self.whole.rig.lose();
                self.whole.rig.connect();
                self.expected = None;
            }
            _ => self.whole.rig.pass(self.rng.u64(1..3000)),
        }
        self.compare(step);
    }

    fn message(&mut self) {
        let mut batch = Vec::new();
        for _ in 0..self.rng.usize(1..=3) {
            batch.push(self.event());
        }
        let sequence = self.said.len() as u64 + 1;
        self.said.push(batch.clone());
        if self.rng.u32(..100) < 4 {
            self.met.gaps += 1;
            return;
        }
        let encoded: Vec<_> = batch.iter().map(|said| said.encoded()).collect();
        let expected_next = self.whole.sequence().map(|last| last + 1);
        self.whole.rig.live(sequence, &encoded);
        let is_full_state = batch[0] == Said::Cleared;
        let before = match (&self.expected, is_full_state) {
            (_, true) => {
                self.met.recoveries_by_clear += u32::from(self.expected.is_none());
                Some(Expected::default())
            }
            (Some(view), _) if expected_next == Some(sequence) => Some(view.clone()),
            _ => None,
        };
        self.expected = before.and_then(|mut view| {
            let outcome = view.live(&batch);
            if outcome.is_err() {
                self.met.unknown_parents += 1;
                let named = batch.iter().filter_map(|said| match said {
                    Said::Stored(block) => parent(*block),
                    _ => None,
                });
                let was_cleared = |parent: u64| self.known_before_clear.contains(&parent);
                self.met.cleared_parents += u32::from(named.into_iter().any(was_cleared));
            }
            outcome.ok().map(|()| view)
        });
    }

    /// Mostly what a sound engine says; sometimes a child of a block that is not there any more.
    fn event(&mut self) -> Said {
        let block = self.rng.u64(1..=BLOCKS);
        match self.rng.u32(..100) {
            0..6 => {
                self.known_before_clear = std::mem::take(&mut self.held);
                Said::Cleared
            }
            6..35 => {
                self.held.remove(&block);
                Said::Removed(block)
            }
            _ => {
                let sound = parent(block).is_none_or(|parent| self.held.contains(&parent));
                let block = if sound || self.rng.u32(..8) == 0 {
                    block
                } else {
                    1
                };
                self.held.insert(block);
                Said::Stored(block)
            }
        }
    }

    /// The engine answers as of now; the answer arrives later.
    fn ask(&mut self) {
        if let Some(id) = self.whole.rig.machine.wanted_fetch() {
            self.pending = Some((id, self.said.len() as u64, self.held.clone()));
        }
    }

    fn answer(&mut self) {
        let Some((id, watermark, blocks)) = self.pending.take() else {
            return;
        };
        let counters = *self.whole.rig.machine.counters();
        let events: Vec<_> = blocks
            .iter()
            .map(|block| Said::Stored(*block).encoded())
            .collect();
        self.whole.rig.answer_to(id, watermark, &events);
        let now = self.whole.rig.machine.counters();
        let is_calibration = now.calibrations > counters.calibrations;
        if now.snapshots == counters.snapshots && !is_calibration {
            // Given up, or not bridged: the machine says so, and keeps what it had.
            return;
        }
        self.met.calibrations += u32::from(is_calibration);
        self.met.snapshots += u32::from(!is_calibration);
        let mut view = Expected::from_snapshot(&blocks);
        let last = self.whole.sequence().unwrap();
        for sequence in watermark + 1..=last {
            let batch = &self.said[usize::try_from(sequence).unwrap() - 1];
            assert!(view.live(batch).is_ok(), "a doubtful message was merged");
        }
        if let Some(before) = &self.expected {
            view.keep_known(before);
        }
        self.expected = Some(view);
    }

    fn compare(&self, step: u32) {
        let rig = &self.whole.rig;
        let at = format!("step {step}: {:?}, {}", self.expected, rig.machine.error());
        let is_synchronized = rig.state() == StreamState::Synchronized;
        assert_eq!(is_synchronized, self.expected.is_some(), "{at}");
        let none = Expected::default();
        let expected = self.expected.as_ref().unwrap_or(&none);
        assert_eq!(
            self.whole.device_blocks(),
            expected.device.len() as u64,
            "{at}"
        );
        for leaf in BLOCKS / 2 + 1..=BLOCKS {
            let mut path: Vec<u64> =
                std::iter::successors(Some(leaf), |block| parent(*block)).collect();
            path.reverse();
            let tokens = 2 * expected.hits(&path) as u64;
            assert_eq!(self.whole.hits(&path), tokens, "{path:?}, {at}");
        }
        if !is_synchronized {
            let will_ask = rig.machine.wanted_fetch().is_some() || rig.machine.deadline().is_some();
            assert!(will_ask, "nobody asks for a snapshot: {at}");
        }
    }
}
