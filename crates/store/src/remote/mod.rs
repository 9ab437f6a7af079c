//! Files on an FTP or GridFTP server.
//!
//! A [`Remote`] keeps a few sessions open. `wire` decides their commands. This module has sockets, deadlines, and the
//! choice of commands by the kind of server: a node, a GridFTP server, or any other.
//!
//! Retry is the engine's, with one exception: an idle session that the server ended is replaced.

mod attend;
pub(crate) mod connect;
mod data;
mod deliver;
mod faults;
mod fetch;
mod headway;
mod member;
mod names;
mod parts;
mod proof;
mod proven;
mod session;
mod small;
mod through;
mod ticket;
mod tls;
mod tunnel;

use crate::{
    BlockWriter, Capabilities, Entry, Error, Finished, HopStatus, NextFile, Read, Remedy,
    RemovalKind, Result, Set, Sink, Small, SmallResult, SmallWrite, Space, Stat, Store, TAKEN,
    THERE, Walk, Write,
    channel::{Cancel, TransferMode},
    mark::RequestId,
    store::{read_one_by_one, walk_by_listing, walk_on, write_one_by_one},
};
use data::Hosts;
use fetch::RemoteFetch;
use godwit_core::{Algorithm, Block, Digest, Extents, Scheme, Url};
use godwit_trust::Credential;
use godwit_wire::{
    client::{self, Credentials, DataHints, Family, FtpPeer, Line, LinesAhead},
    features::Features,
    shield::Level,
};
pub use member::Member;
use names::Depth;
use parking_lot::{Mutex, MutexGuard};
use parts::RemoteParts;
pub(crate) use proof::is_renewed;
pub use proof::{LoginBy, Proofs, TrustOptions, Whom};
use session::RemoteSession;
pub(crate) use session::{ALIVE_WITHIN, ASK_AFTER, Flow};
use std::{
    fmt,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

/// Options for opening a server.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// How long nothing may come.
    pub stall: Duration,
    /// How long a connection, or finding the host, may take.
    pub connect: Duration,
    /// Stops everything.
    pub cancel: Cancel,
    /// How uploads to foreign servers appear.
    pub appear: Appear,
    /// Whether nodes compute hashes of the bytes that they read and write.
    pub digests: bool,
    /// The directory for notes of landed ranges, for servers that cannot be asked. Another process can resume by
    /// them. `None`: no notes.
    pub notes: Option<PathBuf>,
    /// The buffer size of data connections at both ends; `None`: the kernels' choice.
    pub tcp_buffer: Option<u32>,
    /// The client makes all data connections.
    pub passive: bool,
    /// One host of a striped server moves all bytes.
    pub one_host: bool,
    /// For servers of `gsiftp:`, and of `ftp:` that are to be private.
    pub trust: TrustOptions,
    /// The id of this operation, which nodes write to their logs.
    pub mark: RequestId,
}

/// How an upload appears on a server that is no node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Appear {
    /// Under another name until it is whole, then renamed.
    #[default]
    WhenWhole,
    /// Under its name from the first byte, for servers that forbid to rename.
    AtOnce,
}

impl RemoteOptions {
    /// Returns the defaults, stopped by `cancel`.
    pub fn new(cancel: Cancel) -> Self {
        Self {
            stall: Duration::from_secs(30),
            connect: Duration::from_secs(15),
            cancel,
            appear: Appear::default(),
            digests: true,
            notes: None,
            tcp_buffer: None,
            passive: false,
            one_host: false,
            trust: TrustOptions::default(),
            mark: RequestId::new(),
        }
    }
}

/// A server as a store.
///
/// Paths that begin with `/` are from the server's root, all others from the
/// login directory; on GridFTP servers, ours among them, both are the same.
#[derive(Clone)]
pub struct Remote(Arc<RemoteInner>, Arc<Path>);

struct RemoteInner {
    url: Url,
    host: String,
    port: Option<u16>,
    login: LoginKind,
    who: Credentials,
    options: RemoteOptions,
    idle: Mutex<Vec<RemoteSession>>,
    known: Mutex<Option<ServerFacts>>,
    /// We have been logged in there.
    has_greeted: AtomicBool,
    /// The server cannot connect to us.
    is_behind_wall: AtomicBool,
    /// Stores of this server whose connections are as hints say.
    hinted: Mutex<Vec<(DataHints, Remote)>>,
    /// Parts on servers of others.
    parts: RemoteParts,
    /// The credential for data connections between two servers that have no common name.
    throw_away: Mutex<Option<Credential>>,
    /// Held from the look whether a name is free until it is taken.
    publishing: Mutex<()>,
}

/// How a server learns who we are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LoginKind {
    /// RFC 959, in clear.
    Password,
    /// The password under TLS (RFC 4217).
    Tls,
    /// GSI, before the login.
    Proof,
    /// Kerberos, likewise.
    Ticket,
    /// `ssh` has said it.
    Shell,
}

/// The facts that the last login learned of the server.
#[derive(Clone)]
struct ServerFacts {
    peer: Arc<FtpPeer>,
    round_trip: Duration,
}

impl From<&RemoteSession> for ServerFacts {
    fn from(session: &RemoteSession) -> Self {
        Self {
            peer: Arc::new(session.peer.clone()),
            round_trip: session.round_trip,
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.port.unwrap_or_default();
        write!(f, "Remote({}:{port})", self.0.host)
    }
}

impl Remote {
    /// Returns a store as a server that can send to another; `None`: it is none.
    pub fn of<S: Store + ?Sized>(store: &S) -> Option<&Self> {
        store.facets().peer?.as_any()?.downcast_ref()
    }

    /// Opens the server of a URL, whose path is ignored. No command is sent yet.
    pub fn open(url: &Url, options: &RemoteOptions) -> Result<Self> {
        let not_served = |why: &str| Error::not_served(url.without_password(), why);
        let scheme = url.scheme();
        let (login, nobody) = match scheme {
            Scheme::Ftp if options.trust.by == LoginBy::Ticket => {
                (LoginKind::Ticket, Credentials::mapped())
            }
            Scheme::Ftp if options.trust.level == Level::Private => {
                (LoginKind::Tls, Credentials::anonymous())
            }
            Scheme::Ftp => (LoginKind::Password, Credentials::anonymous()),
            Scheme::Gsiftp => (LoginKind::Proof, options.trust.whom.credentials()),
            Scheme::Sshftp => (LoginKind::Shell, Credentials::mapped()),
            _ => {
                let why = scheme.not_served();
                return Err(not_served(why.unwrap_or("it is not on an FTP server")));
            }
        };
        let is_proved = matches!(login, LoginKind::Proof | LoginKind::Tls);
        if !is_proved && login != LoginKind::Ticket && options.trust.level != Level::Clear {
            return Err(Error::unsupported(
                "protecting what is transferred",
                format!(
                    "{}: goes in clear; ftp: with --private or --kerberos and gsiftp: can be protected",
                    scheme.as_str()
                ),
            ));
        }
        if !is_proved && options.trust.expect.is_some() {
            return Err(Error::unsupported(
                "knowing who the server is",
                "ftp: proves nothing but with --private; gsiftp: does",
            ));
        }
        let host = url.host().ok_or_else(|| not_served("it names no host"))?;
        let usual = scheme.default_port().unwrap_or(21);
        let (host, port) = (host.to_resolve(), url.port());
        let at = connect::host_port(&host, port.unwrap_or(usual));
        let who = match remembered(login, &host, url) {
            Ok(Some((user, password))) => Credentials { user, password },
            Ok(None) => Credentials {
                user: url.user().map_or(nobody.user, Into::into),
                password: url.password().map_or(nobody.password, Into::into),
            },
            Err(cause) => return Err(Error::not_proved(&at)(cause)),
        };
        // The port of ssh's own configuration has priority over the default.
        let port = port.or((login != LoginKind::Shell).then_some(usual));
        let server = format!("{}://{}@{at}", scheme.as_str(), who.user);
        let inner = RemoteInner {
            url: url.clone(),
            host,
            port,
            login,
            who,
            options: options.clone(),
            idle: Mutex::default(),
            known: Mutex::default(),
            has_greeted: AtomicBool::new(false),
            is_behind_wall: AtomicBool::new(options.passive),
            hinted: Mutex::default(),
            parts: RemoteParts::new(options.notes.clone(), server),
            throw_away: Mutex::default(),
            publishing: Mutex::default(),
        };
        Ok(Self(Arc::new(inner), Path::new("").into()))
    }

    /// Returns the same server by other connections, which are as hints say.
    pub(crate) fn hinted(&self, hints: &DataHints) -> Result<Self> {
        let hints = DataHints {
            streams: 0,
            ..*hints
        };
        let mut hinted = self.0.hinted.lock();
        let remote = match hinted.iter().find(|(of, _)| *of == hints) {
            Some((_, remote)) => remote.clone(),
            None => {
                let options = RemoteOptions {
                    tcp_buffer: (hints.tcp_buffer > 0).then_some(hints.tcp_buffer),
                    passive: hints.passive,
                    one_host: hints.one_host,
                    ..self.0.options.clone()
                };
                let remote = Self::open(&self.0.url, &options)?;
                hinted.truncate(HINTED_MAX - 1);
                hinted.insert(0, (hints, remote.clone()));
                remote
            }
        };
        Ok(Self(remote.0, self.1.clone()))
    }

    /// Returns the same server seen from one of its directories: paths without a
    /// leading slash begin there.
    pub fn below(&self, directory: &Path) -> Self {
        Self(self.0.clone(), self.1.join(directory).into())
    }

    /// Returns a path as the server expects it; one that leaves the starting directory is refused.
    fn name(&self, session: &RemoteSession, path: &Path) -> Result<Vec<u8>> {
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(Error::bad_name(path, "it contains `..`"));
        }
        let name = session.peer.name(self.1.join(path).as_os_str().as_bytes());
        if session.family() != Family::Godwit && name.iter().any(|b| b"\r\n".contains(b)) {
            return Err(client::Unspeakable.into());
        }
        if name.last().is_some_and(u8::is_ascii_whitespace)
            && session.peer.banner.contains("Pure-FTPd")
        {
            return Err(Error::bad_name(
                path,
                "Pure-FTPd drops spaces at the end of a name",
            ));
        }
        Ok(name)
    }

    /// Opens another session for small files with its data connection, if the server is a known node. A transfer
    /// takes it from the idle ones. An error here occurs again in the transfer, which reports it.
    pub(crate) fn prepare(&self, flow: Flow) {
        if self.is_narrow() {
            return; // those that wait for a port would be in the way
        }
        let known = self.0.known().clone();
        let is_ours = known.is_some_and(|known| known.peer.family() == Family::Godwit);
        if !is_ours || self.0.login == LoginKind::Shell {
            return;
        }
        let prepared = self.0.open(&[Line::new("EPSV")]).and_then(|mut session| {
            let watch = fetch::new_watch(&self.0.options)?;
            let channel = session.open_data(flow, TransferMode::Extended, 1, Hosts::One, &watch)?;
            session.keep_data(channel, flow, TransferMode::Extended, 1, Hosts::One);
            Ok(session)
        });
        match prepared {
            Ok(session) => self.0.give_back(session),
            Err(error) => tracing::debug!(%error, "no conversation was prepared"),
        }
    }

    /// Returns how many conversations can have a data port at once, as far as is known.
    pub(crate) fn data_ports(&self) -> usize {
        let known = self.0.known().clone();
        known.map_or(usize::MAX, |known| known.peer.features.data_ports())
    }

    fn is_narrow(&self) -> bool {
        self.data_ports() < NARROW
    }

    /// Returns the command that asks a node for a file's attributes. It can be sent before the server's kind is
    /// known.
    fn looking(&self, path: &Path) -> Option<Line> {
        let ours = FtpPeer {
            features: Features::of(["GODWIT 1"]),
            ..FtpPeer::default()
        };
        let name = ours.name(self.1.join(path).as_os_str().as_bytes());
        Line::new("MLST").bytes(&name).ok()
    }

    /// Runs `ask` in a conversation of its own.
    fn with<T>(&self, path: &Path, ask: impl FnOnce(&mut RemoteSession) -> Result<T>) -> Result<T> {
        self.with_ahead(path, &[], ask)
    }

    /// Runs `f` as [`Remote::with`] does; a login also sends `ahead`.
    fn with_ahead<T>(
        &self,
        path: &Path,
        ahead: &[Line],
        ask: impl FnOnce(&mut RemoteSession) -> Result<T>,
    ) -> Result<T> {
        let mut session = self.0.take_or_open(ahead)?;
        let answer = ask(&mut session).map_err(|error| session.about(error, path));
        self.0.give_back(session);
        answer
    }

    /// Makes a file at least so long. SITE TRNC of GCT only cuts.
    fn lengthen(&self, path: &Path, length: u64) -> Result<()> {
        let is_short =
            self.with(path, |session| {
                let name = self.name(session, path)?;
                Ok(session.family() == Family::Grid
                    && names::stat(session, path, &name)?.size < length)
            })?;
        if !is_short {
            return Ok(());
        }
        let write = Write::with(crate::WriteMode::InPlace);
        let sink = self.write(path, &write)?;
        sink.put(Block::at(length - 1, &[0]))?;
        sink.finish(&crate::Expected::default()).map(drop)
    }

    /// Returns a credential that no authority signed, for transfers between this server and others. Both ends of each
    /// receive it.
    fn throw_away(&self, session: &RemoteSession) -> Result<Credential> {
        let mut made = self.0.throw_away.lock();
        let is_fresh = |made: &&Credential| made.not_after() > SystemTime::now() + THROW_AWAY / 2;
        if let Some(made) = made.as_ref().filter(is_fresh) {
            return Ok(made.clone());
        }
        let new = godwit_trust::lab::throw_away(THROW_AWAY);
        let new = new.map_err(Error::not_proved(&session.host))?;
        Ok(made.insert(new).clone())
    }

    fn known(&self) -> Result<ServerFacts> {
        if let Some(known) = self.0.known().clone() {
            return Ok(known);
        }
        let session = self.0.take()?;
        let known = ServerFacts::from(&session);
        self.0.give_back(session);
        Ok(known)
    }
}

impl RemoteInner {
    /// Returns how the server is called.
    fn at(&self) -> String {
        match self.port {
            Some(port) => connect::host_port(&self.host, port),
            None => self.host.clone(),
        }
    }

    /// Returns a session that is in no other use.
    fn take(&self) -> Result<RemoteSession> {
        self.take_or_open(&[])
    }

    /// Takes a session as [`RemoteInner::take`] does. Prefers one whose connections with the server of `other` are kept.
    fn take_for(&self, other: &RemoteSession) -> Result<RemoteSession> {
        let wanted = other.pair().map(|pair| pair.id);
        let is_its = |one: &RemoteSession| one.pair().map(|pair| pair.id) == wanted;
        let its = {
            let mut idle = self.idle.lock();
            let at = idle.iter().rposition(is_its);
            at.map(|at| idle.remove(at))
        };
        if let Some(mut session) = its
            && !session.is_stale()
            && session.answers()
        {
            return Ok(session);
        }
        self.take()
    }

    fn take_or_open(&self, ahead: &[Line]) -> Result<RemoteSession> {
        self.options.cancel.check()?;
        loop {
            let idle = self.idle.lock().pop();
            let Some(mut session) = idle else { break };
            if session.is_stale() || session.is_outdated() {
                continue;
            }
            if session.answers() {
                return Ok(session);
            }
            // The others went the same way.
            self.idle.lock().clear();
        }
        self.open(ahead)
    }

    /// Begins a session; a node receives `lines` with the login.
    fn open(&self, lines: &[Line]) -> Result<RemoteSession> {
        let before = self.known().clone();
        let calls_itself_ours = |known: &ServerFacts| {
            known.peer.family() == Family::Godwit && known.peer.banner.contains("godwit")
        };
        let ahead = LinesAhead {
            is_ours: before.as_ref().is_some_and(calls_itself_ours),
            lines,
        };
        let at = (self.host.as_str(), self.port);
        let opened = RemoteSession::open(at, self.login, &self.who, &self.options, ahead);
        let now = opened.as_ref().ok().map(|session| {
            let now = ServerFacts::from(session);
            // A wait for the greeting includes the start of the server.
            let shortest = before.map_or(now.round_trip, |known| known.round_trip);
            ServerFacts {
                round_trip: now.round_trip.min(shortest),
                ..now
            }
        });
        // Who cannot be talked to any more is a stranger next time.
        *self.known() = now;
        match self.has_greeted.fetch_or(opened.is_ok(), Relaxed) {
            true => opened.map_err(faults::of_one_that_greeted),
            false => opened,
        }
    }

    /// Takes back a conversation, if there is use for it.
    fn give_back(&self, mut session: RemoteSession) {
        if session.is_broken || session.outstanding() > 0 {
            return;
        }
        session.used_at = Instant::now();
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(session);
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<ServerFacts>> {
        self.known.lock()
    }
}

impl Store for Remote {
    fn can(&self) -> Result<Capabilities> {
        let ServerFacts { peer, .. } = self.known()?;
        let family = peer.family();
        let is_ours = family == Family::Godwit;
        let in_blocks = family != Family::Plain;
        Ok(Capabilities {
            any_order: in_blocks,
            again: false,
            // Some servers keep the bytes behind those of a REST and STOR, others cut them off (Pure-FTPd).
            in_place: in_blocks,
            append: false,
            attempts: false,
            atomic: is_ours || self.0.options.appear == Appear::WhenWhole,
            // A GridFTP server reports landed blocks in markers, every five seconds: too rarely for a promise.
            resume: is_ours || (!in_blocks && peer.features.restarts_streams()),
            ranges: in_blocks || peer.features.restarts_streams(),
            write: true,
            set_mtime: client::set_mtime(&peer, Duration::ZERO, b"x").is_some(),
            set_mode: in_blocks || peer.site.contains("CHMOD"),
            xattrs: false,
            links: is_ours,
            space: is_ours,
            digests: peer.features.checksums(),
            leaves: is_ours,
            passes_on: peer.features.passes_on(),
        })
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        let looking = self.looking(path);
        self.with_ahead(path, looking.as_slice(), |session| {
            let name = self.name(session, path)?;
            names::stat(session, path, &name)
        })
    }

    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.with(path, |session| {
            let name = self.name(session, path)?;
            names::list(session, &self.0.options, path, &name, Depth::One, each)
        })
    }

    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        let fetch = |session: &RemoteSession| {
            Ok::<_, Error>(RemoteFetch {
                path,
                name: self.name(session, path)?,
                want,
                streams,
                into,
                options: &self.0.options,
            })
        };
        let ServerFacts { peer, .. } = self.known()?;
        let is_walled = || self.0.is_behind_wall.load(Relaxed);
        if peer.family() == Family::Plain || (peer.family() == Family::Grid && is_walled()) {
            return self.with(path, |session| fetch(session)?.in_streams(session));
        }
        let read = self.with(path, |session| fetch(session)?.in_blocks(session));
        match read {
            Err(error) if peer.family() == Family::Grid && cannot_connect_back(&error) => {
                // It cannot reach us: a firewall, or an address translator.
                tracing::info!(
                    host = self.0.host,
                    "data connections to us do not come; going on in stream mode"
                );
                self.0.is_behind_wall.store(true, Relaxed);
                self.with(path, |session| fetch(session)?.in_streams(session))
            }
            read => read,
        }
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        deliver::begin(self.clone(), path, write)
    }

    fn remove(&self, path: &Path, what: RemovalKind) -> Result<()> {
        self.with(path, |session| {
            let name = self.name(session, path)?;
            names::remove(session, path, &name, what)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.with(from, |session| {
            let (from_name, to_name) = (self.name(session, from)?, self.name(session, to)?);
            let reply = client::rename(session, &from_name, &to_name)?;
            faults::check(&session.host, from, &reply).map(drop)
        })
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        self.with(path, |session| {
            let name = self.name(session, path)?;
            names::mkdir(session, path, &name)
        })
    }

    fn set(&self, path: &Path, set: &Set) -> Result<()> {
        if !set.xattrs.is_empty() || set.atime.is_some() {
            return Err(Error::unsupported(
                "setting extended attributes, or the time of reading,",
                "FTP has no words for them",
            ));
        }
        self.with(path, |session| {
            let name = self.name(session, path)?;
            if set.link_to.is_some() && session.family() != Family::Godwit {
                return Err(Error::unsupported(
                    "making a link",
                    "servers of others make links relative to where they run",
                ));
            }
            names::set(session, path, &name, set)
        })?;
        match set.length {
            Some(length) => self.lengthen(path, length),
            None => Ok(()),
        }
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        self.with(path, |session| {
            if !session.peer.features.checksums().contains(&by) {
                return Err(Error::unsupported(
                    format!("{by} of a file"),
                    format!("{} does not compute it", session.host),
                ));
            }
            let name = self.name(session, path)?;
            names::digest(session, path, client::checksum(by, range, &name)?, by)
        })
    }

    crate::has!(self, Facets: peer transit batch volume);
}

impl crate::Peer for Remote {
    fn round_trip(&self) -> Duration {
        // Who cannot be reached is at no distance; asking him will say why.
        self.known()
            .map_or(Duration::ZERO, |known| known.round_trip)
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }

    fn stripes(&self) -> usize {
        self.known().map_or(1, |known| known.peer.stripes())
    }
}

impl crate::Batch for Remote {
    fn walk_all(&self, path: &Path, walk: &mut Walk<'_>) -> Result<()> {
        let ServerFacts { peer, .. } = self.known()?;
        // GCT lists a tree in an order of its own, and writes line feeds raw; a node lists directories first.
        if peer.family() != Family::Godwit || !names::lists_trees(&peer) {
            return walk_by_listing(self, path, walk);
        }
        let at_once = |each: &mut dyn FnMut(Entry) -> Result<()>| {
            self.with(path, |session| {
                let name = self.name(session, path)?;
                names::list(session, &self.0.options, path, &name, Depth::All, each)
            })
        };
        let mut plain = |each: &mut dyn FnMut(Entry) -> Result<()>| {
            if !self.is_narrow() {
                return at_once(each);
            }
            // A listing in progress holds a port, and `each` may wait for threads that wait for one.
            let mut found = Vec::new();
            at_once(&mut |entry| {
                found.push(entry);
                Ok(())
            })?;
            found.into_iter().try_for_each(each)
        };
        walk_on(self, path, &mut plain, walk)
    }

    fn hidden(&self, path: &Path) -> Result<Vec<PathBuf>> {
        if self.known()?.peer.family() != Family::Godwit {
            return Ok(Vec::new());
        }
        self.with(path, |session| {
            let name = self.name(session, path)?;
            names::hidden(session, path, &name)
        })
    }

    fn read_small(
        &self,
        next: &mut NextFile<'_, PathBuf>,
        each: &mut SmallResult<'_, Small>,
    ) -> Result<()> {
        let family = self.known()?.peer.family();
        if family == Family::Plain || self.0.is_behind_wall.load(Relaxed) {
            return read_one_by_one(self, next, each);
        }
        self.with(Path::new(""), |session| {
            small::read(self, session, next, each)
        })
    }

    fn write_small(
        &self,
        next: &mut NextFile<'_, SmallWrite>,
        each: &mut SmallResult<'_, Finished>,
    ) -> Result<()> {
        match self.known()?.peer.family() {
            Family::Godwit => small::write_to_ours(self, next, each),
            Family::Grid => self.with(Path::new(""), |session| {
                small::write_to_grid(self, session, next, each)
            }),
            Family::Plain => write_one_by_one(self, next, each),
        }
    }

    fn mkdir_many(&self, paths: &[&Path]) -> Vec<Result<()>> {
        let one_by_one = || paths.iter().map(|path| self.mkdir(path)).collect();
        let is_ours = |known: ServerFacts| known.peer.family() == Family::Godwit;
        if paths.len() < 2 || !self.known().is_ok_and(is_ours) {
            return one_by_one();
        }
        let made = self.with(Path::new(""), |session| {
            let named = |path: &&Path| Ok((path.to_path_buf(), self.name(session, path)?));
            let named = paths.iter().map(named).collect::<Result<Vec<_>>>()?;
            names::mkdir_many(session, &named)
        });
        // One name that cannot be said, or a lost conversation, is no fault of all.
        made.unwrap_or_else(|_| one_by_one())
    }
}

impl crate::Transit for Remote {
    fn flush(&self, path: &Path) -> Result<()> {
        self.with(path, |session| {
            if session.family() != Family::Godwit {
                return Ok(());
            }
            let name = self.name(session, path)?;
            names::flush(session, path, &name)
        })
    }

    /// FTP has no command for the hops behind a server.
    fn trace(&self, path: &Path, _passed: &[String]) -> Result<Vec<HopStatus>> {
        let mut station = HopStatus::at_the_end(self.stat(path))?;
        let is_somewhere = station.stage == THERE;
        if is_somewhere && self.can()?.passes_on {
            station.stage = TAKEN.into();
            station.why = OUT_OF_SIGHT.into();
        }
        station.at = self.0.at();
        Ok(vec![station])
    }

    fn decide(&self, path: &Path, _what: Remedy, _passed: &[String]) -> Result<()> {
        if !self.can()?.passes_on {
            return Err(Error::missing(path));
        }
        Err(Error::Unsupported {
            what: "deciding by FTP on what a hop holds".into(),
            why: format!(
                "{} is one, and is asked by its door (godwit://…) only",
                self.0.at()
            ),
        })
    }
}

impl crate::Volume for Remote {
    fn space(&self, path: &Path) -> Result<Space> {
        self.with(path, |session| {
            let name = self.name(session, path)?;
            names::space(session, path, &name)
        })
    }
}

const OUT_OF_SIGHT: &str = "it passes things on, and FTP does not tell whether it has passed this on; a URL by its door (godwit://…) \
     does";

/// Returns the login of the user's netrc file, if the URL has no password. In clear, a URL without a user is an
/// anonymous login, whatever the file has.
fn remembered(
    login: LoginKind,
    host: &str,
    url: &Url,
) -> godwit_trust::Result<Option<(String, String)>> {
    let is_asked = match login {
        LoginKind::Tls => true,
        LoginKind::Password => url.user().is_some(),
        LoginKind::Proof | LoginKind::Ticket | LoginKind::Shell => false,
    };
    let is_nobody = matches!(url.user(), Some("anonymous" | "ftp"));
    match is_asked && !is_nobody && url.password().is_none() {
        true => godwit_trust::netrc_login(host, url.user()),
        false => Ok(None),
    }
}

/// Tells whether a GridFTP server says, by words or by saying nothing, that its data
/// connection did not reach us.
fn cannot_connect_back(error: &Error) -> bool {
    let words = [
        "connection refused",
        "connection timed out",
        "no route to host",
        "unreachable",
    ];
    match error {
        Error::Stalled { during, .. } => during == attend::TO_BEGIN,
        Error::Lost { .. } | Error::Unsupported { .. } | Error::Refused { .. } => {
            let said = error.to_string().to_ascii_lowercase();
            words.iter().any(|words| said.contains(words))
        }
        _ => false,
    }
}

/// A server with fewer data ports has sessions take turns.
const NARROW: usize = 32;
/// How many kinds of connections to a server are kept.
const HINTED_MAX: usize = 8;
const THROW_AWAY: Duration = Duration::from_secs(30 * 86_400);
/// More conversations than this are not kept when nothing is to be said.
const IDLE_MAX: usize = 16;
