//! Rules, and the files that may not be as they say.

use crate::{
    Answer, Change, LEASE_S, PAGE, Question, Refusal, Result, Rule, Todo,
    answer::{Page, about, answer, collection, find, names_of, now_s},
    db::{Db, Sql},
};
use godwit_core::Kind;
use godwit_wire::door::call::Name;
use std::{collections::BTreeSet, path::Path};

/// Answers with the rules of a collection.
pub(crate) fn rules(db: &dyn Db, name: &Path, page: &mut Page) -> Result<()> {
    collection(db, name)?;
    let mut found: Vec<(u64, Rule)> = Vec::new();
    for mut row in db.select(
        "SELECT rule, collection, said, due FROM rules ORDER BY rule",
        &[],
    )? {
        let rule = Rule {
            rule: row.get(0)?,
            text: row.get(2)?,
            due_s: row.get(3)?,
            ..Rule::default()
        };
        found.push((row.get(1)?, rule));
    }
    let collections: Vec<u64> = found.iter().map(|(collection, _)| *collection).collect();
    let names = names_of(db, &collections)?;
    for (collection, mut rule) in found {
        rule.name = Name(names.get(&collection).cloned().unwrap_or_default());
        if rule.name.0.starts_with(name) || name.starts_with(&rule.name.0) {
            page.push(Answer::Rule(rule));
        }
    }
    Ok(())
}

/// Answers with files whose turn it is, each with its homes.
pub(crate) fn todo(db: &dyn Db, name: Option<&Path>, page: &mut Page) -> Result<()> {
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
            let mut one = Page::default();
            let names = vec![Name(name.clone())];
            answer(db, &Question::Locate { names }, &mut one)?;
            if let Some(Answer::Entry(entry)) = one.pop() {
                todo.entry = *entry;
            }
        }
        page.push(Answer::Todo(Box::new(todo)));
    }
    Ok(())
}

/// Puts files among those to be compared with the rules, if there are rules.
pub(crate) fn enqueue(db: &dyn Db, files: &BTreeSet<u64>) -> Result<()> {
    if files.is_empty() || db.one("SELECT rule FROM rules LIMIT 1", &[])?.is_none() {
        return Ok(());
    }
    let sql = "INSERT INTO todo VALUES (?1, 0, 1, 0, '')
        ON CONFLICT (file) DO UPDATE SET again = 0, seq = todo.seq + 1";
    files
        .iter()
        .try_for_each(|file| db.run(sql, &[file]).map(drop))
}

/// Applies a change of rules or of the work that they make.
pub(crate) fn apply(db: &dyn Db, change: &Change, id: &dyn Fn() -> Result<u64>) -> Result<u64> {
    match change {
        Change::AddRule { name, text } => {
            let collection = collection(db, &name.0)?;
            let sql = "SELECT rule FROM rules WHERE collection = ?1 AND said = ?2";
            if let Some(rule) = db.one(sql, &[&collection, text])? {
                return Ok(rule);
            }
            let rule = id()?;
            let row: &[&dyn Sql] = &[&rule, &collection, text];
            db.run("INSERT INTO rules VALUES (?1, ?2, ?3, 0)", row)?;
            Ok(rule)
        }
        Change::RemoveRule { rule } => {
            let count = db.run("DELETE FROM rules WHERE rule = ?1 RETURNING rule", &[rule])?;
            db.run(
                "DELETE FROM todo WHERE NOT EXISTS (SELECT 1 FROM rules)",
                &[],
            )?;
            match count {
                0 => Err(
                    Refusal::of_kind(Kind::Missing, format!("there is no rule {rule}"))
                        .next("godwit rule ls grid:/"),
                ),
                _ => Ok(*rule),
            }
        }
        Change::Scanned { rule, due_s } => {
            db.run("UPDATE rules SET due = ?2 WHERE rule = ?1", &[rule, due_s])?;
            Ok(*rule)
        }
        Change::Did {
            file,
            seq,
            said,
            again_s,
        } => {
            match said {
                None => db.run(
                    "DELETE FROM todo WHERE file = ?1 AND seq = ?2",
                    &[file, seq],
                )?,
                Some(said) => {
                    let sql = "INSERT INTO todo VALUES (?1, ?3, ?2, 1, ?4) ON CONFLICT (file) DO UPDATE
                        SET again = excluded.again, said = excluded.said, tries = todo.tries + 1 WHERE todo.seq = ?2";
                    db.run(sql, &[file, seq, again_s, said])?
                }
            };
            Ok(*file)
        }
        Change::Lease { what, holder } => {
            let sql = "INSERT INTO leases VALUES (?1, ?2, ?3) ON CONFLICT (work) DO UPDATE
                SET holder = excluded.holder, until = excluded.until
                WHERE leases.holder = ?2 OR leases.until <= ?4 RETURNING 1";
            let now = now_s();
            Ok(db.run(sql, &[what, holder, &(now + LEASE_S), &now])? as u64)
        }
        _ => Ok(0),
    }
}
