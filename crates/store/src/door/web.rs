//! Files on any HTTP server, read only: GET with ranges, and the attributes by HEAD.
//!
//! Writes and listings are refused. Retry is the engine's.

use super::{
    ConnectionLimits, Door, Gathered,
    visit::{DoorConnection, RequestBody, Showing},
};
use crate::{
    BlockWriter, Capabilities, Entry, EntryKind, Error, NextFile, Read, RemoteOptions, RemovalKind,
    Result, Set, Sink, Small, SmallResult, Stat, Store, Verified, Write, remote::connect,
};
use godwit_core::{Algorithm, Digest, Extents, Hashing, Scheme, Url};
use godwit_trust::{Authorities, Credential, Expect, door::WantedHost};
use godwit_wire::{
    base64,
    door::{ROOT, call, speaker::Speaker},
    time::HttpDate,
};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    body::{Bytes, Incoming},
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, HOST, LAST_MODIFIED,
        LOCATION, RANGE, RETRY_AFTER, USER_AGENT,
    },
};
use parking_lot::Mutex;
use std::{
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// An HTTP server as a store that can only be read.
pub(crate) struct Web {
    scheme: Scheme,
    host: String,
    port: u16,
    /// The header with the password, for this server alone.
    login: Option<String>,
    authorities: Authorities,
    limits: ConnectionLimits,
    connect: Duration,
    idle: Mutex<Vec<(WebOrigin, DoorConnection)>>,
}

/// A server, as redirects name it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct WebOrigin {
    is_tls: bool,
    host: String,
    port: u16,
}

/// The answer to one request, and the connection with the rest of it.
struct WebAnswer {
    visit: DoorConnection,
    origin: WebOrigin,
    /// Path and query that it is about, after redirects.
    target: String,
    head: Response<Incoming>,
}

/// Opens a node by its door, and any other server of `https:` to be read.
pub(crate) fn open(url: &Url, options: &RemoteOptions) -> Result<Arc<dyn Store>> {
    let door = Door::open(url, options)?;
    if door.0.pinned.is_some() {
        return Ok(Arc::new(door));
    }
    match door.known() {
        Err(Error::Unsupported { .. }) if url.scheme() == Scheme::Https => {
            Ok(Arc::new(Web::open(url, options)?))
        }
        Err(Error::Trust { .. }) if door.is_node() => {
            Err(Error::not_joined(door.0.limits.at.clone()))
        }
        // The first request tells an error of the certificate again, and the store can still be asked for its clock.
        _ => Ok(Arc::new(door)),
    }
}

impl Door {
    /// Tells whether a server without a trusted certificate answers as a node does.
    fn is_node(&self) -> bool {
        let asked = || -> Result<bool> {
            let mut visit = self.0.reach(&WantedHost::Anybody, &Credential::nobody())?;
            let (kind, body) = (super::JSON_TYPE, RequestBody::whole(Bytes::new()));
            let target = format!("{ROOT}hello");
            let request = self.0.request(Method::GET, &target, kind, body);
            let answer = visit.ask(request, "hello")?;
            Ok(answer.headers().contains_key(call::MARK))
        };
        asked().unwrap_or(false)
    }
}

impl Web {
    /// Opens the server of a URL; nothing is asked of it yet.
    pub(crate) fn open(url: &Url, options: &RemoteOptions) -> Result<Self> {
        let host = url.host().map(|host| host.to_resolve());
        let (Some(host), Some(port)) = (host, url.port()) else {
            return Err(Error::not_served(
                url.without_password(),
                "it names no host",
            ));
        };
        if url.password().is_some() && url.scheme() == Scheme::Http {
            return Err(Error::unsupported(
                "sending a password in clear",
                "anybody on the way could read it; https:// protects it",
            ));
        }
        let login = url.user().map(|user| {
            let login = format!("{user}:{}", url.password().unwrap_or_default());
            format!("Basic {}", base64::encode(login.as_bytes()))
        });
        let authorities = options.trust.authorities.clone();
        Ok(Self {
            scheme: url.scheme(),
            limits: ConnectionLimits {
                at: connect::host_port(&host, port),
                stall: options.stall,
                cancel: options.cancel.clone(),
            },
            host,
            port,
            login,
            authorities: authorities.unwrap_or_else(Authorities::of_servers),
            connect: options.connect,
            idle: Mutex::default(),
        })
    }

    fn visit(&self, origin: &WebOrigin) -> Result<DoorConnection> {
        loop {
            let mut idle = self.idle.lock();
            let at = idle.iter().position(|(other, _)| other == origin);
            let Some((_, visit)) = at.map(|at| idle.swap_remove(at)) else {
                break;
            };
            if !visit.is_stale() {
                return Ok(visit);
            }
        }
        let (host, port) = (&origin.host, origin.port);
        let socket = connect::connect(host, port, self.connect, &self.limits.cancel)?;
        if !origin.is_tls {
            return DoorConnection::in_clear(socket, &self.limits);
        }
        let showing = Showing {
            credential: &Credential::nobody(),
            authorities: &self.authorities,
            wanted: &WantedHost::Vouched(Expect::Host(host.clone())),
            host,
            at: &connect::host_port(host, port),
        };
        DoorConnection::begin(socket, &showing, &self.limits)
    }

    /// Asks for a file, and follows where the server sends us.
    fn ask(&self, method: &Method, path: &Path, range: Option<&Range<u64>>) -> Result<WebAnswer> {
        let ours = WebOrigin {
            is_tls: self.scheme == Scheme::Https,
            host: self.host.clone(),
            port: self.port,
        };
        let (mut origin, mut target) = (ours.clone(), escaped(path));
        for _ in 0..REDIRECTS_MAX {
            let mut visit = self.visit(&origin)?;
            let mut request = Request::builder()
                .method(method)
                .uri(&target)
                .header(HOST, connect::host_port(&origin.host, origin.port))
                .header(USER_AGENT, Speaker::ours().to_string())
                .header(ACCEPT_ENCODING, "identity");
            if let Some(login) = self.login.as_ref().filter(|_| origin == ours) {
                request = request.header(AUTHORIZATION, login);
            }
            if let Some(range) = range {
                let end = range.end.checked_sub(1).filter(|end| *end < u64::MAX - 1);
                let end = end.map_or(String::new(), |end| end.to_string());
                request = request.header(RANGE, format!("bytes={}-{end}", range.start));
            }
            let request = request.body(RequestBody::whole(Bytes::new()));
            let request = request.map_err(|error| self.broke(&error.to_string()))?;
            let head = visit.ask(request, READING)?;
            if !matches!(head.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(WebAnswer {
                    visit,
                    origin,
                    target,
                    head,
                });
            }
            let place = head.headers().get(LOCATION);
            let place = place.and_then(|place| place.to_str().ok());
            let place: Option<Uri> = place.and_then(|place| place.parse().ok());
            let place = place.ok_or_else(|| self.broke("it redirects to no URL"))?;
            if let Some(host) = place.host() {
                let is_tls = place.scheme_str() == Some("https");
                if origin.is_tls && !is_tls {
                    return Err(self.broke("it redirects from https: to http:"));
                }
                origin = WebOrigin {
                    is_tls,
                    host: host.trim_matches(['[', ']']).into(),
                    port: place.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
                };
            }
            let whole = place.path_and_query().map(|target| target.as_str());
            target = whole.unwrap_or("/").into();
        }
        Err(self.broke("it redirects for ever"))
    }

    /// Returns the attributes of a file in the head of a good answer.
    fn told(&self, path: &Path, answer: &WebAnswer) -> Result<Stat> {
        let (headers, path) = (answer.head.headers(), path.to_owned());
        let status = answer.head.status();
        let said = format!("{} answered {status}", self.limits.at);
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(Error::missing(path)),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
                return Err(self.busy(headers, said));
            }
            status if status.is_server_error() => return Err(self.busy(headers, said)),
            _ => return Err(Error::denied(path, said)),
        }
        let range = text(headers, CONTENT_RANGE.as_str());
        let size = match range.and_then(|range| range.rsplit_once('/')) {
            Some((_, whole)) => whole.parse().ok(),
            None => text(headers, CONTENT_LENGTH.as_str()).and_then(|len| len.parse().ok()),
        };
        // Web servers redirect a request for a directory to its name with a slash.
        if answer
            .target
            .split('?')
            .next()
            .is_some_and(|name| name.ends_with('/'))
        {
            return Ok(Stat::of(EntryKind::Directory, 0));
        }
        let size = size.ok_or_else(|| {
            Error::unsupported(
                format!("reading {}", path.display()),
                format!("{} does not tell how long it is", self.limits.at),
            )
        })?;
        let mtime = text(headers, LAST_MODIFIED.as_str());
        Ok(Stat {
            mtime: mtime.and_then(|date| Some(date.parse::<HttpDate>().ok()?.0)),
            digest: digest_in(headers),
            ..Stat::of(EntryKind::File, size)
        })
    }

    fn busy(&self, headers: &HeaderMap, said: String) -> Error {
        let again_in = text(headers, RETRY_AFTER.as_str()).and_then(|text| text.parse().ok());
        Error::Busy {
            host: self.limits.at.clone(),
            said,
            again_in: again_in.map(Duration::from_secs),
        }
    }

    fn read_range(&self, path: &Path, want: &Range<u64>, into: &dyn BlockWriter) -> Result<Stat> {
        let is_part = want.start > 0 || want.end < u64::MAX;
        let mut answer = self.ask(&Method::GET, path, is_part.then_some(want))?;
        let stat = self.told(path, &answer)?;
        if stat.kind == EntryKind::Directory {
            return Err(Error::directory(path));
        }
        let status = answer.head.status();
        if status == StatusCode::RANGE_NOT_SATISFIABLE || want.start >= stat.size {
            return Ok(stat);
        }
        let mut at = match status {
            StatusCode::PARTIAL_CONTENT => first_byte(answer.head.headers())
                .filter(|first| *first <= want.start)
                .ok_or_else(|| self.broke("it sends another range than was asked for"))?,
            _ => 0,
        };
        let (end, mut gathered) = (want.end.min(stat.size), Gathered::new(into));
        let body = answer.head.body_mut();
        let read = loop {
            match answer.visit.more(body, READING) {
                Ok(Some(bytes)) => {
                    let skip = want.start.saturating_sub(at).min(bytes.len() as u64);
                    let keep = end.saturating_sub(at).min(bytes.len() as u64);
                    if skip < keep {
                        gathered.add(at + skip, &bytes[skip as usize..keep as usize])?;
                    }
                    at += bytes.len() as u64;
                    if at > end {
                        break Ok(()); // more than was asked for: the connection is given up
                    }
                }
                Ok(None) => {
                    let (origin, visit) = (answer.origin, answer.visit);
                    let mut idle = self.idle.lock();
                    if idle.len() < IDLE_MAX {
                        idle.push((origin, visit));
                    }
                    break Ok(());
                }
                Err(error) => break Err(error),
            }
        };
        // Bytes that arrived are kept, even if the rest failed.
        gathered.end()?;
        read?;
        match at < end {
            true => Err(Error::changed(path, format!("{at} bytes came of {end}"))),
            false => Ok(stat),
        }
    }

    fn broke(&self, what: &str) -> Error {
        Error::misbehaved(self.limits.at.clone(), what)
    }

    fn cannot<T>(&self, what: &str) -> Result<T> {
        Err(Error::unsupported(
            format!("{what} on {}", self.limits.at),
            "it is a web server and no node: files can be read there by their names",
        ))
    }
}

impl Store for Web {
    fn can(&self) -> Result<Capabilities> {
        Ok(Capabilities {
            ranges: true,
            ..Capabilities::default()
        })
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        let mut answer = self.ask(&Method::HEAD, path, None)?;
        let status = answer.head.status();
        if matches!(
            status,
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        ) {
            answer = self.ask(&Method::GET, path, Some(&(0..1)))?;
        }
        self.told(path, &answer)
    }

    fn list(&self, path: &Path, _: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        match self.stat(path)?.kind {
            EntryKind::Directory => self.cannot("listing a directory"),
            _ => Err(Error::not_directory(path)),
        }
    }

    fn read(&self, path: &Path, want: &Extents, _: usize, into: &dyn BlockWriter) -> Result<Read> {
        let (mut stat, mut is_whole) = (None, false);
        for range in want.iter() {
            let told = self.read_range(path, &range, into)?;
            is_whole = range.start == 0 && range.end >= told.size;
            stat = Some(told);
        }
        let stat = match stat {
            Some(stat) => stat,
            None => self.stat(path)?,
        };
        // For a part of a file, the server sends only the digest of the whole, which is used too.
        let digest = stat.digest.clone().filter(|_| is_whole || !want.is_empty());
        Ok(Read { stat, digest })
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        let told = match range {
            None => self.stat(path)?.digest,
            Some(_) => None,
        };
        match told.filter(|told| told.algorithm() == by) {
            Some(told) => Ok(told),
            None => self.cannot("computing a digest"),
        }
    }

    fn write(&self, _: &Path, _: &Write<'_>) -> Result<Box<dyn Sink>> {
        self.cannot("writing")
    }

    fn remove(&self, _: &Path, _: RemovalKind) -> Result<()> {
        self.cannot("removing")
    }

    fn rename(&self, _: &Path, _: &Path) -> Result<()> {
        self.cannot("renaming")
    }

    fn mkdir(&self, _: &Path) -> Result<()> {
        self.cannot("making a directory")
    }

    fn set(&self, _: &Path, _: &Set) -> Result<()> {
        self.cannot("changing attributes")
    }

    crate::has!(self, Facets: peer batch);
}

impl crate::Peer for Web {}

impl crate::Batch for Web {
    fn read_small(
        &self,
        next: &mut NextFile<'_, PathBuf>,
        each: &mut SmallResult<'_, Small>,
    ) -> Result<()> {
        while let Some(path) = next() {
            let small = crate::store::read_one_small(self, &path).and_then(|small| {
                let Some(told) = &small.stat.digest else {
                    return Ok(small);
                };
                let mut hashing = Hashing::new(told.algorithm());
                hashing.update(&small.bytes);
                let found = hashing.finish();
                match found == *told {
                    true => Ok(Small {
                        verified: Verified::By(told.algorithm()),
                        ..small
                    }),
                    false => Err(Error::corrupt(
                        path.clone(),
                        told.to_string(),
                        found.to_string(),
                    )),
                }
            });
            each(path, small);
        }
        Ok(())
    }
}

/// Returns a path as a request has it.
fn escaped(path: &Path) -> String {
    let mut text = String::from("/");
    let path = path.as_os_str().as_bytes();
    for &byte in path.strip_prefix(b"/").unwrap_or(path) {
        match byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            true => text.push(byte.into()),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Returns the first byte of `bytes FIRST-LAST/SIZE`.
fn first_byte(headers: &HeaderMap) -> Option<u64> {
    let range = text(headers, CONTENT_RANGE.as_str())?.strip_prefix("bytes ")?;
    range.split_once('-')?.0.trim().parse().ok()
}

/// Returns the strongest digest of the whole file that the head tells: `Repr-Digest` (RFC 9530), `Digest` (RFC 3230),
/// `Content-MD5` (RFC 1864) of an answer that is no part.
fn digest_in(headers: &HeaderMap) -> Option<Digest> {
    let mut found: Vec<Digest> = Vec::new();
    for name in ["repr-digest", "digest"] {
        for one in text(headers, name).unwrap_or_default().split(',') {
            let Some((by, value)) = one.trim().split_once('=') else {
                continue;
            };
            let by = match &*by.to_ascii_lowercase() {
                "sha-512" => Algorithm::Sha512,
                "sha-256" => Algorithm::Sha256,
                "md5" => Algorithm::Md5,
                _ => continue,
            };
            let bytes = base64::decode(value.trim_matches(':').as_bytes());
            found.extend(bytes.and_then(|bytes| Digest::new(by, &bytes)));
        }
    }
    let md5 = text(headers, "content-md5").filter(|_| !headers.contains_key(CONTENT_RANGE));
    let md5 = md5.and_then(|value| base64::decode(value.as_bytes()));
    found.extend(md5.and_then(|bytes| Digest::new(Algorithm::Md5, &bytes)));
    let by = [Algorithm::Sha256, Algorithm::Sha512, Algorithm::Md5];
    by.iter().find_map(|by| {
        found
            .iter()
            .find(|digest| digest.algorithm() == *by)
            .cloned()
    })
}

const READING: &str = "receiving";
const REDIRECTS_MAX: usize = 6;
const IDLE_MAX: usize = 8;
