//! Programs that write through descriptors, unseen by the depot.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Gate, as_killed, both, by, bytes, depot, push, put, put_into, read, same, until, url, who,
};
use godwit_depot::{Depot, Edit, Ended, Error, Fresh, Scope, Stage};
use std::{
    fs::File,
    io::{Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

fn create() -> Edit {
    Edit {
        create: true,
        ..Edit::default()
    }
}

#[test] //= GASS-19 depot#writing
fn descriptor_changes_are_delivered() {
    let (far, dir) = both();
    let mut wanted = bytes(3 << 20, 1);
    far.put("a", &wanted);
    let depot = depot(&far, &dir);
    let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
    let file = editing.file().unwrap().try_clone().unwrap();
    file.write_all_at(b"changed", 2_000_000).unwrap();
    wanted[2_000_000..2_000_007].copy_from_slice(b"changed");
    drop(file);
    far.set_away(true);
    assert_eq!(editing.end().unwrap(), Ended::Last(1));
    // During an attempt, the queue tells what that attempt has still to send.
    until("only the leaf that differs is pending", || {
        let file = &depot.queue()[0];
        matches!(file.stage, Stage::Waiting { .. }) && file.pending_bytes == 1 << 20
    });
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
}

#[test] //= GASS-31 depot#writing
fn unchanged_edit_is_not_pending() {
    let (far, dir) = both();
    far.put("a", b"as it was");
    let depot = depot(&far, &dir);
    let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
    editing.end().unwrap();
    assert!(!depot.has_pending() && depot.queue().is_empty());
}

#[test] //= GASS-12 GASS-20 GASS-30 depot#writing
fn last_writer_ends_generation() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let one = depot.edit(&url("a"), &who(), &create()).unwrap();
    let mut copy = one.file().unwrap().try_clone().unwrap();
    copy.write_all(b"one").unwrap();
    let two = depot.edit(&url("a"), &who(), &create()).unwrap();
    two.file().unwrap().write_all_at(b"two", 3).unwrap();
    assert_eq!(two.end().unwrap(), Ended::Open);
    assert_eq!(one.end().unwrap(), Ended::Open, "its copy is open");
    assert_eq!(far.get("a"), None);
    // The kernel closes the last descriptor without a call to the depot.
    drop(copy);
    let until = Some(Duration::from_secs(30));
    depot.push(&Scope::Url(url("a")), until).unwrap();
    same(far.get("a").unwrap(), b"onetwo");
}

/// Both found the name absent before either made the file.
#[test]
fn concurrent_creators_share_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let both = Barrier::new(2);
    let open = || {
        let first = AtomicBool::new(true);
        let is_there = || {
            if first.swap(false, Relaxed) {
                both.wait();
            }
            true
        };
        depot
            .edit_while(&url("a"), &who(), &create(), &is_there)
            .unwrap()
    };
    let (one, two) = thread::scope(|scope| {
        let one = scope.spawn(open);
        let two = open();
        (one.join().unwrap(), two)
    });
    one.file().unwrap().write_all_at(b"one", 0).unwrap();
    two.file().unwrap().write_all_at(b"two", 3).unwrap();
    one.end().unwrap();
    two.end().unwrap();
    push(&depot);
    same(far.get("a").unwrap(), b"onetwo");
    assert!(!depot.has_pending());
}

#[test]
fn offline_writers_make_one_new_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    depot.edit(&url("a"), &who(), &create()).unwrap_err();
    let offline = Edit {
        offline: true,
        ..create()
    };
    let one = depot.edit(&url("a"), &who(), &offline).unwrap();
    let two = depot.edit(&url("a"), &who(), &offline).unwrap();
    one.file().unwrap().write_all_at(b"one", 0).unwrap();
    two.file().unwrap().write_all_at(b"two", 3).unwrap();
    one.end().unwrap();
    two.end().unwrap();
    // A file that others made there meanwhile is not replaced.
    far.put("a", b"theirs");
    far.set_away(false);
    let limit = Some(Duration::from_secs(30));
    let error = depot.push(&Scope::All, limit).unwrap_err();
    assert!(matches!(error, Error::Held { .. }), "{error}");
    same(far.get("a").unwrap(), b"theirs");
}

#[test] //= depot#commit-and-push
fn push_sends_open_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let editing = depot.edit(&url("a"), &who(), &create()).unwrap();
    editing.file().unwrap().write_all_at(b"so far", 0).unwrap();
    assert_eq!(far.get("a"), None);
    push(&depot);
    same(far.get("a").unwrap(), b"so far");
    editing
        .file()
        .unwrap()
        .write_all_at(b", and on", 6)
        .unwrap();
    push(&depot);
    same(far.get("a").unwrap(), b"so far, and on");
    assert_eq!(editing.end().unwrap(), Ended::Last(3));
    assert!(!depot.has_pending());
}

/// Calls `act` while a push waits at a gate of the target.
fn while_pushing(depot: &Depot, gate: &Gate, act: impl FnOnce()) {
    gate.shut("a");
    thread::scope(|scope| {
        let pushing = scope.spawn(|| push(depot));
        gate.reached(1);
        act();
        gate.open();
        pushing.join().unwrap();
    });
}

#[test]
fn push_ends_despite_writer() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let editing = depot.edit(&url("a"), &who(), &create()).unwrap();
    let file = editing.file().unwrap();
    file.write_all_at(b"first", 0).unwrap();
    while_pushing(&depot, &far.write_gate, || {
        file.write_all_at(b"other", 0).unwrap();
    });
    same(far.get("a").unwrap(), b"other");
    editing.end().unwrap();
    push(&depot);
    same(far.get("a").unwrap(), b"other");
}

/// The first bytes are written back; in between, readers saw other bytes.
#[test]
fn rewrite_after_send_is_delivered() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let editing = depot.edit(&url("a"), &who(), &create()).unwrap();
    let file = editing.file().unwrap().try_clone().unwrap();
    file.write_all_at(b"first", 0).unwrap();
    far.flush_gate.shut("a");
    while_pushing(&depot, &far.write_gate, || {
        file.write_all_at(b"other", 0).unwrap();
        far.write_gate.open();
        far.flush_gate.reached(1);
        same(far.get("a").unwrap(), b"other");
        file.write_all_at(b"first", 0).unwrap();
        drop(file);
        editing.end().unwrap();
        far.flush_gate.open();
    });
    push(&depot);
    same(far.get("a").unwrap(), b"first");
}

#[test] //= GASS-31 GASS-57 KANGAROO-53 depot#writing
fn truncation_keeps_old_readers() {
    let (far, dir) = both();
    far.put("a", b"long before");
    let depot = depot(&far, &dir);
    let before = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
    let how = Edit {
        truncate: true,
        create: true,
        ..Edit::default()
    };
    let editing = depot.edit(&url("a"), &who(), &how).unwrap();
    assert_eq!(editing.size(), 0);
    editing.file().unwrap().write_all_at(b"new", 0).unwrap();
    editing.end().unwrap();
    same(read(&depot, "a").unwrap(), b"new");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut before.file(), &mut text).unwrap();
    assert_eq!(text, "long before");
    push(&depot);
    same(far.get("a").unwrap(), b"new");
}

#[test] //= GASS-20 KANGAROO-68 delivery#put-and-conflicts
fn foreign_change_is_a_conflict() {
    let (far, dir) = both();
    far.put("a", b"base");
    let depot = depot(&far, &dir);
    let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
    editing.file().unwrap().write_all_at(b"ours", 0).unwrap();
    far.put("a", b"theirs, longer");
    editing.end().unwrap();
    let until = Some(Duration::from_secs(30));
    let error = depot.push(&Scope::All, until).unwrap_err();
    assert!(matches!(error, Error::Held { .. }), "{error}");
    let queue = depot.queue();
    assert!(
        queue[0].is_conflict && queue[0].why.contains("another program"),
        "{queue:?}"
    );
    same(far.get("a").unwrap(), b"theirs, longer");
    same(read(&depot, "a").unwrap(), b"ours");
    // The operator releases the file.
    depot.release(&queue[0].id).unwrap();
    push(&depot);
    same(far.get("a").unwrap(), b"ours");
}

#[test] //= GASS-31
fn exclusive_create_refuses_existing() {
    let (far, dir) = both();
    far.put("there", b"x");
    let depot = depot(&far, &dir);
    let how = Edit {
        create: true,
        exclusive: true,
        ..Edit::default()
    };
    let error = depot.edit(&url("there"), &who(), &how).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    let editing = depot.edit(&url("new"), &who(), &how).unwrap();
    editing.end().unwrap();
    push(&depot);
    same(far.get("new").unwrap(), b"");
    let missing = depot.edit(&url("none"), &who(), &Edit::default());
    assert!(missing.is_err());
}

#[test] //= KANGAROO-32 delivery#what-a-failure-costs depot#writing
fn open_edit_survives_kill() {
    let (far, dir) = both();
    far.put("a", b"base");
    let first = depot(&far, &dir);
    let editing = first.edit(&url("a"), &who(), &Edit::default()).unwrap();
    let mut writer = File::from(
        editing
            .file()
            .unwrap()
            .try_clone()
            .map(std::os::fd::OwnedFd::from)
            .unwrap(),
    );
    writer.seek(SeekFrom::Start(0)).unwrap();
    writer.write_all(b"mine").unwrap();
    // The copy looks like the directory after a kill: its record says "open".
    let copy = as_killed(&first);
    drop((editing, writer, first));
    let again = depot(&far, &copy);
    push(&again);
    same(far.get("a").unwrap(), b"mine");
}

#[test] //= depot#writing
fn discarded_edit_is_not_delivered() {
    let (far, dir) = both();
    far.put("a", b"as it was");
    let depot = depot(&far, &dir);
    let old = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
    old.file().unwrap().write_all_at(b"spoilt", 0).unwrap();
    old.discard().unwrap();
    let new = depot.edit(&url("new"), &who(), &create()).unwrap();
    new.file().unwrap().write_all_at(b"half", 0).unwrap();
    new.discard().unwrap();
    push(&depot);
    same(far.get("a").unwrap(), b"as it was");
    assert_eq!(far.get("new"), None);
    same(read(&depot, "a").unwrap(), b"as it was");
    assert!(depot.queue().is_empty() && !depot.has_pending());
}

/// The restarted node finds the edit late; the put during that time is newer.
#[test] //= delivery#put-and-conflicts
fn put_follows_killed_editor() {
    for is_put_into in [false, true] {
        let (far, dir) = both();
        let depot = depot(&far, &dir);
        put(&depot, "a", &bytes(24 << 20, 7));
        push(&depot);
        let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
        editing.file().unwrap().write_all_at(b"edited", 0).unwrap();
        let copy = as_killed(&depot);
        far.set_away(true);
        drop(editing);
        drop(depot);
        far.set_away(false);
        let again = self::depot(&far, &copy);
        match is_put_into {
            false => put(&again, "a", b"newest"),
            true => put_into(&again, "a", 6, b" newest"),
        }
        push(&again);
        let there = far.get("a").unwrap();
        match is_put_into {
            false => same(there, b"newest"),
            true => same(&there[..13], b"edited newest"),
        }
        assert!(again.queue().is_empty());
    }
}

/// Changes are a rename over the file, a rename away, a removal and a truncation.
#[test]
fn changes_follow_killed_editor() {
    for what in ["over", "away", "removal", "cut"] {
        let (far, dir) = both();
        let depot = depot(&far, &dir);
        let mut wanted = bytes(24 << 20, 7);
        put(&depot, "a", &wanted);
        put(&depot, "b", b"renamed");
        push(&depot);
        let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
        editing.file().unwrap().write_all_at(b"edited", 0).unwrap();
        wanted[..6].copy_from_slice(b"edited");
        let copy = as_killed(&depot);
        far.set_away(true);
        drop((editing, depot));
        let again = self::depot(&far, &copy);
        match what {
            "over" => again.rename(&url("b"), &url("a"), by()).unwrap(),
            "away" => again.rename(&url("a"), &url("c"), by()).unwrap(),
            "removal" => again.unlink(&url("a"), by()).unwrap(),
            _ => again.truncate(&url("a"), 10, by()).unwrap(),
        }
        far.set_away(false);
        push(&again);
        let (a, c) = match what {
            "over" => (Some(b"renamed".to_vec()), None),
            "away" => (None, Some(wanted)),
            "removal" => (None, None),
            _ => (Some(wanted[..10].to_vec()), None),
        };
        assert!(far.get("a") == a && far.get("c") == c, "{what}");
        assert!(again.queue().is_empty());
    }
}

/// The target has never seen the new file, so it takes its last name at once. After a kill the older edit must not
/// claim that name.
#[test]
fn rename_over_open_file_stays() {
    let (far, dir) = both();
    far.put("a", b"of the origin");
    let depot = depot(&far, &dir);
    let older = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
    older.file().unwrap().write_all_at(b"older", 0).unwrap();
    let newer = depot.edit(&url("b"), &who(), &create()).unwrap();
    far.set_away(true);
    newer.file().unwrap().write_all_at(b"newer", 0).unwrap();
    newer.end().unwrap();
    depot.rename(&url("b"), &url("a"), by()).unwrap();
    let copy = as_killed(&depot);
    drop((older, depot));
    let again = self::depot(&far, &copy);
    same(read(&again, "a").unwrap(), b"newer");
    far.set_away(false);
    push(&again);
    same(far.get("a").unwrap(), b"newer");
    assert!(again.queue().is_empty());
}
