//! The client's side of a control channel, without the channel.
//!
//! [`Dialogue`] turns commands into bytes and bytes into replies. With any number of commands in flight, it knows to
//! which command a reply belongs. The login, the questions about files and their changes are straight-line functions.
//! They run over anything that can [`Talk`]: a socket, or a dialogue from a file.

mod line;
mod login;
mod peer;
mod proof;
mod refusal;
mod settings;
mod told;
mod verbs;

pub use crate::Refusal;
pub use line::{Line, Unspeakable};
pub use login::{ACTS_FOR, Credentials, LinesAhead, LoggedIn, enter, greet, log_in};
pub use peer::{Family, FtpPeer};
pub use proof::{ProofPace, Steps, Token, authenticate};
pub use settings::{DataHints, Settings};
pub use told::{ReplyFacts, Upload};
pub use verbs::{
    Looked, checksum, checksum_of, facts_of, look, rename, set_mode, set_mtime, size_of, symlink,
    time_of, truncate,
};

use crate::{
    Error, Result,
    lines::LineBuffer,
    reply::{LINE_BYTES_MAX, Replies, Reply},
    shield::{Guard, Shield},
};
use std::collections::VecDeque;

/// Says lines and waits for their final replies.
pub trait Talk {
    /// A failure of the connection: lost, or a peer whose bytes cannot be understood.
    type Error: From<crate::Error>;

    /// Sends the lines in one go and returns the final reply of each.
    fn ask(&mut self, lines: &[Line]) -> std::result::Result<Vec<Reply>, Self::Error>;

    /// Returns the first thing a server says.
    fn greeting(&mut self) -> std::result::Result<Reply, Self::Error>;

    /// Like [`Talk::ask`], but says the lines before the greeting has come, and
    /// returns that too.
    fn ask_before_greeting(
        &mut self,
        lines: &[Line],
    ) -> std::result::Result<(Reply, Vec<Reply>), Self::Error>;

    /// Asks one thing.
    fn ask_one(&mut self, line: Line) -> std::result::Result<Reply, Self::Error> {
        let mut replies = self.ask(&[line])?;
        Ok(replies.pop().expect("one line, one reply"))
    }
}

/// A command that was sent; its replies carry the same number.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct LineTicket(u64);

/// A reply, and the command that it answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeardReply {
    /// To which command; `None` if nothing was asked: a 421 that says goodbye.
    pub ticket: Option<LineTicket>,
    /// The server's reply.
    pub reply: Reply,
}

/// Commands on their way and replies to them.
#[derive(Debug)]
pub struct Dialogue {
    shield: Shield,
    /// Lines as they came, where these are wrapped.
    wrapped: LineBuffer,
    /// The other side broke the shield.
    spoiled: Option<Error>,
    replies: Replies,
    unsent: Vec<u8>,
    asked: VecDeque<LineTicket>,
    last: u64,
    has_raw_names: bool,
}

impl Default for Dialogue {
    fn default() -> Self {
        Self::new()
    }
}

impl Dialogue {
    /// Returns a dialogue in which the server speaks first.
    pub fn new() -> Self {
        let mut dialogue = Self {
            shield: Shield::Clear,
            wrapped: LineBuffer::new(LINE_BYTES_MAX),
            spoiled: None,
            replies: Replies::default(),
            unsent: Vec::new(),
            asked: VecDeque::new(),
            last: 0,
            has_raw_names: false,
        };
        // The greeting is like the reply to having connected.
        dialogue.expect();
        dialogue
    }

    /// Wraps every later line, in both directions. Bytes in clear behind the reply that ended the proof are an
    /// attacker's.
    pub fn protect(&mut self, guard: Box<dyn Guard>) -> Result<()> {
        self.raise(Shield::Guarded(guard))
    }

    /// Wraps the whole flow instead of each line, as TLS does.
    pub fn protect_flow(&mut self, guard: Box<dyn Guard>) -> Result<()> {
        self.raise(Shield::Flow(guard))
    }

    fn raise(&mut self, shield: Shield) -> Result<()> {
        if !self.replies.is_empty() {
            return Err(Error::BadProof {
                why: "unprotected bytes follow its end",
            });
        }
        self.shield = shield;
        Ok(())
    }

    /// From now on a lone CR or LF is a part of a name, in both directions: the other side is a node, and announced
    /// it (docs/formats/ftp-extensions.md).
    pub fn take_names_raw(&mut self) {
        self.has_raw_names = true;
        self.replies.take_names_raw();
    }

    /// Queues a command behind the unsent ones.
    pub fn ask(&mut self, line: &Line) -> std::result::Result<LineTicket, Unspeakable> {
        if line.is_odd() && !self.has_raw_names {
            return Err(Unspeakable);
        }
        match self.shield.seal_command(line.as_bytes()) {
            Ok(sealed) => self.unsent.extend(sealed),
            Err(error) => self.spoiled = Some(error),
        }
        Ok(self.expect())
    }

    /// Takes the bytes to send.
    pub fn poll_send(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Takes bytes that arrived.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        if !self.shield.is_guarded() {
            return match self.shield.open_flow(bytes) {
                Ok(plain) => self.replies.push(&plain),
                Err(error) => self.spoiled = Some(error),
            };
        }
        self.wrapped.push(bytes);
        if let Err(error) = self.open_lines() {
            self.spoiled = Some(error);
        }
    }

    /// Returns the next reply that came. A final one ends its command.
    pub fn poll_heard(&mut self) -> Result<Option<HeardReply>> {
        let Some(reply) = self.replies.next_reply()? else {
            return self.spoiled.clone().map_or(Ok(None), Err);
        };
        // 120 before the greeting is preliminary like any other 1xx.
        let ticket = if reply.is_final() {
            self.asked.pop_front()
        } else {
            self.asked.front().copied()
        };
        Ok(Some(HeardReply { ticket, reply }))
    }

    /// Returns how many commands have no final reply.
    pub fn outstanding(&self) -> usize {
        self.asked.len()
    }

    fn open_lines(&mut self) -> Result<()> {
        while let Some((line, _)) = self.wrapped.next_line()? {
            self.replies.push(&self.shield.open_reply(line)?);
        }
        Ok(())
    }

    fn expect(&mut self) -> LineTicket {
        let ticket = LineTicket(self.last);
        self.last += 1;
        self.asked.push_back(ticket);
        ticket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shield::{Row, tests::Turned};

    #[test]
    fn replies_go_to_the_commands_in_order() {
        let mut dialogue = Dialogue::new();
        let greeting = LineTicket(0);
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
        while let Some(HeardReply { ticket, reply }) = dialogue.poll_heard().unwrap() {
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
    fn guarded_dialogue_opens_any_protected_line() {
        let mut dialogue = Dialogue::new();
        dialogue.on_bytes(b"235 proved\r\n");
        assert_eq!(dialogue.poll_heard().unwrap().unwrap().reply.code, 235);
        dialogue.protect(Box::new(Turned::default())).unwrap();
        dialogue.ask(&Line::new("FEAT")).unwrap();
        assert!(dialogue.poll_send().starts_with(b"ENC "));
        let mut server = Shield::Guarded(Box::new(Turned::default()));
        // First lines one by one, as GCT sends them, then a whole reply in one.
        let lines: [(&[u8], Row); 4] = [
            (b"211-Extensions\r\n", Row::Inner),
            (b" SIZE\r\n", Row::Inner),
            (b"211 End.\r\n", Row::Last),
            (b"111-a\r\n b\r\n111 c\0", Row::Last),
        ];
        for (line, row) in lines {
            let sealed = server.seal_reply(line, row).unwrap();
            sealed.chunks(5).for_each(|piece| dialogue.on_bytes(piece));
        }
        let feat = dialogue.poll_heard().unwrap().unwrap().reply;
        assert_eq!(feat.inner(), [b"SIZE".to_vec()]);
        assert_eq!(dialogue.poll_heard().unwrap().unwrap().reply.lines.len(), 3);
        assert_eq!(dialogue.poll_heard(), Ok(None));
        dialogue.on_bytes(b"226 trust me\r\n");
        assert!(matches!(
            dialogue.poll_heard(),
            Err(Error::NotProtected { .. })
        ));
    }

    #[test]
    fn clear_bytes_before_shield_are_refused() {
        let mut dialogue = Dialogue::new();
        dialogue.on_bytes(b"235 proved\r\n226 trust me\r\n");
        assert_eq!(dialogue.poll_heard().unwrap().unwrap().reply.code, 235);
        let refused = dialogue.protect(Box::new(Turned::default()));
        assert!(matches!(refused, Err(Error::BadProof { .. })));
    }

    #[test]
    fn line_feed_in_name_needs_a_node() {
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
