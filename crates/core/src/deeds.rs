//! What we promised a target, in order: publish this file, rename, remove, make a directory, set.
//!
//! Deeds whose names overlap are done in the order in which they were promised; others do not wait
//! for each other, so that what is stuck stops nobody else. What was never sent is folded: a new file
//! that is renamed is published under its last name only.
//!
//! This machine decides what may be asked of the target next and what an answer means. It knows no
//! connection and no clock. To publish is a deed like the others; doing it is the holding's affair.

mod folding;
mod judging;
mod order;
mod path;

pub use judging::{Sight, Thing};
pub use path::Path;

use crate::holding::Base;
use std::collections::{BTreeMap, BTreeSet};

/// Which holding: the name of its file on our disk.
pub type Id = [u8; 12];

/// What is to be done at a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    /// Show a holding.
    Publish(Publication),
    /// Rename, in place of what is there.
    Rename {
        /// The new name.
        to: Path,
        /// What the new name must have.
        over: Base,
    },
    /// Remove a file, or an empty directory.
    Unlink,
    /// Make a directory.
    Mkdir,
    /// Set attributes. To cut a file that is not held is to set its length.
    Set(Values),
}

impl What {
    /// Returns what the log calls it.
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

/// Attributes by key: length, mode, times. What a value means is not our affair; of two for one key
/// the later counts.
pub type Values = BTreeMap<String, Vec<u8>>;

/// What is to be shown of a holding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Publication {
    /// Whose.
    pub id: Id,
    /// This generation, or a later one: what is written once it was renamed is in the same file.
    pub generation: u64,
    /// To be set before anybody sees it. What is not is as of any new file there.
    pub set: Values,
}

/// Why nothing is done until somebody decides.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Held {
    /// Something else is there.
    Conflict,
    /// It is not there any more.
    Missing,
    /// The target will not; its words.
    Refused(String),
    /// Somebody wanted it held; their words.
    Wanted(String),
}

/// What became of what was asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It is done, and would survive a crash there.
    Done,
    /// It is not, and will not be before somebody decides.
    Refused(Held),
    /// Nobody knows, or the target has heard of a later attempt.
    Lost,
}

/// A promise that is not kept yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Deed {
    /// Names it. Greater than any that was given before.
    pub number: u64,
    /// Its place in the order. A deed that was folded moves.
    pub position: u64,
    /// Where.
    pub at: Path,
    /// What.
    pub what: What,
    /// What must be there.
    pub condition: Base,
    /// By which attempt it was asked last, if ever.
    pub attempt: Option<u64>,
    /// Why it is not done.
    pub held: Option<Held>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// It was asked, and no answer came: it may be done.
    Unsure,
    Trying,
    Looking,
}

impl Deed {
    /// The target never heard of it.
    fn is_fresh(&self) -> bool {
        self.attempt.is_none() && self.held.is_none()
    }

    /// Tells whether it has to do with a name.
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

/// What became of a promise that was to be added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Added {
    /// It is a deed of this number.
    Deed(u64),
    /// It became part of that one.
    Folded(u64),
    /// It took back what the target never heard of: that is no deed any more, nor is this.
    Undone(u64),
}

/// What to do at the target next. Not before a record says that it was asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Do {
    /// Which deed.
    pub number: u64,
    /// To be said with it. A target that has heard of one refuses all older ones:
    /// they are [lost](Outcome::Lost). Of a publication it tells only us one try from the next: a holding has its own.
    pub attempt: u64,
    /// Whether to do it or to look.
    pub step: Step,
    /// Where.
    pub at: Path,
    /// What.
    pub what: What,
    /// Only if this is there.
    pub condition: Base,
}

/// How to go on with a deed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Do it, and say [`ended`](Deeds::ended).
    Try,
    /// It may have been done: look at its names, and say [`saw`](Deeds::saw).
    Look,
}

/// The promises to one target.
#[derive(Clone, Debug)]
pub struct Deeds {
    /// By position.
    deeds: BTreeMap<u64, Deed>,
    positions: BTreeMap<u64, u64>,
    /// Of those that do not just wait, by position.
    states: BTreeMap<u64, State>,
    /// Of those that are tried again, which may have been done meanwhile.
    doubted: BTreeSet<u64>,
    /// The positions of whatever has to do with a name.
    names: BTreeMap<Path, BTreeSet<u64>>,
    /// The positions of those that wait for no other.
    ready: BTreeSet<u64>,
    attempt: u64,
    /// Tells tries to publish apart.
    tries: u64,
    last: u64,
    changed: BTreeSet<u64>,
}

impl Deeds {
    /// Goes on from what was on record, or begins. `starts` is the number of the start of the node, times
    /// 2^32: numbers and attempts are greater than all before.
    ///
    /// What was asked and not answered must be [looked at](Step::Look).
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

    /// Returns what has changed since it was asked last, by number: to be written in one transaction,
    /// before anybody learns of it. Nothing: it is over.
    pub fn changes(&mut self) -> Vec<(u64, Option<Deed>)> {
        let numbers = std::mem::take(&mut self.changed);
        let row = |number| (number, self.find(number).cloned());
        numbers.into_iter().map(row).collect()
    }

    /// What has changed of that one is on record elsewhere: it is none of the [changes](Self::changes).
    pub fn noted(&mut self, number: u64) {
        self.changed.remove(&number);
    }

    /// Adds a promise, or folds it into what the target has not heard of yet.
    pub fn add(&mut self, at: Path, what: What, condition: Base) -> Added {
        if let Some(folded) = self.fold(&at, &what) {
            return folded;
        }
        self.last += 1;
        let number = self.last;
        self.promise(number, at, what, condition);
        Added::Deed(number)
    }

    /// Adds a promise under a number of its own, and folds it into nothing.
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

    /// Has all numbers that are given from now on be greater than this.
    pub fn after(&mut self, number: u64) {
        self.last = self.last.max(number);
    }

    /// Returns those that wait for no other, are not held and not under way, in order.
    pub fn ready(&self) -> impl Iterator<Item = &Deed> {
        let ready = self.ready.iter().map(|position| &self.deeds[position]);
        ready.filter(|deed| deed.held.is_none() && !self.is_under_way(deed.number))
    }

    /// Tells whether anything is promised that has to do with a name.
    pub fn concern(&self, name: &Path) -> bool {
        self.around(name).next().is_some()
    }

    /// Tells whether nothing after it has to do with its names.
    pub fn is_last(&self, number: u64) -> bool {
        self.is_last_of_those_after(number, 0)
    }

    /// Tells the same of those only that were promised after that place in the order.
    pub fn is_last_of_those_after(&self, number: u64, place: u64) -> bool {
        let Some(deed) = self.find(number) else {
            return true;
        };
        let mut around = deed.names().flat_map(|name| self.around(name));
        around.all(|position| position <= deed.position.max(place))
    }

    /// A holding says that nothing of it is to be published any more, as far as it was promised by this.
    pub fn over(&mut self, number: u64) {
        if let Some(position) = self.position(number) {
            self.remove(position);
        }
    }

    /// A holding says that the target was not asked to publish it: it may be folded again.
    pub fn unasked(&mut self, number: u64) {
        let is_idle = !self.is_under_way(number);
        if let Some(deed) = self.position(number).and_then(|p| self.change(p))
            && is_idle
        {
            deed.attempt = None;
        }
    }

    /// Takes the first that waits for no other, is not held and `is_free` (its time has come, there is
    /// room for it).
    pub fn next(&mut self, is_free: impl Fn(&Deed) -> bool) -> Option<Do> {
        let number = self.ready().find(|deed| is_free(deed))?.number;
        self.take(number)
    }

    /// Takes that one, if it is [ready](Self::ready).
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
            Some(State::Unsure) => (Step::Look, State::Looking),
            _ => (Step::Try, State::Trying),
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

    /// What became of a try, or that a look was lost. Of one that is over it counts for nothing.
    pub fn ended(&mut self, number: u64, attempt: u64, outcome: Outcome) {
        let looked = self.of(number, attempt, State::Looking);
        if outcome == Outcome::Lost && looked.is_some() {
            return self.lost();
        }
        let Some(position) = self.of(number, attempt, State::Trying) else {
            return;
        };
        match outcome {
            Outcome::Done => drop(self.remove(position)),
            // Where older attempts are not refused, one of them may have come between the look and this.
            Outcome::Refused(Held::Missing) if self.doubted.remove(&position) => {
                self.doubt(position);
            }
            Outcome::Refused(why) => self.keep(position, why),
            Outcome::Lost if self.is_publication(position) => {
                // The holding has its own conversation, and the others go on.
                self.doubt(position);
            }
            Outcome::Lost => self.lost(),
        }
    }

    /// The conversation broke in which nothing else was asked than this: that may be done or not. The others
    /// go on, and what they are answered counts.
    pub fn broke(&mut self, number: u64, attempt: u64) {
        let of = |state| self.of(number, attempt, state);
        if let Some(position) = of(State::Trying).or_else(|| of(State::Looking)) {
            self.attempt += 1;
            self.doubt(position);
        }
    }

    /// The conversation with the target broke: what was asked in it may be done or not.
    pub fn lost(&mut self) {
        self.attempt += 1;
        for position in self.states.keys().copied().collect::<Vec<_>>() {
            if !self.is_publication(position) {
                self.doubt(position);
            }
        }
    }

    /// Holds a deed until somebody decides. What comes after it at its names waits.
    pub fn hold(&mut self, number: u64, words: String) {
        if let Some(deed) = self.position(number).and_then(|p| self.change(p)) {
            deed.held.get_or_insert(Held::Wanted(words));
        }
    }

    /// Somebody decided: it is tried again, and if they say so whatever is there.
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
        // So that an answer that comes twice does not answer what is asked now.
        self.attempt += u64::from(was_asked);
    }

    /// Gives a deed up, and returns it; not while it is under way. If it is unsure, it may be done.
    pub fn drop(&mut self, number: u64) -> Option<Deed> {
        let position = self.position(number)?;
        if self.is_under_way(number) {
            return None;
        }
        self.remove(position)
    }

    /// Returns all that is not done, in order.
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
        matches!(state, Some(State::Trying | State::Looking))
    }

    /// After a try of which nobody knows what became of it.
    fn doubt(&mut self, position: u64) {
        match self.is_publication(position) {
            // The holding knows what was published, or finds out.
            true => self.states.remove(&position),
            false => self.states.insert(position, State::Unsure),
        };
    }

    fn position(&self, number: u64) -> Option<u64> {
        self.positions.get(&number).copied()
    }

    fn is_publication(&self, position: u64) -> bool {
        matches!(self.deeds[&position].what, What::Publish(_))
    }

    /// Where the deed is that `attempt` asked for, if no answer came yet.
    fn of(&self, number: u64, attempt: u64, state: State) -> Option<u64> {
        let position = self.position(number)?;
        let deed = &self.deeds[&position];
        let is_it = self.states.get(&position) == Some(&state) && deed.attempt == Some(attempt);
        is_it.then_some(position)
    }

    /// It is not done, and is not to be tried again before somebody decides.
    fn keep(&mut self, position: u64, why: Held) {
        self.states.remove(&position);
        if let Some(deed) = self.change(position) {
            deed.held = Some(why);
        }
    }
}

/// Whose work may be lost when a deed is released.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Over {
    /// Nobody's: its conditions stay.
    Nothing,
    /// Whatever is there.
    Anything,
}

#[cfg(test)]
mod tests;
