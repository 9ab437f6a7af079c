//! Attributes of a file, as far as they are known.

use godwit_wire::local::response::LocalStat;

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) is_directory: bool,
    pub(crate) size: u64,
    pub(crate) mtime_ns: u64,
    pub(crate) mode: u32,
    /// Set while its server is away: its existence is a guess.
    pub(crate) is_guess: bool,
}

impl Facts {
    pub(crate) fn directory() -> Self {
        Self {
            is_directory: true,
            mode: 0o755,
            ..Self::default()
        }
    }

    /// Takes it for a name of a server that is away, of which nothing is known.
    pub(crate) fn guessed(self) -> Self {
        Self {
            is_guess: true,
            ..self
        }
    }

    /// Returns a file of which nothing is known.
    pub(crate) fn unknown() -> Self {
        Self {
            mode: 0o644,
            ..Self::default()
        }
    }

    /// Takes attributes from the node; missing ones stay as they were.
    pub(crate) fn told(stat: &LocalStat, known: Option<&Self>) -> Self {
        let usual = match stat.is_directory {
            true => Self::directory(),
            false => Self::unknown(),
        };
        let known = known.filter(|known| known.is_directory == stat.is_directory);
        let known = known.unwrap_or(&usual);
        Self {
            is_directory: stat.is_directory,
            size: stat.size,
            mtime_ns: stat.mtime_ns.unwrap_or(known.mtime_ns),
            mode: stat.mode.unwrap_or(known.mode),
            is_guess: false,
        }
    }
}
