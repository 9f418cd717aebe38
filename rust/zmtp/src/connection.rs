//! An open connection: subscribe, send, receive.
//!
//! Invariants: no task works behind the owner's back, so heartbeats are exchanged while `recv` is awaited and dropping
//! the connection closes the socket; every future can be dropped at any await without losing a byte; after a fatal
//! error every call gives that error.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::command::{PING, Request, interpret};
use crate::frame::Frame;
use crate::heartbeat::{Due, Heartbeat};
use crate::message::Assembler;
use crate::wire::Wire;
use crate::{Error, Greeting, Message, SocketType, Timeouts};

/// How long the socket is looked at once more before a peer is given up: bytes may have arrived while the owner,
/// or the whole runtime, was busy. Long enough for the runtime to ask the operating system.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// A connection to one peer, made by [`connect`](crate::connect()).
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    address: SocketAddr,
    greeting: Greeting,
    socket_type: SocketType,
    /// The first parts of a message whose last part has not come.
    assembler: Assembler,
    /// `None` if the peer does not know PING.
    heartbeat: Option<Heartbeat>,
    /// How long a write may make no progress.
    stall: Duration,
    /// Set once, by the first fatal error.
    failed: Option<Error>,
}

impl Connection {
    pub(crate) fn new(
        wire: Wire,
        address: SocketAddr,
        greeting: Greeting,
        socket_type: SocketType,
        timeouts: &Timeouts,
    ) -> Self {
        Self {
            wire,
            address,
            greeting,
            socket_type,
            assembler: Assembler::default(),
            heartbeat: greeting
                .has_heartbeats()
                .then(|| Heartbeat::new(timeouts, Instant::now())),
            stall: timeouts.heartbeat_timeout,
            failed: None,
        }
    }

    /// The address that was connected to.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.address
    }

    /// What the peer announced in its greeting.
    #[must_use]
    pub fn peer_greeting(&self) -> Greeting {
        self.greeting
    }

    /// Asks for all messages whose first frame begins with `prefix`. Returns when the request is written, which
    /// is before the peer has acted on it.
    ///
    /// # Errors
    /// [`Error::WrongOperation`] on a DEALER; otherwise the connection is over.
    pub async fn subscribe(&mut self, prefix: &[u8]) -> Result<(), Error> {
        if self.socket_type != SocketType::Sub {
            return Err(Error::WrongOperation("SUB"));
        }
        // As a message rather than the command of 3.1: peers of both versions take it.
        self.write(&[&[b"\x01", prefix].concat()]).await
    }

    /// Sends one message of one or more frames. A future that is dropped half-way leaves either nothing or the
    /// whole message to be written by the next call of any method.
    ///
    /// # Errors
    /// [`Error::WrongOperation`] on a SUB, [`Error::EmptyMessage`]; otherwise the connection is over.
    pub async fn send(&mut self, frames: &[&[u8]]) -> Result<(), Error> {
        if self.socket_type != SocketType::Dealer {
            return Err(Error::WrongOperation("DEALER"));
        }
        if frames.is_empty() {
            return Err(Error::EmptyMessage);
        }
        self.write(frames).await
    }

    /// Admits messages of `bytes` at most from the next one on: what is left of a budget for several.
    pub fn lower_message_limit(&mut self, bytes: usize) {
        self.wire.reader.lower_message_limit(bytes);
    }

    /// The next message. Cancel-safe: a dropped future loses nothing.
    ///
    /// Answers PING and sends its own meanwhile, so a connection of which nobody receives looks silent to its peer.
    ///
    /// # Errors
    /// The connection is over; every further call gives the same error.
    pub async fn recv(&mut self) -> Result<Message, Error> {
        self.check()?;
        let received = self.receive().await;
        self.note(received)
    }

    async fn write(&mut self, frames: &[&[u8]]) -> Result<(), Error> {
        self.check()?;
        // What an earlier, dropped call left goes first, so that the queue holds one message at most.
        let written = match self.wire.flush(self.stall).await {
            Ok(()) => {
                self.wire.queue_message(frames);
                self.wire.flush(self.stall).await
            }
            Err(error) => Err(error),
        };
        self.note(written)
    }

    async fn receive(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.next_buffered()? {
                // Answers to PINGs that came along; a failure must not cost the message.
                self.failed = self.wire.try_drain().err();
                return Ok(message);
            }
            let Some(deadline) = self.heartbeat.as_ref().map(Heartbeat::deadline) else {
                self.wire.exchange().await?;
                continue;
            };
            match timeout_at(deadline, self.wire.exchange()).await {
                Ok(Ok(true)) => self.heard(),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => self.tick().await?,
            }
        }
    }

    /// A message from bytes that are here already. Acts on the commands before it.
    fn next_buffered(&mut self) -> Result<Option<Message>, Error> {
        while let Some(frame) = self.wire.reader.next_frame()? {
            match frame {
                Frame::Message {
                    body,
                    more,
                    wire_bytes,
                } => {
                    if let Some(message) = self.assembler.push(body, more, wire_bytes) {
                        return Ok(Some(message));
                    }
                }
                Frame::Command(body) => {
                    if let Request::Answer(answer) = interpret(&body)? {
                        self.wire.queue_command(&answer);
                    }
                }
            }
        }
        Ok(None)
    }

    async fn tick(&mut self) -> Result<(), Error> {
        let due = match &mut self.heartbeat {
            Some(heartbeat) => heartbeat.tick(Instant::now()),
            None => Due::Nothing,
        };
        match due {
            Due::Nothing => Ok(()),
            Due::Ping => {
                self.wire.queue_command(PING);
                Ok(())
            }
            Due::GiveUp(silence) => match timeout(LAST_LOOK, self.wire.fill()).await {
                Ok(filled) => {
                    filled?;
                    self.heard();
                    Ok(())
                }
                Err(_) => Err(Error::SilentPeer(silence.as_millis())),
            },
        }
    }

    fn heard(&mut self) {
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.heard(Instant::now());
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Remembers a fatal error.
    fn note<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
        }
        outcome
    }
}
