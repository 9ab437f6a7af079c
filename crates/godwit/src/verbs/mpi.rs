//! `godwit mpi`: a rank of an MPI program, with the library that opens files of the grid.

use super::preloaded;
use crate::{
    names,
    out::{CliError, Facts, Run, Screen},
};
use clap::{Args, ValueEnum};
use godwit_store::Error;
use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Run a rank of an MPI program that opens files of servers by URL
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  mpirun -n 4 godwit mpi -- ./simulate gsiftp://fermi.example/data/mesh.nc
  mpirun -n 4 godwit mpi --report io.json -- python3 analyse.py
  GODWIT_MPI_PREFIX=gsiftp://fermi.example/run7 mpirun -n 4 godwit mpi -- ./simulate

The program is not changed: MPI_File_open and all that follows it take URLs of ftp, gsiftp, sshftp,
godwit, https and grid, also with one slash (gsiftp:/host/path), and /godwit/HOST/PATH. All other
names are the MPI's own. Ranks of one machine share one local file: what is read is fetched once,
what is written is delivered by MPI_File_sync and MPI_File_close.

The library is libgodwit_mpi_mpich.so or libgodwit_mpi_openmpi.so, beside godwit or in ../lib, or
what GODWIT_MPI_LIBRARY names. Which, the program says by the libmpi that it is linked with, or else
the launcher. Programs that the program starts do not load it.

With GODWIT_MPI_PREFIX, relative names are those of files there. --report appends a line of JSON for
each file that is closed: bytes read, fetched, written and delivered, and requests; it is
GODWIT_MPI_REPORT of the program. Keys of MPI_Info: ftp_control_mode, parallelism, striped_ftp,
tcp_buffer, transfer_type.

Exit status: that of the program; 1 no library, 2 a program that loads none, 126 and 127 it could
not be started.")]
pub(crate) struct MpiArgs {
    /// The MPI of the program: mpich or openmpi [default: what it is linked with]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "MPI")]
    mpi: Option<Flavour>,
    /// Append a line of JSON for each file there
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    program: Vec<OsString>,
}

/// An implementation of MPI, with an ABI of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Flavour {
    Mpich,
    #[value(name = "openmpi")]
    OpenMpi,
}

impl Flavour {
    fn library(self) -> &'static str {
        match self {
            Self::Mpich => "libgodwit_mpi_mpich.so",
            Self::OpenMpi => "libgodwit_mpi_openmpi.so",
        }
    }

    /// Returns the MPI whose library a program names.
    fn of_program(program: &OsStr) -> Option<Self> {
        let bytes = fs::read(preloaded::found(program)?).ok()?;
        let names = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
        if !bytes.starts_with(b"\x7fELF") {
            None
        } else if names(b"libmpich.so.") || names(b"libmpi.so.12") {
            Some(Self::Mpich)
        } else {
            names(b"libmpi.so.").then_some(Self::OpenMpi)
        }
    }

    /// Returns the MPI whose launcher started this process.
    fn of_launcher() -> Option<Self> {
        let is_set = |names: &[&str]| names.iter().any(|name| env::var_os(name).is_some());
        if is_set(&["OMPI_COMM_WORLD_RANK", "PMIX_RANK"]) {
            Some(Self::OpenMpi)
        } else {
            is_set(&["PMI_RANK", "PMI_FD"]).then_some(Self::Mpich)
        }
    }
}

impl MpiArgs {
    pub(crate) fn run(self, _: &Screen) -> Run<Facts> {
        let program = &self.program[0];
        let wanted = format!("run {} with MPI", program.display());
        let failed = |cause| CliError::store(&*wanted, Error::io(program, cause));
        let next =
            "link it with -Wl,-Bstatic -lgodwit_mpi_mpich or -lgodwit_mpi_openmpi before the MPI";
        preloaded::must_load(&wanted, program, next)?;
        if is_shell_script(program) {
            let fact = "it is a shell script, and its programs would not open files of servers";
            let next = "write godwit mpi -- before the program in the script, and start the script without it";
            return Err(CliError::asked(wanted, fact).next(next));
        }
        let found = preloaded::found(program).unwrap_or_else(|| program.into());
        fs::metadata(found).map_err(|cause| super::mounted::not_started(&wanted, &cause))?;
        let binary = env::current_exe().map_err(failed)?;
        let library = self.library(&wanted, &binary)?;
        let mut command = Command::new(program);
        command.args(&self.program[1..]);
        preloaded::load(&mut command, library, &binary);
        if let Some(catalog) = names::text() {
            command.env("GODWIT_CATALOG", catalog);
        }
        if let Some(report) = &self.report {
            command.env("GODWIT_MPI_REPORT", report);
        }
        Err(super::mounted::not_started(&wanted, &command.exec()))
    }

    /// Returns the path of the library for the MPI of the program.
    fn library(&self, wanted: &str, binary: &Path) -> Run<PathBuf> {
        if let Some(told) = env::var_os("GODWIT_MPI_LIBRARY").filter(|told| !told.is_empty()) {
            return preloaded::told(wanted, "GODWIT_MPI_LIBRARY", told);
        }
        let named = Flavour::of_program(&self.program[0]);
        if let (Some(told), Some(named)) = (self.mpi, named)
            && told != named
        {
            let fact = format!("it is linked with {named:?}, and --mpi says another");
            return Err(CliError::asked(wanted, fact).next("leave out --mpi"));
        }
        let flavour = self.mpi.or(named);
        let Some(flavour) = flavour.or_else(Flavour::of_launcher) else {
            let fact = "it names no libmpi, and no launcher of MPICH or Open MPI started it";
            return Err(CliError::asked(wanted, fact).next("say --mpi mpich or --mpi openmpi"));
        };
        let name = flavour.library();
        preloaded::beside(binary, name).ok_or_else(|| {
            let fact = format!("{name} is neither beside godwit nor in ../lib");
            let next = "make mpi, or GODWIT_MPI_LIBRARY=PATH of it";
            CliError::found(wanted, fact, 1).next(next)
        })
    }
}

/// Tells whether a program is a script for a shell.
fn is_shell_script(program: &OsStr) -> bool {
    let Some(bytes) = preloaded::found(program).and_then(|path| fs::read(path).ok()) else {
        return false;
    };
    let Some(line) = bytes.strip_prefix(b"#!") else {
        return false;
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace().map(|word| word.rsplit('/').next());
    words.any(|word| word.is_some_and(|word| SHELLS.contains(&word)))
}

const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "ksh", "zsh", "csh", "tcsh"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_shells_are_known() {
        let place = env::temp_dir().join(format!("godwit-mpi-{}", std::process::id()));
        for (line, is_shell) in [
            ("#!/bin/sh -e\n", true),
            ("#! /usr/bin/env bash\n", true),
            ("#!/usr/bin/python3\nsh\n", false),
            ("\x7fELF /bin/sh", false),
        ] {
            fs::write(&place, line).unwrap();
            assert_eq!(is_shell_script(place.as_os_str()), is_shell, "{line}");
        }
        fs::remove_file(&place).unwrap();
    }

    #[test]
    fn programs_without_libmpi_have_no_flavour() {
        assert_eq!(Flavour::of_program("/bin/sh".as_ref()), None);
        assert_eq!(Flavour::of_program("no-such-program".as_ref()), None);
    }
}
