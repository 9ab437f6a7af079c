//! Replies as they go out.
//!
//! Every line is made safe here: nothing that was in a name can end a line or
//! begin a reply.

use crate::{
    Result,
    reply::{Inner, Reply},
    shield::{Row, Shield},
};

/// Reply bytes that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Say {
    plain: Vec<u8>,
    /// Where each line of `plain` ends, and which of its reply it is.
    rows: Vec<(usize, Row)>,
    /// The bytes as they are sent.
    wire: Vec<u8>,
    /// The client reads the lines in which GCT explains a refusal.
    explains: bool,
}

impl Say {
    /// Explains refusals as GCT does, from now on.
    pub(crate) fn explain(&mut self) {
        self.explains = true;
    }

    pub(crate) fn explains(&self) -> bool {
        self.explains
    }

    /// The last, or only, line of a reply.
    pub(crate) fn line(&mut self, code: u16, text: &str) {
        self.start(code, b' ');
        self.safe(text.as_bytes());
        self.end(Row::Last);
    }

    /// A line that others follow, with the code in front.
    pub(crate) fn more(&mut self, code: u16, text: &str) {
        self.more_bytes(code, text.as_bytes());
    }

    /// Adds an inner line of a reply that has a name in it, as raw bytes.
    pub(crate) fn more_bytes(&mut self, code: u16, text: &[u8]) {
        self.start(code, b'-');
        self.safe(text);
        self.end(Row::Inner);
    }

    /// A line in the middle of a reply, which a blank sets off from codes.
    pub(crate) fn inner(&mut self, text: &[u8]) {
        self.plain.push(b' ');
        self.safe(text);
        self.end(Row::Inner);
    }

    /// A reply of one line with a name in quotes, doubled inside as RFC 959 wants.
    pub(crate) fn quoted(&mut self, code: u16, before: &str, name: &[u8], after: &str) {
        self.start(code, b' ');
        self.safe(before.as_bytes());
        self.plain.push(b'"');
        for &byte in name {
            self.safe(if byte == b'"' {
                b"\"\""
            } else {
                std::slice::from_ref(&byte)
            });
        }
        self.plain.push(b'"');
        self.safe(after.as_bytes());
        self.end(Row::Last);
    }

    /// A reply that was put together elsewhere.
    pub(crate) fn reply(&mut self, reply: &Reply, inner: Inner) {
        let wire = reply.encode(inner);
        let mut rows = wire.split_inclusive(|&b| b == b'\n').peekable();
        while let Some(row) = rows.next() {
            self.plain.extend_from_slice(row);
            let is_last = rows.peek().is_none();
            let row = if is_last { Row::Last } else { Row::Inner };
            self.rows.push((self.plain.len(), row));
        }
    }

    /// Returns the bytes to send: every line under the shield, in the order of the replies.
    pub(crate) fn sealed(&mut self, shield: &mut Shield) -> Result<&mut Vec<u8>> {
        match shield {
            Shield::Clear => self.wire.append(&mut self.plain),
            Shield::Guarded(_) => {
                let mut start = 0;
                for &(end, row) in &self.rows {
                    let sealed = shield.seal_reply(&self.plain[start..end], row)?;
                    self.wire.extend(sealed);
                    start = end;
                }
                self.plain.clear();
            }
            // TLS may have messages of its own to send.
            Shield::Flow(_) => {
                self.wire.extend(shield.seal_reply(&self.plain, Row::Last)?);
                self.plain.clear();
            }
        }
        self.rows.clear();
        Ok(&mut self.wire)
    }

    /// Returns the sealed bytes that have not been sent.
    pub(crate) fn wire(&mut self) -> &mut Vec<u8> {
        &mut self.wire
    }

    fn start(&mut self, code: u16, separator: u8) {
        self.plain.extend_from_slice(code.to_string().as_bytes());
        self.plain.push(separator);
    }

    fn safe(&mut self, text: &[u8]) {
        let safe = |&byte: &u8| {
            if matches!(byte, b'\r' | b'\n' | 0) {
                b'?'
            } else {
                byte
            }
        };
        self.plain.extend(text.iter().map(safe));
    }

    fn end(&mut self, row: Row) {
        self.plain.extend_from_slice(b"\r\n");
        self.rows.push((self.plain.len(), row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_makes_a_line() {
        let mut say = Say::default();
        say.quoted(257, "", b"a\"b\r\n226 Done\0", " is current.");
        say.more_bytes(250, b"x\n250 End");
        assert_eq!(
            say.sealed(&mut Shield::Clear).unwrap(),
            b"257 \"a\"\"b??226 Done?\" is current.\r\n250-x?250 End\r\n"
        );
    }

    #[test]
    fn reply_lines_are_wrapped_one_by_one() {
        use crate::shield::tests::Turned;
        let mut say = Say::default();
        say.line(235, "ok");
        assert_eq!(say.sealed(&mut Shield::Clear).unwrap(), b"235 ok\r\n");
        let mut shield = Shield::Guarded(Box::new(Turned::default()));
        say.more(211, "Extensions");
        say.inner(b"SIZE");
        say.line(211, "End.");
        say.reply(&Reply::of_lines(112, ["a", "b"]), Inner::Indented);
        let wire = String::from_utf8(say.sealed(&mut shield).unwrap().clone()).unwrap();
        let heads: Vec<&str> = wire.lines().map(|line| &line[..4]).collect();
        assert_eq!(heads, ["235 ", "632-", "632-", "632 ", "632-", "632 "]);
        let mut client = Shield::Guarded(Box::new(Turned::default()));
        let plain: Vec<u8> = wire
            .lines()
            .skip(1)
            .flat_map(|l| client.open_reply(l.as_bytes()).unwrap())
            .collect();
        assert_eq!(
            plain,
            b"211-Extensions\r\n SIZE\r\n211 End.\r\n112-a\r\n112 b\r\n"
        );
    }
}
