//! Reading in groups and lanes against reading one by one.

use super::*;
use crate::decode::tests::seed;

fn encode(out: &mut Vec<u8>, id: u32) {
    let [_, _, high, low] = id.to_be_bytes();
    match id {
        0..=0x7f => out.push(low),
        0x80..=0xff => out.extend([0xcc, low]),
        0x100..=0xffff => out.extend([0xcd, high, low]),
        _ => {
            out.push(0xce);
            out.extend(id.to_be_bytes());
        }
    }
}

/// The integer at the start of `bytes`, by the format's definition.
fn first(bytes: &[u8]) -> Option<(usize, u32)> {
    match *bytes {
        [tag @ 0x00..=0x7f, ..] => Some((1, tag.into())),
        [0xcc, a, ..] => Some((2, a.into())),
        [0xcd, a, b, ..] => Some((3, u16::from_be_bytes([a, b]).into())),
        [0xce, a, b, c, d, ..] => Some((5, u32::from_be_bytes([a, b, c, d]))),
        _ => None,
    }
}

/// Checks that `wanted` integers of `bytes` are read as the definition has them, and as far as it goes.
fn check(bytes: &[u8], wanted: usize, story: &str) -> Extent {
    let mut out = vec![0; wanted];
    let done = read(bytes, &mut out);
    let mut offset = 0;
    for (place, id) in out[..done.integers].iter().enumerate() {
        let (length, expected) = first(&bytes[offset..]).expect("an integer");
        assert_eq!(*id, expected, "{story}: integer {place} at byte {offset}");
        offset += length;
    }
    assert_eq!(done.bytes, offset, "{story}");
    let rest = &bytes[offset..];
    assert!(
        done.integers == wanted || first(rest).is_none() || rest.len() < 5,
        "{story}: stopped at byte {offset} without need"
    );
    done
}

/// Vocabularies and texts: what share of the ids has how many bits.
fn id(random: &mut fastrand::Rng, kind: usize) -> u32 {
    match kind {
        0 => random.u32(..152_000),
        1 => random.u32(..32_000),
        2 => random.u32(..).unbounded_shr(random.u32(0..=32)),
        3 if random.u8(..) < 40 => random.u32(..256),
        3 => random.u32(..128_000),
        // Bodies that look like tags, where guesses go wrong.
        4 => *random
            .choice(&[
                0xcdcd,
                0xcece_cece,
                0xcdcd_cdcd,
                0xcc,
                0x00cd,
                0xce00_cd00,
                0xcccc,
            ])
            .unwrap_or(&0),
        _ => random.u32(..128),
    }
}

#[test]
fn long_arrays_are_read_as_they_are_defined() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..600 {
        let count = random.usize(..6000);
        let mut bytes = Vec::new();
        for _ in 0..count {
            encode(&mut bytes, id(&mut random, round % 6));
        }
        let story = format!("seed {seed}, round {round}");
        let whole = bytes.len();
        // What follows an array: something else, or integers that are not part of it.
        match round % 3 {
            0 => bytes.extend([0xa5; 20]),
            1 => bytes.extend([0x01; 3000]),
            _ => {}
        }
        let done = check(&bytes, count, &story);
        if round % 3 < 2 {
            assert_eq!((done.bytes, done.integers), (whole, count), "{story}");
        }
        check(&bytes[..random.usize(..=bytes.len())], count, &story);
    }
}

#[test]
fn something_else_ends_the_reading_wherever_it_is() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..600 {
        let (count, place) = (random.usize(1..4000), random.usize(..4000));
        let (mut bytes, mut before) = (Vec::new(), None);
        for at in 0..count {
            if at == place {
                before = Some(bytes.len());
                bytes.extend(
                    [*random
                        .choice(&[0xc0, 0xcf, 0xd3, 0xff, 0x91])
                        .unwrap_or(&0xc0); 9],
                );
            }
            encode(&mut bytes, id(&mut random, round % 6));
        }
        bytes.extend([0xc0; 9]);
        let done = check(&bytes, count, &format!("seed {seed}, round {round}"));
        assert_eq!(done.bytes, before.unwrap_or(bytes.len() - 9));
    }
}

#[test]
fn whatever_the_bytes_are_nothing_else_is_read_into_them() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..600 {
        let tags = [0xcd, 0xce, 0xcc, 0x00, 0x7f];
        let bytes: Vec<u8> = (0..random.usize(..6000))
            .map(|_| match round % 3 {
                0 => *random.choice(&tags).unwrap_or(&0),
                1 if random.u16(..) > 40 => *random.choice(&tags).unwrap_or(&0),
                _ => random.u8(..),
            })
            .collect();
        check(&bytes, bytes.len(), &format!("seed {seed}, round {round}"));
    }
}

/// Without this, the other tests would pass if no lane were ever used.
#[test]
fn lanes_read_nearly_all_of_a_long_text() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut bytes = Vec::new();
    for _ in 0..MIXED + 2000 {
        encode(&mut bytes, id(&mut random, 3));
    }
    let mut out = vec![0; MIXED + 2000];
    let mut done = Extent::default();
    read_mixed(&bytes, &mut out[..MIXED], &mut done);
    assert!(
        Lanes::default().read(&bytes, &mut out, &mut done),
        "{done:?}"
    );
    assert!(done.integers > 1700, "{done:?}");
}
