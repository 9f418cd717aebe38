//! The NULL handshake: one READY in each direction.
//!
//! Encodes our READY and judges the peer's first command. Knows nothing of sockets.

use bytes::{BufMut, Bytes, BytesMut};

use crate::Error;
use crate::command::split_name;
use crate::error::printable;

const SOCKET_TYPE: &[u8] = b"Socket-Type";
/// How much of a peer's own words an error repeats.
const SHOWN_BYTES: usize = 128;

/// What our socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketType {
    /// Receives what a PUB or XPUB sends about the topics that were subscribed to.
    Sub,
    /// Sends to and receives from a ROUTER, REP or DEALER.
    Dealer,
}

impl SocketType {
    /// The name that READY carries.
    #[must_use]
    pub fn wire_name(self) -> &'static str {
        match self {
            Self::Sub => "SUB",
            Self::Dealer => "DEALER",
        }
    }

    fn accepts(self, peer: &[u8]) -> bool {
        match self {
            Self::Sub => matches!(peer, b"PUB" | b"XPUB"),
            Self::Dealer => matches!(peer, b"ROUTER" | b"REP" | b"DEALER"),
        }
    }
}

/// The body of our READY command.
pub(crate) fn encode_ready(socket_type: SocketType) -> Bytes {
    let mut body = BytesMut::from(&b"\x05READY"[..]);
    let value = socket_type.wire_name().as_bytes();
    // Both lengths are those of the short constants above.
    body.put_u8(u8::try_from(SOCKET_TYPE.len()).unwrap_or(u8::MAX));
    body.put_slice(SOCKET_TYPE);
    body.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
    body.put_slice(value);
    body.freeze()
}

/// Checks the first command of a peer: it must be a READY of a socket type that fits ours.
///
/// # Errors
/// The reason to give the connection up.
pub(crate) fn check_ready(socket_type: SocketType, command: &[u8]) -> Result<(), Error> {
    match split_name(command) {
        Some((b"READY", metadata)) => check_metadata(socket_type, metadata),
        Some((b"ERROR", data)) => Err(peer_error(data)),
        Some(_) => Err(Error::MalformedHandshake("a command other than READY")),
        None => Err(Error::MalformedHandshake("a command without a name")),
    }
}

/// The error that an ERROR command's data describes: a length and a reason.
pub(crate) fn peer_error(data: &[u8]) -> Error {
    let reason = match data.split_first() {
        Some((&length, rest)) => &rest[..rest.len().min(usize::from(length))],
        None => data,
    };
    if reason.is_empty() {
        return Error::Peer("no reason given".to_owned());
    }
    Error::Peer(printable(reason, SHOWN_BYTES))
}

fn check_metadata(socket_type: SocketType, mut metadata: &[u8]) -> Result<(), Error> {
    let mut peer_type = None;
    while !metadata.is_empty() {
        let ((name, value), rest) =
            split_property(metadata).ok_or(Error::MalformedHandshake("a broken property"))?;
        if name.eq_ignore_ascii_case(SOCKET_TYPE) {
            peer_type = Some(value);
        }
        metadata = rest;
    }
    let peer_type = peer_type.ok_or(Error::MalformedHandshake("no socket type"))?;
    if socket_type.accepts(peer_type) {
        return Ok(());
    }
    Err(Error::PeerType {
        ours: socket_type.wire_name(),
        theirs: printable(peer_type, SHOWN_BYTES),
    })
}

type Property<'a> = (&'a [u8], &'a [u8]);

/// Cuts one property off: a name with a length of one byte, a value with one of four.
fn split_property(metadata: &[u8]) -> Option<(Property<'_>, &[u8])> {
    let (name, rest) = split_name(metadata)?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (value, rest) = rest.split_at_checked(length)?;
    Some(((name, value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(properties: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut body = b"\x05READY".to_vec();
        for (name, value) in properties {
            body.push(u8::try_from(name.len()).unwrap());
            body.extend_from_slice(name);
            body.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
            body.extend_from_slice(value);
        }
        body
    }

    #[test]
    fn our_ready_is_what_the_grammar_says() {
        assert_eq!(
            encode_ready(SocketType::Dealer),
            &b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER"[..]
        );
    }

    #[test]
    fn socket_types_that_fit_and_that_do_not() {
        for (ours, theirs, fits) in [
            (SocketType::Sub, "PUB", true),
            (SocketType::Sub, "XPUB", true),
            (SocketType::Sub, "SUB", false),
            (SocketType::Sub, "ROUTER", false),
            (SocketType::Sub, "pub", false),
            (SocketType::Dealer, "ROUTER", true),
            (SocketType::Dealer, "REP", true),
            (SocketType::Dealer, "DEALER", true),
            (SocketType::Dealer, "PUB", false),
        ] {
            let body = ready(&[
                (b"Identity", b"\0\x01"),
                (b"socket-type", theirs.as_bytes()),
            ]);
            match check_ready(ours, &body) {
                Ok(()) => assert!(fits, "{ours:?} {theirs}"),
                Err(error) => {
                    assert!(!fits && error.to_string().ends_with(theirs), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_ready_cut_anywhere_is_refused_not_read_past() {
        let body = ready(&[(b"Socket-Type", b"PUB")]);
        check_ready(SocketType::Sub, &body).unwrap();
        for length in 0..body.len() {
            let error = check_ready(SocketType::Sub, &body[..length]).unwrap_err();
            assert!(
                matches!(error, Error::MalformedHandshake(_)),
                "{length}: {error}"
            );
        }
        let mut huge = b"\x05READY\x0bSocket-Type".to_vec();
        huge.extend_from_slice(&[0xff; 4]);
        assert!(check_ready(SocketType::Sub, &huge).is_err());
    }

    #[test]
    fn an_error_command_is_reported_printable_and_short() {
        let text = |command: &[u8]| {
            check_ready(SocketType::Sub, command)
                .unwrap_err()
                .to_string()
        };
        assert!(text(b"\x05ERROR\x06no way").ends_with(": no way"));
        assert!(text(b"\x05ERROR\xffno\x07way").ends_with(": no\\x07way"));
        assert!(text(b"\x05ERROR").ends_with("no reason given"));
        let mut long = b"\x05ERROR\xff".to_vec();
        long.extend_from_slice(&[b'x'; 255]);
        assert!(text(&long).len() < 200);
    }

    #[test]
    fn another_command_first_is_refused() {
        for command in [&b"\x04PING\0\0"[..], b"\x05HELLO", b"", b"\x09READY", b"\0"] {
            assert!(matches!(
                check_ready(SocketType::Sub, command),
                Err(Error::MalformedHandshake(_))
            ));
        }
    }
}
