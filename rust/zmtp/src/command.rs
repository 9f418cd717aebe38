//! Commands after the handshake: PING, PONG, ERROR, and others that are skipped.
//!
//! Pure functions from bytes to meaning and back. The frame reader has bounded the size already.

use crate::Error;
use crate::handshake::peer_error;

/// The longest context of a PING; ours is empty, a longer one of the peer's is cut, as libzmq does.
const MAX_CONTEXT_BYTES: usize = 16;

/// A PING that asks for an answer and sets no time to live: when we are slow to read, the peer shall not hang up.
pub(crate) const PING: &[u8] = b"\x04PING\0\0";

/// What a command asks of us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Send this command body back.
    Answer(Vec<u8>),
    /// Nothing.
    Ignore,
}

/// Reads a command.
///
/// # Errors
/// A command that ends the connection: ERROR, or one that breaks the grammar.
pub(crate) fn interpret(command: &[u8]) -> Result<Request, Error> {
    match split_name(command) {
        Some((b"PING", data)) => {
            let (_time_to_live, context) = data
                .split_first_chunk::<2>()
                .ok_or(Error::MalformedCommand("a PING without a time to live"))?;
            let context = &context[..context.len().min(MAX_CONTEXT_BYTES)];
            Ok(Request::Answer([b"\x04PONG", context].concat()))
        }
        Some((b"ERROR", data)) => Err(peer_error(data)),
        Some(_) => Ok(Request::Ignore),
        None => Err(Error::MalformedCommand("no name")),
    }
}

/// Cuts a name off that is preceded by its length in one byte; `None` if it is empty or incomplete.
pub(crate) fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(length))
        .filter(|(name, _)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_answered_with_its_context() {
        for (ping, pong) in [
            (&b"\x04PING\0\0"[..], &b"\x04PONG"[..]),
            (b"\x04PING\x01\x02abc", b"\x04PONGabc"),
            (
                b"\x04PING\0\x000123456789abcdef",
                b"\x04PONG0123456789abcdef",
            ),
            (
                b"\x04PING\0\x000123456789abcdefXYZ",
                b"\x04PONG0123456789abcdef",
            ),
        ] {
            assert_eq!(interpret(ping).unwrap(), Request::Answer(pong.to_vec()));
        }
    }

    #[test]
    fn strangers_are_ignored_and_broken_ones_are_not() {
        assert_eq!(interpret(b"\x04PONGx").unwrap(), Request::Ignore);
        assert_eq!(interpret(b"\x09SUBSCRIBEa").unwrap(), Request::Ignore);
        assert_eq!(interpret(b"\x01?").unwrap(), Request::Ignore);
        for broken in [&b""[..], b"\0", b"\x05PING", b"\x04PING", b"\x04PING\0"] {
            assert!(matches!(interpret(broken), Err(Error::MalformedCommand(_))));
        }
        assert!(
            matches!(interpret(b"\x05ERROR\x02no"), Err(Error::Peer(reason)) if reason == "no")
        );
    }
}
