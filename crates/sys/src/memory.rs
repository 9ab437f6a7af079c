//! Files that lie in memory only.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Returns an empty file in memory; `name` is what `/proc` calls it. It is gone with its last descriptor.
pub fn memory(name: &str) -> io::Result<File> {
    let short = name.len().min(NAME_BYTES_MAX);
    let name: String = name[..name.floor_char_boundary(short)]
        .chars()
        .map(|c| if c == '\0' { '_' } else { c })
        .collect();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(memfd_create(name, flags)?.into())
}

/// Returns an empty file of a directory that has no name there. It is gone with its last descriptor.
pub fn unnamed(dir: &Path) -> io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut how = File::options();
    how.read(true).write(true).create_new(true).mode(0o600);
    loop {
        let count = COUNT.fetch_add(1, Relaxed);
        let path = dir.join(format!("godwit-{}-{count}", process::id()));
        match how.open(&path) {
            // A process of this number was killed just here, or another user took the name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => {
                let file = file?;
                fs::remove_file(&path)?;
                return Ok(file);
            }
        }
    }
}

/// Makes a file in memory final: no process can change its bytes, its length or its seals from then
/// on. Fails while the file is mapped for writing.
pub fn seal(file: &File) -> io::Result<()> {
    Ok(fcntl_add_seals(file, all())?)
}

/// Tells whether it is final, so that it may be mapped without fear.
pub fn is_sealed(file: &File) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(all()))
}

fn all() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL
}

/// The kernel takes 249 bytes.
const NAME_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_files_pass_over_taken_names() {
        let dir = std::env::temp_dir().join(format!("godwit-sys-unnamed-{}", process::id()));
        fs::create_dir(&dir).unwrap();
        for count in 0..4 {
            fs::write(dir.join(format!("godwit-{}-{count}", process::id())), "").unwrap();
        }
        unnamed(&dir).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 4, "only those");
        fs::remove_dir_all(&dir).unwrap();
    }
    use std::{io::Write, os::unix::fs::FileExt};

    #[test]
    fn what_is_sealed_stays_as_it_is() {
        let mut file = memory(&"é\0".repeat(300)).unwrap();
        file.write_all(b"final").unwrap();
        assert!(!is_sealed(&file));
        seal(&file).unwrap();
        assert!(is_sealed(&file));
        assert!(file.write_at(b"x", 0).is_err());
        assert!(file.set_len(1).is_err() && file.set_len(10).is_err());
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"final");
        assert!(!is_sealed(&File::open("/proc/self/status").unwrap()));
    }
}
