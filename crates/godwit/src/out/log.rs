//! The log, on standard error.

use crate::{args::LogFormat, out::screen::Tone};
use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write, stderr},
};
use tracing_subscriber::{EnvFilter, fmt};

/// Starts the log at `level`, and more with each `-v`.
///
/// `GODWIT_LOG` sets levels by module (`godwit_wire=trace`). URLs are logged without their
/// passwords.
pub(crate) fn start(tone: Tone, level: &str) {
    let levels = ["error", "warn", "info", "debug", "trace"];
    let at = levels.iter().position(|&known| known == level).unwrap_or(1);
    let level = levels[(at + usize::from(tone.verbose)).min(levels.len() - 1)];
    let filter = std::env::var("GODWIT_LOG").unwrap_or_else(|_| level.into());
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_coloured = !plain && stderr().is_terminal();
    let log = fmt()
        // On a full disk the log has gaps. To report that on standard error would be a panic of the thread that logs.
        .log_internal_errors(false)
        .with_writer(move || LogLines { is_coloured })
        .with_ansi(is_coloured)
        .with_env_filter(EnvFilter::new(filter));
    match tone.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// Standard error, with each event on one line. Names from peers may contain line ends; these are escaped, so that a
/// name cannot forge a line of the log.
struct LogLines {
    is_coloured: bool,
}

impl Write for LogLines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        stderr().write_all(&one_line(event, self.is_coloured))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

/// Returns an event with control characters escaped, except for the end of the line.
fn one_line(event: &[u8], is_coloured: bool) -> Cow<'_, [u8]> {
    let (text, end) = match event.strip_suffix(b"\n") {
        Some(text) => (text, &b"\n"[..]),
        None => (event, &b""[..]),
    };
    let is_text = |byte: &u8| !byte.is_ascii_control() || (is_coloured && *byte == ESCAPE);
    if text.iter().all(is_text) {
        return Cow::Borrowed(event);
    }
    let mut line = Vec::with_capacity(event.len() + 16);
    for byte in text {
        match is_text(byte) {
            true => line.push(*byte),
            false => line.extend(byte.escape_ascii()),
        }
    }
    line.extend(end);
    Cow::Owned(line)
}

const ESCAPE: u8 = 0x1b;

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn event_with_control_characters_is_one_line() {
        let event = "received target=x\n2026 INFO forged\r\u{1b}[2J\n".as_bytes();
        let line = b"received target=x\\n2026 INFO forged\\r\\x1b[2J\n";
        assert_eq!(*one_line(event, false), *line);
        let line = b"received target=x\\n2026 INFO forged\\r\x1b[2J\n";
        assert_eq!(*one_line(event, true), *line);
        let plain = "päth of lines\n".as_bytes();
        assert_eq!(*one_line(plain, false), *plain);
    }
}
