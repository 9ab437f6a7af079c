//! `godwit farm make` and `godwit farm verify`: files are computed again from their history.

use crate::{
    args::Talking,
    out::{CliError, Facts, Run, Screen, facts},
    places,
    verbs::{catalog, farm::run::kept},
};
use clap::Args;
use godwit_catalog::Definition;
use godwit_farm::kept_as;
use godwit_store::Error;
use godwit_wire::door::{call::Text, run::Word};
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
pub(super) struct MakeArgs {
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
pub(super) struct VerifyArgs {
    /// The file
    #[arg(value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    talking: Talking,
}

/// Define files that are computed when they are first read
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm define 'grid:/sel/{word}' --in 'grid:/run7/{word}' -- grep muon {in}
  godwit farm define 'grid:/cut/{run}/{pt}' --in 'grid:/raw/{run}' -- cut --pt {pt} {in} {out}

{word} stands for a part of the name, at most one between two slashes, and for the same in the input
and the arguments. The first read of a name that fits runs the program beside each fragment of the
input (godwit farm run), and keeps the result. What it prints is kept if no argument says {out}. A
program of this machine, with a slash in its name, is kept in grid:/.programs.
Definitions are attributes of the collection: godwit attr grid:/sel shows them, and
godwit attr grid:/sel 'define:PATTERN=' removes one.

Exit status: 0; 1 a pattern that cannot be.")]
pub(super) struct DefineArgs {
    /// The names
    #[arg(value_name = "PATTERN")]
    pattern: OsString,
    /// The input of each
    #[arg(long = "in", value_name = "NAME")]
    input: OsString,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    program: Vec<OsString>,
    #[command(flatten)]
    talking: Talking,
}

impl DefineArgs {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let options = places::options(&self.talking)?;
        let pattern = catalog::name(&self.pattern)?;
        let wanted = format!("define {}", self.pattern.to_string_lossy());
        let names = catalog::logical(options)?;
        let mut program: Vec<_> = self.program.into_iter().map(Word).collect();
        if let Some(Text(digest)) = kept(&names, &program[0].0)?.program {
            program[0] = Word(format!("grid:/{}", kept_as(&digest).display()).into());
        }
        let definition = Definition {
            pattern,
            input: catalog::name(&self.input)?,
            program,
        };
        let defined = names.define(&definition);
        defined.map_err(|error| CliError::store(wanted, error))?;
        screen.note("a name that fits is computed when it is first read");
        Ok(Facts::new())
    }
}

impl MakeArgs {
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

impl VerifyArgs {
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
        Error::Corrupt { .. } => CliError::store(wanted, error).next(
            "its program gives other bytes each time: keep copies of the file, for its recipe cannot bring them back",
        ),
        error => CliError::store(wanted, error),
    }
}
