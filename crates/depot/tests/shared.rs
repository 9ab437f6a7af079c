//! Files that programs of one machine read and write together.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, both, bytes, depot, same, url, who};
use godwit_core::{Ahead, Extents};
use godwit_depot::{Depot, Error, Share, Shared};
use parking_lot::Mutex;
use std::{os::unix::fs::FileExt, sync::Arc};

fn share(depot: &Depot) -> Shared {
    open(depot, Share::default()).unwrap()
}

fn open(depot: &Depot, share: Share) -> Result<Shared, Error> {
    depot.share((&url("a"), &who()), share, &|| true)
}

fn write(shared: &Shared, at: u64, with: &[u8]) {
    let range = Extents::from(at..at + with.len() as u64);
    shared.grant(&range);
    shared.file().write_all_at(with, at).unwrap();
    shared.wrote(&range);
}

fn read(shared: &Shared, at: u64, len: usize) -> Vec<u8> {
    let wanted = Extents::from(at..at + len as u64);
    let ahead = Mutex::new(Ahead::default());
    shared.ensure(&wanted, &ahead, &|| true).unwrap();
    let mut read = vec![0; len];
    shared.file().read_exact_at(&mut read, at).unwrap();
    read
}

fn deliver(shared: &Shared) -> u64 {
    shared.deliver(&|| true).unwrap()
}

#[test] //= MPI-35
fn only_written_bytes_are_delivered() {
    let (far, dir) = both();
    let mut wanted = bytes(3 << 20, 1);
    far.put("a", &wanted);
    let depot = depot(&far, &dir);
    let shared = share(&depot);
    write(&shared, 1_000_000, b"here");
    write(&shared, 2_000_000, b"and there");
    assert_eq!(deliver(&shared), 13);
    wanted[1_000_000..1_000_004].copy_from_slice(b"here");
    wanted[2_000_000..2_000_009].copy_from_slice(b"and there");
    same(far.get("a").unwrap(), &wanted);
    assert_eq!(shared.moved().fetched, 0);
    assert_eq!(deliver(&shared), 0, "it is there");
    same(read(&shared, 0, wanted.len()), &wanted);
}

#[test]
fn reads_see_what_was_written() {
    let (far, dir) = both();
    let mut wanted = bytes(1 << 20, 2);
    far.put("a", &wanted);
    let depot = depot(&far, &dir);
    let shared = share(&depot);
    write(&shared, 70_000, b"mine");
    wanted[70_000..70_004].copy_from_slice(b"mine");
    same(read(&shared, 0, wanted.len()), &wanted);
    assert_eq!(shared.moved().fetched, (1 << 20) - 4);
}

#[test]
fn a_whole_file_is_replaced_at_once() {
    let (far, dir) = both();
    far.put("a", &bytes(5000, 3));
    let depot = depot(&far, &dir);
    let shared = share(&depot);
    shared.resize(0).unwrap();
    let wanted = bytes(3 << 20, 4);
    write(&shared, 0, &wanted[..2 << 20]);
    write(&shared, 2 << 20, &wanted[2 << 20..]);
    let inode = |far: &Far| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(far.dir.path().join("a")).unwrap().ino()
    };
    let before = inode(&far);
    deliver(&shared);
    same(far.get("a").unwrap(), &wanted);
    assert_ne!(inode(&far), before, "readers had the old file until then");
}

#[test]
fn bytes_of_others_behind_the_end_stay() {
    let (far, dir) = both();
    far.put_as_of_before("a", b"");
    let depot = depot(&far, &dir);
    let shared = share(&depot);
    let mut wanted = bytes(2000, 11);
    write(&shared, 0, &wanted[..1000]);
    far.put("a", &wanted);
    deliver(&shared);
    same(far.get("a").unwrap(), &wanted);
    wanted.truncate(1000);
    shared.look(false).unwrap();
    same(read(&shared, 0, 1000), &wanted);
}

#[test] //= MPI-13
fn a_file_is_made_and_grows() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    assert!(open(&depot, Share::default()).is_err());
    let create = Share {
        create: true,
        exclusive: true,
        ..Share::default()
    };
    let shared = open(&depot, create).unwrap();
    same(far.get("a").unwrap(), b"");
    let again = open(&depot, create).unwrap_err();
    assert_eq!(again.kind(), godwit_core::Kind::Exists, "{again}");
    write(&shared, 100_000, b"far behind");
    deliver(&shared);
    let mut wanted = vec![0; 100_000];
    wanted.extend_from_slice(b"far behind");
    same(far.get("a").unwrap(), &wanted);
    shared.resize(200_000).unwrap();
    deliver(&shared);
    wanted.resize(200_000, 0);
    same(far.get("a").unwrap(), &wanted);
    shared.resize(100_003).unwrap();
    deliver(&shared);
    same(far.get("a").unwrap(), &wanted[..100_003]);
}

#[test]
fn another_version_is_not_mixed_in() {
    let (far, dir) = both();
    far.put_as_of_before("a", &bytes(1 << 20, 5));
    let depot = depot(&far, &dir);
    let shared = share(&depot);
    read(&shared, 0, 10);
    write(&shared, 300_000, b"mine");
    let mut wanted = bytes(1 << 20, 6);
    far.put("a", &wanted);
    wanted[300_000..300_004].copy_from_slice(b"mine");
    same(read(&shared, 200_000, 400_000), &wanted[200_000..600_000]);
    same(read(&shared, 0, 10), &wanted[..10]);
}

#[test]
fn a_look_shows_what_others_wrote() {
    let (far, dir) = both();
    far.put_as_of_before("a", &bytes(1 << 20, 7));
    let depot = depot(&far, &dir);
    let shared = share(&depot);
    read(&shared, 0, 1 << 20);
    write(&shared, 0, b"mine");
    deliver(&shared);
    let fetched = shared.moved().fetched;
    shared.look(false).unwrap();
    read(&shared, 0, 1 << 20);
    assert_eq!(shared.moved().fetched, fetched, "nothing was changed there");
    let wanted = bytes(2 << 20, 8);
    far.put("a", &wanted);
    shared.look(false).unwrap();
    same(read(&shared, 0, 2 << 20), &wanted);
}

#[test]
fn a_failed_delivery_is_tried_again() {
    let (far, dir) = both();
    far.put("a", &bytes(1000, 9));
    let depot = depot(&far, &dir);
    let shared = share(&depot);
    write(&shared, 10, b"mine");
    far.set_away(true);
    let is_wanted = std::sync::atomic::AtomicU32::new(3);
    let still = || is_wanted.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) > 1;
    shared.deliver(&still).unwrap_err();
    far.set_away(false);
    assert_eq!(deliver(&shared), 4);
    assert_eq!(&far.get("a").unwrap()[10..14], b"mine");
}

#[test] //= MPI-6
fn readers_at_once_fetch_each_byte_once() {
    let (far, dir) = both();
    let wanted = Arc::new(bytes(4 << 20, 10));
    far.put("a", &wanted);
    let depot = depot(&far, &dir);
    let shared = share(&depot);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| same(read(&shared, 0, wanted.len()), &wanted[..]));
        }
    });
    assert_eq!(shared.moved().fetched, 4 << 20);
}

/// A file that others removed is not made again of the bytes that programs wrote here.
#[test]
fn removed_files_stay_removed() {
    let (far, dir) = both();
    far.put("a", &bytes(1 << 20, 1));
    let depot = depot(&far, &dir);
    let shared = share(&depot);
    write(&shared, 500_000, b"late");
    std::fs::remove_file(far.dir.path().join("a")).unwrap();
    let error = shared.deliver(&|| true).unwrap_err();
    assert!(error.to_string().contains("no such file"), "{error}");
    assert!(far.get("a").is_none());
}
