//! Requests of the kernel, and their answers.

use crate::{
    Shared,
    asking::{Failed, NAME_BYTES_MAX, Result},
    body::Writes,
    facts::Facts,
    nodes::{ROOT, is_server},
    walking::{self, Use},
    workers::Workers,
    written::{DirectoryList, Open, Writing},
};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    Request as KernelRequest, TimeOrNow, WriteFlags,
};
use godwit_local::odd;
use godwit_wire::local::{
    Request, Response,
    request::{FileTarget, NameDeed},
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The file system: it hands what may wait to workers.
pub(crate) struct Face {
    shared: Arc<Shared>,
    workers: Workers,
}

impl Face {
    pub(crate) fn new(shared: Arc<Shared>, workers: Workers) -> Self {
        Self { shared, workers }
    }

    fn work(&self, job: impl FnOnce(&Shared) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        self.workers.give(move || job(&shared));
    }
}

impl Shared {
    /// Returns the attributes of a name: of a file that is written here, else from the node.
    fn look(&self, url: String, known: Option<Facts>, thread: u32) -> Result<(Facts, Duration)> {
        match self.asking.ask(thread, &Request::Stat(FileTarget::is(url))) {
            Ok((_, answer)) => match answer.tell {
                Response::Stat(stat) => Ok((Facts::told(&stat, known.as_ref()), LASTS)),
                other => Err(odd(&other).into()),
            },
            Err(failed) => match known.filter(|_| failed.is_away()) {
                Some(known) => Ok((known, Duration::ZERO)), // asked again at once
                None => Err(failed),
            },
        }
    }

    /// Returns a guess for a name of a server that is away: a directory if a program names an entry in it, else a file,
    /// which can be written. A program may make it a directory.
    fn guess(&self, place: (u64, &OsStr), known: Option<Facts>, thread: u32) -> Result<Facts> {
        let parent = self.nodes.lock().path(place.0)?;
        match walking::use_of(thread, &parent, place.1) {
            Use::Directory => Ok(Facts::directory().guessed()),
            Use::Made if known.is_none_or(|known| !known.is_directory) => {
                Err(Failed::Plain(libc::ENOENT))
            }
            _ => Ok(known.unwrap_or_else(|| Facts::unknown().guessed())),
        }
    }

    fn look_up(&self, parent: u64, name: &OsStr, thread: u32) -> Result<(FileAttr, Duration)> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Failed::Plain(libc::ENAMETOOLONG));
        }
        let mut nodes = self.nodes.lock();
        if parent == ROOT {
            if !is_server(name) {
                return Err(Failed::Plain(libc::ENOENT));
            }
            let number = nodes.look_up(parent, name, Some(Facts::directory()));
            return Ok((nodes.attributes(number, &Facts::directory()), LASTS));
        }
        let url = nodes.url_in(parent, name)?;
        let known = match nodes.find(parent, name) {
            Some((number, node)) => {
                if let Some(facts) = node.written() {
                    nodes.look_up(parent, name, None);
                    return Ok((nodes.attributes(number, &facts), LASTS));
                }
                Some(node.facts)
            }
            None => None,
        };
        drop(nodes);
        let is_told = known.filter(|known| !known.is_guess);
        let (facts, lasts) = match self.look(url, is_told, thread) {
            Err(failed) if failed.is_away() => {
                (self.guess((parent, name), known, thread)?, Duration::ZERO)
            }
            looked => looked?,
        };
        let mut nodes = self.nodes.lock();
        let kind = nodes
            .find(parent, name)
            .map(|found| found.1.facts.is_directory);
        if kind.is_some_and(|is_directory| is_directory != facts.is_directory) {
            nodes.remove(parent, name); // the kernel keeps no number of another kind
        }
        let number = nodes.look_up(parent, name, Some(facts));
        Ok((nodes.attributes(number, &facts), lasts))
    }

    fn attributes(&self, number: u64, thread: u32) -> Result<(FileAttr, Duration)> {
        let mut nodes = self.nodes.lock();
        let is_above = nodes.is_above_files(number);
        let node = nodes.get(number)?;
        let (written, known) = (node.written(), node.facts);
        let written = written.or_else(|| is_above.then_some(known));
        if let Some(facts) = written {
            return Ok((nodes.attributes(number, &facts), LASTS));
        }
        let url = nodes.url(number)?;
        drop(nodes);
        let looked = self.look(url, Some(known), thread);
        let (facts, lasts) = looked.map_err(stale)?;
        let mut nodes = self.nodes.lock();
        nodes.get(number)?.facts = facts;
        Ok((nodes.attributes(number, &facts), lasts))
    }

    fn set(&self, number: u64, set: Set, thread: u32) -> Result<(FileAttr, Duration)> {
        let mut nodes = self.settled(number, thread)?;
        let node = nodes.get(number)?;
        if let Writes::Open(body) = &node.writes {
            body.set(set.mode, set.mtime_ns);
            let body = Arc::clone(body);
            drop(nodes);
            if let Some(size) = set.size {
                self.resize(&body, size, thread)?;
            }
        } else {
            let url = nodes.url(number)?;
            drop(nodes);
            if let Some(size) = set.size {
                let url = url.clone();
                let deed = Request::Deed(NameDeed::Truncate { url, size });
                self.asking.ask(thread, &deed).map_err(stale)?;
            }
            if set.mode.is_some() || set.mtime_ns.is_some() {
                let (mode, mtime_ns) = (set.mode, set.mtime_ns);
                let deed = Request::Deed(NameDeed::Set {
                    url,
                    mode,
                    mtime_ns,
                });
                self.asking.ask(thread, &deed).map_err(stale)?;
            }
            let mut nodes = self.nodes.lock();
            let facts = &mut nodes.get(number)?.facts;
            facts.mode = set.mode.unwrap_or(facts.mode);
            facts.mtime_ns = set.mtime_ns.unwrap_or(facts.mtime_ns);
        }
        self.attributes(number, thread)
    }

    fn open(&self, number: u64, flags: i32, thread: u32) -> Result<u64> {
        let opened = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => self.open_to_read(number, thread),
            _ => {
                let how = Writing {
                    truncate: flags & libc::O_TRUNC != 0,
                    create: None,
                    exclusive: false,
                };
                self.open_to_write(number, how, thread)
            }
        };
        opened.map_err(stale)
    }

    fn create(
        &self,
        (parent, name): (u64, &OsStr),
        mode: u32,
        flags: i32,
        thread: u32,
    ) -> Result<(FileAttr, u64)> {
        let facts = Facts {
            mode,
            ..Facts::unknown()
        };
        let number = {
            let mut nodes = self.nodes.lock();
            nodes.url_in(parent, name)?;
            if parent == ROOT {
                return Err(Failed::Plain(libc::EPERM));
            }
            nodes.look_up(parent, name, Some(facts))
        };
        let exclusive = flags & libc::O_EXCL != 0;
        let how = Writing {
            truncate: exclusive || flags & libc::O_TRUNC != 0,
            create: Some(mode),
            exclusive,
        };
        let opened = self.open_to_write(number, how, thread);
        let mut nodes = self.nodes.lock();
        match opened {
            Ok(handle) => {
                let facts = nodes.get(number)?.written().unwrap_or(facts);
                Ok((nodes.attributes(number, &facts), handle))
            }
            Err(failed) => {
                nodes.forget(number, 1);
                Err(failed)
            }
        }
    }

    fn make_directory(
        &self,
        (parent, name): (u64, &OsStr),
        mode: u32,
        thread: u32,
    ) -> Result<(FileAttr, Duration)> {
        let url = self.nodes.lock().url_in(parent, name)?;
        let made = Request::Deed(NameDeed::Mkdir { url: url.clone() });
        self.asking.ask(thread, &made)?;
        let mut facts = Facts::directory();
        if mode != facts.mode {
            facts.mode = mode;
            let set = NameDeed::Set {
                url,
                mode: Some(mode),
                mtime_ns: None,
            };
            self.asking.ask(thread, &Request::Deed(set))?;
        }
        let mut nodes = self.nodes.lock();
        let number = nodes.look_up(parent, name, Some(facts));
        Ok((nodes.attributes(number, &facts), LASTS))
    }

    /// Refuses if a directory has entries, here or at its server.
    fn must_be_empty(&self, parent: u64, name: &OsStr, thread: u32) -> Result<()> {
        let (url, number) = {
            let mut nodes = self.nodes.lock();
            let number = nodes.find(parent, name).map(|found| found.0);
            (nodes.url_in(parent, name)?, number)
        };
        let has_written = || {
            let nodes = self.nodes.lock();
            let names = number
                .map(|number| nodes.names_in(number))
                .unwrap_or_default();
            names.iter().any(|(_, node)| node.written().is_some())
        };
        if has_written() || !self.asking.list(thread, url)?.is_empty() {
            return Err(Failed::Plain(libc::ENOTEMPTY));
        }
        Ok(())
    }

    fn unlink(&self, parent: u64, name: &OsStr, thread: u32) -> Result<()> {
        let (url, is_there) = {
            let number = self.nodes.lock().find(parent, name).map(|found| found.0);
            let mut nodes = match number {
                Some(number) => self.settled(number, thread)?,
                None => self.nodes.lock(),
            };
            let url = nodes.url_in(parent, name)?;
            let is_there = match nodes.find(parent, name) {
                Some((_, node)) => match &node.writes {
                    Writes::Open(body) => body.unlink(),
                    _ => true,
                },
                None => true,
            };
            (url, is_there)
        };
        if is_there {
            self.asking
                .ask(thread, &Request::Deed(NameDeed::Unlink { url }))?;
        }
        self.nodes.lock().remove(parent, name);
        Ok(())
    }

    fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), thread: u32) -> Result<()> {
        let mut nodes = self.nodes.lock();
        let known = nodes.find(from.0, from.1).map(|found| found.0);
        let replaced = nodes.find(to.0, to.1).map(|found| found.0);
        drop(nodes);
        for number in [known, replaced].into_iter().flatten() {
            drop(self.settled(number, thread)?);
        }
        let replaced = replaced.and_then(|number| Some(self.nodes.lock().get(number).ok()?.facts));
        if replaced.is_some_and(|facts| facts.is_directory) {
            self.must_be_empty(to.0, to.1, thread)?;
        }
        let mut nodes = self.nodes.lock();
        let url = nodes.url_in(from.0, from.1)?;
        let target = nodes.url_in(to.0, to.1)?;
        if let Some((_, node)) = nodes.find(to.0, to.1)
            && let Writes::Open(body) = &node.writes
        {
            body.unlink();
        }
        let known = match nodes.find(from.0, from.1).map(|found| &found.1.writes) {
            Some(Writes::Open(body)) if body.is_known() => Some(Arc::clone(body)),
            Some(Writes::Open(body)) => {
                // As long as `nodes` is locked, nothing ends the file.
                body.rename(url, target);
                nodes.rename(from, to);
                return Ok(());
            }
            _ => None,
        };
        drop(nodes);
        match known {
            Some(body) => self.rename_at_node(&body, target, thread)?,
            None => {
                let deed = Request::Deed(NameDeed::Rename { url, to: target });
                self.asking.ask(thread, &deed)?;
            }
        }
        self.nodes.lock().rename(from, to);
        Ok(())
    }

    fn read(&self, open: &Open, (offset, size): (u64, u32), reply: ReplyData) {
        thread_local!(static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
        BYTES.with_borrow_mut(|bytes| {
            bytes.resize(bytes.len().max(size as usize), 0);
            match open.read(offset, &mut bytes[..size as usize]) {
                Ok(came) => reply.data(&bytes[..came]),
                Err(failed) => reply.error(self.asking.errno(&failed)),
            }
        });
    }

    fn answer(&self, done: Result<()>, reply: ReplyEmpty) {
        match done {
            Ok(()) => reply.ok(),
            Err(failed) => reply.error(self.asking.errno(&failed)),
        }
    }

    fn answer_attr(&self, found: Result<(FileAttr, Duration)>, reply: ReplyAttr) {
        match found {
            Ok((attr, lasts)) => reply.attr(&lasts, &attr),
            Err(failed) => reply.error(self.asking.errno(&failed)),
        }
    }

    fn answer_entry(&self, found: Result<(FileAttr, Duration)>, reply: ReplyEntry) {
        match found {
            Ok((attr, lasts)) => reply.entry(&lasts, &attr, Generation(0)),
            Err(failed) => reply.error(self.asking.errno(&failed)),
        }
    }

    /// Lists a directory: the node's entries, and files written here. The root lists the servers that were looked up.
    fn list(&self, number: u64, thread: u32) -> Result<DirectoryList> {
        let url = match number {
            ROOT => None,
            _ => Some(self.nodes.lock().url(number)?),
        };
        let listed = match url {
            None => Vec::new(),
            Some(url) => self.asking.list(thread, url).map_err(stale)?,
        };
        let mut all: BTreeMap<OsString, Facts> = BTreeMap::new();
        for (name, stat) in listed {
            all.insert(name, Facts::told(&stat, None));
        }
        for (name, node) in self.nodes.lock().names_in(number) {
            let is_server = number == ROOT;
            if let Some(facts) = node.written().or_else(|| is_server.then_some(node.facts)) {
                all.insert(name, facts);
            }
        }
        let itself = [".", ".."].map(|name| (OsString::from(name), Facts::directory()));
        Ok(itself.into_iter().chain(all).collect())
    }

    /// Fills an answer with entries of a list, from one on.
    fn fill(
        &self,
        (parent, list): (u64, &DirectoryList),
        from: u64,
        reply: &mut ReplyDirectoryPlus,
    ) {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let mut nodes = self.nodes.lock();
        for (at, (name, facts)) in list.iter().enumerate().skip(from) {
            let (next, generation) = (at as u64 + 1, Generation(0));
            // The kernel does not look these two up.
            if at < 2 {
                let attr = nodes.attributes(parent, facts);
                if reply.add(attr.ino, next, name, &LASTS, &attr, generation) {
                    return;
                }
                continue;
            }
            let is_written = nodes
                .find(parent, name)
                .is_some_and(|(_, node)| node.written().is_some());
            let number = nodes.look_up(parent, name, (!is_written).then_some(*facts));
            let attr = nodes.attributes(number, facts);
            if reply.add(attr.ino, next, name, &LASTS, &attr, generation) {
                nodes.forget(number, 1);
                return;
            }
        }
    }
}

impl Filesystem for Face {
    fn init(&mut self, _: &KernelRequest, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(WRITE_BYTES);
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_DO_READDIRPLUS;
        let _ = config.add_capabilities(wanted);
        // Older kernels refuse shared mappings of files that are open to append.
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        Ok(())
    }

    fn lookup(&self, request: &KernelRequest, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (thread, name) = (request.pid(), name.to_owned());
        self.work(move |shared| {
            shared.answer_entry(shared.look_up(parent.0, &name, thread), reply);
        });
    }

    fn forget(&self, _: &KernelRequest, number: INodeNo, times: u64) {
        self.shared.nodes.lock().forget(number.0, times);
    }

    fn getattr(
        &self,
        request: &KernelRequest,
        number: INodeNo,
        _: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let thread = request.pid();
        self.work(move |shared| shared.answer_attr(shared.attributes(number.0, thread), reply));
    }

    fn setattr(
        &self,
        request: &KernelRequest,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (our_uid, our_gid) = godwit_sys::ids();
        let is_given = uid.is_some_and(|uid| uid != our_uid);
        if is_given || gid.is_some_and(|gid| gid != our_gid) {
            return reply.error(Errno::EPERM);
        }
        let set = Set {
            mode: mode.map(|mode| mode & 0o7777),
            size,
            mtime_ns: mtime.map(nanoseconds),
        };
        let thread = request.pid();
        self.work(move |shared| shared.answer_attr(shared.set(number.0, set, thread), reply));
    }

    fn open(&self, request: &KernelRequest, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let thread = request.pid();
        self.work(move |shared| match shared.open(number.0, flags.0, thread) {
            Ok(handle) => reply.opened(FileHandle(handle), cached(flags.0)),
            Err(failed) => reply.error(shared.asking.errno(&failed)),
        });
    }

    fn create(
        &self,
        request: &KernelRequest,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (thread, name) = (request.pid(), name.to_owned());
        let mode = mode & !umask & 0o7777;
        self.work(
            move |shared| match shared.create((parent.0, &name), mode, flags, thread) {
                Ok((attr, handle)) => reply.created(
                    &LASTS,
                    &attr,
                    Generation(0),
                    FileHandle(handle),
                    cached(flags),
                ),
                Err(failed) => reply.error(shared.asking.errno(&failed)),
            },
        );
    }

    fn read(
        &self,
        request: &KernelRequest,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(open) = self.shared.open.lock().get(&handle.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        if !open.is_lazy() {
            return self.shared.read(&open, (offset, size), reply);
        }
        let thread = request.pid();
        self.work(move |shared| {
            let wanted = offset..offset.saturating_add(size.into());
            let ensured = match &open {
                Open::Read(reader) => shared.asking.ensure(reader, wanted, thread),
                Open::Write(_, body) => shared.ensure_parts(body, wanted, thread),
                Open::List(..) => Ok(()),
            };
            match ensured {
                Ok(()) => shared.read(&open, (offset, size), reply),
                Err(failed) => reply.error(shared.asking.errno(&failed)),
            }
        });
    }

    fn write(
        &self,
        request: &KernelRequest,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let open = self.shared.open.lock().get(&handle.0).cloned();
        let Some(Open::Write(_, body)) = open else {
            return reply.error(Errno::EBADF);
        };
        let at = (flags.0 & libc::O_APPEND == 0).then_some(offset);
        let written = match &body.parts {
            Some(_) => Ok(None),
            None => (self.shared.must_be_kept(&body)).and_then(|()| body.write(data, at)),
        };
        match written {
            Ok(Some(())) => return reply.written(data.len() as u32),
            Ok(None) => {}
            Err(failed) => return reply.error(self.shared.asking.errno(&failed)),
        }
        // The node is asked first.
        let (thread, data) = (request.pid(), data.to_owned());
        self.work(move |shared| match shared.write(&body, at, &data, thread) {
            Ok(()) => reply.written(data.len() as u32),
            Err(failed) => reply.error(shared.asking.errno(&failed)),
        });
    }

    fn fsync(
        &self,
        request: &KernelRequest,
        _: INodeNo,
        handle: FileHandle,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let open = self.shared.open.lock().get(&handle.0).cloned();
        let thread = request.pid();
        self.work(move |shared| {
            let synced = match &open {
                Some(Open::Write(_, body)) => shared.sync(body, thread),
                _ => Ok(()),
            };
            shared.answer(synced, reply);
        });
    }

    fn release(
        &self,
        _: &KernelRequest,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some((number, body)) = self.shared.release(handle.0) {
            self.work(move |shared| shared.end(number, &body));
        }
        reply.ok();
    }

    fn opendir(&self, _: &KernelRequest, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.shared.keep(Open::List(number.0, Arc::default()));
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdirplus(
        &self,
        request: &KernelRequest,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let open = self.shared.open.lock().get(&handle.0).cloned();
        let Some(Open::List(number, kept)) = open else {
            return reply.error(Errno::EBADF);
        };
        let thread = request.pid();
        self.work(move |shared| {
            let mut kept = kept.lock();
            if offset == 0 {
                match shared.list(number, thread) {
                    Ok(listed) => *kept = listed,
                    Err(failed) => return reply.error(shared.asking.errno(&failed)),
                }
            }
            shared.fill((number, &kept), offset, &mut reply);
            reply.ok();
        });
    }

    fn releasedir(
        &self,
        _: &KernelRequest,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.shared.release(handle.0);
        reply.ok();
    }

    fn mkdir(
        &self,
        request: &KernelRequest,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (thread, name) = (request.pid(), name.to_owned());
        let mode = mode & !umask & 0o7777;
        self.work(move |shared| {
            let made = shared.make_directory((parent.0, &name), mode, thread);
            shared.answer_entry(made, reply);
        });
    }

    fn unlink(&self, request: &KernelRequest, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (thread, name) = (request.pid(), name.to_owned());
        self.work(move |shared| shared.answer(shared.unlink(parent.0, &name, thread), reply));
    }

    fn rmdir(&self, request: &KernelRequest, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (thread, name) = (request.pid(), name.to_owned());
        self.work(move |shared| {
            let emptied = shared.must_be_empty(parent.0, &name, thread);
            let done = emptied.and_then(|()| shared.unlink(parent.0, &name, thread));
            shared.answer(done, reply);
        });
    }

    /// Tells a program that closes a file whether it is lost already.
    fn flush(
        &self,
        _: &KernelRequest,
        _: INodeNo,
        handle: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        let open = self.shared.open.lock().get(&handle.0).cloned();
        let kept = match &open {
            Some(Open::Write(_, body)) => self.shared.must_be_kept(body),
            _ => Ok(()),
        };
        self.shared.answer(kept, reply);
    }

    fn rename(
        &self,
        request: &KernelRequest,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            return reply.error(Errno::EINVAL);
        }
        let (thread, name, to_name) = (request.pid(), name.to_owned(), to_name.to_owned());
        self.work(move |shared| {
            let done = shared.rename((parent.0, &name), (to.0, &to_name), thread);
            shared.answer(done, reply);
        });
    }

    fn statfs(&self, _: &KernelRequest, _: INodeNo, reply: ReplyStatfs) {
        // Programs look whether there is room before they write; what room there is the depot says then.
        reply.statfs(FREE, FREE, FREE, FREE, FREE, 4096, 255, 4096);
    }
}

/// Attributes that a program changes.
#[derive(Clone, Copy)]
struct Set {
    mode: Option<u32>,
    size: Option<u64>,
    mtime_ns: Option<u64>,
}

/// Tells the kernel whether to keep the pages of an open file. Where it believes an append to land, other bytes may be.
fn cached(flags: i32) -> FopenFlags {
    match flags & libc::O_APPEND {
        0 => FopenFlags::empty(),
        _ => FopenFlags::FOPEN_DIRECT_IO,
    }
}

/// Returns the failure for a number that was looked up before: if its name is gone, the kernel looks it up again.
fn stale(failed: Failed) -> Failed {
    match failed.is_missing() {
        true => Failed::Plain(libc::ESTALE),
        false => failed,
    }
}

fn nanoseconds(time: TimeOrNow) -> u64 {
    let time = match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    };
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// How long the kernel caches attributes.
const LASTS: Duration = Duration::from_secs(1);
const WRITE_BYTES: u32 = 1 << 20;
const FREE: u64 = 1 << 30;
