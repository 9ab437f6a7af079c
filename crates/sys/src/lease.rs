//! Leases: the kernel tells whether another process has a file open.
//!
//! A process that opens a leased file waits until the lease is given back
//! (`/proc/sys/fs/lease-break-time`, 45 s). The kernel announces the wait by a signal that ends a
//! process by default. Here the signal is SIGURG, which is harmless, and it is sent to no process.
//! So a break is seen only by asking ([`Lease::is_broken`]).

use rustix::fs::{OFlags, fcntl_getfl};
use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

/// Condition that a lease checks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unless {
    /// No process can write the file: no writable descriptor and no shared writable mapping exists.
    /// The file must be opened for reading only, as our own descriptor counts too.
    Written,
    /// No other process has the file open.
    Open,
}

/// Answer of the kernel.
#[derive(Debug)]
pub enum Leased {
    /// The condition holds, until the lease breaks.
    Granted(Lease),
    /// Another process has the file open.
    Refused,
    /// This file system, or this machine, has no leases.
    Unsupported,
}

/// A lease; it is given back when this is dropped.
#[derive(Debug)]
pub struct Lease {
    file: OwnedFd,
    kind: i32,
}

/// Asks for a lease of a file that belongs to this account (else, without CAP_LEASE, permission is
/// denied).
pub fn lease(file: &File, unless: Unless) -> io::Result<Leased> {
    let kind = match unless {
        Unless::Written => libc::F_RDLCK,
        Unless::Open => libc::F_WRLCK,
    };
    let mode = fcntl_getfl(file)? & OFlags::RWMODE;
    if unless == Unless::Written && mode != OFlags::RDONLY {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is open for writing here",
        ));
    }
    // The lease belongs to the open file, which our own descriptor keeps open.
    let file = OwnedFd::from(file.try_clone()?);
    ask(&file, F_SETSIG, libc::SIGURG)?;
    match ask(&file, libc::F_SETLEASE, kind) {
        Ok(_) => {
            let lease = Lease { file, kind };
            // From here on a break makes no signal at all.
            ask(&lease.file, libc::F_SETOWN, 0)?;
            Ok(Leased::Granted(lease))
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EBUSY) => Ok(Leased::Refused),
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOLCK) => Ok(Leased::Unsupported),
            _ => Err(error),
        },
    }
}

impl Lease {
    /// Tells whether another process waits for the file, or the lease was taken away.
    pub fn is_broken(&self) -> bool {
        ask(&self.file, libc::F_GETLEASE, 0).is_ok_and(|kind| kind != self.kind)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = ask(&self.file, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn ask(file: &OwnedFd, what: i32, value: i32) -> io::Result<i32> {
    // SAFETY: these questions take a number and touch no memory; the descriptor is open.
    #[allow(unsafe_code)]
    let told = unsafe { libc::fcntl(file.as_raw_fd(), what, value) };
    match told {
        -1 => Err(io::Error::last_os_error()),
        told => Ok(told),
    }
}

/// fcntl(2); the library does not name it.
const F_SETSIG: i32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TestDir;
    use std::{
        fs::OpenOptions,
        os::unix::fs::OpenOptionsExt,
        time::{Duration, Instant},
    };

    /// Gets the lease once no child of another test has a copy of our descriptors: it has one from
    /// its fork to its exec.
    fn granted(file: &File, unless: Unless) -> Lease {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match lease(file, unless).unwrap() {
                Leased::Granted(lease) => return lease,
                Leased::Refused if Instant::now() < until => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn lease_is_refused_to_writers_and_broken() {
        let scratch = TestDir::new("lease");
        let path = scratch.join("file");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        if matches!(
            lease(&reader, Unless::Written).unwrap(),
            Leased::Unsupported
        ) {
            eprintln!("skipped: no leases on this file system");
            return;
        }
        assert!(matches!(
            lease(&reader, Unless::Written).unwrap(),
            Leased::Refused
        ));
        let misused = lease(&writer, Unless::Written).unwrap_err();
        assert_eq!(misused.kind(), io::ErrorKind::InvalidInput);
        drop(writer);
        let held = granted(&reader, Unless::Written);
        assert!(!held.is_broken());
        drop(File::open(&path).unwrap()); // readers do not mind
        assert!(!held.is_broken());
        // A new writer is kept waiting; this process lives on, though it asked for no signal.
        let mut eager = OpenOptions::new();
        eager
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32);
        assert_eq!(
            eager.open(&path).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        assert!(held.is_broken());
        drop(held);
        drop(eager.open(&path).unwrap());
        assert!(!granted(&reader, Unless::Written).is_broken());
    }

    #[test]
    fn nobody_else_has_it_open() {
        let scratch = TestDir::new("lease-alone");
        let path = scratch.join("file");
        let ours = File::create(&path).unwrap();
        let other = File::open(&path).unwrap();
        match lease(&ours, Unless::Open).unwrap() {
            Leased::Unsupported => return eprintln!("skipped: no leases on this file system"),
            Leased::Refused => drop(other),
            Leased::Granted(_) => panic!("there is a reader"),
        }
        let held = granted(&ours, Unless::Open);
        std::fs::remove_file(&path).unwrap(); // taking its name away opens nothing
        assert!(!held.is_broken());
    }

    #[test]
    fn writable_mapping_counts_after_close() {
        let scratch = TestDir::new("lease-mapped");
        let path = scratch.join("file");
        std::fs::write(&path, [0; 4096]).unwrap();
        let writer = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        // SAFETY: a mapping of our own at an address that the kernel chooses; no code uses it.
        #[allow(unsafe_code)]
        let at = unsafe {
            let both = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                both,
                libc::MAP_SHARED,
                writer.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        drop(writer);
        let reader = File::open(&path).unwrap();
        let while_mapped = lease(&reader, Unless::Written).unwrap();
        // SAFETY: it was mapped above, and no reference into it exists.
        #[allow(unsafe_code)]
        let unmapped = unsafe { libc::munmap(at, 4096) };
        assert_eq!(unmapped, 0);
        if matches!(while_mapped, Leased::Unsupported) {
            return eprintln!("skipped: no leases on this file system");
        }
        assert!(matches!(while_mapped, Leased::Refused), "{while_mapped:?}");
        granted(&reader, Unless::Written);
    }

    #[test]
    fn user_gets_leases_of_own_files_only() {
        let scratch = TestDir::new("lease-user");
        let ours = scratch.join("ours");
        std::fs::write(&ours, b"x").unwrap();
        scratch.as_nobody(|| {
            let path = scratch.join("theirs");
            std::fs::write(&path, b"x").unwrap();
            let reader = File::open(&path).unwrap();
            if matches!(
                lease(&reader, Unless::Written).unwrap(),
                Leased::Unsupported
            ) {
                return;
            }
            granted(&reader, Unless::Written);
            granted(&reader, Unless::Open);
            if crate::user_id() != 0 {
                let denied = lease(&File::open(&ours).unwrap(), Unless::Written).unwrap_err();
                assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
            }
        });
    }
}
