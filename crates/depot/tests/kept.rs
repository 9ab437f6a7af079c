//! A hop that caches the files that are read through it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, both, bytes, rules, same, url, who};
use godwit_core::{Algorithm, Block, Extents};
use godwit_depot::{Depot, Rules, Spooled};
use godwit_store::{BlockWriter, Error, Expected, Read, Store, StoreExt, Write, WriteMode};
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

const NAME: &str = "a";

fn keeping(far: &Far, dir: &tempfile::TempDir, rules: Rules) -> (Arc<Depot>, Spooled) {
    let root = dir.path().join("hop");
    let depot = Arc::new(Depot::open(&root, rules, far.connect()).unwrap());
    let spooled = Spooled::new(Arc::clone(&depot), url(""), who(), "hop").unwrap();
    (depot, spooled.keeping())
}

/// Counts reads of the target.
fn reads(far: &Far) -> Arc<AtomicU64> {
    asked(far, "read")
}

/// Counts requests of one kind at the target.
fn asked(far: &Far, wanted: &'static str) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    far.on_ask(move |what, _| {
        counted.fetch_add(u64::from(what == wanted), SeqCst);
        Ok(())
    });
    count
}

/// Collects the bytes of a read, and calls `at_first` at the first block.
#[derive(Default)]
struct Got {
    bytes: Mutex<Vec<u8>>,
    at_first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockWriter for Got {
    fn put(&self, block: Block<'_>) -> godwit_store::Result<()> {
        if let Some(act) = self.at_first.lock().unwrap().take() {
            act();
        }
        let mut bytes = self.bytes.lock().unwrap();
        let end = block.offset as usize + block.bytes.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[block.offset as usize..end].copy_from_slice(block.bytes);
        Ok(())
    }
}

fn read(store: &dyn Store, want: Extents) -> godwit_store::Result<(Read, Vec<u8>)> {
    let got = Got::default();
    let read = store.read(Path::new(NAME), &want, 1, &got)?;
    Ok((read, got.bytes.into_inner().unwrap()))
}

fn read_all(store: &dyn Store) -> godwit_store::Result<Vec<u8>> {
    let size = store.stat(Path::new(NAME))?.size;
    let (read, bytes) = read(store, Extents::from(0..size))?;
    assert_eq!(read.stat.size, size);
    Ok(bytes)
}

fn put(store: &dyn Store, content: &[u8]) {
    write_to(store, NAME, content);
}

fn write_to(store: &dyn Store, name: &str, content: &[u8]) {
    let sink = store.write(Path::new(name), &Write::default()).unwrap();
    let block = Block::at(0, content);
    sink.put(block).unwrap();
    sink.finish(&Expected::default()).unwrap();
}

#[test] //= KANGAROO-63 hops#reading
fn repeated_read_only_revalidates() {
    let (far, dir) = both();
    let (depot, hop) = keeping(&far, &dir, rules());
    let wanted = bytes(5_300_000, 1);
    far.put(NAME, &wanted);
    let looks = asked(&far, "stat");
    same(read(&hop, Extents::from(0..u64::MAX)).unwrap().1, &wanted);
    assert_eq!(looks.load(SeqCst), 1, "one look does for what is not here");
    let count = reads(&far);
    for _ in 0..3 {
        same(read_all(&hop).unwrap(), &wanted);
    }
    assert_eq!(count.load(SeqCst), 0);
    assert_eq!(depot.list("")[0].transfers, 1);
    let wanted = bytes(4_100_000, 2);
    far.put(NAME, &wanted);
    same(read_all(&hop).unwrap(), &wanted);
    assert!(count.load(SeqCst) > 0);
}

#[test] //= GASS-42 hops#reading
fn concurrent_hop_reads_share_transfer() {
    let (far, dir) = both();
    let (depot, hop) = keeping(&far, &dir, rules());
    let wanted = bytes(9_000_000, 3);
    far.put(NAME, &wanted);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| same(read_all(&hop).unwrap(), &wanted));
        }
    });
    let held = depot.list("");
    assert_eq!((held.len(), held[0].transfers), (1, 1));
}

#[test] //= hops#reading
fn same_size_and_time_is_refetched() {
    let (far, dir) = both();
    let (_depot, hop) = keeping(&far, &dir, rules());
    far.put_as_of_before(NAME, b"first");
    same(read_all(&hop).unwrap(), b"first");
    far.put_as_of_before(NAME, b"later");
    same(read_all(&hop).unwrap(), b"later");
}

#[test] //= hops#reading
fn partial_hop_read_stays_partial() {
    let (far, dir) = both();
    let (depot, hop) = keeping(&far, &dir, rules());
    let wanted = bytes(40 << 20, 4);
    far.put(NAME, &wanted);
    let part = (20 << 20) + 5..(22 << 20) + 9;
    let (_, got) = read(&hop, Extents::from(part.start as u64..part.end as u64)).unwrap();
    same(&got[part.clone()], &wanted[part]);
    let held = depot.list("");
    assert!(held[0].present < 4 << 20, "{} bytes came", held[0].present);
}

#[test] //= KANGAROO-63 hops#reading
fn outage_leaves_delivered_files_readable() {
    let (far, dir) = both();
    let (depot, hop) = keeping(&far, &dir, rules());
    let wanted = bytes(3_300_000, 5);
    put(&hop, &wanted);
    hop.push(Path::new(NAME), None).unwrap();
    assert!(!depot.has_pending());
    far.put("other", b"never read");
    far.set_away(true);
    same(read_all(&hop).unwrap(), &wanted);
    let told = hop
        .digest(Path::new(NAME), Algorithm::Sha256, None)
        .unwrap();
    let mut hashing = godwit_core::Hashing::new(Algorithm::Sha256);
    hashing.update(&wanted);
    assert_eq!(told, hashing.finish());
    let other = hop.stat(Path::new("other")).unwrap_err();
    assert!(matches!(other, Error::Beyond { .. }), "{other}");
    // A hop that does not cache has no copy.
    let root = dir.path().join("plain");
    let plain = Depot::open(&root, rules(), far.connect()).unwrap();
    let plain = Spooled::new(Arc::new(plain), url(""), who(), "plain").unwrap();
    assert!(read_all(&plain).is_err());
}

#[test] //= KANGAROO-63 hops#reading
fn oversized_file_passes_through() {
    let (far, dir) = both();
    let quota = Some(2 << 20);
    let (depot, hop) = keeping(&far, &dir, Rules { quota, ..rules() });
    let wanted = bytes(5 << 20, 6);
    far.put(NAME, &wanted);
    same(read_all(&hop).unwrap(), &wanted);
    assert!(depot.list("").is_empty());
    // A file without a version passes through too.
    far.tells_no_time.store(true, SeqCst);
    let wanted = bytes(1 << 20, 7);
    far.put(NAME, &wanted);
    same(read_all(&hop).unwrap(), &wanted);
    assert!(depot.list("").is_empty());
}

#[test] //= hops#reading
fn reader_keeps_version_during_patch() {
    let (far, dir) = both();
    let (_depot, hop) = keeping(&far, &dir, rules());
    let wanted = bytes(3 << 20, 8);
    far.put(NAME, &wanted);
    same(read_all(&hop).unwrap(), &wanted);
    let writer = hop.clone();
    let got = Got::default();
    *got.at_first.lock().unwrap() = Some(Box::new(move || {
        let how = WriteMode::InPlace;
        let write = Write::with(how);
        let sink = writer.write(Path::new(NAME), &write).unwrap();
        let block = Block::at(2 << 20, b"something else");
        sink.put(block).unwrap();
        sink.finish(&Expected::default()).unwrap();
    }));
    hop.read(Path::new(NAME), &Extents::from(0..3 << 20), 1, &got)
        .unwrap();
    same(got.bytes.into_inner().unwrap(), &wanted);
    let mut now = wanted;
    now[2 << 20..][..14].copy_from_slice(b"something else");
    same(read_all(&hop).unwrap(), &now);
}

fn names(hop: &Spooled) -> (Vec<String>, godwit_store::Result<()>) {
    let mut names = Vec::new();
    let listed = hop.list(Path::new(""), &mut |entry| {
        names.push(entry.path.display().to_string());
        Ok(())
    });
    (names, listed)
}

#[test] //= hops#reading
fn cached_file_follows_rename_offline() {
    let (far, dir) = both();
    let (depot, hop) = keeping(&far, &dir, rules());
    let (a, b) = (Path::new(NAME), Path::new("b"));
    put(&hop, b"delivered");
    hop.push(a, None).unwrap();
    far.set_away(true);
    hop.rename(a, b).unwrap();
    assert_eq!(hop.stat(b).unwrap().size, 9);
    let gone = hop.stat(a);
    assert!(matches!(gone, Err(Error::Missing { .. })), "{gone:?}");
    let (listed, end) = names(&hop);
    assert_eq!(listed, ["b"]);
    assert!(matches!(end, Err(Error::Beyond { .. })), "{end:?}");
    hop.remove(b, godwit_store::RemovalKind::File).unwrap();
    assert!(names(&hop).0.is_empty());
    far.set_away(false);
    depot.push(&godwit_depot::Scope::All, None).unwrap();
    assert!(far.get(NAME).is_none() && far.get("b").is_none());
}
