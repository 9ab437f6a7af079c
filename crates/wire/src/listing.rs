//! Listings, read as they stream in: MLSD and MLSR, NLST, and LIST as `ls -l` or MS-DOS write it.
//!
//! A client opens the listed names, so a name that leaves the directory is refused. A line that cannot be understood
//! is an error that quotes the line. No line is skipped in silence: an incomplete copy is worse than no copy.

use crate::{
    Error, Result,
    error::shown,
    facts::{FactKind, Facts, NamedFacts},
    lines::{End, LineBuffer},
    time::{self, Civil},
};
use std::{borrow::Cow, time::Duration};

/// How lines are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// MLSD, MLSR: facts and a name.
    Facts,
    /// NLST: only a name.
    Names,
    /// LIST: for people, as `ls -l` or as MS-DOS. Times without a year are of
    /// the last twelve months before `now`.
    Ls {
        /// Since the epoch.
        now: Duration,
    },
}

/// How far below the listed directory names may reach.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// Names without a slash.
    Directory,
    /// Paths below it (MLSR).
    Tree,
}

/// A listing that is being read.
#[derive(Debug)]
pub struct Listing {
    lines: LineBuffer,
    form: Form,
    reach: Reach,
    line: u64,
    ends: Option<End>,
    told_itself: bool,
    has_raw_names: bool,
}

impl Listing {
    /// Returns a listing of which nothing came yet.
    pub fn new(form: Form, reach: Reach) -> Self {
        Self {
            lines: LineBuffer::new(LINE_BYTES_MAX),
            form,
            reach,
            line: 0,
            ends: None,
            told_itself: false,
            has_raw_names: false,
        }
    }

    /// Returns an empty listing of a node. Lines end with CR LF only. A lone LF is a part of a name, and so is a CR
    /// with a zero byte behind (docs/formats/ftp-extensions.md).
    pub fn of_ours(form: Form, reach: Reach) -> Self {
        let mut listing = Self::new(form, reach);
        listing.lines.end_with_crlf_only();
        listing.has_raw_names = true;
        listing
    }

    /// Takes bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// Returns the next entry, without the listed directory itself and the one above.
    pub fn next_entry(&mut self) -> Result<Option<NamedFacts>> {
        while let Some((line, end)) = self.lines.next_line()? {
            self.line += 1;
            // A name with a line feed looks like two lines, and the first ends as no other line does. (GCT writes
            // names raw.) The check also catches a name made to look like another entry.
            if *self.ends.get_or_insert(end) != end {
                return Err(bad(self.line, "a line feed inside of a name", line));
            }
            let line = &*raw_name(line, self.has_raw_names);
            match entry(self.form, self.reach, self.line, line)? {
                Line::Entry(named) => return Ok(Some(named)),
                Line::Itself => self.told_itself = true,
                Line::Nothing => {}
            }
        }
        Ok(None)
    }

    /// Returns the last entry if it came without a line end, as some servers send it.
    pub fn finish(mut self) -> Result<Option<NamedFacts>> {
        let rest = self.lines.rest().to_vec();
        self.line += 1;
        Ok(match entry(self.form, self.reach, self.line, &rest)? {
            Line::Entry(named) => Some(named),
            _ => None,
        })
    }

    /// Tells whether the listed directory itself was in the list so far. GCT
    /// answers MLSD of a *file* with that file: then it was not.
    pub fn told_itself(&self) -> bool {
        self.told_itself
    }
}

/// Puts a CR where CR and a zero byte stand for it.
fn raw_name(line: &[u8], is_raw: bool) -> Cow<'_, [u8]> {
    if !is_raw || !line.contains(&0) {
        return Cow::Borrowed(line);
    }
    let mut name = Vec::with_capacity(line.len());
    let mut rest = line.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        name.push(byte);
        if byte == b'\r' {
            rest.next_if_eq(&0);
        }
    }
    Cow::Owned(name)
}

/// A line of a listing, as it was understood.
#[expect(clippy::large_enum_variant, reason = "one lives until the next line")]
enum Line {
    Entry(NamedFacts),
    Itself,
    Nothing,
}

fn entry(form: Form, reach: Reach, number: u64, line: &[u8]) -> Result<Line> {
    // GCT ends a listing with an empty line.
    if line.trim_ascii().is_empty() {
        return Ok(Line::Nothing);
    }
    let named = match form {
        Form::Facts => {
            NamedFacts::parse(line).map_err(|_| bad(number, "no facts and name", line))?
        }
        Form::Names => NamedFacts {
            facts: Facts::default(),
            name: line.to_vec(),
        },
        Form::Ls { .. } if is_total(line) => return Ok(Line::Nothing),
        Form::Ls { now } => unix(line, now)
            .or_else(|| ms_dos(line))
            .ok_or_else(|| bad(number, "neither ls -l nor MS-DOS", line))?,
    };
    let is_dots = named.name == b"." || named.name == b"..";
    match named.facts.kind {
        Some(FactKind::This | FactKind::Parent) => return Ok(Line::Itself),
        _ if is_dots && form != Form::Facts => return Ok(Line::Itself),
        _ => {}
    }
    match why_hostile(&named.name, reach) {
        Some(why) => Err(bad(number, why, line)),
        None => Ok(Line::Entry(named)),
    }
}

fn why_hostile(name: &[u8], reach: Reach) -> Option<&'static str> {
    if name.contains(&0) {
        return Some("a name with a zero byte");
    }
    if reach == Reach::Directory && name.contains(&b'/') {
        return Some("a name with a slash");
    }
    let odd = |part: &[u8]| part.is_empty() || part == b"." || part == b"..";
    name.split(|&b| b == b'/')
        .any(odd)
        .then_some("a name that leaves the directory")
}

fn is_total(line: &[u8]) -> bool {
    line.strip_prefix(b"total ")
        .is_some_and(|rest| !rest.is_empty() && rest.trim_ascii().iter().all(u8::is_ascii_digit))
}

/// Reads `-rw-r--r-- 1 owner group 1000 Nov 21 02:10 name`: with and without a
/// group, with a year or a time or an ISO date, links with ` -> target`.
fn unix(line: &[u8], now: Duration) -> Option<NamedFacts> {
    let (kind, mode) = permissions(line.get(..10)?)?;
    let words = words(line);
    let at = (3..words.len()).find(|&i| date(&words[i..], now).is_some())?;
    let (modify, dates) = date(&words[at..], now)?;
    let size = number(words[at - 1].text);
    // Devices tell two numbers instead of a size.
    if size.is_none() && kind != FactKind::Other {
        return None;
    }
    let last = &words[at + dates - 1];
    // One space stands between date and name; more belong to the name.
    let name = line.get(last.end + 1..).filter(|name| !name.is_empty())?;
    let (name, link) = match kind {
        FactKind::Link => split_arrow(name),
        _ => (name, None),
    };
    // words: permissions, links, owner, [group,] size
    let text = |i: usize| (i < at - 1).then(|| String::from_utf8_lossy(words[i].text).into_owned());
    Some(NamedFacts {
        facts: Facts {
            kind: Some(kind),
            size,
            modify: Some(modify),
            mode: Some(mode),
            owner: text(2),
            group: text(3),
            link,
            ..Facts::default()
        },
        name: name.to_vec(),
    })
}

fn permissions(text: &[u8]) -> Option<(FactKind, u32)> {
    let kind = match text[0] {
        b'-' => FactKind::File,
        b'd' => FactKind::Directory,
        b'l' => FactKind::Link,
        b'b' | b'c' | b'p' | b's' | b'D' => FactKind::Other,
        _ => return None,
    };
    let mut mode = 0;
    for (i, &letter) in text[1..10].iter().enumerate() {
        let (bit, special) = (0o400 >> i, 0o4000 >> (i / 3));
        mode |= match (letter, i % 3) {
            (b'-', _) => 0,
            (b'r', 0) | (b'w', 1) | (b'x', 2) => bit,
            (b's' | b't', 2) => bit | special,
            (b'S' | b'T', 2) => special,
            _ => return None,
        };
    }
    Some((kind, mode))
}

/// Reads a date from the front of `words`; tells how many of them it took.
fn date(words: &[Word<'_>], now: Duration) -> Option<(Duration, usize)> {
    let text = |i: usize| words.get(i).map(|word| word.text);
    if let Some(found) = iso_date(text(0)?, text(1)?) {
        return Some((found, 2));
    }
    let month = 1 + MONTHS.iter().position(|m| m.as_bytes() == words[0].text)? as u64;
    let day = number(text(1)?)?;
    let last = text(2)?;
    let of_year = |year, of_day| at_minute([year, month, day], of_day);
    let found = match clock(last) {
        None => of_year(number(last)?, (0, 0))?,
        Some(clock) => {
            let year = Civil::from_epoch(now.as_secs()).year;
            // A day of grace: the server's zone is not known.
            let latest = now + Duration::from_secs(86_400);
            // 29 February may not exist this year.
            (0..4)
                .filter_map(|ago| of_year(year.checked_sub(ago)?, clock))
                .find(|&at| at <= latest)?
        }
    };
    Some((found, 3))
}

fn iso_date(day: &[u8], time_of_day: &[u8]) -> Option<Duration> {
    let mut parts = day.splitn(3, |&b| b == b'-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    at_minute([year, month, day], clock(time_of_day.get(..5)?)?)
}

/// Returns the beginning of a minute; listings know no seconds.
fn at_minute([year, month, day]: [u64; 3], (hour, minute): (u64, u64)) -> Option<Duration> {
    let at = Civil {
        year,
        month,
        day,
        hour,
        minute,
        second: 0,
    };
    time::seconds(at).map(Duration::from_secs)
}

fn clock(text: &[u8]) -> Option<(u64, u64)> {
    let colon = text.iter().position(|&b| b == b':')?;
    let (hour, minute) = (number(&text[..colon])?, number(&text[colon + 1..])?);
    (hour < 24 && minute < 60).then_some((hour, minute))
}

/// Reads `11-21-26  02:10PM       <DIR>          name`, or a size for `<DIR>`.
fn ms_dos(line: &[u8]) -> Option<NamedFacts> {
    let all = words(line);
    let [day, clock_text, what, first, ..] = &all[..] else {
        return None;
    };
    let mut parts = day.text.splitn(3, |&b| b == b'-').map(number);
    let (month, day, year) = (parts.next()??, parts.next()??, parts.next()??);
    // Two digits: as IIS means them.
    let year = match year {
        0..70 => year + 2000,
        70..100 => year + 1900,
        _ => year,
    };
    let afternoon = clock_text.text.ends_with(b"PM");
    let half = afternoon || clock_text.text.ends_with(b"AM");
    let plain = if half {
        &clock_text.text[..clock_text.text.len() - 2]
    } else {
        clock_text.text
    };
    let (hour, minute) = clock(plain)?;
    let hour = if half {
        hour % 12 + if afternoon { 12 } else { 0 }
    } else {
        hour
    };
    let modify = at_minute([year, month, day], (hour, minute))?;
    let (kind, size) = match what.text {
        b"<DIR>" => (FactKind::Directory, None),
        size => (FactKind::File, Some(number(size)?)),
    };
    let facts = Facts {
        kind: Some(kind),
        size,
        modify: Some(modify),
        ..Facts::default()
    };
    let name = line[first.end - first.text.len()..].to_vec();
    Some(NamedFacts { facts, name })
}

fn split_arrow(name: &[u8]) -> (&[u8], Option<Vec<u8>>) {
    match name.windows(4).position(|w| w == b" -> ") {
        Some(at) => (&name[..at], Some(name[at + 4..].to_vec())),
        None => (name, None),
    }
}

/// A word of a line, and where it ends.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a [u8],
    end: usize,
}

/// Returns the first words of a line; names come late in it, but not later.
fn words(line: &[u8]) -> Vec<Word<'_>> {
    let mut at = 0;
    line.split(|&b| b == b' ')
        .filter_map(|text| {
            let end = at + text.len();
            at = end + 1;
            (!text.is_empty()).then_some(Word { text, end })
        })
        .take(12)
        .collect()
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| str::from_utf8(text).ok()?.parse().ok())?
}

fn bad(line: u64, why: &'static str, text: &[u8]) -> Error {
    Error::BadListing {
        line,
        why,
        text: shown(text),
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Paths have at most 4096 bytes, link targets as well, and facts are few.
const LINE_BYTES_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2026-11-21 12:00 UTC.
    const NOW: Duration = Duration::from_secs(1_795_262_400);

    fn read(form: Form, reach: Reach, wire: &[u8]) -> Result<Vec<NamedFacts>> {
        let mut listing = Listing::new(form, reach);
        listing.push(wire);
        let mut all = Vec::new();
        while let Some(named) = listing.next_entry()? {
            all.push(named);
        }
        all.extend(listing.finish()?);
        Ok(all)
    }

    fn ls(line: &str) -> Option<NamedFacts> {
        let wire = format!("{line}\r\n");
        read(Form::Ls { now: NOW }, Reach::Directory, wire.as_bytes())
            .unwrap()
            .pop()
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        let byte = any::<u8>().prop_filter("carried", |b| !b"\0\r\n/".contains(b));
        prop::collection::vec(byte, 1..12).prop_filter("no dots, no blank", |n| {
            n != b"." && n != b".." && !n.trim_ascii().is_empty()
        })
    }

    proptest! {
        #[test]
        fn listing_is_equal_in_any_split(
            names in prop::collection::vec((name(), any::<u64>()), 0..8),
            cuts in prop::collection::vec(1..30usize, 0..60),
        ) {
            let all: Vec<_> = names.into_iter().map(|(name, size)| NamedFacts {
                facts: Facts { kind: Some(FactKind::File), size: Some(size), ..Facts::default() },
                name,
            }).collect();
            let mut wire: Vec<u8> = all.iter().flat_map(|n| [n.encode(), b"\r\n".to_vec()].concat()).collect();
            wire.extend(b"\r\n");
            let (mut input, mut found) = (&wire[..], Vec::new());
            let mut listing = Listing::new(Form::Facts, Reach::Directory);
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (now, later) = input.split_at(cut.min(input.len()));
                input = later;
                listing.push(now);
                while let Some(named) = listing.next_entry().unwrap() {
                    found.push(named);
                }
            }
            prop_assert_eq!(found, all);
            prop_assert_eq!(listing.finish(), Ok(None));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[-drwxl 0-9:A-Za-z<>]{0,80}") {
            for form in [Form::Facts, Form::Names, Form::Ls { now: NOW }] {
                let _ = read(form, Reach::Tree, &bytes);
                let _ = read(form, Reach::Directory, text.as_bytes());
            }
        }

        #[test]
        fn lines_like_those_of_ls_never_panic(tail in "[0-9A-Za-z:> -]{0,60}") {
            let _ = read(Form::Ls { now: NOW }, Reach::Directory, format!("-rw-r--r-- {tail}").as_bytes());
        }
    }

    #[test]
    fn gct_list_is_read() {
        let named =
            ls("drwxr-xr-x   2     root     root         4096 Nov 21 02:10 emptydir").unwrap();
        assert_eq!(named.name, b"emptydir");
        assert_eq!(named.facts.kind, Some(FactKind::Directory));
        assert_eq!(named.facts.modify, time::parse(b"20261121021000"));
        assert_eq!(named.facts.mode, Some(0o755));
        assert_eq!(named.facts.owner.as_deref(), Some("root"));
        assert_eq!(named.facts.group.as_deref(), Some("root"));
        assert_eq!(
            ls("drwxrwxrwx   7   daemon     root         4096 Nov 21 02:11 .."),
            None
        );
        assert_eq!(ls("total 48"), None);
    }

    #[test]
    fn ls_lines_parse_spaces_links_no_group() {
        let named = ls("-rw-r--r-- 1 ftp 12 Feb 29  2024  two  spaces ").unwrap();
        assert_eq!(named.name, b" two  spaces ");
        assert_eq!(named.facts.modify, time::parse(b"20240229000000"));
        assert_eq!(
            (named.facts.owner.as_deref(), named.facts.group),
            (Some("ftp"), None)
        );
        let link =
            ls("lrwxrwxrwx    1 0        0               8 Dec 31 23:59 a b -> /x -> y").unwrap();
        assert_eq!(
            (&link.name[..], link.facts.link.as_deref()),
            (&b"a b"[..], Some(&b"/x -> y"[..]))
        );
        assert_eq!(
            link.facts.modify,
            time::parse(b"20251231235900"),
            "the last December"
        );
        let iso = ls("-rwsr-x--T 1 a b 5 2026-11-20 10:11 x").unwrap();
        assert_eq!(iso.facts.mode, Some(0o5750));
        assert_eq!(iso.facts.modify, time::parse(b"20261120101100"));
        let device = ls("crw-rw-rw- 1 root root 1, 3 Nov 21 02:10 null").unwrap();
        assert_eq!(
            (device.facts.kind, device.facts.size),
            (Some(FactKind::Other), Some(3))
        );
    }

    #[test]
    fn ms_dos_is_read() {
        let directory = ls("11-21-26  02:10PM       <DIR>          Program Files").unwrap();
        assert_eq!(directory.name, b"Program Files");
        assert_eq!(directory.facts.kind, Some(FactKind::Directory));
        assert_eq!(directory.facts.modify, time::parse(b"20261121141000"));
        let file = ls("01-02-2020  12:05AM   1234 a  b").unwrap();
        assert_eq!(
            (&file.name[..], file.facts.size),
            (&b"a  b"[..], Some(1234))
        );
        assert_eq!(file.facts.modify, time::parse(b"20200102000500"));
    }

    #[test]
    fn gct_name_with_line_feed_is_refused() {
        let two = b"Type=file;Size=1; a\r\nType=file;Size=1; new\nl\r\n";
        let refused = read(Form::Facts, Reach::Directory, two).unwrap_err();
        assert!(
            matches!(refused, Error::BadListing { line: 2, .. }),
            "{refused}"
        );
        let first = b"Type=file;Size=1; new\nType=file;Size=1; l\r\n\r\n";
        assert!(read(Form::Facts, Reach::Directory, first).is_err());
    }

    #[test]
    fn hostile_names_are_refused() {
        for name in ["..", ".", "a/b", "/etc/passwd", "../x", "x\0"] {
            let wire = format!("Type=file;Size=1; {name}\r\n");
            assert!(
                read(Form::Facts, Reach::Directory, wire.as_bytes()).is_err(),
                "{name:?}"
            );
        }
        for name in ["a/../b", "/a", "a//b", "a/", "..", "a/.", "x/\0"] {
            let wire = format!("Type=file;Size=1; {name}\r\n");
            assert!(
                read(Form::Facts, Reach::Tree, wire.as_bytes()).is_err(),
                "{name:?}"
            );
        }
        assert!(read(Form::Names, Reach::Directory, b"ok\r\na/b\r\n").is_err());
        let arrow = "lrwxrwxrwx 1 a b 5 Nov 21 02:10 ../x -> y\r\n";
        assert!(read(Form::Ls { now: NOW }, Reach::Directory, arrow.as_bytes()).is_err());
    }

    #[test]
    fn ours_tells_line_ends_in_names() {
        let mut listing = Listing::of_ours(Form::Facts, Reach::Directory);
        listing.push(b"Type=file; new\nline\r\nType=file; cr\r\0x\r\n");
        let names: Vec<_> = std::iter::from_fn(|| listing.next_entry().unwrap())
            .map(|named| named.name)
            .collect();
        assert_eq!(names, [b"new\nline".to_vec(), b"cr\rx".to_vec()]);
    }

    #[test]
    fn mlsr_tells_paths() {
        let wire = b"Type=cdir; .\r\nType=dir; sub\r\nType=slink;UNIX.slink=/a; sub/l\r\n\r\n";
        let all = read(Form::Facts, Reach::Tree, wire).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(
            (&all[1].name[..], all[1].facts.kind),
            (&b"sub/l"[..], Some(FactKind::Link))
        );
    }
}
