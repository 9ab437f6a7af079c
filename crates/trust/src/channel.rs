//! A GSI security context: tokens in, tokens out, no socket.
//!
//! A token is the TLS engine's output at that moment, whole records without a frame. After the
//! handshake GSI's own bytes follow, as TLS data. The acceptor sends a zero byte (TLS 1.3 only:
//! there it has nothing else to send). The initiator sends `D` or `0`; after `D` the acceptor sends
//! a certificate request, and the initiator the new proxy.

mod flow;

pub use flow::Unsealed;

use crate::{
    Authorities, Context, ContextStep, Credential, Error, Identity, Result, cluster, context,
    credential::identity_of,
    error::Doing,
    handshake::Role,
    identity::{host_names, is_for_host},
    keys,
    proxy::{self, ProxyKind},
};
use openssl::{
    error::ErrorStack,
    pkey::{PKey, Private},
    ssl::{ErrorCode, Ssl, SslRef, SslStream, SslVersion},
    stack::Stack,
    x509::{X509, X509NameBuilder, X509Req, X509ReqBuilder},
};
use std::{
    fmt,
    io::{self, Read, Write},
    mem,
    net::IpAddr,
    sync::PoisonError,
    time::SystemTime,
};

/// Rights that an initiator delegates to the acceptor.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Delegate {
    /// No rights.
    No,
    /// A limited proxy: good for files, not for starting jobs.
    #[default]
    Limited,
    /// A full proxy.
    Full,
}

/// Peer that an initiator accepts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expect {
    /// Any peer that a trusted authority vouches for.
    Anyone,
    /// The machine of that name or address (RFC 2818, or old names `host/NAME`, `ftp/NAME`).
    Host(String),
    /// The peer with exactly this subject.
    Subject(String),
    /// A peer with our own identity.
    Myself,
}

/// Way in which a server lets its clients resume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resumption {
    /// Tickets, after the handshake.
    ByTicket,
    /// No resumption. A client that sends a file and closes would leave the tickets unread. Then
    /// the kernel would discard the sent bytes.
    NotFromHere,
}

/// A security context in either role.
pub struct Channel {
    tls: SslStream<TlsBuffers>,
    phase: ChannelPhase,
    side: ChannelSide,
    /// Peer that an acceptor accepts; `None`: any peer.
    only: Option<Expect>,
    credential: Credential,
    authorities: Authorities,
    peer: Option<Identity>,
    /// Certificates of the peer, leaf first. A delegated proxy stands before them.
    shown: Vec<X509>,
    delegated: Option<Credential>,
    /// Bytes that the peer sent before it was known.
    taken: usize,
}

/// Expectation of one side.
enum ChannelSide {
    Initiator {
        expect: Expect,
        /// `None`: TLS alone, without GSI's bytes behind the handshake.
        delegate: Option<Delegate>,
    },
    Acceptor(AcceptMode),
}

/// Protocol after the handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AcceptMode {
    /// GSI's bytes.
    Gsi,
    /// None: the peer's data follow.
    Tls,
    /// None, and the peer is not asked for a certificate.
    Host(Resumption),
}

/// Next message that must arrive.
enum ChannelPhase {
    Handshake,
    /// Initiator, TLS 1.3: the zero byte, sent because a message is due.
    Null,
    /// Initiator: a certificate request.
    Request,
    /// Acceptor: whether to delegate.
    Flag,
    /// Acceptor: the certificate for this key.
    Proxy(PKey<Private>),
    Done,
    /// None: an earlier message was wrong.
    Broken,
}

impl Channel {
    /// Begins as the client; returns the first token.
    pub fn initiate(
        credential: &Credential,
        authorities: &Authorities,
        expect: Expect,
        delegate: Delegate,
    ) -> Result<(Self, Vec<u8>)> {
        let delegate = Some(delegate);
        Self::begin(
            credential,
            authorities,
            ChannelSide::Initiator { expect, delegate },
        )
    }

    /// Begins a context of TLS alone, as the client. Protected data connections (PROT S and P) need
    /// it, since GSI's bytes would count as data there. With [`Credential::nobody`] it reaches any
    /// TLS server.
    pub fn initiate_tls(
        credential: &Credential,
        authorities: &Authorities,
        expect: Expect,
    ) -> Result<(Self, Vec<u8>)> {
        let delegate = None;
        Self::begin(
            credential,
            authorities,
            ChannelSide::Initiator { expect, delegate },
        )
    }

    fn begin(
        credential: &Credential,
        authorities: &Authorities,
        side: ChannelSide,
    ) -> Result<(Self, Vec<u8>)> {
        let mut channel = Self::new(credential, authorities, Role::Initiator, side)?;
        match channel.shake()? {
            Some(token) => Ok((channel, token)),
            None => Err(Error::Token("there is nothing to begin with".into())),
        }
    }

    /// Begins as the server; the first token is the peer's.
    pub fn accept(credential: &Credential, authorities: &Authorities) -> Result<Self> {
        if credential.keys().is_none() {
            keys::prepare();
        }
        let side = ChannelSide::Acceptor(AcceptMode::Gsi);
        Self::new(credential, authorities, Role::Acceptor, side)
    }

    /// Begins a context of TLS alone, as the server.
    pub fn accept_tls(credential: &Credential, authorities: &Authorities) -> Result<Self> {
        let side = ChannelSide::Acceptor(AcceptMode::Tls);
        Self::new(credential, authorities, Role::Acceptor, side)
    }

    /// Begins as a server that shows its certificate and asks for none, as an ordinary TLS server
    /// does (RFC 4217).
    pub fn serve(credential: &Credential, resumption: Resumption) -> Result<Self> {
        let side = ChannelSide::Acceptor(AcceptMode::Host(resumption));
        Self::new(credential, &Authorities::none(), Role::Host, side)
    }

    /// Makes an acceptor accept this peer only: at a data connection both sides know the peer.
    pub fn only(self, peer: Expect) -> Self {
        Self {
            only: Some(peer),
            ..self
        }
    }

    fn new(
        credential: &Credential,
        authorities: &Authorities,
        role: Role,
        side: ChannelSide,
    ) -> Result<Self> {
        let doing = "beginning a security context";
        credential.check_dates(SystemTime::now())?;
        let mut ssl = Ssl::new(context::of(credential, role)?).doing(doing)?;
        match role {
            Role::Initiator | Role::Visitor => ssl.set_connect_state(),
            Role::Acceptor | Role::Host => ssl.set_accept_state(),
        }
        if let ChannelSide::Initiator {
            expect: Expect::Host(host),
            ..
        } = &side
            && host.parse::<IpAddr>().is_err()
        {
            ssl.set_hostname(host.trim_end_matches('.')).doing(doing)?;
        }
        if let ChannelSide::Acceptor(AcceptMode::Host(Resumption::NotFromHere)) = &side {
            ssl.set_num_tickets(0).doing(doing)?;
        }
        if let Some(agreed) = credential.agreed() {
            let agreed = agreed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(agreed) = agreed.as_ref() {
                agreed.offer(&mut ssl).doing(doing)?;
            }
        }
        Ok(Self {
            tls: SslStream::new(ssl, TlsBuffers::default()).doing(doing)?,
            phase: ChannelPhase::Handshake,
            side,
            only: None,
            credential: credential.clone(),
            authorities: authorities.clone(),
            peer: None,
            shown: Vec::new(),
            delegated: None,
            taken: 0,
        })
    }

    /// Returns the credential that the initiator delegated to us.
    pub fn delegated(&self) -> Option<&Credential> {
        self.delegated.as_ref()
    }

    /// Returns what protects it: `TLSv1.3 TLS_AES_256_GCM_SHA384`.
    pub fn protection(&self) -> String {
        let ssl = self.tls.ssl();
        let cipher = ssl.current_cipher().map_or("", |cipher| cipher.name());
        format!("{} {cipher}", ssl.version_str())
    }

    fn on_handshake(&mut self) -> Result<ContextStep> {
        let token = self.shake()?;
        if !self.tls.ssl().is_init_finished() {
            return Ok(self.wait_for(ChannelPhase::Handshake, token));
        }
        if matches!(self.side, ChannelSide::Acceptor(AcceptMode::Host(_))) {
            return Ok(self.wait_for(ChannelPhase::Done, token));
        }
        // Nothing has left us yet that needs a known peer: the token is still here.
        self.meet()?;
        let is_tls13 = self.tls.ssl().version2() == Some(SslVersion::TLS1_3);
        match (&self.side, token) {
            (
                ChannelSide::Initiator { delegate: None, .. }
                | ChannelSide::Acceptor(AcceptMode::Tls),
                token,
            ) => Ok(self.wait_for(ChannelPhase::Done, token)),
            (ChannelSide::Initiator { .. }, token) if is_tls13 => {
                Ok(self.wait_for(ChannelPhase::Null, token))
            }
            (ChannelSide::Initiator { .. }, _) => self.say_flag(),
            (ChannelSide::Acceptor(_), None) => {
                self.say(&[0])?;
                let null = self.outgoing();
                Ok(self.wait_for(ChannelPhase::Flag, Some(null)))
            }
            (ChannelSide::Acceptor(_), token) => Ok(self.wait_for(ChannelPhase::Flag, token)),
        }
    }

    fn on_null(&mut self) -> Result<ContextStep> {
        // GCT sends one byte, others only session tickets: both are silence.
        self.hear(1)?;
        self.say_flag()
    }

    fn say_flag(&mut self) -> Result<ContextStep> {
        let wanted = matches!(self.side, ChannelSide::Initiator { delegate: Some(delegate), .. } if delegate != Delegate::No);
        // Members have the same key: there is no credential to delegate.
        let is_delegating = wanted && self.credential.keys().is_none();
        let (flag, next) = match is_delegating {
            true => (DELEGATE, ChannelPhase::Request),
            false => (DO_NOT, ChannelPhase::Done),
        };
        self.say(&[flag])?;
        let token = self.outgoing();
        Ok(self.wait_for(next, Some(token)))
    }

    fn on_request(&mut self) -> Result<ContextStep> {
        let bytes = self.hear(REQUEST_BYTES_MAX)?;
        if bytes.is_empty() {
            return Ok(self.wait_for(ChannelPhase::Request, None));
        }
        let request = X509Req::from_der(&bytes).map_err(|_| garbled("a certificate request"))?;
        proxy::check_request(&request)?;
        let key = request.public_key().doing("reading the peer's request")?;
        let kind = match self.side {
            ChannelSide::Initiator {
                delegate: Some(Delegate::Full),
                ..
            } => ProxyKind::Full,
            _ => ProxyKind::Limited,
        };
        let proxy = self
            .credential
            .sign(&key, kind, self.credential.not_after(), None)?;
        self.say(&proxy.to_der().doing("writing a proxy")?)?;
        let token = self.outgoing();
        Ok(self.wait_for(ChannelPhase::Done, Some(token)))
    }

    fn on_flag(&mut self) -> Result<ContextStep> {
        match self.hear(1)?[..] {
            [] => Ok(self.wait_for(ChannelPhase::Flag, None)),
            [DO_NOT] => Ok(self.wait_for(ChannelPhase::Done, None)),
            [DELEGATE] => {
                let leaf = self
                    .shown
                    .first()
                    .ok_or_else(|| garbled("no certificate"))?;
                let peer_key = leaf.public_key().doing("reading the peer's key")?;
                let key = match context::is_with_ours(self.tls.ssl()) {
                    true => keys::elliptic()?,
                    false => keys::like(&peer_key)?,
                };
                let request = request(&key).doing("asking for a proxy")?;
                self.say(&request)?;
                let token = self.outgoing();
                Ok(self.wait_for(ChannelPhase::Proxy(key), Some(token)))
            }
            [other, ..] => Err(Error::Token(format!(
                "byte {other:#04x} where D (delegate) or 0 (do not) must be"
            ))),
        }
    }

    fn on_proxy(&mut self, key: PKey<Private>) -> Result<ContextStep> {
        let bytes = self.hear(REQUEST_BYTES_MAX)?;
        if bytes.is_empty() {
            return Ok(self.wait_for(ChannelPhase::Proxy(key), None));
        }
        let proxy = X509::from_der(&bytes).map_err(|_| garbled("a certificate"))?;
        let is_ours = proxy
            .public_key()
            .is_ok_and(|public| public.public_eq(&key));
        if !is_ours || ProxyKind::of(&proxy)?.is_none() {
            return Err(garbled("a proxy for the key it was asked for"));
        }
        let chain = [vec![proxy], self.shown.clone()].concat();
        let whose = self.authorities.judge(&chain, SystemTime::now())?;
        if self
            .peer
            .as_ref()
            .is_none_or(|peer| peer.subject != whose.subject)
        {
            return Err(garbled("a proxy of its own"));
        }
        self.delegated = Some(Credential::new(key, chain, None)?);
        Ok(self.wait_for(ChannelPhase::Done, None))
    }

    /// Handles a token after the last: only TLS itself may have a message in it.
    fn on_more(&mut self) -> Result<ContextStep> {
        if !self.hear(1)?.is_empty() {
            return Err(Error::Token("a message in a token of the handshake".into()));
        }
        Ok(self.wait_for(ChannelPhase::Done, None))
    }

    fn wait_for(&mut self, next: ChannelPhase, token: Option<Vec<u8>>) -> ContextStep {
        self.phase = next;
        let done = matches!(self.phase, ChannelPhase::Done);
        ContextStep { token, done }
    }

    /// Learns the peer's identity, and checks that it is the expected one.
    fn meet(&mut self) -> Result<()> {
        let peer = match self.credential.keys() {
            Some(_) => cluster::met(self.tls.ssl())?,
            // Only this client can resume a session with a checked server; of its chain only the
            // leaf was kept.
            None if self.credential.agreed().is_some() && self.tls.ssl().session_reused() => {
                self.shown = shown(self.tls.ssl());
                identity_of(&self.shown)?
            }
            None => {
                self.shown = shown(self.tls.ssl());
                self.authorities.judge(&self.shown, SystemTime::now())?
            }
        };
        let expect = match &self.side {
            ChannelSide::Initiator { expect, .. } => Some(expect),
            ChannelSide::Acceptor(_) => self.only.as_ref(),
        };
        if let Some(expect) = expect {
            check_expected(expect, &peer, &self.shown, &self.credential)?;
        }
        self.peer = Some(peer);
        Ok(())
    }

    /// Continues the handshake; returns the bytes to send.
    fn shake(&mut self) -> Result<Option<Vec<u8>>> {
        forget_old_errors();
        match self.tls.do_handshake() {
            Ok(()) => {}
            Err(error) if error.code() == ErrorCode::WANT_READ => {}
            Err(error) => return Err(self.why_not(refusal(&error))),
        }
        let token = self.outgoing();
        Ok(Some(token).filter(|token| !token.is_empty()))
    }

    /// Adds the key's part to the error of a failed handshake by a key.
    fn why_not(&self, error: Error) -> Error {
        match (self.credential.keys(), error) {
            (Some(keys), Error::Token(said) | Error::Garbled(said)) => {
                keys.why_not(self.tls.ssl(), said, self.credential.file())
            }
            (_, error) => error,
        }
    }

    fn feed(&mut self, token: &[u8]) -> Result<()> {
        if token.len() > TOKEN_BYTES_MAX {
            self.phase = ChannelPhase::Broken;
            return Err(too_long());
        }
        self.tls.get_mut().put(token);
        Ok(())
    }

    /// Protects bytes; they wait in the pipe.
    fn say(&mut self, clear: &[u8]) -> Result<()> {
        forget_old_errors();
        let mut left = clear;
        while !left.is_empty() {
            let said = self.tls.ssl_write(left).map_err(|error| refusal(&error))?;
            left = &left[said..];
        }
        Ok(())
    }

    /// Returns the bytes that arrived, at most `bytes_max`; more are an error.
    fn hear(&mut self, bytes_max: usize) -> Result<Vec<u8>> {
        forget_old_errors();
        let mut heard = Vec::new();
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.tls.ssl_read(&mut buffer) {
                Ok(count) => heard.extend_from_slice(&buffer[..count]),
                Err(error) if error.code() == ErrorCode::WANT_READ => return Ok(heard),
                Err(error) => return Err(refusal(&error)),
            }
            if heard.len() > bytes_max {
                return Err(Error::Token(format!(
                    "more than the {bytes_max} bytes that may come here"
                )));
            }
        }
    }

    fn outgoing(&mut self) -> Vec<u8> {
        mem::take(&mut self.tls.get_mut().outgoing)
    }

    fn must_stand(&self) -> Result<()> {
        match self.phase {
            ChannelPhase::Done => Ok(()),
            ChannelPhase::Broken => Err(Error::Token("it goes on after an error".into())),
            _ => Err(Error::Token(
                "a protected message before the context stands".into(),
            )),
        }
    }
}

impl Context for Channel {
    fn step(&mut self, token: &[u8]) -> Result<ContextStep> {
        self.feed(token)?;
        self.taken += token.len();
        if self.taken > TOKEN_BYTES_MAX {
            self.phase = ChannelPhase::Broken;
            return Err(too_long());
        }
        // An error below leaves the context broken.
        match mem::replace(&mut self.phase, ChannelPhase::Broken) {
            ChannelPhase::Handshake => self.on_handshake(),
            ChannelPhase::Null => self.on_null(),
            ChannelPhase::Request => self.on_request(),
            ChannelPhase::Flag => self.on_flag(),
            ChannelPhase::Proxy(key) => self.on_proxy(key),
            ChannelPhase::Done => self.on_more(),
            ChannelPhase::Broken => Err(Error::Token("it goes on after an error".into())),
        }
    }

    fn wrap(&mut self, clear: &[u8]) -> Result<Vec<u8>> {
        self.must_stand()?;
        self.say(clear)?;
        Ok(self.outgoing())
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>> {
        self.must_stand()?;
        let clear = self.feed(token).and_then(|()| self.hear(usize::MAX));
        let is_whole = self.tls.get_ref().is_empty();
        match clear {
            Ok(clear) if is_whole => Ok(clear),
            Ok(_) => {
                self.phase = ChannelPhase::Broken;
                Err(Error::Token(
                    "a protected message ends in the middle".into(),
                ))
            }
            Err(error) => {
                self.phase = ChannelPhase::Broken;
                Err(error)
            }
        }
    }

    fn peer(&self) -> Option<&Identity> {
        self.peer.as_ref()
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("peer", &self.peer)
            .field("delegated", &self.delegated)
            .finish_non_exhaustive()
    }
}

/// Buffers of the TLS engine: unread input, and unsent output.
#[derive(Default)]
struct TlsBuffers {
    incoming: Vec<u8>,
    /// How much of `incoming` has been read.
    read: usize,
    outgoing: Vec<u8>,
}

impl TlsBuffers {
    fn put(&mut self, bytes: &[u8]) {
        if self.is_empty() {
            self.incoming.clear();
            self.read = 0;
        }
        self.incoming.extend_from_slice(bytes);
    }

    fn is_empty(&self) -> bool {
        self.read == self.incoming.len()
    }
}

impl Read for TlsBuffers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let left = &self.incoming[self.read..];
        let count = buffer.len().min(left.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.read += count;
        Ok(count)
    }
}

impl Write for TlsBuffers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn shown(ssl: &SslRef) -> Vec<X509> {
    let mut shown: Vec<X509> = ssl.peer_certificate().into_iter().collect();
    // A client's engine counts the leaf among the chain, a server's does not.
    for certificate in ssl.peer_cert_chain().into_iter().flatten() {
        if shown.first().is_none_or(|leaf| **leaf != *certificate) {
            shown.push(certificate.to_owned());
        }
    }
    shown
}

pub(crate) fn check_expected(
    expect: &Expect,
    peer: &Identity,
    shown: &[X509],
    us: &Credential,
) -> Result<()> {
    let wrong = |wanted: &str| Error::wrong_peer(wanted, peer.subject.clone());
    match expect {
        Expect::Anyone => Ok(()),
        Expect::Subject(subject) if peer.is_called(subject) => Ok(()),
        Expect::Subject(subject) => Err(wrong(subject)),
        Expect::Myself => {
            let myself = us.identity().subject;
            match peer.is_called(&myself) {
                true => Ok(()),
                false => Err(wrong(&myself)),
            }
        }
        Expect::Host(host) => {
            let owner = shown.iter().find(|c| matches!(ProxyKind::of(c), Ok(None)));
            match owner {
                Some(owner) if is_for_host(owner, host) => Ok(()),
                _ => Err(Error::wrong_host(
                    host.clone(),
                    owner.map_or(Vec::new(), |owner| host_names(owner)),
                    peer.subject.clone(),
                )),
            }
        }
    }
}

/// Returns the request for a proxy of `key`, as Globus writes it.
fn request(key: &PKey<Private>) -> Result<Vec<u8>, ErrorStack> {
    let mut request = X509ReqBuilder::new()?;
    request.set_version(0)?;
    let mut name = X509NameBuilder::new()?;
    // The signer chooses the name.
    name.append_entry_by_text("CN", "NULL SUBJECT NAME ENTRY")?;
    request.set_subject_name(&name.build())?;
    request.set_pubkey(key)?;
    let mut extensions = Stack::new()?;
    extensions.push(proxy::info(ProxyKind::Limited, None)?)?;
    request.add_extensions(&extensions)?;
    request.sign(key, proxy::digest_for(key))?;
    request.build().to_der()
}

/// Clears old errors of this thread, which the engine would take for its own. Else a strange
/// extension in a revocation list would end every connection that reads it.
fn forget_old_errors() {
    drop(ErrorStack::get());
}

/// Returns the engine's error: the peer's alert, or our own refusal.
pub fn refusal(error: &openssl::ssl::Error) -> Error {
    let Some(stack) = error.ssl_error() else {
        return Error::Token("it ended the context".into());
    };
    let reasons = crate::error::reasons(stack);
    match reasons.split_once(" alert ") {
        Some((_, alert)) if GARBLED.contains(&alert) => {
            Error::Garbled(format!("{alert} (TLS alert)"))
        }
        Some((_, alert)) => Error::Refused(alert_in_words(alert)),
        None if LASTING.iter().any(|words| reasons.contains(words)) => Error::Token(reasons),
        None => Error::Garbled(reasons),
    }
}

/// Alerts of a peer that received other bytes than we sent (RFC 8446, 6.2). All other alerts are
/// about certificates, keys or versions, and would recur.
const GARBLED: [&str; 10] = [
    "unexpected message",
    "bad record mac",
    "decryption failed",
    "record overflow",
    "illegal parameter",
    "decode error",
    "decrypt error",
    "missing extension",
    "unsupported extension",
    "internal error",
];

/// Messages of our engine for a peer without TLS, without a common version, or without a proof.
const LASTING: [&str; 9] = [
    "wrong version number",
    "packet length too long",
    "http request",
    "unsupported protocol",
    "no protocols available",
    "no shared cipher",
    "no suitable",
    "certificate",
    "psk",
];

fn alert_in_words(alert: &str) -> String {
    let words = match alert {
        "unknown ca" => "it does not know the authority of our certificate",
        "certificate expired" => "our certificate has expired, by its clock",
        "certificate revoked" => "our certificate was revoked",
        "bad certificate" | "certificate unknown" | "unsupported certificate" => {
            "it does not like our certificate; its log says more"
        }
        "handshake failure" => "nothing that both can speak (TLS version, cipher)",
        other => return format!("{other} (TLS alert)"),
    };
    format!("{words} (TLS alert: {alert})")
}

fn garbled(wanted: &str) -> Error {
    Error::Token(format!("what came is not {wanted}"))
}

fn too_long() -> Error {
    Error::Token(format!("more than {TOKEN_BYTES_MAX} bytes in tokens"))
}

/// Returns the length of a TLS record from its first five bytes. On a data connection, where tokens
/// have no frame, a token is a record. Other bytes are refused.
pub fn record_bytes(head: [u8; 5]) -> Result<usize> {
    let [kind, major, _, high, low] = head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if !(20..=26).contains(&kind) || major != 3 || length > RECORD_BYTES_MAX {
        return Err(garbled("a TLS record"));
    }
    Ok(head.len() + length)
}

/// RFC 5246, 6.2.3: bytes that a cipher may add to 16 KiB.
const RECORD_BYTES_MAX: usize = 16 * 1024 + 2048;

/// No token that a peer sends may be longer, nor all of a handshake's together.
pub const TOKEN_BYTES_MAX: usize = 256 * 1024;
const REQUEST_BYTES_MAX: usize = 16 * 1024;
const DELEGATE: u8 = b'D';
const DO_NOT: u8 = b'0';

#[cfg(test)]
mod tests;
