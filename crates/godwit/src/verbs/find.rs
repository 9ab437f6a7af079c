//! `godwit find`: walks trees and tells what matches.

use super::{Facts, facts};
use crate::{
    listing,
    options::{Names, Talking},
    owed::{self, Reach},
    places,
    screen::Screen,
    trouble::{CliError, Run},
    units,
};
use clap::{Args, ValueEnum};
use godwit_core::Url;
use godwit_store::engine::Stores;
use godwit_store::{Entry, EntryKind, Error, Stat};
use godwit_sys::why;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Find files below a directory
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit find ftp://fermi.example/2026 -name '*.root' -size +1M
  godwit find . -type f -newer 2026-11-01
  godwit find ftp://fermi.example/ --json

Options may be written with one dash or two. All given ones must hold. Matches are told
as they are found, in no order, in memory that does not grow with the tree. What was put on
this machine and is on its way still (godwit queue) is not found; it says how much that is.

Exit status: 0, also if nothing matches; 4 no such directory; 13 not allowed.")]
pub(crate) struct Find {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    talking: Talking,
    /// The last part of the path matches a shell pattern
    #[arg(long, value_name = "PATTERN")]
    name: Option<OsString>,
    /// It is a file, directory or link
    #[arg(long = "type", value_name = "KIND", value_enum)]
    kind: Option<Type>,
    /// Its size is exactly, more than (+) or less than (-) this: 4096, +10M, -1G
    #[arg(long, value_name = "SIZE", value_parser = SizeIs::parse, allow_hyphen_values = true)]
    size: Option<SizeIs>,
    /// It changed after a date (2026-11-21, 2026-11-21T14:05:09; UTC) or a local file
    #[arg(long, value_name = "DATE_OR_FILE", value_parser = newer)]
    newer: Option<Duration>,
    /// At most this many levels down; 0 is the named thing itself
    #[arg(long, value_name = "N")]
    maxdepth: Option<usize>,
    /// End each path with NUL instead of a newline
    #[arg(long)]
    print0: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Type {
    #[value(alias = "file")]
    F,
    #[value(alias = "directory")]
    D,
    #[value(alias = "link")]
    L,
}

impl Find {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let stores = places::stores(&self.talking)?;
        let names = self.names.or_here()?;
        let mut matches = 0;
        for name in &names {
            let found =
                places::url(name).and_then(|url| self.one(screen, &stores, &url, &mut matches));
            if let Err(trouble) = found {
                screen.trouble(&trouble);
            }
        }
        Ok(facts([("matches", matches.into())]))
    }

    fn one(&self, screen: &Screen, stores: &Stores, url: &Url, matches: &mut u64) -> Run {
        let trouble = |error: Error| CliError::store(format!("search {url}"), error);
        let reach = match self.maxdepth {
            Some(0) => Reach::Name,
            _ => Reach::Below,
        };
        owed::note(screen, url, reach);
        let place = places::open(stores, url)?;
        let root = place.store.stat(&place.path).map_err(trouble)?;
        let is_directory = root.kind == EntryKind::Directory;
        let mut each = |entry: Entry| {
            let url = places::below(url, &entry.path)?;
            if self.matches(&url, &entry) {
                *matches += 1;
                self.say(screen, &url, &entry)?;
            }
            Ok(())
        };
        let path = PathBuf::new();
        each(Entry { path, stat: root }).map_err(trouble)?;
        if is_directory && self.maxdepth != Some(0) {
            places::walk(screen, "search", &place, &mut each).map_err(trouble)?;
        }
        Ok(())
    }

    fn matches(&self, url: &Url, entry: &Entry) -> bool {
        let Stat {
            kind, size, mtime, ..
        } = &entry.stat;
        let name_fits = |pattern: &OsString| {
            godwit_core::matches(pattern.as_bytes(), url.file_name().unwrap_or(b"."))
        };
        self.name.as_ref().is_none_or(name_fits)
            && self.kind.is_none_or(|kind_wanted| kind_wanted.is(*kind))
            && self.size.is_none_or(|is| is.fits(*size))
            && self
                .newer
                .is_none_or(|after| mtime.is_some_and(|t| t > after))
            && self
                .maxdepth
                .is_none_or(|max| entry.path.iter().count() <= max)
    }

    fn say(&self, screen: &Screen, url: &Url, entry: &Entry) -> Result<(), Error> {
        if screen.json() {
            return screen.object(&listing::object(&entry.path, url, &entry.stat));
        }
        let shown = places::shown(url);
        if self.print0 {
            screen.bytes(&[&shown[..], b"\0"].concat())
        } else {
            screen.line(shown)
        }
    }
}

impl Type {
    fn is(self, kind: EntryKind) -> bool {
        match self {
            Self::F => kind == EntryKind::File,
            Self::D => kind == EntryKind::Directory,
            Self::L => kind == EntryKind::Link,
        }
    }
}

/// A condition on a size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SizeIs {
    Exactly(u64),
    MoreThan(u64),
    LessThan(u64),
}

impl SizeIs {
    fn parse(text: &str) -> Result<Self, String> {
        match text.as_bytes().first() {
            Some(b'+') => units::parse_size(&text[1..]).map(Self::MoreThan),
            Some(b'-') => units::parse_size(&text[1..]).map(Self::LessThan),
            _ => units::parse_size(text).map(Self::Exactly),
        }
    }

    fn fits(self, size: u64) -> bool {
        match self {
            Self::Exactly(bytes) => size == bytes,
            Self::MoreThan(bytes) => size > bytes,
            Self::LessThan(bytes) => size < bytes,
        }
    }
}

fn newer(text: &str) -> Result<Duration, String> {
    if let Ok(date) = units::parse_instant(text) {
        return Ok(date);
    }
    let changed = std::fs::metadata(Path::new(text)).and_then(|meta| meta.modified());
    let changed = changed.map_err(|cause| {
        format!(
            "neither a date like 2026-11-21 nor a file ({})",
            why(&cause)
        )
    })?;
    Ok(changed
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default())
}

/// Gives the options of `find` their second dash: fingers know `-name`.
pub(crate) fn long_options(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let verb = arguments
        .iter()
        .skip(1)
        .find(|argument| !argument.as_bytes().starts_with(b"-"));
    if verb.is_none_or(|verb| verb != OsStr::new("find")) {
        return arguments;
    }
    for argument in &mut arguments {
        if argument == "--" {
            break;
        }
        let known = ["-name", "-type", "-size", "-newer", "-maxdepth", "-print0"];
        if known.iter().any(|option| argument == option) {
            *argument = OsString::from(format!("-{}", argument.to_string_lossy()));
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_find_may_have_one_dash() {
        let of = |line: &str| {
            long_options(line.split(' ').map(OsString::from).collect()).join(OsStr::new(" "))
        };
        assert_eq!(of("godwit find -name x"), "godwit find --name x");
        assert_eq!(
            of("godwit --json find . -type f"),
            "godwit --json find . --type f"
        );
        assert_eq!(of("godwit ls -name"), "godwit ls -name");
        assert_eq!(of("godwit find -- -name"), "godwit find -- -name");
    }

    #[test]
    fn sizes_are_exact_more_or_less() {
        assert_eq!(SizeIs::parse("+10M"), Ok(SizeIs::MoreThan(10 << 20)));
        assert!(SizeIs::LessThan(5).fits(4) && !SizeIs::LessThan(5).fits(5));
        assert!(SizeIs::parse("+").is_err());
    }
}
