//! The order of pending operations, one for each server: publications of entries, and renames, removals, directories and
//! attributes between them.
//!
//! The rules are those of [`godwit_core::deeds`]. The record of a publication is the row of its entry; each other
//! operation has a row of its own.

use crate::{
    Before, Error, Who,
    error::Patience,
    id::Id,
    paths::{moved, path_of, server_of},
    plan::{Plan, asking::Name, entry::Entry, state::Visibility},
};
use godwit_core::{
    Url,
    deeds::{Deed, Deeds, Publication, Values, What},
    holding::{Base, Mode},
};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
    time::Instant,
};

#[cfg(test)]
mod tests;

/// Facts of an operation that the order does not need.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    /// Where.
    pub url: Url,
    /// The new name of a rename.
    pub to: Option<Url>,
    pub who: Who,
    pub session: String,
    /// Seconds since the epoch.
    pub created_at: u64,
    /// How often it was tried in vain, and how the last time.
    pub tries: u32,
    pub last: Option<Error>,
    /// Not before then is it tried again.
    pub later: Option<Instant>,
    pub patience: Patience,
}

impl Fact {
    /// Returns the facts of an operation that is new; `now` is in seconds since the epoch.
    pub(crate) fn new(
        (url, to): (&Url, Option<&Url>),
        (who, session): (&Who, &str),
        now: u64,
    ) -> Self {
        Self {
            url: url.clone(),
            to: to.cloned(),
            who: who.clone(),
            session: session.into(),
            created_at: now,
            tries: 0,
            last: None,
            later: None,
            patience: Patience::default(),
        }
    }

    /// Returns the key by which readers find its name.
    pub(crate) fn key(&self) -> Name {
        (self.url.clone(), self.who.audience.clone())
    }
}

/// A deed as it is on record.
#[derive(Clone, Debug)]
pub(crate) struct DeedRow {
    pub deed: Deed,
    pub fact: Fact,
}

/// Pending operations, in order.
#[derive(Default)]
pub(crate) struct Order {
    servers: BTreeMap<String, Deeds>,
    pub facts: BTreeMap<u64, Fact>,
    /// The server and the number under which each entry's publication is pending.
    published: HashMap<Id, (String, u64)>,
    start: u64,
}

/// An operation that may be done now.
pub(crate) struct Ready {
    pub number: u64,
    /// The entry of a publication; `None`: another operation.
    pub id: Option<Id>,
}

impl Order {
    /// Restores the order from the rows of operations, and from the pending entries.
    pub(crate) fn recover(rows: Vec<DeedRow>, publications: &[Arc<Entry>], start: u64) -> Self {
        let mut all = Self {
            start: start << 32,
            ..Self::default()
        };
        let mut records: BTreeMap<String, Vec<Deed>> = BTreeMap::new();
        for DeedRow { deed, fact } in rows {
            let server = server_of(&fact.url);
            all.facts.insert(deed.number, fact);
            records.entry(server).or_default().push(deed);
        }
        for entry in publications {
            let server = server_of(&entry.url());
            let number = entry.number();
            let (is_asked, condition) = {
                let state = entry.lock();
                (state.machine.is_asked(), state.machine.base().clone())
            };
            all.published.insert(entry.id, (server.clone(), number));
            records.entry(server).or_default().push(Deed {
                number,
                position: number,
                at: path_of(&entry.url()),
                what: publication(entry.id),
                condition,
                attempt: is_asked.then_some(0),
                held: None,
            });
        }
        for (server, record) in records {
            all.servers
                .insert(server, Deeds::recover(record, all.start));
        }
        all
    }

    pub(crate) fn of(&mut self, url: &Url) -> &mut Deeds {
        let start = self.start;
        let fresh = || Deeds::recover([], start);
        self.servers.entry(server_of(url)).or_insert_with(fresh)
    }

    /// Tells whether it is in the order.
    pub(crate) fn has(&self, entry: &Entry) -> bool {
        self.published.contains_key(&entry.id)
    }

    /// Adds the publication of an entry, under its number.
    pub(crate) fn publish(&mut self, entry: &Entry, condition: Base) {
        let (url, number) = (entry.url(), entry.number());
        let server = server_of(&url);
        self.of(&url)
            .promise(number, path_of(&url), publication(entry.id), condition);
        self.published.insert(entry.id, (server, number));
    }

    /// Removes the publication of an entry.
    pub(crate) fn forget(&mut self, id: Id) {
        let Some((server, number)) = self.published.remove(&id) else {
            return;
        };
        self.over(&server, number);
    }

    fn over(&mut self, server: &str, number: u64) {
        if let Some(deeds) = self.servers.get_mut(server) {
            deeds.over(number);
            deeds.noted(number);
            if deeds.pending().next().is_none() {
                self.servers.remove(server);
            }
        }
    }

    /// Tells whether a later operation concerns its name.
    pub(crate) fn is_overtaken(&self, entry: &Entry) -> bool {
        let Some((server, number)) = self.published.get(&entry.id) else {
            return true;
        };
        !self.servers[server].is_last(*number)
    }

    /// Tells whether an operation after that place in the order concerns its name.
    pub(crate) fn is_overtaken_after(&self, entry: &Entry, place: u64) -> bool {
        let Some((server, number)) = self.published.get(&entry.id) else {
            return false;
        };
        !self.servers[server].is_last_of_those_after(*number, place)
    }

    /// Tells whether an operation after that place in the order replaces it, and none needs it.
    pub(crate) fn is_replaced_after(&self, entry: &Entry, place: u64) -> bool {
        self.is_overtaken_after(entry, place) && !entry.is_renamed() && !self.is_needed(entry)
    }

    /// Tells whether no operation goes before it.
    pub(crate) fn is_turn(&self, entry: &Entry) -> bool {
        let Some((server, number)) = self.published.get(&entry.id) else {
            return false;
        };
        self.servers[server].waits_for(*number).is_none()
    }

    /// Tells whether a later operation would fail at the target without it: a rename, perhaps back again later, or a
    /// change of attributes.
    pub(crate) fn is_needed(&self, entry: &Entry) -> bool {
        let Some((server, number)) = self.published.get(&entry.id) else {
            return false;
        };
        let deeds = &self.servers[server];
        let Some(own) = deeds.find(*number) else {
            return false;
        };
        let needs = |deed: &Deed| {
            let is_of_it = matches!(deed.what, What::Rename { .. } | What::Set(_));
            is_of_it && deed.position > own.position && deed.at.overlaps(&own.at)
        };
        deeds.pending().any(needs)
    }

    /// Tells whether a later operation takes its name away: a writer put another file there, or the name was removed.
    pub(crate) fn is_followed(&self, entry: &Entry) -> bool {
        self.is_followed_after(entry, entry.number())
    }

    /// Tells whether an operation after that place in the order takes its name away.
    pub(crate) fn is_followed_after(&self, entry: &Entry, place: u64) -> bool {
        let (mut name, own) = (entry.url(), entry.number());
        let mut path = path_of(&name);
        let deeds = self.servers.get(&server_of(&name));
        let later = deeds.into_iter().flat_map(Deeds::pending);
        for deed in later.filter(|deed| deed.position > own) {
            let to = self.facts.get(&deed.number).and_then(|fact| {
                let to = fact.to.as_ref()?;
                Some((to, moved(&name, &fact.url, to)))
            });
            let ends = match to {
                Some((_, Some(moved))) => {
                    (path, name) = (path_of(&moved), moved);
                    false
                }
                Some((to, None)) => *to == name,
                None => {
                    let takes = deed.what == What::Unlink || id_of(deed).is_some();
                    takes && deed.at == path
                }
            };
            if ends && deed.position > place {
                return true;
            }
        }
        false
    }

    /// Tells whether a later operation changes its length at the target. Later writes come after that operation, and are
    /// no part of this entry.
    pub(crate) fn is_cut_later(&self, entry: &Entry) -> bool {
        self.is_cut_after(entry, entry.number())
    }

    /// Tells whether an operation after that place in the order changes its length at the target.
    pub(crate) fn is_cut_after(&self, entry: &Entry, place: u64) -> bool {
        let mut name = entry.url();
        self.later_than(entry).into_iter().any(|(deed, fact)| {
            if let Some(to) = &fact.to {
                name = moved(&name, &fact.url, to).unwrap_or(name.clone());
            }
            cuts(deed) && fact.url == name && deed.position > place
        })
    }

    /// Returns the operations after the publication of an entry, without other publications, in order.
    fn later_than(&self, entry: &Entry) -> Vec<(&Deed, &Fact)> {
        let mut later: Vec<_> = self
            .deeds()
            .map(|(deed, fact, _)| (deed, fact))
            .filter(|(deed, _)| deed.position > entry.number())
            .collect();
        later.sort_by_key(|(deed, _)| deed.position);
        later
    }

    /// Returns the first operation that an operation waits for, directly or not.
    fn first_before(&self, server: &str, number: u64) -> Option<&Deed> {
        let deeds = self.servers.get(server)?;
        let mut before = deeds.waits_for(number)?;
        while let Some(earlier) = deeds.waits_for(before) {
            before = earlier;
        }
        deeds.find(before)
    }

    /// Tells whether no operation is pending at a name.
    pub(crate) fn is_free(&self, url: &Url) -> bool {
        let deeds = self.servers.get(&server_of(url));
        deeds.is_none_or(|deeds| !deeds.concern(&path_of(url)))
    }

    /// Returns the operations that wait for no other, by the address of their server.
    pub(crate) fn ready_by_server(
        &self,
    ) -> impl Iterator<Item = (&str, impl Iterator<Item = Ready>)> {
        self.servers.iter().map(|(server, deeds)| {
            let ready = deeds.ready().map(|deed| Ready {
                number: deed.number,
                id: id_of(deed),
            });
            (server.rsplit(' ').next().unwrap_or(server), ready)
        })
    }

    /// Returns the address of the server of a deed that is no publication.
    pub(crate) fn server(&self, number: u64) -> Option<String> {
        self.facts.get(&number).map(|fact| fact.url.host_port())
    }

    /// Returns when a deed is tried again, if not at once.
    pub(crate) fn later(&self, number: u64) -> Option<Instant> {
        self.facts.get(&number)?.later
    }

    /// Has deeds be tried again at once.
    pub(crate) fn try_again(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some(fact) = self.facts.get_mut(number) {
                (fact.later, fact.last) = (None, None);
            }
        }
    }

    /// Begins an operation that is ready.
    pub(crate) fn take(&mut self, number: u64) -> Option<godwit_core::deeds::Do> {
        self.servers
            .values_mut()
            .find_map(|deeds| deeds.take(number))
    }

    /// Begins to publish an entry. After a rename that its target never saw, its place differs from its number.
    pub(crate) fn take_file(&mut self, entry: &Entry) -> Option<godwit_core::deeds::Do> {
        let (_, number) = self.published.get(&entry.id)?;
        let number = *number;
        self.take(number)
    }

    /// Ends an attempt to deliver an entry that is still pending.
    pub(crate) fn visited(&mut self, entry: &Entry, is_asked: bool) {
        let Some((server, number)) = self.published.get(&entry.id) else {
            return;
        };
        if let Some(deeds) = self.servers.get_mut(server)
            && let Some(attempt) = deeds.find(*number).and_then(|deed| deed.attempt)
        {
            deeds.ended(*number, attempt, godwit_core::deeds::Outcome::Lost);
            if !is_asked {
                deeds.unasked(*number);
            }
            deeds.noted(*number);
        }
    }

    /// Returns the order of a deed's server, and the facts of the deed.
    pub(crate) fn deed(&mut self, number: u64) -> Option<(&mut Deeds, &mut Fact)> {
        let fact = self.facts.get_mut(&number)?;
        let deeds = self.servers.get_mut(&server_of(&fact.url))?;
        Some((deeds, fact))
    }

    /// Returns all deeds that are no publications, by number.
    pub(crate) fn deeds(&self) -> impl Iterator<Item = (&Deed, &Fact, &Deeds)> {
        self.facts.iter().filter_map(|(number, fact)| {
            let deeds = self.servers.get(&server_of(&fact.url))?;
            Some((deeds.find(*number)?, fact, deeds))
        })
    }

    /// Returns the deed with that number, or the first that is on hold at that URL.
    pub(crate) fn named(&self, name: &str) -> Option<(u64, Url)> {
        let url = Url::from_argument(name).ok();
        let is_it = |deed: &Deed, fact: &Fact| {
            crate::plan::order::deed_id(deed.number) == name
                || url
                    .as_ref()
                    .is_some_and(|url| fact.url == *url && deed.held.is_some())
        };
        let mut named = self.deeds().filter(|(deed, fact, _)| is_it(deed, fact));
        named
            .next()
            .map(|(deed, fact, _)| (deed.number, fact.url.clone()))
    }

    /// Returns the names that a deed concerns.
    pub(crate) fn names_of(&mut self, name: &str) -> Vec<Url> {
        let named = self.named(name);
        let fact = named.and_then(|(number, _)| Some(self.deed(number)?.1));
        fact.map_or_else(Vec::new, |fact| {
            let to = fact.to.clone();
            [Some(fact.url.clone()), to].into_iter().flatten().collect()
        })
    }

    /// Takes the rows that changed since the last call, of one server.
    pub(crate) fn changes(&mut self, url: &Url) -> Vec<(u64, Option<DeedRow>)> {
        let server = server_of(url);
        let Some(deeds) = self.servers.get_mut(&server) else {
            return Vec::new();
        };
        let mut rows = Vec::new();
        for (number, deed) in deeds.changes() {
            let is_publication = deed.as_ref().is_some_and(|deed| id_of(deed).is_some());
            let Some(fact) = self.facts.get(&number).filter(|_| !is_publication) else {
                continue;
            };
            match deed {
                Some(deed) => rows.push((
                    number,
                    Some(DeedRow {
                        deed,
                        fact: fact.clone(),
                    }),
                )),
                None => {
                    self.facts.remove(&number);
                    rows.push((number, None));
                }
            }
        }
        if deeds.pending().next().is_none() {
            self.servers.remove(&server);
        }
        rows
    }

    /// Returns the present name at the target of a local name; `None`: the target has it no more.
    pub(crate) fn now_at(&self, name: &Url) -> Option<Url> {
        let mut at = name.clone();
        for (deed, fact, _) in self.facts_backwards(name) {
            at = was_at(at, deed, fact)?;
        }
        Some(at)
    }

    /// Tells whether a local name is a directory that is yet to be made at its target.
    pub(crate) fn is_to_be_made(&self, name: &Url) -> bool {
        let mut at = name.clone();
        for (deed, fact, _) in self.facts_backwards(name) {
            if deed.what == What::Mkdir && path_of(&fact.url) == path_of(&at) {
                return true;
            }
            match was_at(at, deed, fact) {
                Some(before) => at = before,
                None => return false,
            }
        }
        false
    }

    pub(crate) fn facts_backwards(&self, name: &Url) -> Vec<(&Deed, &Fact, &Deeds)> {
        let server = server_of(name);
        let mut of_server: Vec<_> = self
            .deeds()
            .filter(|(_, fact, _)| server_of(&fact.url) == server)
            .collect();
        of_server.sort_by_key(|(deed, ..)| std::cmp::Reverse(deed.position));
        of_server
    }

    /// Tells whether a deed in flight concerns a name at the target.
    pub(crate) fn is_unsettled(&self, at: &Url) -> bool {
        let (server, path) = (server_of(at), path_of(at));
        self.deeds().any(|(deed, fact, _)| {
            let is_asked = deed.attempt.is_some() && deed.held.is_none();
            is_asked && server_of(&fact.url) == server && deed.concerns(&path)
        })
    }

    /// Tells whether the length of a local name is yet to be changed at the target.
    pub(crate) fn is_resized(&self, name: &Url) -> bool {
        let mut at = name.clone();
        self.facts_backwards(name)
            .into_iter()
            .any(|(deed, fact, _)| {
                if let Some(to) = &fact.to {
                    at = moved(&at, to, &fact.url).unwrap_or(at.clone());
                }
                cuts(deed) && fact.url == at
            })
    }
}

impl Plan {
    /// Returns the error of the operation on hold that an entry waits for.
    pub(crate) fn stuck_file(&self, entry: &Entry) -> Option<Error> {
        let (server, number) = self.order.published.get(&entry.id)?;
        self.stuck(server, *number)
    }

    /// Returns the error of the operation on hold that a deed waits for.
    pub(crate) fn stuck_deed(&self, deed: &Deed, fact: &Fact) -> Option<Error> {
        self.stuck(&server_of(&fact.url), deed.number)
    }

    fn stuck(&self, server: &str, number: u64) -> Option<Error> {
        let first = self.order.first_before(server, number)?;
        if let Some(id) = id_of(first) {
            let entry = self.by_id.get(&id)?;
            let state = entry.lock();
            state.machine.held()?;
            // It gives way in a moment.
            if state.is_superseded && state.users.open == 0 {
                return None;
            }
            return Some(Error::held(entry.url(), state.delivery.reason.clone(), ""));
        }
        let why = crate::words::reason_of(first.held.as_ref()?);
        let fact = self.order.facts.get(&first.number)?;
        let deed = crate::words::deed_words(crate::words::word_of(&first.what), fact.to.as_ref());
        Some(Error::held(fact.url.clone(), why, deed))
    }

    /// Returns the operation that an entry waits for.
    pub(crate) fn before_file(&self, entry: &Entry) -> Option<Before> {
        let (server, number) = self.order.published.get(&entry.id)?;
        self.first(server, *number)
    }

    /// Returns the operation that a deed waits for.
    pub(crate) fn before_deed(&self, deed: &Deed, fact: &Fact) -> Option<Before> {
        self.first(&server_of(&fact.url), deed.number)
    }

    fn first(&self, server: &str, number: u64) -> Option<Before> {
        let first = self.order.first_before(server, number)?;
        let is_held = self.stuck(server, number).is_some();
        let (id, url) = match id_of(first) {
            Some(id) => (id.to_string(), self.by_id.get(&id)?.url()),
            None => {
                let fact = self.order.facts.get(&first.number)?;
                (crate::plan::order::deed_id(first.number), fact.url.clone())
            }
        };
        let what = crate::words::word_of(&first.what);
        Some(Before {
            id,
            what,
            url,
            is_held,
        })
    }

    /// Adds the publication of an entry at the end of the order, unless it is pending already.
    pub(crate) fn enqueue(&mut self, entry: &Arc<Entry>) {
        let number = self.numbers.next();
        self.enqueue_as(entry, number);
    }

    /// Adds the publication of an entry under a number, as [`Self::enqueue`] does.
    pub(crate) fn enqueue_as(&mut self, entry: &Arc<Entry>, number: u64) {
        // Its writer may close it after a newer entry superseded it.
        if self.order.has(entry) || entry.lock().is_gone {
            return;
        }
        self.pending.remove(&entry.number());
        entry.renumber(number);
        let condition = entry.lock().machine.base().clone();
        self.order.publish(entry, condition);
        self.pending.insert(entry.number(), Arc::clone(entry));
    }

    /// Removes an entry from the order: it is delivered.
    pub(crate) fn settle(&mut self, entry: &Entry) {
        self.pending.remove(&entry.number());
        self.order.forget(entry.id);
    }

    /// Restores order, names and superseded entries after a restart, from the entries and the rows of operations.
    pub(crate) fn restore(&mut self, deeds: Vec<DeedRow>, start: u64) {
        let pending: Vec<_> = self.pending.values().cloned().collect();
        self.order = Order::recover(deeds, &pending, start);
        for entry in pending
            .iter()
            .filter(|entry| self.order.is_cut_later(entry))
        {
            entry.lock().validity.invalidate(); // Once it is delivered, its target cuts it.
        }
        self.replay();
        self.supersede_again();
    }

    /// Restores the local names of all entries after a restart, from the operations that came after them.
    fn replay(&mut self) {
        let mut all: Vec<_> = self.by_id.values().cloned().collect();
        // A pending entry is newer than the file of its target, even if that was renamed since.
        all.sort_by_key(|entry| (entry.lock().machine.owes(), entry.number()));
        let mut unnamed = Vec::new();
        for entry in all {
            let Some(NameNow { name, is_there }) = self.name_now(&entry) else {
                entry.lock().visibility = Visibility::Unlinked;
                continue;
            };
            let is_renamed = name != entry.url();
            match self.order.has(&entry) {
                true => entry.rename(name),
                false if is_there && is_renamed => {
                    // Later writes come after the rename, under the new name.
                    entry.redirect(name);
                    entry.renumber(self.numbers.next());
                    entry.lock().record.change();
                }
                false => {}
            }
            if is_there {
                self.make_current(&entry);
                continue;
            }
            entry.lock().visibility = Visibility::Unlinked;
            unnamed.push(entry);
        }
        self.supersede_unnamed(unnamed);
    }

    /// Restores the local names of pending entries after an operation was dropped.
    pub(crate) fn names_again(&mut self) {
        let renamed = self.pending.values().filter(|entry| entry.is_renamed());
        for entry in renamed.cloned().collect::<Vec<_>>() {
            if let Some(NameNow {
                name,
                is_there: true,
            }) = self.name_now(&entry)
            {
                let was_current = entry.lock().is_current();
                self.remove_current(&entry);
                entry.rename(name);
                if was_current {
                    self.make_newest(&entry);
                }
            }
        }
    }

    /// Follows the local name of an entry through the operations after it. `None`: another entry replaced it before the
    /// name was passed to that.
    fn name_now(&self, entry: &Entry) -> Option<NameNow> {
        let (mut name, mut since) = (entry.url(), entry.number());
        for (deed, fact) in self.order.later_than(entry) {
            let is_there = match (&deed.what, &fact.to) {
                (What::Rename { .. }, Some(to)) => match moved(&name, &fact.url, to) {
                    Some(_) if self.is_replaced_in(since..deed.position, entry, &name) => {
                        return None;
                    }
                    Some(renamed) => {
                        (name, since) = (renamed, deed.position);
                        true
                    }
                    None => moved(&name, to, to).is_none(),
                },
                (What::Unlink, _) => moved(&name, &fact.url, &fact.url).is_none(),
                _ => true,
            };
            if !is_there {
                return Some(NameNow { name, is_there });
            }
        }
        let is_there = true;
        Some(NameNow { name, is_there })
    }

    /// Tells whether another file was put under its name between those places in the order.
    fn is_replaced_in(&self, between: Range<u64>, entry: &Entry, name: &Url) -> bool {
        let mut between = self.pending.range(between).map(|(_, other)| other);
        between.any(|other| {
            let is_it = other.id != entry.id && other.url() == *name && other.who == entry.who;
            is_it && other.lock().machine.mode() == Mode::Replace
        })
    }
}

/// The local name of an entry, after the pending operations.
struct NameNow {
    /// The name, or the last one.
    name: Url,
    /// The entry still has it.
    is_there: bool,
}

impl Order {
    /// Tells whether no other operation is pending at its name, and none is in flight.
    pub(crate) fn is_alone(&self, entry: &Entry) -> bool {
        let is_fresh = self
            .published
            .get(&entry.id)
            .is_some_and(|(server, number)| {
                (self.servers[server].find(*number)).is_some_and(|deed| deed.attempt.is_none())
            });
        is_fresh && self.is_only(entry)
    }

    /// Tells whether no other operation is pending at its name.
    pub(crate) fn is_only(&self, entry: &Entry) -> bool {
        let Some((server, number)) = self.published.get(&entry.id) else {
            return false;
        };
        let deeds = &self.servers[server];
        deeds.waits_for(*number).is_none() && deeds.is_last(*number)
    }
}

/// Returns the name that a name had before a deed; `None`: the deed took it away.
pub(crate) fn was_at(at: Url, deed: &Deed, fact: &Fact) -> Option<Url> {
    match (&deed.what, &fact.to) {
        (What::Rename { .. }, Some(to)) => match moved(&at, to, &fact.url) {
            Some(before) => Some(before),
            None => moved(&at, &fact.url, to).is_none().then_some(at),
        },
        (What::Unlink, _) => moved(&at, &fact.url, &fact.url).is_none().then_some(at),
        _ => Some(at),
    }
}

/// Tells whether it changes the length of a file.
fn cuts(deed: &Deed) -> bool {
    matches!(&deed.what, What::Set(values) if values.contains_key(LENGTH))
}

pub(crate) fn rename_to(to: &Url, over: Base) -> What {
    What::Rename {
        to: path_of(to),
        over,
    }
}

fn publication(id: Id) -> What {
    What::Publish(Publication {
        id: id.bytes(),
        generation: 0,
        set: Values::new(),
    })
}

pub(crate) fn id_of(deed: &Deed) -> Option<Id> {
    match &deed.what {
        What::Publish(publication) => Some(Id::of(publication.id)),
        _ => None,
    }
}

/// The attribute that holds a length.
pub(crate) const LENGTH: &str = "length";

/// Returns the id of a deed as users see it.
pub(crate) fn deed_id(number: u64) -> String {
    format!("deed-{number:x}")
}
