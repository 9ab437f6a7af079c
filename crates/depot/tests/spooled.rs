//! A depot between: what is written to it is delivered to what is behind it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, bytes, over, rules, same, url, who};
use godwit_core::{Block, Extents};
use godwit_depot::{Connect, Depot, Scope, Spooled, Who};
use godwit_store::{How, Store, Whole, Write, engine::Place};
use std::{path::Path, sync::Arc, time::Duration};

const LIMIT: Option<Duration> = Some(Duration::from_secs(30));

fn spooled(far: &Far, dir: &tempfile::TempDir) -> (Arc<Depot>, Spooled) {
    let root = dir.path().join("hop");
    let depot = Arc::new(Depot::open(&root, rules(), far.connect()).unwrap());
    let spooled = Spooled::new(Arc::clone(&depot), url(""), who()).unwrap();
    (depot, spooled)
}

fn write(store: &dyn Store, name: &str, content: &[u8]) -> godwit_store::Result<()> {
    let write = Write {
        how: How::Replace(None),
        size: Some(content.len() as u64),
        id: Some("upload.1"),
        ..Write::default()
    };
    let sink = store.write(Path::new(name), &write)?;
    let block = Block {
        offset: 0,
        bytes: content,
    };
    sink.put(block)?;
    let whole = Whole {
        size: Some(content.len() as u64),
        ..Whole::default()
    };
    sink.finish(&whole).map(drop)
}

#[test]
fn what_is_kept_is_seen_through_it_and_arrives_later() {
    let (far, dir) = (Far::new(), tempfile::tempdir().unwrap());
    let (depot, spooled) = spooled(&far, &dir);
    far.set_away(true);
    let wanted = bytes(2_500_000, 4);
    write(&spooled, "a", &wanted).unwrap();
    let stat = spooled.stat(Path::new("a")).unwrap();
    assert_eq!(stat.size, wanted.len() as u64);
    let all = Extents::from(0..stat.size);
    let memory = godwit_store::Memory::new();
    let copy = memory.write(Path::new("copy"), &Write::default()).unwrap();
    spooled.read(Path::new("a"), &all, 1, &*copy).unwrap();
    copy.finish(&Whole::default()).unwrap();
    assert!(
        spooled
            .became(Path::new("a"), "upload.1")
            .unwrap()
            .is_some()
    );
    assert!(
        spooled
            .became(Path::new("a"), "upload.2")
            .unwrap()
            .is_none()
    );
    far.set_away(false);
    spooled.push(Path::new("a")).unwrap();
    same(far.get("a").unwrap(), &wanted);
    assert!(!depot.owes());
}

#[test]
fn what_came_whole_and_was_not_kept_yet_is_kept_at_the_next_start() {
    let (far, dir) = (Far::new(), tempfile::tempdir().unwrap());
    drop(spooled(&far, &dir));
    std::fs::write(dir.path().join("hop/incoming/a"), b"whole").unwrap();
    let (depot, _spooled) = spooled(&far, &dir);
    depot.push(&Scope::All, LIMIT).unwrap();
    same(far.get("a").unwrap(), b"whole");
}

#[test]
fn through_two_depots_a_push_reaches_the_end() {
    let (far, dir) = (Far::new(), tempfile::tempdir().unwrap());
    let (_hop, spooled) = spooled(&far, &dir);
    let store: Arc<dyn Store> = Arc::new(spooled);
    let connect: Connect = Arc::new(move |url, _: &Who| {
        Ok(Place {
            store: store.clone(),
            path: url.as_path().into(),
            url: url.clone(),
        })
    });
    let first = Depot::open(&dir.path().join("first"), rules(), connect).unwrap();
    let wanted = bytes(3 << 20, 8);
    let writing = first.put(&url("a"), &who(), &over()).unwrap();
    writing.write(0, &wanted).unwrap();
    writing.end().unwrap();
    first.push(&Scope::All, LIMIT).unwrap();
    same(far.get("a").unwrap(), &wanted);
    let writing = first.put_into(&url("a"), &who(), "").unwrap();
    writing.write(7, b"inside").unwrap();
    writing.end().unwrap();
    first.push_through(&url("a"), &who(), LIMIT).unwrap();
    let mut wanted = wanted;
    wanted[7..13].copy_from_slice(b"inside");
    same(far.get("a").unwrap(), &wanted);
}
