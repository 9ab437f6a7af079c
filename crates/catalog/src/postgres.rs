//! The catalog in a database of PostgreSQL, which several nodes write to.

use crate::{
    Catalog, Changes, Each, Question, Refusal, Result,
    answer::{self, AnswerPage},
    db::{Db, DbRow, DbValue, KeyList, Param, Sql, insert_some, too_large},
    group::{Group, GroupResult},
    lists,
    pool::ConnectionPool,
    tables::{FORM, FORMS, not_a_catalog, other_form},
};
use godwit_core::{Fault, Kind};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use parking_lot::Mutex;
use postgres::{
    Client, Config, SimpleQueryMessage, Statement,
    binary_copy::BinaryCopyInWriter,
    error::SqlState,
    types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked},
};
use postgres_openssl::MakeTlsConnector;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    error::Error,
    result::Result as Either,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// A catalog that is a schema of a database.
pub(crate) struct Postgres {
    config: Config,
    tls: MakeTlsConnector,
    /// The one writer of this process. A lock in the database makes it the only one of all processes.
    writer: Mutex<Option<PostgresSession>>,
    group: Group,
    readers: ConnectionPool<PostgresSession>,
    /// How many changes were made, and at how many the database counts its rows again.
    changed: (AtomicUsize, AtomicUsize),
}

impl Postgres {
    /// Connects; makes the tables first if `create`.
    pub(crate) fn open(text: &str, create: bool) -> Result<Self> {
        let (config, tls) = configure(text)?;
        let catalog = Self {
            config,
            tls,
            writer: Mutex::default(),
            group: Group::default(),
            readers: ConnectionPool::new(|session: &PostgresSession| {
                !session.client.borrow().is_closed()
            }),
            changed: (AtomicUsize::new(0), AtomicUsize::new(ANALYZE_AFTER)),
        };
        let session = catalog.connect(&Cell::default())?;
        let name = catalog.config.get_dbname().unwrap_or("the database");
        let form = match session.form()? {
            0 if !create => 0,
            form if form < FORM => {
                session.make()?;
                FORM
            }
            form => form,
        };
        match form {
            FORM => {}
            0 => return Err(not_a_catalog(name, text)),
            form => return Err(other_form(name, form)),
        }
        *catalog.writer.lock() = Some(session);
        Ok(catalog)
    }

    fn connect(&self, again: &Cell<bool>) -> Result<PostgresSession> {
        let client = self.config.connect(self.tls.clone());
        let client = client.map_err(|error| {
            again.set(is_passing(&error));
            refused(&error)
        })?;
        Ok(PostgresSession {
            client: RefCell::new(client),
            statements: RefCell::default(),
            again: Cell::new(false),
        })
    }

    /// Does something again while the database is away, or undid it for the sake of others.
    fn patiently<R>(&self, mut once: impl FnMut(&Cell<bool>) -> Result<R>) -> Result<R> {
        let (begun, mut pause) = (Instant::now(), Duration::from_millis(10));
        loop {
            let again = Cell::new(false);
            match once(&again) {
                Err(_) if again.get() && begun.elapsed() < PATIENCE => {
                    thread::sleep(pause);
                    pause = (2 * pause).min(Duration::from_secs(1));
                }
                done => return done,
            }
        }
    }

    fn commit(&self, lists: &[&Changes]) -> Result<Vec<GroupResult>> {
        let mut writer = self.writer.lock();
        // A transaction whose commit was not answered, and its result.
        let mut doubt: Option<(String, Vec<GroupResult>)> = None;
        let made = self.patiently(|again| {
            let open = writer.take();
            let open = open.filter(|open| !open.client.borrow().is_closed());
            let session = match open {
                Some(open) => writer.insert(open),
                None => writer.insert(self.connect(again)?),
            };
            let made = session.commit(lists, &mut doubt);
            again.set(session.again.take());
            made
        });
        if doubt.is_some() {
            let said = "the database was lost while it committed; the changes may be made or not";
            return Err(Refusal::of_kind(Kind::Io, said).next("ask the catalog, then do it again"));
        }
        let made = made?;
        let (changed, next) = &self.changed;
        let count: usize = lists.iter().map(|list| list.changes.len()).sum();
        let count = changed.fetch_add(count, Relaxed) + count;
        if count >= next.load(Relaxed)
            && let Some(session) = &*writer
        {
            // A plan is as old as the statistics: one of a small table reads all of a large one.
            next.store(count + (count / 4).max(ANALYZE_AFTER), Relaxed);
            // Only the owner may do this; else the database does it at some time.
            let _ = session.batch("ANALYZE names, versions, homes, attributes");
        }
        Ok(made)
    }
}

impl Catalog for Postgres {
    fn ask(&self, question: &Question, each: &mut Each<'_>) -> Result<()> {
        let page = self.patiently(|again| {
            self.readers
                .with(
                    || self.connect(again),
                    |session| {
                        let mut page = AnswerPage::default();
                        let asked = session
                            .batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                            .and_then(|()| answer::answer(session, question, &mut page));
                        let ended = session.batch("ROLLBACK");
                        again.set(session.again.take());
                        asked.and(ended).map(|()| page)
                    },
                )
                .inspect_err(|_| self.readers.forget())
        })?;
        page.tell(each)
    }

    fn change(&self, changes: &Changes) -> Result<Vec<u64>> {
        self.group.change(changes, |lists| self.commit(lists))
    }
}

/// Reads what names a database.
fn configure(text: &str) -> Result<(Config, MakeTlsConnector)> {
    let bad = |why: &dyn std::fmt::Display| {
        let said = format!("it does not name a database: {why}");
        Refusal::of_kind(Kind::Invalid, said).next("write postgres://USER@HOST:PORT/DATABASE")
    };
    // As always with PostgreSQL, only verify-full checks the server's name.
    let is_verified = text.contains("sslmode=verify-full");
    let text = text.replace("sslmode=verify-full", "sslmode=require");
    let mut config: Config = text
        .parse()
        .map_err(|error: postgres::Error| bad(&cause(&error)))?;
    if config.get_password().is_none()
        && let Ok(password) = std::env::var("PGPASSWORD")
    {
        config.password(password);
    }
    let said = config.get_options().unwrap_or_default();
    let options = format!("{OPTIONS} {said}");
    config
        .options(&options)
        .application_name("godwit")
        .connect_timeout(PATIENCE)
        .tcp_user_timeout(3 * PATIENCE)
        .keepalives_idle(PATIENCE);
    let mut tls = SslConnector::builder(SslMethod::tls_client()).map_err(|error| bad(&error))?;
    if !is_verified {
        tls.set_verify(SslVerifyMode::NONE);
    }
    let mut tls = MakeTlsConnector::new(tls.build());
    tls.set_callback(move |tls, _| {
        tls.set_verify_hostname(is_verified);
        Ok(())
    });
    Ok((config, tls))
}

/// One connection.
struct PostgresSession {
    client: RefCell<Client>,
    statements: RefCell<HashMap<String, Statement>>,
    /// Whether what failed last may succeed if it is done again.
    again: Cell<bool>,
}

impl PostgresSession {
    /// Returns the form of the tables; 0: there are none.
    fn form(&self) -> Result<u64> {
        let db: &dyn Db = self;
        let sql =
            "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'godwit' AND tablename = 'form'";
        match db.one(sql, &[])? {
            Some(0) | None => Ok(0),
            Some(_) => Ok(db.one("SELECT form FROM form", &[])?.unwrap_or_default()),
        }
    }

    /// Makes the tables, or those of later forms, unless another process just did.
    fn make(&self) -> Result<()> {
        self.batch("BEGIN; SELECT pg_advisory_xact_lock(hashtext('godwit catalog'))")?;
        let form = self.form()?;
        if form == 0 {
            self.batch(
                "CREATE SCHEMA IF NOT EXISTS godwit; CREATE TABLE form (form BIGINT NOT NULL);
                 INSERT INTO form VALUES (0)",
            )?;
        }
        for tables in FORMS
            .iter()
            .skip(usize::try_from(form).unwrap_or(usize::MAX))
        {
            let tables = tables.replace("INTEGER", "BIGINT").replace("BLOB", "BYTEA");
            self.batch(&tables.replace(" WITHOUT ROWID", ""))?;
        }
        self.batch(&format!(
            "UPDATE form SET form = {FORM} WHERE form < {FORM}"
        ))?;
        self.batch("COMMIT")
    }

    /// Applies lists in one transaction. A commit that was in doubt is asked for first.
    fn commit(
        &self,
        lists: &[&Changes],
        doubt: &mut Option<(String, Vec<GroupResult>)>,
    ) -> Result<Vec<GroupResult>> {
        if let Some((number, _)) = doubt {
            let sql = format!("SELECT pg_xact_status('{number}'::xid8)");
            match self.word(&sql)?.as_str() {
                "committed" => return Ok(doubt.take().map(|(_, made)| made).unwrap_or_default()),
                "aborted" => *doubt = None,
                state => {
                    self.again.set(true);
                    let said = format!("its commit is {state}");
                    return Err(Refusal::of_kind(Kind::Busy, said));
                }
            }
        }
        // One writer at a time, as in SQLite: no transaction fails for the sake of another.
        let begin = "BEGIN; LOCK TABLE ids IN EXCLUSIVE MODE; SELECT pg_current_xact_id()";
        let applied = self.word(begin).and_then(|number| {
            let made = lists::apply_all(self, lists)?;
            Ok((number, made))
        });
        match applied {
            Ok(applied) if !self.again.get() => {
                *doubt = Some(applied);
                let committed = self.batch("COMMIT");
                // Refused by a database that is there: nothing was made.
                if committed.is_ok() || !self.again.get() {
                    let applied = doubt.take();
                    committed?;
                    return Ok(applied.map(|(_, made)| made).unwrap_or_default());
                }
                committed.map(|()| Vec::new())
            }
            applied => {
                let ended = self.batch("ROLLBACK");
                applied?;
                ended?;
                Err(Refusal::of_kind(
                    Kind::Busy,
                    "the database undid the changes",
                ))
            }
        }
    }

    /// Executes statements; returns the last word that they tell.
    fn word(&self, sql: &str) -> Result<String> {
        let told = self.client.borrow_mut().simple_query(sql);
        let told = told.map_err(|error| self.failed(&error))?;
        let word = |one| match one {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(told
            .into_iter()
            .filter_map(word)
            .next_back()
            .unwrap_or_default())
    }

    fn prepare(&self, sql: &str) -> Result<Statement> {
        if let Some(known) = self.statements.borrow().get(sql) {
            return Ok(known.clone());
        }
        let text = sql.replace("IN (?1)", "= ANY(?1)").replace('?', "$");
        let made = self.client.borrow_mut().prepare(&text);
        let made = made.map_err(|error| self.failed(&error))?;
        let mut statements = self.statements.borrow_mut();
        statements.insert(sql.to_owned(), made.clone());
        Ok(made)
    }

    fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<DbRow>> {
        let statement = self.prepare(sql)?;
        let rows = self.client.borrow_mut().query(&statement, params);
        let rows = rows.map_err(|error| self.failed(&error))?;
        let row = |row: postgres::Row| -> Either<DbRow, postgres::Error> {
            (0..row.len())
                .map(|at| row.try_get(at))
                .collect::<Either<_, _>>()
                .map(DbRow)
        };
        let rows: Either<Vec<DbRow>, _> = rows.into_iter().map(row).collect();
        rows.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &postgres::Error) -> Refusal {
        self.again.set(self.again.get() || is_passing(error));
        refused(error)
    }
}

impl Db for PostgresSession {
    fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<DbRow>> {
        self.query(sql, &bound(params)?)
    }

    fn rows_in(&self, sql: &str, keys: KeyList<'_>, params: &[&dyn Sql]) -> Result<Vec<DbRow>> {
        let numbers: Vec<i64>;
        let is_of_names = matches!(keys, KeyList::Names(_));
        let keys: &(dyn ToSql + Sync) = match &keys {
            KeyList::Names(names) => names,
            KeyList::Numbers(all) => {
                numbers = all.iter().map(|number| number.cast_signed()).collect();
                &numbers
            }
        };
        let params: Vec<_> = params.iter().map(|param| param.param()).collect();
        let mut all = vec![keys];
        all.extend(bound(&params)?);
        match sql.strip_prefix("SELECT") {
            // A key by itself: with old statistics all of a collection would be read, and each row compared with all keys.
            Some(rest) if is_of_names => {
                let one = rest.replace("IN (?1)", "= k.key");
                let sql = format!(
                    "SELECT s.* FROM unnest(?1::bytea[]) k(key), LATERAL (SELECT{one} OFFSET 0) s"
                );
                self.query(&sql, &all)
            }
            _ => self.query(sql, &all),
        }
    }

    fn insert(&self, table: &str, columns: usize, rows: &[Param<'_>]) -> Result<()> {
        if rows.len() < COPIED_MIN * columns {
            let count = rows.len() / columns;
            return insert_some(self, table, columns, rows, count.max(1));
        }
        let values = bound(rows)?;
        let like = self.prepare(&format!("SELECT * FROM {table} WHERE FALSE"))?;
        let types: Vec<Type> = like.columns().iter().map(|at| at.type_().clone()).collect();
        let mut client = self.client.borrow_mut();
        let mut copy = || -> Either<_, postgres::Error> {
            let to = client.copy_in(&format!("COPY {table} FROM STDIN BINARY"))?;
            let mut to = BinaryCopyInWriter::new(to, &types);
            values.chunks(columns).try_for_each(|row| to.write(row))?;
            to.finish()
        };
        copy().map(drop).map_err(|error| self.failed(&error))
    }

    fn batch(&self, sql: &str) -> Result<()> {
        let done = self.client.borrow_mut().batch_execute(sql);
        done.map_err(|error| self.failed(&error))
    }
}

fn bound<'a>(params: &'a [Param<'_>]) -> Result<Vec<&'a (dyn ToSql + Sync)>> {
    let one = |param: &'a Param<'_>| match param {
        Param::TooLarge => Err(too_large()),
        param => Ok(param as _),
    };
    params.iter().map(one).collect()
}

type Cause = Box<dyn Error + Sync + Send>;

impl ToSql for Param<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Either<IsNull, Cause> {
        match self {
            Self::Int(number) if *ty == Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
            Self::Int(number) => number.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Blob(bytes) => bytes.to_sql(ty, out),
            Self::Null | Self::TooLarge => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for DbValue {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Either<Self, Cause> {
        Ok(match *ty {
            Type::INT8 => Self::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Self::Int(i32::from_sql(ty, raw)?.into()),
            Type::BYTEA => Self::Blob(raw.into()),
            _ => Self::Text(String::from_sql(ty, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Either<Self, Cause> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Tells whether a failure may pass.
fn is_passing(error: &postgres::Error) -> bool {
    match error.code() {
        Some(code) => PASSING.contains(code) || code.code().starts_with("08"),
        None => {
            error.is_closed()
                || error
                    .source()
                    .is_some_and(|cause| cause.is::<std::io::Error>())
        }
    }
}

const PASSING: [SqlState; 6] = [
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::TOO_MANY_CONNECTIONS,
];

/// Failures of the database in our words, by the beginning of their code.
const REFUSED: [(&str, Kind, &str, &str); 15] = [
    (
        "40",
        Kind::Busy,
        "other processes change the catalog",
        "try again",
    ),
    (
        "53300",
        Kind::Busy,
        "the database has too many connections",
        "try again, or raise its max_connections",
    ),
    (
        "55P03",
        Kind::Busy,
        "another process holds the catalog",
        "try again",
    ),
    (
        "57P",
        Kind::Unreachable,
        "the database of the catalog does not run now",
        "see its log, and try again",
    ),
    (
        "08",
        Kind::Unreachable,
        "the database of the catalog cannot be reached",
        "see whether it runs, and try again",
    ),
    (
        "53100",
        Kind::NoSpace,
        "the disk of the database is full",
        "make room there",
    ),
    (
        "XX",
        Kind::Corrupt,
        "the database of the catalog is damaged",
        "restore it from a backup",
    ),
    (
        "25006",
        Kind::Denied,
        "the database of the catalog may only be read",
        "name the server that takes changes",
    ),
    (
        "28",
        Kind::Denied,
        "the database does not let this user in",
        "see its pg_hba.conf; PGPASSWORD tells a password",
    ),
    (
        "42501",
        Kind::Denied,
        "the database does not allow it to this user",
        "ask its owner for the rights",
    ),
    (
        "3D000",
        Kind::Missing,
        "there is no such database",
        "createdb NAME, then godwit catalog init",
    ),
    (
        "42P01",
        Kind::Invalid,
        "the database holds no catalog",
        "godwit catalog init",
    ),
    (
        "22021",
        Kind::Invalid,
        "the database keeps no text with a zero byte or of another encoding",
        "use other text",
    ),
    (
        "22P05",
        Kind::Invalid,
        "the database keeps no text of this encoding",
        "make the database with UTF8",
    ),
    (
        "54000",
        Kind::TooLong,
        "a path is too long for an index of the database",
        "use a shorter path",
    ),
];

/// Says in our words why the database did not do it.
fn refused(error: &postgres::Error) -> Refusal {
    // A connection that is lost has no code.
    let code = match error.code() {
        Some(code) => code.code(),
        None if is_passing(error) => "08",
        None => "",
    };
    let row = REFUSED.iter().find(|(begin, ..)| code.starts_with(begin));
    let (kind, said, next) = match row {
        Some((_, kind, said, next)) => (*kind, *said, *next),
        None => (
            Kind::Io,
            "the database of the catalog failed",
            "see its log",
        ),
    };
    let mut refusal = Refusal::of_kind(kind, format!("{said} ({})", cause(error))).next(next);
    if matches!(kind, Kind::Busy | Kind::Unreachable) {
        refusal = refusal.waiting(Fault::Passing);
    }
    refusal
}

fn cause(error: &postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(told), _) => told.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// How long a connection waits for another process, and for a database that is away.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of a connection. All questions go by an index, also where a young table has no statistics yet.
const OPTIONS: &str =
    "-c search_path=godwit -c synchronous_commit=on -c lock_timeout=10s -c enable_seqscan=off
    -c plan_cache_mode=force_generic_plan -c jit=off -c client_min_messages=error";

/// From how many rows on they are copied.
const COPIED_MIN: usize = 32;

/// After how many changes the database counts its rows.
const ANALYZE_AFTER: usize = 1000;
