//! A depot from outside: puts, reads, delivery and faults.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    as_killed, both, by, bytes, depot, over, push, put, put_into, read, rules, same, url, who,
};
use godwit_depot::{Depot, Error, Fresh, Scope, Stage, Who};
use godwit_store::{Defect, Error as StoreError};
use std::{
    io::Read,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant, SystemTime},
};

#[test] //= KANGAROO-11 KANGAROO-33 KANGAROO-37 depot#how-fresh-a-read-is
fn put_is_readable_before_delivery() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    let wanted = bytes(3_000_001, 7);
    put(&depot, "a", &wanted);
    same(read(&depot, "a").unwrap(), &wanted);
    assert_eq!(far.get("a"), None);
    let queue = depot.queue();
    assert_eq!(queue.len(), 1);
    assert_eq!(queue[0].pending_bytes, wanted.len() as u64);
    assert!(queue[0].is_committed);
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
    assert!(depot.queue().is_empty() && !depot.has_pending());
}

#[test] //= GASS-59 KANGAROO-3 KANGAROO-32 depot#writing
fn committed_file_survives_kill() {
    let (far, dir) = both();
    far.set_away(true);
    let wanted = bytes(2 << 20, 3);
    let first = depot(&far, &dir);
    put(&first, "a", &wanted);
    let unfinished = first.put(&url("b"), &who(), &over()).unwrap();
    unfinished.write(0, b"half").unwrap();
    // The copy looks like the directory after a kill.
    let copy = as_killed(&first);
    drop(unfinished);
    drop(first);
    far.set_away(false);
    let again = depot(&far, &copy);
    push(&again);
    same(far.get("a").unwrap(), &wanted);
    assert_eq!(far.get("b"), None);
    // The file is still cached, so no transfer is needed.
    far.set_away(true);
    let reading = again.read(&url("a"), &who(), Fresh::Any).unwrap();
    assert_eq!((reading.size(), reading.transfers()), (2 << 20, 0));
}

#[test] //= GASS-59 KANGAROO-64 KANGAROO-68 delivery#what-a-failure-costs
fn unreadable_records_go_on_hold() {
    let (far, dir) = both();
    far.set_away(true);
    let first = depot(&far, &dir);
    for name in ["unreadable", "short", "whole"] {
        put(&first, name, name.as_bytes());
    }
    let files: Vec<_> = first.queue().into_iter().map(|row| row.id).collect();
    let root = first.root().to_owned();
    drop(first);
    let path = |id: &str| root.join("bytes").join(&id[..2]).join(id);
    let records = rusqlite::Connection::open(root.join("held.db")).unwrap();
    let broken = "UPDATE holdings SET url = 'ftp://' || char(27) WHERE id = ?1";
    assert_eq!(records.execute(broken, [&files[0]]).unwrap(), 1);
    drop(records);
    let cut = std::fs::OpenOptions::new()
        .write(true)
        .open(path(&files[1]));
    cut.unwrap().set_len(2).unwrap();

    far.set_away(false);
    let again = depot(&far, &dir);
    same(std::fs::read(path(&files[0])).unwrap(), b"unreadable");
    same(std::fs::read(path(&files[1])).unwrap(), b"sh");
    let pending = again.queue();
    let short = pending.iter().find(|row| row.id == files[1]).unwrap();
    assert_eq!(short.stage, Stage::Held);
    assert!(short.why.contains("shorter"), "{}", short.why);
    let odd = pending.iter().find(|row| row.id == files[0]).unwrap();
    assert_eq!((odd.stage.clone(), odd.pending_bytes), (Stage::Held, 10));
    let why = &odd.why;
    assert!(
        why.contains(r#""ftp://\u{1b}""#) && why.contains(&files[0]),
        "{why}"
    );
    again.push(&Scope::Url(url("whole")), None).unwrap();
    same(far.get("whole").unwrap(), b"whole");
    assert_eq!(far.get("short"), None);
    // The operator drops the unreadable record.
    let taken = again.usage().taken;
    again.discard(&files[0]).unwrap();
    assert!(!path(&files[0]).exists() && again.usage().taken < taken);
    assert!(again.queue().iter().all(|row| row.id != files[0]));
    assert!(again.discard(&files[0]).is_err());
    drop(again);
    assert_eq!(depot(&far, &dir).queue().len(), 1);
}

#[test]
fn unreadable_promise_blocks_no_other() {
    let (far, dir) = both();
    for name in ["a", "b", "c"] {
        far.put(name, name.as_bytes());
    }
    let first = depot(&far, &dir);
    far.set_away(true);
    for name in ["a", "b", "c"] {
        let to = url(&format!("{name}.new"));
        first.rename(&url(name), &to, by()).unwrap();
    }
    let deeds: Vec<_> = first.queue().into_iter().map(|row| row.id).collect();
    let root = first.root().to_owned();
    drop(first);
    let records = rusqlite::Connection::open(root.join("held.db")).unwrap();
    for (column, old) in [("url", "ftp://far/a"), ("target", "ftp://far/b.new")] {
        let broken =
            format!("UPDATE deeds SET {column} = 'ftp://' || char(27) WHERE {column} = ?1");
        assert_eq!(records.execute(&broken, [old]).unwrap(), 1);
    }
    drop(records);

    far.set_away(false);
    let again = depot(&far, &dir);
    push(&again);
    same(far.get("c.new").unwrap(), b"c");
    assert_eq!((far.get("a.new"), far.get("b.new")), (None, None));
    let queue = again.queue();
    let shown: Vec<_> = queue.iter().map(|row| (&row.id, row.what)).collect();
    assert_eq!(shown, [(&deeds[0], "rename"), (&deeds[1], "rename")]);
    for row in &queue {
        let says = row.stage == Stage::Held && row.why.contains(r#""ftp://\u{1b}""#);
        assert!(says, "{row:?}");
    }
    assert_eq!(queue[1].url, url("b"));
    // An unreadable promise can be dropped, not retried.
    let told = again.retry(&deeds[0]).unwrap_err().to_string();
    assert!(told.contains("cannot be read; drop it"), "{told}");
    again.discard(&deeds[0]).unwrap();
    assert!(again.discard(&deeds[0]).is_err());
    drop(again);
    let left = depot(&far, &dir).queue();
    assert_eq!(
        left.iter().map(|row| &row.id).collect::<Vec<_>>(),
        [&deeds[1]]
    );
}

#[test] //= GASS-16 depot#reading
fn concurrent_readers_share_one_transfer() {
    let (far, dir) = both();
    let wanted = bytes(5_000_000, 9);
    far.put("a", &wanted);
    let depot = Arc::new(depot(&far, &dir));
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| same(read(&depot, "a").unwrap(), &wanted));
        }
    });
    let reading = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
    assert_eq!(reading.transfers(), 1);
}

#[test] //= GASS-23 depot#how-fresh-a-read-is
fn refetch_leaves_open_readers_alone() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.put("a", b"old");
    let old = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
    far.put("a", b"newer");
    let new = depot.read(&url("a"), &who(), Fresh::Now).unwrap();
    let text = |reading: &godwit_depot::Reading| {
        let mut text = String::new();
        reading.file().read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!((text(&old), text(&new)), ("old".into(), "newer".into()));
}

#[test] //= GASS-23 depot#how-fresh-a-read-is
fn changes_within_clock_tick_differ() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    // The change time would tell the two versions apart.
    far.tells_no_touch.store(true, SeqCst);
    // A modification time in the future is always too recent to be trusted.
    let when = SystemTime::now() + Duration::from_secs(3600);
    let put_at = |bytes: &[u8]| {
        far.put("a", bytes);
        let path = far.dir.path().join("a");
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(when).unwrap();
    };
    put_at(b"first");
    same(read(&depot, "a").unwrap(), b"first");
    put_at(b"later");
    let reading = depot.read(&url("a"), &who(), Fresh::Now).unwrap();
    assert_eq!(reading.transfers(), 1);
    let mut bytes = Vec::new();
    reading.file().read_to_end(&mut bytes).unwrap();
    same(bytes, b"later");
    // An unchanged file needs one `stat`.
    let again = depot.read(&url("a"), &who(), Fresh::Now).unwrap();
    assert_eq!(again.transfers(), 1);
}

#[test] //= depot#how-fresh-a-read-is
fn same_size_and_time_may_differ() {
    let (far, dir) = both();
    let first = depot(&far, &dir);
    far.put_as_of_before("a", b"first");
    same(read(&first, "a").unwrap(), b"first");
    far.put_as_of_before("a", b"later");
    let all = |depot: &Depot, fresh| {
        let mut bytes = Vec::new();
        let reading = depot.read(&url("a"), &who(), fresh).unwrap();
        reading.file().read_to_end(&mut bytes).unwrap();
        (bytes, reading.transfers())
    };
    assert_eq!(all(&first, Fresh::Now).0, b"later");
    // The version is known after a restart.
    drop(first);
    far.put_as_of_before("a", b"third");
    let again = depot(&far, &dir);
    assert_eq!(all(&again, Fresh::Any).0, b"later", "it is here still");
    assert_eq!(all(&again, Fresh::Now), (b"third".into(), 1));
    // Only the mode changed: the digest is compared and no bytes are sent.
    let rights = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(far.dir.path().join("a"), rights).unwrap();
    far.gate.shut("a");
    assert_eq!(all(&again, Fresh::Now), (b"third".into(), 1));
}

#[test] //= depot#how-fresh-a-read-is
fn proved_read_compares_digests() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.tells_no_touch.store(true, SeqCst);
    far.put_as_of_before("a", b"first");
    same(read(&depot, "a").unwrap(), b"first");
    far.put_as_of_before("a", b"later");
    let all = |fresh| {
        let mut bytes = Vec::new();
        let reading = depot.read(&url("a"), &who(), fresh).unwrap();
        reading.file().read_to_end(&mut bytes).unwrap();
        (bytes, reading.transfers())
    };
    // Size and time are equal, so `Fresh::Now` takes the old copy.
    assert_eq!(all(Fresh::Now), (b"first".into(), 1));
    assert_eq!(all(Fresh::Proved), (b"later".into(), 1));
    far.gate.shut("a");
    assert_eq!(
        all(Fresh::Proved),
        (b"later".into(), 1),
        "its digest will do"
    );
}

#[test] //= depot#how-fresh-a-read-is
fn lazy_read_never_mixes_versions() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let (one, other) = (bytes(4 << 20, 1), bytes(4 << 20, 2));
    far.put_as_of_before("a", &one);
    let lazily = depot.lazily(&url("a"), &who(), Fresh::Now).unwrap();
    let mut part = vec![0; 1000];
    lazily.read(0, &mut part).unwrap();
    same(part.clone(), &one[..1000]);
    far.put_as_of_before("a", &other);
    let error = lazily.read(3 << 20, &mut part).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
}

#[test]
fn missing_file_leaves_nothing() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let error = depot.read(&url("none"), &who(), Fresh::Usual).unwrap_err();
    assert!(matches!(error, Error::Store(e) if matches!(*e, StoreError::Missing { .. })));
    far.set_away(true);
    let error = depot.read(&url("a"), &who(), Fresh::Usual).unwrap_err();
    assert!(matches!(error, Error::Store(e) if matches!(*e, StoreError::Unreachable { .. })));
    let elsewhere = godwit_core::Url::from_argument("ftp://nowhere/x").unwrap();
    assert!(depot.put(&elsewhere, &who(), &over()).is_err());
    assert!(depot.queue().is_empty());
}

#[test] //= GASS-26 delivery#what-a-failure-costs
fn broken_fetch_is_resumed() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let wanted = bytes(8 << 20, 5);
    far.put("a", &wanted);
    for at in [1 << 20, 3 << 20, 9 << 20] {
        far.trouble(Defect::LosesReadAt(at));
    }
    same(read(&depot, "a").unwrap(), &wanted);
    assert!(far.store.left().is_empty());
}

#[test] //= GASS-17 GASS-30 KANGAROO-21 KANGAROO-64 KANGAROO-68 delivery#faults delivery#put-and-conflicts
fn last_put_wins_despite_stuck_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    put(&depot, "a", b"first");
    put(&depot, "a", b"second");
    same(read(&depot, "a").unwrap(), b"second");
    far.set_away(false);
    // A directory of that name cannot be replaced by a file.
    std::fs::create_dir(far.dir.path().join("stuck")).unwrap();
    put(&depot, "stuck", b"bytes");
    put(&depot, "b", b"free");
    depot
        .push(&Scope::Url(url("b")), Some(Duration::from_secs(30)))
        .unwrap();
    let error = depot
        .push(&Scope::Url(url("stuck")), Some(Duration::from_secs(30)))
        .unwrap_err();
    assert!(matches!(error, Error::Held { .. }), "{error}");
    depot
        .push(&Scope::Url(url("a")), Some(Duration::from_secs(30)))
        .unwrap();
    same(far.get("a").unwrap(), b"second");
    same(far.get("b").unwrap(), b"free");
    let queue = depot.queue();
    assert_eq!(queue.len(), 1);
    assert_eq!(queue[0].stage, Stage::Held);
    // The operator removes the directory and retries.
    std::fs::remove_dir(far.dir.path().join("stuck")).unwrap();
    depot.retry(&queue[0].id).unwrap();
    push(&depot);
    same(far.get("stuck").unwrap(), b"bytes");
}

#[test] //= KANGAROO-24 KANGAROO-25 delivery#what-a-failure-costs
fn lost_answers_lose_no_bytes() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let wanted = bytes(6 << 20, 11);
    far.trouble(Defect::LosesWriteAt(2 << 20));
    far.trouble(Defect::LosesFinish);
    put(&depot, "a", &wanted);
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
    assert!(far.store.left().is_empty());
}

#[test] //= GASS-8 GASS-37 depot#reading
fn unused_files_make_room() {
    let (far, dir) = both();
    let small = godwit_depot::Rules {
        quota: Some(10 << 20),
        ..rules()
    };
    let depot = Depot::open(&dir.path().join("depot"), small, far.connect()).unwrap();
    for name in ["a", "b", "c"] {
        far.put(name, &bytes(4 << 20, 1));
        assert_eq!(read(&depot, name).unwrap().len(), 4 << 20);
    }
    far.put("big", &bytes(11 << 20, 1));
    let error = read(&depot, "big").unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    // A lazy reader may want the whole file later, so it is refused too.
    let error = depot.lazily(&url("big"), &who(), Fresh::Any).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    // Open files are not evicted.
    let _one = depot.read(&url("b"), &who(), Fresh::Any).unwrap();
    let _two = depot.read(&url("c"), &who(), Fresh::Any).unwrap();
    let error = read(&depot, "a").unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    let error = depot.lazily(&url("a"), &who(), Fresh::Any).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert_eq!(depot.list("").len(), 2);
}

#[test]
fn taken_newer_foreign_depots_are_refused() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let root = depot.root().to_owned();
    let again = Depot::open(&root, rules(), far.connect());
    assert!(matches!(again, Err(Error::Taken { .. })));
    drop(depot);
    std::fs::write(root.join("depot"), "godwit depot 2\n").unwrap();
    let error = Depot::open(&root, rules(), far.connect()).unwrap_err();
    assert!(matches!(error, Error::Newer { .. }), "{error}");
    let strange = dir.path().join("strange");
    std::fs::create_dir(&strange).unwrap();
    std::fs::write(strange.join("file"), "foreign").unwrap();
    let error = Depot::open(&strange, rules(), far.connect()).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
}

/// A killed process may keep the lock a moment longer than its name.
#[test]
fn open_waits_for_dying_node() {
    let (far, dir) = both();
    let root = depot(&far, &dir).root().to_owned();
    let mut dying = Command::new("flock")
        .arg(root.join("lock"))
        .args(["-c", "echo has it; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 7];
    dying.stdout.take().unwrap().read_exact(&mut said).unwrap();
    thread::scope(|scope| {
        let opening = scope.spawn(|| Depot::open(&root, rules(), far.connect()));
        // No event tells that `open` waits; an `open` that does not wait returns at once.
        let until = Instant::now() + Duration::from_millis(300);
        while !opening.is_finished() && Instant::now() < until {
            thread::yield_now();
        }
        drop(dying.stdin.take());
        let opened = opening.join().unwrap();
        assert!(opened.is_ok(), "{opened:?}");
    });
    dying.wait().unwrap();
}

#[test] //= KANGAROO-8 KANGAROO-35 depot#how-fresh-a-read-is depot#writing
fn patch_leaves_other_bytes_alone() {
    let (far, dir) = both();
    far.put("a", &bytes(100_000, 2));
    let mut wanted = bytes(100_000, 2);
    let depot = depot(&far, &dir);
    far.set_away(true);
    put_into(&depot, "a", 50_000, b"in the middle");
    put_into(&depot, "a", 99_998, b"over the end");
    wanted[50_000..50_013].copy_from_slice(b"in the middle");
    wanted.truncate(99_998);
    wanted.extend_from_slice(b"over the end");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
    same(read(&depot, "a").unwrap(), &wanted);
    // A pending patch is seen over the bytes of the target.
    far.set_away(true);
    put_into(&depot, "a", 10, b"new");
    far.set_away(false);
    wanted[10..13].copy_from_slice(b"new");
    same(read(&depot, "a").unwrap(), &wanted);
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
    // A patch of a file that is not cached truncates nothing.
    put_into(&depot, "a", 20, b"again");
    push(&depot);
    wanted[20..25].copy_from_slice(b"again");
    same(far.get("a").unwrap(), &wanted);
    // A patch of an absent file begins with zeros.
    put_into(&depot, "none", 5, b"x");
    same(read(&depot, "none").unwrap(), b"\0\0\0\0\0x");
    push(&depot);
    same(far.get("none").unwrap(), b"\0\0\0\0\0x");
}

#[test] //= GASS-17 KANGAROO-9 delivery#order
fn last_close_wins() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    let early = depot.put(&url("a"), &who(), &over()).unwrap();
    put(&depot, "a", b"second");
    put_into(&depot, "a", 6, b" and more");
    same(read(&depot, "a").unwrap(), b"second and more");
    early.write(0, b"first").unwrap();
    early.end().unwrap();
    same(read(&depot, "a").unwrap(), b"first");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"first");
    assert!(depot.queue().is_empty());
}

#[test] //= depot#users-and-credentials
fn permitted_user_shares_cached_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.put("a", b"for both");
    let other = godwit_depot::Who {
        audience: "another user".into(),
        credential: None,
    };
    drop(depot.read(&url("a"), &who(), Fresh::Usual).unwrap());
    for _ in 0..2 {
        let visits = far.visits.load(std::sync::atomic::Ordering::SeqCst);
        let theirs = depot.read(&url("a"), &other, Fresh::Any).unwrap();
        assert_eq!(theirs.transfers(), 1, "no bytes came again");
        let visits = far.visits.load(std::sync::atomic::Ordering::SeqCst) - visits;
        assert_eq!(visits, 1, "the origin was asked");
    }
    // While the origin is away, only the user that fetched the file reads it.
    far.set_away(true);
    assert!(depot.read(&url("a"), &other, Fresh::Any).is_err());
    assert!(depot.read(&url("a"), &who(), Fresh::Any).is_ok());
    // A write of one user does not change the copy of the other.
    far.set_away(false);
    let editing = depot.edit(&url("a"), &other, &godwit_depot::Edit::default());
    let editing = editing.unwrap();
    std::os::unix::fs::FileExt::write_all_at(editing.file().unwrap(), b"FOR", 0).unwrap();
    far.set_away(true);
    editing.end().unwrap();
    let theirs = depot.read(&url("a"), &other, Fresh::Any).unwrap();
    let mut text = String::new();
    theirs.file().read_to_string(&mut text).unwrap();
    assert_eq!(text, "FOR both");
    same(read(&depot, "a").unwrap(), b"for both");
}

#[test]
fn local_open_needs_fresh_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.put("a", b"it");
    let here = |who: &Who, fresh| depot.read_here(&url("a"), who, fresh);
    assert!(here(&who(), Fresh::Any).is_none(), "it did not come yet");
    drop(depot.read(&url("a"), &who(), Fresh::Usual).unwrap());
    let other = godwit_depot::Who {
        audience: "another user".into(),
        credential: None,
    };
    drop(depot.read(&url("a"), &other, Fresh::Usual).unwrap());
    assert!(here(&other, Fresh::Any).is_none(), "it came for the first");
    assert!(here(&who(), Fresh::Now).is_none(), "the origin is asked");
    let reading = here(&who(), Fresh::Any).unwrap();
    assert_eq!(reading.size(), 2);
    drop(depot.put(&url("a"), &who(), &over()).unwrap());
    assert!(here(&who(), Fresh::Any).is_some());
    drop(reading);
    depot.forget(&url("a")).unwrap();
    assert!(here(&who(), Fresh::Any).is_none(), "it is gone");
}

#[test] //= GASS-22 KANGAROO-1 depot#reading
fn partial_read_fetches_its_part() {
    let (far, dir) = both();
    let wanted = bytes(9 << 20, 4);
    far.put("a", &wanted);
    let depot = depot(&far, &dir);
    let lazily = depot.lazily(&url("a"), &who(), Fresh::Usual).unwrap();
    let mut part = vec![0; 100];
    lazily.read(5_000_000, &mut part).unwrap();
    same(&part, &wanted[5_000_000..5_000_100]);
    assert_eq!(depot.list("")[0].present, 1 << 20);
    lazily.read((9 << 20) - 10, &mut part[..10]).unwrap();
    assert_eq!(depot.list("")[0].present, 2 << 20);
    // A whole read fetches the rest.
    same(read(&depot, "a").unwrap(), &wanted);
}
