//! The changes that note files: their names, versions and homes.

use super::{Applying, New, bytes, check_equal, check_name, parent, texts};
use crate::{
    Entry, NewHome, Result, State,
    answer::{about, child, current, digests},
};
use godwit_core::Kind;
use godwit_wire::door::call::Time;
use rusqlite::ToSql;
use std::{os::unix::ffi::OsStrExt, path::Path};

impl Applying<'_> {
    pub(super) fn register(
        &mut self,
        name: &Path,
        new: &New<'_>,
        home: Option<&NewHome>,
    ) -> Result<u64> {
        let is_known = new.size.is_some() || !new.digests.is_empty() || home.is_some();
        let (file, number) = self.note(name, new, u64::from(is_known))?;
        if let Some(home) = home {
            self.add_home(file, number, home, State::default(), name)?;
        }
        Ok(number)
    }

    pub(super) fn load(&mut self, entry: &Entry) -> Result<u64> {
        let name = &entry.name.0;
        let (file, number) = match entry.collection {
            true => (self.collect(name, true)?, 0),
            false => {
                let new = New {
                    size: entry.size,
                    digests: &entry.digests,
                    mtime: entry.mtime.as_ref(),
                    mode: entry.mode,
                };
                self.note(name, &new, entry.version)?
            }
        };
        for home in &entry.homes {
            let new = NewHome {
                location: home.location,
                path: home.path.clone(),
                range: home.range,
                offset: home.offset,
                verified_s: home.verified_s,
                ours: home.ours,
            };
            self.add_home(file, home.version, &new, home.state, name)?;
        }
        for (key, value) in &entry.attributes {
            self.attribute(name, None, key, Some(value))?;
        }
        Ok(number)
    }

    /// Makes the file of a name and its version of that number (0: none), or compares with those that there are.
    fn note(&mut self, name: &Path, new: &New<'_>, number: u64) -> Result<(u64, u64)> {
        check_name(name)?;
        let Some(last) = name.file_name().map(OsStrExt::as_bytes) else {
            return Err(about(Kind::IsDirectory, name, "is a collection"));
        };
        let above = self.collection_made(parent(name))?;
        let file = match child(self.tx, above, last)? {
            Some(found) if found.collection => {
                return Err(about(Kind::IsDirectory, name, "is a collection"));
            }
            Some(found) => found.file,
            None => self.add(above, name, false)?,
        };
        let number = match current(self.tx, file)? {
            Some(version) => {
                check_equal(name, (version.size, &digests(&version.digests)), new)?;
                version.number
            }
            None if number > 0 => self.add_version(file, number, new)?,
            None => 0,
        };
        Ok((file, number))
    }

    pub(super) fn add_version(&self, file: u64, number: u64, new: &New<'_>) -> Result<u64> {
        let mtime = new.mtime.map(Time::to_string);
        let row: &[&dyn ToSql] = &[
            &file,
            &number,
            &new.size,
            &texts(new.digests),
            &mtime,
            &new.mode,
        ];
        self.run("INSERT INTO versions VALUES (?1, ?2, ?3, ?4, ?5, ?6)", row)?;
        Ok(number)
    }

    pub(super) fn add_home(
        &self,
        file: u64,
        number: u64,
        home: &NewHome,
        state: State,
        name: &Path,
    ) -> Result<()> {
        self.site(home.location)?;
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
        let (first, past) = (
            home.range.map(|range| range.0),
            home.range.map(|range| range.1),
        );
        let row: &[&dyn ToSql] = &[
            &at,
            &path,
            &file,
            &number,
            &first,
            &past,
            &home.offset,
            &state.as_str(),
            &home.verified_s,
            &home.ours,
        ];
        self.run(
            "INSERT OR REPLACE INTO homes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            row,
        )?;
        Ok(())
    }
}
