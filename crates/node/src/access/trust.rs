//! The node's credentials for GSI clients and for members of its cluster, and the identities that it accepts.
//!
//! Files are read at the start, and again at a login if they changed: a renewed certificate and a new name count at once.

use crate::{Config, Error, config};
use godwit_sys::Steward;
use godwit_trust::{
    Authorities, Credential, Gridmap, Identity, Kerberos, KeysSeen, LOG, PeersDir,
    door::{Doorway, Fingerprint},
};
use parking_lot::Mutex;
use std::{
    env, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Configured credentials, or those at the usual places.
#[derive(Debug)]
pub(crate) struct NodeTrust {
    config: config::TrustConfig,
    cluster: config::Cluster,
    kerberos: config::KerberosConfig,
    is_offered: bool,
    reads_tickets: bool,
    offers_tls: bool,
    /// The host's key was found, not named, and this account may not read it.
    ignores_host: bool,
    /// Opens a key that root alone may read.
    steward: Option<Steward>,
    kept: Mutex<Option<KeptCredential>>,
    /// The node's own key and its peers; `None`: the node keeps no state.
    home: Option<PeersDir>,
    door: Mutex<DoorKeys>,
}

/// The keys that the HTTPS port shows.
#[derive(Debug, Default)]
struct DoorKeys {
    /// Our own keys, the newest first, and the state of their files.
    own: Vec<Credential>,
    seen: KeysSeen,
    newest: Option<Fingerprint>,
    way: Option<Arc<Doorway>>,
}

/// The credential, as it was read last.
#[derive(Debug)]
struct KeptCredential {
    credential: Credential,
    /// The last warning about a newer file, so that it is logged once.
    told: String,
}

impl NodeTrust {
    /// Checks whether GSI can be offered. Named files must be valid; an invalid file that was only found is logged, and
    /// reported at each use.
    pub(crate) fn begin(
        config: config::TrustConfig,
        cluster: config::Cluster,
        kerberos: config::KerberosConfig,
        steward: Option<&Steward>,
        state: Option<&Path>,
        before: Option<&Self>,
    ) -> godwit_trust::Result<Self> {
        let is_named = config.certificate.is_some() || config.authorities.is_some();
        let mut trust = Self {
            config,
            cluster,
            kerberos,
            is_offered: false,
            reads_tickets: false,
            offers_tls: false,
            ignores_host: false,
            steward: steward.cloned(),
            kept: Mutex::default(),
            home: state.map(PeersDir::at),
            door: Mutex::default(),
        };
        if let Some(before) = before {
            trust.succeed(before);
        }
        trust.ignore_found_host();
        if let Ok(Some(host)) = trust.host() {
            trust.offers_tls = true;
            tracing::info!(subject = %host.identity(), "offer TLS");
        }
        match trust.ours() {
            Ok(Some((credential, _))) => {
                trust.is_offered = true;
                tracing::info!(subject = %credential.identity(), gridmap = ?trust.gridmap(), "offer GSI");
            }
            Ok(None) => {}
            // A certificate alone is enough for TLS.
            Err(error @ godwit_trust::Error::NoAuthorities { .. })
                if trust.offers_tls && trust.config.authorities.is_none() =>
            {
                tracing::info!(%error, "no GSI");
            }
            Err(error) if is_named => return Err(error),
            Err(error) => tracing::info!(%error, "no GSI"),
        }
        Ok(trust)
    }

    /// Leaves out a host's key that this account may not read, if the key was found and not named.
    fn ignore_found_host(&mut self) {
        let named = ["X509_USER_CERT", "X509_USER_KEY"].map(variable);
        let is_named = self.config.certificate.is_some() || named.iter().any(Option::is_some);
        if is_named || self.steward.is_some() {
            return;
        }
        if let Err(error @ godwit_trust::Error::Io { .. }) = Credential::discover_host() {
            tracing::warn!(%error, "ignored the key of the host, which this account cannot read; --host-cert and --host-key name another");
            self.ignores_host = true;
        }
    }

    /// Returns what shows clients of TLS which host this is: not what speaks for a person.
    pub(crate) fn host(&self) -> godwit_trust::Result<Option<Credential>> {
        Ok(self.credential()?.filter(|ours| !ours.is_proxy()))
    }

    /// Returns the TLS settings of the door: the host's certificate, and the node's own key for clients that pinned it.
    pub(crate) fn door(&self) -> godwit_trust::Result<Arc<Doorway>> {
        let host = self.host()?;
        let mut door = self.door.lock();
        self.read_own(&mut door)?;
        let own = door.own.clone();
        let usual = host.unwrap_or_else(|| own[0].clone());
        let member = match &self.cluster.key {
            Some(file) => Some(Credential::from_cluster_key(file)?),
            None => None,
        };
        let member = member.as_ref();
        let is_it = |way: &&Arc<Doorway>| way.shows(&usual, &own, member);
        if let Some(way) = door.way.as_ref().filter(is_it) {
            return Ok(Arc::clone(way));
        }
        let way = Arc::new(Doorway::of(&usual, &own, member)?);
        Ok(Arc::clone(door.way.insert(way)))
    }

    /// Returns what the key hashes to that this node has now.
    pub(crate) fn newest_key(&self) -> Option<Fingerprint> {
        let mut door = self.door.lock();
        self.read_own(&mut door).ok()?;
        door.newest
    }

    /// Reads our own keys if their files changed. While the files are invalid, the previous keys stay.
    fn read_own(&self, door: &mut DoorKeys) -> godwit_trust::Result<()> {
        let seen = self
            .home
            .as_ref()
            .map(PeersDir::keys_seen)
            .unwrap_or_default();
        if !door.own.is_empty() && seen == door.seen {
            return Ok(());
        }
        let read = match &self.home {
            Some(home) => home.keys(),
            None if !door.own.is_empty() => return Ok(()),
            // A key that no peer knows; it suffices to encrypt.
            None => godwit_trust::lab::throw_away(OWN_LIFETIME).map(|key| vec![key]),
        };
        match read {
            Ok(own) => {
                let newest = own.first().map(Fingerprint::of_credential).transpose()?;
                if door.newest.is_some_and(|before| Some(before) != newest) {
                    tracing::info!(key = ?newest, older = own.len() - 1, "took another key of our own");
                }
                (door.own, door.newest, door.seen) = (own, newest, seen);
                Ok(())
            }
            Err(error) if !door.own.is_empty() => {
                tracing::error!(%error, "cannot read the keys of this node: those of before go on to count");
                door.seen = seen;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes over credentials that another read, since this account may not read the files: the credential, if it comes
    /// from the same files, and our own keys.
    pub(crate) fn succeed(&mut self, other: &Self) {
        let is_same = |a: &config::TrustConfig, b: &config::TrustConfig| {
            (&a.certificate, &a.key) == (&b.certificate, &b.key)
        };
        if is_same(&self.config, &other.config) {
            let kept = other.kept.lock();
            self.kept = Mutex::new(
                kept.as_ref()
                    .map(|kept| KeptCredential::new(kept.credential.clone())),
            );
        }
        let door = other.door.lock();
        self.door = Mutex::new(DoorKeys {
            own: door.own.clone(),
            seen: door.seen.clone(),
            newest: door.newest,
            way: door.way.clone(),
        });
    }

    /// Returns where the nodes stand that are known by their keys.
    pub(crate) fn home(&self) -> Option<&PeersDir> {
        self.home.as_ref()
    }

    /// Tells whether TLS is worth a try.
    pub(crate) fn offers_tls(&self) -> bool {
        self.offers_tls
    }

    /// Checks whether this account can read tickets. A keytab that was named must be valid; an invalid one that was
    /// only found is logged.
    pub(crate) fn begin_kerberos(&mut self) -> godwit_trust::Result<()> {
        let is_named = match self.kerberos {
            config::KerberosConfig::Off => return Ok(()),
            config::KerberosConfig::Keytab(_) => true,
            config::KerberosConfig::Found => variable("KRB5_KTNAME").is_some(),
        };
        if !is_named && !Path::new(KEYTAB).exists() {
            return Ok(());
        }
        let begun = self.read_tickets().map(drop);
        match begun.and_then(|()| Kerberos::check_place(self.keytab())) {
            Ok(()) => {
                self.reads_tickets = true;
                if let Err(error) = Kerberos::check_mode(self.keytab()) {
                    tracing::warn!(%error, hint = error.hint(), "the keytab is no secret");
                }
                tracing::info!(keytab = ?self.kerberos, gridmap = ?self.gridmap(), "offer Kerberos");
            }
            Err(error) if is_named => return Err(error),
            Err(error) => tracing::info!(%error, "no Kerberos"),
        }
        Ok(())
    }

    /// Prepares to read Kerberos tickets.
    pub(crate) fn read_tickets(&self) -> godwit_trust::Result<Kerberos> {
        Kerberos::accept(self.keytab())
    }

    fn keytab(&self) -> Option<&Path> {
        match &self.kerberos {
            config::KerberosConfig::Keytab(path) => Some(path),
            _ => None,
        }
    }

    /// Tells whether tickets are worth a try.
    pub(crate) fn reads_tickets(&self) -> bool {
        self.reads_tickets
    }

    /// Checks whether this account can read the key of the cluster.
    pub(crate) fn begin_cluster(&self) -> godwit_trust::Result<()> {
        let cluster = &self.cluster;
        if let (Some(file), Some(credential)) = (&cluster.key, cluster.credential()?) {
            let key = credential.key_id();
            tracing::info!(key, file = %file.display(), "member of a cluster");
        }
        for network in &cluster.addresses {
            tracing::warn!(
                %network,
                "each program on these machines is a member of the cluster without a key: it may act for any user, \
                 and nothing that they say or hear is protected from those who can stand between"
            );
        }
        Ok(())
    }

    /// Looks whether the peers are known through which this node is to be reached.
    pub(crate) fn begin_via(&self, names: &[String]) -> Result<(), Error> {
        for name in names {
            let wrong = |why: &str| Error::Via {
                peer: name.clone(),
                why: why.into(),
            };
            let home = self.home.as_ref();
            let home = home.ok_or_else(|| wrong("this node keeps no state (--state)"))?;
            let peer = home.peer(name).map_err(Error::Trust)?;
            let peer = peer.ok_or_else(|| wrong("no peer of that name is known"))?;
            if peer.addresses.is_empty() {
                return Err(wrong("it has told no address: it only comes to us"));
            }
        }
        Ok(())
    }

    /// Checks whether this account can log clients in by GSI. A file named on the command line must be valid; others
    /// are only logged, since they are read again at each login.
    pub(crate) fn begin_logins(&self, config: &Config) -> Result<(), Error> {
        if let Some(error) = self.bad_gridmap() {
            if config.is_flag("trust.gridmap") {
                return Err(Error::Gridmap(error));
            }
            if self.offers_gssapi() || self.offers_cluster() {
                tracing::warn!(
                    %error,
                    "no user of the gridmap can log in; mend the file, or name another: \
                     trust.gridmap (--gridmap), or GRIDMAP"
                );
            }
        }
        let ours = self.credential().ok().flatten();
        let dates = ours.map_or(Ok(()), |ours| ours.check_dates(SystemTime::now()));
        match dates {
            Err(error) if config.is_flag("trust.certificate") => Err(Error::Trust(error)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "no client can log in by GSI or TLS until this certificate is renewed: it is read \
                     again for each login"
                );
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn bad_gridmap(&self) -> Option<godwit_trust::Error> {
        Gridmap::read(&self.gridmap()?).err()
    }

    /// Tells whether there is a cluster.
    pub(crate) fn offers_cluster(&self) -> bool {
        self.cluster.key.is_some() || !self.cluster.addresses.is_empty()
    }

    /// Returns the credential that a member connecting from this address must prove; `None`: no member can.
    pub(crate) fn member(&self, from: IpAddr) -> godwit_trust::Result<Option<Credential>> {
        let is_trusted = self.cluster.addresses.iter().any(|net| net.holds(from));
        let key = self
            .cluster
            .key
            .as_deref()
            .map(Credential::from_cluster_key);
        Ok(match (key.transpose()?, is_trusted) {
            (Some(key), true) => Some(key.or_by_address()),
            (None, true) => Some(Credential::by_address()),
            (key, false) => key,
        })
    }

    /// Returns the credential that proves our membership to others; `None`: no cluster is configured.
    pub(crate) fn as_member(&self) -> godwit_trust::Result<Option<Credential>> {
        self.cluster.credential()
    }

    /// Returns the trusted authorities; empty if none are configured or found.
    pub(crate) fn authorities_if_any(&self) -> Authorities {
        self.authorities().unwrap_or_else(|_| Authorities::none())
    }

    fn authorities(&self) -> godwit_trust::Result<Authorities> {
        match &self.config.authorities {
            Some(dir) => Authorities::in_dir(dir),
            None => Authorities::discover(),
        }
    }

    /// Tells whether `AUTH GSSAPI` is worth a try: by certificates, or by tickets.
    pub(crate) fn offers_gssapi(&self) -> bool {
        self.is_offered || self.reads_tickets
    }

    /// Returns the credential and the trusted authorities; `None` if there is no credential.
    pub(crate) fn ours(&self) -> godwit_trust::Result<Option<(Credential, Authorities)>> {
        let Some(credential) = self.credential()? else {
            return Ok(None);
        };
        Ok(Some((credential, self.authorities()?)))
    }

    /// Returns who we are: read again if the files changed. While a new certificate is of no
    /// use, be it that its key is not there yet, the old one goes on as long as it is valid.
    fn credential(&self) -> godwit_trust::Result<Option<Credential>> {
        let mut kept = self.kept.lock();
        let Some(old) = kept.as_mut() else {
            let credential = self.read()?;
            *kept = credential.clone().map(KeptCredential::new);
            return Ok(credential);
        };
        if old.credential.is_current() {
            return Ok(Some(old.credential.clone()));
        }
        match self.read_again(&old.credential) {
            Ok(new) => {
                tracing::info!(credential = ?new, "took a renewed certificate");
                *old = KeptCredential::new(new.clone());
                Ok(Some(new))
            }
            Err(error) if old.credential.check_dates(SystemTime::now()).is_ok() => {
                old.tell(&error);
                Ok(Some(old.credential.clone()))
            }
            Err(error) => Err(error),
        }
    }

    fn read_again(&self, old: &Credential) -> godwit_trust::Result<Credential> {
        let error = match self.read() {
            Ok(Some(new)) => return Ok(new),
            Ok(None) => return Ok(old.clone()),
            Err(error) => error,
        };
        match (&self.steward, &error) {
            (Some(steward), godwit_trust::Error::Io { cause, .. })
                if cause.kind() == io::ErrorKind::PermissionDenied =>
            {
                old.read_again(&|path| steward.secret(path))
                    .unwrap_or(Err(error))
            }
            _ => Err(error),
        }
    }

    fn read(&self) -> godwit_trust::Result<Option<Credential>> {
        match (&self.config.certificate, &self.config.key) {
            (Some(cert), key) => {
                Credential::from_files(cert, key.as_ref().unwrap_or(cert)).map(Some)
            }
            // A host's certificate, or that of a user who serves files of their own.
            _ if self.ignores_host => Credential::discover(),
            _ => match Credential::discover_host()? {
                Some(host) => Ok(Some(host)),
                None => Credential::discover(),
            },
        }
    }

    /// Returns the account of a node that joined, if the gridmap has one.
    pub(crate) fn account_of_peer(&self, who: &Identity) -> Result<Option<String>, String> {
        Ok(self.read_gridmap()?.and_then(|map| map.account(who)))
    }

    /// Returns what the gridmap says now, if there is one; or what may be told of why it cannot be read.
    fn read_gridmap(&self) -> Result<Option<Gridmap>, String> {
        let read = self.gridmap().map(|path| Gridmap::read(&path)).transpose();
        read.map_err(|error| {
            tracing::error!(%error, "cannot read the gridmap: no user of it can log in");
            format!("this node cannot read its gridmap; {LOG}.")
        })
    }

    /// Returns the account of a proven identity, or why there is none, without naming local files. `wanted` is the name
    /// that the client sent.
    pub(crate) fn account(&self, who: &Identity, wanted: &str) -> Result<String, String> {
        let wanted = (wanted != MAPPED).then_some(wanted);
        let mut because = "there is no gridmap";
        if let Some(map) = self.read_gridmap()? {
            let account = match wanted {
                None => map.account(who),
                Some(name) => map.accounts(who).into_iter().find(|known| known == name),
            };
            if let Some(account) = account {
                return Ok(account);
            }
            because = "the gridmap does not say so";
        }
        let owner = owner_name();
        // A member is what we are.
        if (who.is_member() || is_owner(who)) && wanted.is_none_or(|name| name == owner) {
            return Ok(owner);
        }
        Err(match wanted {
            None => format!("{who} has no account here ({because})."),
            Some(name) => format!("{who} may not log in as {name} ({because})."),
        })
    }

    /// Returns the file that was named, or the one that GCT would use if it is there.
    pub(crate) fn gridmap(&self) -> Option<PathBuf> {
        let named = self.config.gridmap.clone();
        let named = named.or_else(|| variable("GRIDMAP"));
        if named.is_some() {
            return named;
        }
        let of_root = self.steward.is_some() || godwit_sys::user_id() == 0;
        let usual = match of_root {
            true => PathBuf::from("/etc/grid-security/grid-mapfile"),
            false => variable("HOME")?.join(".gridmap"),
        };
        usual.exists().then_some(usual)
    }
}

impl config::Cluster {
    /// Returns by what the node proves to other members that it is one; `None`: it is in
    /// no cluster. The file is read each time: a key that was replaced counts at once.
    pub fn credential(&self) -> godwit_trust::Result<Option<Credential>> {
        match &self.key {
            Some(file) => Credential::from_cluster_key(file).map(Some),
            None => Ok((!self.addresses.is_empty()).then(Credential::by_address)),
        }
    }
}

impl KeptCredential {
    fn new(credential: Credential) -> Self {
        let told = String::new();
        Self { credential, told }
    }

    /// Says once why a newer one is not taken.
    fn tell(&mut self, error: &godwit_trust::Error) {
        let told = error.to_string();
        if self.told != told {
            tracing::warn!(%error, credential = ?self.credential, "cannot take what is in its files now, and go on with the old one");
            self.told = told;
        }
    }
}

/// Tells whether the identity is the one that runs the node: it has the node's rights anyway.
fn is_owner(who: &Identity) -> bool {
    let own = Credential::discover().ok().flatten();
    own.is_some_and(|own| who.is_called(own.identity().subject()))
}

/// Returns the account that the node runs as, which need not be that of who started it.
fn owner_name() -> String {
    let id = godwit_sys::user_id();
    godwit_sys::UserAccount::of_number(id).map_or_else(|_| id.to_string(), |user| user.name)
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(Into::into)
}

const OWN_LIFETIME: Duration = Duration::from_secs(3650 * 86_400);
/// Where machines have their keys.
const KEYTAB: &str = "/etc/krb5.keytab";
/// GCT: whichever account the gridmap names first.
pub(crate) const MAPPED: &str = ":globus-mapping:";
