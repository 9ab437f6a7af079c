//! Digests of bytes, and the algorithms for them.
//!
//! [`Hashing`] wants its bytes in order. [`AdlerParts`] takes them in any order;
//! so does [`Leaves`](crate::Leaves) for BLAKE3. No other algorithm here can.

use crate::{
    Block, Extents,
    hex::{hex, unhex},
};
use md5::Digest as _;
use std::{collections::BTreeMap, fmt, str::FromStr};

/// A checksum or digest algorithm.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
#[allow(missing_docs)]
pub enum Algorithm {
    Blake3,
    Adler32,
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::Blake3,
        Self::Adler32,
        Self::Md5,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
    ];

    /// Returns how many bytes a value has.
    pub fn len_bytes(self) -> usize {
        match self {
            Self::Adler32 => 4,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Blake3 | Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Returns the name as we write it: lower case, no dash.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Adler32 => "adler32",
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads a name as servers write it: in any case, with or without a dash.
impl FromStr for Algorithm {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        Self::ALL
            .into_iter()
            .find(|by| text.replace('-', "").eq_ignore_ascii_case(by.as_str()))
            .ok_or(BadDigest("no known algorithm"))
    }
}

/// An algorithm and its value. Written `blake3:af1349…`, in lower-case hex.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    value: Box<[u8]>, // as long as the algorithm says
}

impl Digest {
    /// Takes a value. `None` if it is not as long as the algorithm's.
    pub fn new(algorithm: Algorithm, value: &[u8]) -> Option<Self> {
        (value.len() == algorithm.len_bytes()).then(|| Self {
            algorithm,
            value: value.into(),
        })
    }

    /// Reads a value as a server tells it: hex in any case. An ADLER32 may have
    /// lost its leading zeros, as some servers print it.
    pub fn from_hex(algorithm: Algorithm, hex: &str) -> Result<Self, BadDigest> {
        let digits = 2 * algorithm.len_bytes();
        let padded;
        let hex = match algorithm {
            Algorithm::Adler32 if !hex.is_empty() && hex.len() < digits => {
                padded = format!("{hex:0>digits$}");
                &padded
            }
            _ => hex,
        };
        let value = unhex(hex).ok_or(BadDigest("not hexadecimal"))?;
        Self::new(algorithm, &value).ok_or(BadDigest("the value is not as long as it should be"))
    }

    /// Computes the digest of bytes that are all here.
    pub fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut hashing = Hashing::new(algorithm);
        hashing.update(bytes);
        hashing.finish()
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Returns the value in lower-case hex: 8 digits for ADLER32.
    pub fn hex(&self) -> String {
        hex(&self.value)
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Self {
            algorithm: Algorithm::Blake3,
            value: hash.as_bytes().as_slice().into(),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Reads what `Display` writes.
impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let (by, hex) = text.split_once(':').ok_or(BadDigest("no colon"))?;
        Self::from_hex(by.parse()?, hex)
    }
}

/// The text was no digest.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a digest: {0}")]
pub struct BadDigest(pub(crate) &'static str);

/// A digest under construction, fed in order.
#[derive(Clone, Debug)]
pub struct Hashing(HashState);

impl Hashing {
    /// Begins with nothing.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Blake3 => HashState::Blake3(Box::default()),
            Algorithm::Adler32 => HashState::Adler32(adler2::Adler32::new()),
            Algorithm::Md5 => HashState::Md5(md5::Md5::new()),
            Algorithm::Sha1 => HashState::Sha1(sha1::Sha1::new()),
            Algorithm::Sha256 => HashState::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => HashState::Sha512(sha2::Sha512::new()),
        })
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            HashState::Blake3(state) => {
                state.update(bytes);
            }
            HashState::Adler32(state) => state.write_slice(bytes),
            HashState::Md5(state) => state.update(bytes),
            HashState::Sha1(state) => state.update(bytes),
            HashState::Sha256(state) => state.update(bytes),
            HashState::Sha512(state) => state.update(bytes),
        }
    }

    /// Returns the digest of all bytes taken.
    pub fn finish(self) -> Digest {
        let of = |algorithm, value: &[u8]| Digest {
            algorithm,
            value: value.into(),
        };
        match self.0 {
            HashState::Blake3(state) => state.finalize().into(),
            HashState::Adler32(state) => of(Algorithm::Adler32, &state.checksum().to_be_bytes()),
            HashState::Md5(state) => of(Algorithm::Md5, &state.finalize()),
            HashState::Sha1(state) => of(Algorithm::Sha1, &state.finalize()),
            HashState::Sha256(state) => of(Algorithm::Sha256, &state.finalize()),
            HashState::Sha512(state) => of(Algorithm::Sha512, &state.finalize()),
        }
    }
}

#[derive(Clone, Debug)]
enum HashState {
    Blake3(Box<blake3::Hasher>), // 2 KiB
    Adler32(adler2::Adler32),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

/// The ADLER32 of one block. Making it is the expensive part and needs no lock.
#[derive(Clone, Copy, Debug)]
pub struct AdlerPart {
    start: u64,
    run: AdlerRun,
}

impl AdlerPart {
    /// Sums a block up.
    pub fn of(block: Block<'_>) -> Self {
        Self {
            start: block.offset,
            run: AdlerRun {
                end: block.range().end,
                sum: adler2::adler32_slice(block.bytes),
            },
        }
    }
}

/// The ADLER32 of a file whose blocks arrive in any order.
///
/// Parts that touch are joined, within windows of 64 MiB. Memory is bounded by the windows and
/// gaps, not by the number of blocks. Bytes that arrive again replace the earlier ones. A sum
/// cannot be taken apart: a joined part that they touch is forgotten, except for the new bytes.
/// [`AdlerParts::unknown`] returns the ranges to read again.
#[derive(Clone, Debug, Default)]
pub struct AdlerParts(BTreeMap<u64, AdlerRun>);

impl AdlerParts {
    /// Returns the sum of no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one block's part.
    pub fn add(&mut self, part: AdlerPart) {
        let (mut start, mut run) = (part.start, part.run);
        if run.end == start {
            return;
        }
        while let Some((&s, _)) = self
            .0
            .range(..run.end)
            .next_back()
            .filter(|(_, old)| old.end > start)
        {
            self.0.remove(&s);
        }
        let joins = |start: u64, end: u64| start / WINDOW_BYTES == (end - 1) / WINDOW_BYTES;
        if let Some((&s, &before)) = self.0.range(..start).next_back()
            && before.end == start
            && joins(s, run.end)
        {
            self.0.remove(&s);
            run = before.then(run, run.end - start);
            start = s;
        }
        if let Some(&after) = self.0.get(&run.end)
            && joins(start, after.end)
        {
            self.0.remove(&run.end);
            run = run.then(after, after.end - run.end);
        }
        self.0.insert(start, run);
    }

    /// Forgets everything known of a range (and of the parts it touches).
    pub fn forget(&mut self, range: std::ops::Range<u64>) {
        self.0
            .retain(|&start, run| run.end <= range.start || start >= range.end);
    }

    /// Returns which bytes of a file of `size` bytes are not summed up yet.
    pub fn unknown(&self, size: u64) -> Extents {
        let known: Extents = self.0.iter().map(|(&s, run)| s..run.end).collect();
        known.missing(0..size)
    }

    /// Returns ADLER32 of the whole file of `size` bytes, once all bytes arrived and none beyond.
    pub fn total(&self, size: u64) -> Option<Digest> {
        let end = self.0.last_key_value().map_or(0, |(_, run)| run.end);
        (end == size).then(|| self.of(0..size)).flatten()
    }

    /// Returns ADLER32 of a range that arrived as blocks of its own.
    pub fn of(&self, range: std::ops::Range<u64>) -> Option<Digest> {
        let mut total = AdlerRun {
            end: range.start,
            sum: 1,
        };
        for (&start, &run) in self.0.range(range.clone()) {
            if start != total.end {
                return None;
            }
            total = total.then(run, run.end - start);
        }
        (total.end == range.end).then(|| Digest {
            algorithm: Algorithm::Adler32,
            value: total.sum.to_be_bytes().into(),
        })
    }
}

/// Bytes up to `end` and their sum.
#[derive(Clone, Copy, Debug)]
struct AdlerRun {
    end: u64,
    sum: u32,
}

impl AdlerRun {
    /// Appends a run of `len_bytes`.
    ///
    /// RFC 1950 §8.2: `a` is 1 plus all bytes, `b` the sum of all values of `a`;
    /// so the second `b` grows by its length times what `a` was before.
    fn then(self, next: Self, len_bytes: u64) -> Self {
        let halves = |sum: u32| (u64::from(sum & 0xffff), u64::from(sum >> 16));
        let ((a1, b1), (a2, b2)) = (halves(self.sum), halves(next.sum));
        let a = (a1 + a2 + ADLER_BASE - 1) % ADLER_BASE;
        let b = (b1 + b2 + (len_bytes % ADLER_BASE) * ((a1 + ADLER_BASE - 1) % ADLER_BASE))
            % ADLER_BASE;
        Self {
            end: next.end,
            sum: (b << 16 | a) as u32, // both are below 2^16
        }
    }
}

const ADLER_BASE: u64 = 65521;

/// Most bytes to read again for each block that arrived twice.
const WINDOW_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_answers_for_abc() {
        for text in [
            "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
            "adler32:024d0127",
            "md5:900150983cd24fb0d6963f7d28e17f72",
            "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ] {
            let digest: Digest = text.parse().unwrap();
            assert_eq!(Digest::of(digest.algorithm(), b"abc"), digest);
            assert_eq!(digest.to_string(), text);
        }
        let long = Digest::of(Algorithm::Sha512, b"abc").hex();
        assert!(long.starts_with("ddaf35a193617aba") && long.len() == 128);
    }

    #[test]
    fn algorithm_names_and_values_parse() {
        for (text, by) in [
            ("ADLER32", Algorithm::Adler32),
            ("Sha-256", Algorithm::Sha256),
            ("BLAKE3", Algorithm::Blake3),
        ] {
            assert_eq!(text.parse(), Ok(by));
        }
        assert!("crc32".parse::<Algorithm>().is_err());
        let zeros = Digest::from_hex(Algorithm::Adler32, "1").unwrap();
        assert_eq!(zeros.hex(), "00000001");
        for bad in ["", "123456789", "+1", "0x1", "é"] {
            assert!(Digest::from_hex(Algorithm::Adler32, bad).is_err(), "{bad}");
        }
        for bad in [
            "md5",
            "md5:",
            "md5:90",
            "md6:00",
            "md5:900150983cd24fb0d6963f7d28e17f7g",
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn adler_windows_are_joined_in_the_end() {
        // Zeros only: the block is large, its sum is cheap to name.
        let bytes = vec![0; (WINDOW_BYTES + 3) as usize];
        let cut = (WINDOW_BYTES - 5) as usize;
        let mut parts = AdlerParts::new();
        let part = |from: usize, to: usize| AdlerPart::of(Block::at(from as u64, &bytes[from..to]));
        parts.add(part(cut, bytes.len())); // across the edge: joined with nothing
        parts.add(part(0, 9));
        parts.add(part(9, cut));
        assert_eq!(parts.0.len(), 2);
        let size = bytes.len() as u64;
        assert_eq!(
            parts.total(size),
            Some(Digest::of(Algorithm::Adler32, &bytes))
        );
        parts.add(part(3, 4));
        assert_eq!(parts.unknown(size).to_string(), format!("0-3,4-{cut}"));
    }

    proptest! {
        #[test]
        fn adler_parts_in_any_order_match_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..4000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            again in prop::collection::vec((any::<prop::sample::Index>(), 0..500usize), 0..3),
            seed in any::<prop::sample::Index>(),
        ) {
            let len = bytes.len();
            let mut edges: Vec<usize> = cuts.iter().map(|c| c.index(len + 1)).collect();
            edges.extend([0, len]);
            edges.sort_unstable();
            let mut ranges: Vec<_> = edges.windows(2).map(|w| w[0]..w[1]).collect();
            let turn = seed.index(ranges.len());
            ranges.rotate_left(turn);
            ranges.reverse();
            ranges.extend(again.iter().map(|(at, n)| {
                let start = at.index(len + 1);
                start..(start + n).min(len)
            }));
            let mut parts = AdlerParts::new();
            let part = |r: std::ops::Range<usize>| AdlerPart::of(Block { offset: r.start as u64, bytes: &bytes[r] });
            for r in ranges {
                parts.add(part(r));
            }
            // What duplicates made us forget is read again, as the caller would.
            for r in parts.unknown(len as u64).iter() {
                prop_assert_eq!(parts.total(len as u64), None);
                parts.add(part(r.start as usize..r.end as usize));
            }
            prop_assert_eq!(parts.total(len as u64), Some(Digest::of(Algorithm::Adler32, &bytes)));
            prop_assert!(parts.0.len() <= 1, "joined");
            prop_assert_eq!(parts.total(len as u64 + 1), None);
        }

        #[test]
        fn feeding_in_pieces_is_feeding_at_once(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in any::<prop::sample::Index>()) {
            for by in Algorithm::ALL {
                let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
                let mut hashing = Hashing::new(by);
                hashing.update(head);
                hashing.update(tail);
                let digest = hashing.finish();
                prop_assert_eq!(&digest, &Digest::of(by, &bytes));
                prop_assert_eq!(digest.value().len(), by.len_bytes());
                prop_assert_eq!(digest.to_string().parse(), Ok(digest));
            }
        }
    }
}
