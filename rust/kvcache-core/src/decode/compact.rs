//! The hot loop of decoding: unsigned integers of up to 32 bits in their compact encodings (one byte for 0 to 127, else a
//! tag and 1, 2 or 4 bytes).
//!
//! Nothing here is an error: whatever is not compact, or too near the end of the bytes, is left to the general reader.

/// Integers taken one by one before a group of equal encodings is tried again.
pub(super) const MIXED: usize = 16;

/// Integers in a group.
const GROUP: usize = 4;

/// Reads a whole group of one encoding and says how many bytes it took.
#[inline]
pub(super) fn read_group(bytes: &[u8], out: &mut [u32; GROUP]) -> Option<usize> {
    match bytes.first()? {
        0x00..=0x7f => {
            let group: &[u8; GROUP] = bytes.first_chunk()?;
            *out = group.map(u32::from);
            group.iter().all(|tag| *tag < 0x80).then_some(group.len())
        }
        0xcd => {
            let group: &[[u8; 3]; GROUP] = bytes.as_chunks().0.first_chunk()?;
            *out = group.map(|[_, high, low]| u16::from_be_bytes([high, low]).into());
            group
                .iter()
                .all(|item| item[0] == 0xcd)
                .then_some(GROUP * 3)
        }
        0xce => {
            let group: &[[u8; 5]; GROUP] = bytes.as_chunks().0.first_chunk()?;
            *out = group.map(|[_, body @ ..]| u32::from_be_bytes(body));
            group
                .iter()
                .all(|item| item[0] == 0xce)
                .then_some(GROUP * 5)
        }
        _ => None,
    }
}

/// Reads integers of any mixture of encodings, at most as many as `out` holds; returns bytes and integers read.
#[inline]
pub(super) fn read_mixed(bytes: &[u8], out: &mut [u32]) -> (usize, usize) {
    let mut offset = 0;
    let mut read = 0;
    for slot in out {
        let Some(&[tag, a, b, c, d]) = bytes.get(offset..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        let length = LENGTHS[usize::from(tag)];
        if length == 0 {
            break;
        }
        let form = FORMS[usize::from(tag)];
        let body = u32::from_be_bytes([a, b, c, d]);
        *slot = ((body >> form.shift) & form.mask) | u32::from(form.fix);
        offset += usize::from(length);
        read += 1;
    }
    (offset, read)
}

/// How a value is taken out of its tag and the four bytes that follow.
#[derive(Clone, Copy)]
struct Form {
    mask: u32,
    shift: u8,
    /// The value itself, where the tag holds it.
    fix: u8,
}

const OTHER: Form = Form {
    mask: 0,
    shift: 0,
    fix: 0,
};

/// Bytes of tag and body; 0 where the tag means something else. Apart from [`FORMS`], as the next integer waits for it.
static LENGTHS: [u8; 256] = {
    let mut lengths = [0; 256];
    let mut fix = 0;
    while fix < 0x80 {
        lengths[fix] = 1;
        fix += 1;
    }
    lengths[0xcc] = 2;
    lengths[0xcd] = 3;
    lengths[0xce] = 5;
    lengths
};

static FORMS: [Form; 256] = {
    let mut forms = [OTHER; 256];
    let mut fix = 0;
    while fix < 0x80 {
        forms[fix as usize] = Form { fix, ..OTHER };
        fix += 1;
    }
    forms[0xcc] = body(24);
    forms[0xcd] = body(16);
    forms[0xce] = body(0);
    forms
};

const fn body(shift: u8) -> Form {
    Form {
        mask: u32::MAX,
        shift,
        fix: 0,
    }
}
