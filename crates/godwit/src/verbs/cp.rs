//! `godwit cp`: copies files and trees from anywhere to anywhere.

mod print;
mod take;
pub(crate) mod through;

use super::Facts;
use crate::{
    layout::{Act, There},
    moving::{self, Pair, Planned, Work},
    options::{Moving, Names},
    owed::Turn,
    places,
    screen::Screen,
    trouble::{CliError, Run},
    units,
};
use clap::Args;
use godwit_store::engine::{Rule, Stores};
use godwit_wire::command::Through;
use std::{
    ffi::{OsStr, OsString},
    ops::Range,
};

/// Copy files and directories
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit cp ftp://fermi.example/run7.root .
  godwit cp run7.root notes.txt ftp://fermi.example/2026/
  godwit cp -r data ftp://fermi.example/backup
  godwit cp -r data/ ftp://fermi.example/2026/
  godwit cp -r --dry-run ftp://fermi.example/2026 here
  tar c data | godwit cp - ftp://fermi.example/data.tar
  godwit cp ftp://fermi.example/data.tar - | tar x
  godwit cp --through first=100 ftp://fermi.example/run7.root part.root

The last argument is where to. cp -r a b makes b/a if b is a directory, else b, as
coreutils do; cp -r a/ b copies what is in a. A file appears under its name only when it
is whole. Broken off, the same command goes on with a file where it stopped. With a tree
godwit sync a b does: cp would copy whole files again, and what was to be b is there by
then. What is said of a copy is
what was compared: \"verified blake3\" if both sides told the same digest, \"size only\" if
one of them could not.

As source, - is standard input: --offset and --length say where its bytes go and how many
are taken. What is broken off cannot be gone on with, and nothing of it is kept.

As target, - is standard output: nothing but the bytes goes there, in order, and all else,
the objects of --json too, to standard error. Bytes that turn out wrong are out by then:
exit status 12 says so.

--through has bytes go through a program of the server, by the name that it has in its
configuration: reading, what comes here is what the program makes of the file; writing, the
server keeps what it makes of what we send. Of either only a whole is kept, nothing can be
gone on with, and \"verified\" is said of what was sent, since nobody knows a digest of what
is made elsewhere. The server says which modules it has if it does not know yours. A program
that makes nothing for longer than --stall-timeout is given up.

What this machine owes at the target (godwit put) arrives first: it says so while it waits, and
ends as godwit push does if that does not arrive. A source is read at its server: what was put
there and is on its way still is not seen, which it says; godwit get reads it.

--exclude and --include choose names below a directory, by patterns of the shell (* ? [a-z]).
Of all that were said the first match decides, and what none matches is copied. A pattern with
no slash in it matches a name at any depth; a/b the last two names of a path; /a only at the top;
a/ only directories. What is in a directory that is left out is left out too. Only the *.root of
a tree: --include '*/' --include '*.root' --exclude '*'. In names of files and in URLs only the
shell expands patterns, and only for files of this machine.

Times of change and permission bits are kept, unlike coreutils' cp: a copy that looks newer
than its source would be copied again by every later sync. -p also keeps set-user-ID and
the like, which else are not taken over.

Exit status: 0; 2 a directory without -r; 4 no such file; 5 a connection that may work
later; 7 no space; 12 bytes arrived wrong; 13 not allowed; 130 interrupted.
godwit help exit-codes tells all.")]
pub(crate) struct Cp {
    #[command(flatten)]
    names: Names,
    /// Directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// Leave files that exist alone
    #[arg(short, long, overrides_with = "force")]
    no_clobber: bool,
    /// Replace files that exist (which is the default)
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    /// Keep set-user-ID, set-group-ID and sticky bits as well
    #[arg(short, long)]
    preserve: bool,
    /// Copy only from this byte on, to the same place in the target, in place
    #[arg(long, value_name = "BYTE", value_parser = units::parse_size, allow_negative_numbers = true)]
    offset: Option<u64>,
    /// Copy at most so many bytes
    #[arg(long, value_name = "BYTES", value_parser = units::parse_size, allow_negative_numbers = true)]
    length: Option<u64>,
    /// Have bytes go through a program of the server, on their way from it or to it
    #[arg(long, value_name = "MODULE[=PARAMETERS]", conflicts_with_all = ["offset", "length", "recursive"])]
    through: Option<Through>,
    #[command(flatten)]
    moving: Moving,
}

impl Cp {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let (sources, target) = ends(&self.names, "cp")?;
        let copied = self.copy(screen, &sources, &target);
        Ok(moving::or_all_failed(screen, sources.len(), copied))
    }

    fn copy(&self, screen: &Screen, sources: &[OsString], target: &OsStr) -> Run<Facts> {
        let is_piped = target == "-" || sources.iter().any(|source| source == "-");
        if self.moving.bwlimit.is_some() && (is_piped || self.through.is_some()) {
            let fact = "--bwlimit is for files that are copied as they are, not for - or --through";
            return Err(CliError::asked("cp", fact).next("leave --bwlimit out, or use pv -L"));
        }
        if let Some(through) = &self.through {
            return through::copy(screen, self, through, sources, target);
        }
        if target == "-" {
            return print::print(screen, &self.moving, self.range(), sources);
        }
        let target = places::target(target)?;
        if sources.iter().any(|source| source == "-") {
            return take::take(screen, self, sources.len(), &target);
        }
        let sources = sources.iter().map(|source| places::url(source));
        let sources = sources.collect::<Run<Vec<_>>>()?;
        let mut options = moving::options(&self.moving)?;
        if self.preserve {
            options.mode_bits = 0o7777;
        }
        let stores = Stores::new(options.clone());
        let mut turn = Turn::of(screen, self.moving.dry_run);
        let Planned { mut pairs, refused } = moving::pairs(
            screen,
            Act::Copy,
            &sources,
            &target,
            &self.moving,
            &stores,
            &mut turn,
        )?;
        let asked = pairs.len();
        pairs.retain(|pair| self.allows(screen, pair));
        let (pairs, _) = moving::in_turn(screen, Act::Copy, pairs, &mut turn);
        let refused = refused + asked - pairs.len();
        let rule = if self.no_clobber {
            Rule::NoClobber
        } else {
            Rule::Always
        };
        if self.moving.dry_run {
            let facts = moving::rehearse(
                screen,
                &pairs,
                "copy",
                &self.moving.choosing.0,
                &|_, _, target| {
                    Ok(!self.no_clobber || moving::what_is_there(target)? == There::Nothing)
                },
            );
            return Ok(moving::with_failed(facts, refused));
        }
        let work = Work {
            act: "copy",
            pairs,
            rule,
            range: self.range(),
            delete: false,
        };
        let facts = moving::run(screen, &self.moving, work, &options).facts;
        Ok(moving::with_failed(facts, refused))
    }

    fn allows(&self, screen: &Screen, pair: &Pair) -> bool {
        if !pair.tree || self.recursive {
            return true;
        }
        let wanted = format!("copy {}", pair.source.url);
        screen.trouble(
            &CliError::asked(wanted, "it is a directory").next("add -r to copy it with all below"),
        );
        false
    }

    fn range(&self) -> Option<Range<u64>> {
        if self.offset.is_none() && self.length.is_none() {
            return None;
        }
        let start = self.offset.unwrap_or(0);
        Some(start..start.saturating_add(self.length.unwrap_or(u64::MAX)))
    }
}

/// Returns the sources and the target: the last of all names.
///
/// With `--from-file` the list names sources only, the target is the last argument.
pub(crate) fn ends(names: &Names, verb: &str) -> Run<(Vec<OsString>, OsString)> {
    let wrong = |fact: &str| {
        CliError::asked(verb, fact).next(format!("say godwit {verb} SOURCE... TARGET"))
    };
    let mut sources = names.names.clone();
    let target = sources.pop().ok_or_else(|| wrong("nothing was named"))?;
    if let Some(list) = &names.from_file {
        sources.extend(places::read_list(list)?);
        if sources.is_empty() {
            return Err(wrong("the list names nothing"));
        }
        return Ok((sources, target));
    }
    if sources.is_empty() {
        return Err(wrong("only one thing was named, and where to is missing"));
    }
    Ok((sources, target))
}
