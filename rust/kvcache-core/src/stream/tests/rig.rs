//! A state machine, a tiny view and a clock that the test moves.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::decode::xllm::Expectation;
use crate::model::{
    ApplyError, ApplyReport, Batch, DpRank, Event, Limits, Sequence, Tier, WireHash,
};
use crate::stream::*;

/// What a published view holds, by wire hash; parents are only looked up.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeView {
    pub(crate) known: HashSet<WireHash>,
    pub(crate) orphans: HashSet<WireHash>,
    pub(crate) device: HashSet<WireHash>,
}

#[derive(Debug, Default)]
pub(crate) struct FakeViews {
    pub(crate) published: Option<(FakeView, Sequence)>,
    pub(crate) draft: Option<FakeView>,
    pub(crate) error: String,
    /// Every publication and loss, in order: the flicker would show here.
    pub(crate) history: Vec<Option<u64>>,
    pub(crate) no_slots: u32,
    pub(crate) max_blocks: usize,
}

impl FakeView {
    fn apply(&mut self, batch: &Batch, live: bool, max: usize) -> Result<ApplyReport, ApplyError> {
        let mut report = ApplyReport::default();
        for event in &batch.events {
            match event {
                Event::Cleared => *self = Self::default(),
                Event::Removed { wire_hashes, tier } => {
                    for wire in &batch.wire_hashes[wire_hashes.clone()] {
                        if *tier == Some(Tier::Device) {
                            self.device.remove(wire);
                        }
                    }
                }
                Event::Stored(stored) => {
                    let wires = &batch.wire_hashes[stored.wire_hashes.clone()];
                    let orphan = stored.parent.is_some_and(|parent| {
                        self.orphans.contains(&parent) || (!live && !self.known.contains(&parent))
                    });
                    if let Some(parent) = stored.parent
                        && !orphan
                        && !self.known.contains(&parent)
                    {
                        return Err(ApplyError::UnknownParent(parent));
                    }
                    for wire in wires {
                        if stored.is_tokenless() && live && !self.known.contains(wire) {
                            return Err(ApplyError::UnknownTokenless(*wire));
                        }
                        if orphan {
                            self.orphans.insert(*wire);
                            report.orphaned += 1;
                            continue;
                        }
                        self.known.insert(*wire);
                        if self.known.len() > max {
                            return Err(ApplyError::Limit(max));
                        }
                        if stored.tier == Some(Tier::Device) {
                            self.device.insert(*wire);
                        }
                    }
                }
            }
        }
        Ok(report)
    }
}

impl Views for FakeViews {
    fn apply(&mut self, batch: &Batch, sequence: Sequence) -> Result<ApplyReport, ApplyError> {
        let (view, at) = self
            .published
            .as_mut()
            .expect("apply without a published view");
        let report = view.apply(batch, true, self.max_blocks)?;
        *at = sequence;
        Ok(report)
    }
    fn begin_draft(&mut self) {
        self.draft = Some(FakeView::default());
    }
    fn draft_snapshot(&mut self, batch: &Batch) -> Result<ApplyReport, ApplyError> {
        self.draft
            .as_mut()
            .expect("no draft")
            .apply(batch, false, self.max_blocks)
    }
    fn draft_delta(&mut self, batch: &Batch) -> Result<ApplyReport, ApplyError> {
        self.draft
            .as_mut()
            .expect("no draft")
            .apply(batch, true, self.max_blocks)
    }
    fn publish_draft(&mut self, sequence: Sequence) -> Result<u64, ApplyError> {
        if self.no_slots > 0 {
            self.no_slots -= 1;
            return Err(ApplyError::NoSlot);
        }
        let draft = self.draft.take().expect("no draft");
        let changed = self.published.as_ref().map_or(0, |(view, _)| {
            view.device.symmetric_difference(&draft.device).count() as u64
        });
        self.published = Some((draft, sequence));
        self.error.clear();
        self.history.push(Some(sequence.0));
        Ok(changed)
    }
    fn discard_draft(&mut self) {
        self.draft = None;
    }
    fn unpublish(&mut self, error: &str) {
        if self.published.take().is_some() {
            self.history.push(None);
        }
        error.clone_into(&mut self.error);
    }
    fn sizes(&self) -> Sizes {
        Sizes::default()
    }
}

/// `MessagePack`, as much of it as the tests say.
pub(crate) mod pack {
    pub fn array(items: &[Vec<u8>]) -> Vec<u8> {
        let mut out = vec![0xdc];
        out.extend(u16::try_from(items.len()).unwrap().to_be_bytes());
        out.extend(items.concat());
        out
    }
    pub fn map(items: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut out = vec![0x80 | u8::try_from(items.len()).unwrap()];
        for (key, value) in items {
            out.extend(text(key));
            out.extend(value);
        }
        out
    }
    pub fn text(text: &str) -> Vec<u8> {
        [&[0xa0 | u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    }
    pub fn int(value: u64) -> Vec<u8> {
        [&[0xcf][..], &value.to_be_bytes()].concat()
    }
    pub fn ints(values: &[u64]) -> Vec<u8> {
        array(&values.iter().map(|value| int(*value)).collect::<Vec<_>>())
    }
    pub const NIL: u8 = 0xc0;
}

/// Blocks of two tokens `(10 × hash, 10 × hash + 1)`: contents follow from names.
pub(crate) fn stored(hashes: &[u64], parent: Option<u64>) -> Vec<u8> {
    let tokens: Vec<u64> = hashes
        .iter()
        .flat_map(|hash| [hash * 10, hash * 10 + 1])
        .collect();
    pack::map(&[
        ("type", pack::text("BlockStored")),
        ("block_hashes", pack::ints(hashes)),
        (
            "parent_block_hash",
            parent.map_or(vec![pack::NIL], pack::int),
        ),
        ("token_ids", pack::ints(&tokens)),
        ("block_size", pack::int(2)),
        ("medium", pack::text("gpu")),
    ])
}

pub(crate) fn removed(hashes: &[u64]) -> Vec<u8> {
    pack::map(&[
        ("type", pack::text("BlockRemoved")),
        ("block_hashes", pack::ints(hashes)),
    ])
}

pub(crate) fn cleared() -> Vec<u8> {
    pack::map(&[("type", pack::text("AllBlocksCleared"))])
}

pub(crate) fn batch(events: &[Vec<u8>]) -> Vec<u8> {
    pack::array(&[pack::int(0), pack::array(events), pack::int(0)])
}

pub(crate) struct Rig<V = FakeViews> {
    pub(crate) machine: StreamMachine,
    pub(crate) views: V,
    pub(crate) now: Instant,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Limits {
            replay_timeout_ms: 2000,
            resync_interval_ms: 30_000,
            ..Limits::default()
        })
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let views = FakeViews {
            max_blocks: limits.max_blocks_per_stream,
            ..FakeViews::default()
        };
        Self::around(views, limits)
    }

    /// Synchronized, and for long enough that a doubt is no storm.
    pub(crate) fn calm(watermark: u64, hashes: &[u64]) -> Self {
        let mut rig = Self::synchronized(watermark, hashes);
        rig.pass(2500);
        rig
    }

    pub(crate) fn connected() -> Self {
        let mut rig = Self::new();
        rig.connect();
        rig
    }

    /// Synchronized at `watermark` with `hashes` as a chain.
    pub(crate) fn synchronized(watermark: u64, hashes: &[u64]) -> Self {
        let mut rig = Self::connected();
        rig.answer(watermark, &[stored(hashes, None)]);
        assert_eq!(rig.state(), StreamState::Synchronized);
        rig
    }

    pub(crate) fn holds(&self) -> Vec<u64> {
        let mut held: Vec<u64> = self
            .views
            .published
            .iter()
            .flat_map(|(view, _)| view.device.iter().map(|wire| wire.0))
            .collect();
        held.sort_unstable();
        held
    }

    pub(crate) fn sequence(&self) -> Option<u64> {
        self.views
            .published
            .as_ref()
            .map(|(_, sequence)| sequence.0)
    }

    #[track_caller]
    pub(crate) fn assert_doubted(&self, kind: DoubtKind) {
        assert_ne!(self.state(), StreamState::Synchronized);
        assert!(self.views.published.is_none(), "hits survive a doubt");
        assert_eq!(
            self.machine.counters().doubts(kind),
            1,
            "{kind:?}: {}",
            self.machine.error()
        );
        assert!(!self.machine.error().is_empty());
        assert_eq!(self.views.error, self.machine.error());
    }
}

impl<V: Views> Rig<V> {
    /// Topic `kv`, rank 0, blocks of two tokens.
    pub(crate) fn around(views: V, limits: Limits) -> Self {
        let settings = StreamSettings {
            topic: b"kv".as_slice().into(),
            expectation: Expectation {
                dp_rank: DpRank(0),
                block_size_tokens: NonZeroU32::new(2).unwrap(),
            },
            limits,
            seed: 7,
        };
        Self {
            machine: StreamMachine::new(settings),
            views,
            now: Instant::now(),
        }
    }

    pub(crate) fn connect(&mut self) {
        self.machine.connected(self.now, &mut self.views);
    }

    pub(crate) fn lose(&mut self) {
        self.machine.disconnected(
            Doubt::new(DoubtKind::Disconnect, "peer closed"),
            &mut self.views,
        );
    }

    pub(crate) fn live(&mut self, sequence: u64, events: &[Vec<u8>]) {
        self.raw(sequence, batch(events));
    }

    pub(crate) fn raw(&mut self, sequence: u64, payload: Vec<u8>) {
        let frames = [
            Bytes::from_static(b"kv"),
            sequence.to_be_bytes().to_vec().into(),
            payload.into(),
        ];
        self.machine.message(self.now, &frames, &mut self.views);
    }

    pub(crate) fn answer(&mut self, watermark: u64, events: &[Vec<u8>]) {
        let id = self.machine.wanted_fetch().expect("no snapshot is wanted");
        self.answer_to(id, watermark, events);
    }

    pub(crate) fn answer_to(&mut self, id: FetchId, watermark: u64, events: &[Vec<u8>]) {
        let snapshot = Snapshot {
            watermark: Sequence(watermark),
            payload: batch(events).into(),
        };
        self.machine
            .snapshot(self.now, id, Ok(snapshot), &mut self.views);
    }

    pub(crate) fn fail(&mut self) {
        let id = self.machine.wanted_fetch().expect("no snapshot is wanted");
        let failure = ReplayFailure::Timeout("no answer in time".to_owned());
        self.machine
            .snapshot(self.now, id, Err(failure), &mut self.views);
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.machine.tick(self.now, &mut self.views);
    }

    /// Lets time pass until the machine wants a snapshot.
    pub(crate) fn pass_until_wanted(&mut self) -> Duration {
        let start = self.now;
        while self.machine.wanted_fetch().is_none() {
            self.now = self
                .machine
                .deadline()
                .expect("the machine wants nothing, ever");
            self.machine.tick(self.now, &mut self.views);
        }
        self.now - start
    }

    pub(crate) fn state(&self) -> StreamState {
        self.machine.state()
    }
}
