//! Grants: the right to read one file for a while, by showing a secret.
//!
//! By a grant a node fetches from another on behalf of a client of both, without the client's key, and no byte passes
//! the client.

use super::{Caller, HttpsDoor, KnownCaller};
use godwit_core::Kind;
use godwit_trust::unguessable;
use godwit_wire::door::call::{AskRead, Grant, Refusal};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Those that count.
#[derive(Debug, Default)]
pub(crate) struct Grants(Mutex<HashMap<String, Granted>>);

#[derive(Debug)]
struct Granted {
    by: Arc<Caller>,
    /// Under which name their uploads are kept.
    owner: String,
    path: PathBuf,
    until: Instant,
}

impl Grants {
    /// Makes a grant for a file that the client may read. The returned secret is the proof.
    pub(super) fn grant(
        &self,
        by: Arc<Caller>,
        owner: &str,
        path: PathBuf,
        lasts: Duration,
    ) -> Result<Grant, Refusal> {
        let secret =
            unguessable().map_err(|error| Refusal::of_kind(Kind::Other, error.to_string()))?;
        let granted = Granted {
            by,
            owner: owner.into(),
            path,
            until: Instant::now() + lasts.min(LONGEST),
        };
        let mut grants = self.0.lock();
        let is_theirs = |granted: &&Granted| granted.owner == owner;
        let theirs = grants.values().filter(is_theirs).count();
        if grants.len() >= GRANTS_MAX || theirs >= GRANTS_EACH_MAX {
            return Err(Refusal::of_kind(Kind::Busy, "too many grants are out"));
        }
        grants.insert(secret.clone(), granted);
        Ok(Grant { secret })
    }

    /// Returns the rights behind a secret if the request is for the granted file only. They end with those of the
    /// grant's maker.
    pub(super) fn shown(
        &self,
        door: &HttpsDoor,
        secret: &str,
        asked: &AskRead,
    ) -> Result<KnownCaller, Refusal> {
        let grants = self.0.lock();
        let granted = grants
            .get(secret)
            .filter(|granted| granted.until > Instant::now());
        let refused = |why: &str| Refusal::of_kind(Kind::Denied, why);
        let granted = granted.ok_or_else(|| refused("what was granted is over, or never was"))?;
        match asked.files.iter().all(|file| file.path.0 == granted.path) {
            true => {
                let by = Arc::clone(&granted.by);
                drop(grants);
                // The client that shows the secret has no name.
                door.access(&by).map_err(|mut refusal| {
                    refusal.more.stranger = false;
                    refusal
                })
            }
            false => Err(refused("another file was granted")),
        }
    }

    /// Forgets grants that have expired.
    pub(super) fn forget_old(&self) {
        let now = Instant::now();
        self.0.lock().retain(|_, granted| granted.until > now);
    }
}

const LONGEST: Duration = Duration::from_secs(6 * 3600);
const GRANTS_MAX: usize = 100_000;
/// The most grants of one user, so that one user cannot take all.
const GRANTS_EACH_MAX: usize = 10_000;
