//! Protection of data connections. By DCAU and PROT, both sides prove their identity, and bytes then travel in clear
//! or protected. By RFC 4217 they are plain TLS. By RFC 2228 the control channel's context wraps them in blocks.
//!
//! The connecting side begins; in plain TLS the client does. A proof is TLS records and nothing around them. With
//! PROT C the bytes of the file follow the last record at once. Records are therefore read one by one, and nothing
//! behind them.

#[cfg(test)]
mod tests;

use super::{awaited::Awaited, link::is_retryable};
use crate::{
    Error, Result,
    watch::{Patience, Watch},
};
use godwit_trust::{
    self as trust, Authorities, Blockwise, Context as _, Credential, Delegate, Expect, Resumption,
    Unsealed, Wrapping,
};
use godwit_wire::shield::Level;
use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant, SystemTime},
};

/// The protection of a data connection.
#[derive(Clone, Debug)]
pub enum Safety {
    /// A proof on each, and TLS behind it.
    Tls(Box<Tls>),
    /// Blocks, wrapped by the context of the control channel. There is no proof before: a wrong peer is detected by
    /// its first block.
    Blocks {
        /// The context that wraps.
        by: Blockwise,
        /// How.
        how: Wrapping,
        /// How long a block may be.
        bytes_max: u32,
    },
}

/// The identities that both ends of a data connection prove, and the protection of its bytes.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Our certificate and key.
    pub credential: Credential,
    /// The authorities that may vouch for the peer.
    pub authorities: Authorities,
    /// The identity that the peer must prove.
    pub expect: Expect,
    /// The protection of the bytes after the proof.
    pub level: Level,
    /// Our part in the TLS handshake.
    pub part: TlsPart,
}

/// The part of one end in the security of a data connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TlsPart {
    /// One of two who both show who they are (DCAU): who connects begins.
    Peer,
    /// The server of TLS, whichever side connects: only the server proves its identity.
    Server,
    /// The client of TLS.
    Client,
}

impl Safety {
    /// Returns that of a server which is known to its client by this credential already.
    pub fn of_server(credential: Credential) -> Self {
        Self::Tls(Box::new(Tls {
            credential,
            authorities: Authorities::none(),
            expect: Expect::Anyone,
            level: Level::Private,
            part: TlsPart::Server,
        }))
    }

    /// Returns that of a client which shows nothing, to a server that must show that.
    pub fn of_client(nobody: Credential, authorities: Authorities, expect: Expect) -> Self {
        Self::Tls(Box::new(Tls {
            credential: nobody,
            authorities,
            expect,
            level: Level::Private,
            part: TlsPart::Client,
        }))
    }

    /// Returns that of blocks; `None`: bytes go in clear.
    pub fn of_blocks(by: &Blockwise, level: Level, bytes_max: u32) -> Option<Self> {
        let how = match level {
            Level::Clear => return None,
            Level::Safe => Wrapping::Safe,
            Level::Private => Wrapping::Private,
        };
        let by = by.clone();
        Some(Self::Blocks { by, how, bytes_max })
    }

    /// Returns the identity that the peer of a connection must prove; `None`: there is no proof.
    pub fn expect(&self) -> Option<&Expect> {
        match self {
            Self::Tls(tls) => Some(&tls.expect),
            Self::Blocks { .. } => None,
        }
    }

    /// Refuses to begin a proof with a credential that has expired or is not valid yet; the error names `host`.
    pub(crate) fn check_dates(&self, host: &str) -> Result<()> {
        let dates = match self {
            Self::Tls(tls) => tls.credential.check_dates(SystemTime::now()),
            // A context that was made stays valid.
            Self::Blocks { .. } => Ok(()),
        };
        dates.map_err(Error::not_proved(host))
    }

    /// Tells whether a stranger is found out before the first byte.
    pub(super) fn proves_peer(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.part == TlsPart::Peer)
    }

    /// Tells whether bytes are sent in clear after the proof.
    pub(super) fn goes_in_clear(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.level == Level::Clear)
    }
}

/// The side of a connection that is ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LinkSide {
    Connected,
    Accepted,
}

/// The layer between the bytes of a file and the socket.
#[derive(Debug)]
pub(super) enum LinkShield {
    /// Bytes go as they are.
    Clear,
    /// Something must be proved before the first byte.
    Due(Box<DueProof>),
    /// Bytes are protected.
    Guarded(Box<ProtectedBytes>),
}

/// A proof that is still due.
#[derive(Debug)]
pub(super) struct DueProof {
    safety: Tls,
    pub(super) side: LinkSide,
    /// The proof's result, if it runs in a thread of its own.
    alone: Option<Awaited<LinkShield>>,
}

impl DueProof {
    /// The side that connects has to begin the proof. Until it is over, the server may send nothing, not even that a
    /// transfer begins. That proof therefore runs in a thread of its own.
    pub(super) fn new(safety: Tls, side: LinkSide, stream: &TcpStream) -> io::Result<Self> {
        let mut due = Self {
            safety,
            side,
            alone: None,
        };
        // In plain TLS the client begins only after the server's 150.
        if side == LinkSide::Connected && due.safety.part != TlsPart::Server {
            let (safety, stream) = (due.safety.clone(), stream.try_clone()?);
            let watch = Watch::new(ALONE_MAX)?;
            due.alone = Some(Awaited::begin(move || {
                let host = host_of(&stream);
                let proved = safety.prove(&stream, side, &host, &mut watch.patience());
                if proved.is_err() {
                    // The peer waits for us: it should not do so any longer.
                    let _ = stream.shutdown(Shutdown::Both);
                }
                proved
            })?);
        }
        Ok(due)
    }

    /// Tells whether the proof runs in a thread of its own.
    pub(super) fn runs_in_thread(&self) -> bool {
        self.alone.is_some()
    }

    /// Returns the error that refuses the peer, if the proof has failed by now.
    pub(super) fn refusal(&mut self) -> Option<Error> {
        self.alone.as_mut()?.refusal()
    }

    /// Waits for the proof, and returns the layer for the bytes.
    pub(super) fn prove(
        &mut self,
        stream: &TcpStream,
        patience: &mut Patience<'_>,
    ) -> Result<LinkShield> {
        let host = host_of(stream);
        match &mut self.alone {
            Some(alone) => alone.wait(&host, PROVING, patience),
            None => self.safety.prove(stream, self.side, &host, patience),
        }
    }
}

/// Returns the address of the peer, for messages.
pub(super) fn host_of(stream: &TcpStream) -> String {
    let peer = stream.peer_addr();
    peer.map_or_else(|_| "the peer".into(), |address| address.to_string())
}

impl LinkShield {
    /// Returns the layer of a connection before its first byte.
    pub(super) fn new(
        safety: Option<Safety>,
        side: LinkSide,
        stream: &TcpStream,
    ) -> io::Result<Self> {
        Ok(match safety {
            None => Self::Clear,
            Some(Safety::Tls(tls)) => Self::Due(Box::new(DueProof::new(*tls, side, stream)?)),
            Some(Safety::Blocks { by, how, bytes_max }) => {
                let blocks = by.begin(how, bytes_max).map_err(spoiled)?;
                Self::Guarded(Box::new(ProtectedBytes::new(Flow::Blocks(Box::new(
                    blocks,
                )))))
            }
        })
    }
}

impl Tls {
    /// Proves the identities of both ends of a connection.
    fn prove(
        &self,
        stream: &TcpStream,
        side: LinkSide,
        host: &str,
        patience: &mut Patience<'_>,
    ) -> Result<LinkShield> {
        let mut records = TlsRecords {
            stream,
            host,
            patience,
            strange: match self.part {
                TlsPart::Peer => "what came on the data connection proves nothing (DCAU)",
                _ => "what came on the data connection is no TLS (PROT P)",
            },
        };
        let proved = self.exchange(&mut records, side);
        let channel = proved.map_err(|error| match error {
            ProofStop::Trust(cause) => Error::Trust {
                host: format!("data connection with {host}"),
                // The peer may show the credential that we gave it; that one has then expired too.
                cause: Box::new(
                    self.credential
                        .check_dates(SystemTime::now())
                        .err()
                        .unwrap_or(cause),
                ),
            },
            ProofStop::Store(error) => error,
        })?;
        Ok(match self.level {
            Level::Clear => LinkShield::Clear,
            Level::Safe | Level::Private => LinkShield::Guarded(Box::new(ProtectedBytes::new(
                Flow::Tls(Box::new(channel), self.part),
            ))),
        })
    }

    fn exchange(
        &self,
        records: &mut TlsRecords<'_, '_>,
        side: LinkSide,
    ) -> Result<trust::Channel, ProofStop> {
        let (us, them, whom) = (&self.credential, &self.authorities, self.expect.clone());
        // Protected streams have none of GSI's own bytes.
        let is_bare = self.level != Level::Clear;
        let mut channel = match side {
            _ if self.part == TlsPart::Server => {
                trust::Channel::serve(us, Resumption::NotFromHere)?
            }
            LinkSide::Accepted if self.part == TlsPart::Client => {
                let (channel, first) = trust::Channel::initiate_tls(us, them, whom)?;
                records.send(&first)?;
                channel
            }
            LinkSide::Accepted if is_bare => trust::Channel::accept_tls(us, them)?.only(whom),
            LinkSide::Accepted => trust::Channel::accept(us, them)?.only(whom),
            LinkSide::Connected => {
                let (channel, first) = match is_bare {
                    true => trust::Channel::initiate_tls(us, them, whom),
                    false => trust::Channel::initiate(us, them, whom, Delegate::No),
                }?;
                records.send(&first)?;
                channel
            }
        };
        loop {
            let step = channel.step(&records.next()?)?;
            if let Some(token) = step.token {
                records.send(&token)?;
            }
            if step.done {
                return Ok(channel);
            }
        }
    }
}

/// The error that ends a proof.
enum ProofStop {
    Trust(trust::Error),
    Store(Error),
}

impl From<trust::Error> for ProofStop {
    fn from(error: trust::Error) -> Self {
        Self::Trust(error)
    }
}

impl From<Error> for ProofStop {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// A socket on which both sides exchange TLS records.
struct TlsRecords<'a, 'w> {
    stream: &'a TcpStream,
    host: &'a str,
    patience: &'a mut Patience<'w>,
    /// The description of a record that is no TLS record.
    strange: &'static str,
}

impl TlsRecords<'_, '_> {
    /// Reads one record, and no byte behind it.
    fn next(&mut self) -> Result<Vec<u8>> {
        let mut record = vec![0; HEAD_BYTES];
        self.fill(&mut record)?;
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        let is_tls = (20..=23).contains(&record[0]) && record[1] == 3;
        if !is_tls || length > RECORD_BYTES_MAX {
            return Err(Error::misbehaved(self.host, self.strange));
        }
        record.resize(HEAD_BYTES + length, 0);
        self.fill(&mut record[HEAD_BYTES..])?;
        Ok(record)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let mut came = 0;
        while came < bytes.len() {
            let result = match self.stream.read(&mut bytes[came..]) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                other => other,
            };
            came += self.moved(result)?;
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let result = self.stream.write(&bytes[sent..]);
            sent += self.moved(result)?;
        }
        Ok(())
    }

    fn moved(&mut self, result: io::Result<usize>) -> Result<usize> {
        match result {
            Ok(count) => {
                self.patience.went_on();
                Ok(count)
            }
            Err(error) if is_retryable(&error) => {
                self.patience.waited(self.host, PROVING).map(|()| 0)
            }
            Err(cause) => Err(Error::lost(self.host, PROVING, cause)),
        }
    }
}

/// The protocol that protects bytes.
#[derive(Debug)]
enum Flow {
    Tls(Box<trust::Channel>, TlsPart),
    Blocks(Box<trust::Blocks>),
}

impl Flow {
    fn seal(&mut self, clear: &[u8], sealed: &mut Vec<u8>) -> io::Result<()> {
        let done = match self {
            Self::Tls(channel, _) => channel.seal(clear, sealed),
            Self::Blocks(blocks) => blocks.seal(clear, sealed),
        };
        done.map_err(spoiled)
    }

    fn end(&mut self, sealed: &mut Vec<u8>) -> io::Result<()> {
        let done = match self {
            Self::Tls(channel, _) => channel.end(sealed),
            Self::Blocks(blocks) => blocks.end(sealed),
        };
        done.map_err(spoiled)
    }

    fn take_in(&mut self, came: &[u8]) -> io::Result<()> {
        match self {
            Self::Tls(channel, _) => channel.take_in(came).map_err(spoiled),
            Self::Blocks(blocks) => {
                blocks.take_in(came);
                Ok(())
            }
        }
    }

    fn open(&mut self, clear: &mut [u8]) -> io::Result<Unsealed> {
        let opened = match self {
            Self::Tls(channel, _) => channel.open(clear),
            Self::Blocks(blocks) => blocks.open(clear),
        };
        opened.map_err(spoiled)
    }

    fn has_more(&self) -> bool {
        match self {
            Self::Tls(channel, _) => channel.has_more(),
            Self::Blocks(blocks) => blocks.has_more(),
        }
    }

    /// Tells whether the protection is plain TLS, in this part or any.
    fn is_of_everybody(&self) -> bool {
        matches!(self, Self::Tls(_, TlsPart::Server | TlsPart::Client))
    }

    /// Returns the closing word that a peer sends under protection.
    fn last_word(&self) -> Option<LastWord> {
        match self {
            Self::Blocks(_) => Some(LastWord::Block),
            _ => self.is_of_everybody().then_some(LastWord::Notify),
        }
    }

    /// Gives back the memory that only a transfer needs.
    fn release_buffers(&mut self) {
        if let Self::Blocks(blocks) = self {
            blocks.rest();
        }
    }

    fn is_of_client(&self) -> bool {
        matches!(self, Self::Tls(_, TlsPart::Client))
    }
}

/// The closing word of a protected connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LastWord {
    /// In TLS.
    Notify,
    /// In blocks, as an empty one.
    Block,
}

/// Displays how a connection ended that lacks this word.
impl fmt::Display for LastWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notify => "it ended without TLS's word for it (close_notify)",
            Self::Block => "it ended early, the last block of the data is missing",
        })
    }
}

/// Bytes under protection.
#[derive(Debug)]
pub(super) struct ProtectedBytes {
    flow: Flow,
    /// The word without which it ended.
    lacks: Option<LastWord>,
    /// Bytes as they came from the socket.
    came: Vec<u8>,
    /// Bytes as they are sent.
    sealed: Vec<u8>,
    sent: usize,
}

impl ProtectedBytes {
    fn new(flow: Flow) -> Self {
        Self {
            flow,
            lacks: None,
            came: Vec::new(),
            sealed: Vec::new(),
            sent: 0,
        }
    }

    /// Reads plain bytes; 0 if there are no more. GCT ends a file of MODE S without a protected word, so such an end
    /// is accepted. A caller that knows the length (`ALLO`, `SIZE`) sees whether the file was cut. In plain TLS and
    /// in blocks, such an end is noted in `lacks`.
    pub(super) fn read(&mut self, mut stream: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.flow.open(bytes)? {
                Unsealed::Bytes(count) => return Ok(count),
                Unsealed::End => {
                    self.answer_the_end(stream);
                    return Ok(0);
                }
                Unsealed::Nothing => {}
            }
            self.came.resize(PIECE_BYTES, 0);
            match stream.read(&mut self.came)? {
                0 => {
                    self.lacks = self.flow.last_word();
                    return Ok(0);
                }
                count => self.flow.take_in(&self.came[..count])?,
            }
        }
    }

    /// Clients of TLS may take an end that is not answered for a fault.
    fn answer_the_end(&mut self, stream: &TcpStream) {
        if self.flow.is_of_everybody() && self.end().is_ok() {
            // It is as good as gone.
            let _ = self.push(stream);
        }
    }

    /// Waits until the peer has closed too. If bytes of the peer (tickets) are unread at our close, the kernel
    /// discards our bytes in flight.
    pub(super) fn linger(&mut self, mut stream: &TcpStream, patience: &mut Patience<'_>) {
        if !self.flow.is_of_client() {
            return;
        }
        let (began, host) = (Instant::now(), host_of(stream));
        self.came.resize(PIECE_BYTES, 0);
        while began.elapsed() < LINGER_MAX {
            match stream.read(&mut self.came) {
                Ok(1..) => {}
                Err(error) if is_retryable(&error) && patience.waited(&host, PROVING).is_ok() => {}
                _ => return,
            }
        }
    }

    /// Returns the closing word that did not arrive: an attacker may have cut off the rest.
    pub(super) fn missing_last_word(&self) -> Option<LastWord> {
        self.lacks
    }

    /// Takes some of the plain bytes to send; [`ProtectedBytes::push`] sends the last of them.
    pub(super) fn write(&mut self, stream: &TcpStream, parts: [&[u8]; 2]) -> io::Result<usize> {
        self.push(stream)?;
        let mut taken = 0;
        for part in parts {
            let some = &part[..part.len().min(PIECE_BYTES)];
            self.flow.seal(some, &mut self.sealed)?;
            taken += some.len();
            if some.len() < part.len() {
                break;
            }
        }
        match self.push(stream) {
            Err(error) if !is_retryable(&error) => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends the closing word.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.flow.end(&mut self.sealed)
    }

    /// Sends the sealed bytes.
    pub(super) fn push(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while self.sent < self.sealed.len() {
            match stream.write(&self.sealed[self.sent..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.sent += count,
            }
        }
        self.sealed.clear();
        self.sent = 0;
        Ok(())
    }

    /// Tells whether plain bytes may be buffered, so that a wait for the socket would be wrong.
    pub(super) fn has_more(&self) -> bool {
        self.flow.has_more()
    }

    /// Gives back the memory that only a transfer needs.
    pub(super) fn release_buffers(&mut self) {
        self.flow.release_buffers();
        self.came = Vec::new();
        if self.sealed.is_empty() {
            self.sealed = Vec::new();
        }
    }
}

fn spoiled(error: trust::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A server may be busy before it turns to its data port; who wants to wait no
/// longer hangs up.
const ALONE_MAX: Duration = Duration::from_secs(3600);
const LINGER_MAX: Duration = Duration::from_secs(5);
const HEAD_BYTES: usize = 5;
/// RFC 8446, 5.2.
const RECORD_BYTES_MAX: usize = (16 << 10) + 256;
/// Four records and more: neither a call to the kernel for each, nor out of the
/// processor's cache.
const PIECE_BYTES: usize = 64 << 10;
const PROVING: &str = "proving where the data connection leads";
