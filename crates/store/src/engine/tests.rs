//! The engine between stores in memory, some of which misbehave.

use super::{
    CopyEvent, CopyOptions, CopyTask, GridOpener, OverwriteRule, Place, Stores, Summary, copy,
};
use crate::{
    BlockWriter, Entry, EntryKind, Error, Memory, Read, Result, SmallWrite, Store, StoreExt, Write,
    WriteMode, channel::Cancel,
};
use godwit_core::{Block, Extents, LEAF_BYTES, Url};
use godwit_trust::{
    KeyKind,
    lab::{Ca, Issue},
};
use parking_lot::Mutex;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

fn place(store: Arc<dyn Store>, path: &str) -> Place {
    Place {
        store,
        path: path.into(),
        url: Url::file(format!("/memory/{path}")).unwrap(),
    }
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed) as u8).collect()
}

fn put(store: &dyn Store, path: &str, bytes: Vec<u8>) {
    let mut given = Some(SmallWrite {
        path: path.into(),
        bytes,
        how: WriteMode::Replace(None),
        mtime: None,
        mode: None,
    });
    store
        .write_small(&mut || given.take(), &mut |_, done| drop(done.unwrap()))
        .unwrap();
}

fn get(store: &dyn Store, path: &str) -> Option<Vec<u8>> {
    let kept = Memory::new();
    let size = store.stat(Path::new(path)).ok()?.size;
    let write = Write::of_size(size);
    let sink = kept.write(Path::new("kept"), &write).unwrap();
    store
        .read(Path::new(path), &Extents::from(0..size), 1, &*sink)
        .ok()?;
    let all = Mutex::new(vec![0; size as usize]);
    store
        .read(Path::new(path), &Extents::from(0..size), 1, &Into(&all))
        .ok()?;
    Some(all.into_inner())
}

struct Into<'a>(&'a Mutex<Vec<u8>>);

impl BlockWriter for Into<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let range = block.range();
        self.0.lock()[range.start as usize..range.end as usize].copy_from_slice(block.bytes);
        Ok(())
    }
}

fn task(source: Place, target: Place) -> CopyTask {
    CopyTask {
        source,
        target,
        tree: true,
        mode: None,
        range: None,
        rule: OverwriteRule::Always,
        delete: false,
    }
}

fn options() -> CopyOptions {
    CopyOptions::new(Cancel::new().unwrap())
}

/// Runs a copy, and checks that the reported progress never exceeds the found bytes.
fn run(tasks: Vec<CopyTask>, options: &CopyOptions) -> Summary {
    let (found, moved) = (AtomicU64::new(0), AtomicU64::new(0));
    let summary = copy(tasks, options, &|event| match event {
        CopyEvent::Found { bytes, .. } => drop(found.fetch_add(*bytes, Relaxed)),
        CopyEvent::Moved { bytes } | CopyEvent::Resumed { bytes } => {
            let now = moved.fetch_add(*bytes, Relaxed) + bytes;
            assert!(now <= found.load(Relaxed), "more moved than was found");
        }
        _ => {}
    });
    if summary.failed == 0 && summary.skipped == 0 {
        assert_eq!(moved.load(Relaxed), found.load(Relaxed));
        assert_eq!(moved.load(Relaxed), summary.bytes);
    }
    summary
}

fn tree(store: &Memory) -> Vec<(String, Vec<u8>)> {
    let files: Vec<(String, Vec<u8>)> = (0..40)
        .map(|i| (format!("set/d{}/f{i}", i % 3), bytes(i, i * 977)))
        .chain([
            ("set/large".into(), bytes(7, 5_300_001)),
            ("set/empty".into(), Vec::new()),
        ])
        .collect();
    for directory in ["set", "set/d0", "set/d1", "set/d2", "set/bare"] {
        store.mkdir(Path::new(directory)).unwrap();
    }
    files
        .iter()
        .for_each(|(path, bytes)| put(store, path, bytes.clone()));
    files
}

#[test]
fn a_tree_arrives_whole() {
    let (source, target) = (Arc::new(Memory::new()), Arc::new(Memory::new()));
    let files = tree(&source);
    let summary = run(
        vec![task(place(source, "set"), place(target.clone(), "set"))],
        &options(),
    );
    assert_eq!(
        (summary.files, summary.failed),
        (files.len() as u64, 0),
        "{:?}",
        summary.errors
    );
    for (path, bytes) in &files {
        assert!(get(&*target, path).as_ref() == Some(bytes), "{path}");
    }
    assert_eq!(
        target.stat(Path::new("set/bare")).unwrap().kind,
        EntryKind::Directory
    );
}

#[test]
fn rule_decides_about_existing_target() {
    let (source, target) = (Arc::new(Memory::new()), Arc::new(Memory::new()));
    tree(&source);
    let again = |rule, delete| {
        let (source, target) = (place(source.clone(), "set"), place(target.clone(), "set"));
        run(
            vec![CopyTask {
                rule,
                delete,
                ..task(source, target)
            }],
            &options(),
        )
    };
    let all = again(OverwriteRule::Update, false).files;
    assert_eq!(
        (
            again(OverwriteRule::Update, false).files,
            again(OverwriteRule::NoClobber, false).skipped
        ),
        (0, all)
    );
    put(&*target, "set/d1/f1", bytes(99, 977));
    assert_eq!(
        again(OverwriteRule::UpdateByDigest, false).files,
        1,
        "same size, other bytes"
    );
    put(&*target, "set/d1/more", bytes(0, 10));
    assert_eq!(again(OverwriteRule::Update, true).removed, 1);
    assert_eq!(get(&*target, "set/d1/more"), None);
}

#[test] //= GRIDFTP-34
fn a_part_goes_to_its_place() {
    let (source, target) = (Arc::new(Memory::new()), Arc::new(Memory::new()));
    put(&*source, "a", bytes(1, 3_000_000));
    put(&*target, "a", vec![0; 3_000_000]);
    let part = 1_000_003..2_500_000;
    let (from, to) = (place(source.clone(), "a"), place(target.clone(), "a"));
    let summary = run(
        vec![CopyTask {
            range: Some(part.clone()),
            ..task(from, to)
        }],
        &options(),
    );
    assert_eq!(summary.bytes, part.end - part.start, "{:?}", summary.errors);
    let (found, whole) = (get(&*target, "a").unwrap(), bytes(1, 3_000_000));
    let part = part.start as usize..part.end as usize;
    assert!(
        found[part.clone()] == whole[part.clone()] && found[..part.start].iter().all(|&b| b == 0)
    );
    assert!(found[part.end..].iter().all(|&b| b == 0) && found.len() == 3_000_000);
}

/// A source that loses the connection after some blocks, or changes its mind.
struct Troubled {
    inner: Memory,
    reads: AtomicU64,
    blocks_each: u64,
    read_bytes: AtomicU64,
    then: Option<Vec<u8>>,
    /// How many of the next reads fail for want of a credential.
    unproved: AtomicU64,
}

struct Limited<'a>(&'a dyn BlockWriter, AtomicU64, &'a AtomicU64);

impl BlockWriter for Limited<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if self.1.fetch_sub(1, Relaxed) == 0 {
            self.1.store(0, Relaxed);
            return Err(Error::lost(
                "source",
                "reading",
                std::io::ErrorKind::ConnectionReset,
            ));
        }
        self.2.fetch_add(block.bytes.len() as u64, Relaxed);
        self.0.put(block)
    }
}

impl Store for Troubled {
    crate::forward!(self, self.inner; can stat list write remove rename mkdir set digest facets);

    fn read(&self, path: &Path, want: &Extents, _: usize, into: &dyn BlockWriter) -> Result<Read> {
        let nth = self.reads.fetch_add(1, Relaxed);
        if self
            .unproved
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_ok()
        {
            return Err(Error::no_credential("fermi"));
        }
        let limited = Limited(into, AtomicU64::new(self.blocks_each), &self.read_bytes);
        let read = self.inner.read(path, want, 1, &limited);
        if let (0, Some(bytes)) = (nth, &self.then) {
            put(&self.inner, path.to_str().unwrap(), bytes.clone());
        }
        read
    }
}

fn troubled(whole: &[u8], blocks_each: u64, then: Option<Vec<u8>>) -> Arc<Troubled> {
    let inner = Memory::new();
    put(&inner, "a", whole.to_vec());
    let (reads, read_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    Arc::new(Troubled {
        inner,
        reads,
        blocks_each,
        read_bytes,
        then,
        unproved: AtomicU64::new(0),
    })
}

#[test] //= GRIDFTP-25
fn lost_connection_costs_no_landed_byte() {
    let whole = bytes(3, 9 * LEAF_BYTES as usize + 5);
    let (source, target) = (troubled(&whole, 2, None), Arc::new(Memory::new()));
    let tasks = vec![task(place(source.clone(), "a"), place(target.clone(), "a"))];
    let summary = run(tasks, &options());
    assert_eq!(
        (summary.files, summary.faults),
        (1, 4),
        "{:?}",
        summary.errors
    );
    assert!(get(&*target, "a") == Some(whole.clone()));
    assert_eq!(source.read_bytes.load(Relaxed), whole.len() as u64);
}

#[test]
fn copy_without_progress_is_given_up() {
    let (source, target) = (
        troubled(&bytes(3, 4_000_000), 0, None),
        Arc::new(Memory::new()),
    );
    let tasks = vec![task(place(source, "a"), place(target.clone(), "a"))];
    let summary = run(
        tasks,
        &CopyOptions {
            retries: Some(2),
            ..options()
        },
    );
    assert_eq!((summary.files, summary.failed), (0, 1));
    assert_eq!(summary.faults, 2, "those of a file that failed count too");
    assert!(
        matches!(summary.errors[..], [Error::Lost { .. }]),
        "{:?}",
        summary.errors
    );
    assert_eq!(get(&*target, "a"), None, "nothing half appears");
}

/// A tree on a server that refuses our credential `times` times, and its number of files.
fn unproved(times: u64) -> (Place, u64) {
    let inner = Memory::new();
    let files = tree(&inner).len() as u64;
    let source = Arc::new(Troubled {
        inner,
        reads: AtomicU64::new(0),
        blocks_each: 100,
        read_bytes: AtomicU64::new(0),
        then: None,
        unproved: AtomicU64::new(times),
    });
    let mut source = place(source, "set");
    source.url = "gsiftp://fermi/set".parse().unwrap();
    (source, files)
}

/// Options with a certificate that began two days ago and is valid for so many days.
fn lasting(days: u32) -> CopyOptions {
    let (dir, day) = (tempfile::tempdir().unwrap(), Duration::from_secs(86_400));
    let ca = Ca::init(dir.path(), "/O=Lab/CN=CA", day * 30, KeyKind::Elliptic).unwrap();
    let begun = SystemTime::now() - day * 2;
    let alice = Issue {
        key: KeyKind::Elliptic,
        not_before: begun,
        not_after: begun + day * days,
        ..Issue::user("alice")
    };
    let mut options = options();
    options.trust.credential = Some(ca.issue(&alice).unwrap());
    options
}

#[test]
fn renewed_credential_is_used_by_retry() {
    let options = lasting(3);
    let (source, files) = unproved(3);
    let summary = run(
        vec![task(source, place(Arc::new(Memory::new()), "set"))],
        &options,
    );
    assert_eq!(
        (summary.files, summary.failed),
        (files, 0),
        "{:?}",
        summary.errors
    );
    assert_eq!(summary.faults, 3);
}

#[test]
fn expired_credential_ends_the_copy_once() {
    let (source, files) = unproved(u64::MAX);
    let (target, told) = (Arc::new(Memory::new()), AtomicU64::new(0));
    let tasks = vec![task(source, place(target, "set"))];
    let summary = copy(tasks, &lasting(1), &|event| {
        if let CopyEvent::Failed { .. } = event {
            told.fetch_add(1, Relaxed);
        }
    });
    assert_eq!((told.load(Relaxed), summary.errors.len()), (1, 1));
    assert_eq!(summary.files, 0);
    assert!((1..=files).contains(&summary.failed), "{}", summary.failed);
}

#[test] //= GRIDFTP-49
fn source_changed_between_tries_is_not_mixed() {
    let (old, new) = (bytes(3, 6_000_000), bytes(4, 5_000_000));
    let (source, target) = (
        troubled(&old, 3, Some(new.clone())),
        Arc::new(Memory::new()),
    );
    let tasks = vec![task(place(source, "a"), place(target.clone(), "a"))];
    let mut options = options();
    options.keep_times = false;
    let summary = copy(tasks, &options, &|_| {});
    assert_eq!(summary.files, 1, "{:?}", summary.errors);
    assert!(get(&*target, "a") == Some(new));
}

#[test]
fn a_cancelled_copy_stops_and_says_so() {
    let whole = bytes(3, 5_000_000);
    let (source, target) = (troubled(&whole, 100, None), Arc::new(Memory::new()));
    let options = options();
    let tasks = vec![task(place(source, "a"), place(target.clone(), "a"))];
    let summary = copy(tasks, &options, &|event| {
        if let CopyEvent::Moved { .. } = event {
            options.cancel.cancel();
        }
    });
    assert_eq!(summary.files, 0);
    assert!(
        matches!(summary.errors[..], [Error::Canceled]),
        "{:?}",
        summary.errors
    );
    let missing: PathBuf = "a".into();
    assert!(target.stat(&missing).is_err());
}

#[test]
fn walk_ends_where_paths_are_endless() {
    let directory = Memory::new().stat(Path::new("")).unwrap();
    let mut seen = 0;
    let mut list = |_: &Path, each: &mut dyn FnMut(Entry) -> Result<()>| {
        each(Entry {
            path: "d".repeat(99).into(),
            stat: directory.clone(),
        })
    };
    let each = &mut |_| {
        seen += 1;
        Ok(())
    };
    let (hidden, unread) = (&mut |_| (), &mut |_, error| Err(error));
    let mut walk = crate::Walk {
        each,
        hidden,
        unread,
    };
    let walked = crate::store::walk_from(vec![PathBuf::new()], &mut list, &mut walk);
    let error = walked.unwrap_err();
    assert!(error.to_string().contains("8192 bytes"), "{error}");
    assert_eq!(seen, 81);
}

#[test]
fn names_have_one_store() {
    let opened = Arc::new(AtomicU64::new(0));
    let counted = opened.clone();
    let named = GridOpener::new(move || match counted.fetch_add(1, Relaxed) {
        0 => Err(Error::busy("the catalog", "locked")),
        _ => Ok(Arc::new(Memory::new())),
    });
    let stores = Stores::new(CopyOptions {
        named: Some(named),
        ..options()
    });
    let open = |text: &str| stores.open(&text.parse().unwrap());
    assert!(matches!(open("grid:/a"), Err(Error::Busy { .. })));
    let first = open("grid:/").unwrap();
    first.store.mkdir(Path::new("a")).unwrap();
    for (text, path) in [
        ("grid:/", ""),
        ("grid:/a//./b/", "a/b"),
        ("/godwit/grid/a", "a"),
    ] {
        let place = open(text).unwrap();
        assert_eq!(place.path.as_os_str(), path, "{text}");
        assert!(Arc::ptr_eq(&place.store, &first.store), "{text}");
    }
    assert_eq!(opened.load(Relaxed), 2);
}

#[test]
fn name_without_catalog_tells_what_names_one() {
    let stores = Stores::new(options());
    let error = stores.open(&"grid:/a".parse().unwrap()).unwrap_err();
    assert!(matches!(error, Error::NotServed { .. }), "{error:?}");
    let said = error.to_string();
    assert!(
        said.contains("grid:/a") && said.contains("--catalog sqlite:PATH"),
        "{said}"
    );
}
