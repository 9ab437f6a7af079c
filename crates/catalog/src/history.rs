//! How versions were made: recipes, runs, and the versions that are their outputs.

use crate::{
    Ran, Refusal, Result,
    db::{Db, Sql},
};
use godwit_core::Kind;
use std::{os::unix::ffi::OsStrExt, path::Path};

/// Notes a run.
pub(crate) fn note(db: &dyn Db, ran: &Ran) -> Result<()> {
    let id = ran.recipe.id();
    let recipe = serde_json::to_string(&ran.recipe).map_err(|_| lost())?;
    let rest = Ran {
        recipe: Default::default(),
        ..ran.clone()
    };
    let rest = serde_json::to_string(&rest).map_err(|_| lost())?;
    let sql = "INSERT INTO recipes VALUES (?1, ?2, 0) ON CONFLICT (recipe) DO NOTHING";
    db.run(sql, &[&id, &recipe])?;
    let sql = "INSERT INTO runs VALUES (?1, ?2, ?3) ON CONFLICT (run) DO NOTHING";
    db.run(sql, &[&ran.run, &id, &rest]).map(drop)
}

/// Notes which run made a version.
pub(crate) fn note_made(
    db: &dyn Db,
    (file, number): (u64, u64),
    name: &Path,
    (run, output): (&str, u64),
) -> Result<()> {
    let row: &[&dyn Sql] = &[&file, &number, &run, &output, &name.as_os_str().as_bytes()];
    let sql = "INSERT INTO made VALUES (?1, ?2, ?3, ?4, ?5)";
    db.run(sql, row).map(drop)
}

/// Notes that a recipe gave equal outputs twice.
pub(crate) fn prove(db: &dyn Db, recipe: &str) -> Result<u64> {
    let sql = "UPDATE recipes SET proved = 1 WHERE recipe = ?1 RETURNING 1";
    match db.one(sql, &[&recipe])? {
        Some(_) => Ok(0),
        None => Err(Refusal::of_kind(
            Kind::Missing,
            format!("there is no recipe {recipe}"),
        )),
    }
}

pub(crate) fn lost() -> Refusal {
    Refusal::of_kind(Kind::Corrupt, "the catalog has lost how that file was made")
}
