//! Whether it was done, by what is there.

use super::{Deed, Deeds, Held, State, What};
use crate::{Strength, Version, holding::Base};

/// What a look found under the names of a deed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sight {
    /// Where it is done.
    pub at: Thing,
    /// Under the new name of a rename.
    pub to: Thing,
}

/// What is under a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Thing {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory,
    /// A file.
    File(Version),
}

enum Verdict {
    Done,
    Again,
    Held(Held),
}

impl Deeds {
    /// What a look found whose deed may have been done. The look was asked by a new attempt, so nothing
    /// older can happen after it.
    pub fn saw(&mut self, number: u64, attempt: u64, sight: &Sight) {
        let Some(position) = self.of(number, attempt, State::Looking) else {
            return;
        };
        match judge(&self.deeds[&position], sight) {
            Verdict::Done => drop(self.remove(position)),
            Verdict::Held(why) => self.keep(position, why),
            Verdict::Again => {
                self.states.remove(&position);
                self.doubted.insert(position);
            }
        }
    }
}

fn judge(deed: &Deed, sight: &Sight) -> Verdict {
    let is_there = sight.at != Thing::Nothing;
    match &deed.what {
        What::Mkdir if sight.at == Thing::Directory => Verdict::Done,
        What::Mkdir if is_there => Verdict::Held(Held::Conflict),
        What::Mkdir => Verdict::Again,
        What::Unlink if !is_there => Verdict::Done,
        // What we renamed lies there; what lies under the old name now is somebody else's.
        What::Rename { .. } if !is_there && sight.to != Thing::Nothing => Verdict::Done,
        What::Rename { .. }
            if is_other(&deed.condition, &sight.at) && is_it(&deed.condition, &sight.to) =>
        {
            Verdict::Done
        }
        _ if !is_there => Verdict::Held(Held::Missing),
        _ if is_other(&deed.condition, &sight.at) => Verdict::Held(Held::Conflict),
        _ => Verdict::Again,
    }
}

/// Whether it is certainly not what the condition wants.
fn is_other(condition: &Base, thing: &Thing) -> bool {
    match (condition, thing) {
        (Base::Seen(wanted), Thing::File(now)) => wanted.compare(now) == Strength::Differs,
        (Base::Seen(_), Thing::Directory | Thing::Nothing) => true,
        (Base::Absent, thing) => *thing != Thing::Nothing,
        (Base::Any, _) => false,
    }
}

/// Whether it is what the condition wants, as far as can be told.
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
