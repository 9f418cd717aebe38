//! Bodies of HTTP requests, parsed strictly and straight to token ids.
//!
//! Invariant: what is accepted is one JSON object with exactly the known fields, each once, and every id an integer in
//! 0 … 2^32−1. Nothing is rounded, clamped or guessed. Allocates what the bytes present justify.

use super::cursor::Cursor;
use super::encoding::foreign_encoding;

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
    /// Perhaps JSON, but not as UTF-8.
    #[error("the body is {0}: send JSON as UTF-8 without a byte order mark, not compressed")]
    Encoding(&'static str),
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
    #[error("the field {0} is given twice")]
    DuplicateField(&'static str),
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
    /// `request_id` is not a name.
    #[error("request_id must be a string of 1 to {MAX_REQUEST_ID_CHARS} characters")]
    RequestId,
    /// `explain` is not true or false.
    #[error("explain must be true or false")]
    Explain,
}

impl RequestError {
    /// Refuses a body that is not plain UTF-8, by its first bytes. For parsers that would read it
    /// all the same.
    ///
    /// # Errors
    /// [`RequestError::Encoding`].
    pub fn refuse_encoding(body: &[u8]) -> Result<(), Self> {
        foreign_encoding(body).map_or(Ok(()), |name| Err(Self::Encoding(name)))
    }

    /// Stable `snake_case`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Json { .. } | Self::Encoding(_) => "invalid_json",
            Self::NotAnObject => "not_an_object",
            Self::MissingField => "missing_field",
            Self::UnknownField(_) => "unknown_field",
            Self::DuplicateField(_) => "duplicate_field",
            Self::NotAList | Self::TokenId { .. } => "invalid_token_ids",
            Self::RequestId => "invalid_request_id",
            Self::Explain => "invalid_explain",
        }
    }
}

/// `{"token_ids": […], "request_id": "…", "explain": true}`; all but the first may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteRequest {
    /// The prompt.
    pub token_ids: Vec<u32>,
    /// What the caller calls the request.
    pub request_id: Option<String>,
    /// Whether those that cannot be chosen are wanted too.
    pub explain: bool,
}

impl QueryRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        let mut token_ids = None;
        parse_fields(body, |name, cursor| {
            if name != "token_ids" {
                return Err(RequestError::UnknownField(printable(name.as_bytes())));
            }
            set(&mut token_ids, "token_ids", || cursor.token_ids())
        })?;
        let token_ids = token_ids.ok_or(RequestError::MissingField)?;
        Ok(Self { token_ids })
    }
}

impl RouteRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        let (mut token_ids, mut request_id, mut explain) = (None, None, None);
        parse_fields(body, |name, cursor| match name {
            "token_ids" => set(&mut token_ids, "token_ids", || cursor.token_ids()),
            "request_id" => set(&mut request_id, "request_id", || request_id_of(cursor)),
            "explain" => set(&mut explain, "explain", || flag(cursor)),
            _ => Err(RequestError::UnknownField(printable(name.as_bytes()))),
        })?;
        Ok(Self {
            token_ids: token_ids.ok_or(RequestError::MissingField)?,
            request_id,
            explain: explain.unwrap_or_default(),
        })
    }
}

/// Longer names of requests than this are no names.
pub const MAX_REQUEST_ID_CHARS: usize = 256;

fn request_id_of(cursor: &mut Cursor<'_>) -> Result<String, RequestError> {
    cursor.space();
    if cursor.peek() != Some(b'"') {
        return Err(RequestError::RequestId);
    }
    let text = cursor.string("expected a string")?;
    if text.is_empty() || text.chars().nth(MAX_REQUEST_ID_CHARS).is_some() {
        return Err(RequestError::RequestId);
    }
    Ok(text)
}

fn flag(cursor: &mut Cursor<'_>) -> Result<bool, RequestError> {
    cursor.space();
    if cursor.takes(b"true") {
        Ok(true)
    } else if cursor.takes(b"false") {
        Ok(false)
    } else {
        Err(RequestError::Explain)
    }
}

fn set<T>(
    place: &mut Option<T>,
    name: &'static str,
    read: impl FnOnce() -> Result<T, RequestError>,
) -> Result<(), RequestError> {
    if place.is_some() {
        return Err(RequestError::DuplicateField(name));
    }
    *place = Some(read()?);
    Ok(())
}

/// One object and nothing else; `read` takes each field's value.
fn parse_fields(
    body: &[u8],
    read: impl FnMut(&str, &mut Cursor<'_>) -> Result<(), RequestError>,
) -> Result<(), RequestError> {
    // Whatever is wrong with a body in another encoding, the encoding is the reason.
    parse_plain_fields(body, read).or_else(|error| {
        RequestError::refuse_encoding(body)?;
        Err(error)
    })
}

fn parse_plain_fields(
    body: &[u8],
    mut read: impl FnMut(&str, &mut Cursor<'_>) -> Result<(), RequestError>,
) -> Result<(), RequestError> {
    let mut cursor = Cursor::new(body);
    cursor.space();
    match cursor.peek() {
        Some(b'{') => drop(cursor.next()),
        Some(_) => return Err(RequestError::NotAnObject),
        None => return Err(cursor.json("nothing here")),
    }
    cursor.space();
    if !cursor.takes(b"}") {
        loop {
            let name = cursor.name()?;
            cursor.expect(b':', "expected a colon")?;
            read(&name, &mut cursor)?;
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
    Ok(())
}

/// At most 40 characters of what a caller sent, fit for an error message.
pub(super) fn printable(bytes: &[u8]) -> String {
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

    fn route(body: &str) -> Result<RouteRequest, &'static str> {
        RouteRequest::parse(body.as_bytes()).map_err(|error| error.code())
    }

    #[test]
    fn a_route_may_name_itself_and_ask_why() {
        let plain = RouteRequest {
            token_ids: vec![1, 2],
            ..RouteRequest::default()
        };
        assert_eq!(route(r#"{"token_ids":[1,2]}"#), Ok(plain.clone()));
        let full = RouteRequest {
            request_id: Some("a \u{1f600}\u{fffd}b".to_owned()),
            explain: true,
            ..plain
        };
        let body = r#"{"explain" : true , "request_id":"a \ud83d\ude00\ud83db","token_ids":[1,2]}"#;
        assert_eq!(route(body), Ok(full));
    }

    #[test]
    fn what_is_no_route_says_why() {
        for (body, code) in [
            (r#"{"explain":true}"#, "missing_field"),
            (r#"{"token_ids":[],"explain":1}"#, "invalid_explain"),
            (r#"{"token_ids":[],"explain":truest}"#, "invalid_json"),
            (
                r#"{"token_ids":[],"explain":true,"explain":true}"#,
                "duplicate_field",
            ),
            (
                r#"{"token_ids":[],"request_id":null}"#,
                "invalid_request_id",
            ),
            (r#"{"token_ids":[],"request_id":""}"#, "invalid_request_id"),
            (
                r#"{"token_ids":[],"request_id":"\ud83d\uzzzz"}"#,
                "invalid_json",
            ),
            (r#"{"token_ids":[],"request_id":"a"#, "invalid_json"),
            (r#"{"token_ids":[1.5]}"#, "invalid_token_ids"),
            (r#"{"token_ids":[],"priority":1}"#, "unknown_field"),
        ] {
            assert_eq!(route(body), Err(code), "{body}");
        }
        let long = format!(r#"{{"token_ids":[],"request_id":"{}"}}"#, "x".repeat(257));
        assert_eq!(route(&long), Err("invalid_request_id"));
    }
}
