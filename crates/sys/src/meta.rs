//! Attributes of files, and operations on open ones.

use rustix::fs::{
    self, AtFlags, FileType, FlockOperation, Gid, Mode, StatxFlags, Timespec, Timestamps,
    UTIME_OMIT, Uid,
};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::MetadataExt,
    },
    time::Duration,
};

/// Kind of a directory's entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum FileKind {
    File,
    Directory,
    Link,
    Pipe,
    Socket,
    Device,
    /// The directory did not say: ask for its [`Meta`].
    Unknown,
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            FileType::Fifo => Self::Pipe,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => Self::Device,
            FileType::Unknown => Self::Unknown,
        }
    }
}

/// Attributes of a file, as the kernel reports them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub struct Meta {
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits, 07777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Time of the last change of content, since the epoch.
    pub mtime: Duration,
    /// Time of the last change of anything, since the epoch.
    pub ctime: Duration,
    pub device: u64,
    pub inode: u64,
    pub links: u64,
}

#[allow(clippy::unnecessary_cast, clippy::useless_conversion)] // Field types differ between machines.
impl From<fs::Stat> for Meta {
    fn from(stat: fs::Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode).into(),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode as u32 & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: since_epoch(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            ctime: since_epoch(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            links: stat.st_nlink as u64,
        }
    }
}

/// Returns a time since 1970. Earlier times become 1970, since `Duration` has no sign.
fn since_epoch(seconds: i64, nanos: u64) -> Duration {
    u64::try_from(seconds).map_or(Duration::ZERO, |s| {
        Duration::new(s, nanos as u32 % 1_000_000_000)
    })
}

/// Attributes to set on a file; `None`: the attribute stays.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Attributes {
    /// User and group, as far as this process may set them.
    pub owner: Option<(u32, u32)>,
    /// Group; an error if we are not permitted to.
    pub group: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Time of the last change of content, since the epoch.
    pub mtime: Option<Duration>,
    /// Time of the last reading, since the epoch.
    pub atime: Option<Duration>,
}

impl Attributes {
    /// Gives them to an open file; also to one that was opened only as a name.
    /// Times are tried even where the mode is refused.
    pub(crate) fn put_on(&self, file: &File) -> io::Result<()> {
        if let Some((uid, gid)) = self.owner {
            give(file, uid, gid);
        }
        self.group.map_or(Ok(()), |gid| set_group(file, gid))?;
        let mode = self.mode.map_or(Ok(()), |mode| set_mode(file, mode));
        let times = match (self.atime, self.mtime) {
            (None, None) => Ok(()),
            (atime, mtime) => set_times(file, atime, mtime),
        };
        mode.and(times)
    }
}

/// Returns the attributes of an open file.
pub fn meta(file: impl AsFd) -> io::Result<Meta> {
    Ok(fs::fstat(file)?.into())
}

/// Returns when a file was made, since the epoch, if its file system knows.
pub fn birth(file: impl AsFd) -> io::Result<Option<Duration>> {
    let told = fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
    let (is_told, at) = (
        told.stx_mask & StatxFlags::BTIME.bits() != 0,
        told.stx_btime,
    );
    Ok(is_told.then(|| since_epoch(at.tv_sec, at.tv_nsec.into())))
}

/// Locks a file for this open descriptor alone; `false` if another descriptor has the lock. The
/// lock ends when the descriptor is closed, also by the death of the process.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the process that has locked a file, if the kernel tells: of those in other containers it does not.
pub fn locked_by(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let device = (fs::major(meta.dev()), fs::minor(meta.dev()));
    locker(
        &std::fs::read_to_string("/proc/locks").ok()?,
        device,
        meta.ino(),
    )
}

/// Reads proc_locks(5). Some file systems call their device otherwise there: then the number must be of one file only.
fn locker(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let exact = format!("{major:02x}:{minor:02x}:{inode}");
    let end = format!(":{inode}");
    let held = locks.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            // In a waiter's line the second word is an arrow.
            [_, "FLOCK", _, _, process, at, ..] if at.ends_with(&end) => {
                let process = process.parse().ok().filter(|process| *process > 0);
                Some((at, process?))
            }
            _ => None,
        }
    });
    let held: Vec<(&str, u32)> = held.collect();
    match (held.iter().find(|(at, _)| *at == exact), &held[..]) {
        (Some((_, process)), _) | (None, [(_, process)]) => Some(*process),
        _ => None,
    }
}

/// Gives back the lock of a file that stays open.
pub fn unlock(file: &File) -> io::Result<()> {
    Ok(fs::flock(file, FlockOperation::Unlock)?)
}

/// Sets permission bits; also of a file that was opened only as a name.
fn set_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    match fs::fchmod(&file, mode) {
        Err(rustix::io::Errno::BADF) => Ok(fs::chmodat(
            fs::CWD,
            own_path(&file),
            mode,
            AtFlags::empty(),
        )?),
        done => Ok(done?),
    }
}

/// Sets times; also of a file that was opened only as a name.
fn set_times(file: impl AsFd, atime: Option<Duration>, mtime: Option<Duration>) -> io::Result<()> {
    let spec = |time: Option<Duration>| match time {
        None => Ok(Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT as _,
        }),
        Some(time) => i64::try_from(time.as_secs())
            .map(|tv_sec| Timespec {
                tv_sec,
                tv_nsec: time.subsec_nanos().into(),
            })
            .map_err(|_| io::ErrorKind::InvalidInput),
    };
    let times = Timestamps {
        last_access: spec(atime)?,
        last_modification: spec(mtime)?,
    };
    match fs::futimens(&file, &times) {
        Err(rustix::io::Errno::BADF) => Ok(fs::utimensat(
            fs::CWD,
            own_path(&file),
            &times,
            AtFlags::empty(),
        )?),
        done => Ok(done?),
    }
}

/// A descriptor opened with `O_PATH` cannot be changed through itself, only
/// through this name of it, which leads to that very inode.
pub(crate) fn own_path(file: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Gives a file to another owner and group, as far as we are permitted to.
fn give(file: &File, uid: u32, gid: u32) {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    // By its empty name, which works for a mere name as well.
    let give = |uid| fs::chownat(file, c"", uid, Some(gid), AtFlags::EMPTY_PATH);
    if give(Some(uid)).is_err() {
        // A group we are in we may still hand on.
        let _ = give(None);
    }
}

/// Hands a file to another group; also one that was opened only as a name.
fn set_group(file: impl AsFd, gid: u32) -> io::Result<()> {
    let gid = Some(Gid::from_raw(gid));
    Ok(fs::chownat(file, "", None, gid, AtFlags::EMPTY_PATH)?)
}

/// Makes a range of an open file a hole; its length stays. An error if the file system has no
/// holes.
pub fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = fs::FallocateFlags::PUNCH_HOLE | fs::FallocateFlags::KEEP_SIZE;
    Ok(fs::fallocate(file, flags, offset, len)?)
}

/// Reserves blocks for a range of an open file, so that writes there need no more. Length and bytes
/// stay. Does nothing if the file system cannot reserve.
pub fn reserve_blocks(file: &File, offset: u64, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    match fs::fallocate(file, fs::FallocateFlags::KEEP_SIZE, offset, len) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

/// Returns the start of the next data at or after `from`; `None` if only a hole follows.
pub fn next_data(file: &File, from: u64) -> io::Result<Option<u64>> {
    match fs::seek(file, fs::SeekFrom::Data(from)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TestDir;

    #[test]
    fn whoever_has_locked_a_file_is_named() {
        let scratch = TestDir::new("locked");
        let (file, other) = (
            File::create(scratch.join("file")).unwrap(),
            File::create(scratch.join("other")).unwrap(),
        );
        assert_eq!(locked_by(&file), None);
        assert!(try_lock(&file).unwrap());
        assert_eq!(locked_by(&file), Some(std::process::id()));
        assert_eq!(locked_by(&other), None);
    }

    #[test]
    fn table_of_locks_parses() {
        let table = "\
            1: POSIX  ADVISORY  WRITE 11 fd:01:70 0 EOF\n\
            2: FLOCK  ADVISORY  WRITE 12 fd:01:7 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 13 fd:01:7 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 14 00:2a:7 0 EOF\n\
            4: FLOCK  ADVISORY  READ  15 00:31:9 0 EOF\n\
            5: FLOCK  ADVISORY  WRITE 0 fd:01:8 0 EOF\n";
        let of = |device, inode| locker(table, device, inode);
        assert_eq!(of((0xfd, 1), 7), Some(12));
        assert_eq!(of((0, 0x2a), 7), Some(14));
        assert_eq!(of((1, 1), 7), None, "two files have that number");
        assert_eq!(of((1, 1), 9), Some(15), "btrfs has a device a subvolume");
        assert_eq!((of((0xfd, 1), 8), of((0xfd, 1), 70)), (None, None));
    }
}
