//! Reading small files by name, many at a time: one question to the catalog, and one conversation with each site.

use crate::{
    pack::entries,
    sites::{CopyAim, Sites, best, stat},
};
use godwit_catalog::{CatalogEntry as Named, CatalogHome};
use godwit_core::Digest;
use godwit_store::{
    Error, NextFile, Result, Small, SmallResult, StoreExt, Verified, engine::Place,
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Reads small files in the order of the requests, and reports each. `alone` reads a file whose first home fails.
pub(crate) fn read(
    (sites, aim): (&Sites, &CopyAim),
    next: &mut NextFile<'_, PathBuf>,
    each: &mut SmallResult<'_, Small>,
    alone: &dyn Fn(&Path) -> Result<Small>,
) -> Result<()> {
    loop {
        let mut names = Vec::new();
        while names.len() < FILES_MAX
            && let Some(name) = next()
        {
            names.push(name);
        }
        if names.is_empty() {
            return Ok(());
        }
        // Each file tells why in words of its own.
        let known = entries(sites, names.iter()).unwrap_or_default();
        let mut read = match known.is_empty() {
            true => HashMap::new(),
            false => at_sites(sites, aim, names.iter().zip(&known)),
        };
        for name in names {
            let small = read.remove(&name).map_or_else(|| alone(&name), Ok);
            each(name, small);
        }
    }
}

/// Reads each file from its first home; returns those that came with the bytes of their versions.
fn at_sites<'a>(
    sites: &Sites,
    aim: &CopyAim,
    wanted: impl Iterator<Item = (&'a PathBuf, &'a Option<Named>)>,
) -> HashMap<PathBuf, Small> {
    let mut by_location: HashMap<u64, Vec<(&PathBuf, &Named, &CatalogHome, Place)>> =
        HashMap::new();
    for (name, entry) in wanted {
        let Some(entry) = entry.as_ref().filter(|entry| !entry.collection) else {
            continue;
        };
        if let Some(home) = sites.homes(entry, aim.from.as_deref()).first()
            && let Ok(place) = sites.open(&home.url)
        {
            let of = by_location.entry(home.location).or_default();
            of.push((name, entry, home, place));
        }
    }
    let mut read = HashMap::new();
    for (location, wanted) in by_location {
        let Some((.., first)) = wanted.first() else {
            continue;
        };
        let mut paths = wanted.iter().map(|(.., place)| place.path.clone());
        let mut came: HashMap<PathBuf, Small> = HashMap::new();
        let told = first
            .store
            .read_small(&mut || paths.next(), &mut |path, small| match small {
                Ok(small) => drop(came.insert(path, small)),
                Err(error) => sites.was_silent(location, &error),
            });
        if let Err(error) = told {
            sites.was_silent(location, &error);
        }
        for (name, entry, home, place) in &wanted {
            if let Some(small) = came.remove(&place.path) {
                match checked(entry, small) {
                    Ok(small) => drop(read.insert((*name).clone(), small)),
                    Err(_) => sites.mark(name, home),
                }
            }
        }
    }
    read
}

/// Compares what came with the version of the catalog.
fn checked(entry: &Named, small: Small) -> Result<Small> {
    let size = small.bytes.len() as u64;
    let known = best(&entry.digests);
    let found = known.map(|known| Digest::of(known.algorithm(), &small.bytes));
    if found.as_ref() != known || entry.size.is_some_and(|known| known != size) {
        return Err(Error::corrupt(
            &entry.name.0,
            "the digest of the catalog",
            "another",
        ));
    }
    Ok(Small {
        stat: godwit_store::Stat {
            size,
            ..stat(entry)
        },
        verified: known.map_or(small.verified, |known| Verified::By(known.algorithm())),
        bytes: small.bytes,
    })
}

/// How many files are in memory at once; each has a mebibyte at most.
const FILES_MAX: usize = 64;
