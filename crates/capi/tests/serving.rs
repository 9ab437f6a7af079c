//! Directories that a program serves: prints of other programs there, and their identities.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    machine::Machine,
    programs::{compile, good},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A program that serves a directory.
struct Serving {
    program: Child,
    said: BufReader<ChildStdout>,
    url: String,
    shown: PathBuf,
}

impl Serving {
    fn start(machine: &Machine, words: &[&str]) -> Self {
        let shown = machine.scratch.path().join("shown");
        for dir in ["open", "closed"] {
            fs::create_dir_all(shown.join(dir)).unwrap();
            fs::write(shown.join(dir).join("a"), "text").unwrap();
        }
        let program = compile(&machine.scratch, "tests/c/serves.c");
        let mut command = machine.command(&program);
        let command = command.arg(&shown).args(words);
        let mut program = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(program.stdout.take().unwrap());
        let mut serving = Self {
            program,
            said,
            url: String::new(),
            shown,
        };
        serving.url = serving.line();
        assert!(serving.url.contains("://127.0.0.1:"), "{}", serving.url);
        serving
    }

    fn at(&self, name: &str) -> String {
        format!("{}{name}", self.url)
    }

    /// The next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Has it end; what it has printed since, and on its standard error.
    fn end(mut self) -> (String, String) {
        drop(self.program.stdin.take());
        let (mut said, mut errors) = (String::new(), String::new());
        self.said.read_to_string(&mut said).unwrap();
        let mut stderr = self.program.stderr.take().unwrap();
        stderr.read_to_string(&mut errors).unwrap();
        assert!(self.program.wait().unwrap().success(), "{said}{errors}");
        (said, errors)
    }
}

fn curl(args: &[&str], input: &str) -> Option<bool> {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "60"]).args(args);
    let child = curl.stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else {
        common::skip("there is no curl");
        return None;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    Some(child.wait().unwrap().success())
}

#[test] //= GASS-70 c-library#serving-a-directory
fn server_prints_appended_lines() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut serving = Serving::start(&machine, &["outputs"]);
    let append = |name: &str, text: &str| curl(&["--append", "-T", "-", &serving.at(name)], text);
    if append("dev/stdout", "one\ntwo\nhal").is_none() {
        return;
    }
    assert_eq!(append("dev/stderr", "wrong\n"), Some(true));
    assert_eq!(append("dev/stdout", "f\nlast"), Some(true));
    // Nothing else may be written there, and these only by appending.
    assert_eq!(append("open/a", "more"), Some(false));
    assert_eq!(
        curl(&["-T", "-", &serving.at("dev/stdout")], "instead"),
        Some(false)
    );
    assert_eq!(
        curl(&["-T", "-", &serving.at("dev/other")], "new"),
        Some(false)
    );
    assert_eq!(fs::read(serving.shown.join("open/a")).unwrap(), b"text");
    let mut lines = Vec::new();
    // It prints them while it serves; each deed was asked about.
    while !lines.iter().any(|line: &String| line.ends_with("half")) {
        lines.push(serving.line());
    }
    let (rest, errors) = serving.end();
    lines.extend(rest.lines().map(str::to_owned));
    let text = lines.join("\n");
    let is_deed = |line: &&str| line.starts_with("somebody ");
    assert!(
        text.lines()
            .any(|line| line == "somebody write /dev/stdout yes"),
        "{text}"
    );
    let printed: Vec<_> = text.lines().filter(|line| !is_deed(line)).collect();
    assert_eq!(printed, ["one", "two", "half", "lastclosed"]);
    assert_eq!(errors, "wrong\n");
}

#[test] //= c-library#serving-a-directory
fn program_prints_appended_lines_itself() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let serving = Serving::start(&machine, &["printed"]);
    let url = serving.at("dev/stderr");
    if curl(&["--append", "-T", "-", &url], "wrong\nvery\n").is_none() {
        return;
    }
    let (said, errors) = serving.end();
    assert!(said.contains("/dev/stderr: wrong\nvery\n"), "{said}");
    assert_eq!(errors, "");
}

#[test] //= GASS-67 c-library#serving-a-directory depot#reading
fn whoever_is_referred_reads_what_is_there() {
    let Some(machine) = Machine::new() else {
        return;
    };
    fs::write(machine.export("there"), "what is there").unwrap();
    let serving = Serving::start(&machine, &["refers", &machine.url("there")]);
    let moved = serving.at("moved");
    assert_eq!(machine.told(&["whole-of", &moved]), "what is there\n");
    assert_eq!(machine.told(&["get", &moved]), "hat is there\n");
    assert_eq!(machine.told(&["whole-of", &serving.at("open/a")]), "text\n");
    serving.end();
    // A file of this machine, a text without a URL, a redirect to a wrong URL: no visitor is led
    // there.
    fs::write(machine.scratch.path().join("secret"), "secret").unwrap();
    let secret = format!("file://{}/secret", machine.scratch.path().display());
    for to in [&*secret, "no URL", "ftp://anna@127.0.0.1:1/x"] {
        let serving = Serving::start(&machine, &["refers", to]);
        let refused = machine.told(&["whole-of", &serving.at("moved")]);
        assert!(refused.starts_with("EACCES 1\ncannot "), "{to}: {refused}");
        serving.end();
    }
}

/// An authority, a host and Alice.
fn laboratory(machine: &Machine) -> PathBuf {
    let lab = machine.scratch.path().join("lab");
    let at = |name: &str| lab.join(name).into_os_string().into_string().unwrap();
    let godwit = |words: &[&str]| good(machine.command(&machine.godwit).args(words));
    godwit(&["ca", "init", "--key", "ec", &at("ca")]);
    for (who, out) in [("--host=127.0.0.1", "host"), ("alice", "alice")] {
        fs::create_dir(lab.join(out)).unwrap();
        godwit(&[
            "ca",
            "issue",
            "--key",
            "ec",
            "--out",
            &at(out),
            &at("ca"),
            who,
        ]);
    }
    let (cert, proxy) = (at("alice/usercert.pem"), at("proxy"));
    godwit(&[
        "proxy",
        "init",
        "--key-kind",
        "ec",
        "--cert",
        &cert,
        "--out",
        &proxy,
    ]);
    fs::write(lab.join("gridmap"), "\"/O=Lab/CN=alice\" alice\n").unwrap();
    lab
}

fn configured(lab: &Path, doors: &str) -> String {
    let config = lab.join("serve.toml");
    let text = format!(
        "{doors}\n[anonymous]\naccess = \"none\"\n[trust]\ncertificate = \"{0}/host/hostcert.pem\"\n\
         key = \"{0}/host/hostkey.pem\"\nauthorities = \"{0}/ca/certificates\"\ngridmap = \"{0}/gridmap\"\n",
        lab.display()
    );
    fs::write(&config, text).unwrap();
    config.into_os_string().into_string().unwrap()
}

/// Alice calls with her proxy, and another machine without.
fn only_alice_comes(doors: &str, scheme: &str) {
    let (Some(mut machine), Some(mut other)) = (Machine::new(), Machine::new()) else {
        return;
    };
    let lab = laboratory(&machine);
    let authorities = ("X509_CERT_DIR", lab.join("ca/certificates"));
    other.environment = vec![authorities.clone()];
    machine.environment = vec![authorities, ("X509_USER_PROXY", lab.join("proxy"))];
    let config = configured(&lab, doors);
    let serving = Serving::start(&machine, &["outputs", &config]);
    assert!(serving.url.starts_with(scheme), "{}", serving.url);
    let refused = other.told(&["whole-of", &serving.at("open/a")]);
    assert!(
        refused.contains(" 1\ncannot ") && !refused.starts_with("ok"),
        "{refused}"
    );
    assert_eq!(machine.told(&["whole-of", &serving.at("open/a")]), "text\n");
    let refused = machine.told(&["whole-of", &serving.at("closed/a")]);
    assert!(refused.starts_with("EACCES 1\n"), "{refused}");
    let refused = machine.told(&["write", &serving.at("open/a"), "other"]);
    assert!(refused.starts_with("EACCES 1\n"), "{refused}");
    let appended = machine.told(&["append", &serving.at("dev/stdout"), "a line\n"]);
    let (said, _) = serving.end();
    assert!(
        said.contains("/O=Lab/CN=alice read /open/a yes\n"),
        "{said}"
    );
    assert!(!said.contains("somebody"), "{said}");
    match scheme {
        "godwit:" => {
            assert_eq!(appended, "ok 7\n");
            assert!(said.contains("\na line\n"), "{said}");
        }
        _ => assert!(appended.starts_with("EOPNOTSUPP 1\n"), "{appended}"),
    }
}

#[test] //= GASS-65 c-library#serving-a-directory
fn tls_proves_both_ends() {
    let doors = "[ftp]\nlisten = \"none\"\n[https]\nlisten = \"127.0.0.1:0\"";
    only_alice_comes(doors, "godwit:");
}

#[test] //= GASS-65 c-library#serving-a-directory
fn gsi_proves_both_ends() {
    only_alice_comes("[ftp]\nlisten = \"127.0.0.1:0\"", "gsiftp:");
}

/// A door at which everybody may write.
fn door(machine: &Machine, lab: &Path) -> (Child, String) {
    let mut node = Command::new(&machine.godwit);
    let at = |name: &str| lab.join(name);
    node.args(["node", "--anonymous", "write", "--json", "--ftp", "none"])
        .args(["--https", "127.0.0.1:0", "--export"])
        .arg(machine.export(""))
        .arg("--state")
        .arg(at("state"))
        .args([Path::new("--host-cert"), &at("host/hostcert.pem")])
        .args([Path::new("--host-key"), &at("host/hostkey.pem")])
        .args([Path::new("--ca-dir"), &at("ca/certificates")]);
    let mut node = node
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(node.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let port = line
        .split("127.0.0.1:")
        .nth(1)
        .expect("it says where it serves");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    (node, format!("godwit://127.0.0.1:{port}/"))
}

#[test] //= GASS-34
fn append_fails_after_node_kill() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let lab = laboratory(&machine);
    machine.environment = vec![("X509_CERT_DIR", lab.join("ca/certificates"))];
    let (mut door, url) = door(&machine, &lab);
    let url = format!("{url}log");
    let mut writer = machine.begun(&["slowly", &url, "one\ntwo\n", "stream"]);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while fs::read(machine.export("log")).unwrap_or_default() != b"one\n" {
        assert!(
            std::time::Instant::now() < until,
            "the first line is not there"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    machine.kill_node();
    drop(writer.stdin.take());
    let said = writer.wait_with_output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    // Whether write(2) has seen it is a question of time; the close has.
    let said = said.strip_prefix("half\n").unwrap();
    let said = said.strip_prefix("write EPIPE\n").unwrap_or(said);
    assert!(said.starts_with("ECONNRESET 1\ncannot "), "{said}");
    assert_eq!(machine.told(&["append", &url, "three\n"]), "ok 6\n");
    let log = fs::read_to_string(machine.export("log")).unwrap();
    assert!(log == "one\nthree\n" || log == "one\ntwo\nthree\n", "{log}");
    let _ = door.kill();
    let _ = door.wait();
}
