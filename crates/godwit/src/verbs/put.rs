//! `godwit put`: keeps files, trees or a pipe on this machine at once, and delivers them.

use super::cp::ends;
use crate::{
    args::{Choosing, Names},
    client,
    out::{CliError, Facts, Run, Screen, progress::Reporter},
    places,
    transfer::{
        self,
        layout::{self, CopySource, CopyVerb, Existing, Placement, Target},
    },
    units,
};
use clap::Args;
use godwit_core::{Block, Chain, LEAF_BYTES, Piece, Url};
use godwit_local::{Kind, NodeAnswer, NodeConnection};
use godwit_store::engine::{CopyEvent, CopyOptions, Stores};
use godwit_store::{EntryKind, Error};
use godwit_sys::begin_to_sync;
use godwit_wire::{
    door::call::Text,
    local::{
        Handle, Request, Response,
        request::{self, Close, FileTarget, NameDeed, Wait},
        response,
    },
};
use serde_json::json;
use std::{
    cell::Cell,
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

/// Write files to a server, safe on this disk at once and delivered even if the link is down
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit put run7.root godwit://lab/data/run7.root
  simulate | godwit put - godwit://lab/data/out.log
  godwit put --parents run7.root run8.root godwit://lab/2026/november/
  godwit put -r --exclude '*.tmp' results godwit://lab/data/

It ends when the bytes are safe on this machine's disk, whether the server answers or not. The node
of this machine delivers them, also after a restart. godwit queue shows what is on its way, godwit
push waits for it. In a job of a batch system this command waits until the server has the file.

The file at the server is replaced as a whole when the input has ended; --offset writes into it. A
put that is interrupted delivers nothing. The last of several puts counts, and a change by others is
replaced without a word, except with --new. A URL that ends in / is a directory. What is put where
no directory is waits for it, or makes it with --parents. If there is no room here, put waits.
docs/guide/delivering.md tells what happens in each case.

Exit status: 0 the bytes are safe; 1 the URL leads nowhere, it is on hold, or --new and it is
there already; 2 not understood; 4 no such file here; 5 the node of this machine cannot be reached
or has ended, or in a job the server has not got it within --timeout; 7 no room is left here, or
none within --timeout, or the file is larger than all that may be kept; 13 not allowed.")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    names: Names,
    /// Directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// Make the directories above the target that are missing
    #[arg(long)]
    parents: bool,
    #[command(flatten)]
    choosing: Choosing,
    /// Write at this byte of the file that is there, instead of replacing it
    #[arg(long, value_name = "BYTE", value_parser = units::parse_offset, allow_negative_numbers = true)]
    offset: Option<u64>,
    /// Only if the target does not exist: a file that this machine knows is refused at once, any other becomes
    /// a conflict
    #[arg(long, conflicts_with = "offset")]
    new: bool,
    /// Give up after so long of waiting for room (30, 5m) [default: never]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    timeout: Option<Duration>,
}

/// One thing that is put.
struct Item {
    /// `None`: a directory is made.
    file: Option<OsString>,
    /// The target, with the last part of its name.
    target: Url,
    size: Option<u64>,
}

impl PutArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let (files, url) = ends(&self.names, "put")?;
        let target = places::target(&url)?;
        let is_many = files.len() > 1 || self.recursive;
        let refused = |fact: &str| CliError::asked(format!("put to {target}"), fact);
        if target.password().is_some() {
            return Err(refused("a password in a URL is not kept until it is delivered").next(
                "leave it out, and write it into ~/.netrc (or the file that NETRC names), mode 0600",
            ));
        }
        if is_many && self.offset.is_some() {
            return Err(refused("--offset is for one file").next("put each file by itself"));
        }
        if is_many && !target.means_directory() {
            let next = format!("end the URL in a slash: {}/", target.pasted());
            return Err(refused("several files go into a directory").next(next));
        }
        let failed = Cell::new(0);
        let fail = |trouble: CliError| {
            screen.trouble(&trouble);
            failed.set(failed.get() + 1);
        };
        let mut items = Vec::new();
        for file in &files {
            match self.find((screen, &fail), file, &target, &mut items) {
                Err(trouble) if is_many => fail(trouble),
                found => found?,
            }
        }
        let reporter = Reporter::patient(screen);
        let sizes = || items.iter().map(|item| item.size);
        reporter.on(&CopyEvent::Found {
            files: items.len() as u64,
            bytes: sizes().flatten().sum(),
            complete: sizes().all(|size| size.is_some()),
        });
        let mut running = PutRun {
            put: &self,
            screen,
            reporter: &reporter,
            directories: HashSet::new(),
            facts: Facts::new(),
        };
        reporter.while_running(|| {
            for item in &items {
                match running.one(item) {
                    Err(trouble) if is_many => fail(trouble),
                    done => done?,
                }
                reporter.over();
            }
            Ok(transfer::with_failed(running.facts, failed.get()))
        })
    }

    /// Finds the files of one argument and their targets: in a directory, each has its own name.
    fn find(
        &self,
        (screen, fail): (&Screen, &dyn Fn(CliError)),
        file: &OsStr,
        target: &Url,
        items: &mut Vec<Item>,
    ) -> Run {
        let path = Path::new(file);
        let wanted = format!("put {} to {target}", path.display());
        let trouble = |error: Error| CliError::store(&*wanted, error);
        let item = |file: &OsStr, target, size| Item {
            file: Some(file.into()),
            target,
            size,
        };
        let found = match file == "-" {
            true => None,
            false => Some(fs::metadata(path).map_err(|cause| {
                match places::url(file).is_ok_and(|url| !url.is_local()) {
                    true => CliError::asked(&*wanted, "put reads files of this machine")
                        .next("godwit cp copies from a server"),
                    false => trouble(Error::io(path, cause)),
                }
            })?),
        };
        let name = found.as_ref().and_then(|_| path.file_name());
        if !found.as_ref().is_some_and(Metadata::is_dir) {
            let into = match (target.means_directory(), name) {
                (false, _) => target.clone(),
                (true, Some(name)) => places::below(target, Path::new(name)).map_err(trouble)?,
                (true, None) => {
                    let fact = "it is a directory, and what is put has no name of its own";
                    return Err(CliError::asked(wanted, fact)
                        .next("say what it is to be called there: a name behind the last /"));
                }
            };
            let size = found.filter(Metadata::is_file).map(|found| found.len());
            items.push(item(file, into, size));
            return Ok(());
        }
        if !self.recursive {
            let path = path.into();
            return Err(trouble(Error::IsDirectory { path })
                .next("add -r to put it with all below; the URL then ends in a slash"));
        }
        let url = places::url(file)?;
        let asked = CopySource {
            name,
            directory: true,
            slash: url.path().ends_with(b"/"),
        };
        let there = Target {
            there: Existing::Directory,
            slash: true,
            many: true,
        };
        let mut into = target.clone();
        if let Ok(Placement::Into(name)) = layout::destination(CopyVerb::Copy, asked, there) {
            into = places::below(target, Path::new(&name)).map_err(trouble)?;
            items.push(Item::directory(into.clone()));
        }
        let from = places::open(&Stores::new(CopyOptions::new(places::cancel()?)), &url)?;
        let walked = places::walk(screen, "put", &from, &mut |entry| {
            let is_directory = entry.stat.kind == EntryKind::Directory;
            if !self.choosing.0.has(&entry.path, is_directory) {
                return Ok(());
            }
            let (from, to) = (from.join(&entry.path)?, places::below(&into, &entry.path)?);
            let found = match entry.stat.kind {
                EntryKind::Link => from.store.stat(&from.path),
                _ => Ok(entry.stat),
            };
            let refused = match found {
                Ok(found) if found.kind == EntryKind::File => {
                    items.push(item(from.url.as_path().as_os_str(), to, Some(found.size)));
                    return Ok(());
                }
                Ok(_) if is_directory => {
                    items.push(Item::directory(to));
                    return Ok(());
                }
                Ok(_) => Error::Unsupported {
                    what: format!("putting {}", from.path.display()),
                    why: "it is no file, and links to directories are not followed".into(),
                },
                Err(error) => error,
            };
            fail(CliError::store(
                format!("put {} to {to}", from.url),
                refused,
            ));
            Ok(())
        });
        walked.map_err(trouble)
    }
}

impl Item {
    fn directory(target: Url) -> Self {
        Self {
            file: None,
            target,
            size: Some(0),
        }
    }
}

/// A run over all that is put.
struct PutRun<'a> {
    put: &'a PutArgs,
    screen: &'a Screen,
    reporter: &'a Reporter<'a>,
    /// Directories that were made, or asked for.
    directories: HashSet<Url>,
    facts: Facts,
}

impl PutRun<'_> {
    fn one(&mut self, item: &Item) -> Run {
        let Some(file) = &item.file else {
            return self.make(&mut client::here()?, &item.target, self.put.parents);
        };
        let target = client::named(OsStr::new(&item.target.to_string()))?;
        let source = Path::new(file);
        let wanted = format!("put {} to {}", source.display(), target.shown);
        target.must_be_replaceable(&wanted)?;
        let failed = |cause| CliError::store(&*wanted, Error::io(source, cause));
        let mut input: Box<dyn Read> = match file == "-" {
            true => input_of(&wanted)?,
            false => Box::new(File::open(source).map_err(failed)?),
        };
        let mut here = client::here()?;
        let above = item.target.parent();
        let missing = match above {
            Some(above) if self.put.parents => {
                self.make(&mut here, &above, true)?;
                None
            }
            // A root is there.
            above => above
                .filter(|above| above.file_name().is_some())
                .filter(|above| self.directories.insert(above.clone())),
        };
        let missing = missing.map(|above| (Missing::ask(&above), above));
        let start = self.put.offset.unwrap_or(0);
        let put = request::PutRequest {
            url: target.told,
            in_place: self.put.offset.is_some(),
            size: item.size.map(|size| start.saturating_add(size)),
            new: self.put.new,
            ..request::PutRequest::default()
        };
        let mut patience = Patience {
            screen: self.screen,
            reporter: self.reporter,
            wanted: &wanted,
            url: &target.shown,
            limit: self.put.timeout,
            why: None,
        };
        let mut opened = patience.ask(&mut here, Request::Put(put))?;
        let (Response::Opened(response::OpenedFile { handle, .. }), Some(file)) =
            (opened.tell, opened.files.pop().map(File::from))
        else {
            let words = "the node of this machine gave no file to write to";
            return Err(CliError::kept(&wanted, words));
        };
        let bytes = copy(&mut patience, &mut here, handle, &mut input, &file, start)?;
        drop(file);
        let close = Close {
            handle,
            wait: Wait::Commit,
            give_up: false,
            timeout_ms: client::ms(self.put.timeout),
        };
        // From here on commit and queue tell the state of the file.
        patience.ask(&mut here, Request::End(close))?;
        let facts = transfer::with_more(std::mem::take(&mut self.facts), "bytes", bytes);
        self.facts = transfer::with_more(facts, "files", 1);
        if target.here.is_some() {
            self.note(goes_here(&target.shown));
        }
        if let Some((missing, above)) = missing
            && missing.is_so()
        {
            self.note(format!(
                "the directory {above} is not there: {} is kept here and goes once it is; godwit mkdir -p {} makes it, and \
                 put --parents does so at once",
                target.shown,
                above.pasted()
            ));
        }
        Ok(())
    }

    fn note(&mut self, words: String) {
        let facts = std::mem::take(&mut self.facts);
        self.facts = client::with_note(self.screen, facts, words);
    }

    /// Has the node make a missing directory; with `parents` those above it first.
    fn make(&mut self, here: &mut NodeConnection, directory: &Url, parents: bool) -> Run {
        let directory = places::without_slashes(directory);
        let Some(above) = directory.parent() else {
            return Ok(()); // there is no name to make
        };
        if !self.directories.insert(directory.clone()) {
            return Ok(());
        }
        if parents {
            self.make(here, &above, true)?;
        }
        let url = client::named(OsStr::new(&directory.to_string()))?.told;
        match here.ask(Request::Deed(NameDeed::Mkdir { url })) {
            Err(refusal) if refusal.kind != Kind::Exists => Err(refusal.into()),
            _ => Ok(()),
        }
    }
}

/// The question whether a directory is missing, asked while its file is written.
struct Missing {
    answer: Receiver<bool>,
    until: Instant,
}

impl Missing {
    fn ask(directory: &Url) -> Self {
        let (tell, answer) = mpsc::channel();
        let url = client::named(OsStr::new(&directory.to_string())).map(|named| named.told);
        thread::spawn(move || {
            let asked = url.and_then(|url| {
                let told = client::here()?.ask(Request::Stat(FileTarget::is(url)));
                Ok(matches!(told, Err(refusal) if refusal.kind == Kind::Missing))
            });
            let _ = tell.send(asked.unwrap_or(false));
        });
        let until = Instant::now() + ANSWERS_WITHIN;
        Self { answer, until }
    }

    /// Tells so, if its server answers soon.
    fn is_so(&self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        self.answer.recv_timeout(left) == Ok(true)
    }
}

fn goes_here(shown: &str) -> String {
    format!("it goes to {shown}, a file of this machine")
}

impl client::Named {
    /// Refuses a target that a file cannot replace.
    fn must_be_replaceable(&self, wanted: &str) -> Run<()> {
        let Some(path) = &self.here else {
            return Ok(());
        };
        match fs::metadata(path).map(|found| found.file_type()) {
            Ok(kind) if kind.is_dir() => {
                Err(CliError::store(wanted, Error::directory(path.clone()))
                    .next(format!("{}/ puts it in there", self.shown)))
            }
            Ok(kind) if !kind.is_file() => {
                let what = format!("putting in place of {}", self.shown);
                let why = "it is no file, and put replaces files as a whole";
                Err(CliError::store(wanted, Error::unsupported(what, why))
                    .next(format!("cat writes into it: cat FILE > {}", self.shown)))
            }
            _ => Ok(()),
        }
    }
}

/// Returns standard input.
pub(super) fn input_of(wanted: &str) -> Run<Box<dyn Read>> {
    match godwit_sys::is_input_closed() {
        true => {
            Err(CliError::asked(wanted, "standard input is closed")
                .next("give it something to read"))
        }
        false => Ok(Box::new(io::stdin().lock())),
    }
}

/// A wait for room, with its limit and its messages.
struct Patience<'a> {
    screen: &'a Screen,
    reporter: &'a Reporter<'a>,
    wanted: &'a str,
    url: &'a str,
    limit: Option<Duration>,
    /// The reason for the wait that was said last.
    why: Option<String>,
}

impl Patience<'_> {
    /// Sends a request that is answered once there is room.
    fn ask(&mut self, here: &mut NodeConnection, ask: Request) -> Run<NodeAnswer> {
        let (screen, url, why) = (self.screen, self.url, &mut self.why);
        *why = None;
        let is_end = matches!(ask, Request::End(_));
        let deadline = self.limit.map(|limit| Instant::now() + limit);
        let answer = here.ask_with(ask, b"", deadline, &mut |tell| {
            match &tell {
                Response::Row(row) if row.what == "room" && row.why.is_some() => {
                    say(screen, url, row.why.as_deref());
                    why.clone_from(&row.why);
                }
                // In a job the put waits until the server has the file.
                _ => client::note(screen, &tell),
            }
        });
        match (answer, &self.why) {
            (Ok(answer), _) => {
                if self.why.is_some() {
                    say(screen, url, None);
                }
                Ok(answer)
            }
            (Err(refusal), Some(why)) if refusal.kind == Kind::Late => {
                let time = self.limit.unwrap_or_default();
                let seconds = (time.as_secs_f64() * 100.0).round() / 100.0;
                let fact = format!("no room within {seconds} s: {why}");
                Err(CliError::no_room(self.wanted, fact).next(FOR_ROOM))
            }
            (Err(refusal), _) if refusal.kind == Kind::TooLarge => {
                Err(CliError::from(refusal).next(FOR_LARGE))
            }
            // Without the whole answer, the program cannot know whether the file was taken.
            (Err(mut refusal), _) if is_end && refusal.kind == Kind::NodeLost => {
                let said = &refusal.said;
                refusal.said = format!("{said}; {url} may have been taken before, or not");
                refusal.wanted = self.wanted.into();
                refusal.next = Some(PUT_AGAIN.into());
                Err(refusal.into())
            }
            (Err(refusal), _) => Err(refusal.into()),
        }
    }
}

/// Says that the put waits for room, and why, or that it goes on.
fn say(screen: &Screen, url: &str, why: Option<&str>) {
    if screen.json() {
        let event = match why {
            Some(why) => {
                json!({"event": "waiting", "for": "room", "url": url, "why": why, "next": FOR_ROOM})
            }
            None => json!({"event": "going", "url": url}),
        };
        return screen.event(&event);
    }
    match why {
        Some(why) => screen.note(&format!(
            "waiting for room for {url}: {why}\nhint: {FOR_ROOM}"
        )),
        None => screen.note(&format!("there is room for {url} now; it goes on")),
    }
}

/// Writes into the file that the node keeps, each piece with its leave: so that it can be sent while it grows, and
/// waits for room where there is none.
fn copy(
    patience: &mut Patience<'_>,
    here: &mut NodeConnection,
    handle: Handle,
    input: &mut dyn Read,
    file: &File,
    start: u64,
) -> Run<u64> {
    let wanted = patience.wanted;
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut end, mut begun) = (start, start);
    loop {
        // Whole leaves are written, as far as possible, so that their hashes can be sent.
        let room = PIECE_BYTES - end as usize % PIECE_BYTES;
        let len = fill(input, &mut buffer[..room])
            .map_err(|cause| CliError::store(wanted, Error::io("the input", cause)))?;
        if len == 0 {
            return Ok(end - start);
        }
        let grant = request::Grant {
            handle,
            start: end,
            end: end + len as u64,
        };
        let granted = patience.ask(here, Request::Grant(grant))?;
        let Response::Granted { grant } = granted.tell else {
            return Err(CliError::kept(wanted, "the node gave no leave to write"));
        };
        file.write_all_at(&buffer[..len], end)
            .map_err(|cause| CliError::store(wanted, Error::io("what is kept here", cause)))?;
        end += len as u64;
        patience
            .reporter
            .on(&CopyEvent::Moved { bytes: len as u64 });
        // The disk writes while the rest is read, which shortens the wait at the end.
        if end - begun >= EARLY_BYTES {
            begin_to_sync(file, begun..end);
            begun = end;
        }
        let written = request::Written {
            handle,
            grant,
            size: end,
            chain: chain(end - len as u64, &buffer[..len]),
        };
        let sent = here.send(Request::Written(written), b"");
        sent?;
    }
}

/// Returns the hash of a leaf while its bytes are in memory, so that the node need not read them again.
fn chain(offset: u64, bytes: &[u8]) -> Option<Text<Chain>> {
    if bytes.len() < PIECE_BYTES {
        return None;
    }
    let (_, chain) = Piece::of(Block { offset, bytes }).leaf()?;
    Some(Text(chain))
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(came) => filled += came,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

const PIECE_BYTES: usize = LEAF_BYTES as usize;
/// How long a server may take to tell whether a directory exists.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How many bytes are written before the disk is told to begin.
const EARLY_BYTES: u64 = 2 << 20;
const PUT_AGAIN: &str =
    "the same put again is safe; godwit queue shows whether this one is on its way";
const FOR_LARGE: &str = "godwit cp sends it there without keeping it here; a larger GODWIT_DEPOT_QUOTA \
                         keeps it, after godwit node stop";
const FOR_ROOM: &str = "godwit queue shows what is pending; it makes room when it is delivered or dropped, and a larger \
     GODWIT_DEPOT_QUOTA gives more, after godwit node stop";
