//! Serves one client over standard input and output, which another program has admitted: `ssh`.
//!
//! The two ends become one socket, so that a session need not know. Data connections go to the address that `ssh`
//! reports for this machine.

use crate::{
    Config, Error,
    access::{accounts::AccountNodes, trust::NodeTrust},
    config::KerberosConfig,
    ftp::session::FtpSession,
    shared::NodeState,
};
use std::{
    env,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
    thread,
};

/// Serves one client until both ends are closed, with the rights of this process.
pub fn attend(config: Config) -> Result<(), Error> {
    let accounts = AccountNodes::of_this_process(&config);
    let (trust, cluster) = (config.trust.clone(), config.cluster.clone());
    let trust = NodeTrust::begin(trust, cluster, KerberosConfig::Off, None, None, None)
        .map_err(Error::Trust)?;
    let shared = Arc::new(NodeState::begin(config, accounts, trust, true)?);
    let (ours, theirs) = UnixStream::pair().map_err(Error::Start)?;
    let pump = || -> io::Result<_> {
        let (commands, replies) = (ours.try_clone()?, ours);
        spawn("commands", move || {
            let _ = copy(&mut io::stdin().lock(), &mut (&commands));
            let _ = commands.shutdown(Shutdown::Write);
        })?;
        spawn("replies", move || {
            let _ = copy(&mut (&replies), &mut io::stdout().lock());
        })
    };
    let replies = pump().map_err(Error::Start)?;
    let control = TcpStream::from(OwnedFd::from(theirs));
    let (peer, local) = ends(env::var("SSH_CONNECTION").ok().as_deref());
    FtpSession::converse(control, peer, local, shared);
    let _ = replies.join();
    Ok(())
}

/// Both ends of the connection that `ssh` came by. Without `ssh` both are here.
fn ends(told: Option<&str>) -> (SocketAddr, SocketAddr) {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let end = |words: &[&str]| match words {
        [ip, port] => Some(SocketAddr::new(
            ip.parse::<IpAddr>().ok()?.to_canonical(),
            port.parse().ok()?,
        )),
        _ => None,
    };
    let words: Vec<&str> = told.unwrap_or_default().split_whitespace().collect();
    let both = || Some((end(words.get(..2)?)?, end(words.get(2..)?)?));
    both().unwrap_or((here, here))
}

/// Passes on what comes at once, until nothing more does.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = [0; 8 << 10];
    loop {
        match from.read(&mut bytes)? {
            0 => return Ok(()),
            came => to.write_all(&bytes[..came]).and_then(|()| to.flush())?,
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_uses_address_from_ssh() {
        let (peer, local) = ends(Some("192.0.2.7 40022 198.51.100.1 22"));
        assert_eq!(peer, "192.0.2.7:40022".parse().unwrap());
        assert_eq!(local, "198.51.100.1:22".parse().unwrap());
        for nothing in [
            None,
            Some(""),
            Some("1 2 3"),
            Some("a b c d"),
            Some("::1 5 ::1"),
        ] {
            assert!(ends(nothing).1.ip().is_loopback(), "{nothing:?}");
        }
    }
}
