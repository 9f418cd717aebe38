//! Reads JSON that a caller sent, a byte at a time, and says where it stops being JSON.

use super::digits;
use super::request::{RequestError, printable};

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl Cursor<'_> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += 1;
        byte
    }

    pub(super) fn json(&self, reason: &'static str) -> RequestError {
        RequestError::Json {
            reason,
            offset: self.at.min(self.bytes.len()),
        }
    }

    pub(super) fn json_before(&self, reason: &'static str) -> RequestError {
        RequestError::Json {
            reason,
            offset: self.at.saturating_sub(1).min(self.bytes.len()),
        }
    }

    pub(super) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), RequestError> {
        self.space();
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.json(reason))
        }
    }

    /// A field's name.
    pub(super) fn name(&mut self) -> Result<String, RequestError> {
        self.string("expected a field name")
    }

    /// A string. Escapes are decoded: JSON lets any character be written as one.
    pub(super) fn string(&mut self, wanted: &'static str) -> Result<String, RequestError> {
        self.expect(b'"', wanted)?;
        let mut name = Vec::new();
        loop {
            match self.next() {
                Some(b'"') => break,
                Some(b'\\') => self.escape(&mut name)?,
                Some(byte) if byte >= 0x20 => name.push(byte),
                _ => return Err(self.json_before("unfinished string")),
            }
        }
        String::from_utf8(name).map_err(|_| self.json("a string that is not UTF-8"))
    }

    fn escape(&mut self, into: &mut Vec<u8>) -> Result<(), RequestError> {
        let plain = match self.next() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let character = self.unicode()?;
                into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.json_before("bad escape")),
        };
        into.push(plain);
        Ok(())
    }

    /// What `\u` escapes: one character of one or two halves.
    fn unicode(&mut self) -> Result<char, RequestError> {
        let first = self.hexadecimal()?;
        let high = (0xd800..0xdc00).contains(&first);
        let code = if high && self.takes(b"\\u") {
            let low = self.hexadecimal()?.checked_sub(0xdc00);
            let low = low.filter(|low| *low < 0x400);
            low.map(|low| 0x1_0000 + ((first - 0xd800) << 10) + low)
        } else {
            Some(first)
        };
        // Half of a pair is no character; it only has to differ from one.
        let character = code.and_then(char::from_u32);
        Ok(character.unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hexadecimal(&mut self) -> Result<u32, RequestError> {
        let digits = self
            .bytes
            .get(self.at..self.at + 4)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.json("bad escape"))?;
        self.at += 4;
        Ok(code)
    }

    /// Goes behind `word` if it is next.
    pub(super) fn takes(&mut self, word: &[u8]) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let found = rest.starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    pub(super) fn token_ids(&mut self) -> Result<Vec<u32>, RequestError> {
        self.space();
        if self.peek() != Some(b'[') {
            return Err(if self.peek().is_some() {
                RequestError::NotAList
            } else {
                self.json("nothing here")
            });
        }
        self.at += 1;
        // Two bytes an entry at least; most have five or more.
        let mut ids = Vec::with_capacity((self.bytes.len() - self.at) / 4);
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(ids);
        }
        loop {
            self.space();
            ids.push(self.token_id(ids.len())?);
            match self.next() {
                Some(b',') => {}
                Some(b']') => return Ok(ids),
                Some(b' ' | b'\t' | b'\n' | b'\r') => {
                    self.space();
                    match self.next() {
                        Some(b',') => {}
                        Some(b']') => return Ok(ids),
                        _ => {
                            return Err(self.json_before("expected a comma or the end of the list"));
                        }
                    }
                }
                None => return Err(self.json_before("unfinished list")),
                Some(_) => return Err(self.not_a_token_id(ids.len() - 1)),
            }
        }
    }

    /// Digits without a leading zero. Leaves the cursor behind the last one.
    fn token_id(&mut self, index: usize) -> Result<u32, RequestError> {
        let start = self.at;
        let (value, digits) = digits::leading(self.bytes.get(start..).unwrap_or_default());
        self.at += digits;
        let mut value = u64::from(value);
        if digits == 0 || digits == digits::MOST {
            while let Some(digit @ b'0'..=b'9') = self.peek() {
                value = value * 10 + u64::from(digit - b'0');
                self.at += 1;
                if self.at - start > 10 {
                    return Err(self.not_a_token_id(index));
                }
            }
        }
        let digits = self.at - start;
        if digits == 0 {
            if self.peek().is_none() {
                return Err(self.json("unfinished list"));
            }
            return Err(self.not_a_token_id(index));
        }
        if digits > 1 && self.bytes[start] == b'0' {
            return Err(RequestError::Json {
                reason: "a number with a leading zero",
                offset: start,
            });
        }
        u32::try_from(value).map_err(|_| self.not_a_token_id(index))
    }

    /// Shows the entry around the cursor, cut short.
    fn not_a_token_id(&self, index: usize) -> RequestError {
        let ends = |byte: &u8| matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r');
        let at = self.at.min(self.bytes.len());
        let start = self.bytes[..at]
            .iter()
            .rposition(|byte| ends(byte) || *byte == b'[')
            .map_or(0, |p| p + 1);
        let rest = &self.bytes[start..];
        let end = rest
            .iter()
            .skip(1)
            .position(|byte| ends(byte) || *byte == b']')
            .map_or(rest.len(), |p| p + 1);
        RequestError::TokenId {
            index,
            value: printable(&rest[..end]),
        }
    }
}
