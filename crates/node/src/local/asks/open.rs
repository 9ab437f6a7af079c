//! Opening a file to read or to write by a descriptor.

use crate::local::{
    answers::{LocalResult, opened},
    asks::read::fresh_of,
    client::{Client, OpenHandle},
    connection::LocalReply,
    refusals::{self, url},
};
use godwit_core::Url;
use godwit_depot::{Edit, Error, Reading};
use godwit_wire::local::request;
use parking_lot::Mutex;
use std::{os::fd::AsFd, sync::Arc, time::Duration};

impl Client {
    pub(crate) fn open(&self, open: &request::OpenRequest, reply: &LocalReply) -> LocalResult {
        let url = match open.write {
            true => self.target(&open.url)?,
            false => url(&open.url)?,
        };
        self.unlocked(&url, reply)?;
        if open.write {
            return match open.lazy && self.open_in_parts(&url, open, reply) {
                true => Ok(None),
                false => self.edit(&url, open, reply),
            };
        }
        open.tag.as_deref().map(refusals::tag).transpose()?;
        if open.lazy && open.tag.is_none() {
            return self.open_lazily(&url, open, reply);
        }
        let reading = self.read(&url, open.fresh)?;
        self.keep_for_job(&url);
        if let Some(tag) = &open.tag {
            let tagged = self.keeping.depot.tag(&url, tag, None);
            tagged.map_err(|error| refusals::depot("keep it under a tag", Some(&url), &error))?;
        }
        self.hand_over(reading, reply);
        Ok(None)
    }

    /// Opens a file that is present and fresh; returns false if more is needed.
    pub(crate) fn open_here(&self, open: &request::OpenRequest, reply: &LocalReply) -> bool {
        let Ok(url) = url(&open.url) else {
            return false;
        };
        if open.tag.is_some() || self.is_new_to_job(&url) {
            return false;
        }
        let depot = &self.keeping.depot;
        if depot.is_locked() {
            return false;
        }
        let Some(reading) = depot.read_here(&url, &self.who, fresh_of(open.fresh)) else {
            return false;
        };
        self.hand_over(reading, reply);
        true
    }

    pub(crate) fn hand_over(&self, reading: Reading, reply: &LocalReply) {
        let size = reading.size();
        let reading = Arc::new(reading);
        let handle = self.keep(OpenHandle::Reading(Arc::clone(&reading)));
        if reply.is_over() {
            self.open.lock().remove(&handle);
            return;
        }
        reply.tell_with(opened(handle, size), b"", &[reading.file().as_fd()]);
    }

    fn is_new_to_job(&self, url: &Url) -> bool {
        let Some(job) = &self.job else {
            return false;
        };
        let kept = (job.clone(), url.clone(), self.who.audience.clone());
        !self.keeping.kept.lock().contains(&kept)
    }

    /// Opens a file to write, and perhaps read, by a descriptor: its changes are found when it is closed.
    fn edit(&self, url: &Url, open: &request::OpenRequest, reply: &LocalReply) -> LocalResult {
        let wanted = format!("open {} to write", url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(url), &error);
        let edit = Edit {
            create: open.create,
            exclusive: open.create && open.excl,
            truncate: open.truncate,
            mode: open.mode,
            offline: open.fresh == request::Freshness::Kept,
            session: self.session.clone(),
        };
        let (depot, is_there) = (&self.keeping.depot, || !reply.is_gone());
        let editing = depot.edit_while(url, &self.who, &edit, &is_there);
        let editing = editing.map_err(bad)?;
        let size = editing.size();
        let kept = Arc::new(Mutex::new(Some(editing)));
        // A program that closes the file at once waits until our own descriptor is closed.
        let editing = kept.lock();
        let handle = self.keep(OpenHandle::Editing(Arc::clone(&kept)));
        if let Some(editing) = &*editing {
            let file = editing.file().map_err(bad)?;
            reply.tell_with(opened(handle, size), b"", &[file.as_fd()]);
        }
        Ok(None)
    }

    /// Files that a job reads are kept for its other programs, for a while.
    fn keep_for_job(&self, url: &Url) {
        let Some(job) = &self.job else {
            return;
        };
        let mut kept = self.keeping.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        let is_new = kept.insert((job.clone(), url.clone(), self.who.audience.clone()));
        drop(kept);
        if is_new {
            let staged = self
                .keeping
                .depot
                .stage(url, &self.who, job, Some(JOB_LASTS));
            if let Err(error) = staged {
                tracing::debug!(%url, %error, "not kept for the job");
            }
        }
    }
}

/// How long a file stays that was kept for a job without its request.
const JOB_LASTS: Duration = Duration::from_secs(86_400);

const KEPT_MAX: usize = 100_000;
