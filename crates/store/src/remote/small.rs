//! Small files: commands sent ahead, so that none waits for the one before, and
//! all bytes over one data connection that stays.

use super::{
    Remote,
    attend::EXPLAIN_MAX,
    data::Hosts,
    deliver::part_name,
    faults,
    fetch::new_watch,
    names,
    session::{Flow, RemoteSession},
};
use crate::{
    Error, Finished, Result, SMALL_BYTES, Set, Small, SmallWrite, Verified, WriteMode,
    channel::{DataChannel, TransferMode, Watch},
};
use godwit_core::{Algorithm, Digest, Version};
use godwit_wire::{
    client::{self, Family, Line, ReplyFacts, Upload},
    reply::Reply,
};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Returns the next request of a batch, and reports its result.
pub(super) type NextItem<'a, T> = &'a mut dyn FnMut() -> Option<T>;
pub(super) type EachResult<'a, T> = &'a mut dyn FnMut(PathBuf, Result<T>);

/// Reads files, many asked for ahead.
pub(super) fn read(
    remote: &Remote,
    session: &mut RemoteSession,
    next: NextItem<'_, PathBuf>,
    each: EachResult<'_, Small>,
) -> Result<()> {
    let mut again = VecDeque::new();
    loop {
        let mut left = std::mem::take(&mut again);
        let mut next = || left.pop_front().or_else(&mut *next);
        let Some(more) = read_round(remote, session, &mut next, each)? else {
            return Ok(());
        };
        again = more;
        again.extend(left);
    }
}

/// Reads over one data connection. Returns the files that must be requested again over another one; `None`: none.
///
/// A node closes the data connection when it refuses a file, and then has none for the requests behind it.
fn read_round(
    remote: &Remote,
    session: &mut RemoteSession,
    next: NextItem<'_, PathBuf>,
    each: EachResult<'_, Small>,
) -> Result<Option<VecDeque<PathBuf>>> {
    let options = &remote.0.options;
    let watch = new_watch(options)?;
    let is_ours = session.family() == Family::Godwit;
    let mut channel = match is_ours {
        true => session.aim_data(Flow::Fetch, TransferMode::Extended, 1)?,
        false => session.open_data(Flow::Fetch, TransferMode::Extended, 1, Hosts::One, &watch)?,
    };
    let (mut asked, mut again) = (VecDeque::new(), VecDeque::new());
    let (mut window, mut was_refused) = (Window::new(), false);
    loop {
        if !was_refused {
            ask_ahead(remote, session, next, &mut asked, &mut window)?;
        }
        if is_ours && channel.streams() == 0 && !was_refused && session.outstanding() > 0 {
            connect(session, &mut channel, &watch)?;
        }
        let path = match asked.pop_front() {
            Some(SmallRequest::Said(path)) => path,
            Some(SmallRequest::Refused(path, _)) if !again.is_empty() => {
                again.push_back(path);
                continue;
            }
            Some(SmallRequest::Refused(path, error)) => {
                each(path, Err(error));
                continue;
            }
            None => break,
        };
        options.cancel.check()?;
        match read_one(session, &mut channel, &path, &watch) {
            Err(Error::Lost { .. }) if was_refused && !session.is_broken => again.push_back(path),
            // Below the level of replies all that was asked for is lost.
            Err(error) if session.is_broken => return Err(error),
            small => {
                was_refused |= small.is_err() && session.family() == Family::Godwit;
                each(path, small);
            }
        }
    }
    if was_refused {
        return Ok(Some(again));
    }
    session.keep_data(channel, Flow::Fetch, TransferMode::Extended, 1, Hosts::One);
    Ok(None)
}

/// Connects to a server that has received its transfer command.
fn connect(session: &mut RemoteSession, channel: &mut DataChannel, watch: &Watch) -> Result<()> {
    let connected = channel.open(1, watch).map(drop);
    connected.inspect_err(|_| session.is_broken = true)
}

/// A file that was asked for, or cannot be.
enum SmallRequest {
    Said(PathBuf),
    Refused(PathBuf, Error),
}

/// Fills the window in one write, as far as there are files.
fn ask_ahead(
    remote: &Remote,
    session: &mut RemoteSession,
    next: NextItem<'_, PathBuf>,
    asked: &mut VecDeque<SmallRequest>,
    window: &mut Window,
) -> Result<()> {
    let mut lines = Vec::new();
    for _ in 0..window.room(asked.len()) {
        let Some(path) = next() else { break };
        let named = remote.name(session, &path).and_then(|name| {
            let retr = Line::new("RETR").bytes(&name)?;
            Ok((retr, Line::new("MLST").bytes(&name)?))
        });
        match named {
            Ok((retr, mlst)) => {
                lines.push(retr);
                if session.family() != Family::Godwit {
                    lines.push(mlst);
                }
                asked.push_back(SmallRequest::Said(path));
            }
            // The error is returned in its turn: results have the order of the requests.
            Err(bad) => asked.push_back(SmallRequest::Refused(
                path.clone(),
                session.about(bad, &path),
            )),
        }
    }
    window.filled(asked.len());
    match lines.is_empty() {
        true => Ok(()),
        false => session.say_all(&lines),
    }
}

/// How many files are on their way in one conversation.
///
/// The window begins small, so that sessions share the files evenly, and grows as files land. It grows ahead of the
/// window of the TCP connection.
struct Window {
    size: usize,
    /// New requests are sent once at most this many are in flight.
    low: usize,
}

impl Window {
    fn new() -> Self {
        Self {
            size: WINDOW_FIRST,
            low: 0,
        }
    }

    /// Returns how many more may be asked for, if it is worth a write.
    fn room(&self, flying: usize) -> usize {
        match flying <= self.low {
            true => self.size.saturating_sub(flying),
            false => 0,
        }
    }

    /// Grows if it was filled.
    fn filled(&mut self, flying: usize) {
        if flying >= self.size {
            self.low = self.size - self.size / 4;
            self.size = (self.size * 2).min(WINDOW);
        }
    }
}

/// Receives one file that was asked for.
fn read_one(
    session: &mut RemoteSession,
    channel: &mut DataChannel,
    path: &Path,
    watch: &Watch,
) -> Result<Small> {
    let is_ours = session.family() == Family::Godwit;
    let first = session.hear("waiting for a small file")?;
    if first.is_final() {
        if !is_ours {
            session.final_reply("looking at a small file")?;
        }
        faults::check(&session.host, path, &first)?;
        session.is_broken = true;
        return Err(Error::misbehaved(
            session.host.clone(),
            format!("a transfer ended before it began: {}", first.said()),
        ));
    }
    let bytes = match channel.receive_whole(BYTES_MAX, watch) {
        Ok(bytes) => bytes,
        Err(error) => return Err(explained(session, path, error)),
    };
    let last = session.final_reply("waiting for the end of a small file")?;
    let looked = match is_ours {
        true => None,
        false => Some(session.final_reply("looking at a small file")?),
    };
    faults::check(&session.host, path, &last)?;
    match looked {
        None => check_ours(session, path, bytes, &last),
        Some(looked) => check_foreign(session, path, bytes, &looked),
    }
}

/// Returns why the server broke off, if its reply says so. A node then waits for new data connections; of others, it
/// is unknown which data theirs still carry.
fn explained(session: &mut RemoteSession, path: &Path, error: Error) -> Error {
    let is_ours = session.family() == Family::Godwit;
    let said = match error {
        Error::Lost { .. } if is_ours => session.hear_within("asking why", EXPLAIN_MAX),
        _ => Err(Error::Canceled),
    };
    match said {
        Ok(reply) if reply.is_final() && !reply.is_positive() => {
            let refused = faults::check(&session.host, path, &reply).map(drop);
            refused.err().unwrap_or(error)
        }
        _ => {
            session.is_broken = true;
            error
        }
    }
}

fn check_ours(session: &RemoteSession, path: &Path, bytes: Vec<u8>, last: &Reply) -> Result<Small> {
    let told = ReplyFacts::from_reply(last).unwrap_or_default();
    let stat = names::stat_of_told(&told).ok_or_else(|| {
        Error::misbehaved(session.host.clone(), "the end of a transfer tells no size")
    })?;
    check_size(path, bytes.len(), stat.size)?;
    let Some(expected) = told.blake3 else {
        return Ok(Small {
            bytes,
            stat,
            verified: Verified::SizeOnly,
        });
    };
    let found = Digest::of(Algorithm::Blake3, &bytes);
    if found != expected {
        return Err(Error::corrupt(
            path,
            expected.to_string(),
            found.to_string(),
        ));
    }
    Ok(Small {
        bytes,
        stat,
        verified: Verified::By(Algorithm::Blake3),
    })
}

fn check_foreign(
    session: &RemoteSession,
    path: &Path,
    bytes: Vec<u8>,
    looked: &Reply,
) -> Result<Small> {
    faults::check(&session.host, path, looked)?;
    let stat = names::stat_of_facts(&client::facts_of(looked)?);
    check_size(path, bytes.len(), stat.size)?;
    Ok(Small {
        bytes,
        stat,
        verified: Verified::SizeOnly,
    })
}

fn check_size(path: &Path, came: usize, size: u64) -> Result<()> {
    if came as u64 == size {
        return Ok(());
    }
    Err(Error::changed(path, format!("{came} bytes came of {size}")))
}

/// Writes files to a node, their bytes sent ahead too.
///
/// A refused file leaves its bytes on the data connection, where they could be taken for the next file's. The digest
/// of each upload prevents that. The session is then given up, and files in flight are sent again in another one.
pub(super) fn write_to_ours(
    remote: &Remote,
    next: NextItem<'_, SmallWrite>,
    each: EachResult<'_, Finished>,
) -> Result<()> {
    let mut flying = VecDeque::new();
    loop {
        let mut session = remote.0.take()?;
        let round = Round {
            remote,
            session: &mut session,
            flying: &mut flying,
        };
        let over = round.run(next, each);
        remote.0.give_back(session);
        if let RoundEnd::AllLanded = over? {
            return Ok(());
        }
    }
}

/// How a round ended.
enum RoundEnd {
    /// With nothing left to do.
    AllLanded,
    /// A file was refused: those in flight must be sent again.
    OneRefused,
}

/// The files of one session.
struct Round<'a> {
    remote: &'a Remote,
    session: &'a mut RemoteSession,
    flying: &'a mut VecDeque<SmallWrite>,
}

impl Round<'_> {
    /// Returns when all was written, or when a file was refused.
    fn run(
        self,
        next: NextItem<'_, SmallWrite>,
        each: EachResult<'_, Finished>,
    ) -> Result<RoundEnd> {
        let watch = new_watch(&self.remote.0.options)?;
        let mut channel = self
            .session
            .aim_data(Flow::Deliver, TransferMode::Extended, 1)?;
        let mut window = Window::new();
        // Files left by an earlier round are sent first.
        let mut unsaid = self.flying.len();
        loop {
            self.remote.0.options.cancel.check()?;
            let room = window.room(self.flying.len());
            let mut flying_bytes = if room > 0 { bytes_of(self.flying) } else { 0 };
            for _ in 0..room {
                if flying_bytes >= AHEAD_BYTES {
                    break;
                }
                let Some(given) = next() else { break };
                flying_bytes += given.bytes.len();
                self.flying.push_back(given);
                unsaid += 1;
            }
            window.filled(self.flying.len());
            let from = self.flying.len() - unsaid;
            let unsayable = say_and_send(
                self.remote,
                self.session,
                &mut channel,
                self.flying,
                from,
                &watch,
            )?;
            if let Some((bad, error)) = unsayable {
                let given = self.flying.remove(from + bad).expect("it was there");
                each(given.path, Err(error));
                // The commands behind it were not sent.
                unsaid -= bad + 1;
                continue;
            }
            unsaid = 0;
            if self.flying.is_empty() {
                break;
            }
            let reply = self
                .session
                .final_reply("waiting for the end of a small upload")?;
            let given = self.flying.pop_front().expect("one for each reply");
            let digests = self.remote.0.options.digests;
            let finished = finished(self.session, &given.path, &reply, digests);
            let is_refused = finished.is_err();
            each(given.path, finished);
            if is_refused {
                self.session.is_broken = true;
                return Ok(RoundEnd::OneRefused);
            }
        }
        self.session.keep_data(
            channel,
            Flow::Deliver,
            TransferMode::Extended,
            1,
            Hosts::One,
        );
        Ok(RoundEnd::AllLanded)
    }
}

/// Says the commands of all from number `from` on, then sends their bytes.
/// Returns the first one whose name cannot be said; those before it went out.
fn say_and_send(
    remote: &Remote,
    session: &mut RemoteSession,
    channel: &mut DataChannel,
    flying: &VecDeque<SmallWrite>,
    from: usize,
    watch: &Watch,
) -> Result<Option<(usize, Error)>> {
    let mut lines = Vec::with_capacity(flying.len() - from);
    let mut bad = None;
    for (number, given) in flying.iter().skip(from).enumerate() {
        let hashes = remote.0.options.digests;
        let digest = hashes.then(|| Digest::of(Algorithm::Blake3, &given.bytes));
        let upload = Upload {
            size: Some(given.bytes.len() as u64),
            modify: given.mtime,
            mode: given.mode,
            blake3: digest.as_ref(),
            how: Some(if given.how == WriteMode::New {
                "new"
            } else {
                "replace"
            }),
            ..Upload::default()
        };
        let named = remote.name(session, &given.path);
        match named.and_then(|name| Ok(upload.esto(&name)?)) {
            Ok(line) => lines.push(line),
            Err(error) => {
                bad = Some((number, session.about(error, &given.path)));
                break;
            }
        }
    }
    if lines.is_empty() {
        return Ok(bad);
    }
    session.say_all(&lines)?;
    if channel.streams() == 0 {
        connect(session, channel, watch)?;
    }
    for given in flying.iter().skip(from).take(lines.len()) {
        channel
            .queue_whole(&given.bytes, watch)
            .inspect_err(|_| session.is_broken = true)?;
    }
    channel
        .flush(watch)
        .inspect_err(|_| session.is_broken = true)?;
    Ok(bad)
}

fn finished(
    session: &RemoteSession,
    path: &Path,
    reply: &Reply,
    has_digest: bool,
) -> Result<Finished> {
    faults::check(&session.host, path, reply)?;
    let told = ReplyFacts::from_reply(reply).unwrap_or_default();
    if told.published == Some(false) {
        return Err(Error::misbehaved(
            session.host.clone(),
            "a small upload was not published",
        ));
    }
    Ok(Finished {
        version: told.blake3.clone().map_or(Version::None, Version::Strong),
        digests: told.blake3.into_iter().collect(),
        // The node publishes the file only if its hash is the announced one.
        verified: match has_digest {
            true => Verified::By(Algorithm::Blake3),
            false => Verified::SizeOnly,
        },
        reread_bytes: told.reread.unwrap_or(0),
        in_place: told.in_place,
    })
}

/// Writes files to a GridFTP server that is no node. Commands are sent ahead, but bytes only when the server waits
/// for them. The server knows no digest of a file: bytes of a refused one would become part of the next.
pub(super) fn write_to_grid(
    remote: &Remote,
    session: &mut RemoteSession,
    next: NextItem<'_, SmallWrite>,
    each: EachResult<'_, Finished>,
) -> Result<()> {
    let watch = new_watch(&remote.0.options)?;
    let mut channel =
        session.open_data(Flow::Deliver, TransferMode::Extended, 1, Hosts::One, &watch)?;
    let renames = remote.0.options.appear == super::Appear::WhenWhole;
    loop {
        let batch: Vec<SmallWrite> = std::iter::from_fn(&mut *next).take(WINDOW).collect();
        if batch.is_empty() {
            break;
        }
        remote.0.options.cancel.check()?;
        let named = |given: &SmallWrite| {
            let name = remote.name(session, &given.path)?;
            let part = if renames {
                part_name(&name, None)
            } else {
                name.clone()
            };
            let stor = Line::new("STOR").bytes(&part)?;
            Ok(PlacedFile { name, part, stor })
        };
        let places: Vec<Result<PlacedFile>> = batch.iter().map(named).collect();
        let sent = send_batch(session, &mut channel, &batch, places, &watch)?;
        for (given, sent) in batch.into_iter().zip(sent) {
            let placed = sent.and_then(|place| put_in_place(session, &given, &place));
            let placed = placed.map_err(|error| session.about(error, &given.path));
            if session.is_broken {
                return placed.map(drop);
            }
            each(given.path, placed);
        }
    }
    session.keep_data(
        channel,
        Flow::Deliver,
        TransferMode::Extended,
        1,
        Hosts::One,
    );
    Ok(())
}

/// The final name of a file, its temporary name, and the command that writes it.
struct PlacedFile {
    name: Vec<u8>,
    part: Vec<u8>,
    stor: Line,
}

fn send_batch(
    session: &mut RemoteSession,
    channel: &mut DataChannel,
    batch: &[SmallWrite],
    places: Vec<Result<PlacedFile>>,
    watch: &Watch,
) -> Result<Vec<Result<PlacedFile>>> {
    let lines: Vec<Line> = places
        .iter()
        .flatten()
        .map(|place| place.stor.clone())
        .collect();
    session.say_all(&lines)?;
    let mut outcomes = Vec::with_capacity(batch.len());
    for (given, place) in batch.iter().zip(places) {
        let Ok(place) = place else {
            outcomes.push(place);
            continue;
        };
        let first = session.hear("waiting to send a small file")?;
        let last = if first.is_final() {
            first
        } else {
            let sent = channel
                .queue_whole(&given.bytes, watch)
                .and_then(|()| channel.flush(watch));
            sent.inspect_err(|_| session.is_broken = true)?;
            session.final_reply("waiting for the end of a small upload")?
        };
        let checked = faults::check(&session.host, &given.path, &last);
        outcomes.push(checked.map(|_| place));
    }
    Ok(outcomes)
}

/// Checks, dresses and renames one part.
fn put_in_place(
    session: &mut RemoteSession,
    given: &SmallWrite,
    place: &PlacedFile,
) -> Result<Finished> {
    let host = session.host.clone();
    let path = &given.path;
    let PlacedFile { name, part, .. } = place;
    let found = names::stat(session, path, part)?;
    if found.size != given.bytes.len() as u64 {
        return Err(Error::corrupt(
            path.clone(),
            format!("{} bytes", given.bytes.len()),
            format!("{} bytes", found.size),
        ));
    }
    for set in [
        Set {
            mode: given.mode,
            ..Set::default()
        },
        Set {
            mtime: given.mtime,
            ..Set::default()
        },
    ] {
        // A server that cannot is no reason to fail.
        let _ = names::set(session, path, part, &set);
    }
    if part != name {
        if given.how == WriteMode::New && names::exists(session, path, name)? {
            return Err(Error::exists(path.clone()));
        }
        let reply = client::rename(session, part, name)?;
        faults::check(&host, path, &reply)?;
    }
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Ok(Finished {
        version: crate::Stat {
            mtime: given.mtime.or(found.mtime),
            ..found
        }
        .version(now),
        ..Finished::default()
    })
}

fn bytes_of(flying: &VecDeque<SmallWrite>) -> usize {
    flying.iter().map(|given| given.bytes.len()).sum()
}

/// Commands on their way. At 50 ms and 1 Gbit/s one window carries 640 files of
/// 10 kB a window's time; more would only fill buffers.
const WINDOW: usize = 256;
/// As many as fit into the first window of ten segments, several times over.
const WINDOW_FIRST: usize = 16;
/// Bytes on their way, which are kept until the server has said that they landed.
const AHEAD_BYTES: usize = 4 << 20;
/// A file that has grown since it was called small is still taken, up to this.
const BYTES_MAX: u64 = 4 * SMALL_BYTES;
