//! Which frame of a message is what, for the subscription and for the replay endpoint.
//!
//! Invariant: [`Sequence::END`] never leaves this file as the number of a message. Payloads are handed on unread.

use super::FrameError;
use crate::model::Sequence;

/// A live message: `topic | sequence | payload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveMessage<'a> {
    /// The topic, whole; a subscription filters by prefix only.
    pub topic: &'a [u8],
    /// The message's place in its stream.
    pub sequence: Sequence,
    /// The batch, encoded.
    pub payload: &'a [u8],
}

impl<'a> LiveMessage<'a> {
    /// Takes the frames of one live message apart.
    ///
    /// # Errors
    ///
    /// When there are not exactly three frames, or the sequence is not 8 bytes or is the end marker's.
    pub fn parse<F: AsRef<[u8]>>(frames: &'a [F]) -> Result<Self, FrameError> {
        let [topic, number, payload] = frames else {
            return Err(FrameError::LiveFrames(frames.len()));
        };
        let sequence = sequence(number.as_ref())?;
        if sequence == Sequence::END {
            return Err(FrameError::LiveEnd);
        }
        Ok(Self {
            topic: topic.as_ref(),
            sequence,
            payload: payload.as_ref(),
        })
    }
}

/// One message of a replay reply, as a DEALER receives it: an empty delimiter, from newer engines the topic, then
/// sequence and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayFrame<'a> {
    /// The current state.
    Snapshot {
        /// The last live message that the state includes.
        watermark: Sequence,
        /// The batch, encoded; never empty.
        payload: &'a [u8],
    },
    /// Nothing follows.
    End,
}

impl<'a> ReplayFrame<'a> {
    /// Takes the frames of one replay message apart.
    ///
    /// # Errors
    ///
    /// When the number of frames, the delimiter or the sequence's length is wrong, when an ordinary sequence comes
    /// without a payload, or the end marker with one.
    pub fn parse<F: AsRef<[u8]>>(frames: &'a [F]) -> Result<Self, FrameError> {
        // The two layouts differ in length only: a topic may well be empty.
        let (delimiter, number, payload) = match frames {
            [delimiter, number, payload] | [delimiter, _, number, payload] => {
                (delimiter.as_ref(), number.as_ref(), payload.as_ref())
            }
            _ => return Err(FrameError::ReplayFrames(frames.len())),
        };
        if !delimiter.is_empty() {
            return Err(FrameError::Delimiter(delimiter.len()));
        }
        match (sequence(number)?, payload.len()) {
            (Sequence::END, 0) => Ok(Self::End),
            (Sequence::END, bytes) => Err(FrameError::EndPayload(bytes)),
            (watermark, 0) => Err(FrameError::EmptySnapshot(watermark)),
            (watermark, _) => Ok(Self::Snapshot { watermark, payload }),
        }
    }
}

/// The frames by which a DEALER asks for a snapshot: delimiter and start sequence.
#[must_use]
pub fn replay_request(start: Sequence) -> [Vec<u8>; 2] {
    [Vec::new(), start.0.to_be_bytes().to_vec()]
}

fn sequence(frame: &[u8]) -> Result<Sequence, FrameError> {
    let bytes = frame
        .try_into()
        .map_err(|_| FrameError::SequenceBytes(frame.len()))?;
    Ok(Sequence(u64::from_be_bytes(bytes)))
}
