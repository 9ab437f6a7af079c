//! By what the node proves who it is to clients of GSI, and which of them may
//! come in.
//!
//! Files are read when somebody wants to come in, not when the node starts: a
//! certificate that was renewed and a name that was added count at once.

use crate::config;
use godwit_trust::{Authorities, Credential, Gridmap, Identity};
use std::{env, path::PathBuf};

/// What is configured, or found where everybody keeps it.
#[derive(Debug)]
pub(crate) struct Trust {
    config: config::Trust,
    is_offered: bool,
}

impl Trust {
    /// Looks whether GSI can be offered. What was named must be good; what was only
    /// found, and is not, is told to the log and to who asks for it.
    pub(crate) fn begin(config: config::Trust) -> godwit_trust::Result<Self> {
        let is_named = config.certificate.is_some() || config.authorities.is_some();
        let mut trust = Self {
            config,
            is_offered: false,
        };
        match trust.ours() {
            Ok(Some((credential, _))) => {
                trust.is_offered = true;
                tracing::info!(subject = %credential.identity(), gridmap = ?trust.gridmap(), "offer GSI");
            }
            Ok(None) => {}
            Err(error) if is_named => return Err(error),
            Err(error) => tracing::info!(%error, "no GSI"),
        }
        Ok(trust)
    }

    /// Tells whether it is worth a try.
    pub(crate) fn is_offered(&self) -> bool {
        self.is_offered
    }

    /// Returns who we are and whom we believe; `None` if nobody ever said who we are.
    pub(crate) fn ours(&self) -> godwit_trust::Result<Option<(Credential, Authorities)>> {
        let Some(credential) = self.credential()? else {
            return Ok(None);
        };
        let authorities = match &self.config.authorities {
            Some(dir) => Authorities::in_dir(dir),
            None => Authorities::discover(),
        };
        Ok(Some((credential, authorities?)))
    }

    fn credential(&self) -> godwit_trust::Result<Option<Credential>> {
        match (&self.config.certificate, &self.config.key) {
            (Some(cert), key) => {
                Credential::from_files(cert, key.as_ref().unwrap_or(cert)).map(Some)
            }
            // A host's certificate, or that of somebody who serves their own files.
            _ => match Credential::discover_host()? {
                Some(host) => Ok(Some(host)),
                None => Credential::discover(),
            },
        }
    }

    /// Returns the account of somebody who proved who they are, or why there is
    /// none. `wanted` is the name that they said.
    pub(crate) fn account(&self, who: &Identity, wanted: &str) -> Result<String, String> {
        let wanted = (wanted != MAPPED).then_some(wanted);
        let mut looked = "no gridmap".to_owned();
        if let Some(path) = self.gridmap() {
            let map = Gridmap::read(&path).map_err(|error| error.to_string())?;
            let account = match wanted {
                None => map.account(who),
                Some(name) => map.accounts(who).into_iter().find(|known| known == name),
            };
            if let Some(account) = account {
                return Ok(account);
            }
            looked = path.display().to_string();
        }
        let owner = owner_name();
        if is_owner(who) && wanted.is_none_or(|name| name == owner) {
            return Ok(owner);
        }
        Err(match wanted {
            None => format!("{who} has no account here ({looked} does not name it)."),
            Some(name) => format!("{who} may not log in as {name} ({looked} does not say so)."),
        })
    }

    /// Returns the file that was named, or the one that GCT would use if it is there.
    fn gridmap(&self) -> Option<PathBuf> {
        let named = self.config.gridmap.clone();
        let named = named.or_else(|| variable("GRIDMAP"));
        if named.is_some() {
            return named;
        }
        let usual = match godwit_sys::user_id() {
            0 => PathBuf::from("/etc/grid-security/grid-mapfile"),
            _ => variable("HOME")?.join(".gridmap"),
        };
        usual.exists().then_some(usual)
    }
}

/// Whoever runs the node may do here by GSI what they may do anyway.
fn is_owner(who: &Identity) -> bool {
    let own = Credential::discover().ok().flatten();
    own.is_some_and(|own| who.is_called(own.identity().subject()))
}

fn owner_name() -> String {
    let named = env::var("USER").or_else(|_| env::var("LOGNAME"));
    named.unwrap_or_else(|_| format!("uid{}", godwit_sys::user_id()))
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(Into::into)
}

/// GCT: whichever account the gridmap names first.
const MAPPED: &str = ":globus-mapping:";
