//! Replies as they go out.
//!
//! Every line is made safe here: nothing that was in a name can end a line or
//! begin a reply.

/// Reply bytes that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Say(Vec<u8>);

impl Say {
    /// The last, or only, line of a reply.
    pub(crate) fn line(&mut self, code: u16, text: &str) {
        self.start(code, b' ');
        self.safe(text.as_bytes());
        self.end();
    }

    /// A line that others follow, with the code in front.
    pub(crate) fn more(&mut self, code: u16, text: &str) {
        self.more_bytes(code, text.as_bytes());
    }

    /// The same for names.
    pub(crate) fn more_bytes(&mut self, code: u16, text: &[u8]) {
        self.start(code, b'-');
        self.safe(text);
        self.end();
    }

    /// A line in the middle of a reply, which a blank sets off from codes.
    pub(crate) fn inner(&mut self, text: &[u8]) {
        self.0.push(b' ');
        self.safe(text);
        self.end();
    }

    /// A reply of one line with a name in quotes, doubled inside as RFC 959 wants.
    pub(crate) fn quoted(&mut self, code: u16, before: &str, name: &[u8], after: &str) {
        self.start(code, b' ');
        self.safe(before.as_bytes());
        self.0.push(b'"');
        for &byte in name {
            self.safe(if byte == b'"' {
                b"\"\""
            } else {
                std::slice::from_ref(&byte)
            });
        }
        self.0.push(b'"');
        self.safe(after.as_bytes());
        self.end();
    }

    /// What is to be sent.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    fn start(&mut self, code: u16, separator: u8) {
        self.0.extend_from_slice(code.to_string().as_bytes());
        self.0.push(separator);
    }

    fn safe(&mut self, text: &[u8]) {
        let safe = |&byte: &u8| {
            if matches!(byte, b'\r' | b'\n' | 0) {
                b'?'
            } else {
                byte
            }
        };
        self.0.extend(text.iter().map(safe));
    }

    fn end(&mut self) {
        self.0.extend_from_slice(b"\r\n");
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
            say.0,
            b"257 \"a\"\"b??226 Done?\" is current.\r\n250-x?250 End\r\n"
        );
    }
}
