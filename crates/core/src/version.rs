//! Which state of a file was meant.

use crate::Digest;
use std::time::Duration;

/// What we know about the identity of a file's content.
///
/// Times are since the Unix epoch, as told by whoever holds the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Version {
    /// Content is fixed: two equal `Strong` versions are equal bytes.
    Strong(Digest),
    /// Probably the same if equal; see [`Version::compare`].
    Weak {
        /// Length of the file.
        size: u64,
        /// Time of its last change.
        mtime: Duration,
        /// When we looked, by the same clock as far as we know.
        seen_at: Duration,
    },
    /// Nothing is known.
    #[default]
    None,
}

/// What a comparison of two versions is worth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Strength {
    /// Equal, and proved so.
    Same,
    /// Equal as far as size and time tell.
    Likely,
    /// The file was seen too soon after its change to tell: ask again, or compare digests.
    AskAgain,
    /// Different.
    Differs,
    /// Cannot be told.
    Unknown,
}

impl Version {
    /// Compares what was seen `self` with what is seen `now`.
    pub fn compare(&self, now: &Version) -> Strength {
        match (self, now) {
            (Self::Strong(a), Self::Strong(b)) if a.algorithm() == b.algorithm() => {
                if a == b {
                    Strength::Same
                } else {
                    Strength::Differs
                }
            }
            (
                Self::Weak {
                    size,
                    mtime,
                    seen_at,
                },
                Self::Weak {
                    size: size_now,
                    mtime: mtime_now,
                    ..
                },
            ) => {
                if size != size_now || mtime != mtime_now {
                    Strength::Differs
                } else if seen_at.saturating_sub(*mtime) < SETTLED {
                    // A second change within the same tick of a coarse clock
                    // would look just like this.
                    Strength::AskAgain
                } else {
                    Strength::Likely
                }
            }
            _ => Strength::Unknown,
        }
    }
}

/// A file seen sooner than this after its change may have changed again
/// unnoticed: FTP tells whole seconds, and clocks of servers tick coarsely.
const SETTLED: Duration = Duration::from_secs(2);
