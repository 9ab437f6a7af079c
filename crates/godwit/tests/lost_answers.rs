//! A node dies between publishing an upload and saying so.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Scratch, keyed};
use godwit_core::{Block, Extents};
use godwit_store::{
    Error, Expected, RemoteOptions, Store, StoreExt, Write, WriteMode, channel::Cancel, door::Door,
};
use godwit_trust::{Credential, Peer};
use std::{fs, path::Path};

fn attempt(attempt: u64) -> Write<'static> {
    Write {
        how: WriteMode::New,
        id: Some("0123456789abcdef01234567.3"),
        attempt,
        ..Write::default()
    }
}

#[test]
fn restart_tells_published_uploads() {
    for (crash, is_published) in [
        ("dir.before-rename", false),
        ("dir.after-rename", true),
        ("door.published", true),
    ] {
        let scratch = Scratch::new();
        let key = keyed::prepare(&scratch);
        let (mut node, port) = keyed::serve(&scratch, 0, Some(crash));
        let peer = Peer::new("node", key, &[format!("127.0.0.1:{port}")]);
        let door = || {
            let options = RemoteOptions::new(Cancel::new().unwrap());
            Door::of_peer(&peer, Credential::nobody(), &options).unwrap()
        };
        let (path, bytes) = (Path::new("f"), &b"what is to be published"[..]);
        let begun = door();
        let sink = begun.write(path, &attempt(1)).unwrap();
        sink.put(Block { offset: 0, bytes }).unwrap();
        sink.commit().unwrap();
        let lost = sink.finish(&Expected::default());
        assert!(matches!(lost, Err(Error::Lost { .. })), "{crash}: {lost:?}");
        node.wait().unwrap();

        let (mut node, _) = keyed::serve(&scratch, port, None);
        let next = door();
        let sink = next.write(path, &attempt(2)).unwrap();
        let became = next
            .published_as(path, "0123456789abcdef01234567.3")
            .unwrap();
        assert_eq!(became.is_some(), is_published, "{crash}");
        let became = match became {
            Some(became) => became,
            None => {
                assert_eq!(sink.done(), Extents::from(0..bytes.len() as u64), "{crash}");
                sink.finish(&Expected::default()).unwrap().version
            }
        };
        assert_eq!(fs::read(scratch.join("export/f")).unwrap(), bytes);
        // The next generation replaces the version that was reported.
        let next_generation = Write {
            how: WriteMode::Replace(Some(became.clone())),
            id: Some("0123456789abcdef01234567.4"),
            ..attempt(3)
        };
        let sink = next.write(path, &next_generation).unwrap();
        sink.put(Block::at(0, b"the next")).unwrap();
        sink.finish(&Expected::default()).unwrap();
        let third = Write {
            how: WriteMode::Replace(Some(became)),
            ..attempt(4)
        };
        let refused = next.write(path, &third);
        assert!(matches!(refused, Err(Error::Changed { .. })), "{crash}");
        node.kill().unwrap();
        node.wait().unwrap();
    }
}
