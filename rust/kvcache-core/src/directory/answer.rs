//! Answers as JSON bytes, written straight from the result.

use std::fmt::Write;

use crate::index::Matches;

/// The body of a query's answer: `{"matches":[…]}` in the order of the result.
#[must_use]
pub fn matches_json(matches: &Matches) -> String {
    let mut out = String::with_capacity(32 + matches.len() * 256);
    out.push_str(r#"{"matches":["#);
    for (index, (row, hit)) in matches.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(r#"{"instance_name":"#);
        push_string(&mut out, &row.key().instance_name);
        let sequence = hit
            .sequence
            .map_or_else(|| "null".to_owned(), |sequence| sequence.to_string());
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            concat!(
                r#","dp_rank":{},"synchronized":{},"sequence":{},"device_hit_tokens":{},"host_only_hit_tokens":{},"#,
                r#""reusable_prefix_tokens":{},"device_blocks":{},"host_blocks":{},"error":"#
            ),
            row.key().dp_rank,
            hit.synchronized,
            sequence,
            hit.device_hit_tokens,
            hit.host_only_hit_tokens,
            hit.device_hit_tokens + hit.host_only_hit_tokens,
            hit.device_blocks,
            hit.host_blocks,
        );
        push_string(&mut out, row.error());
        out.push('}');
    }
    out.push_str("]}");
    out
}

fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
