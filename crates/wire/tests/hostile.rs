//! A bounded run of what `cargo fuzz` does without bound. Feeds every parser of peers' bytes with noise and with
//! broken versions of valid input.
//!
//! Each input comes from a seed that is in the message of a failure;
//! `GODWIT_HOSTILE_SEED` repeats one, `GODWIT_HOSTILE_ROUNDS` asks for more.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub)] // it is a library where cargo-fuzz uses it
mod feeds;

use feeds::{FEEDS, Feed};
use std::{env, panic};

#[test]
fn parsers_never_panic_or_misread() {
    let number = |name: &str| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seeds = match number("GODWIT_HOSTILE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GODWIT_HOSTILE_ROUNDS").unwrap_or(5000),
    };
    for feed in FEEDS {
        feed.seeds.iter().for_each(|input| (feed.take)(input));
        // Hashing a file is dear.
        let share = if feed.name == "leaves" { 100 } else { 1 };
        for seed in seeds.clone().step_by(share) {
            let input = Noise(seed).input(&feed);
            if panic::catch_unwind(|| (feed.take)(&input)).is_err() {
                panic!(
                    "{} with GODWIT_HOSTILE_SEED={seed}: {}",
                    feed.name,
                    input.escape_ascii()
                );
            }
        }
    }
}

/// Numbers that look random and are the same each time (splitmix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn input(&mut self, feed: &Feed) -> Vec<u8> {
        let mut input = match self.below(8) {
            0 => (0..self.below(200)).map(|_| self.next() as u8).collect(),
            _ => feed.seeds[self.below(feed.seeds.len())].to_vec(),
        };
        for _ in 0..=self.below(4) {
            self.spoil(&mut input, feed);
        }
        input
    }

    fn spoil(&mut self, input: &mut Vec<u8>, feed: &Feed) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(12)).min(input.len());
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 => drop(input.drain(at..end)),
            2 => {
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            3 => input.truncate(at),
            4 => {
                let other = feed.seeds[self.below(feed.seeds.len())];
                input.splice(at.., other[self.below(other.len())..].iter().copied());
            }
            5 => input.insert(at, self.next() as u8),
            _ => {
                let token = TOKENS[self.below(TOKENS.len())];
                input.splice(at..at, token.iter().copied());
            }
        }
    }
}

/// Tokens that parsers may misread.
const TOKENS: [&[u8]; 20] = [
    b"%",
    b"%2F",
    b"%00",
    b"..",
    b"/../",
    b"\r\n",
    b"\n",
    b"\0",
    b" ",
    b"-1",
    b";",
    b"=",
    b",",
    b"\"",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999",
    b"\xff\xff",
    "é".as_bytes(),
    b"0-",
];
