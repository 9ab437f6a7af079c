//! TCP calls beyond the standard library.

use rustix::{
    io::Errno,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt},
};
use std::{
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

/// Delivers urgent bytes of a TCP connection where they stand among the others.
pub fn keep_urgent_in_line(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_oobinline(socket, true)?)
}

/// Lets this many connections wait to be accepted, as far as the kernel allows.
/// The 128 of the standard library make a burst of clients wait for a second.
pub fn listen_deep(listener: BorrowedFd<'_>, connections: i32) -> io::Result<()> {
    Ok(rustix::net::listen(listener, connections)?)
}

/// Writes bytes that more will follow at once: they leave together.
pub fn send_ahead(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// Sends a range of a file from the page cache, without copying it. Like `write` it may send fewer
/// bytes; none at the end of the file.
pub fn send_file(socket: &TcpStream, file: &File, range: Range<u64>) -> io::Result<usize> {
    let (mut offset, len) = (range.start, range.end - range.start);
    Ok(rustix::fs::sendfile(
        socket,
        file,
        Some(&mut offset),
        len as usize,
    )?)
}

/// Makes a connection end with a reset when it is closed. So the peer does not take the close for
/// the end of the data.
pub fn reset_when_closed(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Returns from where this machine speaks to `to`. Nothing is sent for that.
pub fn source_ip(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

/// Tells whether this process may make something in a directory.
pub fn may_write(directory: &std::path::Path) -> bool {
    rustix::fs::access(
        directory,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    )
    .is_ok()
}

/// Returns how this machine is called, if it was given a name.
pub fn host_name() -> Option<String> {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = told.trim();
    (!name.is_empty() && name != "(none)").then(|| name.into())
}

/// Returns the platform for which this program is made, as recipes name it.
pub fn platform() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// Returns the names and addresses by which others may reach this machine: its host name, and its
/// source addresses. No packet is sent for that.
pub fn names_of_this_machine() -> Vec<String> {
    let called = host_name().filter(|called| called != "localhost");
    let mut names: Vec<String> = called.into_iter().collect();
    // Addresses reserved for examples, so they are on no local network.
    let far: [SocketAddr; 2] = [
        (Ipv4Addr::new(203, 0, 113, 1), 9).into(),
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into(),
    ];
    let addresses = far.into_iter().filter_map(|far| source_ip(far).ok());
    names.extend(addresses.map(|ip| ip.to_string()));
    if names.is_empty() {
        names.push(Ipv4Addr::LOCALHOST.to_string());
    }
    names
}

/// Connects within `most`; what stays on this machine is not paced.
pub fn connect(to: SocketAddr, most: Duration) -> io::Result<TcpStream> {
    if !source_ip(to).is_ok_and(|ip| ip.to_canonical() == to.ip().to_canonical()) {
        return TcpStream::connect_timeout(&to, most);
    }
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let stream = TcpStream::from(rustix::net::socket_with(family, kind, flags, None)?);
    spare_pacing(stream.as_fd());
    stream.set_write_timeout(Some(most))?;
    match rustix::net::connect(&stream, &to) {
        Err(Errno::INPROGRESS | Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        done => Ok(done.map(|()| stream)?),
    }
}

/// Turns pacing off for connections of this socket: BBR sets timers that a local connection does
/// not need. Must be called before there is a connection, since the kernel keeps pacing once it
/// began. A refusal is ignored.
pub fn spare_pacing(socket: BorrowedFd<'_>) {
    let _ = sockopt::set_tcp_congestion(socket, "cubic");
}

/// Has an unanswered connection retry every two seconds, without doubling the interval. So a
/// network that is back is noticed soon. Kernels before 6.15 ignore this.
pub fn retry_often(socket: BorrowedFd<'_>) {
    set_tcp(socket, TCP_RTO_MAX_MS, 2000);
}

/// Has the kernel take so many bytes that it cannot send yet, and no more: a slow reader costs no memory.
pub fn bound_unsent(socket: BorrowedFd<'_>, bytes: i32) {
    set_tcp(socket, libc::TCP_NOTSENT_LOWAT, bytes);
}

/// Sets an option that a kernel may not know.
fn set_tcp(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) {
    // SAFETY: the descriptor is borrowed, so it is open; the kernel reads one `c_int`.
    #[allow(unsafe_code)]
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// Constant of linux/tcp.h.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Sets the buffer of a connection to `bytes` in each direction, in place of the kernel's own
/// choice. An administrator may limit it.
pub fn size_buffers(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(socket, bytes as usize)?;
    Ok(sockopt::set_socket_recv_buffer_size(
        socket,
        bytes as usize,
    )?)
}

/// Returns the buffer sizes of a connection, for sending and receiving. The kernel counts its own
/// book-keeping too, so this is twice the requested size.
pub fn buffer_sizes(socket: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
    let sent = sockopt::socket_send_buffer_size(socket)?;
    Ok((sent, sockopt::socket_recv_buffer_size(socket)?))
}

/// State of the sending half of a TCP connection, from the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    /// Bytes that the peer has confirmed.
    pub delivered_bytes: u64,
    /// Bytes that wait here, since the connection may not send them yet.
    pub waiting_bytes: u64,
    /// Segments with data that were sent.
    pub segments: u64,
    /// Segments that were sent again.
    pub lost: u64,
    /// The round trip, smoothed.
    pub round_trip: Duration,
    /// The shortest that was seen.
    pub round_trip_min: Duration,
    /// A loss has made it slow down. What judges by rate and not by loss never does.
    pub has_slowed: bool,
}

/// Returns the kernel's data of a TCP connection: fields of kernels since 4.10. A field that an
/// older kernel lacks is 0.
pub fn traffic(socket: BorrowedFd<'_>) -> io::Result<Traffic> {
    let mut info = [0u8; TCP_INFO_BYTES];
    let mut len = TCP_INFO_BYTES as libc::socklen_t;
    // SAFETY: the descriptor is borrowed, so it is open. The kernel writes at most `len` bytes to
    // `info`, which has so many, and sets `len`.
    #[allow(unsafe_code)]
    let told = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if told != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(traffic_of(&info))
}

/// Reads `struct tcp_info` of linux/tcp.h by its offsets, which are fixed.
fn traffic_of(info: &[u8; TCP_INFO_BYTES]) -> Traffic {
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let long = |at: usize| {
        let halves = [word(at), word(at + 4)];
        let [first, second] = halves.map(u32::to_ne_bytes);
        u64::from_ne_bytes([
            first[0], first[1], first[2], first[3], second[0], second[1], second[2], second[3],
        ])
    };
    let micros = |at| Duration::from_micros(u64::from(word(at)));
    // The kernel reports an unknown time as the largest number.
    let shortest = Some(micros(148)).filter(|_| word(148) != u32::MAX);
    Traffic {
        delivered_bytes: long(120),
        waiting_bytes: word(144).into(),
        segments: word(156).into(),
        lost: word(100).into(),
        round_trip: micros(68),
        round_trip_min: shortest.unwrap_or_default(),
        // The kernel may remember a bound from connections before.
        has_slowed: word(100) > 0 && (1..NEVER_SLOWED).contains(&word(76)),
    }
}

const TCP_INFO_BYTES: usize = 192;
/// TCP_INFINITE_SSTHRESH
const NEVER_SLOWED: u32 = 0x7fff_ffff;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::TcpListener,
        os::fd::AsFd,
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn file_range_follows_bytes_sent_before() {
        let mut file = rustix_file();
        file.write_all(b"0123456789").unwrap();
        let (from, mut to) = pair();
        assert_eq!(send_ahead(&from, b"head:").unwrap(), 5);
        assert_eq!(send_file(&from, &file, 2..6).unwrap(), 4);
        assert_eq!(send_file(&from, &file, 10..12).unwrap(), 0, "its end");
        drop(from);
        let mut came = String::new();
        to.read_to_string(&mut came).unwrap();
        assert_eq!(came, "head:2345");
    }

    #[test]
    fn local_connection_is_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        spare_pacing(listener.as_fd());
        let one = connect(listener.local_addr().unwrap(), Duration::from_secs(5)).unwrap();
        let (other, _) = listener.accept().unwrap();
        for socket in [one, other] {
            assert_eq!(sockopt::tcp_congestion(socket).unwrap(), "cubic");
        }
    }

    #[test]
    fn a_port_where_nobody_listens_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let refused = connect(address, Duration::from_secs(5)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn full_listener_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listen_deep(listener.as_fd(), 0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut held = Vec::new();
        let late = loop {
            match connect(address, Duration::from_millis(200)) {
                Ok(stream) => held.push(stream),
                Err(error) => break error,
            }
            assert!(held.len() < 10, "it takes whomever comes");
        };
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn the_kernel_tells_what_was_delivered() {
        let (mut from, mut to) = pair();
        from.write_all(&[7; 1000]).unwrap();
        to.read_exact(&mut [0; 1000]).unwrap();
        // A byte in the other direction confirms all before it.
        to.write_all(b"x").unwrap();
        from.read_exact(&mut [0]).unwrap();
        let traffic = traffic(from.as_fd()).unwrap();
        assert!(
            (1000..=1001).contains(&traffic.delivered_bytes),
            "{traffic:?}"
        );
        assert_eq!((traffic.waiting_bytes, traffic.lost), (0, 0));
        assert!(traffic.segments >= 1 && !traffic.has_slowed, "{traffic:?}");
        assert!(traffic.round_trip > Duration::ZERO, "{traffic:?}");
        assert!(traffic.round_trip_min <= traffic.round_trip, "{traffic:?}");
    }

    #[test]
    fn unanswered_segment_is_retried_soon() {
        let (from, _to) = pair();
        retry_often(from.as_fd());
        let (mut most_ms, mut len) = (0i32, 4);
        // SAFETY: both point to memory that the kernel may write.
        #[allow(unsafe_code)]
        let told = unsafe {
            libc::getsockopt(
                from.as_raw_fd(),
                libc::IPPROTO_TCP,
                TCP_RTO_MAX_MS,
                (&raw mut most_ms).cast(),
                &raw mut len,
            )
        };
        // Older kernels know no such option.
        assert!(told != 0 || most_ms == 2000, "{most_ms}");
    }

    fn rustix_file() -> File {
        rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC)
            .unwrap()
            .into()
    }
}
