//! The directory as a store: what only it promises.

use super::*;
use crate::Whole;
use godwit_core::{Block, LEAF_BYTES};
use std::{
    fs,
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
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

pub(super) fn put(sink: &dyn Sink, offset: u64, bytes: &[u8]) {
    sink.put(Block { offset, bytes }).unwrap();
}

pub(super) const MIB: usize = LEAF_BYTES as usize;

fn p(path: &str) -> &Path {
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

#[test]
fn publish_appears_only_when_whole() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(3 * MIB + 5, 1);
    let write = Write {
        size: Some(bytes.len() as u64),
        ..Write::default()
    };
    let sink = dir.write(p("file"), &write).unwrap();
    for (i, block) in bytes.chunks(MIB).enumerate().rev() {
        put(&*sink, (i * MIB) as u64, block);
        assert!(dir.stat(p("file")).is_err());
        dir.list(p(""), &mut |entry| panic!("{entry:?}")).unwrap();
    }
    let finished = sink.finish(&Whole::default()).unwrap();
    assert_eq!(place.names(), ["file"]);
    assert_eq!(place.bytes("file"), bytes);
    assert_eq!(finished.digests, [Digest::of(Algorithm::Blake3, &bytes)]);
    assert_eq!(finished.reread_bytes, 0);
}

#[test]
fn publish_goes_on_where_it_was_without_reading() {
    let place = Scratch::new();
    let bytes = noise(4 * MIB, 2);
    let write = Write {
        size: Some(bytes.len() as u64),
        ..Write::default()
    };
    let sink = place.dir().write(p("file"), &write).unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, 2 * LEAF_BYTES, &bytes[2 * MIB..3 * MIB]);
    drop(sink);
    let kept = place.dir().partial(p("file"), None).unwrap().unwrap();
    assert_eq!(
        (kept.prefix(), kept.size, kept.in_use),
        (LEAF_BYTES, Some(4 * LEAF_BYTES), false)
    );
    let sink = place.dir().write(p("file"), &write).unwrap();
    assert_eq!(sink.done().to_string(), "0-1048576,2097152-3145728");
    put(&*sink, LEAF_BYTES, &bytes[MIB..2 * MIB]);
    put(&*sink, 3 * LEAF_BYTES, &bytes[3 * MIB..]);
    let finished = sink.finish(&Whole::default()).unwrap();
    assert_eq!(
        (finished.reread_bytes, place.bytes("file") == bytes),
        (0, true)
    );
    assert_eq!(finished.digests, [Digest::of(Algorithm::Blake3, &bytes)]);
    assert_eq!(place.names(), ["file"]);
}
