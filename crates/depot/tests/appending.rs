//! Appended lines: each arrives once, whole, in the order of its writer.
#![allow(clippy::unwrap_used)]

mod common;

use common::{both, depot, over, rules, until, url, who, with};
use godwit_depot::{Depot, Error, Nth, Rules, Scope, Stage};
use godwit_store::Defect;
use std::{sync::Arc, thread, time::Duration};

const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// Fails unless each writer's lines are present once, whole and in order.
fn must_have(text: &[u8], writers: usize, lines: usize) {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let mut next = vec![0; writers];
    for line in text.lines() {
        let (writer, number) = line.split_once(' ').unwrap();
        let (writer, number): (usize, usize) = (writer.parse().unwrap(), number.parse().unwrap());
        assert_eq!(number, next[writer], "line of writer {writer}");
        next[writer] += 1;
    }
    assert!(next.iter().all(|&count| count == lines), "{next:?}");
}

#[test] //= GASS-18 GASS-81 delivery#appends
fn concurrent_appends_arrive_once() {
    let (far, dir) = both();
    let depot = Arc::new(depot(&far, &dir));
    for at in [3, 7, 12, 20] {
        far.trouble(Defect::LosesVerb(at));
    }
    far.trouble(Defect::LosesFinish);
    thread::scope(|scope| {
        for writer in 0..20 {
            let depot = Arc::clone(&depot);
            scope.spawn(move || {
                let appending = depot.append(&url("log"), &who()).unwrap();
                for line in 0..50 {
                    let text = format!("{writer} {line}\n");
                    appending.add(text.as_bytes()).unwrap();
                }
                appending.push(LIMIT).unwrap();
            });
        }
    });
    must_have(&far.get("log").unwrap(), 20, 50);
    assert!(depot.queue().is_empty());
}

#[test] //= GASS-35 depot#writing
fn appends_survive_outage_and_restart() {
    let (far, dir) = both();
    let first = depot(&far, &dir);
    let appending = first.append(&url("log"), &who()).unwrap();
    appending.add(b"0 0\n").unwrap();
    appending.push(LIMIT).unwrap();
    far.set_away(true);
    appending.add(b"0 1\n").unwrap();
    appending.add(b"0 2\n").unwrap();
    appending.commit().unwrap();
    assert!(appending.push(Some(Duration::from_millis(100))).is_err());
    assert_eq!(first.queue().len(), 1);
    drop((appending, first));
    let again = depot(&far, &dir);
    assert!(again.has_pending());
    // The new log follows the lines of the old one.
    let appending = again.append(&url("log"), &who()).unwrap();
    appending.add(b"0 3\n").unwrap();
    far.set_away(false);
    appending.push(LIMIT).unwrap();
    must_have(&far.get("log").unwrap(), 1, 4);
}

#[test] //= depot#commit-and-push
fn session_waits_for_own_lines() {
    let (far, dir) = both();
    let first = depot(&far, &dir);
    let of = |session: &str| Scope::Session(session.into());
    let pending = |depot: &Depot, session| depot.queue_of(&of(session)).len();
    far.set_away(true);
    let night = first.append_of(&url("log"), &who(), "night").unwrap();
    let day = first.append_of(&url("log"), &who(), "day").unwrap();
    night.add(b"0 0\n").unwrap();
    assert_eq!(first.queue()[0].session, "night");
    assert_eq!((pending(&first, "night"), pending(&first, "day")), (1, 0));
    let soon = Some(Duration::from_millis(100));
    let error = first.push(&of("night"), soon).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    first.push(&of("day"), soon).unwrap();
    first.commit(&of("night")).unwrap();
    far.set_away(false);
    first.push(&of("night"), LIMIT).unwrap();
    must_have(&far.get("log").unwrap(), 1, 1);
    assert_eq!(pending(&first, "night"), 0);
    // Lines of another session are not waited for.
    far.set_away(true);
    day.add(b"0 1\n").unwrap();
    assert_eq!((pending(&first, "night"), pending(&first, "day")), (0, 1));
    first.push(&of("night"), soon).unwrap();
    drop((night, day, first));
    // After a restart the session of a line is unknown.
    let again = depot(&far, &dir);
    assert_eq!((again.queue().len(), pending(&again, "day")), (1, 0));
    far.set_away(false);
    again.push(&Scope::All, LIMIT).unwrap();
    must_have(&far.get("log").unwrap(), 1, 2);
}

#[test]
fn queue_counts_bytes_of_lines() {
    let (far, dir) = both();
    let first = depot(&far, &dir);
    let pending = |depot: &Depot| {
        let told = |row: &godwit_depot::Pending| (row.size, row.pending_bytes);
        depot.queue().iter().map(told).collect::<Vec<_>>()
    };
    let appending = first.append(&url("log"), &who()).unwrap();
    appending.add(b"1\n").unwrap();
    appending.push(LIMIT).unwrap();
    far.set_away(true);
    appending.add(b"234\n").unwrap();
    let once = |seq, text: &[u8]| {
        appending
            .add_once(text, Nth { by: 7, seq }, &|_| true)
            .unwrap()
    };
    once(1, b"");
    once(2, b"567\n");
    assert_eq!(pending(&first), [(8, 8)]);
    appending.commit().unwrap();
    drop((appending, first));
    let again = depot(&far, &dir);
    assert_eq!(pending(&again), [(8, 8)]);
    far.set_away(false);
    again.push(&Scope::All, LIMIT).unwrap();
    assert_eq!(pending(&again), []);
}

#[test] //= delivery#appends
fn lines_on_hold_retry_or_drop() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let there = far.dir.path().join("log");
    let held = |line: &[u8]| {
        std::fs::create_dir(&there).unwrap();
        let appending = depot.append(&url("log"), &who()).unwrap();
        appending.add(line).unwrap();
        let error = appending.push(LIMIT).unwrap_err();
        assert!(matches!(error, Error::Held { .. }), "{error}");
        std::fs::remove_dir(&there).unwrap();
    };
    held(b"0 0\n");
    depot.retry("ftp://far/log").unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    must_have(&far.get("log").unwrap(), 1, 1);
    std::fs::remove_file(&there).unwrap();
    held(b"0 1\n");
    depot.discard("ftp://far/log").unwrap();
    depot.push(&Scope::All, LIMIT).unwrap();
    assert!(!there.exists() && depot.queue().is_empty());
}

#[test]
fn repeated_line_is_taken_once() {
    let (far, dir) = both();
    let say = |depot: &Depot, seq: u64| {
        let appending = depot.append(&url("log"), &who()).unwrap();
        let text = format!("0 {}\n", seq - 1);
        let nth = Nth { by: 77, seq };
        appending.add_once(text.as_bytes(), nth, &|_| true).unwrap();
        appending
    };
    let first = depot(&far, &dir);
    far.set_away(true);
    drop((
        say(&first, 1),
        say(&first, 1),
        say(&first, 2),
        say(&first, 1),
    ));
    drop(first);
    // The node was killed while it wrote the third line.
    let again = depot(&far, &dir);
    drop((say(&again, 2), say(&again, 3)));
    drop(again);
    let logs = std::fs::read_dir(dir.path().join("depot/appends")).unwrap();
    // The shortest log is that of the third line.
    let logs = logs.map(|log| log.unwrap().path());
    let shortest = logs.min_by_key(|path| std::fs::metadata(path).unwrap().len());
    let file = std::fs::File::options().write(true).open(shortest.unwrap());
    let file = file.unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let again = depot(&far, &dir);
    far.set_away(false);
    say(&again, 3).push(LIMIT).unwrap();
    again.push(&Scope::All, LIMIT).unwrap();
    must_have(&far.get("log").unwrap(), 1, 3);
    drop(again);
    // A repeated line is also known after delivery.
    let again = depot(&far, &dir);
    say(&again, 3).push(LIMIT).unwrap();
    say(&again, 4).push(LIMIT).unwrap();
    must_have(&far.get("log").unwrap(), 1, 4);
}

#[test] //= GASS-18
fn appends_resume_after_full_target() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let appending = depot.append(&url("log"), &who()).unwrap();
    let add = |lines: std::ops::Range<usize>| {
        lines.for_each(|line| appending.add(format!("0 {line}\n").as_bytes()).unwrap());
    };
    add(0..10);
    appending.push(LIMIT).unwrap();
    let there = far.get("log").unwrap().len() as u64;
    far.trouble(Defect::FullAt(there + 7));
    add(10..100);
    until("it was tried twice", || {
        depot.queue().iter().any(|row| row.tries > 1)
    });
    // The depot retries by itself once there is room.
    let stages: Vec<_> = depot.queue().into_iter().map(|row| row.stage).collect();
    assert!(!stages.contains(&Stage::Held), "{stages:?}");
    add(100..200);
    far.store.mend();
    appending.push(LIMIT).unwrap();
    must_have(&far.get("log").unwrap(), 1, 200);
    assert!(depot.queue().is_empty());
}

#[test]
fn delivered_lines_free_their_room() {
    const QUOTA: u64 = 1 << 20;
    let (far, dir) = both();
    let small = Rules {
        quota: Some(QUOTA),
        ..rules()
    };
    let depot = with(&far, &dir, small);
    let appending = depot.append(&url("log"), &who()).unwrap();
    for _ in 0..7 {
        appending.add(&[b'x'; 100_000]).unwrap();
        appending.push(LIMIT).unwrap();
    }
    let writing = depot.put(&url("a"), &who(), &over()).unwrap();
    let begun = std::time::Instant::now();
    let is_wanted = |_: &Error| begun.elapsed() < Duration::from_secs(20);
    let written = writing.write_while(0, &[b'y'; 900_000], &is_wanted);
    written.expect("what was appended is at its target");
    writing.end().unwrap();
}

#[test] //= GASS-37 KANGAROO-20 depot#room
fn pending_lines_count_against_quota() {
    const QUOTA: u64 = 1 << 20;
    let (far, dir) = both();
    let small = || Rules {
        quota: Some(QUOTA),
        ..rules()
    };
    let first = with(&far, &dir, small());
    far.set_away(true);
    let lines = |lines: std::ops::Range<usize>| {
        let text = lines.map(|line| format!("0 {line:>99}\n"));
        text.collect::<String>().into_bytes()
    };
    let appending = first.append(&url("log"), &who()).unwrap();
    appending.add(&lines(0..6000)).unwrap();
    let usage = first.usage();
    assert!(usage.taken >= 600_000 && usage.taken <= QUOTA, "{usage:?}");
    assert_eq!(usage.pending_bytes, usage.taken);
    // A caller that does not wait learns who has the room, or that the line never fits.
    let full = appending.add_while(&lines(6000..12000), &|full| {
        assert!(
            full.to_string().contains("wait for delivery to far"),
            "{full}"
        );
        false
    });
    assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
    let large = appending.add(&vec![b'x'; QUOTA as usize + 1]);
    assert!(matches!(large, Err(Error::TooLarge { .. })), "{large:?}");
    let nth = Nth { by: 5, seq: 1 };
    let full = appending.add_once(&lines(6000..12000), nth, &|_| false);
    assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
    appending.commit().unwrap();
    drop((appending, first));
    let again = with(&far, &dir, small());
    assert!(again.usage().taken >= 600_000);
    let appending = again.append(&url("log"), &who()).unwrap();
    far.set_away(false);
    // A waiting writer continues whenever there is room; a repeated line is still known.
    let begun = std::time::Instant::now();
    let is_wanted = |_: &Error| begun.elapsed() < Duration::from_secs(40);
    let nth_of = |piece: u64| match piece {
        1 => Nth { by: 5, seq: 1 },
        seq => Nth { by: 7, seq },
    };
    for piece in 1..20 {
        let from = 6000 * piece as usize;
        for _ in 0..2 {
            let text = lines(from..from + 6000);
            let added = appending.add_once(&text, nth_of(piece), &is_wanted);
            added.unwrap();
        }
    }
    appending.push(LIMIT).unwrap();
    must_have_numbers(&far.get("log").unwrap(), 120_000);
    assert!(again.usage().taken <= QUOTA);
    drop((appending, again));
    let third = with(&far, &dir, small());
    let appending = third.append(&url("log"), &who()).unwrap();
    for piece in [1, 19] {
        appending
            .add_once(&lines(0..1), nth_of(piece), &|_| true)
            .unwrap();
    }
    appending.push(LIMIT).unwrap();
    must_have_numbers(&far.get("log").unwrap(), 120_000);
}

fn must_have_numbers(text: &[u8], count: usize) {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let mut found = 0;
    for (nth, line) in text.lines().enumerate() {
        let number: usize = line[2..].trim().parse().unwrap();
        assert_eq!(number, nth);
        found += 1;
    }
    assert_eq!(found, count);
}

#[test] //= GASS-18 KANGAROO-68 delivery#appends
fn damaged_line_holds_later_lines() {
    let (far, dir) = both();
    let first = depot(&far, &dir);
    far.set_away(true);
    let appending = first.append(&url("log"), &who()).unwrap();
    for line in 0..30 {
        appending.add(format!("0 {line}\n").as_bytes()).unwrap();
    }
    appending.commit().unwrap();
    drop((appending, first));
    let logs = std::fs::read_dir(dir.path().join("depot/appends")).unwrap();
    let path = logs.map(|log| log.unwrap().path()).next().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|line| line == b"0 12\n").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    far.set_away(false);
    let again = depot(&far, &dir);
    until("it is held", || {
        again.queue().iter().any(|row| row.stage == Stage::Held)
    });
    let queue = again.queue();
    assert!(queue[0].why.contains("damaged"), "{queue:?}");
    // The damaged line counts with all its bytes.
    assert_eq!(queue[0].pending_bytes, 13 + 17 * 5);
    // Lines before the damage were sent; those behind it stay on the disk.
    must_have(&far.get("log").unwrap(), 1, 12);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let error = again.push(&Scope::All, LIMIT).unwrap_err();
    assert!(matches!(error, Error::Held { .. }), "{error}");
    // A restart and a retry change nothing.
    drop(again);
    let again = depot(&far, &dir);
    again.retry("ftp://far/log").unwrap();
    until("it is held again", || {
        again.queue().iter().any(|row| row.stage == Stage::Held)
    });
    // `release` skips the damaged line.
    again.release("ftp://far/log").unwrap();
    again.push(&Scope::All, LIMIT).unwrap();
    let text = String::from_utf8(far.get("log").unwrap()).unwrap();
    let wanted = (0..30).filter(|line| *line != 12);
    let wanted: String = wanted.map(|line| format!("0 {line}\n")).collect();
    assert_eq!(text, wanted);
    assert!(again.queue().is_empty());
}
