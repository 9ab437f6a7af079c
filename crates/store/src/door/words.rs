//! Conversions between values of the door's calls and those of stores, both ways.

use crate::{
    Capabilities, Entry, EntryKind, Error, Expected, Finished, HopStatus, Result, Set, Space, Stat,
    Verified, WriteMode, Xattrs,
};
use godwit_core::{Algorithm, Version};
use godwit_wire::door::call::{self, Bytes, Link, Name, Text, Time};
use std::{path::PathBuf, time::Duration};

/// Something that has a form in calls.
pub trait CallForm: Sized {
    /// That form.
    type As;

    /// Writes it.
    fn say(&self) -> Self::As;

    /// Reads it.
    fn heard(said: Self::As) -> Self;
}

impl CallForm for EntryKind {
    type As = call::DoorKind;

    fn say(&self) -> call::DoorKind {
        match self {
            Self::File => call::DoorKind::File,
            Self::Directory => call::DoorKind::Directory,
            Self::Link => call::DoorKind::Link,
            Self::Other => call::DoorKind::Other,
        }
    }

    fn heard(said: call::DoorKind) -> Self {
        match said {
            call::DoorKind::File => Self::File,
            call::DoorKind::Directory => Self::Directory,
            call::DoorKind::Link => Self::Link,
            call::DoorKind::Other => Self::Other,
        }
    }
}

impl CallForm for Stat {
    type As = call::DoorStat;

    fn say(&self) -> call::DoorStat {
        call::DoorStat {
            kind: self.kind.say(),
            size: self.size,
            mtime: self.mtime.map(Time),
            mode: self.mode,
            owner: self.owner.clone(),
            group: self.group.clone(),
            target: self.target.clone().map(Link),
            unique: self.unique.clone(),
            digest: self.digest.clone().map(Text),
            touched: self.touched.map(Time),
        }
    }

    fn heard(said: call::DoorStat) -> Self {
        Self {
            kind: EntryKind::heard(said.kind),
            size: said.size,
            mtime: said.mtime.map(|time| time.0),
            mode: said.mode,
            owner: said.owner,
            group: said.group,
            target: said.target.map(|link| link.0),
            unique: said.unique,
            digest: said.digest.map(|digest| digest.0),
            touched: said.touched.map(|time| time.0),
        }
    }
}

impl CallForm for Entry {
    type As = call::DoorEntry;

    fn say(&self) -> call::DoorEntry {
        call::DoorEntry {
            path: Name(self.path.clone()),
            stat: self.stat.say(),
        }
    }

    fn heard(said: call::DoorEntry) -> Self {
        Self {
            path: said.path.0,
            stat: Stat::heard(said.stat),
        }
    }
}

impl CallForm for Version {
    type As = call::DoorVersion;

    fn say(&self) -> call::DoorVersion {
        self.clone().into()
    }

    fn heard(said: call::DoorVersion) -> Self {
        said.into()
    }
}

impl CallForm for WriteMode {
    type As = call::How;

    fn say(&self) -> call::How {
        match self {
            Self::New => call::How::New,
            Self::Replace(version) => call::How::Replace(version.as_ref().map(CallForm::say)),
            Self::InPlace => call::How::InPlace,
            &Self::Append { writer, seq } => call::How::Append { writer, seq },
        }
    }

    fn heard(said: call::How) -> Self {
        match said {
            call::How::New => Self::New,
            call::How::Replace(version) => Self::Replace(version.map(Version::heard)),
            call::How::InPlace => Self::InPlace,
            call::How::Append { writer, seq } => Self::Append { writer, seq },
        }
    }
}

impl CallForm for Capabilities {
    type As = call::DoorCan;

    fn say(&self) -> call::DoorCan {
        call::DoorCan {
            any_order: self.any_order,
            again: self.again,
            in_place: self.in_place,
            append: self.append,
            attempts: self.attempts,
            append_once: self.append,
            atomic: self.atomic,
            resume: self.resume,
            ranges: self.ranges,
            write: self.write,
            set_mtime: self.set_mtime,
            set_mode: self.set_mode,
            xattrs: Some(self.xattrs),
            links: self.links,
            space: self.space,
            leaves: self.leaves,
            passes_on: self.passes_on,
            digests: self.digests.iter().map(ToString::to_string).collect(),
        }
    }

    fn heard(said: call::DoorCan) -> Self {
        Self {
            any_order: said.any_order,
            again: said.again,
            in_place: said.in_place,
            append: said.append && said.append_once,
            attempts: said.attempts,
            atomic: said.atomic,
            resume: said.resume,
            ranges: said.ranges,
            write: said.write,
            set_mtime: said.set_mtime,
            set_mode: said.set_mode,
            xattrs: said.xattrs.unwrap_or(false),
            links: said.links,
            space: said.space,
            leaves: said.leaves,
            passes_on: said.passes_on,
            // Algorithms that only a newer node knows are ignored.
            digests: said.digests.iter().filter_map(|d| d.parse().ok()).collect(),
        }
    }
}

impl CallForm for HopStatus {
    type As = call::Station;

    fn say(&self) -> call::Station {
        let ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        call::Station {
            at: self.at.clone(),
            stage: self.stage.clone(),
            size: self.size,
            owed: self.owed,
            age_ms: self.age.map(ms),
            why: self.why.clone(),
            waits_for: self.waits_for.clone().map(call::Name),
        }
    }

    fn heard(said: call::Station) -> Self {
        Self {
            at: said.at,
            stage: said.stage,
            size: said.size,
            owed: said.owed,
            age: said.age_ms.map(Duration::from_millis),
            why: said.why,
            waits_for: said.waits_for.map(|call::Name(path)| path),
        }
    }
}

impl CallForm for Space {
    type As = call::DoorSpace;

    fn say(&self) -> call::DoorSpace {
        call::DoorSpace {
            total_bytes: self.total_bytes,
            free_bytes: self.free_bytes,
        }
    }

    fn heard(said: call::DoorSpace) -> Self {
        Self {
            total_bytes: said.total_bytes,
            free_bytes: said.free_bytes,
        }
    }
}

impl CallForm for Set {
    /// Beside the path.
    type As = call::AskSet;

    fn say(&self) -> call::AskSet {
        let xattrs = self.xattrs.iter();
        call::AskSet {
            path: Name(PathBuf::new()),
            length: self.length,
            mode: self.mode,
            mtime: self.mtime.map(Time),
            atime: self.atime.map(Time),
            link_to: self.link_to.clone().map(Link),
            xattrs: xattrs
                .map(|(name, value)| (Link(name.into()), value.clone().map(Bytes)))
                .collect(),
        }
    }

    fn heard(said: call::AskSet) -> Self {
        let xattrs = said.xattrs.into_iter();
        Self {
            length: said.length,
            mode: said.mode,
            mtime: said.mtime.map(|time| time.0),
            atime: said.atime.map(|time| time.0),
            link_to: said.link_to.map(|link| link.0),
            xattrs: xattrs
                .map(|(name, value)| (name.0.into(), value.map(|bytes| bytes.0)))
                .collect(),
        }
    }
}

impl CallForm for Xattrs {
    type As = Vec<(Link, Bytes)>;

    fn say(&self) -> Self::As {
        let each = self.iter();
        each.map(|(name, value)| (Link(name.into()), Bytes(value.clone())))
            .collect()
    }

    fn heard(said: Self::As) -> Self {
        let each = said.into_iter();
        each.map(|(name, value)| (name.0.into(), value.0)).collect()
    }
}

impl CallForm for Expected {
    type As = call::AskFinish;

    fn say(&self) -> call::AskFinish {
        call::AskFinish {
            size: self.size,
            digest: self.digest.clone().map(Text),
            mtime: self.mtime.map(Time),
            mode: self.mode,
        }
    }

    fn heard(said: call::AskFinish) -> Self {
        Self {
            size: said.size,
            digest: said.digest.map(|digest| digest.0),
            mtime: said.mtime.map(|time| time.0),
            mode: said.mode,
        }
    }
}

impl CallForm for Finished {
    type As = call::FinishedUpload;

    fn say(&self) -> call::FinishedUpload {
        call::FinishedUpload {
            version: self.version.say(),
            digests: self.digests.iter().cloned().map(Text).collect(),
            verified: match &self.verified {
                Verified::By(algorithm) => Some(algorithm.to_string()),
                Verified::SizeOnly => None,
            },
            reread_bytes: self.reread_bytes,
            in_place: self.in_place,
        }
    }

    fn heard(said: call::FinishedUpload) -> Self {
        let by = said.verified.and_then(|by| by.parse::<Algorithm>().ok());
        Self {
            version: Version::heard(said.version),
            digests: said.digests.into_iter().map(|digest| digest.0).collect(),
            verified: by.map_or(Verified::SizeOnly, Verified::By),
            reread_bytes: said.reread_bytes,
            in_place: said.in_place,
        }
    }
}

/// Reads an algorithm that was asked for by name.
pub fn algorithm(name: &str) -> Result<Algorithm> {
    name.parse().map_err(|_| {
        Error::unsupported(
            format!("{name} of a file"),
            "no digest of that name is known",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node claims to append, and has never counted appends.
    #[test]
    fn older_node_cannot_append_once() {
        let said: call::DoorCan =
            call::read(br#"{"write":true,"append":true}"#).expect("it is JSON");
        assert_eq!(said.xattrs, None);
        let can = Capabilities::heard(said);
        assert!(can.write && !can.append && !can.xattrs);
        let now = Capabilities {
            append: true,
            ..Capabilities::default()
        };
        assert!(Capabilities::heard(now.say()).append);
    }
}
