//! Changes of names: local at once, at the target in order, and never lost.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Far, both, by, bytes, depot, killed, over, push, put, put_into, read, rules, same, until, url,
    who,
};
use godwit_core::{Fault, Url};
use godwit_depot::{
    Attributes, By, Connect, Depot, Edit, Editing, Error, Scope, Spooled, Stage, Who,
};
use godwit_store::{Defect, Error as StoreError, engine::Place};
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{FileExt, PermissionsExt},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// Some servers refuse `mkdir` of an existing directory with "denied".
#[test] //= delivery#faults
fn existing_directory_counts_as_made() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    depot.mkdir(&url("d"), by()).unwrap();
    put(&depot, "d/f", b"bytes");
    fs::create_dir(far.dir.path().join("d")).unwrap();
    far.on_ask(|what, path| match what {
        "mkdir" => Err(StoreError::Denied {
            path: path.into(),
            said: "no".into(),
        }),
        _ => Ok(()),
    });
    far.set_away(false);
    push(&depot);
    same(far.get("d/f").unwrap(), b"bytes");
}

fn rename(depot: &Depot, from: &str, to: &str) {
    depot.rename(&url(from), &url(to), by()).unwrap();
}

/// Opens a new file with `O_EXCL`, as an editor does.
fn opened(depot: &Depot, name: &str) -> Editing {
    let edit = Edit {
        create: true,
        exclusive: true,
        ..Edit::default()
    };
    depot.edit(&url(name), &who(), &edit).unwrap()
}

/// Makes a new file with `O_EXCL`.
fn create(depot: &Depot, name: &str, bytes: &[u8]) {
    let editing = opened(depot, name);
    editing.file().unwrap().write_all(bytes).unwrap();
    editing.end().unwrap();
}

/// Makes `b`; the target goes away before it receives the file.
fn create_unheard_of(far: &Far, depot: &Depot) {
    let editing = opened(depot, "b");
    far.set_away(true);
    editing.file().unwrap().write_all(b"two").unwrap();
    editing.end().unwrap();
    // While an attempt is in flight, the file keeps the name of that attempt.
    while !matches!(depot.queue()[0].stage, Stage::Waiting { .. }) {
        std::thread::yield_now();
    }
}

fn is_missing(depot: &Depot, name: &str) -> bool {
    let is = |error: &StoreError| matches!(error, StoreError::Missing { .. });
    matches!(read(depot, name), Err(Error::Store(error)) if is(&error))
}

#[test] //= KANGAROO-53 delivery#names
fn temp_file_rename_replaces_target() {
    let (far, dir) = both();
    far.put("out", b"old");
    let depot = depot(&far, &dir);
    far.set_away(true);
    put(&depot, "out.tmp", b"new");
    rename(&depot, "out.tmp", "out");
    same(read(&depot, "out").unwrap(), b"new");
    assert!(is_missing(&depot, "out.tmp"));
    // The rename is persisted: a kill does not undo it.
    let copy = killed(depot);
    far.set_away(false);
    let again = self::depot(&far, &copy);
    push(&again);
    same(far.get("out").unwrap(), b"new");
    assert_eq!(far.get("out.tmp"), None);
    same(read(&again, "out").unwrap(), b"new");
    assert!(again.queue().is_empty());
}

#[test] //= delivery#names
fn unsent_file_takes_last_name() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    create(&depot, "a", b"one");
    push(&depot);
    create_unheard_of(&far, &depot);
    rename(&depot, "b", "c");
    let queue = depot.queue();
    let names: Vec<_> = queue
        .iter()
        .map(|row| (row.what, row.url.clone()))
        .collect();
    assert_eq!(names, [("publish", url("c"))]);
    same(read(&depot, "c").unwrap(), b"two");
    rename(&depot, "c", "d");
    far.set_away(false);
    push(&depot);
    same(far.get("d").unwrap(), b"two");
    assert_eq!((far.get("b"), far.get("c")), (None, None));
}

#[test] //= KANGAROO-80 delivery#names
fn names_change_locally_first() {
    let (far, dir) = both();
    far.put("x", b"x of the target");
    fs::create_dir(far.dir.path().join("d")).unwrap();
    far.put("d/in", b"inside");
    let depot = depot(&far, &dir);
    same(read(&depot, "x").unwrap(), b"x of the target");
    far.trouble(Defect::LosesVerb(1));
    // `d/in` exists only at the target.
    rename(&depot, "d", "e");
    rename(&depot, "x", "y");
    same(read(&depot, "e/in").unwrap(), b"inside");
    same(read(&depot, "y").unwrap(), b"x of the target");
    put(&depot, "x", b"another");
    depot.unlink(&url("y"), by()).unwrap();
    assert!(is_missing(&depot, "y"));
    depot.mkdir(&url("e/sub"), by()).unwrap();
    put(&depot, "e/sub/new", b"new");
    push(&depot);
    assert_eq!(far.get("y"), None);
    same(far.get("x").unwrap(), b"another");
    same(far.get("e/in").unwrap(), b"inside");
    same(far.get("e/sub/new").unwrap(), b"new");
    assert!(!far.dir.path().join("d").exists());
    assert!(is_missing(&depot, "d/in"));
}

#[test] //= KANGAROO-26 delivery#names
fn lost_name_answers_are_checked() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    for at in 0..12 {
        far.put("a", b"one");
        far.trouble(Defect::LosesVerb(at));
        rename(&depot, "a", "b");
        push(&depot);
        assert_eq!(far.get("a"), None);
        same(far.get("b").unwrap(), b"one");
        depot.unlink(&url("b"), by()).unwrap();
        push(&depot);
        assert_eq!(far.get("b"), None);
    }
}

/// Returns a depot whose target is a hop, which delivers to `far`.
fn behind_a_hop(far: &Far, dir: &tempfile::TempDir) -> Depot {
    let hop = Depot::open(&dir.path().join("hop"), rules(), far.connect()).unwrap();
    let hop = Spooled::new(hop.into(), url(""), who(), "hop").unwrap();
    let connect: Connect = Arc::new(move |url: &Url, _: &Who| {
        Ok(Place {
            store: Arc::new(hop.clone()),
            path: url.as_path().into(),
            url: url.clone(),
        })
    });
    Depot::open(&dir.path().join("depot"), rules(), connect).unwrap()
}

#[test]
fn changes_stay_pending_until_durable() {
    for hop in [false, true] {
        let (far, dir) = both();
        let depot = match hop {
            true => behind_a_hop(&far, &dir),
            false => depot(&far, &dir),
        };
        put(&depot, "a", b"one");
        push(&depot);
        let acts: [&dyn Fn(); 4] = [
            &|| rename(&depot, "a", "b"),
            &|| {
                let mode = Some(0o640);
                let attributes = Attributes { mode, mtime: None };
                depot.set(&url("b"), &attributes, by()).unwrap();
            },
            &|| depot.unlink(&url("b"), by()).unwrap(),
            &|| depot.mkdir(&url("d"), by()).unwrap(),
        ];
        for (nth, act) in acts.iter().enumerate() {
            far.is_unsafe.store(true, SeqCst);
            act();
            let pushed = depot.push(&Scope::All, Some(Duration::from_millis(200)));
            assert!(pushed.is_err(), "act {nth} is not safe there, hop: {hop}");
            far.is_unsafe.store(false, SeqCst);
            push(&depot);
        }
        assert_eq!((far.get("a"), far.get("b")), (None, None));
        assert!(far.dir.path().join("d").is_dir());
    }
}

/// A change whose caller has left is not promised.
#[test]
fn abandoned_name_changes_are_dropped() {
    let (far, dir) = both();
    far.put("a", b"theirs");
    let depot = depot(&far, &dir);
    // The caller leaves while the server is asked.
    let left = By {
        is_wanted: &|| false,
        ..by()
    };
    let attributes = Attributes {
        mode: Some(0o600),
        ..Attributes::default()
    };
    let outcomes = [
        depot.rename(&url("a"), &url("b"), left),
        depot.unlink(&url("a"), left),
        depot.mkdir(&url("d"), left),
        depot.set(&url("a"), &attributes, left),
        depot.truncate(&url("a"), 1, left),
    ];
    for (nth, outcome) in outcomes.iter().enumerate() {
        assert!(
            matches!(outcome, Err(Error::Unwanted)),
            "{nth}: {outcome:?}"
        );
    }
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
    push(&depot);
    assert_eq!(far.get("a"), Some(b"theirs".to_vec()));
    assert_eq!(
        (far.get("b"), far.dir.path().join("d").exists()),
        (None, false)
    );
}

#[test]
fn abandoned_writes_are_dropped() {
    let (far, dir) = both();
    far.put("a", b"theirs");
    let depot = depot(&far, &dir);
    for is_into in [false, true] {
        let writing = match is_into {
            true => depot.patch(&url("a"), &who(), "").unwrap(),
            false => depot.put(&url("a"), &who(), &common::over()).unwrap(),
        };
        writing.write(0, b"late").unwrap();
        let ended = writing.end_while(&|_| true, &|| false);
        assert!(matches!(ended, Err(Error::Unwanted)), "{ended:?}");
    }
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
    push(&depot);
    assert_eq!(far.get("a"), Some(b"theirs".to_vec()));
}

#[test]
fn done_changes_await_durability() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    fs::create_dir(far.dir.path().join("d")).unwrap();
    let acts: [&dyn Fn(); 2] = [&|| depot.unlink(&url("gone"), by()).unwrap(), &|| {
        depot.mkdir(&url("d"), by()).unwrap()
    }];
    for (nth, act) in acts.iter().enumerate() {
        far.is_unsafe.store(true, SeqCst);
        far.set_away(true);
        act();
        far.set_away(false);
        until(&format!("act {nth} is tried, and not safe there"), || {
            depot.queue().iter().any(|row| row.tries > 0)
        });
        far.is_unsafe.store(false, SeqCst);
        push(&depot);
    }
}

#[test] //= KANGAROO-21 KANGAROO-68
fn stuck_file_blocks_no_other() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    // A file blocks the directory.
    far.put("d", b"a file");
    put(&depot, "d/f", b"stuck");
    let pushed = depot.push(&Scope::Url(url("d/f")), Some(Duration::from_secs(20)));
    assert!(matches!(pushed, Err(Error::Held { .. })), "{pushed:?}");
    rename(&depot, "d/f", "f");
    put(&depot, "other", b"goes");
    depot
        .push(&Scope::Url(url("other")), Some(Duration::from_secs(20)))
        .unwrap();
    let queue = depot.queue();
    assert_eq!(queue.len(), 2, "{queue:?}");
    assert_eq!((queue[0].what, &queue[0].stage), ("publish", &Stage::Held));
    assert_eq!((queue[1].what, &queue[1].stage), ("rename", &Stage::Queued));
    same(read(&depot, "f").unwrap(), b"stuck");
    // After the drop the rename waits for nothing.
    let (file, deed) = (queue[0].id.clone(), queue[1].id.clone());
    depot.discard(&deed).unwrap();
    depot
        .redirect(&file, &url("elsewhere"))
        .unwrap_or_else(|error| {
            // The local name is new; delivery still uses the old one.
            panic!("{error}: {:?}", depot.queue())
        });
    push(&depot);
    same(far.get("elsewhere").unwrap(), b"stuck");
}

/// Retries `act` until no attempt is in flight.
fn until_idle(mut act: impl FnMut() -> Result<(), Error>) {
    loop {
        match act() {
            Err(Error::Busy { .. }) => std::thread::yield_now(),
            done => return done.unwrap(),
        }
    }
}

#[test] //= KANGAROO-68
fn redirected_file_moves_completely() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    let wanted = bytes(3 << 20, 5);
    put(&depot, "a", &wanted);
    let other = Url::from_argument("ftp://nowhere/a").unwrap();
    assert!(depot.redirect("ftp://far/none", &other).is_err());
    put_into(&depot, "part", 5, b"of it");
    let refused = depot.redirect("ftp://far/part", &other).unwrap_err();
    assert_eq!(refused.fault(), Fault::Lasting, "{refused}");
    until_idle(|| depot.discard("ftp://far/part"));
    until_idle(|| depot.redirect("ftp://far/a", &url("b")));
    same(read(&depot, "b").unwrap(), &wanted);
    let copy = killed(depot);
    far.set_away(false);
    let again = self::depot(&far, &copy);
    push(&again);
    same(far.get("b").unwrap(), &wanted);
    assert_eq!(far.get("a"), None);
    let left = fs::read_dir(far.dir.path()).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // The `.was` file records which upload became this file.
    let left: Vec<_> = names.filter(|name| !name.ends_with(".was")).collect();
    assert_eq!(left, ["b"]);
}

#[test]
fn rename_across_servers_is_refused() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    put(&depot, "a", b"a");
    let other = Url::from_argument("ftp://near/a").unwrap();
    let refused = depot.rename(&url("a"), &other, by());
    assert!(
        matches!(refused, Err(Error::OtherServer { .. })),
        "{refused:?}"
    );
    let missing = depot.rename(&url("none"), &url("b"), by());
    assert!(missing.is_err());
    assert!(depot.unlink(&url("none"), by()).is_err());
    assert!(depot.mkdir(&url("a"), by()).is_err() || far.get("a").is_none());
}

#[test] //= KANGAROO-53
fn writes_follow_rename() {
    let (far, dir) = both();
    far.put("a", b"0123456789");
    let depot = depot(&far, &dir);
    let edit = Edit::default();
    let editing = depot.edit(&url("a"), &who(), &edit).unwrap();
    editing.file().unwrap().write_all_at(b"x", 0).unwrap();
    rename(&depot, "a", "b");
    editing.file().unwrap().write_all_at(b"y", 1).unwrap();
    editing.end().unwrap();
    same(read(&depot, "b").unwrap(), b"xy23456789");
    push(&depot);
    assert_eq!(far.get("a"), None);
    same(far.get("b").unwrap(), b"xy23456789");
}

#[test]
fn later_edit_follows_rename() {
    let (far, dir) = both();
    far.put("a", b"0123456789");
    let depot = depot(&far, &dir);
    let open = |name| depot.edit(&url(name), &who(), &Edit::default()).unwrap();
    let editing = open("a");
    rename(&depot, "a", "b");
    editing.end().unwrap();
    push(&depot);
    let editing = open("b");
    editing.file().unwrap().write_all_at(b"x", 0).unwrap();
    editing.end().unwrap();
    push(&depot);
    assert_eq!(far.get("a"), None);
    same(far.get("b").unwrap(), b"x123456789");
}

#[test] //= KANGAROO-53
fn attributes_and_lengths_keep_order() {
    let (far, dir) = both();
    far.put("a", b"0123456789");
    let depot = depot(&far, &dir);
    let attributes = Attributes {
        mode: Some(0o640),
        mtime: Some(Duration::from_secs(1_000_000_000)),
    };
    far.set_away(true);
    depot.truncate(&url("a"), 4, by()).unwrap();
    depot.set(&url("a"), &attributes, by()).unwrap();
    assert!(read(&depot, "a").is_err(), "its length is on its way");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"0123");
    let meta = fs::metadata(far.dir.path().join("a")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o640);
    same(read(&depot, "a").unwrap(), b"0123");
    // A cached file is truncated locally.
    depot.truncate(&url("a"), 2, by()).unwrap();
    same(read(&depot, "a").unwrap(), b"01");
    push(&depot);
    same(far.get("a").unwrap(), b"01");
}

#[test] //= KANGAROO-80 delivery#names
fn changed_file_is_not_removed() {
    // Without an earlier attempt, the depot looks at the file before it removes it.
    for was_tried in [false, true] {
        let (far, dir) = both();
        far.put("a", b"as we know it");
        let depot = depot(&far, &dir);
        same(read(&depot, "a").unwrap(), b"as we know it");
        far.set_away(was_tried);
        if was_tried {
            depot.unlink(&url("a"), by()).unwrap();
            until("it was tried", || depot.queue()[0].tries > 0);
        }
        far.put("a", b"of another, and longer");
        far.set_away(false);
        if !was_tried {
            depot.unlink(&url("a"), by()).unwrap();
        }
        let pushed = depot.push(&Scope::All, Some(Duration::from_secs(20)));
        assert!(matches!(pushed, Err(Error::Held { .. })), "{pushed:?}");
        same(far.get("a").unwrap(), b"of another, and longer");
        let queue = depot.queue();
        assert!(queue[0].is_conflict && queue[0].what == "unlink");
        depot.release("ftp://far/a").unwrap();
        push(&depot);
        assert_eq!(far.get("a"), None);
    }
}

#[test] //= KANGAROO-80
fn late_write_revives_no_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    put(&depot, "a", b"first");
    push(&depot);
    let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
    let write = |at, bytes| editing.file().unwrap().write_all_at(bytes, at).unwrap();
    write(0, b"F");
    depot.unlink(&url("a"), by()).unwrap();
    write(1, b"I");
    editing.end().unwrap();
    push(&depot);
    assert_eq!(far.get("a"), None);
    assert!(is_missing(&depot, "a"));
    let _ = over();
}

/// The target has renamed the file already, and has not answered.
#[test] //= delivery#put-and-conflicts
fn unlink_follows_rename_in_flight() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    put_into(&depot, "c", 0, b"bytes");
    push(&depot);
    far.flush_gate.shut("a");
    depot.rename(&url("c"), &url("a"), by()).unwrap();
    far.flush_gate.reached(1);
    let asked = far.notices_asks();
    std::thread::scope(|scope| {
        let removing = scope.spawn(|| depot.unlink(&url("a"), by()));
        until("it was looked for", || asked.load(SeqCst));
        far.flush_gate.open();
        removing.join().unwrap().unwrap();
    });
    push(&depot);
    assert_eq!((far.get("a"), far.get("c")), (None, None));
}

/// A rename touches the file at its server; that is our own change.
#[test]
fn own_rename_is_no_conflict() {
    let (far, dir) = both();
    let base = bytes(100, 3);
    far.put_as_of_before("a", &base);
    let depot = depot(&far, &dir);
    rename(&depot, "a", "a0");
    push(&depot);
    let may_rename = Arc::new(AtomicBool::new(false));
    let may = Arc::clone(&may_rename);
    far.on_ask(move |what, _| match what == "rename" && !may.load(SeqCst) {
        true => Err(StoreError::Lost {
            host: "far".into(),
            during: "renaming".into(),
            cause: io::ErrorKind::ConnectionReset.into(),
        }),
        false => Ok(()),
    });
    rename(&depot, "a0", "b");
    put_into(&depot, "b", 10, b"I");
    far.gate.shut("a0");
    thread::scope(|scope| {
        let reading = scope.spawn(|| read(&depot, "b"));
        far.gate.reached(1);
        may_rename.store(true, SeqCst);
        until("renamed there", || far.get("b").is_some());
        far.gate.open();
        let mut wanted = base.clone();
        wanted[10] = b'I';
        same(reading.join().unwrap().unwrap(), &wanted);
    });
    push(&depot);
    assert!(depot.queue().is_empty());
}
