//! Heartbeats in both directions, and futures that are dropped half-way.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::{PATIENCE, Peer, command, frame, read_frame, recv};
use tokio::io::AsyncWriteExt;
use zmtp::{Error, Limits, Timeouts};

fn quick() -> Timeouts {
    Timeouts {
        heartbeat_interval: Duration::from_millis(40),
        heartbeat_timeout: Duration::from_millis(400),
        ..Timeouts::default()
    }
}

#[tokio::test]
async fn a_ping_is_answered_with_its_context_while_receiving() {
    let (mut connection, mut peer) = Peer::pair(1, Limits::default(), Timeouts::default()).await;
    let receiving = tokio::spawn(async move { recv(&mut connection).await });
    for context in ["", "x", "0123456789abcdef"] {
        let ping = [b"\x04PING\x00\x10", context.as_bytes()].concat();
        peer.write_all(&command(&ping)).await.unwrap();
        let answer = [b"\x04PONG", context.as_bytes()].concat();
        assert_eq!(read_frame(&mut peer).await, (4, answer));
    }
    peer.write_all(&frame(0, b"done")).await.unwrap();
    assert_eq!(receiving.await.unwrap().unwrap().frames()[0], "done");
}

#[tokio::test]
async fn a_half_open_peer_is_pinged_and_given_up() {
    let (mut connection, mut peer) = Peer::pair(1, Limits::default(), quick()).await;
    let begun = Instant::now();
    let error = recv(&mut connection).await.unwrap_err();
    assert!(
        matches!(error, Error::SilentPeer(ms) if ms >= 400),
        "{error}"
    );
    assert!(begun.elapsed() >= Duration::from_millis(350));
    assert_eq!(read_frame(&mut peer).await, (4, b"\x04PING\0\0".to_vec()));
    assert!(recv(&mut connection).await.is_err());
}

#[tokio::test]
async fn a_peer_that_answers_is_kept() {
    let (mut connection, mut peer) = Peer::pair(1, Limits::default(), quick()).await;
    let receiving = tokio::spawn(async move { recv(&mut connection).await });
    let begun = Instant::now();
    while begun.elapsed() < 3 * quick().heartbeat_timeout {
        assert_eq!(read_frame(&mut peer).await, (4, b"\x04PING\0\0".to_vec()));
        peer.write_all(&command(b"\x04PONG")).await.unwrap();
    }
    peer.write_all(&frame(0, b"alive")).await.unwrap();
    assert_eq!(receiving.await.unwrap().unwrap().frames()[0], "alive");
}

#[tokio::test]
async fn a_silent_peer_of_3_0_is_neither_pinged_nor_given_up() {
    let (mut connection, mut peer) = Peer::pair(0, Limits::default(), quick()).await;
    let silence = 3 * quick().heartbeat_timeout;
    assert!(
        tokio::time::timeout(silence, connection.recv())
            .await
            .is_err()
    );
    let mut byte = [0];
    assert!(peer.try_read(&mut byte).is_err(), "unexpected: {byte:?}");
    peer.write_all(&frame(0, b"late")).await.unwrap();
    assert_eq!(recv(&mut connection).await.unwrap().frames()[0], "late");
}

#[tokio::test]
async fn an_owner_that_was_away_finds_what_came_meanwhile() {
    let (mut connection, mut peer) = Peer::pair(1, Limits::default(), quick()).await;
    // The first PING goes out, then the whole runtime stands still past every deadline.
    let waiting = tokio::time::timeout(Duration::from_millis(100), connection.recv());
    assert!(waiting.await.is_err());
    peer.write_all(&frame(0, b"while you were away"))
        .await
        .unwrap();
    std::thread::sleep(2 * quick().heartbeat_timeout);
    let message = recv(&mut connection).await.unwrap();
    assert_eq!(message.frames()[0], "while you were away");
}

/// Polls once and drops the future, as `select!` does with the branch that lost.
fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn recv_can_be_dropped_after_any_byte() {
    let (mut connection, mut peer) = Peer::pair(1, Limits::default(), Timeouts::default()).await;
    let stream = [
        frame(1, b"topic"),
        command(b"\x04PING\0\0ctx"),
        frame(1, b"12345678"),
        frame(0, &[7; 200]),
        frame(0, b"next"),
    ]
    .concat();
    let mut messages = Vec::new();
    for byte in stream {
        peer.write_all(&[byte]).await.unwrap();
        if let Poll::Ready(message) = poll_once(connection.recv()) {
            messages.push(message.unwrap());
        }
        // Lets the runtime see the byte, so that the dropped future has read some of the frame.
        tokio::task::yield_now().await;
    }
    assert!(!messages.is_empty(), "no dropped future had read anything");
    while messages.len() < 2 {
        messages.push(recv(&mut connection).await.unwrap());
    }
    assert_eq!(messages[0].frames().len(), 3);
    assert_eq!(messages[0].frames()[0], "topic");
    assert_eq!(messages[0].frames()[2], vec![7; 200]);
    assert_eq!(messages[1].frames()[0], "next");
    assert_eq!(read_frame(&mut peer).await, (4, b"\x04PONGctx".to_vec()));
}

#[tokio::test]
async fn a_dropped_send_is_finished_by_recv() {
    let (mut connection, mut peer) = Peer::pair(1, Limits::default(), Timeouts::default()).await;
    let large = vec![3; 16 << 20];
    assert!(poll_once(connection.send(&[&large, b"end"])).is_pending());
    let reading = tokio::spawn(async move {
        let mut received = vec![0; 9 + (16 << 20)];
        tokio::io::AsyncReadExt::read_exact(&mut peer, &mut received)
            .await
            .unwrap();
        assert_eq!(received[..9], *common::long_header(1, 16 << 20));
        assert_eq!(read_frame(&mut peer).await, (0, b"end".to_vec()));
        peer.write_all(&frame(0, b"got it")).await.unwrap();
        peer
    });
    assert_eq!(recv(&mut connection).await.unwrap().frames()[0], "got it");
    tokio::time::timeout(PATIENCE, reading)
        .await
        .unwrap()
        .unwrap();
}
