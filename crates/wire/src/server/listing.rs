//! Lines of listings: facts (RFC 3659), and the form of `ls -l`.

use crate::time::{Civil, Written};
use std::{io::Write, os::unix::ffi::OsStrExt, path::Path, path::PathBuf, time::Duration};

/// The attributes of a file that a listing can show.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListedStat {
    /// The kind of the entry.
    pub kind: ListedKind,
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change since the epoch.
    pub modify: Option<Duration>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Name or number.
    pub owner: Option<String>,
    /// Name or number.
    pub group: Option<String>,
    /// The name of a number, where it has one.
    pub owner_name: Option<String>,
    /// The name of a number, where it has one.
    pub group_name: Option<String>,
    /// Where a link points to; of a followed link too.
    pub target: Option<PathBuf>,
    /// Equal for two names of one file.
    pub unique: Option<String>,
    /// When any of the file or its attributes last changed, which no user sets; listed for nodes only.
    pub touched: Option<Duration>,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum ListedKind {
    File,
    Directory,
    Link,
    Other,
    /// The directory that is being listed.
    Current,
    /// The one above it.
    Parent,
}

/// The form of a listing and its depth.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listing {
    /// The form of a line.
    pub form: Form,
    /// Includes all levels below, with relative paths; links are listed, not followed.
    pub recursive: bool,
    /// The names to list, with `*` and `?`; only in forms for people.
    pub pattern: Option<Vec<u8>>,
    /// Whether names may contain line feeds (RFC 2640): the peer is a node.
    pub raw_names: bool,
    /// For the facts of permission.
    pub may_write: bool,
    /// How finely facts tell times.
    pub times: Times,
}

/// The resolution of times in facts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Times {
    /// Whole seconds, as in GCT. RFC 3659 §2.3 allows fractions, but few servers send them, and scripts that read
    /// exactly 14 digits fail.
    Seconds,
    /// With the resolution of the disk, for nodes.
    Nanoseconds,
}

impl Times {
    /// Returns a time in this resolution.
    pub(crate) fn written(self, time: Duration) -> Written {
        match self {
            Self::Seconds => Written(Duration::from_secs(time.as_secs())),
            Self::Nanoseconds => Written(time),
        }
    }
}

/// The form of a line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Form {
    /// `MLSD MLSR MLSC MLST`.
    Facts(Facts),
    /// `LIST STAT`, as `ls -l`. Times need to know today.
    Long,
    /// `NLST`.
    Names,
}

/// The facts that a client asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Facts(Vec<FactName>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FactName {
    Type,
    Modify,
    Size,
    Perm,
    Charset,
    Mode,
    Owner,
    Uid,
    Group,
    Gid,
    Unique,
    Link,
}

impl Default for Facts {
    fn default() -> Self {
        Self(
            FACTS
                .iter()
                .map(|&(fact, _)| fact)
                .filter(|&f| f != FactName::Charset)
                .collect(),
        )
    }
}

impl Facts {
    /// Chooses those of `names` that are known.
    pub fn of(names: &[String]) -> Self {
        let wanted = |name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name));
        Self(
            FACTS
                .iter()
                .filter(|(_, name)| wanted(name))
                .map(|&(fact, _)| fact)
                .collect(),
        )
    }

    /// Returns the line of FEAT: facts that are on now have a star.
    pub fn announced(&self) -> String {
        let one = |&(fact, name): &(FactName, &str)| {
            format!("{name}{};", if self.0.contains(&fact) { "*" } else { "" })
        };
        FACTS.iter().map(one).collect()
    }

    /// Their names, as `OPTS MLST` answers.
    pub fn chosen(&self) -> String {
        let chosen = FACTS.iter().filter(|(fact, _)| self.0.contains(fact));
        chosen.map(|(_, name)| format!("{name};")).collect()
    }

    /// Writes the facts and the blank behind them.
    pub(crate) fn write(
        &self,
        stat: &ListedStat,
        may_write: bool,
        times: Times,
        out: &mut Vec<u8>,
    ) {
        for &fact in &self.0 {
            write_fact(fact, stat, may_write, times, out);
        }
        out.push(b' ');
    }
}

impl Listing {
    /// Appends the line of one entry; `now` since the epoch.
    pub fn write(&self, name: &Path, stat: &ListedStat, now: Duration, out: &mut Vec<u8>) {
        match &self.form {
            Form::Facts(facts) => facts.write(stat, self.may_write, self.times, out),
            Form::Long => write_long(stat, now, out),
            Form::Names => {}
        }
        self.write_name(name.as_os_str().as_bytes(), out);
        out.extend_from_slice(b"\r\n");
    }

    /// RFC 2640: a CR inside a name is followed by NUL, a lone LF stays. Other clients would read a line feed as the
    /// end of a line, and the rest as a forged entry. They receive `?` in place of a CR or LF, a name that does not
    /// exist.
    fn write_name(&self, name: &[u8], out: &mut Vec<u8>) {
        for &byte in name {
            match byte {
                b'\r' if self.raw_names => out.extend_from_slice(b"\r\0"),
                b'\r' => out.push(b'?'),
                b'\n' if !self.raw_names => out.push(b'?'),
                byte => out.push(byte),
            }
        }
    }
}

fn write_fact(fact: FactName, stat: &ListedStat, may_write: bool, times: Times, out: &mut Vec<u8>) {
    let number = |text: &Option<String>| {
        text.as_deref()
            .is_some_and(|t| t.bytes().all(|b| b.is_ascii_digit()))
    };
    let written = match fact {
        FactName::Type => write!(out, "Type={};", type_of(stat.kind)),
        FactName::Modify => write_times(stat, times, out),
        FactName::Size => write!(out, "Size={};", stat.size),
        FactName::Perm => write!(out, "Perm={};", permissions(stat, may_write)),
        FactName::Charset => write!(out, "Charset=UTF-8;"),
        FactName::Mode => match stat.mode {
            Some(mode) => write!(out, "UNIX.mode={mode:04o};"),
            None => Ok(()),
        },
        FactName::Owner if !number(&stat.owner) => write_text("UNIX.owner", &stat.owner, out),
        FactName::Owner => write_text("UNIX.owner", &stat.owner_name, out),
        FactName::Uid if number(&stat.owner) => write_text("UNIX.uid", &stat.owner, out),
        FactName::Group if !number(&stat.group) => write_text("UNIX.group", &stat.group, out),
        FactName::Group => write_text("UNIX.group", &stat.group_name, out),
        FactName::Gid if number(&stat.group) => write_text("UNIX.gid", &stat.group, out),
        FactName::Uid | FactName::Gid => Ok(()),
        FactName::Unique => write_text("Unique", &stat.unique, out),
        FactName::Link => {
            let target = stat.target.as_deref().map(|t| t.as_os_str().as_bytes());
            // A target with these would end the fact early.
            let fits = |b: &u8| !matches!(b, b';' | b'\r' | b'\n' | 0);
            if let Some(target) = target.filter(|t| t.iter().all(fits)) {
                out.extend_from_slice(b"UNIX.slink=");
                out.extend_from_slice(target);
                out.push(b';');
            }
            Ok(())
        }
    };
    written.expect("a vector takes everything");
}

fn write_times(stat: &ListedStat, times: Times, out: &mut Vec<u8>) -> std::io::Result<()> {
    if let Some(time) = stat.modify {
        write!(out, "Modify={};", times.written(time))?;
    }
    match (stat.touched, times) {
        (Some(time), Times::Nanoseconds) => write!(out, "UNIX.ctime={};", times.written(time)),
        _ => Ok(()),
    }
}

fn write_text(key: &str, value: &Option<String>, out: &mut Vec<u8>) -> std::io::Result<()> {
    match value {
        Some(value) => write!(out, "{key}={value};"),
        None => Ok(()),
    }
}

fn type_of(kind: ListedKind) -> &'static str {
    match kind {
        ListedKind::File => "file",
        ListedKind::Directory => "dir",
        ListedKind::Link => "slink",
        ListedKind::Other => "OS.unix=special",
        ListedKind::Current => "cdir",
        ListedKind::Parent => "pdir",
    }
}

/// RFC 3659 §7.5.5, as far as mode and kind decide without a try.
fn permissions(stat: &ListedStat, may_write: bool) -> &'static str {
    let readable = stat.mode.is_none_or(|m| m & 0o444 != 0);
    let writable = may_write && stat.mode.is_none_or(|m| m & 0o222 != 0);
    let directory = matches!(
        stat.kind,
        ListedKind::Directory | ListedKind::Current | ListedKind::Parent
    );
    match (directory, readable, writable) {
        (_, false, false) => "",
        (true, true, true) => "cfmpel",
        (true, true, false) => "el",
        (true, false, true) => "cfmp",
        (false, true, true) => "awr",
        (false, true, false) => "r",
        (false, false, true) => "aw",
    }
}

/// `-rw-r--r--   1 owner group  size Mon dd hh:mm `, the form clients expect.
fn write_long(stat: &ListedStat, now: Duration, out: &mut Vec<u8>) {
    let mode = stat.mode.unwrap_or(0o644);
    out.push(match stat.kind {
        ListedKind::Directory | ListedKind::Current | ListedKind::Parent => b'd',
        ListedKind::Link => b'l',
        _ => b'-',
    });
    for shift in [6, 3, 0] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { b'r' } else { b'-' });
        out.push(if bits & 2 != 0 { b'w' } else { b'-' });
        out.push(if bits & 1 != 0 { b'x' } else { b'-' });
    }
    let either = |name: &Option<String>, number: &Option<String>| {
        name.clone()
            .or(number.clone())
            .unwrap_or_else(|| "-".into())
    };
    let owner = either(&stat.owner_name, &stat.owner);
    let group = either(&stat.group_name, &stat.group);
    let date = date(stat.modify.unwrap_or_default(), now);
    write!(out, "   1 {owner:>8} {group:>8} {:>12} {date} ", stat.size)
        .expect("a vector takes everything");
}

/// `ls` shows the year in place of the time when it is not about now.
fn date(time: Duration, now: Duration) -> String {
    let at = Civil::from_epoch(time.as_secs());
    let month = MONTHS[(at.month as usize - 1) % 12];
    let recent = time <= now + DAY && time + HALF_YEAR > now;
    if recent {
        return format!("{month} {:>2} {:02}:{:02}", at.day, at.hour, at.minute);
    }
    format!("{month} {:>2}  {:04}", at.day, at.year)
}

const FACTS: [(FactName, &str); 12] = [
    (FactName::Type, "Type"),
    (FactName::Modify, "Modify"),
    (FactName::Size, "Size"),
    (FactName::Perm, "Perm"),
    (FactName::Charset, "Charset"),
    (FactName::Mode, "UNIX.mode"),
    (FactName::Owner, "UNIX.owner"),
    (FactName::Uid, "UNIX.uid"),
    (FactName::Group, "UNIX.group"),
    (FactName::Gid, "UNIX.gid"),
    (FactName::Unique, "Unique"),
    (FactName::Link, "UNIX.slink"),
];

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY: Duration = Duration::from_secs(86_400);
const HALF_YEAR: Duration = Duration::from_secs(182 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    fn stat() -> ListedStat {
        ListedStat {
            kind: ListedKind::File,
            size: 6,
            modify: Some(Duration::new(1_795_226_436, 5)),
            mode: Some(0o644),
            owner: Some("daemon".into()),
            group: Some("0".into()),
            owner_name: None,
            group_name: Some("root".into()),
            target: None,
            unique: Some("fe00-9b210f".into()),
            touched: Some(Duration::new(1_795_226_437, 7)),
        }
    }

    fn line(form: Form, raw_names: bool, name: &str) -> String {
        let listing = Listing {
            form,
            recursive: false,
            pattern: None,
            raw_names,
            may_write: true,
            times: match raw_names {
                true => Times::Nanoseconds,
                false => Times::Seconds,
            },
        };
        let mut out = Vec::new();
        listing.write(
            Path::new(name),
            &stat(),
            Duration::from_secs(1_795_226_500),
            &mut out,
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn facts_are_those_of_gct() {
        assert_eq!(
            line(Form::Facts(Facts::default()), false, "f 1"),
            "Type=file;Modify=20261121020036;Size=6;Perm=awr;UNIX.mode=0644;UNIX.owner=daemon;UNIX.group=root;UNIX.gid=0;Unique=fe00-9b210f; f 1\r\n"
        );
        let few = Facts::of(&["size".into(), "TYPE".into(), "colour".into()]);
        assert_eq!(few.chosen(), "Type;Size;");
        assert_eq!(
            line(Form::Facts(few), false, "x"),
            "Type=file;Size=6; x\r\n"
        );
    }

    #[test]
    fn times_have_a_fraction_for_ours_only() {
        let modify = |is_ours| line(Form::Facts(Facts::of(&["modify".into()])), is_ours, "x");
        assert_eq!(modify(false), "Modify=20261121020036; x\r\n");
        // When it was last changed, too, which no user of the server sets.
        let told = "Modify=20261121020036.000000005;UNIX.ctime=20261121020037.000000007; x\r\n";
        assert_eq!(modify(true), told);
    }

    #[test]
    fn long_lines_look_like_ls() {
        assert_eq!(
            line(Form::Long, false, "f1"),
            "-rw-r--r--   1   daemon     root            6 Nov 21 02:00 f1\r\n"
        );
        assert_eq!(
            date(Duration::ZERO, Duration::from_secs(1_795_226_500)),
            "Jan  1  1970"
        );
    }

    #[test]
    fn a_name_cannot_forge_an_entry() {
        let name = "x\r\nType=file; /etc/passwd";
        assert_eq!(
            line(Form::Names, false, name),
            "x??Type=file; /etc/passwd\r\n"
        );
        assert_eq!(line(Form::Names, true, "a\nb\rc"), "a\nb\r\0c\r\n");
    }
}
