//! Four places of a long array read at once.
//!
//! An integer's length says where the next one begins, so that each waits for a load and a look-up. Four cursors, each in
//! a segment of its own, wait at the same time. Where a segment's first integer begins is guessed: a cursor that starts
//! some bytes earlier, on whatever byte, falls into step after a few integers. The guess is right when the cursor of the
//! segment before lands on it; segments from the first wrong guess on are not used, nor those of which `out` has no room
//! for all integers. So what is read is right whatever the bytes are, and they decide only how fast.

use super::{Extent, Form};

const LANES: usize = 4;

/// Bytes of the longest segment.
pub(super) const SEGMENT: usize = 512;

const HALF: usize = SEGMENT / 2;
const QUARTER: usize = SEGMENT / 4;

/// Bytes of the shortest window: fewer are read as fast by one cursor.
pub(super) const SHORTEST: usize = LANES * QUARTER;

/// Bytes that a cursor starts before its segment, and the integers that it then reads to fall into step.
const RUN_UP: usize = 16;
const STEPS: usize = 6;

/// The longest integer's bytes: a cursor stops this much behind its segment's end at most.
const LONGEST: usize = 5;

/// Integers that a lane may read: one a byte of a segment, which may begin early and end late.
const ROOM: usize = SEGMENT + STEPS * LONGEST;

/// Holds what each lane has read; the order of the lanes is that of the integers.
pub(super) struct Lanes([[u32; ROOM]; LANES]);

impl Default for Lanes {
    fn default() -> Self {
        Self([[0; ROOM]; LANES])
    }
}

impl Lanes {
    /// Reads stretches of four segments while `out` seems to need that many bytes, and says whether all of their
    /// guesses were right.
    pub(super) fn read(&mut self, bytes: &[u8], out: &mut [u32], done: &mut Extent) -> bool {
        loop {
            let rest = &bytes[done.bytes..];
            let slots = &mut out[done.integers..];
            let expected = done.bytes_of(slots.len());
            let Some((read, length)) = self
                .read_window::<SEGMENT, { window_bytes(SEGMENT) }>(rest, expected, slots)
                .or_else(|| self.read_window::<HALF, { window_bytes(HALF) }>(rest, expected, slots))
                .or_else(|| {
                    self.read_window::<QUARTER, { window_bytes(QUARTER) }>(rest, expected, slots)
                })
            else {
                return true;
            };
            done.bytes += read.bytes;
            done.integers += read.integers;
            if read.bytes < length {
                return false;
            }
        }
    }

    /// Reads a window of four segments, if there are as many bytes and the array is expected to take them; returns the
    /// length of the segments too.
    #[inline(never)]
    fn read_window<const SEGMENT: usize, const WINDOW: usize>(
        &mut self,
        bytes: &[u8],
        expected: usize,
        out: &mut [u32],
    ) -> Option<(Extent, usize)> {
        let bytes: &[u8; WINDOW] = bytes.first_chunk()?;
        if expected < LANES * SEGMENT {
            return None;
        }
        let all = LANES * SEGMENT;
        let starts = guesses(bytes, [SEGMENT, 2 * SEGMENT, 3 * SEGMENT]);
        let ends = [starts[0], starts[1], starts[2], all];
        let mut at = [0, starts[0], starts[1], starts[2]];
        let mut count = 0;
        // As many steps as every lane has integers left for sure.
        loop {
            let left = (ends.iter().zip(&at)).map(|(end, at)| end.saturating_sub(*at));
            let steps = left.min().unwrap_or(0) / LONGEST;
            if steps == 0 {
                break;
            }
            let [a, b, c, d] = &mut self.0;
            let steps = count..count + steps;
            let slots = (a[steps.clone()].iter_mut().zip(&mut b[steps.clone()]))
                .zip(c[steps.clone()].iter_mut().zip(&mut d[steps.clone()]));
            for ((a, b), (c, d)) in slots {
                step::<SEGMENT, WINDOW>(bytes, &mut at[0], a);
                step::<SEGMENT, WINDOW>(bytes, &mut at[1], b);
                step::<SEGMENT, WINDOW>(bytes, &mut at[2], c);
                step::<SEGMENT, WINDOW>(bytes, &mut at[3], d);
            }
            count = steps.end;
        }
        let mut read = Extent::default();
        for lane in 0..LANES {
            let values = &mut self.0[lane];
            let mut count = count;
            while at[lane] < ends[lane] && count < ROOM {
                step::<SEGMENT, WINDOW>(bytes, &mut at[lane], &mut values[count]);
                count += 1;
            }
            // A lane that met something else is far behind its end. Room is missing where the array ends.
            let whole = at[lane] < all + LONGEST;
            let slots = out.get_mut(read.integers..read.integers + count);
            let (true, Some(slots)) = (whole, slots) else {
                break;
            };
            slots.copy_from_slice(&values[..count]);
            read.integers += count;
            read.bytes = at[lane];
            if at[lane] != ends[lane] {
                break;
            }
        }
        Some((read, all))
    }
}

/// The bytes of a window: its segments, and as many as its last integer may take beyond.
const fn window_bytes(segment: usize) -> usize {
    LANES * segment + LONGEST
}

/// Guesses where an integer begins near each of `places`. A fixed number of steps needs no branch that nobody can foresee.
#[inline]
fn guesses<const WINDOW: usize>(
    bytes: &[u8; WINDOW],
    places: [usize; LANES - 1],
) -> [usize; LANES - 1] {
    let mut at = places.map(|place| place - RUN_UP);
    for _ in 0..STEPS {
        at = at.map(|at| at + Form::of(bytes[at]).shortest_step());
    }
    at
}

/// Reads one integer. A place far behind all segments stands for something else; there nothing of use is read.
#[inline]
fn step<const SEGMENT: usize, const WINDOW: usize>(
    bytes: &[u8; WINDOW],
    at: &mut usize,
    value: &mut u32,
) {
    // Tells the compiler that no index is out of bounds.
    let tag = *at & (LANES * SEGMENT - 1);
    let form = Form::of(bytes[tag]);
    let body = [
        bytes[tag + 1],
        bytes[tag + 2],
        bytes[tag + 3],
        bytes[tag + 4],
    ];
    *value = form.value(body);
    *at += form.length();
}
