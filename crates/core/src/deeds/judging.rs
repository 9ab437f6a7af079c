//! Decides by the entries at the target whether a deed was done.

use super::{Deed, DeedState, Deeds, Held, What};
use crate::{Strength, Version, holding::Base};

/// Entries that a check found under the names of a deed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sight {
    /// Entry at the deed's name.
    pub at: Thing,
    /// Entry at the new name of a rename.
    pub to: Thing,
}

/// Entry under a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Thing {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory,
    /// A file.
    File(Version),
}

enum Judgement {
    Done,
    Again,
    Held(Held),
}

impl Deeds {
    /// Receives the result of a check of a deed that may have been done. The check was sent by a
    /// new attempt, so no older attempt can take effect after it.
    pub fn saw(&mut self, number: u64, attempt: u64, sight: &Sight) {
        let Some(position) = self.of(number, attempt, DeedState::Looking) else {
            return;
        };
        match judge(&self.deeds[&position], sight) {
            Judgement::Done => drop(self.remove(position)),
            Judgement::Held(why) => self.keep(position, why),
            Judgement::Again => {
                self.states.remove(&position);
                self.doubted.insert(position);
            }
        }
    }
}

fn judge(deed: &Deed, sight: &Sight) -> Judgement {
    let is_there = sight.at != Thing::Nothing;
    match &deed.what {
        What::Mkdir if sight.at == Thing::Directory => Judgement::Done,
        What::Mkdir if is_there => Judgement::Held(Held::Conflict),
        What::Mkdir => Judgement::Again,
        What::Unlink if !is_there => Judgement::Done,
        // The entry we renamed is at the new name; the entry at the old name now is not ours.
        What::Rename { .. } if !is_there && sight.to != Thing::Nothing => Judgement::Done,
        What::Rename { .. }
            if is_other(&deed.condition, &sight.at) && is_it(&deed.condition, &sight.to) =>
        {
            Judgement::Done
        }
        _ if !is_there => Judgement::Held(Held::Missing),
        _ if is_other(&deed.condition, &sight.at) => Judgement::Held(Held::Conflict),
        _ => Judgement::Again,
    }
}

/// Tells whether the entry certainly violates the condition.
fn is_other(condition: &Base, thing: &Thing) -> bool {
    match (condition, thing) {
        (Base::Seen(wanted), Thing::File(now)) => wanted.compare(now) == Strength::Differs,
        (Base::Seen(_), Thing::Directory | Thing::Nothing) => true,
        (Base::Absent, thing) => *thing != Thing::Nothing,
        (Base::Any, _) => false,
    }
}

/// Tells whether the entry meets the condition, as far as versions tell.
fn is_it(condition: &Base, thing: &Thing) -> bool {
    match (condition, thing) {
        (Base::Seen(wanted), Thing::File(now)) => {
            matches!(
                wanted.compare(now),
                Strength::Same | Strength::Likely | Strength::Touched
            )
        }
        _ => false,
    }
}
