//! Names of accounts and groups, for listings.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    sync::LazyLock,
    time::{Duration, Instant},
};

/// Returns the name of an account that a listing tells by its number.
pub(super) fn user(number: Option<&str>) -> Option<String> {
    static KNOWN: LazyLock<KnownOwners> = LazyLock::new(KnownOwners::new);
    KNOWN.name(number?, godwit_sys::user_name)
}

/// Returns the name of a group that a listing tells by its number.
pub(super) fn group(number: Option<&str>) -> Option<String> {
    static KNOWN: LazyLock<KnownOwners> = LazyLock::new(KnownOwners::new);
    KNOWN.name(number?, godwit_sys::group_name)
}

/// Names that were looked up lately, so that a remote directory of names is asked once for each number.
struct KnownOwners(Mutex<(Instant, HashMap<u32, Option<String>>)>);

impl KnownOwners {
    fn new() -> Self {
        Self(Mutex::new((Instant::now(), HashMap::new())))
    }

    fn name(
        &self,
        number: &str,
        look: impl FnOnce(u32) -> io::Result<Option<String>>,
    ) -> Option<String> {
        let number = number.parse().ok()?;
        let known = || self.0.lock();
        {
            let (since, names) = &mut *known();
            if since.elapsed() > KEPT || names.len() >= NAMES_MAX {
                (*since, *names) = (Instant::now(), HashMap::new());
            }
            if let Some(name) = names.get(&number) {
                return name.clone();
            }
        }
        // Columns of a listing end at blanks, and facts at semicolons.
        let odd = |c: char| c.is_whitespace() || c.is_control() || c == ';';
        let found = look(number).ok().flatten();
        let name = found.filter(|name| !name.is_empty() && !name.contains(odd));
        known().1.insert(number, name.clone());
        name
    }
}

const KEPT: Duration = Duration::from_secs(600);
const NAMES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_looked_up_once() {
        let known = KnownOwners::new();
        let look = |name: &'static str| move |_| Ok(Some(name.to_owned()));
        assert_eq!(known.name("7", look("ann")).as_deref(), Some("ann"));
        assert_eq!(known.name("7", look("bob")).as_deref(), Some("ann"));
        assert_eq!(known.name("8", look("domain users")), None);
        assert_eq!(known.name("ann", look("bob")), None);
    }
}
