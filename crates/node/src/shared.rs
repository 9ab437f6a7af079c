//! State that all sessions of a node share, by whichever door they come.

use crate::{
    Config, Error,
    access::{
        accounts::AccountNodes,
        export::Export,
        guarded::{GuardedExport, RightsFile},
        names::CatalogNames,
        site::CatalogSite,
        trust::NodeTrust,
    },
    base::{
        filters::Modules, metrics::Metrics, ports::Ports, stop::Stop, transfer_log::TransferLog,
    },
    hop,
};
use godwit_depot::Spooled;
use godwit_sys::Steward;
use godwit_trust::{Identity, Passwords, PeersDir};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize},
    },
    time::Duration,
};

/// State that all sessions share.
#[derive(Debug)]
pub(crate) struct NodeState {
    pub(crate) config: Config,
    /// For those who do not say who they are.
    dir: Export,
    /// Set if writes are forwarded to the next node, not to a directory.
    pub(crate) hop: Option<Arc<Spooled>>,
    /// For each of the others.
    accounts: Arc<AccountNodes>,
    rules: Option<Arc<RightsFile>>,
    /// The names of a catalog.
    pub(crate) names: Option<CatalogNames>,
    pub(crate) trust: NodeTrust,
    pub(crate) passwords: Option<Passwords>,
    pub(crate) ports: Arc<Ports>,
    pub(crate) stop: Stop,
    pub(crate) journal: Arc<TransferLog>,
    pub(crate) modules: Arc<Modules>,
    /// The count of programs that peers run beside files.
    pub(crate) running: Arc<AtomicUsize>,
    pub(crate) transfers: Arc<AtomicU64>,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether the client was admitted by another program, as the account of this process.
    pub(crate) is_let_in: bool,
    host: String,
}

impl NodeState {
    pub(crate) fn begin(
        config: Config,
        accounts: AccountNodes,
        trust: NodeTrust,
        is_let_in: bool,
    ) -> Result<Self, Error> {
        let journal = TransferLog::open(config.state.as_deref()).map_err(|cause| Error::State {
            path: config.state.clone().unwrap_or_default(),
            cause,
        })?;
        let data = &config.data;
        let host = host_name(&config.host);
        let us = trust.newest_key().map(|key| key.to_string());
        let us = us.unwrap_or_else(|| format!("{host}:{}", config.export.display()));
        let hop = hop::begin(&config, trust.home(), &us.replace(char::is_whitespace, "_"))?;
        let hop = hop.map(Arc::new);
        let names = names_of(&config, trust.home())?;
        Ok(Self {
            dir: dir_of_nobody(&config, &accounts, hop.as_deref())?,
            hop,
            rules: rules_of(&config, names.as_ref(), trust.home())?,
            names,
            passwords: passwords_of(&config, &trust)?,
            accounts: Arc::new(accounts),
            trust,
            ports: Ports::new(data.ports.clone(), data.wait).map_err(Error::Start)?,
            stop: Stop::new().map_err(Error::Start)?,
            journal: Arc::new(journal),
            modules: Arc::new(Modules::new(&config.modules)),
            running: Arc::default(),
            transfers: Arc::new(AtomicU64::new(1)),
            metrics: Arc::default(),
            is_let_in,
            host,
            config,
        })
    }

    /// Returns the state under another configuration: counters, limits and logs stay.
    pub(crate) fn again(&self, config: Config) -> Result<Self, Error> {
        let before = &self.config;
        let trust = NodeTrust::begin(
            config.trust.clone(),
            config.cluster.clone(),
            config.kerberos.clone(),
            self.accounts.steward(),
            config.state.as_deref(),
            Some(&self.trust),
        );
        let mut trust = trust.map_err(Error::Trust)?;
        trust.begin_cluster().map_err(Error::Trust)?;
        trust.begin_kerberos().map_err(Error::Trust)?;
        trust.begin_logins(&config)?;
        // Whether links are followed behind the rights is decided where files are opened.
        let accounts = match config.asks_rights() == before.asks_rights() {
            true => Arc::clone(&self.accounts),
            false => Arc::new(AccountNodes::of_this_process(&config)),
        };
        let data = &config.data;
        let ports = match (&data.ports, data.wait) == (&before.data.ports, before.data.wait) {
            true => Arc::clone(&self.ports),
            false => Ports::new(data.ports.clone(), data.wait).map_err(Error::Start)?,
        };
        let modules = match config.modules == before.modules {
            true => Arc::clone(&self.modules),
            false => Arc::new(Modules::new(&config.modules)),
        };
        Ok(Self {
            dir: dir_of_nobody(&config, &accounts, self.hop.as_deref())?,
            hop: self.hop.clone(),
            rules: rules_of(&config, self.names.as_ref(), trust.home())?,
            names: self.names.clone(),
            passwords: passwords_of(&config, &trust)?,
            accounts,
            trust,
            ports,
            stop: self.stop.clone(),
            journal: Arc::clone(&self.journal),
            modules,
            running: Arc::clone(&self.running),
            transfers: Arc::clone(&self.transfers),
            metrics: Arc::clone(&self.metrics),
            is_let_in: self.is_let_in,
            host: host_name(&config.host),
            config,
        })
    }

    /// Tells whether files are opened with the rights of others than this node.
    pub(crate) fn acts_for_others(&self) -> bool {
        self.accounts.steward().is_some()
    }

    /// Returns the account and its steward, if it is not the node's own account.
    pub(crate) fn of_another(
        &self,
        account: &str,
    ) -> godwit_store::Result<Option<(Steward, String)>> {
        let other = self.accounts.other(account)?;
        Ok(self.accounts.steward().cloned().zip(other))
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the export as those see it who do not say who they are.
    pub(crate) fn dir_of_anybody(&self) -> GuardedExport {
        GuardedExport::new(self.dir.clone(), None, self.rules.clone())
    }

    /// Returns the export for an account and an identity: unfinished uploads are apart from those of other identities.
    pub(crate) fn dir_of(
        &self,
        account: &str,
        who: &Identity,
    ) -> godwit_store::Result<GuardedExport> {
        let dir = match &self.hop {
            // At the next node the hop acts with its own rights.
            Some(hop) => Export::Hop(Box::new(hop.of(who.subject())?)),
            None => Export::Dir(self.accounts.dir(Some(account), who.subject())?),
        };
        Ok(GuardedExport::new(
            dir,
            Some(who.clone()),
            self.rules.clone(),
        ))
    }

    /// Returns the export of anonymous clients, without the rules of rights.
    pub(crate) fn dir_of_node(&self) -> &Export {
        &self.dir
    }

    /// Returns the export with the rights of this node, for a client that has all of them.
    pub(crate) fn dir_of_guest(&self, who: &Identity) -> godwit_store::Result<GuardedExport> {
        let dir = match &self.hop {
            Some(hop) => Export::Hop(Box::new(hop.of(who.subject())?)),
            None => Export::Dir(self.accounts.dir(None, who.subject())?),
        };
        Ok(GuardedExport::new(
            dir,
            Some(who.clone()),
            self.rules.clone(),
        ))
    }

    /// Removes abandoned uploads.
    pub(crate) fn sweep(&self, age: Duration) -> godwit_store::Result<u64> {
        match &self.hop {
            Some(_) => self.dir.sweep(age),
            None => self.accounts.sweep(age),
        }
    }

    /// Tells whether the file of rights decides about writes.
    pub(crate) fn asks_rights(&self) -> bool {
        self.rules.is_some()
    }
}

pub(crate) fn dir_of_nobody(
    config: &Config,
    accounts: &AccountNodes,
    hop: Option<&Spooled>,
) -> Result<Export, Error> {
    let anonymous = Some(config.accounts.anonymous.as_str()).filter(|name| !name.is_empty());
    let dir = match hop {
        Some(hop) => hop.of(ANONYMOUS).map(|hop| Export::Hop(Box::new(hop))),
        None => accounts.dir(anonymous, ANONYMOUS).map(Export::Dir),
    };
    dir.map_err(|cause| Error::Export {
        path: config.export.clone(),
        cause,
    })
}

fn names_of(config: &Config, home: Option<&PeersDir>) -> Result<Option<CatalogNames>, Error> {
    let names = config.catalog.as_ref().map(|text| {
        let names = CatalogNames::new(text, home);
        match names.catalog() {
            Ok(_) => Ok(names),
            Err(refusal) => Err(Error::Catalog {
                text: text.clone(),
                refusal: Box::new(refusal),
            }),
        }
    });
    names.transpose()
}

pub(crate) fn rules_of(
    config: &Config,
    names: Option<&CatalogNames>,
    home: Option<&PeersDir>,
) -> Result<Option<Arc<RightsFile>>, Error> {
    if let Some(porter) = &config.porter {
        return Ok(Some(Arc::new(RightsFile::of_program(porter.clone()))));
    }
    let own = config.rights.as_deref().map(RightsFile::read).transpose();
    let own = own.map_err(Error::Rights)?;
    let rules = match (site_of(config, names, home), &config.site) {
        (Some(site), _) => {
            let file = site.file().map_err(|cause| Error::State {
                path: config.state.clone().unwrap_or_default(),
                cause,
            })?;
            Some(RightsFile::read(file).map_err(Error::Rights)?)
        }
        // Only a rehearsal knows no names.
        (None, Some(_)) if names.is_some() => return Err(Error::Homeless),
        (None, _) => own,
    };
    Ok(rules.map(Arc::new))
}

/// Returns the site that this node is.
pub(crate) fn site_of(
    config: &Config,
    names: Option<&CatalogNames>,
    home: Option<&PeersDir>,
) -> Option<CatalogSite> {
    let name = config.site.as_deref()?;
    let keeper = match names?.text.strip_prefix("godwit://") {
        Some(peer) => Some(peer.trim_end_matches('/').to_owned()),
        None => home.and_then(|home| Some(home.myself().ok()??.name)),
    };
    let kept = config.state.as_deref().or(home.map(PeersDir::path))?;
    let own = config.rights.clone();
    let own = own.ok_or_else(|| config.anonymous.as_rights());
    Some(CatalogSite::new(
        name,
        &config.export,
        kept,
        own,
        (home, keeper),
    ))
}

pub(crate) fn passwords_of(config: &Config, trust: &NodeTrust) -> Result<Option<Passwords>, Error> {
    if config.passwords.file.is_some() && !trust.offers_tls() && !config.passwords.in_clear {
        return Err(Error::NoTls);
    }
    let passwords = config.passwords.file.as_deref().map(Passwords::read);
    passwords.transpose().map_err(Error::Passwords)
}

fn host_name(configured: &str) -> String {
    if !configured.is_empty() {
        return configured.into();
    }
    godwit_sys::host_name().unwrap_or_else(|| "localhost".into())
}

/// The name under which files of anonymous clients are kept.
pub(crate) const ANONYMOUS: &str = "anonymous";
