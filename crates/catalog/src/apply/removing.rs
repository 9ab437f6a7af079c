//! Removal of the names of files.

use super::{Applying, parent};
use crate::{
    Change, Result,
    answer::{about, children, find},
    db::KeyList,
};
use godwit_core::Kind;
use std::{
    collections::{HashMap, HashSet},
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// Returns the name that a change removes, if that is a file's, and whether bytes registered in place are deleted.
pub(super) fn removed_file(change: &Change) -> Option<(&Path, bool)> {
    match change {
        Change::Remove {
            name,
            collection: false,
            data,
        } => Some((&name.0, *data)),
        _ => None,
    }
}

impl Applying<'_> {
    /// Removes names; files that have no other name are forgotten. Returns the number of each file.
    pub(super) fn remove_files(&mut self, removed: &[(&Path, bool)]) -> Result<Vec<u64>> {
        self.last = None;
        let mut siblings: HashMap<&Path, Vec<&[u8]>> = HashMap::new();
        for (name, _) in removed {
            let last = name.file_name().unwrap_or_default().as_bytes();
            siblings.entry(parent(name)).or_default().push(last);
        }
        let mut found = HashMap::new();
        for (above, lasts) in &siblings {
            if let Some(above_found) = find(self.db, above)? {
                if let (false, Some(last)) = (above_found.collection, lasts.first()) {
                    self.must_not_be_fragment(&above.join(crate::answer::path(last.to_vec())))?;
                }
                let (at, keys) = (above_found.file, KeyList::Names(lasts));
                found.insert(*above, children(self.db, at, lasts)?);
                let sql =
                    "DELETE FROM names WHERE name IN (?1) AND parent = ?2 AND collection IN (0, 2)";
                self.db.rows_in(sql, keys, &[&at])?;
            }
        }
        let (mut files, mut fragmented) = (Vec::new(), Vec::new());
        for (name, _) in removed {
            let last = name.file_name().unwrap_or_default().as_bytes();
            // A name that is removed twice is gone the second time.
            let one = found.get_mut(parent(name)).and_then(|all| all.remove(last));
            match one {
                Some(one) if !one.collection => {
                    files.push(one.file);
                    fragmented.extend(one.fragmented.then_some((one.file, *name)));
                }
                Some(_) => return Err(about(Kind::IsDirectory, name, "is a collection")),
                None if name.as_os_str().is_empty() => {
                    return Err(about(Kind::IsDirectory, name, "is a collection"));
                }
                None => return Err(about(Kind::Missing, name, "is not in the catalog")),
            }
        }
        self.forget(removed, &files)?;
        for (file, name) in fragmented {
            // The file may have another name.
            let sql = "SELECT 1 FROM names WHERE file = ?1";
            if self.one(sql, &[&file])?.is_none() {
                self.remove_fragments(file, name)?;
            }
        }
        Ok(files)
    }

    /// Forgets those files that have no name any more.
    pub(super) fn forget(&self, removed: &[(&Path, bool)], files: &[u64]) -> Result<()> {
        let sql = "SELECT file FROM names WHERE file IN (?1)";
        let rows = self.db.rows_in(sql, KeyList::Numbers(files), &[])?;
        let named: HashSet<u64> = rows
            .into_iter()
            .map(|mut row| row.get(0))
            .collect::<Result<_>>()?;
        let gone: HashMap<u64, &(&Path, bool)> = files
            .iter()
            .copied()
            .zip(removed)
            .filter(|(file, _)| !named.contains(file))
            .collect();
        let keys: Vec<u64> = gone.keys().copied().collect();
        let keys = KeyList::Numbers(&keys);
        let sql = "DELETE FROM homes WHERE file IN (?1) RETURNING file, location, path, ours";
        let mut homes: Vec<(u64, u64, Vec<u8>, bool)> = Vec::new();
        for mut row in self.db.rows_in(sql, keys, &[])? {
            homes.push((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        }
        let places: HashSet<u64> = homes.iter().map(|home| home.1).collect();
        let places: Vec<u64> = places.into_iter().collect();
        let sql = "SELECT DISTINCT location FROM intents WHERE location IN (?1)";
        let busy = self.db.rows_in(sql, KeyList::Numbers(&places), &[])?;
        let busy = busy.into_iter().map(|mut row| row.get(0));
        let busy: HashSet<u64> = busy.collect::<Result<_>>()?;
        for (file, location, path, ours) in homes {
            let Some((name, data)) = gone.get(&file) else {
                continue;
            };
            if ours || *data {
                // Under no lease: any process may delete the bytes.
                let name = name.as_os_str().as_bytes();
                self.note_deletion((location, &path), name, "", 0)?;
            } else if busy.contains(&location) {
                let sql = "DELETE FROM intents WHERE location = ?1 AND path = ?2";
                self.run(sql, &[&location, &path])?;
            }
        }
        for sql in [
            "DELETE FROM versions WHERE file IN (?1)",
            "DELETE FROM attributes WHERE entry IN (?1)",
        ] {
            self.db.rows_in(sql, keys, &[])?;
        }
        Ok(())
    }
}
