//! Changes of rules, and of the notes about files that may not be as they say.

use crate::{
    Change, LEASE_S, Refusal, Result,
    answer::{collection, now_s},
    db::{Db, Sql},
};
use godwit_core::Kind;
use std::collections::BTreeSet;

/// Puts files among those to be compared with the rules, if there are rules.
pub(crate) fn enqueue(db: &dyn Db, files: &BTreeSet<u64>) -> Result<()> {
    // Rules of rights say nothing of copies.
    let about_copies =
        "SELECT rule FROM rules WHERE said NOT LIKE 'allow %' AND said NOT LIKE 'never %' LIMIT 1";
    if files.is_empty() || db.one(about_copies, &[])?.is_none() {
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
        Change::Lease { what, holder, over } => {
            let sql = "INSERT INTO leases VALUES (?1, ?2, ?3) ON CONFLICT (work) DO UPDATE
                SET holder = excluded.holder, until = excluded.until
                WHERE leases.holder = ?2 OR leases.until <= ?4 RETURNING 1";
            let now = now_s();
            let until = if *over { 0 } else { now + LEASE_S };
            Ok(db.run(sql, &[what, holder, &until, &now])? as u64)
        }
        _ => Ok(0),
    }
}
