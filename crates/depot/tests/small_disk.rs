//! A depot without a quota on a full disk. Only root can mount one; other users skip with the reason.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../godwit/tests/common/skip.rs"]
mod skipped;

use common::{bytes, depot, push, put, read, same, url, who};
use godwit_core::Block;
use godwit_depot::{Depot, Edit, Error};
use godwit_store::{Dir, Error as StoreError, Expected, Opener, Store, Write, WriteMode};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
};
use tempfile::TempDir;

const MIB: usize = 1 << 20;

/// A tmpfs of 32 MiB; dropping it unmounts it.
struct Small(TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=32m,mode=700", "tmpfs"]);
        let said = mount.arg(at.path()).output();
        match said {
            Ok(said) if said.status.success() => Some(Self(at)),
            said => {
                let why = said.map(|said| String::from_utf8_lossy(&said.stderr).trim().to_owned());
                skipped::skip(&format!("mounting a small tmpfs: {why:?}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk to the last byte. Truncating the returned file frees the room.
    fn fill(&self) -> File {
        let mut file = File::create(self.path().join("filled")).unwrap();
        for len in [MIB, 4096, 1] {
            while file.write_all(&vec![1; len]).is_ok() {}
        }
        file
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

fn is_full(error: &Error) -> bool {
    match error {
        Error::Disk { cause, .. } => cause.kind() == io::ErrorKind::StorageFull,
        Error::Store(error) => matches!(**error, StoreError::NoSpace { .. }),
        _ => false,
    }
}

fn is_held(depot: &Depot, name: &str) -> bool {
    !depot.holds(&url(name)).is_empty()
}

/// A reader never sees the beginning of an append that fails for want of room.
#[test]
fn append_without_room_writes_nothing() {
    let Some(disk) = Small::mount() else {
        return;
    };
    let dir = Dir::open(disk.path(), "tests", Opener::Myself).unwrap();
    let append = |seq, bytes: &[u8]| {
        let how = WriteMode::Append { writer: 1, seq };
        let how = Write::with(how);
        let sink = dir.write(Path::new("log"), &how)?;
        sink.put(Block { offset: 0, bytes })?;
        sink.finish(&Expected::default())
    };
    append(1, b"first").unwrap();
    let seen = || fs::metadata(disk.path().join("log")).unwrap().modified();
    let before = seen().unwrap();
    let filled = disk.fill();
    let half = filled.metadata().unwrap().len() - MIB as u64 / 2;
    filled.set_len(half).unwrap();
    drop(filled);
    let refused = append(2, &bytes(MIB, 1));
    assert!(
        matches!(refused, Err(StoreError::NoSpace { .. })),
        "{refused:?}"
    );
    assert_eq!(seen().unwrap(), before);
    assert_eq!(fs::read(disk.path().join("log")).unwrap(), b"first");
    fs::remove_file(disk.path().join("filled")).unwrap();
    append(2, &bytes(MIB, 1)).unwrap();
    assert_eq!(fs::read(disk.path().join("log")).unwrap().len(), MIB + 5);
}

#[test] //= GASS-37 depot#room
fn fetch_evicts_on_full_disk() {
    let Some(disk) = Small::mount() else {
        return;
    };
    let far = common::Far::new();
    let depot = depot(&far, &disk.0);
    for (seed, name) in [(1, "a"), (2, "b"), (3, "c")] {
        far.put(name, &bytes(8 * MIB, seed));
    }
    far.put("large", &bytes(40 * MIB, 4));
    read(&depot, "a").unwrap();
    read(&depot, "b").unwrap();
    disk.fill();
    same(read(&depot, "c").unwrap(), bytes(8 * MIB, 3));
    assert!(!is_held(&depot, "a") || !is_held(&depot, "b"));
    let error = read(&depot, "large").unwrap_err();
    assert!(is_full(&error), "{error}");
    // The partial is evicted for others.
    for (seed, name) in [(1, "a"), (2, "b")] {
        same(read(&depot, name).unwrap(), bytes(8 * MIB, seed));
    }
}

#[test] //= GASS-37 depot#room
fn full_disk_fails_writers() {
    let Some(disk) = Small::mount() else {
        return;
    };
    let far = common::Far::new();
    let depot = depot(&far, &disk.0);
    put(&depot, "a", b"whole");
    push(&depot);
    let appending = depot.append(&url("log"), &who()).unwrap();
    appending.add(b"before\n").unwrap();
    let edit = Edit {
        create: true,
        ..Edit::default()
    };
    let editing = depot.edit(&url("new"), &who(), &edit).unwrap();
    far.set_away(true);
    let filled = disk.fill();
    let error = appending.add(&[b'x'; 8192]).unwrap_err();
    assert!(is_full(&error), "{error}");
    let error = editing.file().unwrap().write_all_at(&[1; 8192], 0);
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::StorageFull);
    filled.set_len(0).unwrap();
    appending.add(b"after\n").unwrap();
    editing.file().unwrap().write_all_at(b"new", 0).unwrap();
    drop(appending);
    editing.end().unwrap();
    far.set_away(false);
    push(&depot);
    same(far.get("log").unwrap(), b"before\nafter\n");
    same(fs::read(far.dir.path().join("new")).unwrap(), b"new");
}

/// Delivery needs room in the records; it comes from the reserve.
#[test]
fn full_disk_still_delivers() {
    let Some(disk) = Small::mount() else {
        return;
    };
    let far = common::Far::new();
    let depot = depot(&far, &disk.0);
    far.set_away(true);
    for (seed, name) in [(1, "a"), (2, "b")] {
        put(&depot, name, &bytes(3 * MIB, seed));
    }
    // Other files fill the disk, and nothing is evicted.
    disk.fill();
    far.set_away(false);
    push(&depot);
    for (seed, name) in [(1, "a"), (2, "b")] {
        same(far.get(name).unwrap(), bytes(3 * MIB, seed));
    }
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
}
