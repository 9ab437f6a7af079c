//! `libgodwit_preload.so`: programs that know nothing of godwit open files of other machines.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    machine::Machine,
    programs::{all, good, install, sources},
};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Builds the library as `make library` does.
fn build(dir: &Path) -> PathBuf {
    install(dir);
    let built = dir.join("libgodwit_preload.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra"]);
    compiler.args(["-Werror", "-Wl,-rpath,$ORIGIN", "-o"]);
    compiler
        .arg(&built)
        .arg("-I")
        .arg(sources().join("include"));
    compiler.arg(sources().join("preload/preload.c"));
    good(compiler.arg("-L").arg(dir).arg("-lgodwit"));
    built
}

/// Runs a line of a shell with the library, where `$G` is the directory of the server.
fn shell(machine: &Machine, line: &str) -> Output {
    let built = build(machine.scratch.path());
    let mut command = machine.command(Path::new("bash"));
    let server = format!("/godwit/ftp:127.0.0.1:{}", machine.port);
    command.args(["-c", line]).env("G", server);
    command
        .env("LD_PRELOAD", built)
        .current_dir(machine.scratch.path());
    command.output().unwrap()
}

/// The names that a library has for others.
fn names(library: &Path) -> BTreeSet<String> {
    let listed = good(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library),
    );
    let names = listed.lines().filter_map(|line| line.split(' ').nth(2));
    let plain = names.filter(|name| !name.contains("@GLIBC_PRIVATE"));
    plain
        .map(|name| name.split('@').next().unwrap().to_owned())
        .collect()
}

/// Tells whether a function of the C library is a form of one that opens, closes or names files.
fn is_of_family(name: &str) -> bool {
    let stem = name.trim_start_matches("_IO_").trim_start_matches('_');
    let stem = stem.trim_end_matches("_chk").trim_end_matches("_2");
    let stem = stem.trim_end_matches("_time64").trim_end_matches("64");
    FAMILIES.contains(&stem.trim_end_matches(['2', '3']))
}

const FAMILIES: [&str; 33] = [
    "open",
    "openat",
    "creat",
    "fopen",
    "freopen",
    "close",
    "fclose",
    "stat",
    "lstat",
    "fstat",
    "fstatat",
    "statx",
    "xstat",
    "lxstat",
    "fxstat",
    "fxstatat",
    "access",
    "eaccess",
    "euidaccess",
    "faccessat",
    "unlink",
    "unlinkat",
    "remove",
    "rename",
    "renameat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "truncate",
    "opendir",
    "dup",
    "fcntl",
    "creat",
];

#[test]
fn every_form_of_glibc_is_interposed() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let ours = names(&build(machine.scratch.path()));
    let loaded = good(Command::new("ldd").arg("/bin/sh"));
    let libc = loaded
        .split_whitespace()
        .find(|word| word.starts_with('/') && word.contains("libc."));
    let theirs = names(Path::new(libc.unwrap()));
    let wanted: BTreeSet<_> = theirs
        .into_iter()
        .filter(|name| is_of_family(name))
        .collect();
    assert!(wanted.len() > 50, "{wanted:?}");
    let missing: Vec<_> = wanted.difference(&ours).collect();
    assert_eq!(missing, Vec::<&String>::new());
}

#[test]
fn ordinary_programs_use_servers() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let line = "set -e; seq 1 50000 > source; echo one > $G/a; cat < $G/a; echo two >> $G/a; cat $G/a; \
        cp source $G/s; cp $G/s back; cmp source back; mv $G/s $G/t; test ! -e $G/s; mv back $G/u; \
        rm $G/u; test ! -e $G/u; dd if=$G/t of=$G/v bs=64k status=none; cmp $G/v $G/t; \
        sort -rn $G/t -o $G/w; sed -n 1p $G/w; mkdir $G/d; rmdir $G/d; truncate -s 5 $G/v; stat -c %s $G/v; \
        env sh -c 'exec env cat $G/a' | tail -n 1; ! cat $G/none";
    let said = shell(&machine, line);
    assert!(said.status.success(), "{}", all(&said));
    let words = String::from_utf8(said.stdout).unwrap();
    assert_eq!(words, "one\none\ntwo\n50000\n5\ntwo\n");
    let why = String::from_utf8(said.stderr).unwrap();
    assert!(why.contains("No such file"), "{why}");
    let languages = "set -e; python3 -c 'import os; g = os.environ[\"G\"]; open(g + \"/x\", \"w\").write(\"text\"); \
        os.rename(g + \"/x\", g + \"/y\"); print(open(g + \"/y\").read(), os.path.exists(g + \"/x\"))'; \
        perl -e '$f = \"$ENV{G}/p\"; open F, \">\", $f or die; print F \"perl\"; close F; print -s $f, \"\\n\"; unlink $f; \
        print -e $f ? \"there\" : \"gone\"'";
    let said = shell(&machine, languages);
    let words = String::from_utf8_lossy(&said.stdout);
    assert_eq!(words, "text False\n4\ngone", "{}", all(&said));
    let said = shell(&machine, "ls $G");
    let why = String::from_utf8_lossy(&said.stderr);
    assert!(why.contains("Operation not supported"), "{why}");
    good(
        machine
            .command(&machine.godwit)
            .args(["push", "--timeout", "60"]),
    );
    assert_eq!(fs::read(machine.export("a")).unwrap(), b"one\ntwo\n");
}

/// Also what a program has open when it ends is delivered.
#[test]
fn writes_to_absent_servers_arrive() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.away();
    let said = shell(
        &machine,
        "set -e; exec 5> $G/open; echo first >&5; echo second > $G/closed",
    );
    assert!(said.status.success(), "{}", all(&said));
    machine.serve();
    good(
        machine
            .command(&machine.godwit)
            .args(["push", "--timeout", "60"]),
    );
    assert_eq!(fs::read(machine.export("open")).unwrap(), b"first\n");
    assert_eq!(fs::read(machine.export("closed")).unwrap(), b"second\n");
}

/// Runs `godwit run --via preload`.
fn run(machine: &Machine, options: &[&str], words: &[&str]) -> Output {
    let built = build(machine.scratch.path());
    let mut command = machine.command(&machine.godwit);
    let server = format!("/godwit/ftp:127.0.0.1:{}", machine.port);
    command.args(["run", "--via", "preload"]).args(options);
    command.arg("--").args(words).env("G", server);
    command.env("GODWIT_PRELOAD", built);
    command.current_dir(machine.scratch.path());
    command.output().unwrap()
}

#[test]
fn run_delivers_and_has_the_status() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let line = "echo kept > $G/a; exec 5> $G/b; echo open >&5; sh -c \"cat $G/a\"; exit 7";
    let said = run(&machine, &["--promise", "push"], &["bash", "-c", line]);
    assert_eq!(said.status.code(), Some(7), "{}", all(&said));
    assert_eq!(said.stdout, b"kept\n");
    assert_eq!(fs::read(machine.export("a")).unwrap(), b"kept\n");
    assert_eq!(fs::read(machine.export("b")).unwrap(), b"open\n");
    let none = run(&machine, &[], &["no-such-program"]);
    assert_eq!(none.status.code(), Some(127), "{}", all(&none));
}

#[test]
fn run_refuses_what_loads_no_library() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let program = machine.scratch.path().join("static");
    let source = machine.scratch.path().join("static.c");
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    good(
        Command::new("cc")
            .args(["-static", "-o"])
            .arg(&program)
            .arg(&source),
    );
    let setuid = machine.scratch.path().join("setuid");
    fs::copy("/bin/cat", &setuid).unwrap();
    fs::set_permissions(&setuid, PermissionsExt::from_mode(0o4755)).unwrap();
    for (program, why) in [(&program, "a static program"), (&setuid, "setuid")] {
        let program = program.to_str().unwrap();
        let said = run(&machine, &[], &[program]);
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(2), "{words}");
        for word in [program, why, "--via mount"] {
            assert!(words.contains(word), "{words}");
        }
    }
}

#[test]
fn run_waits_for_absent_servers_as_told() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.away();
    let source = machine.scratch.path().join("source");
    fs::write(&source, "text").unwrap();
    let port = machine.port;
    let there = format!("ftp://127.0.0.1:{port}/there");
    let said = run(&machine, &[], &["cp", source.to_str().unwrap(), &there]);
    assert!(said.status.success(), "{}", all(&said));
    let read = run(
        &machine,
        &["--wait", "1s"],
        &["cat", &format!("{there}-other")],
    );
    let words = String::from_utf8_lossy(&read.stderr);
    assert_eq!(read.status.code(), Some(1), "{words}");
    assert!(
        !words.contains("No such file") && words.contains("cannot connect"),
        "{words}"
    );
    machine.serve();
    good(
        machine
            .command(&machine.godwit)
            .args(["push", "--timeout", "60"]),
    );
    assert_eq!(fs::read(machine.export("there")).unwrap(), b"text");
}
