//! One set of statements for all databases: the subset of SQL that they have in common, with parameters `?1`, `?2`.

use crate::{Refusal, Result};
use godwit_core::Kind;
use std::borrow::Cow;

/// A connection to a database.
pub(crate) trait Db {
    /// Executes a statement; returns the rows that it selects, or that it tells by RETURNING.
    fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<DbRow>>;

    /// Executes a statement that says `IN (?1)` for each of several keys; other parameters begin at `?2`.
    fn rows_in(&self, sql: &str, keys: KeyList<'_>, params: &[&dyn Sql]) -> Result<Vec<DbRow>>;

    /// Inserts rows, whose columns are consecutive in `rows`.
    fn insert(&self, table: &str, columns: usize, rows: &[Param<'_>]) -> Result<()>;

    /// Executes statements without parameters.
    fn batch(&self, sql: &str) -> Result<()>;
}

/// Inserts rows, in statements of a limited size.
pub(crate) fn insert_some(
    db: &dyn Db,
    table: &str,
    columns: usize,
    rows: &[Param<'_>],
    at_once: usize,
) -> Result<()> {
    let insert = |rows: &[Param<'_>]| {
        let row = |first| {
            let places = (first..first + columns).map(|place| format!("?{place}"));
            format!("({})", places.collect::<Vec<_>>().join(", "))
        };
        let all: Vec<_> = (1..=rows.len()).step_by(columns).map(row).collect();
        let sql = format!("INSERT INTO {table} VALUES {}", all.join(", "));
        db.rows(&sql, rows).map(drop)
    };
    let mut some = rows.chunks_exact(at_once * columns);
    some.try_for_each(insert)?;
    some.remainder().chunks(columns).try_for_each(insert)
}

impl dyn Db + '_ {
    /// Executes a statement; returns the count of its rows.
    pub(crate) fn run(&self, sql: &str, params: &[&dyn Sql]) -> Result<usize> {
        self.select(sql, params).map(|rows| rows.len())
    }

    /// Executes a statement, and returns its rows.
    pub(crate) fn select(&self, sql: &str, params: &[&dyn Sql]) -> Result<Vec<DbRow>> {
        let values: Vec<_> = params.iter().map(|param| param.param()).collect();
        self.rows(sql, &values)
    }

    /// Returns the first row of a statement.
    pub(crate) fn first(&self, sql: &str, params: &[&dyn Sql]) -> Result<Option<DbRow>> {
        self.select(sql, params).map(|rows| rows.into_iter().next())
    }

    /// Returns the number in the first row of a statement.
    pub(crate) fn one(&self, sql: &str, params: &[&dyn Sql]) -> Result<Option<u64>> {
        let row = self.first(sql, params)?;
        row.map(|mut row| row.get(0)).transpose()
    }
}

/// The keys of [`Db::rows_in`].
#[derive(Clone, Copy)]
pub(crate) enum KeyList<'a> {
    Numbers(&'a [u64]),
    Names(&'a [&'a [u8]]),
}

impl<'a> KeyList<'a> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Names(names) => names.len(),
        }
    }

    pub(crate) fn at(self, at: usize) -> Param<'a> {
        match self {
            Self::Numbers(numbers) => Param::of(numbers[at]),
            Self::Names(names) => Param::Blob(names[at]),
        }
    }
}

/// A parameter of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Param<'a> {
    Null,
    Int(i64),
    Text(Cow<'a, str>),
    Blob(&'a [u8]),
    /// A number that no database keeps.
    TooLarge,
}

impl Param<'_> {
    pub(crate) fn of(number: u64) -> Self {
        i64::try_from(number).map_or(Self::TooLarge, Self::Int)
    }
}

/// Refuses [`Param::TooLarge`].
pub(crate) fn too_large() -> Refusal {
    let said = "a number is too large for a catalog";
    Refusal::of_kind(Kind::Invalid, said).next("use one below 2^63")
}

/// A value that a statement takes.
pub(crate) trait Sql {
    fn param(&self) -> Param<'_>;
}

macro_rules! sql {
    ($($type:ty: |$value:ident| $param:expr),* $(,)?) => {
        $(impl Sql for $type {
            fn param(&self) -> Param<'_> {
                let $value = self;
                $param
            }
        })*
    };
}

sql! {
    u64: |number| Param::of(*number),
    u32: |number| Param::Int((*number).into()),
    usize: |number| Param::of(*number as u64),
    bool: |value| Param::Int((*value).into()),
    &str: |text| Param::Text(Cow::Borrowed(text)),
    String: |text| Param::Text(Cow::Borrowed(text)),
    &[u8]: |bytes| Param::Blob(bytes),
    Vec<u8>: |bytes| Param::Blob(bytes),
}

impl<T: Sql> Sql for Option<T> {
    fn param(&self) -> Param<'_> {
        self.as_ref().map_or(Param::Null, Sql::param)
    }
}

/// A value in a row.
#[derive(Clone, Debug, Default)]
pub(crate) enum DbValue {
    #[default]
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// A row of an answer.
#[derive(Debug)]
pub(crate) struct DbRow(pub(crate) Vec<DbValue>);

impl DbRow {
    /// Takes the value of a column out of the row.
    pub(crate) fn get<T: Column>(&mut self, at: usize) -> Result<T> {
        let value = self.0.get_mut(at).map(std::mem::take).unwrap_or_default();
        T::read(value).ok_or_else(|| {
            let said = format!("column {at} of a row of the catalog is not what it was written as");
            Refusal::of_kind(Kind::Corrupt, said).next("restore the catalog from a backup")
        })
    }
}

/// A type that a column is read as.
pub(crate) trait Column: Sized {
    fn read(value: DbValue) -> Option<Self>;
}

macro_rules! column {
    ($($type:ty: $pattern:pat => $read:expr),* $(,)?) => {
        $(impl Column for $type {
            fn read(value: DbValue) -> Option<Self> {
                match value {
                    $pattern => $read,
                    _ => None,
                }
            }
        })*
    };
}

column! {
    u64: DbValue::Int(number) => number.try_into().ok(),
    u32: DbValue::Int(number) => number.try_into().ok(),
    bool: DbValue::Int(number) => Some(number != 0),
    String: DbValue::Text(text) => Some(text),
    Vec<u8>: DbValue::Blob(bytes) => Some(bytes),
}

impl<T: Column> Column for Option<T> {
    fn read(value: DbValue) -> Option<Self> {
        match value {
            DbValue::Null => Some(None),
            value => T::read(value).map(Some),
        }
    }
}
