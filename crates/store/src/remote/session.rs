//! One session with one server: a control socket with deadlines, the server's features, and the data connections that
//! are kept between transfers.
//!
//! A session belongs to one thread at a time. After an error below the level of replies it is broken, and is never
//! used again.

use super::{
    LoginKind, RemoteOptions, connect,
    data::Hosts,
    faults,
    headway::Headway,
    proof,
    proven::Proven,
    tunnel::{SshTarget, Tunnel},
};
use crate::{
    Error, LoginCredential, Result,
    channel::{DataChannel, Safety, TransferMode},
    error::{GREETING, LOGIN},
};
use godwit_sys::wait_readable;
use godwit_wire::{
    client::{
        self, Credentials, Dialogue, Family, FtpPeer, HeardReply, Line, LinesAhead, LoggedIn,
        ProofPace, Refusal, Settings, Talk,
    },
    reply::Reply,
    shield::{Guard, Level},
};
use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    time::{Duration, Instant},
};

/// A conversation.
#[derive(Debug)]
pub(super) struct RemoteSession {
    /// Host and port, for messages.
    pub(super) host: String,
    /// The server, once logged in.
    pub(super) peer: FtpPeer,
    /// The settings of the session.
    pub(super) settings: Settings,
    /// Data connections of this server that may serve again.
    pub(super) warm: Option<Warm>,
    /// Not to be used again.
    pub(super) is_broken: bool,
    /// How long the shortest question took.
    pub(super) round_trip: Duration,
    /// When it was given back last.
    pub(super) used_at: Instant,
    /// EPSV was refused here.
    pub(super) no_epsv: bool,
    /// The proofs that data connections require.
    pub(super) safety: Option<Safety>,
    /// The replies to lines sent with the login, until the next command.
    early: Vec<(Line, Reply)>,
    stream: TcpStream,
    /// The program that carries the session, if that is no TCP connection.
    tunnel: Option<Tunnel>,
    dialogue: Dialogue,
    buffer: Vec<u8>,
    pub(super) options: RemoteOptions,
}

/// Where data connections lead that may serve again.
#[derive(Debug)]
pub(super) enum Warm {
    /// To us.
    Ours(KeptChannel),
    /// To another server.
    Theirs(PairSettings),
}

/// The settings that two servers share in a third-party transfer; both sessions have the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PairSettings {
    /// Unlike any other.
    pub(super) id: u64,
    /// With how many connections the source begins, and how many it may have.
    pub(super) streams: (usize, usize),
    /// When they were used last.
    pub(super) at: Instant,
}

/// Data connections that are kept, and the transfers that they fit.
#[derive(Debug)]
pub(super) struct KeptChannel {
    /// The connections.
    pub(super) channel: DataChannel,
    /// The direction of their bytes; the other direction needs new ones.
    pub(super) flow: Flow,
    /// How blocks were framed.
    pub(super) mode: TransferMode,
    /// How many there were to be.
    pub(super) streams: usize,
    /// The hosts at their other ends.
    pub(super) hosts: Hosts,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flow {
    /// To us.
    Fetch,
    /// To the server.
    Deliver,
}

impl RemoteSession {
    /// Connects and logs in. A node receives `ahead` together with the login. The next command, if it is one of these
    /// lines, has its reply already.
    pub(super) fn open(
        (host, port): (&str, Option<u16>),
        login: LoginKind,
        who: &Credentials,
        options: &RemoteOptions,
        ahead: LinesAhead<'_>,
    ) -> Result<Self> {
        let (stream, tunnel) = if login == LoginKind::Shell {
            let user = Some(who.user.as_str()).filter(|_| !who.is_mapped());
            let (stream, tunnel) = Tunnel::open(SshTarget { host, port, user })?;
            (stream, Some(tunnel))
        } else {
            let port = port.unwrap_or_default();
            let stream = connect::connect(host, port, options.connect, &options.cancel)?;
            let _ = stream.set_nodelay(true); // slower at worst
            godwit_sys::retry_often(stream.as_fd());
            (stream, None)
        };
        let (name, host) = (
            host,
            port.map_or(host.into(), |port| connect::host_port(host, port)),
        );
        let ready = stream.set_write_timeout(Some(options.stall));
        ready.map_err(|cause| Error::unreachable(host.clone(), cause))?;
        let mut session = Self {
            host,
            peer: FtpPeer::default(),
            settings: Settings::default(),
            warm: None,
            is_broken: false,
            round_trip: Duration::MAX,
            used_at: Instant::now(),
            no_epsv: false,
            safety: None,
            early: Vec::new(),
            stream,
            tunnel,
            dialogue: Dialogue::new(),
            buffer: vec![0; READ_BYTES],
            options: options.clone(),
        };
        let logged_in = session.log_in(name, login, who, ahead);
        let logged_in = logged_in.map_err(|error| match &session.tunnel {
            Some(tunnel) => tunnel.explain(error),
            None => while_logging_in(error),
        });
        if let Err(refusal) = logged_in? {
            let mut error = faults::refused(&session.host, Path::new(""), refusal);
            if let Error::Login { by, .. } = &mut error {
                *by = match login {
                    LoginKind::Proof => LoginCredential::Certificate,
                    LoginKind::Ticket => LoginCredential::Ticket,
                    _ => LoginCredential::Password,
                };
            }
            return Err(error);
        }
        Ok(session)
    }

    fn log_in(
        &mut self,
        name: &str,
        login: LoginKind,
        who: &Credentials,
        ahead: LinesAhead<'_>,
    ) -> Result<std::result::Result<(), Refusal>> {
        let mut settings = Settings::default();
        // Transfers with a node always use extended mode.
        let mut lines: Vec<Line> = settings.mode(TransferMode::Extended).into_iter().collect();
        // A server that does not know the option continues to hash, which is no fault.
        let no_digests = Line::new("OPTS GODWIT 1;digests=0");
        lines.extend((!self.options.digests).then(|| no_digests.clone()));
        // Nodes and GCT know SBUF; another server keeps its own size.
        let buffer = self.options.tcp_buffer;
        let buffer = buffer.map(|bytes| Line::new("SBUF").and(bytes));
        lines.extend(buffer.clone());
        // Names with line ends are understood only once the login is over.
        lines.extend(ahead.lines.iter().filter(|line| !line.is_odd()).cloned());
        let entered = match login {
            LoginKind::Proof | LoginKind::Ticket | LoginKind::Tls => {
                self.prove_and_enter((name, login), who, &lines)?
            }
            LoginKind::Password | LoginKind::Shell => {
                let said = LinesAhead {
                    lines: &lines,
                    ..ahead
                };
                // Who came by ssh is known there already.
                let mapped = Credentials::mapped();
                let who = if login == LoginKind::Shell {
                    &mapped
                } else {
                    who
                };
                let entered = client::log_in(self, who, said)?;
                entered.map(|entered| (entered, Proven::Nothing))
            }
        };
        let ((peer, replies), proven) = match entered {
            Ok(entered) => entered,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.peer = peer;
        if self.family() == Family::Godwit {
            self.dialogue.take_names_raw();
        }
        if replies.first().is_some_and(Reply::is_positive) {
            self.settings = settings;
        }
        if replies.is_empty() {
            if let Some(buffer) = buffer.filter(|_| self.family() != Family::Plain) {
                self.ask_one(buffer)?;
            }
            // A node behind a banner of its own.
            if self.family() == Family::Godwit && !self.options.digests {
                self.ask_one(no_digests)?;
            }
        }
        proven.settle_data(self)?;
        self.early = lines.into_iter().zip(replies).collect();
        Ok(Ok(()))
    }

    /// Logs in; a login with a proof sends nothing before the proof is over.
    fn prove_and_enter(
        &mut self,
        (name, login): (&str, LoginKind),
        who: &Credentials,
        lines: &[Line],
    ) -> Result<std::result::Result<(LoggedIn, Proven), Refusal>> {
        let banner = match client::greet(self)? {
            Ok(banner) => banner,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let pace = pace_for(&banner);
        let proven = match Proven::of(self, login, name, pace)? {
            Ok(proven) => proven,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let entered = client::enter(self, banner, &proven.named(who, pace), lines)?;
        Ok(entered.map(|entered| (entered, proven)))
    }

    /// Has data connections prove nothing, and go in clear.
    pub(super) fn stop_proving(&mut self) -> Result<()> {
        if self.options.trust.level != Level::Clear {
            return Err(Error::unsupported(
                "protecting what is transferred",
                "one of the two servers cannot",
            ));
        }
        self.settle("DCAU N")?;
        (self.safety, self.warm) = (None, None);
        Ok(())
    }

    /// Refuses to open data connections with a credential that has expired. Commands that need none still work.
    pub(super) fn check_dates(&self) -> Result<()> {
        match &self.safety {
            Some(safety) => safety.check_dates(&self.host),
            None => Ok(()),
        }
    }

    /// Tells whether a new session could prove more: the credential of this one has expired, and a renewed one
    /// exists.
    pub(super) fn is_outdated(&self) -> bool {
        self.check_dates().is_err() && proof::is_renewed(&self.options.trust)
    }

    /// Says a setting that must not be refused.
    pub(super) fn settle(&mut self, line: &str) -> Result<()> {
        let reply = self.ask_one(Line::new(line))?;
        faults::check(&self.host, Path::new(line), &reply).map(drop)
    }

    /// Wraps all later lines.
    pub(super) fn protect(&mut self, guard: Box<dyn Guard>) -> Result<()> {
        Ok(self.dialogue.protect(guard)?)
    }

    /// Wraps the whole flow instead of each line.
    pub(super) fn protect_flow(&mut self, guard: Box<dyn Guard>) -> Result<()> {
        Ok(self.dialogue.protect_flow(guard)?)
    }

    /// Sends bytes that are no line.
    pub(super) fn send_raw(&mut self, bytes: &[u8], during: &str) -> Result<()> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(|cause| self.break_off(during, cause))
    }

    /// Returns the next raw bytes, which are no reply, or times out at the deadline.
    pub(super) fn hear_raw(&mut self, during: &str, deadline: Instant) -> Result<Vec<u8>> {
        let left = deadline.saturating_duration_since(Instant::now());
        if !self.wait(during, left)? {
            return Err(self.stalled(during, self.options.stall));
        }
        let came = self.read(during)?;
        Ok(self.buffer[..came].to_vec())
    }

    /// Returns what kind of server this is.
    pub(super) fn family(&self) -> Family {
        self.peer.family()
    }

    /// Returns where the server's end of the control channel is.
    pub(super) fn peer_address(&self) -> Result<SocketAddr> {
        if let Some(tunnel) = &self.tunnel {
            return tunnel.peer_address(self.options.connect);
        }
        self.stream
            .peer_addr()
            .map_err(|cause| self.lost("looking who is there", cause))
    }

    /// Returns our address, which the server sees too unless a translator is between.
    pub(super) fn local_ip(&self) -> Result<IpAddr> {
        if let Some(tunnel) = &self.tunnel {
            return tunnel.local_ip(self.options.connect);
        }
        let address = self.stream.local_addr();
        address
            .map(|a| a.ip())
            .map_err(|cause| self.lost("looking who we are", cause))
    }

    /// Tells whether a program carries the session, so that only the server knows its own address.
    pub(super) fn is_carried(&self) -> bool {
        self.tunnel.is_some()
    }

    /// Tells whether the session can be used further. A session that was idle for a while is tested: a lost path
    /// sends nothing, and the system does not notice.
    pub(super) fn answers(&mut self) -> bool {
        if self.used_at.elapsed() < ASK_AFTER {
            return true;
        }
        let asked = self.say(&Line::new("NOOP"));
        let answered = asked.and_then(|()| self.hear_within("a sign of life", ALIVE_WITHIN));
        answered.is_ok_and(|reply| reply.is_final())
    }

    /// Tells whether the server hung up, or spoke unasked, which it does only to say goodbye.
    pub(super) fn is_stale(&self) -> bool {
        !matches!(
            wait_readable([self.stream.as_fd()], Duration::ZERO),
            Ok([false])
        )
    }

    /// Sends a line without waiting.
    pub(super) fn say(&mut self, line: &Line) -> Result<()> {
        self.say_all(std::slice::from_ref(line))
    }

    /// Sends lines in one write without waiting.
    pub(super) fn say_all(&mut self, lines: &[Line]) -> Result<()> {
        self.early.clear();
        for line in lines {
            tracing::trace!(host = %self.host, ?line, "said");
            self.dialogue.ask(line)?;
        }
        let bytes = self.dialogue.poll_send();
        let sent = self.stream.write_all(&bytes);
        sent.map_err(|cause| self.break_off("saying a command", cause))
    }

    /// Returns how many commands have no final reply yet.
    pub(super) fn outstanding(&self) -> usize {
        self.dialogue.outstanding()
    }

    /// Returns the next reply of any kind, waiting for it.
    pub(super) fn hear(&mut self, during: &str) -> Result<Reply> {
        let patience = self.options.stall;
        self.hear_within(during, patience)
    }

    /// Returns the next reply of any kind, waiting for it at most so long.
    pub(super) fn hear_within(&mut self, during: &str, patience: Duration) -> Result<Reply> {
        self.hear_unless(during, patience, None)
    }

    /// Waits for a reply, unless an event makes the wait vain. The event has no descriptor, and is checked now and
    /// then.
    pub(super) fn hear_unless(
        &mut self,
        during: &str,
        patience: Duration,
        mut in_vain: Option<&mut dyn FnMut() -> Option<Error>>,
    ) -> Result<Reply> {
        let began = Instant::now();
        let pause_max = in_vain.as_ref().map_or(Duration::MAX, |_| LOOK_EVERY);
        loop {
            if let Some(reply) = self.heard()? {
                return Ok(reply);
            }
            if let Some(error) = in_vain.as_mut().and_then(|look| look()) {
                self.is_broken = true;
                return Err(error);
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(self.stalled(during, began.elapsed()));
            }
            if self.wait(during, left.min(pause_max))? {
                self.listen(during)?;
            }
        }
    }

    /// Waits until bytes arrive; returns false if none did in that time.
    fn wait(&mut self, during: &str, within: Duration) -> Result<bool> {
        let fds = [self.stream.as_fd(), self.options.cancel.as_fd()];
        match wait_readable(fds, within) {
            Ok([true, _]) => Ok(true),
            Ok([_, true]) => {
                self.is_broken = true;
                Err(Error::Canceled)
            }
            Ok(_) => Ok(false),
            Err(cause) => Err(self.break_off(during, cause)),
        }
    }

    /// Returns the next reply if it has come.
    pub(super) fn heard(&mut self) -> Result<Option<Reply>> {
        let heard = self.dialogue.poll_heard().map_err(|bad| {
            self.is_broken = true;
            Error::misbehaved(self.host.clone(), bad.to_string())
        })?;
        let Some(HeardReply { ticket, reply }) = heard else {
            return Ok(None);
        };
        tracing::trace!(host = %self.host, code = reply.code, said = reply.text(), "heard");
        // 421 may come at any time, and then the server is gone.
        if ticket.is_none() || reply.code == 421 {
            self.is_broken = true;
            let refusal = client::Refusal::of(&reply);
            return Err(match refusal {
                Some(refusal) => faults::refused(&self.host, Path::new(""), refusal),
                None => Error::misbehaved(
                    self.host.clone(),
                    format!("a reply to nothing: {}", reply.said()),
                ),
            });
        }
        Ok(Some(reply))
    }

    /// Reads what has come on the control channel.
    pub(super) fn listen(&mut self, during: &str) -> Result<()> {
        let came = self.read(during)?;
        self.dialogue.on_bytes(&self.buffer[..came]);
        Ok(())
    }

    /// Fills the buffer with what has come, and returns how much that is.
    fn read(&mut self, during: &str) -> Result<usize> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(self.break_off(during, io::ErrorKind::UnexpectedEof.into())),
            Ok(came) => Ok(came),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(cause) => Err(self.break_off(during, cause)),
        }
    }

    /// Returns how long nothing may get on.
    pub(super) fn stall(&self) -> Duration {
        self.options.stall
    }

    /// Waits for the final reply of the oldest command.
    pub(super) fn final_reply(&mut self, during: &str) -> Result<Reply> {
        self.final_reply_within(during, self.options.stall)
    }

    /// Waits for the final reply of a server that may work in silence for `patience`.
    pub(super) fn final_reply_within(&mut self, during: &str, patience: Duration) -> Result<Reply> {
        let (mut since, mut headway) = (Instant::now(), Headway::default());
        loop {
            let left = patience.saturating_sub(since.elapsed());
            let reply = self.hear_within(during, left)?;
            if reply.is_final() {
                return Ok(reply);
            }
            if headway.gets_on(&reply) {
                since = Instant::now();
            } else if left.is_zero() {
                return Err(self.stalled(during, patience));
            }
        }
    }

    fn replies(&mut self, lines: &[Line]) -> Result<Vec<Reply>> {
        let reply = |_| self.final_reply("waiting for a reply");
        lines.iter().map(reply).collect()
    }

    fn break_off(&mut self, during: &str, cause: io::Error) -> Error {
        self.is_broken = true;
        if matches!(
            cause.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        ) {
            return Error::stalled(self.host.clone(), during, self.options.stall);
        }
        self.lost(during, cause)
    }

    /// Fails once nothing has got on for longer than a stall may last.
    pub(super) fn check_patience(&mut self, since: Instant, during: &str) -> Result<()> {
        let waited = since.elapsed();
        match waited > self.options.stall {
            true => Err(self.stalled(during, waited)),
            false => Ok(()),
        }
    }

    fn stalled(&mut self, during: &str, waited: Duration) -> Error {
        self.is_broken = true;
        Error::stalled(self.host.clone(), during, waited)
    }

    fn lost(&self, during: &str, cause: io::Error) -> Error {
        Error::lost(self.host.clone(), during, cause)
    }
}

/// Returns how much is sent before a reply is awaited.
fn pace_for(banner: &str) -> ProofPace {
    match banner.contains("godwit") {
        true => ProofPace::AtOnce,
        false => ProofPace::StepByStep,
    }
}

/// Adds to an error before the first command that it was during the login.
fn while_logging_in(mut error: Error) -> Error {
    if let Error::Lost { during, .. } | Error::Stalled { during, .. } = &mut error
        && during != GREETING
    {
        *during = LOGIN.into();
    }
    error
}

impl AsFd for RemoteSession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Talk for RemoteSession {
    type Error = Error;

    fn ask(&mut self, lines: &[Line]) -> Result<Vec<Reply>> {
        if let [line] = lines
            && let Some(at) = self.early.iter().position(|(said, _)| said == line)
        {
            return Ok(vec![self.early.remove(at).1]);
        }
        let began = Instant::now();
        self.say_all(lines)?;
        let replies = self.replies(lines)?;
        self.round_trip = self.round_trip.min(began.elapsed());
        Ok(replies)
    }

    fn ask_before_greeting(&mut self, lines: &[Line]) -> Result<(Reply, Vec<Reply>)> {
        let began = Instant::now();
        self.say_all(lines)?;
        let greeting = self.greeting()?;
        let replies = self.replies(lines)?;
        self.round_trip = self.round_trip.min(began.elapsed());
        Ok((greeting, replies))
    }

    fn greeting(&mut self) -> Result<Reply> {
        self.final_reply(GREETING).map_err(|error| match error {
            Error::PeerMisbehaved { host, what } => Error::not_ftp(host, what),
            other => other,
        })
    }
}

/// An idle connection is trusted for so long without a question.
pub(crate) const ASK_AFTER: Duration = Duration::from_secs(1);
/// How long an idle connection may take to show that it still leads somewhere.
pub(crate) const ALIVE_WITHIN: Duration = Duration::from_secs(2);
/// How often it is looked whether waiting is in vain.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Replies are short, but thousands of them come together when small files fly.
const READ_BYTES: usize = 64 << 10;
