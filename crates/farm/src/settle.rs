//! Settles intents whose process has ended: the file at the site decides.

use crate::{failed, sites::Sites};
use godwit_catalog::{
    Change, HomeWord as OfHome, Intent, IntentDeed, draft_name, intents, is_in_draft,
};
use godwit_core::{Digest, HomeState, Kind};
use godwit_store::{
    Error, RemovalKind, Result, Sink, Stat, StoreExt, Write, WriteMode, engine::Place,
};
use godwit_sys::crash;
use godwit_wire::door::call::{Text, Time};
use std::path::Path;

/// The end of an intent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Settled {
    /// The new bytes are there, and are published.
    Published,
    /// The old bytes are still there.
    Kept,
    /// There is no file.
    Gone,
    /// Other bytes are there.
    Damaged,
    /// Another process has the intent.
    Elsewhere,
}

/// Receives each intent with its end.
pub(crate) type Each<'a> = dyn FnMut(&Intent, Result<Settled>) + 'a;

/// Settles the intents of a name, and of names below it, whose leases have ended.
pub(crate) fn all(sites: &Sites, name: &Path, each: &mut Each<'_>) -> Result<()> {
    let found = intents(&*sites.catalog, Some(name), true);
    let found = found.map_err(|refusal| failed(name, refusal))?;
    for intent in found {
        let settled = one(sites, &intent);
        each(&intent, settled);
    }
    Ok(())
}

/// Settles one intent, under a lease of this process.
pub(crate) fn one(sites: &Sites, intent: &Intent) -> Result<Settled> {
    let number = intent.intent;
    let renew = Change::Renew {
        intent: number,
        holder: sites.leases.holder(),
    };
    if sites.change(&intent.name.0, renew)? == 0 {
        return Ok(Settled::Elsewhere);
    }
    let _lease = sites.leases.hold(number);
    if intent.deed == IntentDeed::Draft {
        return draft(sites, intent).map(|()| Settled::Gone);
    }
    let place = sites.open(&intent.url)?;
    match (intent.deed, intent.size) {
        // A program writes there without a word, and each draft has paths of its own.
        (IntentDeed::Write, None) if is_in_draft(&intent.name.0) => {
            abandon(&place);
            discard(sites, intent, &place).map(|()| Settled::Gone)
        }
        (IntentDeed::Delete, _) => discard(sites, intent, &place).map(|()| Settled::Gone),
        // Without a landing nothing can have changed there.
        (_, None) => end(sites, intent, Some(HomeState::Whole), Settled::Kept),
        (_, Some(size)) => match place.store.stat(&place.path) {
            Err(Error::Missing { .. }) if is_in_draft(&intent.name.0) => {
                abandon(&place);
                discard(sites, intent, &place).map(|()| Settled::Gone)
            }
            Err(Error::Missing { .. }) => end(sites, intent, None, Settled::Gone),
            Err(error) => Err(error),
            Ok(there) => landed(sites, intent, (&place, &there), size),
        },
    }
}

/// Deletes the partial file of an upload that will not be resumed.
fn abandon(place: &Place) {
    let upload = place.store.write(&place.path, &Write::with(WriteMode::New));
    if let Err(error) = upload.and_then(Sink::abandon) {
        tracing::info!(url = %place.url, %error, "a partial file may be left");
    }
}

/// Forgets a draft, and deletes its files.
pub(crate) fn draft(sites: &Sites, intent: &Intent) -> Result<()> {
    let name = &intent.name.0;
    end(sites, intent, None, Settled::Gone)?;
    all(sites, &draft_name(name, intent.intent), &mut |_, _| ())
}

/// Compares the file with the bytes of an intent, and the ones before it, by size and digest.
fn landed(
    sites: &Sites,
    intent: &Intent,
    (place, there): (&Place, &Stat),
    size: u64,
) -> Result<Settled> {
    let name = &intent.name.0;
    let entry = sites.find(name)?.unwrap_or_default();
    let is_it = |home: &&godwit_catalog::CatalogHome| {
        home.location == intent.location && home.path == intent.path
    };
    let old = entry.homes.iter().find(is_it);
    let old = old.filter(|home| home.version == entry.version);
    let old_digests = old.map_or(&[][..], |_| &entry.digests);
    let expected = intent.digest.as_ref();
    let by = expected.or(old_digests.first());
    let found = match by {
        Some(Text(by)) => Some(Text(sites.digest_at(place, by.algorithm(), None)?)),
        None => None,
    };
    let is_size = there.known_size() == Some(size);
    let is_old = match &found {
        Some(found) => old_digests.contains(found),
        None => old.is_some() && there.known_size() == entry.size && !is_size,
    };
    let is_new = match expected {
        Some(_) => found.as_ref() == expected,
        // The site finishes an upload in one step: if the file is not the old one, it is the new one.
        None => is_size && !is_old,
    };
    if !is_new {
        return match is_old {
            true => end(sites, intent, Some(HomeState::Whole), Settled::Kept),
            false => end(sites, intent, Some(HomeState::Damaged), Settled::Damaged),
        };
    }
    publish(sites, intent, (place, there), found)
}

fn publish(
    sites: &Sites,
    intent: &Intent,
    (place, there): (&Place, &Stat),
    found: Option<Text<Digest>>,
) -> Result<Settled> {
    let publication = Change::Publish {
        intent: intent.intent,
        digests: found.into_iter().collect(),
        mtime: there.mtime.map(Time),
        mode: there.mode,
        verified: true,
        adopted: false,
    };
    match sites.catalog.change(&publication.into()) {
        Ok(_) => Ok(Settled::Published),
        Err(refusal) if refusal.kind == Kind::Superseded => Ok(Settled::Elsewhere),
        // Another version is current by now, or the collection is gone.
        Err(refusal) if matches!(refusal.kind, Kind::Changed | Kind::Missing) => {
            discard(sites, intent, place)?;
            Ok(Settled::Gone)
        }
        Err(refusal) => Err(failed(&intent.name.0, refusal)),
    }
}

fn end(
    sites: &Sites,
    intent: &Intent,
    home: Option<HomeState>,
    settled: Settled,
) -> Result<Settled> {
    let (intent, name, home) = (intent.intent, &intent.name.0, home.map(OfHome));
    match sites
        .catalog
        .change(&Change::Settle { intent, home }.into())
    {
        Ok(_) => Ok(settled),
        Err(refusal) if refusal.kind == Kind::Superseded => Ok(Settled::Elsewhere),
        Err(refusal) => Err(failed(name, refusal)),
    }
}

/// Deletes the bytes of an intent, then forgets it. That they are gone by now is no error.
pub(crate) fn discard(sites: &Sites, intent: &Intent, place: &Place) -> Result<()> {
    crash::point("name-delete");
    match place.store.remove(&place.path, RemovalKind::File) {
        Ok(()) | Err(Error::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    let above = place.path.parent().unwrap_or(Path::new(""));
    if is_in_draft(&place.path) {
        // The last fragment takes the directory with it.
        let _ = place.store.remove(above, RemovalKind::Directory);
        sites.unmake_above(intent.location, place);
    }
    match place.store.flush(above) {
        Ok(()) | Err(Error::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    crash::point("name-deleted");
    end(sites, intent, None, Settled::Gone).map(drop)
}
