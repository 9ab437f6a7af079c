//! The order of pending operations, one for each server: publications of entries, and renames, removals, directories and
//! attributes between them.
//!
//! The rules are those of [`godwit_core::deeds`]. The record of a publication is the row of its entry; each other
//! operation has a row of its own.

use crate::{
    Before, Error,
    disk::{
        files::Id,
        rows::{DeedRow, Fact},
    },
    paths::{moved, path_of, server_of},
    plan::{all::All, entry::Held, state::Visibility},
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

/// All that is promised and not done.
#[derive(Default)]
pub(crate) struct Promises {
    servers: BTreeMap<String, Deeds>,
    pub facts: BTreeMap<u64, Fact>,
    /// By which numbers the publications of what is held are promised.
    published: HashMap<Id, (String, u64)>,
    start: u64,
}

/// What is to be done next.
pub(crate) struct Ready {
    pub number: u64,
    /// A file; else something else.
    pub id: Option<Id>,
}

impl Promises {
    /// Goes on with what was on record. Publications come with what is held.
    pub(crate) fn recover(rows: Vec<DeedRow>, publications: &[Arc<Held>], start: u64) -> Self {
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
        for held in publications {
            let server = server_of(&held.url());
            let number = held.number();
            let (is_asked, condition) = {
                let state = held.lock();
                (state.machine.is_asked(), state.machine.base().clone())
            };
            all.published.insert(held.id, (server.clone(), number));
            records.entry(server).or_default().push(Deed {
                number,
                position: number,
                at: path_of(&held.url()),
                what: publication(held.id),
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
    pub(crate) fn has(&self, held: &Held) -> bool {
        self.published.contains_key(&held.id)
    }

    /// Promises to publish it, under its number.
    pub(crate) fn publish(&mut self, held: &Held, condition: Base) {
        let (url, number) = (held.url(), held.number());
        let server = server_of(&url);
        self.of(&url)
            .promise(number, path_of(&url), publication(held.id), condition);
        self.published.insert(held.id, (server, number));
    }

    /// Nothing of it is to be published.
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

    /// Tells whether something was promised after it that has to do with its name.
    pub(crate) fn is_passed(&self, held: &Held) -> bool {
        let Some((server, number)) = self.published.get(&held.id) else {
            return true;
        };
        !self.servers[server].is_last(*number)
    }

    /// Tells whether something was promised after that place in the order that has to do with its name.
    pub(crate) fn is_passed_after(&self, held: &Held, place: u64) -> bool {
        let Some((server, number)) = self.published.get(&held.id) else {
            return false;
        };
        !self.servers[server].is_last_of_those_after(*number, place)
    }

    /// Tells whether something was promised after it, and after a place in the order, which does not need it.
    pub(crate) fn is_replaced_after(&self, held: &Held, place: u64) -> bool {
        self.is_passed_after(held, place) && !held.is_renamed() && !self.is_needed(held)
    }

    /// Tells whether nothing goes before it.
    pub(crate) fn is_turn(&self, held: &Held) -> bool {
        let Some((server, number)) = self.published.get(&held.id) else {
            return false;
        };
        self.servers[server].waits_for(*number).is_none()
    }

    /// Tells whether something that was promised after it would fail at the target without it: it is renamed there,
    /// perhaps back again later, or something of it is set.
    pub(crate) fn is_needed(&self, held: &Held) -> bool {
        let Some((server, number)) = self.published.get(&held.id) else {
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

    /// Tells whether its name is another's, or nobody's, after it: somebody put a file in its place, or is about to be
    /// told that they did, or what they put there was removed again.
    pub(crate) fn is_followed(&self, held: &Held) -> bool {
        self.is_followed_after(held, held.number())
    }

    /// Tells whether that is so by what was promised after that place in the order.
    pub(crate) fn is_followed_after(&self, held: &Held, place: u64) -> bool {
        let mut name = held.url();
        for (deed, fact) in self.later_than(held) {
            let ends = match fact.to.as_ref().map(|to| (to, moved(&name, &fact.url, to))) {
                Some((_, Some(moved))) => {
                    name = moved;
                    false
                }
                Some((to, None)) => *to == name,
                None => deed.what == What::Unlink && fact.url == name,
            };
            if ends && deed.position > place {
                return true;
            }
        }
        let Some((server, number)) = self.published.get(&held.id) else {
            return false;
        };
        let deeds = &self.servers[server];
        let (name, own) = (path_of(&held.name()), deeds.find(*number));
        let follows = |deed: &Deed| {
            let is_later = own.is_some_and(|own| deed.position > own.position.max(place));
            is_later && deed.at == name && id_of(deed).is_some()
        };
        deeds.pending().any(follows)
    }

    /// Tells whether its length is to be changed at the target after it is there: what is written from now on comes
    /// after that, and is no part of it.
    pub(crate) fn is_cut_later(&self, held: &Held) -> bool {
        let mut name = held.url();
        self.later_than(held).into_iter().any(|(deed, fact)| {
            if let Some(to) = &fact.to {
                name = moved(&name, &fact.url, to).unwrap_or(name.clone());
            }
            cuts(deed) && fact.url == name
        })
    }

    /// Returns what is no publication and comes after that of something held, in order.
    fn later_than(&self, held: &Held) -> Vec<(&Deed, &Fact)> {
        let mut later: Vec<_> = self
            .deeds()
            .map(|(deed, fact, _)| (deed, fact))
            .filter(|(deed, _)| deed.position > held.number())
            .collect();
        later.sort_by_key(|(deed, _)| deed.position);
        later
    }

    /// Returns what goes before everything that it waits for, if it waits.
    fn first_before(&self, server: &str, number: u64) -> Option<&Deed> {
        let deeds = self.servers.get(server)?;
        let mut before = deeds.waits_for(number)?;
        while let Some(earlier) = deeds.waits_for(before) {
            before = earlier;
        }
        deeds.find(before)
    }

    /// Tells whether nothing is promised at its name.
    pub(crate) fn is_free(&self, url: &Url) -> bool {
        let deeds = self.servers.get(&server_of(url));
        deeds.is_none_or(|deeds| !deeds.concern(&path_of(url)))
    }

    /// Returns what waits for nothing else, by the address of its server.
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

    /// Returns where a deed is done that is no publication.
    pub(crate) fn server(&self, number: u64) -> Option<String> {
        self.facts.get(&number).map(|fact| fact.url.host_port())
    }

    /// Returns when a deed is tried again, if not at once.
    pub(crate) fn later(&self, number: u64) -> Option<Instant> {
        self.facts.get(&number)?.later
    }

    /// Whatever was in the way of deeds may be out of it.
    pub(crate) fn try_again(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some(fact) = self.facts.get_mut(number) {
                (fact.later, fact.last) = (None, None);
            }
        }
    }

    /// Begins with one that is ready.
    pub(crate) fn take(&mut self, number: u64) -> Option<godwit_core::deeds::Do> {
        self.servers
            .values_mut()
            .find_map(|deeds| deeds.take(number))
    }

    /// Begins to publish a file. What was renamed before its target knew it has another place than its number says.
    pub(crate) fn take_file(&mut self, held: &Held) -> Option<godwit_core::deeds::Do> {
        let (_, number) = self.published.get(&held.id)?;
        let number = *number;
        self.take(number)
    }

    /// A visit at the target of a file is over, which it is not.
    pub(crate) fn visited(&mut self, held: &Held, is_asked: bool) {
        let Some((server, number)) = self.published.get(&held.id) else {
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

    /// Returns the order that a deed is in, and what else is known of it.
    pub(crate) fn deed(&mut self, number: u64) -> Option<(&mut Deeds, &mut Fact)> {
        let fact = self.facts.get_mut(&number)?;
        let deeds = self.servers.get_mut(&server_of(&fact.url))?;
        Some((deeds, fact))
    }

    /// Returns all that are no publications, in order.
    pub(crate) fn deeds(&self) -> impl Iterator<Item = (&Deed, &Fact, &Deeds)> {
        self.facts.iter().filter_map(|(number, fact)| {
            let deeds = self.servers.get(&server_of(&fact.url))?;
            Some((deeds.find(*number)?, fact, deeds))
        })
    }

    /// Returns the deed that is called so: by its number, or the first that is held at a URL, or there.
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

    /// Returns the names of a deed that is called so.
    pub(crate) fn names_of(&mut self, name: &str) -> Vec<Url> {
        let named = self.named(name);
        let fact = named.and_then(|(number, _)| Some(self.deed(number)?.1));
        fact.map_or_else(Vec::new, |fact| {
            let to = fact.to.clone();
            [Some(fact.url.clone()), to].into_iter().flatten().collect()
        })
    }

    /// What has changed at a server, for the records.
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

    /// Returns where a name of here is at its target now; `None`: nowhere any more.
    pub(crate) fn now_at(&self, name: &Url) -> Option<Url> {
        let mut at = name.clone();
        for (deed, fact, _) in self.facts_backwards(name) {
            at = was_at(at, deed, fact)?;
        }
        Some(at)
    }

    /// Tells whether a name of here is that of a directory which is yet to be made at its target.
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

    /// Tells whether a deed that was asked, and not answered, has to do with what is there.
    pub(crate) fn is_unsettled(&self, at: &Url) -> bool {
        let (server, path) = (server_of(at), path_of(at));
        self.deeds().any(|(deed, fact, _)| {
            let is_asked = deed.attempt.is_some() && deed.held.is_none();
            is_asked && server_of(&fact.url) == server && deed.concerns(&path)
        })
    }

    /// Tells whether the length of what has a name here is yet to be changed at the target.
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

impl All {
    /// Returns what somebody is to decide on before this can be delivered.
    pub(crate) fn stuck_file(&self, held: &Held) -> Option<Error> {
        let (server, number) = self.promises.published.get(&held.id)?;
        self.stuck(server, *number)
    }

    /// The same of a deed that is no publication.
    pub(crate) fn stuck_deed(&self, deed: &Deed, fact: &Fact) -> Option<Error> {
        self.stuck(&server_of(&fact.url), deed.number)
    }

    fn stuck(&self, server: &str, number: u64) -> Option<Error> {
        let first = self.promises.first_before(server, number)?;
        if let Some(id) = id_of(first) {
            let held = self.by_id.get(&id)?;
            let state = held.lock();
            state.machine.held()?;
            // It gives way in a moment.
            if state.is_superseded && state.users.open == 0 {
                return None;
            }
            return Some(Error::held(held.url(), state.delivery.reason.clone(), ""));
        }
        let why = crate::words::words_of(first.held.as_ref()?);
        let fact = self.promises.facts.get(&first.number)?;
        let deed = crate::words::deed_words(crate::words::word_of(&first.what), fact.to.as_ref());
        Some(Error::held(fact.url.clone(), why, deed))
    }

    /// Returns what goes before a file, if it waits for something.
    pub(crate) fn before_file(&self, held: &Held) -> Option<Before> {
        let (server, number) = self.promises.published.get(&held.id)?;
        self.first(server, *number)
    }

    /// The same of a deed that is no publication.
    pub(crate) fn before_deed(&self, deed: &Deed, fact: &Fact) -> Option<Before> {
        self.first(&server_of(&fact.url), deed.number)
    }

    fn first(&self, server: &str, number: u64) -> Option<Before> {
        let first = self.promises.first_before(server, number)?;
        let is_held = self.stuck(server, number).is_some();
        let (id, url) = match id_of(first) {
            Some(id) => (id.to_string(), self.by_id.get(&id)?.url()),
            None => {
                let fact = self.promises.facts.get(&first.number)?;
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

    /// Promises to publish it, after all that is promised so far, unless it is promised.
    pub(crate) fn owe(&mut self, held: &Arc<Held>, number: impl FnOnce() -> u64) {
        // Whoever ends it may come after it was given up for something newer.
        if self.promises.has(held) || held.lock().is_gone {
            return;
        }
        self.owing.remove(&held.number());
        held.renumber(number());
        let condition = held.lock().machine.base().clone();
        self.promises.publish(held, condition);
        self.owing.insert(held.number(), Arc::clone(held));
    }

    /// Nothing of it is owed.
    pub(crate) fn settle(&mut self, held: &Held) {
        self.owing.remove(&held.number());
        self.promises.forget(held.id);
    }

    /// What is called so here is called otherwise, and so is whatever is below it.
    pub(crate) fn rename(
        &mut self,
        from: &Url,
        to: &Url,
        number: impl Fn() -> u64,
    ) -> Vec<Arc<Held>> {
        self.rename_coming(from, to);
        self.changed_behind(from);
        self.changed_behind(to);
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
            let Some(held) = self.current.remove(&key) else {
                continue;
            };
            match self.promises.has(&held) {
                true => held.rename(name.clone()),
                false => {
                    held.redirect(name.clone());
                    let was = self.owing.remove(&held.number());
                    held.renumber(number());
                    if let Some(held) = was {
                        self.owing.insert(held.number(), held);
                    }
                }
            }
            self.current.insert((name, key.1), Arc::clone(&held));
            let mut state = held.lock();
            state.validity.is_changed_at_target = true;
            state.record.change();
            drop(state);
            renamed.push(held);
        }
        renamed
    }

    /// Tells whether somebody may be writing unseen what a name says.
    pub(crate) fn is_written_unseen(&self, name: &Url) -> bool {
        let mut current = self.current.iter().filter(|((at, _), _)| at == name);
        current.any(|(_, held)| held.lock().machine.is_unseen())
    }

    /// Tells whether something is on its way to below a name.
    pub(crate) fn is_full(&self, at: &Url) -> bool {
        let is_below = |name: &Url| name != at && moved(name, at, at).is_some();
        let has_file = (self.current.iter()).any(|((name, _), held)| {
            let state = held.lock();
            is_below(name) && state.machine.owes() && !state.is_gone
        });
        let promises = &self.promises;
        let has_more = promises.deeds().any(|(deed, fact, _)| match &fact.to {
            Some(to) => is_below(to) && promises.now_at(to).is_some(),
            None if deed.what == What::Mkdir => {
                is_below(&fact.url) && promises.is_to_be_made(&fact.url)
            }
            None => false,
        });
        has_file || has_more
    }

    /// Nothing is called so here, nor below it.
    pub(crate) fn unlink(&mut self, at: &Url) -> Vec<Arc<Held>> {
        self.unlink_coming(at);
        self.changed_behind(at);
        let is_it = |key: &&(Url, String)| moved(&key.0, at, at).is_some();
        let keys: Vec<_> = self.current.keys().filter(is_it).cloned().collect();
        let gone = keys.iter().filter_map(|key| self.current.remove(key));
        let gone: Vec<_> = gone.collect();
        for held in &gone {
            held.lock().visibility = Visibility::Unlinked;
        }
        gone
    }

    /// What is held has the names that it had, by what was promised after it was.
    pub(crate) fn replay(&mut self, number: impl Fn() -> u64) {
        let mut all: Vec<_> = self.by_id.values().cloned().collect();
        // What is owed is newer than what its target has, also where that was renamed since.
        all.sort_by_key(|held| (held.lock().machine.owes(), held.number()));
        let mut unnamed = Vec::new();
        for held in all {
            let Some(NameNow { name, is_there }) = self.name_now(&held) else {
                held.lock().visibility = Visibility::Unlinked;
                continue;
            };
            let is_renamed = name != held.url();
            match self.promises.has(&held) {
                true => held.rename(name),
                false if is_there && is_renamed => {
                    // What of it is written from now on comes after the rename, under the new name.
                    held.redirect(name);
                    held.renumber(number());
                    held.lock().record.change();
                }
                false => {}
            }
            if is_there {
                self.make_current(&held);
                continue;
            }
            held.lock().visibility = Visibility::Unlinked;
            unnamed.push(held);
        }
        self.supersede_unnamed(unnamed);
    }

    /// A promise is given up: what was renamed by it, and is still on its way, is called as it is delivered.
    pub(crate) fn names_again(&mut self) {
        let renamed = self.owing.values().filter(|held| held.is_renamed());
        for held in renamed.cloned().collect::<Vec<_>>() {
            if let Some(NameNow {
                name,
                is_there: true,
            }) = self.name_now(&held)
            {
                let was_current = held.lock().is_current();
                self.remove_current(&held);
                held.rename(name);
                if was_current {
                    self.make_newest(&held);
                }
            }
        }
    }

    /// Follows the name of something held through what was promised after it. `None`: something else was put in its place
    /// before its name was given to that.
    fn name_now(&self, held: &Held) -> Option<NameNow> {
        let (mut name, mut since) = (held.url(), held.number());
        for (deed, fact) in self.promises.later_than(held) {
            let is_there = match (&deed.what, &fact.to) {
                (What::Rename { .. }, Some(to)) => match moved(&name, &fact.url, to) {
                    Some(_) if self.is_replaced_in(since..deed.position, held, &name) => {
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

    /// Tells whether another file was put under its name between those places in the order: since it had it, and before
    /// that was given away.
    fn is_replaced_in(&self, between: Range<u64>, held: &Held, name: &Url) -> bool {
        let mut between = self.owing.range(between).map(|(_, other)| other);
        between.any(|other| {
            let is_it = other.id != held.id && other.url() == *name && other.who == held.who;
            is_it && other.lock().machine.mode() == Mode::Replace
        })
    }
}

/// What something held is called here by what was promised.
struct NameNow {
    /// Now, or last.
    name: Url,
    /// It was not removed since, nor has something else its name.
    is_there: bool,
}

impl Promises {
    /// Tells whether nothing else is promised at its name, and its target is not asked just now.
    pub(crate) fn is_alone(&self, held: &Held) -> bool {
        let is_fresh = self
            .published
            .get(&held.id)
            .is_some_and(|(server, number)| {
                (self.servers[server].find(*number)).is_some_and(|deed| deed.attempt.is_none())
            });
        is_fresh && self.is_only(held)
    }

    /// Tells whether nothing else is promised at its name.
    pub(crate) fn is_only(&self, held: &Held) -> bool {
        let Some((server, number)) = self.published.get(&held.id) else {
            return false;
        };
        let deeds = &self.servers[server];
        deeds.waits_for(*number).is_none() && deeds.is_last(*number)
    }
}

/// Returns what was called so before a deed; `None`: nothing is, from then on.
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

/// The attribute that is a length.
pub(crate) const LENGTH: &str = "length";

/// Returns by what a deed is named.
pub(crate) fn deed_id(number: u64) -> String {
    format!("deed-{number:x}")
}
