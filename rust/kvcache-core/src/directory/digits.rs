//! Decimal digits eight bytes at a time: what most token ids of a body are read by.
//!
//! The bytes of a word are worked on side by side, without a branch on how many of them are digits: lengths of token
//! ids are what a processor cannot foretell.

/// Digits read at once.
pub(super) const MOST: usize = 8;

const ZEROS: u64 = u64::from_le_bytes([b'0'; MOST]);

/// Added to a byte, sets its high bit from 10 on.
const OVER_NINE: u64 = u64::from_le_bytes([0x80 - 10; MOST]);

const HIGH_BITS: u64 = u64::from_le_bytes([0x80; MOST]);

/// The digits at the beginning of `bytes`, eight at most, as a number, and how many they are. None are seen in fewer
/// than eight bytes.
#[inline]
pub(super) fn leading(bytes: &[u8]) -> (u32, usize) {
    let Some(word) = bytes.first_chunk::<MOST>() else {
        return (0, 0);
    };
    let word = u64::from_le_bytes(*word) ^ ZEROS;
    // Right up to the first byte that is no digit, whose carry may spoil later ones.
    let no_digit = (word.wrapping_add(OVER_NINE) | word) & HIGH_BITS;
    let bits = no_digit.trailing_zeros() & !7;
    // Behind zeros, as eight digits. Of no digits, nothing is left.
    let digits = word.checked_shl(64 - bits).unwrap_or(0);
    (value(digits), bits as usize / 8)
}

/// Of eight digits, the first one in the lowest byte.
#[inline]
const fn value(digits: u64) -> u32 {
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let odd = (pairs & 0xff_0000_00ff).wrapping_mul((1_000_000 << 32) + 100);
    let even = ((pairs >> 16) & 0xff_0000_00ff).wrapping_mul((10_000 << 32) + 1);
    (odd.wrapping_add(even) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_of_any_length() {
        let mut rng = fastrand::Rng::with_seed(5);
        let spread = std::iter::repeat_with(|| rng.u32(..100_000_000)).take(20_000);
        for number in (0..20_000).chain(99_990_000..100_000_000).chain(spread) {
            let digits = number.to_string();
            for behind in [
                ",        ",
                "]}       ",
                " , 1      ",
                "/::::::::",
                "\u{ff}zzzzzzz",
            ] {
                let text = format!("{digits}{behind}");
                assert_eq!(leading(text.as_bytes()), (number, digits.len()), "{text}");
            }
        }
    }

    /// Any eight bytes mean to it what they mean digit by digit.
    #[test]
    fn agrees_with_reading_byte_by_byte() {
        let mut rng = fastrand::Rng::with_seed(6);
        for _ in 0..200_000 {
            let bytes: [u8; 8] = std::array::from_fn(|_| match rng.u8(..8) {
                0 => rng.u8(..),
                1 => b",]/: -.e"[rng.usize(..8)],
                _ => rng.u8(b'0'..=b'9'),
            });
            let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit());
            let expected = digits.fold((0, 0), |(value, count), digit| {
                (value * 10 + u32::from(digit - b'0'), count + 1)
            });
            assert_eq!(leading(&bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn leaves_the_last_bytes_to_others() {
        for text in ["", "1", "1234567"] {
            assert_eq!(leading(text.as_bytes()), (0, 0), "{text}");
        }
    }
}
