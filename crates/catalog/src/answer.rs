//! The answers to questions, read from the tables a page at a time.

use crate::{
    CatalogAnswer, CatalogEntry, CatalogFragment, CatalogHome, CatalogRule, Each, HomeWord, Intent,
    IntentDeed, Location, MadeFile, Measured, PAGE, Question, Ran, Refusal, Result, Todo,
    db::{Db, DbRow, DbValue, KeyList, Sql},
    history,
};
use godwit_core::{Kind, Url};
use godwit_wire::door::call::{Name, Text, Time};
use std::{
    collections::{BTreeMap, HashMap, hash_map},
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::LazyLock,
    time::SystemTime,
};

/// The number of the root, which is in no collection.
pub(crate) const ROOT: u64 = 1;

/// The answers of one page.
#[derive(Default)]
pub(crate) struct AnswerPage {
    answers: Vec<CatalogAnswer>,
    urls: HashMap<u64, Option<Url>>,
}

impl AnswerPage {
    /// Hands the answers over.
    pub(crate) fn tell(self, each: &mut Each<'_>) -> Result<()> {
        self.answers.into_iter().try_for_each(each)
    }

    fn room(&self) -> usize {
        PAGE.saturating_sub(self.answers.len())
    }

    /// Returns the URL of a path below a location.
    fn url(&mut self, location: u64, base: &str, path: &Path) -> String {
        let parsed = self.urls.entry(location);
        let parsed = parsed.or_insert_with(|| base.parse().ok());
        let below = |base: &Url| match path.as_os_str().is_empty() {
            true => Some(base.clone()),
            false => base.join(path.as_os_str().as_bytes()).ok(),
        };
        let url = parsed.as_ref().and_then(below);
        url.map(|url| url.to_string()).unwrap_or_default()
    }
}

/// A name that the tables know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundFile {
    pub(crate) file: u64,
    pub(crate) collection: bool,
    /// True for a file that consists of fragments, which are its children.
    pub(crate) fragmented: bool,
}

/// The kinds of names in the tables.
pub(crate) mod kinds {
    pub(crate) const FILE: u64 = 0;
    pub(crate) const COLLECTION: u64 = 1;
    pub(crate) const FRAGMENTED: u64 = 2;
    pub(crate) const DRAFT: u64 = 3;
}

impl FoundFile {
    const ROOT: Self = Self {
        file: ROOT,
        collection: true,
        fragmented: false,
    };

    fn read(row: &mut DbRow, at: usize) -> Result<Self> {
        let (file, kind) = (row.get(at)?, row.get::<u64>(at + 1)?);
        Ok(Self {
            file,
            collection: matches!(kind, kinds::COLLECTION | kinds::DRAFT),
            fragmented: kind == kinds::FRAGMENTED,
        })
    }
}

/// Finds a name.
pub(crate) fn find(db: &dyn Db, name: &Path) -> Result<Option<FoundFile>> {
    let segments: Vec<&[u8]> = name.iter().map(OsStrExt::as_bytes).collect();
    let mut found = FoundFile::ROOT;
    for some in segments.chunks(JOINED_MAX) {
        let mut params = vec![found.file.param()];
        params.extend(some.iter().map(Sql::param));
        let rows = db.rows(&FIND[some.len() - 1], &params)?;
        let Some(mut row) = rows.into_iter().next() else {
            return Ok(None);
        };
        found = FoundFile::read(&mut row, 0)?;
    }
    Ok(Some(found))
}

/// The most parts of a name that one statement joins.
const JOINED_MAX: usize = 6;

/// The statements that find a name of one part, of two parts, and so on.
static FIND: LazyLock<[String; JOINED_MAX]> = LazyLock::new(|| {
    std::array::from_fn(|more| {
        let join = |at| {
            format!(
                " JOIN names n{at} ON n{at}.parent = n{}.file AND n{at}.name = ?{}",
                at - 1,
                at + 2
            )
        };
        let joins: String = (1..=more).map(join).collect();
        format!(
            "SELECT n{more}.file, n{more}.collection FROM names n0{joins} WHERE n0.parent = ?1 AND n0.name = ?2"
        )
    })
});

/// Finds a name in a collection.
pub(crate) fn child(db: &dyn Db, parent: u64, name: &[u8]) -> Result<Option<FoundFile>> {
    let row = db.first(&FIND[0], &[&parent, &name])?;
    row.map(|mut row| FoundFile::read(&mut row, 0)).transpose()
}

/// Finds names in a collection.
pub(crate) fn children(
    db: &dyn Db,
    parent: u64,
    names: &[&[u8]],
) -> Result<HashMap<Vec<u8>, FoundFile>> {
    let sql = "SELECT name, file, collection FROM names WHERE name IN (?1) AND parent = ?2";
    let rows = db.rows_in(sql, KeyList::Names(names), &[&parent])?;
    rows.into_iter()
        .map(|mut row| Ok((row.get(0)?, FoundFile::read(&mut row, 1)?)))
        .collect()
}

/// Finds a collection, or says why not.
pub(crate) fn collection(db: &dyn Db, name: &Path) -> Result<u64> {
    match find(db, name)? {
        Some(FoundFile {
            file,
            collection: true,
            ..
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
pub(crate) fn answer(db: &dyn Db, question: &Question, page: &mut AnswerPage) -> Result<()> {
    match question {
        Question::Locate { names } => locate(db, names, page),
        Question::List {
            name,
            deep,
            homes,
            after,
        } => {
            let file = collection(db, &name.0)?;
            let after = after.as_ref().map(|name| name.0.as_path());
            let listing = ListingScope {
                deep: *deep,
                homes: *homes,
            };
            if listing.list(db, (file, Path::new("")), after, 0, page)? {
                page.answers.push(CatalogAnswer::More);
            }
            Ok(())
        }
        Question::Locations { name, count } => locations(db, &name.0, *count, page),
        Question::Holdings { location, after } => holdings(db, *location, after.as_ref(), page),
        Question::Intents { ended, name } => {
            intents(db, *ended, name.as_ref().map(|name| name.0.as_path()), page)
        }
        Question::Weather {} => weather(db, page),
        Question::Rules { name } => rules(db, &name.0, page),
        Question::History { name } => {
            let made = made(db, &name.0)?;
            page.answers
                .extend(made.map(|made| CatalogAnswer::Made(Box::new(made))));
            Ok(())
        }
        Question::Todo { name } => todo(db, name.as_ref().map(|name| name.0.as_path()), page),
    }
}

struct ListingScope {
    deep: bool,
    homes: bool,
}

impl ListingScope {
    /// Lists a collection behind `after`; `true`: the page is full, and there may be more.
    fn list(
        &self,
        db: &dyn Db,
        (parent, below): (u64, &Path),
        after: Option<&Path>,
        depth: usize,
        page: &mut AnswerPage,
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
            let sql = "SELECT name, file, collection FROM names WHERE parent = ?1 AND name > ?2 AND collection < 3
                ORDER BY name LIMIT 200";
            let mut rows = Vec::new();
            // No name is empty.
            for mut row in db.select(sql, &[&parent, &from.clone().unwrap_or_default()])? {
                rows.push((path(row.get(0)?), FoundFile::read(&mut row, 1)?));
            }
            let Some((last, _)) = rows.last() else {
                return Ok(false);
            };
            from = Some(last.as_os_str().as_bytes().to_vec());
            let is_cut = rows.len() > page.room();
            rows.truncate(page.room());
            for (name, _) in &mut rows {
                *name = below.join(&name);
            }
            for entry in entries(db, rows, self.homes, page)? {
                if page.room() == 0 {
                    return Ok(true);
                }
                let (name, file) = (entry.name.0.clone(), entry.file);
                let is_entered = self.deep && entry.collection;
                page.answers.push(CatalogAnswer::Entry(Box::new(entry)));
                if is_entered && self.list(db, (file, &name), None, depth + 1, page)? {
                    return Ok(true);
                }
            }
            if is_cut {
                return Ok(true);
            }
        }
    }
}

fn locate(db: &dyn Db, names: &[Name], page: &mut AnswerPage) -> Result<()> {
    let mut siblings: HashMap<&Path, Vec<&[u8]>> = HashMap::new();
    for Name(name) in names {
        if let (Some(parent), Some(last)) = (name.parent(), name.file_name()) {
            siblings.entry(parent).or_default().push(last.as_bytes());
        }
    }
    let mut known = HashMap::new();
    for (parent, lasts) in siblings.iter().filter(|(_, lasts)| lasts.len() > 1) {
        let found = match find(db, parent)? {
            Some(parent) => children(db, parent.file, lasts)?,
            None => HashMap::new(),
        };
        known.insert(*parent, found);
    }
    let mut found = Vec::new();
    for Name(name) in names {
        let one = match (
            name.parent().and_then(|parent| known.get(parent)),
            name.file_name(),
        ) {
            (Some(known), Some(last)) => known.get(last.as_bytes()).copied(),
            _ => find(db, name)?,
        };
        found.extend(one.map(|one| (name.clone(), one)));
    }
    let mut entries = entries(db, found, true, page)?.into_iter().peekable();
    for name in names {
        let entry = entries.next_if(|entry| entry.name == *name);
        page.answers.push(match entry {
            Some(entry) => CatalogAnswer::Entry(Box::new(entry)),
            None => CatalogAnswer::Missing(name.clone()),
        });
    }
    Ok(())
}

/// Returns the entries of names that were found, in their order.
fn entries(
    db: &dyn Db,
    found: Vec<(PathBuf, FoundFile)>,
    is_told: bool,
    page: &mut AnswerPage,
) -> Result<Vec<CatalogEntry>> {
    let mut all: Vec<u64> = found.iter().map(|(_, found)| found.file).collect();
    all.sort_unstable();
    all.dedup();
    let versions = versions(db, &all)?;
    let (homes, attributes) = match is_told {
        true => (homes_of(db, &all, page)?, attributes(db, &all)?),
        false => Default::default(),
    };
    let fragmented = found
        .iter()
        .filter(|(_, found)| found.fragmented && is_told);
    let fragments = match fragmented.map(|(_, found)| found.file).collect::<Vec<_>>() {
        files if files.is_empty() => HashMap::new(),
        files => fragments(db, &files, page)?,
    };
    let one = |(
        name,
        FoundFile {
            file,
            collection,
            fragmented,
        },
    )| {
        let mut entry = CatalogEntry {
            name: Name(name),
            collection,
            file,
            // Several names of one file tell the same.
            homes: homes.get(&file).cloned().unwrap_or_default(),
            attributes: attributes.get(&file).cloned().unwrap_or_default(),
            ..CatalogEntry::default()
        };
        if let Some(version) = versions.get(&file) {
            version.describe(&mut entry);
        }
        if fragmented {
            put_fragments(&mut entry, fragments.get(&file));
        }
        entry
    };
    Ok(found.into_iter().map(one).collect())
}

/// Returns the fragments of files, each as an entry, in their order.
fn fragments(
    db: &dyn Db,
    files: &[u64],
    page: &mut AnswerPage,
) -> Result<HashMap<u64, Vec<CatalogEntry>>> {
    let sql = "SELECT parent, name, file FROM names WHERE parent IN (?1)";
    let mut found = Vec::new();
    let mut files = files.to_vec();
    files.sort_unstable();
    files.dedup();
    for mut row in db.rows_in(sql, KeyList::Numbers(&files), &[])? {
        let (parent, name): (u64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        found.push((parent, index_of(&name), row.get::<u64>(2)?));
    }
    found.sort_unstable();
    let mut all: Vec<u64> = found.iter().map(|(_, _, file)| *file).collect();
    all.sort_unstable();
    all.dedup();
    let (versions, mut homes) = (versions(db, &all)?, homes_of(db, &all, page)?);
    let mut parts: HashMap<u64, Vec<CatalogEntry>> = HashMap::new();
    for (parent, _, file) in found {
        let mut entry = CatalogEntry {
            file,
            homes: homes.remove(&file).unwrap_or_default(),
            ..CatalogEntry::default()
        };
        if let Some(version) = versions.get(&file) {
            version.describe(&mut entry);
        }
        parts.entry(parent).or_default().push(entry);
    }
    Ok(parts)
}

/// Reads the index in the name of a fragment.
fn index_of(name: &[u8]) -> Option<u64> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix('#')?;
    name.split_once('.')?.0.parse().ok()
}

/// Tells the fragments of a file, and their homes among its own.
fn put_fragments(entry: &mut CatalogEntry, parts: Option<&Vec<CatalogEntry>>) {
    let mut start = 0;
    for (index, part) in (0..).zip(parts.into_iter().flatten()) {
        let (size, version) = (part.size.unwrap_or_default(), part.version);
        let homes = part.homes.iter().map(|home| CatalogHome {
            range: Some((start, start + size)),
            fragment: Some(index),
            version: if home.version == version {
                entry.version
            } else {
                0
            },
            ..home.clone()
        });
        entry.homes.extend(homes);
        entry.fragments.push(CatalogFragment {
            file: part.file,
            version,
            start,
            size,
            digests: part.digests.clone(),
        });
        start += size;
    }
}

/// A row of the versions.
pub(crate) struct VersionRow {
    pub(crate) number: u64,
    pub(crate) size: Option<u64>,
    pub(crate) digests: String,
    pub(crate) mtime: Option<String>,
    pub(crate) mode: Option<u32>,
}

impl VersionRow {
    fn read(row: &mut DbRow, at: usize) -> Result<Self> {
        Ok(Self {
            number: row.get(at)?,
            size: row.get(at + 1)?,
            digests: row.get(at + 2)?,
            mtime: row.get(at + 3)?,
            mode: row.get(at + 4)?,
        })
    }

    fn describe(&self, entry: &mut CatalogEntry) {
        entry.version = self.number;
        entry.size = self.size;
        entry.digests = digests(&self.digests);
        entry.mode = self.mode;
        entry.mtime = self.mtime.as_deref().and_then(Time::read);
    }
}

/// The columns of a version.
const VERSION: &str = "v.number, size, digests, mtime, mode";

/// Returns the current versions of files.
fn versions(db: &dyn Db, files: &[u64]) -> Result<HashMap<u64, VersionRow>> {
    let sql = format!(
        "SELECT file, {VERSION} FROM versions v WHERE file IN (?1)
        AND number = (SELECT MAX(number) FROM versions w WHERE w.file = v.file)"
    );
    let rows = db.rows_in(&sql, KeyList::Numbers(files), &[])?;
    rows.into_iter()
        .map(|mut row| Ok((row.get(0)?, VersionRow::read(&mut row, 1)?)))
        .collect()
}

/// Returns the current version of a file.
pub(crate) fn current(db: &dyn Db, file: u64) -> Result<Option<VersionRow>> {
    Ok(versions(db, &[file])?.remove(&file))
}

/// Reads digests as they stand in a column: with spaces between.
pub(crate) fn digests(text: &str) -> Vec<Text<godwit_core::Digest>> {
    text.split(' ')
        .filter_map(|digest| digest.parse().ok())
        .map(Text)
        .collect()
}

const HOME: &str =
    "h.location, path, h.number, first, past, at, state, verified, ours, site, url, h.file";
const HOMES: &str = "FROM homes h JOIN locations l ON l.location = h.location";

/// Reads a home, and the file that it holds.
fn home(row: &mut DbRow, page: &mut AnswerPage) -> Result<(u64, CatalogHome)> {
    let state: String = row.get(6)?;
    let (location, path, url) = (row.get(0)?, path(row.get(1)?), row.get::<String>(10)?);
    let home = CatalogHome {
        location,
        url: page.url(location, &url, &path),
        path: Name(path),
        version: row.get(2)?,
        range: row.get::<Option<u64>>(3)?.zip(row.get(4)?),
        fragment: None,
        offset: row.get(5)?,
        state: HomeWord::read(&state).unwrap_or(HomeWord(godwit_core::HomeState::Lost)),
        verified_s: row.get(7)?,
        ours: row.get(8)?,
        site: row.get(9)?,
    };
    Ok((row.get(11)?, home))
}

fn homes_of(
    db: &dyn Db,
    files: &[u64],
    page: &mut AnswerPage,
) -> Result<HashMap<u64, Vec<CatalogHome>>> {
    let sql =
        format!("SELECT {HOME} {HOMES} WHERE file IN (?1) ORDER BY number DESC, h.location, path");
    let mut all: HashMap<u64, Vec<CatalogHome>> = HashMap::new();
    for mut row in db.rows_in(&sql, KeyList::Numbers(files), &[])? {
        let (file, home) = home(&mut row, page)?;
        all.entry(file).or_default().push(home);
    }
    Ok(all)
}

/// Returns what users said of entries and locations.
fn attributes(db: &dyn Db, entries: &[u64]) -> Result<HashMap<u64, BTreeMap<String, String>>> {
    let sql = "SELECT entry, key, value FROM attributes WHERE entry IN (?1)";
    let mut all: HashMap<u64, BTreeMap<_, _>> = HashMap::new();
    for mut row in db.rows_in(sql, KeyList::Numbers(entries), &[])? {
        let entry = all.entry(row.get(0)?).or_default();
        entry.insert(row.get(1)?, row.get(2)?);
    }
    Ok(all)
}

/// Returns a name of each collection or file: the first in the order of the numbers of its collections.
pub(crate) fn names_of(db: &dyn Db, files: &[u64]) -> Result<HashMap<u64, PathBuf>> {
    let sql = "SELECT file, parent, name FROM names WHERE file IN (?1) ORDER BY file, parent, name";
    let mut above: HashMap<u64, (u64, Vec<u8>)> = HashMap::new();
    let mut next = files.to_vec();
    for _ in 0..DEPTH_MAX {
        let mut parents = Vec::new();
        for mut row in db.rows_in(sql, KeyList::Numbers(&next), &[])? {
            let (file, parent) = (row.get(0)?, row.get(1)?);
            if let hash_map::Entry::Vacant(free) = above.entry(file) {
                free.insert((parent, row.get(2)?));
                parents.push(parent);
            }
        }
        parents.sort_unstable();
        parents.dedup();
        parents.retain(|parent| !above.contains_key(parent));
        if parents.is_empty() {
            break;
        }
        next = parents;
    }
    let name = |file: &u64| {
        let parts = std::iter::successors(above.get(file), |(parent, _)| above.get(parent));
        let mut parts: Vec<_> = parts
            .take(DEPTH_MAX)
            .map(|(_, name)| path(name.clone()))
            .collect();
        parts.reverse();
        (*file, parts.into_iter().collect())
    };
    Ok(files.iter().map(name).collect())
}

/// Returns a name of a collection or file.
pub(crate) fn name_of(db: &dyn Db, file: u64) -> Result<PathBuf> {
    Ok(names_of(db, &[file])?.remove(&file).unwrap_or_default())
}

fn locations(db: &dyn Db, name: &Path, count: bool, page: &mut AnswerPage) -> Result<()> {
    // Those of the collection of a file are also those of its fragments.
    if !find(db, name)?.is_some_and(|found| found.fragmented) {
        collection(db, name)?;
    }
    let sql = "SELECT location, collection, site, url, whole, CASE WHEN ?1 > 0 THEN
        (SELECT COUNT(*) FROM homes h WHERE h.location = l.location) END FROM locations l ORDER BY location";
    let mut found: Vec<(u64, Location)> = Vec::new();
    for mut row in db.select(sql, &[&count])? {
        let location = Location {
            location: row.get(0)?,
            site: row.get(2)?,
            url: row.get(3)?,
            whole: row.get(4)?,
            homes: row.get(5)?,
            ..Location::default()
        };
        found.push((row.get(1)?, location));
    }
    let collections: Vec<u64> = found.iter().map(|(collection, _)| *collection).collect();
    let numbers: Vec<u64> = found.iter().map(|(_, at)| at.location).collect();
    let names = names_of(db, &collections)?;
    let mut attributes = attributes(db, &numbers)?;
    for (collection, mut location) in found {
        location.name = Name(names.get(&collection).cloned().unwrap_or_default());
        if location.name.0.starts_with(name) || name.starts_with(&location.name.0) {
            let said = attributes.remove(&location.location);
            location.attributes = said.unwrap_or_default();
            page.answers.push(CatalogAnswer::Location(location));
        }
    }
    Ok(())
}

fn holdings(db: &dyn Db, location: u64, after: Option<&Name>, page: &mut AnswerPage) -> Result<()> {
    // A path may be empty, and a database finds only one bound by its index.
    let (is_behind, after) = match after {
        Some(name) => (">", name.0.as_os_str().as_bytes()),
        None => (">=", &[][..]),
    };
    // One walk through the tables, in which a file with several names has several rows.
    let sql = format!(
        "SELECT {HOME}, n.parent, n.name, {VERSION} {HOMES} LEFT JOIN names n ON n.file = h.file
        LEFT JOIN versions v ON v.file = h.file
        AND v.number = (SELECT MAX(number) FROM versions w WHERE w.file = h.file)
        WHERE h.location = ?1 AND path {is_behind} ?2 ORDER BY path, n.parent, n.name LIMIT ?3"
    );
    let rows = db.select(&sql, &[&location, &after, &PAGE])?;
    let is_last = rows.len() < PAGE;
    let (mut found, mut parents): (Vec<(u64, CatalogEntry)>, Vec<u64>) = Default::default();
    for mut row in rows {
        let (file, home) = home(&mut row, page)?;
        if found
            .last()
            .is_some_and(|(_, last)| last.homes[0].path == home.path)
        {
            continue;
        }
        let parent = row.get::<Option<u64>>(12)?;
        let name = row.get::<Option<Vec<u8>>>(13)?.unwrap_or_default();
        let mut entry = CatalogEntry {
            name: Name(path(name)),
            file,
            homes: vec![home],
            ..CatalogEntry::default()
        };
        if !matches!(row.0[14], DbValue::Null) {
            VersionRow::read(&mut row, 14)?.describe(&mut entry);
        }
        let parent = parent.unwrap_or(ROOT);
        if parents.last() != Some(&parent) {
            parents.push(parent);
        }
        found.push((parent, entry));
    }
    parents.sort_unstable();
    parents.dedup();
    let parents = names_of(db, &parents)?;
    for (parent, mut entry) in found {
        if let Some(parent) = parents
            .get(&parent)
            .filter(|name| !name.as_os_str().is_empty())
        {
            entry.name = Name(parent.join(&entry.name.0));
        }
        page.answers.push(CatalogAnswer::Entry(Box::new(entry)));
    }
    if !is_last {
        page.answers.push(CatalogAnswer::More);
    }
    Ok(())
}

/// The words of the deeds in the tables.
pub(crate) const DEEDS: [(IntentDeed, &str); 4] = [
    (IntentDeed::Write, "write"),
    (IntentDeed::Copy, "copy"),
    (IntentDeed::Delete, "delete"),
    (IntentDeed::Draft, "draft"),
];

/// Reads an intent, its URL empty, the file that had its name, and the URL of its location.
pub(crate) fn intent(mut row: DbRow) -> Result<(Intent, Option<u64>, String)> {
    let deed: String = row.get(1)?;
    let deed = DEEDS.iter().find(|(_, word)| *word == deed);
    let digest: Option<String> = row.get(7)?;
    let intent = Intent {
        intent: row.get(0)?,
        deed: deed.map_or(IntentDeed::Delete, |(deed, _)| *deed),
        name: Name(path(row.get(2)?)),
        location: row.get(3)?,
        path: Name(path(row.get(4)?)),
        base: row.get(5)?,
        size: row.get(6)?,
        digest: digest.and_then(|text| text.parse().ok()).map(Text),
        holder: row.get(8)?,
        ended: row.get::<u64>(9)? <= now_s(),
        url: String::new(),
    };
    Ok((intent, row.get(10)?, row.get(11)?))
}

/// The columns of an intent.
pub(crate) const INTENTS: &str =
    "SELECT intent, deed, name, i.location, path, base, size, digest, holder, until, file, COALESCE(url, '')
    FROM intents i LEFT JOIN locations l ON l.location = i.location";

fn intents(db: &dyn Db, ended: bool, name: Option<&Path>, page: &mut AnswerPage) -> Result<()> {
    // The names below begin with the name and a slash; the byte after the slash ends their range.
    let name = name.map(|name| name.as_os_str().as_bytes());
    let name = name.filter(|name| !name.is_empty());
    let below = name.map(|name| [name, b"/"].concat());
    let past = name.map(|name| [name, b"0"].concat());
    let sql = format!(
        "{INTENTS} WHERE name = ?1 OR name > ?2 AND name < ?3 OR ?1 IS NULL ORDER BY intent"
    );
    for row in db.select(&sql, &[&name, &below, &past])? {
        let (mut intent, _, url) = intent(row)?;
        if intent.ended || !ended {
            intent.url = page.url(intent.location, &url, &intent.path.0);
            page.answers.push(CatalogAnswer::Intent(Box::new(intent)));
        }
    }
    Ok(())
}

fn weather(db: &dyn Db, page: &mut AnswerPage) -> Result<()> {
    let sql =
        "SELECT reader, source, bytes, took_ms, fault, at FROM weather ORDER BY reader, source, at";
    for mut row in db.select(sql, &[])? {
        page.answers.push(CatalogAnswer::Weather(Measured {
            to: row.get(0)?,
            from: row.get(1)?,
            bytes: row.get(2)?,
            took_ms: row.get(3)?,
            fault: row.get(4)?,
            at_s: row.get(5)?,
        }));
    }
    Ok(())
}

/// How deep collections may lie in each other.
pub(crate) const DEPTH_MAX: usize = 512;

/// Answers with the rules of a collection.
fn rules(db: &dyn Db, name: &Path, page: &mut AnswerPage) -> Result<()> {
    collection(db, name)?;
    let mut found: Vec<(u64, CatalogRule)> = Vec::new();
    for mut row in db.select(
        "SELECT rule, collection, said, due FROM rules ORDER BY rule",
        &[],
    )? {
        let rule = CatalogRule {
            rule: row.get(0)?,
            text: row.get(2)?,
            due_s: row.get(3)?,
            ..CatalogRule::default()
        };
        found.push((row.get(1)?, rule));
    }
    let collections: Vec<u64> = found.iter().map(|(collection, _)| *collection).collect();
    let names = names_of(db, &collections)?;
    for (collection, mut rule) in found {
        rule.name = Name(names.get(&collection).cloned().unwrap_or_default());
        if rule.name.0.as_os_str().is_empty() && collection != ROOT {
            // The collection was removed.
            continue;
        }
        if rule.name.0.starts_with(name) || name.starts_with(&rule.name.0) {
            page.answers.push(CatalogAnswer::Rule(rule));
        }
    }
    Ok(())
}

/// Answers with files whose turn it is, each with its homes.
fn todo(db: &dyn Db, name: Option<&Path>, page: &mut AnswerPage) -> Result<()> {
    let rows = match name {
        Some(name) => {
            let found = find(db, name)?;
            let found = found.ok_or_else(|| about(Kind::Missing, name, "is not in the catalog"))?;
            let sql = "SELECT file, seq, tries, again, said FROM todo WHERE file = ?1";
            db.select(sql, &[&found.file])?
        }
        None => {
            let sql = "SELECT file, seq, tries, again, said FROM todo WHERE again <= ?1 ORDER BY again, file LIMIT ?2";
            db.select(sql, &[&now_s(), &PAGE])?
        }
    };
    let mut found: Vec<(u64, Todo)> = Vec::new();
    for mut row in rows {
        let todo = Todo {
            seq: row.get(1)?,
            tries: row.get(2)?,
            again_s: row.get(3)?,
            said: row.get(4)?,
            ..Todo::default()
        };
        found.push((row.get(0)?, todo));
    }
    let files: Vec<u64> = found.iter().map(|(file, _)| *file).collect();
    let names = names_of(db, &files)?;
    for (file, mut todo) in found {
        // Of a file that is gone only the number is left.
        todo.entry.file = file;
        if let Some(name) = names.get(&file).filter(|name| !name.as_os_str().is_empty()) {
            let mut one = AnswerPage::default();
            let names = vec![Name(name.clone())];
            locate(db, &names, &mut one)?;
            if let Some(CatalogAnswer::Entry(entry)) = one.answers.pop() {
                todo.entry = *entry;
            }
        }
        page.answers.push(CatalogAnswer::Todo(Box::new(todo)));
    }
    Ok(())
}

/// Returns the run that made the current version of a name, or the last version of a name that is gone.
fn made(db: &dyn Db, name: &Path) -> Result<Option<MadeFile>> {
    let found = find(db, name)?;
    if found.is_some_and(|found| found.collection) {
        return Err(about(Kind::IsDirectory, name, "is a collection"));
    }
    let columns = "SELECT m.number, m.output, u.said, c.said, c.proved FROM made m
        JOIN runs u ON u.run = m.run JOIN recipes c ON c.recipe = u.recipe";
    let row = match found {
        Some(found) => {
            let number = current(db, found.file)?.map_or(0, |version| version.number);
            let sql = format!("{columns} WHERE m.file = ?1 AND m.number = ?2");
            db.first(&sql, &[&found.file, &number])?
        }
        None => {
            let sql =
                format!("{columns} WHERE m.name = ?1 ORDER BY m.file DESC, m.number DESC LIMIT 1");
            db.first(&sql, &[&name.as_os_str().as_bytes()])?
        }
    };
    let Some(mut row) = row else {
        return match found {
            Some(_) => Ok(None),
            None => Err(about(Kind::Missing, name, "is not in the catalog")),
        };
    };
    let (run, recipe): (String, String) = (row.get(2)?, row.get(3)?);
    let run: Ran = serde_json::from_str(&run).map_err(|_| history::lost())?;
    let recipe = serde_json::from_str(&recipe).map_err(|_| history::lost())?;
    Ok(Some(MadeFile {
        name: Name(name.into()),
        version: row.get(0)?,
        output: row.get(1)?,
        ran: Ran { recipe, ..run },
        is_proved: row.get(4)?,
    }))
}
