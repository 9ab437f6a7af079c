//! `godwit unregister`: forgets names, or copies of them; the bytes stay.

use super::catalog;
use crate::{
    args::Talking,
    out::{CliError, Facts, Run, Screen, facts},
    places,
};
use clap::Args;
use godwit_core::Url;
use godwit_farm::{CopyAim, Logical};
use godwit_store::{Entry, EntryKind, Error, RemovalKind, Store, StoreExt};
use std::ffi::OsString;

/// Forget names, or their copies at one site; the bytes stay
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit unregister grid:/run7/a
  godwit unregister -r grid:/run7 --at old-disk

No byte is deleted, also none that godwit has copied: godwit rm deletes those. With --at only the
copies at that site are forgotten; the last copy of a file is kept unless --last is said.

Exit status: 0; 1 a last copy, or a collection without -r; 4 no such name.")]
pub(crate) struct UnregisterArgs {
    /// Names of the catalog
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,
    /// Collections with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// Only the copies at this site
    #[arg(long, value_name = "SITE")]
    at: Option<String>,
    /// Also the last copy of a file
    #[arg(long, requires = "at")]
    last: bool,
    #[command(flatten)]
    talking: Talking,
}

impl UnregisterArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        catalog::must_be_site("unregister copies", self.at.as_ref())?;
        let names = catalog::logical(places::options(&self.talking)?)?.aimed(CopyAim {
            site: self.at.clone(),
            last: self.last,
            ..CopyAim::default()
        });
        let mut forgotten = 0u64;
        for argument in &self.names {
            let url = catalog::url(argument)?;
            if let Err(trouble) = self.one(screen, &names, &url, &mut forgotten) {
                screen.trouble(&trouble);
            }
        }
        Ok(facts([("files", forgotten.into())]))
    }

    fn one(&self, screen: &Screen, names: &Logical, url: &Url, forgotten: &mut u64) -> Run {
        let wanted = format!("unregister {url}");
        let trouble = |error: Error| CliError::store(&*wanted, error);
        let root = url.path_from_root();
        let stat = names.stat(&root).map_err(trouble)?;
        if stat.kind != EntryKind::Directory {
            names.unregister(&root).map_err(trouble)?;
            *forgotten += 1;
            return Ok(());
        }
        if !self.recursive {
            let error = trouble(Error::directory(&root));
            return Err(error.next("add -r to unregister all that is below"));
        }
        let mut directories = vec![root.clone()];
        let mut files = Vec::new();
        let mut each = |entry: Entry| {
            match entry.stat.kind {
                EntryKind::Directory => directories.push(root.join(entry.path)),
                _ => files.push(root.join(entry.path)),
            }
            Ok(())
        };
        names.walk(&root, &mut each).map_err(trouble)?;
        for file in files {
            match names.unregister(&file) {
                Ok(()) => *forgotten += 1,
                Err(error) => {
                    let wanted = format!("unregister {}", catalog::shown(&file));
                    screen.trouble(&CliError::store(wanted, error));
                }
            }
        }
        // With a site the names stay.
        if self.at.is_none() {
            for directory in directories
                .iter()
                .rev()
                .filter(|path| !path.as_os_str().is_empty())
            {
                names
                    .remove(directory, RemovalKind::Directory)
                    .map_err(trouble)?;
            }
        }
        Ok(())
    }
}
