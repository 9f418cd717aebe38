//! When a queue's thread gets to a certain place, told by that thread itself.
//!
//! Dynamo's indexes are fed through a queue that a thread of theirs drains. Its flush answers over a oneshot
//! channel, and whoever answers also wakes the one who waits: a waker that looks at the clock does so in the
//! draining thread, however late the others are scheduled. A waker that waits keeps the queue from being
//! drained while it is filled.

use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Instant;

use anyhow::Result;
use tokio::sync::oneshot;

/// The place in the queue that a flush has.
pub struct FlushMark {
    passed: Receiver<Instant>,
    /// Polled once, so that it knows whom to wake.
    answer: oneshot::Receiver<()>,
}

struct Clock {
    gate: Option<Mutex<Receiver<()>>>,
    passed: Sender<Instant>,
}

impl Wake for Clock {
    fn wake(self: Arc<Self>) {
        if let Some(gate) = &self.gate {
            let gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody left to open it: go on.
            let _ = gate.recv();
        }
        let _ = self.passed.send(Instant::now());
    }
}

impl FlushMark {
    /// A mark, and the sender to put into the queue. With a gate, the draining thread waits there until
    /// something is sent.
    #[must_use]
    pub fn new(gate: Option<Receiver<()>>) -> (Self, oneshot::Sender<()>) {
        let (told, passed) = channel();
        let (sender, mut answer) = oneshot::channel();
        let waker = Waker::from(Arc::new(Clock {
            gate: gate.map(Mutex::new),
            passed: told,
        }));
        let _pending = pin!(&mut answer).poll(&mut Context::from_waker(&waker));
        (Self { passed, answer }, sender)
    }

    /// Waits until the draining thread has passed; when that was.
    ///
    /// # Errors
    /// The thread has ended without.
    pub fn wait(mut self) -> Result<Instant> {
        let passed = self.passed.recv()?;
        // A thread that ends drops its senders, which wakes too.
        self.answer.try_recv()?;
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_gate_holds_the_draining_thread_until_it_opens() {
        let (open, gate) = channel();
        let (mark, flush) = FlushMark::new(Some(gate));
        let drained = std::thread::spawn(move || flush.send(()));
        let shut = mark.passed.recv_timeout(Duration::from_millis(50));
        assert!(shut.is_err());
        let opened = Instant::now();
        open.send(()).unwrap();
        assert!(mark.wait().unwrap() >= opened);
        drained.join().unwrap().unwrap();
    }

    #[test]
    fn a_thread_that_ends_has_not_passed() {
        let (mark, flush) = FlushMark::new(None);
        drop(flush);
        assert!(mark.wait().is_err());
    }
}
