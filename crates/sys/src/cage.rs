//! Limits the files and sockets of a started program, by Landlock, which needs no privilege.
//!
//! A cage takes away and never gives: permissions of files count as ever.

use rustix::fs::{Mode, OFlags};
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};

/// Access of a program: it reads and executes beneath the given paths only. It writes only to
/// `/dev/null`, has no TCP, and sends no signals out of the cage.
#[derive(Debug)]
pub(crate) struct Cage(OwnedFd);

impl Cage {
    /// Returns a cage with only the entries beneath `readable`. A path that does not exist is
    /// skipped. Before Linux 5.13 there are no cages.
    pub(crate) fn new<'a>(readable: impl IntoIterator<Item = &'a Path>) -> io::Result<Self> {
        let abi = created(std::ptr::null(), 0, VERSION)?;
        let handled = Handled {
            files: if abi >= 5 { FILES_5 } else { FILES_1 },
            net: if abi >= 4 { NET } else { 0 },
            scoped: if abi >= 6 { SCOPED } else { 0 },
        };
        // Kernels refuse a struct longer than theirs, unless the rest is zero.
        let fd = created(&raw const handled, size_of::<Handled>(), 0)?;
        // SAFETY: the kernel has just made this descriptor, and no other code knows it.
        #[allow(unsafe_code)]
        let cage = Self(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        for path in readable {
            cage.admit(path, EXECUTE | READ_FILE | READ_DIR)?;
        }
        let nowhere = (READ_FILE | WRITE_FILE | TRUNCATE) & handled.files;
        cage.admit(Path::new("/dev/null"), nowhere)?;
        Ok(cage)
    }

    fn admit(&self, path: &Path, to: u64) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        let is_folder = crate::meta(&place)?.kind == crate::FileKind::Directory;
        let beneath = Beneath {
            allowed: match is_folder {
                true => to,
                false => to & !READ_DIR,
            },
            place: place.as_raw_fd(),
        };
        // SAFETY: both descriptors are open, and the kernel reads one `Beneath`.
        #[allow(unsafe_code)]
        let done = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.0.as_raw_fd(),
                PATH_BENEATH,
                &raw const beneath,
                0,
            )
        };
        succeeded(done).map(drop)
    }

    /// Enters the cage for good; child processes are in it too. One system call, safe between fork
    /// and exec.
    pub(crate) fn enter(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open, and nothing is read or written.
        #[allow(unsafe_code)]
        let done =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0) };
        succeeded(done).map(drop)
    }
}

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct Handled {
    files: u64,
    net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    place: i32,
}

fn created(handled: *const Handled, len: usize, flags: u32) -> io::Result<i64> {
    // SAFETY: the caller's pointer is null, or leads to `len` bytes, which are only read.
    #[allow(unsafe_code)]
    let done = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, handled, len, flags) };
    succeeded(done)
}

fn succeeded(done: libc::c_long) -> io::Result<i64> {
    match done {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

const VERSION: u32 = 1;
const PATH_BENEATH: u32 = 1;
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const TRUNCATE: u64 = 1 << 14;
/// All that the first version knows.
const FILES_1: u64 = (1 << 13) - 1;
/// With renames across directories, truncation, and ioctl of devices.
const FILES_5: u64 = (1 << 16) - 1;
/// Binding and connecting, TCP.
const NET: u64 = 0b11;
/// Abstract sockets, and signals.
const SCOPED: u64 = 0b11;
