//! Attributes and changes of names, without the bytes of files.

use super::{
    RemoteOptions,
    attend::{TransferStart, begin, connect_and_begin},
    data::Hosts,
    faults,
    fetch::new_watch,
    session::{Flow, RemoteSession},
};
use crate::{
    BlockWriter, Entry, EntryKind, Error, RemovalKind, Result, Set, Space, Stat,
    channel::{Received, TransferMode},
};
use godwit_core::{Algorithm, Block, Digest, Kind};
use godwit_wire::{
    client::{self, Family, FtpPeer, Line, ReplyFacts, Talk},
    facts::{self, Facts, NamedFacts},
    listing::{Form, Listing, Reach},
    reply::Reply,
};
use parking_lot::Mutex;
use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, SystemTime},
};

/// Looks at one name.
pub(super) fn stat(session: &mut RemoteSession, path: &Path, name: &[u8]) -> Result<Stat> {
    let peer = session.peer.clone();
    match client::look(session, &peer, name)? {
        Ok(facts) => Ok(stat_of_facts(&facts)),
        Err(mut refusal) => {
            // Pure-FTPd: "550 Can't check for file existence".
            if refusal.kind == Kind::Other && refusal.code == 550 {
                refusal.kind = Kind::Missing;
            }
            Err(faults::refused(&session.host, path, refusal))
        }
    }
}

/// Returns the attributes in facts. If a server follows links, they are those of the link's target.
pub(super) fn stat_of_facts(facts: &Facts) -> Stat {
    Stat {
        kind: match facts.kind {
            Some(facts::FactKind::Directory | facts::FactKind::This | facts::FactKind::Parent) => {
                EntryKind::Directory
            }
            Some(facts::FactKind::Link) => EntryKind::Link,
            Some(facts::FactKind::Other) => EntryKind::Other,
            Some(facts::FactKind::File) | None => EntryKind::File,
        },
        size: facts.size.unwrap_or(0),
        mtime: facts.modify,
        mode: facts.mode,
        owner: facts.owner.clone(),
        group: facts.group.clone(),
        target: facts.link.clone().map(path_of),
        unique: facts.unique.clone(),
        digest: None,
        touched: facts.touched,
    }
}

/// Returns the attributes of a file in the final reply of a node.
pub(super) fn stat_of_told(told: &ReplyFacts) -> Option<Stat> {
    Some(Stat {
        mtime: told.modify,
        touched: told.touched,
        ..Stat::of(EntryKind::File, told.size?)
    })
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// How a directory is to be listed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Depth {
    One,
    All,
}

/// Tells whether the server lists whole trees.
pub(super) fn lists_trees(peer: &FtpPeer) -> bool {
    peer.features.has("MLSR")
}

/// Lists a directory, or all below it.
///
/// Entries are given to `each` as they come, while the server is still sending.
pub(super) fn list(
    session: &mut RemoteSession,
    options: &RemoteOptions,
    path: &Path,
    name: &[u8],
    depth: Depth,
    each: &mut dyn FnMut(Entry) -> Result<()>,
) -> Result<()> {
    let is_ours = session.family() == Family::Godwit;
    let each: &mut dyn FnMut(Entry) -> Result<()> =
        &mut |entry| match is_ours || !is_part(&entry.path) {
            true => each(entry),
            false => Ok(()),
        };
    list_all(session, options, path, name, depth, each)
}

fn list_all(
    session: &mut RemoteSession,
    options: &RemoteOptions,
    path: &Path,
    name: &[u8],
    depth: Depth,
    each: &mut dyn FnMut(Entry) -> Result<()>,
) -> Result<()> {
    let features = &session.peer.features;
    let asked = match depth {
        Depth::All => ListingCommand {
            command: "MLSR",
            form: Form::Facts,
            reach: Reach::Tree,
        },
        Depth::One if features.has("MLST") || features.has("MLSD") => ListingCommand {
            command: "MLSD",
            form: Form::Facts,
            reach: Reach::Directory,
        },
        Depth::One => return list_plainly(session, options, path, name, each),
    };
    let line = Line::new(asked.command).bytes(name)?;
    match run_listing(session, options, path, name, &line, asked, each) {
        Err(error @ (Error::Refused { .. } | Error::Unsupported { .. })) if !session.is_broken => {
            Err(match stat(session, path, name) {
                Ok(stat) if stat.kind != EntryKind::Directory => Error::not_directory(path),
                Err(missing @ Error::Missing { .. }) => missing,
                _ => error,
            })
        }
        other => other,
    }
}

/// Lists by LIST, from inside of the directory: names with spaces, dashes or
/// asterisks would be taken for options and patterns.
fn list_plainly(
    session: &mut RemoteSession,
    options: &RemoteOptions,
    path: &Path,
    name: &[u8],
    each: &mut dyn FnMut(Entry) -> Result<()>,
) -> Result<()> {
    let entered = session.ask_one(Line::new("CWD").bytes(name)?)?;
    if !entered.is_positive() {
        let found = stat(session, path, name)?;
        if found.kind != EntryKind::Directory {
            return Err(Error::not_directory(path));
        }
        faults::check(&session.host, path, &entered)?;
    }
    let asked = ListingCommand {
        command: "LIST",
        form: Form::Ls { now: now() },
        reach: Reach::Directory,
    };
    // No standard lists hidden names, and all servers list them with `-a`.
    let mut found = Vec::new();
    let keep = &mut |entry| {
        found.push(entry);
        Ok(())
    };
    let list = Line::new("LIST -a");
    let listed = run_listing(session, options, path, b"", &list, asked, keep);
    let listed = listed.and_then(|()| tell_with_times(session, found, each));
    if !session.is_broken {
        let back = session.ask_one(Line::new("CWD").bytes(&session.peer.home.clone())?)?;
        // Elsewhere, every relative name would mean something else.
        session.is_broken |= !back.is_positive();
    }
    listed
}

/// Passes on the entries of a LIST. Its times have minutes or days, in the server's zone: compared with MDTM's, every
/// file would look changed. They are replaced by MDTM's if that needs no round trip per file, and are else left out.
fn tell_with_times(
    session: &mut RemoteSession,
    mut found: Vec<Entry>,
    each: &mut dyn FnMut(Entry) -> Result<()>,
) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    // vsftpd is known to read commands that are sent ahead.
    let can_ask = session.peer.features.has("MDTM") && session.peer.banner.contains("vsFTPd");
    for some in found.chunks_mut(TIMES_AHEAD) {
        some.iter_mut().for_each(|entry| entry.stat.mtime = None);
        let files = some
            .iter_mut()
            .filter(|e| can_ask && e.stat.kind == EntryKind::File);
        let (mut asked, mut lines) = (Vec::new(), Vec::new());
        for entry in files {
            lines.push(Line::new("MDTM").bytes(entry.path.as_os_str().as_bytes())?);
            asked.push(entry);
        }
        let replies = if lines.is_empty() {
            Vec::new()
        } else {
            session.ask(&lines)?
        };
        for (entry, reply) in asked.into_iter().zip(replies) {
            entry.stat.mtime = client::time_of(&reply);
        }
    }
    found.into_iter().try_for_each(each)
}

/// Commands sent ahead, some 2 kB.
const TIMES_AHEAD: usize = 64;
/// Commands sent ahead to a node, which queues 512 of them.
const COMMANDS_AHEAD: usize = 256;

#[derive(Clone, Copy)]
struct ListingCommand {
    command: &'static str,
    form: Form,
    reach: Reach,
}

fn run_listing(
    session: &mut RemoteSession,
    options: &RemoteOptions,
    path: &Path,
    name: &[u8],
    line: &Line,
    asked: ListingCommand,
    each: &mut dyn FnMut(Entry) -> Result<()>,
) -> Result<()> {
    let watch = new_watch(options)?;
    let mode = match session.family() {
        Family::Godwit => TransferMode::Extended,
        _ => TransferMode::Stream,
    };
    let (mut channel, begun) = match session.family() {
        Family::Godwit => {
            let mut channel = session.aim_data(Flow::Fetch, mode, 1)?;
            session.say(line)?;
            let begun = connect_and_begin(session, &mut channel, 1, &watch, path, options.stall)?;
            (channel, begun)
        }
        _ => {
            let mut channel = session.open_data(Flow::Fetch, mode, 1, Hosts::One, &watch)?;
            session.say(line)?;
            let begun = begin(session, &mut channel, path, options.stall)?;
            (channel, begun)
        }
    };
    let listing = match session.family() {
        Family::Godwit => Listing::of_ours(asked.form, asked.reach),
        _ => Listing::new(asked.form, asked.reach),
    };
    let (tell, told) = sync_channel(PIECES_AHEAD);
    let pipe = ListingPipe(Mutex::new((0, tell)));
    let read = thread::scope(|scope| {
        let (carrier, watch) = (&mut channel, &watch);
        let carrying = scope.spawn(move || {
            let received = carrier.receive(mode, 0, &pipe, watch);
            received.and_then(Received::whole).map(drop)
        });
        let read = read_entries(listing, &told, each);
        // The sending thread must not wait for us.
        drop(told);
        match (read, carrying.join().expect("carrying does not panic")) {
            // Its error is that we stopped reading.
            (Err(error), _) => Err(error),
            (Ok(listing), Ok(())) => Ok(listing),
            (Ok(_), Err(error)) => Err(error),
        }
    });
    let read = read.and_then(|(listing, doubtful)| Ok((listing.finish()?, doubtful)));
    let (last, doubtful) = match read {
        Ok(read) => read,
        Err(error) => {
            session.is_broken = true;
            return Err(error);
        }
    };
    session.keep_data(channel, Flow::Fetch, mode, 1, Hosts::One);
    if let TransferStart::Moving = begun {
        let reply = session.final_reply("listing")?;
        faults::check(&session.host, path, &reply)?;
    }
    if let Some(only) = doubtful {
        let found = stat(session, path, name)?;
        if found.kind != EntryKind::Directory {
            return Err(Error::not_directory(path));
        }
        each(only)?;
    }
    // Only now is it certain that nothing was cut off.
    last.map_or(Ok(()), |named| each(entry(named)))
}

fn read_entries(
    mut listing: Listing,
    told: &Receiver<Vec<u8>>,
    each: &mut dyn FnMut(Entry) -> Result<()>,
) -> Result<(Listing, Option<Entry>)> {
    // The only entry of a list without the directory itself may be no entry at all.
    let mut doubtful = None;
    let mut is_first = true;
    for bytes in told {
        listing.push(&bytes);
        while let Some(named) = listing.next_entry()? {
            if std::mem::take(&mut is_first) && !listing.told_itself() {
                doubtful = Some(entry(named));
                continue;
            }
            doubtful.take().map_or(Ok(()), &mut *each)?;
            each(entry(named))?;
        }
    }
    Ok((listing, doubtful))
}

/// Hands a listing from the thread that receives it to the one that reads it.
struct ListingPipe(Mutex<(u64, SyncSender<Vec<u8>>)>);

impl BlockWriter for ListingPipe {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let mut pipe = self.0.lock();
        if block.offset != pipe.0 {
            return Err(Error::misbehaved(
                String::new(),
                "the pieces of a listing came out of order",
            ));
        }
        pipe.0 += block.bytes.len() as u64;
        // The reader is gone when it has had enough.
        pipe.1
            .send(block.bytes.to_vec())
            .map_err(|_| Error::Canceled)
    }
}

/// Pieces of at most 1 MiB.
const PIECES_AHEAD: usize = 4;

fn now() -> std::time::Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// In a list a link is a link, even if its facts are those of its target.
fn entry(named: NamedFacts) -> Entry {
    let mut stat = stat_of_facts(&named.facts);
    if named.facts.link.is_some() {
        stat.kind = EntryKind::Link;
    }
    Entry {
        stat,
        path: path_of(named.name),
    }
}

/// Tells whether a name is that of an unfinished upload, which only our
/// own clients can resume.
fn is_part(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let name = path.file_name().map_or(&[][..], |name| name.as_bytes());
    name.starts_with(b".") && name.ends_with(PART_SUFFIX)
}

/// How names of uploads to servers of others end until they are whole.
pub(super) const PART_SUFFIX: &[u8] = b".godwit-part";

/// Changes attributes, one command each.
pub(super) fn set(session: &mut RemoteSession, path: &Path, name: &[u8], set: &Set) -> Result<()> {
    let host = session.host.clone();
    let check = |reply| faults::check(&host, path, &reply).map(drop);
    if let Some(target) = &set.link_to {
        use std::os::unix::ffi::OsStrExt;
        let reply = client::symlink(session, target.as_os_str().as_bytes(), name)?;
        check(reply)?;
    }
    if let Some(length) = set.length {
        let is_longer =
            session.family() == Family::Grid && stat(session, path, name)?.size < length;
        if !is_longer {
            check(session.ask_one(client::truncate(length, name)?)?)?;
        }
    }
    if let Some(mode) = set.mode {
        check(session.ask_one(client::set_mode(mode, name)?)?)?;
    }
    if let Some(mtime) = set.mtime {
        match client::set_mtime(&session.peer, mtime, name) {
            Some(line) => check(session.ask_one(line?)?)?,
            None => {
                return Err(Error::unsupported(
                    "setting the time of change",
                    format!("{host} knows neither MFMT nor SITE UTIME"),
                ));
            }
        }
    }
    Ok(())
}

/// Removes a file or an empty directory.
pub(super) fn remove(
    session: &mut RemoteSession,
    path: &Path,
    name: &[u8],
    what: RemovalKind,
) -> Result<()> {
    let command = match what {
        RemovalKind::File => "DELE",
        RemovalKind::Directory => "RMD",
    };
    let reply = session.ask_one(Line::new(command).bytes(name)?)?;
    match faults::check(&session.host, path, &reply) {
        Ok(_) => Ok(()),
        Err(error) => Err(explained(session, path, name, what, error)),
    }
}

/// Looks once more where a refusal does not say why ("550 Delete operation failed.").
fn explained(
    session: &mut RemoteSession,
    path: &Path,
    name: &[u8],
    what: RemovalKind,
    error: Error,
) -> Error {
    if !matches!(
        error,
        Error::Refused { .. } | Error::Missing { .. } | Error::Denied { .. }
    ) || session.is_broken
    {
        return error;
    }
    let path = path.to_owned();
    match (stat(session, &path, name), what) {
        (Err(Error::Missing { .. }), _) => Error::missing(path),
        (Ok(stat), RemovalKind::File) if stat.kind == EntryKind::Directory => {
            Error::directory(path)
        }
        (Ok(stat), RemovalKind::Directory) if stat.kind != EntryKind::Directory => {
            Error::not_directory(path)
        }
        _ => error,
    }
}

/// Makes a directory.
pub(super) fn mkdir(session: &mut RemoteSession, path: &Path, name: &[u8]) -> Result<()> {
    let reply = session.ask_one(Line::new("MKD").bytes(name)?)?;
    let error = match faults::check(&session.host, path, &reply) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    // vsftpd: "550 Create directory operation failed."
    if matches!(error, Error::Refused { .. } | Error::BadName { .. })
        && stat(session, path, name).is_ok()
    {
        return Err(Error::exists(path));
    }
    Err(error)
}

/// Makes directories on a node, in one round trip.
pub(super) fn mkdir_many(
    session: &mut RemoteSession,
    paths: &[(PathBuf, Vec<u8>)],
) -> Result<Vec<Result<()>>> {
    let mut made = Vec::with_capacity(paths.len());
    for some in paths.chunks(COMMANDS_AHEAD) {
        let line = |(_, name): &(PathBuf, Vec<u8>)| Line::new("MKD").bytes(name);
        let lines = some.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        let replies = session.ask(&lines)?;
        let check = |((path, _), reply): (&(PathBuf, _), &Reply)| {
            faults::check(&session.host, path, reply).map(drop)
        };
        made.extend(some.iter().zip(&replies).map(check));
    }
    Ok(made)
}

/// Asks for the hash of a range of a file.
///
/// That may take hours. A server that can report progress is asked to. For one that cannot, the wait is long, since
/// silence does not show whether it hangs.
pub(super) fn digest(
    session: &mut RemoteSession,
    path: &Path,
    line: Line,
    by: Algorithm,
) -> Result<Digest> {
    let during = "reading what was to be hashed";
    let mut patience = SILENT_WORK_MAX;
    if session.family() == Family::Plain {
        session.say(&line)?;
    } else {
        let every = format!("Markers={};", (session.stall() / 3).as_secs().max(1));
        session.say_all(&[Line::new("OPTS CKSM").and(every), line])?;
        if session.final_reply("waiting for a reply")?.code / 100 == 2 {
            patience = session.stall();
        }
    }
    let reply = session.final_reply_within(during, patience)?;
    faults::check(&session.host, path, &reply)?;
    Ok(client::checksum_of(&reply, by)?)
}

/// Makes a node sync its disk at a path.
pub(super) fn flush(session: &mut RemoteSession, path: &Path, name: &[u8]) -> Result<()> {
    session.say(&Line::new("SITE GODWIT FLUSH").bytes(name)?)?;
    let reply = session.final_reply_within("writing to its disk", SILENT_WORK_MAX)?;
    match faults::check(&session.host, path, &reply) {
        // One of before there was the question.
        Ok(_) | Err(Error::Unsupported { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// How long a server may work in silence, if it cannot report progress.
const SILENT_WORK_MAX: Duration = Duration::from_secs(3600);

/// Asks a node for the free space at a path.
pub(super) fn space(session: &mut RemoteSession, path: &Path, name: &[u8]) -> Result<Space> {
    let unsupported = |host: &str| {
        Error::unsupported("asking for free space", format!("{host} does not tell it"))
    };
    if session.family() != Family::Godwit {
        return Err(unsupported(&session.host));
    }
    let reply = session.ask_one(Line::new("SITE GODWIT SPACE").bytes(name)?)?;
    faults::check(&session.host, path, &reply)?;
    match ReplyFacts::from_reply(&reply) {
        Some(ReplyFacts {
            total: Some(total_bytes),
            free: Some(free_bytes),
            ..
        }) => Ok(Space {
            total_bytes,
            free_bytes,
        }),
        _ => Err(unsupported(&session.host)),
    }
}

/// Asks a node for the names of unfinished uploads below a directory; of many, the first ones. An older node that
/// does not know the request has none.
pub(super) fn hidden(
    session: &mut RemoteSession,
    path: &Path,
    name: &[u8],
) -> Result<Vec<PathBuf>> {
    let reply = session.ask_one(Line::new("SITE GODWIT HIDDEN").bytes(name)?)?;
    match faults::check(&session.host, path, &reply) {
        Ok(_) => {}
        Err(Error::Unsupported { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    let names = reply.inner().iter().cloned();
    Ok(names.map(|name| path.join(path_of(name))).collect())
}

/// Tells whether there is anything of that name.
pub(super) fn exists(session: &mut RemoteSession, path: &Path, name: &[u8]) -> Result<bool> {
    match stat(session, path, name) {
        Ok(_) => Ok(true),
        Err(Error::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
