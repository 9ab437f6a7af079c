//! Replies of a server: a code of three digits and lines of text.
//!
//! Reads every form that servers use for replies of more than one line, and
//! writes the two that GCT writes.

use crate::{
    Error, Result,
    error::shown,
    lines::{End, LineBuffer},
};

/// A whole reply.
///
/// Lines are without code and without the space that indents continuations.
/// They are bytes, since some contain names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// Three digits, the first from 1 to 6.
    pub code: u16,
    /// At least one.
    pub lines: Vec<Vec<u8>>,
}

/// How the lines between the first and the last are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Inner {
    /// ` text`, as in FEAT, MLST and markers.
    Indented,
    /// `550-text`, as in errors.
    Coded,
}

/// The meaning of a reply's first digit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReplyClass {
    /// 1: another reply to the same command follows.
    Preliminary,
    /// 2: done.
    Done,
    /// 3: so far so good; the next command belongs to this one.
    Intermediate,
    /// 4: not now.
    Transient,
    /// 5: no.
    Permanent,
    /// 6: wrapped; only the shield sees these.
    Wrapped,
}

impl Reply {
    /// Returns a reply of one line.
    pub fn new(code: u16, text: impl AsRef<[u8]>) -> Self {
        Self {
            code,
            lines: vec![text.as_ref().to_vec()],
        }
    }

    /// Returns a reply of several lines.
    pub fn of_lines<T: Into<Vec<u8>>>(code: u16, lines: impl IntoIterator<Item = T>) -> Self {
        Self {
            code,
            lines: lines.into_iter().map(Into::into).collect(),
        }
    }

    /// Returns the class by the first digit.
    pub fn class(&self) -> ReplyClass {
        match self.code / 100 {
            1 => ReplyClass::Preliminary,
            2 => ReplyClass::Done,
            3 => ReplyClass::Intermediate,
            4 => ReplyClass::Transient,
            6 => ReplyClass::Wrapped,
            _ => ReplyClass::Permanent,
        }
    }

    /// Tells whether no other reply to the same command follows.
    pub fn is_final(&self) -> bool {
        self.class() != ReplyClass::Preliminary
    }

    /// Tells whether the command succeeded, or may continue.
    pub fn is_positive(&self) -> bool {
        self.code < 400
    }

    /// Returns the lines between the first and the last.
    pub fn inner(&self) -> &[Vec<u8>] {
        match &self.lines[..] {
            [_, inner @ .., _] => inner,
            _ => &[],
        }
    }

    /// Returns the first line, for messages and for replies whose text matters.
    pub fn text(&self) -> String {
        self.lines
            .first()
            .map_or_else(String::new, |line| String::from_utf8_lossy(line).into())
    }

    /// Returns the text of the reply in one line, for a person. A last line that is a mere `End` is left out.
    pub fn said(&self) -> String {
        let is_end = |line: &[u8]| {
            line.trim_ascii_end()
                .strip_suffix(b".")
                .unwrap_or(line.trim_ascii_end())
                .eq_ignore_ascii_case(b"end")
        };
        let mut lines = &self.lines[..];
        if let [rest @ .., last] = lines
            && !rest.is_empty()
            && is_end(last)
        {
            lines = rest;
        }
        let parts: Vec<_> = lines.iter().map(|line| shown(line)).collect();
        parts.join("; ")
    }

    /// Returns the code that a Globus server puts in `GlobusError: v=1 c=…`.
    pub fn globus_code(&self) -> Option<&str> {
        self.lines.iter().find_map(|line| {
            let text = str::from_utf8(line).ok()?;
            let (_, after) = text.split_once("GlobusError:")?;
            after
                .split_ascii_whitespace()
                .find_map(|w| w.strip_prefix("c="))
        })
    }

    /// Returns the bytes on the wire. Line ends inside of a text become `?`:
    /// they would desynchronise the peer.
    pub fn encode(&self, inner: Inner) -> Vec<u8> {
        let mut wire = Vec::new();
        let last = self.lines.len().saturating_sub(1);
        for (i, line) in self.lines.iter().enumerate() {
            let code = self.code;
            let prefix = match inner {
                _ if i == last => format!("{code} "),
                Inner::Indented if i > 0 => " ".to_owned(),
                _ => format!("{code}-"),
            };
            wire.extend(prefix.bytes());
            wire.extend(
                line.iter()
                    .map(|&b| if matches!(b, b'\r' | b'\n') { b'?' } else { b }),
            );
            wire.extend(b"\r\n");
        }
        wire
    }
}

/// Puts lines together to replies.
#[derive(Debug, Default)]
pub struct Assembly {
    begun: Option<Reply>,
    bytes: usize,
}

impl Assembly {
    /// Takes one line without its end; returns the reply that it completes.
    pub fn on_line(&mut self, line: &[u8]) -> Result<Option<Reply>> {
        let Some(mut reply) = self.begun.take() else {
            return self.on_first(line);
        };
        self.bytes += line.len() + LINE_OVERHEAD_BYTES;
        if self.bytes > REPLY_BYTES_MAX {
            return Err(Error::ReplyTooLong {
                max_bytes: REPLY_BYTES_MAX,
            });
        }
        match split_code(line) {
            Some((code, b' ', text)) if code == reply.code => {
                reply.lines.push(text.to_vec());
                return Ok(Some(reply));
            }
            Some((code, b'-', text)) if code == reply.code => reply.lines.push(text.to_vec()),
            _ => reply
                .lines
                .push(line.strip_prefix(b" ").unwrap_or(line).to_vec()),
        }
        self.begun = Some(reply);
        Ok(None)
    }

    /// Tells whether the last reply is whole.
    pub fn is_between_replies(&self) -> bool {
        self.begun.is_none()
    }

    fn on_first(&mut self, line: &[u8]) -> Result<Option<Reply>> {
        let Some((code, after, text)) = split_code(line) else {
            return Err(Error::NotAReply { line: shown(line) });
        };
        let reply = Reply::new(code, text);
        if after == b' ' {
            return Ok(Some(reply));
        }
        self.bytes = line.len();
        self.begun = Some(reply);
        Ok(None)
    }
}

/// Reads replies from the bytes of a control channel in clear.
#[derive(Debug)]
pub struct Replies {
    lines: LineBuffer,
    assembly: Assembly,
}

impl Default for Replies {
    fn default() -> Self {
        Self {
            lines: LineBuffer::new(LINE_BYTES_MAX),
            assembly: Assembly::default(),
        }
    }
}

impl Replies {
    /// Takes bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// From now on lines end with CR LF only, and a lone LF belongs to a name.
    pub fn take_names_raw(&mut self) {
        self.lines.end_with_crlf_only();
    }

    /// Tells whether all bytes that arrived were handed out.
    pub fn is_empty(&self) -> bool {
        self.lines.rest().is_empty() && self.assembly.is_between_replies()
    }

    /// Returns the next whole reply, if it has arrived.
    pub fn next_reply(&mut self) -> Result<Option<Reply>> {
        while let Some((line, end)) = self.lines.next_line()? {
            // GCT answers `TYPE E` with a CR LF inside the text. The rest is no reply, and an empty line can be
            // skipped without loss.
            if line.is_empty() && self.assembly.is_between_replies() {
                let _: End = end;
                continue;
            }
            if let Some(reply) = self.assembly.on_line(line)? {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }
}

/// Divides a line into the code, the byte after it (space or dash; a bare code counts as space), and the text.
fn split_code(line: &[u8]) -> Option<(u16, u8, &[u8])> {
    let (digits, after) = line.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) || !(b'1'..=b'6').contains(&digits[0]) {
        return None;
    }
    let code = digits.iter().fold(0, |n, &d| n * 10 + u16::from(d - b'0'));
    match after {
        [] => Some((code, b' ', after)),
        [separator @ (b' ' | b'-'), text @ ..] => Some((code, *separator, text)),
        _ => None,
    }
}

/// A DCSC line is 10 kB and an ADAT line grows with the chain; a 111 marker of a
/// transfer with many holes is the longest that is any use.
pub const LINE_BYTES_MAX: usize = 1 << 18;

/// `SITE GODWIT LEAVES` tells at most 65536 leaves of 64 digits.
pub const REPLY_BYTES_MAX: usize = 16 << 20;

/// The cost of a line beside its bytes, so that empty lines count too.
const LINE_OVERHEAD_BYTES: usize = size_of::<Vec<u8>>();

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replies(wire: &[u8]) -> Result<Vec<Reply>> {
        let mut replies = Replies::default();
        replies.push(wire);
        std::iter::from_fn(|| replies.next_reply().transpose()).collect()
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let line = "[ -~ü]{0,20}".prop_map(String::into_bytes);
        (100..700u16, prop::collection::vec(line, 1..6))
            .prop_map(|(code, lines)| Reply { code, lines })
    }

    proptest! {
        #[test]
        fn a_reply_reads_as_it_was_written(reply in reply(), coded in any::<bool>()) {
            let inner = if coded { Inner::Coded } else { Inner::Indented };
            prop_assert_eq!(replies(&reply.encode(inner)), Ok(vec![reply]));
        }

        #[test]
        fn replies_are_equal_in_any_split(
            all in prop::collection::vec(reply(), 0..5),
            cuts in prop::collection::vec(1..20usize, 0..40),
        ) {
            let wire: Vec<u8> = all.iter().flat_map(|r| r.encode(Inner::Indented)).collect();
            let (mut input, mut decoder, mut found) = (&wire[..], Replies::default(), Vec::new());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (now, later) = input.split_at(cut.min(input.len()));
                input = later;
                decoder.push(now);
                while let Some(reply) = decoder.next_reply().unwrap() {
                    found.push(reply);
                }
            }
            prop_assert_eq!(found, all);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = replies(&bytes);
        }
    }

    #[test]
    fn all_forms_of_several_lines_are_read() {
        let wire = b"211-Extensions supported\r\n SIZE\r\n MLST Type*;\r\n211 End.\r\n\
            550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n550 End.\r\n\
            220-Welcome\r\nno code here\r\n221 not the end\r\n220 ready\r\n\
            230\r\n";
        let all = replies(wire).unwrap();
        assert_eq!(all[0].inner(), [b"SIZE".to_vec(), b"MLST Type*;".to_vec()]);
        assert_eq!(all[1].globus_code(), Some("PATH_NOT_FOUND"));
        assert_eq!(
            all[1].said(),
            "GlobusError: v=1 c=PATH_NOT_FOUND; GridFTP-Errno: 2"
        );
        assert_eq!(all[2].lines.len(), 4);
        assert_eq!(all[3], Reply::new(230, ""));
    }

    #[test]
    fn garbage_is_no_reply() {
        for wire in [
            "hello\r\n",
            "999 no\r\n",
            "12\r\n",
            "22x hi\r\n",
            "2200 hi\r\n",
            "099 x\r\n",
        ] {
            assert!(replies(wire.as_bytes()).is_err(), "{wire:?}");
        }
    }

    #[test]
    fn a_reply_that_never_ends_is_refused() {
        let mut decoder = Replies::default();
        decoder.push(b"220-hello\r\n");
        let refused = (0..).find_map(|_| {
            decoder.push(&b"x\r\n".repeat(1000));
            decoder.next_reply().err()
        });
        assert!(matches!(refused, Some(Error::ReplyTooLong { .. })));
    }

    #[test]
    fn line_end_in_text_is_replaced() {
        let wire = Reply::new(501, "'TYPE E\r\n' unrecognized").encode(Inner::Coded);
        assert_eq!(wire, b"501 'TYPE E??' unrecognized\r\n");
    }
}
