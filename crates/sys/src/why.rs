//! Reasons of system errors, for people.

use std::io;

/// Returns the reason without its number: `connection refused`.
pub fn why(error: &io::Error) -> String {
    let text = error.to_string();
    let text = match text.rfind(" (os error ") {
        Some(end) if text.ends_with(')') => &text[..end],
        _ => &text,
    };
    let mut rest = text.chars();
    match rest.next() {
        // `I/O error` and the like stay as they are.
        Some(first) if rest.clone().next().is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(rest).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_without_its_number() {
        let of = |number| why(&io::Error::from_raw_os_error(number));
        assert_eq!(of(111), "connection refused");
        assert_eq!(of(5), "input/output error");
        assert_eq!(why(&io::Error::other("it gave up")), "it gave up");
        assert_eq!(why(&io::Error::from(io::ErrorKind::TimedOut)), "timed out");
    }
}
