//! Importing: a file or a pipe is cut into fragments, and the sites take turns in storing them.
//!
//! The bytes are read in order; those of a file are read again if a site is full. The fragments become visible together,
//! in one transaction, after all have landed.

use crate::{CopyAim, FileDraft, FileFacts, Logical, combining::Part, sites::shown, writing};
use godwit_catalog::{FRAGMENTS_MAX, is_fragment};
use godwit_core::{Algorithm, Block, Extents, Hashing, Kind};
use godwit_store::{
    BlockWriter, EntryKind, Error, Expected, Finished, Result, Sink, Stat, engine::Place,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
    path::Path,
    thread::{self, JoinHandle},
};

/// The way in which a file is cut.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// The count of fragments; without all three: as many as there are sites.
    pub parts: Option<u64>,
    /// The bytes of each fragment, instead.
    pub size: Option<u64>,
    /// The bytes at which the second fragment and those behind it begin, instead.
    pub at: Option<Vec<u64>>,
    /// Whether each fragment ends with a line.
    pub lines: bool,
    /// The bytes of a record, if fragments are to end with one.
    pub record: Option<u64>,
    /// The sites of the fragments, in turn; of none, all of the collection.
    pub to: Vec<String>,
}

impl Cut {
    fn record_bytes(&self) -> u64 {
        self.record.unwrap_or(1).max(1)
    }
}

/// A fragment that was imported.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Imported {
    /// The bytes of the file that it holds.
    pub range: Range<u64>,
    /// The site of the fragment.
    pub site: String,
}

impl Logical {
    /// Reads a file or a pipe, and writes its fragments to the sites of the collection in turn.
    pub fn import(&self, from: &Place, name: &Path, cut: &Cut) -> Result<Vec<Imported>> {
        match self.sites.find(name)? {
            _ if is_fragment(name) => {
                let why = "fragments come with their file: import it under a name without #";
                return Err(Error::unsupported("importing one fragment", why));
            }
            Some(entry) if entry.collection => return Err(Error::directory(shown(name))),
            Some(_) => return Err(Error::exists(shown(name))),
            None => {}
        }
        let above = name.parent().unwrap_or(Path::new(""));
        if self.sites.find(above)?.is_none() {
            return Err(Error::missing(shown(above)));
        }
        let stat = from.store.stat(&from.path)?;
        if stat.kind == EntryKind::Directory {
            return Err(Error::directory(&from.path));
        }
        let sites = self.sites_for(name, &cut.to)?;
        let edges = Edges::of(cut, stat.known_size(), sites.len())?;
        let mut draft = self.draft(name, edges.count(cut, stat.known_size())?, None)?;
        let scatter = Scatter {
            draft: &draft,
            from,
            stat: &stat,
            sites,
            edges,
            cut,
            size: stat.known_size(),
            state: Mutex::default(),
        };
        let all = Extents::from(0..stat.known_size().unwrap_or(u64::MAX));
        let read = from.store.read(&from.path, &all, 1, &scatter);
        let (imported, hashing) = scatter.end(read.map(drop))?;
        draft.count = imported.len() as u64;
        let told = FileFacts {
            digest: Some(hashing.finish()),
            mtime: stat.mtime,
            ..FileFacts::default()
        };
        FileDraft::publish(vec![(draft, told)], None)?;
        Ok(imported)
    }

    /// Returns the sites that get fragments of a file.
    fn sites_for(&self, name: &Path, to: &[String]) -> Result<Vec<String>> {
        let collection = name.parent().unwrap_or(Path::new(""));
        let asked = match to {
            [] => vec![None],
            to => to.iter().map(|site| Some(site.clone())).collect(),
        };
        let mut sites = Vec::new();
        for site in asked {
            let found = self.sites.locations(collection, site.as_deref())?;
            match site {
                _ if found.is_empty() => {
                    let aim = CopyAim {
                        site,
                        ..CopyAim::default()
                    };
                    return Err(writing::no_location(&aim, collection));
                }
                Some(site) => sites.push(site),
                None => sites.extend(found.into_iter().map(|location| location.site)),
            }
        }
        Ok(sites)
    }
}

/// The bytes before which fragments end.
enum Edges {
    /// A count of fragments, and the length of the file.
    Parts(u64, u64),
    /// The bytes of each fragment.
    Every(u64),
    /// Bytes that were told.
    At(Vec<u64>),
}

impl Edges {
    fn of(cut: &Cut, size: Option<u64>, sites: usize) -> Result<Self> {
        let record = cut.record_bytes();
        if let Some(rest) = size.map(|size| size % record).filter(|rest| *rest > 0) {
            return Err(cut_record(record, rest));
        }
        if let Some(at) = &cut.at {
            let size = size.filter(|_| !at.is_empty());
            let mut before = 0;
            for edge in at.iter().copied().chain(size) {
                if edge <= before {
                    let why = match Some(edge) == size {
                        true => format!("{before} is not within its {edge} bytes"),
                        false => format!("{edge} follows {before}, and they must rise"),
                    };
                    return Err(Error::unsupported("cutting at these offsets", why));
                }
                before = edge;
            }
            return Ok(Self::At(at.clone()));
        }
        match (cut.size, size) {
            // A record that is larger than a fragment makes a fragment.
            (Some(bytes), _) => Ok(Self::Every((bytes / record).max(1).saturating_mul(record))),
            (None, Some(size)) => Ok(Self::Parts(cut.parts.unwrap_or(sites as u64), size)),
            (None, None) => {
                let why = "a pipe does not tell its length; say --size BYTES instead";
                Err(Error::unsupported("cutting it into so many fragments", why))
            }
        }
    }

    /// Returns the count of fragments; 0: only the bytes tell.
    fn count(&self, cut: &Cut, size: Option<u64>) -> Result<u64> {
        let count = match (self, size) {
            (Self::Parts(count, _), _) => *count,
            (Self::At(at), _) => at.len() as u64 + 1,
            (Self::Every(bytes), Some(size)) if !cut.lines => size.div_ceil(*bytes).max(1),
            _ => 0,
        };
        must_fit(count).map(|()| count)
    }

    /// Returns the byte before which a fragment that begins with `start` ends.
    fn end(&self, index: u64, start: u64, record: u64) -> u64 {
        match self {
            Self::Parts(count, _) if index + 1 >= *count => u64::MAX,
            Self::Parts(count, size) => {
                let edge = u128::from(*size) * u128::from(index + 1) / u128::from(*count);
                u64::try_from(edge).unwrap_or(*size) / record * record
            }
            Self::Every(bytes) => start.saturating_add(*bytes),
            Self::At(at) => {
                let edge = usize::try_from(index).ok().and_then(|index| at.get(index));
                edge.copied().unwrap_or(u64::MAX)
            }
        }
    }
}

fn must_fit(count: u64) -> Result<()> {
    if count <= FRAGMENTS_MAX {
        return Ok(());
    }
    let why = format!("a file has {FRAGMENTS_MAX} at most; say a larger --size");
    Err(Error::unsupported(
        format!("cutting into {count} fragments"),
        why,
    ))
}

fn cut_record(record: u64, rest: u64) -> Error {
    let why = format!("the last one has only {rest} bytes");
    Error::unsupported(format!("cutting it into records of {record} bytes"), why)
}

/// Puts each byte into its fragment.
struct Scatter<'a> {
    draft: &'a FileDraft,
    from: &'a Place,
    stat: &'a Stat,
    sites: Vec<String>,
    edges: Edges,
    cut: &'a Cut,
    size: Option<u64>,
    state: Mutex<State>,
}

struct State {
    /// The bytes that came.
    next: u64,
    hashing: Hashing,
    open: Option<OpenFragment>,
    finishing: VecDeque<(usize, JoinHandle<Result<Finished>>)>,
    imported: Vec<Imported>,
    /// The sites whose disks are full.
    full: BTreeSet<String>,
    /// The indexes of fragments that are written to other sites at the end.
    moved: Vec<usize>,
}

/// A fragment that is written to a site.
struct OpenFragment {
    start: u64,
    end: u64,
    site: String,
    /// The upload; `None`: the site has no room for it.
    sink: Option<Box<dyn Sink>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            next: 0,
            hashing: Hashing::new(Algorithm::Blake3),
            open: None,
            finishing: VecDeque::new(),
            imported: Vec::new(),
            full: BTreeSet::new(),
            moved: Vec::new(),
        }
    }
}

impl Scatter<'_> {
    /// Begins a fragment at the site whose turn it is, or at the next one that has room.
    fn begin(
        &self,
        full: &mut BTreeSet<String>,
        index: usize,
        size: Option<u64>,
    ) -> Result<(String, Box<dyn Sink>)> {
        let turn = index % self.sites.len();
        let (before, from) = self.sites.split_at(turn);
        let mut last = None;
        for site in from.iter().chain(before) {
            if full.contains(site) {
                continue;
            }
            match at(site, self.draft.sink(index as u64, site, size)) {
                Err(error) if error.kind() == Kind::NoSpace => {
                    full.insert(site.clone());
                    last = Some(error);
                }
                begun => return begun.map(|sink| (site.clone(), sink)),
            }
        }
        Err(last.unwrap_or_else(|| {
            let sites: Vec<_> = full.iter().map(String::as_str).collect();
            Error::no_space(self.draft.fragment(index as u64), sites.join(", "))
        }))
    }

    /// Tells whether a fragment can be written to another site after this error: its bytes can be read again.
    fn may_move(&self, error: &Error) -> bool {
        error.kind() == Kind::NoSpace && self.from.passage().is_none()
    }

    /// Writes a fragment again, to a site that has room.
    fn move_on(&self, state: &mut State, index: usize) -> Result<()> {
        let range = state.imported[index].range.clone();
        let size = range.end - range.start;
        loop {
            let (site, sink) = self.begin(&mut state.full, index, Some(size))?;
            match at(&site, self.send(&range, sink)) {
                Err(error) if self.may_move(&error) => drop(state.full.insert(site)),
                sent => {
                    state.imported[index].site = site;
                    return sent;
                }
            }
        }
    }

    fn send(&self, range: &Range<u64>, sink: Box<dyn Sink>) -> Result<()> {
        let want = Extents::from(range.clone());
        let shifted = Part {
            into: &*sink,
            want: &want,
            first: 0,
            offset: range.start,
        };
        let read = match range.is_empty() {
            true => Ok(()),
            false => {
                let read = self.from.store.read(&self.from.path, &want, 1, &shifted);
                read.and_then(|read| {
                    let seen = |stat: &Stat| (stat.known_size(), stat.mtime);
                    match seen(&read.stat) == seen(self.stat) {
                        true => Ok(()),
                        false => Err(Error::changed(&self.from.path, "while it was read")),
                    }
                })
            }
        };
        match read {
            Ok(()) => sink
                .finish(&Expected::of_size(range.end - range.start))
                .map(drop),
            Err(error) => {
                let _ = sink.abandon();
                Err(error)
            }
        }
    }

    /// Returns the fragment of the next byte.
    fn open<'s>(&self, state: &'s mut State) -> Result<&'s mut OpenFragment> {
        while state.open.is_none() {
            let (index, start) = (state.imported.len() as u64, state.next);
            must_fit(index + 1)?;
            let end = self.edges.end(index, start, self.cut.record_bytes());
            let known = self.size.filter(|_| !self.cut.lines);
            let size = known.map(|size| end.min(size).saturating_sub(start));
            let (site, sink) = self.begin(&mut state.full, state.imported.len(), size)?;
            state.open = Some(OpenFragment {
                start,
                end,
                site,
                sink: Some(sink),
            });
            if end <= start {
                self.close(state)?;
            }
        }
        Ok(state.open.as_mut().expect("it was opened"))
    }

    /// Ends the open fragment. Its site makes it durable while the next one is written.
    fn close(&self, state: &mut State) -> Result<()> {
        let Some(open) = state.open.take() else {
            return Ok(());
        };
        let (index, range) = (state.imported.len(), open.start..state.next);
        let whole = Expected::of_size(range.end - range.start);
        let site = open.site.clone();
        state.imported.push(Imported { range, site });
        let Some(sink) = open.sink else {
            state.moved.push(index);
            return Ok(());
        };
        let finish = move || at(&open.site, sink.finish(&whole));
        state.finishing.push_back((index, thread::spawn(finish)));
        match state.finishing.len() > self.sites.len() {
            true => self.wait(state),
            false => Ok(()),
        }
    }

    /// Waits until the oldest of the fragments that are being ended is durable.
    fn wait(&self, state: &mut State) -> Result<()> {
        let Some((index, first)) = state.finishing.pop_front() else {
            return Ok(());
        };
        let done = first.join();
        match done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Err(error) if self.may_move(&error) => {
                state.full.insert(state.imported[index].site.clone());
                state.moved.push(index);
                Ok(())
            }
            done => done.map(drop),
        }
    }

    /// Puts bytes into the open fragment, unless its site has no room for them.
    fn put_into(&self, state: &mut State, bytes: &[u8]) -> Result<()> {
        let Some(open) = &mut state.open else {
            return Ok(());
        };
        let Some(sink) = &open.sink else {
            return Ok(());
        };
        let put = sink.put(Block::at(state.next - open.start, bytes));
        match at(&open.site, put) {
            Err(error) if self.may_move(&error) => {
                state.full.insert(open.site.clone());
                let _ = open.sink.take().map(Sink::abandon);
                Ok(())
            }
            put => put,
        }
    }

    /// Returns how many of the bytes belong to the open fragment, and whether it ends with them.
    fn part_of(&self, open: &OpenFragment, next: u64, bytes: &[u8]) -> (usize, bool) {
        let room = usize::try_from(open.end.saturating_sub(next)).unwrap_or(usize::MAX);
        if bytes.len() < room {
            return (bytes.len(), false);
        }
        if !self.cut.lines || open.end == u64::MAX {
            return (room, true);
        }
        let from = room.saturating_sub(1);
        let newline = bytes[from..].iter().position(|&byte| byte == b'\n');
        newline.map_or((bytes.len(), false), |at| (from + at + 1, true))
    }

    /// Ends the last fragment, and waits for all; if the read failed, discards the open ones.
    fn end(self, read: Result<()>) -> Result<(Vec<Imported>, Hashing)> {
        let mut state = self.state.into_inner();
        let this = Self {
            state: Mutex::default(),
            ..self
        };
        let mut ended = read.and_then(|()| this.last(&mut state));
        if let (Err(_), Some(open)) = (&ended, state.open.take()) {
            let _ = open.sink.map(Sink::abandon);
        }
        while !state.finishing.is_empty() {
            let waited = this.wait(&mut state);
            ended = ended.and(waited);
        }
        while ended.is_ok()
            && let Some(index) = state.moved.pop()
        {
            ended = this.move_on(&mut state, index);
        }
        ended.map(|()| (state.imported, state.hashing))
    }

    /// Ends the last fragment. Those behind it are empty.
    fn last(&self, state: &mut State) -> Result<()> {
        let (next, record) = (state.next, self.cut.record_bytes());
        if self.size.is_some_and(|size| size != next) {
            return Err(Error::changed(
                "the source",
                format!("{next} bytes of it came"),
            ));
        }
        if next % record > 0 {
            return Err(cut_record(record, next % record));
        }
        let least = self.edges.count(self.cut, self.size)?.max(1);
        self.close(state)?;
        while (state.imported.len() as u64) < least {
            if matches!(self.edges, Edges::At(_)) {
                let why = format!("it has {next} bytes");
                return Err(Error::unsupported("cutting at these offsets", why));
            }
            self.open(state)?;
            self.close(state)?;
        }
        Ok(())
    }
}

/// Names the site whose disk is full.
fn at<T>(site: &str, done: Result<T>) -> Result<T> {
    done.map_err(|error| match error {
        Error::NoSpace { path, said } => {
            let said = said.trim_start_matches("No space left on device");
            Error::no_space(path, format!("{said} at {site}").trim_start())
        }
        error => error,
    })
}

impl BlockWriter for Scatter<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let state = &mut *self.state.lock();
        if block.offset != state.next {
            return Err(Error::misbehaved(
                "the source",
                "its bytes came in another order",
            ));
        }
        let mut bytes = block.bytes;
        state.hashing.update(bytes);
        while !bytes.is_empty() {
            let next = state.next;
            let open = self.open(state)?;
            let (count, is_end) = self.part_of(open, next, bytes);
            let (its, others) = bytes.split_at(count);
            if !its.is_empty() {
                self.put_into(state, its)?;
            }
            state.next += count as u64;
            bytes = others;
            if is_end {
                self.close(state)?;
            }
        }
        Ok(())
    }
}
