//! Random histories of three streams, compared step by step with the reference.
//!
//! `KVCACHE_SEED` replays one history.

use std::sync::Arc;

use fastrand::Rng;

use super::super::naive;
use super::{Events, spec};
use crate::hash::BlockKeys;
use crate::index::{Draft, Origin, PrefixIndex, Publication, StreamWriter};
use crate::model::{ApplyError, ApplyReport, Batch, Sequence, StreamKey, Tier, WireHash};

const STREAMS: usize = 3;

/// What a family of histories is like.
#[derive(Clone, Copy)]
struct Family {
    histories: u64,
    steps: u64,
    max_blocks: (usize, usize),
    /// Most blocks in one event, and in a random prompt.
    chain: usize,
    wires: (u64, u64),
    /// Streams that name blocks in a way of their own; the others agree.
    own_ways: usize,
}

/// Few blocks, so that everything collides with everything.
const CROWDED: Family = Family {
    histories: 240,
    steps: 400,
    max_blocks: (3, 14),
    chain: 4,
    wires: (4, 16),
    own_ways: 0,
};

/// Chains of several runs, which are split, cut and grown.
const LONG: Family = Family {
    histories: 10,
    steps: 120,
    max_blocks: (80, 300),
    chain: 150,
    wires: (1 << 20, 1 << 40),
    own_ways: 0,
};

/// A stream with private names beside others that share theirs.
const MIXED: Family = Family {
    histories: 40,
    steps: 300,
    max_blocks: (8, 60),
    chain: 12,
    wires: (40, 1 << 20),
    own_ways: 1,
};

struct Pair {
    writer: StreamWriter,
    draft: Option<Draft>,
    model: naive::Stream,
    model_draft: Option<naive::View>,
}

struct History {
    rng: Rng,
    family: Family,
    index: Arc<PrefixIndex>,
    pairs: Vec<Pair>,
    block_size: usize,
    max_blocks: usize,
    wires: u64,
    tokens: u32,
    /// Prompts that begin alike.
    stories: Vec<Vec<u32>>,
    /// What the history came across, so that a test of nothing is noticed.
    seen: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    /// Of all histories of a family.
    is_whole: bool,
    hits: u64,
    host_only: u64,
    orphans: u64,
    limits: u64,
    conflicts: u64,
    unknown_parents: u64,
    unchanged: u64,
    flips: u64,
    full: u64,
}

#[test]
fn crowded_histories_agree_with_the_reference() {
    play(CROWDED).check();
}

#[test]
fn long_histories_agree_with_the_reference() {
    play(LONG);
}

#[test]
fn mixed_histories_agree_with_the_reference() {
    play(MIXED);
}

fn play(family: Family) -> Seen {
    let seeds = match std::env::var("KVCACHE_SEED") {
        Ok(seed) => {
            let seed = seed.parse().unwrap();
            seed..seed + 1
        }
        Err(_) => 0..family.histories,
    };
    let whole = seeds.end - seeds.start > 1;
    let mut total = Seen {
        is_whole: whole,
        ..Seen::default()
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut history = History::new(seed, family);
            (0..family.steps).for_each(|step| history.step(step));
            history.seen
        });
        match outcome {
            Ok(seen) => total.add(&seen),
            Err(panic) => {
                eprintln!("replay with KVCACHE_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    total
}

impl Seen {
    fn counters(&mut self) -> [&mut u64; 9] {
        [
            &mut self.hits,
            &mut self.host_only,
            &mut self.orphans,
            &mut self.limits,
            &mut self.conflicts,
            &mut self.unknown_parents,
            &mut self.unchanged,
            &mut self.flips,
            &mut self.full,
        ]
    }

    fn add(&mut self, other: &Self) {
        let Self {
            hits,
            host_only,
            orphans,
            limits,
            conflicts,
            unknown_parents,
            unchanged,
            flips,
            full,
            is_whole: _,
        } = *other;
        let values = [
            hits,
            host_only,
            orphans,
            limits,
            conflicts,
            unknown_parents,
            unchanged,
            flips,
            full,
        ];
        for (counter, value) in self.counters().into_iter().zip(values) {
            *counter += value;
        }
    }

    fn check(mut self) {
        let dump = format!("{self:?}");
        let least = self.counters().into_iter().map(|counter| *counter).min();
        assert!(
            !self.is_whole || least >= Some(200),
            "the histories miss something: {dump}"
        );
    }
}

impl History {
    fn new(seed: u64, family: Family) -> Self {
        let mut rng = Rng::with_seed(seed);
        let block_size = rng.usize(1..=2);
        let max_blocks = rng.usize(family.max_blocks.0..=family.max_blocks.1);
        let index = PrefixIndex::new(spec(u32::try_from(block_size).unwrap()));
        let pairs = (0..STREAMS)
            .map(|stream| Pair::new(&index, stream, max_blocks))
            .collect();
        let tokens = rng.u32(2..=3);
        let length = family.chain * 3 / 2 * block_size;
        let mut stories = vec![(0..length).map(|_| rng.u32(..tokens)).collect::<Vec<u32>>()];
        for _ in 0..3 {
            let mut story = stories[rng.usize(..stories.len())].clone();
            let from = rng.usize(..length);
            story[from..]
                .iter_mut()
                .for_each(|token| *token = rng.u32(..tokens));
            stories.push(story);
        }
        Self {
            family,
            stories,
            index,
            pairs,
            block_size,
            max_blocks,
            wires: rng.u64(family.wires.0..=family.wires.1),
            tokens,
            rng,
            seen: Seen::default(),
        }
    }

    fn step(&mut self, step: u64) {
        let stream = self.rng.usize(..STREAMS);
        let sequence = self.rng.bool().then_some(Sequence(step));
        match self.rng.u8(..20) {
            0 => {
                let pair = &mut self.pairs[stream];
                pair.draft = Some(pair.writer.new_draft());
                pair.model_draft = Some(naive::View::new(self.block_size, self.max_blocks));
            }
            1..=5 => self.apply_to_draft(stream),
            6 | 7 => self.publish(stream, sequence),
            8 if self.rng.bool() => {
                let error = format!("doubt at step: {step}");
                self.pairs[stream].writer.unpublish(&error);
                self.pairs[stream].model.unpublish(&error);
            }
            9 if self.rng.u8(..4) == 0 => {
                self.pairs.remove(stream);
                self.pairs
                    .insert(stream, Pair::new(&self.index, stream, self.max_blocks));
            }
            10 => {
                self.pairs[stream].writer.set_error("still nothing");
                if self.pairs[stream].model.view.is_none() {
                    self.pairs[stream].model.unpublish("still nothing");
                }
            }
            _ => {
                let view = self.pairs[stream].model.view.clone();
                let batch = self.batch(stream, view.as_ref());
                let pair = &mut self.pairs[stream];
                let got = pair.writer.apply(&batch, sequence);
                let want = pair.model.apply(&batch, sequence);
                let at = format!("step {step}, {batch:?} on {view:?}");
                assert_eq!(comparable(got), comparable(want), "{at}");
                self.note(got.err());
            }
        }
        self.compare(step);
    }

    fn apply_to_draft(&mut self, stream: usize) {
        let view = self.pairs[stream].model_draft.clone();
        let batch = self.batch(stream, view.as_ref());
        let origin = if self.rng.u8(..3) == 0 {
            Origin::Live
        } else {
            Origin::Snapshot
        };
        let pair = &mut self.pairs[stream];
        let (Some(draft), Some(model)) = (&mut pair.draft, &mut pair.model_draft) else {
            return;
        };
        let got = draft.apply(&batch, origin);
        let want = model.apply(&batch, origin == Origin::Live);
        let at = format!("{origin:?} {batch:?} on draft {view:?}");
        assert_eq!(comparable(got), comparable(want), "{at}");
        assert_eq!(draft.counts().known, model.names.len());
        assert_eq!(draft.counts().orphans, model.orphans.len());
        self.seen.orphans += u64::from(!model.orphans.is_empty());
        self.note(got.err());
    }

    fn publish(&mut self, stream: usize, sequence: Option<Sequence>) {
        let pair = &mut self.pairs[stream];
        let (Some(draft), Some(model)) = (pair.draft.take(), pair.model_draft.take()) else {
            return;
        };
        let was_published = pair.writer.is_published();
        let got = pair.writer.publish(draft, sequence).unwrap();
        let changed = pair.model.publish(model, sequence);
        assert!(got == Publication::Flipped || !changed);
        let changed = got == Publication::Flipped;
        *(if changed {
            &mut self.seen.flips
        } else {
            &mut self.seen.unchanged
        }) += u64::from(was_published);
    }

    fn note(&mut self, error: Option<ApplyError>) {
        match error {
            Some(ApplyError::Limit(_)) => self.seen.limits += 1,
            Some(ApplyError::Conflict(_)) => self.seen.conflicts += 1,
            Some(ApplyError::UnknownParent(_)) => self.seen.unknown_parents += 1,
            _ => {}
        }
    }

    /// A few events that mostly make sense for `view`.
    fn batch(&mut self, stream: usize, view: Option<&naive::View>) -> Batch {
        let mut events = Events::default();
        for _ in 0..self.rng.usize(1..=3) {
            let tier = [Some(Tier::Device), Some(Tier::Host), None]
                [self.rng.usize(..9) % 3 * self.rng.usize(..2)];
            let tier = if self.rng.u8(..4) == 0 {
                Some(Tier::Host)
            } else {
                tier
            };
            events = match self.rng.u8(..20) {
                0 if self.rng.u8(..3) == 0 => events.clear(),
                1..=2 => {
                    let wires = if self.rng.bool() {
                        self.some_wires(view, 1..=3)
                    } else {
                        self.neighbours(view)
                    };
                    events.push_store(None, &wires, &[], tier);
                    events
                }
                3..=9 => {
                    let wires = if self.rng.bool() {
                        self.some_wires(view, 1..=4)
                    } else {
                        self.neighbours(view)
                    };
                    events.remove(&wires, tier)
                }
                _ => self.store(events, stream, view, tier),
            };
        }
        events.0
    }

    fn store(
        &mut self,
        mut events: Events,
        stream: usize,
        view: Option<&naive::View>,
        tier: Option<Tier>,
    ) -> Events {
        let parent = (self.rng.u8(..4) > 0).then(|| self.some_wires(view, 1..=1)[0]);
        let count = self.rng.usize(1..=self.family.chain);
        let mut tokens: Vec<u32> = (0..count * self.block_size)
            .map(|_| self.rng.u32(..self.tokens))
            .collect();
        let known = parent.and_then(|parent| view.and_then(|view| view.path(WireHash(parent))));
        let mut path = known.unwrap_or_default();
        if self.rng.u8(..4) > 0 {
            self.tell(path.len(), &mut tokens);
        }
        let mut wires = Vec::new();
        for block in tokens.chunks(self.block_size) {
            path.extend_from_slice(block);
            // Mostly the engine's own name of the path, sometimes any.
            let named = view.and_then(|view| view.names.iter().find(|name| name.1 == path));
            let way = if stream < self.family.own_ways {
                1 << 30
            } else {
                0
            };
            let digest = path.iter().fold(way + path.len() as u64, |sum, token| {
                sum.wrapping_mul(5).wrapping_add(u64::from(*token))
            });
            wires.push(match (self.rng.u8(..8), named) {
                (0, _) => self.rng.u64(..self.wires),
                (1..=6, Some((wire, _))) => wire.0,
                _ => digest % self.wires,
            });
        }
        if self.rng.u8(..40) == 0 {
            tokens.push(0);
        }
        events.push_store(parent, &wires, &tokens, tier);
        events
    }

    /// Makes tokens continue one of the stories that all streams share, mostly to the end.
    fn tell(&mut self, from: usize, tokens: &mut [u32]) {
        let story = &self.stories[self.rng.usize(..self.stories.len())];
        let told = if self.rng.bool() {
            tokens.len()
        } else {
            self.rng.usize(..=tokens.len())
        };
        for (token, story) in tokens[..told].iter_mut().zip(story.iter().skip(from)) {
            *token = *story;
        }
    }

    /// Names that were given one after the other.
    fn neighbours(&mut self, view: Option<&naive::View>) -> Vec<u64> {
        let names = view.map_or(&[][..], |view| &view.names);
        let from = self.rng.usize(..=names.len());
        let count = self.rng.usize(..=self.family.chain);
        let mut wires: Vec<u64> = names[from..]
            .iter()
            .take(count)
            .map(|name| name.0.0)
            .collect();
        if self.rng.bool() {
            wires.reverse();
        }
        wires
    }

    fn some_wires(
        &mut self,
        view: Option<&naive::View>,
        count: std::ops::RangeInclusive<usize>,
    ) -> Vec<u64> {
        let names = view.map_or(&[][..], |view| &view.names);
        let orphans = view.map_or(&[][..], |view| &view.orphans);
        let count = self.rng.usize(count);
        let mut wire = || match self.rng.u8(..10) {
            0..=6 if !names.is_empty() => names[self.rng.usize(..names.len())].0.0,
            7 if !orphans.is_empty() => orphans[self.rng.usize(..orphans.len())].0.0,
            _ => self.rng.u64(..self.wires),
        };
        (0..count).map(|_| wire()).collect()
    }

    fn compare(&mut self, step: u64) {
        self.index.trie().edit().check();
        self.compare_query(step, &[]);
        for _ in 0..4 {
            let length = self.rng.usize(..=(self.family.chain + 2) * self.block_size);
            let prompt: Vec<u32> = (0..length).map(|_| self.rng.u32(..self.tokens)).collect();
            self.compare_query(step, &prompt);
        }
        let names = self
            .pairs
            .iter()
            .filter_map(|pair| pair.model.view.as_ref());
        let paths: Vec<_> = names
            .flat_map(|view| view.names.iter().map(|name| name.1.clone()))
            .collect();
        for path in paths.iter().step_by(paths.len().div_ceil(40).max(1)) {
            self.compare_query(step, path);
        }
        for story in self.stories.clone() {
            self.compare_query(step, &story);
        }
        for (stream, pair) in self.pairs.iter().enumerate() {
            let counts = pair.writer.counts();
            let got = (counts.known, counts.orphans);
            let view = pair.model.view.as_ref();
            let want = view.map_or((0, 0), |view| (view.names.len(), view.orphans.len()));
            assert_eq!(got, want, "step {step}, stream {stream}");
            assert!(got.0 + got.1 <= self.max_blocks);
            assert_eq!(pair.writer.sequence(), pair.model.sequence);
            self.seen.full += u64::from(got.0 + got.1 == self.max_blocks);
        }
    }

    fn compare_query(&mut self, step: u64, prompt: &[u32]) {
        let matches = self.index.query_tokens(prompt);
        let keys = BlockKeys::compute(prompt, self.index.spec());
        let by_keys = self.index.query_keys(&keys).unwrap();
        assert_eq!(matches.len(), STREAMS);
        for (stream, pair) in self.pairs.iter().enumerate() {
            let (row, hit) = matches.get(stream).unwrap();
            let view = pair.model.view.as_ref();
            let (device, host_only) = view.map_or((0, 0), |view| view.query(prompt));
            let at = format!("step {step}, stream {stream}, {prompt:?}, {view:?}");
            assert_eq!(*row.key(), key(stream), "{at}");
            assert_eq!(hit.synchronized, view.is_some(), "{at}");
            assert_eq!(
                (hit.device_hit_tokens, hit.host_only_hit_tokens),
                (device, host_only),
                "{at}"
            );
            assert_eq!(hit.sequence, pair.model.sequence, "{at}");
            assert_eq!(
                hit.device_blocks,
                view.map_or(0, |view| view.device() as u64),
                "{at}"
            );
            assert_eq!(
                hit.host_blocks,
                view.map_or(0, |view| view.host() as u64),
                "{at}"
            );
            assert_eq!(row.error(), pair.model.error, "{at}");
            assert_eq!(by_keys.get(stream).unwrap().1, hit, "{at}");
            self.seen.hits += u64::from(device > 0);
            self.seen.host_only += u64::from(host_only > 0);
        }
    }
}

/// Which of several conflicts of one event is named does not matter.
fn comparable(result: Result<ApplyReport, ApplyError>) -> Result<ApplyReport, ApplyError> {
    result.map_err(|error| match error {
        ApplyError::Conflict(_) => ApplyError::Conflict(WireHash(0)),
        other => other,
    })
}

impl Pair {
    fn new(index: &Arc<PrefixIndex>, stream: usize, max_blocks: usize) -> Self {
        Self {
            writer: index.add_stream(key(stream), max_blocks).unwrap(),
            draft: None,
            model: naive::Stream {
                view: None,
                sequence: None,
                error: "no view yet".to_owned(),
            },
            model_draft: None,
        }
    }
}

fn key(stream: usize) -> StreamKey {
    StreamKey::new("engine", u32::try_from(stream).unwrap())
}
