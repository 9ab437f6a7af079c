//! The verbs and facets of a node as a store.

use super::{
    COUNTS_ATTEMPTS, Door, HIDDEN_MAX, NAMES_A_CALL, PASSES_ON, UNASKED, done, fetch, is_numbered,
    name, small, upload, words::CallForm,
};
use crate::{
    BlockWriter, Capabilities, Entry, Finished, HopStatus, NextFile, PASSED_MAX, Read, Remedy,
    RemovalKind, Result, Set, Sink, Small, SmallResult, SmallWrite, Space, Stat, Store, Walk,
    Write, Xattrs, channel::Watch,
};
use godwit_core::{Algorithm, Digest, Extents, Version};
use godwit_wire::door::call::{
    AskBecame, AskDecide, AskDigest, AskPath, AskRemove, AskRename, AskSet, AskTrace, Line, Name,
};
use hyper::Method;
use std::{
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

impl Store for Door {
    fn can(&self) -> Result<Capabilities> {
        Ok(Capabilities {
            // Reads return leaves, and writes take them.
            leaves: self.0.digests,
            ..self.known()?.can
        })
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        let mut found = None;
        self.stat_many(&[path.into()], &mut |_, stat| {
            found = Some(stat);
            Ok(())
        })?;
        found.expect("of each name one is told")
    }

    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let (hidden, unread) = (&mut |_| (), &mut |_, error| Err(error));
        self.entries(
            path,
            false,
            &mut Walk {
                each,
                hidden,
                unread,
            },
        )
    }

    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        fetch::read(&self.0, path, want, streams, into)
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        if is_numbered(&write.how) {
            self.must_count()?;
        }
        if write.attempt > 0 {
            self.must_count_attempts()?;
        }
        upload::begin(self, path, write)
    }

    fn remove(&self, path: &Path, what: RemovalKind) -> Result<()> {
        let asked = AskRemove {
            path: name(path)?,
            directory: what == RemovalKind::Directory,
        };
        self.call_for("remove", &asked, path, done)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let asked = AskRename {
            from: name(from)?,
            to: name(to)?,
        };
        self.call_for("rename", &asked, from, done)
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        self.make(&[path], vec![name(path)?]).remove(0)
    }

    fn set(&self, path: &Path, set: &Set) -> Result<()> {
        set.check_xattrs(path)?;
        if !set.xattrs.is_empty() || set.atime.is_some() {
            self.must_say_xattrs()?;
        }
        let asked = AskSet {
            path: name(path)?,
            ..set.say()
        };
        self.call_for("set", &asked, path, done)
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        let asked = AskDigest {
            path: name(path)?,
            by: by.to_string(),
            range: range.map(|range| (range.start, range.end)),
        };
        self.call_for("digest", &asked, path, |line| match line {
            Line::Digest(digest) => Some(digest.0),
            _ => None,
        })
    }

    crate::has!(self, Facets: peer transit batch volume);
}

impl crate::Peer for Door {
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }

    fn clock_skew(&self) -> Option<Duration> {
        *self.0.skew.lock()
    }

    fn round_trip(&self) -> Duration {
        self.known()
            .map_or(Duration::ZERO, |known| known.round_trip)
    }
}

impl crate::Batch for Door {
    fn walk_all(&self, path: &Path, walk: &mut Walk<'_>) -> Result<()> {
        self.entries(path, true, walk)
    }

    fn hidden(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let asked = AskPath { path: name(path)? };
        let mut found = Vec::new();
        self.call("hidden", Method::POST, &asked, path, &mut |line| {
            match line {
                Line::Hidden(name) if found.len() < HIDDEN_MAX => found.push(name.0),
                _ => return Err(self.0.broke(UNASKED)),
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn read_small(
        &self,
        next: &mut NextFile<'_, PathBuf>,
        each: &mut SmallResult<'_, Small>,
    ) -> Result<()> {
        small::read(&self.0, next, each)
    }

    fn write_small(
        &self,
        next: &mut NextFile<'_, SmallWrite>,
        each: &mut SmallResult<'_, Finished>,
    ) -> Result<()> {
        small::write(self, next, each)
    }

    fn mkdir_many(&self, paths: &[&Path]) -> Vec<Result<()>> {
        if paths.is_empty() {
            return Vec::new();
        }
        let named: Result<Vec<Name>> = paths.iter().map(|path| name(path)).collect();
        match named {
            Ok(names) if names.len() <= NAMES_A_CALL => self.make(paths, names),
            // One name that cannot be said is no fault of all.
            _ => paths.iter().map(|path| self.mkdir(path)).collect(),
        }
    }
}

impl crate::Transit for Door {
    fn flush(&self, path: &Path) -> Result<()> {
        let asked = AskPath { path: name(path)? };
        self.call_for("flush", &asked, path, done)
    }

    fn push(&self, path: &Path, watch: Option<&Watch>) -> Result<()> {
        watch.map_or(Ok(()), |watch| watch.canceled().check())?;
        self.push_within(path, watch.and_then(Watch::left))
    }

    fn published_as(&self, path: &Path, id: &str) -> Result<Option<Version>> {
        if self.known()?.revision < COUNTS_ATTEMPTS {
            return Ok(None);
        }
        let asked = AskBecame {
            path: name(path)?,
            id: id.into(),
        };
        self.call_for("became", &asked, path, |line| match line {
            Line::Became(version) => Some(version.map(Version::heard)),
            _ => None,
        })
    }

    fn trace(&self, path: &Path, passed: &[String]) -> Result<Vec<HopStatus>> {
        if self.known()?.revision < PASSES_ON {
            let stat = self.stat(path);
            return HopStatus::at_the_end(stat).map(|station| vec![station]);
        }
        let asked = AskTrace {
            path: name(path)?,
            passed: passed.into(),
        };
        let mut stations = Vec::new();
        self.call("trace", Method::POST, &asked, path, &mut |line| {
            let Line::Station(station) = line else {
                return Err(self.0.broke(UNASKED));
            };
            if stations.len() > PASSED_MAX {
                return Err(self.0.broke("it tells of more stations than there can be"));
            }
            stations.push(HopStatus::heard(station));
            Ok(())
        })?;
        if let Some(first) = stations.first_mut() {
            first.at.clone_from(&self.0.limits.at);
        }
        Ok(stations)
    }

    fn decide(&self, path: &Path, what: Remedy, passed: &[String]) -> Result<()> {
        let asked = AskDecide {
            path: name(path)?,
            what,
            passed: passed.into(),
        };
        self.call_for("decide", &asked, path, done)
    }
}

impl crate::Volume for Door {
    fn xattrs(&self, path: &Path) -> Result<Xattrs> {
        self.must_say_xattrs()?;
        let asked = AskPath { path: name(path)? };
        self.call_for("xattrs", &asked, path, |line| match line {
            Line::Xattrs(xattrs) => Some(Xattrs::heard(xattrs)),
            _ => None,
        })
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let asked = AskPath { path: name(path)? };
        self.call_for("space", &asked, path, |line| match line {
            Line::Space(space) => Some(Space::heard(space)),
            _ => None,
        })
    }
}
