//! `godwit ls`: lists directories, of any size, as they come.

use crate::{
    args::{Names, Talking},
    client::pending::{self, NameScope},
    out::{
        CliError, Facts, Run, Screen, facts,
        listing::{self, Sizes},
    },
    places::{self, Place},
};
use clap::{ArgAction, Args};
use godwit_core::Url;
use godwit_store::engine::Stores;
use godwit_store::{Entry, EntryKind, Error};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// List directories
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  godwit ls
  godwit ls -lh ftp://fermi.example/2026/
  godwit ls -R --json ftp://fermi.example/2026

Names come sorted as long as a directory has no more than 10000; of a larger one the
first 10000 come sorted and the rest as the server tells them, at once and in constant
memory. -U never sorts. -R gives one path a line. Times are UTC. It lists what the server
has; of what was put on this machine and is on its way still (godwit queue) it says how much.

Exit status: 0; 4 no such directory; 13 not allowed; 5 the server cannot be reached now;
1 there is no such host."
)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    talking: Talking,
    /// One line each with kind, mode, owner, size, time
    #[arg(short)]
    long: bool,
    /// Names that begin with a dot as well
    #[arg(short, long)]
    all: bool,
    /// Sizes like 1.2G
    #[arg(short, long)]
    human: bool,
    /// Everything below
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Directories themselves, not what is in them
    #[arg(short, long)]
    directory: bool,
    /// Unsorted
    #[arg(short = 'U', long)]
    unsorted: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
}

impl LsArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let stores = places::stores(&self.talking)?;
        let names = self.names.or_here()?;
        let titled = names.len() > 1;
        let mut entries = 0;
        for name in &names {
            let listed = places::url(name).and_then(|url| self.one(screen, &stores, &url, titled));
            match listed {
                Ok(count) => entries += count,
                Err(trouble) => screen.trouble(&trouble),
            }
        }
        Ok(facts([("entries", entries.into())]))
    }

    fn one(&self, screen: &Screen, stores: &Stores, url: &Url, titled: bool) -> Run<u64> {
        pending::note(screen, url, NameScope::Below);
        let place = places::open(stores, url)?;
        let trouble = |error: Error| CliError::store(format!("list {url}"), error);
        let stat = match place.store.stat(&place.path) {
            // A hop knows the files on their way, and names the server that it needs for the rest.
            Err(Error::Beyond { .. }) if !self.directory => {
                return self.below(screen, &place).map_err(trouble);
            }
            stat => stat.map_err(trouble)?,
        };
        if stat.kind != EntryKind::Directory || self.directory {
            let path = PathBuf::from(url.to_string());
            let entry = Entry { path, stat };
            self.say(screen, url.clone(), &entry).map_err(trouble)?;
            return Ok(1);
        }
        if titled && !screen.json() {
            screen.line(format!("{url}:")).map_err(trouble)?;
        }
        self.below(screen, &place).map_err(trouble)
    }

    fn below(&self, screen: &Screen, place: &Place) -> Result<u64, Error> {
        let mut buffer = SortBuffer::new(if self.unsorted { 0 } else { SORTED_MAX });
        let mut count = 0;
        let mut say = |entry: Entry| {
            count += 1;
            let url = places::below(&place.url, &entry.path)?;
            self.say(screen, url, &entry)
        };
        let mut each = |entry: Entry| {
            if self.all || !is_hidden(&entry.path) {
                buffer.take(entry, &mut say)?;
            }
            Ok(())
        };
        let listed = match self.recursive {
            true => places::walk(screen, "list", place, &mut each).map(drop),
            false => place.store.list(&place.path, &mut each),
        };
        // Entries that were listed before an error are shown.
        buffer.release(&mut say)?;
        listed?;
        Ok(count)
    }

    fn say(&self, screen: &Screen, url: Url, entry: &Entry) -> Result<(), Error> {
        if screen.json() {
            return screen.object(&listing::object(&entry.path, &url, &entry.stat));
        }
        let name = entry.path.as_os_str().as_bytes();
        if self.long {
            let sizes = if self.human {
                Sizes::Human
            } else {
                Sizes::Bytes
            };
            screen.line(listing::long(name, &entry.stat, sizes))
        } else if entry.stat.kind == EntryKind::Directory {
            screen.line([name, b"/"].concat())
        } else {
            screen.line(name)
        }
    }
}

/// Entries kept back to be sorted, as long as they are few.
struct SortBuffer {
    max: usize,
    entries: Vec<Entry>,
}

impl SortBuffer {
    fn new(max: usize) -> Self {
        let entries = Vec::new();
        Self { max, entries }
    }

    fn take(
        &mut self,
        entry: Entry,
        say: &mut dyn FnMut(Entry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.entries.len() < self.max {
            self.entries.push(entry);
            return Ok(());
        }
        // Too many to sort: from here on all are shown in the order of the server.
        self.max = 0;
        self.release(say)?;
        say(entry)
    }

    fn release(&mut self, say: &mut dyn FnMut(Entry) -> Result<(), Error>) -> Result<(), Error> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries.into_iter().try_for_each(say)
    }
}

fn is_hidden(path: &Path) -> bool {
    path.iter().any(|name| name.as_bytes().starts_with(b"."))
}

const SORTED_MAX: usize = 10_000; // told in the help

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_store::Stat;

    fn order_with(max: usize, names: &[&str]) -> Vec<String> {
        let (mut buffer, mut said) = (SortBuffer::new(max), Vec::new());
        let mut say = |entry: Entry| {
            said.push(entry.path.display().to_string());
            Ok(())
        };
        for name in names {
            let stat = Stat::of(EntryKind::File, 0);
            let path = PathBuf::from(name);
            buffer.take(Entry { path, stat }, &mut say).unwrap();
        }
        buffer.release(&mut say).unwrap();
        said
    }

    #[test]
    fn only_short_listings_are_sorted() {
        assert_eq!(order_with(9, &["c", "a", "b"]), ["a", "b", "c"]);
        assert_eq!(order_with(2, &["d", "c", "b", "a"]), ["c", "d", "b", "a"]);
        assert_eq!(order_with(0, &["c", "a"]), ["c", "a"]);
    }
}
