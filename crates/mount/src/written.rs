//! Open files: one generation for all that write a file at once.

use crate::{
    Shared,
    asking::{Failed, LOOK_EVERY, Result, is_signalled},
    body::{Body, Hold, Kept, State, Writes},
    changes::FileParts,
    facts::Facts,
    nodes::Nodes,
    reader::{FileReader, opened, read_all},
    syncing::open_again,
};
use godwit_wire::{
    door::call::DoorVersion,
    local::{
        Request,
        request::{self, Freshness},
    },
};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::{
    ffi::OsString,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A file that a program has open.
#[derive(Clone)]
pub(crate) enum Open {
    /// Only read, from a descriptor of the node's.
    Read(Arc<FileReader>),
    Write(u64, Arc<Body>),
    /// A directory, which is listed once it is read.
    List(u64, Arc<Mutex<DirectoryList>>),
}

/// The names in a directory.
pub(crate) type DirectoryList = Vec<(OsString, Facts)>;

/// How a file is opened to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    pub(crate) truncate: bool,
    /// Permission bits of a file that is made.
    pub(crate) create: Option<u32>,
    pub(crate) exclusive: bool,
}

impl Open {
    /// Returns the connection that a file is lost with.
    pub(crate) fn era(&self) -> Option<u64> {
        match self {
            Self::Write(_, body) => body.lost_with(),
            _ => None,
        }
    }

    /// Tells whether parts of a file come only when they are read.
    pub(crate) fn is_lazy(&self) -> bool {
        match self {
            Self::Read(reader) => reader.is_lazy(),
            Self::Write(_, body) => body.parts.is_some(),
            Self::List(..) => false,
        }
    }

    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<usize> {
        match self {
            Self::Read(reader) => reader.read(at, bytes),
            Self::Write(_, body) => body.with(|file| read_all(file, at, bytes)),
            Self::List(..) => Err(Failed::Plain(libc::EISDIR)),
        }
    }
}

impl Shared {
    /// Opens a file to read.
    pub(crate) fn open_to_read(&self, number: u64, thread: u32) -> Result<u64> {
        let (url, body) = {
            let mut nodes = self.settled(number, thread)?;
            let body = match &nodes.get(number)?.writes {
                Writes::Open(body) => Some(Arc::clone(body)),
                _ => None,
            };
            (nodes.url(number)?, body)
        };
        let reader = match body {
            Some(body) if body.parts.is_some() => self.asking.open_shared(url, thread)?,
            Some(body) => FileReader::of_file(body.with(|file| open_again(file, false))?),
            None => self.asking.open_to_read(url, thread)?,
        };
        Ok(self.keep(Open::Read(Arc::new(reader))))
    }

    /// Opens a file to write: with those that write it already, or as a new generation.
    pub(crate) fn open_to_write(&self, number: u64, how: Writing, thread: u32) -> Result<u64> {
        let url = {
            let mut nodes = self.settled(number, thread)?;
            let url = nodes.url(number)?;
            let node = nodes.get(number)?;
            if let Writes::Open(body) = &node.writes {
                body.state.lock().writers += 1;
                let body = Arc::clone(body);
                drop(nodes);
                let handle = self.keep(Open::Write(number, Arc::clone(&body)));
                if how.truncate
                    && let Err(failed) = self.resize(&body, 0, thread)
                {
                    if let Some((number, body)) = self.release(handle) {
                        self.end(number, &body);
                    }
                    return Err(failed);
                }
                return Ok(handle);
            }
            node.writes = Writes::Busy;
            url
        };
        let body = self.begin(url, how, thread);
        let mut nodes = self.nodes.lock();
        let node = nodes.get(number)?;
        let kept = match body {
            Ok(body) => {
                let body = Arc::new(body);
                node.writes = Writes::Open(Arc::clone(&body));
                Ok(self.keep(Open::Write(number, body)))
            }
            Err(failed) => {
                node.writes = Writes::None;
                Err(failed)
            }
        };
        self.settled.notify_all();
        kept
    }

    fn begin(&self, url: String, how: Writing, thread: u32) -> Result<Body> {
        let put = |new: bool| {
            Request::Put(request::PutRequest {
                url: url.clone(),
                mode: how.create,
                new,
                at_server: new,
                ..request::PutRequest::default()
            })
        };
        let open = |fresh: Freshness| {
            Request::Open(request::OpenRequest {
                url: url.clone(),
                read: true,
                write: true,
                create: how.create.is_some(),
                mode: how.create,
                fresh,
                lazy: true,
                ..request::OpenRequest::default()
            })
        };
        let (answered, is_new) = match how.truncate {
            true => (
                self.asking.ask_patiently(thread, &put(how.exclusive)),
                how.create.is_some(),
            ),
            // A name that is made was absent a moment ago. Its server knows better, and if that is away, it must still be
            // absent when the file is delivered.
            false => (self.asking.ask_for_file(thread, open), false),
        };
        let (era, answer) = answered?;
        let (opened, file) = opened(answer)?;
        let made = Some(opened.version).filter(|version| *version != DoorVersion::None);
        Ok(Body {
            hold: RwLock::new(Hold {
                file: Some(file),
                era,
                handle: opened.handle,
                kept: match opened.free_from {
                    Some(_) => Kept::InParts,
                    None if how.truncate => Kept::AtTheEnd,
                    None => Kept::AsWritten,
                },
            }),
            url: Mutex::new(url),
            parts: (opened.free_from).map(|free_from| FileParts::new(opened.size, free_from)),
            turn: Mutex::default(),
            mode: how.create,
            is_exclusive: how.exclusive && made.is_none(),
            made: made.clone().filter(|_| how.exclusive),
            begun: AtomicU64::new(0),
            state: Mutex::new(State {
                writers: 1,
                is_new: is_new && made.is_none(),
                ..State::default()
            }),
        })
    }

    /// Refuses if the node ended that had a file while it was written: the file is lost.
    pub(crate) fn must_be_kept(&self, body: &Body) -> Result<()> {
        match self.is_lost(body) {
            true => Err(Failed::Plain(libc::EIO)),
            false => Ok(()),
        }
    }

    fn is_lost(&self, body: &Body) -> bool {
        (body.lost_with()).is_some_and(|era| self.asking.talk.is_lost(era))
    }

    /// Waits until a file is neither being opened to write nor handed in.
    pub(crate) fn settled(&self, number: u64, thread: u32) -> Result<MutexGuard<'_, Nodes>> {
        let mut nodes = self.nodes.lock();
        while matches!(nodes.get(number)?.writes, Writes::Busy) {
            let waited = self.settled.wait_for(&mut nodes, LOOK_EVERY);
            if waited.timed_out() && is_signalled(thread) {
                return Err(Failed::Interrupted);
            }
        }
        Ok(nodes)
    }

    /// Keeps an open file, and returns its number.
    pub(crate) fn keep(&self, open: Open) -> u64 {
        let number = self.last_handle.fetch_add(1, Relaxed) + 1;
        self.open.lock().insert(number, open);
        number
    }

    /// Gives up an open file. Returns one that has no writer any more: it is to be handed in.
    pub(crate) fn release(&self, handle: u64) -> Option<(u64, Arc<Body>)> {
        let open = self.open.lock().remove(&handle)?;
        match open {
            Open::Read(reader) => {
                self.asking.give_back_reader(&reader);
                None
            }
            Open::List(..) => None,
            Open::Write(number, body) => {
                let mut nodes = self.nodes.lock();
                let mut state = body.state.lock();
                state.writers -= 1;
                if state.writers > 0 {
                    return None;
                }
                state.is_cut_short = self.is_lost(&body);
                drop(state);
                if let Ok(node) = nodes.get(number) {
                    node.facts = body.facts(&node.facts);
                    node.writes = Writes::Busy;
                }
                Some((number, body))
            }
        }
    }
}
