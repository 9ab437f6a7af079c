//! Decisions on what is on hold: retry, release, drop. A directory that is there by now decides, too.

use crate::{
    Error, Result, Who,
    error::{Patience, is_for_directory},
    inner::Inner,
    paths::{path_of, server_of},
    plan::{backoff::ABSENT_MAX, entry::Entry, order::deed_id},
    words::reason_of,
};
use godwit_core::{
    Url,
    deeds::{Deeds, Over},
};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

impl Inner {
    /// Tries all servers again now.
    pub(crate) fn retry_servers(&self) {
        self.plan().backoff.servers.clear();
        self.nudge();
    }

    pub(crate) fn retry(&self, id: &str) -> Result<()> {
        if self.logs.retry(id) {
            self.retry_servers();
            return Ok(());
        }
        if self.decide_deed(id, |deeds, number| {
            deeds.release(number, Over::Nothing);
            Ok(())
        })? {
            self.retry_servers();
            return Ok(());
        }
        self.decide(id, |entry| {
            let mut state = entry.lock();
            if state.machine.held().is_some() {
                state.machine.release(None);
                state.delivery.reason.clear();
            }
            state.delivery.is_due = true;
            state.delivery.retry.not_before = None;
            (state.delivery.retry.tries, state.delivery.retry.patience) = (0, Patience::default());
            state.record.change();
            Ok(())
        })?;
        self.retry_servers();
        Ok(())
    }

    pub(crate) fn decide(&self, id: &str, decide: impl FnOnce(&Entry) -> Result<()>) -> Result<()> {
        let entry = self.by_name(id)?;
        decide(&entry)?;
        tracing::info!(id, url = %entry.url(), "decided");
        entry.tell();
        entry.commit(self)
    }

    /// A directory was made: what is held since it was not there is tried again.
    pub(crate) fn made(&self, directory: &Url) {
        let at = |url: &Url| (server_of(url), path_of(url));
        for (above, _, id) in self.without_directory() {
            if at(&above) == at(directory)
                && let Err(error) = self.retry(&id)
            {
                tracing::warn!(%error, id, "what waited for a directory is not tried again");
            }
        }
    }

    /// Looks at directories that were missing: what waits for one that is there by now is tried again.
    pub(crate) fn look_for_directories(&self, pause: Duration) {
        let waiting = self.without_directory().into_iter();
        let mut absent: HashMap<_, _> = waiting.map(|(above, who, _)| (above, who)).collect();
        absent.retain(|directory, who| {
            let place = (self.connect)(directory, who);
            let is_there = place.is_ok_and(|place| place.store.stat(&place.path).is_ok());
            if is_there {
                self.made(directory);
            }
            !is_there
        });
        if !absent.is_empty() {
            let pause = (pause * 2).min(ABSENT_MAX);
            (self.plan().backoff.directories).get_or_insert((Instant::now() + pause, pause));
        }
    }

    /// Returns what is held since a directory is not there: that directory, for whom, and its id.
    fn without_directory(&self) -> Vec<(Url, Who, String)> {
        let above = |url: &Url, reason: &str| {
            let above = url.parent();
            above.filter(|above| is_for_directory(reason, above))
        };
        let plan = self.plan();
        let files = plan.pending.values().filter_map(|entry| {
            let state = entry.lock();
            state.machine.held()?;
            let above = above(&entry.url(), &state.delivery.reason)?;
            Some((above, entry.who.clone(), entry.id.to_string()))
        });
        let deeds = plan.order.deeds().filter_map(|(deed, fact, _)| {
            let new = fact.to.as_ref().unwrap_or(&fact.url);
            let above = above(new, &reason_of(deed.held.as_ref()?))?;
            Some((above, fact.who.clone(), deed_id(deed.number)))
        });
        files.chain(deeds).collect()
    }

    /// Applies a decision to a deed that is no publication; `false`: no deed has that name.
    pub(crate) fn decide_deed(
        &self,
        id: &str,
        decide: impl FnOnce(&mut Deeds, u64) -> Result<()>,
    ) -> Result<bool> {
        let mut plan = self.plan();
        let Some((number, url)) = plan.order.named(id) else {
            return Ok(false);
        };
        if let Some((deeds, fact)) = plan.order.deed(number) {
            fact.tries = 0;
            fact.later = None;
            fact.last = None;
            decide(deeds, number)?;
        }
        tracing::info!(id, %url, "decided");
        let written = self.note(&mut plan, &url);
        drop(plan);
        written.wait()?;
        Ok(true)
    }

    /// Returns what is meant by a number, or by a URL of which one thing is held.
    pub(crate) fn by_name(&self, name: &str) -> Result<Arc<Entry>> {
        let plan = self.plan();
        let by_id = name
            .parse()
            .ok()
            .and_then(|id| plan.by_id.get(&id).cloned());
        let found = by_id.or_else(|| {
            let url = Url::from_argument(name).ok()?;
            plan.pending_called(&url).into_iter().next()
        });
        let is_unreadable = name
            .parse()
            .is_ok_and(|id| plan.unreadable.entries.contains_key(&id));
        let is_odd = plan
            .unreadable
            .deeds
            .iter()
            .any(|odd| deed_id(odd.number) == name);
        found.ok_or_else(|| match is_unreadable || is_odd {
            true => Error::Unknown(format!(
                "{name}: it has a name that cannot be read; drop it"
            )),
            false => Error::Unknown(name.into()),
        })
    }
}
