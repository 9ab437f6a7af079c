//! `godwit publish`: a new version of a name.

use super::catalog;
use crate::{
    args::MoveOptions,
    out::{CliError, Facts, Run, Screen},
    places,
    transfer::{self, Pair, TransferWork},
};
use clap::Args;
use godwit_core::Digest;
use godwit_farm::CopyAim;
use godwit_store::{
    EntryKind, Error,
    engine::{OverwriteRule, Stores},
};
use std::ffi::OsString;

/// Write a file under a name of the catalog, at a site of your choice
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit publish calib.db grid:/run7/calib.db --to lab
  godwit publish calib.db grid:/run7/calib.db --based-on $(godwit sum old.db | cut -c1-64)

The file becomes the next version of the name, whole or not at all. Copies of the version before are
old from then on: godwit replicate brings them up to date. With --based-on it is refused if another
version is current than the one with that digest (godwit sum, godwit stat): then read the current
one first. Of two that publish at the same time one wins, and the other is told.

Exit status: as cp; 1 another version is current.")]
pub(crate) struct PublishArgs {
    /// A file, or the URL of one
    #[arg(value_name = "FILE")]
    file: OsString,
    /// The name, in a collection that exists
    #[arg(value_name = "NAME")]
    name: OsString,
    /// The site [default: where the name has a copy, or its collection a location]
    #[arg(long, value_name = "SITE")]
    to: Option<String>,
    /// The digest of the version that the file was made from
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    based_on: Option<Digest>,
    #[command(flatten)]
    moving: MoveOptions,
}

fn digest(text: &str) -> Result<Digest, String> {
    let read = text.parse().or_else(|_| format!("blake3:{text}").parse());
    read.map_err(|_| "write a digest as godwit sum prints it: 64 hexadecimal digits".into())
}

impl PublishArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let (file, name) = (places::url(&self.file)?, catalog::url(&self.name)?);
        let wanted = format!("publish {file} as {name}");
        let options = transfer::options(&self.moving)?;
        let names = catalog::logical(options.clone())?.aimed(CopyAim {
            site: self.to.clone(),
            base: self.based_on.clone(),
            ..CopyAim::default()
        });
        let source = places::open(&Stores::new(options.clone()), &file)?;
        let trouble = |error: Error| CliError::store(&*wanted, error);
        let stat = source.store.stat(&source.path).map_err(trouble)?;
        if stat.kind == EntryKind::Directory {
            let error = trouble(Error::directory(source.path.clone()));
            return Err(error.next("publish one file; for a tree use godwit cp -r"));
        }
        let pair = Pair {
            source,
            target: names.place(&name),
            tree: false,
            mode: stat.mode,
        };
        if self.moving.dry_run {
            let choice = &self.moving.choosing.0;
            return Ok(transfer::rehearse(
                screen,
                &[pair],
                "publish",
                choice,
                &|_, _, _| Ok(true),
            ));
        }
        let work = TransferWork {
            act: "publish",
            pairs: vec![pair],
            rule: OverwriteRule::Always,
            range: None,
            delete: false,
        };
        Ok(transfer::run(screen, &self.moving, work, &options).facts)
    }
}
