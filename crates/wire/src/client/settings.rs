//! Settings of a session, sent only when they change.

use super::Line;
use crate::command::TransferMode;
use serde::{Deserialize, Serialize};

/// How the data connections to a server are to be. Zero and `false` are as always.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct DataHints {
    /// The most streams of a transfer; 0: as many as suit.
    pub streams: u32,
    /// Bytes that the sockets at either end hold; 0: as the kernels find best.
    pub tcp_buffer: u32,
    /// The client makes all connections, so a GridFTP server of others sends in stream mode.
    pub passive: bool,
    /// One host of a striped server moves all bytes.
    pub one_host: bool,
}

impl DataHints {
    /// Tells whether transfers are as always.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Tells whether all connections to the server are other ones.
    pub fn changes_connections(&self) -> bool {
        self.tcp_buffer > 0 || self.passive || self.one_host
    }

    /// Returns the number of streams, which is `usual` without a hint.
    pub fn streams_or(&self, usual: usize) -> usize {
        match self.streams {
            0 => usual,
            most => most as usize,
        }
    }
}

/// Settings of a session as far as we changed them. TYPE I is set at login and stays.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    mode: TransferMode,
    parallelism: Option<(usize, usize)>,
}

impl Settings {
    /// Returns what must be said to be in `mode`.
    pub fn mode(&mut self, mode: TransferMode) -> Option<Line> {
        if std::mem::replace(&mut self.mode, mode) == mode {
            return None;
        }
        Some(match mode {
            TransferMode::Stream => Line::new("MODE S"),
            TransferMode::Extended => Line::new("MODE E"),
        })
    }

    /// Tells whether the sending server decides how many connections it uses.
    pub fn varies(&self) -> bool {
        self.parallelism.is_some_and(|(first, most)| first < most)
    }

    /// Returns the line that gives the sending server `most` connections, `first` of them at the start; `None`: set
    /// already.
    pub fn parallelism(&mut self, first: usize, most: usize) -> Option<Line> {
        if self.parallelism.replace((first, most)) == Some((first, most)) {
            return None;
        }
        let least = if first < most { 1 } else { first };
        Some(Line::new("OPTS RETR").and(format_args!("Parallelism={first},{least},{most};")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_twice() {
        let mut settings = Settings::default();
        assert_eq!(settings.mode(TransferMode::Stream), None);
        assert_eq!(
            settings.mode(TransferMode::Extended),
            Some(Line::new("MODE E"))
        );
        assert_eq!(settings.mode(TransferMode::Extended), None);
        let line = settings.parallelism(4, 4).unwrap();
        assert_eq!(line.as_bytes(), b"OPTS RETR Parallelism=4,4,4;\r\n");
        assert_eq!(settings.parallelism(4, 4), None);
        let line = settings.parallelism(4, 64).unwrap();
        assert_eq!(line.as_bytes(), b"OPTS RETR Parallelism=4,1,64;\r\n");
        assert!(settings.varies());
        assert!(settings.parallelism(2, 2).is_some() && !settings.varies());
    }
}
