//! Appends that a process did not live to see the end of, and a disk that lost its power.

use super::*;
use crate::{Defect, Faulty, StoreExt};
use std::{
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::{CommandExt, ExitStatusExt},
    },
    process::Command,
};

/// The bytes of append number `seq` by writer `writer`.
fn part(writer: u64, seq: u64) -> Vec<u8> {
    let text = format!("{writer}.{seq}:").into_bytes();
    [text, noise(9_000, writer * 100 + seq)].concat()
}

fn given((writer, seq): (u64, u64)) -> SmallWrite {
    SmallWrite {
        path: "log".into(),
        bytes: part(writer, seq),
        how: WriteMode::Append { writer, seq },
        mtime: None,
        mode: None,
    }
}

/// The appends that a child makes, in batches.
const STEPS: [&[(u64, u64)]; 4] = [&[(1, 1)], &[(1, 2), (2, 1)], &[(1, 3)], &[(2, 2)]];

fn all_of_them() -> Vec<u8> {
    bytes_of(STEPS.len())
}

fn bytes_of(steps: usize) -> Vec<u8> {
    let parts = STEPS[..steps].iter().copied().flatten();
    parts.flat_map(|&(writer, seq)| part(writer, seq)).collect()
}

/// Makes all appends, those from before among them; calls `on` after each step.
fn all_appended(dir: &Dir, mut on: impl FnMut(usize)) {
    for (i, step) in STEPS.iter().enumerate() {
        let mut next = step.iter().copied().map(given);
        dir.write_small(&mut || next.next(), &mut |_, finished| {
            finished.unwrap();
        })
        .unwrap();
        on(i + 1);
    }
}

/// The one that dies: run by `dies_at` only.
#[test]
fn child() {
    let Some(root) = std::env::var_os("GODWIT_CHILD") else {
        return;
    };
    let acked = std::env::var_os("GODWIT_ACKED").unwrap();
    let dir = Dir::open(Path::new(&root), "tester", Opener::Myself).unwrap();
    all_appended(&dir, |steps| fs::write(&acked, steps.to_string()).unwrap());
}

/// A directory in which a process died, the state that the disk may have, and how many appends were answered.
struct Dead {
    place: Scratch,
    disk: Scratch,
    told: usize,
}

impl Dead {
    fn at(point: &str) -> Self {
        Self {
            place: Scratch::new(),
            disk: Scratch::new(),
            told: 0,
        }
        .again(point)
    }

    /// Runs another process there, which dies at `point`.
    fn again(mut self, point: &str) -> Self {
        let aside = Scratch::new();
        let acked = aside.0.join("acked");
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "dir::tests::appends::child", "--nocapture"])
            .env("GODWIT_CHILD", &self.place.0)
            .env("GODWIT_DISK", &self.disk.0)
            .env("GODWIT_ACKED", &acked)
            .env("GODWIT_CRASH", point)
            .output()
            .unwrap()
            .status;
        assert_eq!(status.signal(), Some(9), "{point} was not reached");
        let told = fs::read_to_string(&acked).map_or(0, |steps| steps.parse().unwrap());
        self.told = self.told.max(told);
        self
    }

    fn ledger(&self) -> Option<String> {
        let mut names = self.place.names().into_iter();
        names.find(|name| name.ends_with(".seqs"))
    }

    /// Checks that answered appends are there, and that after a retry every append is there once. The retry is by the
    /// same writers, or after others.
    fn goes_on(&self, what: &str) {
        let was_told = bytes_of(self.told);
        let before = fs::read(self.place.0.join("log")).unwrap_or_default();
        assert!(
            before.starts_with(&was_told),
            "{what}: what was told is gone"
        );
        let ledger = self.ledger().map(|name| self.place.0.join(name));
        let of_ledger = ledger.as_ref().map(|path| fs::read(path).unwrap());
        all_appended(&self.place.dir(), |_| {});
        assert!(self.place.bytes("log") == all_of_them(), "{what}");
        // Once more, with another writer first.
        fs::write(self.place.0.join("log"), before).unwrap();
        match (ledger, of_ledger) {
            (Some(path), Some(bytes)) => fs::write(path, bytes).unwrap(),
            _ => fs::remove_file(self.place.0.join(self.ledger().unwrap())).unwrap(),
        }
        let dir = self.place.dir();
        for how in [(3, 1), (3, 1)] {
            let mut next = Some(given(how));
            let told = &mut |_, finished: Result<Finished>| drop(finished.unwrap());
            dir.write_small(&mut || next.take(), told).unwrap();
        }
        all_appended(&dir, |_| {});
        let (all, other) = (self.place.bytes("log"), part(3, 1));
        let at = all.windows(4).position(|text| text == b"3.1:").unwrap();
        let without = [&all[..at], &all[at + other.len()..]].concat();
        assert!(all[at..].starts_with(&other), "{what}: torn");
        assert!(without == all_of_them(), "{what}: another came first");
        let names = self.place.names();
        assert_eq!(names.len(), 2, "{what}: {names:?}");
    }
}

/// Points at which a process dies; the number says in which append.
const POINTS: [&str; 16] = [
    "append.file-made",
    "append.ledger-made",
    "append.said:1",
    "append.intended:1",
    "append.bytes-written:1",
    "append.synced:1",
    "append.noted:1",
    "append.said:2",
    "append.intended:2",
    "append.bytes-written:2",
    "append.synced:2",
    "append.noted:2",
    "append.bytes-written:3",
    "append.noted:3",
    "append.said:4",
    "append.synced:4",
];

#[test] //= appending#records
fn append_is_once_after_any_kill() {
    for point in POINTS {
        Dead::at(point).goes_on(point);
    }
    // The process that settles the append may die as well.
    for point in ["append.bytes-written:2", "append.intended:3"] {
        Dead::at(point).again("append.settled").goes_on(point);
    }
}

/// A kill in the middle of a write leaves the beginning of it.
#[test] //= GASS-34 appending#records
fn append_that_was_torn_is_cut_off() {
    for steps in 0..STEPS.len() {
        let point = format!("append.bytes-written:{}", steps + 1);
        let (start, end) = (bytes_of(steps).len(), bytes_of(steps + 1).len());
        for len in [start + 1, start + 4096, end - 1] {
            let dead = Dead::at(&point);
            let log = fs::OpenOptions::new()
                .write(true)
                .open(dead.place.0.join("log"));
            log.unwrap().set_len(len as u64).unwrap();
            dead.goes_on(&format!("{point}, {len} bytes of it"));
        }
    }
}

/// All mixtures of pages that a disk may have of a file: each page synced, or as written since.
fn mixtures(mut synced: Vec<u8>, written: &[u8]) -> Vec<Vec<u8>> {
    const PAGE: usize = 4096;
    synced.resize(written.len(), 0); // Where nothing was, a hole is.
    let pages = synced.chunks(PAGE).zip(written.chunks(PAGE)).enumerate();
    let pages = pages.filter(|(_, (old, new))| old != new);
    let differ: Vec<usize> = pages.map(|(page, _)| page * PAGE).collect();
    assert!(differ.len() < 8, "too many mixtures");
    let mixture = |mask: usize| {
        let mut all = synced.clone();
        let of_mask = differ.iter().enumerate();
        for (_, &at) in of_mask.filter(|(bit, _)| mask >> bit & 1 == 1) {
            let end = written.len().min(at + PAGE);
            all[at..end].copy_from_slice(&written[at..end]);
        }
        all
    };
    (0..1 << differ.len()).map(mixture).collect()
}

/// Whatever reached the disk before the power was cut, all is there once in the end.
fn goes_on_without_power(dead: &Dead, what: &str) {
    let on_disk = |name: &str| fs::read(dead.disk.0.join(name)).unwrap_or_default();
    let (log, ledger) = (dead.place.0.join("log"), dead.ledger());
    // A file grows as its blocks reach the disk: its end may be zeros or missing.
    let (synced, written) = (on_disk("log"), fs::read(&log).unwrap());
    let half = (synced.len() + written.len()) / 2;
    let mut zeros = synced.clone();
    zeros.resize(written.len(), 0);
    let logs = [synced, written[..half].to_vec(), zeros, written];
    let ledgers = match &ledger {
        Some(name) => {
            let written = fs::read(dead.place.0.join(name)).unwrap();
            mixtures(on_disk(name), &written)
        }
        None => vec![Vec::new()],
    };
    for (i, bytes) in logs.iter().enumerate() {
        for (j, of_ledger) in ledgers.iter().enumerate() {
            fs::write(&log, bytes).unwrap();
            match (&ledger, dead.ledger()) {
                (Some(name), _) => fs::write(dead.place.0.join(name), of_ledger).unwrap(),
                (None, Some(later)) => fs::remove_file(dead.place.0.join(later)).unwrap(),
                (None, None) => {}
            }
            dead.goes_on(&format!("{what}, bytes {i}, ledger {j}"));
        }
    }
}

#[test] //= appending#records
fn append_is_once_after_any_power_cut() {
    for point in POINTS {
        goes_on_without_power(&Dead::at(point), point);
    }
    // An append that was interrupted and settled by another process counts as done, so it must be durable.
    for later in ["append.settled", "append.said:1", "append.bytes-written:1"] {
        let dead = Dead::at("append.bytes-written:2").again(later);
        goes_on_without_power(&dead, &format!("killed, and then at {later}"));
    }
}

#[test] //= appending#records
fn append_with_lost_answer_is_once() {
    let place = Scratch::new();
    let dir = Faulty::new(place.dir(), []);
    for seq in 1..=3 {
        let append = || {
            let how = WriteMode::Append { writer: 1, seq };
            let write = Write::with(how);
            let sink = dir.write(p("log"), &write)?;
            put(&*sink, 0, &part(1, seq));
            sink.finish(&Expected::default())
        };
        dir.trouble(Defect::LosesFinish);
        assert!(append().is_err());
        append().unwrap();
    }
    let all: Vec<u8> = (1..=3).flat_map(|seq| part(1, seq)).collect();
    assert!(place.bytes("log") == all);
}

#[test] //= appending#records
fn append_keeps_identities_apart() {
    let place = Scratch::new();
    let other = Dir::open(&place.0, "other", Opener::Myself).unwrap();
    for (dir, text) in [(place.dir(), b"mine "), (other, b"thine")] {
        for _ in 0..2 {
            text_appended(&dir, (1, 1), text).unwrap();
        }
    }
    assert_eq!(place.bytes("log"), b"mine thine");
}

fn text_appended(dir: &Dir, (writer, seq): (u64, u64), text: &[u8]) -> Result<Finished> {
    let mut next = Some(SmallWrite {
        bytes: text.into(),
        ..given((writer, seq))
    });
    let mut told = None;
    dir.write_small(&mut || next.take(), &mut |_, finished| {
        told = Some(finished)
    })?;
    told.unwrap()
}

/// Bytes written past godwit are never cut off, nor counted as an append.
#[test] //= appending#records
fn append_spares_what_others_have_written_behind() {
    let place = Scratch::new();
    let dir = place.dir();
    let others = |text: &[u8]| {
        let file = fs::OpenOptions::new()
            .append(true)
            .open(place.0.join("log"));
        file.unwrap().write_all(text).unwrap();
    };
    text_appended(&dir, (1, 1), b"a").unwrap();
    others(b"others ");
    text_appended(&dir, (1, 2), b"b").unwrap();
    text_appended(&dir, (1, 2), b"b").unwrap();
    assert_eq!(place.bytes("log"), b"aothers b");
    // A process died before any of its bytes were written, and another program wrote more than that.
    let dead = Dead::at("append.intended:2");
    let before = dead.place.bytes("log");
    let file = fs::OpenOptions::new()
        .append(true)
        .open(dead.place.0.join("log"));
    let long = noise(30_000, 5);
    file.unwrap().write_all(&long).unwrap();
    all_appended(&dead.place.dir(), |_| {});
    let all = dead.place.bytes("log");
    assert!(all.starts_with(&[before.clone(), long.clone()].concat()));
    let without = [&all[..before.len()], &all[before.len() + long.len()..]].concat();
    assert!(without == all_of_them());
}

/// Appends without a number are written as whole blocks in between, and settle an append that was begun.
#[test] //= appending#records
fn append_numbered_and_plain_stay_whole() {
    let dead = Dead::at("append.intended:2");
    let before = dead.place.bytes("log");
    let dir = dead.place.dir();
    let write = Write {
        how: WriteMode::Append { writer: 0, seq: 0 },
        ..Write::default()
    };
    let sink = dir.write(p("log"), &write).unwrap();
    put(&*sink, 0, b"plain ");
    text_appended(&dir, (9, 1), b"numbered ").unwrap();
    put(&*sink, 6, b"again");
    sink.finish(&Expected::default()).unwrap();
    let all = [&before[..], b"plain numbered again"].concat();
    assert!(dead.place.bytes("log") == all);
}

#[test] //= appending#records
fn append_waits_for_a_locked_file() {
    let place = Scratch::new();
    let dir = place.dir();
    text_appended(&dir, (1, 1), b"a").unwrap();
    let file = fs::File::open(place.0.join("log")).unwrap();
    assert!(sys::try_lock(&file).unwrap());
    std::thread::scope(|scope| {
        let next = scope.spawn(|| text_appended(&dir, (1, 2), b"b"));
        let waits = || !next.is_finished();
        // It must not have been appended, however long that lasts.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            assert!(waits());
        }
        assert_eq!(place.bytes("log"), b"a");
        drop(file);
        next.join().unwrap().unwrap();
    });
    assert_eq!(place.bytes("log"), b"ab");
}

/// Processes that know nothing of each other lose none of each other's lines.
#[test] //= appending#records
fn append_by_many_processes_loses_nothing() {
    const EACH: u64 = 40;
    if let Some(root) = std::env::var_os("GODWIT_CHILD") {
        let writer: u64 = std::env::var("GODWIT_WRITER").unwrap().parse().unwrap();
        let dir = Dir::open(Path::new(&root), "tester", Opener::Myself).unwrap();
        for seq in 1..=EACH {
            text_appended(&dir, (writer, seq), format!("{writer} {seq}\n").as_bytes()).unwrap();
        }
        return;
    }
    let place = Scratch::new();
    let children: Vec<_> = (1..=4u64)
        .map(|writer| {
            let name = "dir::tests::appends::append_by_many_processes_loses_nothing";
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", name]).env("GODWIT_CHILD", &place.0);
            child.env("GODWIT_WRITER", writer.to_string());
            child.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let all = String::from_utf8(place.bytes("log")).unwrap();
    for writer in 1..=4 {
        let start = format!("{writer} ");
        let lines: Vec<&str> = all
            .lines()
            .filter(|line| line.starts_with(&start))
            .collect();
        let expected: Vec<String> = (1..=EACH).map(|seq| format!("{writer} {seq}")).collect();
        assert_eq!(lines, expected);
    }
    assert_eq!(all.lines().count() as u64, 4 * EACH);
}

#[test] //= appending#records
fn append_ledger_is_removed_with_its_file() {
    let place = Scratch::new();
    let dir = place.dir();
    let ledgers = |of: &str| {
        let names = fs::read_dir(place.0.join(of)).unwrap();
        let names = names.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".seqs")).count()
    };
    text_appended(&dir, (1, 1), b"a").unwrap();
    assert_eq!(ledgers(""), 1);
    let mut listed = Vec::new();
    dir.list(p(""), &mut |entry| {
        listed.push(entry.path);
        Ok(())
    })
    .unwrap();
    assert_eq!(listed, [p("log")]);
    assert!(dir.hidden(p("")).unwrap().is_empty(), "it is no upload");
    // With the file.
    fs::create_dir(place.0.join("below")).unwrap();
    dir.rename(p("log"), p("below/log")).unwrap();
    assert_eq!((ledgers(""), ledgers("below")), (0, 1));
    let own = fs::read_dir(place.0.join("below")).unwrap();
    let own = own.map(|e| e.unwrap().file_name());
    let own = own.into_iter().find(|n| is_ledger_name(n)).unwrap();
    let own = p("below").join(own);
    assert!(dir.stat(&own).is_err(), "no user's file");
    assert!(dir.remove(&own, RemovalKind::File).is_err());
    dir.remove(p("below/log"), RemovalKind::File).unwrap();
    assert_eq!(ledgers("below"), 0);
    // In place of another that had one.
    for name in ["log", "other"] {
        let mut next = Some(SmallWrite {
            path: name.into(),
            ..given((1, 1))
        });
        let told = &mut |_, finished: Result<Finished>| drop(finished.unwrap());
        dir.write_small(&mut || next.take(), told).unwrap();
    }
    assert_eq!(ledgers(""), 2);
    dir.rename(p("other"), p("log")).unwrap();
    assert_eq!(ledgers(""), 1);
    super::write(&dir, "log", b"whole");
    assert_eq!(ledgers(""), 0);
}

fn is_ledger_name(name: &OsStr) -> bool {
    name.to_string_lossy().ends_with(".seqs")
}

#[test] //= appending#records
fn append_ledgers_of_removed_files_are_swept() {
    let place = Scratch::new();
    let dir = place.dir();
    text_appended(&dir, (1, 1), b"a").unwrap();
    assert_eq!(dir.sweep(Duration::ZERO).unwrap(), 0, "its file is there");
    text_appended(&dir, (1, 1), b"a").unwrap();
    assert_eq!(place.bytes("log"), b"a");
    fs::remove_file(place.0.join("log")).unwrap();
    assert_eq!(dir.sweep(Duration::from_secs(3600)).unwrap(), 0, "too soon");
    assert_eq!(dir.sweep(Duration::ZERO).unwrap(), 1);
    assert!(place.names().is_empty());
}

/// A file with a reused inode does not have the appends of the older file. A ledger that cannot be read is replaced.
#[test] //= appending#records
fn append_believes_no_ledger_of_another_file() {
    let place = Scratch::new();
    let dir = place.dir();
    text_appended(&dir, (1, 1), b"a").unwrap();
    text_appended(&dir, (1, 2), b"b").unwrap();
    let name = place
        .names()
        .into_iter()
        .find(|name| name.ends_with(".seqs"));
    let ledger = place.0.join(name.unwrap());
    let good = fs::read(&ledger).unwrap();
    // When it was made, as the ledger has it.
    for (at, what) in [(24, "birth"), (16, "inode"), (0, "form"), (41, "name")] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&ledger, &bad).unwrap();
        let next = text_appended(&dir, (1, 3), b"c");
        assert!(
            matches!(next, Err(Error::OutOfTurn { .. })),
            "{what}: {next:?}"
        );
    }
    for rubbish in [&b""[..], b"x", &[0xff; 20_000]] {
        fs::write(&ledger, rubbish).unwrap();
        text_appended(&dir, (1, 1), b"!").unwrap();
        text_appended(&dir, (1, 1), b"!").unwrap();
    }
    assert_eq!(place.bytes("log"), b"ab!!!");
}

/// A user who may create names beside another's file cannot have that file cut.
#[test] //= appending#records
fn append_ignores_ledger_of_unprivileged_user() {
    let place = Scratch::new();
    if fs::metadata(&place.0).unwrap().uid() != 0 {
        eprintln!("skipped: only root can make files of others");
        return;
    }
    let dir = place.dir();
    text_appended(&dir, (1, 1), b"a").unwrap();
    let ledger = place
        .names()
        .into_iter()
        .find(|name| name.ends_with(".seqs"));
    let ledger = place.0.join(ledger.unwrap());
    std::os::unix::fs::chown(&ledger, Some(65_534), Some(65_534)).unwrap();
    let refused = text_appended(&dir, (1, 2), b"b").unwrap_err();
    assert!(matches!(refused, Error::Denied { .. }), "{refused}");
    // Who may write to the file may.
    fs::set_permissions(place.0.join("log"), fs::Permissions::from_mode(0o666)).unwrap();
    text_appended(&dir, (1, 2), b"b").unwrap();
    assert_eq!(place.bytes("log"), b"ab");
}

/// A ledger with invented numbers is believed only where the file agrees.
#[test] //= appending#records
fn append_takes_any_ledger_without_harm() {
    let dead = Dead::at("append.intended:2");
    let ledger = dead.place.0.join(dead.ledger().unwrap());
    let (good, before) = (fs::read(&ledger).unwrap(), dead.place.bytes("log"));
    let mut state = 88_172_645_463_325_252u64;
    for _ in 0..300 {
        let mut bad = good.clone();
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = state as usize % bad.len();
            bad[at] = (state >> 40) as u8;
        }
        fs::write(&ledger, &bad).unwrap();
        let _ = text_appended(&dead.place.dir(), (1, 1), &part(1, 1));
        assert!(dead.place.bytes("log").starts_with(&before));
        fs::write(dead.place.0.join("log"), &before).unwrap();
    }
}

#[test] //= appending#records
fn append_without_ledger_space_is_refused() {
    // Root may write everywhere, so an ordinary user runs the test.
    if std::env::var_os("GODWIT_CLOSED").is_none() {
        let place = Scratch::new();
        place.dir();
        let path = place.0.join("log");
        fs::write(&path, b"a").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o555)).unwrap();
        let exe = std::env::temp_dir().join(format!("godwit-closed-log-{}", std::process::id()));
        fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
        let name = "dir::tests::appends::append_without_ledger_space_is_refused";
        let mut command = Command::new(&exe);
        command.args(["--exact", name]);
        command.env("GODWIT_CLOSED", &place.0).current_dir("/");
        if fs::metadata(&place.0).unwrap().uid() == 0 {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        let _ = fs::remove_file(&exe);
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(place.bytes("log"), b"a!");
        return;
    }
    let root = PathBuf::from(std::env::var_os("GODWIT_CLOSED").unwrap());
    let dir = Dir::open(&root, "tester", Opener::Myself).unwrap();
    let refused = text_appended(&dir, (1, 1), b"b").unwrap_err();
    assert!(matches!(refused, Error::Denied { .. }), "{refused}");
    assert!(
        refused.to_string().contains("recorded beside it"),
        "{refused}"
    );
    // Without a number nothing has to be.
    text_appended(&dir, (0, 0), b"!").unwrap();
}

/// Fails if a crash point has no test.
#[test]
fn every_point_of_appends_is_tested() {
    let code = concat!(include_str!("../append.rs"), include_str!("../ledger.rs"));
    let tests = include_str!("appends.rs");
    let points: Vec<&str> = code
        .split("crash::point(\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(points.len() >= 8);
    for point in points {
        assert!(tests.contains(&format!("\"{point}")), "{point}");
    }
}
