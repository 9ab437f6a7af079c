//! What has been set in a session, so that it is said only when it changes.

use super::Line;

/// How data goes over data connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// MODE S.
    #[default]
    Stream,
    /// MODE E.
    Extended,
}

/// Settings of a session as far as we changed them. TYPE I is set at login and stays.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    mode: Mode,
    parallelism: Option<(usize, usize)>,
}

impl Settings {
    /// Returns what must be said to be in `mode`.
    pub fn mode(&mut self, mode: Mode) -> Option<Line> {
        if std::mem::replace(&mut self.mode, mode) == mode {
            return None;
        }
        Some(match mode {
            Mode::Stream => Line::new("MODE S"),
            Mode::Extended => Line::new("MODE E"),
        })
    }

    /// Tells whether the sending server decides how many connections it uses.
    pub fn varies(&self) -> bool {
        self.parallelism.is_some_and(|(first, most)| first < most)
    }

    /// Returns what must be said to the sending server so that it has so many
    /// connections, and begins to use so many of them.
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
        assert_eq!(settings.mode(Mode::Stream), None);
        assert_eq!(settings.mode(Mode::Extended), Some(Line::new("MODE E")));
        assert_eq!(settings.mode(Mode::Extended), None);
        let line = settings.parallelism(4, 4).unwrap();
        assert_eq!(line.as_bytes(), b"OPTS RETR Parallelism=4,4,4;\r\n");
        assert_eq!(settings.parallelism(4, 4), None);
        let line = settings.parallelism(4, 64).unwrap();
        assert_eq!(line.as_bytes(), b"OPTS RETR Parallelism=4,1,64;\r\n");
        assert!(settings.varies());
        assert!(settings.parallelism(2, 2).is_some() && !settings.varies());
    }
}
