//! What is owed, and who waits for it.

use crate::{
    Depot, Error, Result, Who,
    appending::{Log, Upto},
    called::is_at_or_below,
    depot::Inner,
    disk::Id,
    error::{Patience, is_for_directory, is_held_behind, is_nowhere},
    held::{Held, now},
    moving::ABSENT_MAX,
    promises::{Fact, path_of, server_of},
    words::{deed_words, word_of, words_of},
};
use godwit_core::{
    Fault, Url,
    deeds::{self, Deed, Deeds, Over},
    holding::{Base, Held as Why},
};
use godwit_store::{Error as StoreError, StoreExt, TAKEN, channel::Watch};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// Until when somebody waits, and how long that was when they began.
pub(crate) type Time = (Option<Instant>, Option<Duration>);

/// Generations that are to be delivered, and the numbers of deeds.
type Sealed = (Vec<(Arc<Held>, u64)>, Vec<u64>);

/// Which of what is owed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Everything.
    All,
    /// One name.
    Url(Url),
    /// A name, and all that is in it where it is a directory.
    Below(Url),
    /// What one session wrote.
    Session(String),
}

/// Where something is on its way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Stage {
    /// Somebody writes it.
    Open,
    /// It waits for its turn.
    Queued,
    /// It is being sent.
    Sending,
    /// The target cannot be reached at the moment; it is tried again.
    Waiting {
        /// When.
        again_in: Duration,
    },
    /// Nothing happens until somebody decides.
    Held,
}

/// Something that a target lacks.
#[derive(Clone, Debug)]
pub struct Owed {
    /// Its number, for [`Depot::retry`] and the others.
    pub id: String,
    /// What is to be done at the target: `publish`, `rename`, `unlink`, `mkdir`, `set`, `append`.
    pub what: &'static str,
    /// The new name of a rename.
    pub to: Option<Url>,
    /// Where it belongs.
    pub url: Url,
    /// Where it is on its way.
    pub stage: Stage,
    /// What goes first, if it waits for something.
    pub waits_for: Option<Before>,
    /// Its length.
    pub size: u64,
    /// Bytes that the target lacks.
    pub owed: u64,
    /// How long it has been on its way.
    pub age: Duration,
    /// How often it was tried in vain since something moved.
    pub tries: u32,
    /// Why it is not there yet.
    pub why: String,
    /// It is a conflict: the target has something else by now.
    pub is_conflict: bool,
    /// How it ended the last time that it was tried.
    pub last: Option<Error>,
    /// It survives the end of this machine's power.
    pub is_committed: bool,
    /// Who wrote it.
    pub session: String,
}

/// What goes before something else that is owed.
#[derive(Clone, Debug)]
pub struct Before {
    /// Its number.
    pub id: String,
    /// What is to be done, as of what is owed.
    pub what: &'static str,
    /// Where.
    pub url: Url,
    /// Nothing happens until somebody decides on it.
    pub is_held: bool,
}

impl Before {
    fn words(&self) -> String {
        let url = self.url.without_password();
        let what = self.words_at(&url.to_string());
        match self.is_held {
            true => format!(
                "{what}: once that is decided (godwit retry, release or drop {}) this goes",
                url.pasted()
            ),
            false => what,
        }
    }

    /// The same for whoever calls it so, and asks elsewhere what to do.
    pub(crate) fn words_at(&self, name: &str) -> String {
        let name = match self.what {
            "publish" => name.to_owned(),
            what => format!("the {what} of {name}"),
        };
        match self.is_held {
            true => format!("waits for {name}, which is held"),
            false => format!("{name} goes first"),
        }
    }
}

impl Owed {
    /// Tells whether nothing happens until somebody decides, here or at a node that it goes by.
    pub fn is_held(&self) -> bool {
        let last = self.last.as_ref().and_then(Error::of_store);
        self.stage == Stage::Held || last.is_some_and(is_held_behind)
    }

    /// Returns the error of a caller that waits for it while it is on hold.
    pub fn on_hold(&self) -> Error {
        let deed = deed_words(self.what, self.to.as_ref());
        Error::held(self.url.clone(), self.why.clone(), deed)
    }

    /// Returns its name in a list: a file has its URL.
    pub fn named(&self) -> String {
        let url = self.url.without_password();
        match self.what {
            "publish" | "append" => url.to_string(),
            what => format!("the {what} of {url}"),
        }
    }

    /// Tells whether it goes by itself once the directory where it belongs is there.
    fn waits_for_directory(&self) -> bool {
        let above = self.to.as_ref().unwrap_or(&self.url).parent();
        self.stage == Stage::Held && above.is_some_and(|above| is_for_directory(&self.why, &above))
    }
}

impl Depot {
    /// Returns what is owed, the oldest first.
    pub fn queue(&self) -> Vec<Owed> {
        self.queue_of(&Scope::All)
    }

    /// Returns what is owed of a scope, the oldest first; of a name what is owed there.
    pub fn queue_of(&self, scope: &Scope) -> Vec<Owed> {
        let owing: Vec<_> = match scope {
            Scope::Url(url) => self.inner.all().owing_called(url),
            Scope::Below(url) => self.inner.all().owing_below(url),
            _ => self.inner.all().owing.values().cloned().collect(),
        };
        let mut all: Vec<Owed> = owing.iter().filter_map(|held| self.owed(held)).collect();
        all.extend(self.inner.deeds_owed());
        all.retain(|owed| match scope {
            Scope::All => true,
            Scope::Url(url) => owed.url == *url,
            Scope::Below(url) => {
                let mut names = [Some(&owed.url), owed.to.as_ref()].into_iter().flatten();
                names.any(|name| is_at_or_below(name, url))
            }
            Scope::Session(session) => owed.session == *session,
        });
        let logs = self.inner.logs_of(scope);
        all.extend(logs.iter().map(|(log, _)| owed_lines(log)));
        if *scope == Scope::All {
            all.extend(self.inner.unreadable());
        }
        all
    }

    /// Returns the queue of a scope as users see it: what waits for a directory is pending, not on hold.
    pub fn pending_of(&self, scope: &Scope) -> Vec<Owed> {
        let mut all = self.queue_of(scope);
        for owed in all.iter_mut().filter(|owed| owed.waits_for_directory()) {
            let again = self.inner.all().absent.map(|(at, _)| at - Instant::now());
            let again_in = again.unwrap_or_default();
            owed.stage = Stage::Waiting { again_in };
        }
        all
    }

    /// Returns what a target answered, so that something of a name is held; nothing, if that is a conflict, or nobody
    /// knows.
    pub(crate) fn why_held(&self, url: &Url) -> Option<Arc<StoreError>> {
        let owed = self.queue_of(&Scope::Url(url.clone()));
        let held = || owed.iter().filter(|owed| owed.stage == Stage::Held);
        if held().any(|owed| owed.is_conflict) {
            return None;
        }
        let error = held().find_map(|owed| match &owed.last {
            Some(Error::Store(error)) => Some(error),
            _ => None,
        });
        if let (None, Some(owed)) = (error, held().find(|owed| owed.waits_for_directory())) {
            return Some(Arc::new(StoreError::missing(owed.url.as_path())));
        }
        match error.map(|error| &**error) {
            // It is held further on.
            Some(StoreError::Held { cause, .. }) => cause.clone(),
            _ => error.cloned(),
        }
    }

    fn owed(&self, held: &Held) -> Option<Owed> {
        let server = held.url().host_port();
        let (away, before) = {
            let all = self.inner.all();
            let away = all.away.get(&server);
            let away = away.map(|away| (away.until, away.why.clone()));
            (away, all.before_file(held))
        };
        let state = held.lock();
        if !state.machine.owes() || state.is_gone {
            return None;
        }
        let left = away
            .as_ref()
            .map(|(until, _)| until.saturating_duration_since(Instant::now()));
        let stage = match (state.machine.held(), left) {
            (Some(_), _) => Stage::Held,
            _ if state.is_moving => Stage::Sending,
            _ if before.as_ref().is_some_and(|before| before.is_held) => Stage::Queued,
            (None, Some(again_in)) if state.wants => Stage::Waiting { again_in },
            _ if state.machine.writers().is_some() => Stage::Open,
            _ => Stage::Queued,
        };
        let goes_first = before.as_ref().filter(|_| stage == Stage::Queued);
        let why = match (goes_first, &state.last, &away) {
            _ if state.machine.held().is_some() => state.words.clone(),
            _ if state.waits && state.machine.writers().is_some() => WHOLE_ONLY.into(),
            (Some(before), ..) => before.words(),
            (None, Some(error), _) => error.words(),
            (None, None, Some((_, error))) if stage != Stage::Sending => error.words(),
            _ => String::new(),
        };
        Some(Owed {
            id: held.id.to_string(),
            what: "publish",
            to: None,
            url: held.url(),
            stage,
            waits_for: before,
            size: state.machine.size(),
            owed: state.unsent_bytes(),
            age: Duration::from_secs(now().saturating_sub(held.born)),
            tries: state.tries,
            why,
            is_conflict: matches!(state.machine.held(), Some(Why::Conflict(_))),
            last: state.last.clone(),
            is_committed: !state.is_ahead() || state.committed > 0,
            session: state.session.clone(),
        })
    }

    /// Returns when all that ended before the call survives a power cut here.
    pub fn commit(&self, scope: &Scope) -> Result<()> {
        for held in self.inner.scoped(scope) {
            drop(held.folded());
            match held.commit(&self.inner) {
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
        (self.inner).pass_on((url, who), (until, limit), is_wanted)
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
        let is_passed_on = |held: &Arc<Held>| held.lock().is_passed_on && is_meant(scope, held);
        let mut others = match scope {
            Scope::Url(url) => self.inner.all().called(url),
            Scope::Below(url) => self.inner.all().called_below(url),
            _ => self.inner.every(),
        };
        others.retain(is_passed_on);
        for owed in self.queue_of(scope) {
            if owed.waits_for_directory() {
                let _ = self.inner.retry(&owed.id); // it may be delivered by now
            }
        }
        let wanted = self.arrived(scope, (until, limit), is_wanted)?;
        let wanted = wanted.into_iter().map(|(held, _)| held);
        let mut behind = Behind::default();
        for held in wanted.chain(others) {
            let followed = self.inner.follow(&held, (until, limit), is_wanted);
            match behind.note(&held.name(), followed) {
                // It was removed since.
                Err(_) if held.lock().is_unlinked => {}
                // Something newer went in its place, and has another name since, or none.
                Err(Error::Store(gone)) if is_nowhere(&gone) && was_replaced(&held) => {}
                followed => {
                    followed?;
                    behind.look(&self.inner, (&held.url(), &held.who));
                }
            }
        }
        (self.inner).follow_passed(scope, (until, limit), is_wanted, &mut behind)?;
        behind.told()
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
        match (self.inner).pass_on((url, who), (until, limit), is_wanted) {
            Err(Error::Store(gone)) if is_nowhere(&gone) => return Ok(None),
            passed_on => passed_on?,
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
    ) -> Result<Vec<(Arc<Held>, u64)>> {
        let (wanted, deeds) = self.seal(scope)?;
        // What is held keeps nobody from waiting for the others; it is told at the end.
        let mut is_held = Ok(());
        for (held, generation) in &wanted {
            match self.wait_for(held, *generation, (until, limit), is_wanted) {
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
        for held in &all {
            self.inner.glimpse(held)?;
        }
        let seal = |held: Arc<Held>| {
            let mut state = held.folded();
            let generation = state.machine.generation();
            if state.machine.writers().is_some() {
                // Who keeps it open wants to see it there as it is now.
                state.machine.seal();
            }
            state.wants = true;
            state.later = None;
            drop(state);
            (held, generation)
        };
        let wanted = all.into_iter().map(seal).collect();
        let deeds = self.inner.deeds_of(scope);
        self.inner.all().promises.try_again(&deeds);
        self.inner.retry_servers();
        Ok((wanted, deeds))
    }

    fn wait_for(
        &self,
        held: &Arc<Held>,
        generation: u64,
        (until, limit): Time,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        loop {
            let stuck = self.inner.all().stuck_file(held);
            let mut state = held.lock();
            let is_there = !state.machine.owes() || state.delivered >= generation;
            let is_held = state.machine.held().is_some();
            // What came in its place is waited for on its own.
            if is_there || state.is_gone || (is_held && state.is_superseded) {
                return Ok(());
            }
            if is_held {
                return Err(Error::held(held.url(), state.words.clone(), ""));
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
                let why = state.last.as_ref().map(ToString::to_string);
                let what = match why {
                    Some(why) => format!("{} is not at its target: {why}", held.url()),
                    None => format!("{} is still on its way", held.url()),
                };
                return Err(Error::timed_out(waited, what));
            }
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            let (wants, later, is_moving) = (state.wants, state.later, state.is_moving);
            let (machine, url) = (&state.machine, held.url());
            tracing::debug!(%url, wants, ?later, is_moving, ?machine, "waited for");
            let look = Instant::now() + LOOK_EVERY;
            let look = until.map_or(look, |until| until.min(look));
            held.wait(&mut state, Some(look));
        }
    }

    /// Tries again now what was not delivered; what is held as well, as it is.
    pub fn retry(&self, id: &str) -> Result<()> {
        self.inner.retry(id)
    }

    /// Delivers what is held, in place of whatever is there now.
    pub fn release(&self, id: &str) -> Result<()> {
        if self.inner.logs.release(id) {
            tracing::info!(
                id,
                "what is to be appended goes on, past what cannot be read"
            );
            self.inner.retry_servers();
            return Ok(());
        }
        if self.inner.decide_deed(id, |deeds, number| {
            deeds.release(number, Over::Anything);
            Ok(())
        })? {
            self.inner.retry_servers();
            return Ok(());
        }
        self.inner.decide(id, |held| {
            let mut state = held.lock();
            state.machine.release(Some(Base::Any));
            state.words.clear();
            state.wants = true;
            state.change();
            Ok(())
        })?;
        self.inner.retry_servers();
        Ok(())
    }

    /// Gives up what is owed: its bytes are lost, unless its target has them.
    pub fn discard(&self, id: &str) -> Result<()> {
        if self.inner.logs.discard(id) {
            tracing::info!(id, "what was to be appended is dropped");
            return Ok(());
        }
        if self.inner.forget_unreadable(id)? || self.inner.forget_odd_deed(id)? {
            tracing::info!(id, "what has a name that cannot be read is dropped");
            return Ok(());
        }
        let names = self.inner.all().promises.names_of(id);
        let dropped = self.inner.decide_deed(id, |deeds, number| {
            let url = Url::from_argument(id).ok();
            match deeds.drop(number) {
                Some(_) => Ok(()),
                None => Err(busy(url, "being done at the moment")),
            }
        })?;
        if dropped {
            self.inner.all().names_again();
            names.iter().for_each(|name| self.changed(name));
            self.inner.nudge();
            return Ok(());
        }
        let held = self.inner.by_name(id)?;
        let state = held.lock();
        if state.is_moving || state.machine.writers().is_some() {
            return Err(Error::in_use(
                held.url(),
                "being sent or written at the moment; try again when it waits or its writer has ended",
            ));
        }
        tracing::info!(id, url = %held.url(), "dropped");
        self.inner.unlink(&held, state)?;
        // Some of it may be there already.
        self.changed(&held.url());
        Ok(())
    }

    /// Delivers what is owed to somewhere else, also on another server, in place of whatever is there. What
    /// its old target has of the upload is given up.
    pub fn redirect(&self, id: &str, to: &Url) -> Result<()> {
        let held = self.inner.by_name(id)?;
        drop((self.inner.connect)(to, &held.who)?);
        let mut all = self.inner.all();
        let mut state = held.lock();
        let what = match () {
            () if state.is_moving => {
                Some("being sent; once it is held or waits it can go elsewhere")
            }
            () if state.machine.is_asked() => {
                Some("perhaps there already; that is found out first")
            }
            () if !state.machine.is_whole() || state.machine.is_blind() => {
                let what = format!("delivering {} elsewhere", held.url().without_password());
                let why = "only parts of it are here, which belong into the file there";
                return Err(StoreError::unsupported(what, why).into());
            }
            () if held.is_renamed() && !all.promises.is_passed(&held) => None,
            () if held.is_renamed() => {
                Some("renamed, which is on its way; redirect that, or drop it")
            }
            () => None,
        };
        if let Some(what) = what {
            return Err(busy(Some(held.url()), what));
        }
        let leftover = state.take_leftover(&held.url(), &held.who);
        state.machine.release(Some(Base::Any));
        state.before = None;
        state.words.clear();
        state.wants = true;
        (state.tries, state.patience) = (0, Patience::default());
        state.last = None;
        state.change();
        let was_current = state.is_current;
        drop(state);
        tracing::info!(id, from = %held.url().without_password(), to = %to.without_password(), "redirected");
        all.leftovers.extend(leftover);
        all.remove_current(&held);
        let is_promised = all.promises.has(&held);
        all.settle(&held);
        held.redirect(to.clone());
        match is_promised {
            true => all.owe(&held, || self.inner.next_number()),
            false => drop(all.owing.insert(held.number(), Arc::clone(&held))),
        }
        if was_current {
            all.make_newest(&held);
        }
        drop(all);
        held.tell();
        held.commit(&self.inner)?;
        self.inner.retry_servers();
        Ok(())
    }
}

/// What is held at nodes on the way, or out of sight. It keeps nobody from waiting for the others; it is told at the end.
#[derive(Default)]
pub(crate) struct Behind {
    first: Option<(At, Error)>,
    /// By what they are called here.
    held: BTreeMap<At, Url>,
    /// What waits for one of them.
    waiting: BTreeSet<String>,
    /// Servers that were asked whether all of the way behind them can be seen.
    looked_at: BTreeSet<String>,
    unseen: BTreeSet<String>,
}

/// Who holds something, and what that is called there.
type At = (String, PathBuf);

impl Behind {
    /// Keeps in mind that something is held; all else is passed on.
    pub(crate) fn note(&mut self, name: &Url, followed: Result<()>) -> Result<()> {
        let error = match followed {
            Err(error) if error.of_store().is_some_and(is_held_behind) => error,
            followed => return followed,
        };
        let Some(StoreError::Held { host, path, .. }) = error.of_store() else {
            return Err(error);
        };
        let at = (host.clone(), path.clone());
        // Something else is held that goes before it.
        let is_it = name.as_path().ends_with(path);
        match is_it {
            true => drop(self.held.insert(at.clone(), name.clone())),
            false => {
                self.held.entry(at.clone()).or_insert_with(|| name.clone());
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
        self.held.remove(&at);
        Err(Error::HeldBehind {
            first: Box::new(first),
            others: self.held.into_values().collect(),
            waiting: self.waiting.into_iter().collect(),
        })
    }
}

/// Returns what somebody is to decide on behind the server of a deed.
fn held_behind(fact: &Fact, deed: String) -> Option<Error> {
    let last = fact.last.as_ref()?;
    let url = Box::new(fact.url.clone());
    (last.of_store().is_some_and(is_held_behind)).then_some(Error::held(url, last.words(), deed))
}

fn busy(url: Option<Url>, what: &str) -> Error {
    match url {
        Some(url) => Error::in_use(url, what),
        None => Error::Unknown(what.into()),
    }
}

/// What is on record under a name that nobody can read.
fn unreadable(id: Id, what: &'static str, url: &str, path: &Path, why: &str) -> Option<Owed> {
    let escaped = escaped(url);
    let path = std::path::absolute(path).ok()?;
    Some(Owed {
        id: id.to_string(),
        what,
        to: None,
        url: Url::file(&path).ok()?,
        stage: Stage::Held,
        waits_for: None,
        size: 0,
        owed: 0,
        age: Duration::ZERO,
        tries: 0,
        why: format!(
            "its name on record, \"{escaped}\", {why}; its bytes lie in {}: copy them from there, then drop it",
            path.display()
        ),
        is_conflict: false,
        last: None,
        is_committed: true,
        session: String::new(),
    })
}

/// Returns of a name that is none what may be shown.
pub(crate) fn escaped(name: &str) -> String {
    let shown = name.chars().take(URL_SHOWN);
    shown.flat_map(char::escape_default).collect()
}

/// What is to be appended.
fn owed_lines(log: &Log) -> Owed {
    let (why, tries, is_held, last) = log.trouble();
    let stage = match (is_held, tries) {
        (true, _) => Stage::Held,
        (false, 0) => Stage::Sending,
        _ => Stage::Waiting {
            again_in: Duration::ZERO,
        },
    };
    Owed {
        id: log.id().to_string(),
        what: "append",
        to: None,
        url: log.url().clone(),
        stage,
        waits_for: None,
        size: log.owed(),
        owed: log.owed(),
        age: Duration::ZERO,
        tries,
        why,
        is_conflict: false,
        last,
        is_committed: true,
        session: log.session(),
    }
}

impl Inner {
    /// Returns what has a name that cannot be read. It is told where its bytes lie, and what its name says.
    fn unreadable(&self) -> Vec<Owed> {
        let all = self.all();
        let files = all.unreadable.iter().filter_map(|(id, it)| {
            let path = self.disk.path(*id);
            let mut owed = unreadable(*id, "publish", &it.url, &path, "is no URL")?;
            owed.owed = it.owed;
            owed.size = it.size;
            owed.age = Duration::from_secs(now().saturating_sub(it.born));
            owed.session.clone_from(&it.session);
            Some(owed)
        });
        let mut found: Vec<_> = files.collect();
        drop(all);
        for (id, url, error, path) in self.logs.unreadable() {
            let why = format!("cannot be gone on with ({error})");
            let Some(mut owed) = unreadable(id, "append", &url, &path, &why) else {
                continue;
            };
            owed.size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            owed.owed = owed.size;
            found.push(owed);
        }
        found.extend(self.odd_deeds());
        found
    }

    /// Returns the deeds that are no publications.
    fn deeds_owed(&self) -> Vec<Owed> {
        let all = self.all();
        let owed = all.promises.deeds().map(|(deed, fact, deeds)| {
            let away = all.away.get(&fact.url.host_port());
            let again = away.map(|away| away.until).or(fact.later);
            let again_in = again.map(|at| at.saturating_duration_since(Instant::now()));
            let before = all.before_deed(deed, fact);
            let stage = match (&deed.held, again_in) {
                (Some(_), _) => Stage::Held,
                _ if deeds.is_under_way(deed.number) => Stage::Sending,
                (None, Some(again_in)) if before.is_none() => Stage::Waiting { again_in },
                _ => Stage::Queued,
            };
            let why = match (&deed.held, &before, &fact.last) {
                (Some(why), ..) => words_of(why),
                (None, Some(before), _) => before.words(),
                (None, None, Some(error)) => error.words(),
                (None, None, None) => away.map_or_else(String::new, |away| away.why.words()),
            };
            Owed {
                id: deed_id(deed.number),
                what: word_of(&deed.what),
                to: fact.to.clone(),
                url: fact.url.clone(),
                stage,
                waits_for: before,
                size: 0,
                owed: 0,
                age: Duration::from_secs(now().saturating_sub(fact.born)),
                tries: fact.tries,
                why,
                is_conflict: deed.held == Some(deeds::Held::Conflict),
                last: fact.last.clone(),
                is_committed: true,
                session: fact.session.clone(),
            }
        });
        owed.collect()
    }

    /// Returns the numbers of the deeds of a scope.
    fn deeds_of(&self, scope: &Scope) -> Vec<u64> {
        let all = self.all();
        let is_meant = |deed: &Deed, fact: &Fact| match scope {
            Scope::All => true,
            Scope::Session(session) => fact.session == *session,
            Scope::Url(url) | Scope::Below(url) => {
                server_of(url) == server_of(&fact.url) && deed.concerns(&path_of(url))
            }
        };
        let meant = all.promises.deeds().filter(|(d, f, _)| is_meant(d, f));
        meant.map(|(deed, ..)| deed.number).collect()
    }

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
                let held = deed.held.as_ref();
                let words = || deed_words(word_of(&deed.what), fact.to.as_ref());
                let held = held.map(|why| Error::held(fact.url.clone(), words_of(why), words()));
                let stuck = held.or_else(|| all.stuck_deed(deed, fact));
                match stuck.or_else(|| held_behind(fact, words())) {
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

    /// Tries all servers again now.
    fn retry_servers(&self) {
        self.all().away.clear();
        self.nudge();
    }

    fn retry(&self, id: &str) -> Result<()> {
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
        self.decide(id, |held| {
            let mut state = held.lock();
            if state.machine.held().is_some() {
                state.machine.release(None);
                state.words.clear();
            }
            state.wants = true;
            state.later = None;
            (state.tries, state.patience) = (0, Patience::default());
            state.change();
            Ok(())
        })?;
        self.retry_servers();
        Ok(())
    }

    fn decide(&self, id: &str, decide: impl FnOnce(&Held) -> Result<()>) -> Result<()> {
        let held = self.by_name(id)?;
        decide(&held)?;
        tracing::info!(id, url = %held.url(), "decided");
        held.tell();
        held.commit(self)
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
            (self.all().absent).get_or_insert((Instant::now() + pause, pause));
        }
    }

    /// Returns what is held since a directory is not there: that directory, for whom, and its id.
    fn without_directory(&self) -> Vec<(Url, Who, String)> {
        let above = |url: &Url, words: &str| {
            let above = url.parent();
            above.filter(|above| is_for_directory(words, above))
        };
        let all = self.all();
        let files = all.owing.values().filter_map(|held| {
            let state = held.lock();
            state.machine.held()?;
            let above = above(&held.url(), &state.words)?;
            Some((above, held.who.clone(), held.id.to_string()))
        });
        let deeds = all.promises.deeds().filter_map(|(deed, fact, _)| {
            let new = fact.to.as_ref().unwrap_or(&fact.url);
            let above = above(new, &words_of(deed.held.as_ref()?))?;
            Some((above, fact.who.clone(), deed_id(deed.number)))
        });
        files.chain(deeds).collect()
    }

    /// Does with a deed that is no publication what somebody decided; `false`: none is called so.
    fn decide_deed(
        &self,
        id: &str,
        decide: impl FnOnce(&mut Deeds, u64) -> Result<()>,
    ) -> Result<bool> {
        let mut all = self.all();
        let Some((number, url)) = all.promises.named(id) else {
            return Ok(false);
        };
        if let Some((deeds, fact)) = all.promises.deed(number) {
            fact.tries = 0;
            fact.later = None;
            fact.last = None;
            decide(deeds, number)?;
        }
        tracing::info!(id, %url, "decided");
        let written = self.note(&mut all, &url);
        drop(all);
        written.wait()?;
        Ok(true)
    }

    /// Returns what is to be appended of a scope, and up to where it is meant.
    fn logs_of(&self, scope: &Scope) -> Vec<(Arc<Log>, Upto)> {
        let upto = |log: &Log| match scope {
            Scope::Url(url) if log.url() != url => None,
            Scope::Below(url) if !is_at_or_below(log.url(), url) => None,
            Scope::Session(session) => log.upto_of(session),
            _ => Some(log.upto()),
        };
        let owing = self.logs.owing().into_iter();
        owing
            .filter_map(|log| upto(&log).map(|upto| (log, upto)))
            .collect()
    }

    /// Waits until what has come to its target is at its end.
    fn follow(&self, held: &Held, time: Time, is_wanted: &dyn Fn() -> bool) -> Result<()> {
        let generation = held.lock().delivered;
        let passed_on = match self.pass_on((&held.name(), &held.who), time, is_wanted) {
            // A hop took it, and somebody removed it there since, or the hop lost it. That is told once.
            Err(Error::Store(gone)) if is_nowhere(&gone) && held.lock().is_passed_on => {
                let mut state = held.lock();
                state.is_passed_on &= state.delivered != generation;
                return match state.is_gone || held.may_be_elsewhere(&state) {
                    true => Ok(()),
                    false => Err(Error::gone_behind(&held.url())),
                };
            }
            passed_on => passed_on,
        };
        if passed_on.is_ok() {
            let mut state = held.lock();
            state.is_passed_on &= state.delivered != generation;
        }
        passed_on
    }

    /// Has whoever has it by now pass it on, where they are not its end. That they cannot be asked at the moment is
    /// no reason to give up before the time is over, or nobody wants it any more.
    pub(crate) fn pass_on(
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
    fn scoped(&self, scope: &Scope) -> Vec<Arc<Held>> {
        let owing: Vec<_> = match scope {
            Scope::Url(url) => self.all().owing_called(url),
            Scope::Below(url) => self.all().owing_below(url),
            _ => self.all().owing.values().cloned().collect(),
        };
        // What is not ended is nothing yet.
        let is_wanted = |held: &Arc<Held>| !held.lock().is_private && is_meant(scope, held);
        owing.into_iter().filter(is_wanted).collect()
    }

    /// Returns what is meant by a number, or by a URL of which one thing is held.
    pub(crate) fn by_name(&self, name: &str) -> Result<Arc<Held>> {
        let all = self.all();
        let by_id = name.parse().ok().and_then(|id| all.by_id.get(&id).cloned());
        let found = by_id.or_else(|| {
            let url = Url::from_argument(name).ok()?;
            all.owing_called(&url).into_iter().next()
        });
        let is_unreadable = name
            .parse()
            .is_ok_and(|id| all.unreadable.contains_key(&id));
        let is_odd = all.odd_deeds.iter().any(|odd| deed_id(odd.number) == name);
        found.ok_or_else(|| match is_unreadable || is_odd {
            true => Error::Unknown(format!(
                "{name}: it has a name that cannot be read; drop it"
            )),
            false => Error::Unknown(name.into()),
        })
    }
}

fn is_meant(scope: &Scope, held: &Held) -> bool {
    match scope {
        Scope::All => true,
        Scope::Url(url) => held.name() == *url || held.url() == *url,
        Scope::Below(url) => [held.name(), held.url()]
            .iter()
            .any(|name| is_at_or_below(name, url)),
        Scope::Session(session) => held.lock().session == *session,
    }
}

/// Tells whether something else was put under its name since, and it is not one of which only a part was ever here.
fn was_replaced(held: &Held) -> bool {
    let state = held.lock();
    state.is_gone || !(state.is_current || state.machine.is_blind())
}

/// Returns by what a deed is named.
pub(crate) fn deed_id(number: u64) -> String {
    format!("deed-{number:x}")
}

/// So much is shown of a name that is none.
const URL_SHOWN: usize = 200;

/// How often whoever waits for deeds looks without having been told.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

const WHOLE_ONLY: &str =
    "its server takes whole files only: it is sent when whoever writes it has ended";

/// So often whoever waits for a delivery looks whether anybody still wants it.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a hop may be silent that is to pass something on; it says that it is at it.
const STALL: Duration = Duration::from_secs(60);

/// How soon a hop is asked again that could not be.
const AGAIN: Duration = Duration::from_millis(250);
