//! `godwit find`: walks trees and tells what matches.

use super::catalog;
use crate::{
    args::{Names, Talking, conditions::ConditionArgs},
    client::pending::{self, NameScope},
    out::{self, CliError, Facts, Run, Screen, facts, listing},
    places,
};
use clap::{Args, ValueEnum};
use godwit_catalog::{CatalogEntry as Named, ComparedFile};
use godwit_core::{Scheme, Url};
use godwit_store::engine::Stores;
use godwit_store::{Entry, EntryKind, Error};
use std::path::PathBuf;

/// Find files below a directory
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit find ftp://fermi.example/2026 -name '*.root' -size +1M
  godwit find . -type f -newer 2026-11-01
  godwit find ftp://fermi.example/ --json
  godwit find grid:/2026 -copies -2 -attr energy=13TeV

Options may be written with one dash or two. All given ones must hold. Matches are told
as they are found, in no order, in memory that does not grow with the tree. Attributes and copies
are known of names of the catalog; -copies and -at match files only. What was put on
this machine and is on its way still (godwit queue) is not found; it says how much that is.

Exit status: 0, also if nothing matches; 4 no such directory; 13 not allowed.")]
pub(crate) struct FindArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    talking: Talking,
    #[command(flatten)]
    wanted: ConditionArgs,
    /// Kind of the entry: file, directory or link
    #[arg(long = "type", value_name = "KIND", value_enum)]
    kind: Option<EntryType>,
    /// At most this many levels down; 0 is the named thing itself
    #[arg(long, value_name = "N")]
    maxdepth: Option<usize>,
    /// End each path with NUL instead of a newline
    #[arg(long)]
    print0: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EntryType {
    #[value(alias = "file")]
    F,
    #[value(alias = "directory")]
    D,
    #[value(alias = "link")]
    L,
}

impl FindArgs {
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
            Some(0) => NameScope::Name,
            _ => NameScope::Below,
        };
        pending::note(screen, url, reach);
        if url.scheme() == Scheme::Grid {
            let names = catalog::logical(places::options(&self.talking)?)?;
            let mut each = |entry: Entry, named: &Named| {
                let url = places::below(url, &entry.path)?;
                self.one_entry(screen, &url, &entry, (Some(named), &mut *matches))
            };
            return names
                .find(&url.path_from_root(), &mut each)
                .map_err(trouble);
        }
        if self.wanted.0.has_catalog_part() {
            let fact = "only names of a catalog have attributes and copies";
            let trouble = CliError::asked(format!("search {url}"), fact);
            return Err(trouble.next("write grid:/NAME, or leave out --attr, --copies and --at"));
        }
        let place = places::open(stores, url)?;
        let root = place.store.stat(&place.path).map_err(trouble)?;
        let is_directory = root.kind == EntryKind::Directory;
        let mut each = |entry: Entry| {
            let url = places::below(url, &entry.path)?;
            self.one_entry(screen, &url, &entry, (None, &mut *matches))
        };
        let path = PathBuf::new();
        each(Entry { path, stat: root }).map_err(trouble)?;
        if is_directory && self.maxdepth != Some(0) {
            places::walk(screen, "search", &place, &mut each).map_err(trouble)?;
        }
        Ok(())
    }

    fn one_entry(
        &self,
        screen: &Screen,
        url: &Url,
        entry: &Entry,
        (named, matches): (Option<&Named>, &mut u64),
    ) -> Result<(), Error> {
        let Entry { path, stat } = entry;
        let seen = ComparedFile {
            name: url.file_name().unwrap_or(b"."),
            size: stat.known_size(),
            mtime: stat.mtime,
            entry: named,
        };
        let is_found = self.wanted.0.has(&seen)
            && self.kind.is_none_or(|kind| kind.is(stat.kind))
            && self.maxdepth.is_none_or(|max| path.iter().count() <= max);
        if is_found {
            *matches += 1;
            self.say(screen, url, entry)?;
        }
        Ok(())
    }

    fn say(&self, screen: &Screen, url: &Url, entry: &Entry) -> Result<(), Error> {
        if screen.json() {
            return screen.object(&listing::object(&entry.path, url, &entry.stat));
        }
        let shown = out::shown(url);
        if self.print0 {
            screen.bytes(&[&shown[..], b"\0"].concat())
        } else {
            screen.line(shown)
        }
    }
}

impl EntryType {
    fn is(self, kind: EntryKind) -> bool {
        match self {
            Self::F => kind == EntryKind::File,
            Self::D => kind == EntryKind::Directory,
            Self::L => kind == EntryKind::Link,
        }
    }
}
