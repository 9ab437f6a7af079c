//! Files that are made at their server first, so that no other machine makes them.

use crate::{By, Depot, Error, Fresh, Put, Result, Scope, plan::entry::Entry};
use godwit_core::{Url, Version, holding::Base};
use godwit_store::Error as StoreError;
use std::time::Duration;

impl Depot {
    /// Makes an empty file at its server, unless the name is taken there or here. Returns its version; `None`: the name is
    /// free, and its server cannot make files for one program only.
    pub fn make_at_server(
        &self,
        url: &Url,
        by: By<'_>,
        mode: Option<u32>,
        limit: Duration,
    ) -> Result<Option<Version>> {
        let inner = &self.inner;
        let exists = || Err(StoreError::exists(url.as_path()).into());
        match inner.surely((url, by.who), || inner.find(url, by.who, Fresh::Now)) {
            Ok(_) => return exists(),
            Err(error) if matches!(error.of_store(), Some(StoreError::Missing { .. })) => {}
            Err(error) => return Err(error),
        }
        // A name that is about to be renamed at its server has no place there, and is free all the same.
        if !(inner.connect)(url, by.who)?.store.can()?.leaves {
            return Ok(None);
        }
        by.must_want()?;
        let put = Put {
            base: Base::Absent,
            session: by.session.into(),
        };
        let made = self.put(url, by.who, &put)?;
        if let Some(mode) = mode {
            made.set_mode(mode);
        }
        let id = made.id();
        made.end_while(&|_| true, by.is_wanted)?;
        let scope = Scope::Url(url.clone());
        let Err(error) = self.push_while(&scope, Some(limit), by.is_wanted) else {
            let entry = inner.plan().current_of(url, by.who);
            return Ok(entry.and_then(|entry| seen(&entry)));
        };
        let said = self.why_on_hold(url);
        let discarded = self.discard(&id);
        match (error, said) {
            (Error::Held { .. }, None) => exists(),
            (Error::Held { .. }, Some(said)) => Err(Error::Store(said)),
            (error, _) => discarded.and(Err(error)),
        }
    }
}

fn seen(entry: &Entry) -> Option<Version> {
    match entry.lock().machine.base() {
        Base::Seen(version) => Some(version.clone()),
        _ => None,
    }
}
