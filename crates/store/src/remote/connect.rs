//! From a host name to a connected socket, with a deadline and with errors that name the cause.

use crate::{Error, Result, channel::Cancel};
use godwit_sys::why;
use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

/// Connects to the first address that answers: IPv6 first, then IPv4.
pub(crate) fn connect(
    host: &str,
    port: u16,
    within: Duration,
    cancel: &Cancel,
) -> Result<TcpStream> {
    let began = Instant::now();
    let mut addresses = resolve(host, port, within)?;
    addresses.sort_by_key(SocketAddr::is_ipv4);
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut left = addresses.len() as u32;
    for address in addresses {
        cancel.check()?;
        // An address that does not answer must leave time for the others.
        let share = within.saturating_sub(began.elapsed()) / left.max(1);
        left -= 1;
        match TcpStream::connect_timeout(&address, share.max(SHARE_MIN)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(Error::unreachable(host_port(host, port), last))
}

/// Returns how a host and port are written together.
pub(crate) fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Asks the resolver, which has no deadline. It therefore runs in a thread that may be left behind.
pub(super) fn resolve(host: &str, port: u16, within: Duration) -> Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (tell, told) = sync_channel(1);
    let name = host.to_owned();
    let spawned = thread::Builder::new().spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs();
        // The receiver may have timed out.
        let _ = tell.send(found.map(Iterator::collect::<Vec<_>>));
    });
    let name_service = |cause: String| Error::name_service(host, cause);
    spawned.map_err(|cause| name_service(why(&cause)))?;
    match told.recv_timeout(within) {
        Ok(Ok(found)) if !found.is_empty() => Ok(found),
        Ok(Ok(_)) => Err(Error::no_such_host(host, "it has no address")),
        Ok(Err(cause)) => Err(name_error(host, &cause)),
        Err(RecvTimeoutError::Timeout) => {
            Err(name_service(format!("after {} s", within.as_secs())))
        }
        Err(RecvTimeoutError::Disconnected) => Err(name_service("it gave up".into())),
    }
}

/// Tells a name that does not exist from a resolver that does not answer. The
/// standard library keeps only the text of `getaddrinfo`.
fn name_error(host: &str, cause: &io::Error) -> Error {
    let text = cause.to_string();
    let cause = text.rsplit(": ").next().unwrap_or(&text).to_owned();
    let host = host.to_owned();
    let lower = text.to_ascii_lowercase();
    let is_name = [
        "not known",
        "no address",
        "nodename nor",
        "not found",
        "non-recoverable",
    ];
    if is_name.iter().any(|words| lower.contains(words)) {
        Error::no_such_host(host, cause)
    } else {
        Error::name_service(host, cause)
    }
}

const SHARE_MIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_host_differs_from_silent_resolver() {
        let error = |text: &str| {
            let text = format!("failed to lookup address information: {text}");
            name_error("fermi", &io::Error::other(text))
        };
        let unknown = error("Name or service not known");
        assert!(matches!(unknown, Error::NoSuchHost { .. }), "{unknown}");
        let silent = error("Temporary failure in name resolution");
        assert!(matches!(silent, Error::NameService { .. }), "{silent}");
    }

    #[test]
    fn a_closed_port_is_unreachable() {
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let cancel = Cancel::new().unwrap();
        let error = connect("127.0.0.1", port, Duration::from_secs(5), &cancel).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    }
}
