//! A thousand connections leave nothing behind. Alone in its binary: it counts the process's descriptors.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Peer, frame, read_frame, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zmtp::{Limits, SocketType, Timeouts};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_thousand_reconnects_with_flat_memory_descriptors_and_tasks() {
    let peer = Peer::listen().await;
    let endpoint = peer.endpoint();
    let mut before = None;
    let mut warm = 0;
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
        if round == 100 {
            warm = resident_pages();
        }
    }
    // A leaked read buffer of 64 KiB a connection would be 14,400 pages.
    let grown = resident_pages().saturating_sub(warm);
    assert!(grown < 1024, "pages: {grown}");
    let metrics = tokio::runtime::Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 0);
}
