//! A depot as a hop: it delivers the files that are written to it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, both, by, bytes, over, put_into, rules, same, url, who};
use godwit_core::{Algorithm, Block, Extents};
use godwit_depot::{Connect, Depot, Edit, Editing, Fresh, Scope, Spooled, Stage, Who};
use godwit_store::{
    Error, Expected, Remedy, RemovalKind, Set, Sink, Store, StoreExt, Write, WriteMode,
};
use std::{
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

const LIMIT: Option<Duration> = Some(Duration::from_secs(30));

fn spooled(far: &Far, dir: &tempfile::TempDir) -> (Arc<Depot>, Spooled) {
    let root = dir.path().join("hop");
    let depot = Arc::new(Depot::open(&root, rules(), far.connect()).unwrap());
    let spooled = Spooled::new(Arc::clone(&depot), url(""), who(), "hop").unwrap();
    (depot, spooled)
}

/// Reaches `store` under every URL.
fn reaching(store: impl Store + 'static) -> Connect {
    let store: Arc<dyn Store> = Arc::new(store);
    Arc::new(move |url, _: &Who| {
        Ok(godwit_store::engine::Place {
            store: store.clone(),
            path: url.as_path().into(),
            url: url.clone(),
        })
    })
}

/// A depot whose target is that hop.
fn before(spooled: Spooled, dir: &tempfile::TempDir) -> Depot {
    Depot::open(&dir.path().join("first"), rules(), reaching(spooled)).unwrap()
}

fn write(store: &dyn Store, name: &str, content: &[u8]) -> godwit_store::Result<()> {
    let write = Write {
        how: WriteMode::Replace(None),
        size: Some(content.len() as u64),
        id: Some("upload.1"),
        ..Write::default()
    };
    let sink = store.write(Path::new(name), &write)?;
    let block = Block::at(0, content);
    sink.put(block)?;
    let whole = Expected::of_size(content.len() as u64);
    sink.finish(&whole).map(drop)
}

#[test] //= KANGAROO-12 KANGAROO-36
fn hop_shows_files_before_delivery() {
    let (far, dir) = both();
    let (depot, spooled) = spooled(&far, &dir);
    far.set_away(true);
    let wanted = bytes(2_500_000, 4);
    write(&spooled, "a", &wanted).unwrap();
    let stat = spooled.stat(Path::new("a")).unwrap();
    assert_eq!(stat.size, wanted.len() as u64);
    let all = Extents::from(0..stat.size);
    let memory = godwit_store::Memory::new();
    let copy = memory.write(Path::new("copy"), &Write::default()).unwrap();
    spooled.read(Path::new("a"), &all, 1, &*copy).unwrap();
    copy.finish(&Expected::default()).unwrap();
    assert!(
        spooled
            .published_as(Path::new("a"), "upload.1")
            .unwrap()
            .is_some()
    );
    assert!(
        spooled
            .published_as(Path::new("a"), "upload.2")
            .unwrap()
            .is_none()
    );
    far.set_away(false);
    spooled.push(Path::new("a"), None).unwrap();
    same(far.get("a").unwrap(), &wanted);
    assert!(!depot.has_pending());
}

#[test] //= KANGAROO-32 hops#delivery
fn uncommitted_incoming_file_is_dropped() {
    let (far, dir) = both();
    drop(spooled(&far, &dir));
    std::fs::write(dir.path().join("hop/incoming/a"), b"whole").unwrap();
    let (depot, spooled) = spooled(&far, &dir);
    let became = spooled.published_as(Path::new("a"), "upload.1").unwrap();
    assert_eq!(became, None, "no writer was told that it is kept");
    depot.push(&Scope::All, LIMIT).unwrap();
    assert_eq!(far.get("a"), None);
}

/// The upstream node asks the hop; the hop asks its target again.
#[test] //= delivery#faults
fn dying_server_is_asked_again() {
    let (far, dir) = both();
    far.put("a", b"bytes");
    let (_hop, spooled) = spooled(&far, &dir);
    let left = far.loses_all(0);
    let a = Path::new("a");
    let stat = || spooled.stat(a).map(|stat| stat.size);
    let digest = || spooled.digest(a, Algorithm::Blake3, None).map(|_| 5);
    let asks: [&dyn Fn() -> godwit_store::Result<u64>; 2] = [&stat, &digest];
    for ask in asks {
        left.store(u64::MAX, SeqCst);
        let told = ask();
        assert!(matches!(told, Err(Error::Busy { .. })), "{told:?}");
        left.store(1, SeqCst);
        assert_eq!(ask().unwrap(), 5);
    }
    let told = spooled.stat(Path::new("b"));
    assert!(matches!(told, Err(Error::Missing { .. })), "{told:?}");
}

#[test] //= KANGAROO-12 KANGAROO-41 depot#commit-and-push
fn push_reaches_end_of_chain() {
    let (far, dir) = both();
    let (_hop, spooled) = spooled(&far, &dir);
    let first = before(spooled, &dir);
    let wanted = bytes(3 << 20, 8);
    let writing = first.put(&url("a"), &who(), &over()).unwrap();
    writing.write(0, &wanted).unwrap();
    writing.end().unwrap();
    first.push(&Scope::All, LIMIT).unwrap();
    same(far.get("a").unwrap(), &wanted);
    put_into(&first, "a", 7, b"inside");
    first
        .push_through((&url("a"), &who()), LIMIT, &|| true)
        .unwrap();
    let mut wanted = wanted;
    wanted[7..13].copy_from_slice(b"inside");
    same(far.get("a").unwrap(), &wanted);
}

#[test] //= KANGAROO-59 hops#delivery
fn loops_are_refused() {
    let (far, dir) = both();
    let (depot, spooled) = spooled(&far, &dir);
    let begin = |passed: &[String]| {
        let write = Write {
            passed,
            ..Write::default()
        };
        spooled.write(Path::new("a"), &write).map(drop)
    };
    let circle = |nodes: &[String]| matches!(begin(nodes), Err(Error::Loop { .. }));
    let others = |count: usize| (0..count).map(|nth| format!("n{nth}")).collect::<Vec<_>>();
    assert!(begin(&others(15)).is_ok());
    assert!(circle(&others(16)));
    assert!(circle(&["first".into(), "hop".into(), "last".into()]));
    assert!(!depot.has_pending());
}

#[test]
fn forwarding_nodes_survive_restart() {
    let (far, dir) = both();
    far.set_away(true);
    let (depot, first) = spooled(&far, &dir);
    let write = Write {
        passed: &["before".into()],
        ..Write::default()
    };
    let sink = first.write(Path::new("a"), &write).unwrap();
    sink.finish(&Expected::default()).unwrap();
    drop((depot, first));
    // The next node is this depot's own node, as in a loop.
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let connect = reaching(Hearing(Arc::clone(&told)));
    let depot = Depot::open(&dir.path().join("hop"), rules(), connect).unwrap();
    let refused = depot.push(&Scope::All, LIMIT);
    assert!(
        matches!(refused, Err(godwit_depot::Error::Held { .. })),
        "{refused:?}"
    );
    assert_eq!(*told.lock().unwrap(), ["before", "hop"]);
}

/// Records the forwarding nodes of each write, and refuses it.
struct Hearing(Arc<std::sync::Mutex<Vec<String>>>);

impl Store for Hearing {
    fn write(&self, path: &Path, write: &Write<'_>) -> godwit_store::Result<Box<dyn Sink>> {
        *self.0.lock().unwrap() = write.passed.to_vec();
        let (path, said) = (path.into(), "for the test".into());
        Err(Error::Loop { path, said })
    }
    fn can(&self) -> godwit_store::Result<godwit_store::Capabilities> {
        godwit_store::Memory::new().can()
    }
    fn stat(&self, path: &Path) -> godwit_store::Result<godwit_store::Stat> {
        Err(Error::Missing { path: path.into() })
    }
    fn list(
        &self,
        _: &Path,
        _: &mut dyn FnMut(godwit_store::Entry) -> godwit_store::Result<()>,
    ) -> godwit_store::Result<()> {
        Ok(())
    }
    fn read(
        &self,
        path: &Path,
        _: &Extents,
        _: usize,
        _: &dyn godwit_store::BlockWriter,
    ) -> godwit_store::Result<godwit_store::Read> {
        Err(Error::Missing { path: path.into() })
    }
    fn remove(&self, _: &Path, _: RemovalKind) -> godwit_store::Result<()> {
        Ok(())
    }
    fn rename(&self, _: &Path, _: &Path) -> godwit_store::Result<()> {
        Ok(())
    }
    fn mkdir(&self, _: &Path) -> godwit_store::Result<()> {
        Ok(())
    }
    fn set(&self, _: &Path, _: &godwit_store::Set) -> godwit_store::Result<()> {
        Ok(())
    }
    fn digest(
        &self,
        path: &Path,
        _: godwit_core::Algorithm,
        _: Option<std::ops::Range<u64>>,
    ) -> godwit_store::Result<godwit_core::Digest> {
        Err(Error::Missing { path: path.into() })
    }
    godwit_store::has!(self, Facets:);
}

#[test]
fn push_asks_end_after_restart() {
    let (far, dir) = both();
    far.set_away(true);
    let (_hop, spooled) = spooled(&far, &dir);
    let connect = reaching(spooled);
    let root = dir.path().join("first");
    let first = Depot::open(&root, rules(), Arc::clone(&connect)).unwrap();
    let writing = first.put(&url("a"), &who(), &over()).unwrap();
    writing.write(0, b"bytes").unwrap();
    writing.end().unwrap();
    let soon = Some(Duration::from_millis(700));
    let early = first.push(&Scope::All, soon);
    assert!(
        matches!(early, Err(godwit_depot::Error::TimedOut { .. })),
        "{early:?}"
    );
    assert!(!first.has_pending(), "the hop has it");
    drop(first);
    // Locally nothing is pending, and the target has nothing.
    let first = Depot::open(&root, rules(), connect).unwrap();
    let early = first.push(&Scope::All, soon);
    assert!(
        matches!(early, Err(godwit_depot::Error::TimedOut { .. })),
        "{early:?}"
    );
    far.set_away(false);
    first.push(&Scope::All, LIMIT).unwrap();
    same(far.get("a").unwrap(), b"bytes");
}

/// A depot upstream of a hop, and an edit of a file that was fetched from the hop before its delivery.
fn taken_from_a_hop(far: &Far, dir: &tempfile::TempDir) -> (Depot, Editing) {
    let (hop, spooled) = spooled(far, dir);
    far.set_away(true);
    write(&spooled, "a", b"first of all").unwrap();
    let first = before(spooled, dir);
    let editing = first.edit(&url("a"), &who(), &Edit::default()).unwrap();
    far.set_away(false);
    hop.push(&Scope::All, LIMIT).unwrap();
    (first, editing)
}

#[test]
fn edit_from_hop_replaces_delivery() {
    let (far, dir) = both();
    let (first, editing) = taken_from_a_hop(&far, &dir);
    // The file was fetched from the hop, and has another time at the target.
    let later = std::time::SystemTime::now() + Duration::from_secs(5);
    let there = std::fs::File::options()
        .write(true)
        .open(far.dir.path().join("a"));
    there.unwrap().set_modified(later).unwrap();
    editing.file().unwrap().write_all_at(b"last_", 0).unwrap();
    editing.end().unwrap();
    first
        .push_through((&url("a"), &who()), LIMIT, &|| true)
        .unwrap();
    same(far.get("a").unwrap(), b"last_ of all");
}

#[test]
fn partial_read_survives_hop_delivery() {
    let (far, dir) = both();
    let (hop, spooled) = spooled(&far, &dir);
    far.set_away(true);
    write(&spooled, "a", &bytes(3 << 20, 3)).unwrap();
    let first = before(spooled, &dir);
    let lazily = first.lazily(&url("a"), &who(), Fresh::Usual).unwrap();
    let mut found = vec![0; 4];
    lazily.read(0, &mut found).unwrap();
    far.set_away(false);
    hop.push(&Scope::All, LIMIT).unwrap();
    lazily.read(2 << 20, &mut found).unwrap();
    same(&found, &bytes(3 << 20, 3)[2 << 20..(2 << 20) + 4]);
}

#[test]
fn edit_from_hop_spares_foreign_file() {
    let (far, dir) = both();
    let (first, editing) = taken_from_a_hop(&far, &dir);
    far.put("a", b"theirs of all");
    editing.file().unwrap().write_all_at(b"last_", 0).unwrap();
    editing.end().unwrap();
    let refused = first.push_through((&url("a"), &who()), LIMIT, &|| true);
    assert!(refused.is_err(), "{refused:?}");
    same(far.get("a").unwrap(), b"theirs of all");
}

#[test] //= KANGAROO-80
fn remove_follows_file_in_flight() {
    let (far, dir) = both();
    let (depot, spooled) = spooled(&far, &dir);
    far.set_away(true);
    write(&spooled, "a", b"bytes").unwrap();
    let (far, spooled) = (&far, &spooled);
    std::thread::scope(|scope| {
        let path = Path::new("a");
        let removing = scope.spawn(move || spooled.remove(path, RemovalKind::File));
        far.set_away(false);
        removing.join().unwrap().unwrap();
    });
    depot.push(&Scope::All, LIMIT).unwrap();
    assert_eq!(far.get("a"), None);
}

fn names_of(store: &dyn Store, folder: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut each = |entry: godwit_store::Entry| {
        names.push(entry.path.display().to_string());
        Ok(())
    };
    store.list(Path::new(folder), &mut each).unwrap();
    names.sort();
    names
}

#[test] //= KANGAROO-80 hops#names
fn pending_names_survive_hop_restart() {
    let (far, dir) = both();
    far.put("old", b"old");
    far.put("gone", b"x");
    let (depot, hop) = spooled(&far, &dir);
    let path = |name: &'static str| Path::new(name);
    far.set_away(true);
    write(&hop, "a", b"first").unwrap();
    hop.rename(path("a"), path("b")).unwrap();
    write(&hop, "a", b"second").unwrap();
    hop.rename(path("old"), path("older")).unwrap();
    hop.remove(path("gone"), RemovalKind::File).unwrap();
    hop.mkdir(path("d")).unwrap();
    write(&hop, "d/x", b"below").unwrap();
    // A reader through the hop sees the changes.
    let gone = hop.stat(path("gone"));
    assert!(matches!(gone, Err(Error::Missing { .. })), "{gone:?}");
    assert_eq!(hop.stat(path("b")).unwrap().size, 5);
    let made = hop.stat(path("d")).unwrap();
    assert_eq!(made.kind, godwit_store::EntryKind::Directory);
    let again = hop.mkdir(path("d"));
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
    // The changes survive a restart of the hop.
    drop((depot, hop));
    let (depot, hop) = spooled(&far, &dir);
    far.set_away(false);
    assert_eq!(names_of(&hop, ""), ["a", "b", "d", "older"]);
    depot.push(&Scope::All, LIMIT).unwrap();
    for (name, wanted) in [
        ("b", "first"),
        ("a", "second"),
        ("older", "old"),
        ("d/x", "below"),
    ] {
        same(far.get(name).unwrap_or_default(), wanted);
    }
    assert_eq!((far.get("old"), far.get("gone")), (None, None));
    assert_eq!(names_of(&hop, ""), ["a", "b", "d", "older"]);
}

#[test] //= KANGAROO-53 hops#names
fn rename_waits_for_pending_target() {
    let (far, dir) = both();
    far.put("old", b"old");
    let (depot, hop) = spooled(&far, &dir);
    far.trouble(godwit_store::Defect::FullAt(0));
    write(&hop, "b", b"new").unwrap();
    hop.rename(Path::new("old"), Path::new("b")).unwrap();
    same(far.get("old").unwrap_or_default(), "old");
    far.store.mend();
    depot.push(&Scope::All, LIMIT).unwrap();
    same(far.get("b").unwrap_or_default(), "old");
    assert_eq!(far.get("old"), None);
}

#[test] //= hops#what-a-hop-does-not-pass-on
fn hop_keeps_file_mode() {
    let (far, dir) = both();
    far.set_away(true);
    let (depot, hop) = spooled(&far, &dir);
    let write = Write {
        mode: Some(0o600),
        ..Write::default()
    };
    let sink = hop.write(Path::new("a"), &write).unwrap();
    sink.finish(&Expected::default()).unwrap();
    // The mode survives a restart of the hop, and a question that gets no answer.
    drop((depot, hop));
    far.misses_one("stat");
    far.set_away(false);
    let (depot, _hop) = spooled(&far, &dir);
    depot.push(&Scope::All, LIMIT).unwrap();
    let meta = far.dir.path().join("a").metadata().unwrap();
    assert_eq!(meta.mode() & 0o777, 0o600);
}

#[test] //= KANGAROO-X2 hops#what-a-hop-does-not-pass-on
fn hop_forwards_records_once() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    let append = |seq: u64, bytes: &[u8], passed: &[String]| -> godwit_store::Result<()> {
        let size = Some(bytes.len() as u64);
        let write = Write {
            how: WriteMode::Append { writer: 7, seq },
            size,
            passed,
            ..Write::default()
        };
        let sink = hop.write(Path::new("log"), &write)?;
        sink.put(Block { offset: 0, bytes })?;
        let whole = Expected {
            size,
            ..Expected::default()
        };
        sink.finish(&whole).map(drop)
    };
    append(1, b"one\n", &[]).unwrap();
    append(1, b"one\n", &[]).unwrap();
    append(2, b"two\n", &[]).unwrap();
    let late = append(4, b"four\n", &[]);
    assert!(matches!(late, Err(Error::OutOfTurn { .. })), "{late:?}");
    let circle = append(3, b"three\n", &["hop".into()]);
    assert!(matches!(circle, Err(Error::Loop { .. })), "{circle:?}");
    let unnumbered = append(0, b"three\n", &[]);
    assert!(
        matches!(unnumbered, Err(Error::Unsupported { .. })),
        "{unnumbered:?}"
    );
    far.set_away(true);
    let away = append(3, b"three\n", &[]);
    assert!(matches!(away, Err(Error::Unreachable { .. })), "{away:?}");
    assert!(!depot.has_pending(), "its writer has it");
    far.set_away(false);
    append(3, b"three\n", &[]).unwrap();
    same(far.get("log").unwrap(), "one\ntwo\nthree\n");
}

#[test] //= hops#names
fn later_rename_ignores_stale_record() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    write(&hop, "a", b"older").unwrap();
    write(&hop, "b", b"newer").unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    hop.rename(Path::new("b"), Path::new("a")).unwrap();
    same(far.get("a").unwrap_or_default(), "newer");
    far.trouble(godwit_store::Defect::FullAt(0));
    write(&hop, "c", b"on its way").unwrap();
    hop.rename(Path::new("a"), Path::new("c")).unwrap();
    far.store.mend();
    depot.push(&Scope::All, LIMIT).unwrap();
    same(far.get("c").unwrap_or_default(), "newer");
    assert_eq!(far.get("a"), None);
}

#[test]
fn hop_checks_file_before_rename() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    write(&hop, "a", b"ours").unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    far.put("a", b"theirs, and it is seen");
    far.trouble(godwit_store::Defect::FullAt(0));
    write(&hop, "c", b"on its way").unwrap();
    hop.rename(Path::new("a"), Path::new("c")).unwrap();
    far.store.mend();
    depot.push(&Scope::All, LIMIT).unwrap();
    same(far.get("c").unwrap_or_default(), "theirs, and it is seen");
}

#[test] //= hops#names
fn foreign_change_stops_pending_rename() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    write(&hop, "a", b"ours").unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    far.trouble(godwit_store::Defect::FullAt(0));
    write(&hop, "c", b"on its way").unwrap();
    hop.rename(Path::new("a"), Path::new("c")).unwrap();
    far.put("a", b"theirs");
    far.store.mend();
    let pushed = depot.push(&Scope::All, LIMIT);
    assert!(
        matches!(pushed, Err(godwit_depot::Error::Held { .. })),
        "{pushed:?}"
    );
    same(far.get("a").unwrap_or_default(), "theirs");
    same(far.get("c").unwrap_or_default(), "on its way");
}

#[test] //= hops#what-a-hop-does-not-pass-on
fn truncation_passes_hop() {
    let (far, dir) = both();
    far.put("a", &bytes(5000, 6));
    let (_hop, spooled) = spooled(&far, &dir);
    let first = before(spooled, &dir);
    let patch = |name: &str, offset: u64, bytes: &[u8]| {
        put_into(&first, name, offset, bytes);
    };
    let push = |name: &str| {
        first
            .push_through((&url(name), &who()), LIMIT, &|| true)
            .unwrap()
    };
    // The bytes around the patch are cached, so it can be truncated locally.
    let cut = |name: &str, size: u64| {
        drop(first.read(&url(name), &who(), Fresh::Any).unwrap());
        first.truncate(&url(name), size, by()).unwrap();
    };
    let mut wanted = bytes(5000, 6);
    wanted[10..16].copy_from_slice(b"inside");
    wanted.truncate(100);
    patch("a", 10, b"inside");
    cut("a", 100);
    push("a");
    same(far.get("a").unwrap(), &wanted);
    patch("empty", 0, b"some");
    cut("empty", 0);
    push("empty");
    assert_eq!(far.get("empty"), Some(Vec::new()));
}

#[test] //= hops#what-a-hop-does-not-pass-on
fn offline_hop_passes_truncation() {
    let (far, dir) = both();
    far.put("a", &bytes(5000, 6));
    let (hop, spooled) = spooled(&far, &dir);
    let write = Write::with(WriteMode::InPlace);
    let whole = |size| Expected::of_size(size);
    far.set_away(true);
    let sink = spooled.write(Path::new("a"), &write).unwrap();
    let (offset, bytes) = (0, &b"beginning"[..]);
    sink.put(Block { offset, bytes }).unwrap();
    sink.finish(&whole(4)).unwrap();
    // `empty` never existed.
    let sink = spooled.write(Path::new("empty"), &write).unwrap();
    sink.finish(&whole(0)).unwrap();
    far.set_away(false);
    hop.push(&Scope::All, LIMIT).unwrap();
    same(far.get("a").unwrap(), "begi");
    assert_eq!(far.get("empty"), Some(Vec::new()));
}

#[test] //= hops#on-hold-at-a-hop
fn upstream_push_reports_hop_hold() {
    let (far, dir) = both();
    let (hop, spooled) = spooled(&far, &dir);
    let first = before(spooled.clone(), &dir);
    write(&spooled, "a", b"ours").unwrap();
    hop.push(&Scope::All, LIMIT).unwrap();
    far.trouble(godwit_store::Defect::FullAt(0));
    write(&spooled, "c", b"on its way").unwrap();
    first.rename(&url("a"), &url("c"), by()).unwrap();
    common::until("the hop has promised it", || {
        hop.queue().iter().any(|row| row.what == "rename")
    });
    far.put("a", b"theirs");
    far.store.mend();
    let pushed = first.push(&Scope::All, LIMIT);
    assert!(
        matches!(&pushed, Err(godwit_depot::Error::Held { why, .. }) if why.contains("--at-hop")),
        "{pushed:?}"
    );
    let nothing = spooled.decide(Path::new("c"), Remedy::Release, &[]);
    assert!(matches!(nothing, Err(Error::Missing { .. })), "{nothing:?}");
    let circle = spooled.decide(Path::new("a"), Remedy::Release, &["hop".into()]);
    assert!(matches!(circle, Err(Error::Loop { .. })), "{circle:?}");
    same(far.get("c").unwrap_or_default(), "on its way");
    spooled
        .decide(Path::new("a"), Remedy::Release, &[])
        .unwrap();
    first.push(&Scope::All, LIMIT).unwrap();
    same(far.get("c").unwrap_or_default(), "theirs");
    assert!(!first.has_pending() && !hop.has_pending());
}

#[test] //= hops#delivery
fn push_waits_for_forgotten_file() {
    let (far, dir) = both();
    far.set_away(true);
    let (_hop, spooled) = spooled(&far, &dir);
    let first = before(spooled.clone(), &dir);
    common::put(&first, "a", b"bytes");
    let is_early = |depot: &Depot| {
        let pushed = depot.push(&Scope::All, Some(Duration::from_millis(700)));
        !matches!(pushed, Err(godwit_depot::Error::TimedOut { .. }))
    };
    assert!(!is_early(&first));
    // The patch replaces the local copy, which is dropped once the hop has it.
    put_into(&first, "a", 5, b" and more");
    common::until("the hop has it", || !first.has_pending());
    assert!(!is_early(&first), "the hop has all of it");
    drop(first);
    let first = before(spooled, &dir);
    assert!(!is_early(&first), "nothing is remembered");
    far.set_away(false);
    first.push(&Scope::All, LIMIT).unwrap();
    same(far.get("a").unwrap(), b"bytes and more");
    // After delivery the target is not asked again.
    far.set_away(true);
    assert!(is_early(&first));
}

fn held_at(hop: &Depot) -> Vec<String> {
    let held = hop.queue().into_iter();
    let held = held.filter(|row| row.stage == Stage::Held);
    held.map(|row| row.why).collect()
}

#[test] //= hops#names
fn directory_waits_for_its_parent() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    far.set_away(true);
    hop.mkdir(Path::new("a/b")).unwrap();
    let is_tried = || depot.queue().iter().any(|row| row.tries > 0);
    common::until("it is tried in vain, and looked at next", is_tried);
    far.set_away(false);
    let pushed = depot.push(&Scope::All, LIMIT);
    assert!(
        matches!(&pushed, Err(godwit_depot::Error::Held { why, .. }) if why.contains("mkdir")),
        "{pushed:?}"
    );
    assert!(held_at(&depot)[0].contains("ftp://far/a is not there"));
    // A retry changes nothing; the directory is made once its parent is there.
    hop.decide(Path::new("a/b"), Remedy::Retry, &[]).unwrap();
    let again = depot.push(&Scope::All, LIMIT);
    assert!(
        matches!(again, Err(godwit_depot::Error::Held { .. })),
        "{again:?}"
    );
    hop.mkdir(Path::new("a")).unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    assert!(far.dir.path().join("a/b").is_dir());
    // The operator can also drop it.
    far.set_away(true);
    hop.mkdir(Path::new("c/d")).unwrap();
    far.set_away(false);
    assert!(depot.push(&Scope::All, LIMIT).is_err());
    hop.decide(Path::new("c/d"), Remedy::Drop, &[]).unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
}

#[test] //= hops#names
fn rename_waits_for_target_directory() {
    let (far, dir) = both();
    far.put("old", b"old");
    let (depot, hop) = spooled(&far, &dir);
    let renamed = |from: &str, to: &str| {
        far.trouble(godwit_store::Defect::FullAt(0));
        write(&hop, from, b"new").unwrap();
        hop.rename(Path::new(from), Path::new(to)).unwrap();
        far.store.mend();
        depot.push(&Scope::All, LIMIT)
    };
    let pushed = renamed("old", "no/new");
    assert!(
        matches!(&pushed, Err(godwit_depot::Error::Held { why, .. }) if why.contains("ftp://far/no is not there")),
        "{pushed:?}"
    );
    same(far.get("old").unwrap_or_default(), "new");
    // The error names the old name, which is the one to decide on.
    for name in ["old", "no/new"] {
        let pushed = hop.push(Path::new(name), None);
        let is_missing = |cause: &Error| matches!(cause, Error::Missing { .. });
        assert!(
            matches!(&pushed, Err(Error::Held { path, cause: Some(cause), .. }) if path.ends_with("old") && is_missing(cause)),
            "{pushed:?}"
        );
    }
    hop.mkdir(Path::new("no")).unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    same(far.get("no/new").unwrap_or_default(), "new");
    assert_eq!(far.get("old"), None);
    // If the file itself is missing, the error says so.
    far.put("other", b"old");
    far.trouble(godwit_store::Defect::FullAt(0));
    write(&hop, "other", b"new").unwrap();
    hop.rename(Path::new("other"), Path::new("none/other"))
        .unwrap();
    far.store.mend();
    assert!(depot.push(&Scope::All, LIMIT).is_err());
    std::fs::remove_file(far.dir.path().join("other")).unwrap();
    hop.decide(Path::new("other"), Remedy::Retry, &[]).unwrap();
    let pushed = depot.push(&Scope::All, LIMIT);
    assert!(
        matches!(&pushed, Err(godwit_depot::Error::Held { why, .. }) if why.contains("not there any more")),
        "{pushed:?}"
    );
    hop.decide(Path::new("other"), Remedy::Drop, &[]).unwrap();
}

#[test] //= hops#names
fn mkdir_frees_files_below() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    write(&hop, "d/x", b"one").unwrap();
    write(&hop, "e/f/x", b"two").unwrap();
    assert!(depot.push(&Scope::All, LIMIT).is_err());
    assert_eq!(held_at(&depot).len(), 2);
    hop.mkdir(Path::new("d")).unwrap();
    assert!(far.dir.path().join("d").is_dir());
    // The same holds while the target is away, and after a restart.
    far.set_away(true);
    hop.mkdir(Path::new("e")).unwrap();
    hop.mkdir(Path::new("e/f")).unwrap();
    drop((depot, hop));
    let (depot, _hop) = spooled(&far, &dir);
    far.set_away(false);
    common::until("it goes on by itself", || far.get("e/f/x").is_some());
    depot.push(&Scope::All, LIMIT).unwrap();
    same(far.get("d/x").unwrap_or_default(), "one");
    same(far.get("e/f/x").unwrap_or_default(), "two");
}

fn remove(hop: &Spooled, name: &str, what: RemovalKind) -> godwit_store::Result<()> {
    hop.remove(Path::new(name), what)
}

#[test] //= hops#names
fn removal_keeps_holds_below() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    std::fs::create_dir(far.dir.path().join("d")).unwrap();
    write(&hop, "d/e/x", b"bytes").unwrap();
    assert!(depot.push(&Scope::All, LIMIT).is_err());
    let kept = |what: &str| assert_eq!(held_at(&depot).len(), 1, "{what}");
    for what in [RemovalKind::File, RemovalKind::Directory] {
        for away in [false, true] {
            far.set_away(away);
            for name in ["d", "d/e"] {
                let refused = remove(&hop, name, what);
                assert!(refused.is_err(), "{name} {what:?} {away}");
                kept(name);
            }
        }
    }
    far.set_away(false);
    assert!(far.dir.path().join("d").is_dir());
    // Its own name gives it up, and nothing else.
    remove(&hop, "d/e/x", RemovalKind::File).unwrap();
    assert!(!depot.has_pending());
    remove(&hop, "d", RemovalKind::Directory).unwrap();
    assert!(!far.dir.path().join("d").exists());
}

#[test] //= hops#names
fn removal_clears_way_for_hold() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    far.put("d", b"a file");
    write(&hop, "d/x", b"bytes").unwrap();
    assert!(depot.push(&Scope::All, LIMIT).is_err());
    remove(&hop, "d", RemovalKind::File).unwrap();
    assert_eq!((far.get("d"), held_at(&depot).len()), (None, 1));
    hop.mkdir(Path::new("d")).unwrap();
    hop.decide(Path::new("d/x"), Remedy::Retry, &[]).unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    same(far.get("d/x").unwrap_or_default(), "bytes");
}

#[test] //= hops#names
fn removal_drops_own_hold_only() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    far.set_away(true);
    let new = Write::with(WriteMode::New);
    let sink = hop.write(Path::new("a"), &new).unwrap();
    sink.finish(&Expected::default()).unwrap();
    far.put("a", b"theirs");
    far.set_away(false);
    assert!(depot.push(&Scope::All, LIMIT).is_err());
    remove(&hop, "a", RemovalKind::File).unwrap();
    assert!(!depot.has_pending());
    same(far.get("a").unwrap_or_default(), "theirs");
    // Now it is theirs that is seen, and meant.
    remove(&hop, "a", RemovalKind::File).unwrap();
    assert_eq!(far.get("a"), None);
}

#[test] //= hops#names
fn removal_spares_foreign_file() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    for name in ["a", "b", "c"] {
        write(&hop, name, b"first").unwrap();
    }
    depot.push(&Scope::All, LIMIT).unwrap();
    far.set_away(true);
    for name in ["a", "b", "c"] {
        write(&hop, name, b"ours").unwrap();
    }
    write(&hop, "b", b"ours once more").unwrap();
    drop((depot, hop));
    let (depot, hop) = spooled(&far, &dir);
    for name in ["a", "b"] {
        far.put(name, b"theirs");
    }
    for name in ["a", "b", "c"] {
        remove(&hop, name, RemovalKind::File).unwrap();
    }
    far.set_away(false);
    let pushed = depot.push(&Scope::All, LIMIT);
    assert!(
        matches!(pushed, Err(godwit_depot::Error::Held { .. })),
        "{pushed:?}"
    );
    for name in ["a", "b"] {
        same(far.get(name).unwrap_or_default(), "theirs");
    }
    assert_eq!((far.get("c"), held_at(&depot).len()), (None, 2));
    hop.decide(Path::new("a"), Remedy::Release, &[]).unwrap();
    hop.decide(Path::new("b"), Remedy::Drop, &[]).unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    assert_eq!(far.get("a"), None);
    same(far.get("b").unwrap_or_default(), "theirs");
}

#[test] //= hops#names
fn removal_reaches_delivered_file() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    for name in ["a", "b", "c"] {
        write(&hop, name, b"first").unwrap();
    }
    depot.push(&Scope::All, LIMIT).unwrap();
    far.set_away(true);
    for name in ["a", "b", "b", "c"] {
        write(&hop, name, b"second").unwrap();
    }
    drop((depot, hop));
    let (depot, hop) = spooled(&far, &dir);
    far.put("c", b"theirs");
    for name in ["a", "b", "c"] {
        remove(&hop, name, RemovalKind::File).unwrap();
    }
    far.set_away(false);
    let pushed = depot.push(&Scope::All, LIMIT);
    assert!(
        matches!(pushed, Err(godwit_depot::Error::Held { .. })),
        "{pushed:?}"
    );
    assert_eq!((far.get("a"), far.get("b")), (None, None));
    same(far.get("c").unwrap_or_default(), "theirs");
}

#[test] //= hops#names
fn undone_mkdir_is_not_seen() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    let path = |name: &'static str| Path::new(name);
    far.set_away(true);
    hop.mkdir(path("d")).unwrap();
    remove(&hop, "d", RemovalKind::Directory).unwrap();
    let gone = hop.stat(path("d"));
    assert!(matches!(gone, Err(Error::Missing { .. })), "{gone:?}");
    hop.mkdir(path("d")).unwrap();
    write(&hop, "d/x", b"bytes").unwrap();
    hop.rename(path("d"), path("e")).unwrap();
    assert!(hop.stat(path("d")).is_err());
    assert_eq!(names_of(&hop, "e"), ["x"]);
    far.set_away(false);
    depot.push(&Scope::All, LIMIT).unwrap();
    same(far.get("e/x").unwrap_or_default(), "bytes");
    assert_eq!(names_of(&hop, ""), ["e"]);
}

#[test] //= hops#on-hold-at-a-hop
fn push_names_all_holds() {
    let (far, dir) = both();
    let rules = || godwit_depot::Rules {
        movers: 3,
        ..godwit_depot::Rules::default()
    };
    let hop = Depot::open(&dir.path().join("hop"), rules(), far.connect()).unwrap();
    let hop = Spooled::new(hop.into(), url(""), who(), "hop").unwrap();
    let first = Depot::open(&dir.path().join("first"), rules(), reaching(hop)).unwrap();
    let names: Vec<_> = (0..10).map(|nth| format!("none/{nth}")).collect();
    for name in &names {
        common::put(&first, name, b"held");
    }
    common::put(&first, "goes", b"goes");
    let begun = std::time::Instant::now();
    let pushed = first.push(&Scope::All, LIMIT).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(9), "{pushed}");
    same(far.get("goes").unwrap_or_default(), "goes");
    let said = pushed.to_string();
    let named = names.iter().filter(|name| said.contains(*name));
    assert_eq!(named.count(), 9, "{said}");
    assert!(said.ends_with(" and 1 more"), "{said}");
}

#[test]
fn removed_file_is_unknown_offline() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    let hop = hop.keeping();
    for name in ["a", "b"] {
        write(&hop, name, b"older").unwrap();
    }
    depot.push(&Scope::All, LIMIT).unwrap();
    remove(&hop, "a", RemovalKind::File).unwrap();
    hop.rename(Path::new("b"), Path::new("c")).unwrap();
    far.set_away(true);
    for name in ["a", "b", "c"] {
        let told = hop.stat(Path::new(name));
        let is_unknown = matches!(told, Err(Error::Beyond { .. } | Error::Missing { .. }));
        assert!(is_unknown, "{name}: {told:?}");
    }
}

#[test]
fn removal_ignores_replaced_version() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    write(&hop, "a", b"older").unwrap();
    write(&hop, "b", b"newer").unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    hop.rename(Path::new("b"), Path::new("a")).unwrap();
    far.set_away(true);
    write(&hop, "a", b"newest").unwrap();
    remove(&hop, "a", RemovalKind::File).unwrap();
    far.set_away(false);
    depot.push(&Scope::All, LIMIT).unwrap();
    assert_eq!(far.get("a"), None);
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
}

#[test]
fn missing_file_is_unknown_offline() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    let hop = hop.keeping();
    write(&hop, "a", b"older").unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    std::fs::remove_file(far.dir.path().join("a")).unwrap();
    let told = hop.stat(Path::new("a"));
    assert!(matches!(told, Err(Error::Missing { .. })), "{told:?}");
    far.set_away(true);
    let told = hop.stat(Path::new("a"));
    assert!(matches!(told, Err(Error::Beyond { .. })), "{told:?}");
}

/// Requests about names that exist: `a`, `b`, `c`, `d` and the directory `gone`; `made` does not.
type Act = fn(&Spooled) -> godwit_store::Result<()>;

const ACTS: [(&str, Act); 6] = [
    ("removed", |hop| remove(hop, "a", RemovalKind::File)),
    ("removed directory", |hop| {
        remove(hop, "gone", RemovalKind::Directory)
    }),
    ("renamed", |hop| hop.rename(Path::new("b"), Path::new("e"))),
    ("made", |hop| hop.mkdir(Path::new("made"))),
    ("set", |hop| hop.set(Path::new("c"), &Set::of_mode(0o600))),
    ("cut", |hop| hop.set(Path::new("d"), &Set::of_length(1))),
];

/// Returns a hop whose target has the names of `ACTS`.
fn with_names(far: &Far, dir: &tempfile::TempDir) -> (Arc<Depot>, Spooled) {
    for name in ["a", "b", "c", "d"] {
        far.put(name, name.as_bytes());
    }
    std::fs::create_dir(far.dir.path().join("gone")).unwrap();
    spooled(far, dir)
}

#[test] //= hops#names
fn immediate_changes_are_durable() {
    let (far, dir) = both();
    let (depot, hop) = with_names(&far, &dir);
    for (what, act) in ACTS {
        let flushed = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&flushed);
        far.on_ask(move |asked, _| {
            seen.fetch_or(asked == "flush", SeqCst);
            Ok(())
        });
        act(&hop).unwrap();
        assert!(flushed.load(SeqCst), "{what}");
    }
    assert!(!depot.has_pending());
    far.put("a", b"again");
    far.is_unsafe.store(true, SeqCst);
    let unsafe_there = remove(&hop, "a", RemovalKind::File);
    assert!(
        matches!(unsafe_there, Err(Error::Lost { .. })),
        "{unsafe_there:?}"
    );
}

/// The caller learns that the connection was lost, and looks by itself.
#[test]
fn lost_flush_promises_nothing_again() {
    let (far, dir) = both();
    let (depot, hop) = with_names(&far, &dir);
    far.on_ask(|asked, _| match asked {
        "flush" => Err(Error::Unreachable {
            host: "far".into(),
            cause: std::io::ErrorKind::ConnectionRefused.into(),
        }),
        _ => Ok(()),
    });
    for (what, act) in ACTS {
        let told = act(&hop);
        assert!(matches!(told, Err(Error::Lost { .. })), "{what}: {told:?}");
        assert!(!depot.has_pending(), "{what}: {:?}", depot.queue());
    }
}

#[test]
fn push_ends_after_hop_drops() {
    let (far, dir) = both();
    let (depot, hop) = spooled(&far, &dir);
    far.put("d", b"a file");
    let first = before(hop, &dir);
    let writing = first.put(&url("d/x"), &who(), &over()).unwrap();
    writing.write(0, b"bytes").unwrap();
    writing.end().unwrap();
    assert!(first.push(&Scope::All, LIMIT).is_err());
    for row in depot.queue() {
        depot.discard(&row.id).unwrap();
    }
    // The first push reports that the file is missing at the hop; the second has nothing pending.
    let told = first.push(&Scope::All, LIMIT);
    assert!(
        matches!(told, Err(godwit_depot::Error::GoneBehind { .. })),
        "{told:?}"
    );
    first.push(&Scope::All, LIMIT).unwrap();
}
