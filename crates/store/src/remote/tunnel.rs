//! A conversation through `ssh`, which says who we are and starts the server.

use super::connect::{host_port, resolve};
use crate::{Error, Result};
use parking_lot::Mutex;
use std::{
    env,
    io::{self, Read},
    net::{IpAddr, SocketAddr, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::Duration,
};

/// A running `ssh`. It ends with this value.
#[derive(Debug)]
pub(super) struct Tunnel {
    ssh: Child,
    /// The program's error output, after its end.
    words: Mutex<Receiver<String>>,
    host: String,
}

/// How to come in.
#[derive(Clone, Copy, Debug)]
pub(super) struct SshTarget<'a> {
    pub(super) host: &'a str,
    /// The port; `None`: as `ssh` is configured for this host.
    pub(super) port: Option<u16>,
    pub(super) user: Option<&'a str>,
}

impl Tunnel {
    /// Starts `ssh`, and returns our end of its stream.
    pub(super) fn open(way: SshTarget<'_>) -> Result<(TcpStream, Self)> {
        let mut command = command(env::var("GODWIT_SSH").ok().as_deref(), way);
        let mut started = || -> io::Result<_> {
            let (ours, theirs) = UnixStream::pair()?;
            let (stdin, stdout) = (OwnedFd::from(theirs.try_clone()?), OwnedFd::from(theirs));
            let mut ssh = command
                .stdin(stdin)
                .stdout(stdout)
                .stderr(Stdio::piped())
                .spawn()?;
            let stderr = ssh.stderr.take().expect("it was asked for");
            let (tell, words) = sync_channel(1);
            thread::Builder::new()
                .name("ssh's words".into())
                .spawn(move || tell.send(last_words(stderr)))?;
            let host = way.host.to_owned();
            Ok((
                TcpStream::from(OwnedFd::from(ours)),
                Self {
                    ssh,
                    words: Mutex::new(words),
                    host,
                },
            ))
        };
        started().map_err(|cause| Error::NoShell {
            host: way.host.into(),
            said: format!(
                "{}: {}",
                command.get_program().to_string_lossy(),
                godwit_sys::why(&cause)
            ),
        })
    }

    /// Tells why there is no server, if `ssh` has ended without one.
    pub(super) fn explain(&self, error: Error) -> Error {
        let words = self.words.lock();
        match words.recv_timeout(WORDS_WAIT) {
            Ok(said) if !said.is_empty() => Error::no_shell(self.host.clone(), said),
            _ => error,
        }
    }

    /// Returns where the other machine is, as far as its name tells.
    pub(super) fn peer_address(&self, within: Duration) -> Result<SocketAddr> {
        Ok(resolve(&self.host, SSH_PORT, within)?[0])
    }

    /// Returns from where this machine would speak to the other.
    pub(super) fn local_ip(&self, within: Duration) -> Result<IpAddr> {
        let peer = self.peer_address(within)?;
        godwit_sys::source_ip(peer)
            .map_err(|cause| Error::unreachable(host_port(&self.host, SSH_PORT), cause))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// Returns the user's `ssh` command, in batch mode: no user is there to answer questions.
fn command(configured: Option<&str>, way: SshTarget<'_>) -> Command {
    let mut words = configured.unwrap_or("ssh").split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words).args(["-T", "-oBatchMode=yes"]);
    if let Some(port) = way.port {
        command.args(["-p", &port.to_string()]);
    }
    if let Some(user) = way.user {
        command.args(["-l", user]);
    }
    command.args(["--", way.host, SERVER]);
    command
}

/// Returns the last line of the program's error output.
fn last_words(stderr: impl Read) -> String {
    let mut words = Vec::new();
    let mut all = io::BufReader::new(stderr);
    let mut some = [0; 1024];
    while let Ok(came @ 1..) = all.read(&mut some) {
        words.extend_from_slice(&some[..came]);
        words.drain(..words.len().saturating_sub(WORDS_MAX));
    }
    let words = String::from_utf8_lossy(&words);
    let line = words.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or_default().trim().to_owned()
}

/// The command at the other end: a server set up for `sshftp:`, as Globus has it, else an installed godwit.
const SERVER: &str = "exec sh -c '\
    for server in \"$HOME/.globus/sshftp\" /etc/grid-security/sshftp; do \
    if [ -x \"$server\" ]; then exec \"$server\"; fi; done; \
    if command -v godwit >/dev/null; then exec godwit node --stdio; fi; \
    echo there is neither godwit nor an sshftp of Globus >&2; exit 127'";
const SSH_PORT: u16 = 22;
const WORDS_MAX: usize = 4096;
const WORDS_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_receives_account_and_port() {
        let told = |configured, way| -> Vec<String> {
            let command = command(configured, way);
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect()
        };
        let (host, port, user) = ("-fermi", Some(2222), Some("ada"));
        let all = told(Some("nice ssh -F file"), SshTarget { host, port, user });
        let before = [
            "nice",
            "ssh",
            "-F",
            "file",
            "-T",
            "-oBatchMode=yes",
            "-p",
            "2222",
        ];
        assert_eq!(all[..8], before);
        assert_eq!(all[8..12], ["-l", "ada", "--", "-fermi"]);
        let (port, user) = (None, None);
        let plain = told(None, SshTarget { host, port, user });
        assert_eq!(plain[..4], ["ssh", "-T", "-oBatchMode=yes", "--"]);
    }

    #[test]
    fn tunnel_keeps_only_its_last_words() {
        let noise = "x".repeat(3 * WORDS_MAX);
        let words = format!("{noise}\nada@fermi: Permission denied (publickey).\r\n\n");
        assert_eq!(
            last_words(words.as_bytes()),
            "ada@fermi: Permission denied (publickey)."
        );
        assert_eq!(last_words(&b""[..]), "");
    }
}
