//! The state machine against a tiny view, without socket or clock.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::*;
use crate::decode::xllm::Expectation;
use crate::model::{
    ApplyError, ApplyReport, Batch, DpRank, Event, Limits, Sequence, Tier, WireHash,
};

/// What a published view holds, by wire hash; parents are only looked up.
#[derive(Clone, Debug, Default)]
struct FakeView {
    known: HashSet<WireHash>,
    orphans: HashSet<WireHash>,
    device: HashSet<WireHash>,
}

#[derive(Debug, Default)]
struct FakeViews {
    published: Option<(FakeView, Sequence)>,
    draft: Option<FakeView>,
    error: String,
    /// Every publication and loss, in order: the flicker would show here.
    history: Vec<Option<u64>>,
    no_slots: u32,
    max_blocks: usize,
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
    fn publish_draft(&mut self, sequence: Sequence) -> Result<(), ApplyError> {
        if self.no_slots > 0 {
            self.no_slots -= 1;
            return Err(ApplyError::NoSlot);
        }
        let draft = self.draft.take().expect("no draft");
        self.published = Some((draft, sequence));
        self.error.clear();
        self.history.push(Some(sequence.0));
        Ok(())
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
mod pack {
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
fn stored(hashes: &[u64], parent: Option<u64>) -> Vec<u8> {
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

fn removed(hashes: &[u64]) -> Vec<u8> {
    pack::map(&[
        ("type", pack::text("BlockRemoved")),
        ("block_hashes", pack::ints(hashes)),
    ])
}

fn cleared() -> Vec<u8> {
    pack::map(&[("type", pack::text("AllBlocksCleared"))])
}

fn batch(events: &[Vec<u8>]) -> Vec<u8> {
    pack::array(&[pack::int(0), pack::array(events), pack::int(0)])
}

struct Rig {
    machine: StreamMachine,
    views: FakeViews,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        Self::with(Limits {
            replay_timeout_ms: 2000,
            resync_interval_ms: 30_000,
            ..Limits::default()
        })
    }

    fn with(limits: Limits) -> Self {
        let settings = StreamSettings {
            topic: b"kv".as_slice().into(),
            expectation: Expectation {
                dp_rank: DpRank(0),
                block_size_tokens: NonZeroU32::new(2).unwrap(),
            },
            limits,
            seed: 7,
        };
        let views = FakeViews {
            max_blocks: limits.max_blocks_per_stream,
            ..FakeViews::default()
        };
        Self {
            machine: StreamMachine::new(settings),
            views,
            now: Instant::now(),
        }
    }

    /// Synchronized, and for long enough that a doubt is no storm.
    fn calm(watermark: u64, hashes: &[u64]) -> Self {
        let mut rig = Self::synchronized(watermark, hashes);
        rig.pass(2500);
        rig
    }

    fn connected() -> Self {
        let mut rig = Self::new();
        rig.connect();
        rig
    }

    /// Synchronized at `watermark` with `hashes` as a chain.
    fn synchronized(watermark: u64, hashes: &[u64]) -> Self {
        let mut rig = Self::connected();
        rig.answer(watermark, &[stored(hashes, None)]);
        assert_eq!(rig.state(), StreamState::Synchronized);
        rig
    }

    fn connect(&mut self) {
        self.machine.connected(self.now, &mut self.views);
    }

    fn lose(&mut self) {
        self.machine.disconnected(
            Doubt::new(DoubtKind::Disconnect, "peer closed"),
            &mut self.views,
        );
    }

    fn live(&mut self, sequence: u64, events: &[Vec<u8>]) {
        self.raw(sequence, batch(events));
    }

    fn raw(&mut self, sequence: u64, payload: Vec<u8>) {
        let frames = [
            Bytes::from_static(b"kv"),
            sequence.to_be_bytes().to_vec().into(),
            payload.into(),
        ];
        self.machine.message(self.now, &frames, &mut self.views);
    }

    fn answer(&mut self, watermark: u64, events: &[Vec<u8>]) {
        let id = self.machine.wanted_fetch().expect("no snapshot is wanted");
        self.answer_to(id, watermark, events);
    }

    fn answer_to(&mut self, id: FetchId, watermark: u64, events: &[Vec<u8>]) {
        let snapshot = Snapshot {
            watermark: Sequence(watermark),
            payload: batch(events).into(),
        };
        self.machine
            .snapshot(self.now, id, Ok(snapshot), &mut self.views);
    }

    fn fail(&mut self) {
        let id = self.machine.wanted_fetch().expect("no snapshot is wanted");
        let failure = ReplayFailure::Timeout("no answer in time".to_owned());
        self.machine
            .snapshot(self.now, id, Err(failure), &mut self.views);
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.machine.tick(self.now);
    }

    /// Lets time pass until the machine wants a snapshot.
    fn pass_until_wanted(&mut self) -> Duration {
        let start = self.now;
        while self.machine.wanted_fetch().is_none() {
            self.now = self
                .machine
                .deadline()
                .expect("the machine wants nothing, ever");
            self.machine.tick(self.now);
        }
        self.now - start
    }

    fn state(&self) -> StreamState {
        self.machine.state()
    }

    fn holds(&self) -> Vec<u64> {
        let mut held: Vec<u64> = self
            .views
            .published
            .iter()
            .flat_map(|(view, _)| view.device.iter().map(|wire| wire.0))
            .collect();
        held.sort_unstable();
        held
    }

    fn sequence(&self) -> Option<u64> {
        self.views
            .published
            .as_ref()
            .map(|(_, sequence)| sequence.0)
    }

    #[track_caller]
    fn assert_doubted(&self, kind: DoubtKind) {
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

#[test]
fn asks_for_a_snapshot_as_soon_as_it_is_connected() {
    let mut rig = Rig::new();
    assert_eq!(rig.state(), StreamState::Connecting);
    assert_eq!(rig.machine.wanted_fetch(), None);
    rig.connect();
    assert_eq!(rig.state(), StreamState::Snapshotting);
    rig.answer(5, &[stored(&[1, 2], None)]);
    assert_eq!(
        (rig.state(), rig.sequence(), rig.holds()),
        (StreamState::Synchronized, Some(5), vec![1, 2])
    );
    assert_eq!(rig.machine.error(), "");
}

#[test]
fn merges_the_snapshot_with_what_was_buffered() {
    let mut rig = Rig::connected();
    rig.live(4, &[stored(&[1], None)]);
    rig.live(5, &[stored(&[2], Some(1))]);
    rig.live(6, &[stored(&[3], Some(2))]);
    assert!(rig.views.published.is_none());
    rig.answer(5, &[stored(&[1, 2], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(6), vec![1, 2, 3]));
    assert_eq!(
        rig.views.history,
        [Some(6)],
        "one publication, of the whole"
    );
    rig.live(7, &[removed(&[3])]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(7), vec![1, 2]));
}

#[test]
fn a_buffer_that_starts_too_late_needs_another_snapshot() {
    let mut rig = Rig::connected();
    rig.live(12, &[stored(&[1], None)]);
    rig.answer(9, &[]);
    assert_eq!(rig.state(), StreamState::Snapshotting);
    assert!(
        rig.machine.error().contains("watermark 9"),
        "{}",
        rig.machine.error()
    );
    rig.pass_until_wanted();
    rig.answer(12, &[stored(&[1], None)]);
    assert_eq!(rig.sequence(), Some(12));
}

#[test]
fn messages_overtaken_by_their_snapshot_are_dropped() {
    let mut rig = Rig::synchronized(5, &[1, 2]);
    rig.live(4, &[stored(&[1], None)]);
    rig.live(5, &[stored(&[2], Some(1))]);
    rig.live(6, &[removed(&[2])]);
    assert_eq!(
        (rig.state(), rig.sequence(), rig.holds()),
        (StreamState::Synchronized, Some(6), vec![1])
    );
    assert_eq!(rig.machine.counters().covered, 2);
}

#[test]
fn overtaken_messages_must_be_in_order_and_soon() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.live(3, &[]);
    rig.live(3, &[]);
    rig.assert_doubted(DoubtKind::SequenceReset);

    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass(2000);
    rig.live(3, &[]);
    rig.assert_doubted(DoubtKind::SequenceReset);
}

#[test]
fn a_gap_ends_belief_before_it_is_applied() {
    // cases: gap beyond the replay window
    let mut rig = Rig::calm(9, &[1]);
    rig.live(15, &[stored(&[2], Some(1))]);
    rig.assert_doubted(DoubtKind::Gap);
    assert!(
        rig.machine.error().contains("expected 10, got 15"),
        "{}",
        rig.machine.error()
    );
    // A snapshot that does not reach the messages kept heals nothing.
    rig.answer(12, &[stored(&[1], None)]);
    assert!(rig.views.published.is_none());
    rig.pass_until_wanted();
    for sequence in 16..=21 {
        rig.live(sequence, &[]);
    }
    rig.live(22, &[stored(&[7], None)]);
    rig.answer(20, &[stored(&[1, 2], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(22), vec![1, 2, 7]));
}

#[test]
fn a_sequence_at_or_below_the_last_one_is_a_restart() {
    // cases: in-place restart
    let mut rig = Rig::calm(41, &[1]);
    rig.live(42, &[]);
    rig.live(0, &[stored(&[99], None)]);
    rig.assert_doubted(DoubtKind::SequenceReset);
    rig.answer(0, &[stored(&[99], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(0), vec![99]));
    rig.live(1, &[stored(&[98], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(1), vec![98, 99]));
}

#[test]
fn a_restart_while_a_snapshot_is_on_its_way_asks_again() {
    let mut rig = Rig::connected();
    rig.live(40, &[]);
    let old = rig.machine.wanted_fetch().unwrap();
    rig.live(0, &[stored(&[9], None)]);
    assert_ne!(rig.machine.wanted_fetch(), Some(old));
    rig.answer_to(old, 41, &[stored(&[1], None)]);
    assert!(
        rig.views.published.is_none(),
        "the answer of the engine before"
    );
    rig.pass_until_wanted();
    rig.answer(0, &[stored(&[9], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(0), vec![9]));
}

#[test]
fn an_idle_engine_may_start_at_zero_or_one() {
    for first in [0, 1] {
        let mut rig = Rig::connected();
        rig.answer(0, &[]);
        assert_eq!(rig.state(), StreamState::Synchronized);
        rig.live(first, &[stored(&[1], None)]);
        assert_eq!(
            (rig.sequence(), rig.holds()),
            (Some(first), vec![1]),
            "first message {first}"
        );
        rig.live(first + 1, &[stored(&[2], Some(1))]);
        assert_eq!(rig.holds(), [1, 2]);
    }
    let mut rig = Rig::connected();
    rig.live(0, &[stored(&[1], None)]);
    rig.answer(0, &[]);
    assert_eq!(
        (rig.sequence(), rig.holds()),
        (Some(0), vec![1]),
        "buffered before the answer"
    );
}

#[test]
fn a_bad_first_message_is_included_in_the_snapshot_asked_for_after_it() {
    let mut rig = Rig::connected();
    rig.answer(0, &[]);
    rig.pass(2500);
    rig.live(0, &[stored(&[5], Some(77))]);
    rig.assert_doubted(DoubtKind::UnknownParent);
    rig.answer(0, &[]);
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(0))
    );
}

#[test]
fn zero_is_not_the_start_when_something_was_published() {
    let mut rig = Rig::synchronized(0, &[1]);
    rig.live(0, &[stored(&[1], None)]);
    assert_eq!(
        (rig.state(), rig.machine.counters().covered),
        (StreamState::Synchronized, 1)
    );
    rig.live(2, &[]);
    rig.assert_doubted(DoubtKind::Gap);
}

#[test]
fn every_kind_of_bad_message_is_a_doubt() {
    let rank = pack::array(&[pack::int(0), pack::array(&[]), pack::int(3)]);
    let size = pack::map(&[
        ("type", pack::text("BlockStored")),
        ("block_hashes", pack::ints(&[1])),
        ("token_ids", pack::ints(&[1, 2, 3, 4])),
        ("block_size", pack::int(4)),
    ]);
    for (kind, payload) in [
        (DoubtKind::UnknownParent, batch(&[stored(&[5], Some(77))])),
        (DoubtKind::Decode, b"nonsense".to_vec()),
        (DoubtKind::Decode, Vec::new()),
        (DoubtKind::DpRank, rank),
        (DoubtKind::BlockSize, batch(&[size])),
    ] {
        let mut rig = Rig::calm(3, &[1]);
        rig.raw(4, payload);
        rig.assert_doubted(kind);
        assert!(
            rig.machine.wanted_fetch().is_some(),
            "a snapshot is asked for at once"
        );
        rig.answer(4, &[stored(&[1], None)]);
        assert_eq!(rig.sequence(), Some(4));
    }
    let mut rig = Rig::calm(3, &[1]);
    rig.machine
        .message(rig.now, &[Bytes::from_static(b"kv")], &mut rig.views);
    rig.assert_doubted(DoubtKind::Decode);
}

#[test]
fn a_message_not_understood_must_be_in_the_snapshot() {
    let mut rig = Rig::calm(3, &[1]);
    rig.raw(4, b"nonsense".to_vec());
    rig.answer(3, &[stored(&[1], None)]);
    assert_eq!(
        rig.state(),
        StreamState::Snapshotting,
        "message 4 is in neither"
    );
}

#[test]
fn other_topics_are_dropped_and_counted() {
    let mut rig = Rig::synchronized(3, &[1]);
    let frames = [
        Bytes::from_static(b"kv2"),
        9_u64.to_be_bytes().to_vec().into(),
        Bytes::from_static(b"x"),
    ];
    rig.machine.message(rig.now, &frames, &mut rig.views);
    assert_eq!(
        (rig.state(), rig.machine.counters().foreign_topic),
        (StreamState::Synchronized, 1)
    );
}

#[test]
fn a_disconnect_ends_belief_at_once() {
    let mut rig = Rig::calm(5, &[1]);
    rig.lose();
    rig.assert_doubted(DoubtKind::Disconnect);
    assert_eq!(rig.state(), StreamState::Connecting);
    assert_eq!(rig.machine.wanted_fetch(), None);
    // The restarted engine's numbers seem to go on: only the disconnect tells.
    rig.connect();
    rig.live(6, &[stored(&[9], None)]);
    assert!(rig.views.published.is_none());
    rig.answer(6, &[stored(&[9], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(6), vec![9]));
}

#[test]
fn failed_connections_are_reported_and_not_doubts() {
    let mut rig = Rig::new();
    rig.lose();
    rig.lose();
    assert_eq!(rig.machine.counters().doubts(DoubtKind::Disconnect), 0);
    assert_eq!(rig.machine.error(), "peer closed");
}

#[test]
fn failing_snapshots_are_retried_for_ever_and_never_at_once() {
    let mut rig = Rig::connected();
    rig.fail();
    let mut last = Duration::ZERO;
    for attempt in 0..40 {
        let waited = rig.pass_until_wanted();
        assert!(
            waited >= Duration::from_millis(50),
            "attempt {attempt} after {waited:?}"
        );
        assert!(
            waited <= Duration::from_secs(5),
            "attempt {attempt} after {waited:?}"
        );
        last = waited;
        rig.fail();
    }
    assert!(last >= Duration::from_millis(2500), "no backoff: {last:?}");
    assert_eq!(rig.machine.counters().snapshot_failures, 41);
    rig.pass_until_wanted();
    rig.answer(0, &[]);
    assert_eq!(rig.state(), StreamState::Synchronized);
}

#[test]
fn good_snapshots_and_bad_messages_are_no_busy_loop() {
    let mut rig = Rig::synchronized(0, &[1]);
    let start = rig.now;
    let mut sequence = 0;
    for _ in 0..20 {
        sequence += 2;
        rig.live(sequence, &[]);
        rig.pass_until_wanted();
        rig.answer(sequence, &[]);
        assert_eq!(rig.state(), StreamState::Synchronized);
    }
    assert!(
        rig.now - start > Duration::from_secs(30),
        "20 snapshots in {:?}",
        rig.now - start
    );
}

#[test]
fn a_full_batch_recovers_from_anything() {
    let mut rig = Rig::connected();
    rig.live(70, &[cleared(), stored(&[1, 2], None)]);
    assert_eq!(
        (rig.state(), rig.sequence(), rig.holds()),
        (StreamState::Synchronized, Some(70), vec![1, 2])
    );
    rig.live(71, &[stored(&[3], Some(2))]);
    assert_eq!(rig.holds(), [1, 2, 3]);
    // Over a gap, and back to the start, without a moment of disbelief.
    rig.live(90, &[cleared()]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(90), vec![]));
    rig.live(0, &[cleared(), stored(&[4], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(0), vec![4]));
    assert_eq!(rig.views.history, [Some(70), Some(90), Some(0)]);
    rig.live(2, &[]);
    rig.assert_doubted(DoubtKind::Gap);
}

#[test]
fn a_full_batch_among_the_buffered_ones_starts_anew() {
    let mut rig = Rig::connected();
    rig.live(7, &[stored(&[2], Some(1))]);
    let fetch = rig.machine.wanted_fetch().unwrap();
    rig.live(8, &[cleared(), stored(&[5], None)]);
    assert_eq!(rig.holds(), [5]);
    rig.answer_to(fetch, 7, &[stored(&[1, 2], None)]);
    assert_eq!(
        rig.holds(),
        [5],
        "the snapshot before it is of no use any more"
    );
}

#[test]
fn calibration_heals_a_lost_tail_without_a_flicker() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.live(6, &[stored(&[2], Some(1))]);
    let waited = rig.pass_until_wanted();
    assert!(
        (27_000..=30_000).contains(&waited.as_millis()),
        "{waited:?}"
    );
    assert_eq!(
        rig.state(),
        StreamState::Synchronized,
        "it serves meanwhile"
    );
    // Messages 7 and 8 were lost without a trace.
    rig.answer(8, &[stored(&[1, 2, 3], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(8), vec![1, 2, 3]));
    assert_eq!(rig.views.history, [Some(5), Some(8)]);
    rig.live(9, &[removed(&[3])]);
    assert_eq!(
        (rig.state(), rig.holds()),
        (StreamState::Synchronized, vec![1, 2])
    );
    assert_eq!(rig.machine.counters().calibrations, 1);
}

#[test]
fn calibration_under_load_keeps_what_came_meanwhile() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    rig.live(6, &[stored(&[2], Some(1))]);
    rig.live(7, &[stored(&[3], Some(2))]);
    rig.answer(6, &[stored(&[1, 2], None)]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(7), vec![1, 2, 3]));
    // The snapshot may be ahead of the live messages too: they are late, not lost.
    rig.pass_until_wanted();
    rig.answer(9, &[stored(&[1, 2, 3, 4], None)]);
    rig.live(8, &[stored(&[4], Some(3))]);
    rig.live(9, &[]);
    rig.live(10, &[removed(&[4])]);
    assert_eq!((rig.sequence(), rig.holds()), (Some(10), vec![1, 2, 3]));
    assert!(
        !rig.views.history.contains(&None),
        "{:?}",
        rig.views.history
    );
}

#[test]
fn a_calibration_that_fails_is_counted_and_retried() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    rig.fail();
    assert_eq!(
        (rig.state(), rig.holds()),
        (StreamState::Synchronized, vec![1])
    );
    let waited = rig.pass_until_wanted();
    assert!(
        waited >= Duration::from_millis(100) && waited < Duration::from_secs(10),
        "{waited:?}"
    );
    // Older than what is applied, and nothing bridges it.
    rig.live(6, &[stored(&[2], Some(1))]);
    rig.answer(3, &[]);
    assert_eq!(
        (rig.state(), rig.holds()),
        (StreamState::Synchronized, vec![1, 2])
    );
    rig.pass_until_wanted();
    rig.answer(6, &[stored(&[1, 2], None)]);
    let counters = rig.machine.counters();
    assert_eq!(
        (counters.calibration_failures, counters.calibrations),
        (2, 1)
    );
    assert_eq!(rig.sequence(), Some(6));
}

#[test]
fn a_message_during_a_calibration_can_still_be_a_doubt() {
    let mut rig = Rig::synchronized(5, &[1]);
    rig.pass_until_wanted();
    let calibration = rig.machine.wanted_fetch().unwrap();
    rig.live(9, &[]);
    rig.assert_doubted(DoubtKind::Gap);
    rig.answer_to(calibration, 9, &[stored(&[1], None)]);
    assert!(
        rig.views.published.is_none(),
        "the calibration was given up"
    );
}

#[test]
fn orphans_cause_no_snapshot_after_snapshot() {
    // cases: unknown parent
    let mut rig = Rig::connected();
    rig.answer(
        5,
        &[
            stored(&[1], None),
            stored(&[2], Some(1)),
            stored(&[9], Some(8)),
            stored(&[10], Some(9)),
        ],
    );
    assert_eq!(
        (rig.state(), rig.holds()),
        (StreamState::Synchronized, vec![1, 2])
    );
    rig.live(6, &[stored(&[11], Some(10))]);
    rig.live(7, &[stored(&[12], Some(11))]);
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(7))
    );
    rig.live(8, &[stored(&[14], Some(13))]);
    rig.assert_doubted(DoubtKind::UnknownParent);
}

#[test]
fn the_buffer_has_a_budget() {
    let mut rig = Rig::with(Limits {
        max_buffered_bytes: 2000,
        ..Limits::default()
    });
    rig.connect();
    for sequence in 1..40 {
        rig.live(sequence, &[stored(&[sequence], None)]);
        assert!(rig.machine.buffered_bytes() <= 2000);
    }
    assert!(rig.machine.counters().doubts(DoubtKind::BufferLimit) >= 1);
    rig.pass_until_wanted();
    rig.answer(39, &[stored(&[1], None)]);
    assert_eq!(rig.sequence(), Some(39));
    // While calibrating the live view is sound: only the calibration is given up.
    rig.pass_until_wanted();
    for sequence in 40..80 {
        rig.live(sequence, &[stored(&[sequence], None)]);
    }
    assert_eq!(
        (rig.state(), rig.sequence()),
        (StreamState::Synchronized, Some(79))
    );
    assert!(rig.machine.counters().calibration_failures >= 1);
}

#[test]
fn too_many_blocks_are_a_doubt_wherever_they_come_from() {
    let limits = Limits {
        max_blocks_per_stream: 3,
        ..Limits::default()
    };
    let mut rig = Rig::with(limits);
    rig.connect();
    rig.answer(1, &[stored(&[1, 2, 3, 4], None)]);
    rig.assert_doubted(DoubtKind::BlockLimit);
    rig.pass_until_wanted();
    rig.answer(1, &[stored(&[1, 2, 3], None)]);
    rig.live(2, &[stored(&[4], Some(3))]);
    assert_eq!(rig.machine.counters().doubts(DoubtKind::BlockLimit), 2);
    rig.pass_until_wanted();
    rig.answer(2, &[stored(&[1], None)]);
    rig.pass_until_wanted();
    rig.answer(2, &[stored(&[1, 2, 3, 4], None)]);
    assert_eq!(rig.machine.counters().doubts(DoubtKind::BlockLimit), 3);
    assert!(rig.views.published.is_none());
}

#[test]
fn without_a_view_slot_it_tries_again() {
    let mut rig = Rig::connected();
    rig.views.no_slots = 1;
    rig.answer(1, &[]);
    assert_eq!(rig.state(), StreamState::Snapshotting);
    rig.pass_until_wanted();
    rig.answer(1, &[]);
    assert_eq!(rig.state(), StreamState::Synchronized);
}

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
    // A quiet point: everything the machine wants, it gets.
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
