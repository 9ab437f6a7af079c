//! The account with whose rights files are opened: that of the client if root started the node, else that of the
//! process.

use super::account_call::errand;
use crate::{Config, Error, config};
use godwit_store::{Dir, Error as StoreError, Opener};
use godwit_sys::{Steward, StewardRules, UserAccount, drop_root, user_id, why};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{DirBuilderExt, chown},
    path::{Path, PathBuf},
    time::Duration,
};

/// The export as each of those who log in sees it.
#[derive(Debug)]
pub(crate) struct AccountNodes {
    export: PathBuf,
    /// The directory for notes of published files, if the node keeps state.
    notes: Option<PathBuf>,
    config: config::Accounts,
    /// Whether links are resolved by the check of rights, and not followed after it.
    plain: bool,
    /// Opens files for other accounts; `None`: root did not start the node.
    steward: Option<Steward>,
    dirs: Mutex<HashMap<AccountKey, Dir>>,
}

/// An account, `None` for that of the node, and an identity.
type AccountKey = (Option<String>, String);

impl AccountNodes {
    /// Serves all clients with the rights of this process.
    pub(crate) fn of_this_process(config: &Config) -> Self {
        Self {
            export: config.export.clone(),
            notes: config.state.as_ref().map(|state| state.join("published")),
            config: config.accounts.clone(),
            plain: config.asks_rights(),
            steward: None,
            dirs: Mutex::default(),
        }
    }

    /// Forks what can act for others, if root started us. Before there are
    /// threads, and before there are secrets.
    pub(crate) fn begin(config: &Config) -> Result<Self, Error> {
        let mut accounts = Self::of_this_process(config);
        if let Some(hop) = &config.hop {
            let made = fs::create_dir_all(&hop.spool);
            made.map_err(|cause| Error::Spool {
                path: hop.spool.clone(),
                cause: Box::new(godwit_depot::Error::of_disk(hop.spool.clone(), cause)),
            })?;
        }
        if user_id() != 0 {
            accounts.only_ourselves()?;
            return Ok(accounts);
        }
        let anonymous = &config.accounts.anonymous;
        if !anonymous.is_empty() {
            let cannot = |cause| privilege(&format!("act for {anonymous}"), cause);
            UserAccount::find(anonymous).map_err(cannot)?;
        }
        must_be_directory(&config.export)?;
        let rules = StewardRules {
            export: config.export.clone(),
            uid_min: config.accounts.uid_min,
            idle: config.accounts.idle,
            secrets: vec![config.trust.key_file()],
            plain: accounts.plain,
            errand: Some(errand()),
        };
        let cannot = |cause| privilege("keep root apart", cause);
        accounts.steward = Some(Steward::start(rules).map_err(cannot)?);
        Ok(accounts)
    }

    /// Returns what still can read what root alone may read, if root started us.
    pub(crate) fn steward(&self) -> Option<&Steward> {
        self.steward.as_ref()
    }

    /// Drops root for good if root started the node. Must run before there are threads. A missing state directory is
    /// made for the node's account.
    pub(crate) fn give_up_root(&self, state: Option<&Path>) -> Result<(), Error> {
        if self.steward.is_none() {
            return Ok(());
        }
        let user = match self.config.user.as_str() {
            "" => UserAccount::owner_of(&self.export),
            name => UserAccount::find(name),
        };
        let user = user.map_err(|cause| privilege("find out as whom to run", cause))?;
        let cannot = |cause| privilege(&format!("run as {}", user.name), cause);
        if let Some(state) = state.filter(|state| !state.exists()) {
            let made = fs::create_dir_all(state);
            made.and_then(|()| chown(state, Some(user.uid), Some(user.gid)))
                .map_err(|cause| Error::State {
                    path: state.into(),
                    cause,
                })?;
        }
        drop_root(&user).map_err(cannot)?;
        tracing::info!(user = user.name, uid = user.uid, "gave up root");
        if user.uid == 0 {
            tracing::warn!(
                "the export belongs to root, so the node keeps that number, without capabilities: \
                 files that are root's stay open to it, and so does the part of a disk that is kept \
                 for root, to all clients that upload; node.user (GODWIT_NODE_USER) names an account to run as"
            );
        }
        Ok(())
    }

    /// Returns the export for an account; `None`: the node's own. Each identity has its own unfinished uploads.
    pub(crate) fn dir(&self, account: Option<&str>, identity: &str) -> godwit_store::Result<Dir> {
        let account = match account {
            Some(name) => self.other(name)?,
            None => None,
        };
        let key = (account, identity.to_owned());
        let mut dirs = self.dirs.lock();
        if let Some(dir) = dirs.get(&key) {
            return Ok(dir.clone());
        }
        let dir = self.open(key.0.as_deref(), identity)?;
        if dirs.len() >= DIRS_MAX {
            dirs.clear(); // Those who use one keep it.
        }
        dirs.insert(key, dir.clone());
        Ok(dir)
    }

    /// Removes abandoned uploads, with the rights of each account that began one since the node started.
    pub(crate) fn sweep(&self, age: Duration) -> godwit_store::Result<u64> {
        let dirs: HashMap<Option<String>, Dir> = self
            .dirs
            .lock()
            .iter()
            .map(|((account, _), dir)| (account.clone(), dir.clone()))
            .collect();
        dirs.values()
            .try_fold(0, |sum, dir| Ok(sum + dir.sweep(age)?))
    }

    /// Refuses an export that its account may not enter: no file in it could be served. An export that only cannot be
    /// listed is served to clients that know the names. If root started the node, other accounts may have rights there.
    pub(crate) fn must_be_open(&self) -> Result<(), Error> {
        let account = whom();
        // Other errors are reported by the first access.
        if is_denied(fs::metadata(self.export.join("."))) {
            let path = self.export.clone();
            let error = Error::Closed { path, account };
            if self.steward.is_none() {
                return Err(error);
            }
            tracing::warn!(%error, "who has no account of this machine gets nothing from it");
        } else if is_denied(fs::read_dir(&self.export)) {
            let export = self.export.display();
            tracing::warn!(%export, account, "may not list the export: only who knows the names in it gets something");
        }
        Ok(())
    }

    fn open(&self, account: Option<&str>, identity: &str) -> godwit_store::Result<Dir> {
        let dir = self.open_export(account, identity)?;
        let Some(notes) = &self.notes else {
            return Ok(dir);
        };
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(notes);
        made.map_err(|cause| StoreError::io(notes, cause))?;
        dir.keeping_notes(notes)
    }

    fn open_export(&self, account: Option<&str>, identity: &str) -> godwit_store::Result<Dir> {
        let (Some(name), Some(steward)) = (account, &self.steward) else {
            let opener = match self.plain {
                true => Opener::Plainly,
                false => Opener::Myself,
            };
            return Dir::open(&self.export, identity, opener);
        };
        let account = steward.account(name);
        account.ready().map_err(|cause| StoreError::Denied {
            path: self.export.clone(),
            said: why(&cause),
        })?;
        Dir::open(steward.export(), identity, Opener::Account(account))
    }

    /// Returns the name of an account that is another than ours.
    pub(crate) fn other(&self, name: &str) -> godwit_store::Result<Option<String>> {
        if self.steward.is_none() {
            return Ok(None);
        }
        match UserAccount::find(name) {
            Ok(user) if user.uid == user_id() => Ok(None),
            Ok(user) => Ok(Some(user.name)),
            // A client does not become root because its account is gone.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && !self.config.strict
                    && user_id() != 0 =>
            {
                tracing::warn!(name, "no account of this machine: served as the node");
                Ok(None)
            }
            Err(error) => {
                tracing::warn!(name, %error, "refused: godwit peers map, or the gridmap, names another account");
                Err(StoreError::denied(
                    self.export.clone(),
                    format!("the account {name} of the node's machine: {}", why(&error)),
                ))
            }
        }
    }

    /// Only root can act for others.
    fn only_ourselves(&self) -> Result<(), Error> {
        let named = [&self.config.user, &self.config.anonymous];
        for name in named.into_iter().filter(|name| !name.is_empty()) {
            let cannot = |cause| privilege(&format!("act for {name}"), cause);
            if UserAccount::find(name).map_err(cannot)?.uid != user_id() {
                return Err(cannot(io::Error::other("only root can start such a node")));
            }
        }
        Ok(())
    }
}

/// Checks for a directory, as root: another account may see a closed path as missing.
fn must_be_directory(export: &Path) -> Result<(), Error> {
    let cause = match fs::metadata(export) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => io::ErrorKind::NotADirectory.into(),
        Err(cause) => cause,
    };
    Err(Error::Export {
        path: export.into(),
        cause: StoreError::io(export, cause),
    })
}

fn is_denied<T>(looked: io::Result<T>) -> bool {
    looked.is_err_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns the name of the account that the node runs as.
fn whom() -> String {
    match UserAccount::of_number(user_id()) {
        Ok(user) => user.name,
        Err(_) => format!("the account {}", user_id()),
    }
}

fn privilege(what: &str, cause: io::Error) -> Error {
    Error::Privilege {
        what: what.into(),
        cause,
    }
}

/// The most stores that are remembered for clients that come again.
const DIRS_MAX: usize = 1024;
