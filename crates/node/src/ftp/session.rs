//! One FTP connection, in its own thread.
//!
//! The pure session in `wire` decides; this module reads and writes, opens files and moves data. During a transfer this
//! thread listens to the control connection, and another one moves the bytes.

mod attend;
mod digest;
mod list;
mod names;
mod owners;
mod publish;
mod receive;
mod send;
mod striped;
mod text;
mod through;
mod trust;

use super::stripes::Stripes;
use crate::{
    access::guarded::GuardedExport,
    base::{
        metrics::{Proto, TrafficDirection},
        ports::PortChannel,
        transfer_log::Transfer,
    },
    shared::NodeState,
};
use godwit_core::Kind;
use godwit_store::{
    Error, Whom,
    channel::{DataChannel, Watch},
};
use godwit_sys::{Wake, end_waits_on_time, wait_readable};
use godwit_wire::{
    command::{Family, TransferMode},
    server::{self as wire, Ask, FtpAnswer, Leg, Profile, Refusal, SessionStep},
    shield::DataPeer,
};
use std::{
    fmt,
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant, SystemTime},
};

/// A client, and all that is held for it.
pub(crate) struct FtpSession {
    shared: Arc<NodeState>,
    control: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    machine: wire::Session,
    input: Box<[u8]>,
    /// The client closed the control connection.
    gone: bool,
    held: Option<PortChannel>,
    /// Where the client wants data to go.
    aimed: Vec<SocketAddr>,
    /// Others that make transfers for us.
    stripes: Option<Stripes>,
    /// The identity for which members act.
    whom: Whom,
    /// The export, as who logged in sees it.
    dir: GuardedExport,
    proof: trust::ClientProof,
    /// Logins by password that were refused.
    guesses: u32,
    /// State of the data connections in the transfer in flight.
    links: LinkState,
    /// Over transfers in this thread; made anew after a cancel.
    watch: Watch,
    /// Raised by a thread that works for this session, when it is done.
    over: Wake,
    /// Data that waits in the channel for more to be written with it.
    queued_bytes: usize,
}

/// State of the data connections in a transfer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum LinkState {
    /// Nothing yet.
    #[default]
    Untouched,
    /// The transfer has begun to use them.
    Underway,
    /// All that belongs to it has gone over them, and nothing else.
    Done,
}

/// Why a conversation is over.
#[derive(Debug)]
enum SessionEnd {
    /// Both sides ended it.
    Closed,
    /// The client did not say.
    Lost(io::Error),
}

impl From<io::Error> for SessionEnd {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl FtpSession {
    /// Talks with a client until one of both ends it.
    pub(crate) fn converse(
        control: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        shared: Arc<NodeState>,
    ) {
        tracing::debug!("connected");
        end_waits_on_time();
        let end = Self::new(control, peer, local, shared).and_then(|mut session| {
            let end = session.run();
            session.leave();
            end
        });
        match end {
            Err(SessionEnd::Lost(error)) => {
                tracing::debug!(error = godwit_sys::why(&error), "lost")
            }
            _ => tracing::debug!("closed"),
        }
    }

    fn new(
        control: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        shared: Arc<NodeState>,
    ) -> Result<Self, SessionEnd> {
        control.set_nonblocking(false)?;
        control.set_write_timeout(Some(shared.config.limits.stall))?;
        let limits = &shared.config.limits;
        let profile = Profile {
            host: shared.host().into(),
            line_bytes_max: limits.line_bytes,
            pipeline_max: limits.pipeline,
            data_ports: shared.config.data.ports.clone().map(Iterator::count),
            offers_gssapi: shared.trust.offers_gssapi() && !shared.is_let_in,
            offers_cluster: shared.trust.offers_cluster() && !shared.is_let_in,
            offers_tls: shared.trust.offers_tls() && !shared.is_let_in,
            passwords_need_tls: shared.passwords.is_some()
                && !shared.config.passwords.in_clear
                && !shared.is_let_in,
            stripes: shared.config.stripes.len(),
            modules: shared.modules.told(),
            passes_on: shared.config.hop.is_some(),
            ..Profile::default()
        };
        Ok(Self {
            local,
            machine: wire::Session::new(profile),
            input: vec![0; INPUT_BYTES].into(),
            gone: false,
            held: None,
            aimed: Vec::new(),
            stripes: None,
            whom: Whom::Anonymous,
            dir: shared.dir_of_anybody().of_client(peer),
            proof: trust::ClientProof::None,
            guesses: 0,
            links: LinkState::Untouched,
            watch: Watch::new(limits.stall)?,
            over: Wake::new()?,
            queued_bytes: 0,
            control,
            peer,
            shared,
        })
    }

    fn run(&mut self) -> Result<(), SessionEnd> {
        let begun = Instant::now();
        loop {
            self.work()?;
            let limits = &self.shared.config.limits;
            let deadline = match self.machine.user() {
                Some(_) => Instant::now() + limits.idle,
                None => begun + limits.login,
            };
            self.wait_for_command(deadline)?;
        }
    }

    /// Does all that can be done without hearing more from the client.
    fn work(&mut self) -> Result<(), SessionEnd> {
        while let Some(step) = self.next_step() {
            match step {
                SessionStep::Close => {
                    if let Some(why) = self.machine.spoiled() {
                        tracing::warn!(%why, "closed without a word");
                    }
                    self.flush()?;
                    self.say_goodbye();
                    return Err(SessionEnd::Closed);
                }
                SessionStep::Ask(ask) => {
                    let answer = self.answer(ask);
                    self.machine.on_answer(answer);
                }
            }
            if self.machine.output().len() >= OUTPUT_BYTES {
                self.flush()?;
            }
        }
        self.flush()
    }

    fn next_step(&mut self) -> Option<SessionStep> {
        let step = self.machine.poll();
        for why in self.machine.take_unproved() {
            tracing::info!(error = why, "authentication failed");
        }
        step
    }

    /// A client that sends bytes but never a command is idle too: only what
    /// makes the session do something counts.
    fn wait_for_command(&mut self, deadline: Instant) -> Result<(), SessionEnd> {
        while self.machine.is_idle() {
            if self.gone {
                return Err(SessionEnd::Closed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = self.silence();
                tracing::info!(why, "close");
                return self.close(&why);
            }
            let control = self.control.as_fd();
            let held = self.held.as_ref().filter(|_| self.machine.is_ours());
            let wanted = held.and_then(PortChannel::wanted).unwrap_or(control);
            let fds = [control, self.shared.stop.draining(), wanted];
            let [came, draining, wanted] = wait_readable(fds, left)?;
            if came {
                self.hear()?;
                self.flush_replies()?; // TLS answers for itself
            } else if draining {
                return self.close("The server stops.");
            } else if wanted {
                self.lend_port()?;
            }
        }
        Ok(())
    }

    /// Returns the text about the wait that timed out.
    fn silence(&self) -> String {
        let limits = &self.shared.config.limits;
        let (idle, login) = (limits.idle.as_secs(), limits.login.as_secs());
        match (self.machine.user(), &self.proof) {
            _ if self.machine.is_shaking_hands() => {
                format!("The TLS handshake did not come to its end within {login} s.")
            }
            (Some(_), _) => format!("Nothing came for too long ({idle} s)."),
            (None, trust::ClientProof::Underway(_)) => {
                format!("The proof of who you are did not come to its end within {login} s.")
            }
            (None, _) => format!("There was no login within {login} s."),
        }
    }

    /// Gives the data port to a session that waits for one, unless the client uses it soon. The client sees its
    /// connections closed, and asks for a port again.
    fn lend_port(&mut self) -> Result<(), SessionEnd> {
        let [came] = wait_readable([self.control.as_fd()], LEND_AFTER)?;
        if came {
            return self.hear();
        }
        self.leave();
        Ok(())
    }

    fn close(&mut self, why: &str) -> Result<(), SessionEnd> {
        self.machine.close(why);
        self.flush()?;
        self.say_goodbye();
        Err(SessionEnd::Closed)
    }

    /// Clients may take a connection that just ends for one that was cut off.
    fn say_goodbye(&mut self) {
        let last = self.machine.end();
        if !last.is_empty() {
            let _ = (&self.control).write_all(&last);
        }
    }

    /// Takes what the client sent.
    fn hear(&mut self) -> Result<(), SessionEnd> {
        match (&self.control).read(&mut self.input) {
            Ok(0) => self.gone = true,
            Ok(count) => self.machine.on_bytes(&self.input[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Sends queued data, then the reply, so that a final reply is true.
    fn flush(&mut self) -> Result<(), SessionEnd> {
        if self.queued_bytes > 0
            && let Err(error) = self.flush_data()
        {
            tracing::debug!(%error, "lost data of small files");
            // Replies already promise it. Closing is the only true word left.
            return Err(SessionEnd::Lost(io::ErrorKind::ConnectionAborted.into()));
        }
        self.flush_replies()?;
        self.shared.journal.flush();
        Ok(())
    }

    /// Writes down and counts how a transfer went.
    fn note(
        &self,
        direction: TrafficDirection,
        (source, target): (&dyn fmt::Display, &dyn fmt::Display),
        seconds: f64,
        streams: usize,
        came_to: Result<u64, &str>,
    ) {
        match came_to {
            Ok(bytes) => self.shared.metrics.moved(direction, Proto::Ftp, bytes),
            Err(_) => self.shared.metrics.failed("transfer"),
        }
        self.shared.journal.note(|| Transfer {
            when: now(),
            user: self.machine.user().unwrap_or_default(),
            source: source.to_string(),
            target: target.to_string(),
            seconds,
            streams,
            came_to,
        });
    }

    fn flush_replies(&mut self) -> Result<(), SessionEnd> {
        let output = self.machine.output();
        let sent = if output.is_empty() {
            Ok(())
        } else {
            (&self.control).write_all(output)
        };
        output.clear();
        Ok(sent?)
    }

    fn flush_data(&mut self) -> godwit_store::Result<()> {
        self.queued_bytes = 0;
        match &mut self.held {
            Some(held) => held.flush(&self.watch),
            None => Ok(()),
        }
    }

    /// Ends cached data connections as the sender should.
    fn leave(&mut self) {
        if let Some(mut held) = self.held.take() {
            held.close(&self.watch);
        }
    }

    fn dir(&self) -> &GuardedExport {
        &self.dir
    }

    fn answer(&mut self, ask: Ask) -> FtpAnswer {
        self.try_answer(ask).unwrap_or_else(FtpAnswer::Failed)
    }

    fn try_answer(&mut self, ask: Ask) -> Result<FtpAnswer, Refusal> {
        match ask {
            Ask::Authenticate { by } => self.authenticate(by),
            Ask::Prove { token } => self.prove(&token),
            Ask::DataCredential { pem } => self.show_instead(pem.as_deref()),
            Ask::Login { user, password } => self.login(&user, &password),
            Ask::Listen { family, striped } => self.listen(family, striped),
            Ask::Aim { to } => self.aim(to),
            Ask::Hang => {
                self.let_go();
                Ok(FtpAnswer::Done)
            }
            Ask::Retrieve { path, want, leg } => self.retrieve(&path, &want, &leg),
            Ask::List { path, listing, leg } => self.list(&path, &listing, &leg),
            Ask::Store { path, give, leg } => self.store(&path, &give, &leg),
            Ask::RetrieveThrough { path, through, leg } => {
                self.retrieve_through(&path, &through, &leg)
            }
            Ask::StoreThrough {
                path,
                through,
                give,
                leg,
            } => self.store_through(&path, &through, &give, &leg),
            Ask::Show { path, listing } => self.show(&path, &listing),
            Ask::Finish {
                path,
                upload,
                digests,
            } => self.finish(&path, &upload, digests),
            Ask::Digest {
                path,
                by,
                range,
                markers,
            } => self.digest(&path, by, range, markers),
            ask => self.about_names(ask),
        }
    }

    /// Forgets data connections, and where they go.
    fn let_go(&mut self) {
        (self.held, self.aimed) = (None, Vec::new());
        if let Some(stripes) = &mut self.stripes {
            stripes.forget_way();
        }
    }

    fn listen(&mut self, family: Option<Family>, striped: bool) -> Result<FtpAnswer, Refusal> {
        self.let_go();
        if striped && let Some(all) = self.listen_striped() {
            return Ok(FtpAnswer::Listening(all));
        }
        let (held, address) = self.passive(family)?;
        self.held = Some(held);
        Ok(FtpAnswer::Listening(vec![address]))
    }

    fn passive(&mut self, family: Option<Family>) -> Result<(PortChannel, SocketAddr), Refusal> {
        // The port of the last transfer may be the only one there is.
        self.held = None;
        let ip = self.local.ip().to_canonical();
        let fits = match family {
            None => true,
            Some(Family::V4) => ip.is_ipv4(),
            Some(Family::V6) => ip.is_ipv6(),
        };
        if !fits {
            let why = "This session speaks the other protocol family: use EPSV without a number.";
            return Err(Refusal::of_kind(Kind::Unreachable, why));
        }
        let gone = || self.shared.stop.is_draining();
        let (mut held, address) = self.shared.ports.listen(ip, &gone)?;
        if !self.shared.config.data.third_party {
            held.accept_only(self.peer.ip());
        }
        let told = self
            .shared
            .config
            .data
            .address
            .filter(|told| told.is_ipv4() == ip.is_ipv4());
        Ok((held, SocketAddr::new(told.unwrap_or(ip), address.port())))
    }

    /// RFC 2577: a server that connects to any address can be abused. The node never connects to ports of daemons. It
    /// connects to hosts other than the client, for third-party transfers, only for a client that may write, and if
    /// configured so.
    fn aim(&mut self, to: Vec<SocketAddr>) -> Result<FtpAnswer, Refusal> {
        self.let_go();
        for address in &to {
            let ip = address.ip().to_canonical();
            if address.port() < 1024 {
                return Err(Refusal::of_kind(
                    Kind::Denied,
                    "Ports below 1024 are not for data.",
                ));
            }
            if ip.is_multicast() || ip.is_unspecified() || ip == BROADCAST {
                return Err(Refusal::of_kind(
                    Kind::Denied,
                    "No server can listen at that address.",
                ));
            }
            if ip == self.peer.ip().to_canonical() {
                continue;
            }
            let why = if is_of_this_machine(ip) {
                "That address means another machine for you than for this server."
            } else if !self.shared.config.data.third_party {
                "Data goes to the client only: third-party transfers are switched off."
            } else if !self.machine.may_write() {
                "Data goes to the client only: this login may not write."
            } else {
                continue;
            };
            return Err(Refusal::of_kind(Kind::Denied, why));
        }
        self.aimed.clone_from(&to);
        self.held = Some(PortChannel::without_port(DataChannel::connect(to)));
        Ok(FtpAnswer::Done)
    }

    /// Makes sure that there is a data connection, and says so.
    fn open(&mut self, leg: &Leg) -> Result<(), Refusal> {
        let safety = self.safety(leg)?;
        self.links = LinkState::Underway;
        if let Some(family) = leg.delayed {
            let (held, address) = self.passive(family)?;
            self.held = Some(held);
            self.machine.on_address(address);
        }
        let Some(mut held) = self.held.take() else {
            return Err(Refusal::of_kind(
                Kind::Unreachable,
                "Use PASV or PORT first.",
            ));
        };
        held.size_buffers(leg.buffer_bytes);
        held.protect(safety);
        held.announce(leg.share.and_then(|share| share.ends));
        let warm = held.is_warm();
        if !warm {
            let streams = leg.streams.min(self.shared.config.limits.streams);
            let open = match leg.peer {
                DataPeer::Anyone => self.connect(held, streams, leg),
                _ => self.connect_attended(held, streams, leg),
            };
            held = open.map_err(|error| {
                let failure = Refusal::from(&error);
                let kind = match failure.kind {
                    kept @ (Kind::Canceled | Kind::Denied | Kind::Unproven | Kind::Expired) => kept,
                    _ => Kind::Unreachable,
                };
                Refusal { kind, ..failure }
            })?;
        }
        self.held = Some(held);
        self.machine.on_open(warm);
        Ok(())
    }

    /// Opens data connections to send: connections of strangers to our port are closed first, since bytes sent to them
    /// would be missing.
    fn open_to_send(&mut self, leg: &Leg) -> Result<(), Refusal> {
        self.open(leg)?;
        let Some(mut held) = self.held.take_if(|held| held.may_have_strangers()) else {
            return Ok(());
        };
        let watch = self.new_watch()?;
        let dismissed = self.attended(&watch, TICK_NEVER, &mut |_| {}, || {
            held.dismiss_strangers(leg.mode, &watch)?;
            Ok(held)
        });
        self.held = Some(dismissed?);
        Ok(())
    }

    /// Most clients connect at once: a thread is worth its while only for others.
    fn connect(
        &mut self,
        mut held: PortChannel,
        streams: usize,
        leg: &Leg,
    ) -> godwit_store::Result<PortChannel> {
        self.flush_replies().map_err(|_| Error::Canceled)?;
        let soon = Watch::over(self.watch.canceled().clone(), SOON);
        match held.open(streams, &soon) {
            Ok(_) => return Ok(held),
            Err(Error::Stalled { .. }) => {}
            Err(error) => return Err(error),
        }
        self.connect_attended(held, streams, leg)
    }

    /// An authentication that has begun must not be interrupted: it cannot be resumed.
    fn connect_attended(
        &mut self,
        mut held: PortChannel,
        streams: usize,
        leg: &Leg,
    ) -> godwit_store::Result<PortChannel> {
        let watch = self.watch_over(leg)?;
        self.attended(&watch, TICK_NEVER, &mut |_| {}, || {
            held.open(streams, &watch)?;
            Ok(held)
        })
    }

    fn new_watch(&self) -> godwit_store::Result<Watch> {
        self.watch_for(self.shared.config.limits.stall)
    }

    /// A stripe may have nothing to do for long: then its front knows whether all stand still.
    fn watch_over(&self, leg: &Leg) -> godwit_store::Result<Watch> {
        let stall = self.shared.config.limits.stall;
        self.watch_for(match leg.share {
            None => stall,
            Some(_) => stall * STALLS_OF_A_STRIPE,
        })
    }

    fn watch_for(&self, stall: Duration) -> godwit_store::Result<Watch> {
        Watch::new(stall).map_err(|cause| Error::Io {
            path: "transfer".into(),
            cause,
        })
    }

    /// Lets go of data connections that are used up, or in a state that only the
    /// peer knows. What waits in them was promised already.
    fn after_transfer(&mut self, mode: TransferMode) -> LinkState {
        let links = std::mem::take(&mut self.links);
        let spent = mode == TransferMode::Stream || links == LinkState::Underway;
        if links != LinkState::Untouched && spent {
            if let Err(error) = self.flush_data() {
                tracing::debug!(%error, "lost data of small files");
                self.gone = true;
            }
            self.held = None;
        }
        links
    }

    fn transfer_id(&self) -> u64 {
        self.shared.transfers.fetch_add(1, Relaxed)
    }
}

/// Tells whether an address is local to the machine or link that uses it.
fn is_of_this_machine(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
    }
}

/// Now, since the epoch.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

const STALLS_OF_A_STRIPE: u32 = 60;
const BROADCAST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
const INPUT_BYTES: usize = 8 << 10;
const OUTPUT_BYTES: usize = 64 << 10;
/// Longer than a client takes from the reply to `EPSV` to its next command.
const LEND_AFTER: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(300);
const TICK_NEVER: Duration = Duration::from_secs(3600);
