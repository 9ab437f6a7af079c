//! Waits for what a hop forwards, and of which nothing is here any more.

use crate::{
    Error, Result, Scope,
    api::push::{Downstream, Time},
    disk::rows::Change,
    error::is_nowhere,
    inner::Inner,
    plan::forwarded::Forwarded,
};

impl Inner {
    /// Waits until files that hops took, and of which nothing is here any more, are at their last target.
    pub(crate) fn follow_forwarded(
        &self,
        scope: &Scope,
        time: Time,
        is_wanted: &dyn Fn() -> bool,
        downstream: &mut Downstream,
    ) -> Result<()> {
        let mut all: Vec<Forwarded> = self.plan().forwarded.values().cloned().collect();
        all.retain(|forwarded| forwarded.is_meant(scope));
        let mut is_lost = Ok(());
        for forwarded in all {
            match self.forward((&forwarded.url, &forwarded.who), time, is_wanted) {
                // Told once: it was removed at its last target, or by another node on the way.
                Err(error) if error.of_store().is_some_and(is_nowhere) => {
                    if !self.is_changed_there(&forwarded) {
                        is_lost = is_lost.and(Err(Error::gone_downstream(&forwarded.url)));
                    }
                }
                Err(error) => {
                    downstream.note(&forwarded.url, Err(error))?;
                    continue;
                }
                Ok(()) => downstream.look(self, (&forwarded.url, &forwarded.who)),
            }
            let (key, mut plan) = (forwarded.key(), self.plan());
            if plan
                .forwarded
                .get(&key)
                .is_some_and(|now| now.number == forwarded.number)
            {
                plan.forwarded.remove(&key);
                self.records
                    .write_behind(Change::Forwarded(Box::new(forwarded), false));
            }
        }
        is_lost
    }

    /// Tells whether that is so by now: it may be since it was waited for.
    fn is_changed_there(&self, forwarded: &Forwarded) -> bool {
        let plan = self.plan();
        let now = plan.forwarded.get(&forwarded.key());
        now.is_none_or(|now| now.number != forwarded.number || now.is_changed_there)
    }
}
