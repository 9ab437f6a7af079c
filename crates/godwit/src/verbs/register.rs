//! `godwit register`: notes in the catalog what lies somewhere.

use super::{Facts, catalog, facts};
use crate::{
    options::Talking,
    places,
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::Args;
use godwit_catalog::Change;
use godwit_core::Url;
use godwit_store::Error;
use std::ffi::OsString;

/// Note files that lie somewhere under names of the catalog
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit register -r ftp://fermi.example/data --as grid:/data
  godwit register ftp://fermi.example/run7.root --as grid:/run7.root
  godwit register grid:/run8/a grid:/run8/b

No byte is moved. The server tells the digest of each file, and the catalog notes it with the
place. A second place with equal bytes becomes one more copy of the name; other bytes under the
same name are refused. To register again does no harm. Without --as, names of the catalog are noted
of which nothing else is known; a copy may be registered or written later.

Exit status: 0; 2 a directory without -r; 4 no such file; 12 a name has other bytes elsewhere;
5 the server cannot be reached now; 13 not allowed.")]
pub(crate) struct Register {
    /// Files or directories; without --as, names alone
    #[arg(value_name = "URL", required = true)]
    urls: Vec<OsString>,
    /// The name in the catalog; with several URLs the collection above their names
    #[arg(long = "as", value_name = "NAME")]
    name: Option<OsString>,
    /// Directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    talking: Talking,
}

impl Register {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let Some(name) = &self.name else {
            return self.names_alone(screen);
        };
        let tables = catalog::open()?;
        let stores = places::stores(&self.talking)?;
        let name = catalog::url(name)?;
        let (mut files, mut bytes, mut failed) = (0, 0, 0);
        for argument in &self.urls {
            let one = || -> Run<_> {
                let url = places::without_slashes(&absolute(places::url(argument)?)?);
                let name = self.name_of(&url, &name)?;
                let wanted = format!("register {url}");
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
fn absolute(url: Url) -> Run<Url> {
    if !url.is_local() || url.is_absolute() {
        return Ok(url);
    }
    let wanted = || format!("register {url}");
    let path = std::path::absolute(url.as_path());
    let path = path.map_err(|cause| CliError::store(wanted(), Error::io(url.as_path(), cause)))?;
    Url::file(path).map_err(|bad| CliError::bad_url(&url.to_string(), &bad))
}
