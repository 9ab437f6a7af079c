//! What is owed, and who waits for it.

use crate::{
    Depot, Error, Result, Who,
    appending::Log,
    depot::Inner,
    held::{Held, now},
};
use godwit_core::{
    Url,
    holding::{Base, Held as Why},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Which of what is owed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Everything.
    All,
    /// One name.
    Url(Url),
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
    /// Where it belongs.
    pub url: Url,
    /// Where it is on its way.
    pub stage: Stage,
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
    /// It survives the end of this machine's power.
    pub is_committed: bool,
    /// Who wrote it.
    pub session: String,
}

impl Depot {
    /// Returns what is owed, the oldest first.
    pub fn queue(&self) -> Vec<Owed> {
        let owing: Vec<_> = self.inner.all().owing.values().cloned().collect();
        let mut all: Vec<Owed> = owing.iter().filter_map(|held| self.owed(held)).collect();
        all.extend(self.inner.logs.owing().iter().map(|log| owed_lines(log)));
        all
    }

    fn owed(&self, held: &Held) -> Option<Owed> {
        let server = held.url.host_port();
        let away = {
            let all = self.inner.all();
            let away = all.away.get(&server);
            away.map(|away| (away.until, away.why.clone()))
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
            (None, Some(again_in)) if state.wants => Stage::Waiting { again_in },
            _ if state.machine.writers().is_some() => Stage::Open,
            _ => Stage::Queued,
        };
        let why = match (&state.last, &away) {
            _ if state.machine.held().is_some() => state.words.clone(),
            _ if state.waits && state.machine.writers().is_some() => WHOLE_ONLY.into(),
            (Some(error), _) => error.to_string(),
            (None, Some((_, error))) if stage != Stage::Sending => error.to_string(),
            _ => String::new(),
        };
        Some(Owed {
            id: held.id.to_string(),
            url: held.url.clone(),
            stage,
            size: state.machine.size(),
            owed: state.machine.owed_bytes(),
            age: Duration::from_secs(now().saturating_sub(held.born)),
            tries: state.tries,
            why,
            is_conflict: matches!(state.machine.held(), Some(Why::Conflict(_))),
            is_committed: !state.is_ahead() || state.committed > 0,
            session: state.session.clone(),
        })
    }

    /// Returns when all that ended before the call survives a power cut here.
    pub fn commit(&self, scope: &Scope) -> Result<()> {
        for held in self.inner.scoped(scope) {
            match held.commit(&self.inner) {
                Err(Error::Unknown(_)) => {} // delivered and forgotten meanwhile
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Returns when a name, also one that is not owed here any more, is at its target, however many
    /// depots are between.
    pub fn push_through(&self, url: &Url, who: &Who, limit: Option<Duration>) -> Result<()> {
        self.push(&Scope::Url(url.clone()), limit)?;
        self.inner.pass_on(url, who)
    }

    /// Returns when all that was owed at the call is at its target, durably; what is written later is
    /// not waited for.
    pub fn push(&self, scope: &Scope, limit: Option<Duration>) -> Result<()> {
        self.push_while(scope, limit, &|| true)
    }

    /// The same as long as somebody wants it, which is asked now and then.
    pub fn push_while(
        &self,
        scope: &Scope,
        limit: Option<Duration>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let until = limit.map(|limit| Instant::now() + limit);
        let all = self.inner.scoped(scope);
        for held in &all {
            self.inner.glimpse(held)?;
        }
        let wanted: Vec<_> = all
            .into_iter()
            .map(|held| {
                let mut state = held.lock();
                let generation = state.machine.generation();
                if state.machine.writers().is_some() {
                    // Who keeps it open wants to see it there as it is now.
                    state.machine.seal();
                }
                state.wants = true;
                drop(state);
                (held, generation)
            })
            .collect();
        self.retry_servers();
        for (held, generation) in wanted {
            self.wait_for(&held, generation, (until, limit), is_wanted)?;
            self.inner.pass_on(&held.url, &held.who)?;
        }
        Ok(())
    }

    fn wait_for(
        &self,
        held: &Arc<Held>,
        generation: u64,
        (until, limit): (Option<Instant>, Option<Duration>),
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut state = held.lock();
        loop {
            let is_there = !state.machine.owes() || state.delivered >= generation;
            if is_there || state.is_gone {
                return Ok(());
            }
            if state.machine.held().is_some() {
                return Err(Error::Held {
                    url: Box::new(held.url.clone()),
                    why: state.words.clone(),
                });
            }
            if self.inner.is_ending() {
                return Err(Error::Ending);
            }
            if let (Some(until), Some(waited)) = (until, limit)
                && Instant::now() >= until
            {
                let why = state.last.as_ref().map(ToString::to_string);
                let what = match why {
                    Some(why) => format!("{} is not at its target: {why}", held.url),
                    None => format!("{} is still on its way", held.url),
                };
                return Err(Error::TimedOut { waited, what });
            }
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            let look = Instant::now() + LOOK_EVERY;
            let look = until.map_or(look, |until| until.min(look));
            state = held.wait(state, Some(look));
        }
    }

    /// Tries all servers again now.
    fn retry_servers(&self) {
        self.inner.all().away.clear();
        self.inner.nudge();
    }

    /// Tries again now what was not delivered; what is held as well, as it is.
    pub fn retry(&self, id: &str) -> Result<()> {
        self.decide(id, |held| {
            let mut state = held.lock();
            if state.machine.held().is_some() {
                state.machine.release(None);
                state.words.clear();
            }
            state.wants = true;
            state.tries = 0;
            state.change();
            Ok(())
        })?;
        self.retry_servers();
        Ok(())
    }

    /// Delivers what is held, in place of whatever is there now.
    pub fn release(&self, id: &str) -> Result<()> {
        self.decide(id, |held| {
            let mut state = held.lock();
            state.machine.release(Some(Base::Any));
            state.words.clear();
            state.wants = true;
            state.change();
            Ok(())
        })?;
        self.retry_servers();
        Ok(())
    }

    /// Gives up what is owed: its bytes are lost, unless its target has them.
    pub fn discard(&self, id: &str) -> Result<()> {
        let held = self.inner.by_name(id)?;
        let mut state = held.lock();
        if state.is_moving || state.machine.writers().is_some() {
            return Err(Error::Busy {
                url: Box::new(held.url.clone()),
                what: "being sent or written; hold it first, or end its writer".into(),
            });
        }
        state.is_abandoned = true;
        self.inner.unlink(&held, state)
    }

    fn decide(&self, id: &str, decide: impl FnOnce(&Held) -> Result<()>) -> Result<()> {
        let held = self.inner.by_name(id)?;
        decide(&held)?;
        held.tell();
        held.commit(&self.inner)
    }
}

/// What is to be appended.
fn owed_lines(log: &Log) -> Owed {
    let (why, tries, is_held) = log.trouble();
    let stage = match (is_held, tries) {
        (true, _) => Stage::Held,
        (false, 0) => Stage::Sending,
        _ => Stage::Waiting {
            again_in: Duration::ZERO,
        },
    };
    Owed {
        id: log.id().to_string(),
        url: log.url().clone(),
        stage,
        size: log.owed(),
        owed: log.owed(),
        age: Duration::ZERO,
        tries,
        why,
        is_conflict: false,
        is_committed: true,
        session: String::new(),
    }
}

impl Inner {
    /// Has whoever has it by now pass it on, where they are not its end.
    fn pass_on(&self, url: &Url, who: &Who) -> Result<()> {
        let place = (self.connect)(url, who)?;
        Ok(place.store.push(&place.path)?)
    }

    /// Returns what is owed of a scope.
    fn scoped(&self, scope: &Scope) -> Vec<Arc<Held>> {
        let owing: Vec<_> = self.all().owing.values().cloned().collect();
        // What is not ended is nothing yet.
        let is_meant = |held: &Arc<Held>| {
            !held.lock().is_private
                && match scope {
                    Scope::All => true,
                    Scope::Url(url) => held.url == *url,
                    Scope::Session(session) => held.lock().session == *session,
                }
        };
        owing.into_iter().filter(is_meant).collect()
    }

    /// Returns what is meant by a number, or by a URL of which one thing is held.
    pub(crate) fn by_name(&self, name: &str) -> Result<Arc<Held>> {
        let all = self.all();
        let by_id = name.parse().ok().and_then(|id| all.by_id.get(&id).cloned());
        let found = by_id.or_else(|| {
            let url = Url::from_argument(name).ok()?;
            let mut of_name = all.owing.values().filter(|held| held.url == url);
            of_name.next().cloned()
        });
        found.ok_or_else(|| Error::Unknown(name.into()))
    }
}

const WHOLE_ONLY: &str =
    "its server takes whole files only: it is sent when whoever writes it has ended";

/// So often whoever waits for a delivery looks whether anybody still wants it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
