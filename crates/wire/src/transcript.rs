//! Dialogues written down: `C: ` lines that a client says, `S: ` lines that a
//! server says, `W: ` what the client wants, `R: ` what it then knows; `#` begins
//! a comment. For tests of both sides, against values and against sockets.

use std::fmt;

/// A line of a dialogue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Spoken {
    /// Whose.
    pub by: By,
    /// What, without line end.
    pub text: String,
    /// On which line of the file.
    pub line: usize,
}

/// Whose line it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum By {
    /// `C: `
    Client,
    /// `S: `
    Server,
    /// `W: `, what somebody wants of the client.
    Want,
    /// `R: `, what came of it.
    Result,
}

/// Text that is no dialogue.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line} begins with none of `C: `, `S: `, `W: `, `R: ` and `#`")]
pub struct BadTranscript {
    line: usize,
}

/// Reads a dialogue.
pub fn parse(text: &str) -> Result<Vec<Spoken>, BadTranscript> {
    let lines = text.lines().enumerate();
    let kept = lines.filter(|(_, text)| !text.trim().is_empty() && !text.starts_with('#'));
    kept.map(|(i, text)| {
        let (by, text) = match text.split_at_checked(2) {
            Some(("C:", rest)) => (By::Client, rest),
            Some(("S:", rest)) => (By::Server, rest),
            Some(("W:", rest)) => (By::Want, rest),
            Some(("R:", rest)) => (By::Result, rest),
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

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            By::Client => "C",
            By::Server => "S",
            By::Want => "W",
            By::Result => "R",
        };
        write!(f, "{}: {by}: {}", self.line, self.text)
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
            (By::Server, "220 hi", 2),
            (By::Client, "USER x", 3),
            (By::Server, " SIZE", 4),
        ];
        assert_eq!(texts, expected);
        assert_eq!(parse("S: x\nhm\n"), Err(BadTranscript { line: 2 }));
    }
}
