//! The promises of every store, as a suite that runs on any implementation.
//!
//! A check is a function on an empty store. The store must refuse all that its abilities ([`Capabilities`]) lack, with an
//! error and without a trace.

mod again;
mod append;
mod attempts;
mod bytes;
mod known;
mod publish;
mod tree;

use crate::{
    BlockWriter, Capabilities, Entry, Error, Expected, Finished, Read, Result, Set, Sink, Stat,
    Store, Write, WriteMode,
};
use again::{put_again, put_again_after_a_resume, put_again_after_commit, shorter_than_put};
use append::{
    appending, appending_again, appending_at_most, appending_at_once, appending_out_of_turn,
    appending_replaced, appending_small, appending_unheard,
};
use attempts::{
    racing, taken_over, what_differs_is_not_done, what_it_became_is_told, what_landed_is_told,
};
use bytes::{
    a_file_comes_back, an_empty_file, blocks_in_any_order, digests, far_out, holes, in_place,
    many_threads_read, many_threads_write, parts_are_read, small_files,
};
use godwit_core::{Block, Extents, LEAF_BYTES};
use known::put_as_known;
use parking_lot::Mutex;
use publish::{
    abandoned, another_origin, appears_only_when_whole, digests_are_told, goes_on, last_wins_whole,
    new_never_replaces, new_race, not_whole_not_finished, version_guards, versions_kept,
    wrong_digest, wrong_leaf,
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tree::{
    attributes, directories, extended_attributes, hard_names, links, listing, listing_ends,
    missing, outside, renaming, room, walking,
};

/// Runs every check, each on a new and empty store.
///
/// # Panics
/// If a promise is not kept.
pub fn all(make: &dyn Fn() -> Box<dyn Store>) {
    for (name, check) in CHECKS {
        let store = make();
        let can = store.can().expect("a store says what it can");
        eprintln!("check {name}");
        check(&*store, &can);
    }
}

/// Every check, with its name.
pub const CHECKS: &[(&str, SuiteCheck)] = &[
    ("a file comes back as it was written", a_file_comes_back),
    ("an empty file is a file", an_empty_file),
    ("parts are read, and nothing beyond the end", parts_are_read),
    ("many threads read every byte once", many_threads_read),
    ("blocks come in any order", blocks_in_any_order),
    ("many threads write", many_threads_write),
    ("a file appears only when whole", appears_only_when_whole),
    ("what is not whole is not finished", not_whole_not_finished),
    ("a wrong digest publishes nothing", wrong_digest),
    ("the digests of what was written are told", digests_are_told),
    ("a leaf that differs is sent again", wrong_leaf),
    ("a leaf that is not what it was does not land", put_as_known),
    ("new never replaces", new_never_replaces),
    ("of two that are new one wins", new_race),
    ("a version guards what is replaced", version_guards),
    ("the last to finish wins whole", last_wins_whole),
    ("an interrupted write goes on", goes_on),
    ("another origin begins anew", another_origin),
    ("abandoned is gone", abandoned),
    ("of bytes that are put again the last count", put_again),
    ("bytes are put again after a commit", put_again_after_commit),
    (
        "bytes are put again after a resume",
        put_again_after_a_resume,
    ),
    (
        "a file is finished shorter than what was put",
        shorter_than_put,
    ),
    ("a later attempt takes an upload over", taken_over),
    (
        "a later attempt is told what landed and what it hashes to",
        what_landed_is_told,
    ),
    (
        "a later attempt is told what differs",
        what_differs_is_not_done,
    ),
    ("of racing attempts the latest has it", racing),
    ("what an upload became is told", what_it_became_is_told),
    (
        "who changed a file is noticed by its version",
        versions_kept,
    ),
    ("a file is changed in place", in_place),
    ("bytes far out do not fill the room between", far_out),
    ("holes read as zeros", holes),
    ("appending lengthens", appending),
    ("what is appended again is there once", appending_again),
    ("an append out of turn is refused", appending_out_of_turn),
    ("an append has a bound", appending_at_most),
    (
        "appends are of the file, not of its name",
        appending_replaced,
    ),
    ("many append at once, each in order", appending_at_once),
    (
        "an append whose answer was lost is there once",
        appending_unheard,
    ),
    ("appends come in packs", appending_small),
    ("hard names", hard_names),
    ("names do not lead outside", outside),
    ("a directory lists what is in it", listing),
    ("an error of the caller ends the listing", listing_ends),
    ("a tree is walked from above", walking),
    ("what is missing is called missing", missing),
    ("directories are made and removed", directories),
    ("renaming replaces", renaming),
    ("attributes are set", attributes),
    ("extended attributes are set and told", extended_attributes),
    ("links are told as links", links),
    ("digests of files and ranges", digests),
    ("room is told", room),
    ("small files come in order, each once", small_files),
    ("what a store cannot do it refuses", refusals),
];

/// One check.
pub type SuiteCheck = fn(&dyn Store, &Capabilities);

fn refusals(store: &dyn Store, can: &Capabilities) {
    let refused =
        |done: bool, can: bool, what: &str| assert!(can || !done, "{what}: it said it cannot");
    let write_as = |how: WriteMode| {
        let sink = store.write(p("refused"), &Write::with(how))?;
        sink.put(Block::at(0, b"x"))?;
        sink.finish(&Expected::default())
    };
    refused(
        write_as(WriteMode::Replace(None)).is_ok(),
        can.write,
        "write",
    );
    refused(
        write_as(WriteMode::InPlace).is_ok(),
        can.in_place && can.write,
        "in place",
    );
    refused(
        write_as(WriteMode::Append { writer: 1, seq: 1 }).is_ok(),
        can.append && can.write,
        "append",
    );
    refused(store.mkdir(p("made")).is_ok(), can.write, "mkdir");
    let link_to = Some("refused".into());
    refused(
        store
            .set(
                p("link"),
                &Set {
                    link_to,
                    ..Set::default()
                },
            )
            .is_ok(),
        can.links && can.write,
        "link",
    );
    let mtime = Some(Duration::from_secs(1_000_000_000));
    refused(
        store
            .set(
                p("refused"),
                &Set {
                    mtime,
                    ..Set::default()
                },
            )
            .is_ok(),
        can.set_mtime,
        "time",
    );
    refused(
        store.set(p("refused"), &Set::of_mode(0o600)).is_ok(),
        can.set_mode,
        "mode",
    );
}

// What the checks share.

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn begin(store: &dyn Store, path: &str, bytes: &[u8], write: &Write<'_>) -> Box<dyn Sink> {
    let write = Write {
        size: Some(bytes.len() as u64),
        ..write.clone()
    };
    store.write(p(path), &write).expect("write")
}

fn put(sink: &dyn Sink, offset: u64, bytes: &[u8]) {
    sink.put(Block { offset, bytes }).expect("put");
}

fn whole(bytes: &[u8]) -> Expected {
    Expected::of_size(bytes.len() as u64)
}

fn all_of(bytes: &[u8]) -> Extents {
    Extents::from(0..bytes.len() as u64)
}

fn write(store: &dyn Store, path: &str, bytes: &[u8]) -> Finished {
    write_at(store, p(path), bytes).expect("write")
}

fn write_at(store: &dyn Store, path: &Path, bytes: &[u8]) -> Result<Finished> {
    let size = Some(bytes.len() as u64);
    let sink = store.write(
        path,
        &Write {
            size,
            resume: false,
            ..Write::default()
        },
    )?;
    for (i, block) in bytes.chunks(MIB).enumerate() {
        sink.put(Block::at((i * MIB) as u64, block))?;
    }
    sink.finish(&whole(bytes))
}

fn read(store: &dyn Store, path: &str) -> Vec<u8> {
    read_at(store, p(path))
}

fn read_at(store: &dyn Store, path: &Path) -> Vec<u8> {
    let got = Got::default();
    let Read { stat, .. } = store
        .read(path, &Extents::from(0..u64::MAX), 1, &got)
        .expect("read");
    assert_eq!(got.extents().len_bytes(), stat.size);
    let blocks = got.0.into_inner();
    let mut bytes = vec![0; stat.size as usize];
    for (offset, block) in blocks {
        bytes[offset as usize..offset as usize + block.len()].copy_from_slice(&block);
    }
    bytes
}

fn stat(store: &dyn Store, path: &str) -> Stat {
    store.stat(p(path)).expect("stat")
}

fn set_mtime(store: &dyn Store, path: &str, seconds: u64) {
    let mtime = Some(Duration::from_secs(seconds));
    store
        .set(
            p(path),
            &Set {
                mtime,
                ..Set::default()
            },
        )
        .expect("set");
}

fn list(store: &dyn Store, path: &str, mut each: impl FnMut(Entry)) {
    let listed = store.list(p(path), &mut |entry| {
        each(entry);
        Ok(())
    });
    listed.expect("list");
}

fn names(store: &dyn Store, path: &str) -> Vec<PathBuf> {
    let mut names = Vec::new();
    list(store, path, |entry| names.push(entry.path));
    names.sort();
    names
}

/// A foreign server may reply no more than 550.
fn is_missing<T>(result: Result<T>) -> bool {
    matches!(
        result,
        Err(Error::Missing { .. } | Error::Refused { code: 550, .. })
    )
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Keeps the blocks that it receives.
#[derive(Debug, Default)]
struct Got(Mutex<Vec<(u64, Vec<u8>)>>);

impl Got {
    fn extents(&self) -> Extents {
        let blocks = self.0.lock();
        let extents: Extents = blocks
            .iter()
            .map(|(at, b)| *at..*at + b.len() as u64)
            .collect();
        let sum: u64 = blocks.iter().map(|(_, b)| b.len() as u64).sum();
        assert_eq!(extents.len_bytes(), sum, "bytes came twice");
        extents
    }

    fn ascending(&self) -> bool {
        self.0.lock().is_sorted_by_key(|(at, _)| *at)
    }

    fn assert_part_of(&self, bytes: &[u8]) {
        for (at, block) in &*self.0.lock() {
            assert!(
                bytes[*at as usize..].starts_with(block),
                "wrong bytes at {at}"
            );
        }
    }

    fn assert_is(&self, bytes: &[u8]) {
        assert_eq!(self.extents(), all_of(bytes));
        self.assert_part_of(bytes);
    }
}

impl BlockWriter for Got {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.0.lock().push((block.offset, block.bytes.to_vec()));
        Ok(())
    }
}

/// Has no room for the third block.
struct Full;

impl BlockWriter for Full {
    fn put(&self, block: Block<'_>) -> Result<()> {
        match block.offset {
            0..3_000_000 => Ok(()),
            _ => Err(Error::no_space("sink", "")),
        }
    }
}

const MIB: usize = LEAF_BYTES as usize;

/// Beyond 32 bits.
const FAR: u64 = 5 << 30;
