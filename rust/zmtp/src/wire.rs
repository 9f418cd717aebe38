//! One socket with what was read and not yet parsed, and what was queued and not yet written.
//!
//! Every await is on readiness alone and every read or write is non-blocking, so that any future here can be dropped
//! at any point without losing or repeating a byte.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::frame::{FrameReader, put_command_frame, put_message_frame};
use crate::{Error, Limits};

/// A peer that does not read its PONGs finds no more than this many bytes of them kept.
const MAX_QUEUED_BYTES: usize = 4 << 10;

/// The two directions of a connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    pub(crate) reader: FrameReader,
    outbox: BytesMut,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, limits: Limits) -> Self {
        Self {
            stream,
            reader: FrameReader::new(limits),
            outbox: BytesMut::new(),
        }
    }

    /// Queues bytes as they are.
    pub(crate) fn queue_raw(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// Queues a command. Drops it instead when the peer does not take what is queued already.
    pub(crate) fn queue_command(&mut self, body: &[u8]) {
        if self.outbox.len() + body.len() <= MAX_QUEUED_BYTES {
            put_command_frame(&mut self.outbox, body);
        }
    }

    /// Queues a whole message, so that no command can get between its frames.
    pub(crate) fn queue_message(&mut self, frames: &[&[u8]]) {
        for (index, frame) in frames.iter().enumerate() {
            put_message_frame(&mut self.outbox, frame, index + 1 < frames.len());
        }
    }

    /// Waits until bytes came in, went out, or both; says whether some came in.
    pub(crate) async fn exchange(&mut self) -> Result<bool, Error> {
        loop {
            // Readiness alone does not count against the task's budget: a flood must not starve its neighbours.
            tokio::task::consume_budget().await;
            let interest = if self.outbox.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let ready = self.stream.ready(interest).await.map_err(Error::lost)?;
            let read = ready.is_readable() && self.try_fill()?;
            let wrote = ready.is_writable() && self.try_drain()?;
            if read || wrote {
                return Ok(read);
            }
        }
    }

    /// Waits until bytes came in.
    pub(crate) async fn fill(&mut self) -> Result<(), Error> {
        loop {
            self.stream.readable().await.map_err(Error::lost)?;
            if self.try_fill()? {
                return Ok(());
            }
        }
    }

    /// Waits until everything queued is written; gives up when nothing could be written for `stall`.
    pub(crate) async fn flush(&mut self, stall: Duration) -> Result<(), Error> {
        while !self.try_drain_all()? {
            timeout(stall, self.stream.writable())
                .await
                .map_err(|_| Error::SilentPeer(stall.as_millis()))?
                .map_err(Error::lost)?;
        }
        Ok(())
    }

    /// Writes what the socket takes at once; says whether it took some.
    pub(crate) fn try_drain(&mut self) -> Result<bool, Error> {
        if self.outbox.is_empty() {
            return Ok(false);
        }
        match self.stream.try_write(&self.outbox) {
            Ok(0) => Err(Error::PeerClosed),
            Ok(written) => {
                self.outbox.advance(written);
                Ok(true)
            }
            Err(error) if is_transient(&error) => Ok(false),
            Err(error) => Err(Error::lost(error)),
        }
    }

    fn try_drain_all(&mut self) -> Result<bool, Error> {
        while self.try_drain()? {}
        Ok(self.outbox.is_empty())
    }

    fn try_fill(&mut self) -> Result<bool, Error> {
        match self.stream.try_read_buf(self.reader.spare()) {
            Ok(0) if self.reader.is_mid_message() => Err(Error::Truncated),
            Ok(0) => Err(Error::PeerClosed),
            Ok(_) => Ok(true),
            Err(error) if is_transient(&error) => Ok(false),
            Err(error) => Err(Error::Lost(Arc::new(error))),
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
