//! Our client against our server: the suite of all stores, over loopback.

#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::Served;
use godwit_core::Url;
use godwit_store::{
    Entry, Remote, RemoteOptions, RemovalKind, SmallWrite, Store, StoreExt, WriteMode,
    channel::Cancel, check,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn open(served: &Served) -> Remote {
    let url: Url = format!("ftp://{}/", served.address).parse().unwrap();
    Remote::open(&url, &RemoteOptions::new(Cancel::new().unwrap())).unwrap()
}

#[test]
fn node_passes_the_store_suite() {
    let mut failed = Vec::new();
    for (name, check) in check::CHECKS {
        let served = Served::new();
        let store = open(&served);
        let mut can = store.can().unwrap();
        // The other checks need a file, not an upload.
        if !name.starts_with("digests of files") {
            can.digests
                .retain(|by| *by == godwit_core::Algorithm::Blake3);
        }
        let kept = catch_unwind(AssertUnwindSafe(|| check(&store, &can)));
        eprintln!("{name}: {:?}", kept.is_ok());
        if kept.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "not kept: {failed:#?}");
}

#[test]
fn names_with_line_ends_go_both_ways() {
    let served = Served::new();
    let store = open(&served);
    for name in ["new\nline", "cr\rx", "\n", "a\n250 b"] {
        let mut given = Some(SmallWrite {
            path: name.into(),
            bytes: name.into(),
            how: WriteMode::New,
            mtime: None,
            mode: None,
        });
        store
            .write_small(&mut || given.take(), &mut |_, finished| {
                finished.unwrap();
            })
            .unwrap();
        assert_eq!(served.bytes(name), name.as_bytes());
        assert_eq!(store.stat(name.as_ref()).unwrap().size, name.len() as u64);
        let mut listed = Vec::new();
        let each = &mut |entry: Entry| {
            listed.push(entry.path);
            Ok(())
        };
        store.list("".as_ref(), each).unwrap();
        assert_eq!(listed, [std::path::PathBuf::from(name)]);
        store.remove(name.as_ref(), RemovalKind::File).unwrap();
        assert!(!served.has(name));
    }
}
