//! Command lines that wait for their turn.

use crate::{Error, command::Command, shield::Shield};
use std::collections::VecDeque;

/// Cuts bytes into lines. Bounded: a line that is too long is skipped to its
/// end, and stands in the queue as such.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    waiting: VecDeque<Queued>,
    /// How many lines, from the front, are unwrapped.
    opened: usize,
    begun: Vec<u8>,
    skipping: bool,
    /// A telnet command has begun at the start of a line.
    telnet: bool,
    only_crlf: bool,
    line_bytes_max: usize,
    count_max: usize,
    /// The bytes of the waiting lines, and the cost of keeping them.
    bytes: usize,
    /// How many of those that wait are an `ABOR`.
    aborts: usize,
}

/// A command line, as the queue read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Queued {
    Line(Vec<u8>),
    TooLong,
    /// The line could not be unwrapped.
    Spoiled(Error),
}

impl CommandQueue {
    pub(crate) fn new(line_bytes_max: usize, count_max: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            opened: 0,
            begun: Vec::new(),
            skipping: false,
            telnet: false,
            only_crlf: false,
            line_bytes_max,
            count_max,
            bytes: 0,
            aborts: 0,
        }
    }

    pub(crate) fn on_bytes(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = self.skip_telnet(rest);
            match rest.iter().position(|&b| b == b'\n') {
                Some(end) if self.only_crlf && !self.ends_with_cr(&rest[..end]) => {
                    self.grow(&rest[..=end]);
                    rest = &rest[end + 1..];
                }
                Some(end) => {
                    self.grow(&rest[..end]);
                    self.end_line();
                    rest = &rest[end + 1..];
                }
                None => {
                    self.grow(rest);
                    rest = b"";
                }
            }
        }
    }

    /// RFC 2640: a lone line feed is part of a name. Many clients end lines with a bare LF, so only a client that
    /// announced itself must send CR LF.
    pub(crate) fn only_crlf_ends_lines(&mut self) {
        self.only_crlf = true;
    }

    /// Unwraps the lines that arrived since the last call. That is done at once, since an ABOR among them must be
    /// seen.
    pub(crate) fn open(&mut self, shield: &mut Shield) {
        for queued in self.waiting.iter_mut().skip(self.opened) {
            if let Queued::Line(line) = queued {
                self.bytes -= line.len();
                self.aborts -= usize::from(is_abort(line));
                match shield.open_command(std::mem::take(line)) {
                    Ok(plain) => {
                        self.bytes += plain.len();
                        self.aborts += usize::from(is_abort(&plain));
                        *line = plain;
                    }
                    Err(error) => *queued = Queued::Spoiled(error),
                }
            }
        }
        self.opened = self.waiting.len();
    }

    /// Ends the queue with an error: a line could not be unwrapped, so the lines after it are lost too.
    pub(crate) fn spoil(&mut self, error: Error) {
        self.bytes += LINE_COST;
        self.waiting.push_back(Queued::Spoiled(error));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.count_max || self.bytes >= BYTES_MAX.max(2 * self.line_bytes_max)
    }

    /// Tells whether an `ABOR` waits, wherever.
    pub(crate) fn has_abort(&self) -> bool {
        self.aborts > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Tells whether no byte arrived behind the last line that was taken.
    pub(crate) fn is_clean(&self) -> bool {
        self.waiting.is_empty() && self.begun.is_empty() && !self.skipping && !self.telnet
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let queued = self.waiting.pop_front()?;
        self.opened = self.opened.saturating_sub(1);
        self.bytes -= LINE_COST;
        if let Queued::Line(line) = &queued {
            self.bytes -= line.len();
            self.aborts -= usize::from(is_abort(line));
        }
        Some(queued)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.waiting.iter().map(|queued| match queued {
            Queued::Line(line) => line.as_slice(),
            Queued::TooLong | Queued::Spoiled(_) => b"",
        })
    }

    /// Clients put "interrupt process" and "data mark" in front of ABOR (RFC
    /// 959 §4.1.3). Only at the start of a line, since names are any bytes.
    fn skip_telnet<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while self.begun.is_empty() && !self.skipping {
            match bytes {
                [TELNET_COMMAND, rest @ ..] if !self.telnet => {
                    self.telnet = true;
                    bytes = rest;
                }
                [TELNET_INTERRUPT | TELNET_DATA_MARK, rest @ ..] if self.telnet => {
                    self.telnet = false;
                    bytes = rest;
                }
                [_, ..] if self.telnet => {
                    // It was none; the byte belongs to the line.
                    self.telnet = false;
                    self.begun.push(TELNET_COMMAND);
                }
                // The mark alone: its first byte arrived out of band.
                [TELNET_DATA_MARK, rest @ ..] => bytes = rest,
                _ => break,
            }
        }
        bytes
    }

    fn ends_with_cr(&self, piece: &[u8]) -> bool {
        self.skipping || piece.last().or(self.begun.last()) == Some(&b'\r')
    }

    fn grow(&mut self, bytes: &[u8]) {
        if self.skipping || self.begun.len() + bytes.len() > self.line_bytes_max {
            self.skipping = true;
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.skipping) {
            self.bytes += LINE_COST;
            self.waiting.push_back(Queued::TooLong);
            return;
        }
        let mut line = std::mem::take(&mut self.begun);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        // Some clients send an empty line to keep a connection alive.
        if !line.is_empty() {
            self.bytes += LINE_COST + line.len();
            self.aborts += usize::from(is_abort(&line));
            self.waiting.push_back(Queued::Line(line));
        }
    }
}

fn is_abort(line: &[u8]) -> bool {
    Command::is(line, "ABOR")
}

/// The limit of one session, as much as a transfer needs for its data.
const BYTES_MAX: usize = 1 << 20;
/// The cost of keeping a line beside its bytes.
const LINE_COST: usize = 64;

const TELNET_COMMAND: u8 = 0xff;
const TELNET_INTERRUPT: u8 = 0xf4;
const TELNET_DATA_MARK: u8 = 0xf2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(queue: &mut CommandQueue) -> Vec<Queued> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    proptest! {
        #[test]
        fn queue_lines_are_equal_in_any_split(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(0xffu8), Just(0xf4), Just(0xf2), Just(b'a')], 0..80),
            cuts in prop::collection::vec(0..80usize, 0..8),
        ) {
            let mut whole = CommandQueue::new(10, 100);
            whole.on_bytes(&text);
            let mut pieces = CommandQueue::new(10, 100);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            for w in cuts.windows(2) {
                pieces.on_bytes(&text[w[0]..w[1]]);
            }
            prop_assert_eq!(lines(&mut whole), lines(&mut pieces));
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut queue = CommandQueue::new(1000, 10);
        for _ in 0..10_000 {
            queue.on_bytes(&[b'x'; 999]);
        }
        assert!(queue.begun.capacity() <= 2000);
        queue.on_bytes(b"\r\nNOOP\r\n");
        assert_eq!(
            lines(&mut queue),
            [Queued::TooLong, Queued::Line(b"NOOP".into())]
        );
    }

    #[test]
    fn telnet_marks_before_abor_are_skipped() {
        let mut queue = CommandQueue::new(100, 10);
        queue.on_bytes(b"\xff\xf4\xff\xf2ABOR\r\n\xf2ABOR\r\nDELE a\xff\xf4\n");
        assert_eq!(
            lines(&mut queue),
            [
                b"ABOR".to_vec(),
                b"ABOR".to_vec(),
                b"DELE a\xff\xf4".to_vec()
            ]
            .map(Queued::Line)
        );
    }

    #[test]
    fn name_may_have_agreed_line_feed() {
        let mut queue = CommandQueue::new(100, 10);
        queue.only_crlf_ends_lines();
        queue.on_bytes(b"RETR a\nb\r");
        queue.on_bytes(b"\nNOOP\r\n");
        assert_eq!(
            lines(&mut queue),
            [b"RETR a\nb".to_vec(), b"NOOP".to_vec()].map(Queued::Line)
        );
    }

    #[test]
    fn short_lines_fill_a_queue_too() {
        let mut queue = CommandQueue::new(100, usize::MAX);
        while !queue.is_full() {
            queue.on_bytes(b"x\r\n");
        }
        assert!((1000..BYTES_MAX / LINE_COST).contains(&queue.waiting.len()));
        while queue.pop().is_some() {}
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn abort_is_seen_until_taken() {
        let mut queue = CommandQueue::new(100, 10);
        queue.on_bytes(b"NOOP\r\nabor\r\nABORT\r\nNOOP\r\n");
        let mut seen = vec![queue.has_abort()];
        while queue.pop().is_some() {
            seen.push(queue.has_abort());
        }
        assert_eq!(seen, [true, true, false, false, false]);
    }

    #[test]
    fn a_full_queue_says_so() {
        let mut queue = CommandQueue::new(100, 3);
        queue.on_bytes(b"NOOP\r\nNOOP\r\n");
        assert!(!queue.is_full());
        queue.on_bytes(b"NOOP\r\n");
        assert!(queue.is_full());
    }
}
