//! Work that is skipped because no reader needs it, and files that are kept for a waiting reader.

#![allow(clippy::unwrap_used)]

mod common;

use common::{both, bytes, depot, of_quota, push, put, read, same, url, who, with};
use godwit_depot::{Depot, Edit, Error, Fresh, Scope};
use std::{
    io::Write,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

fn holds(depot: &Depot, name: &str) -> bool {
    !depot.holds(&url(name)).is_empty()
}

#[test] //= GASS-28
fn awaited_file_is_not_evicted() {
    let (far, dir) = both();
    for name in ["a", "b", "c"] {
        far.put(name, &bytes(4 << 20, 7));
    }
    let depot = with(&far, &dir, of_quota(10 << 20));
    far.gate.shut("a");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&depot, "a"));
        far.gate.reached(1);
        // Both files are used later than the awaited one.
        read(&depot, "b").unwrap();
        read(&depot, "c").unwrap();
        assert!(holds(&depot, "a") && !holds(&depot, "b"));
        far.gate.open();
        same(waiting.join().unwrap().unwrap(), bytes(4 << 20, 7));
    });
}

#[test] //= GASS-31
fn truncation_fetches_nothing() {
    let (far, dir) = both();
    far.put("a", &bytes(3 << 20, 1));
    let depot = depot(&far, &dir);
    let read = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&read);
    far.on_ask(move |what, _| {
        *seen.lock().unwrap() += usize::from(what == "read");
        Ok(())
    });
    let edit = Edit {
        truncate: true,
        ..Edit::default()
    };
    let editing = depot.edit(&url("a"), &who(), &edit).unwrap();
    editing.file().unwrap().write_all(b"new").unwrap();
    editing.end().unwrap();
    push(&depot);
    assert_eq!(*read.lock().unwrap(), 0);
    same(far.get("a").unwrap(), b"new");
    // An edit without truncation fetches the old bytes.
    far.put("b", b"old");
    let editing = depot.edit(&url("b"), &who(), &Edit::default()).unwrap();
    editing.file().unwrap().write_all_at(b"n", 0).unwrap();
    editing.end().unwrap();
    push(&depot);
    assert!(*read.lock().unwrap() > 0);
    same(far.get("b").unwrap(), b"nld");
}

#[test] //= GASS-30
fn repeated_puts_send_the_last() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    far.set_away(true);
    for nth in 0..5 {
        put(&depot, "a", format!("generation {nth}").as_bytes());
    }
    far.on_ask(move |what, path| {
        if what == "write" {
            seen.lock().unwrap().push(path.to_owned());
        }
        Ok(())
    });
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"generation 4");
    // An attempt with the first version may have been in flight.
    let sent = sent.lock().unwrap();
    assert!(sent.len() <= 2, "{sent:?}");
}

#[test] //= KANGAROO-5 KANGAROO-33
fn read_after_put_asks_nothing() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.put("a", b"theirs");
    far.set_away(true);
    put(&depot, "a", b"ours");
    far.on_ask(|what, path| panic!("{what} of {}", path.display()));
    same(read(&depot, "a").unwrap(), b"ours");
    let lazily = depot.lazily(&url("a"), &who(), Fresh::Usual).unwrap();
    let mut found = [0; 4];
    lazily.read(0, &mut found).unwrap();
    same(found, b"ours");
}

#[test] //= GASS-22 GASS-23 depot#how-fresh-a-read-is
fn unversioned_file_is_always_fetched() {
    let (far, dir) = both();
    far.tells_no_time
        .store(true, std::sync::atomic::Ordering::SeqCst);
    far.put("a", b"one");
    let depot = depot(&far, &dir);
    same(read(&depot, "a").unwrap(), b"one");
    // The length is equal, and this server tells no times.
    far.put("a", b"two");
    same(read(&depot, "a").unwrap(), b"two");
    // A lazy read takes one version for all its parts.
    far.put("a", &bytes(3 << 20, 4));
    let lazily = depot.lazily(&url("a"), &who(), Fresh::Usual).unwrap();
    let mut found = [0; 4];
    lazily.read(2 << 20, &mut found).unwrap();
    same(found, &bytes(3 << 20, 4)[2 << 20..(2 << 20) + 4]);
    far.put("a", &bytes(3 << 20, 5));
    lazily.read(0, &mut found).unwrap();
    same(found, &bytes(3 << 20, 4)[..4]);
    far.set_away(true);
    let error = read(&depot, "a").unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
}

/// Two machines that are never up together need a durable hop between them.
#[test] //= GASS-35 GASS-80
fn committed_line_survives_kill() {
    let (far, dir) = both();
    let first = depot(&far, &dir);
    let appending = first.append(&url("log"), &who()).unwrap();
    far.set_away(true);
    appending.add(b"before\n").unwrap();
    appending.add(b"without an end").unwrap();
    appending.commit().unwrap();
    drop(appending);
    let copy = common::killed(first);
    far.set_away(false);
    let again = depot(&far, &copy);
    common::until("it is there", || {
        far.get("log")
            .is_some_and(|there| there == b"before\nwithout an end")
    });
    again.push(&Scope::All, LIMIT).unwrap();
    same(far.get("log").unwrap(), b"before\nwithout an end");
}
