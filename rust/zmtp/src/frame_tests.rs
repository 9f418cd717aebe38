use super::*;

fn limits() -> Limits {
    Limits {
        max_frame_bytes: 1000,
        max_message_bytes: 2000,
        max_frames: 4,
        max_command_bytes: 64,
    }
}

fn header(flags: u8, announced: u64) -> Vec<u8> {
    let mut bytes = vec![flags | FLAG_LONG];
    bytes.extend_from_slice(&announced.to_be_bytes());
    bytes
}

/// Everything a reader says about `bytes` when fed in pieces of the given lengths.
fn read_in_pieces(
    bytes: &[u8],
    mut next_piece: impl FnMut() -> usize,
) -> (Vec<Frame>, Option<String>) {
    let mut reader = FrameReader::new(limits());
    let mut frames = Vec::new();
    let mut rest = bytes;
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) if rest.is_empty() => return (frames, None),
            Ok(None) => {
                let (piece, later) = rest.split_at(next_piece().clamp(1, rest.len()));
                reader.feed(piece);
                rest = later;
            }
            Err(error) => return (frames, Some(error.to_string())),
        }
    }
}

fn first_error(bytes: &[u8]) -> Error {
    let mut reader = FrameReader::new(limits());
    reader.feed(bytes);
    loop {
        match reader.next_frame() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("accepted"),
            Err(error) => return error,
        }
    }
}

/// Mostly valid frames, now and then one that breaks a rule.
fn random_stream(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut out = BytesMut::new();
    for _ in 0..random.usize(1..20) {
        let body = vec![random.u8(..); random.usize(0..600)];
        match random.u8(..20) {
            0 => out.extend_from_slice(&header(random.u8(..), random.u64(..3000))),
            1..4 => put_command_frame(&mut out, &body[..body.len().min(random.usize(0..70))]),
            _ => put_message_frame(&mut out, &body, random.u8(..3) == 0),
        }
    }
    out.to_vec()
}

#[test]
fn any_split_of_the_stream_reads_the_same() {
    let seed = std::env::var("ZMTP_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("ZMTP_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut clean, mut broken) = (0, 0);
    for _ in 0..300 {
        let stream = random_stream(&mut random);
        let whole = read_in_pieces(&stream, || stream.len());
        assert_eq!(read_in_pieces(&stream, || 1), whole);
        assert_eq!(read_in_pieces(&stream, || random.usize(1..40)), whole);
        match whole.1 {
            None => clean += 1,
            Some(_) => broken += 1,
        }
    }
    assert!(clean > 10 && broken > 10, "{clean} clean, {broken} broken");
}

#[test]
fn frames_at_their_limits_pass_and_one_more_byte_does_not() {
    let mut out = BytesMut::new();
    put_message_frame(&mut out, &[7; 1000], true);
    put_command_frame(&mut out, &[8; 64]);
    put_message_frame(&mut out, &[9; 1000], false);
    let (frames, error) = read_in_pieces(&out, || 100);
    assert_eq!((frames.len(), error), (3, None));
    assert!(matches!(
        first_error(&header(0, 1001)),
        Error::FrameTooLarge {
            announced: 1001,
            limit: 1000
        }
    ));
    assert!(matches!(
        first_error(&header(FLAG_COMMAND, 65)),
        Error::CommandTooLarge {
            announced: 65,
            limit: 64
        }
    ));
    assert!(matches!(
        first_error(&[FLAG_COMMAND, 65]),
        Error::CommandTooLarge { announced: 65, .. }
    ));
}

#[test]
fn the_message_total_is_checked_at_the_header_and_starts_over() {
    let mut out = BytesMut::new();
    for _ in 0..3 {
        put_message_frame(&mut out, &[0; 900], true);
        put_message_frame(&mut out, &[0; 900], false);
    }
    put_message_frame(&mut out, &[0; 1000], true);
    put_message_frame(&mut out, &[0; 900], true);
    assert_eq!(read_in_pieces(&out, || 100).1, None);
    out.extend_from_slice(&[0, 101]);
    assert!(matches!(
        first_error(&out),
        Error::MessageTooLarge {
            announced: 2001,
            limit: 2000
        }
    ));
}

#[test]
fn empty_frames_count_too() {
    let mut out = BytesMut::new();
    for more in [true, true, true, false, true, true, true, true] {
        put_message_frame(&mut out, b"", more);
    }
    assert_eq!(read_in_pieces(&out, || 1).0.len(), 8);
    put_message_frame(&mut out, b"", false);
    assert!(matches!(first_error(&out), Error::TooManyFrames(4)));
}

#[test]
fn absurd_lengths_are_refused_without_memory() {
    for announced in [1 << 60, u64::MAX, 1 << 63, 1 << 40] {
        for flags in [0, FLAG_MORE, FLAG_COMMAND] {
            let mut reader = FrameReader::new(limits());
            reader.feed(&header(flags, announced));
            let error = reader.next_frame().unwrap_err().to_string();
            assert!(error.ends_with(&format!(": {announced}")), "{error}");
            assert_eq!(reader.next_frame().unwrap_err().to_string(), error);
            assert!(reader.reserved_bytes() < 1024);
        }
    }
    // Even with limits that allow it, memory follows the bytes that came.
    let mut reader = FrameReader::new(Limits::for_messages_of(usize::MAX));
    reader.feed(&header(0, 1 << 60));
    assert_eq!(reader.next_frame().unwrap(), None);
    reader.feed(&[0; 100]);
    assert_eq!(reader.next_frame().unwrap(), None);
    assert_eq!(reader.buffered_bytes(), 100);
    assert!(reader.reserved_bytes() < 1024);
}

#[test]
fn undefined_flags_are_refused_at_once() {
    for flags in [0x08, 0x10, 0x80, 0xff] {
        assert!(matches!(first_error(&[flags]), Error::ReservedFlags(seen) if seen == flags));
    }
    assert!(matches!(first_error(&[0x05]), Error::MoreOnCommand));
    assert!(matches!(first_error(&[0x07]), Error::MoreOnCommand));
}

#[test]
fn messages_can_be_barred_until_the_handshake_is_over() {
    let mut reader = FrameReader::new(limits());
    reader.set_commands_only(true);
    reader.feed(&[FLAG_COMMAND, 1, b'x', 0, 1]);
    assert!(matches!(reader.next_frame(), Ok(Some(Frame::Command(body))) if body == "x"));
    assert!(matches!(
        reader.next_frame(),
        Err(Error::MalformedHandshake(_))
    ));
    reader.set_commands_only(false);
    reader.feed(b"y");
    assert!(matches!(reader.next_frame(), Ok(Some(Frame::Message { body, .. })) if body == "y"));
}

#[test]
fn knows_whether_it_stands_between_messages() {
    let mut reader = FrameReader::new(limits());
    assert!(!reader.is_mid_message());
    for (bytes, mid) in [
        (&[1][..], true),
        (&[1], true),
        (b"a", true),
        (&[0, 0], false),
    ] {
        reader.feed(bytes);
        while reader.next_frame().unwrap().is_some() {}
        assert_eq!(reader.is_mid_message(), mid, "{bytes:?}");
    }
}

#[test]
fn a_large_body_leaves_with_its_memory() {
    let mut reader = FrameReader::new(Limits::for_messages_of(1 << 20));
    reader.feed(&header(0, 1 << 20));
    reader.feed(&vec![1; 1 << 20]);
    reader.feed(&[0, 2, b'h']);
    assert!(reader.next_frame().unwrap().is_some());
    assert_eq!(reader.buffered_bytes(), 3);
    assert!(reader.reserved_bytes() <= READ_BYTES);
    reader.feed(b"i");
    assert!(matches!(reader.next_frame(), Ok(Some(Frame::Message { body, .. })) if body == "hi"));
}

#[test]
fn a_lowered_limit_holds_for_the_next_message() {
    let mut reader = FrameReader::new(Limits::for_messages_of(100));
    reader.feed(&header(0, 60));
    reader.feed(&[1; 60]);
    assert!(reader.next_frame().unwrap().is_some());
    reader.lower_message_limit(40);
    reader.lower_message_limit(1_000);
    reader.feed(&header(0, 41));
    let refused = reader.next_frame();
    assert!(
        matches!(
            refused,
            Err(Error::MessageTooLarge {
                announced: 41,
                limit: 40
            })
        ),
        "{refused:?}"
    );
}
