//! Superseded files whose earlier changes must still be delivered: cases from the kill matrix.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, as_killed, by, depot, push, put, put_into, read, rules, same, url, who, with};
use godwit_depot::{Attributes, By, Depot, Edit, Error, Fresh, Rules};
use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt},
    sync::{
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

fn both() -> (Far, tempfile::TempDir, Depot) {
    let (far, dir) = common::both();
    let depot = depot(&far, &dir);
    (far, dir, depot)
}

/// Returns the pending changes.
fn pending(depot: &Depot) -> Vec<String> {
    let queue = depot.queue();
    queue
        .iter()
        .map(|row| format!("{} {}", row.what, row.url))
        .collect()
}

/// Bytes that were read before or during a pending truncation are not shown.
#[test]
fn pending_truncation_blocks_readers() {
    let (far, dir) = common::both();
    let rules = Rules {
        movers: 0,
        ..rules()
    };
    let depot = with(&far, &dir, rules);
    let cut = |name: &str| depot.truncate(&url(name), 3, by()).unwrap();
    let is_told = |name: &str| match read(&depot, name) {
        Err(Error::Busy { what, .. }) => what.contains("about to be cut"),
        read => panic!("{read:?}"),
    };
    // The whole file arrives after the truncation was promised.
    far.put("a", b"a few bytes");
    far.gate.shut("a");
    thread::scope(|scope| {
        let before = scope.spawn(|| read(&depot, "a").unwrap());
        far.gate.reached(1);
        cut("a");
        far.gate.open();
        same(before.join().unwrap(), b"a few bytes");
    });
    assert!(is_told("a"));
    // Setting the time looks the file up at its server.
    far.put("b", b"a few bytes");
    drop(depot.lazily(&url("b"), &who(), Fresh::Usual).unwrap());
    cut("b");
    let mtime = Some(Duration::from_secs(1_000_000_000));
    let attributes = Attributes { mode: None, mtime };
    depot.set(&url("b"), &attributes, by()).unwrap();
    assert!(is_told("b"));
}

/// Another path changes the file at its server during a fetch; the fetched copy counts as older.
#[test]
fn fetch_during_change_is_revalidated() {
    let (far, _dir, depot) = both();
    far.put("a", b"as it was");
    far.gate.shut("a");
    thread::scope(|scope| {
        let before = scope.spawn(|| read(&depot, "a").unwrap());
        far.gate.reached(1);
        depot.changed(&url("a"));
        far.gate.open();
        same(before.join().unwrap(), b"as it was");
    });
    far.put("a", b"as it is");
    same(read(&depot, "a").unwrap(), b"as it is");
}

#[test]
fn truncated_patch_reads_as_delivered() {
    let (far, _dir, depot) = both();
    far.set_away(true);
    put_into(&depot, "a", 0, b"a few bytes");
    depot.truncate(&url("a"), 3, by()).unwrap();
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"a f");
    same(read(&depot, "a").unwrap(), b"a f");
}

#[test]
fn patch_follows_truncation() {
    for renames in [false, true] {
        let (far, dir) = common::both();
        let mut depot = depot(&far, &dir);
        far.set_away(true);
        put_into(&depot, "a", 0, b"a few bytes");
        depot.truncate(&url("a"), 3, by()).unwrap();
        let name = match renames {
            true => "b",
            false => "a",
        };
        if renames {
            depot.rename(&url("a"), &url(name), by()).unwrap();
        }
        put_into(&depot, name, 7, b"more");
        // The bytes between both writes are unknown yet.
        assert!(read(&depot, name).is_err());
        put_into(&depot, name, 6, b"and");
        let copy = common::killed(depot);
        far.set_away(false);
        depot = Depot::open(&copy.path().join("depot"), rules(), far.connect()).unwrap();
        push(&depot);
        same(far.get(name).unwrap(), b"a f\0\0\0andre");
        same(read(&depot, name).unwrap(), b"a f\0\0\0andre");
        assert_eq!(pending(&depot), Vec::<String>::new());
    }
}

#[test]
fn delivered_patch_does_not_return() {
    let (far, _dir, depot) = both();
    far.put("a", b"1");
    put_into(&depot, "a", 0, b"2");
    push(&depot);
    far.put("a", b"");
    same(read(&depot, "a").unwrap(), b"");
    put_into(&depot, "a", 0, b"three");
    far.set_away(true);
    depot.truncate(&url("a"), 0, by()).unwrap();
    far.set_away(false);
    push(&depot);
    same(read(&depot, "a").unwrap(), b"");
}

#[test]
fn reader_learns_of_conflict() {
    let (far, dir) = common::both();
    let rules = Rules {
        movers: 0,
        ..rules()
    };
    let depot = common::with(&far, &dir, rules);
    far.put("a", b"first");
    put_into(&depot, "a", 1, b"I");
    far.gate.shut("a");
    let told = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&depot, "a"));
        far.gate.reached(1);
        far.put("a", b"another's");
        far.gate.open();
        reading.join().unwrap()
    });
    assert!(matches!(told, Err(Error::Held { .. })), "{told:?}");
}

#[test]
fn truncated_new_depot_starts_over() {
    let far = Far::new();
    for left in ["depot", "depot.new"] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("depot");
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["lock", left] {
            fs::write(root.join(name), b"").unwrap();
        }
        let depot = Depot::open(&root, rules(), far.connect()).unwrap();
        put(&depot, left, b"kept");
        push(&depot);
        same(far.get(left).unwrap(), b"kept");
    }
}

#[test]
fn open_reader_delays_no_successor() {
    let (far, _dir, depot) = both();
    far.set_away(true);
    put(&depot, "a", b"first");
    let reading = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
    put(&depot, "a", b"second");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"second");
    drop(reading);
    same(read(&depot, "a").unwrap(), b"second");
    assert_eq!(pending(&depot), Vec::<String>::new());
}

/// The answer of the target arrives after a newer put.
#[test] //= KANGAROO-33
fn read_in_flight_sees_put() {
    let (far, _dir, depot) = both();
    far.put("a", b"what was there");
    far.write_gate.shut("a");
    let (asked, answered) = (mpsc::channel(), mpsc::channel::<()>());
    let is_reader = |thread: &thread::Thread| !thread.name().unwrap_or("").starts_with("mover");
    far.on_ask(move |what, _| {
        if what == "stat" && is_reader(&thread::current()) {
            asked.0.send(()).unwrap();
            let _ = answered.1.recv();
        }
        Ok(())
    });
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&depot, "a").unwrap());
        asked.1.recv().unwrap();
        put(&depot, "a", b"something newer");
        drop(answered.0);
        let seen = (reader.join().unwrap(), read(&depot, "a").unwrap());
        far.write_gate.open();
        same(seen.0, b"something newer");
        same(seen.1, b"something newer");
    });
    push(&depot);
    same(read(&depot, "a").unwrap(), b"something newer");
    same(far.get("a").unwrap(), b"something newer");
}

/// A program dies during its truncation, and another puts a file meanwhile.
#[test] //= delivery#put-and-conflicts
fn put_during_abandoned_truncate_stays() {
    for is_cut in [false, true] {
        let (far, _dir, depot) = both();
        far.set_away(true);
        put(&depot, "a", b"first");
        let (asks, who) = (AtomicU32::new(0), who());
        let by = By {
            who: &who,
            session: "",
            is_wanted: &|| {
                let is_there = is_cut && asks.fetch_add(1, SeqCst) == 0;
                if !is_there {
                    put(&depot, "a", b"second");
                }
                is_there
            },
        };
        let _ = depot.truncate(&url("a"), 3, by);
        same(read(&depot, "a").unwrap(), b"second");
        far.set_away(false);
        push(&depot);
        same(far.get("a").unwrap(), b"second");
        assert_eq!(pending(&depot), Vec::<String>::new());
    }
}

/// A writer that closes supersedes a put since its open. One that died, or wrote nothing, does not.
#[test] //= delivery#put-and-conflicts
fn put_during_edit_yields_to_close() {
    for (is_closed, is_written, is_pending) in [
        (false, true, true),
        (false, true, false),
        (true, false, true),
        (true, false, false),
        (true, true, true),
    ] {
        let (far, _dir, depot) = both();
        put(&depot, "a", b"first");
        push(&depot);
        far.set_away(true);
        if is_pending {
            put(&depot, "a", b"again");
        }
        let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
        if is_written {
            editing.file().unwrap().write_all_at(b"edited", 0).unwrap();
        }
        put(&depot, "a", b"second");
        match (is_closed, is_pending) {
            (true, _) => drop(editing.end().unwrap()),
            (false, true) => drop(editing.end_while(&|| false).unwrap()),
            (false, false) => drop(editing),
        }
        let wanted: &[u8] = match is_closed && is_written {
            true => b"edited",
            false => b"second",
        };
        let what = format!("{is_closed} {is_written} {is_pending}");
        assert!(read(&depot, "a").unwrap() == wanted, "{what}");
        far.set_away(false);
        push(&depot);
        assert!(far.get("a").unwrap() == wanted, "{what}");
        assert_eq!(pending(&depot), Vec::<String>::new());
    }
}

/// The next node finds the unseen edit; the put after it stays current.
#[test] //= delivery#put-and-conflicts
fn put_over_edit_survives_restart() {
    let (far, _dir, depot) = both();
    far.set_away(true);
    put(&depot, "a", b"first");
    let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
    editing.file().unwrap().write_all_at(b"edited", 0).unwrap();
    put(&depot, "a", b"second");
    let copy = as_killed(&depot);
    drop((editing, depot));
    let again = common::depot(&far, &copy);
    same(read(&again, "a").unwrap(), b"second");
    far.set_away(false);
    push(&again);
    same(far.get("a").unwrap(), b"second");
    same(read(&again, "a").unwrap(), b"second");
}

/// A program dies between its open and the first byte.
#[test] //= delivery#put-and-conflicts
fn put_before_abandoned_open_stays() {
    let (far, _dir, depot) = both();
    far.set_away(true);
    let anew = Edit {
        create: true,
        truncate: true,
        ..Edit::default()
    };
    let dies = || {
        put(&depot, "a", b"put");
        false
    };
    let opened = depot.edit_while(&url("a"), &who(), &anew, &dies);
    assert!(matches!(opened, Err(Error::Unwanted)), "{opened:?}");
    same(read(&depot, "a").unwrap(), b"put");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"put");
}
