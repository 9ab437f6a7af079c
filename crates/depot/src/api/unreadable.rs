//! Operations on record of which a name cannot be read: they are shown, and left
//! alone until a user drops them.

use crate::{
    Pending, Result, Stage,
    api::queue::escaped,
    clock::now,
    disk::rows::Change,
    inner::Inner,
    plan::{OddDeed, order::deed_id},
};
use godwit_core::Url;
use std::time::Duration;

impl OddDeed {
    /// Returns how it is shown where its name cannot be: in the file that has it on record.
    fn pending(&self, records: &Url) -> Pending {
        let odd = |name: &&String| Url::from_argument(name.as_str()).is_err();
        let names = [Some(&self.url), self.to.as_ref()];
        let name = names.into_iter().flatten().find(odd);
        let at = Url::from_argument(&self.url);
        Pending {
            id: deed_id(self.number),
            what: self.word(),
            to: None,
            url: at.unwrap_or_else(|_| records.clone()),
            stage: Stage::Held,
            waits_for: None,
            size: 0,
            pending_bytes: 0,
            age: Duration::from_secs(now().saturating_sub(self.created_at)),
            tries: 0,
            why: format!(
                "a name of it on record, \"{}\", is no URL: nothing of it is done; do it by hand, then drop it",
                escaped(name.map_or("", String::as_str))
            ),
            is_conflict: false,
            last: None,
            is_committed: true,
            session: self.session.clone(),
        }
    }

    fn word(&self) -> &'static str {
        let first = self.what.split(' ').next();
        let known = ["rename", "unlink", "mkdir", "set"];
        let word = known.into_iter().find(|word| first == Some(word));
        word.unwrap_or("deed")
    }
}

impl Inner {
    /// Returns all of them, for the queue.
    pub(crate) fn odd_deeds(&self) -> Vec<Pending> {
        let path = std::path::absolute(self.disk.records()).ok();
        let Some(records) = path.and_then(|path| Url::file(&path).ok()) else {
            return Vec::new();
        };
        let plan = self.plan();
        plan.unreadable
            .deeds
            .iter()
            .map(|odd| odd.pending(&records))
            .collect()
    }

    /// Gives one up, and returns whether there is any of that number.
    pub(crate) fn forget_odd_deed(&self, name: &str) -> Result<bool> {
        let mut plan = self.plan();
        let is_it = |odd: &OddDeed| deed_id(odd.number) == name;
        let Some(at) = plan.unreadable.deeds.iter().position(is_it) else {
            return Ok(false);
        };
        let odd = plan.unreadable.deeds.swap_remove(at);
        // What is over is tried again with the next that is written, where the disk is full.
        let written = (self.records).begin(Change::Deeds(vec![(odd.number, None)]));
        drop(plan);
        written.wait().map(|()| true)
    }
}
