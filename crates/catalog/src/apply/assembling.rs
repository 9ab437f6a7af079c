//! Files in fragments: drafts, in which fragments are written, and their publication together.

use super::{Applying, New, bytes, check_name, parent, word};
use crate::{
    FRAGMENTS_MAX, Intent, IntentDeed, LEASE_S, Result,
    answer::{FoundFile, about, children, collection, current, find, kinds, now_s},
    db::Sql,
    fragment_name, history,
};
use godwit_core::Kind;
use godwit_wire::door::call::Name;
use std::{os::unix::ffi::OsStrExt, path::Path};

impl Applying<'_> {
    /// Begins a draft; its number is also that of the collection of its fragments. With `join` an existing draft of
    /// this holder is returned.
    pub(super) fn draft(
        &mut self,
        name: &Name,
        base: u64,
        (holder, join): (&str, bool),
    ) -> Result<u64> {
        let found = self.based(&name.0, base)?;
        if join {
            let sql = "UPDATE intents SET until = ?3 WHERE location = 0 AND path = ?1 AND holder = ?2 RETURNING intent";
            let until = now_s() + LEASE_S;
            if let Some(begun) = self.one(sql, &[&bytes(name), &holder, &until])? {
                return Ok(begun);
            }
        }
        let sql = "SELECT 1 FROM intents WHERE location = 0 AND path = ?1";
        if self.one(sql, &[&bytes(name)])?.is_some() {
            let said = "is being written by another process, or its end is not settled";
            return Err(about(Kind::Busy, &name.0, said).next("try again"));
        }
        let above = collection(self.db, parent(&name.0))?;
        let (id, file) = (self.id()?, found.map(|found| found.file));
        let until = now_s() + LEASE_S;
        let row: &[&dyn Sql] = &[
            &id,
            &word(IntentDeed::Draft),
            &file,
            &bytes(name),
            &base,
            &holder,
            &until,
        ];
        let sql = "INSERT INTO intents VALUES (?1, ?2, ?3, ?4, 0, ?4, ?5, NULL, NULL, ?6, ?7)";
        self.run(sql, row)?;
        let draft = crate::draft_name(&name.0, id);
        let last = draft.file_name().unwrap_or_default().as_bytes();
        let sql = "INSERT INTO names VALUES (?1, ?2, ?3, ?4)";
        self.run(sql, &[&above, &last, &id, &kinds::DRAFT])?;
        Ok(id)
    }

    /// Publishes a draft as the next version of its name.
    pub(super) fn assemble(
        &mut self,
        number: u64,
        count: u64,
        new: New<'_>,
        made: Option<&(String, u64)>,
    ) -> Result<u64> {
        let (intent, file) = self.intent(number)?;
        let name = &intent.name.0;
        if intent.deed != IntentDeed::Draft {
            return Err(about(Kind::Invalid, name, "is not written in fragments"));
        }
        let (found, now) = self.still_based(&intent, file)?;
        let parts = self.parts(&intent, count)?;
        let mut size = 0u64;
        for part in &parts {
            let version = current(self.db, part.file)?.and_then(|version| version.size);
            let more = version
                .ok_or_else(|| about(Kind::Invalid, name, "has a fragment of unknown length"))?;
            size = size.saturating_add(more);
            self.touch(part.file);
        }
        let file = match found {
            Some(found) => {
                self.remove_fragments(found.file, name)?;
                found.file
            }
            None => self.add(collection(self.db, parent(name))?, name, false)?,
        };
        let sql = "UPDATE names SET collection = ?2 WHERE file = ?1";
        self.run(sql, &[&file, &kinds::FRAGMENTED])?;
        let sql = "UPDATE names SET parent = ?2 WHERE parent = ?1";
        self.run(sql, &[&number, &file])?;
        self.end_draft(number)?;
        let new = New {
            size: Some(size),
            ..new
        };
        let version = self.add_version(file, now + 1, &new)?;
        self.touch(file);
        if let Some((run, output)) = made {
            history::note_made(self.db, (file, version), name, (run, *output))?;
        }
        Ok(version)
    }

    /// Returns the fragments of a draft; refuses any other count than `count`.
    fn parts(&self, intent: &Intent, count: u64) -> Result<Vec<FoundFile>> {
        let name = &intent.name.0;
        if !(1..=FRAGMENTS_MAX).contains(&count) {
            let said = format!(
                "has {count} fragments, and 1 to {} are possible",
                FRAGMENTS_MAX
            );
            return Err(about(Kind::Invalid, name, &said));
        }
        self.name_parts(intent.intent, count)?;
        let names: Vec<_> = (0..count)
            .map(|index| fragment_name(Path::new(""), index, count))
            .collect();
        let keys: Vec<&[u8]> = names
            .iter()
            .map(|name| name.as_os_str().as_bytes())
            .collect();
        let mut found = children(self.db, intent.intent, &keys)?;
        let missing: Vec<String> = (0..count)
            .filter(|index| !found.contains_key(keys[usize::try_from(*index).unwrap_or(0)]))
            .map(|index| index.to_string())
            .collect();
        if !missing.is_empty() {
            let said = format!(
                "lacks of its {count} fragments these: {}",
                missing.join(", ")
            );
            return Err(about(Kind::Missing, name, &said).next("write each of them, then publish"));
        }
        let all = self.one(
            "SELECT COUNT(*) FROM names WHERE parent = ?1",
            &[&intent.intent],
        )?;
        if all != Some(count) {
            return Err(about(
                Kind::Invalid,
                name,
                &format!("has more than {count} fragments"),
            ));
        }
        Ok(keys.iter().filter_map(|key| found.remove(*key)).collect())
    }

    /// Names the fragments of a draft whose count was not known when they were written: they say 0.
    fn name_parts(&self, draft: u64, count: u64) -> Result<()> {
        let sql = "UPDATE names SET name = ?3 WHERE parent = ?1 AND name = ?2 RETURNING file";
        for index in 0..count {
            let [before, now] =
                [0, count].map(|count| Name(fragment_name(Path::new(""), index, count)));
            let found = self.one(sql, &[&draft, &bytes(&before), &bytes(&now)])?;
            if found.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Forgets a draft with all that was written in it.
    pub(super) fn drop_draft(&mut self, intent: &Intent) -> Result<()> {
        self.remove_fragments(
            intent.intent,
            &crate::draft_name(&intent.name.0, intent.intent),
        )?;
        self.end_draft(intent.intent)
    }

    fn end_draft(&self, number: u64) -> Result<()> {
        self.run("DELETE FROM names WHERE file = ?1", &[&number])?;
        self.run("DELETE FROM intents WHERE intent = ?1", &[&number])?;
        Ok(())
    }

    /// Removes all fragments of a file or draft.
    pub(super) fn remove_fragments(&self, file: u64, name: &Path) -> Result<()> {
        let (mut names, mut files) = (Vec::new(), Vec::new());
        let sql = "DELETE FROM names WHERE parent = ?1 RETURNING name, file";
        for mut row in self.db.select(sql, &[&file])? {
            names.push(name.join(crate::answer::path(row.get(0)?)));
            files.push(row.get::<u64>(1)?);
        }
        let removed: Vec<_> = names.iter().map(|name| (name.as_path(), false)).collect();
        match files.is_empty() {
            true => Ok(()),
            false => self.forget(&removed, &files),
        }
    }

    /// Finds the file that is to be written; refused if another version than the base is current.
    pub(super) fn based(&self, name: &Path, base: u64) -> Result<Option<FoundFile>> {
        check_name(name)?;
        let found = find(self.db, name)?;
        if found.is_some_and(|found| found.collection) {
            return Err(about(Kind::IsDirectory, name, "is a collection"));
        }
        let now = match found {
            Some(found) => current(self.db, found.file)?.map_or(0, |version| version.number),
            None => {
                collection(self.db, parent(name))?;
                0
            }
        };
        match now == base {
            true => Ok(found),
            false => Err(super::changed(name, base, now)),
        }
    }

    /// Finds the file of an intent, and its current version; refused if it is another than when the intent was made.
    pub(super) fn still_based(
        &self,
        intent: &Intent,
        file: Option<u64>,
    ) -> Result<(Option<FoundFile>, u64)> {
        let name = &intent.name.0;
        let found = find(self.db, name)?;
        let now = match found {
            Some(found) => current(self.db, found.file)?.map_or(0, |version| version.number),
            None => 0,
        };
        let is_other = file.is_some() && found.map(|found| found.file) != file;
        if now != intent.base || is_other || found.is_some_and(|found| found.collection) {
            return Err(super::changed(name, intent.base, now));
        }
        Ok((found, now))
    }

    /// Refuses to change a fragment by itself: its file would be another one then.
    pub(super) fn must_not_be_fragment(&self, name: &Path) -> Result<()> {
        match find(self.db, parent(name))? {
            Some(found) if !found.collection => {
                let next = "write the whole file: godwit farm import, or farm run --out";
                Err(about(
                    Kind::Unsupported,
                    name,
                    "is a fragment, which is not written or removed alone",
                )
                .next(next))
            }
            _ => Ok(()),
        }
    }
}
