//! Reads from a server that goes away, changes a file, or refers elsewhere in the middle.
#![allow(clippy::unwrap_used)] // Tests may.

mod common;

use common::{both, bytes, depot, read, same};
use godwit_core::Fault;
use godwit_depot::Error;
use godwit_store::{Defect, Error as StoreError, REFERS};
use std::{
    fs::File,
    io,
    time::{Duration, SystemTime},
};

const HOUR: Duration = Duration::from_secs(3600);

fn refused() -> StoreError {
    StoreError::Unreachable {
        host: "far".into(),
        cause: io::ErrorKind::ConnectionRefused.into(),
    }
}

#[test]
fn interrupted_fetch_differs_from_unreachable() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let wanted = bytes(4 << 20, 5);
    far.put("a", &wanted);
    // A file that changed just now could change again, so its partial would be dropped.
    let (file, before) = (far.dir.path().join("a"), SystemTime::now() - HOUR);
    File::open(file).unwrap().set_modified(before).unwrap();
    far.trouble(Defect::LosesReadAt(2 << 20));
    let mut reads = 0;
    far.on_ask(move |what, _| {
        reads += u64::from(what == "read");
        if reads > 1 { Err(refused()) } else { Ok(()) }
    });
    let error = read(&depot, "a").unwrap_err();
    let Error::BrokeOff { came, size, .. } = &error else {
        panic!("{error}");
    };
    assert!(
        (1 << 20..4 << 20).contains(came) && *size == 4 << 20,
        "{error}"
    );
    assert_eq!(error.fault(), Fault::Passing);
    *far.on_ask.lock().unwrap() = None;
    same(read(&depot, "a").unwrap(), &wanted);
    // A server that is never reached is reported as unreachable.
    far.on_ask(|_, _| Err(refused()));
    let error = read(&depot, "b").unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
}

#[test] //= depot#reading
fn progressing_fetch_is_never_abandoned() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let wanted = bytes(24 << 20, 6);
    far.put("a", &wanted);
    for at in 1..=9 {
        far.trouble(Defect::LosesReadAt((at * 5) << 19));
    }
    same(read(&depot, "a").unwrap(), &wanted);
    assert!(far.store.left().is_empty());
}

#[test] //= depot#reading
fn changing_file_is_fetched_again() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.put("a", b"before");
    let folder = far.dir.path().to_owned();
    let mut reads = 0;
    far.on_ask(move |what, path| {
        reads += u64::from(what == "read");
        if what == "read" && reads == 1 {
            std::fs::write(folder.join("a"), "after it").unwrap();
            let (path, what) = (path.into(), "while it was read".into());
            return Err(StoreError::Changed { path, what });
        }
        Ok(())
    });
    same(read(&depot, "a").unwrap(), b"after it");
    // A file that changes during every fetch cannot be shown.
    far.put("b", b"restless");
    far.on_ask(|what, path| match what {
        "read" => Err(StoreError::Changed {
            path: path.into(),
            what: "while it was read".into(),
        }),
        _ => Ok(()),
    });
    let error = read(&depot, "b").unwrap_err();
    assert!(matches!(error, Error::Restless { .. }), "{error}");
}

fn referred(to: &str) -> StoreError {
    StoreError::Denied {
        path: "x".into(),
        said: format!("{REFERS}{to}"),
    }
}

#[test] //= GASS-67 depot#reading
fn referrals_are_followed_without_loops() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.put("there", b"what is there");
    far.on_ask(|_, path| match path.to_str().unwrap() {
        "moved" => Err(referred("ftp://far/again")),
        "again" => Err(referred("ftp://far/there")),
        "circle" => Err(referred("ftp://far/circle")),
        "here" => Err(referred("file:///etc/passwd")),
        "as-me" => Err(referred("ftp://me@far/there")),
        _ => Ok(()),
    });
    same(read(&depot, "moved").unwrap(), b"what is there");
    let error = read(&depot, "circle").unwrap_err().to_string();
    assert!(error.contains("refer to each other"), "{error}");
    for name in ["here", "as-me"] {
        let error = read(&depot, name).unwrap_err().to_string();
        assert!(error.contains("permission denied"), "{error}");
    }
}
