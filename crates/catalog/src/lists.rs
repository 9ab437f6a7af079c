//! Lists of changes within one transaction.

use crate::{Change, Changes, Refusal, Result, apply::Applying, db::Db, group::GroupResult};
use godwit_core::Kind;
use std::collections::HashSet;

/// Applies lists, each but a refused one, within a transaction that is begun.
pub(crate) fn apply_all(db: &dyn Db, lists: &[&Changes]) -> Result<Vec<GroupResult>> {
    if let [one] = lists {
        // A refused list that is alone goes with its transaction.
        return apply_together(db, &[*one]).map(|made| made.into_iter().map(Ok).collect());
    }
    db.batch("SAVEPOINT list")?;
    if let Ok(made) = apply_together(db, lists) {
        return Ok(made.into_iter().map(Ok).collect());
    }
    let mut all = Vec::with_capacity(lists.len());
    for list in lists {
        // After some failures SQLite has undone the transaction, and says so here.
        db.batch("ROLLBACK TO list")?;
        let made = apply_together(db, &[*list]);
        if made.is_ok() {
            db.batch("RELEASE list; SAVEPOINT list")?;
        }
        all.push(made.map(|mut made| made.pop().unwrap_or_default()));
    }
    db.batch("ROLLBACK TO list")?;
    Ok(all)
}

/// Applies lists as if they were one; returns what each made.
fn apply_together(db: &dyn Db, lists: &[&Changes]) -> Result<Vec<Vec<u64>>> {
    let mut writers = HashSet::new();
    let mut known = Vec::with_capacity(lists.len());
    for list in lists {
        known.push(match &list.once {
            Some((writer, _)) if !writers.insert(writer) => {
                return Err(Refusal::of_kind(Kind::Busy, "a writer sent two lists"));
            }
            Some(once) => made_before(db, once)?,
            None => None,
        });
    }
    let new = lists
        .iter()
        .zip(&known)
        .filter(|(_, known)| known.is_none());
    let changes: Vec<&Change> = new.flat_map(|(list, _)| &list.changes).collect();
    let mut numbers = Applying::new(db).apply_all(&changes)?.into_iter();
    let mut all = Vec::with_capacity(lists.len());
    for (list, known) in lists.iter().zip(known) {
        let is_new = known.is_none();
        let made = known.unwrap_or_else(|| numbers.by_ref().take(list.changes.len()).collect());
        if let Some((writer, seq)) = list.once.as_ref().filter(|_| is_new) {
            let numbers: Vec<_> = made.iter().map(u64::to_string).collect();
            let sql = "INSERT INTO writers VALUES (?1, ?2, ?3)
                ON CONFLICT (writer) DO UPDATE SET seq = excluded.seq, made = excluded.made";
            db.run(sql, &[writer, seq, &numbers.join(" ")])?;
        }
        all.push(made);
    }
    Ok(all)
}

/// Returns the numbers that this list made when it was sent before; a later list of its writer supersedes it.
fn made_before(db: &dyn Db, (writer, seq): &(String, u64)) -> Result<Option<Vec<u64>>> {
    let sql = "SELECT seq, made FROM writers WHERE writer = ?1";
    let Some(mut row) = db.first(sql, &[writer])? else {
        return Ok(None);
    };
    let (last, made): (u64, String) = (row.get(0)?, row.get(1)?);
    if last > *seq {
        let said = format!("list {seq} of {writer} was superseded by list {last}");
        return Err(Refusal::of_kind(Kind::Superseded, said));
    }
    let numbers: Result<Vec<u64>, _> = made.split_whitespace().map(str::parse).collect();
    match numbers {
        _ if last < *seq => Ok(None),
        Ok(numbers) => Ok(Some(numbers)),
        Err(_) => {
            let said = "the catalog has lost what a list of changes made";
            Err(Refusal::of_kind(Kind::Corrupt, said))
        }
    }
}
