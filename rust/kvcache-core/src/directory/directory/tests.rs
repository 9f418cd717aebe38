//! A directory of which one stream's worker dies.

use super::super::journal::{Change, Transition};
use super::*;
use crate::ingest::peer::{self, NOTHING, Peer, full_state, publish, wait_until};
use crate::model::{ApplyError, ApplyReport, Batch, Sequence};
use crate::stream::{Sizes, Views};

/// Real views that no live message can be applied to.
struct PanickingViews(StreamViews);

impl Views for PanickingViews {
    fn apply(&mut self, _: &Batch, _: Sequence) -> Result<ApplyReport, ApplyError> {
        panic!("as the test wants it")
    }
    fn begin_draft(&mut self) {
        self.0.begin_draft();
    }
    fn draft_snapshot(&mut self, batch: &Batch) -> Result<ApplyReport, ApplyError> {
        self.0.draft_snapshot(batch)
    }
    fn draft_delta(&mut self, batch: &Batch) -> Result<ApplyReport, ApplyError> {
        self.0.draft_delta(batch)
    }
    fn publish_draft(&mut self, sequence: Sequence) -> Result<u64, ApplyError> {
        self.0.publish_draft(sequence)
    }
    fn discard_draft(&mut self) {
        self.0.discard_draft();
    }
    fn unpublish(&mut self, error: &str) {
        self.0.unpublish(error);
    }
    fn sizes(&self) -> Sizes {
        self.0.sizes()
    }
}

/// A directory of the streams `a` to `c`; the views of `a` panic.
fn start(publishers: &[Peer; 3], replay: &Peer) -> Directory {
    let limits = Limits::default();
    let block_spec = BlockSpec {
        block_size_tokens: NonZeroU32::MIN,
        hash_seed: 1024,
    };
    let indexes = Indexes::default();
    let index = indexes.get_or_add(block_spec).unwrap();
    let runtime = IngestRuntime::start().unwrap();
    let journal = Arc::new(Journal::default());
    let follow = |(name, publisher): (&str, &Peer)| {
        let spec = Arc::new(StreamSpec {
            key: StreamKey::new(name, 0),
            block_spec,
            endpoint: publisher.endpoint(),
            replay_endpoint: replay.endpoint(),
            topic: "kv".to_owned(),
            identity: None,
        });
        let (source, settings) = stream_parts(&spec, limits);
        let writer = index.add_stream(spec.key.clone(), limits.max_blocks_per_stream);
        let writer = writer.unwrap();
        let (index, member) = (index.clone(), writer.member().clone());
        let (story, scribe) = journal.open(spec.key.clone(), Instant::now());
        let views = StreamViews::new(writer).told_to(scribe);
        let task = if name == "a" {
            runtime.follow(source, settings, PanickingViews(views))
        } else {
            runtime.follow(source, settings, views)
        };
        let followed = Followed {
            spec: spec.clone(),
            index,
            member,
            story,
            task,
        };
        (spec.key.clone(), followed)
    };
    let streams = ["a", "b", "c"].into_iter().zip(publishers).map(follow);
    let streams = streams.collect();
    Directory {
        limits,
        indexes,
        journal,
        closed: false.into(),
        running: Mutex::new(Some(Running { runtime, streams })),
    }
}

#[test]
fn a_dead_worker_is_reported_and_confuses_nobody() {
    let publishers = [(); 3].map(|()| Peer::listen());
    let replay = Peer::listen();
    let directory = start(&publishers, &replay);
    let mut engines = publishers.each_ref().map(|peer| peer.welcome("PUB"));
    for (engine, blocks) in engines.iter_mut().zip([&[1, 2, 3][..], &[1, 2], &[1]]) {
        publish(engine, 7, &full_state(blocks));
    }
    assert!(directory.wait_synchronized_slice(peer::PATIENCE).unwrap());
    let blocks = |streams: &[StreamInfo]| -> Vec<u64> {
        streams.iter().map(|stream| stream.device_blocks).collect()
    };
    assert_eq!(blocks(&directory.streams().unwrap()), [3, 2, 1]);

    publish(&mut engines[0], 8, NOTHING);
    wait_until("the end of the worker's view", || {
        let matches = directory.query(&[1]).unwrap();
        assert_eq!(matches.len(), 3, "every stream is in every answer");
        let (row, hit) = matches.get(0).unwrap();
        !hit.synchronized && row.error().contains("internal fault")
    });
    let streams = directory.streams().unwrap();
    let [a, b, c] = &streams[..] else {
        panic!("{streams:?}")
    };
    assert_eq!(blocks(&streams), [0, 2, 1]);
    assert_eq!(
        (a.status.state, a.sequence),
        (StreamState::Connecting, Some(7))
    );
    assert!(a.status.error.contains("internal fault"), "{a:?}");
    for other in [b, c] {
        assert_eq!(other.status.state, StreamState::Synchronized);
        assert_eq!(other.sequence, Some(7));
    }
    let slice = Duration::from_millis(10);
    assert!(!directory.wait_synchronized_slice(slice).unwrap());
    let waiting = directory.unsynchronized().unwrap();
    assert!(waiting.starts_with("a#0 (an internal fault"), "{waiting}");
    let journal = directory.journal();
    directory.close();
    let mut losses = Vec::new();
    while let Some(entries) = journal.wait() {
        for Transition { key, change, .. } in entries.transitions {
            if let Change::Lost { sequence, reason } = change {
                losses.push((key.to_string(), sequence, reason));
            }
        }
    }
    let [(key, sequence, reason)] = &losses[..] else {
        panic!("{losses:?}")
    };
    assert_eq!((&key[..], *sequence), ("a#0", Some(Sequence(7))));
    assert!(reason.contains("internal fault"), "{reason}");
}
