//! Lists of changes within one transaction.

use crate::{Changes, Refusal, Result, apply::Applying, db::Db, group::Made};
use godwit_core::Kind;

/// Applies lists, each but a refused one, within a transaction that is begun.
pub(crate) fn apply_all(db: &dyn Db, lists: &[&Changes]) -> Result<Vec<Made>> {
    if let [one] = lists {
        // A refused list that is alone goes with its transaction.
        return apply(db, one).map(|made| vec![Ok(made)]);
    }
    let mut all = Vec::with_capacity(lists.len());
    for list in lists {
        db.batch("SAVEPOINT list")?;
        let made = apply(db, list);
        // After some failures SQLite has undone the transaction, and says so here.
        db.batch(match made {
            Ok(_) => "RELEASE list",
            Err(_) => "ROLLBACK TO list; RELEASE list",
        })?;
        all.push(made);
    }
    Ok(all)
}

fn apply(db: &dyn Db, list: &Changes) -> Made {
    if let Some(once) = &list.once
        && let Some(made) = made_before(db, once)?
    {
        return Ok(made);
    }
    let made = Applying::new(db).apply_all(&list.changes)?;
    if let Some((writer, seq)) = &list.once {
        let numbers: Vec<_> = made.iter().map(u64::to_string).collect();
        let sql = "INSERT INTO writers VALUES (?1, ?2, ?3)
            ON CONFLICT (writer) DO UPDATE SET seq = excluded.seq, made = excluded.made";
        db.run(sql, &[writer, seq, &numbers.join(" ")])?;
    }
    Ok(made)
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
