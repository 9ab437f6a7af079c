//! The changes that note files: their names, versions and homes.

use super::{Applying, New, bytes, check_equal, check_name, parent, texts};
use crate::{
    CatalogEntry, CatalogHome, Change, Result,
    answer::{FoundFile, about, children, current, digests},
    db::{KeyList, Param, Sql},
};
use godwit_core::Kind;
use godwit_wire::door::call::Time;
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// A file that is to be noted.
pub(super) struct NotedFile<'a> {
    name: &'a Path,
    new: New<'a>,
    /// The number of its version, if the file is new; 0: none is known.
    number: u64,
    /// Its homes, of the current version where they name none.
    homes: Cow<'a, [CatalogHome]>,
    attributes: Option<&'a BTreeMap<String, String>>,
}

/// Returns the file that a change notes.
pub(super) fn note_of(change: &Change) -> Option<NotedFile<'_>> {
    match change {
        Change::Register {
            name,
            size,
            digests,
            mtime,
            mode,
            home,
        } => {
            let home = home.as_ref().map(|home| CatalogHome {
                location: home.location,
                path: home.path.clone(),
                range: home.range,
                offset: home.offset,
                verified_s: home.verified_s,
                ours: home.ours,
                ..CatalogHome::default()
            });
            let new = New {
                size: *size,
                digests,
                mtime: mtime.as_ref(),
                mode: *mode,
            };
            let is_known = size.is_some() || !digests.is_empty() || home.is_some();
            Some(NotedFile {
                name: &name.0,
                new,
                number: u64::from(is_known),
                homes: home.into_iter().collect::<Vec<_>>().into(),
                attributes: None,
            })
        }
        Change::Load(entry) if !entry.collection => Some(NotedFile {
            name: &entry.name.0,
            new: New {
                size: entry.size,
                digests: &entry.digests,
                mtime: entry.mtime.as_ref(),
                mode: entry.mode,
            },
            number: entry.version,
            homes: (&entry.homes).into(),
            attributes: Some(&entry.attributes),
        }),
        _ => None,
    }
}

/// Rows that are to be inserted together.
#[derive(Default)]
struct Rows<'a> {
    names: Vec<Param<'a>>,
    versions: Vec<Param<'a>>,
    homes: Vec<Param<'a>>,
}

impl Applying<'_> {
    pub(super) fn load_collection(&mut self, entry: &CatalogEntry) -> Result<u64> {
        let file = self.collect(&entry.name.0, true)?;
        self.attributes(&entry.name.0, Some(&entry.attributes))?;
        Ok(file)
    }

    fn attributes(&self, name: &Path, all: Option<&BTreeMap<String, String>>) -> Result<()> {
        for (key, value) in all.into_iter().flatten() {
            self.attribute(name, None, key, Some(value))?;
        }
        Ok(())
    }

    /// Notes files: new ones together, then each that was there before. Returns the numbers of their versions.
    pub(super) fn note_all(&mut self, notes: &[NotedFile<'_>]) -> Result<Vec<u64>> {
        let mut siblings: HashMap<u64, Vec<&[u8]>> = HashMap::new();
        let mut places: HashMap<u64, Vec<&[u8]>> = HashMap::new();
        let mut keys = Vec::with_capacity(notes.len());
        for note in notes {
            check_name(note.name)?;
            let Some(last) = note.name.file_name().map(OsStrExt::as_bytes) else {
                return Err(about(Kind::IsDirectory, note.name, "is a collection"));
            };
            let above = self.collection_made(parent(note.name))?;
            siblings.entry(above).or_default().push(last);
            keys.push((above, last));
            for home in note.homes.iter() {
                places
                    .entry(home.location)
                    .or_default()
                    .push(bytes(&home.path));
            }
        }
        let mut known: HashMap<u64, HashMap<Vec<u8>, FoundFile>> = HashMap::new();
        for (above, lasts) in &siblings {
            known.insert(*above, children(self.db, *above, lasts)?);
        }
        let mut taken: HashSet<(u64, Vec<u8>)> = HashSet::new();
        for (location, paths) in &places {
            self.site(*location)?;
            let sql = "SELECT path FROM homes WHERE path IN (?1) AND location = ?2";
            for mut row in self.db.rows_in(sql, KeyList::Names(paths), &[location])? {
                taken.insert((*location, row.get(0)?));
            }
        }
        // A name or place that comes twice is new once.
        let mut is_new = Vec::with_capacity(notes.len());
        let mut seen = HashSet::new();
        for (note, (above, last)) in notes.iter().zip(&keys) {
            let is_known = known.get(above).is_some_and(|all| all.contains_key(*last));
            let is_first = seen.insert((*above, *last));
            let mut homes = note.homes.iter();
            let is_free = homes.all(|home| taken.insert((home.location, bytes(&home.path).into())));
            is_new.push(!is_known && is_first && is_free);
        }
        let new: Vec<_> = notes
            .iter()
            .zip(&keys)
            .zip(&is_new)
            .filter_map(|(new, is_new)| is_new.then_some(new))
            .collect();
        let first = self.ids(new.len())?;
        let mut rows = Rows::default();
        for (file, (note, key)) in (first..).zip(new) {
            self.touch(file);
            rows.add(note, *key, file);
        }
        self.db.insert("names", 4, &rows.names)?;
        self.db.insert("versions", 6, &rows.versions)?;
        self.db.insert("homes", HOME_COLUMNS, &rows.homes)?;
        let mut made = Vec::with_capacity(notes.len());
        for (note, is_new) in notes.iter().zip(is_new) {
            made.push(match is_new {
                true => note.number,
                false => self.note_again(note)?,
            });
            self.attributes(note.name, note.attributes)?;
        }
        Ok(made)
    }

    /// Compares a file with the one that there is, and notes its homes.
    fn note_again(&mut self, note: &NotedFile<'_>) -> Result<u64> {
        let name = note.name;
        let above = self.collection_made(parent(name))?;
        let last = name.file_name().unwrap_or_default().as_bytes();
        let file = match children(self.db, above, &[last])?.remove(last) {
            Some(found) if found.collection => {
                return Err(about(Kind::IsDirectory, name, "is a collection"));
            }
            Some(found) => found.file,
            None => self.add(above, name, false)?,
        };
        let number = match current(self.db, file)? {
            Some(version) => {
                let known = digests(&version.digests);
                check_equal(name, (version.size, &known), &note.new)?;
                // A file of which only parts were noted gets its digest from the first whole copy.
                if known.is_empty() && !note.new.digests.is_empty() {
                    let text = texts(note.new.digests);
                    let sql = "UPDATE versions SET digests = ?3 WHERE file = ?1 AND number = ?2";
                    self.run(sql, &[&file, &version.number, &text])?;
                }
                version.number
            }
            None if note.number > 0 => self.add_version(file, note.number, &note.new)?,
            None => 0,
        };
        for home in note.homes.iter() {
            self.add_home(file, number, home, name)?;
        }
        Ok(number)
    }

    pub(super) fn add_version(&self, file: u64, number: u64, new: &New<'_>) -> Result<u64> {
        self.db
            .insert("versions", 6, &version_row(file, number, new))?;
        Ok(number)
    }

    /// Notes a home, of this version if it names none.
    pub(super) fn add_home(
        &self,
        file: u64,
        number: u64,
        home: &CatalogHome,
        name: &Path,
    ) -> Result<()> {
        self.site(home.location)?;
        self.touch(file);
        let (at, path) = (home.location, bytes(&home.path));
        let other = self.one(
            "SELECT file FROM homes WHERE location = ?1 AND path = ?2",
            &[&at, &path],
        )?;
        if other.is_some_and(|other| other != file) {
            return Err(about(
                Kind::Exists,
                name,
                "would lie where another name has its bytes",
            ));
        }
        self.run(
            "DELETE FROM homes WHERE location = ?1 AND path = ?2",
            &[&at, &path],
        )?;
        self.db
            .insert("homes", HOME_COLUMNS, &home_row(file, number, home))
    }
}

impl<'a> Rows<'a> {
    fn add(&mut self, note: &'a NotedFile<'a>, (above, last): (u64, &'a [u8]), file: u64) {
        let collection = Param::Int(0);
        self.names.extend([
            Param::of(above),
            Param::Blob(last),
            Param::of(file),
            collection,
        ]);
        if note.number > 0 {
            self.versions
                .extend(version_row(file, note.number, &note.new));
        }
        for home in note.homes.iter() {
            self.homes.extend(home_row(file, note.number, home));
        }
    }
}

fn version_row<'a>(file: u64, number: u64, new: &New<'a>) -> [Param<'a>; 6] {
    let mtime = new.mtime.map(Time::to_string);
    [
        Param::of(file),
        Param::of(number),
        new.size.map_or(Param::Null, Param::of),
        Param::Text(texts(new.digests).into()),
        mtime.map_or(Param::Null, |mtime| Param::Text(mtime.into())),
        new.mode.map_or(Param::Null, |mode| Param::Int(mode.into())),
    ]
}

const HOME_COLUMNS: usize = 10;

fn home_row(file: u64, number: u64, home: &CatalogHome) -> [Param<'_>; HOME_COLUMNS] {
    let part = |at: Option<u64>| at.map_or(Param::Null, Param::of);
    [
        Param::of(home.location),
        Param::Blob(bytes(&home.path)),
        Param::of(file),
        Param::of(if home.version == 0 {
            number
        } else {
            home.version
        }),
        part(home.range.map(|range| range.0)),
        part(home.range.map(|range| range.1)),
        Param::of(home.offset),
        Param::Text(home.state.as_str().into()),
        part(home.verified_s),
        home.ours.param(),
    ]
}
