//! This process and the machine it runs on.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{io, sync::OnceLock};

/// Raises the limit of open files as far as this user may, and returns it.
pub fn raise_open_files() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised)?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Returns an identifier of this boot of the machine.
///
/// Without one from the kernel, every process counts as a new boot: too careful, never wrong.
pub fn boot_id() -> [u8; 16] {
    static BOOT: OnceLock<[u8; 16]> = OnceLock::new();
    *BOOT.get_or_init(|| told_boot_id().unwrap_or_else(random_id))
}

fn told_boot_id() -> Option<[u8; 16]> {
    let text = match test_boot_id() {
        Some(text) => text,
        None => std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?,
    };
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
}

/// Returns the boot that a test pretends, for tests of a disk that loses power.
fn test_boot_id() -> Option<String> {
    match cfg!(debug_assertions) {
        true => std::env::var("TEST_BOOT_ID").ok(),
        false => None,
    }
}

fn random_id() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let half = || {
        RandomState::new()
            .hash_one(std::process::id())
            .to_be_bytes()
    };
    let mut id = [0; 16];
    id[..8].copy_from_slice(&half());
    id[8..].copy_from_slice(&half());
    id
}

/// Returns the number of the account this process acts for.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the numbers of the user and group that files of this process get.
pub fn ids() -> (u32, u32) {
    (user_id(), rustix::process::getegid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_boot_has_one_id() {
        assert_eq!(boot_id(), boot_id());
        assert_ne!(boot_id(), [0; 16]);
    }

    #[test]
    fn as_many_files_as_permitted() {
        assert!(raise_open_files().unwrap() >= 256);
    }
}
