//! The decisions about an upload before its first byte, and the commands that begin it.

use crate::remote::{
    Appear, Remote, names,
    parts::{Claim, NoteTiming, Remembered},
    session::RemoteSession,
};
use crate::{
    Checks, Error, Limit, Result, SMALL_BYTES, Width, Write, WriteMode, channel::TransferMode,
};
use godwit_core::{Algorithm, Digest, Extents, Version};
use godwit_wire::client::{self, Family, Line, ReplyFacts, Talk, Upload};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The decisions about an upload before its first byte.
pub(super) struct DeliveryPlan {
    pub(super) path: PathBuf,
    /// Where the file is to appear.
    pub(super) name: Vec<u8>,
    /// The name that is written to until the publication.
    pub(super) part: Arc<Claim>,
    pub(super) family: Family,
    pub(super) how: WriteMode,
    pub(super) size: Option<u64>,
    pub(super) mode: Option<u32>,
    pub(super) checks: Checks,
    pub(super) width: Arc<Width>,
    pub(super) landed: Extents,
}

impl DeliveryPlan {
    pub(super) fn plan(
        remote: &Remote,
        session: &mut RemoteSession,
        path: &Path,
        write: &Write<'_>,
    ) -> Result<Self> {
        let name = remote.name(session, path)?;
        // Refused here and not with the first byte: names that no line can carry.
        Line::new("STOR").bytes(&name)?;
        if write.how == WriteMode::New && names::exists(session, path, &name)? {
            return Err(Error::exists(path));
        }
        let tag = tag(write);
        let family = session.family();
        let in_place = write.how == WriteMode::InPlace || remote.0.options.appear == Appear::AtOnce;
        // A node hides parts, by name and id of the upload; elsewhere a part is a file of its own.
        let part = match family {
            _ if in_place => Claim::of_nothing(name.clone()),
            Family::Godwit => {
                let id = write.id.map(Into::into).or(tag).unwrap_or_else(unique_id);
                let key = |id: String| [&name[..], b"\0", id.as_bytes()].concat();
                let parts = &remote.0.parts;
                parts.claim(key(id), Remembered::No, |_| key(unique_id()))
            }
            Family::Grid | Family::Plain => {
                let first = part_name(&name, tag.as_deref());
                let remembered = match (family, &tag) {
                    (Family::Grid, Some(_)) => Remembered::OnDisk,
                    _ => Remembered::No,
                };
                let or = |serial: String| part_name(&name, Some(&serial));
                remote.0.parts.claim(first, remembered, or)
            }
        };
        let mut delivery = Self {
            path: path.into(),
            name,
            part: Arc::new(part),
            family,
            how: write.how.clone(),
            size: write.size,
            mode: write.mode,
            checks: write.checks,
            width: match write.width {
                _ if family == Family::Plain => Arc::new(Width::fixed(1, Limit::Server)),
                Some(width) => width.clone(),
                None => Arc::new(Width::fixed(write.streams.max(1), Limit::Asked)),
            },
            landed: Extents::new(),
        };
        if write.how != WriteMode::InPlace {
            delivery.landed = delivery.earlier(session, write)?;
            // A part that begins anew is cut off first: none of its old bytes may count.
            delivery.part.note(&delivery.landed, NoteTiming::Now);
        }
        Ok(delivery)
    }

    /// Asks for the part of an earlier attempt, and removes the part if it cannot be resumed.
    pub(super) fn earlier(
        &self,
        session: &mut RemoteSession,
        write: &Write<'_>,
    ) -> Result<Extents> {
        let mut left = match self.family {
            Family::Godwit => {
                let upload = self.upload();
                let line = match write.resume {
                    true => upload.done(&self.name)?,
                    false => upload.abandon(&self.name)?,
                };
                let reply = session.ask_one(line)?;
                match ReplyFacts::from_reply(&reply) {
                    Some(told) if write.resume && reply.is_positive() => {
                        told.done.unwrap_or_default()
                    }
                    _ => Extents::new(),
                }
            }
            // Written in order, so its length says it all; and its name says of what.
            Family::Plain if write.resume && self.is_apart() => {
                let reply = session.ask_one(Line::new("SIZE").bytes(self.part.name())?)?;
                let can_go_on = session.peer.features.restarts_streams();
                let size = client::size_of(&reply).filter(|_| can_go_on && write.origin.is_some());
                size.map(|size| Extents::from(0..size)).unwrap_or_default()
            }
            // A GridFTP server cannot be asked which blocks landed: its own markers were noted.
            Family::Grid if write.resume && write.origin.is_some() => {
                let reply = session.ask_one(Line::new("SIZE").bytes(self.part.name())?)?;
                let landed = self.part.landed();
                let is_there = client::size_of(&reply).is_some_and(|size| size >= landed.end());
                if is_there { landed } else { Extents::new() }
            }
            _ => Extents::new(),
        };
        if write.size.is_some_and(|size| left.end() > size) {
            left = Extents::new();
        }
        Ok(left)
    }

    pub(super) fn upload(&self) -> Upload<'_> {
        Upload {
            id: self.id(),
            ..Upload::default()
        }
    }

    /// Returns the id of an upload to a node.
    pub(super) fn id(&self) -> Option<&str> {
        let id = self.part.name().strip_prefix(&self.name[..])?;
        str::from_utf8(id.strip_prefix(b"\0")?).ok()
    }

    /// Tells whether the file is kept here until it is whole.
    pub(super) fn is_kept(&self) -> bool {
        self.family == Family::Godwit
            && self.size.is_some_and(|size| size <= SMALL_BYTES)
            && self.landed.is_empty()
            && matches!(self.how, WriteMode::New | WriteMode::Replace(None))
    }

    /// Returns the name of the file that is written to.
    pub(super) fn file(&self) -> &[u8] {
        match self.family {
            Family::Godwit => &self.name,
            _ => self.part.name(),
        }
    }

    /// Tells whether the bytes are out of sight until they are whole.
    pub(super) fn is_apart(&self) -> bool {
        self.part.name() != self.name
    }

    pub(super) fn mode(&self) -> TransferMode {
        match self.family {
            Family::Plain => TransferMode::Stream,
            _ => TransferMode::Extended,
        }
    }

    /// Returns what begins a transfer in which what landed stays.
    pub(super) fn commands(&self, landed: &Extents, start: u64) -> Result<Vec<Line>> {
        let stor = Line::new("STOR").bytes(self.file())?;
        Ok(match self.family {
            Family::Godwit => {
                let upload = Upload {
                    size: self.size.filter(|_| self.is_apart()),
                    mode: self.mode,
                    hold: self.is_apart(),
                    how: Some(self.how_word()),
                    ..self.upload()
                };
                vec![upload.esto(&self.name)?]
            }
            // ESTO A and REST keep the existing bytes; a bare STOR cuts the file off first.
            Family::Grid if self.how == WriteMode::InPlace => {
                vec![Line::new("ESTO A").and(0).bytes(self.file())?]
            }
            Family::Grid if landed.is_empty() => {
                let announced = self.size.filter(|size| *size > 0);
                let allo = announced.map(|size| Line::new("ALLO").and(size));
                allo.into_iter().chain([stor]).collect()
            }
            Family::Grid => vec![Line::new("REST").and(landed), stor],
            Family::Plain if start > 0 || self.how == WriteMode::InPlace => {
                vec![Line::new("REST").and(start), stor]
            }
            Family::Plain => vec![stor],
        })
    }

    pub(super) fn how_word(&self) -> &'static str {
        match self.how {
            WriteMode::New => "new",
            WriteMode::InPlace => "inplace",
            _ => "replace",
        }
    }

    /// Tells whether to compute ADLER32 of the sent bytes: a GridFTP server can be asked for that at the end.
    pub(super) fn sums(&self, session: &RemoteSession) -> bool {
        let offered = session.peer.features.checksums();
        let is_asked_there = self.checks.blake3 && offered.contains(&Algorithm::Adler32);
        // A node reports leaves of whole files; a range in place has partial ones at its ends.
        let has_leaves = self.family == Family::Godwit && self.how != WriteMode::InPlace;
        self.checks.adler32 || (!has_leaves && is_asked_there)
    }
}

/// Returns a tag made of the copy's source, so that a partial of another source has another name.
fn tag(write: &Write<'_>) -> Option<String> {
    let origin = write.origin?;
    let version = match &origin.version {
        Version::Strong(digest) => digest.to_string(),
        // When it was seen does not matter.
        Version::Weak { size, mtime, .. } => format!("{size} {mtime:?}"),
        other => format!("{other:?}"),
    };
    let text = format!("{}\n{version}", origin.name);
    let digest = Digest::of(Algorithm::Blake3, text.as_bytes());
    Some(digest.hex()[..12].to_owned())
}

/// Returns an id that no other upload has.
fn unique_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Relaxed);
    format!(
        "{:x}-{:x}-{count}",
        std::process::id(),
        super::publish::now().as_nanos()
    )
}

/// Returns the name of a part beside the file: `.NAME.TAG.godwit-part`.
pub(in crate::remote) fn part_name(name: &[u8], tag: Option<&str>) -> Vec<u8> {
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    let file = path.file_name().map_or(&[][..], |f| f.as_bytes());
    let folder = &name[..name.len() - file.len().min(name.len())];
    let tag = tag.map_or(String::new(), |tag| format!(".{tag}"));
    let file = &file[..file.len().min(NAME_MAX)];
    [folder, b".", file, tag.as_bytes(), names::PART_SUFFIX].concat()
}

/// Names have at most 255 bytes; this leaves room for additions.
const NAME_MAX: usize = 220;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_beside_the_file() {
        assert_eq!(part_name(b"/a/b", Some("x")), b"/a/.b.x.godwit-part");
        assert_eq!(part_name(b"b", None), b".b.godwit-part");
    }
}
