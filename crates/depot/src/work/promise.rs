//! Promises renames, removals, directories and attributes, in order.

use crate::{
    By, Error, Result, Who,
    clock::now,
    disk::{records::Written, rows::Change},
    error::{is_missing, may_pass},
    inner::Inner,
    paths::{bad_name, moved, server_of},
    plan::{
        Plan,
        change::{Removed, Renamed},
        entry::Entry,
        order::Fact,
    },
};
use godwit_core::{
    Url,
    deeds::{Values, What},
    holding::Base,
};
use parking_lot::MutexGuard;
use std::time::Instant;

impl Inner {
    /// Writes the changed rows of a server's operations. They are durable after a wait for the returned value.
    pub(crate) fn note(&self, plan: &mut Plan, url: &Url) -> Written {
        let rows = plan.order.changes(url);
        self.records.begin(Change::Deeds(rows))
    }

    /// Promises a rename, done here at once.
    pub(crate) fn rename(&self, url: &Url, to: &Url, by: By<'_>) -> Result<()> {
        let By { who, session, .. } = by;
        if server_of(url) != server_of(to) {
            return Err(Error::other_server(url.clone(), to.clone()));
        }
        if moved(to, url, url).is_some() && to != url {
            return Err(bad_name(to, "it is below what is to be renamed"));
        }
        let is_known = self.must_be_there(url, who)?;
        by.must_want()?;
        if url == to {
            return Ok(());
        }
        let fact = Fact::new((url, Some(to)), (who, session), now());
        let mut plan = self.plan();
        match plan.promise_rename(fact, to, is_known) {
            Renamed::Unsent(entry) => {
                drop(plan);
                entry.commit(self)?;
                self.nudge();
            }
            Renamed::InTurn(renamed) => {
                self.promised(plan, url)?;
                for entry in renamed {
                    self.commit_renamed(&entry);
                }
            }
        }
        Ok(())
    }

    /// Promises a removal, done here at once.
    pub(crate) fn unlink_name(&self, url: &Url, by: By<'_>) -> Result<()> {
        let By { who, session, .. } = by;
        let is_known = self.must_be_there(url, who)?;
        by.must_want()?;
        let mut plan = self.plan();
        if plan.is_full(url) {
            return Err(godwit_store::Error::not_empty(url.as_path()).into());
        }
        let fact = Fact::new((url, None), (who, session), now());
        let gone = match plan.promise_removal(fact, is_known) {
            Removed::Unsent(entry) => {
                drop(plan);
                return self.unlink(&entry, entry.lock());
            }
            Removed::InTurn(gone) => gone,
        };
        self.promised(plan, url)?;
        for entry in gone {
            // An entry whose name is removed next need not be delivered.
            if self.plan().supersede_removed(&entry) {
                self.unlink(&entry, entry.lock())?;
            }
        }
        self.nudge();
        Ok(())
    }

    /// Promises a directory.
    pub(crate) fn make_directory(&self, url: &Url, by: By<'_>) -> Result<()> {
        let By { who, session, .. } = by;
        let can_be_made = |said: &godwit_store::Error| is_missing(said) || may_pass(said);
        match self.stat_of(url, who) {
            Ok(_) => {
                return Err(godwit_store::Error::exists(url.as_path()).into());
            }
            Err(error) if error.of_store().is_some_and(can_be_made) => {}
            Err(error) => return Err(error),
        }
        by.must_want()?;
        let fact = Fact::new((url, None), (who, session), now());
        let mut plan = self.plan();
        plan.promise(fact, What::Mkdir, Base::Any);
        self.promised(plan, url)
    }

    /// Promises attributes.
    pub(crate) fn set_values(&self, url: &Url, by: By<'_>, values: Values) -> Result<()> {
        let who = by.who;
        self.must_be_there(url, who)?;
        by.must_want()?;
        let fact = Fact::new((url, None), (who, ""), now());
        let mut plan = self.plan();
        plan.promise_values(fact, values);
        self.promised(plan, url)
    }

    /// Makes a new operation durable, and wakes the delivering threads.
    fn promised(&self, mut plan: MutexGuard<'_, Plan>, url: &Url) -> Result<()> {
        godwit_sys::crash::point("deed-added");
        let written = self.note(&mut plan, url);
        drop(plan);
        written.wait()?;
        godwit_sys::crash::point("deed-recorded");
        self.nudge();
        Ok(())
    }

    pub(crate) fn commit_renamed(&self, entry: &Entry) {
        let is_recorded = entry.lock().record.has_row;
        if is_recorded && let Err(error) = entry.commit(self) {
            tracing::warn!(%error, url = %entry.name(), "that it was renamed cannot be recorded");
        }
    }

    /// Tells whether this node knows that a name exists; an error if it does not exist. Without an answer it may exist.
    fn must_be_there(&self, url: &Url, who: &Who) -> Result<bool> {
        let current = self.plan().current_of(url, who);
        let current = current.filter(|entry| !entry.lock().is_gone);
        if current.as_ref().is_some_and(|entry| entry.lock().is_sure()) {
            return Ok(true);
        }
        let doubts = current
            .as_ref()
            .map_or(0, |entry| entry.lock().validity.invalidations);
        let looked = self.surely((url, who), || self.stat_of(url, who));
        let can_wait = |error: &Error| error.of_store().is_some_and(may_pass);
        match (looked, current) {
            (Ok((place, stat)), Some(entry)) => {
                let is_still = self.is_still_base(&entry, &place, &stat, crate::Fresh::Now);
                if is_still {
                    (entry.lock().validity).revalidated_after(doubts, Instant::now());
                }
                Ok(is_still)
            }
            (Ok(_), None) => Ok(false),
            (Err(error), _) if !can_wait(&error) && !self.is_made(url) => Err(error),
            (Err(_), _) => Ok(false),
        }
    }

    /// Tells whether an entry or directory at or below a name is pending.
    fn is_made(&self, url: &Url) -> bool {
        let plan = self.plan();
        let is_mkdir = plan
            .order
            .deeds()
            .any(|(deed, fact, _)| matches!(deed.what, What::Mkdir) && fact.url == *url);
        is_mkdir
            || plan
                .current
                .keys()
                .any(|key| moved(&key.0, url, url).is_some())
    }
}
