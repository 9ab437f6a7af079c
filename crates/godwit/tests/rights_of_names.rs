//! Rights that a catalog keeps, which bind clients of its node and verbs of its owner.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Machine, Scratch, wait_until};
use godwit_catalog::{Catalog, Change, IntentDeed, NewHome, Question, Refusal};
use godwit_core::Kind;
use godwit_node::{Asker, Obeyed};
use godwit_trust::Identity;
use godwit_wire::door::call::Name;
use std::sync::Arc;

/// A node called lab, which serves a catalog, and two clients.
struct World<'a> {
    lab: Machine<'a>,
    laptop: Machine<'a>,
    desk: Machine<'a>,
    catalog: String,
}

const AT_LAB: [&str; 2] = ["--catalog", "godwit://lab"];

impl<'a> World<'a> {
    fn new(scratch: &'a Scratch) -> Self {
        std::fs::create_dir_all(scratch.join("data")).unwrap();
        let mut lab = Machine::new(scratch, "a");
        let catalog = format!("sqlite:{}", scratch.join("names.db").display());
        lab.well(&["catalog", "init", "--catalog", &catalog]);
        lab.init("lab", &scratch.join("data"));
        let words = ["node", "--ftp", "none", "--json", "--catalog", &catalog];
        lab.start_saying(&words, &[]);
        let (laptop, desk) = (Machine::new(scratch, "b"), Machine::new(scratch, "c"));
        for (machine, name) in [(&laptop, "laptop"), (&desk, "desk")] {
            let invite = lab.well(&["-q", "peers", "invite"]);
            machine.well(&["join", invite.trim(), "--name", name]);
        }
        Self {
            lab,
            laptop,
            desk,
            catalog,
        }
    }

    fn owner(&self, words: &[&str]) -> String {
        self.lab
            .well(&[words, &["--catalog", &self.catalog]].concat())
    }

    #[track_caller]
    fn denied(&self, machine: &Machine<'_>, words: &[&str]) -> String {
        let (status, why) = machine.refused(&[words, &AT_LAB].concat());
        assert_eq!(status, 13, "{words:?}: {why}");
        why
    }
}

#[test] //= FARM-98
fn rules_of_names_bind_clients() {
    let scratch = Scratch::new();
    let world = World::new(&scratch);
    world.owner(&["mkdir", "grid:/open", "grid:/run7"]);
    let laptop = "/O=godwit/OU=peer/CN=laptop";
    world.owner(&["auth", "allow", laptop, "read,list,create", "grid:/run7"]);
    let laptop = |words: &[&str]| world.laptop.well(&[words, &AT_LAB].concat());
    laptop(&["mkdir", "grid:/run7/a"]);
    let why = world.denied(&world.desk, &["mkdir", "grid:/run7/b"]);
    for part in [
        "/O=godwit/OU=peer/CN=desk may not create grid:/run7/b",
        "godwit auth allow '/O=godwit/OU=peer/CN=desk' create 'grid:/run7'",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    for words in [
        &["ls", "grid:/run7"][..],
        &["mv", "grid:/run7", "grid:/mine"],
        &["link", "grid:/run7", "grid:/mine"],
        &["auth", "allow", "anyone", "all", "grid:/run7"],
        &["auth", "allow", "anyone", "all", "grid:/open"],
    ] {
        world.denied(&world.desk, words);
    }
    let desk = |words: &[&str]| world.desk.well(&[words, &AT_LAB].concat());
    desk(&["mkdir", "grid:/open/x"]);
    // The node would copy as itself to and from where these say.
    scratch.file("line", 0);
    let line = r#"{"name":"grid:/open/k","size":1,"homes":[{"url":"ftp://h/k","state":"whole"}]}"#;
    std::fs::write(scratch.join("line"), line).unwrap();
    for words in [
        &["location", "add", "evil", "ftp://127.0.0.1:1/m", "grid:/"][..],
        &[
            "location",
            "add",
            "evil",
            "ftp://127.0.0.1:1/m",
            "grid:/open",
        ],
        &["rule", "add", "grid:/open", "copies=2"],
        &["catalog", "load", "line"],
    ] {
        world.denied(&world.desk, words);
    }
    // One command releases it to a wider circle.
    world.owner(&["auth", "allow", "identified", "read,list", "grid:/run7"]);
    assert_eq!(desk(&["ls", "grid:/run7"]), "a/\n");
}

#[test]
fn seals_bind_the_owner_too() {
    let scratch = Scratch::new();
    let world = World::new(&scratch);
    world.owner(&["mkdir", "grid:/run7"]);
    world.owner(&["auth", "allow", "anyone", "all", "grid:/run7"]);
    world.owner(&[
        "auth",
        "never",
        "anyone",
        "write,create,delete",
        "grid:/run7",
    ]);
    let rules = world.owner(&["auth", "rules", "grid:/run7"]);
    let expected = "grid:/run7  never anyone write,create,delete\ngrid:/run7  allow anyone all\n";
    assert_eq!(rules, expected);
    let why = world.denied(&world.laptop, &["mkdir", "grid:/run7/a"]);
    let next = "godwit rule rm 'grid:/run7' 'never anyone write,create,delete'";
    assert!(why.contains(next), "{why}");
    let words = ["mkdir", "grid:/run7/a", "--catalog", &world.catalog];
    let (status, why) = world.lab.refused(&words);
    assert!(
        status == 13 && why.contains("the owner of the catalog may not create"),
        "{why}"
    );
    let rule = [
        "rule",
        "rm",
        "grid:/run7",
        "never anyone write,create,delete",
    ];
    world.denied(&world.laptop, &rule);
    world.owner(&rule);
    world.owner(&["mkdir", "grid:/run7/a"]);
}

/// Changes that name a copy or an intent come under the rules of the name that it is of.
#[test]
fn changes_by_number_obey_rules() {
    let scratch = Scratch::new();
    let text = format!("sqlite:{}", scratch.join("names.db").display());
    let catalog = godwit_catalog::open(&text, true).unwrap();
    let one = |change: Change| catalog.change(&change.into()).unwrap()[0];
    let name = |text: &str| Name(text.into());
    let location = one(Change::AddLocation {
        name: name("c"),
        site: "lab".into(),
        url: "ftp://lab/c".into(),
        whole: false,
    });
    for path in ["e", "f", "g"] {
        let (location, path) = (location, name(path));
        one(Change::Register {
            name: Name(name("c").0.join(&path.0)),
            size: Some(1),
            digests: Vec::new(),
            mtime: None,
            mode: None,
            home: Some(NewHome {
                location,
                path,
                ..NewHome::default()
            }),
        });
    }
    let intent = one(Change::Intend {
        deed: IntentDeed::Write,
        name: name("c/new"),
        location,
        path: name("new"),
        base: 0,
        holder: "h".into(),
        size: None,
        digest: None,
    });
    let alice = Identity::named("/O=Lab/CN=alice");
    let asks = || Obeyed::new(Arc::clone(&catalog), Asker::Client(Some(alice.clone())));
    let last = true;
    let forget = |path| Change::Unregister {
        location,
        path: name(path),
        last,
    };
    assert!(asks().change(&forget("e").into()).is_ok());
    let text = "never /O=Lab/CN=alice all".to_owned();
    one(Change::AddRule {
        name: name("c"),
        text,
    });
    let settle = Change::Settle { intent, home: None };
    let holdings = Question::Holdings {
        location,
        after: None,
    };
    // Bytes below the collection do not come out of it by another name.
    let above = one(Change::AddLocation {
        name: name(""),
        site: "store".into(),
        url: "ftp://store/".into(),
        whole: false,
    });
    let outside = Change::Register {
        name: name("mine"),
        size: Some(1),
        digests: Vec::new(),
        mtime: None,
        mode: None,
        home: Some(NewHome {
            location: above,
            path: name("c/secret"),
            ..NewHome::default()
        }),
    };
    let denied: Vec<Result<(), Refusal>> = vec![
        asks().change(&outside.into()).map(drop),
        asks().change(&forget("f").into()).map(drop),
        asks().change(&settle.into()).map(drop),
        asks().ask(&holdings, &mut |_| Ok(())),
    ];
    for refused in denied {
        assert_eq!(refused.unwrap_err().kind, Kind::Denied);
    }
    let mut seen = 0;
    let locations = Question::Locations {
        name: name(""),
        count: false,
    };
    let each = &mut |_| {
        seen += 1;
        Ok(())
    };
    asks().ask(&locations, each).unwrap();
    // A site learns from locations and rules whom it obeys.
    assert_eq!(seen, 2);
}

/// Bytes are protected where they lie, through each way in, also while the catalog cannot be asked.
#[test]
fn sites_obey_rights_of_names() {
    let scratch = Scratch::new();
    let mut world = World::new(&scratch);
    scratch.file("far/c/x", 1000);
    scratch.file("far/open/x", 1000);
    let mut store = Machine::new(&scratch, "d");
    store.init("store", &scratch.join("far"));
    world.lab.joined_by(&store, "store");
    let words = ["node", "--ftp", "127.0.0.1:0", "--anonymous", "read"];
    let as_site = ["--json", "--catalog", "godwit://lab", "--site", "store"];
    let words = [&words[..], &as_site].concat();
    store.start_saying(&words, &[]);
    store.joined_by(&world.laptop, "laptop");
    store.joined_by(&world.desk, "desk");
    world.owner(&["mkdir", "grid:/c"]);
    let location = ["location", "add", "store", "godwit://store/c", "grid:/c"];
    world.owner(&location);
    let can = |machine: &Machine<'_>, words: &[&str]| machine.says(words).status.success();
    assert!(can(&world.laptop, &["cat", "godwit://store/c/x"]));
    let laptop = "/O=godwit/OU=peer/CN=laptop";
    world.owner(&["auth", "allow", laptop, "all", "grid:/c"]);
    world.owner(&["auth", "never", "anyone", "delete", "grid:/c"]);
    let desk_reads = || can(&world.desk, &["cat", "godwit://store/c/x"]);
    wait_until("the desk is refused", || !desk_reads());
    let by_ftp = |store: &Machine<'_>, path: &str| store.node.as_ref().unwrap().url(path);
    assert!(can(&world.desk, &["cat", &by_ftp(&store, "open/x")]));
    assert!(can(&world.desk, &["cat", "godwit://store/open/x"]));
    assert!(!can(&world.desk, &["cat", &by_ftp(&store, "c/x")]));
    assert!(!can(&world.desk, &["rm", "godwit://store/c/x"]));
    let own = scratch.file("own", 10);
    let put = ["cp", own.to_str().unwrap(), "grid:/c/y"];
    world.laptop.well(&[&put[..], &AT_LAB].concat());
    let (status, why) = world.laptop.refused(&["rm", "godwit://store/c/x"]);
    assert!(
        status == 13 && why.contains("of the rights denies"),
        "{why}"
    );
    // It obeys what it was told last.
    world.lab.kill();
    store.kill();
    store.start_saying(&words, &[]);
    assert!(!can(&world.desk, &["cat", &by_ftp(&store, "c/x")]));
    assert!(can(&world.laptop, &["cat", "godwit://store/c/x"]));
    let words = ["node", "--ftp", "none", "--json", "--catalog"];
    world
        .lab
        .start_saying(&[&words[..], &[&world.catalog]].concat(), &[]);
    // One command releases it to a wider circle.
    let words = ["auth", "allow", "anyone", "read", "grid:/c"];
    world.owner(&words);
    wait_until("the desk may read", || {
        can(&world.desk, &["cat", "godwit://store/c/x"])
    });
    assert!(can(&world.desk, &["cat", &by_ftp(&store, "c/x")]));
}

/// A client that could name a path of the machine of the catalog would have its node read and write there.
#[test]
fn clients_name_no_local_path() {
    let scratch = Scratch::new();
    let world = World::new(&scratch);
    world.owner(&["mkdir", "grid:/open"]);
    let secret = scratch.file("secret", 100);
    let line = format!(
        r#"{{"name":"grid:/open/k","size":100,"homes":[{{"url":"file://{}","state":"whole"}}]}}"#,
        secret.display()
    );
    std::fs::write(scratch.join("line"), line).unwrap();
    for words in [
        &["location", "add", "x", "data", "grid:/open"][..],
        &["catalog", "load", "line"],
        &["register", "secret", "--as", "grid:/open/k"],
    ] {
        let why = world.denied(&world.desk, words);
        assert!(why.contains("not on the machine of the catalog"), "{why}");
    }
    let desk = |words: &[&str]| world.desk.well(&[words, &AT_LAB].concat());
    desk(&["location", "add", "x", "ftp://127.0.0.1:1/m", "grid:/open"]);
    let (status, _) = world.desk.refused(
        &[
            &["location", "set", "x", "grid:/open", "--url", "data"][..],
            &AT_LAB,
        ]
        .concat(),
    );
    assert_eq!(status, 13);
    // The owner may, also from another directory.
    world.owner(&["location", "add", "here", "data", "grid:/open"]);
    let said = world.owner(&["location", "ls", "grid:/open"]);
    let at = format!("file://{}", scratch.join("data").display());
    assert!(said.contains(&at), "{said}");
}
