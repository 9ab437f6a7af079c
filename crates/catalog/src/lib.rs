//! The catalog of names and of the places where the bytes of each version lie. It answers and records, and moves no byte.

mod answer;
mod apply;
mod condition;
mod db;
mod group;
mod history;
mod lists;
mod pool;
mod postgres;
mod refused;
mod ruling;
mod sqlite;
mod tables;

pub use condition::{ComparedFile, Condition, Conditions, Is, copies, is_good, is_part, sites};
pub use godwit_core::Kind;
pub use godwit_wire::door::{call::Refusal, catalog::*};

use godwit_wire::door::call::Name;
use std::{path::Path, sync::Arc};

/// The result of a question or change.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Receives the answers to a question; an error ends it.
pub type Each<'a> = dyn FnMut(CatalogAnswer) -> Result<()> + 'a;

/// A catalog, on this machine or elsewhere.
pub trait Catalog: Send + Sync {
    /// Answers a question. [`CatalogAnswer::More`] at its end says that a page is full.
    fn ask(&self, question: &Question, each: &mut Each<'_>) -> Result<()>;

    /// Has the node that serves the catalog make a file again that no site can give; returns how many fragments were made.
    /// `None`: the caller is to make it.
    fn make(&self, _name: &Path) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Applies all changes in one transaction, or none. Returns a number a change: of the intent, location or version
    /// that it made; 0: of nothing.
    fn change(&self, changes: &Changes) -> Result<Vec<u64>>;
}

/// Returns the entry of a name; `None`: it is not in the catalog.
pub fn find(catalog: &dyn Catalog, name: &Path) -> Result<Option<CatalogEntry>> {
    let names = vec![Name(name.into())];
    let found = gather(
        catalog,
        &Question::Locate { names },
        |answer| match answer {
            CatalogAnswer::Entry(entry) => Some(*entry),
            _ => None,
        },
    );
    found.map(|mut found| found.pop())
}

/// Returns the answers that `wanted` picks.
pub fn gather<T>(
    catalog: &dyn Catalog,
    question: &Question,
    mut wanted: impl FnMut(CatalogAnswer) -> Option<T>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    catalog.ask(question, &mut |answer| {
        found.extend(wanted(answer));
        Ok(())
    })?;
    Ok(found)
}

/// Returns the locations of a collection, of those above it and of those below it, with a count of copies if `count`.
pub fn locations(catalog: &dyn Catalog, name: &Path, count: bool) -> Result<Vec<Location>> {
    let name = Name(name.into());
    gather(
        catalog,
        &Question::Locations { name, count },
        |answer| match answer {
            CatalogAnswer::Location(location) => Some(location),
            _ => None,
        },
    )
}

/// Returns the rules of a collection, of those above it and of those below it.
pub fn rules(catalog: &dyn Catalog, name: &Path) -> Result<Vec<CatalogRule>> {
    let name = Name(name.into());
    gather(catalog, &Question::Rules { name }, |answer| match answer {
        CatalogAnswer::Rule(rule) => Some(rule),
        _ => None,
    })
}

/// Returns the run that made a file; `None`: none is known.
pub fn history(catalog: &dyn Catalog, name: &Path) -> Result<Option<MadeFile>> {
    let name = Name(name.into());
    let made = gather(
        catalog,
        &Question::History { name },
        |answer| match answer {
            CatalogAnswer::Made(made) => Some(*made),
            _ => None,
        },
    );
    made.map(|mut made| made.pop())
}

/// Returns the intents of a name and of names below it; `None`: all. `ended`: those whose lease has ended.
pub fn intents(catalog: &dyn Catalog, name: Option<&Path>, ended: bool) -> Result<Vec<Intent>> {
    let name = name.map(|name| Name(name.into()));
    gather(
        catalog,
        &Question::Intents { ended, name },
        |answer| match answer {
            CatalogAnswer::Intent(intent) => Some(*intent),
            _ => None,
        },
    )
}

/// The entries of a collection, page by page.
pub struct Pages<'a> {
    catalog: &'a dyn Catalog,
    /// The question for the next page; `None` after the last.
    next: Option<Question>,
}

impl<'a> Pages<'a> {
    /// Begins at the first entry; the arguments are those of [`Question::List`].
    pub fn new(catalog: &'a dyn Catalog, name: &Path, deep: bool, homes: bool) -> Self {
        let next = Some(Question::List {
            name: Name(name.into()),
            deep,
            homes,
            after: None,
        });
        Self { catalog, next }
    }
}

impl Iterator for Pages<'_> {
    type Item = Result<Vec<CatalogEntry>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut question = self.next.take()?;
        let (mut page, mut is_last) = (Vec::new(), true);
        let asked = self.catalog.ask(&question, &mut |answer| {
            match answer {
                CatalogAnswer::Entry(entry) => page.push(*entry),
                CatalogAnswer::More => is_last = false,
                _ => {}
            }
            Ok(())
        });
        if let (Question::List { after, .. }, Some(last), false) =
            (&mut question, page.last(), is_last)
        {
            *after = Some(last.name.clone());
            self.next = Some(question);
        }
        Some(asked.map(|()| page))
    }
}

/// Opens the catalog that a text names: `sqlite:PATH` or `postgres://USER@HOST:PORT/DB`. Makes it first if `create`.
pub fn open(text: &str, create: bool) -> Result<Arc<dyn Catalog>> {
    let is_of = |scheme| {
        text.strip_prefix(scheme)
            .is_some_and(|rest: &str| !rest.is_empty())
    };
    if is_of("postgres://") || is_of("postgresql://") {
        return Ok(Arc::new(postgres::Postgres::open(text, create)?));
    }
    match text.strip_prefix("sqlite:") {
        Some("") | None => Err(Refusal::of_kind(
            Kind::Invalid,
            format!("'{text}' does not name a catalog"),
        )
        .next("write sqlite:PATH or postgres://USER@HOST:PORT/DATABASE")),
        Some(path) => Ok(Arc::new(sqlite::Sqlite::open(Path::new(path), create)?)),
    }
}
