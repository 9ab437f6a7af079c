//! Whether a file system is this machine's own, and what room it has.

use rustix::fs::{major, minor, stat, statfs, statvfs};
use std::{fs, io, path::Path};

/// Tells whether a path is on a file system whose disk another kernel has: locks, leases and
/// databases are then unreliable. For FUSE the kind of its mount decides. A file system not known
/// to be local counts as remote.
pub fn is_network_file_system(path: &Path) -> io::Result<bool> {
    let magic = u64::try_from(statfs(path)?.f_type).unwrap_or(0) & 0xffff_ffff;
    if magic != FUSE {
        return Ok(REMOTE.contains(&magic));
    }
    let device = stat(path)?.st_dev;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let kind = kind_of(&mounts, major(device), minor(device));
    Ok(!kind.is_some_and(|kind| LOCAL_FUSE.contains(&kind)))
}

/// Returns how many bytes this account could still write there.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let told = statvfs(path)?;
    Ok(told.f_bavail.saturating_mul(told.f_frsize))
}

/// Returns the kind of the mount of that device: what follows ` - ` in its line (proc_pid_mountinfo(5)).
fn kind_of(mounts: &str, major: u32, minor: u32) -> Option<&str> {
    let device = format!("{major}:{minor}");
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(&device))?;
    line.split_once(" - ")?.1.split(' ').next()
}

const FUSE: u64 = 0x6573_5546;

/// Those of linux/magic.h, and of file systems that bring their own.
const REMOTE: [u64; 17] = [
    0x6969,      // nfs
    0x517b,      // smb
    0xff53_4d42, // cifs
    0xfe53_4d42, // smb2
    0x0102_1997, // 9p
    0x5346_414f, // afs
    0x6b41_4653, // kAFS
    0x00c3_6400, // ceph
    0x0bd0_0bd0, // lustre
    0x0116_1970, // gfs2
    0x7461_636f, // ocfs2
    0x564c,      // ncp
    0x7375_7245, // coda
    0x4750_4653, // gpfs
    0x1983_0326, // beegfs
    0x2003_0528, // orangefs
    0xaad7_aaea, // panfs
];

const LOCAL_FUSE: [&str; 6] = [
    "fuseblk",
    "fuse.ntfs-3g",
    "fuse.exfat",
    "fuse.ext2",
    "fuse.fuse-overlayfs",
    "fuse.bindfs",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_has_is_its_own() {
        assert!(!is_network_file_system(Path::new("/proc")).unwrap());
        assert!(!is_network_file_system(Path::new("/dev/shm")).unwrap());
        assert!(is_network_file_system(Path::new("/no such place")).is_err());
        assert!(free_bytes(Path::new("/")).is_ok());
    }

    #[test]
    fn a_mount_is_found_by_its_device() {
        let mounts = "\
            22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            99 22 0:45 / /mnt/far rw,nosuid - fuse.sshfs far:/ rw,user_id=0\n\
            98 22 0:46 / /mnt/usb\\040disk rw shared:7 master:1 - fuseblk /dev/sdb1 rw\n";
        assert_eq!(kind_of(mounts, 0, 45), Some("fuse.sshfs"));
        assert_eq!(kind_of(mounts, 0, 46), Some("fuseblk"));
        assert_eq!(kind_of(mounts, 8, 1), Some("ext4"));
        assert_eq!(kind_of(mounts, 0, 4), None);
    }
}
