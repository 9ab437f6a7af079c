//! From a request to a verb of the store, and back.

use super::{
    Door, Known, Visitor, health, peers, reading, refused,
    reply::{Lines, Reply},
    said, uploads, writing,
};
use godwit_core::Extents;
use godwit_store::{
    Error, Nowhere, Set, Stat, Store, What,
    channel::Watch,
    door::words::{Said, algorithm},
};
use godwit_wire::door::{
    OLDEST, ROOT, VERSION,
    call::{
        self, AskDigest, AskGrant, AskList, AskMkdir, AskPath, AskRemove, AskRename, AskSet,
        AskStat, Hello, LINE_BYTES_MAX, Line, Name, Refusal, Text, Why,
    },
    path,
};
use hyper::{
    HeaderMap, Method, Request,
    body::Incoming,
    header::{ALLOW, AUTHORIZATION},
};
use serde::de::DeserializeOwned;
use std::{path::Path, sync::Arc, time::Duration};

/// What a call comes to: nothing more to say, or why not.
type Outcome = Result<(), Refusal>;

/// Answers one request.
pub(super) fn answer(
    door: &Door,
    visitor: &Arc<Visitor>,
    request: Request<Incoming>,
    reply: Reply,
) {
    let (head, body) = request.into_parts();
    let (method, target) = (head.method.clone(), head.uri.path().to_owned());
    tracing::debug!(%method, target, "asked");
    if let (&Method::GET | &Method::HEAD, Some(answer)) = (&method, health::answer(door, &target)) {
        return reply.whole(answer);
    }
    match (&method, target.strip_prefix(ROOT)) {
        // Who comes with an invite is not known yet.
        (&Method::POST, Some("join")) => return peers::join(door, visitor, body, reply),
        (&Method::POST, Some("leave")) => return peers::leave(door, visitor, reply),
        _ => {}
    }
    if let Some(secret) = bearer(&head.headers)
        && target.strip_prefix(ROOT) == Some("read")
    {
        return reading::granted(door, &secret, body, reply);
    }
    let known = match &visitor.access {
        Ok(known) => known,
        Err(refusal) => return reply.refuse(refusal.clone()),
    };
    let asked = Asked {
        door,
        visitor,
        known,
        head,
        body,
        reply,
    };
    match target.strip_prefix(ROOT) {
        Some(call) => asked.call(&method, call),
        None if target.starts_with("/.godwit/") => {
            let why = format!(
                "{target}: this node speaks {ROOT} (from {OLDEST} to {VERSION}); one of the two must be upgraded"
            );
            asked.reply.refuse(said(Why::Unsupported, why));
        }
        None => match path::of_target(&target) {
            Ok(path) => reading::file(asked, &method, &path),
            Err(error) => asked.reply.refuse(said(Why::BadName, error.to_string())),
        },
    }
}

/// Returns what is shown beside who somebody is.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let shown = headers.get(AUTHORIZATION)?.to_str().ok()?;
    Some(shown.strip_prefix("Bearer ")?.to_owned())
}

/// A request, and who asks.
pub(super) struct Asked<'a> {
    pub(super) door: &'a Door,
    pub(super) visitor: &'a Arc<Visitor>,
    pub(super) known: &'a Known,
    pub(super) head: hyper::http::request::Parts,
    pub(super) body: Incoming,
    pub(super) reply: Reply,
}

impl Asked<'_> {
    fn call(self, method: &Method, call: &str) {
        if let Some(rest) = call.strip_prefix("uploads/") {
            let rest = rest.to_owned();
            return uploads::answer(self, method, &rest);
        }
        match (call, method) {
            ("hello", &Method::GET) => self.say(|known, lines, ()| {
                lines
                    .say(&Line::Hello(hello(known)?))
                    .map_err(|e| refused(&e))
            }),
            ("stat", &Method::POST) => self.say(stat),
            ("list", &Method::POST) => self.say(list),
            ("hidden", &Method::POST) => self.say(hidden),
            ("read", &Method::POST) => reading::pack(self),
            ("write", &Method::POST) => writing::pack(self),
            ("digest", &Method::POST) => self.digest(),
            ("remove", &Method::POST) => self.change(remove),
            ("rename", &Method::POST) => self.change(rename),
            ("mkdir", &Method::POST) => self.change(mkdir),
            ("set", &Method::POST) => self.change(set),
            ("xattrs", &Method::POST) => self.say(xattrs),
            ("space", &Method::POST) => self.say(space),
            ("flush", &Method::POST) => self.say(flush),
            ("grant", &Method::POST) => self.grant(),
            ("uploads", &Method::POST) => uploads::begin(self),
            (known, _) if CALLS.contains(&known) => {
                let allowed = if known == "hello" { "GET" } else { "POST" };
                let why = format!("{known} is asked by {allowed}");
                let line = Line::Error(said(Why::BadRequest, why)).write();
                let answer = hyper::Response::builder()
                    .status(405)
                    .header(ALLOW, allowed);
                let answer = answer.body(godwit_store::door::Sent::whole(line));
                self.reply.whole(answer.expect("its headers are ours"));
            }
            (unknown, _) => {
                let why =
                    format!("no call is named {unknown}; one of the two may have to be upgraded");
                self.reply.refuse(said(Why::Missing, why));
            }
        }
    }

    /// Reads what is asked, does it, and says what came of it.
    fn say<T: DeserializeOwned>(mut self, work: impl FnOnce(&Known, &mut Lines, T) -> Outcome) {
        match self.read() {
            Ok(asked) => {
                let mut lines = self.reply.lines();
                let outcome = work(self.known, &mut lines, asked);
                lines.end(outcome);
            }
            Err(refusal) => self.reply.refuse(refusal),
        }
    }

    /// The same of what changes something.
    fn change<T: DeserializeOwned>(self, work: impl FnOnce(&Known, &mut Lines, T) -> Outcome) {
        match self.known.must_write() {
            Ok(()) => self.say(work),
            Err(refusal) => self.reply.refuse(refusal),
        }
    }

    /// Reads what is asked.
    pub(super) fn read<T: DeserializeOwned>(&mut self) -> Result<T, Refusal> {
        read(&self.reply, &mut self.body)
    }

    fn grant(self) {
        let grants = &self.door.grants;
        self.say(
            |known,
             lines,
             AskGrant {
                 path: Name(path),
                 seconds,
             }| {
                // Who may not read it cannot have others read it.
                let read = known.dir.read(&path, &Extents::new(), 1, &Nowhere);
                read.map_err(|error| refused(&error))?;
                let grant = grants.grant(known, path, Duration::from_secs(seconds))?;
                lines
                    .say(&Line::Grant(grant))
                    .map_err(|error| refused(&error))
            },
        );
    }

    fn digest(mut self) {
        let asked: AskDigest = match self.read() {
            Ok(asked) => asked,
            Err(refusal) => return self.reply.refuse(refusal),
        };
        if asked.range.is_some_and(|(start, end)| start > end) {
            let why = "a range ends before it begins".into();
            return self.reply.refuse(said(Why::BadRequest, why));
        }
        let watch = match Watch::new(self.door.shared.config.limits.stall) {
            Ok(watch) => Arc::new(watch),
            Err(cause) => return self.reply.refuse(said(Why::Other, godwit_sys::why(&cause))),
        };
        let beat = Arc::clone(&watch);
        let (mut lines, digest) =
            self.reply
                .lines()
                .during(Arc::new(move || beat.moved_bytes()), || {
                    let by = algorithm(&asked.by)?;
                    let range = asked.range.map(|(start, end)| start..end);
                    self.known
                        .dir
                        .digest_watched(&asked.path.0, by, range, &watch)
                });
        let told = digest.and_then(|digest| lines.say(&Line::Digest(Text(digest))));
        lines.end(told.map_err(|error| refused(&error)));
    }
}

/// Reads a body of JSON; what has none asks for nothing in particular.
pub(super) fn read<T: DeserializeOwned>(reply: &Reply, body: &mut Incoming) -> Result<T, Refusal> {
    let mut text = Vec::new();
    while let Some(bytes) = reply.more_of_call(body).map_err(|e| refused(&e))? {
        if text.len() + bytes.len() > LINE_BYTES_MAX {
            let why = format!("what is asked is longer than {LINE_BYTES_MAX} bytes");
            return Err(said(Why::BadRequest, why));
        }
        text.extend_from_slice(&bytes);
    }
    let text = if text.is_empty() { b"null" } else { &text[..] };
    call::read(text).map_err(|error| said(Why::BadRequest, error.to_string()))
}

impl Known {
    /// Refuses whoever may only read.
    pub(super) fn must_write(&self) -> Outcome {
        match self.may_write {
            true => Ok(()),
            false => {
                let why = "who does not say who they are may only read here";
                Err(said(Why::Denied, why.into()))
            }
        }
    }
}

fn hello(known: &Known) -> Result<Hello, Refusal> {
    let can = known.dir.can().map_err(|error| refused(&error))?;
    Ok(Hello {
        name: "godwit".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        speaks: (OLDEST, VERSION),
        who: known.who.as_ref().map(ToString::to_string),
        account: known.account.clone(),
        can: godwit_store::Can {
            write: known.may_write,
            ..can
        }
        .say(),
    })
}

fn stat(known: &Known, lines: &mut Lines, asked: AskStat) -> Outcome {
    for Name(path) in &asked.paths {
        let line = match known.dir.stat(path) {
            Ok(stat) => Line::Stat(stat.say()),
            Err(error) => Line::Refused(refused(&error)),
        };
        lines.say(&line).map_err(|error| refused(&error))?;
    }
    Ok(())
}

fn list(known: &Known, lines: &mut Lines, asked: AskList) -> Outcome {
    let path = &asked.path.0;
    // One of them writes at a time.
    let lines = std::cell::RefCell::new(lines);
    let mut each = |entry: godwit_store::Entry| lines.borrow_mut().say(&Line::Entry(entry.say()));
    let listed = match asked.deep {
        false => known.dir.list(path, &mut each),
        true => known.dir.walk_readable(
            path,
            &mut each,
            &mut |hidden| {
                // If it is not heard, neither is the end.
                let _ = lines.borrow_mut().say(&Line::Hidden(Name(hidden)));
            },
            &mut |unread, error| {
                let line = Line::Unread(Name(unread), refused(&error));
                lines.borrow_mut().say(&line)
            },
        ),
    };
    listed.map_err(|error| refused(&error))
}

fn hidden(known: &Known, lines: &mut Lines, asked: AskPath) -> Outcome {
    let hidden = known.dir.hidden(&asked.path.0).map_err(|e| refused(&e))?;
    for path in hidden.into_iter().take(HIDDEN_MAX) {
        lines
            .say(&Line::Hidden(Name(path)))
            .map_err(|e| refused(&e))?;
    }
    Ok(())
}

fn remove(known: &Known, lines: &mut Lines, asked: AskRemove) -> Outcome {
    let what = if asked.directory {
        What::Directory
    } else {
        What::File
    };
    done(lines, known.dir.remove(&asked.path.0, what))
}

fn rename(known: &Known, lines: &mut Lines, asked: AskRename) -> Outcome {
    done(lines, known.dir.rename(&asked.from.0, &asked.to.0))
}

fn mkdir(known: &Known, lines: &mut Lines, asked: AskMkdir) -> Outcome {
    let paths: Vec<&Path> = asked.paths.iter().map(|name| &*name.0).collect();
    for made in known.dir.mkdir_many(&paths) {
        let line = match made {
            Ok(()) => Line::Done,
            Err(error) => Line::Refused(refused(&error)),
        };
        lines.say(&line).map_err(|error| refused(&error))?;
    }
    Ok(())
}

fn set(known: &Known, lines: &mut Lines, asked: AskSet) -> Outcome {
    let path = asked.path.0.clone();
    done(lines, known.dir.set(&path, &Set::heard(asked)))
}

fn xattrs(known: &Known, lines: &mut Lines, asked: AskPath) -> Outcome {
    let xattrs = known.dir.xattrs(&asked.path.0);
    let told = xattrs.and_then(|xattrs| lines.say(&Line::Xattrs(xattrs.say())));
    told.map_err(|error| refused(&error))
}

fn space(known: &Known, lines: &mut Lines, asked: AskPath) -> Outcome {
    let space = known.dir.space(&asked.path.0);
    let told = space.and_then(|space| lines.say(&Line::Space(space.say())));
    told.map_err(|error| refused(&error))
}

fn flush(known: &Known, lines: &mut Lines, asked: AskPath) -> Outcome {
    done(lines, known.dir.flush(&asked.path.0))
}

/// Says that something was done, or why not.
pub(super) fn done(lines: &mut Lines, done: Result<(), Error>) -> Outcome {
    let told = done.and_then(|()| lines.say(&Line::Done));
    told.map_err(|error| refused(&error))
}

/// What a file is for those who keep what they read: its digest is not known before it is read.
pub(super) fn entity_tag(stat: &Stat) -> String {
    let mtime = stat.mtime.unwrap_or_default();
    format!("W/\"{:x}-{:x}\"", stat.size, mtime.as_nanos())
}

/// Names of calls, to tell a wrong method from a wrong name.
const CALLS: &[&str] = &[
    "hello", "stat", "list", "hidden", "read", "write", "digest", "remove", "rename", "mkdir",
    "set", "xattrs", "space", "flush", "grant", "uploads", "park",
];
const HIDDEN_MAX: usize = 100;
