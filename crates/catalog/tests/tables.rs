//! The tables of a catalog, asked and changed as its users do.
#![allow(clippy::unwrap_used)]

use godwit_catalog::{
    Answer, Catalog, Change, Changes, Deed, Entry, NewHome, PAGE, Pages, Question, Refusal, Result,
    State, find, open,
};
use godwit_core::{Algorithm, Digest, HomeState, Kind};
use godwit_wire::door::call::{Name, Text};
use std::sync::Arc;
use tempfile::TempDir;

struct World {
    catalog: Arc<dyn Catalog>,
    dir: TempDir,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("sqlite:{}", dir.path().join("catalog").display());
    World {
        catalog: open(&text, true).unwrap(),
        dir,
    }
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

impl World {
    fn change(&self, changes: Vec<Change>) -> Result<Vec<u64>> {
        self.catalog.change(&changes.into())
    }

    fn one(&self, change: Change) -> Result<u64> {
        self.change(vec![change]).map(|made| made[0])
    }

    fn ask(&self, question: Question) -> Vec<Answer> {
        let mut answers = Vec::new();
        let asked = self.catalog.ask(&question, &mut |answer| {
            answers.push(answer);
            Ok(())
        });
        asked.unwrap();
        answers
    }

    fn entry(&self, path: &str) -> Option<Entry> {
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

    fn intend(&self, deed: Deed, path: &str, location: u64, base: u64) -> Result<u64> {
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
        let intent = self.intend(Deed::Write, path, location, base)?;
        self.land(intent, content)?;
        self.publish(intent)
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

fn kind<T: std::fmt::Debug>(result: Result<T>) -> Kind {
    result.unwrap_err().kind
}

#[test]
fn equal_file_becomes_second_home() {
    let world = world();
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

#[test]
fn other_bytes_are_refused() {
    let world = world();
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

#[test]
fn refused_list_changes_nothing() {
    let world = world();
    let lab = world.location("lab");
    world.one(register("a", "x", Some(lab))).unwrap();
    let list = vec![register("b", "x", Some(lab)), register("a", "y", Some(lab))];
    assert_eq!(kind(world.change(list)), Kind::Changed);
    assert!(world.entry("b").is_none());
}

#[test]
fn list_pages_by_name() {
    let world = world();
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

#[test]
fn second_publisher_is_told() {
    let world = world();
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    assert_eq!(world.write("a", "x", lab, 0).unwrap(), 1);
    let (one, two) = (
        world.intend(Deed::Write, "a", lab, 1).unwrap(),
        world.intend(Deed::Write, "a", archive, 1).unwrap(),
    );
    world.land(one, "one").unwrap();
    world.land(two, "two").unwrap();
    assert_eq!(world.publish(one).unwrap(), 2);
    assert_eq!(kind(world.publish(two)), Kind::Changed);
    assert_eq!(world.entry("a").unwrap().digests, [digest("one")]);
    assert_eq!(kind(world.write("a", "z", lab, 1)), Kind::Changed);
}

#[test]
fn copy_of_older_version_is_refused() {
    let world = world();
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    world.write("a", "x", lab, 0).unwrap();
    let copy = world.intend(Deed::Copy, "a", archive, 1).unwrap();
    world.land(copy, "x").unwrap();
    world.write("a", "y", lab, 1).unwrap();
    assert_eq!(kind(world.publish(copy)), Kind::Changed);
    let copy = world.ask(Question::Intents {
        ended: false,
        name: None,
    });
    assert_eq!(copy.len(), 1, "the intent still knows the bytes");
}

#[test]
fn landing_hides_the_home_it_replaces() {
    let world = world();
    let lab = world.location("lab");
    world.write("a", "x", lab, 0).unwrap();
    let intent = world.intend(Deed::Write, "a", lab, 1).unwrap();
    assert_eq!(
        world.entry("a").unwrap().homes[0].state,
        State(HomeState::Whole)
    );
    world.land(intent, "y").unwrap();
    assert_eq!(
        world.entry("a").unwrap().homes[0].state,
        State(HomeState::Filling)
    );
    assert_eq!(kind(world.intend(Deed::Write, "a", lab, 1)), Kind::Busy);
    world
        .one(Change::Settle {
            intent,
            home: Some(State(HomeState::Whole)),
        })
        .unwrap();
    assert_eq!(
        world.entry("a").unwrap().homes[0].state,
        State(HomeState::Whole)
    );
    assert_eq!(kind(world.publish(intent)), Kind::Superseded);
}

#[test]
fn removal_leaves_intents_for_our_bytes() {
    let world = world();
    let (lab, archive) = (world.location("lab"), world.location("archive"));
    world.write("a", "x", lab, 0).unwrap();
    world.one(register("a", "x", Some(archive))).unwrap();
    world
        .one(Change::Remove {
            name: name("a"),
            collection: false,
            data: false,
        })
        .unwrap();
    let intents = world.ask(Question::Intents {
        ended: true,
        name: Some(name("a")),
    });
    let [Answer::Intent(intent)] = &intents[..] else {
        panic!("{intents:?}")
    };
    assert_eq!(
        (intent.deed, intent.url.as_str()),
        (Deed::Delete, "ftp://lab.example/data/a")
    );
    assert_eq!(
        kind(world.write("a", "y", lab, 0)),
        Kind::Busy,
        "its old bytes lie there"
    );
}

#[test]
fn discarded_copy_leaves_an_intent() {
    let world = world();
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
    let [Answer::Intent(intent)] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((intent.deed, intent.ended), (Deed::Delete, false));
    let below = world.ask(Question::Intents {
        ended: false,
        name: Some(name("b")),
    });
    assert_eq!(below, []);
}

#[test]
fn lease_protects_the_holder() {
    let world = world();
    let lab = world.location("lab");
    let intent = world.intend(Deed::Write, "a", lab, 0).unwrap();
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
    world
        .one(Change::Remove {
            name: name("a"),
            collection: false,
            data: false,
        })
        .unwrap();
    assert_eq!(renew(intent + 3, "other"), 0, "there is no such intent");
    let answers = world.ask(Question::Intents {
        ended: true,
        name: Some(name("a")),
    });
    let [Answer::Intent(deletion)] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(renew(deletion.intent, "other"), 1);
    assert_eq!(renew(deletion.intent, "test"), 0);
}

#[test]
fn last_copy_is_kept() {
    let world = world();
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

#[test]
fn moved_location_moves_its_urls() {
    let world = world();
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

#[test]
fn link_into_itself_is_refused() {
    let world = world();
    world
        .one(Change::Collect {
            name: name("a/b"),
            parents: true,
        })
        .unwrap();
    assert_eq!(
        kind(world.one(Change::Link {
            from: name("a"),
            to: name("a/b/c")
        })),
        Kind::Loop
    );
    assert_eq!(
        kind(world.one(Change::Rename {
            from: name("a"),
            to: name("a/b/c")
        })),
        Kind::Invalid
    );
    world
        .one(Change::Link {
            from: name("a/b"),
            to: name("d"),
        })
        .unwrap();
    world.one(register("d/f", "x", None)).unwrap();
    assert!(world.entry("a/b/f").is_some());
}

#[test]
fn linked_file_survives_one_removal() {
    let world = world();
    let lab = world.location("lab");
    world.write("a", "x", lab, 0).unwrap();
    world
        .one(Change::Link {
            from: name("a"),
            to: name("b"),
        })
        .unwrap();
    world
        .one(Change::Remove {
            name: name("a"),
            collection: false,
            data: false,
        })
        .unwrap();
    assert_eq!(world.entry("b").unwrap().homes.len(), 1);
}

#[test]
fn repeated_list_is_applied_once() {
    let world = world();
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

#[test]
fn attributes_belong_to_every_entry() {
    let world = world();
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
        matches!(&locations[..], [Answer::Location(at)] if at.attributes["k"] == "place"),
        "{locations:?}"
    );
    set(None, "a", None).unwrap();
    assert!(world.entry("a").unwrap().attributes.is_empty());
}

#[test]
fn impossible_names_are_refused() {
    let world = world();
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

#[test]
fn unusable_files_are_told_apart() {
    let world = world();
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
}
