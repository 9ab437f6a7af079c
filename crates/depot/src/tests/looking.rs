//! Names under pending promises, and while a server is away.

use crate::{
    Attributes, Depot, Fresh,
    tests::tested::{by, far, is_mover, push, put, reaching, url},
};
use godwit_store::{Dir, EntryKind};
use std::{
    io::Read,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

struct Case {
    depot: Depot,
    /// No thread reaches the server; else only those that deliver do not.
    is_away: Arc<AtomicBool>,
    delivers: Arc<AtomicBool>,
    _dirs: (tempfile::TempDir, tempfile::TempDir),
}

impl Case {
    fn new(fill: impl Fn(&Path)) -> Self {
        let (there, dir): (_, Dir) = far();
        let here = tempfile::tempdir().unwrap();
        fill(there.path());
        let (is_away, delivers) = (Arc::default(), Arc::default());
        let (away, may) = (Arc::clone(&is_away), Arc::<AtomicBool>::clone(&delivers));
        let shut = move || AtomicBool::load(&away, SeqCst) || is_mover() && !may.load(SeqCst);
        let rules = crate::Rules {
            pause_max: std::time::Duration::from_millis(20),
            ..crate::Rules::default()
        };
        let depot = Depot::open(here.path(), rules, reaching(Arc::new(dir), shut)).unwrap();
        Self {
            depot,
            is_away,
            delivers,
            _dirs: (there, here),
        }
    }

    /// Returns what a look finds: `-`, `?`, `dir`, or a length.
    fn look(&self, name: &str) -> String {
        match self.depot.look(&url(name), by().who) {
            Ok(stat) if stat.kind == EntryKind::Directory => "dir".into(),
            Ok(stat) => stat.size.to_string(),
            Err(error) if error.to_string().contains("no such") => "-".into(),
            Err(_) => "?".into(),
        }
    }

    /// Returns the names in a directory; each is looked at, and looks the same.
    fn names(&self, name: &str) -> String {
        let entries = self.depot.entries(&url(name), by().who).unwrap();
        let mut names = Vec::new();
        for entry in entries {
            let last = entry.path.to_str().unwrap();
            let seen = self.look(format!("{name}/{last}").trim_start_matches('/'));
            match entry.stat.kind {
                EntryKind::Directory => assert_eq!(seen, "dir", "{last}"),
                _ => assert_eq!(seen, entry.stat.size.to_string(), "{last}"),
            }
            names.push(format!("{last}={seen}"));
        }
        names.join(" ")
    }

    fn change(&self) {
        self.depot.unlink(&url("a"), by()).unwrap();
        self.depot.rename(&url("b"), &url("c"), by()).unwrap();
        self.depot.mkdir(&url("e"), by()).unwrap();
        put(&self.depot, "e/f", b"fff");
        self.depot.rename(&url("d"), &url("g"), by()).unwrap();
        put(&self.depot, "a2", b"again");
    }
}

fn filled(there: &Path) {
    std::fs::create_dir(there.join("d")).unwrap();
    for (name, bytes) in [("a", "a"), ("b", "bb"), ("d/x", "x")] {
        std::fs::write(there.join(name), bytes).unwrap();
    }
}

const CHANGED: &str = "a2=5 c=2 e=dir g=dir";

#[test]
fn pending_changes_show_in_names() {
    let case = Case::new(filled);
    assert_eq!(case.names(""), "a=1 b=2 d=dir");
    case.change();
    assert_eq!(case.names(""), CHANGED);
    assert_eq!([case.names("g"), case.names("e")], ["x=1", "f=3"]);
    for gone in ["a", "b", "d", "d/x", "e/g", "g/y"] {
        assert_eq!(case.look(gone), "-", "{gone}");
    }
    // A name that is free again is no longer gone.
    put(&case.depot, "a", b"new a");
    case.depot.rename(&url("g/x"), &url("e/y"), by()).unwrap();
    assert_eq!(case.look("a"), "5");
    assert_eq!([case.names("g"), case.names("e")], ["", "f=3 y=1"]);
    let attributes = Attributes {
        mode: Some(0o640),
        ..Attributes::default()
    };
    case.depot.set(&url("e/y"), &attributes, by()).unwrap();
    let seen = case.depot.look(&url("e/y"), by().who).unwrap();
    assert_eq!(seen.mode, Some(0o640));
}

#[test]
fn names_are_known_while_servers_are_away() {
    let case = Case::new(filled);
    assert_eq!(case.names(""), "a=1 b=2 d=dir");
    case.is_away.store(true, SeqCst);
    assert_eq!(case.names(""), "a=1 b=2 d=dir");
    assert_eq!([case.look("z"), case.look("d/x")], ["-", "?"]);
    assert!(case.depot.entries(&url("d"), by().who).is_err());
    case.is_away.store(false, SeqCst);
    case.change();
    case.is_away.store(true, SeqCst);
    assert_eq!(case.names(""), CHANGED);
    assert_eq!(case.names("e"), "f=3");
    assert_eq!(
        [case.look("d"), case.look("d/x"), case.look("e/z")],
        ["-", "-", "-"]
    );
}

/// Deliveries after a directory was listed change the list, although the server cannot be asked again.
#[test]
fn delivered_changes_stay_in_lists() {
    let case = Case::new(filled);
    assert_eq!(case.names(""), "a=1 b=2 d=dir");
    case.change();
    case.delivers.store(true, SeqCst);
    push(&case.depot);
    case.is_away.store(true, SeqCst);
    assert_eq!(case.names(""), CHANGED);
    assert_eq!(case.look("a"), "-");
    case.is_away.store(false, SeqCst);
    assert_eq!(case.names(""), CHANGED);
    assert_eq!([case.names("g"), case.names("e")], ["x=1", "f=3"]);
}

/// A look that sees another file is believed by the next reader.
#[test]
fn look_at_another_file_ends_freshness() {
    let case = Case::new(|there| std::fs::write(there.join("a"), b"one").unwrap());
    let there = case._dirs.0.path().join("a");
    let read = || {
        let mut bytes = Vec::new();
        let reading = case.depot.read(&url("a"), by().who, Fresh::Usual).unwrap();
        reading.file().read_to_end(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(read(), b"one");
    std::fs::write(there, b"other").unwrap();
    assert_eq!(read(), b"one", "it was asked a moment ago");
    assert_eq!(case.look("a"), "5");
    assert_eq!(read(), b"other");
}

/// A program that makes many files in a directory looks at each name first: the server is asked about few of them.
#[test]
fn absent_names_cost_few_questions() {
    let case = Case::new(filled);
    case.delivers.store(true, SeqCst);
    case.depot.mkdir(&url("new"), by()).unwrap();
    push(&case.depot);
    for nth in 0..LOOKS_TO_LIST {
        assert_eq!(case.look(&format!("d/{nth}")), "-");
    }
    // From here on what is said comes from lists.
    std::fs::write(case._dirs.0.path().join("d/later"), b"x").unwrap();
    std::fs::write(case._dirs.0.path().join("new/later"), b"x").unwrap();
    assert_eq!([case.look("d/later"), case.look("new/later")], ["-", "-"]);
    put(&case.depot, "d/ours", b"four");
    push(&case.depot);
    assert_eq!([case.look("d/ours"), case.look("d/later")], ["4", "-"]);
    // A whole list is asked for: the server chose the attributes of what was delivered.
    assert_eq!(case.names("d"), "later=1 ours=4 x=1");
}

const LOOKS_TO_LIST: u32 = 4;
