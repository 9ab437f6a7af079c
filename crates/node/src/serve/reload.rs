//! Replaces the configuration of a running node.
//!
//! A session keeps the configuration it began with, so a transfer in flight does not change. New clients, and each new
//! request at the door, get the new one. An invalid configuration changes nothing.

use super::listener::sessions_for;
use crate::{
    Config, Error,
    base::{admission::Admission, current::Current},
    config::FIXED,
    https::HttpsDoor,
    shared::NodeState,
};
use parking_lot::Mutex;
use signal_hook::{consts::SIGHUP, low_level::pipe};
use std::{
    fs,
    io::{self, Read},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
};

/// Reloads a node with another configuration. Clones reload one node.
#[derive(Clone, Debug)]
pub struct Reload(Arc<ReloadParts>);

#[derive(Debug)]
struct ReloadParts {
    shared: Arc<Current<NodeState>>,
    admission: Arc<Admission>,
    /// How many files this process may open.
    descriptors: u64,
    door: Mutex<Option<Arc<Current<HttpsDoor>>>>,
    /// One after the other.
    turn: Mutex<()>,
}

impl Reload {
    pub(crate) fn of(
        shared: Arc<Current<NodeState>>,
        admission: Arc<Admission>,
        descriptors: u64,
    ) -> Self {
        Self(Arc::new(ReloadParts {
            shared,
            admission,
            descriptors,
            door: Mutex::default(),
            turn: Mutex::default(),
        }))
    }

    /// Adds a door to reload.
    pub(crate) fn also(&self, door: Arc<Current<HttpsDoor>>) {
        *self.0.door.lock() = Some(door);
    }

    pub(crate) fn shared(&self) -> Arc<Current<NodeState>> {
        Arc::clone(&self.0.shared)
    }

    /// Reloads with `config`; returns the keys that need a restart and keep their values. An invalid configuration
    /// changes nothing.
    pub fn go_on(&self, config: Config) -> Result<Vec<&'static str>, Error> {
        let _turn = self.0.turn.lock();
        let before = self.0.shared.now();
        let mut fixed = FIXED.to_vec();
        if before.acts_for_others() && config.rights.is_some() != before.config.rights.is_some() {
            // The process that opens files for others was told how.
            fixed.push("node.rights");
        }
        let (config, kept) = config.keeping(&before.config, &fixed)?;
        let limits = config.limits;
        let after = Arc::new(before.again(config)?);
        let sessions = sessions_for(limits.sessions, self.0.descriptors);
        self.0
            .admission
            .bound(sessions, limits.sessions_per_address);
        self.0.shared.replace(Arc::clone(&after));
        let door = self.0.door.lock();
        if let Some(door) = door.as_ref() {
            door.replace(Arc::new(door.now().again(&after)));
        }
        Ok(kept)
    }

    /// Reloads with the result of `read`, and logs the outcome.
    fn go_on_and_tell(&self, read: &dyn Fn() -> Result<Config, Error>) {
        match read().and_then(|config| self.go_on(config)) {
            Ok(kept) => {
                for key in kept {
                    tracing::warn!(key, "needs a restart: {key}");
                }
                tracing::info!("go on under the configuration as it is now");
            }
            Err(error) => {
                tracing::error!(%error, "the configuration is of no use: that of before goes on to count");
            }
        }
    }

    /// Reloads with the result of `read` on each SIGHUP. If the node's terminal was closed, SIGHUP stops it as SIGTERM
    /// does.
    pub(crate) fn on_hangup(
        &self,
        read: impl Fn() -> Result<Config, Error> + Send + 'static,
    ) -> io::Result<()> {
        let (mut heard, said) = UnixStream::pair()?;
        pipe::register(SIGHUP, said)?;
        let (reload, had_terminal) = (self.clone(), has_terminal());
        thread::Builder::new()
            .name("reload".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let mut byte = [0];
                while heard.read_exact(&mut byte).is_ok() {
                    if had_terminal && !has_terminal() {
                        tracing::info!("stop when transfers have ended: the terminal is gone");
                        reload.0.shared.now().stop.drain();
                        return;
                    }
                    reload.go_on_and_tell(&read);
                }
            })?;
        Ok(())
    }
}

fn has_terminal() -> bool {
    fs::File::open("/dev/tty").is_ok()
}

/// Certificates and rules are read in that thread.
const STACK_BYTES: usize = 512 << 10;
