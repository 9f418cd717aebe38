//! An engine made of bare sockets, that says exactly what a test tells it to.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use zmtp::{Endpoint, Greeting};

/// By then everything that a test waits for must have happened.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` gives something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(met) = condition() {
            return met;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(1));
    }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// A listening socket; mute until somebody is welcomed.
pub(crate) struct Peer {
    listener: TcpListener,
}

impl Peer {
    pub(crate) fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        let address = self.listener.local_addr().unwrap();
        Endpoint::parse(&format!("tcp://{address}")).unwrap()
    }

    /// Accepts a connection and shakes hands as ZMTP 3.0 with a socket of type `socket_type`; reads what it is told
    /// first: the subscription, or the delimiter of a request.
    pub(crate) fn welcome(&self, socket_type: &str) -> TcpStream {
        let (mut stream, _) = wait_for("connection to the peer", || match self.listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            accepted => Some(accepted.unwrap()),
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut greeting = Greeting::ours();
        greeting[11] = 0;
        let mut ready = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
        ready.push(u8::try_from(socket_type.len()).unwrap());
        ready.extend_from_slice(socket_type.as_bytes());
        stream.write_all(&greeting).unwrap();
        stream.write_all(&frame(4, &ready)).unwrap();
        stream.read_exact(&mut greeting).unwrap();
        assert!(read_frame(&mut stream).starts_with(b"\x05READY"));
        read_frame(&mut stream);
        stream
    }
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let (flags, size) = match u8::try_from(body.len()) {
        Ok(size) => (flags, vec![size]),
        Err(_) => (flags | 2, (body.len() as u64).to_be_bytes().to_vec()),
    };
    [&[flags], &size[..], body].concat()
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 2];
    stream.read_exact(&mut header).unwrap();
    let mut body = vec![0; usize::from(header[1])];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Sends one message. The other side may have hung up in the middle of it.
pub(crate) fn say(stream: &mut TcpStream, frames: &[&[u8]]) {
    let last = frames.len() - 1;
    let message: Vec<u8> = frames
        .iter()
        .enumerate()
        .flat_map(|(index, body)| frame(u8::from(index < last), body))
        .collect();
    let _ = stream.write_all(&message);
}

/// Waits until the other side has closed the connection.
pub(crate) fn wait_for_hangup(stream: &mut TcpStream) {
    let mut sink = [0; 256];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "still connected");
                return;
            }
        }
    }
}

/// A live message on topic `kv`, as its frames.
pub(crate) fn live(sequence: u64, payload: &[u8]) -> [Vec<u8>; 3] {
    [
        b"kv".to_vec(),
        sequence.to_be_bytes().to_vec(),
        payload.to_vec(),
    ]
}

pub(crate) fn publish(stream: &mut TcpStream, sequence: u64, payload: &[u8]) {
    let [topic, number, payload] = live(sequence, payload);
    say(stream, &[&topic, &number, &payload]);
}

/// A batch in which nothing happens.
pub(crate) const NOTHING: &[u8] = &[0x93, 0x00, 0x90, 0x00];

/// A batch that describes the whole state: a chain of blocks of one token, each named like its token.
pub(crate) fn full_state(names: &[u8]) -> Vec<u8> {
    let short = |kind: u8, bytes: &[u8]| -> Vec<u8> {
        let size = u8::try_from(bytes.len()).unwrap();
        [&[kind | size], bytes].concat()
    };
    let text = |text: &str| short(0xa0, text.as_bytes());
    let ints = short(0x90, names);
    [
        &[0x93, 0x00, 0x92, 0x81][..],
        &text("type"),
        &text("AllBlocksCleared"),
        &[0x84],
        &text("type"),
        &text("BlockStored"),
        &text("block_hashes"),
        &ints,
        &text("token_ids"),
        &ints,
        &text("block_size"),
        &[0x01, 0x00],
    ]
    .concat()
}
