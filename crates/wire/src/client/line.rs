//! A command line.

use std::fmt;

/// A line that a client sends: a word, and arguments behind it.
///
/// A line end inside would make two commands of it. Such a name is refused here, or by the dialogue. To a node, a
/// lone CR or LF is a part of a name; the dialogue knows which servers are nodes.
#[derive(Clone, Eq, PartialEq)]
pub struct Line(Vec<u8>);

/// A name that no command line can carry.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("FTP cannot carry a name with a line end or a zero byte")]
pub struct Unspeakable;

impl Line {
    /// Returns a line of one or more fixed words.
    pub fn new(words: &str) -> Self {
        debug_assert!(!words.contains(['\r', '\n', '\0']));
        Self([words.as_bytes(), b"\r\n"].concat())
    }

    /// Adds an argument that we wrote ourselves.
    pub fn and(self, argument: impl fmt::Display) -> Self {
        self.bytes(argument.to_string().as_bytes())
            .expect("numbers and fixed words have no line ends")
    }

    /// Adds an argument that may contain anything: a name.
    pub fn bytes(mut self, argument: &[u8]) -> Result<Self, Unspeakable> {
        if argument.contains(&0) || argument.windows(2).any(|w| w == b"\r\n") {
            return Err(Unspeakable);
        }
        self.0.truncate(self.0.len() - 2);
        self.0.push(b' ');
        self.0.extend(argument);
        self.0.extend(b"\r\n");
        Ok(self)
    }

    /// Tells whether the line has a CR or LF inside, which only nodes take for a part of a name.
    pub fn is_odd(&self) -> bool {
        let inner = &self.0[..self.0.len() - 2];
        inner.iter().any(|b| b"\r\n".contains(b))
    }

    /// Returns the line with its end.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Displays the line without the secrets of a PASS, ADAT or DCSC.
impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for secret in ["PASS", "ADAT", "DCSC"] {
            if self.0.starts_with(secret.as_bytes()) {
                return write!(f, "{secret} …");
            }
        }
        f.write_str(&crate::error::shown(self.0.trim_ascii_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_smuggle_a_second_command() {
        for name in [&b"a\r\nDELE b"[..], b"\0"] {
            assert_eq!(Line::new("RETR").bytes(name), Err(Unspeakable));
        }
        for name in [&b"a\nDELE b"[..], b"a\r"] {
            assert!(Line::new("RETR").bytes(name).unwrap().is_odd());
        }
        let line = Line::new("ERET P").and(5).and(7).bytes(b" a b ").unwrap();
        assert_eq!(line.as_bytes(), b"ERET P 5 7  a b \r\n");
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(format!("{:?}", Line::new("PASS").and("secret")), "PASS …");
    }
}
