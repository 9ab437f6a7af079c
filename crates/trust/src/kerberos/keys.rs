//! Checks whether a node can take tickets at all: the keys in its keytab, and the library's replay
//! cache. The library reports neither before the first login.

use super::KINDS;
use crate::{
    Error, Result,
    error::{NoTicket, why},
};
use std::{
    env, fs,
    io::{self, ErrorKind},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

/// Refuses a keytab that has no key of ours. One that is no file of MIT's kind is left to the
/// library.
pub(super) fn must_be_ours(keytab: Option<&Path>) -> Result<()> {
    let Some(path) = keytab.map(Path::to_owned).or_else(usual_keytab) else {
        return Ok(());
    };
    let bytes = fs::read(&path).map_err(|cause| Error::io(path.clone(), cause))?;
    let Some(principals) = principals(&bytes) else {
        return Ok(());
    };
    if principals.iter().any(|name| is_ours(name)) {
        return Ok(());
    }
    let mut names: Vec<_> = principals.iter().map(|parts| parts.join("/")).collect();
    names.sort();
    names.dedup();
    names.truncate(NAMES_MAX);
    let found = match names.is_empty() {
        true => "no key at all".into(),
        false => format!("only keys of {}", names.join(", ")),
    };
    Err(Error::ticket(
        NoTicket::Keys,
        format!(
            "{}: {found} in it, and none of ftp/HOST or host/HOST",
            path.display()
        ),
    ))
}

/// Refuses a keytab of which others than its owner's group can learn, or that they can change.
pub(super) fn must_be_kept(keytab: Option<&Path>) -> Result<()> {
    let Some(path) = keytab.map(Path::to_owned).or_else(usual_keytab) else {
        return Ok(());
    };
    let mode = match fs::metadata(&path) {
        Ok(meta) => meta.permissions().mode() & 0o777,
        Err(cause) => return Err(Error::io(path, cause)),
    };
    match mode & EXPOSED {
        0 => Ok(()),
        _ => Err(Error::exposed(
            path,
            format!(
                "others may use it (mode {mode:04o}), and who has its keys can pass for this host"
            ),
        )),
    }
}

/// Refuses to wait for tickets that the library could not note: it takes none then.
pub(super) fn must_be_noted() -> Result<()> {
    let Some(dir) = replays() else {
        return Ok(());
    };
    may_write(&dir).map_err(|cause| Error::Ticket {
        why: NoTicket::Replays,
        said: format!(
            "the replay cache cannot be written: {}: {}",
            dir.display(),
            why(&cause)
        ),
    })
}

/// Returns the directory where MIT's library notes tickets; `None`: it does otherwise.
fn replays() -> Option<PathBuf> {
    let is_elsewhere = ["KRB5RCACHENAME", "KRB5RCACHETYPE"]
        .into_iter()
        .any(|name| variable(name).is_some());
    let files = variable("KRB5_CONFIG").unwrap_or_else(|| "/etc/krb5.conf".into());
    let mut files = files.as_os_str().as_bytes().split(|&byte| byte == b':');
    let is_configured = files.any(|file| {
        let text = fs::read(Path::new(std::ffi::OsStr::from_bytes(file))).unwrap_or_default();
        String::from_utf8_lossy(&text).contains("default_rcache_name")
    });
    let named = variable("KRB5RCACHEDIR").or_else(|| variable("TMPDIR"));
    (!is_elsewhere && !is_configured).then(|| named.unwrap_or_else(|| "/var/tmp".into()))
}

fn may_write(dir: &Path) -> io::Result<()> {
    let noted = dir.join(format!("krb5_{}.rcache2", godwit_sys::user_id()));
    match fs::OpenOptions::new().read(true).write(true).open(noted) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => return other.map(drop),
    }
    let trial = dir.join(format!(".godwit-{}", std::process::id()));
    fs::File::create_new(&trial)?;
    fs::remove_file(trial)
}

pub(super) fn usual_keytab() -> Option<PathBuf> {
    match variable("KRB5_KTNAME") {
        Some(_) => in_environment(),
        None => Some("/etc/krb5.keytab".into()),
    }
}

/// Returns the keytab that the environment names, if it is a file.
pub(super) fn in_environment() -> Option<PathBuf> {
    let named = variable("KRB5_KTNAME")?;
    let text = named.to_str()?;
    match text.split_once(':') {
        Some(("FILE" | "WRFILE", path)) => Some(path.into()),
        Some((kind, _)) if !kind.contains('/') => None,
        _ => Some(named),
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    let value = env::var_os(name).filter(|value| !value.is_empty());
    value.map(Into::into)
}

fn is_ours(parts: &[String]) -> bool {
    match parts {
        [kind, host] => {
            KINDS.contains(&kind.as_str()) && !host.is_empty() && !host.starts_with('@')
        }
        _ => false,
    }
}

/// Returns the principals of a keytab, the realm as the last part; `None`: it has another format.
/// The format is version 2 of MIT.
fn principals(bytes: &[u8]) -> Option<Vec<Vec<String>>> {
    let mut left = bytes.strip_prefix(b"\x05\x02")?;
    let mut found = Vec::new();
    while let Some((length, rest)) = left.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        // A negative one is the length of a hole.
        let (entry, rest) = rest.split_at_checked(length.unsigned_abs() as usize)?;
        if length > 0 {
            found.push(principal(entry)?);
        }
        left = rest;
    }
    Some(found)
}

fn principal(mut entry: &[u8]) -> Option<Vec<String>> {
    let number = |entry: &mut &[u8]| {
        let (number, rest) = entry.split_first_chunk::<2>()?;
        *entry = rest;
        Some(usize::from(u16::from_be_bytes(*number)))
    };
    let count = number(&mut entry)?;
    let mut texts = Vec::new();
    for _ in 0..=count {
        let length = number(&mut entry)?;
        let (text, rest) = entry.split_at_checked(length)?;
        entry = rest;
        texts.push(String::from_utf8_lossy(text).into_owned());
    }
    let realm = texts.remove(0);
    texts.last_mut()?.push_str(&format!("@{realm}"));
    Some(texts)
}

const NAMES_MAX: usize = 5;
/// A group that may read it was meant to: services share keytabs so.
const EXPOSED: u32 = 0o026;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(parts: &[&str]) -> Vec<u8> {
        let mut entry = u16::try_from(parts.len() - 1)
            .unwrap()
            .to_be_bytes()
            .to_vec();
        for part in parts {
            entry.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
            entry.extend(part.as_bytes());
        }
        entry.extend([0; 20]);
        let length = i32::try_from(entry.len()).unwrap().to_be_bytes();
        [&length[..], &entry].concat()
    }

    fn hole(length: i32) -> Vec<u8> {
        let bytes = vec![0; length.unsigned_abs() as usize];
        [&(-length).to_be_bytes()[..], &bytes].concat()
    }

    #[test]
    fn only_ftp_and_host_keys_count() {
        let keytab = |entries: &[Vec<u8>]| [b"\x05\x02", entries.concat().as_slice()].concat();
        let ours = |parts: &[&str]| {
            let text = keytab(&[hole(7), entry(&["R", "alice"]), entry(parts)]);
            let found = principals(&text).unwrap();
            assert_eq!(found.len(), 2);
            found.iter().any(|name| is_ours(name))
        };
        assert!(ours(&["R", "ftp", "fermi"]) && ours(&["R", "host", "fermi"]));
        for wrong in [
            &["R", "ftp"][..],
            &["R", "HTTP", "fermi"],
            &["R", "ftp", ""],
            &["R", "ftp", "a", "b"],
        ] {
            assert!(!ours(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn keytab_readable_by_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keytab");
        fs::write(&path, b"").unwrap();
        for (mode, is_kept) in [
            (0o400, true),
            (0o600, true),
            (0o640, true),
            (0o660, false),
            (0o644, false),
            (0o602, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(must_be_kept(Some(&path)).is_ok(), is_kept, "{mode:o}");
        }
    }

    #[test]
    fn non_keytab_is_left_to_library() {
        let whole = [b"\x05\x02".to_vec(), entry(&["R", "alice"])].concat();
        assert_eq!(principals(&whole).unwrap(), [["alice@R"]]);
        for wrong in [
            &b""[..],
            b"\x05\x01",
            &whole[..20],
            b"\x05\x02\x80\0\0\0",
            b"\x05\x02\0\0\0\x02\xff\xff",
        ] {
            assert_eq!(principals(wrong), None, "{wrong:x?}");
        }
        assert_eq!(principals(b"\x05\x02").unwrap().len(), 0);
    }
}
