//! Waiting until targets have what is pending.

use crate::{
    Depot, Error, Result, Scope, Who,
    api::queue::is_meant,
    disk::rows::Fact,
    error::{is_nowhere, is_on_hold_downstream},
    inner::Inner,
    plan::entry::Entry,
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

/// Until when somebody waits, and how long that was when they began.
pub(crate) type Time = (Option<Instant>, Option<Duration>);

/// Generations that are to be delivered, and the numbers of deeds.
type Sealed = (Vec<(Arc<Entry>, u64)>, Vec<u64>);

impl Depot {
    /// Returns when all that ended before the call survives a power cut here.
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

    /// Returns when a name, also one that is not owed here any more, is at its target, however many
    /// depots are between, as long as its caller wants that.
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

    /// Returns when all that was owed at the call is at its target, durably; what is written later is
    /// not waited for.
    pub fn push(&self, scope: &Scope, limit: Option<Duration>) -> Result<()> {
        self.push_while(scope, limit, &|| true).map(drop)
    }

    /// The same as long as somebody wants it, which is asked now and then. Returns the servers that have it and pass it
    /// on out of sight.
    pub fn push_while(
        &self,
        scope: &Scope,
        limit: Option<Duration>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<String>> {
        let until = limit.map(|limit| Instant::now() + limit);
        // What is not owed here any more may be on its way still.
        let is_forwarded =
            |entry: &Arc<Entry>| entry.lock().meta.is_forwarded && is_meant(scope, entry);
        let mut others = match scope {
            Scope::Url(url) => self.inner.all().called(url),
            Scope::Below(url) => self.inner.all().called_below(url),
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
                // Something newer went in its place, and has another name since, or none.
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

    /// Has whoever is asked for a name pass on what others than this depot gave it: returns when that is at its end, or
    /// at once where they pass nothing on or cannot be asked. Returns who passes it on out of sight.
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

    /// Returns when all that was owed at the call is where it goes next: that may be a hop.
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
        // What is held keeps nobody from waiting for the others; it is told at the end.
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

    /// Has all that is owed be sent as it is now; returns that, and which deeds are owed.
    fn seal(&self, scope: &Scope) -> Result<Sealed> {
        let all = self.inner.scoped(scope);
        for entry in &all {
            self.inner.glimpse(entry)?;
        }
        let seal = |entry: Arc<Entry>| {
            let mut state = entry.lock_merged();
            let generation = state.machine.generation();
            if state.machine.writers().is_some() {
                // Who keeps it open wants to see it there as it is now.
                state.machine.seal();
            }
            state.delivery.is_due = true;
            state.delivery.retry.not_before = None;
            drop(state);
            (entry, generation)
        };
        let wanted = all.into_iter().map(seal).collect();
        let deeds = self.inner.deeds_of(scope);
        self.inner.all().promises.try_again(&deeds);
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
            let stuck = self.inner.all().stuck_file(entry);
            let mut state = entry.lock();
            let is_there = !state.machine.owes() || state.delivery.delivered >= generation;
            let is_held = state.machine.held().is_some();
            // What came in its place is waited for on its own.
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

/// What is held at nodes on the way, or out of sight. It keeps nobody from waiting for the others; it is told at the end.
#[derive(Default)]
pub(crate) struct Downstream {
    first: Option<(At, Error)>,
    /// Their local names.
    on_hold: BTreeMap<At, Url>,
    /// What waits for one of them.
    waiting: BTreeSet<String>,
    /// Servers that were asked whether all of the way behind them can be seen.
    looked_at: BTreeSet<String>,
    unseen: BTreeSet<String>,
}

/// Who holds something, and what that is called there.
type At = (String, PathBuf);

impl Downstream {
    /// Keeps in mind that something is held; all else is passed on.
    pub(crate) fn note(&mut self, name: &Url, followed: Result<()>) -> Result<()> {
        let error = match followed {
            Err(error) if error.of_store().is_some_and(is_on_hold_downstream) => error,
            followed => return followed,
        };
        let Some(StoreError::Held { host, path, .. }) = error.of_store() else {
            return Err(error);
        };
        let at = (host.clone(), path.clone());
        // Something else is held that goes before it.
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

    /// Asks once for each server whether somebody on the way there, of what was passed on, cannot be seen behind.
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

/// Returns what somebody is to decide on behind the server of a deed.
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
    /// Waits until they are done at their targets.
    fn wait_for_deeds(
        &self,
        numbers: &[u64],
        (until, limit): Time,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut all = self.all();
        loop {
            let (mut left, mut is_held) = (None, Ok(()));
            for (deed, fact, _) in all.promises.deeds() {
                if !numbers.contains(&deed.number) {
                    continue;
                }
                let on_hold = deed.held.as_ref();
                let reason = || deed_words(word_of(&deed.what), fact.to.as_ref());
                let on_hold =
                    on_hold.map(|why| Error::held(fact.url.clone(), reason_of(why), reason()));
                let stuck = on_hold.or_else(|| all.stuck_deed(deed, fact));
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
            self.due.wait_for(&mut all, pause);
        }
    }

    /// Waits until what has come to its target is at its end.
    fn follow(&self, entry: &Entry, time: Time, is_wanted: &dyn Fn() -> bool) -> Result<()> {
        let generation = entry.lock().delivery.delivered;
        let forwarded = match self.forward((&entry.name(), &entry.who), time, is_wanted) {
            // A hop took it, and somebody removed it there since, or the hop lost it. That is told once.
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

    /// Has whoever has it by now pass it on, where they are not its end. That they cannot be asked at the moment is
    /// no reason to give up before the time is over, or nobody wants it any more.
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

    /// Returns who has something and does not tell whether it has passed it on.
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

    /// Returns what is owed of a scope.
    fn scoped(&self, scope: &Scope) -> Vec<Arc<Entry>> {
        let pending: Vec<_> = match scope {
            Scope::Url(url) => self.all().pending_called(url),
            Scope::Below(url) => self.all().pending_below(url),
            _ => self.all().pending.values().cloned().collect(),
        };
        // What is not ended is nothing yet.
        let is_wanted = |entry: &Arc<Entry>| !entry.lock().is_private() && is_meant(scope, entry);
        pending.into_iter().filter(is_wanted).collect()
    }
}

/// Tells whether something else was put under its name since, and it is not one of which only a part was ever here.
fn was_replaced(entry: &Entry) -> bool {
    let state = entry.lock();
    state.is_gone || !(state.is_current() || state.machine.is_blind())
}

/// How often whoever waits for deeds looks without having been told.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// So often whoever waits for a delivery looks whether anybody still wants it.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a hop may be silent that is to pass something on; it says that it is at it.
const STALL: Duration = Duration::from_secs(60);

/// How soon a hop is asked again that could not be.
const AGAIN: Duration = Duration::from_millis(250);
