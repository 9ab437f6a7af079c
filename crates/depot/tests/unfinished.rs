//! Files that were not closed, or are damaged, are never delivered.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Far, as_killed, both, bytes, depot, over, push, put, read, rules, same, until, url, who,
};
use godwit_core::{Block, Leaves, Piece};
use godwit_depot::{Depot, Error, Fresh, Rules, Scope, Stage, Writing};
use godwit_store::Defect;
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

fn into(depot: &Depot, name: &str) -> Writing {
    depot.patch(&url(name), &who(), "").unwrap()
}

#[test] //= KANGAROO-32
fn unclosed_patch_is_not_delivered() {
    let (far, dir) = both();
    let there = bytes(10_000, 2);
    far.put("a", &there);
    let depot = depot(&far, &dir);
    let writing = into(&depot, "a");
    writing.write(0, b"told").unwrap();
    let file = writing.file().unwrap();
    writing.grant(5_000..6_000).unwrap();
    file.write_all_at(b"not told", 5_000).unwrap();
    // A push sends closed files only.
    push(&depot);
    assert_eq!(depot.queue()[0].stage, Stage::Open);
    drop((file, writing));
    push(&depot);
    assert!(depot.queue().is_empty());
    same(far.get("a").unwrap(), &there);
    assert_eq!(depot.usage().taken, 0);
}

#[test]
fn unreported_write_is_left_out() {
    let (far, dir) = both();
    let mut there = bytes(10_000, 2);
    far.put("a", &there);
    let depot = depot(&far, &dir);
    let writing = into(&depot, "a");
    writing.write(0, b"told").unwrap();
    let file = writing.file().unwrap();
    writing.grant(5_000..6_000).unwrap();
    file.write_all_at(b"not told", 5_000).unwrap();
    writing.end().unwrap();
    push(&depot);
    there[..4].copy_from_slice(b"told");
    same(far.get("a").unwrap(), &there);
}

#[test] //= depot#writing
fn unclosed_patch_leaves_pending_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    let wanted = bytes(3 << 20, 5);
    put(&depot, "a", &wanted);
    let (half, whole) = (into(&depot, "a"), into(&depot, "a"));
    half.write(0, &bytes(2 << 20, 7)).unwrap();
    whole.write(10, b"ended").unwrap();
    half.commit().unwrap();
    depot.commit(&Scope::All).unwrap();
    whole.end().unwrap();
    let mut wanted = wanted;
    wanted[10..15].copy_from_slice(b"ended");
    same(read(&depot, "a").unwrap(), &wanted);
    let copy = as_killed(&depot);
    drop(half);
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
    drop(depot);
    far.put("a", b"");
    let again = self::depot(&far, &copy);
    push(&again);
    same(far.get("a").unwrap(), &wanted);
}

#[test] //= depot#writing
fn oversized_patch_leaves_nothing() {
    let (far, dir) = both();
    let rules = Rules {
        quota: Some(4 << 20),
        ..rules()
    };
    let depot = Depot::open(&dir.path().join("depot"), rules, far.connect()).unwrap();
    far.set_away(true);
    put(&depot, "a", b"as it was");
    let taken = depot.usage().taken;
    let writing = into(&depot, "a");
    writing.write(0, b"new").unwrap();
    let full = writing.write(5 << 20, b"far behind");
    assert!(matches!(full, Err(Error::TooLarge { .. })), "{full:?}");
    drop(writing);
    assert_eq!(depot.usage().taken, taken);
    same(read(&depot, "a").unwrap(), b"as it was");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"as it was");
}

#[test]
fn empty_patch_changes_nothing() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    into(&depot, "a").end().unwrap();
    assert!(depot.queue().is_empty() && !depot.has_pending());
    push(&depot);
    assert_eq!(far.get("a"), None);
}

#[test]
fn concurrent_patches_all_count() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    std::thread::scope(|scope| {
        for nth in 0..8u8 {
            let depot = &depot;
            scope.spawn(move || {
                let writing = into(depot, "a");
                writing
                    .write(u64::from(nth) * 100_000, &[nth; 100_000])
                    .unwrap();
                writing.end().unwrap();
            });
        }
    });
    let wanted: Vec<u8> = (0..8u8).flat_map(|nth| vec![nth; 100_000]).collect();
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), &wanted);
}

/// Puts a file through a descriptor, so that the depot has not seen its bytes.
fn put_by_descriptor(depot: &Depot, name: &str, bytes: &[u8]) {
    let writing = depot.put(&url(name), &who(), &over()).unwrap();
    let size = bytes.len() as u64;
    let ticket = writing.grant(0..size).unwrap();
    writing.file().unwrap().write_all_at(bytes, 0).unwrap();
    writing.written(0..size, ticket, size);
    writing.end().unwrap();
}

/// Returns the only file of bytes of a depot.
fn its_bytes(root: &Path) -> PathBuf {
    let folders = fs::read_dir(root.join("bytes")).unwrap();
    let names = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let mut paths = names.map(|name| name.unwrap().path());
    paths.find(|path| path.extension().is_none()).unwrap()
}

fn damage(root: &Path, at: u64) {
    let file = File::options().write(true).open(its_bytes(root)).unwrap();
    file.write_all_at(b"rotten", at).unwrap();
}

fn why_on_hold(depot: &Depot) -> String {
    let pushed = depot.push(&Scope::All, Some(Duration::from_secs(30)));
    assert!(matches!(pushed, Err(Error::Held { .. })), "{pushed:?}");
    let queue = depot.queue();
    assert_eq!((queue.len(), &queue[0].stage), (1, &Stage::Held));
    assert!(!queue[0].is_conflict);
    queue[0].why.clone()
}

#[test] //= KANGAROO-X6 delivery#faults
fn damaged_file_is_never_delivered() {
    for (size, at) in [(3_000_000, 1_500_000), (1_000, 500), (1 << 20, 5)] {
        let (far, dir) = both();
        let depot = depot(&far, &dir);
        far.set_away(true);
        put_by_descriptor(&depot, "a", &bytes(size, 9));
        damage(depot.root(), at);
        let copy = as_killed(&depot);
        far.set_away(false);
        let why = why_on_hold(&depot);
        assert!(why.contains("damaged"), "{size}: {why}");
        // `release` does not deliver damaged bytes.
        depot.release("ftp://far/a").unwrap();
        why_on_hold(&depot);
        assert_eq!(far.get("a"), None, "{size}");
        // A new put replaces the damaged file.
        put_by_descriptor(&depot, "a", b"again");
        push(&depot);
        same(far.get("a").unwrap(), b"again");
        drop(depot);
        far.put("a", b"there");
        let again = self::depot(&far, &copy);
        let why = why_on_hold(&again);
        assert!(why.contains("damaged"), "{size}: {why}");
        same(far.get("a").unwrap(), b"there");
    }
}

/// Leaves of 1 MiB are sent with their stored hashes; the target finds the difference.
#[test]
fn comparing_target_finds_damage() {
    for is_good in [true, false] {
        let (far, dir) = both();
        far.is_ours.store(true, SeqCst);
        let depot = depot(&far, &dir);
        far.set_away(true);
        let wanted = bytes(3_000_000, 9);
        put_by_descriptor(&depot, "a", &wanted);
        if !is_good {
            damage(depot.root(), 1_500_000);
        }
        far.set_away(false);
        match is_good {
            true => {
                push(&depot);
                same(far.get("a").unwrap(), &wanted);
            }
            false => {
                let why = why_on_hold(&depot);
                assert!(why.contains("damaged"), "{why}");
                assert_eq!(far.get("a"), None);
            }
        }
        assert_eq!(far.known.load(SeqCst), 2);
    }
}

/// The bytes on the disk must match the hashes that the program declared.
#[test]
fn declared_hashes_must_match() {
    for (is_ours, wrong) in [
        (false, None),
        (false, Some(1)),
        (true, None),
        (true, Some(1)),
    ] {
        let (far, dir) = both();
        far.is_ours.store(is_ours, SeqCst);
        let depot = depot(&far, &dir);
        let wanted = bytes(3_000_000, 9);
        let writing = depot.put(&url("a"), &who(), &over()).unwrap();
        far.set_away(true);
        for (leaf, bytes) in (0..).zip(wanted.chunks(1 << 20)) {
            let (start, end) = (leaf << 20, (leaf << 20) + bytes.len() as u64);
            let ticket = writing.grant(start..end).unwrap();
            writing.file().unwrap().write_all_at(bytes, start).unwrap();
            let mut leaves = Leaves::new();
            leaves.add(Piece::of(Block::at(start, bytes)));
            let mut chain = leaves.chain(leaf, end).unwrap();
            chain.0[0] ^= u8::from(wrong == Some(leaf));
            writing.written_as(start..end, ticket, end, Some(chain));
        }
        writing.end().unwrap();
        far.set_away(false);
        match wrong {
            None => {
                push(&depot);
                same(far.get("a").unwrap(), &wanted);
            }
            Some(_) => {
                assert!(why_on_hold(&depot).contains("damaged"));
                assert_eq!(far.get("a"), None);
            }
        }
    }
}

#[test] //= KANGAROO-X6 delivery#faults
fn damaged_patch_is_never_applied() {
    let (far, dir) = both();
    far.put("a", &bytes(3 << 20, 1));
    let depot = depot(&far, &dir);
    far.set_away(true);
    let writing = into(&depot, "a");
    writing.write(1 << 20, &bytes(1 << 20, 2)).unwrap();
    writing.end().unwrap();
    damage(depot.root(), (1 << 20) + 77);
    far.set_away(false);
    assert!(why_on_hold(&depot).contains("damaged"));
    same(far.get("a").unwrap(), bytes(3 << 20, 1));
}

#[test]
fn intact_file_survives_kill() {
    let (far, dir) = both();
    let first = depot(&far, &dir);
    far.set_away(true);
    let wanted = bytes((2 << 20) + 17, 11);
    put_by_descriptor(&first, "a", &wanted);
    let copy = as_killed(&first);
    drop(first);
    far.set_away(false);
    let again = depot(&far, &copy);
    push(&again);
    same(far.get("a").unwrap(), &wanted);
    let reading = again.read(&url("a"), &who(), Fresh::Any).unwrap();
    assert_eq!(reading.size(), wanted.len() as u64);
}

/// Returns the partial files at the server.
fn partials(far: &Far) -> Vec<String> {
    let names = fs::read_dir(far.dir.path()).unwrap();
    let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".part")).collect()
}

/// Lets the server go away after half of a file.
fn broken_off(far: &Far, depot: &Depot) {
    far.trouble(Defect::FullAt(2 << 20));
    put(depot, "a", &bytes(4 << 20, 3));
    until("it was tried", || {
        depot.queue().iter().any(|row| row.tries > 0)
    });
    far.set_away(true);
    assert_ne!(partials(far), [""; 0]);
}

#[test] //= KANGAROO-68 delivery#put-and-conflicts
fn discard_removes_partial_upload() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    broken_off(&far, &depot);
    depot.discard("ftp://far/a").unwrap();
    far.set_away(false);
    until("nothing lies there", || partials(&far).is_empty());
    assert_eq!(far.get("a"), None);
}

#[test] //= delivery#put-and-conflicts
fn redirect_after_kill_removes_partial() {
    let (far, dir) = both();
    let first = depot(&far, &dir);
    broken_off(&far, &first);
    let copy = as_killed(&first);
    drop(first);
    let again = depot(&far, &copy);
    // A redirect is refused while an attempt is in flight.
    until("it is delivered elsewhere", || {
        again.redirect("ftp://far/a", &url("b")).is_ok()
    });
    far.store.mend();
    far.set_away(false);
    push(&again);
    until("nothing lies there", || partials(&far).is_empty());
    assert_eq!(far.get("a"), None);
    same(far.get("b").unwrap(), bytes(4 << 20, 3));
}

#[test] //= delivery#faults
fn unresolved_name_is_retried() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_unknown(true);
    put(&depot, "a", b"for later");
    until("its server is waited for", || {
        matches!(depot.queue()[0].stage, Stage::Waiting { .. })
    });
    let row = &depot.queue()[0];
    assert!(row.why.contains("tried for a day"), "{}", row.why);
    far.set_unknown(false);
    push(&depot);
    same(far.get("a").unwrap(), b"for later");
}

#[test]
fn missing_directory_is_named() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    put(&depot, "none/a", b"in it");
    let why = why_on_hold(&depot);
    assert!(
        why.contains("ftp://far/none") && why.contains("godwit mkdir"),
        "{why}"
    );
    fs::create_dir(far.dir.path().join("none")).unwrap();
    depot.retry("ftp://far/none/a").unwrap();
    push(&depot);
    same(far.get("none/a").unwrap(), b"in it");
}

#[test]
fn empty_depot_mark_means_damage() {
    let (far, dir) = both();
    drop(depot(&far, &dir));
    let mark = dir.path().join("depot/depot");
    for (words, is_newer) in [("", false), ("rubbish", false), ("godwit depot 7", true)] {
        fs::write(&mark, words).unwrap();
        let error = Depot::open(&dir.path().join("depot"), rules(), far.connect()).unwrap_err();
        assert_eq!(matches!(error, Error::Newer { .. }), is_newer, "{error}");
        assert_eq!(matches!(error, Error::Damaged { .. }), !is_newer, "{error}");
    }
    // Without records, the depot was only begun.
    fs::remove_file(dir.path().join("depot/held.db")).unwrap();
    fs::write(&mark, "").unwrap();
    drop(depot(&far, &dir));
}

#[test]
fn grown_file_counts_as_intact() {
    let (far, dir) = both();
    let first = depot(&far, &dir);
    far.set_away(true);
    put(&first, "a", b"short");
    drop(first);
    let again = depot(&far, &dir);
    let writing = into(&again, "a");
    writing.write(3_000_000, b"long").unwrap();
    writing.end().unwrap();
    far.set_away(false);
    push(&again);
    let mut wanted = vec![0; 3_000_004];
    wanted[..5].copy_from_slice(b"short");
    wanted[3_000_000..].copy_from_slice(b"long");
    same(far.get("a").unwrap(), &wanted);
}
