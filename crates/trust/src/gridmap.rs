//! The grid-mapfile: which accounts belong to a certificate's subject.
//!
//! A line is `"SUBJECT" account[,account…]`; `#` begins a remark, a backslash takes the next
//! character as it is, `\xHH` is a byte. Whether such an account exists is not asked here.

use crate::{Identity, Result, credential::read, identity::spelled, kept::FileCache};
use std::{collections::HashMap, path::Path, sync::Arc};

/// Accounts of this machine that each subject may use, the first by default. Each question checks
/// whether the file has changed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gridmap(Arc<FileCache<AccountMap>>);

pub(crate) type AccountMap = HashMap<String, Vec<String>>;

impl Gridmap {
    /// Reads a grid-mapfile; a line that is not understood is an error that names it.
    pub fn read(path: &Path) -> Result<Self> {
        let map = Self(Arc::new(FileCache::of(path)));
        map.current()?;
        Ok(map)
    }

    /// Returns the default account of an identity.
    pub fn account(&self, who: &Identity) -> Option<String> {
        self.accounts(who).into_iter().next()
    }

    /// Returns all accounts that an identity may ask for. An unreadable file maps no identity.
    pub fn accounts(&self, who: &Identity) -> Vec<String> {
        let Ok(accounts) = self.current() else {
            return Vec::new();
        };
        accounts
            .get(&spelled(who.subject()))
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    fn current(&self) -> Result<Arc<AccountMap>> {
        self.0.now(read, parse)
    }
}

pub(crate) fn parse(text: &[u8]) -> Result<AccountMap, String> {
    let mut accounts = AccountMap::new();
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let (subject, named) =
            entry(line).map_err(|what| format!("line {}: {what}", number + 1))?;
        let known = accounts.entry(spelled(&subject)).or_default();
        for account in named {
            if !known.contains(&account) {
                known.push(account);
            }
        }
    }
    Ok(accounts)
}

fn entry(line: &[u8]) -> Result<(String, Vec<String>), String> {
    let (subject, rest) = subject(line)?;
    let rest = String::from_utf8_lossy(rest);
    let rest = rest.split('#').next().unwrap_or_default();
    if rest.contains('"') {
        return Err(lone_quote());
    }
    let named: Vec<_> = rest
        .split(|c: char| c == ',' || c.is_ascii_whitespace())
        .filter(|account| !account.is_empty())
        .map(str::to_owned)
        .collect();
    if named.is_empty() {
        return Err(format!("no account for {subject}"));
    }
    Ok((subject, named))
}

/// Reads the subject, quoted or up to the first blank; returns what follows too.
fn subject(line: &[u8]) -> Result<(String, &[u8]), String> {
    let (is_quoted, line) = match line.strip_prefix(b"\"") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let mut name = String::new();
    let mut left = line;
    loop {
        let Some((&byte, rest)) = left.split_first() else {
            return match is_quoted {
                true => Err("the quotation mark is not closed".into()),
                false => Ok((name, left)),
            };
        };
        left = rest;
        match byte {
            b'"' if is_quoted => return Ok((name, left)),
            b'"' => return Err(lone_quote()),
            b' ' | b'\t' if !is_quoted => return Ok((name, left)),
            b'\\' => left = escaped(left, &mut name)?,
            _ => push(byte, &mut name),
        }
    }
}

/// A half-quoted subject would be another name, or none.
fn lone_quote() -> String {
    "a quotation mark out of place: two stand around the subject, and none elsewhere".into()
}

fn escaped<'a>(left: &'a [u8], name: &mut String) -> Result<&'a [u8], String> {
    match left {
        [b'x' | b'X', high, low, rest @ ..] => {
            let digit = |byte: &u8| char::from(*byte).to_digit(16);
            let (Some(high), Some(low)) = (digit(high), digit(low)) else {
                return Err("\\x wants two hexadecimal digits".into());
            };
            push((high * 16 + low) as u8, name);
            Ok(rest)
        }
        [byte, rest @ ..] => {
            push(*byte, name);
            Ok(rest)
        }
        [] => Err("nothing follows the backslash".into()),
    }
}

/// Bytes beyond ASCII are written as subjects have them (`\xC3`).
fn push(byte: u8, name: &mut String) {
    match byte {
        b' '..=b'~' => name.push(char::from(byte)),
        _ => name.push_str(&format!("\\x{byte:02X}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn accounts(text: &str, subject: &str) -> Vec<String> {
        let accounts = parse(text.as_bytes()).unwrap();
        accounts.get(subject).cloned().unwrap_or_default()
    }

    #[test]
    fn subject_keeps_accounts_in_order() {
        let text = "# people\n\"/O=Grid/CN=alice b\" alice,shared\n\n\"/O=Grid/CN=alice b\" shared other\n";
        assert_eq!(
            accounts(text, "/O=Grid/CN=alice b"),
            ["alice", "shared", "other"]
        );
        assert_eq!(accounts(text, "/O=Grid/CN=bob"), [""; 0]);
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(
            accounts(r#""/O=G/CN=a \"b\" \\c\x41" x"#, r#"/O=G/CN=a "b" \cA"#),
            ["x"]
        );
        assert_eq!(accounts("/O=G/CN=plain x # me", "/O=G/CN=plain"), ["x"]);
        assert_eq!(
            accounts("\"/O=G/Email=a@b\" x", "/O=G/emailAddress=a@b"),
            ["x"]
        );
    }

    #[test]
    fn names_beyond_ascii_match_what_certificates_show() {
        // X509_NAME_oneline writes UTF-8 as \xC3\xBC; a mapfile may have either form.
        assert_eq!(accounts("\"/CN=J\u{fc}rg\" x", "/CN=J\\xC3\\xBCrg"), ["x"]);
        assert_eq!(
            accounts("\"/CN=J\\xc3\\xbcrg\" x", "/CN=J\\xC3\\xBCrg"),
            ["x"]
        );
    }

    #[test]
    fn bad_line_is_named_by_number() {
        for wrong in ["\"/CN=a x", "\"/CN=a\"", "\"/CN=\\xZZ\" x", "/CN=a"] {
            let error = parse(format!("# one\n{wrong}").as_bytes()).unwrap_err();
            assert!(error.starts_with("line 2: "), "{error}");
        }
    }

    #[test]
    fn lone_quotation_mark_is_refused() {
        for wrong in [
            "/CN=a \"alice",
            "/CN=a b\" alice",
            "/CN=a\" alice",
            "\"/CN=a\" alice\"",
            "\"/CN=a\"b\" alice",
        ] {
            let error = parse(format!("# one\n{wrong}").as_bytes()).unwrap_err();
            assert!(error.starts_with("line 2: a quotation mark"), "{error}");
        }
        assert_eq!(accounts("/CN=a\\\" x # \"y", "/CN=a\""), ["x"]);
    }

    #[test]
    fn changed_file_counts_at_next_lookup() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grid-mapfile");
        fs::write(&path, "\"/CN=a\" one").unwrap();
        let map = Gridmap::read(&path).unwrap();
        let a = Identity::named("/CN=a");
        assert_eq!(map.account(&a).unwrap(), "one");
        fs::write(&path, "\"/CN=a\" three").unwrap();
        assert_eq!(map.account(&a).unwrap(), "three");
        fs::remove_file(&path).unwrap();
        assert_eq!(map.account(&a), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&text);
        }

        #[test]
        fn a_quoted_subject_comes_back(subject in "/CN=[ -~]{0,40}") {
            let quoted = subject.replace('\\', "\\\\").replace('"', "\\\"");
            let line = format!("\"{quoted}\" me");
            prop_assert_eq!(entry(line.as_bytes()).unwrap(), (subject, vec!["me".to_owned()]));
        }
    }
}
