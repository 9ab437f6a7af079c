//! Writes by name: new files, new versions, copies, deletions, and the remains of a dead process.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::options;
use godwit_catalog::{
    Catalog, CatalogAnswer, CatalogEntry, Change, Intent, IntentDeed, NewHome, Question, find,
};
use godwit_core::{Algorithm, Block, Digest, HomeState, Kind, Url};
use godwit_farm::{AuditScope, CopyAim, Logical, Settled, audit, register, repair};
use godwit_store::{
    Error, Expected, Finished, RemovalKind, Result, SmallWrite, Store, StoreExt, Write, WriteMode,
    check,
    engine::{CopyTask, OverwriteRule, Stores, Summary, copy},
};
use godwit_wire::door::call::{Name, Text};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A catalog with the collection `c`, whose files may lie at the sites `lab` and `archive`.
struct World {
    root: tempfile::TempDir,
    catalog: Arc<dyn Catalog>,
    names: Logical,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let catalog = common::catalog(root.path());
        let names = Logical::new(catalog.clone(), options());
        let world = Self {
            root,
            catalog,
            names,
        };
        for site in ["lab", "archive"] {
            fs::create_dir(world.root.path().join(site)).unwrap();
            world.add(site);
        }
        world
    }

    fn add(&self, site: &str) {
        let url = Url::file(self.root.path().join(site)).unwrap().to_string();
        let (name, site, whole) = (Name("c".into()), site.into(), true);
        let change = Change::AddLocation {
            name,
            site,
            url,
            whole,
        };
        self.change(change).unwrap();
    }

    fn change(&self, change: Change) -> Result<u64, godwit_catalog::Refusal> {
        self.catalog.change(&change.into()).map(|made| made[0])
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn bytes(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    fn entry(&self, name: &str) -> Option<CatalogEntry> {
        find(&*self.catalog, Path::new(name)).unwrap()
    }

    /// Returns the sites of a name with the states of their copies.
    fn homes(&self, name: &str) -> Vec<(String, HomeState)> {
        let homes = self.entry(name).unwrap().homes.into_iter();
        homes.map(|home| (home.site, home.state.0)).collect()
    }

    fn intents(&self) -> Vec<Intent> {
        let mut found = Vec::new();
        let (ended, name) = (false, None);
        let each = &mut |answer| {
            if let CatalogAnswer::Intent(intent) = answer {
                found.push(*intent);
            }
            Ok(())
        };
        self.catalog
            .ask(&Question::Intents { ended, name }, each)
            .unwrap();
        found
    }

    /// Ends all leases, as time does.
    fn end_leases(&self) {
        let db = rusqlite::Connection::open(self.path("catalog")).unwrap();
        db.execute("UPDATE intents SET until = 0", []).unwrap();
    }

    /// Registers a file of a directory as `c/NAME`.
    fn register(&self, path: &str, name: &str) {
        let url = Url::file(self.path(path)).unwrap();
        let name = format!("grid:/c/{name}").parse().unwrap();
        let (stores, each) = (Stores::new(options()), &mut |_: &Path, one: Result<()>| {
            one.unwrap()
        });
        register(&*self.catalog, &stores, &url, &name, false, each).unwrap();
    }

    fn settle(&self) -> Vec<Settled> {
        let mut told = Vec::new();
        let each = &mut |_: &Intent, settled: Result<Settled>| told.push(settled.unwrap());
        self.names.settle(Path::new(""), each).unwrap();
        told
    }

    fn at(&self, site: &str) -> Logical {
        self.names.aimed(CopyAim {
            site: Some(site.into()),
            ..CopyAim::default()
        })
    }

    fn copies_at(&self, site: &str) -> Logical {
        self.names.aimed(CopyAim {
            site: Some(site.into()),
            copy: true,
            ..CopyAim::default()
        })
    }

    fn replicate(&self, name: &str, site: &str) -> Summary {
        let url: Url = format!("grid:/{name}").parse().unwrap();
        let task = CopyTask {
            source: self.names.place(&url),
            target: self.copies_at(site).place(&url),
            tree: self.entry(name).unwrap().collection,
            mode: None,
            range: None,
            rule: OverwriteRule::Update,
            delete: false,
        };
        copy(vec![task], &options(), &|_| ())
    }
}

fn put(store: &dyn Store, name: &str, bytes: &[u8]) -> Result<Finished> {
    put_as(store, name, bytes, WriteMode::Replace(None))
}

fn put_as(store: &dyn Store, name: &str, bytes: &[u8], how: WriteMode) -> Result<Finished> {
    let write = Write {
        how,
        ..Write::of_size(bytes.len() as u64)
    };
    let sink = store.write(Path::new(name), &write)?;
    sink.put(Block::at(0, bytes))?;
    sink.finish(&Expected::of_size(bytes.len() as u64))
}

fn read(store: &dyn Store, name: &str) -> Result<Vec<u8>> {
    common::read(store, name, 0..u64::MAX)
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> Kind {
    result.unwrap_err().kind()
}

#[test]
fn written_file_has_version_and_home() {
    let world = World::new();
    put(&world.names, "c/a", b"first").unwrap();
    put(&world.names, "c/a", b"second").unwrap();
    let entry = world.entry("c/a").unwrap();
    assert_eq!((entry.version, entry.size), (2, Some(6)));
    assert_eq!(
        entry.digests,
        [Text(Digest::of(Algorithm::Blake3, b"second"))]
    );
    assert_eq!(world.homes("c/a"), [("lab".into(), HomeState::Whole)]);
    assert!(entry.homes[0].ours && entry.homes[0].version == 2);
    assert_eq!(world.bytes("lab/a").as_deref(), Some("second"));
    assert_eq!(read(&world.names, "c/a").unwrap(), b"second");
    assert_eq!(
        kind(put_as(&world.names, "c/a", b"x", WriteMode::New)),
        Kind::Exists
    );
    assert_eq!(kind(put(&world.names, "c", b"x")), Kind::IsDirectory);
    assert_eq!(kind(put(&world.names, "missing/a", b"x")), Kind::Missing);
    assert_eq!(world.intents(), []);
}

#[test]
fn collection_without_location_is_refused() {
    let world = World::new();
    let collect = Change::Collect {
        name: Name("d".into()),
        parents: false,
    };
    world.change(collect).unwrap();
    let refused = put(&world.names, "d/a", b"x").unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("godwit location add SITE URL grid:/d"),
        "{refused}"
    );
    let refused = put(&world.at("tape"), "c/a", b"x").unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("godwit location add tape URL grid:/c"),
        "{refused}"
    );
}

#[test] //= REPLICAS-3
fn copy_is_made_once_and_adopted() {
    let world = World::new();
    put(&world.names, "c/a", b"content").unwrap();
    put(&world.names, "c/b", &vec![7; 3 << 20]).unwrap();
    fs::write(world.path("archive/b"), vec![7; 3 << 20]).unwrap();
    let summary = world.replicate("c", "archive");
    assert_eq!(
        (summary.files, summary.failed),
        (2, 0),
        "{:?}",
        summary.errors
    );
    for name in ["c/a", "c/b"] {
        let both = [("lab", HomeState::Whole), ("archive", HomeState::Whole)];
        assert_eq!(
            world.homes(name),
            both.map(|(site, state)| (site.to_owned(), state))
        );
    }
    let ours = |name: &str| world.entry(name).unwrap().homes[1].ours;
    assert!(ours("c/a") && !ours("c/b"), "what was there is not ours");
    assert_eq!(world.bytes("archive/a").as_deref(), Some("content"));
    assert_eq!(world.replicate("c", "archive").skipped, 2);
    assert_eq!(world.intents(), []);
}

#[test] //= REPLICAS-55
fn other_bytes_are_never_replaced() {
    let world = World::new();
    fs::write(world.path("lab/a"), "of others").unwrap();
    let refused = put(&world.names, "c/a", b"content").unwrap_err();
    assert!(
        refused.to_string().contains("the catalog does not know it"),
        "{refused}"
    );
    assert_eq!(world.entry("c/a"), None);
    put(&world.at("archive"), "c/a", b"content").unwrap();
    let summary = world.replicate("c/a", "lab");
    assert_eq!(summary.failed, 1);
    assert!(
        matches!(
            summary.errors[0],
            Error::Corrupt { .. } | Error::Unsupported { .. }
        ),
        "{:?}",
        summary.errors
    );
    assert_eq!(world.bytes("lab/a").as_deref(), Some("of others"));
    assert_eq!(world.homes("c/a"), [("archive".into(), HomeState::Whole)]);
    assert_eq!(world.intents(), []);
    // Of the same length, and large enough to go alone.
    let (ours, theirs) = (vec![1; 2 << 20], vec![2; 2 << 20]);
    put(&world.at("archive"), "c/b", &ours).unwrap();
    fs::write(world.path("lab/b"), &theirs).unwrap();
    assert_eq!(world.replicate("c/b", "lab").failed, 1);
    assert_eq!(fs::read(world.path("lab/b")).unwrap(), theirs);
    assert_eq!(world.homes("c/b").len(), 1);
}

#[test] //= REPLICAS-9
fn stale_base_is_refused() {
    let world = World::new();
    put(&world.names, "c/a", b"first").unwrap();
    let based = |content: &[u8]| {
        world.names.aimed(CopyAim {
            base: Some(Digest::of(Algorithm::Blake3, content)),
            ..CopyAim::default()
        })
    };
    put(&based(b"first"), "c/a", b"second").unwrap();
    assert_eq!(kind(put(&based(b"first"), "c/a", b"third")), Kind::Changed);
    assert_eq!(world.bytes("lab/a").as_deref(), Some("second"));
}

#[test] //= REPLICAS-9
fn second_publisher_loses_whole() {
    let world = World::new();
    put(&world.names, "c/a", b"old").unwrap();
    world.replicate("c/a", "archive");
    let begin = |store: &Logical, bytes: &[u8]| {
        let sink = store
            .write(Path::new("c/a"), &Write::of_size(bytes.len() as u64))
            .unwrap();
        sink.put(Block::at(0, bytes)).unwrap();
        sink
    };
    let (one, two) = (
        begin(&world.at("lab"), b"one"),
        begin(&world.at("archive"), b"two"),
    );
    one.finish(&Expected::of_size(3)).unwrap();
    assert_eq!(
        two.finish(&Expected::of_size(3)).unwrap_err().kind(),
        Kind::Changed
    );
    assert_eq!(world.homes("c/a"), [("lab".into(), HomeState::Whole)]);
    assert_eq!(world.bytes("archive/a"), None, "nothing is dark");
    assert_eq!(read(&world.names, "c/a").unwrap(), b"one");
    assert_eq!(world.intents(), []);
}

#[test]
fn small_files_go_in_packs() {
    let world = World::new();
    let given = |at: usize| SmallWrite {
        path: format!("c/{at}").into(),
        bytes: format!("content {at}").into_bytes(),
        how: WriteMode::Replace(None),
        mtime: None,
        mode: Some(0o640),
    };
    fs::write(world.path("lab/3"), "of others").unwrap();
    for round in 0..2 {
        let mut files = (0..20).map(given);
        let mut told = Vec::new();
        let each = &mut |path: PathBuf, finished: Result<Finished>| told.push((path, finished));
        world.names.write_small(&mut || files.next(), each).unwrap();
        let failed: Vec<_> = told
            .iter()
            .filter(|(_, one)| one.is_err())
            .map(|(path, _)| path)
            .collect();
        assert_eq!(failed, [Path::new("c/3")], "round {round}");
        assert_eq!(told.len(), 20);
    }
    assert_eq!(read(&world.names, "c/7").unwrap(), b"content 7");
    assert_eq!(world.entry("c/7").unwrap().version, 2);
    assert_eq!(world.bytes("lab/3").as_deref(), Some("of others"));
    assert_eq!(world.intents(), []);
}

#[test]
fn removed_file_takes_our_bytes() {
    let world = World::new();
    put(&world.names, "c/a", b"ours").unwrap();
    fs::write(world.path("archive/a"), "ours").unwrap();
    world.register("archive/a", "a");
    world
        .names
        .remove(Path::new("c/a"), RemovalKind::File)
        .unwrap();
    assert_eq!(
        (world.bytes("lab/a"), world.bytes("archive/a").as_deref()),
        (None, Some("ours"))
    );
    assert_eq!((world.entry("c/a"), world.intents()), (None, vec![]));
    assert_eq!(
        kind(world.names.remove(Path::new("c/a"), RemovalKind::File)),
        Kind::Missing
    );
}

#[test]
fn registered_bytes_that_changed_stay() {
    let world = World::new();
    for (name, bytes) in [("small", vec![1; 100]), ("large", vec![1; 3 << 20])] {
        let (path, file) = (format!("archive/{name}"), format!("c/{name}"));
        put(&world.names, &file, &bytes).unwrap();
        fs::write(world.path(&path), &bytes).unwrap();
        world.register(&path, name);
        let homes = world.entry(&file).unwrap().homes;
        let site = homes.iter().find(|home| !home.ours).unwrap().site.clone();
        // Its owner edits the file, and godwit notices that.
        fs::write(world.path(&path), "edited in place").unwrap();
        let scope = AuditScope {
            digests: true,
            ..AuditScope::default()
        };
        let (audited, found) = audit(&world.names, &scope, &mut |one| drop(one.unwrap())).unwrap();
        assert_eq!(audited.left(), 1, "{found:?}");
        let repaired = repair(&world.names, found, &options(), &|_, _| ()).unwrap();
        assert_eq!(repaired, 0);
        assert_eq!(world.bytes(&path).as_deref(), Some("edited in place"));
        // Nor does a new version by name replace it.
        assert!(put(&world.at(&site), &file, &vec![2; bytes.len()]).is_err());
        let given = SmallWrite {
            path: file.clone().into(),
            bytes: vec![3; 100],
            how: WriteMode::Replace(None),
            mtime: None,
            mode: None,
        };
        let (mut given, mut told) = (Some(given), Vec::new());
        let each = &mut |_: PathBuf, finished: Result<Finished>| told.push(finished);
        world
            .at("archive")
            .write_small(&mut || given.take(), each)
            .unwrap();
        assert!(told.len() == 1 && told[0].is_err(), "{told:?}");
        assert_eq!(world.bytes(&path).as_deref(), Some("edited in place"));
        assert_eq!(read(&world.names, &file).unwrap(), bytes);
        fs::remove_file(world.path(&path)).unwrap();
        world.at(&site).unregister(Path::new(&file)).unwrap();
    }
}

#[test]
fn registered_bytes_of_the_version_are_replaced() {
    let world = World::new();
    fs::write(world.path("lab/a"), "registered").unwrap();
    world.register("lab/a", "a");
    put(&world.names, "c/a", b"new version").unwrap();
    assert_eq!(world.bytes("lab/a").as_deref(), Some("new version"));
    assert_eq!(read(&world.names, "c/a").unwrap(), b"new version");
}

#[test]
fn copy_at_one_site_is_removed() {
    let world = World::new();
    put(&world.names, "c/a", b"ours").unwrap();
    world.replicate("c/a", "archive");
    world
        .at("lab")
        .remove(Path::new("c/a"), RemovalKind::File)
        .unwrap();
    world
        .at("lab")
        .remove(Path::new("c/a"), RemovalKind::File)
        .unwrap();
    assert_eq!(world.bytes("lab/a"), None);
    assert_eq!(
        kind(
            world
                .at("archive")
                .remove(Path::new("c/a"), RemovalKind::File)
        ),
        Kind::Unsupported
    );
    assert_eq!(read(&world.names, "c/a").unwrap(), b"ours");
    let last = CopyAim {
        site: Some("archive".into()),
        last: true,
        ..CopyAim::default()
    };
    world
        .names
        .aimed(last)
        .remove(Path::new("c/a"), RemovalKind::File)
        .unwrap();
    assert_eq!(
        (world.bytes("archive/a"), world.homes("c/a")),
        (None, vec![])
    );
}

#[test] //= FARM-98 REPLICAS-49
fn unregistered_bytes_stay() {
    let world = World::new();
    put(&world.names, "c/a", b"ours").unwrap();
    world.replicate("c/a", "archive");
    world.at("lab").unregister(Path::new("c/a")).unwrap();
    assert_eq!(world.homes("c/a"), [("archive".into(), HomeState::Whole)]);
    assert_eq!(
        kind(world.at("archive").unregister(Path::new("c/a"))),
        Kind::Unsupported
    );
    world.names.unregister(Path::new("c/a")).unwrap();
    assert_eq!(world.entry("c/a"), None);
    let bytes = (world.bytes("lab/a"), world.bytes("archive/a"));
    assert_eq!(bytes, (Some("ours".into()), Some("ours".into())));
}

#[test] //= FARM-98
fn renamed_file_leaves_its_path_alone() {
    let world = World::new();
    put(&world.names, "c/a", b"first").unwrap();
    world
        .names
        .rename(Path::new("c/a"), Path::new("c/b"))
        .unwrap();
    put(&world.names, "c/a", b"second").unwrap();
    assert_eq!(read(&world.names, "c/b").unwrap(), b"first");
    assert_eq!(read(&world.names, "c/a").unwrap(), b"second");
    assert_eq!(world.bytes("lab/a~2").as_deref(), Some("second"));
    world
        .names
        .rename(Path::new("c/a"), Path::new("c/b"))
        .unwrap();
    assert_eq!(read(&world.names, "c/b").unwrap(), b"second");
    assert_eq!(world.bytes("lab/a"), None, "what was replaced is deleted");
}

/// Begins as a process that dies: no process renews the lease.
fn intend(world: &World, deed: IntentDeed, site: &str, base: u64, content: Option<&str>) {
    let locations = world.entry("c").unwrap();
    assert!(locations.collection);
    let mut location = 0;
    let question = Question::Locations {
        name: Name("c".into()),
        count: false,
    };
    let each = &mut |answer| {
        if let CatalogAnswer::Location(one) = answer
            && one.site == site
        {
            location = one.location;
        }
        Ok(())
    };
    world.catalog.ask(&question, each).unwrap();
    let change = Change::Intend {
        deed,
        name: Name("c/a".into()),
        location,
        path: Name("a".into()),
        base,
        holder: "dead".into(),
        size: content.map(|content| content.len() as u64),
        digest: content.map(|content| Text(Digest::of(Algorithm::Blake3, content.as_bytes()))),
    };
    world.change(change).unwrap();
}

#[test] //= REPLICAS-55
fn unpublished_bytes_are_published() {
    let world = World::new();
    intend(&world, IntentDeed::Write, "lab", 0, Some("new"));
    assert_eq!(kind(put(&world.names, "c/a", b"other")), Kind::Busy);
    fs::write(world.path("lab/a"), "new").unwrap();
    world.end_leases();
    assert_eq!(world.settle(), [Settled::Published]);
    assert_eq!(read(&world.names, "c/a").unwrap(), b"new");
}

#[test]
fn unlanded_write_keeps_the_old() {
    let world = World::new();
    put(&world.names, "c/a", b"old").unwrap();
    intend(&world, IntentDeed::Write, "lab", 1, None);
    world.end_leases();
    assert_eq!(world.settle(), [Settled::Kept]);
    intend(&world, IntentDeed::Write, "lab", 1, Some("new"));
    assert_eq!(world.homes("c/a"), [("lab".into(), HomeState::Filling)]);
    world.end_leases();
    assert_eq!(world.settle(), [Settled::Kept]);
    assert_eq!(read(&world.names, "c/a").unwrap(), b"old");
}

#[test]
fn lost_and_damaged_bytes_are_noticed() {
    let world = World::new();
    put(&world.names, "c/a", b"old").unwrap();
    intend(&world, IntentDeed::Write, "lab", 1, Some("new"));
    fs::write(world.path("lab/a"), "wrong").unwrap();
    world.end_leases();
    assert_eq!(world.settle(), [Settled::Damaged]);
    assert_eq!(world.homes("c/a"), [("lab".into(), HomeState::Damaged)]);
    intend(&world, IntentDeed::Copy, "archive", 1, Some("old"));
    world.end_leases();
    assert_eq!(world.settle(), [Settled::Gone]);
    assert_eq!(world.homes("c/a").len(), 1);
}

#[test]
fn superseded_bytes_are_deleted() {
    let world = World::new();
    put(&world.names, "c/a", b"old").unwrap();
    intend(&world, IntentDeed::Write, "archive", 1, Some("late"));
    fs::write(world.path("archive/a"), "late").unwrap();
    put(&world.at("lab"), "c/a", b"newer").unwrap();
    world.end_leases();
    assert_eq!(world.settle(), [Settled::Gone]);
    assert_eq!(world.bytes("archive/a"), None);
    assert_eq!(read(&world.names, "c/a").unwrap(), b"newer");
}

#[test]
fn next_writer_settles_what_died() {
    let world = World::new();
    intend(&world, IntentDeed::Write, "lab", 0, Some("new"));
    fs::write(world.path("lab/a"), "new").unwrap();
    world.end_leases();
    // The first attempt publishes a version, so that the base of this writer is stale.
    let first = put(&world.names, "c/a", b"newer");
    assert_eq!(kind(first), Kind::Changed);
    put(&world.names, "c/a", b"newer").unwrap();
    assert_eq!(world.entry("c/a").unwrap().version, 2);
}

#[test]
fn names_keep_what_stores_promise() {
    // A name has one writer at a time: the second one is refused. Whether bytes can be put again is
    // up to the site.
    let not = [
        "of two that are new one wins",
        "the last to finish wins whole",
        "a version guards what is replaced",
        "of bytes that are put again the last count",
        "bytes are put again after a commit",
        "bytes are put again after a resume",
        "a file is finished shorter than what was put",
    ];
    for (name, check) in check::CHECKS.iter().filter(|(name, _)| !not.contains(name)) {
        let world = World::new();
        let root = Url::file(world.path("lab")).unwrap().to_string();
        let (at, site) = (Name("".into()), "lab".into());
        let whole = true;
        world
            .change(Change::AddLocation {
                name: at,
                site,
                url: root,
                whole,
            })
            .unwrap();
        let change = Change::RemoveLocation {
            name: Name("c".into()),
            site: "lab".into(),
            last: false,
        };
        world.change(change).unwrap();
        let change = Change::RemoveLocation {
            name: Name("c".into()),
            site: "archive".into(),
            last: false,
        };
        world.change(change).unwrap();
        world
            .names
            .remove(Path::new("c"), RemovalKind::Directory)
            .unwrap();
        eprintln!("check {name}");
        check(&world.names, &world.names.can().unwrap());
    }
}

/// One file may have names in two collections, each with a location of its own.
#[test]
fn bytes_of_another_name_stay() {
    let world = World::new();
    for by_site in [false, true] {
        // In the second round its collection exists.
        let _ = world.names.mkdir(Path::new("c/data"));
        put(&world.at("lab"), "c/data/f", b"content").unwrap();
        let one = |change: Change| world.change(change).unwrap();
        let location = one(Change::AddLocation {
            name: Name("z".into()),
            site: "other".into(),
            url: Url::file(world.path("lab/data")).unwrap().to_string(),
            whole: false,
        });
        one(Change::Register {
            name: Name("z/f".into()),
            size: Some(7),
            digests: Vec::new(),
            mtime: None,
            mode: None,
            home: Some(NewHome {
                location,
                path: Name("f".into()),
                ours: true,
                ..NewHome::default()
            }),
        });
        let last = CopyAim {
            site: by_site.then(|| "lab".into()),
            last: true,
            ..CopyAim::default()
        };
        let names = world.names.aimed(last);
        names
            .remove(Path::new("c/data/f"), RemovalKind::File)
            .unwrap();
        assert_eq!(world.bytes("lab/data/f").as_deref(), Some("content"));
        world
            .names
            .remove(Path::new("z/f"), RemovalKind::File)
            .unwrap();
        assert_eq!(world.bytes("lab/data/f"), None);
        if by_site {
            world
                .names
                .remove(Path::new("c/data/f"), RemovalKind::File)
                .unwrap();
        }
    }
}
