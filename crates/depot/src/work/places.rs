//! Finds where a name is at its target now, and acts there.

use crate::{
    Error, Result, Who, error::is_missing, inner::Inner, paths::missing, work::probe::not_well,
};
use godwit_core::Url;
use godwit_store::{Stat, engine::Place};
use std::time::{Duration, Instant};

impl Inner {
    /// Returns the store of a name of here, and what it is called there now.
    pub(crate) fn place_of(&self, name: &Url, who: &Who) -> godwit_store::Result<Place> {
        let at = self.plan().order.now_at(name);
        match at {
            Some(at) => (self.connect)(&at, who),
            None => Err(godwit_store::Error::missing(name.as_path())),
        }
    }

    /// Does something where a local name is at its target. While a deed is in flight there, the file may have either name: if
    /// it is missing under the old one, it is looked for again once the outcome is known.
    pub(crate) fn at_place<T>(
        &self,
        name: &Url,
        who: &Who,
        mut act: impl FnMut(&Place) -> Result<T>,
    ) -> Result<T> {
        let until = Instant::now() + PATIENCE;
        loop {
            let (at, is_unsettled) = {
                let promises = &self.plan().order;
                let at = promises.now_at(name);
                let is_unsettled = promises.is_unsettled(at.as_ref().unwrap_or(name));
                (at, is_unsettled)
            };
            let Some(at) = at else {
                return Err(missing(name)); // Whatever comes of what was promised.
            };
            match self.act_at(at, who, &mut act) {
                Err(Error::Store(error))
                    if is_unsettled
                        && matches!(*error, godwit_store::Error::Missing { .. })
                        && Instant::now() < until
                        && !self.is_ending() =>
                {
                    self.due.wait_for(&mut self.plan(), LOOK_AGAIN);
                }
                outcome => return outcome,
            }
        }
    }

    /// Looks at a name of here where it is at its target. A deed that was done meanwhile may have brought something else
    /// to where that was: then once more.
    pub(crate) fn stat_of(&self, name: &Url, who: &Who) -> Result<(Place, Stat)> {
        let now_at = || self.plan().order.now_at(name);
        loop {
            let before = now_at();
            let looked = self.at_place(name, who, |place| {
                let stat = place.store.stat(&place.path)?;
                Ok((place.clone(), stat))
            });
            if before == now_at() || self.is_ending() {
                return looked;
            }
        }
    }

    /// Asks for a name, and again if the server says that it is missing: a server that is about to end, or has lost its disk,
    /// says so of all names. From a server that knows no directory above the name, "missing" is not passed on.
    pub(crate) fn surely<T>(
        &self,
        (name, who): (&Url, &Who),
        ask: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let told = ask();
        let missing = told
            .as_ref()
            .err()
            .filter(|told| told.of_store().is_some_and(is_missing));
        let (Some(missing), Some(at)) = (missing, self.plan().order.now_at(name)) else {
            return told;
        };
        match self.above_missing(missing, &at, who) {
            Some(_) => ask(),
            None => Err(not_well(&at).into()),
        }
    }

    /// Does something at a place, or where it refers to.
    fn act_at<T>(
        &self,
        mut at: Url,
        who: &Who,
        act: &mut dyn FnMut(&Place) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..=REFERRALS_MAX {
            let place = (self.connect)(&at, who).map_err(Error::from)?;
            let outcome = act(&place);
            let elsewhere = outcome.as_ref().err().and_then(Error::of_store);
            match elsewhere.and_then(godwit_store::Error::refers_to) {
                Some(to) => at = to,
                None => return outcome,
            }
        }
        Err(Error::from(godwit_store::Error::looped(
            at.as_path(),
            "servers refer to each other again and again",
        )))
    }
}

/// So often a read is led on.
const REFERRALS_MAX: u32 = 4;
/// The time that a reader waits for a deed to be answered.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
