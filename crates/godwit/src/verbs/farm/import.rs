//! `godwit farm import`: a file is cut into fragments at the sites of a collection.

use crate::{
    args::Talking,
    bytes,
    out::{CliError, Facts, Run, Screen, facts},
    places::{self, Place},
    units,
    verbs::{catalog, cp::stdio},
};
use clap::Args;
use godwit_core::Scheme;
use godwit_farm::{Cut, Imported};
use godwit_store::{Error, engine::Stores};
use serde_json::json;
use std::{
    ffi::{OsStr, OsString},
    io::{self, ErrorKind, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
};

/// Cut a file into fragments, and write them to the sites of its collection in turn
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm import --lines --parts 2 notes.txt grid:/run7/notes.txt
  godwit farm import --size 1M run7.root grid:/run7/run7.root
  seq 1000 | godwit farm import --lines --size 1K - grid:/run7/numbers
  godwit farm import --cut 'echo 100; echo 500' run7.root grid:/run7/cut

SOURCE is a file of this machine, a URL that godwit cat reads, or - for standard input, which tells
no length: say --size. The fragments go to the locations of the collection in turn (godwit location
ls), or to those that --to names. They become visible together, when all have landed, and their
digests are known. If there are fewer lines than fragments, some are empty. With --record no record
is cut; a source that ends within one is refused. --cut runs a program by the shell. It reads the
file from its standard input and prints where a fragment begins, a number a line; the file is read
once more to be written.

Reading needs no verb of its own: godwit cat and cp put the fragments together, and NAME#I/N is one
of them.

Exit status: 0; 1 the name is taken, a site refuses its fragment, or the source cannot be cut so; 4
no such file, collection or site; 5 a site does not answer.")]
pub(crate) struct ImportArgs {
    /// The file, a URL, or - for standard input
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// The name that it gets
    #[arg(value_name = "NAME")]
    name: OsString,
    /// Fragments [default: one for each location]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    parts: Option<u64>,
    /// Bytes of each fragment, instead (64M)
    #[arg(long, value_name = "BYTES", value_parser = units::parse_part, conflicts_with = "parts")]
    size: Option<u64>,
    /// End each fragment with a line
    #[arg(long)]
    lines: bool,
    /// Bytes of a record; each fragment ends with one
    #[arg(long, value_name = "BYTES", value_parser = units::parse_part, conflicts_with = "lines")]
    record: Option<u64>,
    /// A program that prints the bytes at which fragments begin
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["parts", "size", "lines", "record"])]
    cut: Option<OsString>,
    /// The nodes that get the fragments, in turn
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    to: Vec<String>,
    #[command(flatten)]
    talking: Talking,
}

impl ImportArgs {
    pub(super) fn run(self, screen: &'static Screen) -> Run<Facts> {
        let options = places::options(&self.talking)?;
        let source = places::url(&self.source)?;
        let name = catalog::name(&self.name)?;
        let wanted = format!("import {source} as {}", catalog::shown(&name.0));
        for site in &self.to {
            catalog::must_be_site(&wanted, Some(site))?;
        }
        let names = catalog::logical(options.clone())?;
        let (is_pipe, cancel) = (self.source == "-", options.cancel.clone());
        let mut from = places::open(&Stores::new(options), &source)?;
        if is_pipe {
            let target = catalog::url(&self.name)?;
            stdio::check_input(&wanted, std::slice::from_ref(&self.source), &target, 0)?;
            from = stdio::stream(screen, from, cancel, 0);
        }
        let at = match &self.cut {
            Some(_) if is_pipe => {
                let fact = "standard input can be read once, and --cut reads it before it is cut";
                return Err(CliError::asked(wanted, fact).next("write it to a file first"));
            }
            Some(program) => Some(offsets(&wanted, program, &from)?),
            None => None,
        };
        let cut = Cut {
            parts: self.parts,
            size: self.size,
            at,
            lines: self.lines,
            record: self.record,
            to: self.to,
        };
        let imported = names.import(&from, &name.0, &cut);
        let above = catalog::shown(name.0.parent().unwrap_or(Path::new("")));
        let shown = catalog::shown(&name.0);
        let imported = imported.map_err(|error| match &error {
            Error::Exists { .. } => CliError::store(&*wanted, error)
                .or_next("choose another name, or say first: godwit rm NAME"),
            Error::Missing { path } if *path == Path::new(&above) => {
                CliError::store(&*wanted, error).or_next(format!("godwit mkdir -p {above}"))
            }
            Error::IsDirectory { path } if *path == Path::new(&shown) => {
                CliError::store(&*wanted, error)
                    .next("it is a collection: name the file that is to be in it")
            }
            Error::IsDirectory { .. } => CliError::store(&*wanted, error)
                .next("import its files one by one; godwit cp -r copies a directory"),
            error if error.is_of_contact() => CliError::store(&*wanted, error)
                .next("godwit farm nodes tells which node is silent; --to NODE,NODE names others"),
            Error::NoSpace { .. } => CliError::store(&*wanted, error)
                .next("make room there, or name nodes that have it: --to NODE,NODE"),
            Error::Changed { .. } => CliError::store(&*wanted, error)
                .or_next(format!("import it when no program writes to {source} any more")),
            Error::Corrupt { .. } | Error::Io { .. } if source.scheme() == Scheme::Grid => {
                CliError::store(&*wanted, error).next(format!(
                    "godwit locate {source} shows its copies: if one is whole, the same command reads that; if none is, \
                     write it again: godwit cp FILE {source}"
                ))
            }
            Error::Corrupt { .. } => CliError::store(&*wanted, error).next(format!(
                "its server tells another digest than its bytes have: write it again, godwit cp FILE {source}"
            )),
            _ => CliError::store(&*wanted, error),
        })?;
        let bytes = imported.last().map_or(0, |last| last.range.end);
        for (index, Imported { range, site }) in imported.iter().enumerate() {
            if !screen.json() {
                continue;
            }
            let told = json!({
                "event": "fragment", "fragment": index, "site": site, "start": range.start,
                "size": range.end - range.start,
            });
            screen
                .object(&told)
                .map_err(|error| CliError::store(&*wanted, error))?;
        }
        if !screen.json() {
            let count = imported.len();
            let empty = imported.iter().filter(|one| one.range.is_empty()).count();
            let empty = match empty {
                0 => String::new(),
                empty => format!(", of which {empty} are empty"),
            };
            screen.note(&format!(
                "{} in {count} fragments{empty}; godwit locate {shown} shows where",
                units::size(bytes)
            ));
        }
        Ok(facts([
            ("fragments", imported.len().into()),
            ("bytes", bytes.into()),
        ]))
    }
}

/// Runs a program that reads the file; returns the bytes at which it says that fragments begin.
fn offsets(wanted: &str, program: &OsStr, from: &Place) -> Run<Vec<u64>> {
    let shown = program.to_string_lossy();
    let failed = |cause| CliError::store(wanted, Error::io(&*shown, cause));
    let bad = |fact: String| CliError::kept(wanted, format!("the program {shown:?} {fact}"));
    let mut command = Command::new("sh");
    command.arg("-c").arg(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (input, out) = (child.stdin.take(), child.stdout.take());
    let mut said = String::new();
    let read = thread::scope(|scope| {
        let giving = scope.spawn(move || {
            let mut input = input.ok_or(Error::Canceled)?;
            bytes::read(from, 0..u64::MAX, &mut |bytes| {
                let given = input.write_all(bytes);
                given.map_err(|cause| match cause.kind() {
                    // The program has read enough.
                    ErrorKind::BrokenPipe => Error::Canceled,
                    _ => Error::io("the program", cause),
                })
            })
        });
        let heard = out.map(|out| out.take(SAID_MAX).read_to_string(&mut said));
        let given = giving.join();
        let given = given.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        heard
            .unwrap_or(Err(io::ErrorKind::NotFound.into()))
            .map(|_| given)
    });
    let ended = child.wait().map_err(failed)?;
    match read.map_err(|cause| bad(format!("prints no numbers ({cause})")))? {
        Ok(_) | Err(Error::Canceled) => {}
        Err(error) => return Err(CliError::store(wanted, error)),
    }
    if !ended.success() {
        return Err(bad(format!("failed ({ended})")));
    }
    let number = |line: &str| {
        let number = line.trim().parse::<u64>();
        number.map_err(|_| bad(format!("prints {line:?}, which is no number of a byte")))
    };
    let mut at: Vec<u64> = said.lines().map(number).collect::<Run<_>>()?;
    // The first fragment begins with the file.
    if at.first() == Some(&0) {
        at.remove(0);
    }
    Ok(at)
}

/// More than all fragments of a file need.
const SAID_MAX: u64 = 1 << 20;
