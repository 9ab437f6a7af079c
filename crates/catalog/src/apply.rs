//! The changes, each with its conditions, within the transaction of their list.

mod assembling;
mod recording;
mod removing;

use crate::{
    CatalogHome, Change, HomeWord, IntentDeed, LEASE_S, NAME_BYTES_MAX, Refusal, Result,
    SEGMENT_BYTES_MAX,
    answer::{
        DEEDS, DEPTH_MAX, FoundFile, INTENTS, ROOT, about, child, collection, current, digests,
        find, intent, kinds, name_of, now_s,
    },
    db::{Db, Sql},
    history, ruling,
};
use godwit_core::{Digest, HomeState, Kind, Url};
use godwit_wire::door::call::{Name, Text, Time};
use recording::note_of;
use removing::removed_file;
use std::{
    cell::RefCell,
    collections::BTreeSet,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// One list of changes.
pub(crate) struct Applying<'a> {
    db: &'a dyn Db,
    /// The collection that was made or found last: most lists fill one.
    last: Option<(PathBuf, u64)>,
    /// Files whose copies were changed: they may not be as the rules say.
    touched: RefCell<BTreeSet<u64>>,
}

/// A version that is to be noted.
struct New<'a> {
    size: Option<u64>,
    digests: &'a [Text<Digest>],
    mtime: Option<&'a Time>,
    mode: Option<u32>,
}

impl<'a> New<'a> {
    fn of(
        size: Option<u64>,
        digests: &'a [Text<Digest>],
        (mtime, mode): (Option<&'a Time>, Option<u32>),
    ) -> Self {
        Self {
            size,
            digests,
            mtime,
            mode,
        }
    }
}

impl<'a> Applying<'a> {
    /// Begins a list.
    pub(crate) fn new(db: &'a dyn Db) -> Self {
        Self {
            db,
            last: None,
            touched: RefCell::default(),
        }
    }

    /// Applies changes; returns a number a change. Files that follow each other are noted and removed together.
    pub(crate) fn apply_all(&mut self, changes: &[&Change]) -> Result<Vec<u64>> {
        let mut made = Vec::with_capacity(changes.len());
        while let Some(change) = changes.get(made.len()) {
            let rest = changes[made.len()..].iter().copied().take(TOGETHER_MAX);
            let notes: Vec<_> = rest.clone().map_while(note_of).collect();
            let removed: Vec<_> = rest.map_while(removed_file).collect();
            match (notes.is_empty(), removed.is_empty()) {
                (false, _) => made.append(&mut self.note_all(&notes)?),
                (_, false) => made.append(&mut self.remove_files(&removed)?),
                _ => made.push(self.apply(change)?),
            }
        }
        ruling::enqueue(self.db, &self.touched.borrow())?;
        Ok(made)
    }

    fn touch(&self, file: u64) {
        self.touched.borrow_mut().insert(file);
    }

    /// Applies one change; returns the number of an intent, location or version that it makes, or 0.
    fn apply(&mut self, change: &Change) -> Result<u64> {
        if matches!(change, Change::Remove { .. } | Change::Rename { .. }) {
            self.last = None;
        }
        let number = match change {
            Change::Collect { name, parents } => self.collect(&name.0, *parents)?,
            Change::Register { .. } => self.note_all(note_of(change).as_slice())?[0],
            Change::Unregister {
                location,
                path,
                last,
            } => self.unregister(*location, path, *last)?,
            Change::Discard { .. } => self.discard(change)?,
            Change::Intend {
                deed,
                name,
                location,
                path,
                base,
                holder,
                size,
                digest,
            } => {
                let intent = self.intend(*deed, name, (*location, path), *base, holder)?;
                if let Some(size) = size {
                    self.land(intent, *size, digest.as_ref())?;
                }
                intent
            }
            Change::Land {
                intent,
                size,
                digest,
            } => self.land(*intent, *size, digest.as_ref())?,
            Change::Renew { intent, holder } => {
                let sql = "UPDATE intents SET holder = ?2, until = ?3 WHERE intent = ?1
                    AND (holder = ?2 OR until <= ?4) RETURNING 1";
                let now = now_s();
                self.run(sql, &[intent, holder, &(now + LEASE_S), &now])? as u64
            }
            Change::Publish {
                intent,
                digests,
                mtime,
                mode,
                verified,
                adopted,
            } => {
                let new = New::of(None, digests, (mtime.as_ref(), *mode));
                self.publish(*intent, new, *verified, !adopted)?
            }
            Change::Draft {
                name,
                base,
                holder,
                join,
            } => self.draft(name, *base, (holder, *join))?,
            Change::Assemble {
                intent,
                count,
                digests,
                mtime,
                mode,
                made,
            } => {
                let new = New::of(None, digests, (mtime.as_ref(), *mode));
                self.assemble(*intent, *count, new, made.as_ref())?
            }
            Change::Ran(ran) => history::note(self.db, ran).map(|()| 0)?,
            Change::Proved { recipe } => history::prove(self.db, recipe)?,
            Change::Settle { intent, home } => self.settle(*intent, *home)?,
            Change::Mark {
                location,
                path,
                state,
                verified_s,
            } => {
                let sql = "UPDATE homes SET state = ?3, verified = COALESCE(?4, verified)
                    WHERE location = ?1 AND path = ?2 RETURNING file";
                let file = self.one(sql, &[location, &bytes(path), &state.as_str(), verified_s])?;
                if let Some(file) = file.filter(|_| state.0 != HomeState::Whole) {
                    self.touch(file);
                }
                missing_if(file.is_none(), &path.0, "has no copy at that location")?
            }
            Change::Remove {
                name,
                collection,
                data,
            } => self.remove(&name.0, *collection, *data)?,
            Change::Rename { from, to } => self.rename(&from.0, &to.0)?,
            Change::Link { from, to } => self.link(&from.0, &to.0)?,
            Change::Set { name, mtime, mode } => {
                let sql = "UPDATE versions SET mtime = COALESCE(?2, mtime), mode = COALESCE(?3, mode) WHERE file = ?1
                           AND number = (SELECT MAX(number) FROM versions WHERE file = ?1)";
                let file = self.found(&name.0)?;
                self.run(sql, &[&file, &mtime.as_ref().map(Time::to_string), mode])?;
                0
            }
            Change::Attribute {
                name,
                site,
                key,
                value,
            } => self.attribute(&name.0, site.as_deref(), key, value.as_deref())?,
            Change::AddLocation {
                name,
                site,
                url,
                whole,
            } => self.add_location(&name.0, site, url, *whole)?,
            Change::SetLocation { name, site, url } => {
                let location = self.location(&name.0, site)?;
                check_url(url)?;
                self.must_be_one_site(self.collection_of(location)?, site, url)?;
                self.run(
                    "UPDATE locations SET url = ?2 WHERE location = ?1",
                    &[&location, url],
                )?;
                location
            }
            Change::RemoveLocation { name, site, last } => {
                self.remove_location(&name.0, site, *last)?
            }
            Change::Measured(measured) => {
                let at = if measured.at_s == 0 {
                    now_s()
                } else {
                    measured.at_s
                };
                let row: &[&dyn Sql] = &[
                    &measured.to,
                    &measured.from,
                    &measured.bytes,
                    &measured.took_ms,
                    &measured.fault,
                    &at,
                ];
                self.run("INSERT INTO weather VALUES (?1, ?2, ?3, ?4, ?5, ?6)", row)?;
                let sql = "DELETE FROM weather WHERE reader = ?1 AND source = ?2 AND at < (SELECT MIN(at) FROM (SELECT at
                           FROM weather WHERE reader = ?1 AND source = ?2 ORDER BY at DESC LIMIT 64) AS kept)";
                self.run(sql, &[&measured.to, &measured.from])?;
                0
            }
            Change::Load(entry) => self.load_collection(entry)?,
            _ => ruling::apply(self.db, change, &|| self.id())?,
        };
        Ok(number)
    }

    fn run(&self, sql: &str, params: &[&dyn Sql]) -> Result<usize> {
        self.db.run(sql, params)
    }

    fn one(&self, sql: &str, params: &[&dyn Sql]) -> Result<Option<u64>> {
        self.db.one(sql, params)
    }

    fn id(&self) -> Result<u64> {
        self.ids(1)
    }

    /// Takes `count` new numbers; returns the first.
    fn ids(&self, count: usize) -> Result<u64> {
        let sql = "UPDATE ids SET next = next + ?1 RETURNING next - ?1";
        let id = self.one(sql, &[&count])?;
        id.ok_or_else(|| Refusal::of_kind(Kind::Corrupt, "the catalog has lost its count"))
    }

    /// Finds a name that must be there.
    fn found(&self, name: &Path) -> Result<u64> {
        let found = find(self.db, name)?;
        found
            .map(|found| found.file)
            .ok_or_else(|| about(Kind::Missing, name, "is not in the catalog"))
    }

    fn collect(&mut self, name: &Path, parents: bool) -> Result<u64> {
        check_name(name)?;
        if name.as_os_str().is_empty() {
            return if parents {
                Ok(ROOT)
            } else {
                Err(about(Kind::Exists, name, "exists"))
            };
        }
        if parents {
            return self.collection_made(name);
        }
        let parent = collection(self.db, parent(name))?;
        self.add(parent, name, true)
    }

    /// Finds or makes a collection and those above it.
    fn collection_made(&mut self, name: &Path) -> Result<u64> {
        if let Some((last, file)) = &self.last
            && last == name
        {
            return Ok(*file);
        }
        let (mut file, mut at) = (ROOT, PathBuf::new());
        for segment in name.iter() {
            at.push(segment);
            file = match child(self.db, file, segment.as_bytes())? {
                Some(found) if found.collection => found.file,
                Some(_) => return Err(about(Kind::NotDirectory, &at, "is a file")),
                None => self.add(file, &at, true)?,
            };
        }
        self.last = Some((name.to_owned(), file));
        Ok(file)
    }

    /// Puts a new file or collection under a name that must be free.
    fn add(&self, parent: u64, name: &Path, collection: bool) -> Result<u64> {
        let last = name.file_name().unwrap_or_default().as_bytes();
        if child(self.db, parent, last)?.is_some() {
            return Err(about(Kind::Exists, name, "exists"));
        }
        let file = self.id()?;
        self.run(
            "INSERT INTO names VALUES (?1, ?2, ?3, ?4)",
            &[&parent, &last, &file, &collection],
        )?;
        Ok(file)
    }

    fn site(&self, location: u64) -> Result<u64> {
        let found = self.one(
            "SELECT collection FROM locations WHERE location = ?1",
            &[&location],
        )?;
        found.ok_or_else(|| {
            Refusal::of_kind(Kind::Missing, format!("there is no location {location}"))
        })
    }

    fn unregister(&self, location: u64, path: &Name, last: bool) -> Result<u64> {
        let at: &[&dyn Sql] = &[&location, &bytes(path)];
        let file = self.one(
            "SELECT file FROM homes WHERE location = ?1 AND path = ?2",
            at,
        )?;
        let Some(file) = file else {
            return Err(about(
                Kind::Missing,
                &path.0,
                "has no copy at that location",
            ));
        };
        if !last && self.holds_last(location, path)? {
            let said = "has its last copy there, and nothing else knows its bytes";
            return Err(about(Kind::NotEmpty, &path.0, said));
        }
        self.run("DELETE FROM homes WHERE location = ?1 AND path = ?2", at)?;
        self.touch(file);
        Ok(file)
    }

    fn discard(&self, change: &Change) -> Result<u64> {
        let Change::Discard {
            location,
            path,
            last,
            data,
            holder,
        } = change
        else {
            return Ok(0);
        };
        let sql = "SELECT ours FROM homes WHERE location = ?1 AND path = ?2";
        let ours = self.one(sql, &[location, &bytes(path)])?;
        if ours == Some(0) && !data {
            let said = "was registered there, not made by godwit";
            let next = "say --data to delete its bytes too, or use godwit unregister to keep them";
            return Err(about(Kind::Denied, &path.0, said).next(next));
        }
        let file = self.unregister(*location, path, *last)?;
        let name = name_of(self.db, file)?;
        let name = name.as_os_str().as_bytes();
        self.note_deletion((*location, bytes(path)), name, holder, now_s() + LEASE_S)
    }

    /// Tells whether the file is also a home at another location, whose directory is the same, or above or below.
    fn lies_elsewhere(&self, location: u64, path: &[u8]) -> Result<bool> {
        let mut places: Vec<(u64, Url)> = Vec::new();
        for mut row in self.db.select("SELECT location, url FROM locations", &[])? {
            let (at, url): (u64, String) = (row.get(0)?, row.get(1)?);
            places.extend(url.parse().ok().map(|url| (at, url)));
        }
        let own = places.iter().find(|(at, _)| *at == location);
        let Some(file) = own.and_then(|(_, url)| url.join(path).ok()) else {
            return Ok(false);
        };
        for (at, above) in places.iter().filter(|(at, _)| *at != location) {
            let rest = file.below(above);
            let sql = "SELECT 1 FROM homes WHERE location = ?1 AND path = ?2";
            if let Some(rest) = rest
                && self.one(sql, &[at, &rest])?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes that bytes without a home will be deleted; 0: another home has them, and they stay.
    fn note_deletion(
        &self,
        (location, path): (u64, &[u8]),
        name: &[u8],
        holder: &str,
        until: u64,
    ) -> Result<u64> {
        // Intents for that place have no home to write any more.
        let sql = "DELETE FROM intents WHERE location = ?1 AND path = ?2";
        self.run(sql, &[&location, &path])?;
        if self.lies_elsewhere(location, path)? {
            return Ok(0);
        }
        let id = self.id()?;
        let row: &[&dyn Sql] = &[
            &id,
            &word(IntentDeed::Delete),
            &name,
            &location,
            &path,
            &holder,
            &until,
        ];
        let sql = "INSERT INTO intents VALUES (?1, ?2, NULL, ?3, ?4, ?5, 0, NULL, NULL, ?6, ?7)";
        self.run(sql, row)?;
        Ok(id)
    }

    /// Tells whether this home is the last whole copy of the current version.
    fn holds_last(&self, location: u64, path: &Name) -> Result<bool> {
        let sql = "SELECT 1 FROM homes h WHERE h.location = ?1 AND h.path = ?2
            AND h.number = (SELECT MAX(number) FROM versions v WHERE v.file = h.file)
            AND NOT EXISTS (SELECT 1 FROM homes o WHERE o.file = h.file AND o.number = h.number AND o.state = 'whole'
                AND o.first IS NULL AND NOT (o.location = h.location AND o.path = h.path))";
        Ok(self.one(sql, &[&location, &bytes(path)])?.is_some())
    }

    fn intend(
        &mut self,
        deed: IntentDeed,
        name: &Name,
        (location, path): (u64, &Name),
        base: u64,
        holder: &str,
    ) -> Result<u64> {
        self.site(location)?;
        match deed {
            IntentDeed::Copy => {}
            IntentDeed::Write => self.must_not_be_fragment(&name.0)?,
            IntentDeed::Delete | IntentDeed::Draft => {
                let said = "is deleted by removing it, and drafted by a draft";
                return Err(about(Kind::Invalid, &name.0, said));
            }
        }
        let file = self.based(&name.0, base)?;
        let place: &[&dyn Sql] = &[&location, &bytes(path)];
        let other = self.one(
            "SELECT file FROM homes WHERE location = ?1 AND path = ?2",
            place,
        )?;
        if other.is_some_and(|other| file.is_none_or(|found| found.file != other)) {
            return Err(about(
                Kind::Exists,
                &name.0,
                "would lie where another name has its bytes",
            ));
        }
        if self
            .one(
                "SELECT until FROM intents WHERE location = ?1 AND path = ?2",
                place,
            )?
            .is_some()
        {
            let said =
                "is being written or deleted there by another process, or its end is not settled";
            return Err(about(Kind::Busy, &name.0, said).next("try again"));
        }
        let (id, file) = (self.id()?, file.map(|found| found.file));
        let row: &[&dyn Sql] = &[
            &id,
            &word(deed),
            &file,
            &bytes(name),
            &location,
            &bytes(path),
            &base,
            &holder,
            &(now_s() + LEASE_S),
        ];
        self.run(
            "INSERT INTO intents VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL, ?8, ?9)",
            row,
        )?;
        Ok(id)
    }

    fn land(&self, intent: u64, size: u64, digest: Option<&Text<Digest>>) -> Result<u64> {
        let (found, _) = self.intent(intent)?;
        let digest = digest.map(|digest| digest.0.to_string());
        let sql = "UPDATE intents SET size = ?2, digest = ?3, until = ?4 WHERE intent = ?1";
        self.run(sql, &[&intent, &size, &digest, &(now_s() + LEASE_S)])?;
        let place: &[&dyn Sql] = &[&found.location, &bytes(&found.path)];
        self.run(
            "UPDATE homes SET state = 'filling' WHERE location = ?1 AND path = ?2",
            place,
        )?;
        Ok(0)
    }

    /// Finds an intent, and the file that had its name then.
    fn intent(&self, number: u64) -> Result<(crate::Intent, Option<u64>)> {
        let sql = format!("{INTENTS} WHERE intent = ?1");
        let row = self.db.first(&sql, &[&number])?;
        let found = row.map(intent).transpose()?;
        let found = found.map(|(intent, file, _)| (intent, file));
        found.ok_or_else(|| {
            let said = "its lease ended, and another process has settled it";
            Refusal::of_kind(Kind::Superseded, said).next("begin again")
        })
    }

    fn publish(&mut self, number: u64, new: New<'_>, verified: bool, ours: bool) -> Result<u64> {
        let (intent, file) = self.intent(number)?;
        let name = &intent.name.0;
        let known: Vec<Text<Digest>> = match new.digests {
            [] => intent.digest.iter().cloned().collect(),
            digests => digests.to_vec(),
        };
        let new = New {
            size: intent.size,
            digests: &known,
            ..new
        };
        let (found, now) = self.still_based(&intent, file)?;
        let version = match found {
            Some(found) => current(self.db, found.file)?,
            None => None,
        };
        let file = match found {
            Some(found) => {
                if found.fragmented && intent.deed == IntentDeed::Write {
                    self.remove_fragments(found.file, name)?;
                    let sql = "UPDATE names SET collection = ?2 WHERE file = ?1";
                    self.run(sql, &[&found.file, &kinds::FILE])?;
                }
                found.file
            }
            None => {
                let above = collection(self.db, parent(name))?;
                self.add(above, name, false)?
            }
        };
        let published = match (intent.deed, version) {
            (IntentDeed::Copy, Some(version)) => {
                check_equal(name, (version.size, &digests(&version.digests)), &new)?;
                version.number
            }
            (IntentDeed::Write, _) => self.add_version(file, now + 1, &new)?,
            _ => {
                return Err(about(
                    Kind::Invalid,
                    name,
                    "is to be deleted, not published",
                ));
            }
        };
        self.run("DELETE FROM intents WHERE intent = ?1", &[&number])?;
        let home = CatalogHome {
            location: intent.location,
            path: intent.path.clone(),
            verified_s: verified.then(now_s),
            ours,
            ..CatalogHome::default()
        };
        self.add_home(file, published, &home, name)?;
        Ok(published)
    }

    fn settle(&mut self, number: u64, home: Option<HomeWord>) -> Result<u64> {
        let (intent, _) = self.intent(number)?;
        if intent.deed == IntentDeed::Draft {
            return self.drop_draft(&intent).map(|()| 0);
        }
        let place: &[&dyn Sql] = &[&intent.location, &bytes(&intent.path)];
        let changed = match home {
            Some(state) => {
                let sql = "UPDATE homes SET state = ?3 WHERE location = ?1 AND path = ?2
                    AND (state = 'filling' OR ?3 <> 'whole') RETURNING file";
                self.one(sql, &[place[0], place[1], &state.as_str()])?
            }
            None => {
                let sql = "DELETE FROM homes WHERE location = ?1 AND path = ?2 RETURNING file";
                self.one(sql, place)?
            }
        };
        if let Some(file) = changed {
            self.touch(file);
        }
        self.run("DELETE FROM intents WHERE intent = ?1", &[&number])?;
        Ok(0)
    }

    fn remove(&mut self, name: &Path, is_collection: bool, data: bool) -> Result<u64> {
        if !is_collection {
            let made = self.remove_files(&[(name, data)])?;
            return Ok(made.first().copied().unwrap_or_default());
        }
        match find(self.db, name)? {
            Some(found) if found.collection => self.remove_collection(name, found.file),
            Some(_) => Err(about(Kind::NotDirectory, name, "is a file")),
            None => Err(about(Kind::Missing, name, "is not in the catalog")),
        }
    }

    /// Takes a name out of its collection.
    fn unlink(&self, name: &Path) -> Result<()> {
        let above = collection(self.db, parent(name))?;
        let last = name.file_name().unwrap_or_default().as_bytes();
        let sql = "DELETE FROM names WHERE parent = ?1 AND name = ?2";
        self.run(sql, &[&above, &last]).map(drop)
    }

    fn remove_collection(&self, name: &Path, file: u64) -> Result<u64> {
        if file == ROOT {
            return Err(about(Kind::Denied, name, "is the root of the catalog"));
        }
        let is_linked = self.one("SELECT COUNT(*) FROM names WHERE file = ?1", &[&file])? > Some(1);
        if !is_linked {
            if self
                .one("SELECT file FROM names WHERE parent = ?1", &[&file])?
                .is_some()
            {
                return Err(about(Kind::NotEmpty, name, "is not empty"));
            }
            let held = "SELECT 1 FROM homes WHERE location IN (SELECT location FROM locations WHERE collection = ?1)";
            let intended = "SELECT 1 FROM intents WHERE location IN (SELECT location FROM locations WHERE collection = ?1)";
            if self.one(held, &[&file])?.is_some() || self.one(intended, &[&file])?.is_some() {
                let said = "has locations where files of other names lie, or bytes are still to be deleted";
                return Err(about(Kind::NotEmpty, name, said).next("try again"));
            }
            self.run("DELETE FROM locations WHERE collection = ?1", &[&file])?;
            self.run("DELETE FROM attributes WHERE entry = ?1", &[&file])?;
        }
        self.unlink(name)?;
        Ok(file)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<u64> {
        check_name(to)?;
        let Some(found) = find(self.db, from)? else {
            return Err(about(Kind::Missing, from, "is not in the catalog"));
        };
        if found.file == ROOT {
            return Err(about(Kind::Denied, from, "is the root of the catalog"));
        }
        let above = collection(self.db, parent(to))?;
        if found.collection && self.lies_within(above, found.file)? {
            return Err(about(
                Kind::Invalid,
                to,
                "lies within what is to be renamed",
            ));
        }
        self.must_not_be_fragment(from)?;
        match find(self.db, to)? {
            Some(other) if other.file == found.file => return Ok(found.file),
            Some(other) => {
                if other.collection != found.collection {
                    return Err(about(Kind::Exists, to, "exists, and is of another kind"));
                }
                self.remove(to, other.collection, false)?;
            }
            None => {}
        }
        let (old, last) = (
            collection(self.db, parent(from))?,
            from.file_name().unwrap_or_default().as_bytes(),
        );
        let new = to.file_name().unwrap_or_default().as_bytes();
        let sql = "UPDATE names SET parent = ?3, name = ?4 WHERE parent = ?1 AND name = ?2";
        self.run(sql, &[&old, &last, &above, &new])?;
        Ok(found.file)
    }

    /// Tells whether `file` is the collection `other`, or in it under any of its names.
    fn lies_within(&self, file: u64, other: u64) -> Result<bool> {
        let sql = "WITH RECURSIVE above(file, depth) AS (SELECT CAST(?1 AS BIGINT), 0 UNION
                SELECT n.parent, a.depth + 1 FROM names n JOIN above a ON n.file = a.file WHERE a.depth < ?3)
            SELECT 1 FROM above WHERE file = ?2";
        Ok(self.one(sql, &[&file, &other, &DEPTH_MAX])?.is_some())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<u64> {
        check_name(to)?;
        let Some(found) = find(self.db, from)? else {
            return Err(about(Kind::Missing, from, "is not in the catalog"));
        };
        let above = collection(self.db, parent(to))?;
        if found.collection && self.lies_within(above, found.file)? {
            return Err(about(Kind::Loop, to, "would put a collection into itself"));
        }
        let last = to.file_name().unwrap_or_default().as_bytes();
        match child(self.db, above, last)? {
            Some(other) if other.file == found.file => {}
            Some(_) => return Err(about(Kind::Exists, to, "exists")),
            None => {
                let kind = match found {
                    FoundFile {
                        fragmented: true, ..
                    } => kinds::FRAGMENTED,
                    found => u64::from(found.collection),
                };
                let row: &[&dyn Sql] = &[&above, &last, &found.file, &kind];
                self.run("INSERT INTO names VALUES (?1, ?2, ?3, ?4)", row)?;
            }
        }
        Ok(found.file)
    }

    fn attribute(
        &self,
        name: &Path,
        site: Option<&str>,
        key: &str,
        value: Option<&str>,
    ) -> Result<u64> {
        if key.is_empty() || key.len() > SEGMENT_BYTES_MAX || key.contains('=') {
            let said = format!("'{key}' cannot be the key of an attribute");
            return Err(Refusal::of_kind(Kind::Invalid, said).next("use 1 to 255 bytes without ="));
        }
        let entry = match site {
            Some(site) => self.location(name, site)?,
            None => self.found(name)?,
        };
        match value {
            Some(value) => self.run(
                "INSERT INTO attributes VALUES (?1, ?2, ?3) ON CONFLICT (entry, key) DO UPDATE SET value = excluded.value",
                &[&entry, &key, &value],
            )?,
            None => self.run(
                "DELETE FROM attributes WHERE entry = ?1 AND key = ?2",
                &[&entry, &key],
            )?,
        };
        Ok(entry)
    }

    fn location(&self, name: &Path, site: &str) -> Result<u64> {
        let file = collection(self.db, name)?;
        let found = self.one(
            "SELECT location FROM locations WHERE collection = ?1 AND site = ?2",
            &[&file, &site],
        )?;
        found.ok_or_else(|| {
            about(Kind::Missing, name, &format!("has no location at {site}")).next(format!(
                "godwit location add {site} URL grid:/{}",
                name.display()
            ))
        })
    }

    fn add_location(&mut self, name: &Path, site: &str, url: &str, whole: bool) -> Result<u64> {
        check_name(name)?;
        check_url(url)?;
        if site.is_empty() || site.len() > SEGMENT_BYTES_MAX || site.contains(['/', ',', '=']) {
            let said = format!("'{site}' cannot be the name of a site");
            return Err(Refusal::of_kind(Kind::Invalid, said).next("use letters, digits and dots"));
        }
        let file = match name.as_os_str().is_empty() {
            true => ROOT,
            false => self.collection_made(name)?,
        };
        let known =
            "SELECT location FROM locations WHERE collection = ?1 AND site = ?2 AND url = ?3";
        if let Some(location) = self.one(known, &[&file, &site, &url])? {
            self.run(
                "UPDATE locations SET whole = whole | ?2 WHERE location = ?1",
                &[&location, &whole],
            )?;
            return Ok(location);
        }
        let taken = "SELECT location FROM locations WHERE collection = ?1 AND site = ?2";
        if self.one(taken, &[&file, &site])?.is_some() {
            let said = format!("has another location at {site}");
            let next = format!(
                "godwit location set {site} grid:/{} --url {url}",
                name.display()
            );
            return Err(about(Kind::Exists, name, &said).next(next));
        }
        self.must_be_one_site(file, site, url)?;
        let location = self.id()?;
        self.run(
            "INSERT INTO locations VALUES (?1, ?2, ?3, ?4, ?5)",
            &[&location, &file, &site, &url, &whole],
        )?;
        Ok(location)
    }

    /// Refuses a second site at the same URL: what looks like two copies there would be one.
    fn must_be_one_site(&self, collection: u64, site: &str, url: &str) -> Result<()> {
        let sql =
            "SELECT location FROM locations WHERE collection = ?1 AND url = ?2 AND site <> ?3";
        match self.one(sql, &[&collection, &url, &site])? {
            None => Ok(()),
            Some(_) => {
                let said = format!("{url} is the place of another site of that collection already");
                let next = "name another directory; two copies in one place would be one";
                Err(Refusal::of_kind(Kind::Exists, said).next(next))
            }
        }
    }

    fn collection_of(&self, location: u64) -> Result<u64> {
        let sql = "SELECT collection FROM locations WHERE location = ?1";
        Ok(self.one(sql, &[&location])?.unwrap_or_default())
    }

    fn remove_location(&self, name: &Path, site: &str, last: bool) -> Result<u64> {
        let location = self.location(name, site)?;
        if self
            .one("SELECT 1 FROM intents WHERE location = ?1", &[&location])?
            .is_some()
        {
            let said = format!("is being written or deleted at {site}");
            return Err(about(Kind::Busy, name, &said).next("try again"));
        }
        let lasts = "SELECT COUNT(*) FROM homes h WHERE h.location = ?1
            AND h.number = (SELECT MAX(number) FROM versions v WHERE v.file = h.file)
            AND NOT EXISTS (SELECT 1 FROM homes o WHERE o.file = h.file AND o.number = h.number AND o.state = 'whole'
                AND o.first IS NULL AND o.location <> h.location)";
        let count = self.one(lasts, &[&location])?.unwrap_or_default();
        if count > 0 && !last {
            let said = format!("has the last copy of {count} files at {site}");
            return Err(
                about(Kind::NotEmpty, name, &said).next("copy them elsewhere, or say --last")
            );
        }
        for sql in [
            "DELETE FROM homes WHERE location = ?1",
            "DELETE FROM attributes WHERE entry = ?1",
            "DELETE FROM locations WHERE location = ?1",
        ] {
            self.run(sql, &[&location])?;
        }
        Ok(location)
    }
}

/// How many files are noted or removed together.
const TOGETHER_MAX: usize = 1000;

/// Refuses bytes that are not those of the current version.
fn check_equal(
    name: &Path,
    (size, known): (Option<u64>, &[Text<Digest>]),
    new: &New<'_>,
) -> Result<()> {
    if let (Some(a), Some(b)) = (size, new.size)
        && a != b
    {
        let said = format!("has {a} bytes, and the file there has {b}");
        return Err(about(Kind::Changed, name, &said));
    }
    for Text(a) in known {
        let other = new
            .digests
            .iter()
            .find(|b| b.0.algorithm() == a.algorithm());
        if let Some(Text(b)) = other
            && a != b
        {
            return Err(about(
                Kind::Changed,
                name,
                &format!("is {a}, and the file there is {b}"),
            ));
        }
    }
    Ok(())
}

fn changed(name: &Path, base: u64, now: u64) -> Refusal {
    let said =
        format!("was changed meanwhile: version {now} is current, and version {base} was expected");
    about(Kind::Changed, name, &said).next("read it again, then write it again")
}

fn missing_if(is_missing: bool, name: &Path, said: &str) -> Result<u64> {
    if is_missing {
        Err(about(Kind::Missing, name, said))
    } else {
        Ok(0)
    }
}

fn check_url(url: &str) -> Result<()> {
    let bad = |why: String| Refusal::of_kind(Kind::Invalid, format!("{url}: {why}"));
    let read: Url = url
        .parse()
        .map_err(|error: godwit_core::BadUrl| bad(error.to_string()))?;
    match read.password() {
        Some(_) => Err(bad("a catalog keeps no password".into()).next("leave it out of the URL")),
        None => Ok(()),
    }
}

fn check_name(name: &Path) -> Result<()> {
    let is_long = name.as_os_str().len() > NAME_BYTES_MAX
        || name.iter().any(|segment| segment.len() > SEGMENT_BYTES_MAX)
        || name.iter().count() > DEPTH_MAX;
    let is_plain = name
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    if is_long {
        let said = format!(
            "a name has {NAME_BYTES_MAX} bytes at most, and each part of it {SEGMENT_BYTES_MAX}"
        );
        return Err(Refusal::of_kind(Kind::TooLong, said).next("use a shorter name"));
    }
    match is_plain {
        true => Ok(()),
        false => Err(about(Kind::Invalid, name, "has a part that is . or ..")),
    }
}

fn parent(name: &Path) -> &Path {
    name.parent().unwrap_or(Path::new(""))
}

fn bytes(name: &Name) -> &[u8] {
    name.0.as_os_str().as_bytes()
}

fn texts(digests: &[Text<Digest>]) -> String {
    let texts: Vec<String> = digests.iter().map(|digest| digest.0.to_string()).collect();
    texts.join(" ")
}

fn word(deed: IntentDeed) -> &'static str {
    DEEDS
        .iter()
        .find(|(known, _)| *known == deed)
        .map_or("delete", |(_, word)| word)
}
