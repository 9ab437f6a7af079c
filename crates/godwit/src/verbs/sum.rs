//! `godwit sum`: prints digests of files, or checks them against a list.

use crate::{
    args::{Names, Talking},
    bytes,
    client::pending::{self, NameScope},
    out::{self, CliError, Facts, Run, Screen, facts, silence},
    places::{self, Place},
    transfer, units,
};
use clap::{Args, ValueEnum};
use godwit_core::{Algorithm, Url};
use godwit_store::engine::Stores;
use godwit_store::{Entry, EntryKind, Error};
use serde_json::json;
use std::{ffi::OsStr, ops::Range, os::unix::ffi::OsStrExt, path::PathBuf};

/// Print or check digests
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit sum ftp://fermi.example/run7.root
  godwit sum -a md5 run7.root
  godwit sum -r data > data.b3
  godwit sum --check data.b3

A remote server computes the digest itself if it can; else it is computed here from the
bytes it sends. Lines look as those of b3sum and md5sum and can be checked by them. As
theirs, a line begins with a backslash if its name holds a backslash or a line end, which
are then written \\\\, \\n and \\r; --check reads such lines too. It is the digest of what the
server has; of what was put on this machine and is on its way still (godwit queue) it says so.

Exit status: 0; 12 a digest is not as noted; 4 no such file; 13 not allowed.")]
pub(crate) struct SumArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    talking: Talking,
    /// Which digest
    #[arg(short, long, value_enum, default_value_t = By::Blake3, value_name = "NAME")]
    algorithm: By,
    /// Every file below directories
    #[arg(short, long)]
    recursive: bool,
    /// Read lines `DIGEST  NAME` from FILE (- is standard input) and check each
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["names", "recursive"])]
    check: Option<PathBuf>,
    /// Begin at this byte
    #[arg(long, value_name = "BYTE", value_parser = units::parse_size, allow_negative_numbers = true)]
    offset: Option<u64>,
    /// At most so many bytes
    #[arg(long, value_name = "BYTES", value_parser = units::parse_size, allow_negative_numbers = true)]
    length: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    Blake3,
    Adler32,
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

impl SumArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let stores = places::stores(&self.talking)?;
        let mut files = 0;
        if let Some(list) = &self.check {
            let lines = places::read_list(list)?;
            if !lines
                .iter()
                .any(|line| DigestLine::read(line.as_bytes()).is_some())
            {
                let wanted = format!("check {}", list.display());
                let fact = "no properly formatted checksum lines found";
                return Err(CliError::asked(wanted, fact).next(LINE));
            }
            for line in lines {
                match self.check_line(screen, &stores, &line) {
                    Ok(()) => files += 1,
                    Err(trouble) => screen.trouble(&trouble),
                }
            }
        } else {
            for url in self.names.some("sum")? {
                match self.one(screen, &stores, &url) {
                    Ok(more) => files += more,
                    Err(trouble) => screen.trouble(&trouble),
                }
            }
        }
        Ok(facts([("files", files.into())]))
    }

    fn one(&self, screen: &Screen, stores: &Stores, url: &Url) -> Run<u64> {
        let trouble = |error: Error| CliError::store(format!("sum {url}"), error);
        let reach = match self.recursive {
            true => NameScope::Below,
            false => NameScope::Name,
        };
        pending::note(screen, url, reach);
        let place = places::open(stores, url)?;
        if !self.recursive {
            self.say(screen, &place, url).map_err(|error| {
                let is_directory = matches!(error, Error::IsDirectory { .. });
                let trouble = trouble(error);
                if is_directory {
                    trouble.next("add -r to sum every file below it")
                } else {
                    trouble
                }
            })?;
            return Ok(1);
        }
        let mut below = Vec::new();
        let mut each = |entry: Entry| {
            if entry.stat.kind == EntryKind::File {
                below.push(entry.path);
            }
            Ok(())
        };
        let stat = silence::broken_by(screen, &transfer::answer_of(url), || {
            place.store.stat(&place.path)
        });
        match stat.map_err(trouble)?.kind {
            EntryKind::Directory => {
                let waits_for = format!("the list of what is below {url}");
                let walked = silence::broken_by(screen, &waits_for, || {
                    places::walk(screen, "sum", &place, &mut each)
                });
                walked.map_err(trouble)?;
            }
            _ => below.push(PathBuf::new()),
        }
        below.sort();
        let mut files = 0;
        for path in &below {
            let place = places::inside(&place, path).map_err(trouble)?;
            match self.say(screen, &place, &place.url) {
                Ok(()) => files += 1,
                Err(error) => {
                    screen.trouble(&CliError::store(format!("sum {}", place.url), error));
                }
            }
            if screen.gone() {
                break;
            }
        }
        Ok(files)
    }

    fn say(&self, screen: &Screen, place: &Place, url: &Url) -> Result<(), Error> {
        let algorithm = self.algorithm.algorithm();
        let waits_for = format!("the digest of {url}");
        let digest = silence::broken_by(screen, &waits_for, || {
            bytes::digest(place, algorithm, self.range())
        })?;
        if screen.json() {
            return screen.object(&json!({
                "event": "digest",
                "url": url.to_string(),
                "path": url.as_path().to_string_lossy(),
                "algorithm": algorithm.as_str(),
                "digest": digest.hex(),
            }));
        }
        let (mark, name) = escape(&out::shown(url));
        let mut line = format!("{mark}{}  ", digest.hex()).into_bytes();
        line.extend(name);
        screen.line(line)
    }

    fn check_line(&self, screen: &Screen, stores: &Stores, line: &OsStr) -> Run {
        let Some(DigestLine { digest, name }) = DigestLine::read(line.as_bytes()) else {
            let text = line.to_string_lossy();
            return Err(CliError::asked(format!("check {text:?}"), LINE));
        };
        let noted = digest;
        let url = places::url(OsStr::from_bytes(&name))?;
        let trouble = |error: Error| CliError::store(format!("sum {url}"), error);
        pending::note(screen, &url, NameScope::Name);
        let place = places::open(stores, &url)?;
        let algorithm = self.algorithm.algorithm();
        let waits_for = format!("the digest of {url}");
        let found = silence::broken_by(screen, &waits_for, || {
            bytes::digest(&place, algorithm, self.range())
        });
        let found = found.map_err(trouble)?.hex();
        if found != noted {
            let fact = format!("noted is {noted}, found {found}");
            return Err(CliError::differs(format!("vouch for {url}"), fact)
                .next("the file is not what it was: copy it again from a good place"));
        }
        if screen.json() {
            screen.object(&json!({ "event": "checked", "url": url.to_string(), "digest": found }))
        } else if screen.quiet() {
            Ok(())
        } else {
            let (mark, name) = escape(&out::shown(&url));
            screen.line([mark.as_bytes(), &name, b": OK"].concat())
        }
        .map_err(trouble)
    }

    fn range(&self) -> Option<Range<u64>> {
        if self.offset.is_none() && self.length.is_none() {
            return None;
        }
        let start = self.offset.unwrap_or(0);
        Some(start..start.saturating_add(self.length.unwrap_or(u64::MAX)))
    }
}

/// A line of a list of digests.
#[derive(Debug, Eq, PartialEq)]
struct DigestLine {
    digest: String,
    name: Vec<u8>,
}

impl DigestLine {
    fn read(line: &[u8]) -> Option<Self> {
        let (escaped, line) = match line.strip_prefix(b"\\") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let at = line
            .windows(2)
            .position(|pair| matches!(pair, b"  " | b" *"))?;
        let (digest, name) = (&line[..at], &line[at + 2..]);
        if digest.is_empty() || name.is_empty() || !digest.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        Some(Self {
            digest: String::from_utf8_lossy(digest).to_ascii_lowercase(),
            name: if escaped {
                unescape(name)?
            } else {
                name.to_vec()
            },
        })
    }
}

/// Returns a name as coreutils write it into a line, and the mark that such a line begins with.
fn escape(name: &[u8]) -> (&'static str, Vec<u8>) {
    let mut text = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\\' => text.extend(b"\\\\"),
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            _ => text.push(byte),
        }
    }
    let mark = if text.len() == name.len() { "" } else { "\\" };
    (mark, text)
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let (mut name, mut bytes) = (Vec::with_capacity(text.len()), text.iter());
    while let Some(&byte) = bytes.next() {
        name.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            _ => byte,
        });
    }
    Some(name)
}

const LINE: &str = "a line is a digest, two spaces and a name";

impl By {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::Blake3 => Algorithm::Blake3,
            Self::Adler32 => Algorithm::Adler32,
            Self::Md5 => Algorithm::Md5,
            Self::Sha1 => Algorithm::Sha1,
            Self::Sha256 => Algorithm::Sha256,
            Self::Sha512 => Algorithm::Sha512,
        }
    }
}
