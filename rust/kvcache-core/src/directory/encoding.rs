//! Names what a body is when it is not JSON as UTF-8.
//!
//! Libraries read UTF-16 or a byte order mark silently, and compress on request; a caller who meets
//! a strict parser has to be told which of these he sent. Only the first bytes are looked at, and
//! only of bodies that were refused.

/// The name of the encoding or compression that a body's first bytes show; `None` for plain bytes.
#[must_use]
pub fn foreign_encoding(body: &[u8]) -> Option<&'static str> {
    let first = body.get(..4).unwrap_or(body);
    match *first {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x78, 0x01 | 0x9c | 0xda, ..] => Some("deflate"),
        // The fourth of its levels spells "x^", which may be text.
        [0x78, 0x5e, third, ..] if !(third.is_ascii_graphic() || third == b' ') => Some("deflate"),
        [0x28, 0xb5, 0x2f, 0xfd] => Some("zstd"),
        [0xef, 0xbb, 0xbf, ..] => Some("UTF-8 with a byte order mark"),
        [0xff, 0xfe, 0, 0] => Some("UTF-32, little-endian, with a byte order mark"),
        [0, 0, 0xfe, 0xff] => Some("UTF-32, big-endian, with a byte order mark"),
        [0xff, 0xfe, ..] => Some("UTF-16, little-endian, with a byte order mark"),
        [0xfe, 0xff, ..] => Some("UTF-16, big-endian, with a byte order mark"),
        // JSON begins with two ASCII characters: where their zeros are says the rest.
        [1..0x80, 0, 0, 0] => Some("UTF-32, little-endian"),
        [0, 0, 0, 1..0x80] => Some("UTF-32, big-endian"),
        [1..0x80, 0, 1..0x80, 0] => Some("UTF-16, little-endian"),
        [0, 1..0x80, 0, 1..0x80] => Some("UTF-16, big-endian"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_have_no_name() {
        for body in [
            &b"{}"[..],
            b"",
            b"x",
            b"x^2 + 1",
            b"x^ 2",
            b"{\0",
            b"\0{",
            b"\0\0\0\0",
            b"\xff",
            "\u{e9}t\u{e9}".as_bytes(),
        ] {
            assert_eq!(foreign_encoding(body), None, "{body:?}");
        }
    }

    #[test]
    fn a_longer_mark_is_not_taken_for_a_shorter_one() {
        let named = |body: &[u8]| foreign_encoding(body).unwrap_or_default().to_owned();
        assert!(named(b"\xff\xfe\0\0").starts_with("UTF-32, little-endian"));
        assert!(named(b"\xff\xfe{\0").starts_with("UTF-16, little-endian"));
        assert!(named(b"\0\0\xfe\xff").starts_with("UTF-32, big-endian"));
        assert!(named(b"\xfe\xff\0{").starts_with("UTF-16, big-endian"));
    }
}
