//! Files that programs fill themselves, and names that they lock.

use crate::local::{
    answers::{LocalResult, done, not_open},
    asks::stage::STAGED,
    client::{Client, OpenHandle},
    connection::LocalReply,
    refusals::{self, url},
};
use godwit_core::Url;
use godwit_depot::{Add, Adding, Error};
use godwit_local::{Kind, Refusal};
use godwit_wire::{
    door::call::Link,
    local::{Response, request, response},
};
use parking_lot::Mutex;
use std::{
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A name that a program has locked to fill it.
pub(crate) struct FillHandle {
    url: Url,
    adding: Adding,
    /// To be put on it, and when it falls by itself.
    tag: Option<(String, Option<u64>)>,
}

impl Client {
    /// Waits until no other program has the name locked.
    pub(crate) fn unlocked(&self, url: &Url, reply: &LocalReply) -> Result<(), Refusal> {
        let us = [&*self.connection, &*self.session];
        let free = (self.keeping.depot).unlocked(url, &self.who, &us, &|| !reply.is_over());
        free.map_err(|error| {
            let wanted = format!("wait for the program that fills {}", url.without_password());
            refusals::depot(&wanted, Some(url), &error)
        })
    }

    /// Locks a name: the file exists, or the program fills it.
    pub(crate) fn add(&self, add: &request::AddRequest, reply: &LocalReply) -> LocalResult {
        let url = url(&add.url)?;
        add.tag.as_deref().map(refusals::tag).transpose()?;
        let wanted = format!("add {}", url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(&url), &error);
        let how = Add {
            by: match add.lasts_s {
                Some(_) => self.session.clone(),
                None => self.connection.clone(),
            },
            is_there: add.is_there,
            lasts: add.lasts_s.map(Duration::from_secs),
        };
        let depot = &self.keeping.depot;
        let adding = depot.add(&url, &self.who, &how, &|| !reply.is_over());
        let adding = adding.map_err(bad)?;
        if reply.is_over() {
            return Ok(None);
        }
        let tag = add.tag.as_deref().or(self.job.as_deref()).unwrap_or(STAGED);
        let mut opened = response::OpenedFile {
            size: adding.size(),
            exists: !adding.is_new(),
            timestamp: adding.timestamp(),
            path: adding.path().map(Link),
            ..response::OpenedFile::default()
        };
        let added = FillHandle {
            url: url.clone(),
            adding,
            tag: (!add.is_there).then(|| (tag.to_owned(), add.expires_in_s)),
        };
        if add.lasts_s.is_some() {
            let name = (url.clone(), self.who.audience.clone());
            self.keeping.added.lock().insert(name, added);
            reply.tell(Response::Opened(opened));
            return Ok(None);
        }
        let file = added.adding.file().map_err(bad)?;
        let kept = Arc::new(Mutex::new(added));
        // A program that closes the file at once waits until our own descriptor is closed.
        let busy = kept.lock();
        opened.handle = self.keep(OpenHandle::Adding(Arc::clone(&kept)));
        reply.tell_with(Response::Opened(opened), b"", &[file.as_fd()]);
        drop(file);
        drop(busy);
        Ok(None)
    }

    /// Ends the filling of a file, or gives it up, and unlocks its name.
    pub(crate) fn add_done(&self, told: &request::AddDone) -> LocalResult {
        match &told.url {
            Some(text) => self.add_done_by_name(text, told),
            None => self.add_done_by_handle(told),
        }
    }

    fn add_done_by_handle(&self, told: &request::AddDone) -> LocalResult {
        const WANTED: &str = "be done with it";
        let added = match self.open.lock().get(&told.handle) {
            Some(OpenHandle::Adding(added)) => Arc::clone(added),
            _ => return Err(not_open(WANTED, told.handle)),
        };
        if !told.give_up {
            added.lock().done(told.timestamp)?;
        }
        self.open.lock().remove(&told.handle);
        done(response::Done::default())
    }

    fn add_done_by_name(&self, text: &str, told: &request::AddDone) -> LocalResult {
        let url = url(text)?;
        let name = (url.clone(), self.who.audience.clone());
        let taken = self.keeping.added.lock().remove(&name);
        let Some(mut added) = taken else {
            let wanted = format!("be done with {}", url.without_password());
            let words = "no program is adding it, or the node was ended since";
            let refusal = Refusal::new(Kind::Missing, wanted, words);
            return Err(refusal.next("begin again: godwit cache add").about(text));
        };
        if !told.give_up
            && let Err(refusal) = added.done(told.timestamp)
        {
            self.keeping.added.lock().insert(name, added);
            return Err(refusal);
        }
        done(response::Done {
            files: 1,
            ..response::Done::default()
        })
    }
}

impl FillHandle {
    fn done(&mut self, timestamp: Option<i64>) -> Result<(), Refusal> {
        let lasts = |seconds: u64| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.unwrap_or(Duration::ZERO)
                .as_secs()
                .saturating_add(seconds)
        };
        let tag = self.tag.as_ref();
        let tag = tag.map(|(tag, expires)| (&**tag, expires.map(lasts)));
        let told = self.adding.done(tag, timestamp);
        told.map_err(|error| {
            let wanted = format!("be done with {}", self.url.without_password());
            refusals::depot(&wanted, Some(&self.url), &error)
        })
    }
}
