//! Facts of a file as MLST, MLSD and MLSR tell them (RFC 3659 §7, GFD.20):
//! `Type=file;Size=5;Modify=20261121020036; name`.

use crate::{Error, Result, error::shown, time};
use std::time::Duration;

/// The facts of one file in a line; `None`: the line does not have that fact.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Facts {
    /// The kind of the entry.
    pub kind: Option<FactKind>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last change since the epoch; a time before 1970 counts as not told.
    pub modify: Option<Duration>,
    /// The user's permissions, in the letters of the RFC.
    pub perm: Option<String>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Name of the owner, else number.
    pub owner: Option<String>,
    /// Name of the group, else number.
    pub group: Option<String>,
    /// Equal for two names of one file.
    pub unique: Option<String>,
    /// When anything of it was last changed, its rights or its name among it.
    pub touched: Option<Duration>,
    /// The target of a link of this name; `kind` may be the target's.
    pub link: Option<Vec<u8>>,
}

/// The fact `Type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FactKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// The directory that is listed.
    This,
    /// The directory above.
    Parent,
    /// A symbolic link: `slink` (GCT), `OS.unix=slink:…` (ProFTPD), `OS.unix=symlink` (others).
    Link,
    /// Anything else.
    Other,
}

/// Facts and a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedFacts {
    /// The facts about the file.
    pub facts: Facts,
    /// Raw bytes; a name, or a path in MLST and MLSR.
    pub name: Vec<u8>,
}

impl NamedFacts {
    /// Reads a line without its end. All behind the first space is the name.
    pub fn parse(line: &[u8]) -> Result<Self> {
        let bad = || Error::BadFacts { text: shown(line) };
        // A link target may contain spaces, a fact list ends with `; `.
        let end = match line.first() {
            Some(b' ') => 0,
            _ => line.windows(2).position(|w| w == b"; ").ok_or_else(bad)? + 1,
        };
        let (facts, name) = (&line[..end], &line[end + 1..]);
        if name.is_empty() {
            return Err(bad());
        }
        Ok(Self {
            facts: Facts::parse(facts).ok_or_else(bad)?,
            name: name.to_vec(),
        })
    }

    /// Returns the line without its end. A name with a line feed has no line: the caller leaves it out or refuses.
    pub fn encode(&self) -> Vec<u8> {
        let mut line = self.facts.encode();
        line.push(b' ');
        line.extend(&self.name);
        line
    }
}

impl Facts {
    /// Reads `fact=value;fact=value;`. Unknown facts are ignored.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut facts = Self::default();
        let (mut uid, mut gid) = (None, None);
        for fact in text.split(|&b| b == b';').filter(|fact| !fact.is_empty()) {
            let at = fact.iter().position(|&b| b == b'=')?;
            let (name, value) = (&fact[..at], &fact[at + 1..]);
            let text = || String::from_utf8(value.to_vec()).ok();
            match &name.to_ascii_lowercase()[..] {
                b"type" => facts.take_kind(value),
                b"size" | b"sizd" => facts.size = Some(number(value)?),
                b"modify" => facts.modify = time::parse(value),
                b"unix.ctime" => facts.touched = time::parse(value),
                b"perm" => facts.perm = text(),
                b"unix.mode" => facts.mode = Some(octal(value)?),
                b"unix.ownername" | b"unix.owner" => facts.owner = text(),
                b"unix.groupname" | b"unix.group" => facts.group = text(),
                b"unix.uid" => uid = text(),
                b"unix.gid" => gid = text(),
                b"unique" => facts.unique = text(),
                b"unix.slink" => facts.link = Some(value.to_vec()),
                _ => {}
            }
        }
        facts.owner = facts.owner.or(uid);
        facts.group = facts.group.or(gid);
        Some(facts)
    }

    fn take_kind(&mut self, value: &[u8]) {
        let lower = value.to_ascii_lowercase();
        self.kind = Some(match &lower[..] {
            b"file" => FactKind::File,
            b"dir" => FactKind::Directory,
            b"cdir" => FactKind::This,
            b"pdir" => FactKind::Parent,
            b"slink" | b"os.unix=slink" | b"os.unix=symlink" => FactKind::Link,
            _ if lower.starts_with(b"os.unix=slink:") => {
                self.link = Some(value[b"os.unix=slink:".len()..].to_vec());
                FactKind::Link
            }
            _ => FactKind::Other,
        });
    }

    fn encode(&self) -> Vec<u8> {
        let mut line = Vec::new();
        let mut fact = |name: &str, value: &[u8]| {
            line.extend(name.bytes());
            line.push(b'=');
            line.extend(value);
            line.push(b';');
        };
        if let Some(kind) = self.kind {
            let text = match kind {
                FactKind::File => "file",
                FactKind::Directory => "dir",
                FactKind::This => "cdir",
                FactKind::Parent => "pdir",
                FactKind::Link => "slink",
                FactKind::Other => "other",
            };
            fact("Type", text.as_bytes());
        }
        if let Some(modify) = self.modify {
            fact("Modify", time::Written(modify).to_string().as_bytes());
        }
        if let Some(touched) = self.touched {
            fact("UNIX.ctime", time::Written(touched).to_string().as_bytes());
        }
        if let Some(size) = self.size {
            fact("Size", size.to_string().as_bytes());
        }
        let texts = [
            ("Perm", &self.perm),
            ("UNIX.owner", &self.owner),
            ("UNIX.group", &self.group),
            ("Unique", &self.unique),
        ];
        if let Some(mode) = self.mode {
            fact("UNIX.mode", format!("{mode:04o}").as_bytes());
        }
        for (name, text) in texts {
            if let Some(text) = text {
                fact(name, text.as_bytes());
            }
        }
        if let Some(link) = &self.link {
            fact("UNIX.slink", link);
        }
        line
    }
}

fn number(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.trim().parse().ok()
}

fn octal(text: &[u8]) -> Option<u32> {
    let mode = u32::from_str_radix(str::from_utf8(text).ok()?.trim(), 8).ok()?;
    Some(mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named() -> impl Strategy<Value = NamedFacts> {
        let kind = prop::option::of(prop::sample::select(vec![
            FactKind::File,
            FactKind::Directory,
            FactKind::This,
            FactKind::Parent,
            FactKind::Link,
            FactKind::Other,
        ]));
        let text = || prop::option::of("[a-z0-9]{1,9}");
        let time = || prop::option::of((0..9_999_999_999u64).prop_map(Duration::from_secs));
        let numbers = (
            kind,
            any::<Option<u64>>(),
            (time(), time()),
            prop::option::of(0..0o10000u32),
        );
        let texts = (text(), text(), text(), text(), text());
        let name = prop::collection::vec(
            any::<u8>().prop_filter("no line end", |b| !b"\r\n".contains(b)),
            1..20,
        );
        (numbers, texts, name).prop_map(
            |((kind, size, (modify, touched), mode), (perm, owner, group, unique, link), name)| {
                NamedFacts {
                    facts: Facts {
                        kind,
                        size,
                        modify,
                        perm,
                        mode,
                        owner,
                        group,
                        unique,
                        touched,
                        link: link.map(String::into_bytes),
                    },
                    name,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn facts_read_as_they_were_written(named in named()) {
            prop_assert_eq!(NamedFacts::parse(&named.encode()), Ok(named));
        }

        #[test]
        fn any_line_is_read_or_refused(line in "[a-zA-Z=;:. 0-9]{0,60}") {
            let _ = NamedFacts::parse(line.as_bytes());
        }
    }

    #[test]
    fn gct_facts_have_link_and_kind() {
        let line = b"Type=file;Modify=20210101000000;Size=6;Perm=awr;UNIX.mode=0640;UNIX.owner=daemon;UNIX.uid=65534;UNIX.group=nogroup;UNIX.gid=65534;Unique=fe00-9b210f;UNIX.slink=/data/a b; /data/ln";
        let named = NamedFacts::parse(line).unwrap();
        assert_eq!(named.name, b"/data/ln");
        assert_eq!(named.facts.link.as_deref(), Some(&b"/data/a b"[..]));
        assert_eq!(named.facts.kind, Some(FactKind::File));
        assert_eq!(named.facts.mode, Some(0o640));
        assert_eq!(named.facts.owner.as_deref(), Some("daemon"));
    }

    #[test]
    fn fact_names_ignore_case_file_names_raw() {
        let named = NamedFacts::parse(b"type=OS.unix=slink:/t;SIZE=7;x.y=z; a; b ").unwrap();
        assert_eq!(named.facts.kind, Some(FactKind::Link));
        assert_eq!(named.facts.link.as_deref(), Some(&b"/t"[..]));
        assert_eq!(
            (named.facts.size, &named.name[..]),
            (Some(7), &b"a; b "[..])
        );
        assert_eq!(NamedFacts::parse(b" bare").unwrap().name, b"bare");
    }

    #[test]
    fn bad_facts_are_refused() {
        for line in [
            "",
            "l",
            "Size=x; a",
            "Size=-1; a",
            "Type=file;",
            "Type=file; ",
            "nonsense; a",
            "UNIX.mode=9; a",
        ] {
            assert!(NamedFacts::parse(line.as_bytes()).is_err(), "{line:?}");
        }
    }
}
