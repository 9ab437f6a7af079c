//! Merges promises into deeds that the target has not seen yet.

use super::{Added, Deed, Deeds, Path, Publication, Values, What};
use crate::holding::Base;

impl Deeds {
    /// Merges a new promise into deeds that were never sent, if possible.
    pub(super) fn fold(&mut self, at: &Path, what: &What) -> Option<Added> {
        match what {
            What::Publish(new) => self.fold_publish(at, new),
            What::Set(values) => self.fold_set(at, values),
            What::Rename { to, over } => {
                let born = self.born(at)?;
                let (to, over) = (to.clone(), over.clone());
                Some(Added::Folded(self.rename(born, &to, &over)?))
            }
            What::Unlink => {
                let born = self.born(at)?;
                Some(Added::Undone(self.remove(born)?.number))
            }
            What::Mkdir => None,
        }
    }

    /// Merges a later generation into a publication that is pending at `at`.
    fn fold_publish(&mut self, at: &Path, new: &Publication) -> Option<Added> {
        let position = self.fresh(at)?;
        let deed = self.deeds.get_mut(&position)?;
        match &mut deed.what {
            What::Publish(old) if old.id == new.id => {
                old.generation = new.generation.max(old.generation);
                old.set.extend(new.set.clone());
            }
            _ => return None,
        }
        self.changed.insert(deed.number);
        Some(Added::Folded(deed.number))
    }

    /// Merges attributes into a deed that sets or publishes at `at`. Readers never see the file without
    /// them.
    fn fold_set(&mut self, at: &Path, values: &Values) -> Option<Added> {
        let position = self.fresh(at)?;
        let deed = self.deeds.get_mut(&position)?;
        match &mut deed.what {
            What::Set(set) | What::Publish(Publication { set, .. }) => set.extend(values.clone()),
            _ => return None,
        }
        self.changed.insert(deed.number);
        Some(Added::Folded(deed.number))
    }

    /// Returns the position of the last deed that overlaps `at`, if it is at that name and was
    /// never sent.
    fn fresh(&self, at: &Path) -> Option<u64> {
        let latest = self.latest(at)?;
        (latest.is_fresh() && latest.at == *at).then_some(latest.position)
    }

    /// Returns the position of the publication of a file that was created at `at`, where no entry
    /// was. `None` if the publication was sent, or if a later deed at that name depends on it.
    fn born(&self, at: &Path) -> Option<u64> {
        let is_birth = |p: &u64| {
            let deed = &self.deeds[p];
            deed.at == *at && matches!(deed.what, What::Publish(_))
        };
        let birth = self.around(at).filter(is_birth).max()?;
        // A deed that only makes or sets a directory above does not move the file.
        let stays = |d: &Deed| d.at != *at && matches!(d.what, What::Set(_) | What::Mkdir);
        let mut later = self.around(at).filter(|p| *p > birth);
        let deed = &self.deeds[&birth];
        let is_born = deed.is_fresh() && deed.condition == Base::Absent;
        (is_born && later.all(|p| stays(&self.deeds[&p]))).then_some(birth)
    }

    /// Moves a publication to the new name of its file, behind all deeds so far, so that the older
    /// entry there is handled first. The deed keeps its number, so that waiting clients still find
    /// it.
    fn rename(&mut self, born: u64, to: &Path, over: &Base) -> Option<u64> {
        let mut deed = self.remove(born)?;
        self.last += 1;
        deed.position = self.last;
        deed.condition = over.clone();
        deed.at = to.clone();
        let number = deed.number;
        self.insert(deed);
        Some(number)
    }

    /// Changes the target name of a deed; for a rename, its new name. Later deeds of the same file
    /// at the old name move along. Returns false while one of them is in flight.
    pub fn redirect(&mut self, number: u64, to: Path) -> bool {
        let Some(deed) = self.find(number).cloned() else {
            return false;
        };
        let from = deed.at.clone();
        let mut moved = vec![deed.position];
        if matches!(deed.what, What::Publish(_)) {
            for later in self.deeds.range(deed.position + 1..).map(|(_, d)| d) {
                if later.at == from {
                    moved.push(later.position);
                    if matches!(later.what, What::Rename { .. } | What::Unlink) {
                        break;
                    }
                }
            }
        }
        if moved
            .iter()
            .any(|p| self.is_under_way(self.deeds[p].number))
        {
            return false;
        }
        for position in moved {
            let Some(mut deed) = self.remove(position) else {
                continue;
            };
            match &mut deed.what {
                What::Rename { to: old, over } if deed.number == number => {
                    (*old, *over) = (to.clone(), Base::Absent);
                }
                _ => deed.at = to.clone(),
            }
            if deed.number == number {
                deed.held = None;
                if matches!(deed.what, What::Publish(_) | What::Mkdir) {
                    deed.condition = Base::Absent;
                }
            }
            self.insert(deed);
        }
        true
    }
}
