//! A stream of bytes cut into lines, with a bound.

use crate::{Error, Result};

/// Collects bytes and gives out whole lines.
///
/// A line ends with LF; a CR before it is taken off. Control channels and
/// listings are both made of these.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Before this, all was given out.
    start: usize,
    /// Before this, there is no LF.
    searched: usize,
    max_bytes: usize,
    only_crlf: bool,
}

/// How a line ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// By the standards.
    CrLf,
    /// As some servers write, or inside a name with a line feed.
    Lf,
}

impl LineBuffer {
    /// Returns an empty collection that refuses lines longer than `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            searched: 0,
            max_bytes,
            only_crlf: false,
        }
    }

    /// From now on a line ends with CR LF only, and LF is a byte like any other: nodes send names so
    /// (docs/formats/ftp-extensions.md).
    pub fn end_with_crlf_only(&mut self) {
        self.only_crlf = true;
    }

    /// Takes bytes that arrived, and forgets the lines that were handed out.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next whole line without its end, if it came.
    pub fn next_line(&mut self) -> Result<Option<(&[u8], End)>> {
        let too_long = Error::LineTooLong {
            max_bytes: self.max_bytes,
        };
        let Some(at) = self.find_end() else {
            self.searched = self.bytes.len();
            if self.searched - self.start > self.max_bytes {
                return Err(too_long);
            }
            return Ok(None);
        };
        let start = self.start;
        let lf = self.searched + at;
        (self.start, self.searched) = (lf + 1, lf + 1);
        if lf - start > self.max_bytes {
            return Err(too_long);
        }
        Ok(Some(match &self.bytes[start..lf] {
            [line @ .., b'\r'] => (line, End::CrLf),
            line => (line, End::Lf),
        }))
    }

    /// Returns where the next line ends, counted from the end of the searched bytes.
    fn find_end(&self) -> Option<usize> {
        let is_end = |at: usize| {
            let cr = (self.searched + at)
                .checked_sub(1)
                .filter(|&cr| cr >= self.start);
            !self.only_crlf || cr.is_some_and(|cr| self.bytes[cr] == b'\r')
        };
        let mut from = 0;
        loop {
            let rest = &self.bytes[self.searched + from..];
            let at = from + rest.iter().position(|&b| b == b'\n')?;
            if is_end(at) {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// Returns the bytes after the last line end.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_are_equal_in_any_split(
            lines in prop::collection::vec("[a-z ]{0,12}", 0..12),
            cuts in prop::collection::vec(1..9usize, 0..80),
        ) {
            let text: String = lines.iter().map(|l| format!("{l}\r\n")).collect();
            let (mut input, mut found) = (text.as_bytes(), Vec::new());
            let mut collected = LineBuffer::new(12 + 1);
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (now, later) = input.split_at(cut.min(input.len()));
                input = later;
                collected.push(now);
                while let Some((line, end)) = collected.next_line().unwrap() {
                    prop_assert_eq!(end, End::CrLf);
                    found.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            prop_assert_eq!(found, lines);
            prop_assert!(collected.rest().is_empty());
        }
    }

    #[test]
    fn line_feed_between_nodes_ends_nothing() {
        let mut lines = LineBuffer::new(100);
        lines.end_with_crlf_only();
        lines.push(b"new\nline\r");
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"\n\n\r\n");
        assert_eq!(lines.next_line(), Ok(Some((&b"new\nline"[..], End::CrLf))));
        assert_eq!(lines.next_line(), Ok(Some((&b"\n"[..], End::CrLf))));
        assert_eq!(lines.next_line(), Ok(None));
    }

    #[test]
    fn endless_line_is_refused_early() {
        let mut lines = LineBuffer::new(10);
        lines.push(b"0123456789");
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"x");
        assert_eq!(lines.next_line(), Err(Error::LineTooLong { max_bytes: 10 }));
    }

    #[test]
    fn long_line_in_one_read_is_refused() {
        let mut lines = LineBuffer::new(3);
        lines.push(b"abc\nabcd\n");
        assert_eq!(lines.next_line(), Ok(Some((&b"abc"[..], End::Lf))));
        assert!(lines.next_line().is_err());
    }
}
