//! Waiting on sockets, and being woken while waiting.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::{
    io,
    num::NonZeroU64,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// A flag that a waiting thread sees at once. Once up it stays up until lowered.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Returns a flag that is down.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Raises the flag: all waits on it end.
    pub fn raise(&self) {
        // It fails only when the counter is full, and then the flag is up.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Lowers the flag.
    pub fn lower(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes waits of this thread end on time, and not up to 50 µs later. A kernel that cannot ignores
/// it.
pub fn end_waits_on_time() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Waits until one of `readable` can be read (or accepted, or has ended), at
/// most for `patience`, and tells which.
pub fn wait_readable<const N: usize>(
    readable: [BorrowedFd<'_>; N],
    patience: Duration,
) -> io::Result<[bool; N]> {
    let mut fds = readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let limit = Timespec::try_from(patience).unwrap_or(FOREVER);
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(fds.map(|fd| !fd.revents().is_empty()))
}

/// Waits until one of several descriptors can be read, and tells which.
pub fn wait_any(readable: &[BorrowedFd<'_>], patience: Duration) -> io::Result<Vec<bool>> {
    let watched = |&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    let mut fds: Vec<PollFd<'_>> = readable.iter().map(watched).collect();
    let limit = Timespec::try_from(patience).unwrap_or(FOREVER);
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Waits until something can be read from `fd` or, if `to_write`, written to it, at most for `patience`; tells both.
pub fn wait_ready(
    fd: BorrowedFd<'_>,
    to_write: bool,
    patience: Duration,
) -> io::Result<(bool, bool)> {
    let mut flags = PollFlags::IN;
    flags.set(PollFlags::OUT, to_write);
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    let limit = Timespec::try_from(patience).unwrap_or(FOREVER);
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let seen = fds[0].revents();
    let is_over = seen.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    Ok((
        is_over || seen.contains(PollFlags::IN),
        to_write && (is_over || seen.contains(PollFlags::OUT)),
    ))
}

/// Waits until one of `readable` can be read or the other end of `socket` is closed, at most for
/// `patience`. Tells whether the other end is closed. Unread bytes of the socket do not matter.
pub fn wait_gone<const N: usize>(
    socket: BorrowedFd<'_>,
    readable: [BorrowedFd<'_>; N],
    patience: Duration,
) -> io::Result<bool> {
    // Without requested events, the kernel reports the close alone.
    let mut fds = vec![PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    fds.extend(readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    let limit = Timespec::try_from(patience).unwrap_or(FOREVER);
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(!fds[0].revents().is_empty())
}

const FOREVER: Timespec = Timespec {
    tv_sec: i32::MAX as i64,
    tv_nsec: 0,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_is_seen_behind_unread_bytes() {
        use std::{io::Write, os::unix::net::UnixStream};
        let (here, mut there) = UnixStream::pair().unwrap();
        let wake = Wake::new().unwrap();
        there.write_all(b"unread").unwrap();
        wake.raise();
        let is_gone = |limit| wait_gone(here.as_fd(), [wake.as_fd()], limit).unwrap();
        assert!(!is_gone(Duration::from_secs(5)));
        assert_eq!(
            wait_ready(here.as_fd(), true, Duration::ZERO).unwrap(),
            (true, true)
        );
        drop(there);
        wake.lower();
        assert!(is_gone(Duration::from_secs(5)));
    }

    #[test]
    fn raised_flag_ends_wait_and_stays() {
        let (up, down) = (Wake::new().unwrap(), Wake::new().unwrap());
        up.raise();
        for _ in 0..2 {
            let seen = wait_readable([up.as_fd(), down.as_fd()], Duration::from_secs(5)).unwrap();
            assert_eq!(seen, [true, false]);
        }
        up.lower();
        assert_eq!(
            wait_readable([up.as_fd()], Duration::ZERO).unwrap(),
            [false]
        );
    }
}
