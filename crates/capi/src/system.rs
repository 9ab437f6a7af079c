//! The C library's own calls, for descriptors that are the program's.

use std::{
    ffi::{CStr, CString},
    fs, io,
    os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd},
    ptr,
};

/// By what the kernel tells a file from others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Inode(u64, u64);

/// open(2).
pub(crate) fn open(path: &CStr, flags: i32, mode: u32) -> io::Result<RawFd> {
    // SAFETY: the path is a C string.
    told(unsafe { libc::open(path.as_ptr(), flags, mode) })
}

/// close(2).
pub(crate) fn close(fd: RawFd) -> io::Result<()> {
    // SAFETY: a number of the program's, which asked for that.
    told(unsafe { libc::close(fd) }).map(drop)
}

/// Returns which file a descriptor is of.
pub(crate) fn inode(fd: RawFd) -> io::Result<Inode> {
    // SAFETY: a struct of numbers may be zero; fstat(2) fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: it lives during the call.
    told(unsafe { libc::fstat(fd, &raw mut stat) })?;
    Ok(Inode(stat.st_dev, stat.st_ino))
}

/// Keeps the kernel from forgetting the file of a descriptor; the result can neither read nor
/// write.
pub(crate) fn hold(fd: RawFd) -> io::Result<OwnedFd> {
    let path = CString::new(format!("/proc/self/fd/{fd}"))?;
    // SAFETY: the path is a C string; the returned descriptor is ours alone.
    unsafe {
        let fd = told(libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Gives a descriptor to the program. Unless told otherwise it stays when another program is started, as with open(2).
pub(crate) fn hand_out(file: impl Into<OwnedFd>, is_closed_on_exec: bool) -> io::Result<RawFd> {
    let file: OwnedFd = file.into();
    if !is_closed_on_exec {
        // SAFETY: a number.
        told(unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::F_SETFD, 0) })?;
    }
    Ok(file.into_raw_fd())
}

/// Makes one descriptor of the program another name of a file.
pub(crate) fn put_over(file: RawFd, fd: RawFd) -> io::Result<()> {
    // SAFETY: two numbers.
    told(unsafe { libc::dup3(file, fd, libc::O_CLOEXEC) }).map(drop)
}

/// Returns a descriptor of our own for what the program has open under that number.
pub(crate) fn copy_of(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a number; the returned descriptor is ours alone.
    unsafe {
        let fd = told(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Returns other descriptors of this process that were made from that one by dup(2), the lowest first.
pub(crate) fn copies(of: RawFd, inode_of: Inode) -> Vec<RawFd> {
    let Ok(all) = fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut found: Vec<RawFd> = numbers
        .filter(|&fd: &RawFd| fd != of && inode(fd).is_ok_and(|inode| inode == inode_of))
        .filter(|&fd| is_copy(of, fd))
        .collect();
    found.sort_unstable();
    found
}

/// Tells whether two descriptors share flags and position.
fn is_copy(one: RawFd, other: RawFd) -> bool {
    const KCMP_FILE: libc::c_long = 0;
    // SAFETY: numbers only.
    let told = unsafe {
        let ours = libc::c_long::from(libc::getpid());
        let (one, other) = (libc::c_long::from(one), libc::c_long::from(other));
        libc::syscall(libc::SYS_kcmp, ours, ours, KCMP_FILE, one, other)
    };
    if told >= 0 {
        return told == 0;
    }
    // Some containers do not allow to ask. Then what is alike counts as the same: it is the later close that counts.
    // SAFETY: numbers only.
    let look = |fd| unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        (flags, libc::lseek(fd, 0, libc::SEEK_CUR))
    };
    look(one) == look(other)
}

/// Returns the bits that files are made without (umask(2)), without changing them for a moment.
pub(crate) fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let told = told.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    told.unwrap_or(0o022)
}

/// Bytes of a sealed file in memory.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) data: *const libc::c_void,
    pub(crate) size: usize,
}

/// Maps a file to be read. An empty one has no bytes to map.
pub(crate) fn map(file: &fs::File, size: usize) -> io::Result<Mapped> {
    if size == 0 {
        let data = ptr::null();
        return Ok(Mapped { data, size });
    }
    let fd = std::os::fd::AsRawFd::as_raw_fd(file);
    let (may, how) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping, which nothing else uses.
    let data = unsafe { libc::mmap(ptr::null_mut(), size, may, how, fd, 0) };
    match data == libc::MAP_FAILED {
        true => Err(io::Error::last_os_error()),
        false => Ok(Mapped { data, size }),
    }
}

/// Gives it back.
pub(crate) fn unmap(mapped: &Mapped) {
    if mapped.size > 0 {
        // SAFETY: the program got it from `map`, and says that it does not use it any more.
        unsafe { libc::munmap(mapped.data.cast_mut(), mapped.size) };
    }
}

/// A stream of stdio.
pub(crate) type StdioStream = *mut libc::FILE;

unsafe extern "C" {
    static stdout: StdioStream;
    static stderr: StdioStream;
}

/// Prints as the program would itself, in turn with what it prints.
pub(crate) fn print(is_error: bool, bytes: &[u8]) {
    // SAFETY: the C library has made them before the program began; the bytes live during the call.
    unsafe {
        let stream = if is_error { stderr } else { stdout };
        libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stream);
        libc::fflush(stream);
    }
}

/// fopen(3).
pub(crate) fn open_stream(path: &CStr, mode: &CStr) -> io::Result<StdioStream> {
    // SAFETY: both are C strings.
    given(unsafe { libc::fopen(path.as_ptr(), mode.as_ptr()) })
}

/// fdopen(3).
pub(crate) fn stream_of(fd: RawFd, mode: &CStr) -> io::Result<StdioStream> {
    // SAFETY: the mode is a C string.
    given(unsafe { libc::fdopen(fd, mode.as_ptr()) })
}

fn given(stream: StdioStream) -> io::Result<StdioStream> {
    match stream.is_null() {
        true => Err(io::Error::last_os_error()),
        false => Ok(stream),
    }
}

fn told(number: i32) -> io::Result<i32> {
    match number {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

/// Memory of the program that is read, or written, after the call that named it.
#[derive(Debug)]
pub(crate) struct CallerBuffer {
    at: *mut u8,
    len: usize,
}

// SAFETY: the program leaves the buffer to the library until the end is reported (godwit.h). One
// thread at a time uses it, since it lies behind a lock.
unsafe impl Send for CallerBuffer {}

impl CallerBuffer {
    /// Takes a buffer that the program lends; `at` may be null only if it is empty.
    pub(crate) fn lent(at: *mut u8, len: usize) -> Option<Self> {
        let is_one = (!at.is_null() || len == 0) && isize::try_from(len).is_ok();
        is_one.then_some(Self { at, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns some of its bytes, to be read.
    pub(crate) fn part(&self, from: usize, len: usize) -> &[u8] {
        let len = len.min(self.len.saturating_sub(from));
        if len == 0 {
            return &[];
        }
        // SAFETY: it is within what the program lent.
        unsafe { std::slice::from_raw_parts(self.at.add(from), len) }
    }

    /// Returns some of its bytes, to be written.
    pub(crate) fn part_mut(&mut self, from: usize, len: usize) -> &mut [u8] {
        let len = len.min(self.len.saturating_sub(from));
        if len == 0 {
            return &mut [];
        }
        // SAFETY: it is within what the program lent.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(from), len) }
    }
}
