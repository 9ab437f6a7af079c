//! Listings, over a data connection or the control connection, as they come:
//! memory does not grow with the directory.

use super::{FtpSession, LinkState, now, owners};
use crate::access::guarded::GuardedExport;
use godwit_core::{Block, Kind};
use godwit_store::{BlockWriter, Checks, Entry, EntryKind, Error, Result, Stat, Store, StoreExt};
use godwit_wire::server::{self as wire, Form, FtpAnswer, FtpOutcome, Leg, Listing, Refusal};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

impl FtpSession {
    pub(super) fn list(
        &mut self,
        path: &Path,
        listing: &Listing,
        leg: &Leg,
    ) -> Result<FtpAnswer, Refusal> {
        let listed = self.send_listing(path, listing, leg);
        match self.after_transfer(leg.mode) {
            LinkState::Done => Ok(match listed {
                Ok(()) => FtpAnswer::Sent(FtpOutcome::default()),
                Err(failure) => FtpAnswer::NotKept(failure),
            }),
            _ => listed.map(|()| FtpAnswer::Sent(FtpOutcome::default())),
        }
    }

    fn send_listing(&mut self, path: &Path, listing: &Listing, leg: &Leg) -> Result<(), Refusal> {
        let stat = self.dir().stat(path)?;
        let facts = matches!(listing.form, Form::Facts(_));
        if facts && stat.kind != EntryKind::Directory {
            return Err(Refusal::of_kind(Kind::NotDirectory, "Not a directory"));
        }
        if stat.kind == EntryKind::Directory {
            self.dir().may_list(path)?;
        }
        self.open_to_send(leg)?;
        self.flush()
            .map_err(|_| Refusal::of_kind(Kind::Lost, "Lost."))?;
        let mut held = self.held.take().expect("it was opened");
        let watch = self.new_watch()?;
        let dir = self.dir().clone();
        let entries_max = self.shared.config.limits.listing_entries;
        let mode = leg.mode;
        let sent = self.attended(&watch, super::TICK_NEVER, &mut |_| {}, || {
            let unchecked = Checks::default();
            let sending = held.send(mode, 0, unchecked, &watch);
            let mut lines = ListingLines {
                listing,
                into: &sending,
                bytes: Vec::new(),
                offset: 0,
                now: now(),
            };
            let listed = each_entry(
                &dir,
                path,
                &stat,
                listing,
                entries_max,
                &mut |name, stat| lines.write(name, stat),
            );
            // The entries found so far are sent, and the reply reports the error: a client must not wait for data that
            // does not come.
            lines.send()?;
            sending.end()?;
            Ok((held, listed))
        });
        let (held, listed) = sent?;
        self.held = Some(held);
        self.links = LinkState::Done;
        listed.map_err(Refusal::from)
    }

    /// A directory, or one file, on the control connection.
    pub(super) fn show(&mut self, path: &Path, listing: &Listing) -> Result<FtpAnswer, Refusal> {
        let dir = self.dir().clone();
        let stat = dir.stat(path)?;
        let (now, entries_max) = (now(), self.shared.config.limits.listing_entries);
        each_entry(
            &dir,
            path,
            &stat,
            listing,
            entries_max,
            &mut |name, stat| {
                self.machine.on_entry(listing, name, stat, now);
                if self.machine.output().len() > super::OUTPUT_BYTES {
                    self.flush_replies().map_err(|_| Error::Canceled)?;
                }
                Ok(())
            },
        )?;
        Ok(FtpAnswer::Done)
    }
}

/// Collects lines and sends them by the block.
struct ListingLines<'a> {
    listing: &'a Listing,
    into: &'a dyn BlockWriter,
    bytes: Vec<u8>,
    offset: u64,
    now: Duration,
}

impl ListingLines<'_> {
    fn write(&mut self, name: &Path, stat: &wire::ListedStat) -> Result<()> {
        self.listing.write(name, stat, self.now, &mut self.bytes);
        if self.bytes.len() >= BLOCK_BYTES {
            self.send()
        } else {
            Ok(())
        }
    }

    fn send(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            self.into.put(Block::at(self.offset, &self.bytes))?;
        }
        self.offset += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

/// Calls `each` for what the listing is of.
fn each_entry(
    dir: &GuardedExport,
    path: &Path,
    stat: &Stat,
    listing: &Listing,
    entries_max: u64,
    each: &mut dyn FnMut(&Path, &wire::ListedStat) -> Result<()>,
) -> Result<()> {
    if stat.kind != EntryKind::Directory {
        let name = PathBuf::from(path.file_name().unwrap_or_default());
        return each(&name, &told(stat, None));
    }
    if matches!(listing.form, Form::Facts(_)) {
        each(Path::new("."), &told(stat, Some(wire::ListedKind::Current)))?;
        if !listing.recursive
            && let Some(above) = path.parent()
        {
            match dir.stat(above) {
                Ok(above) => each(
                    Path::new(".."),
                    &told(&above, Some(wire::ListedKind::Parent)),
                )?,
                // The client may not know it.
                Err(Error::Denied { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let mut count = 0;
    let mut one = |entry: Entry| {
        count += 1;
        if count > entries_max {
            return Err(too_many(entries_max));
        }
        let fits = listing
            .pattern
            .as_ref()
            .is_none_or(|pattern| matches(pattern, entry.path.as_os_str().as_encoded_bytes()));
        if !fits {
            return Ok(());
        }
        let stat = if listing.recursive {
            told(&entry.stat, None)
        } else {
            followed(dir, path, &entry)
        };
        each(&entry.path, &stat)
    };
    if listing.recursive {
        dir.walk(path, &mut one)
    } else {
        dir.list(path, &mut one)
    }
}

/// Listings of one directory show the target of a link, as GCT does, so that recursive clients follow it. A dangling
/// link is shown itself.
fn followed(dir: &GuardedExport, path: &Path, entry: &Entry) -> wire::ListedStat {
    let mut stat = told(&entry.stat, None);
    if entry.stat.kind == EntryKind::Link
        && let Ok(behind) = dir.stat(&path.join(&entry.path))
    {
        let target = stat.target.take();
        stat = wire::ListedStat {
            target,
            ..told(&behind, None)
        };
    }
    stat
}

pub(super) fn told(stat: &Stat, kind: Option<wire::ListedKind>) -> wire::ListedStat {
    wire::ListedStat {
        kind: kind.unwrap_or(match stat.kind {
            EntryKind::File => wire::ListedKind::File,
            EntryKind::Directory => wire::ListedKind::Directory,
            EntryKind::Link => wire::ListedKind::Link,
            EntryKind::Other => wire::ListedKind::Other,
        }),
        size: stat.size,
        modify: stat.mtime,
        mode: stat.mode,
        owner: stat.owner.clone(),
        group: stat.group.clone(),
        owner_name: owners::user(stat.owner.as_deref()),
        group_name: owners::group(stat.group.as_deref()),
        target: stat.target.clone(),
        unique: stat.unique.clone(),
        touched: stat.touched,
    }
}

fn too_many(entries_max: u64) -> Error {
    Error::unsupported(
        "listing so many entries",
        format!("the limit is {entries_max}"),
    )
}

/// `*` and `?`, in time that grows with the product of both lengths at most.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, n) = (at + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Small, so that a reader can begin with the first names.
const BLOCK_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, name, fits) in [
            ("a*", "a1", true),
            ("a*", "b", false),
            ("*", "", true),
            ("*.txt", "x.txt.txt", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                fits,
                "{pattern} {name}"
            );
        }
        let (pattern, name) = ("*a".repeat(40), "a".repeat(10_000) + "b");
        assert!(!matches(pattern.as_bytes(), name.as_bytes()));
    }
}
