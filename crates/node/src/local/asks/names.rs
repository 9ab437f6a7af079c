//! Names as a program of this machine sees and changes them.

use crate::local::asks::catalog::put;
use crate::local::{
    answers::{LocalResult, of_files, unknown},
    client::Client,
    connection::LocalReply,
    refusals,
};
use godwit_core::Url;
use godwit_depot::{Attributes, By};
use godwit_local::Refusal;
use godwit_store::{EntryKind, Stat};
use godwit_wire::local::{Response, frame::BODY_BYTES_MAX, request, response};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

impl Client {
    /// Changes a name: on this machine at once, at the server in order with its other changes.
    pub(crate) fn deed(&self, deed: request::NameDeed, reply: &LocalReply) -> LocalResult {
        let is_wanted = || !reply.is_gone();
        let (depot, by) = (
            &self.keeping.depot,
            By {
                who: &self.who,
                session: &self.session,
                is_wanted: &is_wanted,
            },
        );
        let (verb, at, done) = match deed {
            request::NameDeed::Rename { url: from, to } => {
                let (from, to) = (self.target(&from)?, self.target(&to)?);
                ("rename", from.clone(), depot.rename(&from, &to, by))
            }
            request::NameDeed::Unlink { url: text } => {
                let at = self.target(&text)?;
                ("remove", at.clone(), depot.unlink(&at, by))
            }
            request::NameDeed::Mkdir { url: text } => {
                let at = self.target(&text)?;
                ("make", at.clone(), depot.mkdir(&at, by))
            }
            request::NameDeed::Truncate { url: text, size } => {
                let at = self.target(&text)?;
                ("cut", at.clone(), depot.truncate(&at, size, by))
            }
            request::NameDeed::Set {
                url: text,
                mode,
                mtime_ns,
            } => {
                let at = self.target(&text)?;
                let mtime = mtime_ns.map(Duration::from_nanos);
                let set = depot.set(&at, &Attributes { mode, mtime }, by);
                ("change", at, set)
            }
            _ => return Err(unknown()),
        };
        let wanted = format!("{verb} {}", at.without_password());
        done.map_err(|error| refusals::depot(&wanted, Some(&at), &error))?;
        of_files(1)
    }

    /// Returns the attributes of a name, with its pending changes.
    pub(crate) fn look(&self, url: &Url) -> Result<response::LocalStat, Refusal> {
        let wanted = format!("look at {}", url.without_password());
        let found = self.keeping.depot.look(url, &self.who);
        found
            .map(|stat| told(url, &stat))
            .map_err(|error| refusals::depot(&wanted, Some(url), &error))
    }

    /// Tells what there is in a directory.
    pub(crate) fn list(&self, url: &Url, reply: &LocalReply) -> LocalResult {
        let wanted = format!("list {}", url.without_password());
        let entries = self.keeping.depot.entries(url, &self.who);
        let entries = entries.map_err(|error| refusals::depot(&wanted, Some(url), &error))?;
        let (mut lines, mut count) = (Vec::new(), 0);
        for entry in &entries {
            // A name that leads elsewhere is shown to no program.
            let Ok(url) = url.join(entry.path.as_os_str().as_bytes()) else {
                continue;
            };
            if lines.len() > BODY_BYTES_MAX / 4 {
                reply.tell_with(Response::Answers, &lines, &[]);
                lines.clear();
            }
            count += 1;
            put(&mut lines, &told(&url, &entry.stat));
        }
        if !lines.is_empty() {
            reply.tell_with(Response::Answers, &lines, &[]);
        }
        of_files(count)
    }
}

fn told(url: &Url, stat: &Stat) -> response::LocalStat {
    let nanos = stat.mtime.map(|mtime| u64::try_from(mtime.as_nanos()));
    response::LocalStat {
        url: url.without_password().to_string(),
        size: stat.size,
        is_directory: stat.kind == EntryKind::Directory,
        mtime_ns: nanos.and_then(Result::ok),
        mode: stat.mode,
        ..response::LocalStat::default()
    }
}
