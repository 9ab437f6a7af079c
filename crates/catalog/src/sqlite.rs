//! The catalog in a file of SQLite on a local disk.

use crate::{
    Catalog, Changes, Each, Question, Refusal, Result,
    answer::{self, AnswerPage},
    db::{Db, DbRow, DbValue, KeyList, Param, Sql, insert_some, too_large},
    group::{Group, GroupResult},
    lists,
    pool::ConnectionPool,
    refused::refused,
    tables::{FORM, FORMS, not_a_catalog, other_form},
};
use godwit_core::Kind;
use parking_lot::Mutex;
use rusqlite::{
    Connection, OpenFlags, ToSql, TransactionBehavior, params_from_iter,
    types::{ToSqlOutput, ValueRef},
};
use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// A catalog that is one file.
pub(crate) struct Sqlite {
    /// The one writer that SQLite has at a time, and the changes that wait for it.
    writer: Mutex<Connection>,
    group: Group,
    readers: ConnectionPool<Connection>,
    path: PathBuf,
    /// The device and inode of the file.
    file: (u64, u64),
}

impl Sqlite {
    /// Opens the file; makes the tables first if `create`.
    pub(crate) fn open(path: &Path, create: bool) -> Result<Self> {
        let shown = path.display();
        if !create && !path.exists() {
            let said = format!("there is no catalog at {shown}");
            let next = format!("godwit catalog init --catalog sqlite:{shown}");
            return Err(Refusal::of_kind(Kind::Missing, said).next(next));
        }
        let mut writer = connect(path, create, WRITER_KIB)?;
        let form: u64 = writer
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(refused)?;
        let (is_empty, is_ours) = tables_of(&writer)?;
        match form {
            0 if is_empty && create => make(&mut writer)?,
            0 if is_empty => {
                return Err(not_a_catalog(
                    &shown.to_string(),
                    &format!("sqlite:{shown}"),
                ));
            }
            FORM if is_ours => {}
            1..FORM if is_ours => make(&mut writer)?,
            0..=FORM => {
                let said = format!("{shown} has tables of another program, and is not a catalog");
                let next = "name another file: godwit catalog init --catalog sqlite:PATH";
                return Err(Refusal::of_kind(Kind::Invalid, said).next(next));
            }
            form => return Err(other_form(&shown.to_string(), form)),
        }
        Ok(Self {
            file: file_of(path).map_err(|cause| gone(path, &cause))?,
            writer: Mutex::new(writer),
            group: Group::default(),
            readers: ConnectionPool::new(|_| true),
            path: path.to_owned(),
        })
    }

    fn must_be_there(&self) -> Result<()> {
        match file_of(&self.path) {
            Ok(file) if file == self.file => Ok(()),
            Ok(_) => Err(gone(&self.path, &io::ErrorKind::AlreadyExists.into())),
            Err(cause) => Err(gone(&self.path, &cause)),
        }
    }
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

fn gone(path: &Path, cause: &io::Error) -> Refusal {
    let (shown, why) = (path.display(), cause.kind());
    let said = format!("the catalog {shown} was removed or replaced while it was in use: {why}");
    Refusal::of_kind(Kind::Other, said).next("restore the file from a dump, and start again")
}

/// Tells whether a database has no tables, and whether it has those of a catalog.
fn tables_of(db: &Connection) -> Result<(bool, bool)> {
    let sql = "SELECT COUNT(*) = 0, COALESCE(SUM(name IN ('names', 'versions', 'homes', 'intents')), 0) = 4
        FROM sqlite_master WHERE type = 'table'";
    let told = db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
    told.map_err(refused)
}

/// Opens a connection with a cache of that size.
fn connect(path: &Path, create: bool, cache_kib: u32) -> Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let db = Connection::open_with_flags(path, flags).map_err(refused)?;
    db.busy_timeout(PATIENCE).map_err(refused)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -{cache_kib};"
    ))
    .map_err(refused)?;
    Ok(db)
}

/// Makes the tables, or those of later forms, in one transaction.
fn make(db: &mut Connection) -> Result<()> {
    let tx = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(refused)?;
    let form: usize = tx
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(refused)?;
    for tables in FORMS.iter().skip(form) {
        tx.execute_batch(tables).map_err(refused)?;
    }
    tx.pragma_update(None, "user_version", FORM)
        .map_err(refused)?;
    tx.commit().map_err(refused)
}

impl Catalog for Sqlite {
    fn ask(&self, question: &Question, each: &mut Each<'_>) -> Result<()> {
        // The page is read before it is passed on: a receiver that stops holds no transaction.
        let mut page = AnswerPage::default();
        let connect = || connect(&self.path, false, READER_KIB);
        self.readers.with(connect, |db| {
            let tx = db.transaction().map_err(refused)?;
            answer::answer(&*tx, question, &mut page)
        })?;
        page.tell(each)
    }

    fn change(&self, changes: &Changes) -> Result<Vec<u64>> {
        let made = self.group.change(changes, |lists| {
            self.must_be_there()?;
            commit(&mut self.writer.lock(), lists)
        })?;
        // A commit into a file that was removed meanwhile is lost.
        self.must_be_there()?;
        Ok(made)
    }
}

fn commit(db: &mut Connection, lists: &[&Changes]) -> Result<Vec<GroupResult>> {
    let tx = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(refused)?;
    let made = lists::apply_all(&*tx, lists)?;
    tx.commit().map_err(refused)?;
    Ok(made)
}

impl Db for Connection {
    fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<DbRow>> {
        if params.iter().any(|param| matches!(param, Param::TooLarge)) {
            return Err(too_large());
        }
        let rows = || -> rusqlite::Result<Vec<DbRow>> {
            let mut statement = self.prepare_cached(sql)?;
            let columns = statement.column_count();
            let row = |row: &rusqlite::Row<'_>| {
                let value = |at| {
                    Ok(match row.get_ref(at)? {
                        ValueRef::Integer(number) => DbValue::Int(number),
                        ValueRef::Blob(bytes) => DbValue::Blob(bytes.into()),
                        value @ ValueRef::Text(_) => DbValue::Text(value.as_str()?.into()),
                        ValueRef::Null | ValueRef::Real(_) => DbValue::Null,
                    })
                };
                (0..columns)
                    .map(value)
                    .collect::<rusqlite::Result<_>>()
                    .map(DbRow)
            };
            statement
                .query_map(params_from_iter(params), row)?
                .collect()
        };
        rows().map_err(refused)
    }

    fn rows_in(&self, sql: &str, keys: KeyList<'_>, params: &[&dyn Sql]) -> Result<Vec<DbRow>> {
        let more = params.len() + 2..params.len() + 1 + KEYS;
        let more: String = more.map(|place| format!(", ?{place}")).collect();
        let many = sql.replace("IN (?1)", &format!("IN (?1{more})"));
        let (mut all, mut at) = (Vec::new(), 0);
        while at < keys.len() {
            let (sql, next) = match at + KEYS <= keys.len() {
                true => (many.as_str(), at + KEYS),
                false => (sql, at + 1),
            };
            let mut values = vec![keys.at(at)];
            values.extend(params.iter().map(|param| param.param()));
            values.extend((at + 1..next).map(|at| keys.at(at)));
            all.append(&mut self.rows(sql, &values)?);
            at = next;
        }
        Ok(all)
    }

    fn insert(&self, table: &str, columns: usize, rows: &[Param<'_>]) -> Result<()> {
        insert_some(self, table, columns, rows, INSERTED)
    }

    fn batch(&self, sql: &str) -> Result<()> {
        self.execute_batch(sql).map_err(refused)
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
            Self::Null | Self::TooLarge => ValueRef::Null,
        }))
    }
}

/// How long a connection waits for another process.
const PATIENCE: Duration = Duration::from_secs(10);
const STATEMENTS: usize = 128;
/// How many rows a statement inserts.
const INSERTED: usize = 16;
/// For how many keys a statement is executed at once.
const KEYS: usize = 16;
const WRITER_KIB: u32 = 64 << 10;
const READER_KIB: u32 = 8 << 10;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Change, find};
    use godwit_wire::door::call::Name;

    #[test]
    fn refused_list_is_undone_alone() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Sqlite::open(&dir.path().join("catalog"), true).unwrap();
        let make = |name: &str| Change::Collect {
            name: Name(name.into()),
            parents: false,
        };
        let lists: [Changes; 4] = [
            make("a").into(),
            vec![make("b"), make("a")].into(),
            make("b").into(),
            make("a/c").into(),
        ];
        let all: Vec<_> = lists.iter().collect();
        let made = commit(&mut tables.writer.lock(), &all).unwrap();
        let is_made: Vec<_> = made.iter().map(Result::is_ok).collect();
        assert_eq!(is_made, [true, false, true, true]);
        assert_eq!(made[1].as_ref().unwrap_err().kind, Kind::Exists);
        for name in ["a", "b", "a/c"] {
            let entry = find(&tables, name.as_ref()).unwrap().unwrap();
            assert!(made.contains(&Ok(vec![entry.file])), "{name}");
        }
    }

    #[test]
    fn older_tables_are_brought_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog");
        let db = connect(&path, true, READER_KIB).unwrap();
        db.execute_batch(FORMS[0]).unwrap();
        db.execute_batch("PRAGMA user_version = 1").unwrap();
        let tables = Sqlite::open(&path, false).unwrap();
        let (name, text) = (Name(PathBuf::new()), "copies=2".into());
        let rule = Change::AddRule { name, text };
        assert!(tables.change(&rule.into()).is_ok());
        db.execute_batch("PRAGMA user_version = 99").unwrap();
        let newer = Sqlite::open(&path, false).err().unwrap();
        assert_eq!(newer.kind, Kind::Unsupported);
    }
}
