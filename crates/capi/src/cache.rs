//! The files that the node keeps, as the paper's cache interface has them: added, locked, tagged, cleaned up.

use crate::{
    failure::{Failure, Result, odd},
    process::Instance,
    system,
};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{
    Handle, Request, Response,
    request::{self, FileTarget},
    response::{OpenedFile, Row},
};
use std::{
    collections::HashMap,
    fs::File,
    os::fd::RawFd,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A cache that was opened.
#[derive(Debug)]
pub(crate) struct CacheHandle {
    /// That of a peer.
    on: Option<String>,
    /// Files that this program has locked.
    locked: Mutex<HashMap<String, LockedFile>>,
}

#[derive(Debug)]
struct LockedFile {
    era: u64,
    handle: Handle,
    /// Path of the file.
    path: PathBuf,
}

/// A file that was added.
#[derive(Debug)]
pub(crate) struct AddedFile {
    pub(crate) fd: RawFd,
    pub(crate) opened: OpenedFile,
}

impl CacheHandle {
    pub(crate) fn open(on: Option<&str>) -> Result<Self> {
        let on = on.filter(|on| !on.is_empty());
        if let Some(other) = on.filter(|on| !on.starts_with("peer:")) {
            let words = "it is neither this user's own nor peer:NAME";
            return Err(Failure::invalid(format!("open the cache {other}"), words));
        }
        Ok(Self {
            on: on.map(str::to_owned),
            locked: Mutex::default(),
        })
    }

    /// Gives up what was added and not done.
    pub(crate) fn close(self) {
        let locked = self.locked.into_inner();
        for (_, LockedFile { era, handle, .. }) in locked.unwrap_or_else(PoisonError::into_inner) {
            if let Some(ours) = Instance::existing() {
                ours.talk.give_back(era, done(handle, None, true));
            }
        }
    }

    /// Adds a file, or a tag to one that is there, and locks it.
    pub(crate) fn add(&self, url: &str, tag: Option<&str>) -> Result<AddedFile> {
        self.lock(request::AddRequest {
            url: url.to_owned(),
            tag: tag.map(str::to_owned),
            ..request::AddRequest::default()
        })
    }

    fn lock(&self, add: request::AddRequest) -> Result<AddedFile> {
        self.ours("add to")?;
        let url = &*add.url.clone();
        if self.locked().contains_key(url) {
            let words = "this program has added it already, and not said that it is done";
            return Err(Refusal::new(Kind::InUse, format!("add {url}"), words).into());
        }
        let ours = Instance::ours()?;
        let (era, answer) = ours.talk.ask(
            None,
            Request::Cache(request::Cache::Add(add)),
            None,
            &mut |_| (),
        )?;
        let mut files = answer.files;
        let Response::Opened(opened) = answer.tell else {
            return Err(odd(url, &format!("{:?}", answer.tell)).into());
        };
        let file = files.pop().map(File::from);
        let handed = file.map(|file| system::hand_out(file, true)).transpose();
        let fd = match handed {
            Ok(Some(fd)) => fd,
            Ok(None) if opened.exists => -1,
            Ok(None) => {
                ours.talk.give_back(era, done(opened.handle, None, true));
                return Err(odd(url, "a file that was to come did not").into());
            }
            Err(error) => {
                ours.talk.give_back(era, done(opened.handle, None, true));
                return Err(Failure::system(&format!("add {url}"), &error));
            }
        };
        let locked = LockedFile {
            era,
            handle: opened.handle,
            path: opened.path.clone().map(|path| path.0).unwrap_or_default(),
        };
        self.locked().insert(url.to_owned(), locked);
        Ok(AddedFile { fd, opened })
    }

    /// Returns where the file of what was added lies, until it is done.
    pub(crate) fn path(&self, url: &str) -> Result<PathBuf> {
        let locked = self.locked();
        let locked = locked.get(url).ok_or_else(|| not_added(url))?;
        Ok(locked.path.clone())
    }

    /// Unlocks what was added: it is there, or did not become anything. What cannot be kept stays locked.
    pub(crate) fn add_done(&self, url: &str, timestamp: Option<i64>, failed: bool) -> Result<()> {
        let (era, handle) = match self.locked().get(url) {
            Some(locked) => (locked.era, locked.handle),
            None => return Err(not_added(url)),
        };
        let ours = Instance::ours()?;
        let ask = done(handle, timestamp, failed);
        let told = ours.talk.ask(Some(era), ask, None, &mut |_| ());
        let is_over = match &told {
            Ok(_) => true,
            Err(refusal) => matches!(refusal.kind, Kind::NodeLost | Kind::NotOpen | Kind::Ending),
        };
        if is_over {
            self.locked().remove(url);
        }
        told.map(drop).map_err(Failure::from)
    }

    /// Locks what is there until it is deleted.
    pub(crate) fn delete_start(&self, url: &str) -> Result<Row> {
        let added = self.lock(request::AddRequest {
            url: url.to_owned(),
            is_there: true,
            ..request::AddRequest::default()
        })?;
        if added.fd >= 0 {
            let _ = system::close(added.fd);
        }
        let row = self.query(url);
        if row.is_err() {
            self.add_done(url, None, true)?;
        }
        row
    }

    /// Takes one instance of a tag off, and unlocks it if this program has locked it.
    pub(crate) fn delete(&self, url: &str, tag: &str) -> Result<()> {
        self.ours("delete from")?;
        let removed = self.ask(request::Cache::Rm {
            url: url.to_owned(),
            tag: Some(tag.to_owned()),
        });
        if self.locked().contains_key(url) {
            self.add_done(url, None, false)?;
        }
        removed
    }

    pub(crate) fn query(&self, url: &str) -> Result<Row> {
        let place = FileTarget {
            url: url.to_owned(),
            on: self.on.clone(),
        };
        let mut rows = self.rows(request::Cache::Stat(place))?;
        rows.pop().ok_or_else(|| {
            let words = "it is not in the cache";
            Refusal::new(Kind::Missing, format!("look at {url}"), words).into()
        })
    }

    /// Takes all instances of a tag off one file, or off all.
    pub(crate) fn clean_up(&self, url: Option<&str>, tag: &str) -> Result<()> {
        self.ours("clean up")?;
        self.ask(request::Cache::Clean {
            tag: tag.to_owned(),
            url: url.map(str::to_owned),
        })
    }

    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<Row>> {
        self.rows(request::Cache::Ls {
            prefix: prefix.to_owned(),
            on: self.on.clone(),
        })
    }

    fn rows(&self, ask: request::Cache) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let mut more = |tell| {
            if let Response::Row(row) = tell {
                rows.push(*row);
            }
        };
        let ours = Instance::ours()?;
        ours.talk.ask(None, Request::Cache(ask), None, &mut more)?;
        Ok(rows)
    }

    fn ask(&self, ask: request::Cache) -> Result<()> {
        let ours = Instance::ours()?;
        ours.talk
            .ask(None, Request::Cache(ask), None, &mut |_| ())?;
        Ok(())
    }

    /// A peer's is only looked at.
    fn ours(&self, wanted: &str) -> Result<()> {
        let Some(on) = &self.on else {
            return Ok(());
        };
        let wanted = format!("{wanted} the cache of {on}");
        let words = "the cache of a peer is only looked at from here";
        Err(Refusal::new(Kind::Unsupported, wanted, words).into())
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, LockedFile>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn done(handle: Handle, timestamp: Option<i64>, give_up: bool) -> Request {
    Request::Cache(request::Cache::AddDone(request::AddDone {
        handle,
        url: None,
        tag: None,
        timestamp,
        give_up,
    }))
}

fn not_added(url: &str) -> Failure {
    let words = "this program has not added it, or has said so already";
    Failure::invalid(format!("be done with {url}"), words)
}
