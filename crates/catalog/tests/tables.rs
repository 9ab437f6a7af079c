//! The tables of a catalog, asked and changed as its users do.
#![allow(clippy::unwrap_used)]

#[path = "common/postgres.rs"]
mod server;
#[path = "../../godwit/tests/common/skip.rs"]
mod skip;

use godwit_catalog::{
    Catalog, CatalogAnswer, CatalogEntry, CatalogHome, Change, Changes, HomeWord, IntentDeed,
    Measured, NewHome, PAGE, Pages, Question, Ran, Refusal, Result, copies, draft_name, find,
    fragment_name, history, intents, open,
};
use godwit_core::{Algorithm, Digest, HomeState, Kind};
use godwit_wire::door::call::{Name, Text};
use std::sync::Arc;
use tempfile::TempDir;

struct World {
    catalog: Arc<dyn Catalog>,
    dir: TempDir,
}

impl World {
    fn sqlite() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("sqlite:{}", dir.path().join("catalog").display());
        let catalog = open(&text, true).unwrap();
        Some(Self { catalog, dir })
    }

    fn postgres() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let url = server::database().inspect_err(|why| skip::skip(why)).ok()?;
        let catalog = open(&url, true).unwrap();
        Some(Self { catalog, dir })
    }
}

/// Runs each test on both databases.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $test() { super::World::sqlite().iter().for_each(super::$test) })*
        }
        mod postgres {
            $(#[test] fn $test() { super::World::postgres().iter().for_each(super::$test) })*
        }
    };
}

fn name(text: &str) -> Name {
    Name(text.into())
}

fn digest(text: &str) -> Text<Digest> {
    Text(Digest::of(Algorithm::Blake3, text.as_bytes()))
}

fn register(path: &str, content: &str, location: Option<u64>) -> Change {
    let home = location.map(|location| NewHome {
        location,
        path: name(path),
        ..NewHome::default()
    });
    Change::Register {
        name: name(path),
        size: Some(content.len() as u64),
        digests: vec![digest(content)],
        mtime: None,
        mode: None,
        home,
    }
}

fn link(from: &str, to: &str) -> Change {
    Change::Link {
        from: name(from),
        to: name(to),
    }
}

fn remove(path: &str) -> Change {
    Change::Remove {
        name: name(path),
        collection: false,
        data: false,
    }
}

impl World {
    fn change(&self, changes: Vec<Change>) -> Result<Vec<u64>> {
        self.catalog.change(&changes.into())
    }

    fn one(&self, change: Change) -> Result<u64> {
        self.change(vec![change]).map(|made| made[0])
    }

    fn ask(&self, question: Question) -> Vec<CatalogAnswer> {
        let mut answers = Vec::new();
        let asked = self.catalog.ask(&question, &mut |answer| {
            answers.push(answer);
            Ok(())
        });
        asked.unwrap();
        answers
    }

    fn entry(&self, path: &str) -> Option<CatalogEntry> {
        find(&*self.catalog, path.as_ref()).unwrap()
    }

    fn location(&self, site: &str) -> u64 {
        let url = format!("ftp://{site}.example/data");
        self.one(Change::AddLocation {
            name: name(""),
            site: site.into(),
            url,
            whole: true,
        })
        .unwrap()
    }

    fn intend(&self, deed: IntentDeed, path: &str, location: u64, base: u64) -> Result<u64> {
        let (path, holder) = (name(path), "test".into());
        self.one(Change::Intend {
            deed,
            name: path.clone(),
            location,
            path,
            base,
            holder,
            size: None,
            digest: None,
        })
    }

    fn write(&self, path: &str, content: &str, location: u64, base: u64) -> Result<u64> {
        let intent = self.intend(IntentDeed::Write, path, location, base)?;
        self.land(intent, content)?;
        self.publish(intent)
    }

    /// Writes each content as a fragment of a draft; returns the intent of that.
    fn draft(&self, path: &str, contents: &[&str], base: u64) -> u64 {
        let (path, holder) = (name(path), "test".into());
        let draft = Change::Draft {
            name: path.clone(),
            base,
            holder,
            join: false,
        };
        let intent = self.one(draft).unwrap();
        for (index, content) in (0..).zip(contents) {
            let draft = draft_name(&path.0, intent);
            let part = fragment_name(&draft, index, contents.len() as u64);
            let place = self.location(&format!("n{index}"));
            self.write(part.to_str().unwrap(), content, place, 0)
                .unwrap();
        }
        intent
    }

    fn assemble(&self, intent: u64, count: u64) -> Result<u64> {
        self.one(Change::Assemble {
            intent,
            count,
            digests: vec![],
            mtime: None,
            mode: None,
            made: Some(("job".into(), 0)),
        })
    }

    fn deletions(&self) -> usize {
        let intents = intents(&*self.catalog, None, true).unwrap().into_iter();
        intents
            .filter(|intent| intent.deed == IntentDeed::Delete)
            .count()
    }

    fn land(&self, intent: u64, content: &str) -> Result<u64> {
        self.one(Change::Land {
            intent,
            size: content.len() as u64,
            digest: Some(digest(content)),
        })
    }

    fn publish(&self, intent: u64) -> Result<u64> {
        self.one(Change::Publish {
            intent,
            digests: vec![],
            mtime: None,
            mode: None,
            verified: true,
            adopted: false,
        })
    }
}

on_both! {
    large_numbers_are_exact,
    holdings_are_paged_by_path,
    measurements_of_a_pair_are_few,
    files_of_one_list_are_told_apart,
    removed_files_are_told_apart,
    equal_file_becomes_second_home,
    other_bytes_are_refused,
    refused_list_changes_nothing,
    list_pages_by_name,
    second_publisher_is_told,
    copy_of_older_version_is_refused,
    landing_hides_the_home_it_replaces,
    removal_leaves_intents_for_our_bytes,
    discarded_copy_leaves_an_intent,
    lease_protects_the_holder,
    last_copy_is_kept,
    moved_location_moves_its_urls,
    link_into_itself_is_refused,
    linked_file_survives_one_removal,
    repeated_list_is_applied_once,
    attributes_belong_to_every_entry,
    impossible_names_are_refused,
    fragments_become_visible_together,
    second_draft_is_refused,
    processes_of_one_job_share_a_draft,
    abandoned_draft_leaves_its_bytes,
    replaced_and_removed_fragments_go,
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> Kind {
    result.unwrap_err().kind
}

fn equal_file_becomes_second_home(world: &World) {
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    world.one(register("run7/a b", "x", Some(lab))).unwrap();
    world.one(register("run7/a b", "x", Some(archive))).unwrap();
    let entry = world.entry("run7/a b").unwrap();
    let urls: Vec<_> = entry.homes.iter().map(|home| home.url.as_str()).collect();
    assert_eq!(
        urls,
        [
            "ftp://lab.example/data/run7/a%20b",
            "ftp://archive.example/data/run7/a%20b"
        ]
    );
    assert_eq!((entry.version, entry.size), (1, Some(1)));
}

fn other_bytes_are_refused(world: &World) {
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    world.one(register("a", "x", Some(lab))).unwrap();
    assert_eq!(
        kind(world.one(register("a", "y", Some(archive)))),
        Kind::Changed
    );
    assert_eq!(
        kind(world.one(register("a", "xx", Some(archive)))),
        Kind::Changed
    );
    assert_eq!(world.entry("a").unwrap().homes.len(), 1);
}

fn refused_list_changes_nothing(world: &World) {
    let lab = world.location("lab");
    world.one(register("a", "x", Some(lab))).unwrap();
    let list = vec![register("b", "x", Some(lab)), register("a", "y", Some(lab))];
    assert_eq!(kind(world.change(list)), Kind::Changed);
    assert!(world.entry("b").is_none());
}

//= REPLICAS-44
fn list_pages_by_name(world: &World) {
    let changes = (0..PAGE + 30)
        .map(|i| register(&format!("c{}/f{i:05}", i % 3), "x", None))
        .collect();
    world.change(changes).unwrap();
    let pages = Pages::new(&*world.catalog, "".as_ref(), true, false);
    let pages: Vec<_> = pages.map(Result::unwrap).collect();
    let names = pages.iter().flatten().map(|entry| &entry.name.0);
    let seen: Vec<_> = names.collect();
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((pages.len(), seen.len()), (2, PAGE + 33));
    assert_eq!(seen, sorted);
}

fn second_publisher_is_told(world: &World) {
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    assert_eq!(world.write("a", "x", lab, 0).unwrap(), 1);
    let (one, two) = (
        world.intend(IntentDeed::Write, "a", lab, 1).unwrap(),
        world.intend(IntentDeed::Write, "a", archive, 1).unwrap(),
    );
    world.land(one, "one").unwrap();
    world.land(two, "two").unwrap();
    assert_eq!(world.publish(one).unwrap(), 2);
    assert_eq!(kind(world.publish(two)), Kind::Changed);
    assert_eq!(world.entry("a").unwrap().digests, [digest("one")]);
    assert_eq!(kind(world.write("a", "z", lab, 1)), Kind::Changed);
}

fn copy_of_older_version_is_refused(world: &World) {
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    world.write("a", "x", lab, 0).unwrap();
    let copy = world.intend(IntentDeed::Copy, "a", archive, 1).unwrap();
    world.land(copy, "x").unwrap();
    world.write("a", "y", lab, 1).unwrap();
    assert_eq!(kind(world.publish(copy)), Kind::Changed);
    let copy = world.ask(Question::Intents {
        ended: false,
        name: None,
    });
    assert_eq!(copy.len(), 1, "the intent still knows the bytes");
}

//= REPLICAS-10
fn landing_hides_the_home_it_replaces(world: &World) {
    let lab = world.location("lab");
    world.write("a", "x", lab, 0).unwrap();
    let intent = world.intend(IntentDeed::Write, "a", lab, 1).unwrap();
    assert_eq!(
        world.entry("a").unwrap().homes[0].state,
        HomeWord(HomeState::Whole)
    );
    world.land(intent, "y").unwrap();
    assert_eq!(
        world.entry("a").unwrap().homes[0].state,
        HomeWord(HomeState::Filling)
    );
    assert_eq!(
        kind(world.intend(IntentDeed::Write, "a", lab, 1)),
        Kind::Busy
    );
    let home = Some(HomeWord(HomeState::Whole));
    world.one(Change::Settle { intent, home }).unwrap();
    assert_eq!(
        world.entry("a").unwrap().homes[0].state,
        HomeWord(HomeState::Whole)
    );
    assert_eq!(kind(world.publish(intent)), Kind::Superseded);
}

fn removal_leaves_intents_for_our_bytes(world: &World) {
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    world.write("a", "x", lab, 0).unwrap();
    world.one(register("a", "x", Some(archive))).unwrap();
    world.one(remove("a")).unwrap();
    let intents = world.ask(Question::Intents {
        ended: true,
        name: Some(name("a")),
    });
    let [CatalogAnswer::Intent(intent)] = &intents[..] else {
        panic!("{intents:?}")
    };
    assert_eq!(
        (intent.deed, intent.url.as_str()),
        (IntentDeed::Delete, "ftp://lab.example/data/a")
    );
    assert_eq!(
        kind(world.write("a", "y", lab, 0)),
        Kind::Busy,
        "its old bytes lie there"
    );
}

fn discarded_copy_leaves_an_intent(world: &World) {
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    world.write("a", "x", lab, 0).unwrap();
    world.one(register("a", "x", Some(archive))).unwrap();
    let discard = |location, last, data| Change::Discard {
        location,
        path: name("a"),
        last,
        data,
        holder: "test".into(),
    };
    let registered = world.one(discard(archive, false, false));
    assert_eq!(kind(registered), Kind::Denied);
    world.one(discard(lab, false, false)).unwrap();
    let homes = world.entry("a").unwrap().homes;
    assert_eq!((homes.len(), homes[0].location), (1, archive));
    let kept = world.one(discard(archive, false, true));
    assert_eq!(kind(kept), Kind::NotEmpty, "it is the last one");
    let answers = world.ask(Question::Intents {
        ended: false,
        name: Some(name("")),
    });
    let [CatalogAnswer::Intent(intent)] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((intent.deed, intent.ended), (IntentDeed::Delete, false));
    let below = world.ask(Question::Intents {
        ended: false,
        name: Some(name("b")),
    });
    assert_eq!(below, []);
}

fn lease_protects_the_holder(world: &World) {
    let lab = world.location("lab");
    let intent = world.intend(IntentDeed::Write, "a", lab, 0).unwrap();
    let renew = |intent, holder: &str| {
        let holder = holder.into();
        world.one(Change::Renew { intent, holder }).unwrap()
    };
    assert_eq!(renew(intent, "other"), 0);
    assert_eq!(renew(intent, "test"), 1);
    world.land(intent, "x").unwrap();
    world.publish(intent).unwrap();
    assert_eq!(renew(intent, "test"), 0);
    // A deletion that follows a removal is under no lease.
    world.one(remove("a")).unwrap();
    assert_eq!(renew(intent + 3, "other"), 0, "there is no such intent");
    let answers = world.ask(Question::Intents {
        ended: true,
        name: Some(name("a")),
    });
    let [CatalogAnswer::Intent(deletion)] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(renew(deletion.intent, "other"), 1);
    assert_eq!(renew(deletion.intent, "test"), 0);
}

//= REPLICAS-49
fn last_copy_is_kept(world: &World) {
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    world.write("a", "x", lab, 0).unwrap();
    let forget = |last| Change::Unregister {
        location: lab,
        path: name("a"),
        last,
    };
    assert_eq!(kind(world.one(forget(false))), Kind::NotEmpty);
    let remove = |last| Change::RemoveLocation {
        name: name(""),
        site: "lab".into(),
        last,
    };
    assert_eq!(kind(world.one(remove(false))), Kind::NotEmpty);
    world.one(register("a", "x", Some(archive))).unwrap();
    world.one(forget(false)).unwrap();
    world.one(remove(false)).unwrap();
}

//= REPLICAS-31
fn moved_location_moves_its_urls(world: &World) {
    let lab = world.location("lab");
    world.one(register("a", "x", Some(lab))).unwrap();
    let (site, url) = ("lab".into(), "gsiftp://new.example:2812/d".into());
    world
        .one(Change::SetLocation {
            name: name(""),
            site,
            url,
        })
        .unwrap();
    assert_eq!(
        world.entry("a").unwrap().homes[0].url,
        "gsiftp://new.example:2812/d/a"
    );
}

fn link_into_itself_is_refused(world: &World) {
    world
        .one(Change::Collect {
            name: name("a/b"),
            parents: true,
        })
        .unwrap();
    assert_eq!(kind(world.one(link("a", "a/b/c"))), Kind::Loop);
    assert_eq!(
        kind(world.one(Change::Rename {
            from: name("a"),
            to: name("a/b/c")
        })),
        Kind::Invalid
    );
    world.one(link("a/b", "d")).unwrap();
    world.one(register("d/f", "x", None)).unwrap();
    assert!(world.entry("a/b/f").is_some());
}

//= REPLICAS-30
fn linked_file_survives_one_removal(world: &World) {
    let lab = world.location("lab");
    world.write("a", "x", lab, 0).unwrap();
    world.one(link("a", "b")).unwrap();
    world.one(remove("a")).unwrap();
    assert_eq!(world.entry("b").unwrap().homes.len(), 1);
}

//= REPLICAS-44
fn repeated_list_is_applied_once(world: &World) {
    let make = |path| Change::Collect {
        name: name(path),
        parents: false,
    };
    let list = |path, seq| Changes {
        changes: vec![make(path)],
        once: Some(("w".into(), seq)),
    };
    let made = world.catalog.change(&list("a", 1)).unwrap();
    assert_ne!(made, [0]);
    assert_eq!(world.catalog.change(&list("a", 1)), Ok(made));
    assert_eq!(kind(world.catalog.change(&list("a", 2))), Kind::Exists);
    world.catalog.change(&list("b", 2)).unwrap();
    assert_eq!(kind(world.catalog.change(&list("a", 1))), Kind::Superseded);
}

//= REPLICAS-20
fn attributes_belong_to_every_entry(world: &World) {
    world.location("lab");
    world.one(register("a", "x", None)).unwrap();
    let set = |site: Option<&str>, path: &str, value: Option<&str>| {
        let (site, value) = (site.map(str::to_owned), value.map(str::to_owned));
        world.one(Change::Attribute {
            name: name(path),
            site,
            key: "k".into(),
            value,
        })
    };
    set(None, "a", Some("file")).unwrap();
    set(None, "", Some("root")).unwrap();
    set(Some("lab"), "", Some("place")).unwrap();
    assert_eq!(world.entry("a").unwrap().attributes["k"], "file");
    assert_eq!(world.entry("").unwrap().attributes["k"], "root");
    let locations = world.ask(Question::Locations {
        name: name(""),
        count: true,
    });
    assert!(
        matches!(&locations[..], [CatalogAnswer::Location(at)] if at.attributes["k"] == "place"),
        "{locations:?}"
    );
    set(None, "a", None).unwrap();
    assert!(world.entry("a").unwrap().attributes.is_empty());
}

fn impossible_names_are_refused(world: &World) {
    for (path, why) in [
        ("..", Kind::Invalid),
        (&*"x".repeat(256), Kind::TooLong),
        (&"x/".repeat(3000), Kind::TooLong),
    ] {
        assert_eq!(kind(world.one(register(path, "x", None))), why, "{path}");
    }
    let bad = Change::AddLocation {
        name: name(""),
        site: "s".into(),
        url: "ftp://u:p@h/".into(),
        whole: true,
    };
    assert_eq!(kind(world.one(bad)), Kind::Invalid);
}

//= REPLICAS-15
fn large_numbers_are_exact(world: &World) {
    let lab = world.location("lab");
    for (path, size) in [("a", (1 << 53) + 1), ("b", (1 << 62) + 1)] {
        let home = CatalogHome {
            location: lab,
            path: name(path),
            version: 7,
            range: Some((size - 2, size)),
            state: HomeWord(HomeState::Damaged),
            verified_s: Some(size),
            ours: true,
            ..CatalogHome::default()
        };
        let entry = CatalogEntry {
            name: name(path),
            version: 7,
            size: Some(size),
            mode: Some(0o640),
            homes: vec![home],
            attributes: [("k".to_owned(), "v".to_owned())].into(),
            ..CatalogEntry::default()
        };
        for _ in 0..2 {
            let load = Change::Load(Box::new(entry.clone()));
            assert_eq!(world.one(load), Ok(7));
            let mut found = world.entry(path).unwrap();
            found.file = 0;
            for home in &mut found.homes {
                (home.site, home.url) = Default::default();
            }
            assert_eq!(found, entry);
        }
    }
    let mut beyond = register("c", "x", None);
    if let Change::Register { size, .. } = &mut beyond {
        *size = Some(1 << 63);
    }
    assert_eq!(kind(world.one(beyond)), Kind::Invalid);
}

fn holdings_are_paged_by_path(world: &World) {
    let lab = world.location("lab");
    let count = PAGE + 5;
    let all = (0..count).map(|at| register(&format!("d/f{at:05}"), "x", Some(lab)));
    world.change(all.collect()).unwrap();
    let (mut after, mut seen) = (None, 0);
    loop {
        let location = lab;
        let page = world.ask(Question::Holdings { location, after });
        let (mut last, mut is_last) = (None, true);
        for answer in page {
            match answer {
                CatalogAnswer::Entry(entry) => {
                    let path = name(&format!("d/f{seen:05}"));
                    assert_eq!((&entry.name, &entry.homes[0].path), (&path, &path));
                    assert_eq!(entry.size, Some(1));
                    seen += 1;
                    last = Some(path);
                }
                _ => is_last = false,
            }
        }
        after = last;
        if is_last {
            break;
        }
    }
    assert_eq!(seen, count);
}

fn measurements_of_a_pair_are_few(world: &World) {
    let measured = |at_s, from: &str| {
        Change::Measured(Measured {
            to: "lab".into(),
            from: from.into(),
            bytes: 1 << 60,
            took_ms: at_s,
            fault: false,
            at_s,
        })
    };
    let all = (1..=70).map(|at| measured(at, "archive"));
    world
        .change(all.chain([measured(1, "tape")]).collect())
        .unwrap();
    let all = world.ask(Question::Weather {});
    assert_eq!(all.len(), 65);
    assert!(
        matches!(&all[0], CatalogAnswer::Weather(one) if one.at_s == 7 && one.bytes == 1 << 60)
    );
}

/// New files, equal ones and a second home of one in a single list.
fn files_of_one_list_are_told_apart(world: &World) {
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    world.one(register("old/0", "x", Some(lab))).unwrap();
    let mut list: Vec<_> = (0..20)
        .map(|at| register(&format!("old/{at}"), "x", Some(lab)))
        .collect();
    list.push(register("new/a", "x", None));
    list.push(register("new/a", "x", Some(lab)));
    list.push(register("new/a", "x", Some(archive)));
    list.push(register("new/b", "", None));
    let made = world.change(list.clone()).unwrap();
    assert_eq!(made, vec![1; 24]);
    assert_eq!(world.change(list.clone()).unwrap(), made);
    assert_eq!(world.entry("new/a").unwrap().homes.len(), 2);
    assert_eq!(world.entry("old/0").unwrap().homes.len(), 1);
    let names = (0..20).rev().map(|at| name(&format!("old/{at}")));
    let names: Vec<_> = names
        .chain([name("old/none"), name("new/b"), name("old/7")])
        .collect();
    let located = world.ask(Question::Locate {
        names: names.clone(),
    });
    for (name, answer) in names.iter().zip(&located) {
        match answer {
            CatalogAnswer::Entry(entry) => assert_eq!(entry.name, *name),
            answer => assert_eq!(*answer, CatalogAnswer::Missing(Name("old/none".into()))),
        }
    }
    assert_eq!(located.len(), names.len());
    // A place belongs to one name.
    let mut other = register("other", "x", Some(lab));
    if let Change::Register { home, .. } = &mut other {
        home.as_mut().unwrap().path = name("old/3");
    }
    list.push(other);
    assert_eq!(kind(world.change(list)), Kind::Exists);
    assert!(world.entry("other").is_none());
}

fn removed_files_are_told_apart(world: &World) {
    let lab = world.location("lab");
    world.write("ours", "x", lab, 0).unwrap();
    let all = (0..20).map(|at| register(&format!("d/{at}"), "x", Some(lab)));
    world.change(all.collect()).unwrap();
    world.one(link("d/3", "kept")).unwrap();
    let mut list: Vec<_> = (0..20).map(|at| remove(&format!("d/{at}"))).collect();
    list.push(remove("ours"));
    for (path, why) in [
        ("d", Kind::IsDirectory),
        ("d/3", Kind::Missing),
        ("", Kind::IsDirectory),
    ] {
        let bad = list.iter().cloned().chain([remove(path)]).collect();
        assert_eq!(kind(world.change(bad)), why, "{path}");
    }
    world.change(list).unwrap();
    assert!(world.entry("d/3").is_none() && world.entry("ours").is_none());
    assert_eq!(world.entry("kept").unwrap().homes.len(), 1);
    let intents = world.ask(Question::Intents {
        ended: true,
        name: None,
    });
    assert_eq!(intents.len(), 1, "of the copy that is ours");
    world.one(remove("kept")).unwrap();
    let held = world.ask(Question::Holdings {
        location: lab,
        after: None,
    });
    assert_eq!(held, []);
}

#[test]
fn unusable_files_are_told_apart() {
    let world = World::sqlite().unwrap();
    let text = |file: &str| format!("sqlite:{}", world.dir.path().join(file).display());
    let why = |file: &str| -> Refusal { open(&text(file), false).err().unwrap() };
    let none = why("none");
    assert_eq!(none.kind, Kind::Missing);
    assert!(none.next.unwrap().contains("godwit catalog init"));
    std::fs::write(world.dir.path().join("text"), [7; 8192]).unwrap();
    assert_eq!(why("text").kind, Kind::Corrupt);
    std::fs::write(world.dir.path().join("empty"), "").unwrap();
    assert_eq!(why("empty").kind, Kind::Invalid);
    assert_eq!(open("mysql:x", true).err().unwrap().kind, Kind::Invalid);
    let other = world.dir.path().join("other");
    let program = rusqlite::Connection::open(&other).unwrap();
    for version in [0, 1, 2] {
        let sql = format!(
            "CREATE TABLE IF NOT EXISTS songs (title TEXT); PRAGMA user_version = {version}"
        );
        program.execute_batch(&sql).unwrap();
        let why = open(&text("other"), true).err().unwrap();
        assert_eq!(why.kind, Kind::Invalid);
        assert!(why.said.contains("another program"), "{why:?}");
    }
}

/// A change of a file that was removed would not last.
#[test]
fn removed_file_takes_no_change() {
    let world = World::sqlite().unwrap();
    let path = world.dir.path().join("gone");
    let tables = open(&format!("sqlite:{}", path.display()), true).unwrap();
    let collect = |name: &str| Change::Collect {
        name: Name(name.into()),
        parents: false,
    };
    tables.change(&collect("a").into()).unwrap();
    std::fs::rename(&path, world.dir.path().join("elsewhere")).unwrap();
    let why = tables.change(&collect("b").into()).unwrap_err();
    assert!(why.said.contains("removed or replaced"), "{why:?}");
    std::fs::write(&path, "").unwrap();
    tables.change(&collect("c").into()).unwrap_err();
}

//= FARM-31
fn fragments_become_visible_together(world: &World) {
    let intent = world.draft("t", &["one", "", "three"], 0);
    assert!(world.entry("t").is_none());
    let listed = world.ask(Question::List {
        name: name(""),
        deep: true,
        homes: false,
        after: None,
    });
    assert_eq!(listed, []);
    assert_eq!(kind(world.assemble(intent, 4)), Kind::Missing);
    let ran = Ran {
        run: "job".into(),
        ..Ran::default()
    };
    world.one(Change::Ran(Box::new(ran.clone()))).unwrap();
    world.assemble(intent, 3).unwrap();
    let entry = world.entry("t").unwrap();
    let starts: Vec<_> = entry
        .fragments
        .iter()
        .map(|one| (one.start, one.size))
        .collect();
    assert_eq!(
        (entry.size, starts),
        (Some(8), vec![(0, 3), (3, 0), (3, 5)])
    );
    assert_eq!(copies(&entry), 1);
    let last = world.entry("t/#2.3").unwrap();
    assert_eq!(
        (last.size, last.digests.clone()),
        (Some(5), vec![digest("three")])
    );
    assert_eq!(
        entry.parts()[2],
        CatalogEntry {
            name: name("t/#2.3"),
            ..last
        }
    );
    let made = history(&*world.catalog, "t".as_ref()).unwrap().unwrap();
    assert_eq!((made.ran, made.is_proved), (ran, false));
    // No fragment is changed by itself.
    let fragment = "t/#2.3";
    let home = world.location("n9");
    assert_eq!(
        kind(world.intend(IntentDeed::Write, fragment, home, 1)),
        Kind::Unsupported
    );
    for change in [
        remove(fragment),
        Change::Rename {
            from: name(fragment),
            to: name("u"),
        },
    ] {
        let why = kind(world.one(change));
        assert!(
            matches!(why, Kind::Unsupported | Kind::NotDirectory),
            "{why:?}"
        );
    }
    let (from, to) = (name("t"), name("u"));
    world.one(Change::Rename { from, to }).unwrap();
    assert_eq!(world.entry("u/#0.3").unwrap().size, Some(3));
}

fn second_draft_is_refused(world: &World) {
    let first = world.draft("t", &["a"], 0);
    let draft = |base| {
        world.one(Change::Draft {
            name: name("t"),
            base,
            holder: "other".into(),
            join: false,
        })
    };
    assert_eq!(kind(draft(0)), Kind::Busy);
    world.assemble(first, 1).unwrap();
    assert_eq!(kind(draft(0)), Kind::Changed);
    draft(1).unwrap();
    assert_eq!(kind(world.assemble(first, 1)), Kind::Superseded);
}

//= FARM-59
fn processes_of_one_job_share_a_draft(world: &World) {
    let draft = |holder: &str| {
        world.one(Change::Draft {
            name: name("t"),
            base: 0,
            holder: holder.into(),
            join: true,
        })
    };
    let first = draft("job 7").unwrap();
    assert_eq!(draft("job 7").unwrap(), first);
    assert_eq!(kind(draft("job 8")), Kind::Busy);
    world
        .one(Change::Settle {
            intent: first,
            home: None,
        })
        .unwrap();
    assert_ne!(draft("job 8").unwrap(), first);
}

fn abandoned_draft_leaves_its_bytes(world: &World) {
    let intent = world.draft("t", &["a", "b"], 0);
    world.one(Change::Settle { intent, home: None }).unwrap();
    assert_eq!(world.deletions(), 2);
    assert_eq!(kind(world.assemble(intent, 2)), Kind::Superseded);
    let again = world.draft("t", &["c"], 0);
    world.assemble(again, 1).unwrap();
    assert_eq!(world.entry("t").unwrap().size, Some(1));
}

fn replaced_and_removed_fragments_go(world: &World) {
    let first = world.draft("t", &["a", "b"], 0);
    world.assemble(first, 2).unwrap();
    let second = world.draft("t", &["cc"], 1);
    assert_eq!(world.entry("t").unwrap().fragments.len(), 2);
    world.assemble(second, 1).unwrap();
    let entry = world.entry("t").unwrap();
    assert_eq!(
        (entry.version, entry.size, entry.fragments.len()),
        (2, Some(2), 1)
    );
    assert_eq!(world.deletions(), 2);
    // A plain version takes the place of all fragments.
    let lab = world.location("lab");
    world.write("t", "plain", lab, 2).unwrap();
    let entry = world.entry("t").unwrap();
    assert_eq!(
        (entry.size, entry.fragments.len(), entry.homes.len()),
        (Some(5), 0, 1)
    );
    assert_eq!(world.deletions(), 3);
    let third = world.draft("t", &["x", "y"], 3);
    world.assemble(third, 2).unwrap();
    world.one(remove("t")).unwrap();
    assert!(world.entry("t").is_none() && world.entry("t/#0.2").is_none());
    // The older plain version is deleted with them.
    assert_eq!(world.deletions(), 6);
}
