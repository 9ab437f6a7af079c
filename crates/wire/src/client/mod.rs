//! The client's side of a control channel, without the channel.
//!
//! [`Dialogue`] turns commands into bytes and bytes into replies, and knows which
//! reply belongs to which command, with any number of commands on the way. What
//! is said to log in, to look at files and to change them is written once, as
//! straight-line functions over anything that can [`Talk`]: a socket, or a
//! dialogue from a file.

mod line;
mod login;
mod peer;
mod refusal;
mod settings;
mod told;
mod verbs;

pub use line::{Line, Unspeakable};
pub use login::{Credentials, log_in};
pub use peer::{Family, Peer};
pub use refusal::{Refusal, Why};
pub use settings::{Mode, Settings};
pub use told::{Told, Upload};
pub use verbs::{
    Looked, checksum, checksum_of, facts_of, look, rename, set_mode, set_mtime, size_of, symlink,
    time_of, truncate,
};

use crate::{Result, reply::Replies, reply::Reply};
use std::collections::VecDeque;

/// Says lines and waits for their final replies.
pub trait Talk {
    /// What goes wrong below: a lost connection, a peer that makes no sense.
    type Error: From<crate::Error>;

    /// Sends the lines in one go and returns the final reply of each.
    fn ask(&mut self, lines: &[Line]) -> std::result::Result<Vec<Reply>, Self::Error>;

    /// Returns the first thing a server says.
    fn greeting(&mut self) -> std::result::Result<Reply, Self::Error>;

    /// Asks one thing.
    fn ask_one(&mut self, line: Line) -> std::result::Result<Reply, Self::Error> {
        let mut replies = self.ask(&[line])?;
        Ok(replies.pop().expect("one line, one reply"))
    }
}

/// What lies between the lines of a dialogue and the socket. The one place where
/// control channels become protected: a secured dialogue adds a variant here.
#[derive(Debug, Default)]
pub enum Shield {
    /// Lines go as they are.
    #[default]
    Clear,
}

/// A command that was sent; its replies carry the same number.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Ticket(u64);

/// A reply, and what it replies to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Heard {
    /// To which command; `None` if nothing was asked: a 421 that says goodbye.
    pub ticket: Option<Ticket>,
    /// What was said.
    pub reply: Reply,
}

/// Commands on their way and replies to them.
#[derive(Debug, Default)]
pub struct Dialogue {
    shield: Shield,
    replies: Replies,
    unsent: Vec<u8>,
    asked: VecDeque<Ticket>,
    last: u64,
    has_raw_names: bool,
}

impl Dialogue {
    /// Returns a dialogue in which the server speaks first.
    pub fn new() -> Self {
        let mut dialogue = Self::default();
        // The greeting is like the reply to having connected.
        dialogue.expect();
        dialogue
    }

    /// From now on a lone CR or LF is a part of a name, in both directions: the
    /// other side is one of ours, and said so (FORMATS.md §1).
    pub fn take_names_raw(&mut self) {
        self.has_raw_names = true;
        self.replies.take_names_raw();
    }

    /// Says a line, once what is unsent has been sent.
    pub fn ask(&mut self, line: &Line) -> std::result::Result<Ticket, Unspeakable> {
        if line.is_odd() && !self.has_raw_names {
            return Err(Unspeakable);
        }
        match self.shield {
            Shield::Clear => self.unsent.extend(line.as_bytes()),
        }
        Ok(self.expect())
    }

    /// Takes what is to be sent.
    pub fn poll_send(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Takes what came.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        match self.shield {
            Shield::Clear => self.replies.push(bytes),
        }
    }

    /// Returns the next reply that came. A final one ends its command.
    pub fn poll_heard(&mut self) -> Result<Option<Heard>> {
        let Some(reply) = self.replies.next_reply()? else {
            return Ok(None);
        };
        // 120 before the greeting is preliminary like any other 1xx.
        let ticket = if reply.is_final() {
            self.asked.pop_front()
        } else {
            self.asked.front().copied()
        };
        Ok(Some(Heard { ticket, reply }))
    }

    /// Returns how many commands have no final reply.
    pub fn outstanding(&self) -> usize {
        self.asked.len()
    }

    fn expect(&mut self) -> Ticket {
        let ticket = Ticket(self.last);
        self.last += 1;
        self.asked.push_back(ticket);
        ticket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_go_to_the_commands_in_order() {
        let mut dialogue = Dialogue::new();
        let greeting = Ticket(0);
        let retr = dialogue
            .ask(&Line::new("RETR").bytes(b"a").unwrap())
            .unwrap();
        let size = dialogue
            .ask(&Line::new("SIZE").bytes(b"a").unwrap())
            .unwrap();
        assert_eq!(dialogue.poll_send(), b"RETR a\r\nSIZE a\r\n");
        dialogue.on_bytes(
            b"220 hi\r\n150 go\r\n111 Range Marker 0-1\r\n226 ok\r\n213 5\r\n421 bye\r\n",
        );
        let mut heard = Vec::new();
        while let Some(Heard { ticket, reply }) = dialogue.poll_heard().unwrap() {
            heard.push((ticket, reply.code));
        }
        let expected = [
            (Some(greeting), 220),
            (Some(retr), 150),
            (Some(retr), 111),
            (Some(retr), 226),
            (Some(size), 213),
            (None, 421),
        ];
        assert_eq!(heard, expected);
        assert_eq!(dialogue.outstanding(), 0);
    }

    #[test]
    fn a_line_feed_in_a_name_is_said_to_ours_only() {
        let mut dialogue = Dialogue::new();
        let line = Line::new("DELE").bytes(b"new\nline").unwrap();
        assert_eq!(dialogue.ask(&line), Err(Unspeakable));
        dialogue.take_names_raw();
        assert!(dialogue.ask(&line).is_ok());
        dialogue.on_bytes(b"220 hi\r\n250 new\nline is gone\r\n");
        assert_eq!(dialogue.poll_heard().unwrap().unwrap().reply.code, 220);
        let heard = dialogue.poll_heard().unwrap().unwrap();
        assert_eq!(heard.reply.lines, [b"new\nline is gone".to_vec()]);
    }
}
