//! From an endpoint to a usable connection, under one deadline.
//!
//! Resolves, connects, greets and shakes hands; each step knows its phase, so that a timeout says where it happened.
//! Nothing is cached: a pod that moved is found at its new address by the next call.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::frame::{Frame, put_command_frame};
use crate::handshake::{check_ready, encode_ready};
use crate::wire::Wire;
use crate::{Connection, Endpoint, Error, Greeting, Limits, Phase, SocketType, Timeouts};

/// How long the peer may take to speak before us.
const HOLD_BACK: Duration = Duration::from_millis(100);
/// The kernel counts in whole seconds and refuses 0, and more than nine hours.
const KEEPALIVE_MIN: Duration = Duration::from_secs(1);
const KEEPALIVE_MAX: Duration = Duration::from_secs(2 * 60 * 60);
/// Between two keepalive probes, once they began.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered probes after which the kernel gives the peer up.
const KEEPALIVE_RETRIES: u32 = 3;

/// Connects to `endpoint` as a socket of `socket_type`, trying each address that its host has now.
///
/// # Errors
/// What failed, and in which phase when [`Timeouts::connect`] passed. Nothing is retried.
pub async fn connect(
    endpoint: &Endpoint,
    socket_type: SocketType,
    limits: Limits,
    timeouts: Timeouts,
) -> Result<Connection, Error> {
    let deadline = Instant::now() + timeouts.connect.min(Timeouts::LONGEST);
    let addresses = within(deadline, Phase::Resolve, resolve(endpoint)).await?;
    let (stream, address) = dial(&addresses, endpoint, deadline).await?;
    prepare(&stream, &timeouts).map_err(Error::lost)?;
    let mut wire = Wire::new(stream, limits);
    let greeting = within(deadline, Phase::Greeting, greet(&mut wire)).await?;
    let shaken = shake_hands(&mut wire, socket_type, timeouts.connect);
    within(deadline, Phase::Handshake, shaken).await?;
    Ok(Connection::new(
        wire,
        address,
        greeting,
        socket_type,
        &timeouts,
    ))
}

async fn resolve(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Error> {
    let host = endpoint.host();
    match lookup_host((host, endpoint.port())).await {
        Ok(addresses) => Ok(addresses.collect()),
        Err(error) => Err(unresolved(host, Arc::new(error))),
    }
}

/// The resolver asks nobody about an address with a zone but this machine about its interfaces.
fn unresolved(host: &str, source: Arc<io::Error>) -> Error {
    match host.split_once('%') {
        Some((_, zone)) => Error::Interface {
            zone: zone.to_owned(),
            source,
        },
        None => Error::Resolve {
            host: host.to_owned(),
            source,
        },
    }
}

/// Opens a TCP connection to the first address that takes one. Each gets an equal share of what is left of the
/// time, so that one that swallows packets does not use up its siblings' time.
async fn dial(
    addresses: &[SocketAddr],
    endpoint: &Endpoint,
    deadline: Instant,
) -> Result<(TcpStream, SocketAddr), Error> {
    let mut last_error = Error::NoAddress(endpoint.host().to_owned());
    for (tried, &address) in addresses.iter().enumerate() {
        let now = Instant::now();
        let left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let share = deadline.saturating_duration_since(now) / left;
        match timeout_at(now + share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) if is_own_echo(&stream) => last_error = Error::Refused(address),
            Ok(Ok(stream)) => return Ok((stream, address)),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                last_error = Error::Refused(address);
            }
            Ok(Err(error)) => {
                last_error = Error::Unreachable {
                    address,
                    source: Arc::new(error),
                };
            }
            Err(_) => last_error = Error::TimedOut(Phase::TcpConnect),
        }
    }
    Err(last_error)
}

/// TCP lets a socket connect to itself when nobody listens on a local port that happens to be picked as the source;
/// a DEALER would then talk to itself and keep the port from its owner.
fn is_own_echo(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(ours), Ok(theirs)) if ours == theirs)
}

fn prepare(stream: &TcpStream, timeouts: &Timeouts) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(
            timeouts
                .heartbeat_timeout
                .clamp(KEEPALIVE_MIN, KEEPALIVE_MAX),
        )
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Exchanges greetings. Ours comes in two parts: libzmq tells its mechanism in answer to our version.
async fn greet(wire: &mut Wire) -> Result<Greeting, Error> {
    let ours = Greeting::ours();
    let (version, rest) = ours.split_at(Greeting::VERSION_BYTES);
    wire.queue_raw(version);
    let mut rest = HeldBack::new(rest);
    loop {
        let received = wire.reader.raw();
        if let Some(greeting) = Greeting::parse(received)? {
            received.advance(Greeting::BYTES);
            rest.release(wire);
            return Ok(greeting);
        }
        rest.exchange(wire).await?;
    }
}

async fn shake_hands(
    wire: &mut Wire,
    socket_type: SocketType,
    stall: Duration,
) -> Result<(), Error> {
    let mut ours = BytesMut::new();
    put_command_frame(&mut ours, &encode_ready(socket_type));
    let mut ready = HeldBack::new(&ours);
    wire.reader.set_commands_only(true);
    loop {
        match wire.reader.next_frame()? {
            Some(Frame::Command(body)) => {
                check_ready(socket_type, &body)?;
                break;
            }
            // The reader lets no message pass here.
            Some(Frame::Message { .. }) => {}
            None => ready.exchange(wire).await?,
        }
    }
    wire.reader.set_commands_only(false);
    ready.release(wire);
    wire.flush(stall).await
}

/// What we say only after the peer has said its own, or has been quiet for a while.
///
/// libzmq hangs up without a word as soon as it sees a mechanism or a socket type that does not suit it. Who speaks
/// second still learns what the peer is, and can report it; who never spoke would wait for ever for a peer that does
/// the same.
struct HeldBack<'a> {
    /// Empty once it is queued.
    bytes: &'a [u8],
    due: Instant,
}

impl<'a> HeldBack<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            due: Instant::now() + HOLD_BACK,
        }
    }

    fn release(&mut self, wire: &mut Wire) {
        wire.queue_raw(std::mem::take(&mut self.bytes));
    }

    /// Waits for the peer, and speaks first when it is time.
    async fn exchange(&mut self, wire: &mut Wire) -> Result<(), Error> {
        if self.bytes.is_empty() {
            wire.exchange().await?;
        } else if let Ok(exchanged) = timeout_at(self.due, wire.exchange()).await {
            exchanged?;
        } else {
            self.release(wire);
        }
        Ok(())
    }
}

/// Runs one phase under the common deadline and says in its errors which phase it was.
async fn within<T>(
    deadline: Instant,
    phase: Phase,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match timeout_at(deadline, work).await {
        Ok(Err(Error::PeerClosed | Error::Truncated)) => Err(Error::ClosedWhileConnecting(phase)),
        Ok(outcome) => outcome,
        Err(_) => Err(Error::TimedOut(phase)),
    }
}
