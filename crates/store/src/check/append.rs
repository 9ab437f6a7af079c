//! Appended bytes are in the file once, with other writers, and with lost answers.

use super::{names, noise, p, put, read, stat, write};
use crate::{
    Capabilities, Error, Expected, Finished, Result, SMALL_BYTES, SmallWrite, Store, StoreExt,
    Write, WriteMode,
};
use godwit_core::Digest;
use std::{path::Path, thread};

fn append_to(
    store: &dyn Store,
    path: &str,
    (writer, seq): (u64, u64),
    bytes: &[u8],
) -> Result<Finished> {
    let write = Write {
        how: WriteMode::Append { writer, seq },
        size: Some(bytes.len() as u64),
        ..Write::default()
    };
    let sink = store.write(p(path), &write)?;
    if !bytes.is_empty() {
        put(&*sink, 0, bytes);
    }
    sink.finish(&Expected::default())
}

fn append(store: &dyn Store, by: (u64, u64), text: &str) -> Result<Finished> {
    append_to(store, "log", by, text.as_bytes())
}

fn text(store: &dyn Store) -> String {
    String::from_utf8(read(store, "log")).expect("only text was written")
}

pub(super) fn appending(store: &dyn Store, can: &Capabilities) {
    if !can.append {
        return;
    }
    write(store, "log", b"one ");
    append(store, (1, 1), "two ").expect("it is the first");
    let finished = append(store, (1, 2), "three").expect("it is the next");
    assert_eq!(text(store), "one two three");
    for digest in finished.digests {
        assert_eq!(digest, Digest::of(digest.algorithm(), b"three"));
    }
    // An append without a number is there as often as it was sent.
    for _ in 0..2 {
        append(store, (0, 0), "!").expect("anybody may");
    }
    assert_eq!(text(store), "one two three!!");
    // A file that is not there begins with it.
    append_to(store, "new", (1, 1), b"first").expect("it is the first");
    assert_eq!(read(store, "new"), b"first");
    assert_eq!(
        names(store, ""),
        ["log", "new"].map(Path::new),
        "no trace of how"
    );
}

//= appending#records
pub(super) fn appending_again(store: &dyn Store, can: &Capabilities) {
    if !can.append {
        return;
    }
    append(store, (1, 1), "a").expect("first");
    append(store, (1, 2), "b").expect("next");
    append(store, (2, 1), "x").expect("another writer has a count of its own");
    let again = append(store, (1, 2), "b").expect("it is there");
    for digest in again.digests {
        assert_eq!(digest, Digest::of(digest.algorithm(), b"b"));
    }
    append(store, (1, 1), "a").expect("it is there, and something behind it");
    append(store, (2, 1), "x").expect("it is there");
    append(store, (1, 3), "").expect("of nothing there is nothing to see");
    append(store, (1, 4), "c").expect("and yet it counts");
    assert_eq!(text(store), "abxc");
}

//= appending#records
pub(super) fn appending_out_of_turn(store: &dyn Store, can: &Capabilities) {
    if !can.append {
        return;
    }
    let expected = |result: Result<Finished>| match result {
        Err(Error::OutOfTurn { expected, .. }) => expected,
        other => panic!("{other:?}"),
    };
    assert_eq!(expected(append(store, (1, 2), "b")), 1);
    assert!(super::is_missing(store.stat(p("log"))), "nothing was made");
    append(store, (1, 1), "a").expect("first");
    assert_eq!(expected(append(store, (1, 3), "c")), 2);
    assert_eq!(expected(append(store, (2, 7), "c")), 1);
    append(store, (1, 2), "b").expect("next");
    // Two writers with one number would each lose the other's bytes.
    let other = append(store, (1, 2), "B");
    assert!(matches!(other, Err(Error::Changed { .. })), "{other:?}");
    assert_eq!(text(store), "ab");
}

//= appending#records
pub(super) fn appending_at_most(store: &dyn Store, can: &Capabilities) {
    if !can.append {
        return;
    }
    let bytes = noise(SMALL_BYTES as usize, 31);
    append_to(store, "log", (1, 1), &bytes).expect("as much as may be");
    assert_eq!(read(store, "log"), bytes);
    let much = noise(SMALL_BYTES as usize + 1, 32);
    for size in [None, Some(much.len() as u64)] {
        let write = Write {
            how: WriteMode::Append { writer: 1, seq: 2 },
            size,
            ..Write::default()
        };
        let appended = || {
            let sink = store.write(p("log"), &write)?;
            for (i, bytes) in much.chunks(1 << 18).enumerate() {
                sink.put(godwit_core::Block::at((i << 18) as u64, bytes))?;
            }
            sink.finish(&Expected::default())
        };
        assert!(appended().is_err(), "{size:?}");
    }
    assert_eq!(
        stat(store, "log").size,
        SMALL_BYTES,
        "nothing of it was written"
    );
    append_to(store, "log", (1, 2), b"x").expect("and its number is free");
}

//= appending#records
pub(super) fn appending_replaced(store: &dyn Store, can: &Capabilities) {
    if !can.append {
        return;
    }
    append(store, (1, 1), "a").expect("first");
    append(store, (1, 2), "b").expect("next");
    // Another name, and it is the same file; here and in another directory.
    store.mkdir(p("old")).expect("mkdir");
    for (from, to) in [("log", "log.1"), ("log.1", "old/log")] {
        store.rename(p(from), p(to)).expect("rename");
        append_to(store, to, (1, 2), b"b").expect("it is there");
    }
    append_to(store, "old/log", (1, 3), b"c").expect("next");
    assert_eq!(read(store, "old/log"), b"abc");
    // Another file, and nothing was appended to it.
    for round in 0..2 {
        let next = append(store, (1, 3), "c");
        assert!(matches!(next, Err(Error::OutOfTurn { .. })), "{next:?}");
        append(store, (1, 1), "new ").expect("first");
        match round {
            0 => store
                .remove(p("log"), crate::RemovalKind::File)
                .expect("remove"),
            _ => drop(write(store, "log", b"whole ")),
        }
    }
    append(store, (1, 1), "tail").expect("first");
    assert_eq!(text(store), "whole tail");
    // Another program cuts the file: earlier appends still count as done.
    let set = crate::Set {
        length: Some(5),
        ..Default::default()
    };
    store.set(p("log"), &set).expect("set");
    append(store, (1, 1), "tail").expect("it was there");
    append(store, (1, 2), "!").expect("next");
    assert_eq!(text(store), "whole!");
    let removed =
        ["old/log", "log"].map(|path| store.remove(p(path), crate::RemovalKind::File).is_ok());
    assert_eq!(removed, [true; 2]);
    store
        .remove(p("old"), crate::RemovalKind::Directory)
        .expect("nothing hidden is left in it");
}

//= appending#records
pub(super) fn appending_at_once(store: &dyn Store, can: &Capabilities) {
    if !can.append {
        return;
    }
    const EACH: u64 = 12;
    let line =
        |writer: u64, seq: u64| format!("{writer} {seq} {}\n", "x".repeat(writer as usize * 700));
    thread::scope(|scope| {
        for writer in 1..=4 {
            scope.spawn(move || {
                for seq in 1..=EACH {
                    // Every other one is sent twice.
                    for _ in 0..1 + seq % 2 {
                        append(store, (writer, seq), &line(writer, seq)).expect("it is the next");
                    }
                }
            });
        }
    });
    let all = text(store);
    let mut next = [1; 5];
    for found in all.lines() {
        let mut words = found.split(' ').map_while(|word| word.parse::<u64>().ok());
        let (Some(writer), Some(seq)) = (words.next(), words.next()) else {
            panic!("torn: {found}");
        };
        assert_eq!(format!("{found}\n"), line(writer, seq), "torn");
        let next = &mut next[writer as usize];
        assert_eq!(seq, *next, "of writer {writer}");
        *next += 1;
    }
    assert_eq!(next[1..], [EACH + 1; 4]);
}

pub(super) fn appending_unheard(store: &dyn Store, can: &Capabilities) {
    if !can.append {
        return;
    }
    for seq in 1..=3 {
        // A writer that leaves before the end has appended nothing.
        let write = Write {
            how: WriteMode::Append { writer: 9, seq },
            ..Write::default()
        };
        let sink = store.write(p("log"), &write).expect("write");
        put(&*sink, 0, b"on");
        drop(sink);
        // A writer that leaves after the end has appended, and need not know.
        drop(append(store, (9, seq), "once "));
        append(store, (9, seq), "once ").expect("it is told to be there");
    }
    assert_eq!(text(store), "once once once ");
}

//= appending#records
pub(super) fn appending_small(store: &dyn Store, can: &Capabilities) {
    if !can.append {
        return;
    }
    write(store, "other", b"");
    let given = |path: &str, (writer, seq): (u64, u64)| SmallWrite {
        path: path.into(),
        bytes: format!("{writer}.{seq} ").into(),
        how: WriteMode::Append { writer, seq },
        mtime: None,
        mode: None,
    };
    let sent = [
        given("log", (1, 1)),
        given("log", (1, 2)),
        given("log", (2, 1)),
        given("log", (1, 2)),
        given("log", (1, 9)),
        given("other", (1, 1)),
        SmallWrite {
            how: WriteMode::Replace(None),
            ..given("whole", (7, 7))
        },
        given("log", (1, 3)),
    ];
    for round in 0..2 {
        let (mut next, mut told) = (sent.iter().cloned(), Vec::new());
        store
            .write_small(&mut || next.next(), &mut |path, finished| {
                if let Ok(finished) = &finished {
                    let digests = finished.digests.iter();
                    let bytes = &sent[told.len()].bytes;
                    let is_right = |d: &Digest| *d == Digest::of(d.algorithm(), bytes);
                    assert!(digests.into_iter().all(is_right));
                }
                told.push((path, finished.is_ok()));
            })
            .expect("the conversation holds");
        let expected = sent.iter().enumerate();
        let expected: Vec<_> = expected
            .map(|(i, given)| (given.path.clone(), i != 4))
            .collect();
        assert_eq!(told, expected, "round {round}");
    }
    assert_eq!(text(store), "1.1 1.2 2.1 1.3 ");
    assert_eq!(read(store, "other"), b"1.1 ");
    assert_eq!(read(store, "whole"), b"7.7 ");
}
