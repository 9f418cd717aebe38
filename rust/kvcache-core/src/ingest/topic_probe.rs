//! Looks once at a live endpoint whose messages do not come: which topics arrive there.
//!
//! A connection of its own that subscribes to everything. Bounded in time, messages and bytes; of
//! each message only its topic is kept.

use std::time::Duration;

use tokio::time::timeout;
use zmtp::{Connection, SocketType, Timeouts};

use super::worker::StreamSource;

/// An engine that publishes once between two calibrations is to be seen, as far as patience goes.
const MIN_MOMENT: Duration = Duration::from_secs(1);
const MAX_MOMENT: Duration = Duration::from_secs(10);
/// Enough for a person; so many are looked at in a flood of one.
const MAX_TOPICS: usize = 4;
const MAX_MESSAGES: usize = 256;
/// Longer ones are cut.
const MAX_TOPIC_BYTES: usize = 256;

/// Lists the topics that arrive at `source`'s live endpoint, or says why nobody could look.
pub(super) async fn look(source: &StreamSource) -> Result<Vec<Box<[u8]>>, String> {
    let interval = Duration::from_millis(source.limits.resync_interval_ms);
    let moment = interval.clamp(MIN_MOMENT, MAX_MOMENT);
    let timeouts = Timeouts {
        connect: moment,
        ..Timeouts::default()
    };
    let limits = source.transport_limits();
    let failed = |error: zmtp::Error| format!("{}: {error}", source.endpoint);
    let mut connection = zmtp::connect(&source.endpoint, SocketType::Sub, limits, timeouts)
        .await
        .map_err(failed)?;
    connection.subscribe(b"").await.map_err(failed)?;
    let mut topics = Vec::new();
    match timeout(moment, listen(&mut connection, source, &mut topics)).await {
        // What was seen before it broke off was seen.
        Ok(Err(error)) if topics.is_empty() => Err(failed(error)),
        _ => Ok(topics),
    }
}

async fn listen(
    connection: &mut Connection,
    source: &StreamSource,
    topics: &mut Vec<Box<[u8]>>,
) -> Result<(), zmtp::Error> {
    // The configured topic must not be taken for one that it begins.
    let kept_bytes = MAX_TOPIC_BYTES.max(source.topic.len() + 1);
    let mut bytes_left = source.max_reply_bytes();
    for _ in 0..MAX_MESSAGES {
        let message = connection.recv().await?;
        bytes_left = bytes_left.saturating_sub(message.wire_bytes());
        // What does not fit any more is refused at its header.
        connection.lower_message_limit(bytes_left);
        let Some(topic) = message.frames().first() else {
            continue;
        };
        let topic = &topic[..topic.len().min(kept_bytes)];
        if !topics.iter().any(|seen| **seen == *topic) {
            topics.push(topic.into());
        }
        if topics.len() == MAX_TOPICS || *topic == *source.topic {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
