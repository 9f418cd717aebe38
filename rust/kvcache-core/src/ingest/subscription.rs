//! The task that owns one stream's subscription: connect, subscribe, UP, receive, DOWN, wait, again. For ever.

use std::time::Duration;

use zmtp::{Backoff, SocketType, Timeouts};

use super::queue::{Full, Sender};
use super::worker::StreamSource;
use crate::stream::{Doubt, DoubtKind};

/// Connecting, greeting and handshake together. Longer than any network's round trip, shorter than patience.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Runs until its task is aborted; the connection goes with it.
pub(super) async fn run(source: &StreamSource, events: &mut Sender) {
    let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MAX, source.seed);
    loop {
        let doubt = connection(source, events, &mut backoff).await;
        events.down(doubt);
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// One connection, from its first byte to the reason of its end.
async fn connection(source: &StreamSource, events: &mut Sender, backoff: &mut Backoff) -> Doubt {
    let endpoint = &source.endpoint;
    let lost = |error: zmtp::Error| {
        let kind = if error.is_size_limit() {
            DoubtKind::MessageSize
        } else {
            DoubtKind::Disconnect
        };
        Doubt::new(kind, format!("{endpoint}: {error}"))
    };
    let timeouts = Timeouts {
        connect: CONNECT_TIMEOUT,
        ..Timeouts::default()
    };
    let connected = zmtp::connect(
        endpoint,
        SocketType::Sub,
        source.transport_limits(),
        timeouts,
    )
    .await;
    let mut connection = match connected {
        Ok(connection) => connection,
        Err(error) => return lost(error),
    };
    if let Err(error) = connection.subscribe(&source.topic).await {
        return lost(error);
    }
    events.up();
    loop {
        let received = tokio::select! {
            received = connection.recv() => received,
            () = events.hung_up() => {
                let reason = format!("{endpoint}: given up, as it did not receive what another connection did");
                return Doubt::new(DoubtKind::Disconnect, reason);
            }
        };
        match received {
            Ok(message) => {
                backoff.reset();
                if let Err(Full) = events.message(message.into_frames()) {
                    let reason =
                        format!("{endpoint}: messages arrive faster than they can be applied");
                    return Doubt::new(DoubtKind::BufferLimit, reason);
                }
            }
            Err(error) => return lost(error),
        }
    }
}
