//! Workers with real queues, tasks and sockets, and a view that the test looks into.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::mpsc;

use bytes::Bytes;

use super::*;
use crate::decode::xllm::Expectation;
use crate::ingest::IngestRuntime;
use crate::ingest::peer::{self, NOTHING, Peer, full_state, publish, wait_until};
use crate::ingest::queue::{Sender, channel};
use crate::ingest::status::StateChanges;
use crate::model::{ApplyError, ApplyReport, Batch, DpRank, Sequence};
use crate::stream::{Doubt, DoubtKind, Sizes, StreamState};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Applied(u64),
    Published(u64),
    Unpublished,
}

/// Writes down what happens to the view; `on_apply` may block or panic.
struct LoggingViews<F> {
    log: Arc<Mutex<Vec<Change>>>,
    on_apply: F,
}

impl<F: FnMut()> Views for LoggingViews<F> {
    fn apply(&mut self, _: &Batch, sequence: Sequence) -> Result<ApplyReport, ApplyError> {
        (self.on_apply)();
        self.log.lock().unwrap().push(Change::Applied(sequence.0));
        Ok(ApplyReport::default())
    }
    fn begin_draft(&mut self) {}
    fn draft_snapshot(&mut self, _: &Batch) -> Result<ApplyReport, ApplyError> {
        Ok(ApplyReport::default())
    }
    fn draft_delta(&mut self, _: &Batch) -> Result<ApplyReport, ApplyError> {
        Ok(ApplyReport::default())
    }
    fn publish_draft(&mut self, sequence: Sequence) -> Result<u64, ApplyError> {
        self.log.lock().unwrap().push(Change::Published(sequence.0));
        Ok(0)
    }
    fn discard_draft(&mut self) {}
    fn unpublish(&mut self, _: &str) {
        let mut log = self.log.lock().unwrap();
        if log.last() != Some(&Change::Unpublished) {
            log.push(Change::Unpublished);
        }
    }
    fn sizes(&self) -> Sizes {
        Sizes::default()
    }
}

/// A stream from `publisher`; whoever asks `replay` waits in vain.
fn stream(publisher: &Peer, replay: &Peer) -> (StreamSource, StreamSettings) {
    let limits = Limits {
        replay_timeout_ms: 60_000,
        ..Limits::default()
    };
    let topic: Box<[u8]> = b"kv".as_slice().into();
    let source = StreamSource {
        endpoint: publisher.endpoint(),
        replay_endpoint: replay.endpoint(),
        topic: topic.clone(),
        limits,
        seed: 7,
    };
    let expectation = Expectation {
        dp_rank: DpRank(0),
        block_size_tokens: NonZeroU32::MIN,
    };
    let settings = StreamSettings {
        topic,
        expectation,
        limits,
        seed: 7,
    };
    (source, settings)
}

fn send(sender: &mut Sender, sequence: u64, payload: &[u8]) {
    let frames = peer::live(sequence, payload).map(Bytes::from);
    sender.message(frames.into()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_overtakes_the_backlog() {
    let (publisher, replay) = (Peer::listen(), Peer::listen());
    let (source, settings) = stream(&publisher, &replay);
    let (mut sender, receiver) = channel(1 << 20);
    let changes = Arc::new(StateChanges::default());
    let status = Arc::new(StatusCell::new(Instant::now(), changes));
    let log: Arc<Mutex<Vec<Change>>> = Arc::default();
    let (entered, is_busy) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let views = LoggingViews {
        log: log.clone(),
        on_apply: move || {
            entered.send(()).unwrap();
            released.recv_timeout(peer::PATIENCE).unwrap();
        },
    };
    let worker = Worker::new(Arc::new(source), settings, views, receiver, status.clone());
    let task = tokio::spawn(worker.run());

    sender.up();
    send(&mut sender, 1, &full_state(&[1]));
    send(&mut sender, 2, NOTHING);
    is_busy.recv_timeout(peer::PATIENCE).unwrap();
    // The worker is at message 2 and stays there for a while.
    for sequence in 3..500 {
        send(&mut sender, sequence, NOTHING);
    }
    sender.down(Doubt::new(DoubtKind::Disconnect, "peer closed"));
    sender.up();
    send(&mut sender, 1, &full_state(&[1]));
    release.send(()).unwrap();

    wait_until("the second connection's view", || {
        let status = status.read(Instant::now());
        status.counters.connects == 2 && status.state == StreamState::Synchronized
    });
    assert_eq!(
        *log.lock().unwrap(),
        [
            Change::Unpublished,
            Change::Published(1),
            Change::Applied(2),
            Change::Unpublished,
            Change::Published(1)
        ]
    );
    let status = status.read(Instant::now());
    assert_eq!(status.counters.doubts(DoubtKind::Disconnect), 1);
    assert_eq!(status.buffered_bytes, 0);
    drop(sender);
    tokio::time::timeout(peer::PATIENCE, task)
        .await
        .unwrap()
        .unwrap();
}

#[test]
fn a_message_of_too_many_frames_costs_the_connection_and_no_more() {
    let (publisher, replay) = (Peer::listen(), Peer::listen());
    let (source, settings) = stream(&publisher, &replay);
    let runtime = IngestRuntime::start().unwrap();
    let views = LoggingViews {
        log: Arc::default(),
        on_apply: || {},
    };
    let task = runtime.follow(source, settings, views);
    let mut engine = publisher.welcome("PUB");
    publish(&mut engine, 1, &full_state(&[1]));
    wait_until("a view", || task.state() == StreamState::Synchronized);

    peer::say(&mut engine, &[b"kv".as_slice(); 9]);
    peer::wait_for_hangup(&mut engine);
    let mut engine = publisher.welcome("PUB");
    wait_until("a second connection", || {
        task.status().counters.connects == 2
    });
    let status = task.status();
    assert_eq!(status.state, StreamState::Snapshotting);
    assert_eq!(status.counters.doubts(DoubtKind::MessageSize), 1);
    assert!(
        status.last_error.contains("too many frames"),
        "{}",
        status.last_error
    );
    publish(&mut engine, 1, &full_state(&[1]));
    wait_until("a view", || task.state() == StreamState::Synchronized);
    drop(task);
    runtime.shutdown();
}

#[test]
fn a_worker_that_panics_is_never_shown_as_synchronized() {
    let (publisher, replay) = (Peer::listen(), Peer::listen());
    let (source, settings) = stream(&publisher, &replay);
    let runtime = IngestRuntime::start().unwrap();
    let views = LoggingViews {
        log: Arc::default(),
        on_apply: || panic!("as the test wants it"),
    };
    let task = runtime.follow(source, settings, views);
    let mut engine = publisher.welcome("PUB");
    publish(&mut engine, 1, &full_state(&[1]));
    wait_until("a view", || task.state() == StreamState::Synchronized);
    let changes = runtime.changes().count();

    publish(&mut engine, 2, NOTHING);
    wait_until("the end of the worker", || {
        task.state() != StreamState::Synchronized
    });
    let status = task.status();
    assert!(status.error.contains("internal fault"), "{}", status.error);
    assert_eq!(status.last_error, status.error);
    assert!(runtime.changes().count() > changes, "nobody was told");
    peer::wait_for_hangup(&mut engine);
    drop(task);
    runtime.shutdown();
}

#[test]
fn a_subscription_that_ends_takes_its_worker_along() {
    let (publisher, replay) = (Peer::listen(), Peer::listen());
    let (source, settings) = stream(&publisher, &replay);
    let (sender, receiver) = channel(1 << 20);
    let changes = Arc::new(StateChanges::default());
    let status = Arc::new(StatusCell::new(Instant::now(), changes));
    let log: Arc<Mutex<Vec<Change>>> = Arc::default();
    let views = LoggingViews {
        log: log.clone(),
        on_apply: || {},
    };
    let worker = Worker::new(Arc::new(source), settings, views, receiver, status.clone());
    drop(sender);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime
        .block_on(async { tokio::time::timeout(peer::PATIENCE, worker.run()).await })
        .unwrap();
    assert!(status.read(Instant::now()).error.contains("internal fault"));
    assert_eq!(Arc::strong_count(&log), 1, "the view outlives its worker");
}
