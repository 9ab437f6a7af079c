//! `godwit cp`: copies files and trees from anywhere to anywhere.

pub(crate) mod filter;
pub(crate) mod stdio;

use crate::{
    args::{MoveOptions, Names},
    client::pending::{self, NameScope, Turn},
    out::{CliError, Facts, Run, Screen},
    places,
    transfer::{
        self, Pair, Planned, TransferWork,
        layout::{CopyVerb, Existing},
    },
    units,
};
use clap::Args;
use godwit_store::{
    Error,
    engine::{CopyOptions, OverwriteRule, Stores},
};
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
pub(crate) struct CpArgs {
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
    moving: MoveOptions,
}

impl CpArgs {
    pub(crate) fn run(self, screen: &'static Screen) -> Run<Facts> {
        let (sources, target) = ends(&self.names, "cp")?;
        let copied = self.copy(screen, &sources, &target);
        Ok(transfer::or_all_failed(screen, sources.len(), copied))
    }

    fn copy(&self, screen: &'static Screen, sources: &[OsString], target: &OsStr) -> Run<Facts> {
        let is_piped = target == "-" || sources.iter().any(|source| source == "-");
        match &self.through {
            Some(_) if self.moving.bwlimit.is_some() => {
                let fact = "--bwlimit is for bytes that are copied as they are, not for --through";
                return Err(CliError::asked("cp", fact).next("leave --bwlimit out"));
            }
            Some(_) if is_piped => {
                let fact = "--through copies between files, and - is none";
                return Err(CliError::asked("cp", fact).next("godwit cat --through prints"));
            }
            _ => {}
        }
        let mut options = transfer::options(&self.moving)?;
        if self.preserve {
            options.mode_bits = 0o7777;
        }
        let stores = Stores::new(options.clone());
        let mut turn = Turn::of(screen, self.moving.dry_run);
        let Planned { mut pairs, refused } = if is_piped {
            self.piped(screen, sources, target, &stores, &options, &mut turn)?
        } else {
            let target = places::target(target)?;
            let sources = sources.iter().map(|source| places::url(source));
            let sources = sources.collect::<Run<Vec<_>>>()?;
            let moving = &self.moving;
            transfer::pairs(
                screen,
                CopyVerb::Copy,
                &sources,
                &target,
                moving,
                &stores,
                &mut turn,
            )?
        };
        let asked = pairs.len();
        pairs.retain(|pair| {
            let refused = self.refused(pair);
            refused.map(|trouble| screen.trouble(&trouble)).is_none()
        });
        let (mut pairs, _) = transfer::in_turn(screen, CopyVerb::Copy, pairs, &mut turn);
        let refused = refused + asked - pairs.len();
        // Standard output replaces no file.
        let rule = match self.no_clobber && target != "-" {
            true => OverwriteRule::NoClobber,
            false => OverwriteRule::Always,
        };
        if self.moving.dry_run {
            let facts = transfer::rehearse(
                screen,
                &pairs,
                "copy",
                &self.moving.choosing.0,
                &|_, _, target| {
                    Ok(rule == OverwriteRule::Always
                        || transfer::what_is_there(target)? == Existing::Nothing)
                },
            );
            return Ok(transfer::with_failed(facts, refused));
        }
        for pair in &mut pairs {
            if let Some(module) = &self.through {
                filter::put_between(pair, module);
            }
        }
        let work = TransferWork {
            act: if target == "-" { "print" } else { "copy" },
            pairs,
            rule,
            range: self.range(),
            delete: false,
        };
        let facts = transfer::run(screen, &self.moving, work, &options).facts;
        let mut facts = transfer::with_failed(facts, refused);
        if let Some(through) = &self.through {
            facts.insert("through".into(), through.module.clone().into());
        }
        Ok(facts)
    }

    /// Returns the pairs if one end is a standard stream.
    fn piped(
        &self,
        screen: &'static Screen,
        sources: &[OsString],
        target: &OsStr,
        stores: &Stores,
        options: &CopyOptions,
        turn: &mut Turn<'_>,
    ) -> Run<Planned> {
        let stream = places::open(stores, &places::url("-".as_ref())?)?;
        let begins = self.range().map_or(0, |range| range.start);
        let stream = stdio::stream(screen, stream, options.cancel.clone(), begins);
        let whom = &self.moving.whom;
        let (source, target) = if target == "-" {
            let source = stdio::only_source(sources)?;
            screen.say_aside();
            pending::note(screen, &source, NameScope::Name);
            (places::open_as(stores, &source, whom.source())?, stream)
        } else {
            let target = places::target(target)?;
            let wanted = format!("copy standard input to {target}");
            stdio::check_input(&wanted, sources, &target, begins)?;
            turn.wait(&target, NameScope::Name, &wanted)?;
            let place = places::open_as(stores, &target, whom.target())?;
            let trouble = |error: Error| CliError::store(&*wanted, error);
            if self.moving.parents && !self.moving.dry_run {
                transfer::make_parents(&place).map_err(trouble)?;
            }
            // Some stores would refuse a directory only at the end.
            if matches!(transfer::what_is_there(&place), Ok(Existing::Directory)) {
                let error = Error::directory(place.path.clone());
                return Err(trouble(error).next("name a file in it"));
            }
            (stream, place)
        };
        let pair = Pair {
            source,
            target,
            tree: false,
            mode: None,
        };
        Ok(Planned {
            pairs: vec![pair],
            refused: 0,
        })
    }

    /// Returns the error if a pair cannot be copied.
    fn refused(&self, pair: &Pair) -> Option<CliError> {
        if self.through.is_some() {
            return filter::refused(pair);
        }
        let wanted = format!("copy {}", pair.source.url);
        let trouble = CliError::asked(wanted, "it is a directory");
        (pair.tree && !self.recursive).then(|| trouble.next("add -r to copy it with all below"))
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
