//! `godwit farm make` and `godwit farm verify`: files are computed again from their history.

use crate::{
    options::Talking,
    places,
    screen::Screen,
    trouble::{CliError, Run},
    verbs::{Facts, catalog, facts},
};
use clap::Args;
use godwit_store::Error;
use std::ffi::OsString;

/// Compute again what no site can give of a file
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm make grid:/run7/a
  godwit farm make grid:/run7/b --json

A fragment is computed by the program that made it (godwit history NAME), where its input lies. Lost
inputs are computed before it. It counts only if its digest is the one that the catalog knows; bytes
that differ are kept under a name of their own, and the command says so. Of a removed file all
fragments are computed. Readers need not say this: a read of a lost fragment computes it.

Exit status: 0; 1 it has no history, or an input is gone; 4 no such name; 12 the bytes differ.")]
pub(super) struct Make {
    /// The file, or one fragment of it
    #[arg(value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    talking: Talking,
}

/// Prove that the history of a file gives its bytes again
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm verify grid:/run7/sel
  godwit farm verify grid:/run7/sel --json

All fragments are computed once more, compared by digest, and removed. If they are equal, godwit
history tells that the recipe is proved, and godwit rm --keep-recipe may trade disk for computing.

Exit status: 0 proved; 1 it has no history, or cannot be computed; 4 no such name; 12 the bytes
differ.")]
pub(super) struct Verify {
    /// The file
    #[arg(value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    talking: Talking,
}

impl Make {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let options = places::options(&self.talking)?;
        let name = catalog::name(&self.name)?;
        let wanted = format!("make {}", catalog::shown(&name.0));
        let made = catalog::logical(options)?.make(&name.0);
        let count = made.map_err(|error| because(&wanted, error))?;
        screen.note(&match count {
            0 => "a site has all of it: nothing was computed".to_owned(),
            1 => "1 fragment was computed".to_owned(),
            count => format!("{count} fragments were computed"),
        });
        Ok(facts([("made", count.into())]))
    }
}

impl Verify {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let options = places::options(&self.talking)?;
        let name = catalog::name(&self.name)?;
        let wanted = format!("verify {}", catalog::shown(&name.0));
        let made = catalog::logical(options)?.verify(&name.0);
        let made = made.map_err(|error| because(&wanted, error))?;
        let count = made.ran.ranks.len();
        screen.note(&format!(
            "{count} fragments were computed once more, with equal bytes"
        ));
        Ok(facts([
            ("fragments", count.into()),
            ("is_proved", true.into()),
        ]))
    }
}

fn because(wanted: &str, error: Error) -> CliError {
    match error {
        Error::Missing { .. } => CliError::found(wanted, "the catalog does not know it", 4),
        error => CliError::store(wanted, error),
    }
}
