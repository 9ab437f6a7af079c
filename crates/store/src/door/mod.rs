//! Files on a node, through its door: one port, HTTPS.
//!
//! A [`Door`] keeps a few connections. `wire::door` has the calls; this module has the connections, and the calls of
//! each verb. Retry is the engine's, with one exception: an idle connection that the node closed is replaced.

mod catalog;
mod clock;
mod fetch;
mod gathered;
mod keys;
mod known;
mod small;
mod store;
mod tls;
mod upload;
mod visit;
mod web;
pub mod words;

pub use crate::mark::RequestId;
use crate::{
    Capabilities, Entry, Error, RemoteOptions, Result, Stat, Store, Transit, Walk, WriteMode,
    channel::Cancel,
    error::refused,
    remote::{ALIVE_WITHIN, ASK_AFTER, connect},
};
pub use catalog::CatalogReply;
pub use gathered::Gathered;
use godwit_core::{Kind, Scheme, Url};
use godwit_trust::{
    Authorities, Credential, Expect, Invite, Peer,
    door::{Fingerprint, WantedHost},
};
use godwit_wire::{
    door::{
        JSON_TYPE, PACK_TYPE, ROOT, VERSION,
        call::{
            self, AskDepot, AskGrant, AskJoin, AskList, AskMkdir, AskPush, AskRead, AskStat, Line,
            Name, Refusal,
        },
        speaker::Speaker,
    },
    lines::LineBuffer,
    time::HttpDate,
};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, DATE, HOST, SERVER, USER_AGENT},
};
use parking_lot::Mutex;
use serde::Serialize;
use std::{
    cmp::Ordering,
    fmt, io, iter,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
pub use tls::{Tls, TlsFailure};
pub use visit::RequestBody;
use visit::{DoorConnection, Pouring, Showing};
pub(crate) use web::{Web, open};
use words::CallForm;

/// A node as a store.
#[derive(Clone)]
pub struct Door(Arc<DoorInner>);

struct DoorInner {
    /// The addresses to try, `(host, port)`.
    targets: Vec<(String, u16)>,
    /// The index of the one that answered.
    answered: AtomicUsize,
    limits: ConnectionLimits,
    connect: Duration,
    digests: bool,
    credential: Credential,
    authorities: Authorities,
    wanted: WantedHost,
    /// The peer's entry here, with its key; `None`: the node is no peer.
    pinned: Option<keys::Pinned>,
    /// The secret of a grant, shown instead of our identity.
    grant: Option<String>,
    /// The hash of the key that the node showed last.
    met: Mutex<Option<Fingerprint>>,
    /// The difference between the node's clock and ours.
    skew: Mutex<Option<Duration>>,
    idle: DoorPool,
    known: Mutex<Option<NodeAbilities>>,
    /// The version that answered last.
    theirs: Mutex<Option<Speaker>>,
    /// The id that is sent with every call.
    mark: RequestId,
}

/// Idle connections to one node, of one visitor. Clones share them.
#[derive(Clone, Default)]
pub struct DoorPool(Arc<Mutex<Vec<DoorConnection>>>);

impl fmt::Debug for DoorPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DoorPool({})", self.0.lock().len())
    }
}

impl DoorPool {
    fn pop(&self) -> Option<DoorConnection> {
        self.0.lock().pop()
    }

    fn push(&self, visit: DoorConnection) {
        let mut idle = self.0.lock();
        if idle.len() < IDLE_MAX {
            idle.push(visit);
        }
    }
}

/// Limits of every connection.
struct ConnectionLimits {
    /// How the node is called in errors.
    at: String,
    stall: Duration,
    cancel: Cancel,
}

/// The abilities and the version of the node.
#[derive(Clone)]
struct NodeAbilities {
    can: Capabilities,
    /// Whether the node knows extended attributes.
    says_xattrs: bool,
    /// The revision within the protocol's version.
    revision: u32,
    version: String,
    round_trip: Duration,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Door({})", self.0.limits.at)
    }
}

impl Door {
    /// Returns a store as a node behind a door, from which another node can draw; `None`: it is none.
    pub fn of<S: Store + ?Sized>(store: &S) -> Option<&Self> {
        store.facets().peer?.as_any()?.downcast_ref()
    }

    /// Opens the node of a URL, whose path is ignored. No call is made yet, but a node at the address of a peer is
    /// asked for its key.
    pub fn open(url: &Url, options: &RemoteOptions) -> Result<Self> {
        let not_served = |why: &str| Error::not_served(url.without_password(), why);
        if !matches!(url.scheme(), Scheme::Https | Scheme::Godwit) {
            return Err(not_served("it is not behind the door of a node"));
        }
        let host = url.host().ok_or_else(|| not_served("it names no host"))?;
        if let Some(door) = Self::of_url(url, host, options)? {
            return Ok(door);
        }
        let (host, trust) = (host.to_resolve(), &options.trust);
        let target = (host.clone(), url.port().unwrap_or(443));
        let at = connect::host_port(&target.0, target.1);
        let credential = match trust.credential.clone() {
            Some(credential) => credential,
            None => {
                let found = Credential::discover().map_err(Error::not_proved(&at))?;
                found.unwrap_or_else(Credential::nobody)
            }
        };
        let expect = trust.expect.clone().unwrap_or(Expect::Host(host));
        let wanted = WantedHost::Vouched(expect);
        Ok(Self::new(vec![target], at, credential, wanted, options))
    }

    /// Opens a node that is known by its key.
    pub fn of_peer(peer: &Peer, ours: Credential, options: &RemoteOptions) -> Result<Self> {
        let mut targets = Vec::new();
        for address in &peer.addresses {
            let url: Result<Url, _> = format!("godwit://{address}/").parse();
            let target = url
                .ok()
                .and_then(|url| Some((url.host()?.to_resolve(), url.port()?)));
            targets.push(target.ok_or_else(|| {
                Error::unreachable(
                    peer.name.clone(),
                    io::Error::other(format!("'{address}' is no address of a node")),
                )
            })?);
        }
        if targets.is_empty() {
            return Err(Error::unreachable(
                peer.name.clone(),
                io::Error::other("it has told no address: it only comes to us"),
            ));
        }
        let wanted = WantedHost::Key(peer.key);
        Ok(Self::new(targets, peer.name.clone(), ours, wanted, options))
    }

    fn new(
        targets: Vec<(String, u16)>,
        at: String,
        credential: Credential,
        wanted: WantedHost,
        options: &RemoteOptions,
    ) -> Self {
        let authorities = options.trust.authorities.clone();
        Self(Arc::new(DoorInner {
            targets,
            answered: AtomicUsize::new(0),
            limits: ConnectionLimits {
                at,
                stall: options.stall,
                cancel: options.cancel.clone(),
            },
            connect: options.connect,
            digests: options.digests,
            credential,
            authorities: authorities.unwrap_or_else(Authorities::of_servers),
            wanted,
            pinned: None,
            grant: None,
            met: Mutex::default(),
            skew: Mutex::default(),
            idle: DoorPool::default(),
            known: Mutex::default(),
            theirs: Mutex::default(),
            mark: options.mark.clone(),
        }))
    }

    /// Opens a node with the secret of a grant, which another client obtained. Connections are shared with all users
    /// of the same `idle`, which must be of this node only.
    pub fn with_grant(
        from: &[String],
        key: Fingerprint,
        secret: &str,
        (options, idle): (&RemoteOptions, &DoorPool),
    ) -> Result<Self> {
        let name = from.first().map_or("", |first| first);
        let peer = Peer::new(name, key, from);
        let door = Self::of_peer(&peer, Credential::nobody(), options)?;
        let mut inner = Arc::into_inner(door.0).expect("it is not shared yet");
        inner.grant = Some(secret.into());
        inner.idle = idle.clone();
        Ok(Self(Arc::new(inner)))
    }

    /// Asks the node for a grant to read one file, and returns its secret.
    pub fn grant(&self, path: &Path) -> Result<String> {
        let asked = AskGrant {
            path: name(path)?,
            seconds: GRANT_SECONDS,
        };
        self.call_for("grant", &asked, path, |line| match line {
            Line::Grant(grant) => Some(grant.secret),
            _ => None,
        })
    }

    /// Returns the addresses of the node, the one that answered first, and the hash of its key. From another place,
    /// another address may lead there.
    pub fn place(&self) -> Result<(Vec<String>, Fingerprint)> {
        self.known()?;
        let key = *self.0.met.lock();
        let key = key.ok_or_else(|| self.0.broke("it has shown no key"))?;
        let (before, found) = self.0.targets.split_at(self.0.answered.load(Relaxed));
        let places = found.iter().chain(before);
        let places = places.map(|(host, port)| connect::host_port(host, *port));
        Ok((places.collect(), key))
    }

    /// Says to a node that we come with its invite. `name` is how we want to be called there.
    pub fn join(&self, invite: &Invite, name: &str, addresses: &[String]) -> Result<()> {
        let asked = AskJoin {
            secret: invite.secret.clone(),
            name: name.into(),
            addresses: addresses.into(),
        };
        self.call_for("join", &asked, Path::new(&invite.name), done)
    }

    /// Has a node forget us.
    pub fn leave(&self) -> Result<()> {
        self.call_for("leave", &(), Path::new(""), done)
    }

    fn known(&self) -> Result<NodeAbilities> {
        if let Some(known) = self.0.known.lock().clone() {
            return Ok(known);
        }
        let mut found = None;
        let round_trip = self.call("hello", Method::GET, &(), Path::new(""), &mut |line| {
            match line {
                Line::Hello(hello) if found.is_none() => found = Some(hello),
                _ => return Err(self.0.broke(UNASKED)),
            }
            Ok(())
        })?;
        let hello = found.ok_or_else(|| self.0.broke("it does not say what it is"))?;
        let (oldest, newest) = hello.speaks;
        if !(oldest..=newest).contains(&VERSION) {
            let who = match newest < VERSION {
                true => format!(
                    "{} must be upgraded: it runs godwit {}",
                    self.0.limits.at, hello.version
                ),
                false => format!(
                    "this godwit must be upgraded: {} runs godwit {}",
                    self.0.limits.at, hello.version
                ),
            };
            return Err(cannot_speak(who));
        }
        let known = NodeAbilities {
            says_xattrs: hello.can.xattrs.is_some(),
            revision: hello.revision,
            can: Capabilities::heard(hello.can),
            version: hello.version,
            round_trip,
        };
        Ok(self.0.known.lock().insert(known).clone())
    }

    /// Makes a call, and passes each line of its answer to `each`, except beats. Returns the round trip to the node.
    fn call<T: Serialize>(
        &self,
        name: &str,
        method: Method,
        asked: &T,
        about: &Path,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<Duration> {
        self.call_beating(name, method, asked, about, &mut |line| match line {
            Line::Beat(_) => Ok(()),
            line => each(line),
        })
    }

    /// Makes a call as `call` does, and also runs `each` at every beat.
    fn call_beating<T: Serialize>(
        &self,
        name: &str,
        method: Method,
        asked: &T,
        about: &Path,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<Duration> {
        match self.call_raw(name, method, asked, each)? {
            Ok(round_trip) => Ok(round_trip),
            Err(refusal) => Err(self.0.refused(about, refusal)),
        }
    }

    /// Makes a call whose answer is one line.
    fn call_for<T: Serialize, R>(
        &self,
        name: &str,
        asked: &T,
        about: &Path,
        mut wanted: impl FnMut(Line) -> Option<R>,
    ) -> Result<R> {
        let mut found = None;
        self.call(name, Method::POST, asked, about, &mut |line| {
            let one = wanted(line).ok_or_else(|| self.0.broke(UNASKED))?;
            match found.replace(one) {
                None => Ok(()),
                Some(_) => Err(self.0.broke("it answers twice")),
            }
        })?;
        found.ok_or_else(|| self.0.broke("its answer does not say what was asked"))
    }

    /// Returns the attributes of many names, in as few calls as possible.
    pub fn stat_many(
        &self,
        paths: &[PathBuf],
        each: &mut dyn FnMut(&Path, Result<Stat>) -> Result<()>,
    ) -> Result<()> {
        for some in paths.chunks(NAMES_A_CALL) {
            let asked = AskStat {
                paths: some.iter().map(|path| name(path)).collect::<Result<_>>()?,
            };
            let mut left = some.iter();
            self.call("stat", Method::POST, &asked, Path::new(""), &mut |line| {
                let path = left
                    .next()
                    .ok_or_else(|| self.0.broke("it tells of more names than were asked"))?;
                each(
                    path,
                    match line {
                        Line::Stat(stat) => Ok(Stat::heard(stat)),
                        Line::Refused(refusal) => Err(refused(&self.0.limits.at, path, refusal)),
                        _ => Err(self.0.broke(UNASKED)),
                    },
                )
            })?;
            if left.next().is_some() {
                return Err(self.0.broke("it tells of fewer names than were asked"));
            }
        }
        Ok(())
    }
}

impl DoorInner {
    fn broke(&self, what: &str) -> Error {
        Error::misbehaved(self.limits.at.clone(), what)
    }

    /// Returns a connection that is in no other use.
    fn take(&self) -> Result<DoorConnection> {
        self.limits.cancel.check()?;
        loop {
            let idle = self.idle.pop();
            match idle {
                Some(visit) if visit.is_stale() => drop(visit),
                Some(visit) => match self.asked_again(visit) {
                    Some(visit) => return Ok(visit.for_whom(&self.limits)),
                    // The others went the same way.
                    None => self.idle.0.lock().clear(),
                },
                None => {
                    if let Some(visit) = self.tell_if_news(self.meet()?) {
                        return Ok(visit);
                    }
                }
            }
        }
    }

    /// Asks the node for a sign of life over a connection that was idle for a while: one whose way vanished says nothing,
    /// and the system does not notice. `None`: nothing came in time.
    fn asked_again(&self, visit: DoorConnection) -> Option<DoorConnection> {
        if visit.used_at.elapsed() < ASK_AFTER {
            return Some(visit);
        }
        let mut visit = visit.for_whom(&ConnectionLimits {
            at: String::new(),
            stall: ALIVE_WITHIN,
            cancel: self.limits.cancel.clone(),
        });
        let request = self.request(
            Method::GET,
            "/healthz",
            JSON_TYPE,
            RequestBody::whole(Bytes::new()),
        );
        let mut body = visit.ask(request, ALIVE).ok()?.into_body();
        while visit.more(&mut body, ALIVE).ok()?.is_some() {}
        Some(visit)
    }

    fn connect(&self, wanted: &WantedHost) -> Result<DoorConnection> {
        let visit = self.reach(wanted, &self.credential)?;
        tracing::debug!(host = self.limits.at, peer = %visit.peer, "visit");
        *self.met.lock() = visit.key;
        Ok(visit)
    }

    /// Visits the first place where the node is found, the last that led to it before the others.
    fn reach(&self, wanted: &WantedHost, credential: &Credential) -> Result<DoorConnection> {
        let first = self.answered.load(Relaxed);
        let mut wrong = None;
        for nth in 0..self.targets.len() {
            let nth = (first + nth) % self.targets.len();
            match self.visit(&self.targets[nth], wanted, credential) {
                Ok(visit) => {
                    self.answered.store(nth, Relaxed);
                    return Ok(visit);
                }
                Err(Error::Canceled) => return Err(Error::Canceled),
                // A node with a wrong identity is a better error than one that does not answer.
                Err(Error::Unreachable { .. }) if wrong.is_some() => {}
                Err(error) => wrong = Some(error),
            }
        }
        Err(wrong.expect("there is at least one place"))
    }

    /// A private address may belong to another machine in this network. An answer is not enough; the key must be
    /// right.
    fn visit(
        &self,
        (host, port): &(String, u16),
        wanted: &WantedHost,
        credential: &Credential,
    ) -> Result<DoorConnection> {
        let socket = connect::connect(host, *port, self.connect, &self.limits.cancel)?;
        let showing = Showing {
            credential,
            authorities: &self.authorities,
            wanted,
            host,
            at: &connect::host_port(host, *port),
        };
        DoorConnection::begin(socket, &showing, &self.limits)
    }

    /// Keeps a connection for the next call.
    fn give_back(&self, mut visit: DoorConnection) {
        if let Some(key) = visit.new_key.take() {
            self.heard_key(&key);
        }
        visit.has_poured = false;
        visit.used_at = Instant::now();
        self.idle.push(visit);
    }

    /// Asks for bytes. A refusal of the whole request is returned as an error.
    fn ask_for_pack(
        &self,
        asked: &AskRead,
        about: &Path,
        during: &str,
    ) -> Result<(DoorConnection, Incoming)> {
        let mut visit = self.take()?;
        let body = RequestBody::whole(call::write(asked));
        let request = self.request(Method::POST, &format!("{ROOT}read"), JSON_TYPE, body);
        let answer = visit.ask(request, during)?;
        let kind = answer.headers().get(CONTENT_TYPE);
        if answer.status().is_success() && kind.is_some_and(|kind| kind == PACK_TYPE) {
            self.look_at(&answer)?;
            return Ok((visit, answer.into_body()));
        }
        self.hear(visit, answer, during, about, &mut |_| Ok(()))?;
        Err(self.broke("it refuses and does not say why"))
    }

    /// Begins to send a pack.
    fn pour_pack(&self, method: Method, target: &str) -> Result<Pouring> {
        let visit = self.take()?;
        Ok(Pouring::begin(visit, |body| {
            self.request(method, target, PACK_TYPE, body)
        }))
    }

    fn request(
        &self,
        method: Method,
        target: &str,
        kind: &str,
        body: RequestBody,
    ) -> Request<RequestBody> {
        tracing::debug!(host = self.limits.at, request = %self.mark, %method, target, "ask");
        let mut request = Request::builder().method(method).uri(target);
        if let Some(secret) = &self.grant {
            request = request.header(AUTHORIZATION, format!("Bearer {secret}"));
        }
        request
            .header(HOST, &self.limits.at)
            .header(USER_AGENT, Speaker::ours().to_string())
            .header(call::MARK, self.mark.tell())
            .header(CONTENT_TYPE, kind)
            .body(body)
            .expect("a target of escaped names and a host are a request")
    }

    /// Hears an answer of lines to its end, and keeps the connection.
    fn hear(
        &self,
        visit: DoorConnection,
        answer: Response<Incoming>,
        during: &str,
        about: &Path,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<()> {
        let heard = self.hear_raw(visit, answer, during, &mut |line| match line {
            Line::Beat(_) => Ok(()),
            line => each(line),
        })?;
        heard.map_err(|refusal| self.refused(about, refusal))
    }

    /// Returns the refusal by which the answer ends, if it does.
    fn hear_raw(
        &self,
        visit: DoorConnection,
        answer: Response<Incoming>,
        during: &str,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<CatalogReply> {
        self.look_at(&answer)?;
        let status = answer.status();
        if let Some(skew) = Self::skew_in(&answer) {
            *self.skew.lock() = Some(skew);
        }
        let (mut lines, mut body, mut is_over) = (
            LineBuffer::new(call::LINE_BYTES_MAX),
            answer.into_body(),
            false,
        );
        let (begun, mut beats) = (Instant::now(), 0);
        while let Some(bytes) = visit.more(&mut body, during)? {
            lines.push(&bytes);
            let broke = |error: &dyn fmt::Display| self.broke(&error.to_string());
            while let Some((line, _)) = lines.next_line().map_err(|error| broke(&error))? {
                if is_over {
                    return Err(self.broke("more comes behind the end of its answer"));
                }
                match Line::read(line).map_err(|error| self.strange(&error.to_string()))? {
                    // The node decides how long a call takes, and the caller how long to wait. Only the rate of beats
                    // is limited.
                    Line::Beat(_) if beats > BEATS_MAX + begun.elapsed().as_secs() => {
                        return Err(self.broke("it says nothing but that it goes on"));
                    }
                    beat @ Line::Beat(_) => {
                        beats += 1;
                        each(beat)?;
                    }
                    Line::End if !status.is_success() => {
                        let what = format!("it answers {status} and does not say why");
                        return Err(self.broke(&what));
                    }
                    Line::End => is_over = true,
                    Line::Error(refusal) => {
                        // Only the end of the body may follow.
                        let rest = visit.more(&mut body, during);
                        if rest.is_ok_and(|rest| rest.is_none()) && !visit.has_poured {
                            self.give_back(visit);
                        }
                        return Ok(Err(refusal));
                    }
                    line => each(line)?,
                }
            }
        }
        if !is_over {
            return Err(self.cut(during));
        }
        self.give_back(visit);
        Ok(Ok(()))
    }

    /// Notes who answers.
    fn look_at(&self, answer: &Response<Incoming>) -> Result<()> {
        let text = |name: &str| answer.headers().get(name)?.to_str().ok();
        self.check_ours(answer)?;
        *self.theirs.lock() = match text(SERVER.as_str()) {
            Some(theirs) => Speaker::read(theirs),
            None => Some(Speaker::silent()),
        };
        Ok(())
    }

    /// Returns the error that a refusal of all that was asked stands for.
    fn refused(&self, about: &Path, refusal: Refusal) -> Error {
        // The first nodes said of a call that they did not know that it was missing.
        let is_misunderstood =
            refusal.kind == Kind::Protocol || refusal.said.starts_with(call::UNKNOWN_CALL);
        match self.must_upgrade().filter(|_| is_misunderstood) {
            Some((Ordering::Less, why)) => {
                cannot_speak(format!("{why} (it says: {})", refusal.said))
            }
            Some((_, why)) => cannot_speak(why),
            None => refused(&self.limits.at, about, refusal),
        }
    }

    /// Returns the error of an answer that this version does not understand.
    fn strange(&self, what: &str) -> Error {
        match self.must_upgrade() {
            // A newer one says nothing that an older node could not; so that one is broken.
            Some((Ordering::Greater, why)) => cannot_speak(why),
            _ => self.broke(what),
        }
    }

    /// Returns which of the two must be upgraded, and how the node is to us; `None`: neither.
    fn must_upgrade(&self) -> Option<(Ordering, String)> {
        let (theirs, ours) = (self.theirs.lock().clone()?, Speaker::ours());
        let (at, is) = (&self.limits.at, theirs.compared());
        let (theirs, ours) = (theirs.name(), ours.name());
        let why = match is {
            Ordering::Equal => return None,
            Ordering::Less => format!("{at} must be upgraded: it runs {theirs}, this is {ours}"),
            Ordering::Greater => {
                format!("this godwit must be upgraded: it is {ours}, {at} runs {theirs}")
            }
        };
        Some((is, why))
    }

    /// Returns the error of an answer that was cut.
    fn cut(&self, during: &str) -> Error {
        Error::lost(self.limits.at.clone(), during, io::ErrorKind::UnexpectedEof)
    }

    /// Refuses the answer of a server that is no node, and one with a compression that was not asked for.
    fn check_ours(&self, answer: &Response<Incoming>) -> Result<()> {
        let headers = answer.headers();
        if let Some(coding) = headers.get(CONTENT_ENCODING)
            && headers.contains_key(call::MARK)
        {
            let what = format!("its answer is encoded ({coding:?}), which was not asked for");
            return Err(self.broke(&what));
        }
        if headers.contains_key(call::MARK) {
            return Ok(());
        }
        let (at, status) = (&self.limits.at, answer.status());
        Err(Error::unsupported(
            "reading and writing there",
            format!(
                "{at} is no godwit (it answered {status}): other servers of HTTPS are not spoken with in this version"
            ),
        ))
    }
}

impl Door {
    /// Makes a call to the depot of that machine; passes each line of the answer to `each`. At every line and every
    /// beat, `is_wanted` tells whether to continue.
    pub fn depot(
        &self,
        asked: &AskDepot,
        is_wanted: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<()> {
        let about = asked.url.clone().unwrap_or_default();
        let about = Path::new(&about);
        self.call_beating(
            "depot",
            Method::POST,
            asked,
            about,
            &mut |line| match (is_wanted(), line) {
                (false, _) => Err(Error::Canceled),
                (true, Line::Beat(_)) => Ok(()),
                (true, line) => each(line),
            },
        )
        .map(drop)
    }

    fn push_within(&self, path: &Path, within: Option<Duration>) -> Result<()> {
        let revision = self.known()?.revision;
        if revision < COUNTS_ATTEMPTS {
            return Transit::flush(self, path);
        }
        // Earlier nodes are no hops, and therefore need no time limit.
        let within = within.filter(|_| revision >= PASSES_ON);
        let asked = AskPush {
            path: name(path)?,
            within_ms: within.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX)),
        };
        let told = self.call_for("push", &asked, path, done);
        told.map_err(|error| match error {
            Error::Lost { host, cause, .. } => Error::lost(host, PUSHING, cause),
            Error::Stalled { host, waited, .. } => Error::stalled(host, PUSHING, waited),
            other => other,
        })
    }

    /// Refuses an append at a node that would execute a repeated one twice.
    fn must_count(&self) -> Result<()> {
        let known = self.known()?;
        match known.can.append {
            true => Ok(()),
            false if known.can.passes_on => Err(Error::unsupported(
                "appending there",
                format!(
                    "{} only passes on, and passes no appends on in its version ({}): append to where it leads, or upgrade it",
                    self.0.limits.at, known.version
                ),
            )),
            false => Err(self.too_old("appending each thing once", &known)),
        }
    }

    /// Refuses counted attempts at a node that would accept superseded ones.
    fn must_count_attempts(&self) -> Result<()> {
        let known = self.known()?;
        match known.can.attempts {
            true => Ok(()),
            false => Err(self.too_old("counting attempts", &known)),
        }
    }

    /// Refuses extended attributes at a node that does not know them.
    fn must_say_xattrs(&self) -> Result<()> {
        let known = self.known()?;
        match known.says_xattrs {
            true => Ok(()),
            false => Err(self.too_old("extended attributes, and times of reading,", &known)),
        }
    }

    fn too_old(&self, what: &str, known: &NodeAbilities) -> Error {
        let (at, version) = (&self.0.limits.at, &known.version);
        Error::unsupported(
            what,
            format!("{at} must be upgraded: it runs godwit {version}, which does not know it"),
        )
    }

    /// Makes directories, in this order; says of each what became of it.
    fn make(&self, paths: &[&Path], names: Vec<Name>) -> Vec<Result<()>> {
        let (mut made, at) = (Vec::new(), &self.0.limits.at);
        let asked = AskMkdir { paths: names };
        let told = self.call("mkdir", Method::POST, &asked, Path::new(""), &mut |line| {
            let path = paths.get(made.len());
            let path =
                path.ok_or_else(|| self.0.broke("it tells of more names than were asked"))?;
            made.push(match line {
                Line::Done => Ok(()),
                Line::Refused(refusal) => Err(refused(at, path, refusal)),
                _ => Err(self.0.broke(UNASKED)),
            });
            Ok(())
        });
        if let Err(error) = told {
            made.truncate(paths.len() - 1);
            made.push(Err(error));
        }
        // The results behind the broken call are unknown.
        made.resize_with(paths.len(), || Err(self.0.cut("mkdir")));
        made
    }

    fn entries(&self, path: &Path, deep: bool, walk: &mut Walk<'_>) -> Result<()> {
        let asked = AskList {
            path: name(path)?,
            deep,
        };
        self.call("list", Method::POST, &asked, path, &mut |line| match line {
            Line::Entry(entry) if is_below(&entry.path.0, deep) => (walk.each)(Entry::heard(entry)),
            Line::Entry(entry) => {
                let what = format!("it lists {:?}, which is not there", entry.path.0);
                Err(self.0.broke(&what))
            }
            Line::Hidden(name) => {
                (walk.hidden)(name.0);
                Ok(())
            }
            Line::Unread(name, refusal) => {
                let error = refused(&self.0.limits.at, &name.0, refusal);
                (walk.unread)(name.0, error)
            }
            _ => Err(self.0.broke(UNASKED)),
        })
        .map(drop)
    }
}

/// Returns a path as calls carry it, relative to the node's root.
fn name(path: &Path) -> Result<Name> {
    let bad = |why: &str| Error::bad_name(path, why);
    let bytes = path.as_os_str().as_bytes();
    if bytes.contains(&0) {
        return Err(bad("a name cannot contain a zero byte"));
    }
    let mut inside = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => inside.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => return Err(bad("it contains `..`")),
        }
    }
    Ok(Name(inside))
}

/// Cuts a range into pieces of a length that stays in the processor's cache from one step to the
/// next.
pub fn pieces(range: Range<u64>, bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut left = range;
    iter::from_fn(move || {
        let end = (left.start / bytes + 1).saturating_mul(bytes);
        let piece = left.start..end.min(left.end);
        left.start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Tells whether something is to be appended once, and no more.
fn is_numbered(how: &WriteMode) -> bool {
    matches!(how, WriteMode::Append { seq, .. } if *seq > 0)
}

/// Tells whether a name can be in a directory that is listed, or below it.
fn is_below(path: &Path, deep: bool) -> bool {
    match path.components().count() {
        0 => false,
        1 => true,
        _ => deep,
    }
}

fn cannot_speak(why: String) -> Error {
    Error::unsupported("speaking with each other", why)
}

fn done(line: Line) -> Option<()> {
    matches!(line, Line::Done).then_some(())
}

/// From this revision on a node counts attempts, and can be asked what became of them.
const COUNTS_ATTEMPTS: u32 = 2;
/// The first revision that receives the hops of an upload and the time limit of a push.
const PASSES_ON: u32 = 3;
const PUSHING: &str = "waiting for what was pushed, so it is unknown whether it arrived,";
/// Longer than the usual outage of a link; transfers that began in time continue.
const GRANT_SECONDS: u64 = 3600;
const NAMES_A_CALL: usize = 10_000;
/// A node tells no more of them.
const HIDDEN_MAX: usize = 10_000;
/// Beside one a second.
const BEATS_MAX: u64 = 1_000;
const UNASKED: &str = "a line that was not asked for";
const ALIVE: &str = "waiting for a sign of life";
/// More connections than this are not kept when nothing is to be said.
const IDLE_MAX: usize = 64;
