//! What a subscription has received and its worker has not seen yet, bounded in bytes.
//!
//! Invariants: messages in the queue never occupy more than `max_bytes`, frames' and queue's own memory included (but for
//! two chunks of [`Packer`]); no message of a lost connection is left in it. Whoever overflows it gives the connection up:
//! an engine must not be slowed down by a directory, nor a directory filled up by an engine.

mod packer;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use self::packer::Packer;

use crate::stream::Doubt;

/// What happens on a subscription.
#[derive(Debug)]
pub(super) enum Event {
    /// The topic filter was written to a publisher.
    Up,
    /// The frames of a message, packed.
    Message(Vec<Bytes>),
    /// The connection is gone, or could not be had.
    Down(Doubt),
}

/// The queue is full; the message was dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    queued_bytes: usize,
    /// The sender has gone.
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Notify,
    /// The worker wants another connection.
    hang_up: Notify,
}

/// The subscription's end.
#[derive(Debug)]
pub(super) struct Sender {
    shared: Arc<Shared>,
    max_bytes: usize,
    packer: Packer,
}

/// The worker's end.
#[derive(Debug)]
pub(super) struct Receiver {
    shared: Arc<Shared>,
}

/// Places that an event may cost: [`Queue::pop`] keeps the queue from having more to spare.
const PLACES_PER_EVENT: usize = 4;
/// A message costs its places in the queue and what the allocator adds to its list of frames.
const MESSAGE_OVERHEAD_BYTES: usize = PLACES_PER_EVENT * size_of::<Event>() + 32;
/// So many places are kept for good.
const MIN_PLACES: usize = 64;

pub(super) fn channel(max_bytes: usize) -> (Sender, Receiver) {
    let shared = Arc::new(Shared::default());
    let receiver = Receiver {
        shared: shared.clone(),
    };
    let sender = Sender {
        shared,
        max_bytes,
        packer: Packer::default(),
    };
    (sender, receiver)
}

/// The bytes that a queued message of these frames holds.
fn cost_bytes(frames: &Vec<Bytes>) -> usize {
    let packed: usize = frames.iter().map(|frame| Packer::cost_bytes(frame)).sum();
    packed + frames.capacity() * size_of::<Bytes>() + MESSAGE_OVERHEAD_BYTES
}

impl Queue {
    fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Message(frames) = &event {
            self.queued_bytes -= cost_bytes(frames);
        }
        let places = self.events.capacity();
        if places > MIN_PLACES && places > PLACES_PER_EVENT * self.events.len() {
            self.events.shrink_to(MIN_PLACES.max(places / 2));
        }
        Some(event)
    }

    /// Takes the messages out; the other events stay. To be dropped outside the lock.
    fn take_messages(&mut self) -> VecDeque<Event> {
        let events = std::mem::take(&mut self.events).into_iter();
        let (messages, others) = events.partition(|event| matches!(event, Event::Message(_)));
        self.events = others;
        self.queued_bytes = 0;
        messages
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics under the lock; a poisoned one is as good.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Returns when the worker wants another connection. Cancel-safe.
    pub(super) async fn hung_up(&self) {
        self.shared.hang_up.notified().await;
    }

    /// The subscription is up.
    pub(super) fn up(&self) {
        self.shared.lock().events.push_back(Event::Up);
        self.shared.arrived.notify_one();
    }

    /// A message's frames, unless there is no room for them.
    pub(super) fn message(&mut self, mut frames: Vec<Bytes>) -> Result<(), Full> {
        let cost = cost_bytes(&frames);
        // This is the only side that adds, so that no one can overtake the check.
        if self.shared.lock().queued_bytes.saturating_add(cost) > self.max_bytes {
            return Err(Full);
        }
        for frame in &mut frames {
            *frame = self.packer.pack(frame);
        }
        let mut queue = self.shared.lock();
        queue.queued_bytes += cost;
        queue.events.push_back(Event::Message(frames));
        drop(queue);
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// The connection is gone, and with it the messages that came over it: they are older than the next snapshot, and the
    /// worker must not believe its view until it has worked through them.
    pub(super) fn down(&self, doubt: Doubt) {
        let mut queue = self.shared.lock();
        // What stays is as rare as connections, and done with in no time.
        let messages = queue.take_messages();
        queue.events.push_back(Event::Down(doubt));
        drop(queue);
        self.shared.arrived.notify_one();
        drop(messages);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        let messages = queue.take_messages();
        drop(queue);
        self.shared.arrived.notify_one();
        drop(messages);
    }
}

impl Receiver {
    /// The next event, or `None` when the subscription has ended. Cancel-safe.
    pub(super) async fn recv(&mut self) -> Option<Event> {
        // A queue that never runs dry must not keep the thread from everything else.
        tokio::task::consume_budget().await;
        loop {
            {
                let mut queue = self.shared.lock();
                let event = queue.pop();
                if event.is_some() || queue.closed {
                    return event;
                }
            }
            // What has arrived since then is remembered.
            self.shared.arrived.notified().await;
        }
    }

    /// Ends the connection that waits for messages now, and no later one; the subscription makes
    /// another.
    pub(super) fn hang_up(&self) {
        self.shared.hang_up.notify_waiters();
    }

    pub(super) fn try_recv(&mut self) -> Option<Event> {
        self.shared.lock().pop()
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.shared.lock().queued_bytes
    }
}

#[cfg(test)]
mod tests;
