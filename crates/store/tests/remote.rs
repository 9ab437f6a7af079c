//! `Remote` against servers of others, over loopback.

#![allow(clippy::unwrap_used)] // it is all test

#[path = "../../godwit/tests/common/peers.rs"]
#[allow(dead_code, unreachable_pub)]
mod peers;

use godwit_core::{Block, Chain, Extents, Url};
use godwit_store::{
    BlockWriter, EntryKind, Error, Expected, Finished, Remote, RemoteOptions, RemovalKind, Result,
    Store, StoreExt, Write, WriteMode, channel::Cancel, check,
};
use peers::{Kind as Server, Peer};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

fn open(server: Server, peer: &Peer) -> Remote {
    let user = if server == Server::Pureftpd {
        "tester:tester@"
    } else {
        ""
    };
    let url: Url = format!("ftp://{user}127.0.0.1:{}/", peer.port)
        .parse()
        .unwrap();
    Remote::open(&url, &RemoteOptions::new(Cancel::new().unwrap())).unwrap()
}

/// Keeps the bytes that arrive, at their offsets.
#[derive(Default)]
struct Kept(Mutex<(Vec<u8>, Extents)>);

impl BlockWriter for Kept {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let (bytes, done) = &mut *self.0.lock().unwrap();
        let range = block.range();
        bytes.resize(bytes.len().max(range.end as usize), 0);
        bytes[range.start as usize..range.end as usize].copy_from_slice(block.bytes);
        done.insert(range);
        Ok(())
    }
    fn said(&self, _: u64, _: Chain) -> Result<()> {
        Ok(())
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Writes `whole` from several threads, in pieces.
fn put(store: &dyn Store, path: &Path, whole: &[u8], streams: usize) -> Result<Finished> {
    let write = Write {
        size: Some(whole.len() as u64),
        streams,
        ..Write::default()
    };
    let sink = store.write(path, &write)?;
    let left = Mutex::new(Extents::from(0..whole.len() as u64));
    std::thread::scope(|scope| {
        for _ in 0..streams {
            scope.spawn(|| {
                while let Some(r) = { left.lock().unwrap().take_aligned(300_000) } {
                    let bytes = &whole[r.start as usize..r.end as usize];
                    sink.put(Block::at(r.start, bytes)).unwrap();
                }
            });
        }
    });
    sink.finish(&Expected::of_size(whole.len() as u64))
}

fn get(
    store: &dyn Store,
    path: &Path,
    want: &Extents,
    streams: usize,
) -> Result<(Vec<u8>, Extents)> {
    let kept = Kept::default();
    store.read(path, want, streams, &kept)?;
    Ok(kept.0.into_inner().unwrap())
}

fn round_trip(server: Server, streams: usize) {
    let scratch = tempfile::tempdir().unwrap();
    let Some(peer) = Peer::start(server, scratch.path()) else {
        return;
    };
    let store = open(server, &peer);
    let at = |name: &str| PathBuf::from(peer.name(name));
    let all = Extents::from(0..u64::MAX);

    for len in [0, 1, 700_001, 9 << 20] {
        let whole = bytes(len);
        let path = at(&format!("file {len}"));
        let finished = put(&store, &path, &whole, streams).unwrap();
        println!("{server:?} {len}: {:?}", finished.verified);
        let on_disk = fs::read(peer.r#where.join(format!("file {len}"))).unwrap();
        assert!(on_disk == whole, "{len} bytes were written otherwise");
        let (read, _) = get(&store, &path, &all, streams).unwrap();
        assert!(read == whole, "{len} bytes were read otherwise");
    }
    let stat = store.stat(&at("file 700001")).unwrap();
    assert_eq!((stat.kind, stat.size), (EntryKind::File, 700_001));

    // Parts.
    let want: Extents = [5..10, 1000..400_000, 699_999..900_000]
        .into_iter()
        .collect();
    let (read, came) = get(&store, &at("file 700001"), &want, streams).unwrap();
    let whole = bytes(700_001);
    let expected: Extents = want.within(0..700_001).collect();
    assert_eq!(came, expected);
    for r in came.iter() {
        let r = r.start as usize..r.end as usize;
        assert!(read[r.clone()] == whole[r]);
    }

    // Names.
    store.mkdir(&at("d")).unwrap();
    assert!(matches!(store.mkdir(&at("d")), Err(Error::Exists { .. })));
    put(&store, &at("d/-x y"), b"hello", 1).unwrap();
    store.rename(&at("d/-x y"), &at("d/.b")).unwrap();
    let mut found = Vec::new();
    store
        .list(&at("d"), &mut |entry| {
            found.push((entry.path, entry.stat.kind, entry.stat.size));
            Ok(())
        })
        .unwrap();
    assert_eq!(found, [(PathBuf::from(".b"), EntryKind::File, 5)]);
    let mut walked = Vec::new();
    let walk = store.walk(&at(""), &mut |entry| {
        walked.push(entry.path);
        Ok(())
    });
    walk.unwrap();
    assert!(walked.contains(&PathBuf::from("d/.b")), "{walked:?}");

    // Errors.
    let missing = at("none");
    assert!(matches!(store.stat(&missing), Err(Error::Missing { .. })));
    let read = get(&store, &missing, &all, streams).map(drop);
    assert!(matches!(read, Err(Error::Missing { .. })), "{read:?}");
    let listed = store.list(&missing, &mut |_| Ok(()));
    assert!(matches!(listed, Err(Error::Missing { .. })), "{listed:?}");
    let listed = store.list(&at("d/.b"), &mut |_| Ok(()));
    assert!(
        matches!(listed, Err(Error::NotDirectory { .. })),
        "{listed:?}"
    );
    let removed = store.remove(&missing, RemovalKind::File);
    assert!(matches!(removed, Err(Error::Missing { .. })), "{removed:?}");
    let removed = store.remove(&at("d"), RemovalKind::Directory);
    assert!(
        matches!(removed, Err(Error::NotEmpty { .. } | Error::Refused { .. })),
        "{removed:?}"
    );
    let new = Write::with(WriteMode::New);
    assert!(matches!(
        store.write(&at("d/.b"), &new).map(drop),
        Err(Error::Exists { .. })
    ));

    store.remove(&at("d/.b"), RemovalKind::File).unwrap();
    store.remove(&at("d"), RemovalKind::Directory).unwrap();
    assert!(!peer.r#where.join("d").exists());
}

#[test]
fn files_go_to_gct_and_back() {
    round_trip(Server::Gct, 1);
    round_trip(Server::Gct, 4);
}

#[test]
fn files_go_to_vsftpd_and_back() {
    round_trip(Server::Vsftpd, 1);
    round_trip(Server::Vsftpd, 3);
}

#[test]
fn files_go_to_pure_ftpd_and_back() {
    round_trip(Server::Pureftpd, 1);
    round_trip(Server::Pureftpd, 2);
}

/// Runs the suite of all stores over `server`.
fn keeps_the_promises(server: Server) {
    let scratch = tempfile::tempdir().unwrap();
    let Some(peer) = Peer::start(server, scratch.path()) else {
        return;
    };
    let store = open(server, &peer);
    let mut failed = Vec::new();
    for (number, (name, check)) in check::CHECKS.iter().enumerate() {
        let directory = peer.name(&format!("suite{number}"));
        store.mkdir(Path::new(&directory)).unwrap();
        let below = store.below(Path::new(&directory));
        let can = below.can().unwrap();
        let began = std::time::Instant::now();
        let kept = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&below, &can)));
        if kept.is_err() {
            failed.push(*name);
        }
        eprintln!(
            "{server:?}: {name}: {:?} {:?}",
            kept.is_ok(),
            began.elapsed()
        );
    }
    assert!(failed.is_empty(), "{server:?} does not keep {failed:#?}");
}

#[test]
fn gct_passes_store_suite() {
    keeps_the_promises(Server::Gct);
}

#[test]
fn vsftpd_passes_store_suite() {
    keeps_the_promises(Server::Vsftpd);
}

#[test]
fn pure_ftpd_keeps_store_promises() {
    keeps_the_promises(Server::Pureftpd);
}
