//! Spans as an engine's encoder writes them, and the frames of the transport.

use crate::story::Span;

/// A live message that stores one span.
#[must_use]
pub fn store_message(span: &Span, block_size: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + span.token_ids.len() * 5 + span.wire_hashes.len() * 9);
    batch_start(&mut out, 1);
    stored(&mut out, span, block_size);
    out.push(0);
    out
}

/// A live message that evicts one span, last block first.
#[must_use]
pub fn remove_message(span: &Span) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + span.wire_hashes.len() * 9);
    batch_start(&mut out, 1);
    out.push(0x83);
    text(&mut out, "type");
    text(&mut out, "BlockRemoved");
    text(&mut out, "block_hashes");
    array(&mut out, span.wire_hashes.len());
    for wire in span.wire_hashes.iter().rev() {
        integer(&mut out, wire.0);
    }
    text(&mut out, "medium");
    text(&mut out, "gpu");
    out.push(0);
    out
}

/// A snapshot's payload: a clear, then all spans.
#[must_use]
pub fn snapshot(spans: &[Span], block_size: u32) -> Vec<u8> {
    let mut out = Vec::new();
    batch_start(&mut out, 1 + spans.len());
    out.push(0x81);
    text(&mut out, "type");
    text(&mut out, "AllBlocksCleared");
    for span in spans {
        stored(&mut out, span, block_size);
    }
    out.push(0);
    out
}

/// A frame of the transport; `more` of its message follow.
pub fn frame(out: &mut Vec<u8>, body: &[u8], more: bool) {
    let flags = u8::from(more);
    if let Ok(short) = u8::try_from(body.len()) {
        out.extend_from_slice(&[flags, short]);
    } else {
        out.push(flags | 2);
        out.extend_from_slice(&(body.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(body);
}

fn batch_start(out: &mut Vec<u8>, events: usize) {
    out.push(0x93);
    out.push(0xcb);
    out.extend_from_slice(&1.0_f64.to_be_bytes());
    array(out, events);
}

fn stored(out: &mut Vec<u8>, span: &Span, block_size: u32) {
    out.push(0x86);
    text(out, "type");
    text(out, "BlockStored");
    text(out, "block_hashes");
    array(out, span.wire_hashes.len());
    for wire in &span.wire_hashes {
        integer(out, wire.0);
    }
    text(out, "parent_block_hash");
    match span.parent {
        Some(parent) => integer(out, parent.0),
        None => out.push(0xc0),
    }
    text(out, "token_ids");
    array(out, span.token_ids.len());
    for token in &span.token_ids {
        integer(out, u64::from(*token));
    }
    text(out, "block_size");
    integer(out, u64::from(block_size));
    text(out, "medium");
    text(out, "gpu");
}

#[expect(clippy::cast_possible_truncation, reason = "names are short")]
fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xa0 | text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

#[expect(clippy::cast_possible_truncation, reason = "fewer than 2^32 elements")]
fn array(out: &mut Vec<u8>, elements: usize) {
    out.push(0xdd);
    out.extend_from_slice(&(elements as u32).to_be_bytes());
}

/// In the fewest bytes.
fn integer(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    match value {
        0..=0x7f => out.push(bytes[7]),
        0x80..=0xff => out.extend_from_slice(&[0xcc, bytes[7]]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&bytes[6..]);
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(0xcf);
            out.extend_from_slice(&bytes);
        }
    }
}
