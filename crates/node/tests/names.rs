//! `SITE CHGRP`, `STOU`, and checksums that take a while, over raw sockets.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Served, bytes};
use std::os::unix::fs::MetadataExt;

#[test]
fn chgrp_works_if_kernel_permits() {
    let served = Served::new();
    served.put("x", b"x");
    let mut client = served.client();
    let group = |name: &str| served.file(name).metadata().unwrap().gid();
    let ours = group("x");
    client.expect(&format!("SITE CHGRP {ours} x"), "250");
    let root = served.file("x").metadata().unwrap().uid() == 0;
    if root {
        client.expect("SITE CHGRP daemon x", "250");
        assert_eq!(group("x"), 1, "Debian's daemon");
        std::fs::create_dir(served.file("d")).unwrap();
        client.expect("SITE CHGRP 1 d", "250");
        assert_eq!(group("d"), 1);
    } else {
        assert!(
            client
                .expect("SITE CHGRP root x", "550")
                .contains("ermission denied")
        );
        assert_eq!(group("x"), ours);
    }
    let said = client.expect("SITE CHGRP no-such-group x", "550");
    assert!(said.contains("no group no-such-group"), "{said}");
    client.expect(&format!("SITE CHGRP {ours} missing"), "550");
}

#[test] //= publishing#over-ftp
fn a_unique_name_is_found_and_told() {
    let served = Served::new();
    served.put("stou", b"old");
    let mut client = served.client();
    let mut names = Vec::new();
    for (command, content) in [("STOU", b"one"), ("STOU", b"two"), ("STOU run7", b"six")] {
        let at = client.passive();
        client.send(command);
        let mut data = common::data_to(at);
        let begun = client.reply();
        let name = begun
            .trim()
            .strip_prefix("150 FILE: /")
            .expect(&begun)
            .to_owned();
        std::io::Write::write_all(&mut data, content).unwrap();
        drop(data);
        let (_, end) = client.last_reply();
        assert_eq!(end.trim(), format!("226 FILE: /{name}"));
        assert_eq!(served.bytes(&name), content);
        names.push(name);
    }
    assert!(names[2].starts_with("run7."), "{names:?}");
    names.dedup();
    assert_eq!(names.len(), 3);
    assert_eq!(served.bytes("stou"), b"old");
    let reader = Served::with(&[("anonymous.access", "read")]);
    let mut client = reader.client();
    client.passive();
    assert!(client.ask("STOU").starts_with("55"), "who may not write");
}

/// A file that takes long to hash, and no room.
fn huge(served: &Served) {
    let file = std::fs::File::create(served.file("huge")).unwrap();
    file.set_len(1 << 40).unwrap();
}

#[test]
fn checksum_can_be_aborted_and_queried() {
    let served = Served::new();
    huge(&served);
    served.put("x", &bytes(10));
    let mut client = served.client();
    client.send("CKSM MD5 0 -1 huge");
    client.send("STAT");
    assert!(client.reply().starts_with("213-"), "of the work under way");
    client.send("ABOR");
    let said = client.reply();
    assert!(said.starts_with("426"), "{said}");
    assert!(client.reply().starts_with("226"));
    client.expect("CKSM MD5 0 -1 x", "213");
}

#[test]
fn abort_drops_pipelined_name_commands() {
    let served = Served::new();
    huge(&served);
    served.put("delme", b"still wanted");
    let mut client = served.client();
    client.send("CKSM SHA512 0 -1 huge");
    client.send("STAT");
    assert!(client.reply().starts_with("213-"), "of the work under way");
    client.raw(b"CKSM MD5 0 -1 huge\r\nDELE delme\r\nMKD x1\r\nABOR\r\n");
    for which in ["CKSM under way", "CKSM ahead", "DELE", "MKD"] {
        let said = client.reply();
        assert!(said.starts_with("426"), "{which}: {said}");
    }
    assert!(client.reply().starts_with("226"));
    assert!(served.has("delme") && !served.has("x1"));
    client.ok("MKD x1");
}

#[test]
fn checksum_progress_is_sent_on_request() {
    let served = Served::new();
    huge(&served);
    let mut client = served.client();
    client.send("CKSM MD5 0 17000000 huge");
    let (markers, end) = client.last_reply();
    assert!(
        markers.is_empty() && end.starts_with("213"),
        "{markers:?} {end}"
    );
    client.ok("OPTS CKSM Markers=1;");
    client.send("CKSM MD5 0 -1 huge");
    let said = client.reply();
    assert!(said.starts_with("113-") && said.contains("Bytes"), "{said}");
    client.send("ABOR");
    let (_, end) = client.last_reply();
    assert!(end.starts_with("426"), "{end}");
}

#[test]
fn whoever_leaves_during_a_checksum_ends_it() {
    let served = Served::new();
    huge(&served);
    let mut client = served.client();
    client.send("CKSM MD5 0 -1 huge");
    client.send("STAT");
    assert!(client.reply().starts_with("213-"));
    drop(client);
    // Stopping waits for sessions; it would take hours.
    served.stop();
}
