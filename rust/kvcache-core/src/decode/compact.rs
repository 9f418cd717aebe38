//! The hot loop of decoding: unsigned integers of up to 32 bits in their compact encodings (one byte for 0 to 127, else a
//! tag and 1, 2 or 4 bytes).
//!
//! Nothing here is an error: whatever is not compact, or too near the end of the bytes, is left to the general reader.

mod lanes;
#[cfg(test)]
mod tests;

use self::lanes::Lanes;

/// Integers taken one by one before a group of equal encodings is tried again.
const MIXED: usize = 16;

/// Integers in a group.
const GROUP: usize = 4;

/// A number of bytes that were read, and of the integers that they held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) bytes: usize,
    pub(super) integers: usize,
}

impl Extent {
    /// The bytes that as many more integers may take; none as long as nothing was read.
    fn bytes_of(self, integers: usize) -> usize {
        (integers * self.bytes)
            .checked_div(self.integers)
            .unwrap_or(0)
    }
}

/// Reads integers as long as they come in compact encodings, at most as many as `out` holds. It stops early at any other
/// value and near the end of the bytes.
///
/// Integers that share an encoding are taken in groups. Where encodings mix without a pattern, as in text, each is looked
/// up instead of branched on, because a wrong guess costs more than the look-up; long stretches of those are read in
/// several [lanes](Lanes) at once.
pub(super) fn read(bytes: &[u8], out: &mut [u32]) -> Extent {
    let mut lanes: Option<Lanes> = None;
    let mut done = Extent::default();
    while done.integers < out.len() {
        let grouped = read_groups(bytes, out, &mut done);
        let mut singly = MIXED;
        // No group, right after integers that were taken one by one: encodings mix here.
        let expected = done.bytes_of(out.len() - done.integers);
        if !grouped && expected >= lanes::SHORTEST {
            let lanes = lanes.get_or_insert_default();
            if !lanes.read(bytes, out, &mut done) {
                // Guesses fail here. They are left alone for a while, so that they cost little.
                singly = lanes::SEGMENT;
            }
        }
        let end = out.len().min(done.integers + singly);
        read_mixed(bytes, &mut out[..end], &mut done);
        if done.integers < end {
            break;
        }
    }
    done
}

/// Reads groups of one encoding each as long as they come, and says whether there was one.
#[inline]
fn read_groups(bytes: &[u8], out: &mut [u32], done: &mut Extent) -> bool {
    let before = done.integers;
    while let Some(slots) = out[done.integers..].first_chunk_mut()
        && let Some(length) = read_group(&bytes[done.bytes..], slots)
    {
        done.bytes += length;
        done.integers += GROUP;
    }
    done.integers > before
}

/// Reads a whole group of one encoding and says how many bytes it took.
#[inline]
fn read_group(bytes: &[u8], out: &mut [u32; GROUP]) -> Option<usize> {
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

/// Reads integers of any mixture of encodings until `out` is full.
#[inline]
fn read_mixed(bytes: &[u8], out: &mut [u32], done: &mut Extent) {
    for slot in &mut out[done.integers..] {
        let Some(&[tag, a, b, c, d]) = bytes.get(done.bytes..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        let form = Form::of(tag);
        if form.is_other() {
            break;
        }
        *slot = form.value([a, b, c, d]);
        done.bytes += form.length();
        done.integers += 1;
    }
}

/// How long an integer is, and how its value is taken out of its tag and the four bytes that follow. One word, so that
/// one load brings all: the value's shift in the low byte, the value itself where the tag holds it in the second, the
/// length in the upper half.
#[derive(Clone, Copy)]
struct Form(u32);

impl Form {
    /// The length of what is no compact integer: one that leads out of every segment of a lane. Its low bits are 1.
    const OTHER: u32 = 0x4001;

    const fn new(length: u32, shift: u32, value: u32) -> Self {
        Self(length << 16 | value << 8 | shift)
    }

    #[inline]
    fn of(tag: u8) -> Self {
        FORMS[usize::from(tag)]
    }

    #[inline]
    fn length(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// The length; a byte for what is no compact integer.
    #[inline]
    fn shortest_step(self) -> usize {
        self.length() & 7
    }

    #[inline]
    fn is_other(self) -> bool {
        self.0 >> 16 == Self::OTHER
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "32 bits before the shift")]
    fn value(self, body: [u8; 4]) -> u32 {
        let body = u64::from(u32::from_be_bytes(body));
        (body >> (self.0 & 63)) as u32 | self.0 >> 8 & 0xff
    }
}

static FORMS: [Form; 256] = {
    let mut forms = [Form::new(Form::OTHER, 32, 0); 256];
    let mut value = 0;
    while value < 0x80 {
        forms[value as usize] = Form::new(1, 32, value);
        value += 1;
    }
    forms[0xcc] = Form::new(2, 24, 0);
    forms[0xcd] = Form::new(3, 16, 0);
    forms[0xce] = Form::new(5, 0, 0);
    forms
};
