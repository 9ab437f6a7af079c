//! Promises renames, removals, directories and attributes: here they are done at once, and at the target in their turn.

use crate::{
    Who,
    paths::{moved, path_of},
    plan::{
        Plan,
        entry::Entry,
        order::{Fact, LENGTH, rename_to},
        state::Visibility,
    },
};
use godwit_core::{
    Url,
    deeds::{Added, Values, What},
    holding::Base,
};
use std::sync::Arc;

/// The local outcome of a rename.
pub(crate) enum Renamed {
    /// These entries have new names, and the target renames its file in its turn.
    InTurn(Vec<Arc<Entry>>),
    /// The target never had the entry, which is sent under the new name only.
    Unsent(Arc<Entry>),
}

/// The local outcome of a removal.
pub(crate) enum Removed {
    /// These entries have no name any more, and the target removes its file in its turn.
    InTurn(Vec<Arc<Entry>>),
    /// The target never had the entry.
    Unsent(Arc<Entry>),
}

impl Plan {
    /// Adds an operation that is no publication to the end of the order.
    pub(crate) fn promise(&mut self, fact: Fact, what: What, condition: Base) {
        let (number, url) = (self.numbers.next(), fact.url.clone());
        self.order.facts.insert(number, fact);
        let deeds = self.order.of(&url);
        deeds.promise(number, path_of(&url), what, condition);
    }

    /// Promises attributes. Of a length that changes, no answer that the target gave before tells anything.
    pub(crate) fn promise_values(&mut self, fact: Fact, values: Values) {
        let (url, is_cut) = (fact.url.clone(), values.contains_key(LENGTH));
        self.promise(fact, What::Set(values), Base::Any);
        if is_cut {
            self.spoil_below(&url);
            // An entry whose writer has no answer yet is not current.
            let called = self.called(&url).into_iter();
            for entry in called.filter(|entry| entry.name() == url) {
                entry.lock().validity.invalidate();
            }
        }
    }

    /// Promises a rename; `is_known`: the target had the file a moment ago.
    pub(crate) fn promise_rename(&mut self, fact: Fact, to: &Url, is_known: bool) -> Renamed {
        let (url, who) = (fact.url.clone(), fact.who.clone());
        let condition = self.seen_at(&fact.key(), None).filter(|_| is_known);
        let what = rename_to(to, Base::Any);
        // Only the row of the operation tells that an open file has lost its name.
        let may_merge = !self.is_written_unseen(to);
        if may_merge && let Some(entry) = self.mergeable(&url, &who) {
            let deeds = self.order.of(&url);
            // The new deed takes a number that no entry has.
            deeds.after(self.numbers.next() - 1);
            match deeds.add(path_of(&url), what.clone(), Base::Any) {
                Added::Folded(number) => {
                    deeds.noted(number);
                    let position = deeds.find(number).map_or(number, |deed| deed.position);
                    self.rename_unsent(&entry, (&url, to), position);
                    return Renamed::Unsent(entry);
                }
                // It replaces any file there: it is renamed in its turn.
                Added::Deed(number) => {
                    self.order.facts.insert(number, fact);
                    return Renamed::InTurn(self.rename(&url, to));
                }
                Added::Undone(_) => {}
            }
        }
        self.promise(fact, what, condition.unwrap_or(Base::Any));
        Renamed::InTurn(self.rename(&url, to))
    }

    /// Gives a file that was never sent another name, without an operation at the target.
    fn rename_unsent(&mut self, entry: &Arc<Entry>, (url, to): (&Url, &Url), position: u64) {
        self.rename(url, to);
        self.pending.remove(&entry.number());
        entry.redirect(to.clone());
        entry.renumber(position);
        self.pending.insert(position, Arc::clone(entry));
        let mut state = entry.lock();
        let leftover = state.take_leftover(url, &entry.who);
        state.machine.release(Some(Base::Any));
        state.meta.replaces = None;
        state.delivery.is_due = true;
        state.record.change();
        self.cleanup.leftovers.extend(leftover);
    }

    /// Promises a removal; `is_known`: the target had the file a moment ago.
    pub(crate) fn promise_removal(&mut self, fact: Fact, is_known: bool) -> Removed {
        let (url, who) = (fact.url.clone(), fact.who.clone());
        if let Some(entry) = self.mergeable(&url, &who) {
            self.unlink(&url);
            return Removed::Unsent(entry);
        }
        let condition = self.seen_at(&fact.key(), None).filter(|_| is_known);
        let unsent = || self.before_unsent(&*self.current_of(&url, &who)?);
        let condition = condition.or_else(unsent).unwrap_or(Base::Any);
        self.promise(fact, What::Unlink, condition);
        Removed::InTurn(self.unlink(&url))
    }

    /// Renames the local entries at a name and below it.
    pub(crate) fn rename(&mut self, from: &Url, to: &Url) -> Vec<Arc<Entry>> {
        self.rename_coming(from, to);
        self.note_changed(from);
        self.note_changed(to);
        let keys: Vec<_> = self.current.keys().cloned().collect();
        let mut renamed = Vec::new();
        for key in &keys {
            if moved(&key.0, to, to).is_some()
                && let Some(old) = self.current.remove(key)
            {
                old.lock().visibility = Visibility::Unlinked;
            }
        }
        for key in keys {
            let Some(name) = moved(&key.0, from, to) else {
                continue;
            };
            let Some(entry) = self.current.remove(&key) else {
                continue;
            };
            match self.order.has(&entry) {
                true => entry.rename(name.clone()),
                false => {
                    entry.redirect(name.clone());
                    let was = self.pending.remove(&entry.number());
                    entry.renumber(self.numbers.next());
                    if let Some(entry) = was {
                        self.pending.insert(entry.number(), entry);
                    }
                }
            }
            self.current.insert((name, key.1), Arc::clone(&entry));
            let mut state = entry.lock();
            state.validity.is_changed_at_target = true;
            state.record.change();
            drop(state);
            renamed.push(entry);
        }
        renamed
    }

    /// Tells whether a program may write the current entry of a name by a descriptor.
    pub(crate) fn is_written_unseen(&self, name: &Url) -> bool {
        let mut current = self.current.iter().filter(|((at, _), _)| at == name);
        current.any(|(_, entry)| entry.lock().machine.is_unseen())
    }

    /// Tells whether an entry or operation below a name is pending.
    pub(crate) fn is_full(&self, at: &Url) -> bool {
        let is_below = |name: &Url| name != at && moved(name, at, at).is_some();
        let has_file = (self.current.iter()).any(|((name, _), entry)| {
            let state = entry.lock();
            is_below(name) && state.machine.owes() && !state.is_gone
        });
        let promises = &self.order;
        let has_more = promises.deeds().any(|(deed, fact, _)| match &fact.to {
            Some(to) => is_below(to) && promises.now_at(to).is_some(),
            None if deed.what == What::Mkdir => {
                is_below(&fact.url) && promises.is_to_be_made(&fact.url)
            }
            None => false,
        });
        has_file || has_more
    }

    /// Takes the local entries at a name and below it from their readers.
    pub(crate) fn unlink(&mut self, at: &Url) -> Vec<Arc<Entry>> {
        self.unlink_coming(at);
        self.note_changed(at);
        let is_it = |key: &&(Url, String)| moved(&key.0, at, at).is_some();
        let keys: Vec<_> = self.current.keys().filter(is_it).cloned().collect();
        let gone = keys.iter().filter_map(|key| self.current.remove(key));
        let gone: Vec<_> = gone.collect();
        for entry in &gone {
            entry.lock().visibility = Visibility::Unlinked;
        }
        gone
    }

    /// Returns the new file of a name that was never sent to its target.
    fn mergeable(&self, url: &Url, who: &Who) -> Option<Arc<Entry>> {
        let entry = self.current_of(url, who)?;
        let state = entry.lock();
        let is_new = *state.machine.base() == Base::Absent && state.machine.owes();
        // A delivery in place changes the target before any request to publish.
        let is_unheard = !state.machine.is_asked() && !state.machine.is_inside();
        let is_still = !state.delivery.is_in_flight && is_unheard && !state.bytes.is_scanning;
        let is_ours = !state.is_gone && !state.is_private() && state.machine.is_whole();
        let is_it = is_new && is_still && is_ours && state.machine.held().is_none();
        drop(state);
        // Another operation may be pending at its name.
        let is_alone = self.order.has(&entry) && self.order.is_alone(&entry);
        (is_it && is_alone && !entry.is_renamed()).then_some(entry)
    }
}
