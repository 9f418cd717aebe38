//! Budget, order and wake-ups of the queue.

use std::time::Duration;

use super::*;
use crate::ingest::peer::PATIENCE;
use crate::stream::DoubtKind;

fn message(frames: usize, frame_bytes: usize) -> Vec<Bytes> {
    vec![vec![7; frame_bytes].into(); frames]
}

fn doubt(reason: &str) -> Doubt {
    Doubt::new(DoubtKind::Disconnect, reason)
}

fn drain(receiver: &mut Receiver) -> Vec<String> {
    let events = std::iter::from_fn(|| receiver.try_recv());
    events
        .map(|event| match event {
            Event::Up => "up".to_owned(),
            Event::Message(frames) => format!("message of {}", frames.len()),
            Event::Down(doubt) => doubt.reason,
        })
        .collect()
}

/// Heap bytes that the queue holds, before the allocator rounds them.
fn held_bytes(queue: &Queue) -> usize {
    let frames = queue.events.iter().flat_map(|event| match event {
        Event::Message(frames) => frames.iter(),
        _ => [].iter(),
    });
    let frame_bytes = frames.map(|frame| size_of::<Bytes>() + frame.len());
    frame_bytes.sum::<usize>() + queue.events.capacity() * size_of::<Event>()
}

#[test]
fn the_budget_bounds_memory_whatever_the_shape_of_messages() {
    let max_bytes = 1 << 20;
    for (frames, frame_bytes) in [(1, 0), (1, 1), (3, 16), (8, 0), (8, 1), (64, 1), (3, 4096)] {
        let (mut sender, receiver) = channel(max_bytes);
        let mut queued = 0;
        while sender.message(message(frames, frame_bytes)).is_ok() {
            queued += 1;
        }
        let held = held_bytes(&receiver.shared.lock());
        assert!(
            held <= max_bytes,
            "{queued} messages of {frames} × {frame_bytes} bytes hold {held}"
        );
        assert!(held > max_bytes / 10, "a wasted budget: {held}");
        assert!(receiver.queued_bytes() <= max_bytes);
    }
}

#[test]
fn a_queue_that_was_full_gives_its_memory_back() {
    let (mut sender, mut receiver) = channel(1 << 20);
    while sender.message(message(1, 1)).is_ok() {}
    // It stays within the budget on the way, too: few large messages in the places of many small ones.
    while receiver.queued_bytes() > 1 << 14 {
        receiver.try_recv().unwrap();
    }
    while sender.message(message(1, 1 << 14)).is_ok() {}
    assert!(held_bytes(&receiver.shared.lock()) <= 1 << 20);
    drain(&mut receiver);
    assert_eq!(receiver.queued_bytes(), 0);
    assert!(receiver.shared.lock().events.capacity() <= MIN_PLACES);
}

#[test]
fn a_queued_frame_does_not_keep_the_read_buffer() {
    let (mut sender, mut receiver) = channel(1 << 20);
    let buffer = Bytes::from(vec![7; 64 << 10]);
    sender.message(vec![buffer.slice(..3)]).unwrap();
    assert!(buffer.is_unique());
    assert!(matches!(receiver.try_recv(), Some(Event::Message(frames)) if frames[0][..] == [7; 3]));
}

#[test]
fn a_full_queue_takes_no_message_and_every_other_event() {
    let (mut sender, mut receiver) = channel(1000);
    sender.up();
    assert_eq!(sender.message(message(1, 2000)), Err(Full));
    sender.message(message(2, 10)).unwrap();
    assert_eq!(sender.message(message(1, 900)), Err(Full));
    sender.down(doubt("full"));
    assert_eq!(drain(&mut receiver), ["up", "full"]);
}

#[test]
fn down_takes_the_messages_of_its_connection_along() {
    let (mut sender, mut receiver) = channel(1 << 20);
    sender.up();
    sender.message(message(1, 100)).unwrap();
    sender.message(message(2, 100)).unwrap();
    sender.down(doubt("lost"));
    assert_eq!(receiver.queued_bytes(), 0);
    sender.up();
    sender.message(message(3, 100)).unwrap();
    assert_eq!(drain(&mut receiver), ["up", "lost", "up", "message of 3"]);
}

#[test]
fn no_connection_between_two_losses_is_forgotten() {
    let (mut sender, mut receiver) = channel(1 << 20);
    for reason in ["first", "second"] {
        sender.up();
        sender.message(message(1, 100)).unwrap();
        sender.down(doubt(reason));
    }
    sender.up();
    assert_eq!(drain(&mut receiver), ["up", "first", "up", "second", "up"]);
}

#[tokio::test]
async fn a_subscription_that_ended_ends_the_queue_at_once() {
    let (mut sender, mut receiver) = channel(1 << 20);
    sender.message(message(1, 100)).unwrap();
    drop(sender);
    assert!(receiver.recv().await.is_none());
    assert_eq!(receiver.queued_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_receiving_is_cancelled() {
    const MESSAGES: usize = 20_000;
    let (mut sender, mut receiver) = channel(1 << 30);
    let sending = tokio::spawn(async move {
        for size in 0..MESSAGES {
            sender.message(message(1, size % 64)).unwrap();
            if size % 16 == 0 {
                // The receiver shall find the queue empty now and then.
                tokio::task::yield_now().await;
            }
        }
        sender
    });
    let receiving = async {
        let mut count = 0;
        while count < MESSAGES {
            tokio::select! {
                event = receiver.recv() => {
                    assert!(
                        matches!(event, Some(Event::Message(frames)) if frames[0].len() == count % 64)
                    );
                    count += 1;
                }
                () = tokio::time::sleep(Duration::from_micros(1)) => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, receiving).await.unwrap();
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn a_backlog_does_not_keep_the_thread_to_itself() {
    let (mut sender, mut receiver) = channel(1 << 20);
    while sender.message(message(1, 1)).is_ok() {}
    let other = tokio::spawn(async {});
    while receiver.queued_bytes() > 0 && !other.is_finished() {
        receiver.recv().await;
    }
    assert!(other.is_finished(), "nobody else came to run");
}
