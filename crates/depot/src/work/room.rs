//! Finds room in the quota and on the disk.

use crate::{
    Error, IsWanted, Result,
    inner::Inner,
    plan::{
        entry::Entry,
        fairness::{Number, Turn, Wish},
    },
    work::housekeep::EVERY,
};
use godwit_core::Url;
use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed};

impl Inner {
    /// Takes bytes of the quota, and evicts entries for them.
    pub(crate) fn reserve(&self, url: &Url, bytes: u64) -> Result<()> {
        self.room.could_hold(url, bytes)?;
        loop {
            let Err(lacking) = self.room.reserve(bytes) else {
                return self.free(bytes);
            };
            if !self.evict(lacking)? {
                return Err(self.full(bytes, 0));
            }
        }
    }

    /// Evicts entries if other programs have filled the disk. The write tells whether that was enough.
    fn free(&self, bytes: u64) -> Result<()> {
        let free = godwit_sys::free_bytes(self.disk.root()).unwrap_or(u64::MAX);
        match bytes.checked_sub(free) {
            Some(lacking) if lacking > 0 => self.evict(lacking).map(drop),
            _ => Ok(()),
        }
    }

    pub(crate) fn full(&self, wanted: u64, before: usize) -> Error {
        let mut used = self.room.open();
        let mut servers: BTreeMap<String, u64> = BTreeMap::new();
        for entry in self.every() {
            let state = entry.lock();
            match state.machine.owes() && !state.is_private() {
                true => {
                    *servers.entry(entry.url().host_port()).or_default() += state.bytes.reserved
                }
                false => used += state.bytes.reserved,
            }
        }
        for (server, reserved) in self.logs.reserved() {
            *servers.entry(server).or_default() += reserved;
        }
        let owed = servers.values().sum();
        let mut to: Vec<_> = servers.into_iter().collect();
        to.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Error::Full {
            wanted,
            quota: self.room.quota().unwrap_or(0),
            owed,
            used,
            to: to.into_iter().map(|(server, _)| server).collect(),
            before,
        }
    }
}

impl Inner {
    /// Evicts the entries that were unused for longest, until `wanted` bytes are free. Slowly fetched entries count as used
    /// later. Returns false if no entry could be evicted.
    pub(crate) fn evict(&self, wanted: u64) -> Result<bool> {
        let mut freed = 0;
        let mut all = self.every();
        all.sort_by_cached_key(|entry| {
            let stays = u64::from(entry.lock().meta.price) * STAYS;
            (entry.used.load(Relaxed) + stays, entry.number())
        });
        for entry in all {
            if freed >= wanted {
                break;
            }
            freed += self.evict_one(&entry)?;
        }
        Ok(freed > 0)
    }

    fn evict_one(&self, entry: &Entry) -> Result<u64> {
        let state = entry.lock();
        if state.is_gone || !state.may_go() {
            return Ok(0);
        }
        let bytes = state.bytes.reserved;
        tracing::debug!(url = %entry.url(), bytes, "forgotten, to make room");
        self.unlink(entry, state)?;
        Ok(bytes)
    }

    /// Waits until room may have been freed.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        self.logs.are_short();
        let mut plan = self.plan();
        if self.is_ending() {
            return Err(Error::Ending);
        }
        self.due.wait_for(&mut plan, EVERY);
        Ok(())
    }
}

/// How many seconds each class of prices keeps a file longer.
const STAYS: u64 = 600;

/// A writer that asks for room.
pub(crate) struct Asks<'a> {
    pub by: Number,
    /// The entry whose room it keeps while it waits.
    pub own: &'a Entry,
    /// The writer may want more later.
    pub is_growing: bool,
}

/// A request for room, until it is granted or cancelled.
struct Asking<'a>(&'a Inner, Number);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.0.room.goes(self.1) {
            self.0.due.notify_all();
        }
    }
}

impl Inner {
    /// Takes room for a file up to `end`. Waits for it, if there is none at the moment.
    pub(crate) fn make_room(
        &self,
        entry: &Entry,
        end: u64,
        asks: &Asks<'_>,
        is_wanted: IsWanted<'_>,
    ) -> Result<()> {
        let url = entry.url();
        self.room.could_hold(&url, end)?;
        let _asking = Asking(self, asks.by);
        loop {
            let reserved = entry.lock().bytes.reserved;
            let Some(least) = end.checked_sub(reserved).filter(|more| *more > 0) else {
                return Ok(());
            };
            let wish = Wish {
                by: asks.by,
                holds: asks.own.lock().bytes.reserved,
                bytes: least,
                is_growing: asks.is_growing,
            };
            let full = match self.room_now(&url, wish, reserved) {
                Ok(more) => {
                    let mut state = entry.lock();
                    match state.is_gone {
                        true => self.room.release(more),
                        false => state.bytes.reserved += more,
                    }
                    return Ok(());
                }
                Err(full @ Error::Full { .. }) => full,
                Err(error) => return Err(error),
            };
            if !is_wanted(&full) {
                return Err(full);
            }
            self.wait_for_room()?;
        }
    }

    /// Takes room, if it is the writer's turn and there is any. Returns how much.
    fn room_now(&self, url: &Url, wish: Wish, reserved: u64) -> Result<u64> {
        match self.room.turn(wish) {
            Turn::Now => {}
            Turn::Later { before } => return Err(self.full(wish.bytes, before)),
            Turn::Never { held } => {
                return Err(Error::Crowded {
                    url: Box::new(url.clone()),
                    wanted: wish.bytes,
                    quota: self.room.quota().unwrap_or(0),
                    held,
                    ours: wish.holds,
                });
            }
        }
        // In large pieces, for few questions; but never more than there could be.
        let least = wish.bytes;
        let could = self.room.quota().unwrap_or(u64::MAX);
        let step = match wish.is_growing {
            true => self.room.step(wish.by, RESERVE_STEP),
            false => least,
        };
        let more = least.max(step);
        let more = more.min(could.saturating_sub(reserved)).max(least);
        let got = match self.reserve(url, more) {
            Err(Error::Full { .. }) if more > least => self.reserve(url, least).map(|()| least),
            reserved => reserved.map(|()| more),
        };
        let got = got?;
        self.room.got(wish.by, got);
        Ok(got)
    }
}

/// How many bytes are reserved at once for a growing file.
const RESERVE_STEP: u64 = 16 << 20;
