//! The state of an entry, in parts. A part has what belongs together, and the methods that touch nothing else.

use crate::{
    Error, Tag,
    error::Patience,
    id::Id,
    plan::entry::{Asked, Parked},
};
use godwit_core::{
    Leaves, Url, Version,
    holding::{Base, Holding, Mode, Ticket},
};
use godwit_store::DataHints;
use std::{fs::File, sync::Arc, time::Instant};

/// The state of an entry, behind its lock.
pub(crate) struct State {
    pub machine: Holding,
    pub visibility: Visibility,
    /// A newer entry of the same name is committed: it need not be delivered any more.
    pub is_superseded: bool,
    /// Unlinked: a caller that finds the entry looks for another.
    pub is_gone: bool,
    pub bytes: Bytes,
    pub record: Persistence,
    pub users: Users,
    pub validity: Validity,
    pub delivery: Delivery,
    pub meta: Meta,
}

/// Which callers find an entry by its name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Visibility {
    /// Only its writer: it is no generation before that one closes it.
    Private,
    /// Callers that have it open, or that look at all entries of a name.
    #[default]
    Hidden,
    /// Readers of its name.
    Current,
    /// Callers that have it open: its name was removed.
    Unlinked,
}

/// The bytes of an entry in the depot's directory.
#[derive(Default)]
pub(crate) struct Bytes {
    /// The hashes of the leaves, as far as they are known.
    pub leaves: Leaves,
    /// Open for writing as long as this node writes the file.
    pub write_fd: Option<Arc<File>>,
    /// The part of the depot's quota that the file takes.
    pub reserved: u64,
    /// The options of the data channels that the last lazy reader asked for.
    pub hints: DataHints,
    /// How often fetching failed, and the last error.
    pub failed: (u64, Option<Error>),
    /// The entry into which this patch is to be merged.
    pub merges_into: Option<Id>,
    /// A patch is being merged into the entry, which is no generation until all of the patch is there.
    pub is_merging: bool,
    /// A thread compares the file with its hashes, under a lease.
    pub is_scanning: bool,
}

/// How much of an entry's state is in the records.
#[derive(Default)]
pub(crate) struct Persistence {
    /// Counts changes that belong into the row.
    pub changes: u64,
    /// The last change that is persisted.
    pub persisted: u64,
    /// The change up to which the bytes and their name are durable, if no row relies on that yet. The hashes of leaves
    /// are kept by then if there is no row.
    pub durable: Option<u64>,
    pub has_row: bool,
    /// A thread writes the row.
    pub is_writing: bool,
}

/// Callers that use an entry, and tags that keep it.
#[derive(Default)]
pub(crate) struct Users {
    /// How many callers have it open, or wait for it.
    pub open: u32,
    /// Callers that may write by descriptors.
    pub editors: u32,
    pub tags: Vec<Tag>,
    /// Writers by descriptor changed it since the first of them opened it.
    pub is_edited: bool,
    /// The place in the order at which the last of them closed it and received an answer.
    pub closed_at: u64,
}

/// The last answer of the origin about its file.
#[derive(Default)]
pub(crate) struct Validity {
    pub check: Check,
    /// How often it was invalidated.
    pub invalidations: u64,
    /// The base, as a caller that asks for size and time sees it.
    pub seen: Option<Version>,
    /// Where it was seen.
    pub seen_at: Option<Url>,
    /// A program of this machine had it changed at the target: that the target has it no more is no loss.
    pub is_changed_at_target: bool,
}

/// Whether the origin still has the base.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Check {
    /// The origin was not asked since this node started.
    #[default]
    Never,
    /// The origin had the base at that time.
    At(Instant),
    /// A new length was promised, or the file was changed past this node: an answer to an earlier question tells nothing.
    Invalid,
}

/// One invalidation, and what was known before.
pub(crate) struct Invalidation {
    number: u64,
    before: Check,
}

/// The way of an entry to its target.
#[derive(Default)]
pub(crate) struct Delivery {
    /// There may be something to deliver.
    pub is_due: bool,
    /// A thread delivers it.
    pub is_in_flight: bool,
    pub upload: Upload,
    pub retry: Retry,
    /// The place in the order that it takes after the delivery in flight, unless something came after that place.
    pub next_place: Option<u64>,
    /// The last generation that the target has, since this node started.
    pub delivered: u64,
    /// Why it is on hold.
    pub reason: String,
}

/// The state of an upload to the target.
#[derive(Default)]
pub(crate) struct Upload {
    /// The conversation with the target, while no thread uses it.
    pub parked: Option<Parked>,
    /// The last request to the target to publish a generation.
    pub asked: Option<Asked>,
    /// The upload of which the target may have a part.
    pub sent_as: Option<String>,
    /// The target's part differs from what was sent.
    pub is_spoilt: bool,
    /// The target takes whole files only, and a program still writes the entry.
    pub waits_for_writer: bool,
}

/// Failed attempts to deliver.
#[derive(Default)]
pub(crate) struct Retry {
    pub not_before: Option<Instant>,
    pub tries: u32,
    pub last: Option<Error>,
    pub patience: Patience,
}

/// Attributes of an entry that its row keeps.
#[derive(Default)]
pub(crate) struct Meta {
    /// The last generation that a writer committed.
    pub committed: u64,
    /// How often it was fetched.
    pub transfers: u64,
    /// How slowly it was fetched, as a class.
    pub price: u32,
    pub session: String,
    /// A time whose meaning its users know.
    pub stamp: Option<i64>,
    /// Permission bits for a new file.
    pub mode: Option<u32>,
    /// A program filled it, and not its origin.
    pub is_filled: bool,
    /// The upload by which it arrived.
    pub upload: String,
    /// The nodes that forwarded it to this one.
    pub upstream: Vec<String>,
    /// The target forwards it, and its last target has not confirmed it.
    pub is_forwarded: bool,
    /// The file that the target had under its name when it arrived, if this node had delivered that.
    pub replaces: Option<Base>,
}

impl State {
    pub(crate) fn of(machine: Holding) -> Self {
        Self {
            machine,
            visibility: Visibility::default(),
            is_superseded: false,
            is_gone: false,
            bytes: Bytes::default(),
            record: Persistence::default(),
            users: Users::default(),
            validity: Validity::default(),
            delivery: Delivery::default(),
            meta: Meta::default(),
        }
    }

    pub(crate) fn is_private(&self) -> bool {
        self.visibility == Visibility::Private
    }

    pub(crate) fn is_current(&self) -> bool {
        self.visibility == Visibility::Current
    }

    pub(crate) fn is_unlinked(&self) -> bool {
        self.visibility == Visibility::Unlinked
    }

    /// Another entry is current from now on, or none.
    pub(crate) fn hide(&mut self) {
        if self.is_current() {
            self.visibility = Visibility::Hidden;
        }
    }

    /// Returns how many bytes are still to be sent. Those in flight count as sent, until the conversation breaks.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        if self.delivery.is_in_flight {
            self.machine.pushable_bytes()
        } else {
            self.machine.owed_bytes()
        }
    }

    /// Notes the end of a write, after which the file has this size.
    pub(crate) fn written(&mut self, ticket: Ticket, size: u64) {
        let before = self.machine.size();
        self.machine.written(ticket, size);
        self.may_have_grown(before);
    }

    /// Forgets the hash of the last leaf if the file is longer than `before`.
    pub(crate) fn may_have_grown(&mut self, before: u64) {
        if self.machine.size() > before {
            self.bytes.leaves.grown(before);
        }
    }

    /// Returns how few bytes are not worth sending while a writer goes on; all are worth it once a caller asked for them.
    pub(crate) fn least(&self) -> u64 {
        if self.machine.sending() == self.machine.generation() {
            WORTH_SENDING
        } else {
            0
        }
    }

    /// Tells whether a program filled it, and no tag keeps it any more.
    pub(crate) fn is_lapsed(&self) -> bool {
        self.meta.is_filled && self.users.tags.is_empty() && !self.machine.owes()
    }

    /// Tells whether it is known to be current: it is pending, or the origin had it since this node started. The row of
    /// an earlier start may have an old name: a rename does not write the row of a clean entry.
    pub(crate) fn is_sure(&self) -> bool {
        self.machine.owes() || self.validity.checked_at().is_some()
    }

    /// Tells whether a newer entry of the same name may replace it.
    pub(crate) fn may_be_superseded(&self) -> bool {
        let is_still = self.machine.writers().is_none() && !self.record.is_writing;
        let is_idle = self.users.open == 0 && !self.delivery.is_in_flight;
        is_still && is_idle && !self.machine.is_asked()
    }

    /// Marks a superseded entry as gone. One that is used or in flight stays, and is looked at again.
    pub(crate) fn go_if_superseded(&mut self) -> bool {
        if self.is_private() || !self.is_superseded {
            return false; // It is not ended yet, or was ended anew, and comes after.
        }
        let goes = !self.is_gone && self.may_be_superseded();
        // The thread that has it may have looked before it was superseded.
        self.delivery.is_due |= !goes;
        self.is_gone |= goes;
        goes
    }

    /// Tells whether all of it may be forgotten by the thread that has just delivered it.
    pub(crate) fn may_go_when_over(&self) -> bool {
        let is_kept = self.users.open > 0 || !self.users.tags.is_empty();
        !is_kept && !self.record.is_writing && !self.is_gone && self.machine.may_be_forgotten()
    }

    /// Tells whether it is to be written in place where the target has no file, and the target was not asked yet.
    pub(crate) fn is_to_be_entered(&self) -> bool {
        let is_in_place = self.machine.mode() == Mode::InPlace;
        is_in_place && *self.machine.base() == Base::Absent && !self.machine.is_inside()
    }

    /// Tells whether all of it may be forgotten, and its row says that nothing is pending.
    pub(crate) fn may_go(&self) -> bool {
        !self.delivery.is_in_flight && self.may_go_when_over()
    }
}

impl Persistence {
    /// Notes a change that belongs into the row.
    pub(crate) fn change(&mut self) {
        self.changes += 1;
    }

    /// Tells whether the row lacks a change.
    pub(crate) fn is_ahead(&self) -> bool {
        self.persisted < self.changes || !self.has_row
    }
}

impl Validity {
    /// Returns when the origin was asked last, and still had the base.
    pub(crate) fn checked_at(&self) -> Option<Instant> {
        match self.check {
            Check::At(at) => Some(at),
            Check::Never | Check::Invalid => None,
        }
    }

    /// Notes that the origin had the base when it was asked. After an invalidation that proves nothing.
    pub(crate) fn revalidated(&mut self, now: Instant) {
        if self.check != Check::Invalid {
            self.check = Check::At(now);
        }
    }

    /// Notes that the origin had the base when it was asked after so many invalidations.
    pub(crate) fn revalidated_after(&mut self, invalidations: u64, now: Instant) {
        if self.invalidations == invalidations {
            self.check = Check::At(now);
        }
    }

    /// Notes that the origin may have another file by now.
    pub(crate) fn invalidate(&mut self) -> Invalidation {
        self.invalidations += 1;
        Invalidation {
            number: self.invalidations,
            before: std::mem::replace(&mut self.check, Check::Invalid),
        }
    }

    /// Takes an invalidation back, since the origin could not be asked, unless another came after it.
    pub(crate) fn restore(&mut self, invalidation: &Invalidation) {
        if self.check == Check::Invalid && self.invalidations == invalidation.number {
            self.check = invalidation.before;
        }
    }

    /// Notes which version the origin has, and where.
    pub(crate) fn see(&mut self, version: Version, at: Option<Url>) {
        (self.seen, self.seen_at) = (Some(version), at);
    }

    /// Forgets the version that the origin had.
    pub(crate) fn unsee(&mut self) {
        (self.seen, self.seen_at) = (None, None);
    }
}

impl Retry {
    /// Forgets the failures, since an attempt succeeded or a person decided. The time of the next attempt stays.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            not_before: self.not_before,
            ..Self::default()
        };
    }

    pub(crate) fn failed(&mut self, error: Error) {
        self.tries += 1;
        self.last = Some(error);
    }
}

impl Meta {
    /// Adds nodes that forwarded what was written.
    pub(crate) fn forwarded_by(&mut self, nodes: &[String]) {
        for node in nodes {
            if !self.upstream.contains(node) {
                self.upstream.push(node.clone());
            }
        }
    }
}

/// Fewer bytes wait for more, or for the end of the file.
pub(crate) const WORTH_SENDING: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_to_earlier_question_revalidates_nothing() {
        let now = Instant::now();
        let mut state = State::of(Holding::of(Version::None, 0, Mode::Replace));
        state.validity.revalidated(now);
        assert!(state.is_sure());
        let asked_before = state.validity.invalidations;
        let invalidation = state.validity.invalidate();
        state.validity.revalidated(now);
        state.validity.revalidated_after(asked_before, now);
        assert!(!state.is_sure());
        state.validity.restore(&invalidation);
        assert!(state.is_sure());
        // A second invalidation stays if the first is taken back.
        let invalidation = state.validity.invalidate();
        state.validity.invalidate();
        state.validity.restore(&invalidation);
        assert!(!state.is_sure());
        let all = state.validity.invalidations;
        state.validity.revalidated_after(all, now);
        assert!(state.is_sure());
    }
}
