//! Dialogues as text, for tests of both sides against values and against sockets.
//!
//! A line begins with its speaker:
//!
//! - `C: `: a command of the client;
//! - `S: `: a reply of the server;
//! - `W: `: a request to the client;
//! - `R: `: its result;
//! - `D< `: bytes that arrive over a data connection;
//! - `D> `: bytes that leave there;
//! - `X: `: an unprotected command of the client;
//! - `#`: a comment.

use std::fmt;

/// A line of a dialogue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Spoken {
    /// The speaker.
    pub by: SpokenBy,
    /// The text, without line end.
    pub text: String,
    /// On which line of the file.
    pub line: usize,
}

/// The speaker of a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SpokenBy {
    /// `C: `
    Client,
    /// `S: `
    Server,
    /// `W: `, a request to the client.
    Want,
    /// `R: `, the result of the request.
    Result,
    /// `D< `, the bytes that the client receives on a data connection.
    Down,
    /// `D> `, the bytes that the client sends on a data connection.
    Up,
    /// `X: `, a command that the client sends without the required protection.
    Bare,
}

/// Text that is no dialogue.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line} begins with none of `C: `, `S: `, `W: `, `R: `, `D< `, `D> `, `X: ` and `#`")]
pub struct BadTranscript {
    line: usize,
}

/// Reads a dialogue.
pub fn parse(text: &str) -> Result<Vec<Spoken>, BadTranscript> {
    let lines = text.lines().enumerate();
    let kept = lines.filter(|(_, text)| !text.trim().is_empty() && !text.starts_with('#'));
    kept.map(|(i, text)| {
        let (by, text) = match text.split_at_checked(2) {
            Some(("C:", rest)) => (SpokenBy::Client, rest),
            Some(("S:", rest)) => (SpokenBy::Server, rest),
            Some(("W:", rest)) => (SpokenBy::Want, rest),
            Some(("R:", rest)) => (SpokenBy::Result, rest),
            Some(("D<", rest)) => (SpokenBy::Down, rest),
            Some(("D>", rest)) => (SpokenBy::Up, rest),
            Some(("X:", rest)) => (SpokenBy::Bare, rest),
            _ => return Err(BadTranscript { line: i + 1 }),
        };
        Ok(Spoken {
            by,
            text: text.strip_prefix(' ').unwrap_or(text).to_owned(),
            line: i + 1,
        })
    })
    .collect()
}

impl Spoken {
    /// Tells whether `said` is this line, in which `*` stands for anything.
    pub fn is_said_by(&self, said: &str) -> bool {
        let Some((first, parts)) = self.text.split_once('*') else {
            return self.text == said;
        };
        let Some(mut rest) = said.strip_prefix(first) else {
            return false;
        };
        let mut is_open = false;
        for part in parts.split('*').map(str::trim_end) {
            let Some(at) = rest.find(part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
            is_open = part.is_empty();
        }
        is_open || rest.is_empty()
    }

    /// Returns the bytes that the text stands for: `\\n \\r \\t \\0 \\\\ \\xHH` are one each.
    /// A backslash before any other character stands for that character.
    pub fn bytes(&self) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::new(), self.text.bytes());
        while let Some(byte) = rest.next() {
            let byte = match byte {
                b'\\' => match rest.next() {
                    Some(b'n') => b'\n',
                    Some(b'r') => b'\r',
                    Some(b't') => b'\t',
                    Some(b'0') => 0,
                    Some(b'x') => {
                        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                        let (high, low) = (digit(rest.next()), digit(rest.next()));
                        (high.unwrap_or(0) * 16 + low.unwrap_or(0)) as u8
                    }
                    Some(other) => other,
                    None => b'\\',
                },
                byte => byte,
            };
            bytes.push(byte);
        }
        bytes
    }
}

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            SpokenBy::Client => "C:",
            SpokenBy::Server => "S:",
            SpokenBy::Want => "W:",
            SpokenBy::Result => "R:",
            SpokenBy::Down => "D<",
            SpokenBy::Up => "D>",
            SpokenBy::Bare => "X:",
        };
        write!(f, "{}: {by} {}", self.line, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialogue_is_read_by_line() {
        let all = parse("# title\nS: 220 hi\nC: USER x\nS:  SIZE\n\n").unwrap();
        let texts: Vec<_> = all.iter().map(|s| (s.by, &s.text[..], s.line)).collect();
        let expected = [
            (SpokenBy::Server, "220 hi", 2),
            (SpokenBy::Client, "USER x", 3),
            (SpokenBy::Server, " SIZE", 4),
        ];
        assert_eq!(texts, expected);
        assert_eq!(parse("S: x\nhm\n"), Err(BadTranscript { line: 2 }));
    }

    #[test]
    fn stars_and_backslashes_follow_the_readme() {
        let line = |text: &str| parse(&format!("S: {text}")).unwrap().remove(0);
        assert!(line("220 *").is_said_by("220 hello"));
        assert!(line("229 * (|||*|)").is_said_by("229 Entering (|||2000|)"));
        assert!(!line("229 * (|||*|)").is_said_by("229 Entering (|||2000|) more"));
        assert!(!line("220 a").is_said_by("220 ab"));
        assert_eq!(line(r"a\r\n\\\x41\0").bytes(), b"a\r\n\\A\0");
    }
}
