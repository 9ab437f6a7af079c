//! `godwit run --via preload`: a dynamic program of this machine, with a library that opens files of other machines.

use super::mounted::{self, Asked, Fsync};
use crate::out::{CliError, Facts, Run, Screen};
use godwit_mount::Mount;
use godwit_store::Error;
use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

/// Runs a program that loads the library, and waits for its end.
pub(super) fn run(words: &[OsString], asked: Asked, screen: &'static Screen) -> Run<Facts> {
    let wanted = format!("run {} --via preload", words[0].display());
    let failed = |cause| CliError::store(&*wanted, Error::io(&words[0], cause));
    let mounts = "run it with --via mount, which works for every program";
    if asked.fsync == Fsync::Push {
        let fact = "the library sees no fsync";
        return Err(CliError::asked(wanted, fact).next("leave out --via preload, or --fsync push"));
    }
    must_load(&wanted, &words[0], mounts)?;
    let binary = env::current_exe().map_err(failed)?;
    let library = library(&wanted, &binary)?;
    let session = mounted::session();
    let wait = asked.wait;
    let mount = Mount::new(mounted::rules(wait, session.clone(), screen)).map_err(failed)?;
    mount.begin()?;
    let mut command = mounted::command(words, &session);
    load(&mut command, library, &binary);
    let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    command.env("GODWIT_WAIT_MS", wait.to_string());
    let signals = mounted::signals().map_err(failed)?;
    let spawned = command.spawn();
    let mut child = spawned.map_err(|error| mounted::not_started(&wanted, &error))?;
    let number = child.id();
    std::thread::spawn(move || mounted::pass_on(signals, number));
    let code = mounted::code_of(child.wait().map_err(failed)?);
    mounted::ended(&mount, asked.promise, code, screen)
}

/// Has a program load a library, before those that it would load anyway, and find this godwit.
pub(super) fn load(command: &mut Command, library: PathBuf, binary: &Path) {
    let mut all = library.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    command.env("LD_PRELOAD", all);
    if env::var_os("GODWIT_BIN").is_none() {
        command.env("GODWIT_BIN", binary);
    }
}

/// Returns the path of the library.
fn library(wanted: &str, binary: &Path) -> Run<PathBuf> {
    if let Some(path) = env::var_os("GODWIT_PRELOAD").filter(|path| !path.is_empty()) {
        return told(wanted, "GODWIT_PRELOAD", path);
    }
    beside(binary, LIBRARY).ok_or_else(|| {
        let fact = format!("{LIBRARY} is neither beside godwit nor in ../lib");
        CliError::found(wanted, fact, 1).next("make install, or GODWIT_PRELOAD=PATH of it")
    })
}

/// Returns the path of a library that a variable names. The dynamic linker starts programs without a library that is not
/// there.
pub(super) fn told(wanted: &str, variable: &str, path: OsString) -> Run<PathBuf> {
    let path = PathBuf::from(path);
    match path.is_file() {
        true => Ok(path),
        false => {
            let fact = format!("{variable} names {}, which is no file", path.display());
            let next = format!("set {variable} to the path of the library, or unset it");
            Err(CliError::found(wanted, fact, 1).next(next))
        }
    }
}

/// Returns the path of a library that is beside the binary, or in `../lib`.
pub(super) fn beside(binary: &Path, library: &str) -> Option<PathBuf> {
    let beside = binary.parent()?;
    let places = [beside.join(library), beside.join("../lib").join(library)];
    places.into_iter().find_map(|path| path.canonicalize().ok())
}

/// Refuses a program that the dynamic linker does not load a library into; `next` is the hint.
pub(super) fn must_load(wanted: &str, program: &OsStr, next: &str) -> Run {
    let mut path = found(program);
    for _ in 0..SCRIPTS_MAX {
        let Some(file) = &path else {
            return Ok(()); // its start says why not
        };
        let refuse = |fact: &str| {
            let fact = format!("{} {fact}", file.display());
            CliError::asked(wanted, fact).next(next)
        };
        match kind(file) {
            Ok(ProgramKind::Privileged) => {
                return Err(refuse(
                    "is setuid or setgid, and such programs load no library",
                ));
            }
            Ok(ProgramKind::Static) => {
                return Err(refuse("is a static program, which loads no library"));
            }
            Ok(ProgramKind::Script(interpreter)) => path = Some(interpreter),
            Ok(ProgramKind::Dynamic) | Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Returns the file of a program, as execvp(3) finds it.
pub(super) fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let dirs = env::var_os("PATH")?;
    let mut paths = env::split_paths(&dirs).map(|dir| dir.join(program));
    paths.find(|path| {
        fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

/// How a program is loaded.
#[derive(Debug, Eq, PartialEq)]
enum ProgramKind {
    Dynamic,
    Static,
    /// Setuid or setgid.
    Privileged,
    /// A text for another program.
    Script(PathBuf),
}

fn kind(path: &Path) -> io::Result<ProgramKind> {
    let mut head = Vec::new();
    if fs::metadata(path)?.permissions().mode() & 0o6000 != 0 {
        return Ok(ProgramKind::Privileged);
    }
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(kind_of(&head))
}

/// Reads how a program is loaded from its first bytes.
fn kind_of(head: &[u8]) -> ProgramKind {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let word = line.trim_ascii().split(u8::is_ascii_whitespace).next();
        return ProgramKind::Script(OsStr::from_bytes(word.unwrap_or_default()).into());
    }
    // ELF of 64 bits; other programs are the linker's to judge.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return ProgramKind::Dynamic;
    }
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at.checked_add(len)?)?;
        let value = bytes
            .iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | u64::from(byte));
        usize::try_from(value).ok()
    };
    let has_interpreter = || {
        let (at, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let mut kinds = (0..count).map_while(|nth| number(at.checked_add(nth * size)?, 4));
        Some(kinds.any(|kind| kind == PT_INTERP))
    };
    match has_interpreter() {
        Some(true) => ProgramKind::Dynamic,
        _ => ProgramKind::Static,
    }
}

const LIBRARY: &str = "libgodwit_preload.so";
const PT_INTERP: usize = 3;
/// How much of a program is read: more than any linker puts before its program headers.
const HEAD_BYTES: u64 = 64 * 1024;
/// How many scripts the kernel follows, at most.
const SCRIPTS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_from_heads() {
        assert_eq!(kind(Path::new("/bin/sh")).unwrap(), ProgramKind::Dynamic);
        let script = kind_of(b"#! /usr/bin/perl -w\nprint");
        assert_eq!(script, ProgramKind::Script("/usr/bin/perl".into()));
        assert_eq!(kind_of(b"\x7fELF\x02\x01"), ProgramKind::Static);
        assert_eq!(kind_of(b""), ProgramKind::Dynamic);
        let mut head = fs::read("/bin/sh").unwrap();
        let (at, count) = (64, usize::from(head[56]));
        for nth in 0..count {
            let kind = &mut head[at + nth * 56];
            *kind = if *kind == 3 { 4 } else { *kind };
        }
        assert_eq!(kind_of(&head), ProgramKind::Static);
    }
}
