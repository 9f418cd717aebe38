//! Frames of live messages and of replay replies.

use crate::decode::{FrameError, LiveMessage, ReplayFrame, replay_request};
use crate::model::Sequence;

type Parsed = Result<ReplayFrame<'static>, FrameError>;

const END: [u8; 8] = [0xff; 8];
const SEVEN: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 7];

#[test]
fn live_message_has_three_frames() {
    let sequence = [0, 0, 0, 0, 0, 0, 1, 2];
    let frames: [&[u8]; 3] = [b"topic", &sequence, b"payload"];
    let message = LiveMessage::parse(&frames).expect("a message");
    assert_eq!(
        (message.topic, message.sequence, message.payload),
        (&b"topic"[..], Sequence(258), &b"payload"[..])
    );
    let extra: [&[u8]; 4] = [b"", b"", &sequence, b"payload"];
    for count in [0, 1, 2, 4] {
        let error = LiveMessage::parse(&extra[..count]).expect_err("wrong count");
        assert_eq!(
            error.to_string(),
            format!("live message must have 3 frames, got: {count}")
        );
    }
}

#[test]
fn live_sequence_has_eight_bytes_and_is_not_the_end_marker() {
    for length in [0, 1, 7, 9, 16] {
        let bytes = vec![0; length];
        let frames: [&[u8]; 3] = [b"", &bytes, b"x"];
        let error = LiveMessage::parse(&frames).expect_err("wrong length");
        assert_eq!(
            error.to_string(),
            format!("sequence must have 8 bytes, got: {length}")
        );
    }
    let frames: [&[u8]; 3] = [b"", &END, b"x"];
    assert_eq!(LiveMessage::parse(&frames), Err(FrameError::LiveEnd));
}

/// Case 11: replay framing by version.
#[test]
fn replay_replies_with_and_without_a_topic() {
    let snapshot = Ok(ReplayFrame::Snapshot {
        watermark: Sequence(7),
        payload: b"x",
    });
    let cases: [(&[&[u8]], Parsed); 17] = [
        (&[b"", &SEVEN, b"x"], snapshot.clone()),
        (&[b"", b"", &SEVEN, b"x"], snapshot.clone()),
        (&[b"", b"kv@pod", &SEVEN, b"x"], snapshot),
        (&[b"", &END, b""], Ok(ReplayFrame::End)),
        (&[b"", b"", &END, b""], Ok(ReplayFrame::End)),
        (&[b"", b"kv@pod", &END, b""], Ok(ReplayFrame::End)),
        (
            &[b"", &SEVEN, b""],
            Err(FrameError::EmptySnapshot(Sequence(7))),
        ),
        (
            &[b"", b"", &SEVEN, b""],
            Err(FrameError::EmptySnapshot(Sequence(7))),
        ),
        (&[b"", &END, b"xy"], Err(FrameError::EndPayload(2))),
        (&[b"", b"", &END, b"xy"], Err(FrameError::EndPayload(2))),
        (&[b"id", &SEVEN, b"x"], Err(FrameError::Delimiter(2))),
        (&[b"id", b"", &SEVEN, b"x"], Err(FrameError::Delimiter(2))),
        (&[b"", b"1234567", b"x"], Err(FrameError::SequenceBytes(7))),
        (&[b"", b"", b"", b"x"], Err(FrameError::SequenceBytes(0))),
        (&[&SEVEN, b"x"], Err(FrameError::ReplayFrames(2))),
        (
            &[b"", b"", b"", &SEVEN, b"x"],
            Err(FrameError::ReplayFrames(5)),
        ),
        (&[], Err(FrameError::ReplayFrames(0))),
    ];
    for (frames, expected) in cases {
        assert_eq!(ReplayFrame::parse(frames), expected, "{frames:?}");
    }
}

#[test]
fn replay_request_is_delimiter_and_start() {
    assert_eq!(
        replay_request(Sequence(3)),
        [vec![], vec![0, 0, 0, 0, 0, 0, 0, 3]]
    );
}
