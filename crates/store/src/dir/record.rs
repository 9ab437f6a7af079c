//! The record beside a partial: which bytes landed, and their hashes.
//!
//! docs/formats/partial.md has every byte. A header describes the partial, and two cells in turn have the last synced
//! epoch. A slot of fixed size for each leaf follows. Each has its own checksum, so a slot that a crash tore counts
//! as never written.

use crate::Origin;
use godwit_core::{Algorithm, Chain, Digest, Version, leaf_range};
use std::{fs::File, io, ops::Range, os::unix::fs::FileExt, time::Duration};

/// The identity of a partial: its target, its length and its source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RecordHeader {
    /// The inode of the partial: the record of another one is void.
    pub(super) inode: u64,
    pub(super) size: Option<u64>,
    pub(super) origin: Option<Origin>,
    /// Identity, path and id, hashed.
    pub(super) key: [u8; 32],
    /// Readable for people and tools; the key decides.
    pub(super) path: Vec<u8>,
}

/// The landed ranges of one leaf.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct LeafSlot {
    pub(super) boot: [u8; 16],
    pub(super) epoch: u64,
    /// Offsets in the leaf.
    pub(super) ranges: Vec<Range<u32>>,
    pub(super) chain: Option<Chain>,
}

/// An open record.
#[derive(Debug)]
pub(super) struct PartialRecord {
    file: File,
    commits: u64,
}

/// A record as it was found.
#[derive(Debug)]
pub(super) struct FoundRecord {
    pub(super) header: RecordHeader,
    /// Slots of this epoch and earlier ones survive a power cut.
    pub(super) synced: u64,
    pub(super) commits: u64,
    pub(super) slots: Vec<(u64, LeafSlot)>,
}

impl PartialRecord {
    /// Begins a record in an empty file.
    pub(super) fn begin(file: File, header: &RecordHeader) -> io::Result<Self> {
        file.write_all_at(&header.encode(), 0)?;
        Ok(Self { file, commits: 0 })
    }

    /// Continues a record that was found.
    pub(super) fn go_on(file: File, found: &FoundRecord) -> Self {
        Self {
            file,
            commits: found.commits,
        }
    }

    /// Writes the landed ranges of a leaf.
    pub(super) fn write(&self, leaf: u64, slot: &LeafSlot) -> io::Result<()> {
        let at = leaf
            .checked_mul(SLOT_BYTES as u64)
            .and_then(|at| at.checked_add(SLOTS_AT));
        let at = at.ok_or(io::ErrorKind::FileTooLarge)?;
        self.file.write_all_at(&slot.encode(leaf), at)
    }

    /// Notes that after a power cut no slot counts before its leaf was read.
    pub(super) fn distrust(&mut self) -> io::Result<()> {
        self.commit(0)
    }

    /// Notes that all slots up to this epoch, and their bytes, are durable.
    pub(super) fn commit(&mut self, epoch: u64) -> io::Result<()> {
        // The slots first: the cell speaks of them.
        self.file.sync_data()?;
        self.commits += 1;
        let at = CELLS_AT + self.commits % 2 * CELL_STEP;
        let mut cell = [0; CELL_BYTES];
        cell[8..16].copy_from_slice(&self.commits.to_le_bytes());
        cell[16..24].copy_from_slice(&epoch.to_le_bytes());
        seal(&mut cell, at);
        self.file.write_all_at(&cell, at)?;
        self.file.sync_data()
    }
}

impl FoundRecord {
    /// Reads a record; `None` if there is no valid one.
    pub(super) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut top = vec![0; SLOTS_AT as usize];
        let len = read_up_to(file, &mut top, 0)?;
        let Some(header) = RecordHeader::decode(&top[..len]) else {
            return Ok(None);
        };
        let (commits, synced) = newest_cell(&top);
        Ok(Some(Self {
            header,
            synced,
            commits,
            slots: read_slots(file)?,
        }))
    }
}

fn newest_cell(top: &[u8]) -> (u64, u64) {
    let cell = |n: u64| {
        let at = CELLS_AT + n * CELL_STEP;
        let cell = top.get(at as usize..at as usize + CELL_BYTES)?;
        is_sealed(cell, at).then(|| (u64_at(cell, 8), u64_at(cell, 16)))
    };
    [cell(0), cell(1)]
        .into_iter()
        .flatten()
        .max()
        .unwrap_or((0, 0))
}

fn read_slots(file: &File) -> io::Result<Vec<(u64, LeafSlot)>> {
    let (mut slots, mut buffer) = (Vec::new(), vec![0; SLOT_BYTES * 512]);
    let mut leaf = 0;
    loop {
        // Most of the record of a huge file may be a hole.
        let at = SLOTS_AT + leaf * SLOT_BYTES as u64;
        match godwit_sys::next_data(file, at) {
            Ok(None) => return Ok(slots),
            Ok(Some(data)) => leaf = (data.max(SLOTS_AT) - SLOTS_AT) / SLOT_BYTES as u64,
            Err(_) => {} // This file system cannot tell.
        }
        let len = read_up_to(file, &mut buffer, SLOTS_AT + leaf * SLOT_BYTES as u64)?;
        if len < SLOT_BYTES {
            return Ok(slots);
        }
        for bytes in buffer[..len].chunks_exact(SLOT_BYTES) {
            slots.extend(LeafSlot::decode(bytes, leaf).map(|slot| (leaf, slot)));
            leaf += 1;
        }
    }
}

pub(super) fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read_at(&mut buffer[len..], at + len as u64)? {
            0 => break,
            n => len += n,
        }
    }
    Ok(len)
}

impl RecordHeader {
    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.resize(FIXED_BYTES, 0);
        out[48..56].copy_from_slice(&self.inode.to_le_bytes());
        out[56..64].copy_from_slice(&self.size.unwrap_or(u64::MAX).to_le_bytes());
        out[64..96].copy_from_slice(&self.key);
        let (name, version) = match &self.origin {
            Some(origin) => (
                bounded(origin.name.as_bytes(), NAME_BYTES_MAX),
                encode_version(&origin.version),
            ),
            None => (Vec::new(), vec![0]),
        };
        let path = bounded(&self.path, NAME_BYTES_MAX);
        for text in [&version, &name, &path] {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes()); // bounded
            out.extend_from_slice(text);
        }
        let len = out.len() as u32; // at most 3 bounded texts
        out[8..12].copy_from_slice(&len.to_le_bytes());
        let sum = blake3_of(&out[48..]);
        out[16..48].copy_from_slice(&sum);
        out
    }

    fn decode(top: &[u8]) -> Option<Self> {
        let len = u32::from_le_bytes(top.get(8..12)?.try_into().ok()?) as usize;
        let all = top.get(..len.min(CELLS_AT as usize))?;
        if all.len() < FIXED_BYTES || &all[..8] != MAGIC || all[16..48] != blake3_of(&all[48..]) {
            return None;
        }
        let mut rest = &all[FIXED_BYTES..];
        let mut text = || {
            let (len, after) = rest.split_at_checked(4)?;
            let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
            let (text, after) = after.split_at_checked(len)?;
            rest = after;
            Some(text)
        };
        let (version, name, path) = (text()?, text()?, text()?);
        let origin = match version {
            [0] => None,
            version => Some(Origin {
                name: String::from_utf8(name.to_vec()).ok()?,
                version: decode_version(version)?,
            }),
        };
        let size = u64_at(all, 56);
        Some(Self {
            inode: u64_at(all, 48),
            size: (size != u64::MAX).then_some(size),
            origin,
            key: all[64..96].try_into().ok()?,
            path: path.to_vec(),
        })
    }
}

/// An origin as the record can keep it: a name that is too long is kept as its hash.
pub(super) fn keepable(origin: &Origin) -> Origin {
    let name = bounded(origin.name.as_bytes(), NAME_BYTES_MAX);
    Origin {
        name: String::from_utf8(name).unwrap_or_default(),
        version: origin.version.clone(),
    }
}

fn bounded(text: &[u8], len_max: usize) -> Vec<u8> {
    match text.len() > len_max {
        true => Digest::of(Algorithm::Blake3, text).to_string().into_bytes(),
        false => text.to_vec(),
    }
}

fn encode_version(version: &Version) -> Vec<u8> {
    let encoded = encode_any_version(version);
    // A name of content that is too long to be kept: the next copy begins anew.
    if encoded.len() > NAME_BYTES_MAX {
        vec![1]
    } else {
        encoded
    }
}

fn encode_any_version(version: &Version) -> Vec<u8> {
    match version {
        Version::None => vec![1],
        Version::Weak {
            size,
            mtime,
            seen_at,
            ..
        } => {
            let mut out = vec![2];
            out.extend_from_slice(&size.to_le_bytes());
            for time in [mtime, seen_at] {
                out.extend_from_slice(&time.as_secs().to_le_bytes());
                out.extend_from_slice(&time.subsec_nanos().to_le_bytes());
            }
            out
        }
        Version::Generation { server, name } => {
            let server = (server.len() as u32)
                .to_le_bytes()
                .into_iter()
                .chain(server.bytes());
            [4].into_iter().chain(server).chain(name.bytes()).collect()
        }
        Version::Strong(digest) => [&[3], digest.to_string().as_bytes()].concat(),
    }
}

fn decode_version(bytes: &[u8]) -> Option<Version> {
    let (&kind, rest) = bytes.split_first()?;
    match kind {
        1 if rest.is_empty() => Some(Version::None),
        2 if rest.len() == 32 => {
            let time = |at: usize| {
                let nanos = u32::from_le_bytes(rest[at + 8..at + 12].try_into().ok()?);
                (nanos < 1_000_000_000).then(|| Duration::new(u64_at(rest, at), nanos))
            };
            Some(Version::Weak {
                size: u64_at(rest, 0),
                mtime: time(8)?,
                seen_at: time(20)?,
                touched: None,
            })
        }
        4 => {
            let (len, rest) = rest.split_at_checked(4)?;
            let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
            let (server, name) = rest.split_at_checked(len)?;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
            Some(Version::Generation {
                server: text(server)?,
                name: text(name)?,
            })
        }
        3 => Some(Version::Strong(str::from_utf8(rest).ok()?.parse().ok()?)),
        _ => None,
    }
}

impl LeafSlot {
    /// Returns the slot for the ranges of a leaf, and whether the slot has all of them. Of a leaf in many splinters
    /// it has the longest ones.
    pub(super) fn of(leaf: u64, ranges: impl Iterator<Item = Range<u64>>) -> (Self, bool) {
        let start = leaf_range(leaf).start;
        let mut ranges: Vec<Range<u32>> = ranges
            .map(|r| (r.start - start) as u32..(r.end - start) as u32) // within a leaf of 1 MiB
            .collect();
        let is_all = ranges.len() <= RANGES_MAX;
        if !is_all {
            ranges.sort_by_key(|r| std::cmp::Reverse(r.end - r.start));
            ranges.truncate(RANGES_MAX);
            ranges.sort_by_key(|r| r.start);
        }
        (
            Self {
                ranges,
                ..Self::default()
            },
            is_all,
        )
    }

    /// Returns its ranges as offsets in the file.
    pub(super) fn in_file(&self, leaf: u64) -> Vec<Range<u64>> {
        let start = leaf_range(leaf).start;
        self.ranges
            .iter()
            .map(|r| start + u64::from(r.start)..start + u64::from(r.end))
            .collect()
    }

    fn encode(&self, leaf: u64) -> [u8; SLOT_BYTES] {
        let mut out = [0; SLOT_BYTES];
        out[8..24].copy_from_slice(&self.boot);
        out[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        if let Some(chain) = self.chain {
            out[32..64].copy_from_slice(&chain.0);
            out[64] = 1;
        }
        out[65] = self.ranges.len() as u8; // at most RANGES_MAX
        for (range, bytes) in self.ranges.iter().zip(out[68..].chunks_exact_mut(8)) {
            bytes[..4].copy_from_slice(&range.start.to_le_bytes());
            bytes[4..].copy_from_slice(&range.end.to_le_bytes());
        }
        seal(&mut out, leaf);
        out
    }

    fn decode(bytes: &[u8], leaf: u64) -> Option<Self> {
        if bytes.iter().all(|&b| b == 0) || !is_sealed(bytes, leaf) {
            return None;
        }
        let count = usize::from(bytes[65]);
        let ranges: Vec<Range<u32>> = bytes[68..]
            .chunks_exact(8)
            .take(count)
            .map(|r| u64_at(r, 0))
            .map(|both| both as u32..(both >> 32) as u32)
            .collect();
        let sound = count <= RANGES_MAX
            && ranges
                .iter()
                .all(|r| r.start < r.end && r.end <= godwit_core::LEAF_BYTES as u32)
            && ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
        sound.then(|| Self {
            boot: bytes[8..24].try_into().expect("16 bytes"),
            epoch: u64_at(bytes, 24),
            ranges,
            chain: (bytes[64] == 1).then(|| Chain(bytes[32..64].try_into().expect("32 bytes"))),
        })
    }
}

/// Puts a checksum in front that also covers where the bytes belong.
pub(super) fn seal(bytes: &mut [u8], place: u64) {
    let sum = seal_of(&bytes[8..], place);
    bytes[..8].copy_from_slice(&sum);
}

pub(super) fn is_sealed(bytes: &[u8], place: u64) -> bool {
    bytes[..8] == seal_of(&bytes[8..], place)
}

fn seal_of(bytes: &[u8], place: u64) -> [u8; 8] {
    let mut hashed = [0; 8 + SLOT_BYTES];
    hashed[..8].copy_from_slice(&place.to_le_bytes());
    hashed[8..8 + bytes.len()].copy_from_slice(bytes);
    let sum = blake3_of(&hashed[..8 + bytes.len()]);
    sum[..8].try_into().expect("8 of 32 bytes")
}

pub(super) fn blake3_of(bytes: &[u8]) -> [u8; 32] {
    let digest = Digest::of(Algorithm::Blake3, bytes);
    digest.value().try_into().expect("BLAKE3 has 32 bytes")
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The last letter is the version of the format.
const MAGIC: &[u8; 8] = b"godwitP1";
const FIXED_BYTES: usize = 96;
const NAME_BYTES_MAX: usize = 4096;
/// Two cells, in different sectors: while one is written the other is whole.
const CELLS_AT: u64 = 15 * 1024;
const CELL_STEP: u64 = 512;
const CELL_BYTES: usize = 24;
const SLOTS_AT: u64 = 16 * 1024;
const SLOT_BYTES: usize = 128;
const RANGES_MAX: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        RecordHeader {
            inode: 7,
            size: Some(5 << 30),
            origin: Some(Origin {
                name: "ftp://host/a b".into(),
                version: Version::Weak {
                    size: 9,
                    mtime: Duration::new(3, 4),
                    seen_at: Duration::new(5, 6),
                    touched: None,
                },
            }),
            key: [9; 32],
            path: b"hard\xffname\n".to_vec(),
        }
    }

    #[test]
    fn a_header_comes_back_as_it_was() {
        let strong = Version::Strong(Digest::of(Algorithm::Sha256, b"x"));
        let generation = Version::Generation {
            server: "a:80".into(),
            name: "\"x\"".into(),
        };
        for version in [
            header().origin.unwrap().version,
            Version::None,
            strong,
            generation,
        ] {
            let mut header = header();
            header.origin.as_mut().unwrap().version = version;
            assert_eq!(RecordHeader::decode(&header.encode()), Some(header));
        }
        let nameless = RecordHeader {
            origin: None,
            size: None,
            ..header()
        };
        assert_eq!(RecordHeader::decode(&nameless.encode()), Some(nameless));
    }

    #[test]
    fn header_with_changed_byte_is_void() {
        let good = header().encode();
        for at in (0..good.len()).filter(|at| !(12..16).contains(at)) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(RecordHeader::decode(&bad), None, "byte {at}");
        }
        for len in 0..good.len() {
            assert_eq!(RecordHeader::decode(&good[..len]), None);
        }
    }

    #[test]
    fn a_header_never_reaches_the_cells() {
        let mut long = header();
        long.path = vec![b'x'; 1 << 20];
        long.origin.as_mut().unwrap().name = "y".repeat(1 << 20);
        let kept = RecordHeader::decode(&long.encode()).unwrap();
        assert!(long.encode().len() < CELLS_AT as usize);
        assert_eq!(kept.origin, Some(keepable(&long.origin.unwrap())));
    }

    #[test]
    fn a_slot_torn_anywhere_is_none() {
        let slot = LeafSlot {
            boot: [1; 16],
            epoch: 3,
            ranges: vec![0..5, 9..1 << 20],
            chain: Some(Chain([8; 32])),
        };
        let good = slot.encode(4);
        assert_eq!(LeafSlot::decode(&good, 4), Some(slot));
        assert_eq!(
            LeafSlot::decode(&good, 5),
            None,
            "it belongs to another leaf"
        );
        for at in 0..SLOT_BYTES {
            let mut bad = good;
            bad[at] ^= 0x10;
            assert_eq!(LeafSlot::decode(&bad, 4), None, "byte {at}");
        }
        assert_eq!(LeafSlot::decode(&[0; SLOT_BYTES], 0), None);
    }

    #[test]
    fn of_many_splinters_the_longest_are_kept() {
        let base = leaf_range(3).start;
        let splinters = (0..9u64).map(|i| base + 100 * i..base + 100 * i + 1 + i);
        let (slot, is_all) = LeafSlot::of(3, splinters);
        assert!(!is_all);
        assert_eq!(slot.ranges.len(), RANGES_MAX);
        assert_eq!(slot.in_file(3)[0], base + 200..base + 203);
        assert_eq!(LeafSlot::decode(&slot.encode(3), 3), Some(slot));
    }
}
