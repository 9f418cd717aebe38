//! A thousand connections leave nothing behind. Alone in its binary: it counts the process's descriptors.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Peer, frame, read_frame, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zmtp::{Limits, SocketType, Timeouts};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_thousand_reconnects_with_flat_descriptors_and_tasks() {
    let peer = Peer::listen().await;
    let endpoint = peer.endpoint();
    let mut before = None;
    for round in 0..1000 {
        let connect = zmtp::connect(
            &endpoint,
            SocketType::Sub,
            Limits::default(),
            Timeouts::default(),
        );
        let (connection, mut stream) = tokio::join!(connect, peer.welcome(1, "XPUB"));
        let mut connection = connection.unwrap();
        connection.subscribe(b"").await.unwrap();
        assert_eq!(read_frame(&mut stream).await, (0, vec![1]));
        stream.write_all(&frame(0, b"hello")).await.unwrap();
        assert_eq!(recv(&mut connection).await.unwrap().frames()[0], "hello");
        drop(connection);
        // Our end is closed by the drop itself, which the peer sees.
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        drop(stream);
        let open = open_descriptors();
        assert_eq!(*before.get_or_insert(open), open, "round {round}");
    }
    let metrics = tokio::runtime::Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 0);
}
