//! Applies operations on names at the target, in their turn.

use crate::{
    Error, Result, Who,
    error::{Patience, is_missing, is_on_hold_downstream, is_trouble, may_pass, wants_directory},
    inner::Inner,
    plan::{
        backoff::{pause_after, server_away},
        order::LENGTH,
    },
    work::probe::{PATIENCE, by_one_that_is_well, digest_there, is_of_digest, not_well},
};
use godwit_core::{
    Url, Version,
    deeds::{Do, Held as Why, Outcome, Sight, Step, Thing, Values, What},
    holding::Base,
};
use godwit_store::{EntryKind, Error as StoreError, Set, StoreExt, channel::Watch, engine::Place};
use godwit_sys::crash;
use std::{
    path::Path,
    time::{Duration, Instant},
};

impl Inner {
    /// Does a deed at its target, or looks whether it was done.
    pub(crate) fn attend(&self, asked: &Do) {
        let Some((url, to, (who, session))) = self.noted_as_asked(asked) else {
            return;
        };
        let outcome = self
            .connected(&url, to.as_ref(), &who)
            .and_then(|(at, to)| {
                crash::point("deed-asked");
                match asked.step {
                    Step::Look => look(asked, &at, to.as_ref()).map(Answer::Saw),
                    Step::Try => attempt(asked, &at, to.as_ref()).map(Answer::Ended),
                }
            });
        crash::point("deed-answered");
        let mut plan = self.plan();
        let (mut away, mut is_made, mut is_held) = (None, false, false);
        if let Some((deeds, fact)) = plan.order.deed(asked.number) {
            if outcome.is_ok() {
                (fact.last, fact.patience) = (None, Patience::default());
            }
            match outcome {
                Ok(Answer::Ended(outcome)) => deeds.ended(asked.number, asked.attempt, outcome),
                Ok(Answer::Saw(sight)) => deeds.saw(asked.number, asked.attempt, &sight),
                Err(error) => {
                    tracing::info!(%url, %error, "not done");
                    deeds.broke(asked.number, asked.attempt);
                    fact.tries += 1;
                    fact.last = Some(error.clone());
                    let may_pass = fact.patience.may_pass(&error, self.rules.trouble_max);
                    if error.of_store().is_some_and(is_on_hold_downstream) || may_pass {
                        fact.later = Some(Instant::now() + pause_after(fact.tries));
                    } else if error.of_store().is_some_and(is_trouble) {
                        // The target is looked at after a decision of the user.
                        deeds.hold(asked.number, error.to_string());
                    } else {
                        away = Some(error);
                    }
                }
            }
            if let Some(why) = deeds.find(asked.number).and_then(|deed| deed.held.clone()) {
                tracing::warn!(%url, ?why, what = ?asked.what, "held");
                is_held = true;
            }
            let is_done = deeds.find(asked.number).is_none();
            is_made = is_done && asked.what == What::Mkdir;
            if is_done {
                plan.listings.done(
                    &asked.what,
                    (&who.audience, Instant::now()),
                    &url,
                    to.as_ref(),
                );
                who.audit(asked.what.as_str(), &url, &session);
            }
        }
        if is_held {
            plan.look_for_directories_soon(Instant::now());
        }
        let written = self.note(&mut plan, &url);
        match away {
            Some(error) => server_away(
                &mut plan,
                &url.host_port(),
                error,
                &self.rules,
                Instant::now(),
            ),
            None => drop(plan.backoff.servers.remove(&url.host_port())),
        }
        drop(plan);
        if let Err(error) = written.wait() {
            tracing::warn!(%error, %url, "that it was done cannot be recorded");
        }
        if is_made {
            self.made(&url);
        }
        self.nudge();
    }

    /// Nothing is asked before a record says so.
    fn noted_as_asked(&self, asked: &Do) -> Option<(Url, Option<Url>, (Who, String))> {
        let mut plan = self.plan();
        let (_, fact) = plan.order.deed(asked.number)?;
        let (url, to) = (fact.url.clone(), fact.to.clone());
        let who = (fact.who.clone(), fact.session.clone());
        crash::point("deed-taken");
        let written = self.note(&mut plan, &url);
        drop(plan);
        match written.wait() {
            Ok(()) => Some((url, to, who)),
            Err(error) => {
                let mut plan = self.plan();
                if let Some((deeds, _)) = plan.order.deed(asked.number) {
                    deeds.broke(asked.number, asked.attempt);
                }
                server_away(
                    &mut plan,
                    &url.host_port(),
                    error,
                    &self.rules,
                    Instant::now(),
                );
                None
            }
        }
    }

    /// Returns of what a server says is not there how far above it the nearest is that it knows.
    pub(crate) fn above_missing(&self, error: &Error, url: &Url, who: &Who) -> Option<usize> {
        error.of_store().filter(|said| is_missing(said))?;
        nearest_above(&(self.connect)(url, who).ok()?)
    }

    fn connected(&self, url: &Url, to: Option<&Url>, who: &Who) -> Result<(Place, Option<Place>)> {
        let at = (self.connect)(url, who)?;
        let to = to.map(|to| (self.connect)(to, who)).transpose()?;
        Ok((at, to))
    }
}

enum Answer {
    Ended(Outcome),
    Saw(Sight),
}

/// Tries a deed. A directory is tried again at once if the one above it was made meanwhile.
fn attempt(asked: &Do, at: &Place, to: Option<&Place>) -> Result<Outcome> {
    match attempt_once(asked, at, to)? {
        Outcome::Refused(Why::Missing) if asked.what == What::Mkdir => attempt_once(asked, at, to),
        outcome => Ok(outcome),
    }
}

/// Tries a deed once. Faults that pass are errors: the deed may be done or not.
fn attempt_once(asked: &Do, at: &Place, to: Option<&Place>) -> Result<Outcome> {
    if !is_still(&asked.condition, at)? {
        return Ok(Outcome::Refused(Why::Conflict));
    }
    let done = by_one_that_is_well(at, || match (&asked.what, to) {
        (What::Rename { .. }, Some(to)) => at.store.rename(&at.path, &to.path),
        (What::Unlink, _) => remove(at),
        (What::Mkdir, _) => at.store.mkdir(&at.path),
        (What::Set(values), _) => at.store.set(&at.path, &set(values)),
        _ => Ok(()),
    })?;
    let done = match done {
        // It is gone as wanted, but perhaps not durably.
        Err(StoreError::Missing { .. }) if asked.what == What::Unlink => Ok(()),
        // Some servers say "denied" of a directory that exists.
        Err(_) if asked.what == What::Mkdir && thing(at)? == Thing::Directory => Ok(()),
        done => done,
    };
    let done = done.and_then(|()| match (&asked.what, to) {
        (What::Unlink, _) => settle_above(at),
        (_, Some(to)) => by_one_that_is_well(to, || settle(to, &to.path))?,
        _ => by_one_that_is_well(at, || settle(at, &at.path))?,
    });
    Ok(match done {
        Ok(()) => Outcome::Done,
        Err(error) if may_pass(&error) || is_for_later(&error) => return Err(error.into()),
        Err(StoreError::Missing { .. }) => {
            let new = match (&asked.what, to) {
                (What::Mkdir, _) => Some(at),
                (What::Rename { .. }, Some(to)) if thing(at)? != Thing::Nothing => Some(to),
                _ => None,
            };
            let is_lost = |new: &&Place| nearest_above(new).is_some_and(|levels| levels > 1);
            let above = new.filter(is_lost).and_then(|new| new.url.parent());
            Outcome::Refused(
                above.map_or(Why::Missing, |above| Why::Refused(wants_directory(&above))),
            )
        }
        Err(StoreError::Exists { .. } | StoreError::Changed { .. }) => {
            Outcome::Refused(Why::Conflict)
        }
        Err(error) => Outcome::Refused(Why::Refused(error.to_string())),
    })
}

/// Looks whether it was done. What is seen is no promise any more: it survives a power cut there.
fn look(asked: &Do, at: &Place, to: Option<&Place>) -> Result<Sight> {
    let sight = sight(&asked.condition, at, to)?;
    match to.filter(|_| sight.to != Thing::Nothing) {
        Some(to) => settle(to, &to.path)?,
        None if sight.at != Thing::Nothing => settle(at, &at.path)?,
        None => settle_above(at)?,
    }
    Ok(sight)
}

/// Has what was done survive a power cut where it was done. That may be behind hops, which do it there at once and
/// keep no record of it.
fn settle(place: &Place, path: &Path) -> godwit_store::Result<()> {
    let watch = Watch::new(PATIENCE).map_err(|cause| StoreError::io(path, cause))?;
    let watch = watch.within(Some(PATIENCE));
    place.store.push(path, Some(&watch))
}

/// Where there is nothing, what it was in is safe, or the first above that is there.
fn settle_above(place: &Place) -> godwit_store::Result<()> {
    for above in place.path.ancestors().skip(1) {
        match settle(place, above) {
            Err(StoreError::Missing { .. }) => {}
            settled => return settled,
        }
    }
    Err(not_well(&place.url))
}

/// Returns how far above a name the nearest directory is that its server knows; 1: the parent. A server that is about to
/// end, or has lost its disk, knows nothing: then "not there" is no answer.
pub(crate) fn nearest_above(at: &Place) -> Option<usize> {
    for (levels, above) in at.path.ancestors().enumerate().skip(1) {
        match at.store.stat(above) {
            Ok(_) | Err(StoreError::Denied { .. }) => return Some(levels),
            Err(StoreError::Missing { .. }) => {}
            Err(_) => return None,
        }
    }
    None
}

fn remove(at: &Place) -> godwit_store::Result<()> {
    match at.store.remove(&at.path, godwit_store::RemovalKind::File) {
        Err(StoreError::IsDirectory { .. }) => at
            .store
            .remove(&at.path, godwit_store::RemovalKind::Directory),
        removed => removed,
    }
}

/// Tells whether the outcome is unknown yet: the server has trouble, or the file is on hold at a node behind it.
fn is_for_later(error: &StoreError) -> bool {
    is_trouble(error) || is_on_hold_downstream(error)
}

/// Tells whether there is what the condition wants.
fn is_still(condition: &Base, at: &Place) -> Result<bool> {
    if *condition == Base::Any {
        return Ok(true);
    }
    Ok(match (condition, thing(at)?) {
        (Base::Absent, found) => found == Thing::Nothing,
        (Base::Seen(Version::Strong(digest)), Thing::File(_)) => is_of_digest(at, digest)?,
        (Base::Seen(wanted), Thing::File(now)) => wanted.compare(&now).looks_same(),
        _ => true,
    })
}

fn sight(condition: &Base, at: &Place, to: Option<&Place>) -> Result<Sight> {
    let seen = |place: &Place| known_by(condition, place);
    Ok(Sight {
        at: seen(at)?,
        to: to.map_or(Ok(Thing::Nothing), seen)?,
    })
}

/// Returns the entry at a name, with a digest if the condition has one.
fn known_by(condition: &Base, at: &Place) -> Result<Thing> {
    let found = thing(at)?;
    let (Thing::File(_), Base::Seen(Version::Strong(digest))) = (&found, condition) else {
        return Ok(found);
    };
    let told = digest_there(at, digest.algorithm())?;
    Ok(told.map_or(found, |now| Thing::File(Version::Strong(now))))
}

fn thing(at: &Place) -> Result<Thing> {
    match by_one_that_is_well(at, || at.store.stat(&at.path))? {
        Ok(stat) if stat.kind == EntryKind::Directory => Ok(Thing::Directory),
        Ok(stat) => Ok(Thing::File(stat.version(crate::clock::since_epoch()))),
        Err(StoreError::Missing { .. }) => Ok(Thing::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Returns the attributes as a store sets them.
pub(crate) fn set(values: &Values) -> Set {
    let number = |key: &str| -> Option<u64> {
        let value = values.get(key)?;
        std::str::from_utf8(value).ok()?.parse().ok()
    };
    Set {
        length: number(LENGTH),
        mode: number(MODE).and_then(|mode| u32::try_from(mode).ok()),
        mtime: number(MTIME).map(Duration::from_nanos),
        ..Set::default()
    }
}

pub(crate) const MODE: &str = "mode";
pub(crate) const MTIME: &str = "mtime";
