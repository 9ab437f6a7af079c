//! Files in fragments: a view of one, and the fragment that is in use.
//!
//! A fragment on this machine is read and written by its own descriptor. Each leaf that is read is
//! compared with its chaining value before a byte is returned. The values merge to the digest in
//! the catalog.

use crate::{
    failure::{Failure, Result, odd},
    files::give_up,
    process::Instance,
};
use godwit_core::{Block, Digest, Extents, LEAF_BYTES, Leaves, Piece};
use godwit_local::{Kind, NodeAnswer, PendingRequest, Refusal, SharedConnection};
use godwit_wire::{
    door::call::{DoorVersion, Text},
    local::{
        Handle, Request, Response,
        frame::BODY_BYTES_MAX,
        request::{self, FileTarget},
    },
};
use std::{collections::VecDeque, env, fs, io, os::unix::fs::FileExt};

/// An open file.
#[derive(Debug)]
pub(crate) struct Pio {
    url: String,
    access: AccessMode,
    hints: Hints,
    /// The permission bits of a new file; `None`: the file exists.
    new: Option<u32>,
    version: u64,
    sizes: Vec<u64>,
    view: FileView,
    /// The pointer within the view.
    at: u64,
    fragment: Option<OpenFragment>,
    /// The fragments that the node was asked for: the next one, and in the global view those behind it.
    asked: VecDeque<(u64, PendingRequest)>,
}

/// The way in which a file is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessMode {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// The way in which a program will use a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    pub(crate) replicate: bool,
}

/// The part of a file that is seen.
#[derive(Clone, Debug, Eq, PartialEq)]
enum FileView {
    Global,
    /// A fragment, of so many, on a node; `None`: on this one.
    Fragment {
        index: u64,
        count: u64,
        host: Option<String>,
    },
}

/// A process among those of its job.
#[derive(Clone, Debug)]
struct ProcessJob {
    id: String,
    rank: u64,
    size: u64,
}

/// A fragment that is in use.
#[derive(Debug)]
struct OpenFragment {
    index: u64,
    era: u64,
    handle: Handle,
    file: fs::File,
    size: u64,
    /// The digest and the leaves of one that lies here; `None`: the node has compared it, or it is written.
    known: Option<(Digest, Leaves)>,
    /// The number and bytes of the leaf that was read last.
    leaf: Option<(u64, Vec<u8>)>,
    /// The leaves of what was written, as far as they were hashed.
    written: Option<Leaves>,
}

impl Pio {
    /// Opens a file that exists.
    pub(crate) fn open(url: &str, access: AccessMode, hints: Hints) -> Result<Self> {
        let file = Self::look(url, access, hints)?;
        match file.version {
            0 => {
                let refusal = Refusal::new(
                    Kind::Missing,
                    format!("open {url}"),
                    "there is no such file",
                );
                Err(refusal.about(url).into())
            }
            _ => Ok(file),
        }
    }

    /// Begins a new file.
    pub(crate) fn create(url: &str, access: AccessMode, hints: Hints, mode: u32) -> Result<Self> {
        let mut file = Self::look(url, access, hints)?;
        match file.version {
            0 => {
                file.new = Some(mode);
                Ok(file)
            }
            _ => {
                let refusal = Refusal::new(
                    Kind::Exists,
                    format!("create {url}"),
                    "there is one of that name",
                );
                Err(refusal
                    .about(url)
                    .next("choose another name, or remove it: godwit rm")
                    .into())
            }
        }
    }

    fn look(url: &str, access: AccessMode, hints: Hints) -> Result<Self> {
        let url = named(url)?;
        let (_, answer) = Instance::ours()?
            .talk
            .ask_twice(&Request::Fragments(FileTarget::is(&url)))?;
        let Response::Fragments { version } = answer.tell else {
            return Err(odd(&url, "no fragments").into());
        };
        let sizes = answer.body.chunks_exact(8);
        let size = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        Ok(Self {
            url,
            access,
            hints,
            new: None,
            version,
            sizes: sizes.map(size).collect(),
            view: FileView::Global,
            at: 0,
            fragment: None,
            asked: VecDeque::new(),
        })
    }

    /// Shows the whole file.
    pub(crate) fn set_view_global(&mut self, hints: Hints) -> Result<()> {
        self.set_view(FileView::Global, hints)
    }

    /// Shows the fragment of this process.
    pub(crate) fn set_view_local(&mut self, hints: Hints) -> Result<()> {
        let job = ProcessJob::find()?;
        let wanted = || format!("see this process's own fragment of {}", self.url);
        let (count, job) = match (job, self.new) {
            (Some(job), Some(_)) => (job.size, job),
            (None, Some(_)) => (1, ProcessJob::alone()),
            (job, None) => (self.count(), job.unwrap_or_else(ProcessJob::alone)),
        };
        if count != job.size {
            let fact = format!(
                "it has {count} fragments, and the job {} processes",
                job.size
            );
            return Err(Failure::invalid(wanted(), fact));
        }
        let view = FileView::Fragment {
            index: job.rank,
            count,
            host: None,
        };
        self.set_view(view, hints)
    }

    /// Shows a fragment.
    pub(crate) fn set_view_index(
        &mut self,
        count: Option<u64>,
        index: u64,
        host: Option<String>,
        hints: Hints,
    ) -> Result<()> {
        let wanted = format!("see fragment {index} of {}", self.url);
        let count = match (self.new, count) {
            (Some(_), None) => {
                let fact =
                    "the file is new, and nfrags does not tell how many fragments it will have";
                return Err(Failure::invalid(wanted, fact));
            }
            (Some(_), Some(count)) => count,
            (None, Some(count)) if count != self.count() => {
                let fact = format!("it has {} fragments, not {count}", self.count());
                return Err(Failure::invalid(wanted, fact));
            }
            (None, _) => self.count(),
        };
        if index >= count {
            let fact = format!("it has {count} fragments, from 0 on");
            return Err(Failure::invalid(wanted, fact));
        }
        self.set_view(FileView::Fragment { index, count, host }, hints)
    }

    fn set_view(&mut self, view: FileView, hints: Hints) -> Result<()> {
        if self
            .fragment
            .as_ref()
            .is_some_and(|one| one.written.is_some())
        {
            let wanted = format!("change the view of {}", self.url);
            return Err(Failure::invalid(
                wanted,
                "it was written in the view that it has",
            ));
        }
        self.leave();
        self.take_back(None);
        let before = std::mem::replace(&mut self.view, view);
        self.at = 0;
        self.hints.replicate |= hints.replicate;
        // An error of a fragment is reported now, not at the first byte.
        let entered = match self.view {
            FileView::Fragment { index, .. } => self.enter(index),
            FileView::Global => Ok(()),
        };
        if entered.is_err() {
            self.view = before;
        }
        entered
    }

    /// Reads up to so many bytes; returns the count, 0 at the end of the view.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if !self.access.read {
            return Err(Failure::invalid(
                format!("read {}", self.url),
                "it was opened to write",
            ));
        }
        let mut done = 0;
        while done < buffer.len() {
            let Some((index, within)) = self.find(self.at) else {
                break;
            };
            self.enter(index)?;
            let came = self.read_here(within, &mut buffer[done..])?;
            if came == 0 {
                break;
            }
            done += came;
            self.at += came as u64;
        }
        Ok(done)
    }

    fn read_here(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        let url = self.url.clone();
        let fragment = self.fragment.as_mut().ok_or_else(|| nothing_open(&url))?;
        match fragment.read(at, buffer) {
            Ok(Some(came)) => Ok(came),
            Ok(None) => {
                // The bytes here are wrong: the node finds others.
                let index = fragment.index;
                self.leave();
                self.take_back(None);
                self.open_fragment(index, true)?;
                let fragment = self.fragment.as_mut().ok_or_else(|| nothing_open(&url))?;
                let read = fragment
                    .read(at, buffer)
                    .map_err(|error| disk("read", &url, &error))?;
                read.ok_or_else(|| {
                    let said = "its bytes differ from its digest, and no other copy has them";
                    Refusal::new(Kind::Corrupt, format!("read {url}"), said).into()
                })
            }
            Err(error) => Err(disk("read", &url, &error)),
        }
    }

    /// Writes all bytes at the pointer.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if !self.access.write {
            return Err(Failure::invalid(
                format!("write {}", self.url),
                "it was opened to read",
            ));
        }
        let index = match &self.view {
            FileView::Fragment { index, .. } => *index,
            FileView::Global => 0,
        };
        self.enter(index)?;
        let url = &self.url;
        let fragment = self.fragment.as_mut().ok_or_else(|| nothing_open(url))?;
        let written = fragment.file.write_all_at(bytes, self.at);
        written.map_err(|error| disk("write", url, &error))?;
        let leaves = fragment.written.get_or_insert_default();
        if self.at > fragment.size {
            leaves.grown(fragment.size);
        }
        if !bytes.is_empty() {
            leaves.add(Piece::of(Block::at(self.at, bytes)));
        }
        let before = self.at / SYNC_BYTES;
        self.at += bytes.len() as u64;
        let after = self.at / SYNC_BYTES;
        // The disk writes while the program computes, so close waits for less.
        godwit_sys::begin_to_sync(&fragment.file, before * SYNC_BYTES..after * SYNC_BYTES);
        fragment.size = fragment.size.max(self.at);
        Ok(bytes.len())
    }

    /// Moves the pointer to a place in the view; returns it.
    pub(crate) fn seek(&mut self, offset: i64, whence: i32) -> Result<u64> {
        let from = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => self.at,
            libc::SEEK_END => self.len(),
            _ => {
                let wanted = format!("seek in {}", self.url);
                return Err(Failure::invalid(
                    wanted,
                    "whence is none of SEEK_SET, SEEK_CUR, SEEK_END",
                ));
            }
        };
        let to = from
            .checked_add_signed(offset)
            .filter(|to| i64::try_from(*to).is_ok());
        self.at = to.ok_or_else(|| {
            Failure::invalid(
                format!("seek in {}", self.url),
                "that is before its first byte, or too far",
            )
        })?;
        Ok(self.at)
    }

    /// Ends it. What was written is registered.
    pub(crate) fn close(mut self) -> Result<()> {
        if self.new.is_some() {
            // A file that nothing was written to is there all the same.
            let index = match &self.view {
                FileView::Fragment { index, .. } => *index,
                FileView::Global => 0,
            };
            self.enter(index)?;
        }
        let is_written = self.access.write;
        let url = self.url.clone();
        match self.fragment.take() {
            Some(fragment) if is_written => fragment.land(&url),
            Some(fragment) => {
                fragment.give_back();
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn count(&self) -> u64 {
        self.sizes.len() as u64
    }

    fn len(&self) -> u64 {
        match (&self.fragment, &self.view) {
            (Some(one), FileView::Fragment { .. }) => one.size,
            (Some(one), FileView::Global) if self.access.write => one.size,
            (None, FileView::Fragment { index, .. }) => {
                let index = usize::try_from(*index).unwrap_or(usize::MAX);
                self.sizes.get(index).copied().unwrap_or_default()
            }
            _ => self.sizes.iter().sum(),
        }
    }

    /// Returns the fragment that has a byte of the view, and where in it; `None`: the view ends before.
    fn find(&self, at: u64) -> Option<(u64, u64)> {
        if let FileView::Fragment { index, .. } = &self.view {
            return Some((*index, at));
        }
        if self.access.write {
            return Some((0, at));
        }
        let mut start = 0;
        for (index, size) in (0..).zip(&self.sizes) {
            if at < start + size {
                return Some((index, at - start));
            }
            start += size;
        }
        None
    }

    /// Has a fragment be the one in use.
    fn enter(&mut self, index: u64) -> Result<()> {
        if self.fragment.as_ref().is_some_and(|one| one.index == index) {
            return Ok(());
        }
        self.leave();
        self.open_fragment(index, false)
    }

    fn leave(&mut self) {
        if let Some(fragment) = self.fragment.take() {
            fragment.give_back();
        }
    }

    fn open_fragment(&mut self, index: u64, differs: bool) -> Result<()> {
        let ours = Instance::ours()?;
        self.take_back(Some(index));
        let was_asked = !self.asked.is_empty();
        for next in self.wanted(index) {
            if self.asked.iter().all(|(asked, _)| *asked != next) {
                let ask = self.ask(next, differs)?;
                let ticket = ours.talk.send(None, ask, b"")?;
                self.asked.push_back((next, ticket));
            }
        }
        let first = self.asked.pop_front();
        let opened = first.map(|(_, ticket)| (ticket.era, last(&ours.talk, ticket)));
        let (era, answer) = match opened {
            Some((era, Ok(answer))) => (era, answer),
            // It was asked for when it could not be had yet, or the node ended since.
            _ if was_asked => ours
                .talk
                .ask(None, self.ask(index, differs)?, None, &mut |_| ())?,
            Some((_, Err(refusal))) => return Err(refusal.into()),
            None => return Err(nothing_open(&self.url)),
        };
        self.fragment = Some(OpenFragment::of(index, (era, answer), &self.url)?);
        Ok(())
    }

    /// Returns the fragments that are to come now: this one, and if the whole file is read in order the next ones.
    fn wanted(&self, index: u64) -> Vec<u64> {
        let is_in_order = self.view == FileView::Global && !self.access.write;
        let is_at_begin = self.find(self.at) == Some((index, 0));
        let mut bytes = 0;
        let behind = (index..).zip(self.sizes.iter().skip(usize::try_from(index).unwrap_or(0)));
        let fits = |(_, size): &(u64, &u64)| {
            bytes += **size;
            bytes <= WINDOW_BYTES
        };
        let next = behind.skip(1).take_while(fits).take(AT_ONCE - 1);
        let next = next.filter(|_| is_in_order && is_at_begin);
        std::iter::once(index)
            .chain(next.map(|(next, _)| next))
            .collect()
    }

    /// Takes back what the node was asked for, up to a fragment; `None`: all of it.
    fn take_back(&mut self, until: Option<u64>) {
        while let Some((_, ticket)) = self.asked.pop_front_if(|(asked, _)| until != Some(*asked)) {
            let Ok(Instance { talk, .. }) = Instance::ours() else {
                continue;
            };
            match talk.look(ticket) {
                Ok(Some(NodeAnswer {
                    tell: Response::Opened(opened),
                    ..
                })) => give_up(talk, ticket.era, opened.handle),
                _ => talk.cancel(ticket),
            }
        }
    }

    /// Returns the ask for a fragment.
    fn ask(&self, index: u64, differs: bool) -> Result<Request> {
        let (mut count, mut site) = (self.count().max(1), None);
        if let FileView::Fragment {
            count: of, host, ..
        } = &self.view
        {
            (count, site) = (*of, host.clone());
        }
        let job = match self.access.write {
            true => Some(self.writing_job(count)?),
            false => None,
        };
        Ok(Request::Fragment(request::FragmentRequest {
            url: self.url.clone(),
            index,
            count,
            version: self.version,
            job,
            site,
            mode: self.new,
            replicate: self.hints.replicate,
            differs,
        }))
    }

    /// Returns the job that a file is written by.
    fn writing_job(&self, count: u64) -> Result<String> {
        let job = ProcessJob::find()?;
        let is_one_of_many = job.as_ref().is_some_and(|job| job.size > 1);
        if self.view == FileView::Global && (is_one_of_many || count > 1) {
            let fact = "all processes would write the same bytes: it is written in the local view, or by index";
            let refusal = Refusal::new(Kind::Invalid, format!("write {}", self.url), fact);
            return Err(refusal.next("call gfs_pio_set_view_local() first").into());
        }
        Ok(job.unwrap_or_else(ProcessJob::alone).id)
    }
}

impl Drop for Pio {
    fn drop(&mut self) {
        self.leave();
        self.take_back(None);
    }
}

impl OpenFragment {
    fn of(index: u64, (era, mut answer): (u64, NodeAnswer), url: &str) -> Result<Self> {
        let Response::Opened(opened) = answer.tell else {
            return Err(odd(url, "nothing is open").into());
        };
        let file = answer.files.pop();
        let file = file.ok_or_else(|| odd(url, "there is no descriptor"))?;
        let known = match opened.version {
            DoorVersion::Strong(Text(digest)) if opened.was_here => {
                let mut leaves = Leaves::new();
                for (index, chain) in (0..).zip(answer.body.chunks_exact(32)) {
                    leaves.set(
                        index,
                        chain
                            .try_into()
                            .map(godwit_core::Chain)
                            .unwrap_or(godwit_core::Chain([0; 32])),
                    );
                }
                let merges = leaves.root(opened.size).as_ref() == Some(&digest);
                if opened.size > LEAF_BYTES && !merges {
                    return Err(odd(url, "its leaves do not merge to its digest").into());
                }
                Some((digest, leaves))
            }
            _ => None,
        };
        Ok(Self {
            index,
            era,
            handle: opened.handle,
            file: file.into(),
            size: opened.size,
            known,
            leaf: None,
            written: None,
        })
    }

    /// Reads bytes that are within one leaf; `None`: they differ from the digest.
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if at >= self.size || buffer.is_empty() {
            return Ok(Some(0));
        }
        if self.known.is_none() {
            return self.file.read_at(buffer, at).map(Some);
        }
        let number = at / LEAF_BYTES;
        if self.leaf.as_ref().is_none_or(|(have, _)| *have != number) && !self.take_leaf(number)? {
            return Ok(None);
        }
        let within = usize::try_from(at % LEAF_BYTES).unwrap_or(usize::MAX);
        let Some(bytes) = self
            .leaf
            .as_ref()
            .and_then(|(_, bytes)| bytes.get(within..))
        else {
            return Ok(Some(0));
        };
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(Some(count))
    }

    /// Reads a leaf; returns false if it has other bytes than it should.
    fn take_leaf(&mut self, number: u64) -> io::Result<bool> {
        let start = number * LEAF_BYTES;
        let len = usize::try_from((self.size - start).min(LEAF_BYTES)).unwrap_or_default();
        let is_next = self
            .leaf
            .as_ref()
            .is_none_or(|(have, _)| have + 1 == number);
        let mut bytes = self.leaf.take().map(|(_, bytes)| bytes).unwrap_or_default();
        if is_next {
            // The disk reads them while this leaf is hashed and used.
            let ahead = start + LEAF_BYTES..(start + AHEAD_BYTES).min(self.size);
            godwit_sys::begin_to_read(&self.file, ahead);
        }
        bytes.resize(len, 0);
        match self.file.read_exact_at(&mut bytes, start) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
        let Some((digest, known)) = &self.known else {
            return Ok(true);
        };
        let mut found = Leaves::new();
        found.add(Piece::of(Block::at(start, &bytes)));
        let is_it = match self.size <= LEAF_BYTES {
            true => found.root(self.size).as_ref() == Some(digest),
            false => found.chain(number, self.size) == known.chain(number, self.size),
        };
        if is_it {
            self.leaf = Some((number, bytes));
        }
        Ok(is_it)
    }

    /// Makes what was written durable, and has it registered.
    fn land(mut self, url: &str) -> Result<()> {
        let landed = self.hash().map_err(|error| disk("write", url, &error));
        let (digest, chains) = match landed {
            Ok(Some(landed)) => landed,
            Ok(None) => {
                self.give_back();
                let refusal = Refusal::new(
                    Kind::Changed,
                    format!("write {url}"),
                    "another program writes it as well",
                );
                return Err(refusal.into());
            }
            Err(failure) => {
                self.give_back();
                return Err(failure);
            }
        };
        let ask = Request::Landed(request::Landed {
            handle: self.handle,
            size: self.size,
            digest: Text(digest),
        });
        let talk = &Instance::ours()?.talk;
        let ticket = talk.send(Some(self.era), ask, &chains)?;
        last(talk, ticket)?;
        Ok(())
    }

    /// Hashes what was not hashed while it was written; `None`: the file changed meanwhile.
    fn hash(&mut self) -> io::Result<Option<(Digest, Vec<u8>)>> {
        let size = self.file.metadata()?.len();
        let mut leaves = self.written.take().unwrap_or_default();
        let unknown: Extents = leaves.unknown(size);
        let mut buffer = vec![0; LEAF_BYTES as usize];
        for range in unknown.iter() {
            let mut at = range.start;
            while at < range.end {
                let end = (at / LEAF_BYTES + 1) * LEAF_BYTES;
                let len = usize::try_from(end.min(range.end) - at).unwrap_or_default();
                self.file.read_exact_at(&mut buffer[..len], at)?;
                leaves.add(Piece::of(Block::at(at, &buffer[..len])));
                at += len as u64;
            }
        }
        self.file.sync_data()?;
        self.size = size;
        let Some(digest) = leaves.root(size) else {
            return Ok(None);
        };
        let mut chains: Vec<u8> = Vec::new();
        if size > LEAF_BYTES {
            chains.extend(leaves.known(size).flat_map(|(_, chain)| chain.0));
        }
        if chains.len() > BODY_BYTES_MAX {
            chains.clear();
        }
        Ok(Some((digest, chains)))
    }

    fn give_back(self) {
        if let Ok(library) = Instance::ours() {
            give_up(&library.talk, self.era, self.handle);
        }
    }
}

impl ProcessJob {
    /// Returns what the environment tells; `None`: nothing.
    fn find() -> Result<Option<Self>> {
        let told = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let names = RANKS
            .iter()
            .find(|(rank, size)| told(rank).is_some() && told(size).is_some());
        let Some((rank, size)) = names else {
            return Ok(None);
        };
        let number = |name: &str| {
            let value = told(name).unwrap_or_default();
            value.parse::<u64>().map_err(|_| {
                Failure::invalid(
                    format!("understand {name}"),
                    format!("{value:?} is no number"),
                )
            })
        };
        let (rank_of, size_of) = (number(rank)?, number(size)?);
        if rank_of >= size_of {
            let fact = format!("{rank} is {rank_of}, and {size} is {size_of}");
            return Err(Failure::invalid("find the rank of this process", fact));
        }
        let slurm = || {
            let step = told("SLURM_STEP_ID").unwrap_or_default();
            Some(format!("slurm {}.{step}", told("SLURM_JOB_ID")?))
        };
        let others = || JOBS.iter().find_map(|name| told(name));
        let id = told("GODWIT_JOB").or_else(slurm).or_else(others);
        let id = match (id, size_of) {
            (Some(id), _) => id,
            (None, 1) => Self::alone().id,
            (None, _) => {
                let fact = format!(
                    "{size} tells of {size_of} processes, and nothing what belongs together"
                );
                let refusal = Refusal::new(Kind::Invalid, "find the job of this process", fact);
                return Err(refusal
                    .next("set GODWIT_JOB to the same word in all of them")
                    .into());
            }
        };
        Ok(Some(Self {
            id,
            rank: rank_of,
            size: size_of,
        }))
    }

    /// Returns the job of a process that belongs to no other.
    fn alone() -> Self {
        let host = godwit_sys::host_name().unwrap_or_else(|| "localhost".into());
        Self {
            id: format!("process {} at {host}", std::process::id()),
            rank: 0,
            size: 1,
        }
    }
}

/// Returns the name of a file as the node takes it.
fn named(url: &str) -> Result<String> {
    let lower = url.get(..6).unwrap_or_default().to_ascii_lowercase();
    let path = match lower.as_str() {
        "gfarm:" => Some(&url[6..]),
        _ if lower.starts_with("grid:") => Some(&url[5..]),
        _ => None,
    };
    let path = path.filter(|path| !path.trim_start_matches('/').is_empty());
    let path = path.ok_or_else(|| {
        let refusal = Refusal::new(
            Kind::Invalid,
            format!("use {url} as a file in fragments"),
            "it is no such name",
        );
        Failure::from(refusal.next("name it gfarm:/path/name or grid:/path/name"))
    })?;
    Ok(format!("grid:/{}", path.trim_start_matches('/')))
}

/// Waits for the last answer to an ask.
fn last(
    talk: &SharedConnection,
    ticket: PendingRequest,
) -> std::result::Result<NodeAnswer, Refusal> {
    loop {
        let answer = talk.receive(ticket, None)?;
        match answer.tell {
            Response::Refused(refusal) => return Err(*refusal),
            ref tell if tell.is_last() => return Ok(answer),
            _ => {}
        }
    }
}

fn disk(what: &str, url: &str, error: &io::Error) -> Failure {
    Failure::system(&format!("{what} {url}"), error)
}

fn nothing_open(url: &str) -> Failure {
    Failure::invalid(format!("use {url}"), "no fragment of it is open")
}

/// The bytes after which the disk begins to write.
const SYNC_BYTES: u64 = 8 << 20;
/// The most fragments of the global view that come at the same time, and the bytes of those behind the first.
const AT_ONCE: usize = 8;
const WINDOW_BYTES: u64 = 1 << 30;
/// The bytes that are read ahead of a sequential reader.
const AHEAD_BYTES: u64 = 4 << 20;

/// Variables that tell rank and count of processes; the first pair that is set counts.
const RANKS: [(&str, &str); 4] = [
    ("GODWIT_FRAGMENT", "GODWIT_FRAGMENTS"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
];
/// Other variables that name a job.
const JOBS: [&str; 3] = ["PMI_JOBID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"];
