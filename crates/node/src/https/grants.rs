//! Rights that somebody hands on: one file, to be read by whoever shows a secret, for a while.
//!
//! So a node draws from another for a client of both, without a byte through the client and without
//! its key.

use super::{Door, Known, Who};
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
    by: Arc<Who>,
    /// Under which name their uploads are kept.
    owner: String,
    path: PathBuf,
    until: Instant,
}

impl Grants {
    /// Grants a file that somebody may read to whoever shows what comes back.
    pub(super) fn grant(
        &self,
        by: Arc<Who>,
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

    /// Returns whose right somebody shows, who asks for nothing else than what was granted. It lasts no
    /// longer than that of whoever granted it.
    pub(super) fn shown(
        &self,
        door: &Door,
        secret: &str,
        asked: &AskRead,
    ) -> Result<Known, Refusal> {
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
                // Whoever shows it came as nobody.
                door.access(&by).map_err(|mut refusal| {
                    refusal.more.stranger = false;
                    refusal
                })
            }
            false => Err(refused("another file was granted")),
        }
    }

    /// Forgets what is over.
    pub(super) fn forget_old(&self) {
        let now = Instant::now();
        self.0.lock().retain(|_, granted| granted.until > now);
    }
}

const LONGEST: Duration = Duration::from_secs(6 * 3600);
const GRANTS_MAX: usize = 100_000;
/// Of one person, so that nobody takes those of all.
const GRANTS_EACH_MAX: usize = 10_000;
