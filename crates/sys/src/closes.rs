//! Waits until a writer closes a file.

use crate::wait_readable;
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};
use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

/// Watches files for the end of a writer. It is a hint to look, never the truth: other writers may be left.
#[derive(Debug)]
pub struct Closes(OwnedFd);

/// A file that is watched; two names of one file are one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WatchId(i32);

/// Result of a wait.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClosesHeard {
    /// Files of which a writer closed its descriptor.
    pub closed: Vec<WatchId>,
    /// More happened than the kernel could keep: look at all.
    pub is_lost: bool,
    /// The wait was ended by the flag.
    pub is_woken: bool,
}

impl Closes {
    /// Returns a watch of nothing.
    pub fn new() -> io::Result<Self> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        Ok(Self(inotify::init(flags)?))
    }

    /// Watches a file from now on.
    pub fn add(&self, path: &Path) -> io::Result<WatchId> {
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::DONT_FOLLOW;
        Ok(WatchId(inotify::add_watch(&self.0, path, flags)?))
    }

    /// Watches a file no more; one that is gone is not watched anyway.
    pub fn remove(&self, watched: WatchId) {
        let _ = inotify::remove_watch(&self.0, watched.0);
    }

    /// Waits until something happens or `wake` can be read, at most for `patience`.
    pub fn wait(&self, wake: BorrowedFd<'_>, patience: Duration) -> io::Result<ClosesHeard> {
        let [_, is_woken] = wait_readable([self.0.as_fd(), wake], patience)?;
        let mut heard = ClosesHeard {
            is_woken,
            ..ClosesHeard::default()
        };
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut space);
        loop {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    heard.is_lost = true;
                }
                Ok(event) if event.events().contains(ReadFlags::CLOSE_WRITE) => {
                    heard.closed.push(WatchId(event.wd()));
                }
                Ok(_) => {} // a watch that ended with its file
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if heard.closed.len() >= HEARD_MAX {
                break;
            }
        }
        heard.closed.sort_unstable();
        heard.closed.dedup();
        Ok(heard)
    }
}

/// Most events that one wait returns; the next wait returns the rest.
const HEARD_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Wake, scratch::TestDir};
    use std::fs::{self, File};

    #[test]
    fn only_close_of_writer_is_reported() {
        let scratch = TestDir::new("closes");
        let (path, other) = (scratch.join("file"), scratch.join("other"));
        fs::write(&path, b"x").unwrap();
        fs::write(&other, b"x").unwrap();
        let (closes, wake) = (Closes::new().unwrap(), Wake::new().unwrap());
        let watched = closes.add(&path).unwrap();
        assert_eq!(closes.add(&path).unwrap(), watched);
        let wait = |limit| closes.wait(wake.as_fd(), limit).unwrap();
        drop(File::open(&path).unwrap());
        fs::write(&other, b"y").unwrap();
        assert_eq!(wait(Duration::ZERO), ClosesHeard::default());
        let writer = File::options().write(true).open(&path).unwrap();
        let waiting = std::thread::spawn(move || drop(writer));
        assert_eq!(wait(Duration::from_secs(10)).closed, [watched]);
        waiting.join().unwrap();
        closes.remove(watched);
        fs::write(&path, b"z").unwrap();
        wake.raise();
        let heard = wait(Duration::from_secs(10));
        assert!(heard.is_woken && heard.closed.is_empty());
    }

    #[test]
    fn removed_file_ends_watch_quietly() {
        let scratch = TestDir::new("closes-gone");
        let path = scratch.join("file");
        fs::write(&path, b"x").unwrap();
        let (closes, wake) = (Closes::new().unwrap(), Wake::new().unwrap());
        let watched = closes.add(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(
            closes.wait(wake.as_fd(), Duration::ZERO).unwrap(),
            ClosesHeard::default()
        );
        closes.remove(watched);
        assert!(closes.add(&path).is_err());
    }
}
