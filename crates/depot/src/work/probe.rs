//! Looks at a target: whether a file is there, and which.

use crate::{
    clock::since_epoch,
    error::{is_trouble, may_pass},
    work::apply::nearest_above,
};
use godwit_core::{Algorithm, Digest, Strength, Url, Version, holding::Base};
use godwit_store::{Error as StoreError, Stat, engine::Place};
use std::time::Duration;

/// Asks a server, and once more where it says that something is not there, as soon as it is known to be well.
pub(crate) fn by_one_that_is_well<T>(
    at: &Place,
    ask: impl Fn() -> godwit_store::Result<T>,
) -> godwit_store::Result<godwit_store::Result<T>> {
    match ask() {
        Err(StoreError::Missing { .. }) if nearest_above(at).is_some() => Ok(ask()),
        Err(StoreError::Missing { .. }) => Err(not_well(&at.url)),
        answer => Ok(answer),
    }
}

/// Returns the error for a server that is about to end, or has lost its disk: its answer counts as none.
pub(crate) fn not_well(at: &Url) -> StoreError {
    StoreError::busy(
        at.host_port(),
        "it says of all that it is asked for that it is not there",
    )
}

/// So long it is waited for that what was done is safe there, before it is looked at anew.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Tells whether two looks saw the same file, and nothing was changed of it meanwhile, as far as its server tells.
pub(crate) fn is_untouched(then: &Version, now: &Version) -> bool {
    let compared = then.compare(now);
    compared.looks_same() && compared != Strength::Touched
}

/// Returns what a file hashes to, if its server can tell: one that went away, or is about to, has not said that it cannot.
pub(crate) fn digest_there(place: &Place, by: Algorithm) -> godwit_store::Result<Option<Digest>> {
    match by_one_that_is_well(place, || place.store.digest(&place.path, by, None))? {
        Ok(told) => Ok(Some(told)),
        Err(error) if may_pass(&error) || is_trouble(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Tells whether a file hashes to that, as far as its server can tell.
pub(crate) fn is_of_digest(place: &Place, digest: &Digest) -> godwit_store::Result<bool> {
    let told = digest_there(place, digest.algorithm())?;
    Ok(told.is_some_and(|told| told == *digest))
}

/// Returns what a target has; `None`: nothing.
pub(crate) fn look(place: &Place) -> godwit_store::Result<Option<Stat>> {
    match by_one_that_is_well(place, || place.store.stat(&place.path))? {
        Ok(stat) => Ok(Some(stat)),
        Err(StoreError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns it as what ours may be based on.
pub(crate) fn base_of(there: Option<&Stat>) -> Base {
    there.map_or(Base::Absent, |stat| Base::Seen(stat.version(since_epoch())))
}

/// The digest that our leaves make.
pub(crate) const OURS: Algorithm = Algorithm::Blake3;
