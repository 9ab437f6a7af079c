//! The records of a depot, in SQLite. One thread writes. Changes that arrive while it waits for the disk go with the next
//! transaction, so that a thousand small files do not wait a thousand times.

use crate::{
    Error, Result, Tag, Who,
    disk::{
        columns::{self, Said, extents},
        files::Watcher,
        reserve::Ballast,
        rows::{Change, LogRow, Row},
    },
    error::Patience,
    id::Id,
    paths::path_of,
    plan::{
        OddDeed,
        forwarded::Forwarded,
        order::{DeedRow, Fact},
    },
};
use godwit_core::{
    Url,
    deeds::{self, Deed},
    holding::{Base, Held, Mode, Notices, Record, Sealed},
};
use rusqlite::{Connection, Row as Found, Statement, params};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

type Answer = Result<(), Unwritten>;

/// Told when what was asked for is safe.
struct Job {
    change: Change,
    then: Option<Sender<Answer>>,
}

/// The records of a depot.
pub(crate) struct Records {
    path: PathBuf,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// The records at the start of a node.
pub(crate) struct Begun {
    pub records: Records,
    /// Of this start; greater than all before.
    pub start: u64,
    pub rows: Vec<Row>,
    pub tags: Vec<(Id, Tag)>,
    /// And the last start before this boot of the machine.
    pub logs: (Vec<LogRow>, u64),
    pub deeds: Vec<DeedRow>,
    /// Those of which a name cannot be read.
    pub odd_deeds: Vec<OddDeed>,
    pub forwarded: Vec<Forwarded>,
}

impl Records {
    /// Opens them, and writes that we begin.
    pub(crate) fn open(
        path: &Path,
        boot: &str,
        watcher: Option<Arc<dyn Watcher>>,
        ballast: &Arc<Ballast>,
    ) -> Result<Begun> {
        let bad = |error: rusqlite::Error| unkept(path, &error);
        let db = Connection::open(path).map_err(bad)?;
        db.busy_timeout(Duration::from_secs(10)).map_err(bad)?;
        db.execute_batch(PREPARE).map_err(bad)?;
        add_columns(&db).map_err(bad)?;
        db.execute("INSERT INTO starts (boot) VALUES (?1)", [boot])
            .map_err(bad)?;
        let start = db.last_insert_rowid();
        let rows = read_all(&db).map_err(bad)?;
        let tags = read_tags(&db).map_err(bad)?;
        let logs = (
            read_logs(&db).map_err(bad)?,
            before_boot(&db, boot).map_err(bad)?,
        );
        let forwarded = read_forwarded(&db).map_err(bad)?;
        let (mut deeds, mut odd_deeds) = (Vec::new(), Vec::new());
        for deed in read_deeds(&db).map_err(bad)? {
            match deed {
                Ok(deed) => deeds.push(deed),
                Err(odd) => {
                    tracing::error!(
                        ?odd,
                        "a promise has a name that cannot be read; it is left alone"
                    );
                    odd_deeds.push(odd);
                }
            }
        }
        let (jobs, taken) = mpsc::channel();
        let ballast = Arc::clone(ballast);
        let thread = thread::Builder::new()
            .name("records".into())
            .spawn(move || write_all(db, &taken, watcher.as_deref(), &ballast))
            .map_err(Error::disk(path))?;
        Ok(Begun {
            records: Self {
                path: path.into(),
                jobs: Some(jobs),
                thread: Some(thread),
            },
            start: u64::try_from(start).unwrap_or(1),
            rows,
            tags,
            logs,
            deeds,
            odd_deeds,
            forwarded,
        })
    }

    /// Writes, and returns when it is safe.
    pub(crate) fn write(&self, change: Change) -> Result<()> {
        self.begin(change).wait()
    }

    /// Takes its place among the changes; it is safe when what this returns was waited for.
    pub(crate) fn begin(&self, change: Change) -> Written {
        let (then, answer) = mpsc::channel();
        self.tell(change, Some(then));
        let path = self.path.clone();
        Written { path, answer }
    }

    /// Writes some time soon.
    pub(crate) fn write_behind(&self, change: Change) {
        self.tell(change, None);
    }

    fn tell(&self, change: Change, then: Option<Sender<Answer>>) {
        if let Some(jobs) = &self.jobs {
            // A caller that waits notices the end by the end of `then`.
            let _ = jobs.send(Job { change, then });
        }
    }
}

/// A change on its way to the disk.
pub(crate) struct Written {
    path: PathBuf,
    answer: Receiver<Answer>,
}

impl Written {
    /// Returns when it is safe.
    pub(crate) fn wait(self) -> Result<()> {
        match self.answer.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(unwritten)) => Err(unwritten.error(&self.path)),
            Err(_) => Err(Unwritten::since("the thread that writes them ended").error(&self.path)),
        }
    }
}

/// Why records are not on the disk.
#[derive(Clone, Debug)]
struct Unwritten {
    is_full: bool,
    what: String,
}

impl Unwritten {
    fn since(what: &str) -> Self {
        let what = what.into();
        let is_full = false;
        Self { is_full, what }
    }

    fn of(error: &rusqlite::Error) -> Self {
        Self {
            is_full: error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            what: error.to_string(),
        }
    }

    /// That the disk is full is said of them as of any file.
    fn error(&self, path: &Path) -> Error {
        match self.is_full {
            true => Error::disk(path)(io::ErrorKind::StorageFull.into()),
            false => Error::records(path, self.what.clone()),
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn unkept(path: &Path, error: &rusqlite::Error) -> Error {
    Unwritten::of(error).error(path)
}

fn write_all(
    mut db: Connection,
    jobs: &Receiver<Job>,
    watcher: Option<&dyn Watcher>,
    ballast: &Ballast,
) {
    // What is over is over, though a full disk did not take it: it goes before all that comes later, or that would be on
    // record without it, and after an end what is over would be done again.
    let mut missed: Vec<Job> = Vec::new();
    while let Ok(first) = jobs.recv() {
        let mut batch = std::mem::take(&mut missed);
        batch.push(first);
        batch.extend(jobs.try_iter().take(BATCH_MAX));
        let mut answer = Err(Unwritten::since("there is no disk any more"));
        let makes_room = batch.iter().any(|job| job.change.is_an_end());
        let mut write = || {
            let mut once = || write_batch(&mut db, &batch).map_err(|error| Unwritten::of(&error));
            answer = match makes_room {
                true => ballast.with(once),
                false => once(),
            };
        };
        match watcher {
            None => write(),
            Some(watcher) => watcher.records(&mut write),
        }
        if let Err(Unwritten { what, .. }) = &answer {
            tracing::error!(what, "the records of the depot cannot be written");
        }
        for Job { change, then } in batch {
            if let Some(then) = then {
                let _ = then.send(answer.clone());
            }
            if answer.is_err() && change.is_an_end() {
                missed.push(Job { change, then: None });
            }
        }
    }
}

fn write_batch(db: &mut Connection, batch: &[Job]) -> rusqlite::Result<()> {
    let all = db.transaction()?;
    {
        let mut put_one = all.prepare(PUT)?;
        let mut forget = all.prepare("DELETE FROM holdings WHERE id = ?1")?;
        let mut used = all.prepare("UPDATE holdings SET used = ?2 WHERE id = ?1")?;
        let mut verified = all.prepare("UPDATE holdings SET verified = ?2 WHERE id = ?1")?;
        let mut put_log = all.prepare(PUT_LOG)?;
        let mut forget_log = all.prepare("DELETE FROM appends WHERE id = ?1")?;
        let mut put_tag = all.prepare(PUT_TAG)?;
        let mut put_deed = all.prepare(PUT_DEED)?;
        let mut forget_deed = all.prepare("DELETE FROM deeds WHERE number = ?1")?;
        let mut pass = all.prepare("INSERT OR REPLACE INTO passed VALUES (?1, ?2, ?3, ?4)")?;
        let mut arrive = all.prepare("DELETE FROM passed WHERE url = ?1 AND audience = ?2")?;
        let mut untag = all.prepare("DELETE FROM tags WHERE id = ?1 AND tag = ?2")?;
        for job in batch {
            match &job.change {
                Change::Put(row) => put(&mut put_one, row)?,
                Change::Merge(row, merged) => {
                    put(&mut put_one, row)?;
                    forget.execute([merged.to_string()])?;
                }
                Change::Forget(id) => {
                    forget.execute([id.to_string()])?;
                }
                Change::Log(row) => {
                    put_log.execute(params![
                        row.id.to_string(),
                        signed(row.number),
                        row.url,
                        row.audience,
                        row.credential,
                        signed(row.writer),
                        signed(row.seq),
                        signed(row.offset),
                        signed(row.upto),
                    ])?;
                }
                Change::ForgetLog(id) => drop(forget_log.execute([id.to_string()])?),
                Change::Deeds(rows) => {
                    for (number, row) in rows {
                        match row {
                            Some(row) => drop(put_deed.execute(deed_params(row))?),
                            None => drop(forget_deed.execute([signed(*number)])?),
                        }
                    }
                }
                Change::Tag(id, tag) => match tag.count {
                    0 => drop(untag.execute([id.to_string(), tag.name.clone()])?),
                    count => {
                        let expires = tag.expires.map(signed);
                        let row = params![id.to_string(), tag.name, count, tag.timestamp, expires];
                        put_tag.execute(row)?;
                    }
                },
                Change::Forwarded(forwarded, is_on_its_way) => {
                    let (url, who) = (forwarded.url.to_string(), &forwarded.who);
                    let credential = who.credential.as_deref();
                    let credential = credential.map(|path| path.display().to_string());
                    match is_on_its_way {
                        true => drop(pass.execute(params![
                            url,
                            who.audience,
                            credential.unwrap_or_default(),
                            forwarded.session
                        ])?),
                        false => drop(arrive.execute([&url, &who.audience])?),
                    }
                }
                Change::Verified(id, at) => {
                    verified.execute(params![id.to_string(), signed(*at)])?;
                }
                Change::Used(all) => {
                    for (id, at) in all {
                        used.execute(params![id.to_string(), signed(*at)])?;
                    }
                }
            }
        }
    }
    all.commit()
}

fn put(put: &mut Statement<'_>, row: &Row) -> rusqlite::Result<()> {
    let record = &row.record;
    let said = |sealed: &Option<Sealed>| sealed.as_ref().map(Said::say);
    put.execute(params![
        row.id.to_string(),
        signed(row.number),
        row.url,
        row.audience,
        row.credential,
        row.session,
        row.upload,
        record.mode.say(),
        record.base.say(),
        signed(record.drawable),
        signed(record.size),
        record.present.to_string(),
        record.owed.to_string(),
        record.altered,
        signed(record.generation),
        record.open.as_ref().map(Said::say),
        signed(record.committed),
        said(&record.sealed),
        record.inside,
        record.held.as_ref().map(Said::say),
        row.reason,
        row.boot,
        signed(row.used),
        signed(row.created_at),
        signed(row.transfers),
        row.upstream,
        row.is_forwarded,
        row.filled,
        row.stamp,
        row.mode,
        row.asked.as_ref().map(ToString::to_string),
        row.merges_into.map(|id| id.to_string()),
        row.price,
        row.before.as_ref().map(Said::say),
        signed(row.verified),
    ])?;
    Ok(())
}

/// Records of depots from before lack columns.
fn add_columns(db: &Connection) -> rusqlite::Result<()> {
    let mut columns = db.prepare("SELECT name FROM pragma_table_info('holdings')")?;
    let names = columns.query_map([], |found| found.get::<_, String>(0))?;
    let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
    for (name, kind) in ADDED {
        if !names.iter().any(|known| known == name) {
            db.execute(
                &format!("ALTER TABLE holdings ADD COLUMN {name} {kind}"),
                [],
            )?;
        }
    }
    Ok(())
}

fn read_all(db: &Connection) -> rusqlite::Result<Vec<Row>> {
    let mut all = db.prepare(READ)?;
    let rows = all.query_map([], read)?;
    rows.collect()
}

fn read(found: &Found<'_>) -> rusqlite::Result<Row> {
    let text = |at: &str| found.get::<_, String>(at);
    let number = |at: &str| found.get::<_, i64>(at).map(i64::cast_unsigned);
    let maybe = |at: &str| found.get::<_, Option<String>>(at);
    let id = text("id")?.parse().map_err(|()| odd("id"))?;
    let optional = |at: &str| -> rusqlite::Result<_> { maybe(at) };
    Ok(Row {
        id,
        number: number("number")?,
        url: text("url")?,
        audience: text("audience")?,
        credential: text("credential")?,
        session: text("session")?,
        upload: text("upload")?,
        upstream: text("passed")?,
        is_forwarded: found.get("passed_on")?,
        filled: found.get("filled")?,
        stamp: found.get("stamp")?,
        mode: found.get("bits")?,
        asked: maybe("asked")?.and_then(|text| text.parse().ok()),
        price: found.get("price")?,
        before: maybe("before")?.and_then(|text| Base::read(&text)),
        merges_into: match maybe("folds_into")? {
            Some(id) => Some(id.parse().map_err(|()| odd("folds_into"))?),
            None => None,
        },
        record: Record {
            mode: Mode::read(&text("mode")?).ok_or_else(|| odd("mode"))?,
            base: Base::read(&text("base")?).ok_or_else(|| odd("base"))?,
            drawable: number("drawable")?,
            size: number("size")?,
            present: extents(&text("present")?).ok_or_else(|| odd("present"))?,
            owed: extents(&text("owed")?).ok_or_else(|| odd("owed"))?,
            altered: found.get("altered")?,
            generation: number("generation")?,
            open: told::<Notices>(optional("open")?, "open")?,
            committed: number("committed")?,
            inside: found.get("inside")?,
            sealed: told::<Sealed>(optional("sealed")?, "sealed")?,
            held: told::<Held>(optional("held")?, "held")?,
        },
        reason: text("words")?,
        boot: text("boot")?,
        used: number("used")?,
        verified: number("verified")?,
        created_at: number("born")?,
        transfers: number("transfers")?,
    })
}

fn read_logs(db: &Connection) -> rusqlite::Result<Vec<LogRow>> {
    let mut all = db.prepare("SELECT * FROM appends ORDER BY number")?;
    let rows = all.query_map([], |found| {
        let number = |at: &str| found.get::<_, i64>(at).map(i64::cast_unsigned);
        let id: String = found.get("id")?;
        Ok(LogRow {
            id: id.parse().map_err(|()| odd("id"))?,
            number: number("number")?,
            url: found.get("url")?,
            audience: found.get("audience")?,
            credential: found.get("credential")?,
            writer: number("writer")?,
            seq: number("seq")?,
            offset: number("offset")?,
            upto: number("upto")?,
        })
    })?;
    rows.collect()
}

/// Returns the number of the last start that was of another boot than this.
fn before_boot(db: &Connection, boot: &str) -> rusqlite::Result<u64> {
    let last = "SELECT coalesce(max(number), 0) FROM starts WHERE boot <> ?1";
    db.query_row(last, [boot], |found| found.get::<_, i64>(0))
        .map(i64::cast_unsigned)
}

/// Reads the promises; of those of which a name cannot be read what stands there.
fn read_deeds(db: &Connection) -> rusqlite::Result<Vec<Result<DeedRow, OddDeed>>> {
    let mut all = db.prepare("SELECT * FROM deeds ORDER BY position")?;
    let rows = all.query_map([], |found| {
        let number = |at: &str| found.get::<_, i64>(at).map(i64::cast_unsigned);
        let text = |at: &str| found.get::<_, String>(at);
        let odd_deed = OddDeed {
            number: number("number")?,
            url: text("url")?,
            to: found.get("target")?,
            what: text("what")?,
            session: text("session")?,
            created_at: number("born")?,
        };
        let to = odd_deed.to.as_deref().map(Url::from_argument);
        let (Ok(at), Ok(to)) = (Url::from_argument(&odd_deed.url), to.transpose()) else {
            return Ok(Err(odd_deed));
        };
        let what = columns::what(&text("what")?, to.as_ref()).ok_or_else(|| odd("what"))?;
        let credential = text("credential")?;
        let attempt = found.get::<_, Option<i64>>("attempt")?;
        let held = found.get::<_, Option<String>>("held")?;
        Ok(Ok(DeedRow {
            deed: Deed {
                number: number("number")?,
                position: number("position")?,
                at: path_of(&at),
                what,
                condition: Base::read(&text("condition")?).ok_or_else(|| odd("condition"))?,
                attempt: attempt.map(i64::cast_unsigned),
                held: told::<deeds::Held>(held, "held")?,
            },
            fact: Fact {
                url: at,
                to,
                who: Who {
                    audience: text("audience")?,
                    credential: (!credential.is_empty()).then(|| credential.into()),
                },
                session: text("session")?,
                created_at: number("born")?,
                tries: 0,
                last: None,
                later: None,
                patience: Patience::default(),
            },
        }))
    })?;
    rows.collect()
}

fn deed_params(row: &DeedRow) -> impl rusqlite::Params {
    let (deed, fact) = (&row.deed, &row.fact);
    let credential = fact.who.credential.as_deref();
    (
        signed(deed.number),
        signed(deed.position),
        fact.url.to_string(),
        fact.to.as_ref().map(ToString::to_string),
        fact.who.audience.clone(),
        credential.map_or_else(String::new, |path| path.display().to_string()),
        fact.session.clone(),
        columns::say_what(&deed.what),
        deed.condition.say(),
        deed.attempt.map(signed),
        deed.held.as_ref().map(Said::say),
        signed(fact.created_at),
    )
}

/// Rows with a name that cannot be read are left out: no server can be asked for them.
fn read_forwarded(db: &Connection) -> rusqlite::Result<Vec<Forwarded>> {
    let mut all = db.prepare("SELECT url, audience, credential, session FROM passed")?;
    let rows = all.query_map([], |found| {
        let (url, credential): (String, String) = (found.get(0)?, found.get(2)?);
        let who = Who {
            audience: found.get(1)?,
            credential: (!credential.is_empty()).then(|| credential.into()),
        };
        let session = found.get(3)?;
        Ok(Url::from_argument(url).ok().map(|url| Forwarded {
            url,
            who,
            session,
            number: 0,
            is_changed_there: true,
        }))
    })?;
    rows.filter_map(Result::transpose).collect()
}

fn read_tags(db: &Connection) -> rusqlite::Result<Vec<(Id, Tag)>> {
    let mut all = db.prepare("SELECT id, tag, count, timestamp, expires FROM tags")?;
    let tags = all.query_map([], |found| {
        let id: String = found.get(0)?;
        let tag = Tag {
            name: found.get(1)?,
            count: found.get(2)?,
            timestamp: found.get(3)?,
            expires: found.get::<_, Option<i64>>(4)?.map(i64::cast_unsigned),
        };
        Ok((id.parse().map_err(|()| odd("id"))?, tag))
    })?;
    tags.collect()
}

fn told<T: Said>(text: Option<String>, column: &'static str) -> rusqlite::Result<Option<T>> {
    text.map(|text| T::read(&text).ok_or_else(|| odd(column)))
        .transpose()
}

fn odd(column: &'static str) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnName(format!("{column}: what it says is not known"))
}

/// SQLite has signed numbers only; the bits are kept.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

/// Columns that came later.
const ADDED: [(&str, &str); 10] = [
    ("passed", "TEXT NOT NULL DEFAULT ''"),
    ("passed_on", "INTEGER NOT NULL DEFAULT 0"),
    ("filled", "INTEGER NOT NULL DEFAULT 0"),
    ("stamp", "INTEGER"),
    ("bits", "INTEGER"),
    ("asked", "TEXT"),
    ("folds_into", "TEXT"),
    ("price", "INTEGER NOT NULL DEFAULT 0"),
    ("before", "TEXT"),
    ("verified", "INTEGER NOT NULL DEFAULT 0"),
];

const BATCH_MAX: usize = 1000;

const PREPARE: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS starts (number INTEGER PRIMARY KEY AUTOINCREMENT, boot TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS holdings (
        id TEXT PRIMARY KEY, number INTEGER NOT NULL, url TEXT NOT NULL, audience TEXT NOT NULL, credential TEXT NOT NULL,
        session TEXT NOT NULL, upload TEXT NOT NULL, mode TEXT NOT NULL, base TEXT NOT NULL, drawable INTEGER NOT NULL,
        size INTEGER NOT NULL, present TEXT NOT NULL, owed TEXT NOT NULL, altered INTEGER NOT NULL,
        generation INTEGER NOT NULL, open TEXT, committed INTEGER NOT NULL, sealed TEXT, inside INTEGER NOT NULL, held TEXT,
        words TEXT NOT NULL, boot TEXT NOT NULL, used INTEGER NOT NULL, born INTEGER NOT NULL,
        transfers INTEGER NOT NULL, passed TEXT NOT NULL DEFAULT '',
        passed_on INTEGER NOT NULL DEFAULT 0, filled INTEGER NOT NULL DEFAULT 0, stamp INTEGER, bits INTEGER,
        asked TEXT, folds_into TEXT, price INTEGER NOT NULL DEFAULT 0,
        before TEXT, verified INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS appends (
        id TEXT PRIMARY KEY, number INTEGER NOT NULL, url TEXT NOT NULL, audience TEXT NOT NULL,
        credential TEXT NOT NULL, writer INTEGER NOT NULL, seq INTEGER NOT NULL,
        offset INTEGER NOT NULL, upto INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS deeds (
        number INTEGER PRIMARY KEY, position INTEGER NOT NULL, url TEXT NOT NULL, target TEXT, audience TEXT NOT NULL,
        credential TEXT NOT NULL, session TEXT NOT NULL, what TEXT NOT NULL, condition TEXT NOT NULL,
        attempt INTEGER, held TEXT, born INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS passed (
        url TEXT NOT NULL, audience TEXT NOT NULL, credential TEXT NOT NULL, session TEXT NOT NULL,
        PRIMARY KEY (url, audience)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS tags (
        id TEXT NOT NULL, tag TEXT NOT NULL, count INTEGER NOT NULL, timestamp INTEGER, expires INTEGER,
        PRIMARY KEY (id, tag)
    ) WITHOUT ROWID;
";

const PUT: &str = "INSERT OR REPLACE INTO holdings
    (id, number, url, audience, credential, session, upload, mode, base, drawable, size, present, owed, altered,
     generation, open, committed, sealed, inside, held, words, boot, used, born, transfers, passed, passed_on,
     filled, stamp, bits, asked, folds_into, price, before, verified)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
     ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35)";

const PUT_LOG: &str = "INSERT OR REPLACE INTO appends
    (id, number, url, audience, credential, writer, seq, offset, upto)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

const PUT_DEED: &str = "INSERT OR REPLACE INTO deeds
    (number, position, url, target, audience, credential, session, what, condition, attempt, held, born)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

const PUT_TAG: &str = "INSERT OR REPLACE INTO tags (id, tag, count, timestamp, expires)
    VALUES (?1, ?2, ?3, ?4, ?5)";

const READ: &str = "SELECT * FROM holdings ORDER BY number";
