//! A query's HTTP body, parsed strictly and straight to token ids.
//!
//! Invariant: what is accepted is one JSON object with exactly the known fields, each once, and every id an integer in
//! 0 … 2^32−1. Nothing is rounded, clamped or guessed. Allocates what the bytes present justify.

use super::digits;

/// `{"token_ids": […]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRequest {
    /// The prompt.
    pub token_ids: Vec<u32>,
}

/// Why a body is not a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not JSON.
    #[error("the body is not valid JSON: {reason} at byte {offset}")]
    Json {
        /// What is wrong.
        reason: &'static str,
        /// Where.
        offset: usize,
    },
    /// JSON, but not an object.
    #[error("the body must be a JSON object with the field token_ids")]
    NotAnObject,
    /// The field is missing.
    #[error("the field token_ids is missing")]
    MissingField,
    /// A field that means nothing here.
    #[error("unknown field: {0}")]
    UnknownField(String),
    /// A field given twice.
    #[error("the field token_ids is given twice")]
    DuplicateField,
    /// `token_ids` is not a list.
    #[error("token_ids must be a list of integers")]
    NotAList,
    /// An entry is not a token id.
    #[error("token_ids[{index}] is not an integer in 0..=4294967295: {value}")]
    TokenId {
        /// Which entry.
        index: usize,
        /// The beginning of what stood there.
        value: String,
    },
}

impl RequestError {
    /// Stable `snake_case`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Json { .. } => "invalid_json",
            Self::NotAnObject => "not_an_object",
            Self::MissingField => "missing_field",
            Self::UnknownField(_) => "unknown_field",
            Self::DuplicateField => "duplicate_field",
            Self::NotAList | Self::TokenId { .. } => "invalid_token_ids",
        }
    }
}

impl QueryRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        let mut cursor = Cursor { bytes: body, at: 0 };
        cursor.space();
        match cursor.peek() {
            Some(b'{') => cursor.at += 1,
            Some(_) => return Err(RequestError::NotAnObject),
            None => return Err(cursor.json("nothing here")),
        }
        let mut token_ids = None;
        cursor.space();
        if cursor.peek() == Some(b'}') {
            cursor.at += 1;
        } else {
            loop {
                let name = cursor.name()?;
                if name != "token_ids" {
                    return Err(RequestError::UnknownField(printable(name.as_bytes())));
                }
                if token_ids.is_some() {
                    return Err(RequestError::DuplicateField);
                }
                cursor.expect(b':', "expected a colon")?;
                token_ids = Some(cursor.token_ids()?);
                cursor.space();
                match cursor.next() {
                    Some(b',') => {}
                    Some(b'}') => break,
                    _ => {
                        return Err(cursor.json_before("expected a comma or the end of the object"));
                    }
                }
            }
        }
        cursor.space();
        if cursor.peek().is_some() {
            return Err(cursor.json("something follows the object"));
        }
        token_ids
            .map(|token_ids| Self { token_ids })
            .ok_or(RequestError::MissingField)
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += 1;
        byte
    }

    fn json(&self, reason: &'static str) -> RequestError {
        RequestError::Json {
            reason,
            offset: self.at.min(self.bytes.len()),
        }
    }

    fn json_before(&self, reason: &'static str) -> RequestError {
        RequestError::Json {
            reason,
            offset: self.at.saturating_sub(1).min(self.bytes.len()),
        }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), RequestError> {
        self.space();
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.json(reason))
        }
    }

    /// A field's name. Escapes are decoded: JSON lets any character be written as one.
    fn name(&mut self) -> Result<String, RequestError> {
        self.expect(b'"', "expected a field name")?;
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
                let digits = self
                    .bytes
                    .get(self.at..self.at + 4)
                    .and_then(|d| std::str::from_utf8(d).ok());
                let code = digits
                    .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                    .ok_or_else(|| self.json("bad escape"))?;
                self.at += 4;
                // No known name needs more; half a surrogate pair only has to differ from one.
                let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.json_before("bad escape")),
        };
        into.push(plain);
        Ok(())
    }

    fn token_ids(&mut self) -> Result<Vec<u32>, RequestError> {
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

/// At most 40 characters of what a caller sent, fit for an error message.
fn printable(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(40).collect();
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<Vec<u32>, RequestError> {
        QueryRequest::parse(body.as_bytes()).map(|request| request.token_ids)
    }

    fn code(body: &str) -> &'static str {
        parse(body).expect_err(body).code()
    }

    #[test]
    fn accepts_any_spelling_of_the_one_object() {
        assert_eq!(parse(r#"{"token_ids":[]}"#), Ok(vec![]));
        assert_eq!(
            parse(r#"{"token_ids":[0,1,4294967295]}"#),
            Ok(vec![0, 1, u32::MAX])
        );
        assert_eq!(
            parse(" {\n\"token_ids\" :\t[ 1 , 2\r\n] } "),
            Ok(vec![1, 2])
        );
        assert_eq!(parse(r#"{"token\u005fids":[7]}"#), Ok(vec![7]));
    }

    #[test]
    fn names_the_bad_entry() {
        for (body, index, value) in [
            (r#"{"token_ids":[4294967297,2]}"#, 0, "4294967297"),
            (r#"{"token_ids":[1,4294967296]}"#, 1, "4294967296"),
            (r#"{"token_ids":[1,-1]}"#, 1, "-1"),
            (r#"{"token_ids":[1.0,2]}"#, 0, "1.0"),
            (r#"{"token_ids":[1,2,1.5]}"#, 2, "1.5"),
            (r#"{"token_ids":["1"]}"#, 0, "\"1\""),
            (r#"{"token_ids":[true]}"#, 0, "true"),
            (r#"{"token_ids":[null]}"#, 0, "null"),
            (r#"{"token_ids":[1e3]}"#, 0, "1e3"),
            (
                r#"{"token_ids":[99999999999999999999999]}"#,
                0,
                "99999999999999999999999",
            ),
        ] {
            let expected = RequestError::TokenId {
                index,
                value: value.to_owned(),
            };
            assert_eq!(parse(body), Err(expected), "{body}");
        }
        assert_eq!(code(r#"{"token_ids":[[1,2]]}"#), "invalid_token_ids");
        assert_eq!(code(r#"{"token_ids":[{}]}"#), "invalid_token_ids");
    }

    #[test]
    fn tells_kinds_of_faults_apart() {
        for (body, expected) in [
            ("", "invalid_json"),
            ("  ", "invalid_json"),
            ("{", "invalid_json"),
            (r#"{"token_ids":[1,2"#, "invalid_json"),
            (r#"{"token_ids":[1,"#, "invalid_json"),
            (r#"{"token_ids":[1]"#, "invalid_json"),
            (r#"{"token_ids":[1]}x"#, "invalid_json"),
            (r#"{"token_ids":[1]}{}"#, "invalid_json"),
            (r#"{"token_ids":[1],}"#, "invalid_json"),
            (r#"{"token_ids" [1]}"#, "invalid_json"),
            (r#"{"token_ids":[01]}"#, "invalid_json"),
            ("{'token_ids':[1]}", "invalid_json"),
            ("[1,2]", "not_an_object"),
            ("null", "not_an_object"),
            ("1", "not_an_object"),
            ("{}", "missing_field"),
            (r#"{"token_ids":null}"#, "invalid_token_ids"),
            (r#"{"token_ids":{}}"#, "invalid_token_ids"),
            (r#"{"token_ids":"1"}"#, "invalid_token_ids"),
            (r#"{"tokens":[1]}"#, "unknown_field"),
            (r#"{"token_ids":[1],"x":1}"#, "unknown_field"),
            (r#"{"token_ids":[1],"token_ids":[2]}"#, "duplicate_field"),
        ] {
            assert_eq!(code(body), expected, "{body}");
        }
        // A trailing comma in the list is an entry that is no token id.
        assert_eq!(code(r#"{"token_ids":[1,]}"#), "invalid_token_ids");
    }

    /// Ids of every length, wherever they end before the end of the body.
    #[test]
    fn reads_ids_of_any_length_anywhere() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let ids: Vec<u32> = (0..rng.usize(1..12))
                .map(|_| rng.u32(..) >> rng.u32(..32))
                .collect();
            let gap = [",", ", ", " ,\n"][rng.usize(..3)];
            let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let end = &" }     "[usize::from(rng.bool())..rng.usize(2..7)];
            let body = format!("{{\"token_ids\":[{}]{end}", texts.join(gap));
            assert_eq!(parse(&body), Ok(ids), "{body}");
        }
        for (body, expected) in [
            (r#"{"token_ids":[00]}      "#, "invalid_json"),
            (r#"{"token_ids":[0123]}      "#, "invalid_json"),
            (r#"{"token_ids":[0000000000]}      "#, "invalid_json"),
            (r#"{"token_ids":[00000000000]}      "#, "invalid_token_ids"),
            (r#"{"token_ids":[12345678.5]}      "#, "invalid_token_ids"),
            (r#"{"token_ids":[1234567e1]}      "#, "invalid_token_ids"),
            (r#"{"token_ids":[1234567 8]}      "#, "invalid_json"),
        ] {
            assert_eq!(code(body), expected, "{body}");
        }
    }

    #[test]
    fn never_panics_on_mutations() {
        let seed = std::env::var("KVCACHE_SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(|| fastrand::u64(..));
        println!("KVCACHE_SEED={seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let body = br#" {"token_ids" : [1, 22 ,4294967295,0]} "#;
        for _ in 0..50_000 {
            let mut mutated = body.to_vec();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..mutated.len());
                mutated[at] = rng.u8(..);
            }
            mutated.truncate(rng.usize(..=mutated.len()));
            let _ = QueryRequest::parse(&mutated);
        }
    }
}
