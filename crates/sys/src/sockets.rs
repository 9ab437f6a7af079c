//! What a TCP connection can do beyond the standard library.

use rustix::net::{SendFlags, sockopt};
use std::{fs::File, io, net::TcpStream, ops::Range, os::fd::BorrowedFd};

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

/// Sends a range of a file as it lies in memory, without copying it. Like `write`
/// it may send less than it was asked to; nothing at all at the end of the file.
pub fn send_file(socket: &TcpStream, file: &File, range: Range<u64>) -> io::Result<usize> {
    let (mut offset, len) = (range.start, range.end - range.start);
    Ok(rustix::fs::sendfile(
        socket,
        file,
        Some(&mut offset),
        len as usize,
    )?)
}

/// Has a connection between two processes of this machine not be paced: BBR
/// sets timers for what no network will ever see. A kernel that will not stays as it is.
pub fn unpaced_within_this_machine(socket: &TcpStream) {
    let (Ok(here), Ok(there)) = (socket.local_addr(), socket.peer_addr()) else {
        return;
    };
    if here.ip().to_canonical() == there.ip().to_canonical() {
        let _ = sockopt::set_tcp_congestion(socket, "cubic");
    }
}

/// Has a connection hold so many bytes in each direction, and no longer as many as
/// the kernel finds best. The kernel gives what an administrator allows.
pub fn size_buffers(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(socket, bytes as usize)?;
    Ok(sockopt::set_socket_recv_buffer_size(
        socket,
        bytes as usize,
    )?)
}

/// Returns how many bytes a connection holds, sent and received. The kernel counts
/// its own book-keeping too, so this is twice what was asked for.
pub fn buffer_sizes(socket: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
    let sent = sockopt::socket_send_buffer_size(socket)?;
    Ok((sent, sockopt::socket_recv_buffer_size(socket)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn a_range_of_a_file_goes_out_behind_what_was_sent_ahead() {
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
    fn a_connection_within_this_machine_is_not_paced() {
        let (from, _to) = pair();
        unpaced_within_this_machine(&from);
        assert_eq!(sockopt::tcp_congestion(&from).unwrap(), "cubic");
    }

    fn rustix_file() -> File {
        rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC)
            .unwrap()
            .into()
    }
}
