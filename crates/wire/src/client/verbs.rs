//! Questions about files, and how to read the replies.

use super::{Family, FtpPeer, Line, Refusal, Talk};
use crate::{
    Error,
    facts::{self, Facts, NamedFacts},
    features::checksum_word,
    reply::Reply,
    time,
};
use godwit_core::{Algorithm, Digest, Kind};
use std::{ops::Range, time::Duration};

/// The facts of a file, or the server's refusal.
pub type Looked = Result<Facts, Refusal>;

/// Looks at one name.
///
/// MLST tells all at once. Without it a file has a SIZE, and what has none but
/// can be entered is a directory; then the way back home is taken.
pub fn look<T: Talk>(talk: &mut T, peer: &FtpPeer, name: &[u8]) -> Result<Looked, T::Error>
where
    T::Error: From<super::Unspeakable>,
{
    if peer.features.has("MLST") {
        let reply = talk.ask_one(Line::new("MLST").bytes(name)?)?;
        return match Refusal::of(&reply) {
            // Some servers announce MLST and mean MLSD only.
            Some(refusal) if refusal.kind == Kind::Unsupported => look_plainly(talk, peer, name),
            Some(refusal) => Ok(Err(refusal)),
            None if is_about_another(&reply, name) => {
                let said = "the server drops bytes of this name";
                Ok(Err(Refusal::coded(reply.code, Kind::Invalid, said)))
            }
            None => Ok(Ok(facts_of(&reply)?)),
        };
    }
    look_plainly(talk, peer, name)
}

/// Tells whether the server tells of another file than it was asked for: GCT 13.24
/// in the C locale drops bytes that are not ASCII, and then `/d/日` is `/d/`.
fn is_about_another(reply: &Reply, asked: &[u8]) -> bool {
    let last = |name: &[u8]| {
        name.rsplit(|&b| b == b'/')
            .next()
            .unwrap_or_default()
            .to_vec()
    };
    let told = reply
        .inner()
        .first()
        .and_then(|line| NamedFacts::parse(line).ok());
    // A server may answer with the full path of a root or a relative path; only the last name counts.
    told.is_some_and(|told| !last(asked).is_ascii() && last(&told.name) != last(asked))
}

fn look_plainly<T: Talk>(talk: &mut T, peer: &FtpPeer, name: &[u8]) -> Result<Looked, T::Error>
where
    T::Error: From<super::Unspeakable>,
{
    let size = talk.ask_one(Line::new("SIZE").bytes(name)?)?;
    if let Some(size) = size_of(&size) {
        let modify = match peer.features.has("MDTM") {
            true => time_of(&talk.ask_one(Line::new("MDTM").bytes(name)?)?),
            false => None,
        };
        return Ok(Ok(Facts {
            kind: Some(facts::FactKind::File),
            size: Some(size),
            modify,
            ..Facts::default()
        }));
    }
    let entered = talk.ask_one(Line::new("CWD").bytes(name)?)?;
    if !entered.is_positive() {
        let mut refusal = Refusal::of(&size)
            .unwrap_or_else(|| Refusal::coded(size.code, Kind::Other, size.said()));
        // vsftpd: "550 Could not get file size." means there is none.
        if refusal.kind == Kind::Other && refusal.code == 550 {
            refusal.kind = Kind::Missing;
        }
        return Ok(Err(refusal));
    }
    talk.ask_one(Line::new("CWD").bytes(&peer.home)?)?;
    Ok(Ok(Facts {
        kind: Some(facts::FactKind::Directory),
        ..Facts::default()
    }))
}

/// Reads the 250 of MLST.
pub fn facts_of(reply: &Reply) -> Result<Facts, Error> {
    let bad = || Error::BadFacts { text: reply.said() };
    let line = reply.inner().first().ok_or_else(bad)?;
    Ok(NamedFacts::parse(line)?.facts)
}

/// Reads the 213 of SIZE.
pub fn size_of(reply: &Reply) -> Option<u64> {
    if reply.code != 213 {
        return None;
    }
    reply.text().trim().parse().ok()
}

/// Reads the 213 of MDTM.
pub fn time_of(reply: &Reply) -> Option<Duration> {
    if reply.code != 213 {
        return None;
    }
    time::parse(reply.lines[0].trim_ascii())
}

/// Asks for a checksum of a range; `None` means the whole file.
pub fn checksum(
    by: Algorithm,
    range: Option<Range<u64>>,
    name: &[u8],
) -> Result<Line, super::Unspeakable> {
    let line = Line::new("CKSM").and(checksum_word(by));
    match range {
        Some(range) => line
            .and(range.start)
            .and(range.end.saturating_sub(range.start)),
        None => line.and(0).and(-1),
    }
    .bytes(name)
}

/// Reads the 213 of CKSM.
pub fn checksum_of(reply: &Reply, by: Algorithm) -> Result<Digest, Error> {
    let text = reply.text();
    Digest::from_hex(by, text.trim()).map_err(|_| Error::NotAReply { line: reply.said() })
}

/// Renames; the refusal is that of whichever command was refused.
pub fn rename<T: Talk>(talk: &mut T, from: &[u8], to: &[u8]) -> Result<Reply, T::Error>
where
    T::Error: From<super::Unspeakable>,
{
    let (from, to) = (Line::new("RNFR").bytes(from)?, Line::new("RNTO").bytes(to)?);
    let reply = talk.ask_one(from)?;
    if reply.code / 100 != 3 {
        return Ok(reply);
    }
    talk.ask_one(to)
}

/// Says when a file was last changed. Most servers take whole seconds; ours take all.
pub fn set_mtime(
    peer: &FtpPeer,
    at: Duration,
    name: &[u8],
) -> Option<Result<Line, super::Unspeakable>> {
    let whole = Duration::from_secs(at.as_secs());
    match peer.family() {
        Family::Godwit => Some(Line::new("MFMT").and(time::Written(at)).bytes(name)),
        _ if peer.features.has("MFMT") => {
            Some(Line::new("MFMT").and(time::Written(whole)).bytes(name))
        }
        // It takes MDTM with a time for a wish, which FEAT does not say.
        _ if peer.banner.contains("vsFTPd") => {
            Some(Line::new("MDTM").and(time::Written(whole)).bytes(name))
        }
        _ if peer.site.contains("UTIME") => Some(
            Line::new("SITE UTIME")
                .and(time::Written(whole))
                .bytes(name),
        ),
        _ => None,
    }
}

/// Says which permission bits a file has.
pub fn set_mode(mode: u32, name: &[u8]) -> Result<Line, super::Unspeakable> {
    Line::new("SITE CHMOD")
        .and(format_args!("{mode:04o}"))
        .bytes(name)
}

/// Makes a symbolic link: GCT's pair of commands, which servers of ours know too.
pub fn symlink<T: Talk>(talk: &mut T, target: &[u8], name: &[u8]) -> Result<Reply, T::Error>
where
    T::Error: From<super::Unspeakable>,
{
    let from = Line::new("SITE SYMLINKFROM").bytes(target)?;
    let to = Line::new("SITE SYMLINKTO").bytes(name)?;
    let reply = talk.ask_one(from)?;
    if reply.code / 100 != 3 {
        return Ok(reply);
    }
    talk.ask_one(to)
}

/// Cuts a file.
pub fn truncate(length: u64, name: &[u8]) -> Result<Line, super::Unspeakable> {
    Line::new("SITE TRNC").and(length).bytes(name)
}
