//! The rows of the records, and a change of them.

use crate::{
    Who,
    id::Id,
    plan::{
        Unreadable,
        entry::{Asked, Entry, upload_of},
        forwarded::Forwarded,
        order::DeedRow,
        state::{Meta, State},
    },
};
use godwit_core::{
    Chain, Digest, Url,
    holding::{Base, Holding, Record},
};
use std::sync::atomic::Ordering::Relaxed;

/// The row of a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LogRow {
    pub id: Id,
    /// Logs of one name are drained in this order.
    pub number: u64,
    pub url: String,
    pub audience: String,
    pub credential: String,
    /// The number of the writer at the target.
    pub writer: u64,
    /// The number of the next piece there.
    pub seq: u64,
    /// Where that piece begins in the log.
    pub offset: u64,
    /// Where the pieces end that may have been sent under that number; not behind `offset`: none were.
    pub upto: u64,
}

/// Everything that is on record of a holding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub id: Id,
    /// The order in which they began.
    pub number: u64,
    pub url: String,
    pub audience: String,
    /// By what its servers are asked; empty: as always.
    pub credential: String,
    /// The session that wrote it.
    pub session: String,
    /// The upload by which it came.
    pub upload: String,
    /// The entry beside which it was written, and into which it is to be merged.
    pub merges_into: Option<Id>,
    /// Which nodes passed it on, the first first, with spaces between.
    pub upstream: String,
    /// The target only passes it on, and has not said yet that it is at its end.
    pub is_forwarded: bool,
    /// A program filled it.
    pub filled: bool,
    /// A time of its users.
    pub stamp: Option<i64>,
    /// Permission bits for a new file.
    pub mode: Option<u32>,
    /// The file that the target had before, if that is known.
    pub before: Option<Base>,
    /// The hash of the generation that the target was asked to publish, if that is known.
    pub asked: Option<Digest>,
    /// The class of prices that fetching it again is of.
    pub price: u32,
    pub record: Record,
    /// Why it is held, in words.
    pub reason: String,
    /// The boot that the record was written in.
    pub boot: String,
    /// Seconds since the epoch.
    pub used: u64,
    /// The time of the last verification, in seconds since the epoch; 0: never.
    pub verified: u64,
    /// The time at which it came to be here, in seconds since the epoch.
    pub created_at: u64,
    /// How often it was fetched.
    pub transfers: u64,
}

/// A change of the records.
pub(crate) enum Change {
    Put(Box<Row>),
    /// The row of an entry, and the other was merged into it.
    Merge(Box<Row>, Id),
    Forget(Id),
    /// The row of a log.
    Log(Box<LogRow>),
    /// A log that its target has as a whole.
    ForgetLog(Id),
    /// Operations that are no publications; `None`: it is over.
    Deeds(Vec<(u64, Option<DeedRow>)>),
    /// A tag of a file; with a count of 0 there is none.
    Tag(Id, Tag),
    /// A hop took something of a name, or it is at its end.
    Forwarded(Box<Forwarded>, bool),
    /// When they were last used.
    Used(Vec<(Id, u64)>),
    /// When it was last verified.
    Verified(Id, u64),
}

impl Change {
    /// Tells whether it says that something is over, which no later change says again.
    pub(crate) fn is_an_end(&self) -> bool {
        matches!(
            self,
            Self::Forget(_) | Self::ForgetLog(_) | Self::Deeds(_) | Self::Forwarded(..)
        )
    }
}

/// A named tag on a file.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Tag {
    /// Its name.
    pub name: String,
    /// How often it was added.
    pub count: u32,
    /// A time that means what its user says.
    pub timestamp: Option<i64>,
    /// When it falls by itself, in seconds since the epoch.
    pub expires: Option<u64>,
}

impl Row {
    /// Returns the row of an entry; `state` is that of the entry.
    pub(crate) fn of(entry: &Entry, state: &State, boot: &str) -> Self {
        let credential = entry.who.credential.as_deref();
        let is_asked = |asked: &&Asked| {
            state.machine.is_asked() && asked.generation == state.machine.sending()
        };
        let asked = state.delivery.upload.asked.as_ref().filter(is_asked);
        let meta = &state.meta;
        Self {
            id: entry.id,
            number: entry.number(),
            url: entry.url().to_string(),
            audience: entry.who.audience.clone(),
            credential: credential.map_or_else(String::new, |path| path.display().to_string()),
            session: meta.session.clone(),
            filled: meta.is_filled,
            stamp: meta.stamp,
            mode: meta.mode,
            before: meta.replaces.clone(),
            asked: asked.and_then(|asked| asked.digest.clone()),
            price: meta.price,
            upload: meta.upload.clone(),
            merges_into: state.bytes.merges_into,
            upstream: meta.upstream.join(" "),
            is_forwarded: meta.is_forwarded,
            record: state.machine.record(meta.committed),
            reason: state.delivery.reason.clone(),
            boot: boot.into(),
            used: entry.used.load(Relaxed),
            verified: entry.verified.load(Relaxed),
            created_at: entry.created_at,
            transfers: meta.transfers,
        }
    }

    /// Restores the entry.
    pub(crate) fn entry(&self, url: Url, machine: Holding, chains: &[(u64, Chain)]) -> Entry {
        let who = Who {
            audience: self.audience.clone(),
            credential: (!self.credential.is_empty()).then(|| self.credential.clone().into()),
        };
        let entry = Entry::new(self.id, (self.number, self.created_at), url, who, machine);
        entry.used.store(self.used, Relaxed);
        entry.verified.fetch_max(self.verified, Relaxed);
        let mut state = entry.lock();
        for (leaf, chain) in chains {
            state.bytes.leaves.set(*leaf, *chain);
        }
        state.bytes.merges_into = self.merges_into;
        state.record.has_row = true;
        state.validity.is_changed_at_target = true; // Whether it was is not in the records.
        state.meta = Meta {
            committed: self.record.committed,
            transfers: self.transfers,
            price: self.price,
            session: self.session.clone(),
            stamp: self.stamp,
            mode: self.mode,
            is_filled: self.filled,
            upload: self.upload.clone(),
            upstream: self.upstream.split_whitespace().map(Into::into).collect(),
            is_forwarded: self.is_forwarded,
            replaces: self.before.clone(),
        };
        state.delivery.reason.clone_from(&self.reason);
        let sealed = self.record.sealed.as_ref().zip(self.asked.clone());
        state.delivery.upload.asked = sealed.map(|(sealed, digest)| Asked {
            generation: sealed.generation,
            size: sealed.size,
            digest: Some(digest),
        });
        state.delivery.is_due = state.machine.owes();
        if state.delivery.is_due {
            // The node may have sent a part of it before it ended.
            let generation = state.machine.sending();
            state.delivery.upload.sent_as = Some(upload_of(self.id, generation));
        }
        drop(state);
        entry
    }
}

impl Unreadable {
    pub(crate) fn of(row: &Row, reserved: u64) -> Self {
        Self {
            url: row.url.clone(),
            size: row.record.size,
            pending_bytes: row.record.owed.len_bytes(),
            created_at: row.created_at,
            session: row.session.clone(),
            reserved,
        }
    }
}
