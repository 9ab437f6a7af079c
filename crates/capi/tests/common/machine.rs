//! A machine whose node is started by the first program that wants it, and a server beside it.

use super::programs::{Scratch, compile, good, library};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The binary that cargo built for the tests of all crates.
pub fn godwit() -> Option<PathBuf> {
    let built = library().ancestors().nth(1)?.join("../godwit");
    let found = built.canonicalize().ok();
    if found.is_none() {
        super::skip(&format!(
            "{} is not built (cargo build -p godwit)",
            built.display()
        ));
    }
    found
}

/// A machine with a server beside it.
pub struct Machine {
    pub scratch: Scratch,
    pub godwit: PathBuf,
    pub server: Option<Child>,
    pub port: u16,
    pub told: PathBuf,
    /// How many bytes its node may keep.
    pub quota: Option<&'static str>,
    /// Environment of local programs.
    pub environment: Vec<(&'static str, PathBuf)>,
}

impl Machine {
    pub fn new() -> Option<Self> {
        let godwit = godwit()?;
        let scratch = Scratch::new();
        for dir in ["export", "run"] {
            fs::create_dir(scratch.path().join(dir)).unwrap();
        }
        fs::set_permissions(scratch.path().join("run"), PermissionsExt::from_mode(0o700)).unwrap();
        let told = compile(&scratch, "tests/c/told.c");
        let mut machine = Self {
            scratch,
            godwit,
            server: None,
            port: 0,
            told,
            quota: None,
            environment: Vec::new(),
        };
        machine.serve();
        Some(machine)
    }

    pub fn serve(&mut self) {
        self.serve_for("write");
    }

    /// Serves the export read-only.
    pub fn serve_readonly(&mut self) {
        self.serve_for("read");
    }

    fn serve_for(&mut self, access: &str) {
        let mut server = Command::new(&self.godwit)
            .args(["node", "--anonymous", access, "--json", "--export"])
            .arg(self.export(""))
            .args(["--ftp", &format!("127.0.0.1:{}", self.port), "--state"])
            .arg(self.scratch.path().join("served"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(self.scratch.path().join("server.log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(server.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let port = line
            .split("127.0.0.1:")
            .nth(1)
            .expect("it says where it serves");
        let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
        self.port = digits.parse().unwrap();
        self.server = Some(server);
    }

    pub fn away(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Returns a function that kills the server; the machine may be used until then.
    pub fn server_to_kill(&mut self) -> impl FnOnce() + use<> {
        let mut server = self.server.take().unwrap();
        move || {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    pub fn export(&self, name: &str) -> PathBuf {
        self.scratch.path().join("export").join(name)
    }

    pub fn url(&self, name: &str) -> String {
        format!("ftp://127.0.0.1:{}/{name}", self.port)
    }

    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "5", "100"])
            .arg(program)
            .env("LD_LIBRARY_PATH", self.scratch.path())
            .env("GODWIT_SOCKET", self.scratch.path().join("run/socket"))
            .env("GODWIT_STATE", self.scratch.path().join("state"))
            .env("GODWIT_BIN", &self.godwit)
            .env("GODWIT_LOCAL_IDLE", "20s")
            .env_remove("X509_USER_PROXY")
            .env_remove("X509_CERT_DIR")
            .env_remove("GODWIT_CATALOG")
            .env_remove("GODWIT_SESSION")
            .env_remove("GODWIT_CLOSE")
            .env_remove("GODWIT_CLOSE_TIMEOUT");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(quota) = self.quota {
            command.env("GODWIT_DEPOT_QUOTA", quota);
        }
        command
    }

    pub fn told(&self, words: &[&str]) -> String {
        good(self.command(&self.told).args(words))
    }

    /// Starts the same, to be spoken to.
    pub fn begun(&self, words: &[&str]) -> Child {
        let mut command = self.command(&self.told);
        let command = command.args(words).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Kills the node of this machine, and returns when it is gone.
    pub fn kill_node(&self) {
        let mut status = self.command(&self.godwit);
        let status = good(status.args(["--json", "node", "status"]));
        let pid = status
            .split("\"pid\":")
            .nth(1)
            .expect("it tells its number");
        let pid: String = pid.chars().take_while(char::is_ascii_digit).collect();
        good(Command::new("kill").args(["-9", &pid]));
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                return;
            }
            assert!(Instant::now() < until, "{pid} does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let stopped = self.command(&self.godwit).args(["node", "stop"]).output();
        self.away();
        if std::thread::panicking() {
            for log in ["state/node.log", "server.log"] {
                let text = fs::read_to_string(self.scratch.path().join(log));
                eprintln!("{log}:\n{}", text.unwrap_or_default());
            }
        }
        assert!(stopped.unwrap().status.success() || std::thread::panicking());
    }
}
