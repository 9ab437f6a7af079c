//! Authentication of an FTP client: `AUTH GSSAPI`, `AUTH GODWIT` and `AUTH TLS`.

use super::FtpSession;
use crate::{config::Access, shared::ANONYMOUS};
use godwit_core::Kind;
use godwit_store::{
    EntryKind, Flow, LineGuard, Store, Whom,
    channel::{Safety, Tls, TlsPart},
};
use godwit_sys::{UserAccount, wait_readable};
use godwit_trust::{
    Authorities, Blockwise, Channel, Context, Credential, Expect, Identity, Kerberos, LOG,
    Resumption, is_name,
};
use godwit_wire::{
    client::ACTS_FOR,
    server::{FtpAnswer, Leg, Mechanism, Refusal, Welcome, is_nobody},
    shield::{Cover, DataPeer, Level},
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// How far a client has proved who it is.
#[derive(Debug, Default)]
pub(super) enum ClientProof {
    /// The client has not begun.
    #[default]
    None,
    /// The first token will show the kind of proof: a certificate, if the node has one itself, or a ticket.
    Offered(Result<Box<Underway>, Refusal>),
    /// Tokens go back and forth.
    Underway(Box<Underway>),
    /// A ticket has arrived, and another message is due.
    Ticket(Box<Kerberos>),
    /// Its ticket was good.
    Known(Box<KnownPeer>),
    /// The client has proved its identity.
    Done(Box<ProvedClient>),
    /// Only we have, by this certificate: all is under TLS.
    Ours(Credential),
}

/// A proof that has not come to its end.
#[derive(Debug)]
pub(super) struct Underway {
    channel: Channel,
    ours: Credential,
    authorities: Authorities,
}

/// Results of a finished proof.
#[derive(Debug)]
pub(super) struct ProvedClient {
    pub(super) peer: Identity,
    /// The credential of data connections: the one that the client delegated, or the node's.
    pub(super) credential: Credential,
    pub(super) authorities: Authorities,
    /// The credential of `DCSC`, which replaces the one above.
    pub(super) instead: Option<(Credential, Authorities)>,
}

/// The owner of a good ticket.
#[derive(Debug)]
pub(super) struct KnownPeer {
    peer: Identity,
    /// Protects data blocks.
    data: Blockwise,
}

impl FtpSession {
    pub(super) fn authenticate(&mut self, by: Mechanism) -> Result<FtpAnswer, Refusal> {
        let underway = match by {
            Mechanism::Tls => return self.begin_tls(),
            Mechanism::Gssapi | Mechanism::Godwit => self.begin_proof(by),
        };
        self.proof = match by {
            // The other way may do.
            Mechanism::Gssapi if self.shared.trust.reads_tickets() => {
                ClientProof::Offered(underway)
            }
            _ => ClientProof::Underway(underway?),
        };
        Ok(FtpAnswer::Done)
    }

    /// Begins with what certificates or keys of a cluster prove.
    fn begin_proof(&self, by: Mechanism) -> Result<Box<Underway>, Refusal> {
        let trust = &self.shared.trust;
        let (ours, none) = match by {
            Mechanism::Gssapi => (
                trust.ours(),
                match trust.reads_tickets() {
                    true => "this node takes only tickets (Kerberos), and what came is none.",
                    false => "this node has no certificate.",
                },
            ),
            Mechanism::Godwit => {
                let ours = trust.member(self.peer.ip()).map(|member| {
                    member.map(|credential| (credential, trust.authorities_if_any()))
                });
                (ours, "this node is in no cluster that you could be in.")
            }
            Mechanism::Tls => (Ok(None), "TLS begins otherwise."),
        };
        let (ours, authorities) = match ours {
            Ok(Some(ours)) => ours,
            Ok(None) => return Err(Refusal::of_login(none)),
            Err(error) => {
                tracing::warn!(%error, mechanism = by.word(), "cannot authenticate");
                return Err(Refusal::of_login(error.told()));
            }
        };
        let channel = Channel::accept(&ours, &authorities).map_err(|error| refusal(&error))?;
        Ok(Box::new(Underway {
            channel,
            ours,
            authorities,
        }))
    }

    /// Begins TLS on the control connection; data connections use it if the client asks.
    fn begin_tls(&mut self) -> Result<FtpAnswer, Refusal> {
        let host = self.shared.trust.host().and_then(|host| match host {
            Some(host) => {
                Channel::serve(&host, Resumption::ByTicket).map(|flow| Some((host, flow)))
            }
            None => Ok(None),
        });
        match host {
            Ok(Some((host, channel))) => {
                self.machine.guard_with(Box::new(Flow::beginning(channel)));
                self.proof = ClientProof::Ours(host);
                Ok(FtpAnswer::Done)
            }
            Ok(None) => Err(Refusal::of_login(
                "this node has no certificate of its host.",
            )),
            Err(error) => {
                tracing::warn!(%error, "cannot begin TLS");
                Err(Refusal::of_login(error.told()))
            }
        }
    }

    /// Tells whether the whole conversation is under TLS.
    pub(super) fn is_under_tls(&self) -> bool {
        matches!(self.proof, ClientProof::Ours(_))
    }

    pub(super) fn prove(&mut self, token: &[u8]) -> Result<FtpAnswer, Refusal> {
        let mut underway = match std::mem::take(&mut self.proof) {
            ClientProof::Underway(underway) => underway,
            ClientProof::Offered(_) if Kerberos::is_token(token) => {
                let ticket = self.shared.trust.read_tickets();
                return self.take_ticket(Box::new(ticket.map_err(|error| refusal(&error))?), token);
            }
            ClientProof::Offered(underway) => {
                underway.map_err(|failure| unproved(&failure.said))?
            }
            ClientProof::Ticket(ticket) => return self.take_ticket(ticket, token),
            _ => return Err(unproved("AUTH GSSAPI first.")),
        };
        if Kerberos::is_token(token) {
            let why = "This node takes no tickets (Kerberos), only certificates (GSI).";
            return Err(unproved(why));
        }
        let step = underway
            .channel
            .step(token)
            .map_err(|error| refusal(&error))?;
        let limited = underway.channel.peer().filter(|peer| peer.is_limited());
        if let Some(peer) = limited
            && self.shared.config.trust.refuses_limited
        {
            let why =
                format!("The proxy of {peer} is limited, and this node takes only full ones.");
            return Err(unproved(&why));
        }
        if step.done {
            return self.proved(*underway, step.token);
        }
        self.proof = ClientProof::Underway(underway);
        match step.token {
            Some(token) => Ok(FtpAnswer::Token(token)),
            None => Err(unproved("That token is not whole.")),
        }
    }

    fn proved(&mut self, underway: Underway, token: Option<Vec<u8>>) -> Result<FtpAnswer, Refusal> {
        let Underway {
            channel,
            ours,
            authorities,
        } = underway;
        let Some(peer) = channel.peer().cloned() else {
            return Err(unproved("No identity was proved."));
        };
        let called = peer.chain().first();
        tracing::info!(%peer, called, limited = peer.is_limited(), delegated = channel.delegated().is_some(), "authenticated");
        if peer.is_by_address() {
            tracing::warn!("believed for the address that it comes from");
        }
        self.proof = ClientProof::Done(Box::new(ProvedClient {
            credential: channel.delegated().cloned().unwrap_or(ours),
            peer,
            authorities,
            instead: None,
        }));
        self.machine.guard_with(Box::new(LineGuard(channel)));
        Ok(FtpAnswer::Proved {
            token,
            cover: Cover::Proofs,
        })
    }

    /// Takes a token of Kerberos.
    fn take_ticket(
        &mut self,
        mut ticket: Box<Kerberos>,
        token: &[u8],
    ) -> Result<FtpAnswer, Refusal> {
        let step = ticket.step(token).map_err(|error| refusal(&error))?;
        if !step.done {
            self.proof = ClientProof::Ticket(ticket);
            return match step.token {
                Some(token) => Ok(FtpAnswer::Token(token)),
                None => Err(unproved("That token is not whole.")),
            };
        }
        let data = ticket.blockwise().map_err(|error| refusal(&error))?;
        let Some(peer) = ticket.peer().cloned() else {
            return Err(unproved("No identity was proved."));
        };
        tracing::info!(%peer, "authenticated by a ticket");
        self.proof = ClientProof::Known(Box::new(KnownPeer { peer, data }));
        self.machine.guard_with(Box::new(LineGuard(*ticket)));
        Ok(FtpAnswer::Proved {
            token: step.token,
            cover: Cover::Blocks,
        })
    }

    /// Tells whether the client has shown a ticket.
    pub(super) fn is_by_ticket(&self) -> bool {
        matches!(self.proof, ClientProof::Known(_))
    }

    /// Returns who proved who they are.
    fn proved_peer(&self) -> Option<&Identity> {
        match &self.proof {
            ClientProof::Done(proved) => Some(&proved.peer),
            ClientProof::Known(known) => Some(&known.peer),
            _ => None,
        }
    }

    /// Tells whether the one who speaks is a member of the cluster, for whomever it acts.
    pub(super) fn is_member(&self) -> bool {
        matches!(&self.proof, ClientProof::Done(proved) if proved.peer.is_member())
    }

    /// Logs a client in, or refuses it.
    pub(super) fn login(&mut self, user: &str, password: &[u8]) -> Result<FtpAnswer, Refusal> {
        if self.shared.is_let_in {
            return self.login_of_ourselves();
        }
        if is_nobody(user) {
            return self.login_of_anybody();
        }
        let Some(peer) = self.proved_peer() else {
            return self.login_by_password(user, password);
        };
        let peer = match whom(peer, password) {
            Ok(peer) => peer,
            Err(why) => return self.turn_down(user, why),
        };
        match self.shared.trust.account(&peer, user) {
            Ok(account) => self.login_of(&peer, account),
            Err(why) => {
                let (why, gridmap) = (
                    format!("Login incorrect: {why}"),
                    self.shared.trust.gridmap(),
                );
                tracing::info!(user, why, ?gridmap, "login refused");
                Err(Refusal::of_login(why))
            }
        }
    }

    /// Logs in by password. A password without TLS was refused before, unless this node takes them.
    fn login_by_password(&mut self, user: &str, password: &[u8]) -> Result<FtpAnswer, Refusal> {
        let Some(passwords) = &self.shared.passwords else {
            return self.turn_down(user, &self.who_may_come());
        };
        if !self.is_under_tls() && !self.shared.config.passwords.in_clear {
            return self.turn_down(
                user,
                "Passwords are not taken in clear here: say AUTH TLS first.",
            );
        }
        match passwords.who(user, password) {
            Ok(Some(name)) => self.login_of(&Identity::by_password(&name), name),
            Ok(None) => {
                self.make_wait();
                self.turn_down(user, "Login incorrect: no such user, or another password.")
            }
            Err(error) => {
                tracing::error!(%error, "cannot look at the passwords");
                let why =
                    format!("Login incorrect: the passwords of this server cannot be read; {LOG}.");
                self.turn_down(user, &why)
            }
        }
    }

    /// Delays the answer to a wrong password, longer each time.
    fn make_wait(&mut self) {
        let pause = GUESS_PAUSE * 2u32.saturating_pow(self.guesses.min(GUESSES_COUNTED));
        self.guesses += 1;
        // Nothing that could be read ends it but the node.
        let _ = wait_readable([self.shared.stop.draining()], pause);
    }

    fn login_of_anybody(&mut self) -> Result<FtpAnswer, Refusal> {
        let access = self.shared.config.anonymous;
        if access == Access::None {
            return self.turn_down(ANONYMOUS, &self.who_may_come());
        }
        tracing::info!(user = ANONYMOUS, "login");
        self.serve_for(Whom::Anonymous);
        self.dir = self.shared.dir_of_anybody().of_client(self.peer);
        Ok(FtpAnswer::Welcome(Welcome {
            user: ANONYMOUS.into(),
            may_write: access == Access::Write || self.shared.asks_rights(),
            home: PathBuf::new(),
        }))
    }

    /// Logs in the account of this process, regardless of the name given: another program admitted the client.
    fn login_of_ourselves(&mut self) -> Result<FtpAnswer, Refusal> {
        let account = UserAccount::of_number(godwit_sys::user_id());
        let user = account.map_or_else(|_| godwit_sys::user_id().to_string(), |user| user.name);
        tracing::info!(user, "login");
        let dir = self.shared.dir_of(&user, &Identity::named(&*user));
        self.dir = dir?.of_client(self.peer);
        Ok(FtpAnswer::Welcome(Welcome {
            home: self.home_of(&user),
            user,
            may_write: true,
        }))
    }

    fn login_of(&mut self, peer: &Identity, account: String) -> Result<FtpAnswer, Refusal> {
        self.dir = self.shared.dir_of(&account, peer)?.of_client(self.peer);
        let by = self.proved_peer().filter(|proved| *proved != peer);
        let by = by.and_then(|proved| proved.chain().first());
        tracing::info!(user = account, %peer, by, "login");
        self.serve_for(match peer.is_member() {
            true => Whom::Myself,
            false => Whom::Subject {
                subject: peer.subject().into(),
                account: Some(account.clone()),
            },
        });
        Ok(FtpAnswer::Welcome(Welcome {
            home: self.home_of(&account),
            user: account,
            may_write: true,
        }))
    }

    /// Returns the directory of an account, counted from the export; the export itself
    /// if the account has none beneath it.
    fn home_of(&self, account: &str) -> PathBuf {
        let config = &self.shared.config;
        let home = || {
            let home = UserAccount::find(account).ok()?.home?;
            let beneath = beneath(&config.export, &home)?;
            let stat = self.dir.stat(&beneath).ok()?;
            (stat.kind == EntryKind::Directory).then_some(beneath)
        };
        match config.hop {
            Some(_) => PathBuf::new(), // what is served lies elsewhere
            None => home().unwrap_or_default(),
        }
    }

    /// Sets the identity, and drops the members' sessions of the previous one.
    fn serve_for(&mut self, whom: Whom) {
        (self.whom, self.stripes) = (whom, None);
    }

    /// Returns what data connections show; `None` if they prove nothing.
    pub(super) fn data_credential(&self) -> Option<&Credential> {
        match &self.proof {
            ClientProof::Done(proved) => Some(match &proved.instead {
                Some((instead, _)) => instead,
                None => &proved.credential,
            }),
            _ => None,
        }
    }

    fn who_may_come(&self) -> String {
        let anonymous = self.shared.config.anonymous != Access::None;
        let proof = self.shared.trust.offers_gssapi();
        if self.shared.passwords.is_some() && self.is_under_tls() {
            return "Login incorrect: this server wants a name and a password or token.".into();
        }
        if !anonymous && !proof && self.shared.trust.offers_cluster() {
            return "Login incorrect: this server knows only members of its cluster.".into();
        }
        let who = match (anonymous, proof) {
            (true, true) => {
                "this server knows anonymous, and clients that prove an identity by AUTH GSSAPI."
            }
            (true, false) => "this server knows only anonymous.",
            (false, true) => {
                "this server wants a proof of who you are: AUTH GSSAPI, as gsiftp:// does."
            }
            (false, false) => "this server admits no clients.",
        };
        format!("Login incorrect: {who}")
    }

    fn turn_down(&self, user: &str, why: &str) -> Result<FtpAnswer, Refusal> {
        tracing::info!(user, why, "login refused");
        Err(Refusal::of_login(why))
    }

    /// Returns what data connections must prove, and how.
    pub(super) fn safety(&self, leg: &Leg) -> Result<Option<Safety>, Refusal> {
        if let ClientProof::Ours(host) = &self.proof {
            let wanted = leg.level == Level::Private;
            return Ok(wanted.then(|| Safety::of_server(host.clone())));
        }
        if let ClientProof::Known(known) = &self.proof {
            return Ok(Safety::of_blocks(&known.data, leg.level, leg.block_bytes));
        }
        if leg.peer == DataPeer::Anyone {
            return Ok(None);
        }
        let needs = |what| Err(Refusal::of_kind(Kind::Unsupported, what));
        let ClientProof::Done(proved) = &self.proof else {
            return needs("DCAU needs a login by GSI.");
        };
        if proved.peer.is_by_address() && proved.instead.is_none() {
            return needs("DCAU needs a key or a certificate, not only an address: DCAU N.");
        }
        let (credential, authorities, myself) = match &proved.instead {
            None => (&proved.credential, &proved.authorities, &proved.peer),
            Some((credential, authorities)) => (credential, authorities, &credential.identity()),
        };
        Ok(Some(Safety::Tls(Box::new(Tls {
            credential: credential.clone(),
            authorities: authorities.clone(),
            expect: Expect::Subject(match &leg.peer {
                DataPeer::Subject(subject) => subject.clone(),
                _ => myself.subject().into(),
            }),
            level: leg.level,
            part: TlsPart::Peer,
        }))))
    }

    /// `DCSC`: takes what data connections show from now on.
    pub(super) fn show_instead(&mut self, pem: Option<&[u8]>) -> Result<FtpAnswer, Refusal> {
        let ClientProof::Done(proved) = &mut self.proof else {
            return Err(Refusal::of_kind(
                Kind::Unsupported,
                "DCSC needs a login by GSI.",
            ));
        };
        let bad = |error: godwit_trust::Error| {
            Refusal::of_kind(
                Kind::Unsupported,
                format!("That credential is of no use: {error}"),
            )
        };
        proved.instead = match pem {
            None => None,
            Some(pem) => Some((
                Credential::from_pem(pem).map_err(bad)?,
                proved.authorities.and_these(pem).map_err(bad)?,
            )),
        };
        // Members know the previous identity.
        (self.held, self.stripes) = (None, None);
        Ok(FtpAnswer::Done)
    }
}

/// Returns the identity to act for. A member of the cluster names it in the place of a password, which it does not
/// need.
fn whom(peer: &Identity, password: &[u8]) -> Result<Identity, &'static str> {
    let said = std::str::from_utf8(password).unwrap_or_default();
    match said.strip_prefix(ACTS_FOR) {
        None => Ok(peer.clone()),
        Some(_) if !peer.is_member() => {
            Err("Login incorrect: only members of the cluster may act for others.")
        }
        Some(subject) if is_name(subject) => Ok(Identity::named(subject)),
        Some(_) => {
            Err("Login incorrect: a subject begins with a slash, a principal has a realm behind @.")
        }
    }
}

/// Returns the path of a directory below an export; `None`: it is elsewhere.
fn beneath(export: &Path, dir: &Path) -> Option<PathBuf> {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let beneath = whole(dir).strip_prefix(whole(export)).ok()?.to_owned();
    Some(beneath)
}

/// After the first wrong password; twice as long after each further one.
const GUESS_PAUSE: Duration = Duration::from_millis(250);
const GUESSES_COUNTED: u32 = 5;

/// Makes a refusal, and logs the same text.
fn unproved(why: &str) -> Refusal {
    tracing::info!(error = why, "authentication failed");
    Refusal::of_login(why)
}

/// Makes a refusal with the part that concerns the client; the log has all of it.
fn refusal(error: &godwit_trust::Error) -> Refusal {
    let hint = error.hint();
    tracing::info!(%error, hint, "authentication failed");
    Refusal::of_login(format!("Authentication failed: {}", error.told()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_counted_from_the_export() {
        let at = |export: &str, home: &str| beneath(Path::new(export), Path::new(home));
        assert_eq!(at("/", "/none/ann").as_deref(), Some(Path::new("none/ann")));
        assert_eq!(at("/none", "/none/ann").as_deref(), Some(Path::new("ann")));
        assert_eq!(at("/none/ann", "/none/ann").as_deref(), Some(Path::new("")));
        assert_eq!(at("/none/a", "/none/ann"), None);
        assert_eq!(
            at("/proc/self/root", "/tmp").as_deref(),
            Some(Path::new("tmp"))
        );
    }
}
