//! Measures a catalog: what one client does with many names, and how much eight clients do at once.

use super::refused;
use crate::out::{CliError, Facts, Run, Screen, facts};
use godwit_catalog::{Catalog, CatalogAnswer, Change, NewHome, Pages, Question, Refusal};
use godwit_core::{Algorithm, Digest, Kind};
use godwit_store::engine::Place;
use godwit_wire::door::call::{Name, Text};
use std::{
    ops::Range,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant, SystemTime},
};

/// Measures the catalog in a collection of its own, which is removed at the end.
pub(super) fn bench(
    catalog: &dyn Catalog,
    peer: Option<Place>,
    files: usize,
    screen: &Screen,
) -> Run<Facts> {
    let wanted = "measure the catalog";
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let stamp = since.map_or(0, |since| since.as_nanos());
    let bench = Bench {
        catalog,
        peer,
        files: files.max(1),
        root: format!("bench-{}-{stamp:x}", std::process::id()).into(),
    };
    let measured = bench.measure();
    // After a failure the collection is removed all the same, and the first refusal is reported.
    let removed = bench.remove();
    let measured = measured.and_then(|measured| removed.map(|()| measured));
    let measured = measured.map_err(|refusal| refused(wanted, &refusal))?;
    let mut told = facts([("files", bench.files.into())]);
    for (name, figure) in measured {
        if !screen.json() {
            let line = format!("{name:28} {figure:12.6}");
            let said = screen.line(line);
            said.map_err(|error| CliError::store(wanted, error))?;
        }
        told.insert(name.to_owned(), figure.into());
    }
    Ok(told)
}

type Figures = Vec<(&'static str, f64)>;

struct Bench<'a> {
    catalog: &'a dyn Catalog,
    /// The peer that has the catalog.
    peer: Option<Place>,
    files: usize,
    /// The collection that holds all that is made.
    root: PathBuf,
}

/// The kind of names to make.
#[derive(Clone, Copy)]
enum Make<'a> {
    Alone,
    /// With a size, a digest and a home at each of the given locations.
    At(&'a [u64]),
    Not,
}

impl Bench<'_> {
    fn measure(&self) -> Result<Figures, Refusal> {
        let mut figures = Figures::new();
        let many = 0..self.files;
        let bare = self.root.join(BARE);
        figures.push((
            "create_seconds",
            self.write(BARE, many.clone(), Make::Alone)?,
        ));
        let begun = Instant::now();
        let mut count = 0;
        for page in Pages::new(self.catalog, &bare, false, false) {
            count += page?.len();
        }
        figures.push(("list_seconds", begun.elapsed().as_secs_f64()));
        assert_count(count, self.files)?;
        let one_more = |turn| {
            let at = self.files + turn;
            self.write(BARE, at..at + 1, Make::Alone)
        };
        figures.push(("add_seconds", median(ADDED, one_more)?));
        let locations: Vec<u64> = (0..8)
            .map(|site| self.location(site))
            .collect::<Result<_, _>>()?;
        let one = Make::At(&locations[..1]);
        figures.push(("register_seconds", self.write(FULL, many.clone(), one)?));
        for (name, count) in [
            ("locate_seconds", 1),
            ("locate_2_seconds", 2),
            ("locate_4_seconds", 4),
            ("locate_8_seconds", 8),
        ] {
            let at = self.files + count;
            self.write(FULL, at..at + 1, Make::At(&locations[..count]))?;
            let locate = |_| {
                let begun = Instant::now();
                self.locate(at..at + 1)?;
                Ok(begun.elapsed().as_secs_f64())
            };
            figures.push((name, median(LOCATED, locate)?));
        }
        let single = |client: usize, turn: usize| {
            let at = 2 * self.files + turn * CLIENTS + client;
            self.write(FULL, at..at + 1, one).map(|_| 1)
        };
        figures.push(("creates_per_second", self.clients(single)?));
        for (name, most) in [
            ("locates_1_per_second", 1),
            ("locates_64_names_per_second", 64),
        ] {
            let at_once = most.min(self.files);
            let some = |client: usize, turn: usize| {
                let at = (client * 7919 + turn * 104_729) % (self.files - at_once + 1);
                self.locate(at..at + at_once)?;
                Ok(at_once as u64)
            };
            figures.push((name, self.clients(some)?));
        }
        if let Some(place) = &self.peer {
            let stat = |_, _| match place.store.stat(&place.path) {
                Ok(_) => Ok(1),
                Err(error) => Err(Refusal::of_kind(Kind::Io, error.to_string())),
            };
            figures.push(("stats_per_second", self.clients(stat)?));
        }
        figures.push(("delete_seconds", self.write(BARE, many.clone(), Make::Not)?));
        figures.push(("unregister_seconds", self.write(FULL, many, Make::Not)?));
        Ok(figures)
    }

    fn name(&self, collection: &str, number: usize) -> Name {
        Name(self.root.join(collection).join(format!("file-{number:09}")))
    }

    /// Makes or removes names, a thousand in a list; returns the seconds.
    fn write(&self, collection: &str, names: Range<usize>, make: Make<'_>) -> Result<f64, Refusal> {
        let begun = Instant::now();
        let all: Vec<usize> = names.collect();
        for list in all.chunks(LIST) {
            let one = |number: &usize| self.changes(collection, *number, make);
            let changes: Vec<Change> = list.iter().flat_map(one).collect();
            self.catalog.change(&changes.into())?;
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    fn changes(&self, collection: &str, number: usize, make: Make<'_>) -> Vec<Change> {
        let name = self.name(collection, number);
        let register = |home: Option<NewHome>| Change::Register {
            name: name.clone(),
            size: home.as_ref().map(|_| number as u64),
            digests: home
                .iter()
                .map(|_| Text(Digest::of(Algorithm::Blake3, &number.to_le_bytes())))
                .collect(),
            mtime: None,
            mode: None,
            home,
        };
        match make {
            Make::Alone => vec![register(None)],
            Make::At(locations) => locations
                .iter()
                .map(|location| {
                    register(Some(NewHome {
                        location: *location,
                        path: Name(format!("file-{number:09}").into()),
                        ..NewHome::default()
                    }))
                })
                .collect(),
            Make::Not => vec![Change::Remove {
                name,
                collection: false,
                data: false,
            }],
        }
    }

    fn location(&self, site: usize) -> Result<u64, Refusal> {
        let change = Change::AddLocation {
            name: Name(self.root.join(FULL)),
            site: format!("site-{site}"),
            url: format!("ftp://site-{site}.example/data"),
            whole: false,
        };
        let made = self.catalog.change(&change.into())?;
        Ok(made.first().copied().unwrap_or_default())
    }

    fn locate(&self, names: Range<usize>) -> Result<(), Refusal> {
        let expected = names.len();
        let names = names.map(|number| self.name(FULL, number)).collect();
        let mut homes = 0;
        self.catalog
            .ask(&Question::Locate { names }, &mut |answer| {
                if let CatalogAnswer::Entry(entry) = answer {
                    homes += usize::from(!entry.homes.is_empty());
                }
                Ok(())
            })?;
        assert_count(homes, expected)
    }

    /// Returns how much all clients do in a second, each one call after the other.
    fn clients(
        &self,
        call: impl Fn(usize, usize) -> Result<u64, Refusal> + Sync,
    ) -> Result<f64, Refusal> {
        let (done, begun) = (AtomicU64::new(0), Instant::now());
        let (done, call) = (&done, &call);
        let run = |client| -> Result<(), Refusal> {
            for turn in 0.. {
                if begun.elapsed() >= RUN {
                    break;
                }
                done.fetch_add(call(client, turn)?, Relaxed);
            }
            Ok(())
        };
        thread::scope(|scope| {
            let all: Vec<_> = (0..CLIENTS)
                .map(|client| scope.spawn(move || run(client)))
                .collect();
            all.into_iter()
                .try_for_each(|one| one.join().expect("a client does not panic"))
        })?;
        Ok(done.load(Relaxed) as f64 / begun.elapsed().as_secs_f64())
    }

    /// Removes all that is left.
    fn remove(&self) -> Result<(), Refusal> {
        let remove = |name: PathBuf, collection| Change::Remove {
            name: Name(name),
            collection,
            data: false,
        };
        for collection in [BARE, FULL].map(|name| self.root.join(name)) {
            loop {
                let page = Pages::new(self.catalog, &collection, false, false).next();
                let page = match page {
                    Some(Ok(page)) if !page.is_empty() => page,
                    Some(Err(refusal)) if refusal.kind != Kind::Missing => {
                        return Err(refusal);
                    }
                    _ => break,
                };
                let all = page
                    .into_iter()
                    .map(|entry| remove(collection.join(entry.name.0), false));
                self.catalog.change(&all.collect::<Vec<_>>().into())?;
            }
        }
        for site in 0..8 {
            let _ = self.catalog.change(
                &Change::RemoveLocation {
                    name: Name(self.root.join(FULL)),
                    site: format!("site-{site}"),
                    last: true,
                }
                .into(),
            );
        }
        for name in [
            self.root.join(BARE),
            self.root.join(FULL),
            self.root.clone(),
        ] {
            let removed = self.catalog.change(&remove(name, true).into());
            removed.map(drop).or_else(|refusal| match refusal.kind {
                Kind::Missing => Ok(()),
                _ => Err(refusal),
            })?;
        }
        Ok(())
    }
}

fn median(
    turns: usize,
    mut one: impl FnMut(usize) -> Result<f64, Refusal>,
) -> Result<f64, Refusal> {
    let mut all: Vec<f64> = (0..turns).map(&mut one).collect::<Result<_, _>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all[turns / 2])
}

fn assert_count(found: usize, expected: usize) -> Result<(), Refusal> {
    if found == expected {
        return Ok(());
    }
    let said = format!("it told {found} names of {expected}");
    Err(Refusal::of_kind(Kind::Io, said))
}

/// The collections of names alone, and of names with versions and homes.
const BARE: &str = "bare";
const FULL: &str = "full";
/// How many names a list makes or removes.
const LIST: usize = 1000;
const CLIENTS: usize = 8;
/// How long the clients run.
const RUN: Duration = Duration::from_secs(1);
const ADDED: usize = 51;
const LOCATED: usize = 101;
