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
  godwit cp -r data ftp://fermi.example/backup
  godwit cp -r --exclude '*.tmp' data/ ftp://fermi.example/2026/
  tar c data | godwit cp - ftp://fermi.example/data.tar
  godwit cp --through first=100 ftp://fermi.example/run7.root part.root

The last argument is the target. cp -r a b makes b/a if b is a directory, else b; cp -r a/ b copies
the content of a. A file appears under its name when it is complete. If a copy breaks off, the same
command continues a file; for a tree use godwit sync. \"verified blake3\" means that both ends told
the same digest, \"size only\" that one end told none. - is standard input or output. Files that this
machine has still to deliver to the target (godwit put) go first.

Patterns (* ? [a-z]) choose names below a directory: without a slash at any depth, /a at the top, a/
directories only. The first match decides. URLs are not expanded.

docs/guide/copying.md explains more, and man godwit-cp lists the rarer options.

Exit status: 0; 2 a directory without -r; 4 no such file; 5 a connection that may work later; 7 no
space; 12 bytes arrived wrong; 13 not allowed; 130 interrupted. godwit help exit-codes tells all.")]
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
    /// Copy from this byte on, to the same place in the target
    #[arg(long, value_name = "BYTE", value_parser = units::parse_size, allow_negative_numbers = true)]
    offset: Option<u64>,
    /// Copy at most so many bytes
    #[arg(long, value_name = "BYTES", value_parser = units::parse_size, allow_negative_numbers = true)]
    length: Option<u64>,
    /// Pass the bytes through a program of the server
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
