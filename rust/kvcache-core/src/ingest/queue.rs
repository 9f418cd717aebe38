//! What a subscription has received and its worker has not seen yet, bounded in bytes.
//!
//! Invariant: messages in the queue never occupy more than `max_bytes`. Whoever overflows it gives the connection up:
//! an engine must not be slowed down by a directory, nor a directory filled up by an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use zmtp::Message;

use crate::stream::Doubt;

/// What happens on a subscription.
#[derive(Debug)]
pub(super) enum Event {
    /// The topic filter was written to a publisher.
    Up,
    Message(Message),
    /// The connection is gone, or could not be had.
    Down(Doubt),
}

/// The queue is full; the message was dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug)]
pub(super) struct Sender {
    events: mpsc::UnboundedSender<Event>,
    queued_bytes: Arc<AtomicUsize>,
    max_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Receiver {
    events: mpsc::UnboundedReceiver<Event>,
    queued_bytes: Arc<AtomicUsize>,
}

/// What a message costs beyond its bytes: its frames' handles and its place in the queue.
const MESSAGE_OVERHEAD_BYTES: usize = 256;

pub(super) fn channel(max_bytes: usize) -> (Sender, Receiver) {
    // Only messages have a size worth bounding; the other events are as rare as connections.
    let (sender, receiver) = mpsc::unbounded_channel();
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    (
        Sender {
            events: sender,
            queued_bytes: queued_bytes.clone(),
            max_bytes,
        },
        Receiver {
            events: receiver,
            queued_bytes,
        },
    )
}

fn cost_bytes(event: &Event) -> usize {
    match event {
        Event::Message(message) => message.wire_bytes() + MESSAGE_OVERHEAD_BYTES,
        Event::Up | Event::Down(_) => 0,
    }
}

impl Sender {
    pub(super) fn push(&self, event: Event) -> Result<(), Full> {
        let cost = cost_bytes(&event);
        // This is the only side that adds, so that no one can overtake the check.
        if self.queued_bytes.load(Ordering::Acquire) + cost > self.max_bytes {
            return Err(Full);
        }
        self.queued_bytes.fetch_add(cost, Ordering::AcqRel);
        // A worker that has gone is about to take this task with it.
        let _ = self.events.send(event);
        Ok(())
    }
}

impl Receiver {
    /// The next event, or `None` when the subscription has ended. Cancel-safe.
    pub(super) async fn recv(&mut self) -> Option<Event> {
        let event = self.events.recv().await?;
        self.queued_bytes
            .fetch_sub(cost_bytes(&event), Ordering::AcqRel);
        Some(event)
    }

    pub(super) fn try_recv(&mut self) -> Option<Event> {
        let event = self.events.try_recv().ok()?;
        self.queued_bytes
            .fetch_sub(cost_bytes(&event), Ordering::AcqRel);
        Some(event)
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Acquire)
    }
}
