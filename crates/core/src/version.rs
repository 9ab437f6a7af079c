//! Which state of a file was meant.

use crate::Digest;
use std::time::Duration;

/// Known identity of a file's content.
///
/// Times are since the Unix epoch, by the clock of the server that holds the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Version {
    /// Content is fixed: two equal `Strong` versions are equal bytes.
    Strong(Digest),
    /// Content is fixed by a name that its server gave it (a strong `ETag`); it
    /// says something only on that server.
    Generation {
        /// Which server, as [`Url::host_port`](crate::Url::host_port) names it.
        server: String,
        /// Its name of the content.
        name: String,
    },
    /// Probably the same if equal; see [`Version::compare`].
    Weak {
        /// Length of the file.
        size: u64,
        /// Time of its last change.
        mtime: Duration,
        /// Time of the observation, by the same clock as far as known.
        seen_at: Duration,
        /// Time of the last change to the file or its attributes; no program can set it at will.
        /// `None`: the server does not report it.
        touched: Option<Duration>,
    },
    /// Nothing is known.
    #[default]
    None,
}

/// Value of a comparison of two versions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Strength {
    /// Equal, and proved so.
    Same,
    /// Equal as far as size and time tell.
    Likely,
    /// Equal in size and time, but changed since: its attributes, or its bytes with the time set
    /// back. Compare digests.
    Touched,
    /// The file was seen too soon after its change to tell: ask again, or compare digests.
    AskAgain,
    /// Different.
    Differs,
    /// Cannot be told.
    Unknown,
}

impl Strength {
    /// Tells whether size and time agree, whether proved or not, and whatever else changed.
    pub fn looks_same(self) -> bool {
        match self {
            Self::Same | Self::Likely | Self::Touched | Self::AskAgain => true,
            Self::Differs | Self::Unknown => false,
        }
    }
}

impl Version {
    /// Compares an earlier version (`self`) with the version `now`.
    ///
    /// Versions of different kinds cannot be compared; nor can digests by
    /// different algorithms.
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
                    touched,
                },
                Self::Weak {
                    size: size_now,
                    mtime: mtime_now,
                    touched: touched_now,
                    ..
                },
            ) => {
                if size != size_now || mtime != mtime_now {
                    Strength::Differs
                } else if self.tells_touches(now) && touched != touched_now {
                    Strength::Touched
                } else if seen_at.saturating_sub(*mtime) < SETTLED {
                    // A second change within the same tick of a coarse clock
                    // would look just like this.
                    Strength::AskAgain
                } else {
                    Strength::Likely
                }
            }
            (
                Self::Generation { server, name },
                Self::Generation {
                    server: server_now,
                    name: name_now,
                },
            ) if server == server_now => {
                if name == name_now {
                    Strength::Same
                } else {
                    Strength::Differs
                }
            }
            _ => Strength::Unknown,
        }
    }

    /// Tells whether no change between the two can be unseen, even if a program set the file's
    /// time.
    pub fn tells_touches(&self, now: &Version) -> bool {
        let tells = |version: &Version| {
            matches!(
                version,
                Self::Weak {
                    touched: Some(_),
                    ..
                }
            )
        };
        tells(self) && tells(now)
    }

    /// Tells whether equal versions prove equal bytes: only such may be drawn
    /// from several homes at once.
    pub fn is_strong(&self) -> bool {
        match self {
            Self::Strong(_) | Self::Generation { .. } => true,
            Self::Weak { .. } | Self::None => false,
        }
    }
}

/// A file seen sooner than this after its change may have changed again
/// unnoticed: FTP tells whole seconds, and clocks of servers tick coarsely.
const SETTLED: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    fn weak(size: u64, mtime_ms: u64, seen_ms: u64) -> Version {
        Version::Weak {
            size,
            mtime: Duration::from_millis(mtime_ms),
            seen_at: Duration::from_millis(seen_ms),
            touched: None,
        }
    }

    fn touched(at_ms: u64) -> Version {
        Version::Weak {
            size: 5,
            mtime: Duration::from_millis(1000),
            seen_at: Duration::from_millis(9000),
            touched: Some(Duration::from_millis(at_ms)),
        }
    }

    fn strong(by: Algorithm, bytes: &[u8]) -> Version {
        Version::Strong(Digest::of(by, bytes))
    }

    fn generation(server: &str, name: &str) -> Version {
        let (server, name) = (server.into(), name.into());
        Version::Generation { server, name }
    }

    #[test]
    fn file_seen_too_soon_is_asked_again() {
        assert_eq!(
            weak(5, 1000, 2999).compare(&weak(5, 1000, 9000)),
            Strength::AskAgain
        );
        assert_eq!(
            weak(5, 1000, 3000).compare(&weak(5, 1000, 9000)),
            Strength::Likely
        );
    }

    #[test] //= KANGAROO-X5
    fn future_time_of_change_never_settles() {
        assert_eq!(
            weak(5, 9000, 1000).compare(&weak(5, 9000, 2000)),
            Strength::AskAgain
        );
    }

    #[test]
    fn touched_file_is_equal_only_by_digest() {
        assert_eq!(touched(1000).compare(&touched(1000)), Strength::Likely);
        assert_eq!(touched(1000).compare(&touched(1001)), Strength::Touched);
        // A server that does not report the time of change says nothing about it.
        assert_eq!(
            touched(1000).compare(&weak(5, 1000, 9000)),
            Strength::Likely
        );
        assert_eq!(
            weak(5, 1000, 9000).compare(&touched(1001)),
            Strength::Likely
        );
        assert_eq!(
            touched(1000).compare(&weak(6, 1000, 9000)),
            Strength::Differs
        );
        assert!(Strength::Touched.looks_same() && !Strength::Differs.looks_same());
        assert!(touched(1).tells_touches(&touched(2)));
        assert!(!touched(1).tells_touches(&weak(5, 1000, 9000)));
    }

    #[test] //= KANGAROO-X5
    fn other_size_or_time_always_differs() {
        for now in [weak(6, 1000, 1000), weak(5, 1001, 1001), weak(5, 999, 9000)] {
            assert_eq!(weak(5, 1000, 1000).compare(&now), Strength::Differs);
        }
    }

    #[test]
    fn only_the_same_kind_of_proof_proves() {
        let (a, b) = (strong(Algorithm::Md5, b"a"), strong(Algorithm::Md5, b"b"));
        assert_eq!(a.compare(&a), Strength::Same);
        assert_eq!(a.compare(&b), Strength::Differs);
        assert_eq!(a.compare(&strong(Algorithm::Sha1, b"a")), Strength::Unknown);
        assert_eq!(a.compare(&weak(1, 0, 9000)), Strength::Unknown);
        assert_eq!(Version::None.compare(&Version::None), Strength::Unknown);
        let etag = generation("h", "1");
        assert_eq!(etag.compare(&etag), Strength::Same);
        assert_eq!(etag.compare(&generation("h", "2")), Strength::Differs);
        assert_eq!(etag.compare(&generation("other", "1")), Strength::Unknown);
        assert!(a.is_strong() && etag.is_strong());
        assert!(!weak(1, 0, 9000).is_strong() && !Version::None.is_strong());
    }
}
