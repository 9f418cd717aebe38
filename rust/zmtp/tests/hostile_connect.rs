//! Peers that are not what a connection needs: each is refused with a reason, in bounded time and memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, Peer, command, long_header, read_frame, ready};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zmtp::{Endpoint, Error, Greeting, Limits, Phase, SocketType, Timeouts};

async fn refusal(bytes: &[u8]) -> Error {
    let peer = Peer::listen().await;
    peer.connect_to_one_that_says(bytes, Timeouts::default())
        .await
}

async fn refusal_after_greeting(bytes: &[u8]) -> Error {
    refusal(&[&Greeting::ours()[..], bytes].concat()).await
}

fn short_deadline() -> Timeouts {
    Timeouts {
        connect: Duration::from_millis(150),
        ..Timeouts::default()
    }
}

#[tokio::test]
async fn other_protocols_are_named() {
    let http = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    assert!(matches!(refusal(http).await, Error::Http));
    assert!(matches!(
        refusal(b"\x15\x03\x01\0\x02\x02\x0a").await,
        Error::Tls
    ));
    let ssh = refusal(b"SSH-2.0-OpenSSH_9.9\r\n").await;
    assert!(
        ssh.to_string().ends_with("SSH-2.0-OpenSSH_9.9\\r\\n"),
        "{ssh}"
    );
    assert!(matches!(refusal(&[0; 5000]).await, Error::NotZmtp(_)));
}

#[tokio::test]
async fn older_zmtp_is_named() {
    // Anonymous ZMTP 1, and ZMTP 2 as a PUB: revision 1, socket type 1, empty identity.
    assert!(matches!(refusal(&[1, 0]).await, Error::OldZmtp));
    let zmtp2 = [0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 1, 1, 0, 0];
    assert!(matches!(refusal(&zmtp2).await, Error::OldZmtp));
}

#[tokio::test]
async fn other_mechanisms_are_named() {
    for mechanism in ["CURVE", "PLAIN", "GSSAPI"] {
        let mut greeting = Greeting::ours();
        greeting[12..12 + mechanism.len()].copy_from_slice(mechanism.as_bytes());
        let error = refusal(&greeting).await;
        assert!(error.to_string().ends_with(mechanism), "{error}");
    }
}

#[tokio::test]
async fn a_handshake_may_not_announce_more_than_a_command() {
    let error = refusal_after_greeting(&long_header(4, 1 << 60)).await;
    assert!(matches!(error, Error::CommandTooLarge { announced, .. } if announced == 1 << 60));
    let error = refusal_after_greeting(&long_header(0, 1 << 60)).await;
    assert!(matches!(error, Error::MalformedHandshake(_)), "{error}");
    let error = refusal_after_greeting(&long_header(4, 513)).await;
    assert!(matches!(
        error,
        Error::CommandTooLarge {
            announced: 513,
            limit: 512
        }
    ));
}

#[tokio::test]
async fn a_handshake_that_is_refused_or_wrong() {
    let error = refusal_after_greeting(&command(b"\x05ERROR\x09go away\x07\n")).await;
    assert_eq!(error.to_string(), "peer reported an error: go away\\x07\\n");
    let error = refusal_after_greeting(&command(&ready("REP"))).await;
    assert_eq!(
        error.to_string(),
        "a SUB socket cannot talk to a peer of type: REP"
    );
    let error = refusal_after_greeting(&command(b"\x05READY")).await;
    assert!(matches!(error, Error::MalformedHandshake(_)), "{error}");
    let error = refusal_after_greeting(&command(b"\x04PING\0\0")).await;
    assert!(matches!(error, Error::MalformedHandshake(_)), "{error}");
    let error = refusal_after_greeting(b"\x08").await;
    assert!(matches!(error, Error::ReservedFlags(8)), "{error}");
}

#[tokio::test]
async fn a_mute_peer_costs_one_deadline_in_either_phase() {
    for (said, phase) in [
        (&b""[..], Phase::Greeting),
        (&Greeting::ours()[..20], Phase::Greeting),
        (&Greeting::ours()[..], Phase::Handshake),
    ] {
        let peer = Peer::listen().await;
        let begun = Instant::now();
        let error = peer.connect_to_one_that_says(said, short_deadline()).await;
        assert!(
            matches!(error, Error::TimedOut(at) if at == phase),
            "{error}"
        );
        assert!(begun.elapsed() >= Duration::from_millis(150));
    }
}

#[tokio::test]
async fn a_peer_that_drips_does_not_stretch_the_deadline() {
    let peer = Peer::listen().await;
    let endpoint = peer.endpoint();
    let drip = async {
        let mut stream = peer.accept().await;
        for byte in Greeting::ours() {
            if stream.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::future::pending::<()>().await;
    };
    let connect = zmtp::connect(
        &endpoint,
        SocketType::Sub,
        Limits::default(),
        short_deadline(),
    );
    tokio::select! {
        outcome = connect => {
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::TimedOut(Phase::Greeting)), "{error}");
        }
        () = drip => {}
        () = tokio::time::sleep(PATIENCE) => panic!("the deadline did not hold"),
    }
}

#[tokio::test]
async fn a_peer_that_hangs_up_says_in_which_phase() {
    for (said, phase) in [
        (0, Phase::Greeting),
        (30, Phase::Greeting),
        (64, Phase::Handshake),
    ] {
        let peer = Peer::listen().await;
        let endpoint = peer.endpoint();
        let hang_up = async {
            let mut stream = peer.accept().await;
            // Taking what our side sent first makes the end a FIN, not a reset.
            let mut ours = [0; 64];
            stream.read_exact(&mut ours).await.unwrap();
            stream.write_all(&Greeting::ours()[..said]).await.unwrap();
            stream.shutdown().await.unwrap();
            stream
        };
        let connect = zmtp::connect(
            &endpoint,
            SocketType::Sub,
            Limits::default(),
            Timeouts::default(),
        );
        let (outcome, _stream) = tokio::join!(connect, hang_up);
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, Error::ClosedWhileConnecting(at) if at == phase),
            "{said}: {error}"
        );
    }
}

#[tokio::test]
async fn a_peer_may_want_to_see_our_whole_greeting_first() {
    let peer = Peer::listen().await;
    let endpoint = peer.endpoint();
    let reticent = async {
        let mut stream = peer.accept().await;
        let mut ours = [0; 64];
        stream.read_exact(&mut ours).await.unwrap();
        assert_eq!(ours, Greeting::ours());
        stream.write_all(&ours).await.unwrap();
        let (_, body) = read_frame(&mut stream).await;
        assert_eq!(body, ready("SUB"));
        stream.write_all(&command(&ready("PUB"))).await.unwrap();
        stream
    };
    let connect = zmtp::connect(
        &endpoint,
        SocketType::Sub,
        Limits::default(),
        Timeouts::default(),
    );
    let (connection, _stream) = tokio::join!(connect, reticent);
    assert_eq!(
        connection.unwrap().peer_greeting(),
        Greeting { major: 3, minor: 1 }
    );
}

#[tokio::test]
async fn nobody_there_and_no_such_name() {
    let peer = Peer::listen().await;
    let endpoint = peer.endpoint();
    drop(peer);
    let error = zmtp::connect(
        &endpoint,
        SocketType::Sub,
        Limits::default(),
        Timeouts::default(),
    )
    .await
    .unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    // The name is reserved never to exist; without any name service the deadline ends the wait.
    let endpoint = Endpoint::parse("tcp://nobody.invalid:5557").unwrap();
    let error = zmtp::connect(
        &endpoint,
        SocketType::Sub,
        Limits::default(),
        Timeouts::default(),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Resolve { .. } | Error::TimedOut(Phase::Resolve)
        ),
        "{error}"
    );
}

#[tokio::test]
async fn every_address_of_a_name_is_tried() {
    // `localhost` may have ::1 first, where nobody listens.
    let peer = Peer::listen().await;
    let endpoint = Endpoint::parse(&format!("tcp://localhost:{}", peer.endpoint().port())).unwrap();
    let connect = zmtp::connect(
        &endpoint,
        SocketType::Sub,
        Limits::default(),
        Timeouts::default(),
    );
    let (connection, _stream) = tokio::join!(connect, peer.welcome(1, "PUB"));
    assert_eq!(connection.unwrap().peer().port(), endpoint.port());
}
