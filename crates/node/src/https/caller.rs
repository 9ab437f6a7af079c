//! The client of a connection, and its rights.
//!
//! A connection may last for hours, while a peer leaves or an authority loses trust. So rights are checked with each
//! request: anew if anything they depend on has changed, and at intervals in any case.

use super::HttpsDoor;
use crate::{
    access::{guarded::GuardedExport, trust::MAPPED},
    config::Access,
};
use godwit_core::Kind;
use godwit_trust::{
    Error, Identity, Peer, PeerSeen,
    door::{self, Fingerprint, ShownCertificates, SslRef},
};
use godwit_wire::door::call::Refusal;
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// The client of a connection.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) peer: SocketAddr,
    /// The fingerprint of the client's key.
    pub(super) key: Option<Fingerprint>,
    pub(super) who: Arc<Caller>,
}

/// The credential that a client showed, and the result of its last check.
#[derive(Debug)]
pub(crate) struct Caller {
    peer: SocketAddr,
    shown: Option<ShownCertificates>,
    member: Option<Identity>,
    /// Which of our own keys was asked for.
    asked: Option<Fingerprint>,
    judged: Mutex<Option<Judged>>,
}

#[derive(Debug)]
struct Judged {
    /// The client's rights, or why it has none.
    access: Result<KnownCaller, Refusal>,
    at: Instant,
    /// Under which configuration.
    generation: u64,
    /// The peer, and the state of its file.
    peer: Option<(String, PeerSeen)>,
}

/// A client with rights.
#[derive(Clone, Debug)]
pub(crate) struct KnownCaller {
    /// `None`: the client gave no name.
    pub(super) who: Option<Identity>,
    pub(super) account: Option<String>,
    pub(super) dir: GuardedExport,
    pub(super) may_write: bool,
}

impl KnownCaller {
    /// Under which name the uploads of this person are kept.
    pub(super) fn owner(&self) -> &str {
        self.who.as_ref().map_or("", Identity::subject)
    }
}

impl Caller {
    /// Discards the last check: the client's rights have changed.
    pub(super) fn forget(&self) {
        *self.judged.lock() = None;
    }
}

impl HttpsDoor {
    pub(super) fn visitor(&self, ssl: &SslRef, peer: SocketAddr) -> Visitor {
        let shown = ShownCertificates::of(ssl);
        let member = match &shown {
            None => door::member_visitor(ssl),
            Some(_) => None,
        };
        let way = self.shared.trust.door().ok();
        let key = shown.as_ref().and_then(|shown| shown.key().ok());
        let who = Arc::new(Caller {
            peer,
            shown,
            member,
            asked: way.and_then(|way| way.asked(ssl)),
            judged: Mutex::default(),
        });
        Visitor { peer, key, who }
    }

    /// Returns the client's current rights.
    pub(crate) fn access(&self, who: &Caller) -> Result<KnownCaller, Refusal> {
        let mut judged = who.judged.lock();
        if let Some(last) = judged.as_ref().filter(|last| self.still_holds(last)) {
            return last.access.clone();
        }
        let now = self.judge(who);
        self.tell(who, judged.as_ref(), &now);
        judged.insert(now).access.clone()
    }

    /// Returns a client's rights if they need no new check.
    pub(super) fn access_at_once(&self, who: &Caller) -> Option<Result<KnownCaller, Refusal>> {
        if who.shown.is_none() && who.member.is_none() {
            return Some(self.access(who));
        }
        let judged = who.judged.try_lock()?;
        let last = judged.as_ref().filter(|last| self.still_holds(last))?;
        Some(last.access.clone())
    }

    fn still_holds(&self, last: &Judged) -> bool {
        let patience = match last.access {
            Ok(_) => JUDGE_AGAIN,
            Err(_) => ASK_AGAIN,
        };
        if last.generation != self.generation || last.at.elapsed() > patience {
            return false;
        }
        match (&last.peer, self.shared.trust.home()) {
            (Some((name, seen)), Some(home)) => home.peer_seen(name) == *seen,
            _ => true,
        }
    }

    fn judge(&self, who: &Caller) -> Judged {
        let mut peer = None;
        let access = match (&who.shown, &who.member) {
            (Some(shown), _) => self.shown(who, shown, &mut peer),
            (None, Some(member)) => self.known(member.clone()),
            (None, None) => self.nobody(),
        };
        let access = access.map(|known| KnownCaller {
            dir: known.dir.of_client(who.peer),
            ..known
        });
        Judged {
            access,
            at: Instant::now(),
            generation: self.generation,
            peer,
        }
    }

    fn tell(&self, who: &Caller, before: Option<&Judged>, now: &Judged) {
        let peer = who.peer;
        match (before.map(|before| &before.access), &now.access) {
            (Some(Ok(_)), Ok(_)) => {}
            (_, Ok(known)) => {
                tracing::debug!(%peer, who = known.owner(), account = known.account, "visit");
            }
            (before, Err(refusal)) => {
                let by = match who.shown {
                    None => "nothing",
                    Some(_) => "certificate",
                };
                self.shared.metrics.denied(by);
                let why = &refusal.said;
                match before {
                    Some(Ok(_)) => tracing::info!(%peer, why, "a visitor may do nothing any more"),
                    Some(Err(before)) if before.said == *why => {}
                    _ => tracing::info!(%peer, why, "a visitor may do nothing"),
                }
            }
        }
    }

    /// Checks a shown key: it must be a peer's, or certified by a trusted authority.
    fn shown(
        &self,
        who: &Caller,
        shown: &ShownCertificates,
        judged: &mut Option<(String, PeerSeen)>,
    ) -> Result<KnownCaller, Refusal> {
        let trust = &self.shared.trust;
        let denied = |error: Error| {
            tracing::info!(%error, "a visitor is not known");
            // A denied client need not return; a fault of our disk may pass.
            let why = match error.is_of_our_files() {
                true => Kind::Other,
                false => Kind::Denied,
            };
            Refusal::of_kind(why, error.told())
        };
        let key = shown.key().map_err(denied)?;
        if trust.newest_key() == Some(key)
            && let Some(myself) = trust.home().and_then(|home| home.myself().ok().flatten())
        {
            return self.myself(&myself);
        }
        let peer = trust.home().map(|home| home.peer_with(&key)).transpose();
        if let (Some(peer), Some(home)) = (peer.map_err(denied)?.flatten(), trust.home()) {
            self.take_note(who, &peer, key);
            // Read after the state was taken, so it is not older.
            *judged = Some((peer.name.clone(), home.peer_seen(&peer.name)));
            let peer = home.peer(&peer.name).map_err(denied)?;
            if let Some(peer) = peer.filter(|peer| peer.has(&key)) {
                return self.peer(&peer);
            }
        }
        let authorities = trust.authorities_if_any();
        match shown.vouched(&authorities) {
            Ok(who) => self.known(who),
            // Who wants one of our own keys takes us for a peer.
            Err(error) if who.asked.is_some() => {
                tracing::info!(%key, %error, "a client claims to be a peer, and is none");
                Err(stranger())
            }
            Err(error) => Err(denied(error)),
        }
    }

    /// Notes news from a peer: its new key, or that it knows ours.
    fn take_note(&self, who: &Caller, peer: &Peer, key: Fingerprint) {
        let Some(home) = self.shared.trust.home() else {
            return;
        };
        let mut noted = Ok(());
        if peer.next == Some(key) {
            noted = home.has_shown(&peer.name, key);
            tracing::info!(name = peer.name, %key, "has another key now");
        }
        let newest = self.shared.trust.newest_key();
        if let Some(ours) = who.asked.filter(|asked| Some(*asked) == newest)
            && peer.knows.is_some_and(|known| known != ours)
        {
            noted = noted.and(home.note_knows(&peer.name, ours));
            tracing::info!(name = peer.name, key = %ours, "knows our key");
        }
        if let Err(error) = noted {
            tracing::error!(%error, name = peer.name, "cannot note which key counts");
        }
    }

    /// Returns our newest key if the client asked for an older one.
    pub(super) fn news_for(&self, visitor: &Visitor) -> Option<Fingerprint> {
        let asked = visitor.who.asked?;
        let newest = self.shared.trust.newest_key()?;
        (asked != newest).then_some(newest)
    }

    /// Returns the key of ours by which the client knows this node.
    pub(super) fn known_to(&self, visitor: &Visitor) -> Option<Fingerprint> {
        visitor.who.asked
    }

    /// Returns the rights of a node that joined: those of the account given when it joined, or by the gridmap. Without
    /// an account it has the rights of this node; but root shares its own only by a decision.
    fn peer(&self, peer: &Peer) -> Result<KnownCaller, Refusal> {
        let (who, shared) = (door::peer(&peer.name), &self.shared);
        let of_gridmap = || shared.trust.account_of_peer(&who);
        let account = match &peer.account {
            Some(account) => Some(account.clone()),
            None => of_gridmap().map_err(|why| Refusal::of_kind(Kind::Denied, why))?,
        };
        let account = account.or_else(|| shared.config.peers_account.clone());
        let dir = match &account {
            Some(account) => shared.dir_of(account, &who),
            None if shared.acts_for_others() => {
                let name = &peer.name;
                let why = format!(
                    "{name} has joined, but has no account there yet; the operator of that node gives it one, as root: \
                     godwit peers map {name} --as ACCOUNT"
                );
                return Err(Refusal::of_kind(Kind::Denied, why));
            }
            None => shared.dir_of_guest(&who),
        };
        Ok(KnownCaller {
            who: Some(who),
            account,
            dir: dir?,
            may_write: !peer.read_only,
        })
    }

    /// Lets a client with the key of this node do all that the account of the node may.
    fn myself(&self, myself: &Peer) -> Result<KnownCaller, Refusal> {
        let who = door::peer(&myself.name);
        Ok(KnownCaller {
            dir: self.shared.dir_of_guest(&who)?,
            who: Some(who),
            account: None,
            may_write: true,
        })
    }

    fn known(&self, who: Identity) -> Result<KnownCaller, Refusal> {
        let account = self.shared.trust.account(&who, MAPPED);
        let account = account.map_err(|why| Refusal::of_kind(Kind::Denied, why))?;
        let dir = self.shared.dir_of(&account, &who);
        let dir = dir?;
        Ok(KnownCaller {
            who: Some(who),
            account: Some(account),
            dir,
            may_write: true,
        })
    }

    fn nobody(&self) -> Result<KnownCaller, Refusal> {
        let access = self.shared.config.anonymous;
        if access == Access::None {
            let why = "this node wants to know who you are: show a certificate";
            return Err(Refusal::of_kind(Kind::Denied, why));
        }
        Ok(KnownCaller {
            who: None,
            account: None,
            dir: self.shared.dir_of_anybody(),
            may_write: access == Access::Write || self.shared.asks_rights(),
        })
    }
}

/// Returns the refusal for a client that claims to be a peer and is none.
pub(super) fn stranger() -> Refusal {
    let mut refusal = Refusal::of_kind(
        Kind::Denied,
        "no node that has joined here has the key that was shown: who left, or was removed, joins again by \
         another invite",
    );
    refusal.more.stranger = true;
    refusal
}

/// Rights are checked again after this time even without a visible change: revocation lists, dates, gridmaps.
const JUDGE_AGAIN: Duration = Duration::from_secs(30);
/// A refused client is checked again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(1);
