//! Reads by way of a hop that keeps what it forwards. A later reader gets the bytes from here, and the next server is asked
//! only whether they are still current.

use super::{Spooled, digest_of};
use crate::{
    Error, Fresh, Result, Who,
    clock::since_epoch,
    inner::{Inner, user::User},
    plan::entry::Entry,
    work::{fetch::Part, probe::is_untouched},
};
use godwit_core::{Algorithm, Digest, Extents, Fault, LEAF_BYTES, Url, Version, holding::Base};
use godwit_store::{
    BlockWriter, BlockWriterExt, EntryKind, Error as StoreError, LocalFile, Read,
    Result as StoreResult, Stat,
};
use godwit_sys::Buffer;
use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// How much is asked for at once, ahead of who reads: much, or each asking's way there and back would be seen.
const AHEAD: u64 = 64 * LEAF_BYTES;

/// A file of the next node that is cached, or is being fetched.
pub(super) struct Kept {
    /// The last answer of the next node.
    pub stat: Stat,
    user: User,
}

impl Spooled {
    /// Reads by way of what is kept here; `None`: it cannot be kept, and nothing of it was handed on.
    pub(super) fn read_kept(
        &self,
        path: &Path,
        want: &Extents,
        into: &dyn BlockWriter,
    ) -> StoreResult<Option<Read>> {
        let inner = &self.depot.inner;
        let kept = inner.kept(&self.url(path)?, &self.who, want);
        let Some(kept) = kept.map_err(self.told(path))? else {
            return Ok(None);
        };
        let wanted: Extents = want.within(0..kept.stat.size).collect();
        let is_read = AtomicBool::new(true);
        thread::scope(|scope| {
            let ahead = wanted.clone();
            scope.spawn(|| kept.come(inner, ahead, &is_read));
            let sent = self.send(path, &kept, wanted, into);
            is_read.store(false, Relaxed);
            sent
        })?;
        Ok(Some(Read {
            stat: kept.stat,
            digest: None,
        }))
    }

    fn send(
        &self,
        path: &Path,
        kept: &Kept,
        mut left: Extents,
        into: &dyn BlockWriter,
    ) -> StoreResult<()> {
        let inner = &self.depot.inner;
        let entry = &kept.user.entry;
        let file = inner.disk.reader(entry.id).map_err(self.told(path))?;
        let lying = LocalFile { path, file: &file };
        let mut buffer = Buffer::take();
        while let Some(range) = left.take_aligned(LEAF_BYTES) {
            (inner.ensure_as(entry, range.clone(), Part::More)).map_err(self.told(path))?;
            into.put_from(&lying, range, &mut buffer)?;
        }
        Ok(())
    }

    /// Tells what it hashes to if it is here and the next, which could not be asked, need not be.
    pub(super) fn digest_kept(
        &self,
        path: &Path,
        by: Algorithm,
        range: Option<Range<u64>>,
        error: Error,
    ) -> Result<Digest> {
        let kept = self.though(&self.url(path)?, error)?;
        let entry = &kept.user.entry;
        let file = self.depot.inner.disk.reader(entry.id)?;
        let range = range.unwrap_or(0..kept.stat.size);
        digest_of(&file, by, range).map_err(Error::disk(self.depot.inner.disk.path(entry.id)))
    }

    /// Returns what is known of a file here if the next, which could not be asked, need not be.
    pub(super) fn stat_kept(&self, url: &Url, error: Error) -> Result<Stat> {
        self.though(url, error).map(|kept| kept.stat)
    }

    fn though(&self, url: &Url, error: Error) -> Result<Kept> {
        match self.keeps {
            true => self.depot.inner.kept_though(url, &self.who, error),
            false => Err(error),
        }
    }
}

impl Kept {
    /// Tells whether what is here is still what the next was seen to have.
    fn is_still(&self) -> bool {
        let state = self.user.entry.lock();
        let version = self.stat.version(since_epoch());
        let base = match state.machine.base() {
            Base::Seen(version) => Some(version),
            _ => None,
        };
        let is_it = [state.validity.seen.as_ref(), base]
            .into_iter()
            .flatten()
            .any(|known| is_untouched(known, &version));
        is_it && !state.machine.owes()
    }

    /// Fetches ranges as long as a caller reads. Callers that wait for them get the error.
    fn come(&self, depot: &Inner, mut wanted: Extents, is_read: &AtomicBool) {
        while is_read.load(Relaxed)
            && let Some(range) = wanted.take_aligned(AHEAD)
            && depot.ensure_as(&self.user.entry, range, Part::More).is_ok()
        {}
    }
}

impl Inner {
    /// Has a file be kept here that is read, and asks whether it is still what it was; `None`: it cannot be kept.
    fn kept(&self, url: &Url, who: &Who, want: &Extents) -> Result<Option<Kept>> {
        let is_cold = self.plan().current_of(url, who).is_none();
        let found = match is_cold {
            true => self.find_seen(url, who, Fresh::Usual, &|| true),
            false => return self.kept_still(url, who, want),
        };
        match found {
            Ok((user, Some(stat))) if is_vouched_for(&stat) => {
                let came = self.ensure(&user.entry, first_of(want, &stat));
                kept_of(came.map(|()| Kept { stat, user }), url)
            }
            Ok((user, Some(_))) => {
                let entry = Arc::clone(&user.entry);
                drop(user);
                self.let_go(&entry).map(|()| None)
            }
            // Another reader fetched it meanwhile.
            Ok((_, None)) => self.kept_still(url, who, want),
            Err(error) => kept_of(Err(error), url),
        }
    }

    /// Returns the cached file, if it is still the file of the next node.
    fn kept_still(&self, url: &Url, who: &Who, want: &Extents) -> Result<Option<Kept>> {
        let (place, stat) = match self.stat_of(url, who) {
            Ok(found) => found,
            Err(error) => return self.kept_though(url, who, error).map(Some),
        };
        if !is_vouched_for(&stat) {
            return Ok(None);
        }
        let version = stat.version(since_epoch());
        let current = self.plan().current_of(url, who);
        // A version that was too new to be told apart counts like any other: many readers cost one transfer.
        let is_it = |entry: &Entry| {
            self.is_still_base(entry, &place, &stat, Fresh::Usual)
                || (entry.lock().validity.seen.as_ref())
                    .is_some_and(|seen| is_untouched(seen, &version))
        };
        let fresh = match current {
            Some(entry) if is_it(&entry) => Fresh::Usual,
            _ => Fresh::Now,
        };
        let came = self.find(url, who, fresh).and_then(|user| {
            self.ensure(&user.entry, first_of(want, &stat))?;
            Ok(Kept { stat, user })
        });
        kept_of(came, url)
    }

    /// The next cannot be asked. What is here as a whole is believed for a while if its content was named.
    fn kept_though(&self, url: &Url, who: &Who, error: Error) -> Result<Kept> {
        if error.fault() == Fault::Lasting {
            return Err(error);
        }
        let Some(entry) = self.plan().current_of(url, who) else {
            return Err(error);
        };
        let mut state = entry.lock();
        if state.is_gone || !self.is_believed(&state) {
            return Err(error);
        }
        let digest = match state.machine.base() {
            Base::Seen(Version::Strong(digest)) => Some(digest.clone()),
            _ => None,
        };
        let mtime = match &state.validity.seen {
            Some(Version::Weak { mtime, .. }) => Some(*mtime),
            _ => None,
        };
        let size = state.machine.size();
        let stat = Stat {
            digest,
            mtime,
            ..Stat::of(EntryKind::File, size)
        };
        let user = User::of(&entry, &mut state);
        drop(state);
        Ok(Kept { stat, user })
    }
}

/// Returns what came, unless it cannot be kept, or became another since it was asked for, or ours.
fn kept_of(came: Result<Kept>, url: &Url) -> Result<Option<Kept>> {
    match came {
        Ok(kept) => Ok(Some(kept).filter(Kept::is_still)),
        Err(error) if is_of_next(&error) => Err(error),
        Err(error) => {
            tracing::info!(%url, %error, "what is read is not kept");
            Ok(None)
        }
    }
}

/// Tells whether something vouches for what it is: of what tells no times all would come each time.
fn is_vouched_for(stat: &Stat) -> bool {
    stat.kind == EntryKind::File && stat.version(since_epoch()) != Version::None
}

/// Returns the first that is to come of what is wanted.
fn first_of(want: &Extents, stat: &Stat) -> Range<u64> {
    let mut wanted: Extents = want.within(0..stat.size).collect();
    wanted.take_aligned(LEAF_BYTES).unwrap_or(0..0)
}

/// Tells whether it is the next that cannot, and nothing here.
fn is_of_next(error: &Error) -> bool {
    match error {
        Error::Store(error) => !matches!(**error, StoreError::NoSpace { .. }),
        error => matches!(error, Error::BrokeOff { .. } | Error::Ending),
    }
}
