//! Our client against our server: the suite of all stores, over loopback.

#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::Served;
use godwit_core::Url;
use godwit_store::{Remote, RemoteOptions, Store, channel::Cancel, check};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn open(served: &Served) -> Remote {
    let url: Url = format!("ftp://{}/", served.address).parse().unwrap();
    Remote::open(&url, &RemoteOptions::new(Cancel::new().unwrap())).unwrap()
}

#[test]
fn a_node_keeps_the_promises_of_a_store() {
    let mut failed = Vec::new();
    for (name, check) in check::CHECKS {
        let served = Served::new();
        let store = open(&served);
        let mut can = store.can().unwrap();
        // The others can be asked of a file that is there, not of an upload.
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
