//! The catalog of names and of the places where the bytes of each version lie. It answers and records, and moves no byte.

mod answer;
mod apply;
mod refused;
mod sqlite;

pub use godwit_wire::door::{call::Refusal, catalog::*};

use godwit_core::Kind;
use std::{path::Path, sync::Arc};

/// The result of a question or change.
pub type Result<T> = std::result::Result<T, Refusal>;

/// Receives the answers to a question; an error ends it.
pub type Each<'a> = dyn FnMut(Answer) -> Result<()> + 'a;

/// A catalog, on this machine or elsewhere.
pub trait Catalog: Send + Sync {
    /// Answers a question. [`Answer::More`] at its end says that a page is full.
    fn ask(&self, question: &Question, each: &mut Each<'_>) -> Result<()>;

    /// Applies all changes in one transaction, or none. One answer a change, [`Answer::Made`] or [`Answer::Intent`].
    fn change(&self, changes: &Changes) -> Result<Vec<Answer>>;
}

/// Opens the catalog that a text names: `sqlite:PATH`. Makes it first if `create`.
pub fn open(text: &str, create: bool) -> Result<Arc<dyn Catalog>> {
    match text.strip_prefix("sqlite:") {
        Some("") | None => Err(Refusal::of_kind(
            Kind::Invalid,
            format!("'{text}' does not name a catalog"),
        )
        .next("write sqlite:PATH")),
        Some(path) => Ok(Arc::new(sqlite::Sqlite::open(Path::new(path), create)?)),
    }
}
