//! `godwit du`: how much is below a directory.

use crate::{
    args::{Names, Talking},
    client::pending::{self, NameScope},
    out::{self, CliError, Facts, Run, Screen, facts, listing::Sizes},
    places,
};
use clap::{ArgAction, Args};
use godwit_core::Url;
use godwit_store::engine::Stores;
use godwit_store::{Entry, EntryKind, Error};
use serde_json::json;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Show how many bytes are below directories
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  godwit du -sh ftp://fermi.example/2026
  godwit du --json .

Counts the bytes in files, as du -b; what a file system uses for them it alone knows.
Directories come with all that is below them, the named one last. What was put on this machine and
is on its way still (godwit queue) is not counted; it says how many names that is.

Exit status: 0; 4 no such directory; 13 not allowed."
)]
pub(crate) struct DuArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    talking: Talking,
    /// Only the sum for each argument
    #[arg(short, long)]
    summarize: bool,
    /// Sizes like 1.2G
    #[arg(short, long)]
    human: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    files: u64,
}

impl DuArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let stores = places::stores(&self.talking)?;
        let names = self.names.or_here()?;
        let mut whole = Sum::default();
        for name in &names {
            match places::url(name).and_then(|url| self.one(screen, &stores, &url)) {
                Ok(sum) => whole.add(sum),
                Err(trouble) => screen.trouble(&trouble),
            }
        }
        Ok(facts([
            ("bytes", whole.bytes.into()),
            ("files", whole.files.into()),
        ]))
    }

    fn one(&self, screen: &Screen, stores: &Stores, url: &Url) -> Run<Sum> {
        let trouble = |error: Error| CliError::store(format!("measure {url}"), error);
        pending::note(screen, url, NameScope::Below);
        let place = places::open(stores, url)?;
        let stat = place.store.stat(&place.path).map_err(trouble)?;
        let mut sums = BTreeMap::from([(PathBuf::new(), Sum::default())]);
        if stat.kind == EntryKind::Directory {
            let mut each = |entry: Entry| {
                self.count(&mut sums, entry);
                if screen.gone() {
                    Err(Error::Canceled)
                } else {
                    Ok(())
                }
            };
            places::walk(screen, "measure", &place, &mut each).map_err(trouble)?;
        } else {
            let file = Sum {
                bytes: stat.size,
                files: 1,
            };
            sums.insert(PathBuf::new(), file);
        }
        // In reverse order, an entry comes before its directory.
        for (path, sum) in sums.iter().rev() {
            self.say(screen, url, path, *sum).map_err(trouble)?;
        }
        Ok(sums[Path::new("")])
    }

    /// Memory grows with the directories (with `-s` not at all), never with the files.
    fn count(&self, sums: &mut BTreeMap<PathBuf, Sum>, entry: Entry) {
        if entry.stat.kind == EntryKind::Directory {
            if !self.summarize {
                sums.entry(entry.path).or_default();
            }
            return;
        }
        let bytes = if entry.stat.kind == EntryKind::File {
            entry.stat.size
        } else {
            0
        };
        let file = Sum { bytes, files: 1 };
        for above in entry.path.ancestors().skip(1) {
            if let Some(sum) = sums.get_mut(above) {
                sum.add(file);
            }
        }
    }

    fn say(&self, screen: &Screen, url: &Url, path: &Path, sum: Sum) -> Result<(), Error> {
        let url = places::below(url, path)?;
        if screen.json() {
            return screen.object(&json!({
                "event": "entry",
                "url": url.to_string(),
                "path": url.as_path().to_string_lossy(),
                "bytes": sum.bytes,
                "files": sum.files,
            }));
        }
        let sizes = if self.human {
            Sizes::Human
        } else {
            Sizes::Bytes
        };
        let mut line = format!("{}\t", sizes.show(sum.bytes)).into_bytes();
        line.extend(out::shown(&url));
        screen.line(line)
    }
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.files += other.files;
    }
}
