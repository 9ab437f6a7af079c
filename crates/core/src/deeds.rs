//! Deeds: operations promised to a target, in order. A deed publishes a file, renames, removes,
//! makes a directory or sets attributes.
//!
//! Deeds whose names overlap are done in the order of their promises. Other deeds do not wait for
//! each other, so a stuck deed blocks only its own names. Deeds that were never sent are merged: a
//! new file that is renamed is published under its last name only.
//!
//! This machine decides which deed may be sent next, and what an answer means. It has no connection
//! and no clock. The bytes of a publication are the affair of its holding.

mod folding;
mod judging;
mod order;
mod path;

pub use judging::{Sight, Thing};
pub use path::Path;

use crate::holding::Base;
use std::collections::{BTreeMap, BTreeSet};

/// Identifies a holding: the name of its file on the local disk.
pub type Id = [u8; 12];

/// Operation that a deed does at its name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    /// Publish the bytes of a holding.
    Publish(Publication),
    /// Rename, and replace the entry at the new name.
    Rename {
        /// The new name.
        to: Path,
        /// Condition on the entry at the new name.
        over: Base,
    },
    /// Remove a file, or an empty directory.
    Unlink,
    /// Make a directory.
    Mkdir,
    /// Set attributes. To truncate a file that has no holding is to set its length.
    Set(Values),
}

impl What {
    /// Returns the word for this operation in the log.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Publish(_) => "deliver",
            Self::Rename { .. } => "rename",
            Self::Unlink => "remove",
            Self::Mkdir => "make directory",
            Self::Set(_) => "set attributes",
        }
    }
}

/// Attributes by key: length, mode, times. This machine does not interpret the values. Of two
/// values for one key, the later counts.
pub type Values = BTreeMap<String, Vec<u8>>;

/// Generation of a holding to publish, with the attributes that it gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Publication {
    /// Holding that is published.
    pub id: Id,
    /// Lowest generation that will do: bytes written after a rename belong to the same file.
    pub generation: u64,
    /// Attributes to set before a reader can see the file. Others are as of any new file at the
    /// target.
    pub set: Values,
}

/// Reason why a deed is on hold until a decision is made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Held {
    /// Another entry is at the name.
    Conflict,
    /// No entry is at the name any more.
    Missing,
    /// The target refused; its message.
    Refused(String),
    /// A user put the deed on hold; the user's message.
    Wanted(String),
}

/// Outcome of a deed that was sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The deed is done and durable at the target.
    Done,
    /// The deed is not done, and is on hold until a decision is made.
    Refused(Held),
    /// The outcome is unknown, or the target has seen a later attempt.
    Lost,
}

/// A promise that is not kept yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Deed {
    /// Identifies the deed. Greater than any number before.
    pub number: u64,
    /// Place in the order. A deed that was merged moves.
    pub position: u64,
    /// Name at which the deed is done.
    pub at: Path,
    /// Operation to do.
    pub what: What,
    /// Condition on the entry at that name.
    pub condition: Base,
    /// Attempt that last sent the deed. `None`: it was never sent.
    pub attempt: Option<u64>,
    /// Reason why the deed is on hold, if it is.
    pub held: Option<Held>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DeedState {
    /// The deed was sent and no answer arrived: it may be done.
    Unsure,
    Trying,
    Looking,
}

impl Deed {
    /// Tells whether the deed was never sent and is not on hold.
    fn is_fresh(&self) -> bool {
        self.attempt.is_none() && self.held.is_none()
    }

    /// Tells whether a name of the deed overlaps `name`.
    pub fn concerns(&self, name: &Path) -> bool {
        self.names().any(|own| own.overlaps(name))
    }

    fn names(&self) -> impl Iterator<Item = &Path> {
        let to = match &self.what {
            What::Rename { to, .. } => Some(to),
            _ => None,
        };
        [Some(&self.at), to].into_iter().flatten()
    }
}

/// Effect of a promise that was added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Added {
    /// The promise is a deed of this number.
    Deed(u64),
    /// The promise was merged into the deed of this number.
    Folded(u64),
    /// The promise cancelled the deed of this number, which was never sent. Neither is pending.
    Undone(u64),
}

/// Request to send to the target next, once a record says that it is sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Do {
    /// Number of the deed.
    pub number: u64,
    /// Sent with the request. A target that has seen an attempt refuses all older ones: they are
    /// [lost](Outcome::Lost). A publication uses it only to tell tries apart, since a holding has
    /// attempts of its own.
    pub attempt: u64,
    /// Whether to do the deed or to check the target.
    pub step: Step,
    /// Name at which the deed is done.
    pub at: Path,
    /// Operation to do.
    pub what: What,
    /// Condition on the entry at that name.
    pub condition: Base,
}

/// Next step of a deed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Do the deed, then call [`ended`](Deeds::ended).
    Try,
    /// The deed may be done: check its names, then call [`saw`](Deeds::saw).
    Look,
}

/// The promises to one target.
#[derive(Clone, Debug)]
pub struct Deeds {
    /// Deeds by position.
    deeds: BTreeMap<u64, Deed>,
    positions: BTreeMap<u64, u64>,
    /// Deeds that are in flight or whose outcome is unknown, by position.
    states: BTreeMap<u64, DeedState>,
    /// Deeds that are retried although an earlier try may have been done, by position.
    doubted: BTreeSet<u64>,
    /// Positions of the deeds at each name.
    names: BTreeMap<Path, BTreeSet<u64>>,
    /// Positions of the deeds that wait for no other.
    ready: BTreeSet<u64>,
    attempt: u64,
    /// Last number given to a try of a publication.
    tries: u64,
    last: u64,
    changed: BTreeSet<u64>,
}

impl Deeds {
    /// Continues from the persisted deeds, or begins. `starts` is the count of node starts times
    /// 2^32, so that all new numbers and attempts are greater than earlier ones.
    ///
    /// Deeds that were sent and not answered must be [checked](Step::Look).
    pub fn recover(record: impl IntoIterator<Item = Deed>, starts: u64) -> Self {
        let mut deeds = Self {
            deeds: BTreeMap::new(),
            positions: BTreeMap::new(),
            states: BTreeMap::new(),
            doubted: BTreeSet::new(),
            names: BTreeMap::new(),
            ready: BTreeSet::new(),
            attempt: starts,
            tries: starts,
            last: starts,
            changed: BTreeSet::new(),
        };
        for deed in record {
            let (position, was_asked) = (deed.position, deed.attempt.is_some());
            deeds.insert(deed);
            if was_asked {
                deeds.doubt(position);
            }
        }
        deeds.changed.clear();
        deeds
    }

    /// Returns the deeds changed since the last call, by number. The caller persists them in one
    /// transaction before it tells a client. `None`: the deed is over.
    pub fn changes(&mut self) -> Vec<(u64, Option<Deed>)> {
        let numbers = std::mem::take(&mut self.changed);
        let row = |number| (number, self.find(number).cloned());
        numbers.into_iter().map(row).collect()
    }

    /// Drops one deed from the [changes](Self::changes), since the caller persisted it elsewhere.
    pub fn noted(&mut self, number: u64) {
        self.changed.remove(&number);
    }

    /// Adds a promise, or merges it into deeds that were never sent.
    pub fn add(&mut self, at: Path, what: What, condition: Base) -> Added {
        if let Some(folded) = self.fold(&at, &what) {
            return folded;
        }
        self.last += 1;
        let number = self.last;
        self.promise(number, at, what, condition);
        Added::Deed(number)
    }

    /// Adds a promise under the number that the caller chose. The promise is not merged.
    pub fn promise(&mut self, number: u64, at: Path, what: What, condition: Base) {
        self.insert(Deed {
            number,
            position: number,
            at,
            what,
            condition,
            attempt: None,
            held: None,
        });
    }

    /// Makes all later numbers greater than `number`.
    pub fn after(&mut self, number: u64) {
        self.last = self.last.max(number);
    }

    /// Returns the deeds that wait for no other, are not on hold and not in flight, in order.
    pub fn ready(&self) -> impl Iterator<Item = &Deed> {
        let ready = self.ready.iter().map(|position| &self.deeds[position]);
        ready.filter(|deed| deed.held.is_none() && !self.is_under_way(deed.number))
    }

    /// Tells whether a deed is pending at a name that overlaps `name`.
    pub fn concern(&self, name: &Path) -> bool {
        self.around(name).next().is_some()
    }

    /// Tells whether no later deed overlaps the names of this deed.
    pub fn is_last(&self, number: u64) -> bool {
        self.is_last_of_those_after(number, 0)
    }

    /// Tells whether no deed overlaps the names of this deed that is both later and after `place`
    /// in the order.
    pub fn is_last_of_those_after(&self, number: u64, place: u64) -> bool {
        let Some(deed) = self.find(number) else {
            return true;
        };
        let mut around = deed.names().flat_map(|name| self.around(name));
        around.all(|position| position <= deed.position.max(place))
    }

    /// Removes the publication of this number: its holding has nothing more to publish for it.
    pub fn over(&mut self, number: u64) {
        if let Some(position) = self.position(number) {
            self.remove(position);
        }
    }

    /// Clears the attempt of a deed that its holding did not send: promises may be merged into it
    /// again.
    pub fn unasked(&mut self, number: u64) {
        let is_idle = !self.is_under_way(number);
        if let Some(deed) = self.position(number).and_then(|p| self.change(p))
            && is_idle
        {
            deed.attempt = None;
        }
    }

    /// Takes the first [ready](Self::ready) deed for which `is_free` returns true. The caller
    /// checks there that the deed is due and that there is room for it.
    pub fn next(&mut self, is_free: impl Fn(&Deed) -> bool) -> Option<Do> {
        let number = self.ready().find(|deed| is_free(deed))?.number;
        self.take(number)
    }

    /// Takes the deed of this number, if it is [ready](Self::ready).
    pub fn take(&mut self, number: u64) -> Option<Do> {
        let position = self.position(number)?;
        let deed = &self.deeds[&position];
        let is_free = deed.held.is_none() && !self.is_under_way(number);
        if !is_free || !self.ready.contains(&position) {
            return None;
        }
        let attempt = match self.is_publication(position) {
            true => {
                self.tries += 1;
                self.tries
            }
            false => self.attempt,
        };
        let (step, state) = match self.states.get(&position) {
            Some(DeedState::Unsure) => (Step::Look, DeedState::Looking),
            _ => (Step::Try, DeedState::Trying),
        };
        self.states.insert(position, state);
        let deed = self.change(position)?;
        deed.attempt = Some(attempt);
        Some(Do {
            number: deed.number,
            attempt,
            step,
            at: deed.at.clone(),
            what: deed.what.clone(),
            condition: deed.condition.clone(),
        })
    }

    /// Receives the outcome of a try, or that a check was lost. An outcome of an attempt that is
    /// over is ignored.
    pub fn ended(&mut self, number: u64, attempt: u64, outcome: Outcome) {
        let looked = self.of(number, attempt, DeedState::Looking);
        if outcome == Outcome::Lost && looked.is_some() {
            return self.lost();
        }
        let Some(position) = self.of(number, attempt, DeedState::Trying) else {
            return;
        };
        match outcome {
            Outcome::Done => drop(self.remove(position)),
            // Where older attempts are not refused, one may have taken effect between the check and
            // this.
            Outcome::Refused(Held::Missing) if self.doubted.remove(&position) => {
                self.doubt(position);
            }
            Outcome::Refused(why) => self.keep(position, why),
            Outcome::Lost if self.is_publication(position) => {
                // The holding asks the target itself; other deeds continue.
                self.doubt(position);
            }
            Outcome::Lost => self.lost(),
        }
    }

    /// The connection that carried only this deed broke: the outcome of the deed is unknown. Other
    /// deeds continue, and their answers count.
    pub fn broke(&mut self, number: u64, attempt: u64) {
        let of = |state| self.of(number, attempt, state);
        if let Some(position) = of(DeedState::Trying).or_else(|| of(DeedState::Looking)) {
            self.attempt += 1;
            self.doubt(position);
        }
    }

    /// The connection to the target broke: the outcome of each deed in flight is unknown.
    pub fn lost(&mut self) {
        self.attempt += 1;
        for position in self.states.keys().copied().collect::<Vec<_>>() {
            if !self.is_publication(position) {
                self.doubt(position);
            }
        }
    }

    /// Puts a deed on hold until a decision is made. Later deeds at its names wait.
    pub fn hold(&mut self, number: u64, words: String) {
        if let Some(deed) = self.position(number).and_then(|p| self.change(p)) {
            deed.held.get_or_insert(Held::Wanted(words));
        }
    }

    /// Releases a deed from hold, to be retried. With `Over::Anything` its conditions are dropped.
    pub fn release(&mut self, number: u64, over: Over) {
        let Some(deed) = self.position(number).and_then(|p| self.change(p)) else {
            return;
        };
        deed.held = None;
        let was_asked = deed.attempt.is_some();
        if over == Over::Anything {
            deed.condition = Base::Any;
            if let What::Rename { over, .. } = &mut deed.what {
                *over = Base::Any;
            }
        }
        // A new attempt, so that a duplicate of an old answer does not answer the retry.
        self.attempt += u64::from(was_asked);
    }

    /// Removes a deed, and returns it; `None` while the deed is in flight. A deed of unknown
    /// outcome may be done.
    pub fn drop(&mut self, number: u64) -> Option<Deed> {
        let position = self.position(number)?;
        if self.is_under_way(number) {
            return None;
        }
        self.remove(position)
    }

    /// Returns all pending deeds, in order.
    pub fn pending(&self) -> impl Iterator<Item = &Deed> {
        self.deeds.values()
    }

    /// Returns the deed of this number.
    pub fn find(&self, number: u64) -> Option<&Deed> {
        self.deeds.get(&self.position(number)?)
    }

    /// Tells whether the target was asked and has not answered yet.
    pub fn is_under_way(&self, number: u64) -> bool {
        let state = self.position(number).and_then(|p| self.states.get(&p));
        matches!(state, Some(DeedState::Trying | DeedState::Looking))
    }

    /// Marks a deed whose outcome is unknown.
    fn doubt(&mut self, position: u64) {
        match self.is_publication(position) {
            // The holding knows which generation was published, or finds out.
            true => self.states.remove(&position),
            false => self.states.insert(position, DeedState::Unsure),
        };
    }

    fn position(&self, number: u64) -> Option<u64> {
        self.positions.get(&number).copied()
    }

    fn is_publication(&self, position: u64) -> bool {
        matches!(self.deeds[&position].what, What::Publish(_))
    }

    /// Returns the position of the deed that `attempt` sent, if it is in `state`.
    fn of(&self, number: u64, attempt: u64, state: DeedState) -> Option<u64> {
        let position = self.position(number)?;
        let deed = &self.deeds[&position];
        let is_it = self.states.get(&position) == Some(&state) && deed.attempt == Some(attempt);
        is_it.then_some(position)
    }

    /// Puts a deed that is not done on hold, until a decision is made.
    fn keep(&mut self, position: u64, why: Held) {
        self.states.remove(&position);
        if let Some(deed) = self.change(position) {
            deed.held = Some(why);
        }
    }
}

/// Conditions that are dropped when a deed is released.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Over {
    /// None: the target's entry is replaced only if it meets the conditions.
    Nothing,
    /// All: any entry at the target is replaced.
    Anything,
}

#[cfg(test)]
mod tests;
