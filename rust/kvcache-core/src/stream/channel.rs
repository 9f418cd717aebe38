//! Decides whether live messages arrive at all (cases: a channel that never delivers).
//!
//! Snapshots come over another connection and say nothing of it. One calibration that is ahead of
//! the live messages proves nothing: they are late, or were lost once. Two, and not one live
//! message since the first, prove that none arrives. From then on only a live message makes the
//! stream believable, as nothing else would tell when the engine's next one is missed. On a new
//! connection a quiet engine gets the benefit of the doubt, as every stream does at first.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::model::Sequence;

/// Names one look for other topics, so that a late answer is not taken for a newer one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeId(u64);

/// How late the first live message may be after the second calibration that is ahead of it.
/// Snapshots overtake live messages by the time of a retransmission at most.
const LATEST: Duration = Duration::from_secs(1);
/// So much of a topic is shown.
const SHOWN_CHARS: usize = 64;

/// The result of a look for other topics.
#[derive(Debug)]
enum Finding {
    Unknown,
    Nothing,
    /// Also the one configured.
    Own,
    Others(String),
    Failed(String),
}

/// The channel delivers nothing.
#[derive(Debug)]
struct Silence {
    /// Says for a person what proved it.
    proof: String,
    finding: Finding,
    probe: Option<ProbeId>,
    /// The latest snapshot on this connection had it.
    watermark: Option<Sequence>,
    /// The connection that was silent is gone.
    is_reconnected: bool,
}

#[derive(Debug)]
enum State {
    /// Nothing speaks against it.
    Sound,
    /// A calibration advanced the view from this sequence, and no live message has come since.
    Advanced {
        from: Sequence,
    },
    /// So did another.
    AdvancedTwice {
        from: Sequence,
        to: Sequence,
        /// If nothing has come by then, nothing will.
        due: Instant,
    },
    Silent(Silence),
}

/// Knows how one stream's live messages fare.
#[derive(Debug)]
pub(super) struct LiveChannel {
    state: State,
    next_probe: u64,
}

impl LiveChannel {
    pub(super) fn new() -> Self {
        Self {
            state: State::Sound,
            next_probe: 0,
        }
    }

    /// Takes note of a new connection: what was missed over the old one proves nothing about it.
    pub(super) fn connected(&mut self) {
        if let State::Silent(silence) = &mut self.state {
            silence.finding = Finding::Unknown;
            silence.probe = None;
            silence.watermark = None;
            silence.is_reconnected = true;
        } else {
            self.state = State::Sound;
        }
    }

    /// Takes note of a message on the stream's topic; says whether that ends a silence.
    pub(super) fn heard(&mut self) -> bool {
        let was_silent = self.is_silent();
        self.state = State::Sound;
        was_silent
    }

    /// Takes note that a calibration advanced the view.
    pub(super) fn advanced(&mut self, now: Instant, from: Sequence, to: Sequence) {
        match self.state {
            State::Sound => self.state = State::Advanced { from },
            State::Advanced { from } => {
                self.state = State::AdvancedTwice {
                    from,
                    to,
                    due: now + LATEST,
                };
            }
            State::AdvancedTwice { from, due, .. } => {
                self.state = State::AdvancedTwice { from, to, due };
            }
            State::Silent(_) => {}
        }
    }

    /// Says when the silence will be proved, if no live message comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::AdvancedTwice { due, .. } => Some(due),
            _ => None,
        }
    }

    /// Says whether the silence is proved by now.
    pub(super) fn prove(&mut self, now: Instant, topic: &[u8]) -> bool {
        let State::AdvancedTwice { from, to, due } = self.state else {
            return false;
        };
        if now < due {
            return false;
        }
        let topic = shown(topic);
        let probe = self.new_probe();
        self.state = State::Silent(Silence {
            proof: format!(
                "no live message on topic {topic} while snapshots advanced from sequence {from} to {to}"
            ),
            finding: Finding::Unknown,
            probe: Some(probe),
            watermark: Some(to),
            is_reconnected: false,
        });
        true
    }

    pub(super) fn is_silent(&self) -> bool {
        matches!(self.state, State::Silent(_))
    }

    /// Says whether a snapshot may be believed; one of a silent stream mostly may not.
    pub(super) fn may_believe(&mut self, watermark: Sequence) -> bool {
        let State::Silent(silence) = &mut self.state else {
            return true;
        };
        let before = silence.watermark.replace(watermark);
        if before == Some(watermark) {
            if silence.is_reconnected {
                self.state = State::Sound;
                return true;
            }
        } else if before.is_some()
            && silence.probe.is_none()
            && !matches!(silence.finding, Finding::Others(_))
        {
            // The engine publishes: who looks now may see what.
            let probe = self.new_probe();
            if let State::Silent(silence) = &mut self.state {
                silence.probe = Some(probe);
            }
        }
        false
    }

    /// Names the look for other topics that should be under way.
    pub(super) fn wanted_probe(&self) -> Option<ProbeId> {
        match &self.state {
            State::Silent(silence) => silence.probe,
            _ => None,
        }
    }

    /// Takes the end of the wanted probe: the topics that it saw, or why it could not look. Says
    /// whether it saw the stream's own.
    pub(super) fn probed(&mut self, topic: &[u8], seen: Result<Vec<Box<[u8]>>, String>) -> bool {
        let State::Silent(silence) = &mut self.state else {
            return false;
        };
        silence.probe = None;
        silence.finding = match seen {
            Err(reason) => Finding::Failed(reason),
            Ok(topics) if topics.is_empty() => Finding::Nothing,
            Ok(topics) if topics.iter().any(|seen| **seen == *topic) => Finding::Own,
            Ok(topics) => {
                let topics: Vec<String> = topics.iter().map(|seen| shown(seen)).collect();
                Finding::Others(topics.join(", "))
            }
        };
        matches!(silence.finding, Finding::Own)
    }

    /// Says why a silent stream is not believed; empty for any other.
    pub(super) fn error(&self) -> String {
        let State::Silent(silence) = &self.state else {
            return String::new();
        };
        let mut error = silence.proof.clone();
        // Writing to a string cannot fail.
        let _ = match &silence.finding {
            Finding::Unknown => write!(error, "; not known yet what arrives at the live endpoint"),
            Finding::Nothing => write!(
                error,
                "; nothing arrives at the live endpoint on any topic: does a proxy pass the replay port only?"
            ),
            Finding::Own => write!(
                error,
                "; a second connection to the live endpoint does receive it: connecting anew"
            ),
            Finding::Others(topics) => {
                write!(error, "; topics seen at the live endpoint: {topics}")
            }
            Finding::Failed(reason) => {
                write!(error, "; looking for other topics failed: {reason}")
            }
        };
        error
    }

    fn new_probe(&mut self) -> ProbeId {
        self.next_probe += 1;
        ProbeId(self.next_probe)
    }
}

/// Shows a topic so that a person can read it, whatever its bytes.
fn shown(topic: &[u8]) -> String {
    let text = String::from_utf8_lossy(topic);
    let short: String = text.chars().take(SHOWN_CHARS).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{more}")
}
