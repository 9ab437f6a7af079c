//! Takes connections and gives each a thread.

use super::reload::Reload;
use crate::{
    Addresses, Config, Error,
    access::{accounts::AccountNodes, names::CatalogNames, trust::NodeTrust},
    base::{
        admission::{Admission, Admitted, LOG_PLACES_MAX, LogPlaces, Party},
        current::Current,
        stop::Stop,
    },
    ftp::session::FtpSession,
    hop::admin::Operating,
    https,
    local::ServedNode,
    shared::{NodeState, dir_of_nobody, passwords_of, rules_of, site_of},
    task::workplace,
};
use godwit_catalog::Refusal;
use godwit_store::channel::Cancel;
use godwit_sys::{listen_deep, raise_open_files, wait_readable};
use godwit_trust::PeersDir;
use std::{
    fs::File,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Refuses a configuration under which no client could reach the node.
fn must_serve(config: &Config) -> Result<(), Error> {
    let is_nowhere = config.ftp.is_empty() && config.https.is_empty() && config.via.is_empty();
    match is_nowhere {
        true => Err(Error::Nowhere),
        false => Ok(()),
    }
}

/// Reads all that a configuration names.
pub(crate) fn rehearse(config: &Config) -> Result<(), Error> {
    must_serve(config)?;
    let (trust, cluster) = (config.trust.clone(), config.cluster.clone());
    let trust = NodeTrust::begin(trust, cluster, config.kerberos.clone(), None, None, None);
    let mut trust = trust.map_err(Error::Trust)?;
    trust.begin_cluster().map_err(Error::Trust)?;
    trust.begin_kerberos().map_err(Error::Trust)?;
    trust.begin_logins(config)?;
    if config.hop.is_none() {
        dir_of_nobody(config, &AccountNodes::of_this_process(config), None)?;
    }
    rules_of(config, None, None)?;
    passwords_of(config, &trust).map(drop)
}

/// Starts the socket for the operator of a hop. Without it the hop serves all the same.
fn operating(shared: &NodeState) -> Option<Operating> {
    let (config, spooled) = (&shared.config, shared.hop.as_ref()?);
    let hop = config.hop.as_ref()?;
    let reaches = (shared.trust.home().cloned(), config.routes.clone());
    let (depot, told) = (Arc::clone(spooled.depot()), hop.on_fault.clone());
    let begun = Operating::start(depot, &hop.spool, reaches, told, shared.stop.clone());
    begun
        .map_err(|error| tracing::warn!(%error, spool = %hop.spool.display(), "no program of this machine can ask what it holds"))
        .ok()
}

/// A node that serves.
#[derive(Debug)]
pub struct Node {
    shared: Arc<NodeState>,
    reload: Reload,
    admission: Arc<Admission>,
    addresses: Addresses,
    listeners: Vec<JoinHandle<()>>,
    /// The socket for the operator of a hop.
    operating: Option<Operating>,
}

impl Node {
    /// Begins to serve, with the rights of this process; returns when connections
    /// are taken.
    pub fn start(config: Config) -> Result<Self, Error> {
        let accounts = AccountNodes::of_this_process(&config);
        Self::start_for(config, accounts)
    }

    /// Begins to serve. What takes root comes first, and then root is given up.
    pub(crate) fn start_for(config: Config, accounts: AccountNodes) -> Result<Self, Error> {
        must_serve(&config)?;
        let mut listeners = Vec::new();
        for &address in &config.ftp {
            let listener = bind(address).map_err(|cause| Error::Listen { address, cause })?;
            listeners.push((address, listener));
        }
        let mut doors = Vec::new();
        for &address in &config.https {
            let door = bind(address).map_err(|cause| Error::Listen { address, cause })?;
            doors.push(door);
        }
        // Its key may be root's alone.
        let mut trust = NodeTrust::begin(
            config.trust.clone(),
            config.cluster.clone(),
            config.kerberos.clone(),
            accounts.steward(),
            config.state.as_deref(),
            None,
        )
        .map_err(Error::Trust)?;
        accounts.give_up_root(config.state.as_deref())?;
        trust.begin_cluster().map_err(Error::Trust)?;
        trust.begin_via(&config.via)?;
        trust.begin_kerberos().map_err(Error::Trust)?;
        trust.begin_logins(&config)?;
        if !doors.is_empty() {
            // Invalid keys are reported at the start, not to each visitor.
            trust.door().map_err(Error::Trust)?;
        }
        accounts.must_be_open()?;
        workplace::sweep(&config.export);
        let shared = Arc::new(NodeState::begin(config, accounts, trust, false)?);
        let descriptors = raise_open_files().map_err(Error::Start)?;
        let sessions = sessions_for(shared.config.limits.sessions, descriptors);
        let per_address = shared.config.limits.sessions_per_address;
        let admission = Arc::new(Admission::new("sessions", sessions, per_address));
        let now = Current::new(Arc::clone(&shared));
        let mut node = Self {
            reload: Reload::of(Arc::clone(&now), Arc::clone(&admission), descriptors),
            admission,
            addresses: Addresses::default(),
            listeners: Vec::new(),
            operating: operating(&shared),
            shared,
        };
        for (address, listener) in listeners {
            node.listen(listener)
                .map_err(|cause| Error::Listen { address, cause })?;
        }
        if !doors.is_empty() || !node.shared.config.via.is_empty() {
            let most = usize::try_from(descriptors.saturating_sub(OURS) / 2).unwrap_or(usize::MAX);
            let opened = https::begin(&node.shared, doors, most).map_err(Error::Start)?;
            node.addresses.https = opened.addresses;
            node.listeners.push(opened.keeper);
            node.reload.also(opened.door);
        }
        node.sweep_daily().map_err(Error::Start)?;
        node.keep_rules().map_err(Error::Start)?;
        node.keep_site().map_err(Error::Start)?;
        tracing::info!(
            export = %node.shared.config.export.display(), ftp = ?node.addresses.ftp, https = ?node.addresses.https,
            sessions, descriptors, "serve"
        );
        Ok(node)
    }

    /// Returns where it serves; ports that were 0 are known now.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns what stops it.
    pub fn stopper(&self) -> Stop {
        self.shared.stop.clone()
    }

    /// Returns the handle that reloads the configuration.
    pub fn reloader(&self) -> Reload {
        self.reload.clone()
    }

    /// Returns how many sessions there are.
    pub fn sessions(&self) -> usize {
        self.admission.count()
    }

    /// Returns when it was stopped and the last session has ended.
    pub fn wait(self) {
        for listener in self.listeners {
            let _ = listener.join();
        }
        if !self
            .admission
            .wait_until_empty(self.shared.config.limits.grace)
        {
            tracing::warn!(
                sessions = self.admission.count(),
                "end transfers after the time of grace"
            );
            self.shared.stop.at_once();
            self.admission.wait_until_empty(LAST_WORDS);
        }
        if let Some(hop) = &self.shared.hop {
            hop.depot().end();
            // Pending changes are durable; the thread that sends one may wait for a node that does not answer.
            std::mem::forget(Arc::clone(hop));
        }
        drop(self.operating);
        tracing::info!("stopped");
    }

    /// Removes abandoned uploads that have passed their time, now and every day.
    fn sweep_daily(&mut self) -> io::Result<()> {
        let now = self.reload.shared();
        let kept = now.now().config.limits.partial;
        let every = DAY.min(kept.max(SWEEP_EVERY_MIN));
        let sweeper = thread::Builder::new()
            .name("sweeper".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let stop = now.now().stop.clone();
                while !stop.is_draining() {
                    let shared = now.now();
                    match shared.sweep(kept) {
                        Ok(0) => {}
                        Ok(removed) => tracing::info!(removed, "sweep partials"),
                        Err(error) => {
                            let export = shared.config.export.display();
                            tracing::warn!(%export, %error, "cannot look for old partials");
                        }
                    }
                    if let Some(Err(error)) = shared.trust.home().map(PeersDir::drop_unneeded) {
                        tracing::warn!(%error, "cannot look for old keys and invites");
                    }
                    let _ = wait_readable([stop.draining()], every);
                }
            })?;
        self.listeners.push(sweeper);
        Ok(())
    }

    /// Keeps the rules of the catalog that this node serves.
    fn keep_rules(&mut self) -> io::Result<()> {
        let Some(names) = self.shared.names.clone().filter(CatalogNames::is_ours) else {
            return Ok(());
        };
        let config = &self.shared.config;
        let rates = (config.catalog_rate, config.catalog_scrub);
        let down_after = config.down_after;
        let begin = move |cancel| names.keeper(cancel, rates, down_after);
        self.repeat("rules", RULES_EVERY, begin, |keeper| match keeper.turn() {
            Ok(()) | Err(godwit_store::Error::Canceled) => {}
            Err(error) => tracing::warn!(%error, "cannot keep the rules of the catalog now"),
        })
    }

    /// Obeys the rights of the catalog at the site that this node is.
    fn keep_site(&mut self) -> io::Result<()> {
        let shared = &self.shared;
        let site = site_of(&shared.config, shared.names.as_ref(), shared.trust.home());
        let (Some(site), Some(names)) = (site, shared.names.clone()) else {
            return Ok(());
        };
        let begin = move |cancel| names.asked(cancel);
        let (tell, heard) = mpsc::channel();
        self.repeat("site", SITE_EVERY, begin, move |catalog| {
            site.turn(&**catalog);
            let _ = tell.send(());
        })?;
        // A client that comes at once finds the rights and nodes of now, if the catalog can be asked.
        let _ = heard.recv_timeout(FIRST_ANSWER);
        Ok(())
    }

    /// Takes turns on a thread of its own until the node stops.
    fn repeat<T>(
        &mut self,
        name: &'static str,
        every: Duration,
        begin: impl FnOnce(Cancel) -> Result<T, Refusal> + Send + 'static,
        turn: impl Fn(&T) + Send + 'static,
    ) -> io::Result<()> {
        let (stop, cancel) = (self.shared.stop.clone(), Cancel::new()?);
        let thread = thread::Builder::new().name(name.into());
        self.listeners.push(thread.spawn(move || {
            let begun = match begin(cancel.clone()) {
                Ok(begun) => begun,
                Err(Refusal { said, .. }) => {
                    return tracing::error!(thread = name, said, "the catalog is not obeyed");
                }
            };
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _ = wait_readable([stop.draining()], Duration::MAX);
                    cancel.cancel();
                });
                while !stop.is_draining() {
                    turn(&begun);
                    let _ = wait_readable([stop.draining()], every);
                }
            });
        })?);
        Ok(())
    }

    fn listen(&mut self, listener: TcpListener) -> io::Result<()> {
        listen_deep(listener.as_fd(), WAITING_MAX)?;
        listener.set_nonblocking(true)?;
        self.addresses.ftp.push(listener.local_addr()?);
        let accept = Accept {
            now: self.reload.shared(),
            stop: self.shared.stop.clone(),
            admission: Arc::clone(&self.admission),
            spare: Some(spare()?),
            sessions: 0,
        };
        let thread = thread::Builder::new()
            .name("listener".into())
            .stack_size(STACK_BYTES)
            .spawn(move || accept.until_stopped(&listener))?;
        self.listeners.push(thread);
        Ok(())
    }
}

impl ServedNode for Node {
    fn addresses(&self) -> &Addresses {
        self.addresses()
    }

    fn stopper(&self) -> Stop {
        self.stopper()
    }

    fn wait(self: Box<Self>) {
        (*self).wait();
    }
}

/// On a machine without IPv6, "everywhere" is every IPv4 address.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).or_else(|error| {
        let everywhere = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let taken = error.kind() == io::ErrorKind::AddrInUse;
        if !everywhere || taken {
            return Err(error);
        }
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
    })
}

struct Accept {
    now: Arc<Current<NodeState>>,
    stop: Stop,
    admission: Arc<Admission>,
    /// A descriptor kept so that one more can be taken, and told, when all are used.
    spare: Option<File>,
    sessions: u64,
}

impl Accept {
    fn until_stopped(mut self, listener: &TcpListener) {
        while !self.stop.is_draining() {
            match listener.accept() {
                Ok((stream, peer)) => self.take(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let fds = [listener.as_fd(), self.stop.draining()];
                    let _ = wait_readable(fds, FOREVER);
                }
                Err(error) if is_out_of_descriptors(&error) => self.turn_away_one(listener),
                // The client has left.
                Err(error) => tracing::debug!(
                    error = godwit_sys::why(&error),
                    "lost before it was accepted"
                ),
            }
        }
    }

    fn take(&mut self, stream: TcpStream, peer: SocketAddr) {
        match self
            .admission
            .admit(Party::Address(peer.ip().to_canonical()))
        {
            Ok(admitted) => self.begin(stream, peer, admitted),
            Err(why) => {
                tracing::debug!(%peer, why, "turned away");
                turn_away(&stream, &why);
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, peer: SocketAddr, admitted: Admitted) {
        let Some(places) = LogPlaces::take(1) else {
            tracing::debug!(%peer, "turned away: no thread left for it");
            return turn_away(&stream, NO_THREAD);
        };
        self.sessions += 1;
        let (shared, id) = (self.now.now(), self.sessions);
        let begun = thread::Builder::new()
            .name("session".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let span = tracing::info_span!("session", id, %peer);
                let _inside = span.enter();
                match ready(&stream) {
                    Ok(local) => FtpSession::converse(stream, peer, local, shared),
                    Err(error) => tracing::debug!(error = godwit_sys::why(&error), "lost"),
                }
                drop((admitted, places));
            });
        if let Err(error) = begun {
            // The stream went with the closure; it is closed, which must do.
            tracing::warn!(%peer, error = godwit_sys::why(&error), "no thread for a session");
        }
    }

    /// Uses the spare descriptor to tell one client that there is none left.
    fn turn_away_one(&mut self, listener: &TcpListener) {
        self.spare = None;
        if let Ok((stream, peer)) = listener.accept() {
            tracing::warn!(%peer, "turned away: no descriptors left");
            turn_away(&stream, NO_MORE);
        }
        self.spare = spare().ok();
    }
}

/// Has a control connection do what one should, and tells where its end here is.
fn ready(control: &TcpStream) -> io::Result<SocketAddr> {
    control.set_nodelay(true)?;
    // A sender waits for what we tell it of its data: after an outage that must not come late.
    godwit_sys::retry_often(control.as_fd());
    // An urgent byte of ABOR belongs to the line.
    godwit_sys::keep_urgent_in_line(control.as_fd())?;
    control.local_addr()
}

/// Sends 421 without blocking.
fn turn_away(stream: &TcpStream, why: &str) {
    let _ = stream.set_nonblocking(true);
    let _ = (&*stream).write(&godwit_wire::server::Session::turned_away(why));
}

/// A session needs its control connection, a listener, some data connections,
/// the file and what wakes it.
pub(crate) fn sessions_for(wanted: usize, descriptors: u64) -> usize {
    let room = descriptors.saturating_sub(OURS) / DESCRIPTORS_A_SESSION;
    let room = usize::try_from(room).unwrap_or(wanted).min(LOG_PLACES_MAX);
    if wanted > room {
        tracing::warn!(
            wanted,
            sessions = room,
            "limits.sessions is more than this node can serve; set it lower, or raise the limit of open files"
        );
    }
    wanted.min(room).max(1)
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

fn spare() -> io::Result<File> {
    File::open("/dev/null")
}

const NO_MORE: &str = "No descriptors left for another session; try again later.";
const NO_THREAD: &str = "No thread left for another session; try again later.";
const STACK_BYTES: usize = 256 << 10;
/// How often files are compared with the rules of the catalog.
const RULES_EVERY: Duration = Duration::from_secs(1);
/// How long a catalog may take for its first answer to a site.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// How often a site asks for the rights of the catalog.
const SITE_EVERY: Duration = Duration::from_secs(3);
const DAY: Duration = Duration::from_secs(86_400);
const SWEEP_EVERY_MIN: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::from_secs(3600);
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Connections that wait to be accepted.
const WAITING_MAX: i32 = 4096;
const OURS: u64 = 64;
const DESCRIPTORS_A_SESSION: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_stay_below_what_log_bears() {
        assert_eq!(sessions_for(100_000, u64::MAX), LOG_PLACES_MAX);
        assert_eq!(sessions_for(100, 264), 50);
    }
}
