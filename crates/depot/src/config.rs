//! The rules of a depot, for whom it works, and how it reaches servers.

use godwit_core::Url;
use godwit_store::engine::Place;
use std::{path::PathBuf, sync::Arc, time::Duration};

/// Finds the store of a URL for an identity.
pub type Connect = Arc<dyn Fn(&Url, &Who) -> godwit_store::Result<Place> + Send + Sync>;

/// For whom something is done.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Who {
    /// The identity that the origin was shown, by its name: fetched bytes are for readers of that name only.
    pub audience: String,
    /// By what it was proved, where that is not as always.
    pub credential: Option<PathBuf>,
}

impl Who {
    /// Tells the log what was done at a target, and for which client of a hop or session of this machine.
    pub(crate) fn audit(&self, did: &str, url: &Url, session: &str) {
        let who = if session.is_empty() {
            &self.audience
        } else {
            session
        };
        tracing::info!(did, path = %url.without_password(), who, "changed");
    }
}

/// The limits and times of a depot.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How many bytes it may hold; `None`: as many as the disk.
    pub quota: Option<u64>,
    /// How long what the origin said last is believed before it is asked again.
    pub fresh: Duration,
    /// How long a strong version is believed when the origin cannot be asked.
    pub grace: Duration,
    /// How many files are delivered at once.
    pub movers: usize,
    /// The longest pause before a server is tried again.
    pub pause_max: Duration,
    /// How long a server may answer that it has trouble of its own before a file is put on hold.
    pub trouble_max: Duration,
    /// After so long each file is read again, and compared with what it was when it came; `None`: never.
    pub scrub_every: Option<Duration>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            quota: None,
            fresh: Duration::from_secs(5),
            grace: Duration::from_secs(24 * 3600),
            movers: 8,
            pause_max: Duration::from_secs(4),
            trouble_max: Duration::from_secs(60),
            scrub_every: Some(SCRUB_EVERY),
        }
    }
}

/// Disks lose little in a month.
const SCRUB_EVERY: Duration = Duration::from_secs(30 * 24 * 3600);
