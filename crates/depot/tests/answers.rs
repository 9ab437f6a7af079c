//! Lost answers while names change and files are written again, and stale records after a restart.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, both, by, bytes, depot, killed, push, put, same, url, who};
use godwit_depot::{Depot, Edit};
use godwit_store::{Defect, Error};
use std::{
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
};

/// Writes over the beginning of a file, and makes it if there is none.
fn edit(depot: &Depot, name: &str, bytes: &[u8]) {
    let edit = Edit {
        create: true,
        ..Edit::default()
    };
    let editing = depot.edit(&url(name), &who(), &edit).unwrap();
    editing.file().unwrap().write_all_at(bytes, 0).unwrap();
    editing.end().unwrap();
}

/// Publishes a file at the target, loses the answer, and takes the target away.
fn publish_in_vain(far: &Far, depot: &Depot, name: &str, bytes: &[u8]) {
    far.trouble(Defect::LosesFinish);
    edit(depot, name, bytes);
    while !far.store.left().is_empty() {
        std::thread::yield_now();
    }
    far.set_away(true);
    same(far.get(name).unwrap(), bytes);
}

#[test]
fn rewritten_new_file_stays_ours() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    publish_in_vain(&far, &depot, "a", b"one");
    edit(&depot, "a", b"twotwo");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"twotwo");
    assert!(depot.queue().is_empty());
}

/// The server answers `stat`, and goes away before it answers `digest`.
#[test]
fn lost_digest_makes_no_conflict() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    put(&depot, "a", b"before");
    push(&depot);
    far.forgets.store(true, SeqCst);
    publish_in_vain(&far, &depot, "a", b"behind");
    edit(&depot, "a", b"and more of it");
    let is_lost = AtomicBool::new(true);
    far.on_ask(
        move |what, _| match what == "digest" && is_lost.swap(false, SeqCst) {
            true => Err(Error::Lost {
                host: "far".into(),
                during: "waiting for a digest".into(),
                cause: std::io::ErrorKind::ConnectionReset.into(),
            }),
            false => Ok(()),
        },
    );
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"and more of it");
    assert!(depot.queue().is_empty());
}

#[test]
fn lost_publish_replaces_shorter_base() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    put(&depot, "a", b"short");
    push(&depot);
    far.trouble(Defect::LosesPublish);
    edit(&depot, "a", b"longer than it was");
    push(&depot);
    same(far.get("a").unwrap(), b"longer than it was");
    assert!(far.store.left().is_empty());
}

#[test]
fn unlink_ignores_stale_record() {
    let (far, dir) = both();
    far.put("c", b"another");
    let depot = depot(&far, &dir);
    put(&depot, "a", b"one");
    push(&depot);
    depot.rename(&url("c"), &url("a"), by()).unwrap();
    push(&depot);
    let copy = killed(depot);
    let again = self::depot(&far, &copy);
    again.unlink(&url("a"), by()).unwrap();
    push(&again);
    assert_eq!(far.get("a"), None);
}

#[test]
fn corrupt_upload_is_sent_again() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let wanted = bytes(3 << 20, 8);
    far.trouble(Defect::FlipsWrite(2_000_000));
    // Attempts that did not reach the server do not count.
    let losses = AtomicU64::new(3);
    far.on_ask(move |what, _| {
        let is_lost = what == "write"
            && losses
                .fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1))
                .is_ok();
        match is_lost {
            true => Err(Error::Lost {
                host: "far".into(),
                during: "writing".into(),
                cause: io::ErrorKind::ConnectionReset.into(),
            }),
            false => Ok(()),
        }
    });
    put(&depot, "a", &wanted);
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
    assert!(far.store.left().is_empty());
}

/// `release` during the first attempt is no answer of the target.
#[test]
fn release_during_send_still_sends() {
    let (far, dir) = both();
    let depot = Arc::new(depot(&far, &dir));
    let (by_us, is_first) = (Arc::clone(&depot), AtomicBool::new(true));
    let (decided, is_decided) = mpsc::channel();
    far.on_ask(move |what, _| {
        if what == "write" && is_first.swap(false, SeqCst) {
            by_us.rename(&url("a"), &url("b"), by()).unwrap();
            let pending = by_us.queue();
            let file = pending.iter().find(|row| row.what == "publish").unwrap();
            by_us.release(&file.id).unwrap();
            decided.send(()).unwrap();
        }
        Ok(())
    });
    put(&depot, "a", b"one");
    is_decided.recv().unwrap();
    push(&depot);
    assert!(far.get("a").is_none());
    same(far.get("b").unwrap(), b"one");
    assert!(depot.queue().is_empty());
    far.on_ask(|_, _| Ok(()));
}
