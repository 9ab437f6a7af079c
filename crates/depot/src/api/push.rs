//! Waiting until targets have what is pending.

use crate::{
    Depot, Error, Result, Scope, Who,
    api::queue::is_meant,
    error::{is_nowhere, is_on_hold_downstream},
    inner::Inner,
    plan::{entry::Entry, order::Fact},
    words::{deed_words, reason_of, word_of},
};
use godwit_core::{Fault, Url};
use godwit_store::{Error as StoreError, StoreExt, TAKEN, channel::Watch};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// The end of a caller's patience, and how long it was at the beginning.
pub(crate) type Time = (Option<Instant>, Option<Duration>);

/// Generations that are to be delivered, and the numbers of deeds.
type Sealed = (Vec<(Arc<Entry>, u64)>, Vec<u64>);

impl Depot {
    /// Waits until all entries that were closed before the call are durable here.
    pub fn commit(&self, scope: &Scope) -> Result<()> {
        for entry in self.inner.scoped(scope) {
            drop(entry.lock_merged());
            match entry.commit(&self.inner) {
                Err(Error::Unknown(_)) => {} // delivered and forgotten meanwhile
                outcome => outcome?,
            }
        }
        self.inner
            .logs_of(scope)
            .iter()
            .try_for_each(|(log, _)| log.commit())
    }

    /// Waits until a name is at its last target, behind any number of depots, or until cancelled. The name need not be
    /// pending here.
    pub fn push_through(
        &self,
        (url, who): (&Url, &Who),
        limit: Option<Duration>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let until = limit.map(|limit| Instant::now() + limit);
        self.arrive(&Scope::Url(url.clone()), (until, limit), is_wanted)?;
        (self.inner).forward((url, who), (until, limit), is_wanted)
    }

    /// Waits until everything that is pending at the call is durable at its target.
    pub fn push(&self, scope: &Scope, limit: Option<Duration>) -> Result<()> {
        self.push_while(scope, limit, &|| true).map(drop)
    }

    /// Waits like [`Self::push`], until cancelled. Returns the servers that forward entries and do not tell how far they are.
    pub fn push_while(
        &self,
        scope: &Scope,
        limit: Option<Duration>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<String>> {
        let until = limit.map(|limit| Instant::now() + limit);
        // A delivered entry may be pending at a hop.
        let is_forwarded =
            |entry: &Arc<Entry>| entry.lock().meta.is_forwarded && is_meant(scope, entry);
        let mut others = match scope {
            Scope::Url(url) => self.inner.plan().called(url),
            Scope::Below(url) => self.inner.plan().called_below(url),
            _ => self.inner.every(),
        };
        others.retain(is_forwarded);
        for pending in self.queue_of(scope) {
            if pending.waits_for_directory() {
                let _ = self.inner.retry(&pending.id); // it may be delivered by now
            }
        }
        let wanted = self.arrived(scope, (until, limit), is_wanted)?;
        let wanted = wanted.into_iter().map(|(entry, _)| entry);
        let mut downstream = Downstream::default();
        for entry in wanted.chain(others) {
            let followed = self.inner.follow(&entry, (until, limit), is_wanted);
            match downstream.note(&entry.name(), followed) {
                // It was removed since.
                Err(_) if entry.lock().is_unlinked() => {}
                // A newer entry replaced it, and was renamed or removed since.
                Err(Error::Store(gone)) if is_nowhere(&gone) && was_replaced(&entry) => {}
                followed => {
                    followed?;
                    downstream.look(&self.inner, (&entry.url(), &entry.who));
                }
            }
        }
        (self.inner).follow_forwarded(scope, (until, limit), is_wanted, &mut downstream)?;
        downstream.told()
    }

    /// Has the server of a name forward what other nodes gave it, and waits for that; returns at once if the server does
    /// not forward or cannot be asked. Returns the server that does not tell how far it is.
    pub fn push_unowed_while(
        &self,
        (url, who): (&Url, &Who),
        limit: Option<Duration>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<String>> {
        let until = limit.map(|limit| Instant::now() + limit);
        let can = self.inner.place_of(url, who);
        let can = can.and_then(|place| place.store.can());
        if !can.is_ok_and(|can| can.passes_on) {
            return Ok(None);
        }
        match (self.inner).forward((url, who), (until, limit), is_wanted) {
            Err(Error::Store(gone)) if is_nowhere(&gone) => return Ok(None),
            forwarded => forwarded?,
        }
        Ok(self.inner.unseen(url, who).ok().flatten())
    }

    /// Waits until everything that is pending at the call is at its next node, which may be a hop.
    pub(crate) fn arrive(
        &self,
        scope: &Scope,
        time: Time,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.arrived(scope, time, is_wanted).map(drop)
    }

    fn arrived(
        &self,
        scope: &Scope,
        (until, limit): Time,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<(Arc<Entry>, u64)>> {
        let (wanted, deeds) = self.seal(scope)?;
        // An entry on hold does not end the wait for others; its error is returned at the end.
        let mut is_held = Ok(());
        for (entry, generation) in &wanted {
            match self.wait_for(entry, *generation, (until, limit), is_wanted) {
                Err(error @ Error::Held { .. }) => is_held = is_held.and(Err(error)),
                waited => waited?,
            }
        }
        match (self.inner).wait_for_deeds(&deeds, (until, limit), is_wanted) {
            Err(error @ Error::Held { .. }) => is_held = is_held.and(Err(error)),
            waited => waited?,
        }
        for (log, upto) in self.inner.logs_of(scope) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match log.wait_there(&self.inner, upto, left) {
                Err(error @ Error::Held { .. }) => is_held = is_held.and(Err(error)),
                waited => waited?,
            }
        }
        is_held.map(|()| wanted)
    }

    /// Seals the pending entries of a scope as they are now. Returns them, and the pending deeds.
    fn seal(&self, scope: &Scope) -> Result<Sealed> {
        let all = self.inner.scoped(scope);
        for entry in &all {
            self.inner.glimpse(entry)?;
        }
        let seal = |entry: Arc<Entry>| {
            let mut state = entry.lock_merged();
            let generation = state.machine.generation();
            if state.machine.writers().is_some() {
                // Its writer wants the present bytes at the target.
                state.machine.seal();
            }
            state.delivery.is_due = true;
            state.delivery.retry.not_before = None;
            drop(state);
            (entry, generation)
        };
        let wanted = all.into_iter().map(seal).collect();
        let deeds = self.inner.deeds_of(scope);
        self.inner.plan().order.try_again(&deeds);
        self.inner.retry_servers();
        Ok((wanted, deeds))
    }

    fn wait_for(
        &self,
        entry: &Arc<Entry>,
        generation: u64,
        (until, limit): Time,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        loop {
            let stuck = self.inner.plan().stuck_file(entry);
            let mut state = entry.lock();
            let is_there = !state.machine.owes() || state.delivery.delivered >= generation;
            let is_held = state.machine.held().is_some();
            // The wait for the entry that replaced it is another one.
            if is_there || state.is_gone || (is_held && state.is_superseded) {
                return Ok(());
            }
            if is_held {
                return Err(Error::held(entry.url(), state.delivery.reason.clone(), ""));
            }
            if let Some(error) = stuck {
                return Err(error);
            }
            if self.inner.is_ending() {
                return Err(Error::Ending);
            }
            if let (Some(until), Some(waited)) = (until, limit)
                && Instant::now() >= until
            {
                let why = state.delivery.retry.last.as_ref().map(ToString::to_string);
                let what = match why {
                    Some(why) => format!("{} is not at its target: {why}", entry.url()),
                    None => format!("{} is still on its way", entry.url()),
                };
                return Err(Error::timed_out(waited, what));
            }
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            let (wants, later, is_moving) = (
                state.delivery.is_due,
                state.delivery.retry.not_before,
                state.delivery.is_in_flight,
            );
            let (machine, url) = (&state.machine, entry.url());
            tracing::debug!(%url, wants, ?later, is_moving, ?machine, "waited for");
            let look = Instant::now() + LOOK_EVERY;
            let look = until.map_or(look, |until| until.min(look));
            entry.wait(&mut state, Some(look));
        }
    }
}

/// Entries on hold at nodes downstream. They do not end the wait for others; their error is returned at the end.
#[derive(Default)]
pub(crate) struct Downstream {
    first: Option<(At, Error)>,
    /// Their local names.
    on_hold: BTreeMap<At, Url>,
    /// Names that wait for one of them.
    waiting: BTreeSet<String>,
    /// Servers that were asked whether they tell of all nodes behind them.
    looked_at: BTreeSet<String>,
    unseen: BTreeSet<String>,
}

/// A node, and the path that is on hold there.
type At = (String, PathBuf);

impl Downstream {
    /// Notes an entry on hold; other outcomes are returned.
    pub(crate) fn note(&mut self, name: &Url, followed: Result<()>) -> Result<()> {
        let error = match followed {
            Err(error) if error.of_store().is_some_and(is_on_hold_downstream) => error,
            followed => return followed,
        };
        let Some(StoreError::Held { host, path, .. }) = error.of_store() else {
            return Err(error);
        };
        let at = (host.clone(), path.clone());
        // Another entry is on hold that goes before it.
        let is_it = name.as_path().ends_with(path);
        match is_it {
            true => drop(self.on_hold.insert(at.clone(), name.clone())),
            false => {
                self.on_hold
                    .entry(at.clone())
                    .or_insert_with(|| name.clone());
                self.waiting.insert(name.without_password().to_string());
            }
        }
        self.first.get_or_insert((at, error));
        Ok(())
    }

    /// Asks each server once for nodes behind it that do not tell how far they are.
    pub(crate) fn look(&mut self, inner: &Inner, (url, who): (&Url, &Who)) {
        if !self.looked_at.insert(url.host_port()) {
            return;
        }
        match inner.unseen(url, who) {
            Ok(unseen) => self.unseen.extend(unseen),
            Err(error) => tracing::debug!(%url, %error, "the way there is not told"),
        }
    }

    fn told(mut self) -> Result<Vec<String>> {
        let Some((at, first)) = self.first else {
            return Ok(self.unseen.into_iter().collect());
        };
        self.on_hold.remove(&at);
        Err(Error::OnHoldDownstream {
            first: Box::new(first),
            others: self.on_hold.into_values().collect(),
            waiting: self.waiting.into_iter().collect(),
        })
    }
}

/// Returns the error of a deed that is on hold behind its server.
fn on_hold_downstream(fact: &Fact, deed: String) -> Option<Error> {
    let last = fact.last.as_ref()?;
    let url = Box::new(fact.url.clone());
    (last.of_store().is_some_and(is_on_hold_downstream)).then_some(Error::held(
        url,
        last.reason(),
        deed,
    ))
}

impl Inner {
    /// Waits until deeds are done at their targets.
    fn wait_for_deeds(
        &self,
        numbers: &[u64],
        (until, limit): Time,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut plan = self.plan();
        loop {
            let (mut left, mut is_held) = (None, Ok(()));
            for (deed, fact, _) in plan.order.deeds() {
                if !numbers.contains(&deed.number) {
                    continue;
                }
                let on_hold = deed.held.as_ref();
                let reason = || deed_words(word_of(&deed.what), fact.to.as_ref());
                let on_hold =
                    on_hold.map(|why| Error::held(fact.url.clone(), reason_of(why), reason()));
                let stuck = on_hold.or_else(|| plan.stuck_deed(deed, fact));
                match stuck.or_else(|| on_hold_downstream(fact, reason())) {
                    Some(error) => is_held = is_held.and(Err(error)),
                    None => left = Some(format!("{} of {}", word_of(&deed.what), fact.url)),
                }
            }
            let Some(what) = left else {
                return is_held;
            };
            if self.is_ending() {
                return Err(Error::Ending);
            }
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            let pause = match (until, limit) {
                (Some(until), Some(waited)) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Error::timed_out(waited, what));
                    }
                    left.min(LOOK_AGAIN)
                }
                _ => LOOK_AGAIN,
            };
            self.due.wait_for(&mut plan, pause);
        }
    }

    /// Waits until a delivered entry is at its last target.
    fn follow(&self, entry: &Entry, time: Time, is_wanted: &dyn Fn() -> bool) -> Result<()> {
        let generation = entry.lock().delivery.delivered;
        let forwarded = match self.forward((&entry.name(), &entry.who), time, is_wanted) {
            // The hop had it, and it was removed there or lost. The error is returned once.
            Err(Error::Store(gone)) if is_nowhere(&gone) && entry.lock().meta.is_forwarded => {
                let mut state = entry.lock();
                state.meta.is_forwarded &= state.delivery.delivered != generation;
                return match state.is_gone || entry.may_be_elsewhere(&state) {
                    true => Ok(()),
                    false => Err(Error::gone_downstream(&entry.url())),
                };
            }
            forwarded => forwarded,
        };
        if forwarded.is_ok() {
            let mut state = entry.lock();
            state.meta.is_forwarded &= state.delivery.delivered != generation;
        }
        forwarded
    }

    /// Has the next node forward a name, and waits for that. A node that is away is asked again until the time is over or
    /// the caller cancels.
    pub(crate) fn forward(
        &self,
        (url, who): (&Url, &Who),
        (until, limit): Time,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        loop {
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let watch = Watch::new(STALL).map_err(Error::disk(self.disk.root()))?;
            let pushed = self.place_of(url, who).and_then(|place| {
                let watch = watch.within(left);
                place.store.push(&place.path, Some(&watch))
            });
            let error = match pushed {
                Ok(()) => return Ok(()),
                Err(error) if error.fault() == Fault::Lasting => return Err(error.into()),
                Err(error) => error,
            };
            if let (Some(until), Some(waited)) = (until, limit)
                && Instant::now() + AGAIN >= until
            {
                let what = format!("{url} is kept on its way, and not at its end: {error}");
                return Err(Error::timed_out(waited, what));
            }
            self.pause(AGAIN)?;
        }
    }

    /// Returns the server that does not tell whether it has forwarded a name.
    fn unseen(&self, url: &Url, who: &Who) -> godwit_store::Result<Option<String>> {
        let place = self.place_of(url, who)?;
        if !place.store.can()?.passes_on {
            return Ok(None);
        }
        let way = place.store.trace(&place.path, &[])?;
        let taken = way.into_iter().find(|station| station.stage == TAKEN);
        Ok(taken.map(|station| station.at))
    }

    /// Waits, unless the depot ends.
    fn pause(&self, time: Duration) -> Result<()> {
        self.sleep(time);
        match self.is_ending() {
            true => Err(Error::Ending),
            false => Ok(()),
        }
    }

    /// Returns the pending entries of a scope.
    fn scoped(&self, scope: &Scope) -> Vec<Arc<Entry>> {
        let pending: Vec<_> = match scope {
            Scope::Url(url) => self.plan().pending_called(url),
            Scope::Below(url) => self.plan().pending_below(url),
            _ => self.plan().pending.values().cloned().collect(),
        };
        // An open entry is private.
        let is_wanted = |entry: &Arc<Entry>| !entry.lock().is_private() && is_meant(scope, entry);
        pending.into_iter().filter(is_wanted).collect()
    }
}

/// Tells whether another entry replaced it. A patch is never current, and so tells nothing.
fn was_replaced(entry: &Entry) -> bool {
    let state = entry.lock();
    state.is_gone || !(state.is_current() || state.machine.is_blind())
}

/// How often a caller that waits for deeds looks without a wake-up.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often a caller that waits for a delivery checks whether to go on.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a hop that forwards may be silent; it sends signs of life.
const STALL: Duration = Duration::from_secs(60);

/// The pause before a hop that was away is asked again.
const AGAIN: Duration = Duration::from_millis(250);
