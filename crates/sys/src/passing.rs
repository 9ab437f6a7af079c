//! Messages between processes of this machine, with open files.
//!
//! A descriptor arrives with the first byte that it was sent with. So a reader that has read a
//! frame has all its descriptors.

use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sockopt::{self, Timeout},
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

/// How many descriptors go with one sending.
pub const PASSED_MAX: usize = 4;

/// Connects to a socket of this machine. Where more wait there than it takes, it is waited for at most `patience`.
pub fn connect_local(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

/// Sends some of `bytes`, with copies of `passed`, and tells how many: they may be fewer where the socket
/// is a stream. The descriptors are gone with the first of them.
pub fn send_passing(
    socket: impl AsFd,
    bytes: &[u8],
    passed: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // Without bytes, the descriptors would have no message to travel with.
    if !passed.is_empty()
        && (bytes.is_empty() || !control.push(SendAncillaryMessage::ScmRights(passed)))
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = rustix::io::retry_on_intr(|| {
        net::sendmsg(
            &socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    })?;
    Ok(sent)
}

/// Receives the bytes that have arrived, and adds their descriptors to `passed`; the descriptors
/// are closed on exec. No bytes: the other end is closed. More descriptors at once than
/// [`PASSED_MAX`], or than this process may have open, are an error.
pub fn receive_passing(
    socket: impl AsFd,
    buffer: &mut [u8],
    passed: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    receive(&socket, buffer, passed).map(|(bytes, _)| bytes)
}

/// Receives bytes and descriptors, and tells whether a message was longer than the buffer.
pub(crate) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    passed: &mut Vec<OwnedFd>,
) -> io::Result<(usize, bool)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        net::recvmsg(
            &socket,
            &mut [IoSliceMut::new(buffer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            passed.extend(fds);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "more descriptors came than can be taken",
        ));
    }
    Ok((received.bytes, received.flags.contains(ReturnFlags::TRUNC)))
}

/// Process that made the other end of a socket, as the kernel saw it then.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub struct PeerProcess {
    /// Number of the process. The process may have ended, and the number may be reused.
    pub process: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Returns the process at the other end of a local socket.
pub fn peer_of(socket: impl AsFd) -> io::Result<PeerProcess> {
    let told = sockopt::socket_peercred(socket)?;
    Ok(PeerProcess {
        process: told.pid.as_raw_nonzero().get().unsigned_abs(),
        uid: told.uid.as_raw(),
        gid: told.gid.as_raw(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::File,
        io::{Read, Write},
    };

    #[test]
    fn files_arrive_with_first_bytes() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        (&here).write_all(b"before").unwrap();
        let passed = [writer.as_fd(), writer.as_fd()];
        assert_eq!(send_passing(&here, b"with", &passed).unwrap(), 4);
        (&here).write_all(b"behind").unwrap();
        drop((here, writer));

        let (mut bytes, mut came) = (Vec::new(), Vec::new());
        let mut had_at = None;
        loop {
            let mut buffer = [0; 3];
            let len = receive_passing(&there, &mut buffer, &mut came).unwrap();
            if len == 0 {
                break;
            }
            bytes.extend_from_slice(&buffer[..len]);
            if came.len() == 2 && had_at.is_none() {
                had_at = Some(bytes.len());
            }
        }
        assert_eq!(bytes, b"beforewithbehind");
        assert!(had_at.unwrap() <= 9, "{had_at:?}");
        let flags = rustix::io::fcntl_getfd(&came[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let mut writer = File::from(came.pop().unwrap());
        writer.write_all(b"through").unwrap();
        drop((writer, came));
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "through");
    }

    #[test]
    fn too_many_files_fail_at_both_ends() {
        let (here, there) = UnixStream::pair().unwrap();
        let many = [here.as_fd(); 20];
        let refused = send_passing(&here, b"x", &many).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(send_passing(&here, b"", &many[..1]).is_err());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        net::sendmsg(
            &here,
            &[IoSlice::new(b"x")],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        let mut came = Vec::new();
        let refused = receive_passing(&there, &mut [0; 8], &mut came).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert!(came.len() < 20);
    }

    #[test]
    fn the_kernel_says_who_is_there() {
        let (here, _there) = UnixStream::pair().unwrap();
        let peer = peer_of(&here).unwrap();
        assert_eq!(peer.process, std::process::id());
        assert_eq!(peer.uid, crate::user_id());
    }
}
