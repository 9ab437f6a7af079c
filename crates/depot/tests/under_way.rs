//! Changes of a file while it is being delivered: cases from the kill matrix.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    as_killed, both, by, bytes, depot, over, push, put, put_into, read, rules, same, until, url,
    who, with,
};
use godwit_depot::{Edit, Ended, Fresh, Pending, Rules, Stage};
use godwit_store::Defect;
use std::{
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::Ordering::SeqCst,
    thread,
    time::Duration,
};

/// Counts the files of bytes below `dir`.
fn files_in(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let count = |path: PathBuf| match path.is_dir() {
        true => files_in(&path),
        false => usize::from(path.extension().is_none()),
    };
    entries.map(count).sum()
}

#[test] //= KANGAROO-9
fn old_patch_yields_to_put() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.flush_gate.shut("a");
    put(&depot, "a", b"first");
    far.flush_gate.reached(1);
    // The open reader makes the depot deliver the superseded file.
    let reading = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
    put_into(&depot, "a", 0, b"patch");
    put(&depot, "a", b"second");
    far.flush_gate.open();
    push(&depot);
    same(far.get("a").unwrap(), b"second");
    drop(reading);
    same(read(&depot, "a").unwrap(), b"second");
    assert!(depot.queue().is_empty());
}

/// The newer file may be gone again; the unlink still follows the older patch.
#[test]
fn old_patch_yields_to_unlink() {
    for is_given_away in [false, true] {
        let (far, dir) = both();
        let depot = depot(&far, &dir);
        put(&depot, "c", b"third");
        push(&depot);
        far.flush_gate.shut("a");
        put(&depot, "a", b"first");
        far.flush_gate.reached(1);
        let reading = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
        put_into(&depot, "a", 0, b"patch");
        depot.rename(&url("a"), &url("b"), by()).unwrap();
        put(&depot, "b", b"second");
        match is_given_away {
            true => depot.rename(&url("c"), &url("b"), by()).unwrap(),
            false => depot.unlink(&url("b"), by()).unwrap(),
        }
        let is_second = |row: &&Pending| row.url == url("b") && row.what == "publish";
        if let Some(second) = depot.queue().iter().find(is_second) {
            depot.discard(&second.id).unwrap();
        }
        far.flush_gate.open();
        push(&depot);
        drop(reading);
        let at_b = is_given_away.then(|| b"third".to_vec());
        assert_eq!((far.get("a"), far.get("b")), (None, at_b));
        assert!(depot.queue().is_empty());
    }
}

/// A rename over the name supersedes the patch. Open readers and writers keep their file; it is not delivered.
#[test] //= delivery#put-and-conflicts
fn old_patch_yields_to_rename() {
    for is_written in [false, true] {
        let (far, dir) = both();
        let depot = depot(&far, &dir);
        put(&depot, "c", b"third");
        push(&depot);
        far.flush_gate.shut("a");
        put(&depot, "a", b"first");
        far.flush_gate.reached(1);
        let reading = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
        put_into(&depot, "a", 0, b"patch");
        let editing = is_written.then(|| depot.edit(&url("a"), &who(), &Edit::default()).unwrap());
        depot.rename(&url("c"), &url("a"), by()).unwrap();
        far.flush_gate.open();
        push(&depot);
        assert_eq!((far.get("a"), far.get("c")), (Some(b"third".into()), None));
        assert!(depot.queue().is_empty());
        let copy = as_killed(&depot);
        let again = self::depot(&far, &copy);
        push(&again);
        assert_eq!(read(&again, "a").unwrap(), b"third");
        drop(again);
        let mut found = Vec::new();
        reading.file().read_to_end(&mut found).unwrap();
        same(found, b"patch");
        if let Some(editing) = editing {
            editing.file().unwrap().write_all_at(b"hand", 5).unwrap();
            editing.end().unwrap();
        }
        push(&depot);
        drop(reading);
        assert_eq!(far.get("a"), Some(b"third".into()));
        assert!(depot.queue().is_empty());
        until("its room is free", || {
            files_in(&depot.root().join("bytes")) == 1
        });
    }
}

/// Bytes that were sent ahead under the old name are not those of the new one.
#[test]
fn early_bytes_are_resent_after_rename() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.flush_gate.shut("a");
    put(&depot, "a", b"first");
    far.flush_gate.reached(1);
    put_into(&depot, "a", 0, b"patch");
    far.write_gate.shut("a");
    far.flush_gate.open();
    far.write_gate.reached(1);
    depot.rename(&url("a"), &url("c"), by()).unwrap();
    let editing = depot.edit(&url("c"), &who(), &Edit::default()).unwrap();
    far.write_gate.open();
    until("it was sent", || {
        let queue = depot.queue();
        queue.iter().all(|row| row.stage != Stage::Sending)
    });
    editing
        .file()
        .unwrap()
        .write_all_at(b" and more", 5)
        .unwrap();
    assert!(matches!(editing.end(), Ok(Ended::Last(_))));
    push(&depot);
    assert_eq!(
        (far.get("a"), far.get("c")),
        (None, Some(b"patch and more".into()))
    );
    assert!(depot.queue().is_empty());
}

#[test] //= KANGAROO-11
fn event_during_delivery_repeats_it() {
    let (far, dir) = both();
    let one = Rules {
        movers: 1,
        ..rules()
    };
    let depot = with(&far, &dir, one);
    let mut wanted = bytes(100_000, 3);
    far.put("a", &wanted);
    // The only mover is busy with `b`.
    far.write_gate.shut("b");
    put(&depot, "b", b"busy");
    far.write_gate.reached(1);
    far.gate.shut("a");
    put_into(&depot, "a", 0, b"patch");
    wanted[..5].copy_from_slice(b"patch");
    thread::scope(|scope| {
        // No byte is sent while the rest of the file is fetched.
        let reader = scope.spawn(|| same(read(&depot, "a").unwrap(), &wanted));
        far.gate.reached(1);
        far.write_gate.shut("a");
        far.write_gate.reached(1);
        // The fetch ends in the middle of the attempt.
        far.gate.open();
        reader.join().unwrap();
    });
    far.write_gate.open();
    // A push would start another attempt.
    until("it is delivered", || far.get("a").as_ref() == Some(&wanted));
}

#[test]
fn rewritten_leaves_are_sent_again() {
    let (far, dir) = both();
    for flag in [&far.is_ours, &far.is_once] {
        flag.store(true, SeqCst);
    }
    let depot = depot(&far, &dir);
    let mut wanted = bytes(3 << 20, 5);
    far.known_gate.shut("a");
    put(&depot, "a", &wanted);
    far.known_gate.reached(1);
    // All leaves change, so those that were sent by hash are stale.
    for (leaf, byte) in [(0, b'0'), (1, b'1'), (2, b'2')] {
        let at = (leaf << 20) + 77;
        put_into(&depot, "a", at, &[byte; 5]);
        wanted[at as usize..][..5].fill(byte);
    }
    far.known_gate.open();
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
    assert!(depot.queue().is_empty());
}

#[test] //= delivery#order
fn whole_file_server_explains_wait() {
    let (far, dir) = both();
    far.is_once.store(true, SeqCst);
    let depot = depot(&far, &dir);
    let wanted = bytes(3 << 20, 6);
    let writing = depot.put(&url("a"), &who(), &over()).unwrap();
    writing.write(0, &wanted).unwrap();
    let words = "its server takes whole files only: it is sent when its writer has closed it";
    until("it is said why nothing moves", || {
        let pending = depot.queue();
        pending[0].stage == Stage::Open && pending[0].why == words
    });
    assert_eq!(far.get("a"), None);
    writing.end().unwrap();
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
    assert!(depot.queue().is_empty());
}

#[test] //= KANGAROO-25
fn lost_upload_is_sent_again() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let wanted = bytes(3 << 20, 9);
    far.trouble(Defect::LosesLanded);
    put(&depot, "a", &wanted);
    push(&depot);
    assert_eq!(far.store.left(), []);
    same(far.get("a").unwrap(), &wanted);
    assert!(depot.queue().is_empty());
}

#[test]
fn hold_ends_with_its_reader() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let there = far.dir.path().join("a");
    std::fs::create_dir(&there).unwrap();
    put(&depot, "a", b"first");
    until("it is held", || {
        depot.queue().iter().any(|row| row.stage == Stage::Held)
    });
    let reading = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
    put(&depot, "a", b"second");
    std::fs::remove_dir(&there).unwrap();
    assert_eq!(depot.queue().len(), 2);
    drop(reading);
    // The hold ends without a decision or a request.
    until("the newer one is there", || {
        far.get("a").is_some_and(|there| there == b"second")
    });
    until("nothing is pending", || depot.queue().is_empty());
}

/// The patch is delivered and forgotten meanwhile, since its rest was never fetched. The name then shows another
/// file.
#[test] //= delivery#put-and-conflicts
fn edit_during_delivery_is_current() {
    for then in ["read", "rename", "into", "unlink", "over"] {
        let (far, dir) = both();
        far.put("a", b"before");
        let depot = depot(&far, &dir);
        far.write_gate.shut("a");
        put_into(&depot, "a", 2, b"I");
        far.write_gate.reached(1);
        let asked = far.notices_asks();
        let editing = thread::scope(|scope| {
            let edit = scope.spawn(|| depot.edit(&url("a"), &who(), &Edit::default()).unwrap());
            until("it was looked at", || asked.load(SeqCst));
            far.write_gate.open();
            edit.join().unwrap()
        });
        editing.file().unwrap().write_all_at(b"E", 0).unwrap();
        let rename = |from: &str, to: &str| depot.rename(&url(from), &url(to), by()).unwrap();
        match then {
            "rename" => rename("a", "b"),
            "into" => put_into(&depot, "a", 3, b"J"),
            "unlink" => depot.unlink(&url("a"), by()).unwrap(),
            "over" => {
                put(&depot, "c", b"third");
                rename("c", "a");
            }
            _ => {}
        }
        editing.end().unwrap();
        let name = if then == "rename" { "b" } else { "a" };
        let seen = read(&depot, name).ok();
        push(&depot);
        let wanted = match then {
            "unlink" => None,
            "over" => Some(b"third".to_vec()),
            "into" => Some(b"EeIJre".to_vec()),
            _ => Some(b"EeIore".to_vec()),
        };
        assert_eq!((&seen, &far.get(name)), (&wanted, &wanted), "{then}");
        assert_eq!(far.get("b").is_some(), then == "rename");
    }
}

/// The absence check of one patch races with the scan of an edit. Either order must be safe.
#[test] //= delivery#put-and-conflicts
fn edit_races_absence_check_safely() {
    for _ in 0..3 {
        let (far, dir) = both();
        let depot = depot(&far, &dir);
        far.look_gate.shut("a");
        put_into(&depot, "a", 2, b"I");
        far.look_gate.reached(1);
        let wanted = bytes(40 << 20, 3);
        let editing = depot.edit(&url("a"), &who(), &Edit::default()).unwrap();
        editing.file().unwrap().write_all_at(&wanted, 0).unwrap();
        thread::scope(|scope| {
            let ending = scope.spawn(|| editing.end().unwrap());
            thread::park_timeout(Duration::from_millis(20));
            far.look_gate.open();
            ending.join().unwrap();
        });
        push(&depot);
        same(far.get("a").unwrap(), &wanted);
        assert!(depot.queue().is_empty());
    }
}
