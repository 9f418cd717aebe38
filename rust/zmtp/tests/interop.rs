//! The `zeromq` crate, an implementation that shares no code with ours, as the peer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{PATIENCE, recv};
use zeromq::{Socket, SocketRecv, SocketSend, ZmqMessage};
use zmtp::{Connection, Endpoint, Limits, SocketType, Timeouts};

async fn bind(socket: &mut impl Socket) -> Endpoint {
    let bound = socket.bind("tcp://127.0.0.1:0").await.unwrap();
    Endpoint::parse(&bound.to_string()).unwrap()
}

async fn connect(endpoint: &Endpoint, socket_type: SocketType) -> Connection {
    zmtp::connect(
        endpoint,
        socket_type,
        Limits::default(),
        Timeouts::default(),
    )
    .await
    .unwrap()
}

fn message(topic: &str, size: usize) -> ZmqMessage {
    let mut message = ZmqMessage::from(topic);
    message.push_back(vec![0; 8].into());
    message.push_back(vec![1; size].into());
    message
}

/// Publishes until the subscription has arrived and one message of each size came through.
async fn receive_sizes(publisher: &mut impl SocketSend, connection: &mut Connection) {
    for size in [0, 1, 255, 256, 100_000, 3 << 20] {
        // Without a pause this peer was seen to deliver nothing for 20 s, with empty socket buffers.
        let mut pace = tokio::time::interval(Duration::from_millis(2));
        let publish = async {
            loop {
                publisher.send(message("other", 1)).await.unwrap();
                publisher.send(message("kv-events", size)).await.unwrap();
                pace.tick().await;
            }
        };
        let receive = async {
            loop {
                let message = recv(connection).await.unwrap();
                assert_eq!(message.frames()[0], "kv-events");
                assert_eq!(message.frames()[1], vec![0; 8]);
                if message.frames()[2].len() == size {
                    return message;
                }
            }
        };
        tokio::select! {
            () = publish => {}
            received = receive => assert!(received.frames()[2].iter().all(|&byte| byte == 1)),
            () = tokio::time::sleep(PATIENCE) => panic!("nothing of {size} bytes came"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pub_socket() {
    let mut publisher = zeromq::PubSocket::new();
    let endpoint = bind(&mut publisher).await;
    let mut connection = connect(&endpoint, SocketType::Sub).await;
    connection.subscribe(b"kv-").await.unwrap();
    receive_sizes(&mut publisher, &mut connection).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn xpub_socket() {
    let mut publisher = zeromq::XPubSocket::new();
    let endpoint = bind(&mut publisher).await;
    let mut connection = connect(&endpoint, SocketType::Sub).await;
    connection.subscribe(b"kv-").await.unwrap();
    let subscription = tokio::time::timeout(PATIENCE, publisher.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(subscription.get(0).unwrap(), &b"\x01kv-"[..]);
    publisher.send(message("kv-events", 10)).await.unwrap();
    let message = recv(&mut connection).await.unwrap();
    assert_eq!(message.frames()[2], vec![1; 10]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn router_socket() {
    let mut router = zeromq::RouterSocket::new();
    let endpoint = bind(&mut router).await;
    let mut connection = connect(&endpoint, SocketType::Dealer).await;
    connection
        .send(&[b"", b"replay", &7_u64.to_be_bytes()])
        .await
        .unwrap();
    let request = tokio::time::timeout(PATIENCE, router.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(request.len(), 4);
    assert_eq!(request.get(2).unwrap(), &b"replay"[..]);
    for index in 0..100_u8 {
        let mut reply = ZmqMessage::from(request.get(0).unwrap().clone());
        reply.push_back(vec![].into());
        reply.push_back(vec![index; 1000].into());
        router.send(reply).await.unwrap();
    }
    for index in 0..100_u8 {
        let reply = recv(&mut connection).await.unwrap();
        assert_eq!(reply.frames()[0], "");
        assert_eq!(reply.frames()[1], vec![index; 1000]);
    }
}

#[tokio::test]
async fn ipv6() {
    let mut publisher = zeromq::PubSocket::new();
    // A machine without IPv6 has nothing to test here.
    let Ok(bound) = publisher.bind("tcp://[::1]:0").await else {
        return;
    };
    let endpoint = Endpoint::parse(&bound.to_string()).unwrap();
    assert!(connect(&endpoint, SocketType::Sub).await.peer().is_ipv6());
}
