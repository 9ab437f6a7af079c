//! Input that cannot be understood, by FTP, at the door and at the local socket.

/// The result of decoding a peer's bytes.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Bytes that break the protocol. All of these are lasting: the same peer will
/// say the same again.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Error {
    #[error("a line of more than {max_bytes} bytes")]
    LineTooLong { max_bytes: usize },
    #[error("a reply of more than {max_bytes} bytes")]
    ReplyTooLong { max_bytes: usize },
    #[error("not a reply: {line}")]
    NotAReply { line: String },
    /// A block header of extended block mode.
    #[error("a bad data block: {why}")]
    BadBlock { why: String },
    /// Everything must be wrapped once both sides have proved who they are.
    #[error("an unprotected line on a protected control channel: {line}")]
    NotProtected { line: String },
    /// The line was wrapped, but not by the other side, or not in this order.
    #[error("protected bytes that cannot be opened: {why}")]
    Spoiled { why: String },
    /// The other side leads the proof of who it is to no end.
    #[error("authentication goes wrong: {why}")]
    BadProof { why: &'static str },
    #[error("no address in: {text}")]
    BadAddress { text: String },
    #[error("a bad marker: {text}")]
    BadMarker { text: String },
    #[error("bad facts: {text}")]
    BadFacts { text: String },
    /// Lines count from one.
    #[error("line {line} of the listing: {why}: {text}")]
    BadListing {
        line: u64,
        why: &'static str,
        text: String,
    },
    #[error("a path cannot contain a zero byte")]
    Nul,
    #[error("'{0}' as a name is refused: it could lead out of what was meant")]
    Dots(&'static str),
    #[error("%2F within a path is refused: no name contains a slash")]
    EncodedSlash,
    #[error("'%' must be followed by two hexadecimal digits")]
    BadEscape,
    #[error("a path begins with a slash and is written in ASCII without control characters")]
    BadPath,
    #[error("not a range of bytes: {0}")]
    BadRange(&'static str),
    #[error("not a pack: {0}")]
    BadPack(&'static str),
    #[error("the line is no JSON of the kind that is wanted: {0}")]
    BadJson(String),
    #[error("a head of {0} bytes is longer than {1}")]
    LongHead(usize, usize),
    #[error("a body of {0} bytes is longer than {1}")]
    LongBody(usize, usize),
    #[error("a head is no JSON of the kind that is wanted: {0}")]
    BadHead(String),
    /// The request has a number, so that it can be answered.
    #[error("not understood: {said}")]
    Unknown { n: u64, fds: u8, said: String },
    #[error("what was written is cut, or reaches beyond what a file can have")]
    BadRecords,
}

/// Returns a peer's bytes for a message, printable and short.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for part in bytes.utf8_chunks() {
        text.extend(part.valid().chars().flat_map(char::escape_debug));
        if !part.invalid().is_empty() {
            text.push('\u{fffd}');
        }
        if text.len() > SHOWN_BYTES {
            break;
        }
    }
    if text.len() > SHOWN_BYTES {
        let end = (0..=SHOWN_BYTES)
            .rev()
            .find(|&i| text.is_char_boundary(i))
            .unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

const SHOWN_BYTES: usize = 160; // two lines of a terminal
