//! Writing to a server: a sink whose blocks go out over data connections while a
//! thread of its own listens to what the server says of them.

mod relay;

use super::{
    Appear, Remote,
    attend::{Begun, begin as await_begin},
    faults,
    fetch::new_watch,
    names,
    parts::Claim,
    session::{Flow, Session},
};
use crate::{
    Checks, Error, Finished, How, Kind, Read, Result, SMALL_BYTES, Set, Sink, Store, Verified,
    Whole, Write,
    channel::{Channel, Mode, Sending, Watch},
};
use godwit_core::{
    AdlerPart, AdlerParts, Algorithm, Block, Chain, Digest, Extents, Hashing, LEAF_BYTES, Leaves,
    Piece, Strength, Version,
};
use godwit_sys::{Wake, wait_readable};
use godwit_wire::{
    client::{self, Family, Line, Talk, Told, Upload},
    marker::Marker,
    reply::Reply,
};
use std::{
    collections::BTreeMap,
    ops::Range,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

/// Starts to write one file.
pub(super) fn begin(remote: Remote, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
    if write.how == How::InPlace && !remote.can()?.in_place {
        return Err(Error::Unsupported {
            what: "changing a file in place".into(),
            why: "some FTP servers cut off what stands behind".into(),
        });
    }
    if let How::Append { .. } = write.how {
        return Err(Error::Unsupported {
            what: "appending".into(),
            why: "an FTP server cannot tell whose bytes came first".into(),
        });
    }
    let mut session = remote.0.take()?;
    match Delivery::plan(&remote, &mut session, path, write) {
        Ok(plan) => Ok(Box::new(Delivering::new(remote, session, plan))),
        Err(error) => {
            let error = session.about(error, path);
            remote.0.give_back(session);
            Err(error)
        }
    }
}

/// What was settled before the first byte.
struct Delivery {
    path: PathBuf,
    /// Where the file is to appear.
    name: Vec<u8>,
    /// What is written to until then.
    part: Claim,
    family: Family,
    how: How,
    size: Option<u64>,
    mode: Option<u32>,
    checks: Checks,
    streams: usize,
    landed: Extents,
}

impl Delivery {
    fn plan(
        remote: &Remote,
        session: &mut Session,
        path: &Path,
        write: &Write<'_>,
    ) -> Result<Self> {
        let name = remote.name(session, path)?;
        // Refused here and not with the first byte: names that no line can carry.
        Line::new("STOR").bytes(&name)?;
        if write.how == How::New && names::exists(session, path, &name)? {
            return Err(Error::Exists { path: path.into() });
        }
        let tag = tag(write);
        let family = session.family();
        let in_place = write.how == How::InPlace || remote.0.options.appear == Appear::AtOnce;
        // Ours keeps parts out of sight, by name and id of the upload; elsewhere a
        // part is a file of its own.
        let part = match family {
            _ if in_place => Claim::of_nothing(name.clone()),
            Family::Godwit => {
                let id = write.id.map(Into::into).or(tag).unwrap_or_else(unique_id);
                let key = |id: String| [&name[..], b"\0", id.as_bytes()].concat();
                remote.0.parts.claim(key(id), |_| key(unique_id()))
            }
            Family::Grid | Family::Plain => {
                let first = part_name(&name, tag.as_deref());
                remote
                    .0
                    .parts
                    .claim(first, |serial| part_name(&name, Some(&serial)))
            }
        };
        let mut delivery = Self {
            path: path.into(),
            name,
            part,
            family,
            how: write.how.clone(),
            size: write.size,
            mode: write.mode,
            checks: write.checks,
            streams: if family == Family::Plain {
                1
            } else {
                write.streams.max(1)
            },
            landed: Extents::new(),
        };
        if write.how != How::InPlace {
            delivery.landed = delivery.earlier(session, write)?;
        }
        Ok(delivery)
    }

    /// Asks what an earlier attempt left, and forgets it if it is not to be gone on with.
    fn earlier(&self, session: &mut Session, write: &Write<'_>) -> Result<Extents> {
        let mut left = match self.family {
            Family::Godwit => {
                let upload = self.upload();
                let line = match write.resume {
                    true => upload.done(&self.name)?,
                    false => upload.abandon(&self.name)?,
                };
                let reply = session.ask_one(line)?;
                match Told::from_reply(&reply) {
                    Some(told) if write.resume && reply.is_positive() => {
                        told.done.unwrap_or_default()
                    }
                    _ => Extents::new(),
                }
            }
            // Written in order, so its length says it all; and its name says of what.
            Family::Plain if write.resume && self.is_apart() => {
                let reply = session.ask_one(Line::new("SIZE").bytes(self.part.name())?)?;
                let can_go_on = session.peer.features.restarts_streams();
                let size = client::size_of(&reply).filter(|_| can_go_on && write.origin.is_some());
                size.map(|size| Extents::from(0..size)).unwrap_or_default()
            }
            // What landed in blocks cannot be asked of it: we remember what it said.
            Family::Grid if write.resume && write.origin.is_some() => {
                let reply = session.ask_one(Line::new("SIZE").bytes(self.part.name())?)?;
                let landed = self.part.landed();
                let is_there = client::size_of(&reply).is_some_and(|size| size >= landed.end());
                if is_there { landed } else { Extents::new() }
            }
            _ => Extents::new(),
        };
        if write.size.is_some_and(|size| left.end() > size) {
            left = Extents::new();
        }
        Ok(left)
    }

    fn upload(&self) -> Upload<'_> {
        Upload {
            id: self.id(),
            ..Upload::default()
        }
    }

    /// Returns the id of an upload to one of ours.
    fn id(&self) -> Option<&str> {
        let id = self.part.name().strip_prefix(&self.name[..])?;
        str::from_utf8(id.strip_prefix(b"\0")?).ok()
    }

    /// Tells whether the file is kept here until it is whole.
    fn is_kept(&self) -> bool {
        self.family == Family::Godwit
            && self.size.is_some_and(|size| size <= SMALL_BYTES)
            && self.landed.is_empty()
            && matches!(self.how, How::New | How::Replace(None))
    }

    /// Returns the name of the file that is written to.
    fn file(&self) -> &[u8] {
        match self.family {
            Family::Godwit => &self.name,
            _ => self.part.name(),
        }
    }

    /// Tells whether the bytes are out of sight until they are whole.
    fn is_apart(&self) -> bool {
        self.part.name() != self.name
    }

    fn mode(&self) -> Mode {
        match self.family {
            Family::Plain => Mode::Stream,
            _ => Mode::Extended,
        }
    }

    /// Returns what begins a transfer in which what landed stays.
    fn commands(&self, landed: &Extents, start: u64) -> Result<Vec<Line>> {
        let stor = Line::new("STOR").bytes(self.file())?;
        Ok(match self.family {
            Family::Godwit => {
                let upload = Upload {
                    size: self.size.filter(|_| self.is_apart()),
                    mode: self.mode,
                    hold: self.is_apart(),
                    how: Some(self.how_word()),
                    ..self.upload()
                };
                vec![upload.esto(&self.name)?]
            }
            // ESTO A and REST keep what is there; a bare STOR cuts the file off first.
            Family::Grid if self.how == How::InPlace => {
                vec![Line::new("ESTO A").and(0).bytes(self.file())?]
            }
            Family::Grid if landed.is_empty() => {
                let announced = self.size.filter(|size| *size > 0);
                let allo = announced.map(|size| Line::new("ALLO").and(size));
                allo.into_iter().chain([stor]).collect()
            }
            Family::Grid => vec![Line::new("REST").and(landed), stor],
            Family::Plain if start > 0 || self.how == How::InPlace => {
                vec![Line::new("REST").and(start), stor]
            }
            Family::Plain => vec![stor],
        })
    }

    fn how_word(&self) -> &'static str {
        match self.how {
            How::New => "new",
            How::InPlace => "inplace",
            _ => "replace",
        }
    }

    /// Tells whether ADLER32 is to be computed of what is sent: a GridFTP server
    /// can be asked for it when all is there.
    fn sums(&self, session: &Session) -> bool {
        let offered = session.peer.features.checksums();
        let is_asked_there = self.checks.blake3 && offered.contains(&Algorithm::Adler32);
        self.checks.adler32 || (self.family != Family::Godwit && is_asked_there)
    }
}

/// A file on its way.
struct Delivering {
    remote: Remote,
    plan: Delivery,
    phase: RwLock<Phase>,
    told: Arc<Words>,
    given: Mutex<Given>,
    turn: Condvar,
    leaves: Option<Mutex<Leaves>>,
    sums: Option<Mutex<AdlerParts>>,
    shown: Mutex<Extents>,
    /// The bytes of a small file for one of ours.
    kept: Option<Mutex<Vec<u8>>>,
    /// Another server sends it, so nothing is kept here.
    is_drawn: AtomicBool,
    is_published: bool,
}

/// What was put, and in stream mode what must come next.
#[derive(Default)]
struct Given {
    bytes: Extents,
    next: Option<u64>,
}

enum Phase {
    Idle(Option<Box<Session>>),
    Moving(Box<Moving>),
    Over,
}

struct Moving {
    sending: Sending<Channel, Arc<Watch>>,
    control: JoinHandle<(Session, Result<Reply>)>,
}

/// What the server has said of this upload.
struct Words {
    state: Mutex<Said>,
    ended: Condvar,
    /// Raised when no more bytes will be sent.
    closing: Wake,
}

#[derive(Default)]
struct Said {
    landed: Extents,
    chains: BTreeMap<u64, Chain>,
    is_closing: bool,
    has_ended: bool,
    refusal: Option<Reply>,
}

impl Delivering {
    fn new(remote: Remote, session: Session, plan: Delivery) -> Self {
        let sums = plan.sums(&session).then(Mutex::default);
        let leaves = plan.checks.blake3.then(|| Mutex::new(Leaves::new()));
        let said = Said {
            landed: plan.landed.clone(),
            ..Said::default()
        };
        Self {
            remote,
            phase: RwLock::new(Phase::Idle(Some(Box::new(session)))),
            told: Arc::new(Words {
                state: Mutex::new(said),
                ended: Condvar::new(),
                closing: Wake::new()
                    .expect("the process has file descriptors left: it has just got a socket"),
            }),
            given: Mutex::default(),
            turn: Condvar::new(),
            leaves,
            sums,
            shown: Mutex::default(),
            kept: plan.is_kept().then(Mutex::default),
            is_drawn: AtomicBool::new(false),
            plan,
            is_published: false,
        }
    }

    /// Begins a transfer, if none is under way.
    fn start(&self, first_offset: u64) -> Result<()> {
        let mut phase = self.phase.write().expect(NO_PANIC);
        let Phase::Idle(idle) = &mut *phase else {
            return Ok(());
        };
        let mut session = match idle.take() {
            Some(session) => *session,
            None => self.remote.0.take()?,
        };
        match self.open(&mut session, first_offset) {
            Ok((sending, begun)) => {
                let control = self.attend(session, sending_watch(&sending), begun)?;
                *phase = Phase::Moving(Box::new(Moving { sending, control }));
                Ok(())
            }
            Err(error) => {
                let error = session.about(error, &self.plan.path);
                self.remote.0.give_back(session);
                Err(error)
            }
        }
    }

    fn open(
        &self,
        session: &mut Session,
        first_offset: u64,
    ) -> Result<(Sending<Channel, Arc<Watch>>, Begun)> {
        let plan = &self.plan;
        let watch = Arc::new(new_watch(&self.remote.0.options)?);
        let channel = session.open_data(Flow::Deliver, plan.mode(), plan.streams, &watch)?;
        let landed = self.told.state().landed.clone();
        let start = match plan.how {
            How::InPlace => first_offset,
            _ => landed.prefix(),
        };
        let mut lines = plan.commands(&landed, start)?;
        let transfer = lines.pop().expect("there is always one");
        for line in lines {
            let reply = session.ask_one(line)?;
            faults::check(&session.host, &plan.path, &reply)?;
        }
        session.say(&transfer)?;
        let begun = await_begin(session, &plan.path, self.remote.0.options.stall)?;
        if plan.mode() == Mode::Stream {
            self.given().next = Some(start);
        }
        let unchecked = Checks {
            blake3: false,
            adler32: false,
        };
        Ok((
            Sending::over(channel, plan.mode(), 0, unchecked, watch),
            begun,
        ))
    }

    /// Starts to listen to the server.
    fn attend(
        &self,
        session: Session,
        watch: Arc<Watch>,
        begun: Begun,
    ) -> Result<JoinHandle<(Session, Result<Reply>)>> {
        {
            let mut said = self.told.state();
            (said.is_closing, said.has_ended, said.refusal) = (false, false, None);
            said.chains.clear();
        }
        self.told.closing.lower();
        let listening = Listening {
            session,
            told: self.told.clone(),
            watch,
            options: self.remote.0.options.clone(),
        };
        thread::Builder::new()
            .name("godwit-control".into())
            .spawn(move || listening.until_final(begun))
            .map_err(|cause| Error::io("a thread", cause))
    }

    /// Waits until it is this block's turn: in stream mode bytes have no offsets.
    fn await_turn(&self, offset: u64) -> Result<()> {
        let patience = self.remote.0.options.stall;
        let began = Instant::now();
        let mut given = self.given();
        while let Some(next) = given.next {
            if next == offset {
                return Ok(());
            }
            if next > offset || began.elapsed() > patience {
                return Err(Error::Unsupported {
                    what: format!("writing at {offset} when the next byte is {next}"),
                    why: "this server takes bytes in order only".into(),
                });
            }
            given = self.turn.wait_timeout(given, TURN).expect(NO_PANIC).0;
        }
        Ok(())
    }

    fn keep(&self, kept: &mut Vec<u8>, block: Block<'_>) -> Result<()> {
        let range = block.range();
        if range.end > KEPT_MAX {
            return Err(Error::Changed {
                path: self.plan.path.clone(),
                what: format!("it is longer than was said: byte {}", range.end),
            });
        }
        let range = range.start as usize..range.end as usize;
        kept.resize(kept.len().max(range.end), 0);
        kept[range].copy_from_slice(block.bytes);
        Ok(())
    }

    fn hash(&self, block: Block<'_>) {
        if let Some(leaves) = &self.leaves {
            let piece = Piece::of(block);
            leaves.lock().expect(NO_PANIC).add(piece);
        }
        if let Some(sums) = &self.sums {
            let part = AdlerPart::of(block);
            sums.lock().expect(NO_PANIC).add(part);
        }
    }

    fn note_given(&self, block: &Block<'_>) {
        let mut given = self.given();
        given.bytes.insert(block.range());
        if given.next.is_some() {
            given.next = Some(block.range().end);
            self.turn.notify_all();
        }
    }

    /// Returns what the server says, if it says why the data connection broke.
    fn explained(&self, error: Error) -> Error {
        if !matches!(
            error,
            Error::Lost { .. } | Error::Stalled { .. } | Error::Canceled
        ) {
            return error;
        }
        match self.told.refusal_within(EXPLAIN_MAX) {
            Some(reply) => {
                let refused = faults::check(&self.remote.0.host, &self.plan.path, &reply);
                refused.map_or_else(|refused| refused, |_| error)
            }
            None => error,
        }
    }

    /// Ends the transfer under way, and takes in what the server says of it.
    fn end_transfer(&self) -> Result<()> {
        let mut phase = self.phase.write().expect(NO_PANIC);
        let moving = match std::mem::replace(&mut *phase, Phase::Over) {
            Phase::Moving(moving) => *moving,
            other => {
                *phase = other;
                return Ok(());
            }
        };
        let Moving { sending, control } = moving;
        let ended = sending.end_with_channel();
        self.told.close();
        let ended = ended.map_err(|error| self.explained(error));
        let (mut session, last) = control.join().expect("listening does not panic");
        let (_, channel) = ended?;
        let reply = last.map_err(|error| session.about(error, &self.plan.path))?;
        if let Err(error) = faults::check(&session.host, &self.plan.path, &reply) {
            self.remote.0.give_back(session);
            *phase = Phase::Idle(None);
            return Err(error);
        }
        self.take_in(&reply);
        session.keep_data(channel, Flow::Deliver, self.plan.mode(), self.plan.streams);
        *phase = Phase::Idle(Some(Box::new(session)));
        Ok(())
    }

    /// Settles what landed: what the server says, without leaves that differ.
    fn take_in(&self, reply: &Reply) {
        let mut said = self.told.state();
        let given = self.given().bytes.clone();
        match Told::from_reply(reply).and_then(|told| told.done) {
            Some(done) => said.landed = done,
            None => said.landed = said.landed.or(&given),
        }
        let Some(leaves) = &self.leaves else {
            return;
        };
        let leaves = leaves.lock().expect(NO_PANIC);
        let size = self.plan.size.unwrap_or(said.landed.end());
        let chains = std::mem::take(&mut said.chains);
        for (leaf, chain) in chains {
            if leaves.chain(leaf, size).is_some_and(|ours| ours != chain) {
                let start = leaf.saturating_mul(LEAF_BYTES);
                said.landed.remove(start..start.saturating_add(LEAF_BYTES));
                self.given()
                    .bytes
                    .remove(start..start.saturating_add(LEAF_BYTES));
                tracing::info!(
                    leaf,
                    "a leaf differs from what was sent; it will be sent again"
                );
            }
        }
    }

    /// Sends an empty file, which no block announces.
    fn ensure_begun(&self) -> Result<()> {
        let nothing_came = self.given().bytes.is_empty() && self.told.state().landed.is_empty();
        if nothing_came && self.plan.how != How::InPlace {
            self.start(0)?;
        }
        Ok(())
    }

    /// Sends a file that was kept here: its digest is known before it is sent, so
    /// one command says and publishes it, and nothing has to be held.
    fn finish_kept(&self, whole: &Whole, bytes: Vec<u8>) -> Result<Finished> {
        let path = &self.plan.path;
        if let Some(size) = whole.size {
            let missing = self.given().bytes.missing(0..size);
            if !missing.is_empty() || bytes.len() as u64 > size {
                return Err(Error::Incomplete {
                    path: path.clone(),
                    size,
                    missing,
                });
            }
        }
        if let Some(expected) = &whole.digest {
            let found = Digest::of(expected.algorithm(), &bytes);
            if found != *expected {
                return Err(Error::Corrupt {
                    path: path.clone(),
                    expected: expected.to_string(),
                    found: found.to_string(),
                });
            }
        }
        let mut given = Some(crate::Given {
            path: path.clone(),
            bytes,
            how: self.plan.how.clone(),
            mtime: whole.mtime,
            mode: whole.mode.or(self.plan.mode),
        });
        let mut finished = None;
        self.remote
            .write_small(&mut || given.take(), &mut |_, outcome| {
                finished = Some(outcome);
            })?;
        finished.expect("each file is told once")
    }

    /// Tells whether there is nothing to hold on to: one of ours has no partial of
    /// a file without bytes.
    fn is_empty_for_ours(&self) -> bool {
        let nothing_came = self.given().bytes.is_empty() && self.told.state().landed.is_empty();
        let is_plain = matches!(self.plan.how, How::New | How::Replace(None));
        self.plan.family == Family::Godwit && nothing_came && is_plain
    }

    fn digest_of_sent(&self, size: u64) -> Option<Digest> {
        let leaves = self.leaves.as_ref()?.lock().expect(NO_PANIC);
        leaves.root(size)
    }

    fn session(&self) -> Result<Session> {
        let mut phase = self.phase.write().expect(NO_PANIC);
        match std::mem::replace(&mut *phase, Phase::Over) {
            Phase::Idle(Some(session)) => Ok(*session),
            _ => self.remote.0.take(),
        }
    }

    fn publish(&self, session: &mut Session, whole: &Whole) -> Result<Finished> {
        let plan = &self.plan;
        if let How::Replace(Some(version)) = &plan.how {
            check_unchanged(&self.remote, session, plan, version)?;
        }
        match plan.family {
            Family::Godwit if plan.is_apart() => self.publish_ours(session, whole),
            _ => self.publish_there(session, whole),
        }
    }

    fn publish_ours(&self, session: &mut Session, whole: &Whole) -> Result<Finished> {
        let plan = &self.plan;
        let size = whole.size.or(plan.size);
        let sent = size.and_then(|size| self.digest_of_sent(size));
        let named = whole
            .digest
            .as_ref()
            .filter(|d| d.algorithm() == Algorithm::Blake3);
        if let (Some(sent), Some(named)) = (&sent, named)
            && sent != named
        {
            return Err(Error::Corrupt {
                path: plan.path.clone(),
                expected: named.to_string(),
                found: sent.to_string(),
            });
        }
        let source = self.compare_with_source(whole, size)?;
        let digest = named.or(sent.as_ref());
        let upload = Upload {
            size,
            modify: whole.mtime,
            mode: whole.mode.or(plan.mode),
            blake3: digest,
            how: Some(plan.how_word()),
            ..plan.upload()
        };
        let reply = session.ask_one(upload.finish(&plan.name)?)?;
        faults::check(&session.host, &plan.path, &reply)?;
        let told = Told::from_reply(&reply).unwrap_or_default();
        let verified = match (digest, &told.blake3) {
            (Some(ours), Some(theirs)) if ours == theirs => Verified::By(Algorithm::Blake3),
            (Some(ours), Some(theirs)) => {
                return Err(Error::Corrupt {
                    path: plan.path.clone(),
                    expected: ours.to_string(),
                    found: theirs.to_string(),
                });
            }
            // It was published only if it hashed to this.
            (Some(_), None) => Verified::By(Algorithm::Blake3),
            _ => match &whole.digest {
                Some(expected) => self.compare_published(session, expected)?,
                None => Verified::SizeOnly,
            },
        };
        // The weaker of both ways is what the whole way is worth.
        let verified = match (source, verified) {
            (Some(by), Verified::By(_)) => Verified::By(by),
            (_, verified) => verified,
        };
        let digest = told.blake3.clone().or(digest.cloned());
        Ok(Finished {
            version: digest.clone().map_or(Version::None, Version::Strong),
            digests: digest.into_iter().collect(),
            verified,
            reread_bytes: told.reread.unwrap_or(0),
            ..Finished::default()
        })
    }

    /// Compares what was sent with a digest of another kind that the source told.
    fn compare_with_source(&self, whole: &Whole, size: Option<u64>) -> Result<Option<Algorithm>> {
        let Some(named) = whole
            .digest
            .as_ref()
            .filter(|d| d.algorithm() != Algorithm::Blake3)
        else {
            return Ok(None);
        };
        if named.algorithm() != Algorithm::Adler32 {
            return Err(Error::Unsupported {
                what: format!("comparing an upload with {}", named.algorithm()),
                why: "only BLAKE3 and ADLER32 are computed on the way".into(),
            });
        }
        let sums = self.sums.as_ref();
        let summed = sums.and_then(|sums| sums.lock().expect(NO_PANIC).total(size?));
        match summed {
            Some(summed) if summed != *named => Err(Error::Corrupt {
                path: self.plan.path.clone(),
                expected: named.to_string(),
                found: summed.to_string(),
            }),
            summed => Ok(summed.map(|_| Algorithm::Adler32)),
        }
    }

    /// Compares a published file with a digest that only a foreign source could
    /// tell, of an algorithm that is not computed on the way. What is wrong does
    /// not stay under its name.
    fn compare_published(&self, session: &mut Session, expected: &Digest) -> Result<Verified> {
        let (plan, by) = (&self.plan, expected.algorithm());
        let reply = session.ask_one(client::checksum(by, None, &plan.name)?)?;
        faults::check(&session.host, &plan.path, &reply)?;
        let found = client::checksum_of(&reply, by)?;
        if found == *expected {
            return Ok(Verified::By(by));
        }
        names::remove(session, &plan.path, &plan.name, crate::What::File)?;
        Err(Error::Corrupt {
            path: plan.path.clone(),
            expected: expected.to_string(),
            found: found.to_string(),
        })
    }

    fn publish_there(&self, session: &mut Session, whole: &Whole) -> Result<Finished> {
        let plan = &self.plan;
        let found = names::stat(session, &plan.path, plan.file())?;
        if let Some(size) = whole.size
            && found.size > size
            && plan.how == How::InPlace
        {
            let cut = Set {
                length: Some(size),
                ..Set::default()
            };
            names::set(session, &plan.path, plan.file(), &cut)?;
        } else if let Some(size) = whole.size
            && found.size != size
        {
            return Err(Error::Corrupt {
                path: plan.path.clone(),
                expected: format!("{size} bytes"),
                found: format!("{} bytes", found.size),
            });
        }
        let digest = self.compare(session, whole, whole.size.unwrap_or(found.size))?;
        self.dress(session, whole)?;
        if plan.is_apart() {
            self.move_in(session)?;
        }
        let stat = names::stat(session, &plan.path, &plan.name)?;
        Ok(Finished {
            version: stat.version(now()),
            verified: digest
                .as_ref()
                .map_or(Verified::SizeOnly, |d| Verified::By(d.algorithm())),
            digests: self
                .digest_of_sent(stat.size)
                .into_iter()
                .chain(digest)
                .collect(),
            ..Finished::default()
        })
    }

    /// Compares what is there with what was to be there, by a checksum that both know.
    fn compare(&self, session: &mut Session, whole: &Whole, size: u64) -> Result<Option<Digest>> {
        let offered = session.peer.features.checksums();
        let named = whole
            .digest
            .clone()
            .filter(|d| offered.contains(&d.algorithm()));
        let summed = || {
            let sums = self.sums.as_ref()?.lock().expect(NO_PANIC);
            sums.total(size)
                .filter(|_| offered.contains(&Algorithm::Adler32))
        };
        let Some(expected) = named.or_else(summed) else {
            return Ok(None);
        };
        let by = expected.algorithm();
        let reply = session.ask_one(client::checksum(by, None, self.plan.file())?)?;
        faults::check(&session.host, &self.plan.path, &reply)?;
        let found = client::checksum_of(&reply, by)?;
        if found == expected {
            return Ok(Some(expected));
        }
        Err(Error::Corrupt {
            path: self.plan.path.clone(),
            expected: expected.to_string(),
            found: found.to_string(),
        })
    }

    /// Gives the file its time and mode. A server that cannot is no reason to fail.
    fn dress(&self, session: &mut Session, whole: &Whole) -> Result<()> {
        let plan = &self.plan;
        let mode = match whole.mode.or(plan.mode) {
            // What is replaced keeps its mode.
            None if plan.is_apart() => names::stat(session, &plan.path, &plan.name)
                .ok()
                .and_then(|stat| stat.mode),
            mode => mode,
        };
        let sets = [
            Set {
                mode,
                ..Set::default()
            },
            Set {
                mtime: whole.mtime,
                ..Set::default()
            },
        ];
        for set in sets {
            match names::set(session, &plan.path, plan.file(), &set) {
                Err(error) if session.is_broken => return Err(error),
                Err(error) => tracing::debug!(%error, "attributes were not set"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Renames the part to its name.
    fn move_in(&self, session: &mut Session) -> Result<()> {
        let plan = &self.plan;
        // Between two of ours nothing comes between the look and the rename; another
        // program may, since FTP knows no "only if it is free".
        let _alone = self.remote.0.publishing.lock().expect(NO_PANIC);
        if plan.how == How::New && names::exists(session, &plan.path, &plan.name)? {
            return Err(Error::Exists {
                path: plan.path.clone(),
            });
        }
        let reply = client::rename(session, plan.file(), &plan.name)?;
        if reply.is_positive() {
            return Ok(());
        }
        // Some servers rename only to names that are free.
        let refused = faults::check(&session.host, &plan.path, &reply).map(drop);
        match names::stat(session, &plan.path, &plan.name) {
            Ok(stat) if stat.kind == Kind::Directory => {
                return Err(Error::IsDirectory {
                    path: plan.path.clone(),
                });
            }
            Ok(_) => names::remove(session, &plan.path, &plan.name, crate::What::File)?,
            Err(_) => return refused,
        }
        let reply = client::rename(session, plan.file(), &plan.name)?;
        faults::check(&session.host, &plan.path, &reply).map(drop)
    }

    /// Returns where a small file is kept until it is whole, if it goes through here.
    fn kept(&self) -> Option<&Mutex<Vec<u8>>> {
        self.kept.as_ref().filter(|_| !self.is_drawn.load(Relaxed))
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().expect(NO_PANIC)
    }
}

impl Sink for Delivering {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if block.bytes.is_empty() {
            return Ok(());
        }
        if let Some(kept) = &self.kept {
            self.keep(&mut kept.lock().expect(NO_PANIC), block)?;
            self.note_given(&block);
            return Ok(());
        }
        loop {
            let phase = self.phase.read().expect(NO_PANIC);
            match &*phase {
                Phase::Moving(moving) => {
                    self.await_turn(block.offset)?;
                    self.hash(block);
                    moving
                        .sending
                        .put(block)
                        .map_err(|error| self.explained(error))?;
                    self.note_given(&block);
                    return Ok(());
                }
                Phase::Over => {
                    return Err(Error::Lost {
                        host: self.remote.0.host.clone(),
                        during: "writing".into(),
                        cause: std::io::ErrorKind::BrokenPipe.into(),
                    });
                }
                Phase::Idle(_) => {}
            }
            drop(phase);
            self.start(block.offset)?;
        }
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        let Some(leaves) = &self.leaves else {
            return Ok(());
        };
        let size = self.plan.size.unwrap_or(u64::MAX);
        let differs = leaves
            .lock()
            .expect(NO_PANIC)
            .chain(leaf, size)
            .is_some_and(|ours| ours != chain);
        if differs {
            let start = leaf.saturating_mul(LEAF_BYTES);
            let range = start..start.saturating_add(LEAF_BYTES);
            self.given().bytes.remove(range.clone());
            self.told.state().landed.remove(range);
        }
        Ok(())
    }

    fn draw(
        &self,
        source: &dyn Store,
        path: &Path,
        want: &Extents,
        streams: usize,
        on: &dyn Fn(Range<u64>),
    ) -> Result<Option<Read>> {
        match source.as_remote() {
            Some(source) => {
                let read = self.relay(source, path, want, streams, on)?;
                self.is_drawn.store(read.is_some(), Relaxed);
                Ok(read)
            }
            None => Ok(None),
        }
    }

    /// What landed, and what is on its way; when all is, the server's word is awaited.
    fn done(&self) -> Extents {
        let all = |this: &Self| this.told.state().landed.or(&this.given().bytes);
        let done = all(self);
        if self.plan.size.is_some_and(|size| done.contains(&(0..size))) {
            if let Err(error) = self.end_transfer() {
                tracing::debug!(%error, "the transfer did not end well");
                return self.told.state().landed.clone();
            }
            return all(self);
        }
        done
    }

    /// What landed before, as long as there is a tree that lacks it.
    fn unseen(&self) -> Extents {
        let (Some(size), true) = (self.plan.size, self.leaves.is_some() || self.sums.is_some())
        else {
            return Extents::new();
        };
        let given = self.given().bytes.clone();
        let shown = self.shown.lock().expect(NO_PANIC).clone();
        let before = self.plan.landed.minus(&given).minus(&shown);
        before.within(0..size).collect()
    }

    fn show(&self, block: Block<'_>) -> Result<()> {
        self.hash(block);
        self.shown.lock().expect(NO_PANIC).insert(block.range());
        Ok(())
    }

    fn settle(&self) -> Result<Extents> {
        if self.kept().is_some() {
            return Ok(self.given().bytes.clone());
        }
        self.end_transfer()?;
        Ok(self.told.state().landed.clone())
    }

    fn commit(&self) -> Result<Extents> {
        self.settle()
    }

    fn finish(mut self: Box<Self>, whole: &Whole) -> Result<Finished> {
        if let Some(kept) = self.kept() {
            let bytes = std::mem::take(&mut *kept.lock().expect(NO_PANIC));
            let finished = self.finish_kept(whole, bytes);
            self.is_published = finished.is_ok();
            return finished;
        }
        if self.is_empty_for_ours() {
            let finished = self.finish_kept(whole, Vec::new());
            self.is_published = finished.is_ok();
            return finished;
        }
        self.ensure_begun()?;
        let landed = self.settle()?;
        if let Some(size) = whole.size {
            let missing = landed.missing(0..size);
            if !missing.is_empty() {
                return Err(Error::Incomplete {
                    path: self.plan.path.clone(),
                    size,
                    missing,
                });
            }
        }
        let mut session = self.session()?;
        let finished = self.publish(&mut session, whole);
        let finished = finished.map_err(|error| session.about(error, &self.plan.path));
        self.remote.0.give_back(session);
        self.is_published = finished.is_ok();
        if self.is_published {
            self.plan.part.forget();
        }
        finished
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        self.stop();
        let mut session = self.remote.0.take()?;
        let plan = &self.plan;
        let line = match plan.family {
            Family::Godwit => plan.upload().abandon(&plan.name)?,
            _ if !plan.is_apart() => return Ok(()),
            _ => Line::new("DELE").bytes(plan.file())?,
        };
        // There may be nothing to forget.
        session.ask_one(line)?;
        self.told.state().landed = Extents::new();
        plan.part.forget();
        self.remote.0.give_back(session);
        Ok(())
    }
}

impl Delivering {
    /// Breaks off, and waits for the server to notice: then an attempt that
    /// follows at once can go on with what landed.
    fn stop(&self) {
        let phase = std::mem::replace(&mut *self.phase.write().expect(NO_PANIC), Phase::Over);
        match phase {
            Phase::Moving(moving) => {
                let Moving { sending, control } = *moving;
                drop(sending);
                self.told.close();
                self.told.refusal_within(NOTICE_MAX);
                if control.is_finished()
                    && let Ok((session, Ok(_))) = control.join()
                {
                    self.remote.0.give_back(session);
                }
            }
            Phase::Idle(Some(session)) => self.remote.0.give_back(*session),
            _ => {}
        }
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        self.stop();
        if !self.is_published {
            self.plan.part.note(&self.told.state().landed);
        }
    }
}

impl Words {
    fn state(&self) -> MutexGuard<'_, Said> {
        self.state.lock().expect(NO_PANIC)
    }

    fn close(&self) {
        self.state().is_closing = true;
        self.closing.raise();
    }

    /// Waits for the end of the dialogue; returns the refusal if it ended with one.
    fn refusal_within(&self, patience: Duration) -> Option<Reply> {
        let said = self.state();
        let waited = self
            .ended
            .wait_timeout_while(said, patience, |said| !said.has_ended);
        waited.expect(NO_PANIC).0.refusal.clone()
    }
}

/// Hears what the server says of one transfer.
struct Listening {
    session: Session,
    told: Arc<Words>,
    watch: Arc<Watch>,
    options: super::RemoteOptions,
}

impl Listening {
    fn until_final(mut self, begun: Begun) -> (Session, Result<Reply>) {
        let last = match begun {
            Begun::Over(reply) => Ok(reply),
            Begun::Moving => self.hear(),
        };
        let mut said = self.told.state();
        said.has_ended = true;
        match &last {
            Ok(reply) if reply.is_positive() => {}
            Ok(reply) => {
                said.refusal = Some(reply.clone());
                self.watch.cancel();
            }
            Err(_) => {
                self.session.is_broken = true;
                self.watch.cancel();
            }
        }
        drop(said);
        self.told.ended.notify_all();
        (self.session, last)
    }

    fn hear(&mut self) -> Result<Reply> {
        let (mut since, mut moved) = (Instant::now(), 0);
        loop {
            while let Some(reply) = self.session.heard()? {
                if reply.is_final() {
                    return Ok(reply);
                }
                since = Instant::now();
                self.on_word(&reply)?;
            }
            let is_closing = self.told.state().is_closing;
            // As long as there is more to send, whoever sends knows best.
            if !is_closing || self.watch.moved_bytes() != moved {
                (since, moved) = (Instant::now(), self.watch.moved_bytes());
            }
            if since.elapsed() > self.options.stall {
                return Err(Error::Stalled {
                    host: self.session.host.clone(),
                    during: "waiting for the end of the upload".into(),
                    waited: since.elapsed(),
                });
            }
            self.wait(is_closing)?;
        }
    }

    fn wait(&mut self, is_closing: bool) -> Result<()> {
        let cancel = self.options.cancel.as_fd();
        let waited = if is_closing {
            wait_readable([self.session.as_fd(), cancel], TICK)
        } else {
            let fds = [self.session.as_fd(), cancel, self.told.closing.as_fd()];
            wait_readable(fds, TICK).map(|[word, stop, _]| [word, stop])
        };
        let [word, stop] = waited.map_err(|cause| Error::io("a socket", cause))?;
        if stop {
            return Err(Error::Canceled);
        }
        if word {
            self.session.listen("sending data")?;
        }
        Ok(())
    }

    fn on_word(&self, reply: &Reply) -> Result<()> {
        match Marker::from_reply(reply)? {
            Some(Marker::Ranges(ranges)) => {
                let mut said = self.told.state();
                said.landed = said.landed.or(&ranges);
            }
            Some(Marker::Leaves { first, chains }) => {
                let mut said = self.told.state();
                for (leaf, chain) in (first..).zip(chains) {
                    said.chains.insert(leaf, chain);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn sending_watch(sending: &Sending<Channel, Arc<Watch>>) -> Arc<Watch> {
    sending.watch().clone()
}

/// Refuses if the file is not the version that was to be replaced.
fn check_unchanged(
    remote: &Remote,
    session: &mut Session,
    plan: &Delivery,
    version: &Version,
) -> Result<()> {
    let found = match version {
        Version::Strong(digest) => {
            digest_of(remote, session, plan, digest.algorithm()).map(Version::Strong)
        }
        _ => names::stat(session, &plan.path, &plan.name).map(|stat| stat.version(now())),
    };
    let found = match found {
        Ok(found) => found,
        Err(Error::Missing { .. }) => Version::None,
        Err(error) => return Err(error),
    };
    match version.compare(&found) {
        Strength::Same | Strength::Likely | Strength::AskAgain => Ok(()),
        Strength::Unknown if *version == Version::None => Ok(()),
        _ => Err(Error::Changed {
            path: plan.path.clone(),
            what: "it is not the version that was to be replaced".into(),
        }),
    }
}

/// Returns the digest of what stands under the name, read back if the server computes none.
fn digest_of(
    remote: &Remote,
    session: &mut Session,
    plan: &Delivery,
    by: Algorithm,
) -> Result<Digest> {
    if session.peer.features.checksums().contains(&by) {
        let reply = session.ask_one(client::checksum(by, None, &plan.name)?)?;
        faults::check(&session.host, &plan.path, &reply)?;
        return Ok(client::checksum_of(&reply, by)?);
    }
    let hashing = ReadBack(Mutex::new(Some(Hashing::new(by))));
    remote.read(&plan.path, &Extents::from(0..u64::MAX), 1, &hashing)?;
    let hashed = hashing.0.lock().expect(NO_PANIC).take();
    Ok(hashed.expect("it is taken here only").finish())
}

/// Hashes what comes in order, as it does on one stream.
struct ReadBack(Mutex<Option<Hashing>>);

impl Sink for ReadBack {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if let Some(hashing) = &mut *self.0.lock().expect(NO_PANIC) {
            hashing.update(block.bytes);
        }
        Ok(())
    }

    fn done(&self) -> Extents {
        Extents::new()
    }

    fn commit(&self) -> Result<Extents> {
        Ok(Extents::new())
    }

    fn finish(self: Box<Self>, _: &Whole) -> Result<Finished> {
        Ok(Finished::default())
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Returns a word that stands for what is copied, so that a partial of anything
/// else has another name.
fn tag(write: &Write<'_>) -> Option<String> {
    let origin = write.origin?;
    let version = match &origin.version {
        Version::Strong(digest) => digest.to_string(),
        // When it was seen does not matter.
        Version::Weak { size, mtime, .. } => format!("{size} {mtime:?}"),
        other => format!("{other:?}"),
    };
    let text = format!("{}\n{version}", origin.name);
    let digest = Digest::of(Algorithm::Blake3, text.as_bytes());
    Some(digest.hex()[..12].to_owned())
}

/// Returns an id that no other upload has.
fn unique_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Relaxed);
    format!("{:x}-{:x}-{count}", std::process::id(), now().as_nanos())
}

/// Returns the name of a part beside the file: `.NAME.TAG.godwit-part`.
pub(super) fn part_name(name: &[u8], tag: Option<&str>) -> Vec<u8> {
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    let file = path.file_name().map_or(&[][..], |f| f.as_bytes());
    let folder = &name[..name.len() - file.len().min(name.len())];
    let tag = tag.map_or(String::new(), |tag| format!(".{tag}"));
    let file = &file[..file.len().min(NAME_MAX)];
    [folder, b".", file, tag.as_bytes(), names::PART_SUFFIX].concat()
}

const TICK: Duration = Duration::from_millis(500);
const TURN: Duration = Duration::from_millis(250);
/// How long a server may take to say why it closed the data connection.
const EXPLAIN_MAX: Duration = Duration::from_secs(2);
/// How long a server may take to notice that we went away.
const NOTICE_MAX: Duration = Duration::from_secs(5);
/// Names of 255 bytes are the longest; this leaves room for what is added.
const NAME_MAX: usize = 220;
/// A small file that turned out a little longer is still kept.
const KEPT_MAX: u64 = 2 * SMALL_BYTES;
const NO_PANIC: &str = "no thread panics while it holds this";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_beside_the_file() {
        assert_eq!(part_name(b"/a/b", Some("x")), b"/a/.b.x.godwit-part");
        assert_eq!(part_name(b"b", None), b".b.godwit-part");
    }
}
