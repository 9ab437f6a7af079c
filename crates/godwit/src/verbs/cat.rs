//! `godwit cat`: files to standard output.

use super::cp::filter::{self, no_module};
use crate::{
    args::{Names, Talking},
    bytes,
    client::pending::{self, NameScope},
    out::{CliError, Facts, Run, Screen, facts},
    places, units,
};
use clap::Args;
use godwit_core::{Algorithm, Hashing, Url};
use godwit_store::engine::Stores;
use godwit_store::{EntryKind, Error, Remote};
use godwit_wire::command::Through;

/// Print files to standard output
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit cat ftp://fermi.example/readme.txt
  godwit cat --offset 4 --length 6 run7.root > part
  godwit cat --through first=100 ftp://fermi.example/run7.root > part.root

What is read whole is compared with the digest that the server tells, if it tells one; a
difference is exit status 12, but the bytes are out by then. To be sure first, use cp.
--through prints what a module of the server makes of each file; what the server says that
hashes to is compared. See godwit help cp.

It reads at the server: what was put there on this machine and is on its way still is not seen,
which it says; godwit get URL - prints that.

With --json the bytes are left out and only the summary is printed.

Exit status: 0; 4 no such file; 12 the bytes do not hash to what the server told;
13 not allowed. A reader that goes away ends it by SIGPIPE, quietly.")]
pub(crate) struct CatArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    talking: Talking,
    /// Begin at this byte of each file
    #[arg(long, value_name = "BYTE", value_parser = units::parse_size, allow_negative_numbers = true)]
    offset: Option<u64>,
    /// Print at most so many bytes of each file
    #[arg(long, value_name = "BYTES", value_parser = units::parse_size, allow_negative_numbers = true)]
    length: Option<u64>,
    /// Print what a program of the server makes of each file, and not the file
    #[arg(long, value_name = "MODULE[=PARAMETERS]", conflicts_with_all = ["offset", "length"])]
    through: Option<Through>,
}

impl CatArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let stores = places::stores(&self.talking)?;
        let mut bytes = 0;
        for url in self.names.some("cat")? {
            match self.one(screen, &stores, &url) {
                Ok(more) => bytes += more,
                Err(trouble) => screen.trouble(&trouble),
            }
            if screen.gone() {
                break;
            }
        }
        Ok(facts([("bytes", bytes.into())]))
    }

    fn one(&self, screen: &Screen, stores: &Stores, url: &Url) -> Run<u64> {
        let wanted = match &self.through {
            Some(through) => format!("print {url} through {}", through.module),
            None => format!("print {url}"),
        };
        let trouble = |error: Error| CliError::store(&*wanted, error);
        pending::note(screen, url, NameScope::Name);
        let mut place = places::open(stores, url)?;
        if let Some(through) = &self.through {
            if place.is_remote() && Remote::of(&*place.store).is_none() {
                return Err(no_module(wanted));
            }
            place.store = filter::by(place.store, through);
        }
        let stat = place.store.stat(&place.path).map_err(trouble)?;
        if stat.kind == EntryKind::Directory {
            let path = place.path.clone();
            return Err(trouble(Error::directory(path)).next("godwit ls lists a directory"));
        }
        let start = self.offset.unwrap_or(0);
        let end = start.saturating_add(self.length.unwrap_or(u64::MAX));
        let (mut printed, mut hashing) = (0, Hashing::new(Algorithm::Blake3));
        let read = bytes::read(&place, start..end, &mut |bytes| {
            hashing.update(bytes);
            printed += bytes.len() as u64;
            if screen.json() {
                Ok(())
            } else {
                screen.bytes(bytes)
            }
        });
        let read = read.map_err(|error| match self.through {
            Some(_) => trouble(error).next("what was printed is not whole: do not use it"),
            None => trouble(error),
        })?;
        let whole = start == 0 && printed == read.stat.size;
        let told = read
            .digest
            .filter(|told| told.algorithm() == Algorithm::Blake3);
        if let (true, Some(told)) = (whole, told) {
            let found = hashing.finish();
            if found != told {
                let fact = format!("the server told {told}, the bytes have {found}");
                return Err(CliError::differs(format!("vouch for {url}"), fact));
            }
        }
        Ok(printed)
    }
}
