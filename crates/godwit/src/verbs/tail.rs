//! `godwit tail`: prints the end of a file, and bytes that are appended to it.

use crate::{
    args::Talking,
    bytes,
    out::{CliError, Facts, Run, Screen, facts},
    places::{self, Place},
    signals::SignalStop,
};
use clap::Args;
use godwit_core::Fault;
use godwit_store::{EntryKind, Error};
use std::{ffi::OsString, thread, time::Duration};

/// Print the last lines of a file, and with -f what is appended to it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit tail godwit://lab/logs/run7.log
  godwit tail -f -n 0 godwit://lab/logs/run7.log

With -f it goes on until ^C: what is appended is printed within a second. A file that is not there
yet is waited for and printed from its beginning, a server that cannot be reached is tried again,
and a file that became shorter or was replaced by a shorter one is printed from its beginning; each
is said.

Exit status: 0; 4 no such file; 13 not allowed; 130 after ^C.")]
pub(crate) struct TailArgs {
    /// The file
    #[arg(value_name = "PATH_OR_URL")]
    file: OsString,
    /// Print so many of the last lines
    #[arg(short = 'n', long, value_name = "LINES", default_value_t = 10, value_parser = lines, allow_negative_numbers = true)]
    lines: u64,
    /// Go on with what is appended
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    talking: Talking,
}

fn lines(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "write how many lines, 0 or more".into())
}

impl TailArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let url = places::url(&self.file)?;
        let stores = places::stores(&self.talking)?;
        let place = places::open(&stores, &url)?;
        let stop = SignalStop::watch(places::cancel()?);
        let mut follow = Following {
            place,
            at: None,
            said: String::new(),
            printed: 0,
        };
        loop {
            let outcome = follow.once(screen, self.lines);
            let is_over = screen.gone() || stop.exit_code().is_some();
            if let Err(error) = outcome {
                if !self.follow || !passes(&error) {
                    return Err(CliError::store(format!("print the end of {url}"), error));
                }
                if matches!(error, Error::Missing { .. }) {
                    follow.at.get_or_insert(0); // whatever it will have is new
                }
                follow.say(screen, &error.to_string());
            }
            if !self.follow || is_over {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(facts([("bytes", follow.printed.into())]))
    }
}

/// Tells whether a follower may try again. A missing file may appear, and a restarted server may cut off an
/// incomplete record while the file is read.
fn passes(error: &Error) -> bool {
    let is_other = matches!(error, Error::Missing { .. } | Error::Changed { .. });
    is_other || error.fault() != Fault::Lasting
}

/// A file of which the end is printed.
struct Following {
    place: Place,
    /// How far the file was printed; `None`: not at all.
    at: Option<u64>,
    /// The last message, which is not repeated.
    said: String,
    printed: u64,
}

impl Following {
    /// Prints the bytes that are new.
    fn once(&mut self, screen: &Screen, lines: u64) -> Result<(), Error> {
        let stat = self.place.store.stat(&self.place.path)?;
        if stat.kind == EntryKind::Directory {
            return Err(Error::directory(self.place.path.clone()));
        }
        let at = match self.at {
            None => self.beginning(stat.size, lines)?,
            Some(at) if at > stat.size => {
                self.say(screen, "it became shorter; from its beginning");
                0
            }
            Some(at) => at,
        };
        self.at = Some(at);
        if at == stat.size {
            return Ok(());
        }
        let mut printed = 0;
        let read = bytes::read(&self.place, at..stat.size, &mut |bytes| {
            printed += bytes.len() as u64;
            match screen.json() {
                true => Ok(()),
                false => screen.bytes(bytes),
            }
        });
        self.at = Some(at + printed);
        self.printed += printed;
        self.said.clear();
        screen.flush()?;
        read.map(drop)
    }

    /// Returns where the last lines begin.
    fn beginning(&self, size: u64, lines: u64) -> Result<u64, Error> {
        if lines == 0 {
            return Ok(size);
        }
        let mut tail: Vec<u8> = Vec::new();
        let mut start = size;
        while start > 0 {
            let from = start.saturating_sub(PIECE_BYTES);
            let mut piece = Vec::new();
            bytes::read(&self.place, from..start, &mut |bytes| {
                piece.extend(bytes);
                Ok(())
            })?;
            piece.extend(tail);
            tail = piece;
            start = from;
            // The last byte ends the last line.
            let ends = tail.iter().rev().skip(1).filter(|&&byte| byte == b'\n');
            if ends.count() as u64 >= lines || tail.len() as u64 >= BACK_MAX {
                break;
            }
        }
        let mut left = lines;
        let body = &tail[..tail.len().saturating_sub(1)];
        for (at, byte) in body.iter().enumerate().rev() {
            if *byte == b'\n' {
                left -= 1;
                if left == 0 {
                    return Ok(start + at as u64 + 1);
                }
            }
        }
        Ok(start)
    }

    /// Shows a message once.
    fn say(&mut self, screen: &Screen, what: &str) {
        if self.said != what {
            screen.note(&format!("{}: {what}", self.place.url));
            what.clone_into(&mut self.said);
        }
    }
}

const PIECE_BYTES: u64 = 64 << 10;

/// Lines further back than this are not looked for.
const BACK_MAX: u64 = 64 << 20;

/// How often the file is looked at: a follower prints new bytes within a second.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_cut_while_read_is_retried() {
        assert!(passes(&Error::changed(
            "log",
            "its size, while it was read"
        )));
        assert!(!passes(&Error::denied("log", "")));
    }
}
