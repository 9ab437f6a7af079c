//! `godwit cat`: files to standard output.

use super::Facts;
use crate::{
    options::Names,
    places,
    screen::Screen,
    trouble::{Run, Trouble},
    units,
};
use clap::Args;
use godwit_core::{Algorithm, Block, Extents, Hashing, Url};
use godwit_store::engine::Stores;
use godwit_store::{Error, Finished, Kind, Sink, Whole};
use std::sync::Mutex;

/// Print files to standard output
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit cat ftp://fermi.example/readme.txt
  godwit cat --offset 4 --length 6 run7.root > part

What is read whole is compared with the digest that the server tells, if it tells one; a
difference is exit status 12, but the bytes are out by then. To be sure first, use cp.
With --json the bytes are left out and only the summary is printed.

Exit status: 0; 4 no such file; 12 the bytes do not hash to what the server told;
13 not allowed. A reader that goes away is no error.")]
pub(crate) struct Cat {
    #[command(flatten)]
    names: Names,
    /// Begin at this byte of each file
    #[arg(long, value_name = "BYTE", value_parser = units::parse_size)]
    offset: Option<u64>,
    /// Print at most so many bytes of each file
    #[arg(long, value_name = "BYTES", value_parser = units::parse_size)]
    length: Option<u64>,
}

impl Cat {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let stores = places::stores()?;
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
        let mut facts = Facts::new();
        facts.insert("bytes".into(), bytes.into());
        Ok(facts)
    }

    fn one(&self, screen: &Screen, stores: &Stores, url: &Url) -> Run<u64> {
        let trouble = |error: Error| Trouble::store(format!("print {url}"), error);
        let place = places::open(stores, url)?;
        let stat = place.store.stat(&place.path).map_err(trouble)?;
        if stat.kind == Kind::Directory {
            let path = place.path.clone();
            return Err(trouble(Error::IsDirectory { path }).next("godwit ls lists a directory"));
        }
        let start = self.offset.unwrap_or(0);
        let end = start.saturating_add(self.length.unwrap_or(u64::MAX));
        let printer = Printer::new(screen, start);
        let want = Extents::from(start..end);
        let read = place
            .store
            .read(&place.path, &want, 1, &printer)
            .map_err(trouble)?;
        let printed = printer.printed.into_inner().expect("nobody panicked");
        if let (0, Some(told)) = (start, &read.digest)
            && printed.next == read.stat.size
            && told.algorithm() == Algorithm::Blake3
        {
            let found = printed.hashing.finish();
            if found != *told {
                let fact = format!("the server told {told}, the bytes have {found}");
                return Err(Trouble::differs(format!("vouch for {url}"), fact));
            }
        }
        Ok(printed.next - start)
    }
}

/// Prints what comes; relies on the order that a single stream keeps.
struct Printer<'a> {
    screen: &'a Screen,
    printed: Mutex<Printed>,
}

struct Printed {
    next: u64,
    hashing: Hashing,
}

impl<'a> Printer<'a> {
    fn new(screen: &'a Screen, next: u64) -> Self {
        let hashing = Hashing::new(Algorithm::Blake3);
        let printed = Mutex::new(Printed { next, hashing });
        Self { screen, printed }
    }
}

impl Sink for Printer<'_> {
    fn put(&self, block: Block<'_>) -> Result<(), Error> {
        let mut printed = self.printed.lock().expect("nobody panicked");
        // A hole that the store skipped is zeros to a reader.
        while printed.next < block.offset {
            let len = (block.offset - printed.next).min(ZEROS.len() as u64) as usize;
            printed.print(self.screen, &ZEROS[..len])?;
        }
        if printed.next > block.offset {
            return Err(Error::Unsupported {
                what: "printing".into(),
                why: "the bytes did not come in order".into(),
            });
        }
        printed.print(self.screen, block.bytes)
    }

    fn done(&self) -> Extents {
        Extents::from(0..self.printed.lock().expect("nobody panicked").next)
    }

    fn commit(&self) -> Result<Extents, Error> {
        Ok(Extents::new())
    }

    fn finish(self: Box<Self>, _: &Whole) -> Result<Finished, Error> {
        Ok(Finished::default())
    }

    fn abandon(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

impl Printed {
    fn print(&mut self, screen: &Screen, bytes: &[u8]) -> Result<(), Error> {
        self.hashing.update(bytes);
        self.next += bytes.len() as u64;
        if screen.json() {
            return Ok(());
        }
        screen.bytes(bytes)
    }
}

const ZEROS: [u8; 4096] = [0; 4096];
