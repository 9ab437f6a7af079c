//! How paths and names stand in the text of a URL: escapes, and where parts end.

use super::BadUrl;
use crate::unescape;
use std::fmt;

/// Resolves the escapes of a path. `%2F` would change where names end and is refused.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, BadUrl> {
    if text.windows(3).any(|w| without_encoded_slash(w).is_some()) {
        return Err(BadUrl::EncodedSlash);
    }
    unescape(text).ok_or(BadUrl::BadEscape)
}

pub(super) fn check_path(path: &[u8]) -> Result<(), BadUrl> {
    if path.contains(&0) {
        return Err(BadUrl::Nul);
    }
    if path.split(|&b| b == b'/').any(|segment| segment == b"..") {
        return Err(BadUrl::DotDot);
    }
    Ok(())
}

/// Writes bytes of a path so that [`decode`] gives them back. Letters and digits
/// of any script stay readable; whatever a terminal might obey does not.
pub(super) struct Escaped<'a>(pub(super) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_alphanumeric() || "-._~/!$&'()*+,=:@".contains(c) {
                    write!(f, "{c}")?;
                } else {
                    escape(f, c.encode_utf8(&mut [0; 4]).as_bytes())?;
                }
            }
            escape(f, chunk.invalid())?;
        }
        Ok(())
    }
}

/// Returns the file, index and count of a path that names a fragment: `/f/#0.4`.
pub(super) fn as_fragment(path: &[u8]) -> Option<(&[u8], &str, &str)> {
    let at = path.iter().rposition(|&byte| byte == b'/')?;
    let numbers = path[at + 1..].strip_prefix(b"#")?;
    let (index, count) = split_once(numbers, b'.')?;
    let text = |digits| {
        is_digits(digits)
            .then(|| std::str::from_utf8(digits).ok())
            .flatten()
    };
    (at > 0).then_some((&path[..at], text(index)?, text(count)?))
}

/// Like [`Escaped`], for a user name, where `:`, `@` and `/` would end it.
pub(super) struct EscapedLogin<'a>(pub(super) &'a str);

impl fmt::Display for EscapedLogin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_ascii_alphanumeric() || "-._~".contains(c) {
                write!(f, "{c}")?;
            } else {
                escape(f, c.encode_utf8(&mut [0; 4]).as_bytes())?;
            }
        }
        Ok(())
    }
}

fn escape(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "%{byte:02X}"))
}

pub(super) fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// Some bytes as a message shows them.
pub(super) fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

pub(super) fn without_encoded_slash(path: &[u8]) -> Option<&[u8]> {
    path.strip_prefix(b"%2F").or(path.strip_prefix(b"%2f"))
}

pub(super) fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

pub(super) fn split_once(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == byte)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Divides before the first slash.
pub(super) fn split_path(text: &[u8]) -> (&[u8], &[u8]) {
    let at = text.iter().position(|&b| b == b'/').unwrap_or(text.len());
    text.split_at(at)
}

pub(super) fn strip_slashes(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
    &path[start..]
}

pub(super) fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

pub(super) fn last_segment(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    &path[start..]
}
