//! The answers to questions, read from the tables a page at a time.

use crate::{
    Answer, Deed, Each, Entry, Home, Intent, Location, Measured, PAGE, Question, Refusal, Result,
    State, refused::refused,
};
use godwit_core::{Kind, Url};
use godwit_wire::door::call::{Name, Text, Time};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The number of the root, which is in no collection.
pub(crate) const ROOT: u64 = 1;

/// The answers of one page.
#[derive(Default)]
pub(crate) struct Page {
    answers: Vec<Answer>,
    urls: HashMap<u64, (String, Option<Url>)>,
}

impl Page {
    /// Hands the answers over.
    pub(crate) fn tell(self, each: &mut Each<'_>) -> Result<()> {
        self.answers.into_iter().try_for_each(each)
    }

    fn is_full(&self) -> bool {
        self.answers.len() >= PAGE
    }

    /// Returns the site of a location, and the URL of a path below it.
    fn place(&mut self, db: &Connection, location: u64, path: &Path) -> Result<(String, String)> {
        let (site, base) = match self.urls.get(&location) {
            Some(known) => known,
            None => {
                let (site, url): (String, String) = db
                    .prepare_cached("SELECT site, url FROM locations WHERE location = ?1")
                    .and_then(|mut s| s.query_row([location], |row| Ok((row.get(0)?, row.get(1)?))))
                    .map_err(refused)?;
                self.urls
                    .entry(location)
                    .or_insert((site, url.parse().ok()))
            }
        };
        Ok((site.clone(), url_of(base.as_ref(), path)))
    }
}

fn url_of(base: Option<&Url>, path: &Path) -> String {
    let below = |base: &Url| match path.as_os_str().is_empty() {
        true => Some(base.clone()),
        false => base.join(path.as_os_str().as_bytes()).ok(),
    };
    base.and_then(below)
        .map(|url| url.to_string())
        .unwrap_or_default()
}

/// A name that the tables know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) file: u64,
    pub(crate) collection: bool,
}

/// Finds a name.
pub(crate) fn find(db: &Connection, name: &Path) -> Result<Option<Found>> {
    let mut found = Found {
        file: ROOT,
        collection: true,
    };
    for segment in name.iter() {
        if !found.collection {
            return Ok(None);
        }
        match child(db, found.file, segment.as_bytes())? {
            Some(next) => found = next,
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// Finds a name in a collection.
pub(crate) fn child(db: &Connection, parent: u64, name: &[u8]) -> Result<Option<Found>> {
    db.prepare_cached("SELECT file, collection FROM names WHERE parent = ?1 AND name = ?2")
        .and_then(|mut s| {
            let found = |row: &Row<'_>| {
                Ok(Found {
                    file: row.get(0)?,
                    collection: row.get(1)?,
                })
            };
            s.query_row(params![parent, name], found).optional()
        })
        .map_err(refused)
}

/// Finds a collection, or says why not.
pub(crate) fn collection(db: &Connection, name: &Path) -> Result<u64> {
    match find(db, name)? {
        Some(Found {
            file,
            collection: true,
        }) => Ok(file),
        Some(_) => Err(about(Kind::NotDirectory, name, "is a file")),
        None => Err(about(Kind::Missing, name, "is not in the catalog")),
    }
}

/// Refuses something of a name.
pub(crate) fn about(kind: Kind, name: &Path, said: &str) -> Refusal {
    let shown = name.display();
    Refusal::of_kind(kind, format!("grid:/{shown} {said}")).about(format!("grid:/{shown}"))
}

/// Reads a path from a column.
pub(crate) fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// Returns the time in seconds since the epoch.
pub(crate) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Answers a question.
pub(crate) fn answer(db: &Connection, question: &Question, page: &mut Page) -> Result<()> {
    match question {
        Question::Locate { names } => {
            for name in names {
                let answer = match find(db, &name.0)? {
                    Some(found) => {
                        Answer::Entry(Box::new(entry(db, name.0.clone(), found, true, page)?))
                    }
                    None => Answer::Missing(name.clone()),
                };
                page.answers.push(answer);
            }
            Ok(())
        }
        Question::List {
            name,
            deep,
            homes,
            after,
        } => {
            let file = collection(db, &name.0)?;
            let after = after.as_ref().map(|name| name.0.as_path());
            let listing = Listing {
                deep: *deep,
                homes: *homes,
            };
            if listing.list(db, (file, Path::new("")), after, 0, page)? {
                page.answers.push(Answer::More);
            }
            Ok(())
        }
        Question::Locations { name, count } => locations(db, &name.0, *count, page),
        Question::Holdings { location, after } => holdings(db, *location, after.as_ref(), page),
        Question::Intents { ended, name } => {
            intents(db, *ended, name.as_ref().map(|name| name.0.as_path()), page)
        }
        Question::Weather {} => weather(db, page),
    }
}

struct Listing {
    deep: bool,
    homes: bool,
}

impl Listing {
    /// Lists a collection behind `after`; `true`: the page is full, and there may be more.
    fn list(
        &self,
        db: &Connection,
        (parent, below): (u64, &Path),
        after: Option<&Path>,
        depth: usize,
        page: &mut Page,
    ) -> Result<bool> {
        if depth > DEPTH_MAX {
            return Err(about(Kind::Loop, below, "lies too deep"));
        }
        let mut segments = after.into_iter().flat_map(Path::iter);
        let mut from = segments.next().map(|segment| segment.as_bytes().to_vec());
        let rest: PathBuf = segments.collect();
        // The page before ended at this collection, or in it.
        if let Some(first) = from.as_ref().filter(|_| self.deep)
            && let Some(found) = child(db, parent, first)?
            && found.collection
        {
            let rest = (!rest.as_os_str().is_empty()).then_some(rest.as_path());
            let name = below.join(path(first.clone()));
            if self.list(db, (found.file, &name), rest, depth + 1, page)? {
                return Ok(true);
            }
        }
        loop {
            let rows: Vec<(Vec<u8>, Found)> = db
                .prepare_cached(
                    "SELECT name, file, collection FROM names WHERE parent = ?1 AND (?2 IS NULL OR name > ?2)
                     ORDER BY name LIMIT 200",
                )
                .and_then(|mut s| {
                    let row = |row: &Row<'_>| {
                        Ok((row.get(0)?, Found { file: row.get(1)?, collection: row.get(2)? }))
                    };
                    s.query_map(params![parent, from], row)?.collect()
                })
                .map_err(refused)?;
            let Some((last, _)) = rows.last() else {
                return Ok(false);
            };
            from = Some(last.clone());
            for (name, found) in rows {
                if page.is_full() {
                    return Ok(true);
                }
                let name = below.join(path(name));
                let one = entry(db, name.clone(), found, self.homes, page)?;
                page.answers.push(Answer::Entry(Box::new(one)));
                if self.deep
                    && found.collection
                    && self.list(db, (found.file, &name), None, depth + 1, page)?
                {
                    return Ok(true);
                }
            }
        }
    }
}

fn entry(
    db: &Connection,
    name: PathBuf,
    found: Found,
    homes: bool,
    page: &mut Page,
) -> Result<Entry> {
    let mut entry = Entry {
        name: Name(name),
        collection: found.collection,
        file: found.file,
        ..Entry::default()
    };
    if !found.collection {
        describe(db, &mut entry)?;
    }
    if homes {
        if !found.collection {
            entry.homes = homes_of(db, found.file, page)?;
        }
        entry.attributes = attributes(db, found.file)?;
    }
    Ok(entry)
}

/// Fills in the current version.
fn describe(db: &Connection, entry: &mut Entry) -> Result<()> {
    let Some(version) = current(db, entry.file)? else {
        return Ok(());
    };
    entry.version = version.number;
    entry.size = version.size;
    entry.digests = digests(&version.digests);
    entry.mode = version.mode;
    entry.mtime = version.mtime.and_then(|text| Time::read(&text));
    Ok(())
}

/// A row of the versions.
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) size: Option<u64>,
    pub(crate) digests: String,
    pub(crate) mtime: Option<String>,
    pub(crate) mode: Option<u32>,
}

/// Returns the current version of a file.
pub(crate) fn current(db: &Connection, file: u64) -> Result<Option<Version>> {
    db.prepare_cached(
        "SELECT number, size, digests, mtime, mode FROM versions WHERE file = ?1 ORDER BY number DESC LIMIT 1",
    )
    .and_then(|mut s| {
        let version = |row: &Row<'_>| {
            Ok(Version {
                number: row.get(0)?,
                size: row.get(1)?,
                digests: row.get(2)?,
                mtime: row.get(3)?,
                mode: row.get(4)?,
            })
        };
        s.query_row([file], version).optional()
    })
    .map_err(refused)
}

/// Reads digests as they stand in a column: with spaces between.
pub(crate) fn digests(text: &str) -> Vec<Text<godwit_core::Digest>> {
    text.split(' ')
        .filter_map(|digest| digest.parse().ok())
        .map(Text)
        .collect()
}

const HOMES: &str =
    "SELECT location, path, number, first, past, at, state, verified, ours FROM homes";

fn home(row: &Row<'_>) -> rusqlite::Result<Home> {
    let state: String = row.get(6)?;
    Ok(Home {
        location: row.get(0)?,
        path: Name(path(row.get(1)?)),
        version: row.get(2)?,
        range: row.get::<_, Option<u64>>(3)?.zip(row.get(4)?),
        offset: row.get(5)?,
        state: State::read(&state).unwrap_or(State(godwit_core::HomeState::Lost)),
        verified_s: row.get(7)?,
        ours: row.get(8)?,
        ..Home::default()
    })
}

fn homes_of(db: &Connection, file: u64, page: &mut Page) -> Result<Vec<Home>> {
    let mut homes: Vec<Home> = db
        .prepare_cached(&format!(
            "{HOMES} WHERE file = ?1 ORDER BY number DESC, location, path"
        ))
        .and_then(|mut s| s.query_map([file], home)?.collect())
        .map_err(refused)?;
    for home in &mut homes {
        (home.site, home.url) = page.place(db, home.location, &home.path.0)?;
    }
    Ok(homes)
}

/// Returns what users said of an entry.
fn attributes(db: &Connection, entry: u64) -> Result<BTreeMap<String, String>> {
    db.prepare_cached("SELECT key, value FROM attributes WHERE entry = ?1")
        .and_then(|mut s| {
            s.query_map([entry], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
        .map_err(refused)
}

/// Returns a name of a collection or file, in the order of the numbers of its collections.
pub(crate) fn name_of(db: &Connection, mut file: u64) -> Result<PathBuf> {
    let mut name = PathBuf::new();
    for _ in 0..DEPTH_MAX {
        if file == ROOT {
            break;
        }
        let above: Option<(u64, Vec<u8>)> = db
            .prepare_cached(
                "SELECT parent, name FROM names WHERE file = ?1 ORDER BY parent, name LIMIT 1",
            )
            .and_then(|mut s| {
                s.query_row([file], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()
            })
            .map_err(refused)?;
        let Some((parent, last)) = above else { break };
        name = match name.as_os_str().is_empty() {
            true => path(last),
            false => path(last).join(name),
        };
        file = parent;
    }
    Ok(name)
}

fn locations(db: &Connection, name: &Path, count: bool, page: &mut Page) -> Result<()> {
    collection(db, name)?;
    let rows: Vec<(u64, u64, Location)> = db
        .prepare_cached(
            "SELECT location, collection, site, url, whole, CASE WHEN ?1 THEN
                (SELECT COUNT(*) FROM homes h WHERE h.location = l.location) END FROM locations l ORDER BY location",
        )
        .and_then(|mut s| {
            let row = |row: &Row<'_>| {
                let location = Location {
                    location: row.get(0)?,
                    site: row.get(2)?,
                    url: row.get(3)?,
                    whole: row.get(4)?,
                    homes: row.get(5)?,
                    ..Location::default()
                };
                Ok((row.get(0)?, row.get(1)?, location))
            };
            s.query_map([count], row)?.collect()
        })
        .map_err(refused)?;
    for (number, collection, mut location) in rows {
        location.name = Name(name_of(db, collection)?);
        if location.name.0.starts_with(name) || name.starts_with(&location.name.0) {
            location.attributes = attributes(db, number)?;
            page.answers.push(Answer::Location(location));
        }
    }
    Ok(())
}

fn holdings(db: &Connection, location: u64, after: Option<&Name>, page: &mut Page) -> Result<()> {
    let after = after.map(|name| name.0.as_os_str().as_bytes());
    let rows: Vec<(u64, Home)> = db
        .prepare_cached(
            "SELECT location, path, number, first, past, at, state, verified, ours, file FROM homes
             WHERE location = ?1 AND (?2 IS NULL OR path > ?2) ORDER BY path LIMIT ?3",
        )
        .and_then(|mut s| {
            let row = |row: &Row<'_>| Ok((row.get(9)?, home(row)?));
            s.query_map(params![location, after, PAGE], row)?.collect()
        })
        .map_err(refused)?;
    for (file, mut home) in rows {
        (home.site, home.url) = page.place(db, home.location, &home.path.0)?;
        let mut entry = Entry {
            name: Name(name_of(db, file)?),
            file,
            ..Entry::default()
        };
        describe(db, &mut entry)?;
        entry.homes.push(home);
        page.answers.push(Answer::Entry(Box::new(entry)));
    }
    if page.is_full() {
        page.answers.push(Answer::More);
    }
    Ok(())
}

/// The words of the deeds in the tables.
pub(crate) const DEEDS: [(Deed, &str); 3] = [
    (Deed::Write, "write"),
    (Deed::Copy, "copy"),
    (Deed::Delete, "delete"),
];

/// Reads an intent.
pub(crate) fn intent(row: &Row<'_>) -> rusqlite::Result<Intent> {
    let deed: String = row.get(1)?;
    let deed = DEEDS.iter().find(|(_, word)| *word == deed);
    let digest: Option<String> = row.get(7)?;
    Ok(Intent {
        intent: row.get(0)?,
        deed: deed.map_or(Deed::Delete, |(deed, _)| *deed),
        name: Name(path(row.get(2)?)),
        location: row.get(3)?,
        path: Name(path(row.get(4)?)),
        base: row.get(5)?,
        size: row.get(6)?,
        digest: digest.and_then(|text| text.parse().ok()).map(Text),
        holder: row.get(8)?,
        ended: row.get::<_, u64>(9)? <= now_s(),
        url: String::new(),
    })
}

/// The columns of an intent.
pub(crate) const INTENTS: &str = "SELECT intent, deed, name, location, path, base, size, digest, holder, until, file FROM intents";

fn intents(db: &Connection, ended: bool, name: Option<&Path>, page: &mut Page) -> Result<()> {
    // The names below begin with the name and a slash; the byte after the slash ends their range.
    let name = name.map(|name| name.as_os_str().as_bytes());
    let below = name.map(|name| [name, b"/"].concat());
    let past = name.map(|name| [name, b"0"].concat());
    let rows: Vec<Intent> = db
        .prepare_cached(&format!(
            "{INTENTS} WHERE ?1 IS NULL OR name = ?1 OR name > ?2 AND name < ?3 OR ?1 = X'' ORDER BY intent"
        ))
        .and_then(|mut s| {
            s.query_map(params![name, below, past], intent)?
                .collect()
        })
        .map_err(refused)?;
    for mut intent in rows.into_iter().filter(|intent| intent.ended || !ended) {
        (_, intent.url) = page.place(db, intent.location, &intent.path.0)?;
        page.answers.push(Answer::Intent(Box::new(intent)));
    }
    Ok(())
}

fn weather(db: &Connection, page: &mut Page) -> Result<()> {
    let rows: Vec<Measured> = db
        .prepare_cached("SELECT reader, source, bytes, took_ms, fault, at FROM weather ORDER BY reader, source, at")
        .and_then(|mut s| {
            let row = |row: &Row<'_>| {
                Ok(Measured {
                    to: row.get(0)?,
                    from: row.get(1)?,
                    bytes: row.get(2)?,
                    took_ms: row.get(3)?,
                    fault: row.get(4)?,
                    at_s: row.get(5)?,
                })
            };
            s.query_map([], row)?.collect()
        })
        .map_err(refused)?;
    page.answers.extend(rows.into_iter().map(Answer::Weather));
    Ok(())
}

/// How deep collections may lie in each other.
pub(crate) const DEPTH_MAX: usize = 512;
