//! Secrets that a user types.

use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use std::io::{self, BufRead, Read, Write};

/// Reads a line from standard input, without its end. At a terminal it prints `prompt` and hides
/// the typed text.
pub fn ask_secret(prompt: &str) -> io::Result<Vec<u8>> {
    let input = io::stdin();
    let silence = match isatty(&input) {
        true => {
            eprint!("{prompt}: ");
            io::stderr().flush()?;
            Some(Silence::begin()?)
        }
        false => None,
    };
    let mut line = Vec::new();
    let read = input
        .lock()
        .take(LINE_BYTES_MAX)
        .read_until(b'\n', &mut line);
    drop(silence);
    read?;
    for end in [b'\n', b'\r'] {
        line.pop_if(|last| *last == end);
    }
    Ok(line)
}

/// Tells whether a person sits at standard input.
pub fn is_typed() -> bool {
    isatty(io::stdin())
}

/// A terminal that shows nothing, until this is dropped.
struct Silence(Termios);

impl Silence {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Longer than any password.
const LINE_BYTES_MAX: u64 = 4096;
