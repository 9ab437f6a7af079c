//! From a request to a verb of the store, and back.

use super::{
    HttpsDoor, KnownCaller, Visitor, catalog, depot, download, health,
    noted::Noting,
    peers,
    reply::{BEAT, HttpReply, ReplyLines},
    run, stopping, upload, writing,
};
use godwit_core::{Extents, Kind};
use godwit_store::{
    Error, Nowhere, PASSED_MAX, RemovalKind, Set, Stat, Store, StoreExt, Walk,
    channel::Watch,
    door::{
        RequestBody,
        words::{CallForm, algorithm},
    },
};
use godwit_wire::door::{
    LINES_TYPE, OLDEST, OPENAPI, REVISION, ROOT, VERSION,
    call::{
        self, AskBecame, AskDecide, AskDigest, AskGrant, AskList, AskMkdir, AskPath, AskPush,
        AskRemove, AskRename, AskSet, AskStat, AskTrace, Hello, Line, Name, Refusal, Text,
        UNKNOWN_CALL,
    },
    park, path,
    speaker::Speaker,
};
use hyper::{
    HeaderMap, Method, Response,
    body::Incoming,
    header::{ALLOW, AUTHORIZATION, CONTENT_TYPE},
};
use serde::de::DeserializeOwned;
use std::{path::Path, sync::Arc, time::Duration};

/// The result of a call.
pub(super) type CallResult = Result<(), Refusal>;

/// A request, of which all was heard but bytes of files.
pub(super) struct ReceivedCall {
    pub(super) head: hyper::http::request::Parts,
    /// Its body, if that is a text.
    pub(super) text: Vec<u8>,
    /// Its body, if that is bytes of files.
    pub(super) body: Incoming,
}

/// Tells whether a request is refused unless its client is known, or may ask without a name.
pub(super) fn asks_who(head: &hyper::http::request::Parts) -> bool {
    let target = head.uri.path();
    match called(&head.method, target, None) {
        Ok(Some((Does::Known(_) | Does::Upload(_), _))) => {
            target.strip_prefix(ROOT) != Some("read") || bearer(&head.headers).is_none()
        }
        Ok(None) => !health::is_asked(target),
        Ok(Some((Does::Anybody(_) | Does::Keyed(_), _))) | Err(_) => false,
    }
}

/// Tells whether a request's body is read before the request has a thread: if it is text.
pub(super) fn is_heard_first(head: &hyper::http::request::Parts, visitor: &Visitor) -> bool {
    let (method, target) = (&head.method, head.uri.path());
    match called(method, target, None) {
        Ok(Some((Does::Anybody(_), _))) => true,
        Ok(Some((Does::Keyed(_), _))) => visitor.key.is_some(),
        Ok(Some((Does::Known(_) | Does::Upload(_), _))) => {
            *method != Method::PUT && target.strip_prefix(ROOT) != Some("write")
        }
        Ok(None) | Err(_) => false,
    }
}

/// Answers one request.
pub(super) fn answer(
    door: &HttpsDoor,
    visitor: &Arc<Visitor>,
    heard: ReceivedCall,
    reply: HttpReply,
) {
    let ReceivedCall { head, text, body } = heard;
    let (method, target) = (head.method.clone(), head.uri.path().to_owned());
    tracing::debug!(%method, target, "asked");
    if let (&Method::GET | &Method::HEAD, Some(answer)) = (&method, health::answer(door, &target)) {
        return reply.whole(answer);
    }
    let call = match called(&method, &target, reply.theirs()) {
        Ok(call) => call,
        Err(CallError::Method(allowed)) => return wrong_method(&target, allowed, reply),
        Err(CallError::Call(refusal)) => return reply.refuse(refusal),
    };
    // A client with an invite is not known yet.
    if let Some((Does::Anybody(work) | Does::Keyed(work), _)) = call {
        return work(door, visitor, &text, reply);
    }
    if let Some(secret) = bearer(&head.headers)
        && target.strip_prefix(ROOT) == Some("read")
    {
        return download::granted(door, visitor, (&secret, &text), reply);
    }
    let known = match door.access(&visitor.who) {
        Ok(known) => known,
        Err(refusal) => return reply.refuse(refusal),
    };
    let known = &known;
    // Reads check that once the file is known.
    if target.strip_prefix(ROOT) != Some("read")
        && let Err(refusal) = may_begin(door, known, call.map(|(does, _)| does))
    {
        return reply.refuse(refusal);
    }
    let asked = ClientCall {
        door,
        visitor,
        known,
        head,
        text,
        body,
        reply,
    };
    match call {
        Some((Does::Known(work), _)) => work(asked),
        Some((Does::Upload(work), named)) => upload::answer(asked, named, work),
        _ => match path::of_target(&target) {
            Ok(path) => download::file(asked, &method, &path),
            Err(error) => asked
                .reply
                .refuse(Refusal::of_kind(Kind::Invalid, error.to_string())),
        },
    }
}

/// Tells whether a stopping node still takes a call: only of a client that has an upload in flight.
pub(super) fn may_begin(door: &HttpsDoor, known: &KnownCaller, does: Option<Does>) -> CallResult {
    if !door.shared.stop.is_draining() {
        return Ok(());
    }
    let stall = door.shared.config.limits.stall;
    match does {
        // A closed upload is reported by the call itself.
        Some(Does::Upload(_)) => Ok(()),
        _ if door.uploads.go_on_of(known.owner(), stall) => Ok(()),
        _ => Err(stopping()),
    }
}

/// A call: its method, its name, its work.
///
/// In names, `{id}` stands for an upload, and `{path}` for the rest.
pub(super) struct Call(pub(super) Method, pub(super) &'static str, Does);

/// The work of a call, and its clients.
#[derive(Clone, Copy)]
pub(super) enum Does {
    /// Any client.
    Anybody(TextCall),
    /// A client that shows a key may ask.
    Keyed(TextCall),
    /// Clients with rights.
    Known(fn(ClientCall<'_>)),
    /// Clients that may write, about an upload.
    Upload(upload::UploadCall),
}

/// Answers a text, without a check of the client.
type TextCall = fn(&HttpsDoor, &Visitor, &[u8], HttpReply);

/// Every call that this node knows.
pub(super) const CALLS: &[Call] = &[
    Call(Method::GET, "openapi.json", Does::Anybody(describe)),
    Call(Method::POST, "join", Does::Keyed(peers::join)),
    Call(Method::POST, "leave", Does::Keyed(peers::leave)),
    Call(Method::POST, "rekey", Does::Keyed(peers::rekey)),
    Call(Method::GET, "hello", Does::Known(|asked| asked.hello())),
    known("stat", |asked| asked.say(stat)),
    known("list", |asked| asked.say(list)),
    known("hidden", |asked| asked.say(hidden)),
    known("read", download::pack),
    known("write", writing::pack),
    known("digest", |asked| asked.digest()),
    known("remove", |asked| asked.change(remove)),
    known("rename", |asked| asked.change(rename)),
    known("mkdir", |asked| asked.change(mkdir)),
    known("set", |asked| asked.change(set)),
    known("xattrs", |asked| asked.say(xattrs)),
    known("space", |asked| asked.say(space)),
    known("flush", |asked| {
        asked.wait(|known, path, _| known.dir.flush(path))
    }),
    known("push", |asked| asked.push()),
    known("trace", |asked| asked.trace()),
    known("decide", |asked| asked.change(decide)),
    known("depot", depot::ask),
    known("catalog", catalog::ask),
    known("catalog/change", catalog::change),
    known("catalog/make", catalog::make),
    known("run", run::run),
    known("became", |asked| asked.change(became)),
    known("grant", |asked| asked.grant()),
    // It takes the connection with it, so it is answered before it comes here.
    Call(
        Method::POST,
        park::CALL,
        Does::Anybody(|_, _, _, reply| {
            reply.refuse(Refusal::of_kind(
                Kind::Protocol,
                "a connection is parked by Upgrade",
            ));
        }),
    ),
    known("uploads", upload::begin),
    Call(
        Method::PUT,
        "uploads/{id}/{path}",
        Does::Upload(upload::put),
    ),
    upload("uploads/{id}/draw", |asked, id, _| upload::draw(asked, id)),
    upload("uploads/{id}/commit", |asked, id, _| {
        upload::commit(asked, id)
    }),
    upload("uploads/{id}/finish", |asked, id, _| {
        upload::finish(asked, id)
    }),
    upload("uploads/{id}/abandon", |asked, id, _| {
        upload::abandon(asked, id)
    }),
    upload("uploads/{id}/leave", |asked, id, _| {
        upload::leave(asked, id)
    }),
];

const fn known(name: &'static str, work: fn(ClientCall<'_>)) -> Call {
    Call(Method::POST, name, Does::Known(work))
}

const fn upload(name: &'static str, work: upload::UploadCall) -> Call {
    Call(Method::POST, name, Does::Upload(work))
}

/// The values of `{id}` and `{path}` in a name.
pub(super) type CallNames<'a> = (&'a str, &'a str);

impl Call {
    fn named<'a>(&self, call: &'a str) -> Option<CallNames<'a>> {
        let Some((before, after)) = self.1.split_once("{id}/") else {
            return (self.1 == call).then_some(("", ""));
        };
        let (id, rest) = call.strip_prefix(before)?.split_once('/')?;
        match after {
            "{path}" => Some((id, rest)),
            verb => (verb == rest).then_some((id, "")),
        }
    }
}

/// The reason why a target names no call.
enum CallError {
    /// Only this method is allowed.
    Method(&'static Method),
    Call(Refusal),
}

/// Finds the call that a target names; `None`: it names a file. An unknown call is reported before the client is
/// checked: a client of another version that joins would otherwise learn only that it is unknown.
fn called<'a>(
    method: &Method,
    target: &'a str,
    theirs: Option<&Speaker>,
) -> Result<Option<(Does, CallNames<'a>)>, CallError> {
    let Some(inside) = target.strip_prefix(INSIDE) else {
        return Ok(None);
    };
    let Some(call) = target.strip_prefix(ROOT) else {
        return Err(CallError::Call(Refusal::of_kind(
            Kind::Unsupported,
            other_version(inside),
        )));
    };
    let known = CALLS
        .iter()
        .filter_map(|known| Some((known, known.named(call)?)));
    if let Some((known, named)) = known.clone().find(|(known, _)| known.0 == *method) {
        return Ok(Some((known.2, named)));
    }
    // For an unknown call, a pattern that takes any path says nothing about the method.
    let exact = known
        .map(|(known, _)| known)
        .find(|known| !known.1.ends_with("{path}"));
    Err(match exact {
        Some(known) => CallError::Method(&known.0),
        None => CallError::Call(Refusal::of_kind(Kind::Unsupported, unknown(call, theirs))),
    })
}

/// Says which of the two must be upgraded where a visitor speaks another version.
fn other_version(inside: &str) -> String {
    let version = inside.split('/').next().unwrap_or_default();
    let number = version
        .strip_prefix('v')
        .and_then(|number| number.parse::<u32>().ok());
    let ours = Speaker::ours().name();
    let why = match number {
        Some(number) if number > VERSION => format!("this node must be upgraded: it runs {ours}"),
        Some(_) => format!("the client must be upgraded: this node runs {ours}"),
        None => "no call is named so".to_owned(),
    };
    format!("{INSIDE}{version}: this node speaks version {OLDEST} to {VERSION}; {why}")
}

fn unknown(call: &str, theirs: Option<&Speaker>) -> String {
    let why = theirs.and_then(Speaker::must_upgrade);
    let why = why.map_or(String::new(), |why| format!("; {why}"));
    format!("{UNKNOWN_CALL}{call}{why}")
}

fn wrong_method(target: &str, allowed: &'static Method, reply: HttpReply) {
    let why = format!("{target} is asked by {allowed}");
    let line = Line::Error(Refusal::of_kind(Kind::Protocol, why)).write();
    let head = Response::builder()
        .status(405)
        .header(ALLOW, allowed.as_str());
    let answer = head
        .header(CONTENT_TYPE, LINES_TYPE)
        .body(RequestBody::whole(line));
    reply.whole(answer.expect("its headers are ours"));
}

/// Sends the description of all calls, for programs.
fn describe(_: &HttpsDoor, _: &Visitor, _: &[u8], reply: HttpReply) {
    let head = Response::builder().header(CONTENT_TYPE, "application/json");
    let answer = head.body(RequestBody::whole(OPENAPI));
    reply.whole(answer.expect("its headers are ours"));
}

/// Returns the bearer token, if there is one.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let shown = headers.get(AUTHORIZATION)?.to_str().ok()?;
    Some(shown.strip_prefix("Bearer ")?.to_owned())
}

/// A request and its client.
pub(super) struct ClientCall<'a> {
    pub(super) door: &'a HttpsDoor,
    pub(super) visitor: &'a Arc<Visitor>,
    pub(super) known: &'a KnownCaller,
    pub(super) head: hyper::http::request::Parts,
    text: Vec<u8>,
    pub(super) body: Incoming,
    pub(super) reply: HttpReply,
}

impl ClientCall<'_> {
    /// Tells whether the client acts as the account of this node.
    pub(super) fn acts_as_node(&self) -> Result<bool, Refusal> {
        Ok(match &self.known.account {
            Some(account) => self.door.shared.of_another(account)?.is_none(),
            None => self.known.who.is_some(),
        })
    }

    /// Returns what notes the files that move.
    pub(super) fn noting(&self) -> Noting {
        Noting::new(&self.door.shared.journal, self.known, self.visitor)
    }

    fn hello(self) {
        let shared = &self.door.shared;
        let key = shared.trust.newest_key();
        let running = shared.running.load(std::sync::atomic::Ordering::Relaxed);
        let load = (shared.config.slots, running);
        self.say(|known, lines, ()| hello(known, lines, key, load));
    }

    /// Reads the request, does the work, and sends the result.
    pub(super) fn say<T: DeserializeOwned>(
        self,
        work: impl FnOnce(&KnownCaller, &mut ReplyLines, T) -> CallResult,
    ) {
        match self.read() {
            Ok(asked) => {
                let mut lines = self.reply.lines();
                let outcome = work(self.known, &mut lines, asked);
                lines.end(outcome);
            }
            Err(refusal) => self.reply.refuse(refusal),
        }
    }

    /// Answers a call that changes something: the client must have the right to write.
    fn change<T: DeserializeOwned>(
        self,
        work: impl FnOnce(&KnownCaller, &mut ReplyLines, T) -> CallResult,
    ) {
        match self.known.must_write() {
            Ok(()) => self.say(work),
            Err(refusal) => self.reply.refuse(refusal),
        }
    }

    /// Reads the text of the request.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        read(&self.text)
    }

    fn grant(self) {
        let grants = &self.door.grants;
        let by = Arc::clone(&self.visitor.who);
        self.say(
            |known,
             lines,
             AskGrant {
                 path: Name(path),
                 seconds,
             }| {
                // A client that may not read the file cannot grant it.
                let read = known.dir.read(&path, &Extents::new(), 1, &Nowhere);
                read?;
                let grant = grants.grant(by, known.owner(), path, Duration::from_secs(seconds))?;
                lines.say(&Line::Grant(grant)).map_err(Refusal::from)
            },
        );
    }

    /// Waits for a disk, or for nodes behind this one, which take as long as they take.
    fn wait(self, work: fn(&KnownCaller, &Path, &Watch) -> Result<(), Error>) {
        match self.read() {
            Ok(AskPath { path: Name(path) }) => self.wait_for(&path, None, work),
            Err(refusal) => self.reply.refuse(refusal),
        }
    }

    fn push(self) {
        let work =
            |known: &KnownCaller, path: &Path, watch: &Watch| known.dir.push(path, Some(watch));
        match self.read() {
            Ok(AskPush {
                path: Name(path),
                within_ms,
            }) => self.wait_for(&path, within_ms.map(Duration::from_millis), work),
            Err(refusal) => self.reply.refuse(refusal),
        }
    }

    /// Asks this node, and each behind it in turn, which takes as long as they take.
    fn trace(self) {
        let asked: AskTrace = match self.read() {
            Ok(asked) => asked,
            Err(refusal) => return self.reply.refuse(refusal),
        };
        let passed = match passed(asked.passed) {
            Ok(passed) => passed,
            Err(refusal) => return self.reply.refuse(refusal),
        };
        let (mut lines, told) = self.reply.lines().during(
            BEAT,
            Arc::new(|| Line::Beat(0)),
            || (),
            || self.known.dir.trace(&asked.path.0, &passed),
        );
        let told = told.and_then(|stations| {
            stations
                .iter()
                .try_for_each(|station| lines.say(&Line::Station(station.say())))
        });
        lines.end(told.map_err(Refusal::from));
    }

    fn wait_for(
        self,
        path: &Path,
        limit: Option<Duration>,
        work: fn(&KnownCaller, &Path, &Watch) -> Result<(), Error>,
    ) {
        let watch = match Watch::new(self.door.shared.config.limits.stall) {
            Ok(watch) => Arc::new(watch.within(limit)),
            Err(cause) => {
                return self
                    .reply
                    .refuse(Refusal::of_kind(Kind::Other, godwit_sys::why(&cause)));
            }
        };
        let gone = Arc::clone(&watch);
        let (mut lines, waited) = self.reply.lines().during(
            BEAT,
            Arc::new(|| Line::Beat(0)),
            move || gone.cancel(),
            || work(self.known, path, &watch),
        );
        let told = done(&mut lines, waited);
        lines.end(told);
    }

    fn digest(self) {
        let asked: AskDigest = match self.read() {
            Ok(asked) => asked,
            Err(refusal) => return self.reply.refuse(refusal),
        };
        if asked.range.is_some_and(|(start, end)| start > end) {
            let why = "a range ends before it begins";
            return self.reply.refuse(Refusal::of_kind(Kind::Protocol, why));
        }
        let watch = match Watch::new(self.door.shared.config.limits.stall) {
            Ok(watch) => Arc::new(watch),
            Err(cause) => {
                return self
                    .reply
                    .refuse(Refusal::of_kind(Kind::Other, godwit_sys::why(&cause)));
            }
        };
        let (beat, gone) = (Arc::clone(&watch), Arc::clone(&watch));
        let (mut lines, digest) = self.reply.lines().during(
            BEAT,
            Arc::new(move || Line::Beat(beat.moved_bytes())),
            move || gone.cancel(),
            || {
                let by = algorithm(&asked.by)?;
                let range = asked.range.map(|(start, end)| start..end);
                self.known
                    .dir
                    .digest_watched(&asked.path.0, by, range, &watch)
            },
        );
        let told = digest.and_then(|digest| lines.say(&Line::Digest(Text(digest))));
        lines.end(told.map_err(Refusal::from));
    }
}

/// Returns the nodes that forwarded a request, if their names are valid.
pub(super) fn passed(said_so: Vec<String>) -> Result<Vec<String>, Refusal> {
    let is_node = |node: &String| {
        !node.is_empty() && node.len() <= NODE_MAX && !node.contains(char::is_whitespace)
    };
    match said_so.len() <= 4 * PASSED_MAX && said_so.iter().all(is_node) {
        true => Ok(said_so),
        false => Err(Refusal::of_kind(
            Kind::Protocol,
            "no nodes are called so that passed it on",
        )),
    }
}

/// Of the name of a node.
const NODE_MAX: usize = 512;

/// Reads a body of JSON; what has none asks for nothing in particular.
pub(super) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Refusal> {
    let text = if text.is_empty() { b"null" } else { text };
    // serde would take a list of the members as well.
    if text.trim_ascii_start().starts_with(b"[") {
        return Err(Refusal::of_kind(
            Kind::Protocol,
            "an object of JSON is wanted",
        ));
    }
    call::read(text).map_err(|error| Refusal::of_kind(Kind::Protocol, error.to_string()))
}

impl KnownCaller {
    /// Refuses a client that may only read.
    pub(super) fn must_write(&self) -> CallResult {
        match self.may_write {
            true => Ok(()),
            false => {
                let why = match self.who {
                    Some(_) => "this node lets you read only",
                    None => "who does not say who they are may only read here",
                };
                Err(Refusal::of_kind(Kind::Denied, why))
            }
        }
    }
}

fn hello(
    known: &KnownCaller,
    lines: &mut ReplyLines,
    key: Option<godwit_trust::door::Fingerprint>,
    (slots, running): (usize, usize),
) -> CallResult {
    let can = known.dir.can()?;
    let hello = Hello {
        name: "godwit".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        speaks: (OLDEST, VERSION),
        revision: REVISION,
        who: known.who.as_ref().map(ToString::to_string),
        account: known.account.clone(),
        can: godwit_store::Capabilities {
            write: known.may_write,
            ..can
        }
        .say(),
        key: key.map(|key| key.to_string()),
        slots: Some(slots as u64),
        running: Some(running as u64),
        platform: Some(godwit_sys::platform()),
    };
    lines.say(&Line::Hello(hello)).map_err(Refusal::from)
}

fn stat(known: &KnownCaller, lines: &mut ReplyLines, asked: AskStat) -> CallResult {
    for Name(path) in &asked.paths {
        let line = match known.dir.stat(path) {
            Ok(stat) => Line::Stat(stat.say()),
            Err(error) => Line::Refused(Refusal::from(&error)),
        };
        lines.say(&line)?;
    }
    Ok(())
}

fn list(known: &KnownCaller, lines: &mut ReplyLines, asked: AskList) -> CallResult {
    let path = &asked.path.0;
    // One of them writes at a time.
    let lines = std::cell::RefCell::new(lines);
    let mut each = |entry: godwit_store::Entry| lines.borrow_mut().say(&Line::Entry(entry.say()));
    let listed = match asked.deep {
        false => known.dir.list(path, &mut each),
        true => {
            // If it is not heard, neither is the end.
            let hidden = &mut |hidden| drop(lines.borrow_mut().say(&Line::Hidden(Name(hidden))));
            let unread = &mut |unread, error| {
                let line = Line::Unread(Name(unread), Refusal::from(&error));
                lines.borrow_mut().say(&line)
            };
            let each = &mut each;
            known.dir.walk_all(
                path,
                &mut Walk {
                    each,
                    hidden,
                    unread,
                },
            )
        }
    };
    listed.map_err(Refusal::from)
}

fn hidden(known: &KnownCaller, lines: &mut ReplyLines, asked: AskPath) -> CallResult {
    let hidden = known.dir.hidden(&asked.path.0)?;
    for path in hidden.into_iter().take(HIDDEN_MAX) {
        lines.say(&Line::Hidden(Name(path)))?;
    }
    Ok(())
}

fn remove(known: &KnownCaller, lines: &mut ReplyLines, asked: AskRemove) -> CallResult {
    let what = if asked.directory {
        RemovalKind::Directory
    } else {
        RemovalKind::File
    };
    done(lines, known.dir.remove(&asked.path.0, what))
}

fn decide(known: &KnownCaller, lines: &mut ReplyLines, asked: AskDecide) -> CallResult {
    let passed = passed(asked.passed)?;
    done(lines, known.dir.decide(&asked.path.0, asked.what, &passed))
}

fn rename(known: &KnownCaller, lines: &mut ReplyLines, asked: AskRename) -> CallResult {
    done(lines, known.dir.rename(&asked.from.0, &asked.to.0))
}

fn mkdir(known: &KnownCaller, lines: &mut ReplyLines, asked: AskMkdir) -> CallResult {
    let paths: Vec<&Path> = asked.paths.iter().map(|name| &*name.0).collect();
    for made in known.dir.mkdir_many(&paths) {
        let line = match made {
            Ok(()) => Line::Done,
            Err(error) => Line::Refused(Refusal::from(&error)),
        };
        lines.say(&line)?;
    }
    Ok(())
}

fn set(known: &KnownCaller, lines: &mut ReplyLines, asked: AskSet) -> CallResult {
    let path = asked.path.0.clone();
    done(lines, known.dir.set(&path, &Set::heard(asked)))
}

fn xattrs(known: &KnownCaller, lines: &mut ReplyLines, asked: AskPath) -> CallResult {
    let xattrs = known.dir.xattrs(&asked.path.0);
    let told = xattrs.and_then(|xattrs| lines.say(&Line::Xattrs(xattrs.say())));
    told.map_err(Refusal::from)
}

fn space(known: &KnownCaller, lines: &mut ReplyLines, asked: AskPath) -> CallResult {
    let space = known.dir.space(&asked.path.0);
    let told = space.and_then(|space| lines.say(&Line::Space(space.say())));
    told.map_err(Refusal::from)
}

fn became(known: &KnownCaller, lines: &mut ReplyLines, asked: AskBecame) -> CallResult {
    let version = known.dir.published_as(&asked.path.0, &asked.id);
    let told = version.and_then(|version| {
        let version = version.map(|version| version.say());
        lines.say(&Line::Became(version))
    });
    told.map_err(Refusal::from)
}

/// Says that something was done, or why not.
pub(super) fn done(lines: &mut ReplyLines, done: Result<(), Error>) -> CallResult {
    let told = done.and_then(|()| lines.say(&Line::Done));
    told.map_err(Refusal::from)
}

/// Returns the entity tag of a file for caches. It is made without the digest, which would need a read.
pub(super) fn entity_tag(stat: &Stat) -> String {
    let mtime = stat.mtime.unwrap_or_default();
    format!("W/\"{:x}-{:x}\"", stat.size, mtime.as_nanos())
}

/// Targets below this are calls, never files, in all versions.
const INSIDE: &str = "/.godwit/";
const HIDDEN_MAX: usize = 100;
