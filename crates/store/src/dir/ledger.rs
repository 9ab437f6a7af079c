//! The record beside a file with appends: how many times each writer has appended, and the append in progress.
//!
//! docs/formats/append-ledger.md has every byte. A header names the file, and two cells in turn have the append in
//! progress. Pages of slots follow, one slot for each writer. Each part has a seal, so a part that a crash tore
//! counts as never written.

use super::{
    now,
    partial::PREFIX,
    record::{blake3_of, read_up_to, u64_at},
};
use crate::{crash, error::gone};
use godwit_sys::{self as sys, Attributes, Folder, Meta, OpenMode};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    time::Duration,
};

/// Returns the name of a file's ledger in its directory. The name is made of the inode, so a renamed file keeps its
/// ledger.
pub(super) fn name_of(inode: u64) -> OsString {
    format!("{PREFIX}{inode:024x}{LEDGER}").into()
}

/// The writer of appends: its identity and number, hashed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct AppendWriter(pub(super) [u8; 16]);

impl AppendWriter {
    pub(super) fn of(identity: &str, number: u64) -> Self {
        let mut text = (identity.len() as u64).to_le_bytes().to_vec();
        text.extend_from_slice(identity.as_bytes());
        text.extend_from_slice(&number.to_le_bytes());
        Self(blake3_of(&text)[..16].try_into().expect("16 of 32 bytes"))
    }

    /// The page that has its slot, if it has one.
    fn page(self) -> u64 {
        PAGES_AT + u64::from(self.0[0]) * PAGE_BYTES as u64
    }
}

/// The last append of a writer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct WriterTurn {
    pub(super) writer: AppendWriter,
    /// The number of its last append; 0: of none yet.
    pub(super) seq: u64,
    /// The first bytes of the hash of that append's bytes.
    pub(super) hash: [u8; HASH_BYTES],
}

/// An append that is about to be written behind the end of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct AppendIntent {
    /// Greater than that of the one before.
    pub(super) count: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The hash of all the bytes.
    pub(super) digest: [u8; 32],
    /// The last append of each writer, once the bytes are there.
    pub(super) turns: Vec<WriterTurn>,
}

/// An open ledger. Its holder has the lock of the file.
#[derive(Debug)]
pub(super) struct Ledger {
    file: File,
    cells: [Option<AppendIntent>; 2],
}

/// The identity of a ledger's file.
#[derive(Clone, Debug, Eq, PartialEq)]
struct LedgerHeader {
    inode: u64,
    /// When the file was made, where the file system knows: inodes are used again.
    birth: Duration,
    /// The name of the file when the ledger was begun: for people, and for the sweep.
    name: Vec<u8>,
}

impl Ledger {
    /// Opens the ledger of a file if there is one.
    pub(super) fn find(folder: &Folder, of: &File, meta: &Meta) -> io::Result<Option<Self>> {
        let file = match folder.open(&name_of(meta.inode), OpenMode::Change, 0) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let own = sys::meta(&file)?;
        if own.kind != sys::FileKind::File {
            return Ok(None);
        }
        if !may_be_believed(&own, meta, sys::user_id()) {
            let why = "the record of its appends belongs to a user who may not write to it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let Some((header, cells)) = read_top(&file)? else {
            return Ok(None);
        };
        let is_of = header.inode == meta.inode && header.birth == birth(of);
        Ok(is_of.then_some(Self { file, cells }))
    }

    /// Begins the ledger of a file that has none, or that of another file that is gone.
    pub(super) fn begin(folder: &Folder, of: &File, meta: &Meta, name: &OsStr) -> io::Result<Self> {
        let own = name_of(meta.inode);
        gone(folder.remove_file(&own))?;
        let file = folder.open(&own, OpenMode::CreateNew, 0o600)?;
        // Every user who may write to the file must be able to write to its ledger.
        let attributes = Attributes {
            owner: Some((meta.uid, meta.gid)),
            mode: Some(meta.mode & 0o666 | 0o600),
            ..Attributes::default()
        };
        folder.dress(&own, &file, &attributes)?;
        // Both names are on disk before the header is written, so a ledger with a header needs no other sync.
        folder.sync()?;
        crash::point("append.ledger-made");
        let header = LedgerHeader {
            inode: meta.inode,
            birth: birth(of),
            name: name.as_bytes().to_vec(),
        };
        file.write_all_at(&header.encode(), 0)?;
        Ok(Self {
            file,
            cells: [None, None],
        })
    }

    /// Returns the last append of a writer.
    pub(super) fn turn(&self, writer: AppendWriter) -> io::Result<Option<WriterTurn>> {
        let page = self.page(writer)?;
        Ok(page.find(writer).map(|(_, slot)| slot.turn))
    }

    /// Returns the appends that may be incomplete, the older one first.
    pub(super) fn outstanding(&self) -> io::Result<Vec<AppendIntent>> {
        let mut intents: Vec<&AppendIntent> = self.cells.iter().flatten().collect();
        intents.sort_by_key(|intent| intent.count);
        let mut outstanding = Vec::new();
        for intent in intents {
            for turn in &intent.turns {
                if self.turn(turn.writer)?.is_none_or(|at| at.seq < turn.seq) {
                    outstanding.push(intent.clone());
                    break;
                }
            }
        }
        Ok(outstanding)
    }

    /// Persists the intent to append, before the first byte is written.
    pub(super) fn intend(&mut self, mut intent: AppendIntent) -> io::Result<AppendIntent> {
        let last = self.cells.iter().flatten().map(|intent| intent.count).max();
        intent.count = last.unwrap_or(0).wrapping_add(1);
        // Room for the slots first: when the bytes are there it must not be missing.
        for turn in &intent.turns {
            self.reserve(turn.writer)?;
        }
        let cell = (intent.count % 2) as usize;
        self.file.write_all_at(&intent.encode(), cell_at(cell))?;
        self.cells[cell] = Some(intent.clone());
        crash::point("append.said");
        self.sync()?;
        crash::point("append.intended");
        Ok(intent)
    }

    /// Notes that the bytes are durable. The note itself is synced before the next append but one reuses its cell.
    pub(super) fn note(&self, intent: &AppendIntent) -> io::Result<()> {
        intent.turns.iter().try_for_each(|turn| self.put(*turn))
    }

    /// Notes that the bytes are not in the file, and never will be.
    pub(super) fn forget(&mut self, intent: &AppendIntent) -> io::Result<()> {
        let cell = (intent.count % 2) as usize;
        self.file.write_all_at(&[0; CELL_BYTES], cell_at(cell))?;
        self.cells[cell] = None;
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        crash::sync(&self.file)
    }

    fn page(&self, writer: AppendWriter) -> io::Result<LedgerPage> {
        let at = writer.page();
        let mut bytes = vec![0; PAGE_BYTES];
        read_up_to(&self.file, &mut bytes, at)?;
        Ok(LedgerPage { at, bytes })
    }

    fn reserve(&self, writer: AppendWriter) -> io::Result<()> {
        match self.turn(writer)? {
            Some(_) => Ok(()),
            None => self.put(WriterTurn {
                writer,
                seq: 0,
                hash: [0; HASH_BYTES],
            }),
        }
    }

    fn put(&self, turn: WriterTurn) -> io::Result<()> {
        let page = self.page(turn.writer)?;
        let is_needed = |writer| {
            let mut turns = self.cells.iter().flatten().flat_map(|cell| &cell.turns);
            turns.any(|turn| turn.writer == writer)
        };
        let used_at = now();
        let at = match page.find(turn.writer) {
            Some((at, _)) => at,
            None => page.room(used_at, &is_needed).ok_or_else(full)?,
        };
        let slot = LedgerSlot { turn, used_at };
        self.file.write_all_at(&slot.encode(at), at)
    }
}

/// Tells whether only a user who may write to the file can have written its ledger. The ledger decides where the file
/// is cut, and any user of the directory could forge one.
fn may_be_believed(ledger: &Meta, file: &Meta, us: u32) -> bool {
    let of_group = file.mode & 0o020 != 0 && ledger.gid == file.gid;
    ledger.uid == file.uid || ledger.uid == us || of_group || file.mode & 0o002 != 0
}

fn full() -> io::Error {
    io::Error::new(
        io::ErrorKind::StorageFull,
        "more writers append to it than can be remembered",
    )
}

/// Tells whether a ledger's file is gone: no file has the name in the ledger, and the last append is long ago.
pub(super) fn is_orphan(folder: &Folder, name: &OsStr, age: Duration) -> bool {
    let Ok(file) = folder.open(name, OpenMode::Read, 0) else {
        return false;
    };
    let Ok(meta) = sys::meta(&file) else {
        return false;
    };
    if now().saturating_sub(meta.mtime) < age {
        return false;
    }
    match read_top(&file) {
        Ok(Some((header, _))) => {
            let named = folder.meta(OsStr::from_bytes(&header.name));
            !named.is_ok_and(|named| named.inode == header.inode)
        }
        Ok(None) => true,
        Err(_) => false,
    }
}

/// A ledger that was copied to where its file is about to be.
#[derive(Debug)]
pub(super) struct Carried {
    /// The lock of the ledger, so that no append runs meanwhile.
    _locked: File,
    name: OsString,
}

impl Carried {
    /// Copies the ledger of a file that gets a name in another directory.
    pub(super) fn begin(
        from: &Folder,
        of: &OsStr,
        meta: &Meta,
        to: &Folder,
    ) -> io::Result<Option<Self>> {
        let name = name_of(meta.inode);
        let ledger = match from.open(&name, OpenMode::Read, 0) {
            Ok(ledger) => ledger,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let here = |folder: &Folder| folder.meta(OsStr::new(".")).map(|m| (m.device, m.inode));
        if here(from)? == here(to)? {
            return Ok(None);
        }
        let file = from.open(of, OpenMode::Read, 0)?;
        super::append::lock(&file)?;
        let meta = sys::meta(&ledger)?;
        gone(to.remove_file(&name))?;
        let copy = to.open(&name, OpenMode::CreateNew, 0o600)?;
        let copied = copy_slowly(&ledger, &copy, meta.size).and_then(|()| {
            let attributes = Attributes {
                owner: Some((meta.uid, meta.gid)),
                mode: Some(meta.mode),
                ..Attributes::default()
            };
            to.dress(&name, &copy, &attributes)?;
            copy.sync_all()?;
            to.sync()
        });
        let carried = Self {
            _locked: file,
            name,
        };
        match copied {
            Ok(()) => Ok(Some(carried)),
            Err(e) => {
                let _ = to.remove_file(&carried.name);
                Err(e)
            }
        }
    }

    /// Removes the one that is not needed any more.
    pub(super) fn end(self, folder: &Folder) {
        // One that stays is of no file there: a sweep takes it.
        let _ = folder.remove_file(&self.name);
    }
}

/// Copies all ranges that are not holes.
fn copy_slowly(from: &File, to: &File, size: u64) -> io::Result<()> {
    let mut page = vec![0; PAGE_BYTES];
    for at in (0..size).step_by(PAGE_BYTES) {
        let len = read_up_to(from, &mut page, at)?;
        if page[..len].iter().any(|&b| b != 0) {
            to.write_all_at(&page[..len], at)?;
        }
    }
    to.set_len(size)
}

/// The ledger of a file that is about to lose its only name.
#[derive(Debug)]
pub(super) struct Doomed {
    name: OsString,
    /// While the file is open, no other file has its inode and thereby its ledger.
    _file: File,
}

impl Doomed {
    pub(super) fn find(folder: &Folder, of: &OsStr, meta: &Meta) -> Option<Self> {
        if meta.kind != sys::FileKind::File || meta.links > 1 {
            return None;
        }
        let name = name_of(meta.inode);
        folder.meta(&name).ok()?;
        let file = folder.open(of, OpenMode::Name, 0).ok()?;
        let is_it = sys::meta(&file).is_ok_and(|is| is.inode == meta.inode);
        is_it.then_some(Self { name, _file: file })
    }

    pub(super) fn remove(self, folder: &Folder) {
        // One that stays is of no file: a sweep takes it.
        let _ = folder.remove_file(&self.name);
    }
}

fn birth(file: &File) -> Duration {
    sys::birth(file).ok().flatten().unwrap_or_default()
}

type Top = (LedgerHeader, [Option<AppendIntent>; 2]);

/// `None`: it is no ledger.
fn read_top(file: &File) -> io::Result<Option<Top>> {
    let mut top = vec![0; PAGES_AT as usize];
    read_up_to(file, &mut top, 0)?;
    let cell = |n: usize| {
        let at = cell_at(n) as usize;
        AppendIntent::decode(&top[at..at + CELL_BYTES], n)
    };
    Ok(LedgerHeader::decode(&top[..HEADER_BYTES]).map(|header| (header, [cell(0), cell(1)])))
}

fn cell_at(n: usize) -> u64 {
    (HEADER_BYTES + n * CELL_BYTES) as u64
}

impl LedgerHeader {
    fn encode(&self) -> Vec<u8> {
        let name = &self.name[..self.name.len().min(NAME_BYTES_MAX)];
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&self.inode.to_le_bytes());
        out.extend_from_slice(&self.birth.as_secs().to_le_bytes());
        out.extend_from_slice(&self.birth.subsec_nanos().to_le_bytes());
        out.extend_from_slice(&(name.len() as u32).to_le_bytes()); // bounded above
        out.extend_from_slice(name);
        let sum = seal_of(&out[16..], 0);
        out[8..16].copy_from_slice(&sum);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let len = u32::from_le_bytes(bytes.get(36..40)?.try_into().ok()?) as usize;
        let all = bytes.get(..NAME_AT + len.min(NAME_BYTES_MAX))?;
        let nanos = u32::from_le_bytes(all[32..36].try_into().ok()?);
        let is_sound = all[..8] == *MAGIC && all[8..16] == seal_of(&all[16..], 0);
        (is_sound && nanos < 1_000_000_000).then(|| Self {
            inode: u64_at(all, 16),
            birth: Duration::new(u64_at(all, 24), nanos),
            name: all[NAME_AT..].to_vec(),
        })
    }
}

impl AppendIntent {
    fn encode(&self) -> Vec<u8> {
        assert!(self.turns.len() <= TURNS_MAX, "bounded by who gathers them");
        let mut out = vec![0; 8];
        for number in [self.count, self.offset, self.len, self.turns.len() as u64] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.digest);
        for turn in &self.turns {
            turn.encode(&mut out);
        }
        out.resize(CELL_BYTES, 0);
        let sum = seal_of(&out[8..], cell_at((self.count % 2) as usize));
        out[..8].copy_from_slice(&sum);
        out
    }

    /// Reads a cell; `None` if it is empty or torn.
    fn decode(bytes: &[u8], cell: usize) -> Option<Self> {
        let count = u64_at(bytes, 8);
        let turns = u64_at(bytes, 32);
        let is_sound = bytes[..8] == seal_of(&bytes[8..], cell_at(cell))
            && count % 2 == cell as u64
            && turns <= TURNS_MAX as u64;
        is_sound.then(|| Self {
            count,
            offset: u64_at(bytes, 16),
            len: u64_at(bytes, 24),
            digest: bytes[40..72].try_into().expect("32 bytes"),
            turns: bytes[72..]
                .chunks_exact(TURN_BYTES)
                .take(turns as usize)
                .map(WriterTurn::decode)
                .collect(),
        })
    }
}

impl WriterTurn {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.writer.0);
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.hash);
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            writer: AppendWriter(bytes[..16].try_into().expect("16 bytes")),
            seq: u64_at(bytes, 16),
            hash: bytes[24..TURN_BYTES].try_into().expect("24 bytes"),
        }
    }
}

/// The entry of a writer in a ledger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct LedgerSlot {
    turn: WriterTurn,
    used_at: Duration,
}

impl LedgerSlot {
    fn encode(&self, at: u64) -> Vec<u8> {
        let mut out = vec![0; 8];
        out.extend_from_slice(&self.used_at.as_secs().to_le_bytes());
        self.turn.encode(&mut out);
        let sum = seal_of(&out[8..], at);
        out[..8].copy_from_slice(&sum);
        out
    }

    fn decode(bytes: &[u8], at: u64) -> Option<Self> {
        (bytes[..8] == seal_of(&bytes[8..], at)).then(|| Self {
            used_at: Duration::from_secs(u64_at(bytes, 8)),
            turn: WriterTurn::decode(&bytes[16..]),
        })
    }
}

/// Slots that writers of one beginning share.
struct LedgerPage {
    at: u64,
    bytes: Vec<u8>,
}

impl LedgerPage {
    fn slots(&self) -> impl Iterator<Item = (u64, Option<LedgerSlot>)> {
        let slots = self.bytes.chunks_exact(SLOT_BYTES).enumerate();
        slots.map(|(i, bytes)| {
            let at = self.at + (i * SLOT_BYTES) as u64;
            (at, LedgerSlot::decode(bytes, at))
        })
    }

    fn find(&self, writer: AppendWriter) -> Option<(u64, LedgerSlot)> {
        let mut slots = self.slots().filter_map(|(at, slot)| Some((at, slot?)));
        slots.find(|(_, slot)| slot.turn.writer == writer)
    }

    /// Returns a slot for another writer. That is an empty one, or the one that was unused for longest, if that is
    /// long enough.
    fn room(&self, now: Duration, is_needed: &dyn Fn(AppendWriter) -> bool) -> Option<u64> {
        if let Some((at, _)) = self.slots().find(|(_, slot)| slot.is_none()) {
            return Some(at);
        }
        let idle = |slot: &LedgerSlot| now.saturating_sub(slot.used_at) >= FORGOTTEN_AFTER;
        let slots = self.slots().filter_map(|(at, slot)| Some((at, slot?)));
        slots
            .filter(|(_, slot)| idle(slot) && !is_needed(slot.turn.writer))
            .min_by_key(|(_, slot)| slot.used_at)
            .map(|(at, _)| at)
    }
}

/// The first bytes of the hash of bytes and their place.
fn seal_of(bytes: &[u8], place: u64) -> [u8; 8] {
    let mut hashed = place.to_le_bytes().to_vec();
    hashed.extend_from_slice(bytes);
    blake3_of(&hashed)[..8].try_into().expect("8 of 32 bytes")
}

/// The end of the name of a ledger.
pub(super) const LEDGER: &str = ".seqs";

/// The last letter is the version of the format.
const MAGIC: &[u8; 8] = b"godwitA1";
const HEADER_BYTES: usize = 4096;
const NAME_AT: usize = 40;
const NAME_BYTES_MAX: usize = 1024;
/// Two cells: while one is written the other is whole.
const CELL_BYTES: usize = 4096;
const PAGES_AT: u64 = (HEADER_BYTES + 2 * CELL_BYTES) as u64;
const PAGE_BYTES: usize = 4096;
/// A slot never spans two sectors of a disk.
const SLOT_BYTES: usize = 64;
const TURN_BYTES: usize = 48;
pub(super) const HASH_BYTES: usize = 24;
/// The most writers of one cell.
pub(super) const TURNS_MAX: usize = 64;

/// A writer that has not appended for this long loses its slot if others need one.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(n: u8) -> WriterTurn {
        WriterTurn {
            writer: AppendWriter([n; 16]),
            seq: u64::from(n) << 40,
            hash: [n; HASH_BYTES],
        }
    }

    #[test]
    fn a_header_torn_anywhere_is_none() {
        let header = LedgerHeader {
            inode: 9,
            birth: Duration::new(3, 4),
            name: b"hard\xffname\n".to_vec(),
        };
        let mut good = header.encode();
        good.resize(HEADER_BYTES, 0);
        assert_eq!(LedgerHeader::decode(&good), Some(header.clone()));
        for at in 0..header.encode().len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(LedgerHeader::decode(&bad), None, "byte {at}");
        }
        let long = LedgerHeader {
            name: vec![b'x'; 1 << 20],
            ..header
        };
        assert!(long.encode().len() <= HEADER_BYTES);
        assert_eq!(LedgerHeader::decode(&[0; HEADER_BYTES]), None);
    }

    #[test]
    fn an_intent_torn_anywhere_is_none() {
        let intent = AppendIntent {
            count: 7,
            offset: 1 << 40,
            len: 5,
            digest: [3; 32],
            turns: (0..TURNS_MAX as u8).map(turn).collect(),
        };
        let good = intent.encode();
        assert_eq!(good.len(), CELL_BYTES);
        assert_eq!(AppendIntent::decode(&good, 1), Some(intent));
        assert_eq!(
            AppendIntent::decode(&good, 0),
            None,
            "it belongs to another cell"
        );
        for at in 0..CELL_BYTES {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(AppendIntent::decode(&bad, 1), None, "byte {at}");
        }
        assert_eq!(AppendIntent::decode(&[0; CELL_BYTES], 0), None);
    }

    /// Inodes are used again.
    #[test]
    fn ledger_with_other_birth_time_is_void() {
        let place = super::super::tests::Scratch::new();
        let folder = sys::Root::open(&place.0).unwrap();
        let folder = folder.folder("".as_ref()).unwrap();
        let file = File::create(place.0.join("log")).unwrap();
        let meta = sys::meta(&file).unwrap();
        if birth(&file).is_zero() {
            eprintln!("skipped: this file system does not tell when a file was made");
            return;
        }
        Ledger::begin(&folder, &file, &meta, OsStr::new("log")).unwrap();
        let header = LedgerHeader {
            inode: meta.inode,
            birth: birth(&file),
            name: b"log".to_vec(),
        };
        let is_found = |header: &LedgerHeader| {
            let ledger = folder
                .open(&name_of(meta.inode), OpenMode::Change, 0)
                .unwrap();
            ledger.write_all_at(&header.encode(), 0).unwrap();
            Ledger::find(&folder, &file, &meta).unwrap().is_some()
        };
        assert!(is_found(&header));
        assert!(!is_found(&LedgerHeader {
            birth: header.birth + Duration::from_nanos(1),
            ..header.clone()
        }));
        assert!(!is_found(&LedgerHeader {
            inode: meta.inode + 1,
            ..header
        }));
    }

    #[test]
    fn ledger_needs_writer_rights_to_be_believed() {
        let meta = |uid, gid, mode| Meta {
            kind: sys::FileKind::File,
            size: 0,
            mode,
            uid,
            gid,
            mtime: Duration::ZERO,
            ctime: Duration::ZERO,
            device: 1,
            inode: 2,
            links: 1,
        };
        let is = |ledger: (u32, u32), file: (u32, u32, u32)| {
            let (of_ledger, of_file) = (
                meta(ledger.0, ledger.1, 0o600),
                meta(file.0, file.1, file.2),
            );
            may_be_believed(&of_ledger, &of_file, 7)
        };
        assert!(is((1, 1), (1, 5, 0o644)), "its owner");
        assert!(is((7, 1), (1, 5, 0o644)), "we");
        assert!(is((2, 5), (1, 5, 0o664)), "one of its group");
        assert!(is((2, 2), (1, 5, 0o666)), "anybody");
        assert!(
            !is((2, 5), (1, 5, 0o644)),
            "one of the group, who may only read"
        );
        assert!(!is((2, 2), (1, 5, 0o664)), "one of another group");
    }

    #[test]
    fn full_page_evicts_only_idle_writers() {
        let day = Duration::from_secs(86_400);
        let now = 100 * day;
        let page = |used_at: &dyn Fn(u64) -> Duration| {
            let slot = |i: u64| {
                let slot = LedgerSlot {
                    turn: turn(i as u8),
                    used_at: used_at(i),
                };
                slot.encode(PAGES_AT + i * SLOT_BYTES as u64)
            };
            let bytes: Vec<u8> = (0..64).flat_map(slot).collect();
            assert_eq!(bytes.len(), PAGE_BYTES);
            LedgerPage {
                at: PAGES_AT,
                bytes,
            }
        };
        let nobody = |_: AppendWriter| false;
        let busy = page(&|_| now - 29 * day);
        assert_eq!(busy.room(now, &nobody), None);
        let idle = page(&|i| {
            if i == 5 {
                now - 40 * day
            } else {
                now - 31 * day
            }
        });
        assert_eq!(idle.room(now, &nobody), Some(PAGES_AT + 5 * 64));
        let needed = |writer: AppendWriter| writer == turn(5).writer;
        assert_eq!(idle.room(now, &needed), Some(PAGES_AT));
        assert_eq!(idle.find(turn(7).writer).unwrap().1.turn, turn(7));
        let mut holed = page(&|_| now);
        holed.bytes[640..704].fill(0);
        assert_eq!(holed.room(now, &nobody), Some(PAGES_AT + 640));
        assert_eq!(holed.find(turn(10).writer), None);
    }
}
