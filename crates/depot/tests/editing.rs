//! Programs that write by descriptors of their own, which nobody sees.

#![allow(clippy::unwrap_used)]

mod common;

use common::{as_killed, both, bytes, depot, push, put, put_into, read, same, url, who};
use godwit_depot::{Edit, Ended, Error, Fresh, Scope};
use std::{
    fs::File,
    io::{Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    time::Duration,
};

fn create() -> Edit {
    Edit {
        create: true,
        ..Edit::default()
    }
}

#[test]
fn what_a_descriptor_changed_is_found_and_delivered() {
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
    assert_eq!(depot.queue()[0].owed, 1 << 20, "the leaf that differs");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
}

#[test]
fn who_changes_nothing_owes_nothing() {
    let (far, dir) = both();
    far.put("a", b"as it was");
    let depot = depot(&far, &dir);
    let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
    editing.end().unwrap();
    assert!(!depot.owes() && depot.queue().is_empty());
}

#[test]
fn a_generation_ends_with_its_last_writer() {
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
    // Nobody tells of the last one: the kernel does.
    drop(copy);
    let until = Some(Duration::from_secs(30));
    depot.push(&Scope::Url(url("a")), until).unwrap();
    same(far.get("a").unwrap(), b"onetwo");
}

#[test]
fn a_push_has_what_is_open_go_as_it_is() {
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
    assert!(!depot.owes());
}

#[test]
fn truncating_makes_a_new_file_and_readers_keep_the_old() {
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

#[test]
fn somebody_elses_change_is_a_conflict_and_keeps_every_byte() {
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
        queue[0].is_conflict && queue[0].why.contains("somebody"),
        "{queue:?}"
    );
    same(far.get("a").unwrap(), b"theirs, longer");
    same(read(&depot, "a").unwrap(), b"ours");
    // Somebody decides.
    depot.release(&queue[0].id).unwrap();
    push(&depot);
    same(far.get("a").unwrap(), b"ours");
}

#[test]
fn a_file_that_must_be_new_is() {
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

#[test]
fn what_was_being_written_when_the_node_was_killed_is_looked_at() {
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
    // As a kill would leave it: the record says that it was open.
    let copy = as_killed(&first);
    drop((editing, writer, first));
    let again = depot(&far, &copy);
    push(&again);
    same(far.get("a").unwrap(), b"mine");
}

#[test]
fn what_is_given_up_is_not_delivered() {
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
    assert!(depot.queue().is_empty() && !depot.owes());
}

/// It takes a while to see what they wrote: that is not newer than what was put meanwhile.
#[test]
fn what_is_put_after_an_editor_was_killed_comes_after_what_they_wrote() {
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
