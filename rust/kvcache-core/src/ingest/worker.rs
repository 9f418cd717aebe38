//! The task that owns one stream's state machine and view.
//!
//! It does what the machine wants: keeps at most one fetch and one probe running, the wanted ones,
//! and wakes the machine at its deadline.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use zmtp::Endpoint;

use super::queue::{Event, Receiver};
use super::status::StatusCell;
use super::{replay, subscription, topic_probe};
use crate::model::Limits;
use crate::stream::{
    FetchId, ProbeId, ReplayFailure, Snapshot, StreamMachine, StreamSettings, Views,
};

/// Where one stream comes from.
#[derive(Clone, Debug)]
pub struct StreamSource {
    /// The PUB endpoint.
    pub endpoint: Endpoint,
    /// The replay endpoint.
    pub replay_endpoint: Endpoint,
    /// Exact topic; also the prefix that is subscribed to.
    pub topic: Box<[u8]>,
    /// Bounds.
    pub limits: Limits,
    /// Seed of all jitter.
    pub seed: u64,
}

impl StreamSource {
    /// What the transport may accept: a payload of `max_message_bytes`, and room for topic and sequence.
    pub(super) fn transport_limits(&self) -> zmtp::Limits {
        let max = self.limits.max_message_bytes;
        zmtp::Limits {
            max_frame_bytes: max,
            max_message_bytes: max.saturating_add(self.envelope_bytes()),
            // A live message has three, a replay four at most.
            max_frames: 8,
            ..zmtp::Limits::default()
        }
    }

    /// What a whole snapshot reply may take on the wire: a payload of `max_message_bytes`, its envelope, and the end
    /// marker's.
    pub(super) fn max_reply_bytes(&self) -> usize {
        let envelopes = 2 * self.envelope_bytes();
        self.limits.max_message_bytes.saturating_add(envelopes)
    }

    /// Topic, sequence, and the frames' headers.
    fn envelope_bytes(&self) -> usize {
        self.topic.len() + 64
    }
}

/// Messages taken from the queue before the status is written again.
const BURST: usize = 64;

type Running<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Fetched = Result<Snapshot, ReplayFailure>;
type Probed = Result<Vec<Box<[u8]>>, String>;

/// One stream's worker.
pub(super) struct Worker<V> {
    source: Arc<StreamSource>,
    machine: StreamMachine,
    views: V,
    queue: Receiver,
    fetch: Option<(FetchId, Running<Fetched>)>,
    probe: Option<(ProbeId, Running<Probed>)>,
    status: Arc<StatusCell>,
}

impl<V: Views> Worker<V> {
    pub(super) fn new(
        source: Arc<StreamSource>,
        settings: StreamSettings,
        views: V,
        queue: Receiver,
        status: Arc<StatusCell>,
    ) -> Self {
        Self {
            source,
            machine: StreamMachine::new(settings),
            views,
            queue,
            fetch: None,
            probe: None,
            status,
        }
    }

    /// Runs until the subscription ends or the task is aborted.
    pub(super) async fn run(mut self) {
        loop {
            self.follow_wanted_fetch();
            self.follow_wanted_probe();
            let deadline = self.machine.deadline();
            tokio::select! {
                event = self.queue.recv() => match event {
                    Some(event) => self.burst(event),
                    None => return,
                },
                (id, result) = ended(&mut self.fetch) => {
                    self.fetch = None;
                    self.machine.snapshot(Instant::now(), id, result, &mut self.views);
                }
                (id, seen) = ended(&mut self.probe) => {
                    self.probe = None;
                    if self.machine.probed(id, seen, &mut self.views) {
                        self.queue.hang_up();
                    }
                }
                () = sleep_until(deadline) => {
                    self.machine.tick(Instant::now(), &mut self.views);
                }
            }
            self.write_status();
        }
    }

    fn burst(&mut self, first: Event) {
        self.handle(first);
        for _ in 1..BURST {
            // A wanted fetch must not wait for the queue to run dry.
            if self.machine.wanted_fetch() != self.fetch.as_ref().map(|(id, _)| *id) {
                return;
            }
            let Some(event) = self.queue.try_recv() else {
                return;
            };
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Up => self.machine.connected(Instant::now(), &mut self.views),
            Event::Message(frames) => {
                self.machine
                    .message(Instant::now(), &frames, &mut self.views);
            }
            Event::Down(doubt) => self.machine.disconnected(doubt, &mut self.views),
        }
    }

    fn follow_wanted_fetch(&mut self) {
        let wanted = self.machine.wanted_fetch();
        if wanted == self.fetch.as_ref().map(|(id, _)| *id) {
            return;
        }
        // Dropping the old one closes its connection.
        self.fetch = wanted.map(|id| {
            let source = self.source.clone();
            let fetching: Running<Fetched> = Box::pin(async move { replay::fetch(&source).await });
            (id, fetching)
        });
    }

    fn follow_wanted_probe(&mut self) {
        let wanted = self.machine.wanted_probe();
        if wanted == self.probe.as_ref().map(|(id, _)| *id) {
            return;
        }
        self.probe = wanted.map(|id| {
            let source = self.source.clone();
            let looking: Running<Probed> =
                Box::pin(async move { topic_probe::look(&source).await });
            (id, looking)
        });
    }

    fn write_status(&self) {
        let sizes = self.views.sizes();
        self.status.update(Instant::now(), |status| {
            status.state = self.machine.state();
            self.machine.error().clone_into(&mut status.error);
            self.machine.last_error().clone_into(&mut status.last_error);
            status.counters = *self.machine.counters();
            status.sizes = sizes;
            status.buffered_bytes = self.machine.buffered_bytes() + self.queue.queued_bytes();
        });
    }
}

impl<V> Drop for Worker<V> {
    /// Whatever ends a worker ends belief in its view, and before the view goes nobody may be told otherwise.
    fn drop(&mut self) {
        self.status.end(Instant::now());
    }
}

/// The subscription's half of a stream.
pub(super) async fn subscribe(source: Arc<StreamSource>, mut sender: super::queue::Sender) {
    subscription::run(&source, &mut sender).await;
}

async fn ended<I: Copy, T>(running: &mut Option<(I, Running<T>)>) -> (I, T) {
    match running {
        Some((id, task)) => (*id, task.await),
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
