//! The tables of a catalog.

use crate::Refusal;
use godwit_core::Kind;

/// The form of the tables, counted up by each change of them.
pub(crate) const FORM: u64 = FORMS.len() as u64;

pub(crate) fn not_a_catalog(name: &str, text: &str) -> Refusal {
    let next = format!("godwit catalog init --catalog {text}");
    Refusal::of_kind(Kind::Invalid, format!("{name} is not a catalog")).next(next)
}

pub(crate) fn other_form(name: &str, form: u64) -> Refusal {
    let said = format!("{name} has form {form} of the tables, and this godwit knows form {FORM}");
    Refusal::of_kind(Kind::Unsupported, said).next("use a newer godwit")
}

/// The statements that lead from each form to the next, in SQLite. PostgreSQL has other words for some types.
pub(crate) const FORMS: [&str; 3] = [TABLES, RULES, RUNS];

/// Rules, the files that may not be as they say, and leases of work.
const RULES: &str = "
CREATE TABLE rules (rule INTEGER PRIMARY KEY, collection INTEGER NOT NULL, said TEXT NOT NULL, due INTEGER NOT NULL);
CREATE TABLE todo (file INTEGER PRIMARY KEY, again INTEGER NOT NULL, seq INTEGER NOT NULL, tries INTEGER NOT NULL,
    said TEXT NOT NULL);
CREATE TABLE leases (work TEXT PRIMARY KEY, holder TEXT NOT NULL, until INTEGER NOT NULL);
";

/// Runs of programs, their recipes, and the versions that they made.
const RUNS: &str = "
CREATE TABLE recipes (recipe TEXT PRIMARY KEY, said TEXT NOT NULL, proved INTEGER NOT NULL);
CREATE TABLE runs (run TEXT PRIMARY KEY, recipe TEXT NOT NULL, said TEXT NOT NULL);
CREATE TABLE made (file INTEGER NOT NULL, number INTEGER NOT NULL, run TEXT NOT NULL, output INTEGER NOT NULL,
    name BLOB NOT NULL, PRIMARY KEY (file, number));
CREATE INDEX made_by_name ON made (name);
";

const TABLES: &str = "
CREATE TABLE ids (next INTEGER NOT NULL);
INSERT INTO ids VALUES (2);
CREATE TABLE names (parent INTEGER NOT NULL, name BLOB NOT NULL, file INTEGER NOT NULL, collection INTEGER NOT NULL,
    PRIMARY KEY (parent, name)) WITHOUT ROWID;
CREATE INDEX names_by_file ON names (file);
CREATE TABLE versions (file INTEGER NOT NULL, number INTEGER NOT NULL, size INTEGER, digests TEXT NOT NULL,
    mtime TEXT, mode INTEGER, PRIMARY KEY (file, number)) WITHOUT ROWID;
CREATE TABLE locations (location INTEGER PRIMARY KEY, collection INTEGER NOT NULL, site TEXT NOT NULL, url TEXT NOT NULL,
    whole INTEGER NOT NULL, UNIQUE (collection, site));
CREATE TABLE homes (location INTEGER NOT NULL, path BLOB NOT NULL, file INTEGER NOT NULL, number INTEGER NOT NULL,
    first INTEGER, past INTEGER, at INTEGER NOT NULL, state TEXT NOT NULL, verified INTEGER, ours INTEGER NOT NULL,
    PRIMARY KEY (location, path)) WITHOUT ROWID;
CREATE INDEX homes_by_file ON homes (file, number);
CREATE TABLE attributes (entry INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (entry, key)) WITHOUT ROWID;
CREATE TABLE intents (intent INTEGER PRIMARY KEY, deed TEXT NOT NULL, file INTEGER, name BLOB NOT NULL,
    location INTEGER NOT NULL, path BLOB NOT NULL, base INTEGER NOT NULL, size INTEGER, digest TEXT,
    holder TEXT NOT NULL, until INTEGER NOT NULL, UNIQUE (location, path));
CREATE INDEX intents_by_name ON intents (name);
CREATE TABLE writers (writer TEXT PRIMARY KEY, seq INTEGER NOT NULL, made TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE weather (reader TEXT NOT NULL, source TEXT NOT NULL, bytes INTEGER NOT NULL, took_ms INTEGER NOT NULL,
    fault INTEGER NOT NULL, at INTEGER NOT NULL);
CREATE INDEX weather_by_pair ON weather (reader, source, at);
";
