//! A store and a face on a page each, for CONTRIBUTING.md.

use godwit_core::{Algorithm, Block, Digest, Extents, Fault};
use godwit_store::{
    BlockWriter, Capabilities, Entry, EntryKind, Error, Memory, Read, Result, Stat, Store,
    StoreExt, check, forward,
};
use std::{collections::BTreeMap, convert::Infallible, ops::Range, path::Path};

/// Files that cannot be changed, all in the root.
struct Shelf(BTreeMap<&'static str, &'static [u8]>);

impl Shelf {
    fn bytes(&self, path: &Path) -> Result<&'static [u8]> {
        let found = path.to_str().and_then(|name| self.0.get(name));
        found.copied().ok_or_else(|| Error::missing(path))
    }

    fn refuse(&self, verb: &str) -> Result<Infallible> {
        Err(Error::unsupported(verb, "a shelf is read only"))
    }
}

impl Store for Shelf {
    forward!(self, self, |verb| self.refuse(verb); write remove rename mkdir set);

    fn can(&self) -> Result<Capabilities> {
        Ok(Capabilities {
            ranges: true,
            digests: Algorithm::ALL.to_vec(),
            ..Capabilities::default()
        })
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        match path.as_os_str().is_empty() {
            true => Ok(Stat::of(EntryKind::Directory, 0)),
            false => Ok(Stat::of(EntryKind::File, self.bytes(path)?.len() as u64)),
        }
    }

    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        if self.stat(path)?.kind != EntryKind::Directory {
            return Err(Error::not_directory(path));
        }
        self.0.keys().try_for_each(|name| {
            let (path, stat) = (name.into(), self.stat(Path::new(name))?);
            each(Entry { path, stat })
        })
    }

    fn read(&self, path: &Path, want: &Extents, _: usize, into: &dyn BlockWriter) -> Result<Read> {
        let all = self.bytes(path)?;
        for Range { start, end } in want.within(0..all.len() as u64) {
            let (offset, bytes) = (start, &all[start as usize..end as usize]);
            into.put(Block { offset, bytes })?;
        }
        let (stat, digest) = (self.stat(path)?, None);
        Ok(Read { stat, digest })
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        let all = self.bytes(path)?;
        let Range { start, end } = range.unwrap_or(0..all.len() as u64);
        let end = all.len().min(end as usize);
        Ok(Digest::of(by, &all[end.min(start as usize)..end]))
    }

    godwit_store::has!(self, Facets:);
}

#[test]
fn shelf_keeps_promises_of_stores() {
    check::all(&|| Box::new(Shelf(BTreeMap::new())));
}

/// The verbs of [`StoreExt`] work on every store.
#[test]
fn shelf_is_walked_and_read() {
    let shelf = Shelf(BTreeMap::from([("a", &b"one"[..]), ("b", b"two")]));
    let (mut names, mut all) = (Vec::new(), Vec::new());
    let walked = shelf.walk(Path::new(""), &mut |entry| {
        names.push(entry.path);
        Ok(())
    });
    walked.unwrap();
    let mut next = names.clone().into_iter();
    let read = shelf.read_small(&mut || next.next(), &mut |_, small| {
        all.extend(small.unwrap().bytes);
    });
    read.unwrap();
    assert_eq!(all, b"onetwo");
    assert!(!shelf.is_remote());
}

/// A face: an error as a file system in user space answers it. Its columns are those of `core::Kind`.
#[derive(Debug, PartialEq)]
struct Answer {
    negative_errno: i32,
    is_asked_again: bool,
}

impl From<&Error> for Answer {
    fn from(error: &Error) -> Self {
        Self {
            negative_errno: -error.kind().errno(),
            is_asked_again: error.fault() == Fault::Passing,
        }
    }
}

#[test]
fn face_answers_by_table_alone() {
    let (missing, passing) = (Error::missing("a"), Error::busy("host", "full"));
    let of_store = Memory::new().stat(Path::new("a")).unwrap_err();
    assert_eq!(Answer::from(&of_store), Answer::from(&missing));
    let answer = |negative_errno, is_asked_again| Answer {
        negative_errno,
        is_asked_again,
    };
    assert_eq!(Answer::from(&missing), answer(-2, false));
    assert_eq!(Answer::from(&passing), answer(-11, true));
}

#[test]
fn contributing_quotes_this_file() {
    let (page, file) = (
        include_str!("../../../CONTRIBUTING.md"),
        include_str!("worked_example.rs"),
    );
    let quotes = page.split("```rust\n").skip(1);
    let quotes = quotes.filter_map(|quote| quote.split("```").next());
    let own: Vec<_> = quotes.filter(|quote| !quote.contains('…')).collect();
    assert_eq!(own.len(), 2);
    for line in own.iter().flat_map(|quote| quote.lines()) {
        assert!(file.contains(line), "{line}");
    }
}
