//! A peer made of a bare TCP socket, that says exactly what a test tells it to.

#![expect(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use zmtp::{Connection, Endpoint, Error, Greeting, Limits, SocketType, Timeouts};

/// By then everything that a test waits for must have happened.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A listening peer.
pub struct Peer {
    listener: TcpListener,
}

impl Peer {
    pub async fn listen() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn on(listener: TcpListener) -> Self {
        Self { listener }
    }

    pub fn endpoint(&self) -> Endpoint {
        let address = self.listener.local_addr().unwrap();
        Endpoint::parse(&format!("tcp://{address}")).unwrap()
    }

    pub async fn accept(&self) -> TcpStream {
        let stream = self.listener.accept().await.unwrap().0;
        // What a test writes byte by byte shall arrive byte by byte.
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Accepts one connection and shakes hands as ZMTP 3.`minor` with a socket of type `peer_type`.
    pub async fn welcome(&self, minor: u8, peer_type: &str) -> TcpStream {
        let mut stream = self.accept().await;
        let mut greeting = Greeting::ours();
        greeting[11] = minor;
        stream.write_all(&greeting).await.unwrap();
        stream.write_all(&command(&ready(peer_type))).await.unwrap();
        let mut theirs = [0; 64];
        stream.read_exact(&mut theirs).await.unwrap();
        assert_eq!(theirs, Greeting::ours());
        let (flags, body) = read_frame(&mut stream).await;
        assert_eq!(flags, 4);
        assert!(body.starts_with(b"\x05READY"));
        stream
    }

    /// A connection of ours and the bare socket at its other end.
    pub async fn pair(minor: u8, limits: Limits, timeouts: Timeouts) -> (Connection, TcpStream) {
        let peer = Self::listen().await;
        let endpoint = peer.endpoint();
        let (connection, stream) = tokio::join!(
            zmtp::connect(&endpoint, SocketType::Dealer, limits, timeouts),
            peer.welcome(minor, "ROUTER")
        );
        (connection.unwrap(), stream)
    }

    /// What our connect says to a peer that talks first, says `bytes` and then nothing.
    pub async fn connect_to_one_that_says(&self, bytes: &[u8], timeouts: Timeouts) -> Error {
        let endpoint = self.endpoint();
        let peer = async {
            let mut stream = self.accept().await;
            stream.write_all(bytes).await.unwrap();
            // Until our side hangs up, however it does.
            let mut sink = [0; 256];
            while matches!(stream.read(&mut sink).await, Ok(read) if read > 0) {}
        };
        let ours = async {
            zmtp::connect(&endpoint, SocketType::Sub, Limits::default(), timeouts)
                .await
                .unwrap_err()
        };
        let both = async { tokio::join!(ours, peer).0 };
        tokio::time::timeout(PATIENCE, both).await.unwrap()
    }
}

pub fn ready(peer_type: &str) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
    body.push(u8::try_from(peer_type.len()).unwrap());
    body.extend_from_slice(peer_type.as_bytes());
    body
}

pub fn command(body: &[u8]) -> Vec<u8> {
    frame(4, body)
}

pub fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flags, u8::try_from(body.len()).unwrap()];
    bytes.extend_from_slice(body);
    bytes
}

/// A header alone, with a length of eight bytes.
pub fn long_header(flags: u8, announced: u64) -> Vec<u8> {
    let mut bytes = vec![flags | 2];
    bytes.extend_from_slice(&announced.to_be_bytes());
    bytes
}

/// Reads one short frame.
pub async fn read_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let read = async {
        let mut header = [0; 2];
        stream.read_exact(&mut header).await.unwrap();
        let mut body = vec![0; usize::from(header[1])];
        stream.read_exact(&mut body).await.unwrap();
        (header[0], body)
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap()
}

/// `recv`, but not for ever.
pub async fn recv(connection: &mut Connection) -> Result<zmtp::Message, Error> {
    tokio::time::timeout(PATIENCE, connection.recv())
        .await
        .expect("nothing received in time")
}
