//! The 64 bytes with which both sides begin.
//!
//! Parsing is incremental and gives up at the first byte that cannot be right, saying what the peer seems to be
//! instead: most greetings that fail are a wrong port in a configuration. Knows nothing of sockets.

use crate::Error;
use crate::error::printable;

/// Where the fixed parts of a greeting end.
const SIGNATURE_BYTES: usize = 10;
const MAJOR_AT: usize = 10;
const MINOR_AT: usize = 11;
const MECHANISM_AT: usize = 12;
const MECHANISM_END: usize = 32;
/// How much of a stranger's talk is worth showing.
const SHOWN_BYTES: usize = 24;

/// What a peer said about itself before the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Major version, 3 or more.
    pub major: u8,
    /// Minor version: 1 has heartbeats, 0 has not.
    pub minor: u8,
}

impl Greeting {
    /// Length of a greeting.
    pub const BYTES: usize = 64;
    /// Length of its beginning up to the version.
    pub(crate) const VERSION_BYTES: usize = MECHANISM_AT;

    /// What we say: ZMTP 3.1, NULL, client.
    #[must_use]
    pub fn ours() -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = 0xff;
        bytes[SIGNATURE_BYTES - 1] = 0x7f;
        bytes[MAJOR_AT] = 3;
        bytes[MINOR_AT] = 1;
        bytes[MECHANISM_AT..MECHANISM_AT + 4].copy_from_slice(b"NULL");
        bytes
    }

    /// Reads a greeting from all bytes received so far; `None` until it is complete.
    ///
    /// # Errors
    /// What the peer is instead of a ZMTP 3 socket without security, from the first bytes that show it.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Error> {
        check_signature(bytes)?;
        if bytes.get(MAJOR_AT).is_some_and(|&major| major < 3) {
            return Err(Error::OldZmtp);
        }
        if let Some(field) = bytes.get(MECHANISM_AT..MECHANISM_END) {
            let name = field.split(|&byte| byte == 0).next().unwrap_or(field);
            if name != b"NULL" {
                return Err(Error::Mechanism(printable(name, name.len())));
            }
        }
        if bytes.len() < Self::BYTES {
            return Ok(None);
        }
        Ok(Some(Self {
            major: bytes[MAJOR_AT],
            minor: bytes[MINOR_AT],
        }))
    }

    /// Whether the peer answers PING.
    #[must_use]
    pub fn has_heartbeats(self) -> bool {
        (self.major, self.minor) >= (3, 1)
    }
}

fn check_signature(bytes: &[u8]) -> Result<(), Error> {
    match bytes {
        [0xff, rest @ ..] => match rest.get(SIGNATURE_BYTES - 2) {
            // ZMTP 1 may begin with a long frame: 0xff, eight bytes of length, flags of which bit 0 is clear.
            Some(last) if last & 1 == 0 => Err(Error::OldZmtp),
            Some(0x7f) | None => Ok(()),
            Some(_) => Err(not_zmtp(bytes)),
        },
        // The empty identity with which ZMTP 1 begins.
        [1, 0, ..] => Err(Error::OldZmtp),
        // A TLS record: alert or handshake, major version 3.
        [0x15 | 0x16, 3, ..] => Err(Error::Tls),
        [] | [1 | 0x15 | 0x16] => Ok(()),
        _ if bytes.starts_with(b"HTTP/") => Err(Error::Http),
        _ if b"HTTP/".starts_with(bytes) => Ok(()),
        _ => Err(not_zmtp(bytes)),
    }
}

fn not_zmtp(bytes: &[u8]) -> Error {
    Error::NotZmtp(printable(bytes, SHOWN_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds ever longer prefixes, as a slow peer would; gives the first answer and how many bytes it took.
    fn parse_slowly(bytes: &[u8]) -> (usize, Result<Option<Greeting>, Error>) {
        for taken in 0..bytes.len() {
            let parsed = Greeting::parse(&bytes[..taken]);
            if !matches!(parsed, Ok(None)) {
                return (taken, parsed);
            }
        }
        (bytes.len(), Greeting::parse(bytes))
    }

    fn greeting(major: u8, minor: u8, mechanism: &[u8]) -> [u8; 64] {
        let mut bytes = Greeting::ours();
        bytes[MAJOR_AT] = major;
        bytes[MINOR_AT] = minor;
        bytes[MECHANISM_AT..MECHANISM_END].fill(0);
        bytes[MECHANISM_AT..MECHANISM_AT + mechanism.len()].copy_from_slice(mechanism);
        bytes
    }

    #[test]
    fn our_own_is_complete_at_its_last_byte() {
        let (taken, parsed) = parse_slowly(&Greeting::ours());
        assert_eq!(taken, 64);
        assert_eq!(parsed.unwrap(), Some(Greeting { major: 3, minor: 1 }));
    }

    #[test]
    fn later_versions_are_welcome_and_only_3_0_lacks_heartbeats() {
        for (major, minor, heartbeats) in [(3, 0, false), (3, 1, true), (3, 9, true), (4, 0, true)]
        {
            let parsed = Greeting::parse(&greeting(major, minor, b"NULL"))
                .unwrap()
                .unwrap();
            assert_eq!(parsed.has_heartbeats(), heartbeats, "{major}.{minor}");
        }
    }

    #[test]
    fn says_early_what_the_peer_is_instead() {
        let (taken, parsed) = parse_slowly(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        assert!(matches!((taken, parsed), (5, Err(Error::Http))));
        let (taken, parsed) = parse_slowly(&[0x15, 3, 1, 0, 2, 2, 10]);
        assert!(matches!((taken, parsed), (2, Err(Error::Tls))));
        let (taken, parsed) = parse_slowly(&[1, 0]);
        assert!(matches!((taken, parsed), (2, Err(Error::OldZmtp))));
        let (taken, parsed) = parse_slowly(&[0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert!(matches!((taken, parsed), (10, Err(Error::OldZmtp))));
        let (taken, parsed) = parse_slowly(&greeting(1, 1, b""));
        assert!(matches!((taken, parsed), (11, Err(Error::OldZmtp))));
    }

    #[test]
    fn names_the_mechanism_that_the_peer_wants() {
        for (mechanism, shown) in [
            (&b"CURVE"[..], "CURVE"),
            (b"PLAIN", "PLAIN"),
            (b"NULLX", "NULLX"),
            (b"", ""),
            (b"\x1b[2J", "\\x1b[2J"),
            (b"AAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAA"),
        ] {
            let (taken, parsed) = parse_slowly(&greeting(3, 1, mechanism));
            assert_eq!(taken, MECHANISM_END);
            assert!(matches!(parsed, Err(Error::Mechanism(name)) if name == shown));
        }
    }

    #[test]
    fn shows_the_beginning_of_garbage_in_print() {
        let error = Greeting::parse(b"-ERR unknown command\r\nand a great deal more").unwrap_err();
        assert!(
            error.to_string().ends_with("-ERR unknown command\\r\\nan…"),
            "{error}"
        );
        let error = Greeting::parse(&[0xff, 1, 2, 3, 4, 5, 6, 7, 8, 0x7d]).unwrap_err();
        assert!(matches!(error, Error::NotZmtp(_)), "{error}");
    }
}
