//! The libraries of `godwit mpi`, with each MPI that is here.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    machine::Machine,
    programs::{Scratch, all, good, install, sources},
};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Returns the installed MPIs; a missing one is reported.
fn flavours() -> Vec<&'static str> {
    let is_here = |mpi: &&str| {
        let compiler = Command::new(format!("mpicc.{mpi}")).arg("-show").output();
        let launcher = Command::new(format!("mpirun.{mpi}"))
            .arg("--version")
            .output();
        let is_here = compiler.is_ok() && launcher.is_ok();
        if !is_here {
            common::skip(&format!("no mpicc.{mpi} and mpirun.{mpi}"));
        }
        is_here
    };
    ["mpich", "openmpi"].into_iter().filter(is_here).collect()
}

fn mpi_sources() -> PathBuf {
    sources().join("../../mpi")
}

/// Compiles a program of the tests, with parts of the library or without.
fn compile(scratch: &Scratch, mpi: &str, name: &str, parts: &[&str]) -> PathBuf {
    let program = scratch.path().join(format!("{name}_{mpi}"));
    let mut compiler = Command::new(format!("mpicc.{mpi}"));
    compiler.args([
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]);
    compiler.arg("-I").arg(sources().join("include"));
    compiler.arg("-o").arg(&program);
    compiler.arg(mpi_sources().join(format!("tests/{name}.c")));
    compiler.args(parts.iter().map(|part| mpi_sources().join(part)));
    good(&mut compiler);
    program
}

/// Builds the library as `make mpi` does, once.
fn build(dir: &Path, mpi: &str) -> PathBuf {
    install(dir);
    let built = dir.join(format!("libgodwit_mpi_{mpi}.so"));
    if built.exists() {
        return built;
    }
    let mut compiler = Command::new(format!("mpicc.{mpi}"));
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-shared", "-fPIC"]);
    compiler.args(["-fvisibility=hidden", "-O2", "-Wall", "-Wextra", "-Werror"]);
    compiler.arg("-I").arg(sources().join("include"));
    compiler.arg("-o").arg(&built);
    for entry in fs::read_dir(mpi_sources()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "c") {
            compiler.arg(path);
        }
    }
    compiler.arg("-L").arg(dir).arg("-lgodwit");
    good(compiler.arg("-Wl,-rpath,$ORIGIN"));
    built
}

/// Has a command begin with the launcher of an MPI.
fn launch(command: &mut Command, mpi: &str, ranks: usize) {
    if mpi == "openmpi" {
        command.arg("--oversubscribe");
    }
    command.args(["-n", &ranks.to_string()]);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
}

/// Prepares to run a program without the library.
fn stock(mpi: &str, ranks: usize, program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", &format!("mpirun.{mpi}")]);
    launch(&mut command, mpi, ranks);
    command.arg(program);
    command
}

/// Prepares to run a program by `godwit mpi`.
fn by_url(machine: &Machine, mpi: &str, ranks: usize, program: &Path) -> Command {
    let library = build(machine.scratch.path(), mpi);
    let mut command = machine.command(Path::new(&format!("mpirun.{mpi}")));
    launch(&mut command, mpi, ranks);
    command
        .arg(&machine.godwit)
        .args(["mpi", "--"])
        .arg(program);
    command.env("GODWIT_MPI_LIBRARY", library);
    command
}

const CASES: [&str; 12] = [
    "array",
    "columns",
    "pointers",
    "sizes",
    "modes",
    "errors",
    "shared",
    "atomic",
    "rounds",
    "hints",
    "external",
    "nonblocking",
];
/// The cases whose files a stock MPI writes rightly on a local disk, too.
const COMPARED: [&str; 3] = ["array", "columns", "rounds"];

/// Runs a case by a URL.
fn case(machine: &Machine, mpi: &str, name: &str, url: &str) {
    let program = machine.scratch.path().join(format!("cases_{mpi}"));
    let mut command = by_url(machine, mpi, 4, &program);
    must_pass(command.args([name, url]), mpi, name);
}

fn must_pass(command: &mut Command, mpi: &str, name: &str) {
    let said = command.output().unwrap();
    let (text, passed) = (all(&said), format!("{name}: 0 checks failed"));
    assert!(
        said.status.success() && text.contains(&passed),
        "{mpi} {text}"
    );
}

#[test]
fn layouts_of_random_types_match_mpi_pack() {
    let scratch = Scratch::new();
    for mpi in flavours() {
        let program = compile(&scratch, mpi, "layout", &["layout.c"]);
        let told = good(stock(mpi, 1, &program).args(["1", "20000"]));
        assert_eq!(told, "0 of 20000 types are wrong\n");
    }
}

#[test] //= MPI-8 MPI-65
fn cases_pass_by_ftp() {
    for mpi in flavours() {
        let Some(machine) = Machine::new() else {
            return;
        };
        let program = compile(&machine.scratch, mpi, "cases", &[]);
        for name in CASES {
            case(&machine, mpi, name, &machine.url(name));
            if COMPARED.contains(&name) {
                let local = machine.scratch.path().join(name);
                good(stock(mpi, 4, &program).arg(name).arg(&local));
                let (there, here) = (machine.export(name), local);
                assert!(
                    fs::read(there).unwrap() == fs::read(here).unwrap(),
                    "{mpi} {name}"
                );
            }
        }
    }
}

#[test]
fn relative_names_are_below_prefix() {
    for mpi in flavours() {
        let Some(machine) = Machine::new() else {
            return;
        };
        let program = compile(&machine.scratch, mpi, "cases", &[]);
        fs::create_dir(machine.export("run7")).unwrap();
        for (prefix, name) in [("run7", "without"), ("run7/", "with")] {
            let mut command = by_url(&machine, mpi, 2, &program);
            command.env("GODWIT_MPI_PREFIX", machine.url(prefix));
            must_pass(command.args(["sizes", name]), mpi, "sizes");
            assert!(machine.export("run7").join(name).exists(), "{mpi} {name}");
        }
    }
}

/// The case writes once with a hint of one connection and once of four, and reads with a hint of three.
#[test] //= MPI-43
fn hints_change_the_connections_there() {
    for mpi in flavours() {
        let Some(machine) = Machine::new() else {
            return;
        };
        compile(&machine.scratch, mpi, "cases", &[]);
        case(&machine, mpi, "hints", &machine.url("hints"));
        let transfers = machine.scratch.path().join("served/transfers.jsonl");
        let transfers = fs::read_to_string(transfers).unwrap();
        let large = (transfers.lines()).filter(|line| !line.contains("\"bytes\":0,"));
        let streams: Vec<&str> = large
            .filter_map(|line| line.split("\"streams\":").nth(1))
            .map(|rest| rest.trim_end_matches(|end: char| !end.is_ascii_digit()))
            .map(|rest| rest.split(',').next().unwrap())
            .collect();
        assert!(streams.starts_with(&["1", "4", "3"]), "{mpi} {transfers}");
    }
}

/// Rank 0 hands out queries, and workers read fragments of a database, as mpiBLAST has them.
#[test] //= MPI-66
fn workers_search_a_database_by_url() {
    const BYTES: usize = 3 << 20;
    for mpi in flavours() {
        let Some(machine) = Machine::new() else {
            return;
        };
        let program = compile(&machine.scratch, mpi, "blast", &[]);
        let letter = |at: usize| b"ACGT"[at.wrapping_mul(2_654_435_761) >> 13 & 3];
        let database: Vec<u8> = (0..BYTES).map(letter).collect();
        let queries: Vec<u8> = (0..6)
            .flat_map(|nth| [&database[nth * 500_000..][..12], b"\n"].concat())
            .collect();
        fs::write(machine.export("database"), &database).unwrap();
        fs::write(machine.export("queries"), queries).unwrap();
        let (local, report) = (machine.scratch.path().join("results"), "mpi.json");
        let report = machine.scratch.path().join(report);
        let files = [machine.export("database"), machine.export("queries"), local];
        good(stock(mpi, 3, &program).args(&files));
        let mut command = by_url(&machine, mpi, 3, &program);
        command.args(["database", "queries", "results"].map(|name| machine.url(name)));
        good(command.env("GODWIT_MPI_REPORT", &report));
        let found = fs::read(machine.export("results")).unwrap();
        assert!(
            found.len() == 48 * 64 && found == fs::read(&files[2]).unwrap(),
            "{mpi}"
        );
        let report = fs::read_to_string(report).unwrap();
        let line = report.lines().find(|line| line.contains("/database"));
        let fetched = line.unwrap().split("\"fetched\":").nth(1).unwrap();
        let fetched: String = fetched.chars().take_while(char::is_ascii_digit).collect();
        assert_eq!(fetched.parse::<usize>().unwrap(), BYTES, "{report}");
    }
}

/// Two nodes of one host stand for two machines.
#[test]
fn ranks_of_two_nodes_share_files() {
    for mpi in flavours() {
        let Some(machine) = Machine::new() else {
            return;
        };
        let program = compile(&machine.scratch, mpi, "cases", &[]);
        let at = |name: &str| machine.scratch.path().join(name);
        let socket = format!("GODWIT_SOCKET={}", at("run/second").display());
        let state = format!("GODWIT_STATE={}", at("second").display());
        for name in [
            "rounds",
            "array",
            "columns",
            "sizes",
            "shared",
            "nonblocking",
        ] {
            let url = machine.url(name);
            let mut command = by_url(&machine, mpi, 2, &program);
            command.args([name, &url, ":", "-n", "2", "env", &socket, &state]);
            command.arg(&machine.godwit).args(["mpi", "--"]);
            must_pass(command.arg(&program).args([name, &url]), mpi, name);
        }
        let mut stop = machine.command(Path::new("env"));
        stop.args([&socket, &state]).arg(&machine.godwit);
        good(stop.args(["node", "stop"]));
    }
}

#[test]
fn writes_that_are_refused_fail_everywhere() {
    for mpi in flavours() {
        let Some(mut machine) = Machine::new() else {
            return;
        };
        compile(&machine.scratch, mpi, "cases", &[]);
        machine.away();
        machine.serve_readonly();
        fs::write(machine.export("refused"), "text").unwrap();
        case(&machine, mpi, "refused", &machine.url("refused"));
        assert_eq!(fs::read(machine.export("refused")).unwrap(), b"text");
    }
}

/// Serves the files of a machine by a door at which everybody may write, too.
fn door(machine: &mut Machine) -> (Child, String) {
    let lab = machine.scratch.path().join("lab");
    let at = |name: &str| lab.join(name);
    let mut authority = machine.command(&machine.godwit);
    good(authority.args(["ca", "init", "--key", "ec"]).arg(at("ca")));
    fs::create_dir(at("host")).unwrap();
    let mut issued = machine.command(&machine.godwit);
    issued.args(["ca", "issue", "--key", "ec", "--out"]);
    good(issued.arg(at("host")).arg(at("ca")).arg("--host=127.0.0.1"));
    machine.environment = vec![("X509_CERT_DIR", at("ca/certificates"))];
    let mut node = Command::new(&machine.godwit);
    node.args(["node", "--anonymous", "write", "--json", "--ftp", "none"]);
    node.args(["--https", "127.0.0.1:0", "--export"]);
    node.arg(machine.export("")).arg("--state").arg(at("state"));
    node.arg("--host-cert").arg(at("host/hostcert.pem"));
    node.arg("--host-key").arg(at("host/hostkey.pem"));
    node.arg("--ca-dir").arg(at("ca/certificates"));
    node.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut node = node.stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(node.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let port = line.split("127.0.0.1:").nth(1).unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    (node, format!("godwit://127.0.0.1:{port}"))
}

#[test]
fn cases_pass_by_door() {
    for mpi in flavours() {
        let Some(mut machine) = Machine::new() else {
            return;
        };
        compile(&machine.scratch, mpi, "cases", &[]);
        let (mut node, url) = door(&mut machine);
        for name in CASES.iter().filter(|name| **name != "atomic") {
            case(&machine, mpi, name, &format!("{url}/{name}"));
        }
        node.kill().unwrap();
        node.wait().unwrap();
    }
}

#[test]
fn programs_without_library_are_refused() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let refused = |library: &str, program: &str| {
        let mut command = machine.command(&machine.godwit);
        command.env("GODWIT_MPI_LIBRARY", library);
        let said = command.args(["mpi", "--", program]).output().unwrap();
        (said.status.code(), all(&said))
    };
    let (code, text) = refused("", "./no-such-program");
    assert!(
        code == Some(127) && text.contains("no such file"),
        "{code:?} {text}"
    );
    // The dynamic linker would start it, and every URL would be a name of this machine.
    let (code, text) = refused("/no/such/library", "/bin/echo");
    assert!(
        code == Some(1) && text.contains("GODWIT_MPI_LIBRARY names /no/such/library"),
        "{code:?} {text}"
    );
}
