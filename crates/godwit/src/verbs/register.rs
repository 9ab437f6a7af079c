//! `godwit register`: adds files that lie at a server to the catalog.

use super::catalog;
use crate::{
    args::Talking,
    out::{CliError, Facts, Run, Screen, facts},
    places, units,
};
use clap::Args;
use godwit_catalog::Change;
use godwit_core::Url;
use godwit_farm::{Counts, Logical, NewPart};
use godwit_store::{Error, engine::Stores};
use std::{ffi::OsString, ops::Range};

/// Note files that lie somewhere under names of the catalog
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit register -r ftp://fermi.example/data --as grid:/data
  godwit register ftp://fermi.example/run7.root --as grid:/run7.root
  godwit register grid:/run8/a grid:/run8/b
  godwit register --range 0-1M ftp://fermi.example/run7.root --as grid:/run9 --size 3M

No byte is moved. The server tells the digest of each file, and the catalog notes it with the
place. A second place with equal bytes becomes one more copy of the name; other bytes under the
same name are refused. To register again does no harm. Without --as, names of the catalog are noted
of which nothing else is known; a copy may be registered or written later.

--range notes a site that has only these bytes, from the first up to, and not including, the second
number. The file there has them alone, or at their place in a file as long as the whole. A reader of
the name combines several such parts. Bytes that other sites have are compared before.

Exit status: 0; 2 a directory without -r; 4 no such file; 12 a name has other bytes elsewhere;
5 the server cannot be reached now; 13 not allowed.")]
pub(crate) struct RegisterArgs {
    /// Files or directories; without --as, names alone
    #[arg(value_name = "URL", required = true)]
    urls: Vec<OsString>,
    /// The name in the catalog; with several URLs the collection above their names
    #[arg(long = "as", value_name = "NAME")]
    name: Option<OsString>,
    /// Directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// Only these bytes of the file lie there (0-1G)
    #[arg(long, value_name = "FROM-TO", value_parser = range, requires = "name", conflicts_with = "recursive")]
    range: Option<Range<u64>>,
    /// The length of the whole file, if the catalog does not know it
    #[arg(long, value_name = "BYTES", value_parser = units::parse_size, requires = "range")]
    size: Option<u64>,
    #[command(flatten)]
    talking: Talking,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is no range; write it like 0-4096 or 1G-2G");
    let (start, end) = text.split_once('-').ok_or_else(wrong)?;
    match units::parse_offset(start)?..units::parse_offset(end)? {
        range if range.is_empty() => Err(wrong()),
        range => Ok(range),
    }
}

impl RegisterArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let Some(name) = &self.name else {
            return self.names_alone(screen);
        };
        let tables = catalog::open()?;
        let options = places::options(&self.talking)?;
        let stores = Stores::new(options.clone());
        let name = catalog::url(name)?;
        let (mut files, mut bytes, mut failed) = (0, 0, 0);
        for argument in &self.urls {
            let one = || -> Run<_> {
                let url = places::without_slashes(&absolute(places::url(argument)?)?);
                let name = self.name_of(&url, &name)?;
                let wanted = format!("register {url}");
                if let Some(range) = self.range.clone() {
                    let part = NewPart {
                        url: &url,
                        name: &name.path_from_root(),
                        range: range.clone(),
                        size: self.size,
                    };
                    let noted = Logical::new(tables.clone(), options.clone()).register_part(&part);
                    noted.map_err(|error| trouble(wanted, error))?;
                    return Ok(Counts {
                        files: 1,
                        bytes: range.end - range.start,
                        failed: 0,
                    });
                }
                let told = godwit_farm::register(
                    tables.as_ref(),
                    &stores,
                    &url,
                    &name,
                    self.recursive,
                    &mut |path, told| {
                        if let Err(error) = told {
                            let wanted = format!("register {}", catalog::shown(path));
                            screen.trouble(&trouble(wanted, error));
                        }
                    },
                );
                told.map_err(|error| CliError::store(wanted, error))
            };
            match one() {
                Ok(counts) => {
                    files += counts.files;
                    bytes += counts.bytes;
                    failed += counts.failed;
                }
                Err(trouble) => {
                    failed += 1;
                    screen.trouble(&trouble);
                }
            }
        }
        if !screen.json() {
            screen.note(&format!("{files} files registered, {failed} refused"));
        }
        Ok(facts([
            ("files", files.into()),
            ("bytes", bytes.into()),
            ("refused", failed.into()),
        ]))
    }

    /// Notes names of which nothing else is known.
    fn names_alone(&self, screen: &Screen) -> Run<Facts> {
        let change = |text: &OsString| {
            let name = catalog::name(text).map_err(|trouble| {
                trouble
                    .next("say with --as which name the file gets, or give names grid:/NAME alone")
            })?;
            Ok(Change::Register {
                name,
                size: None,
                digests: Vec::new(),
                mtime: None,
                mode: None,
                home: None,
            })
        };
        let changes: Vec<Change> = self.urls.iter().map(change).collect::<Run<_>>()?;
        let files = changes.len();
        catalog::change("note names", changes)?;
        if !screen.json() {
            screen.note(&format!("{files} names noted"));
        }
        Ok(facts([("files", files.into())]))
    }

    /// Returns the name of one URL.
    fn name_of(&self, url: &Url, name: &Url) -> Run<Url> {
        if self.urls.len() == 1 {
            return Ok(name.clone());
        }
        let last = url.file_name().unwrap_or_default();
        let joined = name.join(last);
        joined.map_err(|bad| CliError::bad_url(&url.to_string(), &bad))
    }
}

/// Says why one file was refused.
fn trouble(wanted: String, error: Error) -> CliError {
    match error {
        Error::Corrupt {
            expected, found, ..
        } => {
            let fact = format!("other bytes have that name: {found}; at the server {expected}");
            let next = "register it under another name, or compare both files with godwit sum";
            CliError::differs(wanted, fact).next(next)
        }
        error => CliError::store(wanted, error),
    }
}

/// Returns a local path from the root: a catalog is asked from any directory.
pub(super) fn absolute(url: Url) -> Run<Url> {
    if !url.is_local() || url.is_absolute() {
        return Ok(url);
    }
    let wanted = || format!("register {url}");
    let path = std::path::absolute(url.as_path());
    let path = path.map_err(|cause| CliError::store(wanted(), Error::io(url.as_path(), cause)))?;
    Url::file(path).map_err(|bad| CliError::bad_url(&url.to_string(), &bad))
}
