//! Servers that report faults of their own: they may be dying, and work again later.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, both, by, depot, push, put, put_into, read, rules, same, until, url, who, with};
use godwit_depot::{Depot, Edit, Error, Rules, Scope, Stage};
use godwit_store::Error as StoreError;
use std::{
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
    time::Duration,
};

/// Fails so many writes and renames as a server with a broken disk does.
fn trouble(far: &Far, times: u32) -> Arc<Mutex<u32>> {
    refusing(far, times, || StoreError::Refused {
        host: "far".into(),
        code: 500,
        said: "input/output error".into(),
    })
}

/// Refuses so many writes and renames.
fn refusing(
    far: &Far,
    times: u32,
    error: impl Fn() -> StoreError + Send + Sync + 'static,
) -> Arc<Mutex<u32>> {
    let left = Arc::new(Mutex::new(times));
    let mut_left = Arc::clone(&left);
    far.on_ask(move |what, _| {
        let mut left = mut_left.lock().unwrap();
        if !["write", "rename"].contains(&what) || *left == 0 {
            return Ok(());
        }
        *left -= 1;
        Err(error())
    });
    left
}

fn impatient() -> Rules {
    Rules {
        trouble_max: Duration::ZERO,
        ..rules()
    }
}

const LIMIT: Option<Duration> = Some(Duration::from_secs(30));

#[test] //= KANGAROO-21 delivery#faults
fn troubled_server_is_retried() {
    let (far, dir) = both();
    far.put("old", b"old");
    let depot = depot(&far, &dir);
    let left = trouble(&far, 3);
    all_arrives(&far, &depot, &left);
}

/// Another program may make the directory.
#[test] //= hops#names
fn file_leaves_hold_with_directory() {
    let (far, dir) = both();
    let held = |depot: &Depot| depot.queue().iter().filter(|row| row.is_held()).count();
    let first = depot(&far, &dir);
    put(&first, "a/f", b"bytes");
    put(&first, "b/f", b"bytes");
    until("both are held", || held(&first) == 2);
    std::fs::create_dir(far.dir.path().join("a")).unwrap();
    until("one goes", || held(&first) == 1);
    until("it is there", || far.get("a/f").is_some());
    drop(first);
    // A hold is also lifted after a restart of this node.
    std::fs::create_dir(far.dir.path().join("b")).unwrap();
    let second = depot(&far, &dir);
    until("the other goes", || far.get("b/f").is_some());
    assert_eq!(held(&second), 0);
}

/// Linux remounts a failing disk read-only. The repair is not announced.
#[test] //= delivery#faults
fn read_only_disk_is_retried() {
    let (far, dir) = both();
    far.put("old", b"old");
    let depot = with(&far, &dir, impatient());
    let left = refusing(&far, 3, || {
        StoreError::io("a", std::io::ErrorKind::ReadOnlyFilesystem.into())
    });
    all_arrives(&far, &depot, &left);
}

fn all_arrives(far: &Far, depot: &Depot, left: &Mutex<u32>) {
    put(depot, "a", b"bytes");
    push(depot);
    same(far.get("a").unwrap(), b"bytes");
    *left.lock().unwrap() = 3;
    let appending = depot.append(&url("log"), &who()).unwrap();
    appending.add(b"line\n").unwrap();
    appending.push(LIMIT).unwrap();
    same(far.get("log").unwrap(), b"line\n");
    *left.lock().unwrap() = 3;
    depot.rename(&url("old"), &url("new"), by()).unwrap();
    push(depot);
    same(far.get("new").unwrap(), b"old");
}

/// The target shows the file before it is durable there.
#[test] //= KANGAROO-24
fn put_stays_pending_until_durable() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.is_unsafe.store(true, SeqCst);
    put(&depot, "a", b"bytes");
    until("it is there", || far.get("a").is_some());
    let pushed = depot.push(&Scope::All, Some(Duration::from_millis(200)));
    assert!(
        pushed.is_err() && depot.has_pending(),
        "it is not safe there"
    );
    far.is_unsafe.store(false, SeqCst);
    push(&depot);
    assert!(!depot.has_pending());
}

#[test] //= KANGAROO-21 delivery#faults
fn lasting_trouble_is_reported() {
    let (far, dir) = both();
    far.put("old", b"old");
    let depot = with(&far, &dir, impatient());
    let left = trouble(&far, u32::MAX);
    put(&depot, "a", b"bytes");
    depot.rename(&url("old"), &url("new"), by()).unwrap();
    let pushed = depot.push(&Scope::All, LIMIT);
    assert!(matches!(pushed, Err(Error::Held { .. })), "{pushed:?}");
    let queue = depot.queue();
    let held = queue.iter().filter(|row| row.stage == Stage::Held);
    assert_eq!(held.count(), 2, "{queue:?}");
    let appending = depot.append(&url("log"), &who()).unwrap();
    appending.add(b"line\n").unwrap();
    let pushed = appending.push(LIMIT);
    assert!(matches!(pushed, Err(Error::Held { .. })), "{pushed:?}");
    *left.lock().unwrap() = 0;
    depot.retry(url("a").to_string().as_str()).unwrap();
    depot.retry(url("old").to_string().as_str()).unwrap();
    depot.retry(url("log").to_string().as_str()).unwrap();
    push(&depot);
    same(far.get("a").unwrap(), b"bytes");
    same(far.get("new").unwrap(), b"old");
    same(far.get("log").unwrap(), b"line\n");
    assert_eq!(far.get("old"), None);
}

#[test] //= delivery#faults
fn dying_server_loses_no_files() {
    let (far, dir) = both();
    for name in ["old", "gone"] {
        far.put(name, b"old");
    }
    let depot = depot(&far, &dir);
    for name in ["old", "gone"] {
        same(read(&depot, name).unwrap(), b"old");
    }
    far.set_away(true);
    put(&depot, "a", b"bytes");
    let appending = depot.append(&url("log"), &who()).unwrap();
    appending.add(b"line\n").unwrap();
    depot.rename(&url("old"), &url("new"), by()).unwrap();
    depot.unlink(&url("gone"), by()).unwrap();
    depot.mkdir(&url("e"), by()).unwrap();
    let left = far.loses_all(60);
    far.set_away(false);
    until("it was asked often", || left.load(SeqCst) == 0);
    push(&depot);
    same(far.get("a").unwrap(), b"bytes");
    same(far.get("log").unwrap(), b"line\n");
    same(far.get("new").unwrap(), b"old");
    assert_eq!((far.get("old"), far.get("gone")), (None, None));
    assert!(far.dir.path().join("e").is_dir());
}

/// Missing bytes around a patch must not read as zeros.
#[test] //= delivery#put-and-conflicts
fn dying_server_reads_no_zeros() {
    let (far, dir) = both();
    far.put("a", b"what is there");
    let depot = depot(&far, &dir);
    far.set_away(true);
    put_into(&depot, "a", 13, b" and more");
    let left = far.loses_all(u64::MAX);
    far.set_away(false);
    let told = read(&depot, "a").unwrap_err();
    let is_busy =
        matches!(&told, Error::Store(error) if matches!(**error, StoreError::Busy { .. }));
    assert!(is_busy, "{told:?}");
    left.store(0, SeqCst);
    same(read(&depot, "a").unwrap(), b"what is there and more");
}

/// A new file would conflict with the existing one later.
#[test] //= delivery#faults
fn dying_server_gets_no_new_file() {
    let (far, dir) = both();
    far.put("a", b"what is there");
    let depot = depot(&far, &dir);
    let left = far.loses_all(1);
    let edit = Edit {
        create: true,
        ..Edit::default()
    };
    let editing = depot.edit(&url("a"), &who(), &edit).unwrap();
    assert_eq!((editing.size(), left.load(SeqCst)), (13, 0));
}

/// The server renames a file, and loses its disk before the flush.
#[test] //= delivery#faults
fn rename_survives_dying_server() {
    let (far, dir) = both();
    far.put("a", b"bytes");
    let depot = depot(&far, &dir);
    let mut is_lost = false;
    far.on_ask(move |what, path| match what == "flush" && !is_lost {
        true => {
            is_lost = true;
            Err(StoreError::Missing { path: path.into() })
        }
        false => Ok(()),
    });
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    push(&depot);
    assert_eq!((far.get("a"), far.get("b")), (None, Some(b"bytes".into())));
}

/// The server answers `stat`, and loses its disk before it answers `digest`.
#[test]
fn missing_digest_is_no_conflict() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    put(&depot, "a", b"bytes");
    push(&depot);
    let left = Arc::new(Mutex::new(None));
    let mut_left = Arc::clone(&left);
    far.on_ask(move |what, path| {
        let mut left = mut_left.lock().unwrap();
        if left.is_none() && what == "digest" {
            *left = Some(6);
        }
        match &mut *left {
            None | Some(0) => Ok(()),
            Some(left) => {
                *left -= 1;
                Err(StoreError::Missing { path: path.into() })
            }
        }
    });
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    push(&depot);
    assert_eq!(*left.lock().unwrap(), Some(0));
    assert_eq!((far.get("a"), far.get("b")), (None, Some(b"bytes".into())));
}

#[test] //= delivery#faults
fn missing_directory_is_verified() {
    let (far, dir) = both();
    std::fs::create_dir(far.dir.path().join("d")).unwrap();
    far.on_ask(|what, path| match what {
        "write" => Err(StoreError::Missing { path: path.into() }),
        _ => Ok(()),
    });
    let depot = depot(&far, &dir);
    put(&depot, "d/a", b"bytes");
    put(&depot, "none/a", b"bytes");
    let pushed = depot.push(&Scope::All, LIMIT);
    assert!(matches!(pushed, Err(Error::Held { .. })), "{pushed:?}");
    let why: Vec<_> = depot.queue().into_iter().map(|row| row.why).collect();
    assert!(!why[0].contains("mkdir"), "{why:?}");
    assert!(
        why[1].contains("the directory ftp://far/none is not there"),
        "{why:?}"
    );
}
