//! Which names are of other machines.

use crate::failure::{Failure, Result};
use godwit_core::{Scheme, Url};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::URL_BYTES_MAX;
use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
};

/// Place that a name leads to.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Name {
    /// A file of this machine.
    Here(CString),
    /// A file of the node.
    There(String),
}

impl Name {
    /// Reads a name as C has it. The node judges URLs; here it is only told who is asked.
    pub(crate) fn of(name: &CStr) -> Result<Self> {
        let bytes = name.to_bytes();
        let is_name = bytes
            .get(..6)
            .is_some_and(|begin| begin.eq_ignore_ascii_case(b"grid:/"));
        let is_path_form = bytes == b"/godwit" || bytes.starts_with(b"/godwit/");
        match scheme(bytes) {
            Some(scheme) if scheme.eq_ignore_ascii_case(b"file") => {
                let url = parsed(bytes)?;
                let path = CString::new(url.path()).map_err(|_| nul(bytes))?;
                Ok(Self::Here(path))
            }
            None if !is_path_form && !is_name => Ok(Self::Here(name.to_owned())),
            _ if bytes.len() > URL_BYTES_MAX => {
                let words = format!("{} bytes are more than {URL_BYTES_MAX}", bytes.len());
                Err(Refusal::new(Kind::TooLong, "read that URL", words).into())
            }
            _ => match name.to_str() {
                Ok(text) => Ok(Self::There(text.to_owned())),
                // A path is bytes; what is said to the node is text.
                Err(_) => Ok(Self::There(parsed(bytes)?.to_string())),
            },
        }
    }

    /// Returns the URL of a name that must be of another machine.
    pub(crate) fn there(name: &CStr) -> Result<String> {
        match Self::of(name)? {
            Self::There(url) => Ok(url),
            Self::Here(path) => Err(Failure::invalid(
                format!(
                    "take {} for a file of another machine",
                    path.to_string_lossy()
                ),
                "it is neither a URL nor below /godwit/",
            )),
        }
    }
}

/// Returns what stands before `://`, as RFC 3986 writes schemes.
fn scheme(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(3).position(|at| at == b"://")?;
    let scheme = &bytes[..end];
    let is_one = scheme.first()?.is_ascii_alphabetic()
        && scheme
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(c));
    is_one.then_some(scheme)
}

fn parsed(bytes: &[u8]) -> Result<Url> {
    let url = Url::from_argument(OsStr::from_bytes(bytes));
    let url = url.map_err(|error| {
        let wanted = format!("read {}", String::from_utf8_lossy(bytes));
        Failure::invalid(wanted, error.to_string())
    })?;
    debug_assert!(url.is_local() || url.scheme() == Scheme::Grid || url.host().is_some());
    Ok(url)
}

fn nul(bytes: &[u8]) -> Failure {
    let wanted = format!("read {}", String::from_utf8_lossy(bytes));
    Failure::invalid(wanted, "a path cannot have a zero byte")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Name {
        Name::of(&CString::new(name).unwrap()).unwrap()
    }

    #[test] //= GASS-1
    fn urls_and_godwit_names_are_remote() {
        for there in [
            "/godwit/lab/x",
            "/godwit",
            "godwit://lab/x",
            "gsiftp://a:1/x",
            "Srb+x.y-z://a",
            "/godwit/../etc/passwd",
            "grid:/hep",
        ] {
            assert_eq!(of(there), Name::There(there.into()));
        }
        for here in [
            "x",
            "/etc/passwd",
            "/godwitx/y",
            "godwit/x",
            "./ftp://a/x",
            "a/b://c",
            "://x",
            "1a://x",
            "",
            "./grid:/hep",
            "grid:hep",
            "a:b",
        ] {
            assert_eq!(of(here), Name::Here(CString::new(here).unwrap()));
        }
        assert_eq!(of("file:///a%20b"), Name::Here(c"/a b".into()));
    }

    #[test]
    fn non_utf8_bytes_become_a_url() {
        let name = CString::new(&b"/godwit/ftp:fermi/a\xff b"[..]).unwrap();
        let url = Name::there(&name).unwrap();
        assert_eq!(url, "ftp://fermi/a%FF%20b");
        assert!(Name::of(&CString::new(&b"srb://a/\xff"[..]).unwrap()).is_err());
        let long = CString::new(format!("ftp://a/{}", "x".repeat(URL_BYTES_MAX))).unwrap();
        assert_eq!(Name::of(&long).unwrap_err().errno, libc::ENAMETOOLONG);
        assert_eq!(Name::there(c"/etc/x").unwrap_err().errno, libc::EINVAL);
    }
}
