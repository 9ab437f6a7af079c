//! Waits for what a hop forwards, and of which nothing is here any more.

use crate::{
    Error, Result, Scope,
    api::push::{Behind, Time},
    disk::rows::{Change, Passed},
    error::is_nowhere,
    inner::Inner,
};

impl Inner {
    /// Waits until what hops took, and nobody has here any more, is at its end.
    pub(crate) fn follow_passed(
        &self,
        scope: &Scope,
        time: Time,
        is_wanted: &dyn Fn() -> bool,
        behind: &mut Behind,
    ) -> Result<()> {
        let mut all: Vec<Passed> = self.all().passed.values().cloned().collect();
        all.retain(|passed| passed.is_meant(scope));
        let mut is_lost = Ok(());
        for passed in all {
            match self.pass_on((&passed.url, &passed.who), time, is_wanted) {
                // Told once: somebody removed it at its end, or behind us.
                Err(error) if error.of_store().is_some_and(is_nowhere) => {
                    if !self.is_changed_there(&passed) {
                        is_lost = is_lost.and(Err(Error::gone_behind(&passed.url)));
                    }
                }
                Err(error) => {
                    behind.note(&passed.url, Err(error))?;
                    continue;
                }
                Ok(()) => behind.look(self, (&passed.url, &passed.who)),
            }
            let (key, mut all) = (passed.key(), self.all());
            if all
                .passed
                .get(&key)
                .is_some_and(|now| now.number == passed.number)
            {
                all.passed.remove(&key);
                self.records
                    .write_behind(Change::Passed(Box::new(passed), false));
            }
        }
        is_lost
    }

    /// Tells whether that is so by now: it may be since it was waited for.
    fn is_changed_there(&self, passed: &Passed) -> bool {
        let all = self.all();
        let now = all.passed.get(&passed.key());
        now.is_none_or(|now| now.number != passed.number || now.is_changed_there)
    }
}
