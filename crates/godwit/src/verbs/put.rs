//! `godwit put`: a file or a pipe, kept here at once and delivered.

use super::{Facts, local};
use crate::{
    screen::Screen,
    trouble::{CliError, Run},
    units,
};
use clap::Args;
use godwit_core::{Block, Chain, LEAF_BYTES, Piece};
use godwit_local::{Answer, Here, Kind};
use godwit_store::Error;
use godwit_sys::begin_to_sync;
use godwit_wire::{
    door::call::Text,
    local::{
        Ask, Handle, Tell,
        ask::{self, Close, Wait},
        tell,
    },
};
use serde_json::json;
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::Path,
    time::{Duration, Instant},
};

/// Write a file to a server, safe on this disk at once and delivered even if the link is down
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit put run7.root godwit://lab/data/run7.root
  simulate | godwit put - godwit://lab/data/out.log
  godwit put run7.root godwit://lab/data/run7.root && godwit push godwit://lab/data/run7.root

It ends when the bytes are safe on this machine's disk, however far the server is and whether it
answers or not; the node of this machine delivers them, tries again as long as it takes, and goes on
after this command, the network or the machine ended. Programs on this machine that read that
URL see them at once; others when they are all there. godwit queue shows what is on its way,
godwit push waits for it.

The file at the server is replaced as a whole, once the end of the input has come. --offset writes
into it instead: what is elsewhere in it stays. Either way nothing counts before the end of the
input: of a put that is ended before, or that is refused, nothing is delivered. Where there is no
such file, --offset makes one, with zeros before what is written. A URL that ends in / is a
directory, in which the file gets its own name.

What is there by then is replaced whoever wrote it, also what somebody else has changed since you
looked: of several that put, the last counts, and nobody is told. Only --new minds. (A program that
opens a file by the C library and changes it minds too: that is held as a conflict.)

A URL without a scheme is a file of this machine, and it is said which; a directory, a device or a
pipe there is refused.

Where there is no room here (GODWIT_DEPOT_QUOTA), it says so and waits until something else was
delivered, in the order in which they came; --timeout bounds that. Of a file it is known how much it
needs, and nothing is kept before there is all of that. Of several pipes the oldest goes on, and
where they would wait for each other the youngest is refused. A password in the URL is refused,
since it would not be kept until the file is delivered: it belongs into ~/.netrc.

In a job of a batch system the node ends with the job: there this command waits until the server
has the file.

If the node of this machine ends just when all was told (5), nobody knows whether it was taken: it
says so. It may or may not be delivered; godwit queue shows what is owed, and the same put again is
safe, as it writes the same bytes once more (with --new it is refused where it was taken).

Exit status: 0 the bytes are safe; 1 the URL leads nowhere, somebody must decide, or --new and it is
there already; 2 not understood; 4 no such file here; 5 the node of this machine cannot be reached
or has ended, or in a job the server has not got it within --timeout; 7 no room is left here, or
none within --timeout, or the file is larger than all that may be kept; 13 not allowed.")]
pub(crate) struct Put {
    /// A file; - is standard input
    #[arg(value_name = "FILE")]
    file: OsString,
    /// Where it belongs
    #[arg(value_name = "URL")]
    url: OsString,
    /// Write at this byte of the file that is there, instead of replacing it
    #[arg(long, value_name = "BYTE", value_parser = units::parse_offset, allow_negative_numbers = true)]
    offset: Option<u64>,
    /// Only if there is nothing of that name: what this machine knows of is refused at once, anything else is held as
    /// a conflict
    #[arg(long, conflicts_with = "offset")]
    new: bool,
    /// Give up after so long of waiting for room (30, 5m) [default: never]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    timeout: Option<Duration>,
}

impl Put {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let target = self.target()?;
        let source = Path::new(&self.file).display();
        let wanted = format!("put {source} to {}", target.shown);
        target.must_be_replaceable(&wanted)?;
        target.must_have_a_host(screen, &wanted)?;
        let (mut input, size) = self.input(&wanted)?;
        let mut here = local::here()?;
        let start = self.offset.unwrap_or(0);
        let put = ask::Put {
            url: target.told,
            in_place: self.offset.is_some(),
            size: size.map(|size| start.saturating_add(size)),
            new: self.new,
            ..ask::Put::default()
        };
        let mut patience = Patience {
            screen,
            wanted: &wanted,
            url: &target.shown,
            limit: self.timeout,
            why: None,
        };
        let mut opened = patience.ask(&mut here, Ask::Put(put))?;
        let (Tell::Opened(tell::Opened { handle, .. }), Some(file)) =
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
            timeout_ms: local::ms(self.timeout),
        };
        // How it goes on from here is said by commit and queue.
        patience.ask(&mut here, Ask::End(close))?;
        let mut facts = Facts::new();
        facts.insert("bytes".into(), bytes.into());
        match target.here {
            Some(_) => Ok(local::with_note(screen, facts, goes_here(&target.shown))),
            None => Ok(facts),
        }
    }

    /// Returns where it goes: into a directory under its own name.
    fn target(&self) -> Run<local::Named> {
        let url = crate::places::target(&self.url)?;
        if !url.means_directory() {
            return local::named(&self.url);
        }
        let wanted = format!("put {} to {url}", Path::new(&self.file).display());
        let name = match self.file == "-" {
            true => None,
            false => Path::new(&self.file).file_name(),
        };
        let name = name.ok_or_else(|| {
            CliError::asked(
                &wanted,
                "it is a directory, and what is put has no name of its own",
            )
            .next("say what it is to be called there: a name behind the last /")
        })?;
        let whole = url.join(name.as_bytes());
        let whole = whole.map_err(|bad| CliError::asked(&wanted, bad))?;
        local::named(OsStr::new(&whole.to_string()))
    }

    /// Returns what is read, and how much that is where it can be told.
    fn input(&self, wanted: &str) -> Run<(Box<dyn Read>, Option<u64>)> {
        if self.file == "-" {
            return Ok((input_of(wanted)?, None));
        }
        let path = Path::new(&self.file);
        let failed = |cause| CliError::store(wanted, Error::io(path, cause));
        let file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if found.is_dir() {
            return Err(CliError::store(wanted, Error::directory(path))
                .next("godwit cp -r copies a directory"));
        }
        let size = found.is_file().then_some(found.len());
        Ok((Box::new(file), size))
    }
}

fn goes_here(shown: &str) -> String {
    format!("it goes to {shown}, a file of this machine")
}

impl local::Named {
    /// Refuses what no file of this machine can be put in place of.
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

/// How long room is waited for, and what is said meanwhile.
struct Patience<'a> {
    screen: &'a Screen,
    wanted: &'a str,
    url: &'a str,
    limit: Option<Duration>,
    /// What was waited for when it was said last.
    why: Option<String>,
}

impl Patience<'_> {
    /// Asks what is answered once there is room.
    fn ask(&mut self, here: &mut Here, ask: Ask) -> Run<Answer> {
        let (screen, url, why) = (self.screen, self.url, &mut self.why);
        *why = None;
        let is_end = matches!(ask, Ask::End(_));
        let deadline = self.limit.map(|limit| Instant::now() + limit);
        let answer = here.ask_with(ask, b"", deadline, &mut |tell| {
            let Tell::Row(row) = tell else { return };
            match row.why {
                Some(words) if row.what == "room" => {
                    say(screen, url, Some(&words));
                    *why = Some(words);
                }
                // In a job it is waited for at its server.
                Some(words) => screen.note(&words),
                None => {}
            }
        });
        match (answer, &self.why) {
            (Ok(answer), _) => {
                if self.why.is_some() {
                    say(screen, url, None);
                }
                Ok(answer)
            }
            (Err(refusal), Some(why)) if refusal.why == Kind::Late => {
                let time = self.limit.unwrap_or_default();
                let seconds = (time.as_secs_f64() * 100.0).round() / 100.0;
                let fact = format!("no room within {seconds} s: {why}");
                Err(CliError::no_room(self.wanted, fact).next(FOR_ROOM))
            }
            (Err(refusal), _) if refusal.why == Kind::TooLarge => {
                Err(CliError::local(&refusal).next(FOR_LARGE))
            }
            // Whoever does not hear the answer to the end does not know.
            (Err(mut refusal), _) if is_end && refusal.why == Kind::NodeLost => {
                let said = &refusal.because;
                refusal.because = format!("{said}; {url} may have been taken before, or not");
                refusal.wanted = self.wanted.into();
                refusal.next = Some(PUT_AGAIN.into());
                Err(CliError::local(&refusal))
            }
            (Err(refusal), _) => Err(CliError::local(&refusal)),
        }
    }
}

/// Says that it waits for room, and why; or that it goes on.
fn say(screen: &Screen, url: &str, why: Option<&str>) {
    if screen.json() {
        let event = match why {
            Some(why) => {
                json!({"event": "waiting", "for": "room", "url": url, "why": why, "next": FOR_ROOM})
            }
            None => json!({"event": "going", "url": url}),
        };
        // Nobody who does not read is told.
        let _ = screen.object(&event).and_then(|()| screen.flush());
        return;
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
    here: &mut Here,
    handle: Handle,
    input: &mut dyn Read,
    file: &File,
    start: u64,
) -> Run<u64> {
    let wanted = patience.wanted;
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut end, mut begun) = (start, start);
    loop {
        // Leaves are written as a whole, as far as that goes, so that what they hash to can be said.
        let room = PIECE_BYTES - end as usize % PIECE_BYTES;
        let len = fill(input, &mut buffer[..room])
            .map_err(|cause| CliError::store(wanted, Error::io("the input", cause)))?;
        if len == 0 {
            return Ok(end - start);
        }
        let grant = ask::Grant {
            handle,
            start: end,
            end: end + len as u64,
        };
        let granted = patience.ask(here, Ask::Grant(grant))?;
        let Tell::Granted { grant } = granted.tell else {
            return Err(CliError::kept(wanted, "the node gave no leave to write"));
        };
        file.write_all_at(&buffer[..len], end)
            .map_err(|cause| CliError::store(wanted, Error::io("what is kept here", cause)))?;
        end += len as u64;
        // The disk writes while the rest is read: at the end less is left to wait for.
        if end - begun >= EARLY_BYTES {
            begin_to_sync(file, begun..end);
            begun = end;
        }
        let written = ask::Written {
            handle,
            grant,
            size: end,
            chain: chain(end - len as u64, &buffer[..len]),
        };
        let sent = here.send(Ask::Written(written), b"");
        sent.map_err(|refusal| CliError::local(&refusal))?;
    }
}

/// Returns what a leaf hashes to, while it is at hand: the node need not read it again to know what it keeps.
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
/// So much is written before the disk is to begin with it.
const EARLY_BYTES: u64 = 2 << 20;
const PUT_AGAIN: &str =
    "the same put again is safe; godwit queue shows whether this one is on its way";
const FOR_LARGE: &str = "godwit cp sends it there without keeping it here; a larger GODWIT_DEPOT_QUOTA \
                         keeps it, after godwit node stop";
const FOR_ROOM: &str = "godwit queue shows what is owed; it makes room when it is delivered or dropped, and a larger \
     GODWIT_DEPOT_QUOTA gives more, after godwit node stop";
