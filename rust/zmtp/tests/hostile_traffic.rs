//! Peers that misbehave after a proper handshake.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{PATIENCE, Peer, command, frame, long_header, read_frame, recv};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use zmtp::{Connection, Error, Limits, Timeouts};

async fn pair() -> (Connection, TcpStream) {
    Peer::pair(1, Limits::default(), Timeouts::default()).await
}

/// The error that ends the connection; it must come again at once, however often one asks.
async fn end_of(connection: &mut Connection) -> Error {
    let error = recv(connection).await.unwrap_err();
    for _ in 0..3 {
        let again = recv(connection).await.unwrap_err();
        assert_eq!(again.to_string(), error.to_string());
        let sent = connection.send(&[b"x"]).await.unwrap_err();
        assert_eq!(sent.to_string(), error.to_string());
    }
    error
}

#[tokio::test]
async fn a_frame_of_2_to_the_60_bytes_is_refused_at_its_header() {
    for flags in [0, 1, 4] {
        let (mut connection, mut peer) = pair().await;
        peer.write_all(&frame(0, b"good")).await.unwrap();
        peer.write_all(&long_header(flags, 1 << 60)).await.unwrap();
        assert_eq!(recv(&mut connection).await.unwrap().frames()[0], "good");
        let error = end_of(&mut connection).await;
        assert!(
            error.to_string().ends_with(": 1152921504606846976"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn endless_more_ends_at_the_frame_count_and_at_the_total() {
    let limits = Limits::for_messages_of(1000);
    for (body, by_count) in [(&[0_u8; 0][..], true), (&[0; 200], false)] {
        let (mut connection, mut peer) = Peer::pair(1, limits, Timeouts::default()).await;
        let flood =
            tokio::spawn(async move { while peer.write_all(&frame(1, body)).await.is_ok() {} });
        match end_of(&mut connection).await {
            Error::TooManyFrames(64) => assert!(by_count),
            Error::MessageTooLarge {
                announced: 1200,
                limit: 1000,
            } => assert!(!by_count),
            error => panic!("{error}"),
        }
        drop(connection);
        tokio::time::timeout(PATIENCE, flood)
            .await
            .unwrap()
            .unwrap();
    }
}

#[tokio::test]
async fn a_peer_that_closes_is_told_from_one_that_breaks_off() {
    for (said, whole) in [
        (Vec::new(), true),
        (frame(0, b"last words"), true),
        (frame(0, b"last words")[..5].to_vec(), false),
        (frame(1, b"to be continued"), false),
        (vec![0], false),
        (long_header(0, 1000), false),
    ] {
        let (mut connection, mut peer) = pair().await;
        peer.write_all(&said).await.unwrap();
        drop(peer);
        if said.len() > 9 && whole {
            assert_eq!(
                recv(&mut connection).await.unwrap().frames()[0],
                "last words"
            );
        }
        match end_of(&mut connection).await {
            Error::PeerClosed => assert!(whole, "{said:?}"),
            Error::Truncated => assert!(!whole, "{said:?}"),
            error => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn unknown_commands_are_skipped_even_inside_a_message() {
    let (mut connection, mut peer) = pair().await;
    for part in [
        command(b"\x09SUBSCRIBEtopic"),
        frame(1, b"a"),
        command(b"\x04WHAT"),
        command(b"\x04PONG"),
        frame(0, b"b"),
    ] {
        peer.write_all(&part).await.unwrap();
    }
    let message = recv(&mut connection).await.unwrap();
    assert_eq!(message.frames(), ["a", "b"]);
    assert_eq!(message.wire_bytes(), 6);
    peer.write_all(&command(b"\x05ERROR\x04oops"))
        .await
        .unwrap();
    assert_eq!(
        end_of(&mut connection).await.to_string(),
        "peer reported an error: oops"
    );
}

#[tokio::test]
async fn malformed_traffic_ends_the_connection() {
    for bytes in [
        vec![0x10],
        vec![0x05],
        command(b""),
        command(b"\x04PING"),
        command(b"\x20short"),
    ] {
        let (mut connection, mut peer) = pair().await;
        peer.write_all(&bytes).await.unwrap();
        end_of(&mut connection).await;
    }
}

#[tokio::test]
async fn a_flood_of_pings_that_nobody_reads_answers_to_does_not_block_messages() {
    let (mut connection, mut peer) = pair().await;
    let flood = tokio::spawn(async move {
        let pings = command(b"\x04PING\0\x000123456789abcdef").repeat(1000);
        // Far more answers than both socket buffers and our queue hold.
        for _ in 0..1000 {
            peer.write_all(&pings).await.unwrap();
        }
        peer.write_all(&frame(0, b"still here")).await.unwrap();
        peer
    });
    let message = recv(&mut connection).await.unwrap();
    assert_eq!(message.frames()[0], "still here");
    let mut peer = flood.await.unwrap();
    let (flags, pong) = read_frame(&mut peer).await;
    assert_eq!((flags, &pong[..]), (4, &b"\x04PONG0123456789abcdef"[..]));
}

#[tokio::test]
async fn a_peer_that_never_reads_stalls_a_send_only_so_long() {
    let timeouts = Timeouts {
        heartbeat_timeout: Duration::from_millis(200),
        ..Timeouts::default()
    };
    let (mut connection, _peer) = Peer::pair(0, Limits::default(), timeouts).await;
    let large = vec![0; 64 << 20];
    let sent = tokio::time::timeout(PATIENCE, connection.send(&[&large]))
        .await
        .unwrap();
    assert!(matches!(sent.unwrap_err(), Error::SilentPeer(200)));
}

#[tokio::test]
async fn what_does_not_fit_the_socket_type_is_refused_and_harmless() {
    let (mut connection, mut peer) = pair().await;
    assert!(matches!(
        connection.subscribe(b"").await,
        Err(Error::WrongOperation("SUB"))
    ));
    assert!(matches!(
        connection.send(&[]).await,
        Err(Error::EmptyMessage)
    ));
    connection.send(&[b"", b"ok"]).await.unwrap();
    assert_eq!(read_frame(&mut peer).await, (1, Vec::new()));
    assert_eq!(read_frame(&mut peer).await, (0, b"ok".to_vec()));
}
