//! The directory as a store: the promises of this store alone.

mod again;
mod appends;
mod became;
mod crashes;
mod publish;

use super::*;
use crate::{BlockWriter, Checks, Expected, Sink};
use godwit_core::{Block, LEAF_BYTES};
use std::{
    fs,
    io::Write as _,
    sync::atomic::{AtomicU32, Ordering},
};

/// A directory that vanishes.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("godwit-dir-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    pub(super) fn dir(&self) -> Dir {
        Dir::open(&self.0, "tester", Opener::Myself).unwrap()
    }

    /// All names there are, hidden ones too.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub(super) fn put(sink: &dyn Sink, offset: u64, bytes: &[u8]) {
    sink.put(Block { offset, bytes }).unwrap();
}

pub(super) const MIB: usize = LEAF_BYTES as usize;

pub(super) fn p(path: &str) -> &Path {
    Path::new(path)
}

#[test]
fn keeps_what_every_store_promises() {
    let places = std::cell::RefCell::new(Vec::new());
    crate::check::all(&|| {
        let place = Scratch::new();
        let dir = place.dir();
        places.borrow_mut().push(place);
        Box::new(dir)
    });
}

/// Writes a whole file at once.
pub(super) fn write(dir: &Dir, path: &str, bytes: &[u8]) -> Finished {
    let sink = dir
        .write(
            p(path),
            &Write {
                resume: false,
                ..Write::default()
            },
        )
        .unwrap();
    for (i, block) in bytes.chunks(MIB).enumerate() {
        put(&*sink, (i * MIB) as u64, block);
    }
    sink.finish(&Expected::default()).unwrap()
}

/// Drops its blocks, after an action.
struct Meanwhile<F>(F);

impl<F: Fn() + Send + Sync> BlockWriter for Meanwhile<F> {
    fn put(&self, _: Block<'_>) -> Result<()> {
        (self.0)();
        Ok(())
    }
}

#[test]
fn keeps_what_every_store_promises_without_openat2() {
    let places = std::cell::RefCell::new(Vec::new());
    crate::check::all(&|| {
        let place = Scratch::new();
        let root = Root::open_with(place.0.clone(), sys::Lookup::Walk).unwrap();
        let inner = DirInner {
            root,
            identity: "tester".into(),
            known: KnownHashes::default(),
            tidied: None,
            notes: None,
        };
        places.borrow_mut().push(place);
        Box::new(Dir(Arc::new(inner)))
    });
}

#[test]
fn times_are_set_each_by_itself() {
    let place = Scratch::new();
    let dir = place.dir();
    write(&dir, "file", b"x");
    let set = |atime: Option<u64>, mtime: Option<u64>| {
        let set = Set {
            atime: atime.map(Duration::from_secs),
            mtime: mtime.map(Duration::from_secs),
            ..Set::default()
        };
        dir.set(p("file"), &set).unwrap();
        let meta = fs::metadata(place.0.join("file")).unwrap();
        let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = |time| seconds(time).unwrap().as_secs();
        (
            seconds(meta.accessed().unwrap()),
            seconds(meta.modified().unwrap()),
        )
    };
    assert_eq!(set(Some(1_000), Some(2_000)), (1_000, 2_000));
    assert_eq!(set(Some(3_000), None), (3_000, 2_000));
    assert_eq!(set(None, Some(4_000)), (3_000, 4_000));
}

#[test]
fn file_changed_during_read_is_noticed() {
    let place = Scratch::new();
    let dir = place.dir();
    write(&dir, "file", &noise(2 * MIB, 1));
    let path = place.0.join("file");
    let longer = || {
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"x")
            .unwrap()
    };
    let shorter = || {
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(MIB as u64)
            .unwrap()
    };
    let all = Extents::from(0..u64::MAX);
    let read = dir.read(p("file"), &all, 1, &Meanwhile(longer));
    assert!(matches!(read, Err(Error::Changed { .. })), "{read:?}");
    let read = dir.read(p("file"), &all, 1, &Meanwhile(shorter));
    assert!(matches!(read, Err(Error::Changed { .. })), "{read:?}");
    dir.read(p("file"), &all, 1, &Meanwhile(|| {})).unwrap();
}

#[test]
fn non_files_are_refused_without_waiting() {
    let place = Scratch::new();
    let dir = place.dir();
    let made = std::process::Command::new("mkfifo")
        .arg(place.0.join("pipe"))
        .status()
        .unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(place.0.join("socket")).unwrap();
    for name in ["pipe", "socket"] {
        let got = Meanwhile(|| {});
        assert!(
            dir.read(p(name), &Extents::from(0..1), 1, &got).is_err(),
            "{name}"
        );
        assert!(dir.write(p(name), &Write::default()).is_err(), "{name}");
        assert!(
            dir.write(p(name), &Write::with(WriteMode::InPlace))
                .is_err(),
            "{name}"
        );
        assert!(dir.set(p(name), &Set::of_length(0)).is_err(), "{name}");
        assert_eq!(dir.stat(p(name)).unwrap().kind, EntryKind::Other);
    }
    let read = dir.read(p("pipe"), &Extents::from(0..1), 1, &Meanwhile(|| {}));
    assert_eq!(read.unwrap_err().to_string(), "pipe: is a pipe");
}

#[test]
fn partials_are_nobodys_files() {
    let place = Scratch::new();
    let dir = place.dir();
    let sink = dir.write(p("file"), &Write::of_size(9 << 20)).unwrap();
    put(&*sink, 0, &noise(MIB, 1));
    for name in place.names() {
        let name = p(&name);
        assert!(dir.stat(name).is_err());
        assert!(
            dir.read(name, &Extents::from(0..1), 1, &Meanwhile(|| {}))
                .is_err()
        );
        assert!(dir.write(name, &Write::default()).is_err());
        assert!(dir.remove(name, RemovalKind::File).is_err());
        assert!(dir.rename(name, p("mine")).is_err());
        assert!(dir.digest(name, Algorithm::Blake3, None).is_err());
        assert!(dir.set(name, &Set::of_length(0)).is_err());
    }
    assert_eq!(place.names().len(), 2);
}

#[test]
fn digest_is_forgotten_when_file_changes() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(MIB + 1, 1);
    let told = write(&dir, "file", &bytes).digests;
    let all = Extents::from(0..0);
    let read = || {
        dir.read(p("file"), &all, 1, &Meanwhile(|| {}))
            .unwrap()
            .digest
    };
    assert_eq!(read().as_slice(), told);
    let meta = fs::metadata(place.0.join("file")).unwrap();
    let other = noise(MIB + 1, 2);
    fs::write(place.0.join("file"), &other).unwrap();
    fs::File::open(place.0.join("file"))
        .unwrap()
        .set_modified(meta.modified().unwrap())
        .unwrap();
    assert_eq!(read(), None, "same size and time, other bytes");
    assert_eq!(
        dir.digest(p("file"), Algorithm::Blake3, None).unwrap(),
        Digest::of(Algorithm::Blake3, &other)
    );
    assert_eq!(read(), None, "it changed too lately to be remembered");
}

#[test]
fn leaves_match_the_hash_tree() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(3 * MIB + 7, 5);
    write(&dir, "file", &bytes);
    let mut tree = godwit_core::Leaves::new();
    for (i, block) in bytes.chunks(MIB).enumerate() {
        tree.add(godwit_core::Piece::of(Block::at((i * MIB) as u64, block)));
    }
    let all: Vec<Chain> = (0..4)
        .map(|i| tree.chain(i, bytes.len() as u64).unwrap())
        .collect();
    assert_eq!(dir.leaves(p("file"), 0..100).unwrap(), all);
    assert_eq!(dir.leaves(p("file"), 2..4).unwrap(), all[2..]);
    assert_eq!(dir.leaves(p("file"), 4..u64::MAX).unwrap(), []);
}

#[test]
fn digest_covers_bytes_written_again() {
    let place = Scratch::new();
    let dir = place.dir();
    let checks = Checks {
        blake3: true,
        adler32: true,
    };
    let sink = dir
        .write(
            p("file"),
            &Write {
                checks,
                ..Write::default()
            },
        )
        .unwrap();
    let mut bytes = noise(2 * MIB, 1);
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, LEAF_BYTES, &bytes[MIB..]);
    let again = noise(1000, 2);
    put(&*sink, LEAF_BYTES - 500, &again);
    bytes[MIB - 500..MIB + 500].copy_from_slice(&again);
    let finished = sink.finish(&Expected::default()).unwrap();
    assert_eq!(place.bytes("file"), bytes);
    let expected = [Algorithm::Blake3, Algorithm::Adler32].map(|by| Digest::of(by, &bytes));
    assert_eq!(finished.digests, expected);
    assert!(
        finished.reread_bytes > 0,
        "told without reading what came twice"
    );
}

#[test]
fn root_directory_opens_as_store() {
    let place = Scratch::new();
    let root = Dir::open(Path::new("/"), "tester", Opener::Myself).unwrap();
    let path = place.0.join("file");
    let inside = path.strip_prefix("/").unwrap();
    let sink = root.write(inside, &Write::default()).unwrap();
    put(&*sink, 0, b"text");
    sink.finish(&Expected::default()).unwrap();
    std::os::unix::fs::symlink(&path, place.0.join("absolute")).unwrap();
    let link = place.0.join("absolute");
    assert_eq!(root.stat(link.strip_prefix("/").unwrap()).unwrap().size, 4);
}
