//! When to ask a silent peer for a sign of life, and when to give it up.
//!
//! Time is an argument. Silence counts from the last byte received; after the first PING the peer has the rest of
//! the timeout to answer, even if the owner was too busy to look at the clock before.

use std::time::Duration;

use tokio::time::Instant;

use crate::Timeouts;

/// Shorter intervals would make a busy loop of the tick.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// The heartbeat of one connection.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    interval: Duration,
    /// From the first unanswered PING to giving up.
    grace: Duration,
    last_heard: Instant,
    /// The PINGs since then: when the first and when the last was sent.
    probes: Option<(Instant, Instant)>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Ping,
    /// The peer has not been heard for so long.
    GiveUp(Duration),
}

impl Heartbeat {
    pub(crate) fn new(timeouts: &Timeouts, now: Instant) -> Self {
        let interval = timeouts
            .heartbeat_interval
            .clamp(MIN_INTERVAL, Timeouts::LONGEST);
        let timeout = timeouts
            .heartbeat_timeout
            .clamp(MIN_INTERVAL, Timeouts::LONGEST);
        Self {
            interval,
            grace: timeout
                .checked_sub(interval)
                .filter(|grace| !grace.is_zero())
                .unwrap_or(timeout),
            last_heard: now,
            probes: None,
        }
    }

    /// Bytes came.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.probes = None;
    }

    /// When to call [`Heartbeat::tick`] next.
    pub(crate) fn deadline(&self) -> Instant {
        match self.probes {
            None => self.last_heard + self.interval,
            Some((first, last)) => (first + self.grace).min(last + self.interval),
        }
    }

    /// Says what is due; a PING counts as sent.
    pub(crate) fn tick(&mut self, now: Instant) -> Due {
        if now < self.deadline() {
            return Due::Nothing;
        }
        let first = match self.probes {
            Some((first, _)) if now >= first + self.grace => {
                return Due::GiveUp(now.duration_since(self.last_heard));
            }
            Some((first, _)) => first,
            None => now,
        };
        self.probes = Some((first, now));
        Due::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(interval_s: u64, silence_s: u64, now: Instant) -> Heartbeat {
        let timeouts = Timeouts {
            heartbeat_interval: Duration::from_secs(interval_s),
            heartbeat_timeout: Duration::from_secs(silence_s),
            ..Timeouts::default()
        };
        Heartbeat::new(&timeouts, now)
    }

    #[test]
    fn pings_every_interval_and_gives_up_at_the_timeout() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut heartbeat = heartbeat(5, 15, start);
        assert_eq!(heartbeat.tick(at(4)), Due::Nothing);
        assert_eq!(heartbeat.tick(at(5)), Due::Ping);
        assert_eq!(heartbeat.tick(at(5)), Due::Nothing);
        assert_eq!(heartbeat.deadline(), at(10));
        assert_eq!(heartbeat.tick(at(10)), Due::Ping);
        assert_eq!(heartbeat.tick(at(15)), Due::GiveUp(Duration::from_secs(15)));
    }

    #[test]
    fn any_byte_starts_it_over() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut heartbeat = heartbeat(5, 15, start);
        assert_eq!(heartbeat.tick(at(5)), Due::Ping);
        heartbeat.heard(at(14));
        assert_eq!(heartbeat.tick(at(18)), Due::Nothing);
        assert_eq!(heartbeat.deadline(), at(19));
    }

    #[test]
    fn a_late_owner_still_grants_the_peer_its_answer() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut heartbeat = heartbeat(5, 15, start);
        assert_eq!(heartbeat.tick(at(100)), Due::Ping);
        assert_eq!(heartbeat.tick(at(109)), Due::Ping);
        assert_eq!(
            heartbeat.tick(at(110)),
            Due::GiveUp(Duration::from_secs(110))
        );
    }

    #[test]
    fn a_timeout_within_the_interval_counts_from_the_ping() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut heartbeat = heartbeat(5, 3, start);
        assert_eq!(heartbeat.tick(at(5)), Due::Ping);
        assert_eq!(heartbeat.tick(at(7)), Due::Nothing);
        assert!(matches!(heartbeat.tick(at(8)), Due::GiveUp(_)));
    }
}
