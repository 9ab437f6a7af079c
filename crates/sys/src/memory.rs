//! Files that lie in memory only.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use std::{fs::File, io};

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

/// Makes a file in memory final: from then on nobody can change its bytes, its length, or that. It is
/// an error while it is mapped for writing.
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
