//! One attempt to fetch a snapshot: a fresh DEALER connection with one deadline for everything.

use std::time::Duration;

use tokio::time::timeout;
use zmtp::{SocketType, Timeouts};

use super::worker::StreamSource;
use crate::decode::{ReplayFrame, replay_request};
use crate::model::Sequence;
use crate::stream::{ReplayFailure, Snapshot};

/// Asks `source`'s replay endpoint for the current full snapshot.
pub(super) async fn fetch(source: &StreamSource) -> Result<Snapshot, ReplayFailure> {
    let deadline = Duration::from_millis(source.limits.replay_timeout_ms);
    timeout(deadline, exchange(source, deadline))
        .await
        .unwrap_or_else(|_| {
            let reason = format!(
                "no complete snapshot from {} within replay_timeout_ms: {}",
                source.replay_endpoint, source.limits.replay_timeout_ms
            );
            Err(ReplayFailure::Timeout(reason))
        })
}

async fn exchange(source: &StreamSource, deadline: Duration) -> Result<Snapshot, ReplayFailure> {
    let endpoint = &source.replay_endpoint;
    let timeouts = Timeouts {
        connect: deadline,
        ..Timeouts::default()
    };
    let failed = |error: zmtp::Error| failure(source, &error);
    let mut connection = zmtp::connect(
        endpoint,
        SocketType::Dealer,
        source.transport_limits(),
        timeouts,
    )
    .await
    .map_err(failed)?;
    let [delimiter, start] = replay_request(Sequence(0));
    connection
        .send(&[&delimiter, &start])
        .await
        .map_err(failed)?;
    let mut snapshot = None;
    let mut bytes_left = source.max_reply_bytes();
    loop {
        let message = connection.recv().await.map_err(failed)?;
        bytes_left = bytes_left.saturating_sub(message.wire_bytes());
        // What does not fit any more is refused at its header.
        connection.lower_message_limit(bytes_left);
        let frame = ReplayFrame::parse(message.frames()).map_err(|error| {
            ReplayFailure::Other(format!("snapshot reply from {endpoint}: {error}"))
        })?;
        match (frame, &snapshot) {
            (ReplayFrame::Snapshot { watermark, .. }, None) => {
                // The payload is the last frame. It is kept until it is merged, and not copied: it may be large.
                let payload = message.frames().last().cloned().unwrap_or_default();
                snapshot = Some(Snapshot { watermark, payload });
            }
            (ReplayFrame::Snapshot { .. }, Some(_)) => {
                return Err(ReplayFailure::Other(format!(
                    "more than one snapshot in a reply from {endpoint}"
                )));
            }
            (ReplayFrame::End, _) => break,
        }
    }
    snapshot
        .ok_or_else(|| ReplayFailure::Other(format!("a reply without a snapshot from {endpoint}")))
}

fn failure(source: &StreamSource, error: &zmtp::Error) -> ReplayFailure {
    let reason = format!("snapshot from {}: {error}", source.replay_endpoint);
    if error.is_size_limit() {
        let limit = source.limits.max_message_bytes;
        ReplayFailure::TooLarge(format!(
            "{reason}; max_message_bytes for a whole reply: {limit}"
        ))
    } else {
        ReplayFailure::Other(reason)
    }
}

#[cfg(test)]
mod tests;
