//! Files that programs of this machine read and write together.

use crate::local::{
    answers::{LocalResult, done, not_open},
    asks::read::fresh_of,
    client::{Client, OpenHandle},
    connection::LocalReply,
    refusals,
};
use godwit_core::{Ahead, Extents, Url};
use godwit_depot::{Error, Moved, Share, Shared};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{
    Response,
    request::{self, Act},
    response,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    os::fd::AsFd,
    sync::{Arc, Weak},
};

/// A shared file as one program has it open.
pub(crate) struct Sharer {
    file: Arc<Shared>,
    ahead: Mutex<Ahead>,
}

/// The shared files of this machine, by session, name and audience.
#[derive(Default)]
pub(crate) struct ShareTable(Mutex<HashMap<ShareKey, ShareSlot>>);

type ShareKey = (String, Url, String);
/// The session of mounts; no program can say this word.
const MOUNTS: &str = "\0mounts";
/// Smaller files come as a whole when they are opened to write.
const PARTS_MIN: u64 = 4 << 20;
/// A file whose opening others wait for.
type ShareSlot = Arc<Mutex<Weak<Shared>>>;

impl ShareTable {
    /// Tells whether programs have a file open.
    fn has(&self, key: &ShareKey) -> bool {
        let slot = self.0.lock().get(key).map(Arc::clone);
        slot.is_some_and(|slot| slot.lock().strong_count() > 0)
    }

    /// Returns the place of a file.
    fn slot(&self, key: ShareKey) -> ShareSlot {
        let mut files = self.0.lock();
        files.retain(|_, slot| {
            // A slot that is locked, or that an opener has, is being filled.
            Arc::strong_count(slot) > 1 || slot.lock().strong_count() > 0
        });
        Arc::clone(files.entry(key).or_default())
    }
}

impl Client {
    /// Opens a file for programs that name one session.
    pub(crate) fn share(&self, share: &request::ShareRequest, reply: &LocalReply) -> LocalResult {
        let url = self.target(&share.url)?;
        self.unlocked(&url, reply)?;
        let how = Share {
            create: share.create,
            exclusive: share.create && share.excl,
            in_place: false,
            hints: share.hints,
        };
        self.open_shared((&url, share.session.as_deref()), how, reply)
    }

    /// Opens a file to write, some of whose parts are missing here. The program hands in its ranges by
    /// [`Put::in_place`](request::Put::in_place). Returns false if the file must be fetched whole.
    pub(crate) fn open_in_parts(
        &self,
        url: &Url,
        open: &request::OpenRequest,
        reply: &LocalReply,
    ) -> bool {
        let is_now = open.fresh != request::Freshness::Kept && !open.truncate && !open.excl;
        let depot = &self.keeping.depot;
        let key = (MOUNTS.to_owned(), url.clone(), self.who.audience.clone());
        let is_in_parts = || {
            let fresh = fresh_of(open.fresh);
            let found = depot.lazily_while(url, &self.who, fresh, &|| !reply.is_over());
            found.is_ok_and(|file| file.size() >= PARTS_MIN && !file.is_whole())
        };
        let is_wanted = is_now && (self.keeping.shared.has(&key) || is_in_parts());
        if !is_wanted {
            return false;
        }
        let how = Share {
            in_place: true,
            ..Share::default()
        };
        match self.open_shared((url, Some(MOUNTS)), how, reply) {
            Ok(_) => true,
            // If the file cannot be fetched whole either, the program receives that error.
            Err(refusal) => {
                tracing::debug!(%refusal, "not opened in parts");
                false
            }
        }
    }

    fn open_shared(
        &self,
        (url, session): (&Url, Option<&str>),
        how: Share,
        reply: &LocalReply,
    ) -> LocalResult {
        let wanted = format!("open {} to read and write", url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(url), &error);
        let open = || {
            let depot = &self.keeping.depot;
            let opened = depot.share((url, &self.who), how, &|| !reply.is_over());
            opened.map(Arc::new).map_err(bad)
        };
        let file = match session {
            None => open()?,
            Some(session) => {
                let key = (session.to_owned(), url.clone(), self.who.audience.clone());
                let slot = self.keeping.shared.slot(key);
                let mut kept = slot.lock();
                match kept.upgrade() {
                    Some(file) if !how.exclusive => file,
                    _ => {
                        let file = open()?;
                        *kept = Arc::downgrade(&file);
                        file
                    }
                }
            }
        };
        let size = file.file().metadata();
        let size = size.map_err(|error| refusals::disk(&wanted, &error))?.len();
        let sharer = Arc::new(Sharer {
            file,
            ahead: Mutex::default(),
        });
        let told = response::OpenedFile {
            handle: self.keep(OpenHandle::Shared(Arc::clone(&sharer))),
            size,
            free_from: Some(sharer.file.grant(&Extents::new())),
            lazy: true,
            ..response::OpenedFile::default()
        };
        reply.tell_with(Response::Opened(told), b"", &[sharer.file.file().as_fd()]);
        Ok(None)
    }

    /// Waits until ranges of a shared file are here.
    pub(crate) fn ensure_shared(
        &self,
        sharer: &Sharer,
        ranges: &Extents,
        reply: &LocalReply,
    ) -> LocalResult {
        let url = sharer.file.url();
        let ensured = (sharer.file).ensure(ranges, &sharer.ahead, &|| !reply.is_over());
        ensured.map_err(|error| {
            let wanted = format!("read {}", url.without_password());
            refusals::depot(&wanted, Some(url), &error)
        })?;
        done(response::Done::default())
    }

    /// Does something about a shared file.
    pub(crate) fn act(&self, shared: &request::SharedRequest, reply: &LocalReply) -> LocalResult {
        let open = self.open.lock();
        let sharer = match open.get(&shared.handle) {
            Some(OpenHandle::Shared(sharer)) => Arc::clone(sharer),
            Some(OpenHandle::Lazy(lazily)) if shared.act == Act::Count => {
                let moved = lazily.moved();
                drop(open);
                return tell_moved(moved, reply);
            }
            Some(_) if shared.act == Act::Count => return tell_moved(Moved::default(), reply),
            _ => return Err(not_open("write it", shared.handle)),
        };
        drop(open);
        let file = &sharer.file;
        let wanted = format!("write {}", file.url().without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(file.url()), &error);
        let is_wanted = || !reply.is_over();
        let mut bytes = 0;
        match &shared.act {
            Act::Grant(ranges) => bytes = file.grant(&extents(&wanted, ranges)?),
            Act::Wrote(ranges) => file.wrote(&extents(&wanted, ranges)?),
            Act::Resize(size) => file.resize(*size).map_err(bad)?,
            Act::Deliver => bytes = file.deliver(&is_wanted).map_err(bad)?,
            Act::Look { is_changed } => file.look(*is_changed).map_err(bad)?,
            Act::Count => return tell_moved(file.moved(), reply),
            _ => {
                return Err(Refusal::new(
                    Kind::Unsupported,
                    wanted,
                    "an act that is not known",
                ));
            }
        }
        done(response::Done {
            bytes,
            ..response::Done::default()
        })
    }
}

fn tell_moved(moved: Moved, reply: &LocalReply) -> LocalResult {
    let mut body = Vec::new();
    for number in [moved.fetched, moved.delivered, moved.transfers] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    let len = body.len() as u64;
    reply.tell_with(Response::Bytes { len, size: len }, &body, &[]);
    Ok(None)
}

/// Returns ranges as they were asked for, unless they are too many.
pub(crate) fn extents(wanted: &str, ranges: &[(u64, u64)]) -> Result<Extents, Refusal> {
    if ranges.len() > request::RANGES_MAX {
        let most = request::RANGES_MAX;
        let words = format!("{} ranges at once; {most} are the most", ranges.len());
        return Err(Refusal::new(Kind::Invalid, wanted, words));
    }
    let mut extents = Extents::new();
    for (start, end) in ranges {
        extents.insert(*start..*end);
    }
    Ok(extents)
}
