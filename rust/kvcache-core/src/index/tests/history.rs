//! Random histories of three streams, compared step by step with the reference.
//!
//! `KVCACHE_SEED` replays one history.

use std::sync::Arc;

use fastrand::Rng;

use super::super::naive;
use super::spec;
use crate::hash::BlockKeys;
use crate::index::{Draft, Origin, PrefixIndex, Publication, StreamWriter};
use crate::model::{ApplyError, ApplyReport, Sequence, StreamKey, WireHash};

mod inventor;
mod seen;

use inventor::{CROWDED, Family, Inventor, LONG, MIXED};
use seen::Seen;

const STREAMS: usize = 3;

struct Pair {
    writer: StreamWriter,
    draft: Option<Draft>,
    model: naive::Stream,
    model_draft: Option<naive::View>,
}

struct History {
    invent: Inventor,
    index: Arc<PrefixIndex>,
    pairs: Vec<Pair>,
    max_blocks: usize,
    /// What the history came across, so that a test of nothing is noticed.
    seen: Seen,
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

impl History {
    fn new(seed: u64, family: Family) -> Self {
        let mut rng = Rng::with_seed(seed);
        let block_size = rng.usize(1..=2);
        let max_blocks = rng.usize(family.max_blocks.0..=family.max_blocks.1);
        let index = PrefixIndex::new(spec(u32::try_from(block_size).unwrap()));
        let pairs = (0..STREAMS)
            .map(|stream| Pair::new(&index, stream, max_blocks))
            .collect();
        Self {
            invent: Inventor::new(rng, family, block_size),
            index,
            pairs,
            max_blocks,
            seen: Seen::default(),
        }
    }

    fn step(&mut self, step: u64) {
        let stream = self.invent.rng.usize(..STREAMS);
        let sequence = self.invent.rng.bool().then_some(Sequence(step));
        match self.invent.rng.u8(..20) {
            0 => {
                let pair = &mut self.pairs[stream];
                pair.draft = Some(pair.writer.new_draft());
                pair.model_draft = Some(naive::View::new(self.invent.block_size, self.max_blocks));
            }
            1..=5 => self.apply_to_draft(stream),
            6 | 7 => self.publish(stream, sequence),
            8 if self.invent.rng.bool() => {
                let error = format!("doubt at step: {step}");
                self.pairs[stream].writer.unpublish(&error);
                self.pairs[stream].model.unpublish(&error);
            }
            9 if self.invent.rng.u8(..4) == 0 => {
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
                let batch = self.invent.batch(stream, view.as_ref());
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
        let batch = self.invent.batch(stream, view.as_ref());
        let origin = if self.invent.rng.u8(..3) == 0 {
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

    fn compare(&mut self, step: u64) {
        self.index.trie().edit().check();
        self.compare_query(step, &[]);
        for _ in 0..4 {
            let prompt = self.invent.prompt();
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
        for story in self.invent.stories.clone() {
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
