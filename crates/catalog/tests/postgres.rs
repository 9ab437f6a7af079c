//! A database that several nodes share: other writers, lost connections, other rights.
#![allow(clippy::unwrap_used)]

#[path = "common/postgres.rs"]
mod server;
#[path = "../../godwit/tests/common/skip.rs"]
mod skip;

use godwit_catalog::{Catalog, Change, Changes, Kind, Pages, Refusal, open};
use godwit_wire::door::call::Name;
use postgres::{Client, NoTls};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

fn make(path: &str) -> Change {
    Change::Collect {
        name: Name(path.into()),
        parents: false,
    }
}

fn names(catalog: &dyn Catalog) -> BTreeSet<(String, u64)> {
    let pages = Pages::new(catalog, "".as_ref(), false, false);
    let all = pages.flat_map(Result::unwrap);
    all.map(|entry| (entry.name.0.display().to_string(), entry.file))
        .collect()
}

#[test] //= REPLICAS-66
fn four_nodes_write_one_database() {
    let url = match server::database() {
        Ok(url) => url,
        Err(why) => return skip::skip(why),
    };
    // All of them create the tables at the same time.
    let nodes: Vec<Arc<dyn Catalog>> = thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| open(&url, true).unwrap()))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (made, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for (node, catalog) in nodes.iter().enumerate() {
            for client in 0..3 {
                let (made, lost) = (&made, &lost);
                scope.spawn(move || {
                    for turn in 0..25 {
                        let own = make(&format!("own-{node}-{client}-{turn}"));
                        catalog.change(&own.into()).unwrap();
                        match catalog.change(&make(&format!("shared-{turn}")).into()) {
                            Ok(_) => made.fetch_add(1, SeqCst),
                            Err(refusal) => {
                                assert_eq!(refusal.kind, Kind::Exists);
                                lost.fetch_add(1, SeqCst)
                            }
                        };
                    }
                });
            }
        }
    });
    assert_eq!((made.into_inner(), lost.into_inner()), (25, 11 * 25));
    let all = names(&*nodes[0]);
    let files: BTreeSet<u64> = all.iter().map(|(_, file)| *file).collect();
    assert_eq!((all.len(), files.len()), (325, 325));
    assert!(nodes.iter().all(|node| names(&**node) == all));
}

/// Connections are cut again and again, also while they commit. No change is lost, none is made twice: that would be
/// refused, since the name exists.
#[test]
fn lost_connections_lose_no_change() {
    let url = match server::database() {
        Ok(url) => url,
        Err(why) => return skip::skip(why),
    };
    let catalog = open(&url, true).unwrap();
    let is_over = AtomicBool::new(false);
    let mut cuts = 0;
    thread::scope(|scope| {
        let cut = || {
            let mut client = Client::connect(&url, NoTls).unwrap();
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE application_name = 'godwit' AND datname = current_database()
                AND (random() < 0.1 OR query = 'COMMIT' AND state = 'active')";
            let mut cuts = 0;
            while !is_over.load(SeqCst) {
                cuts += client.query(sql, &[]).unwrap().len();
            }
            cuts
        };
        let cutter = scope.spawn(cut);
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let catalog = &catalog;
                scope.spawn(move || {
                    for turn in 0..50 {
                        let made = catalog.change(&make(&format!("n-{client}-{turn}")).into());
                        made.unwrap();
                        names(&**catalog);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = clients
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, SeqCst);
        cuts = cutter.join().unwrap();
        assert!(ended.iter().all(Result::is_ok));
    });
    assert_eq!(names(&*catalog).len(), 200);
    assert!(cuts > 10, "{cuts} connections were cut");
}

#[test]
fn unusable_databases_are_told_apart() {
    let url = match server::database() {
        Ok(url) => url,
        Err(why) => return skip::skip(why),
    };
    let why = |url: &str| -> Refusal { open(url, false).err().unwrap() };
    let empty = why(&url);
    assert_eq!(empty.kind, Kind::Invalid, "{empty:?}");
    assert!(empty.next.unwrap().contains("godwit catalog init"));
    let (server, _) = url.rsplit_once('/').unwrap();
    assert_eq!(why(&format!("{server}/none")).kind, Kind::Missing);
    let gone = url.replace("127.0.0.1:", "127.0.0.1:1");
    let gone = gone.replace(&gone[gone.rfind(':').unwrap()..], ":1/none");
    assert_eq!(why(&gone).kind, Kind::Unreachable);
    assert_eq!(why("postgres://u@h:x/d").kind, Kind::Invalid);

    let catalog = open(&format!("{url}?options=-c%20lock_timeout%3D50"), true).unwrap();
    let mut client = Client::connect(&url, NoTls).unwrap();
    let change = |name: &str| catalog.change(&Changes::from(make(name))).unwrap_err();
    client
        .batch_execute("BEGIN; LOCK TABLE godwit.ids")
        .unwrap();
    assert_eq!(change("a").kind, Kind::Busy);
    client
        .batch_execute("ROLLBACK; UPDATE godwit.form SET form = 99")
        .unwrap();
    assert_eq!(why(&url).kind, Kind::Unsupported);
    client
        .batch_execute("UPDATE godwit.form SET form = 3")
        .unwrap();
    let read_only = open(
        &format!("{url}?options=-c%20default_transaction_read_only%3Don"),
        false,
    );
    let denied = read_only.unwrap().change(&make("a").into()).unwrap_err();
    assert_eq!(denied.kind, Kind::Denied, "{denied:?}");
    let odd = Change::Attribute {
        name: Name("".into()),
        site: None,
        key: "k".into(),
        value: Some("a\0b".into()),
    };
    let odd = catalog.change(&odd.into()).unwrap_err();
    assert_eq!(odd.kind, Kind::Invalid, "{odd:?}");
    client.batch_execute("DROP SCHEMA godwit CASCADE").unwrap();
    assert_eq!(change("a").kind, Kind::Invalid);
}
