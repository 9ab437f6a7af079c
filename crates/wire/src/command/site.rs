//! `SITE`: what FTP does not know, and our own commands.

use super::{
    Parsed, RawName, buffer_bytes,
    extended::{Upload, parse_id, parse_upload},
    needed, needed_text, number, option, parse_permissions, parse_time, refuse, text, word,
};
use std::{ops::Range, time::Duration};

/// `SITE` and what follows it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Site {
    Help,
    Chmod {
        mode: u32,
        name: RawName,
    },
    Chgrp {
        group: String,
        name: RawName,
    },
    Utime {
        modify: Duration,
        name: RawName,
    },
    Symlink {
        target: RawName,
        name: RawName,
    },
    SymlinkFrom(RawName),
    SymlinkTo(RawName),
    Trnc {
        length: u64,
        name: RawName,
    },
    Rdel(RawName),
    StorAttr {
        modify: Option<Duration>,
    },
    Buffer(Option<u32>),
    /// `CLIENTINFO`, `TASKID`: who asks, for the log.
    Note(String),
    /// `SETNETSTACK`, `SETDISKSTACK`: drivers that a transfer has anyway.
    Stack,
    Version,
    Whoami,
    Godwit(Godwit),
}

/// Our own commands, see docs/formats/ftp-extensions.md.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Godwit {
    Done {
        id: Option<String>,
        name: RawName,
    },
    Finish {
        upload: Upload,
        name: RawName,
    },
    Leaves {
        id: Option<String>,
        leaves: Range<u64>,
        name: RawName,
    },
    Abandon {
        id: Option<String>,
        name: RawName,
    },
    Space {
        name: RawName,
    },
    Flush {
        name: RawName,
    },
    Hidden {
        name: RawName,
    },
    Modules,
}

pub(super) fn parse_site(rest: &[u8]) -> Parsed<Site> {
    let (verb, rest) = word(rest);
    Ok(match text(verb).to_ascii_uppercase().as_str() {
        "HELP" => Site::Help,
        "CHMOD" => {
            let (mode, name) = word(rest);
            Site::Chmod {
                mode: parse_permissions(mode)?,
                name: needed(name)?,
            }
        }
        "CHGRP" => {
            let (group, name) = word(rest);
            Site::Chgrp {
                group: needed_text(group)?,
                name: needed(name)?,
            }
        }
        "UTIME" => parse_utime(rest)?,
        "SYMLINK" => parse_symlink(rest)?,
        "SYMLINKFROM" => Site::SymlinkFrom(needed(rest)?),
        "SYMLINKTO" => Site::SymlinkTo(needed(rest)?),
        "TRNC" => {
            let (length, name) = word(rest);
            Site::Trnc {
                length: number(length)?,
                name: needed(name)?,
            }
        }
        "RDEL" => Site::Rdel(needed(rest)?),
        "STORATTR" => {
            let facts = text(rest);
            let modify = option(&facts, "MODIFY").map(|t| parse_time(t.as_bytes()));
            Site::StorAttr {
                modify: modify.transpose()?,
            }
        }
        "SBUF" | "BUFSIZE" | "RETRBUFSIZE" | "RBUFSZ" | "RBUFSIZ" | "STORBUFSIZE" | "SBUFSZ"
        | "SBUFSIZ" => Site::Buffer(buffer_bytes(rest)?),
        "CLIENTINFO" | "TASKID" => Site::Note(text(rest)),
        "SETNETSTACK" | "SETDISKSTACK" => parse_stack(rest)?,
        "VERSION" => Site::Version,
        "WHOAMI" => Site::Whoami,
        "GODWIT" => Site::Godwit(parse_godwit(rest)?),
        _ => return refuse(500, "Invalid command."),
    })
}

/// GCT loads drivers of its library by their names. These three change nothing here.
fn parse_stack(rest: &[u8]) -> Parsed<Site> {
    let is_known = |driver: &[u8]| matches!(driver.trim_ascii(), b"tcp" | b"gsi" | b"file");
    match rest.split(|&b| b == b',').all(is_known) {
        true => Ok(Site::Stack),
        false => refuse(500, "Only tcp, gsi and file are known here."),
    }
}

/// `SITE UTIME time name`, and the form of ncftp and others:
/// `SITE UTIME name atime mtime ctime UTC`.
fn parse_utime(rest: &[u8]) -> Parsed<Site> {
    let (time, name) = word(rest);
    if let Ok(modify) = parse_time(time) {
        return Ok(Site::Utime {
            modify,
            name: needed(name)?,
        });
    }
    let parts: Vec<&[u8]> = rest.rsplitn(5, |&b| b == b' ').collect();
    match parts.as_slice() {
        &[b"UTC", _, modify, _, name] => Ok(Site::Utime {
            modify: parse_time(modify)?,
            name: needed(name)?,
        }),
        _ => refuse(501, "A time is 14 digits, YYYYMMDDHHMMSS, in UTC."),
    }
}

/// The client library of GCT sends `SITE SYMLINK a b` with nothing quoted: we
/// cut at the only space, or in front of the second name if that is absolute.
fn parse_symlink(rest: &[u8]) -> Parsed<Site> {
    let spaces: Vec<usize> = (0..rest.len()).filter(|&i| rest[i] == b' ').collect();
    let absolute: Vec<usize> = spaces
        .iter()
        .copied()
        .filter(|&i| rest.get(i + 1) == Some(&b'/'))
        .collect();
    let cut = match (spaces.as_slice(), absolute.as_slice()) {
        (&[one], _) | (_, &[one]) => one,
        _ => {
            return refuse(
                501,
                "Two names, or use SITE SYMLINKFROM and SITE SYMLINKTO.",
            );
        }
    };
    Ok(Site::Symlink {
        target: needed(&rest[..cut])?,
        name: needed(&rest[cut + 1..])?,
    })
}

fn parse_godwit(rest: &[u8]) -> Parsed<Godwit> {
    let (verb, rest) = word(rest);
    let verb = text(verb).to_ascii_uppercase();
    let name = rest.to_vec(); // may be that of the current directory
    match verb.as_str() {
        "SPACE" => return Ok(Godwit::Space { name }),
        "FLUSH" => return Ok(Godwit::Flush { name }),
        "HIDDEN" => return Ok(Godwit::Hidden { name }),
        "MODULES" => return Ok(Godwit::Modules),
        _ => {}
    }
    let (facts, name) = word(rest);
    let name = needed(name)?;
    let id = || option(&text(facts), "ID").map(parse_id).transpose();
    Ok(match verb.as_str() {
        "DONE" => Godwit::Done { id: id()?, name },
        "ABANDON" => Godwit::Abandon { id: id()?, name },
        "FINISH" => Godwit::Finish {
            upload: parse_upload(facts)?,
            name,
        },
        "LEAVES" => {
            let facts = text(facts);
            let from = number(option(&facts, "FROM").unwrap_or("0").as_bytes())?;
            let count = number(option(&facts, "COUNT").unwrap_or("65536").as_bytes())?;
            let leaves = from..from.saturating_add(count.min(LEAVES_MAX));
            Godwit::Leaves {
                id: option(&facts, "ID").map(parse_id).transpose()?,
                leaves,
                name,
            }
        }
        _ => return refuse(500, "Invalid command."),
    })
}

const LEAVES_MAX: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Command,
        tests::{code, parse},
    };

    #[test]
    fn links_with_two_names() {
        let link = |t: &str, n: &str| {
            Command::Site(Site::Symlink {
                target: t.into(),
                name: n.into(),
            })
        };
        assert_eq!(parse("SITE SYMLINK a b"), link("a", "b"));
        assert_eq!(parse("SITE SYMLINK /a b /c d"), link("/a b", "/c d"));
        assert_eq!(code("SITE SYMLINK a b c"), 501);
    }
}
