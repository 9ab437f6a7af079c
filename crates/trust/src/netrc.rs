//! Passwords for other servers, as `ftp`, `curl` and `wget` find them: in `~/.netrc`, or the file
//! that `NETRC` names. So they need not be in a URL, where `ps` shows them.
//!
//! `machine HOST login NAME password SECRET`, in any arrangement of lines; `default` is for hosts
//! without a `machine`. Macros are skipped; a remark begins a line with `#`.

use crate::{
    Error, Result,
    credential::{read, read_key},
    discover::{Surroundings, named},
};
use std::path::Path;

/// Returns the login of a host from the user's file: that of `user`, or the first if `user` is
/// `None`. A file with passwords that others could read is refused.
pub fn netrc_login(host: &str, user: Option<&str>) -> Result<Option<(String, String)>> {
    let here = Surroundings::of_this_process();
    if let Some(path) = here.named("NETRC") {
        return named("NETRC", login_in(&path, host, user));
    }
    let Some(path) = here.home().map(|home| home.join(".netrc")) else {
        return Ok(None);
    };
    match path.exists() {
        true => login_in(&path, host, user),
        false => Ok(None),
    }
}

fn login_in(path: &Path, host: &str, user: Option<&str>) -> Result<Option<(String, String)>> {
    let bad = |what: String| Error::bad_file(path, what);
    let text = String::from_utf8(read(path)?).map_err(|_| bad("is not UTF-8".into()))?;
    let entries = parse(&text).map_err(bad)?;
    if entries.iter().any(NetrcEntry::is_secret) {
        read_key(path)?; // it is ours alone
    }
    let fits = |entry: &&NetrcEntry| user.is_none_or(|user| entry.login.as_deref() == Some(user));
    let of = |wanted: Option<&str>| {
        let mut those = entries
            .iter()
            .filter(|entry| entry.machine.as_deref() == wanted);
        those.find(fits)
    };
    let found = of(Some(host)).or_else(|| of(None));
    Ok(found.and_then(|entry| Some((entry.login.clone()?, entry.password.clone()?))))
}

#[derive(Default)]
struct NetrcEntry {
    /// `None`: all that no other names.
    machine: Option<String>,
    login: Option<String>,
    password: Option<String>,
}

impl NetrcEntry {
    fn is_secret(&self) -> bool {
        let is_nobody = |login: &str| ["anonymous", "ftp"].contains(&login);
        self.password.is_some() && !self.login.as_deref().is_some_and(is_nobody)
    }
}

fn parse(text: &str) -> Result<Vec<NetrcEntry>, String> {
    let mut entries: Vec<NetrcEntry> = Vec::new();
    let mut words = NetrcWords(text);
    while let Some(word) = words.next()? {
        match (&*word, entries.last_mut()) {
            ("machine", _) => {
                let machine = Some(words.value(&word)?);
                entries.push(NetrcEntry {
                    machine,
                    ..NetrcEntry::default()
                });
            }
            ("default", _) => entries.push(NetrcEntry::default()),
            ("macdef", _) => words.skip_macro(),
            ("login", Some(entry)) => entry.login = Some(words.value(&word)?),
            ("password", Some(entry)) => entry.password = Some(words.value(&word)?),
            ("account", Some(_)) => drop(words.value(&word)?),
            ("login" | "password" | "account", None) => {
                return Err(format!("{word} stands before any machine"));
            }
            // Others keep more there (port).
            _ => {}
        }
    }
    Ok(entries)
}

/// Rest of a file.
struct NetrcWords<'a>(&'a str);

impl NetrcWords<'_> {
    fn next(&mut self) -> Result<Option<String>, String> {
        loop {
            self.0 = self.0.trim_start();
            match self.0.starts_with('#') {
                true => self.0 = self.0.split_once('\n').map_or("", |(_, rest)| rest),
                false => break,
            }
        }
        self.word()
    }

    /// Returns the value of a keyword: a secret may begin with any character.
    fn value(&mut self, of: &str) -> Result<String, String> {
        self.0 = self.0.trim_start();
        let value = self.word()?;
        value.ok_or_else(|| format!("nothing stands behind {of}"))
    }

    fn word(&mut self) -> Result<Option<String>, String> {
        let Some(quoted) = self.0.strip_prefix('"') else {
            let end = self.0.find(char::is_whitespace).unwrap_or(self.0.len());
            let (word, rest) = self.0.split_at(end);
            self.0 = rest;
            return Ok(Some(word.to_owned()).filter(|word| !word.is_empty()));
        };
        let (mut word, mut letters) = (String::new(), quoted.char_indices());
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Ok(Some(word));
                }
                '\\' => word.extend(letters.next().map(|(_, letter)| letter)),
                letter => word.push(letter),
            }
        }
        Err("a quotation mark is not closed".into())
    }

    /// Skips a macro, up to the next empty line.
    fn skip_macro(&mut self) {
        self.0 = self.0.split_once("\n\n").map_or("", |(_, rest)| rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    const FILE: &str = "\
# of mine
machine fermi.example login alice password \"two words \\\" \\\\\"
machine fermi.example
  login bob
  account x
  password #secret
macdef init
  machine none login none password none

machine other.example login carol port 21
default login anonymous password me@
";

    fn found(text: &str, mode: u32, host: &str, user: Option<&str>) -> Result<Option<String>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("netrc");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let found = login_in(&path, host, user)?;
        Ok(found.map(|(login, password)| format!("{login} {password}")))
    }

    #[test]
    fn host_has_own_logins_others_default() {
        for (host, user, login) in [
            ("fermi.example", None, Some("alice two words \" \\")),
            (
                "fermi.example",
                Some("alice"),
                Some("alice two words \" \\"),
            ),
            ("fermi.example", Some("bob"), Some("bob #secret")),
            ("fermi.example", Some("eve"), None),
            ("none", None, Some("anonymous me@")),
            ("none", Some("none"), None),
            ("other.example", None, None),
        ] {
            let told = found(FILE, 0o600, host, user).unwrap();
            assert_eq!(told.as_deref(), login, "{host} {user:?}");
        }
    }

    #[test]
    fn passwords_that_others_can_read_are_refused() {
        let told = found(FILE, 0o644, "none", None).unwrap_err();
        assert!(matches!(told, Error::Exposed { .. }), "{told}");
        let nobody = "machine a login anonymous password me@\nmachine b login bob";
        let told = found(nobody, 0o644, "a", None).unwrap();
        assert_eq!(told.as_deref(), Some("anonymous me@"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for wrong in ["login x", "machine", "machine a login", "machine \"a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
            let _ = parse(&text);
        }
    }
}
