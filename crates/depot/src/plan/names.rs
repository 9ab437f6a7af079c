//! Finds entries by the name that they have here, and by the name where they are delivered.

use crate::{
    id::Id,
    paths::is_at_or_below,
    plan::{Plan, entry::Entry},
};
use godwit_core::Url;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Entries by their local name and by their name at the target. Entries keep it current.
#[derive(Default)]
pub(crate) struct Called(Mutex<BTreeMap<Url, BTreeSet<Id>>>);

impl Called {
    pub(crate) fn add(&self, names: [&Url; 2], id: Id) {
        let mut called = self.0.lock();
        for name in names {
            match called.get_mut(name) {
                Some(ids) => drop(ids.insert(id)),
                None => drop(called.insert(name.clone(), BTreeSet::from([id]))),
            }
        }
    }

    pub(crate) fn remove(&self, names: [&Url; 2], id: Id) {
        let mut called = self.0.lock();
        for name in names {
            if let Some(ids) = called.get_mut(name) {
                ids.remove(&id);
                if ids.is_empty() {
                    called.remove(name);
                }
            }
        }
    }

    fn ids(&self, name: &Url) -> Vec<Id> {
        let called = self.0.lock();
        let ids = called.get(name).into_iter().flatten();
        ids.copied().collect()
    }

    fn ids_below(&self, top: &Url) -> BTreeSet<Id> {
        let called = self.0.lock();
        let near = called
            .range(top..)
            .take_while(|(name, _)| name.same_server(top) && name.path().starts_with(top.path()));
        let below = near.filter(|(name, _)| is_at_or_below(name, top));
        below.flat_map(|(_, ids)| ids).copied().collect()
    }
}

impl Plan {
    /// Returns the entries with that name, locally or at the target, the oldest first.
    pub(crate) fn called(&self, name: &Url) -> Vec<Arc<Entry>> {
        self.of_ids(self.called.ids(name))
    }

    /// Returns the entries with that name or a name below it, the oldest first.
    pub(crate) fn called_below(&self, top: &Url) -> Vec<Arc<Entry>> {
        self.of_ids(self.called.ids_below(top))
    }

    fn of_ids(&self, ids: impl IntoIterator<Item = Id>) -> Vec<Arc<Entry>> {
        let ids = ids.into_iter();
        let mut called: Vec<_> = ids.filter_map(|id| self.by_id.get(&id).cloned()).collect();
        called.sort_by_key(|entry| entry.number());
        called
    }

    /// Returns the pending entries with that name, the oldest first.
    pub(crate) fn pending_called(&self, name: &Url) -> Vec<Arc<Entry>> {
        let mut called = self.called(name);
        called.retain(|entry| self.is_pending_entry(entry));
        called
    }

    /// Returns the pending entries with that name or a name below it, the oldest first.
    pub(crate) fn pending_below(&self, top: &Url) -> Vec<Arc<Entry>> {
        let mut called = self.called_below(top);
        called.retain(|entry| self.is_pending_entry(entry));
        called
    }

    /// Returns the pending entry of a name, to merge a patch into it.
    pub(crate) fn pending_of(&self, key: &(Url, String)) -> Option<Arc<Entry>> {
        let entry = self.current.get(key)?;
        let state = entry.lock();
        let is_ours = state.machine.owes() && !state.is_gone && !state.is_superseded;
        drop(state);
        // A merge would come before the cut, and the cut-off bytes after it.
        let may = is_ours && !self.order.is_cut_later(entry);
        may.then(|| Arc::clone(entry))
    }

    fn is_pending_entry(&self, entry: &Entry) -> bool {
        let pending = self.pending.get(&entry.number());
        pending.is_some_and(|pending| pending.id == entry.id)
    }

    /// Takes an entry from readers of its name: of its own audience, and of those that share it.
    pub(crate) fn remove_current(&mut self, entry: &Entry) {
        let name = entry.name();
        let of_name = self.current.range((name.clone(), String::new())..);
        let of_name = of_name.take_while(|((now, _), _)| *now == name);
        let keys: Vec<_> = of_name
            .filter(|(_, now)| now.id == entry.id)
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.current.remove(&key);
        }
        debug_assert!(
            self.current.values().all(|now| now.id != entry.id),
            "{entry:?} is what another name says"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Who;
    use godwit_core::holding::{Base, Holding, Mode};

    fn url(path: &str) -> Url {
        format!("ftp://there/{path}").parse().unwrap()
    }

    fn entry(plan: &mut Plan, number: u64, path: &str) -> Arc<Entry> {
        let mut id = [0; 12];
        id[4..].copy_from_slice(&number.to_be_bytes());
        let machine = Holding::born(Base::Any, Mode::Replace);
        let who = Who::default();
        let entry = Arc::new(Entry::new(Id::of(id), (number, 0), url(path), who, machine));
        plan.insert(&entry);
        entry
    }

    fn numbers(entry: &[Arc<Entry>]) -> Vec<u64> {
        entry.iter().map(|entry| entry.number()).collect()
    }

    #[test]
    fn entry_is_found_by_both_names() {
        let mut plan = Plan::default();
        let (first, second) = (entry(&mut plan, 2, "a"), entry(&mut plan, 1, "a"));
        entry(&mut plan, 3, "ab");
        assert_eq!(numbers(&plan.called(&url("a"))), [1, 2]);
        first.rename(url("b"));
        assert_eq!(numbers(&plan.called(&url("a"))), [1, 2]);
        assert_eq!(numbers(&plan.called(&url("b"))), [2]);
        first.redirect(url("b"));
        assert_eq!(numbers(&plan.called(&url("a"))), [1]);
        assert_eq!(numbers(&plan.pending_called(&url("b"))), [2]);
        plan.remove(&first);
        plan.remove(&second);
        assert!(plan.called(&url("a")).is_empty() && plan.called(&url("b")).is_empty());
        first.rename(url("c"));
        assert!(plan.called(&url("c")).is_empty());
    }

    #[test]
    fn directory_finds_only_its_files() {
        let mut plan = Plan::default();
        for (number, path) in [(1, "d"), (2, "d-e"), (3, "d/a"), (4, "d/b/c"), (5, "e")] {
            entry(&mut plan, number, path);
        }
        assert_eq!(numbers(&plan.called_below(&url("d"))), [1, 3, 4]);
        assert_eq!(numbers(&plan.pending_below(&url("d/b"))), [4]);
        let root: Url = "ftp://there".parse().unwrap();
        assert_eq!(numbers(&plan.called_below(&root)), [1, 2, 3, 4, 5]);
        let other: Url = "ftp://other".parse().unwrap();
        assert!(plan.called_below(&other).is_empty());
    }

    #[test]
    fn removed_entry_is_current_for_no_audience() {
        let mut plan = Plan::default();
        let (one, other) = (entry(&mut plan, 1, "a"), entry(&mut plan, 2, "b"));
        plan.make_current(&one);
        plan.make_current(&other);
        let other_user = |path: &str| (url(path), "other".to_owned());
        plan.current.insert(other_user("a"), Arc::clone(&one));
        plan.current.insert(other_user("b"), Arc::clone(&other));
        plan.remove_current(&one);
        let left: Vec<_> = plan.current.keys().map(|(url, _)| url.clone()).collect();
        assert_eq!(left, [url("b"), url("b")]);
    }
}
