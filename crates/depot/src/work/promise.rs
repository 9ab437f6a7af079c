//! Order renames, removals, directories and attributes, in order.

use crate::{
    By, Error, Result, Who,
    clock::now,
    disk::{records::Written, rows::Change},
    error::{Patience, is_missing, may_pass},
    inner::Inner,
    paths::{bad_name, moved, path_of, server_of},
    plan::{
        Plan,
        entry::Entry,
        order::{Fact, LENGTH, rename_to},
    },
};
use godwit_core::{
    Url,
    deeds::{Added, Values, What},
    holding::Base,
};
use parking_lot::MutexGuard;
use std::{sync::Arc, time::Instant};

impl Inner {
    /// Writes the changed rows of a server's operations. They are durable after a wait for the returned value.
    pub(crate) fn note(&self, plan: &mut Plan, url: &Url) -> Written {
        let rows = plan.order.changes(url);
        self.records.begin(Change::Deeds(rows))
    }

    fn fact(&self, url: &Url, to: Option<&Url>, who: &Who, session: &str) -> Fact {
        Fact {
            url: url.clone(),
            to: to.cloned(),
            who: who.clone(),
            session: session.into(),
            created_at: now(),
            tries: 0,
            last: None,
            later: None,
            patience: Patience::default(),
        }
    }

    /// Order a rename, done here at once.
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
        let mut plan = self.plan();
        let condition = self.seen_here(&plan, url, who).filter(|_| is_known);
        // Only the row of the operation tells that an open file has lost its name.
        let may_merge = !plan.is_written_unseen(to);
        if may_merge && let Some(entry) = self.mergeable(&plan, url, who) {
            let over = Base::Any;
            let what = rename_to(to, over);
            let deeds = plan.order.of(url);
            // The new deed takes a number that no entry has.
            deeds.after(self.next_number() - 1);
            match deeds.add(path_of(url), what, Base::Any) {
                Added::Folded(number) => {
                    deeds.noted(number);
                    let position = deeds.find(number).map_or(number, |deed| deed.position);
                    return self.renamed_before_it_was_known(plan, &entry, (url, to), position);
                }
                // It replaces any file there: it is renamed in its turn.
                Added::Deed(number) => {
                    let fact = self.fact(url, Some(to), who, session);
                    plan.order.facts.insert(number, fact);
                    return self.renamed_in_turn(plan, url, to);
                }
                Added::Undone(_) => {}
            }
        }
        let number = self.next_number();
        let fact = self.fact(url, Some(to), who, session);
        plan.order.facts.insert(number, fact);
        let condition = condition.unwrap_or(Base::Any);
        let what = rename_to(to, Base::Any);
        plan.order
            .of(url)
            .promise(number, path_of(url), what, condition);
        self.renamed_in_turn(plan, url, to)
    }

    /// Renames local entries at once, and at the target after the earlier operations.
    fn renamed_in_turn(&self, mut plan: MutexGuard<'_, Plan>, url: &Url, to: &Url) -> Result<()> {
        let renamed = plan.rename(url, to, || self.next_number());
        self.promised(plan, url)?;
        for entry in renamed {
            self.commit_renamed(&entry);
        }
        Ok(())
    }

    /// Gives a file that was never sent another name, without an operation at the target.
    fn renamed_before_it_was_known(
        &self,
        mut plan: MutexGuard<'_, Plan>,
        entry: &Arc<Entry>,
        (url, to): (&Url, &Url),
        position: u64,
    ) -> Result<()> {
        plan.rename(url, to, || self.next_number());
        plan.pending.remove(&entry.number());
        entry.redirect(to.clone());
        entry.renumber(position);
        plan.pending.insert(position, Arc::clone(entry));
        let mut state = entry.lock();
        let leftover = state.take_leftover(url, &entry.who);
        state.machine.release(Some(Base::Any));
        state.meta.replaces = None;
        state.delivery.is_due = true;
        state.record.change();
        drop(state);
        plan.cleanup.leftovers.extend(leftover);
        drop(plan);
        entry.commit(self)?;
        self.nudge();
        Ok(())
    }

    /// Order a removal, done here at once.
    pub(crate) fn unlink_name(&self, url: &Url, by: By<'_>) -> Result<()> {
        let By { who, session, .. } = by;
        let is_known = self.must_be_there(url, who)?;
        by.must_want()?;
        let mut plan = self.plan();
        if plan.is_full(url) {
            return Err(godwit_store::Error::not_empty(url.as_path()).into());
        }
        let condition = self.seen_here(&plan, url, who).filter(|_| is_known);
        if let Some(entry) = self.mergeable(&plan, url, who) {
            plan.unlink(url);
            drop(plan);
            let state = entry.lock();
            return self.unlink(&entry, state);
        }
        let condition = condition.or_else(|| plan.before_unsent(&*plan.current_of(url, who)?));
        let number = self.next_number();
        let fact = self.fact(url, None, who, session);
        plan.order.facts.insert(number, fact);
        let condition = condition.unwrap_or(Base::Any);
        plan.order
            .of(url)
            .promise(number, path_of(url), What::Unlink, condition);
        let gone = plan.unlink(url);
        self.promised(plan, url)?;
        for entry in gone {
            // An entry whose name is removed next need not be delivered.
            if !entry.is_renamed() && self.is_unconditional(&entry) && !self.is_needed(&entry) {
                self.supersede(&entry)?;
            }
        }
        self.nudge();
        Ok(())
    }

    /// Order a directory.
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
        let fact = self.fact(url, None, who, session);
        self.promise_plain(fact, What::Mkdir)
    }

    /// Order attributes.
    pub(crate) fn set_values(&self, url: &Url, by: By<'_>, values: Values) -> Result<()> {
        let who = by.who;
        self.must_be_there(url, who)?;
        by.must_want()?;
        let fact = self.fact(url, None, who, "");
        let is_cut = values.contains_key(LENGTH);
        self.promise_plain(fact, What::Set(values))?;
        if is_cut {
            self.plan().spoil_below(url);
        }
        if is_cut && let Some(entry) = self.plan().current_of(url, who) {
            entry.lock().validity.invalidate();
        }
        Ok(())
    }

    fn promise_plain(&self, fact: Fact, what: What) -> Result<()> {
        let url = fact.url.clone();
        let mut plan = self.plan();
        let number = self.next_number();
        plan.order.facts.insert(number, fact);
        let deeds = plan.order.of(&url);
        deeds.promise(number, path_of(&url), what, Base::Any);
        self.promised(plan, &url)?;
        self.nudge();
        Ok(())
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

    /// Returns the file that the target has under a name. `None`: it is unknown, or an operation is pending there.
    fn seen_here(&self, plan: &Plan, url: &Url, who: &Who) -> Option<Base> {
        let entry = plan.current_of(url, who)?;
        let state = entry.lock();
        let base = state.machine.base().clone();
        let is_clean = !state.machine.owes() && !state.is_gone && state.is_sure();
        let seen = state.validity.seen.clone().map(Base::Seen);
        drop(state);
        let is_it = is_clean && matches!(base, Base::Seen(_)) && plan.order.is_free(url);
        is_it.then(|| seen.unwrap_or(base))
    }

    /// Returns the new file of a name that was never sent to its target.
    fn mergeable(&self, plan: &Plan, url: &Url, who: &Who) -> Option<Arc<Entry>> {
        let entry = plan.current_of(url, who)?;
        let state = entry.lock();
        let is_new = *state.machine.base() == Base::Absent && state.machine.owes();
        // A delivery in place changes the target before any request to publish.
        let is_unheard = !state.machine.is_asked() && !state.machine.is_inside();
        let is_still = !state.delivery.is_in_flight && is_unheard && !state.bytes.is_scanning;
        let is_ours = !state.is_gone && !state.is_private() && state.machine.is_whole();
        let is_it = is_new && is_still && is_ours && state.machine.held().is_none();
        drop(state);
        // Another operation may be pending at its name.
        let is_alone = plan.order.has(&entry) && plan.order.is_alone(&entry);
        (is_it && is_alone && !entry.is_renamed()).then_some(entry)
    }

    /// Tells whether a later operation needs it at its target.
    pub(crate) fn is_needed(&self, entry: &Entry) -> bool {
        self.plan().order.is_needed(entry)
    }

    pub(crate) fn is_unconditional(&self, entry: &Entry) -> bool {
        matches!(entry.lock().machine.base(), Base::Any | Base::Absent)
    }
}
