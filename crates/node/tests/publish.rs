//! When an upload becomes a file: one test a cell of the table in docs/semantics/publishing.md.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Client, Served, block, bytes};
use std::{io::Write, net::TcpStream, os::unix::fs::PermissionsExt};

/// Begins a STOR, sends some bytes, and returns both connections.
fn begin(client: &mut Client, command: &str, bytes: &[u8]) -> TcpStream {
    let mut data = client.begin(command);
    data.write_all(bytes).unwrap();
    data
}

/// Asserts that there is no file `name`, and that nothing is listed.
fn assert_hidden(served: &Served, name: &str) {
    assert!(!served.has(name), "{name} is there");
    let listed = served.client().get("NLST").unwrap();
    let listed = String::from_utf8_lossy(&listed).into_owned();
    assert_eq!(listed.matches(name).count(), 0, "listed: {listed}");
    assert!(!listed.contains(".godwit"), "a partial is listed: {listed}");
    assert!(
        served
            .client()
            .ask(&format!("MLST {name}"))
            .starts_with("550")
    );
}

#[test] //= publishing#over-ftp
fn publish_stream_when_the_announced_size_agrees() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("ALLO 5");
    assert!(client.put("STOR x", b"hello").starts_with("226"));
    assert_eq!(served.bytes("x"), b"hello");
}

#[test] //= publishing#over-ftp
fn publish_stream_without_size_if_client_stays() {
    let served = Served::new();
    assert!(served.client().put("STOR x", b"hello").starts_with("226"));
    assert_eq!(served.bytes("x"), b"hello");
}

#[test] //= publishing#over-ftp
fn publish_empty_stream_makes_empty_file() {
    let served = Served::new();
    assert!(served.client().put("STOR x", b"").starts_with("226"));
    assert_eq!(served.bytes("x"), b"");
}

#[test] //= publishing#over-ftp
fn publish_stream_refused_if_short() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("ALLO 10");
    let end = client.put("STOR x", b"hello");
    assert!(end.starts_with("426"), "{end}");
    assert_hidden(&served, "x");
    assert_eq!(served.client().ok("SIZE x"), "213 5");
}

#[test] //= publishing#over-ftp
fn publish_stream_refused_if_client_leaves() {
    let served = Served::new();
    let mut client = served.client();
    let data = begin(&mut client, "STOR x", b"hello");
    // As the kernel does for a process that was killed.
    drop(client);
    drop(data);
    common::until("an end of the session", || served.node().sessions() == 0);
    assert_hidden(&served, "x");
    assert_eq!(served.client().ok("SIZE x"), "213 5");
    // Or the other way round. This process may lose the processor just between,
    // for longer than the node waits; not every time.
    let kept = (0..5).any(|i| {
        let mut client = served.client();
        let data = begin(&mut client, &format!("STOR y{i}"), b"hello");
        drop(data);
        drop(client);
        common::until("an end of the session", || served.node().sessions() == 0);
        !served.has(&format!("y{i}"))
    });
    assert!(kept, "the end of data was believed each time");
}

#[test] //= publishing#over-ftp
fn publish_extended_at_the_end_of_file() {
    let served = Served::new();
    let mut client = served.extended();
    client.store_blocks("226", "STOR x", &[(3, b"lo"), (0, b"hel")]);
    assert_eq!(served.bytes("x"), b"hello");
}

#[test] //= publishing#over-ftp
fn publish_extended_if_client_leaves_after_end() {
    let served = Served::new();
    let mut client = served.extended();
    let mut data = begin(&mut client, "STOR x", &block(0, 5, 0));
    data.write_all(b"hello").unwrap();
    data.write_all(&block(0x48, 0, 1)).unwrap();
    assert!(client.last_reply().1.starts_with("226"));
    drop(client);
    assert_eq!(served.bytes("x"), b"hello");
}

#[test] //= publishing#over-ftp
fn publish_extended_not_with_a_hole() {
    let served = Served::new();
    let mut client = served.extended();
    client.store_blocks("426", "STOR x", &[(0, b"hel"), (4, b"o")]);
    assert_hidden(&served, "x");
    assert_eq!(served.client().ok("SIZE x"), "213 3");
}

#[test] //= publishing#over-ftp
fn publish_extended_refused_if_short() {
    let served = Served::new();
    let mut client = served.extended();
    client.ok("ALLO 2000000");
    client.store_blocks("426", "STOR x", &[(0, b"hello")]);
    client.ok("ALLO 9");
    client.store_blocks("426", "STOR y", &[(0, b"hello")]);
    assert_hidden(&served, "x");
    assert_hidden(&served, "y");
}

#[test] //= publishing#over-ftp
fn publish_extended_not_without_end_of_file() {
    let served = Served::new();
    let mut client = served.extended();
    let mut data = begin(&mut client, "STOR x", &block(0, 5, 0));
    data.write_all(b"hello").unwrap();
    drop(data);
    let (_, end) = client.last_reply();
    assert!(end.starts_with("426"), "{end}");
    assert_hidden(&served, "x");
}

#[test] //= publishing#over-ftp
fn publish_absent_rest_resumes_partial() {
    let served = Served::new();
    let whole = bytes(3_000_000);
    let mut client = served.client();
    client.ok("ALLO 3000000");
    assert!(client.put("STOR x", &whole[..1_234_567]).starts_with("426"));
    // From another connection, as `curl -C -` and `lftp put -c` do.
    let mut client = served.client();
    assert_eq!(client.ok("SIZE x"), "213 1234567");
    client.ok("REST 1234567");
    client.ok("ALLO 3000000");
    assert!(client.put("STOR x", &whole[1_234_567..]).starts_with("226"));
    assert_eq!(served.bytes("x"), whole);
}

#[test] //= publishing#over-ftp
fn publish_absent_append_resumes_partial() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("ALLO 10");
    assert!(client.put("STOR x", b"hello").starts_with("426"));
    assert!(client.put("APPE x", b"world").starts_with("226"));
    assert_eq!(served.bytes("x"), b"helloworld");
}

#[test] //= publishing#over-ftp
fn publish_absent_rest_beyond_partial_refused() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("REST 5");
    let refused = client.put("STOR x", b"world");
    assert!(
        refused.starts_with("550") && refused.contains("REST"),
        "{refused}"
    );
    assert!(!served.has("x"));
}

#[test] //= publishing#over-ftp
fn publish_absent_extended_rest_resumes_partial() {
    let served = Served::new();
    let mut client = served.extended();
    client.store_blocks("426", "STOR x", &[(0, b"hel"), (4, b"o")]);
    client.ok("REST 0-3,4-5");
    client.store_blocks("226", "STOR x", &[(3, b"l")]);
    assert_eq!(served.bytes("x"), b"hello");
}

#[test] //= publishing#over-ftp
fn publish_existing_whole_upload_replaces_atomically() {
    let served = Served::new();
    served.put("x", b"an older and longer file");
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(served.file("x"), mode).unwrap();
    let mut client = served.client();
    let data = begin(&mut client, "STOR x", b"hel");
    assert_eq!(served.bytes("x"), b"an older and longer file");
    drop(data);
    assert!(client.reply().starts_with("226"));
    assert_eq!(served.bytes("x"), b"hel");
    let mode = std::fs::metadata(served.file("x"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test] //= publishing#over-ftp
fn publish_existing_broken_upload_changes_nothing() {
    let served = Served::new();
    served.put("x", b"older");
    let mut client = served.client();
    client.ok("ALLO 100");
    assert!(client.put("STOR x", b"hel").starts_with("426"));
    assert_eq!(served.bytes("x"), b"older");
    assert_eq!(served.client().ok("SIZE x"), "213 5");
}

#[test] //= publishing#over-ftp
fn publish_existing_stream_rest_is_in_place() {
    let served = Served::new();
    served.put("x", b"hello world");
    let mut client = served.client();
    client.ok("REST 6");
    assert!(client.put("STOR x", b"W").starts_with("226"));
    assert_eq!(served.bytes("x"), b"hello World");
}

#[test] //= publishing#over-ftp
fn publish_existing_stream_rest_beyond_end_refused() {
    let served = Served::new();
    served.put("x", b"hello");
    let mut client = served.client();
    client.ok("REST 100");
    let refused = client.put("STOR x", b"W");
    assert!(refused.starts_with("550"), "{refused}");
    assert_eq!(served.bytes("x"), b"hello");
}

#[test] //= publishing#over-ftp
fn publish_name_exists_append_is_in_place() {
    let served = Served::new();
    served.put("x", b"hello");
    assert!(served.client().put("APPE x", b" world").starts_with("226"));
    assert_eq!(served.bytes("x"), b"hello world");
}

#[test] //= publishing#over-ftp
fn publish_name_exists_esto_is_in_place() {
    let served = Served::new();
    served.put("x", b"hello world");
    let mut client = served.client();
    assert!(client.put("ESTO A 6 x", b"W").starts_with("226"));
    client.ok("MODE E");
    client.store_blocks("226", "ESTO A 1 x", &[(0, b"E"), (2, b"L")]);
    assert_eq!(served.bytes("x"), b"hElLo World");
}

#[test] //= publishing#over-ftp
fn publish_existing_extended_rest_resumes_partial() {
    let served = Served::new();
    served.put("x", b"older");
    let mut client = served.extended();
    client.store_blocks("426", "STOR x", &[(0, b"NEW"), (4, b"R")]);
    assert_eq!(served.bytes("x"), b"older");
    client.ok("REST 0-3,4-5");
    client.store_blocks("226", "STOR x", &[(3, b"E")]);
    assert_eq!(served.bytes("x"), b"NEWER");
}

#[test] //= publishing#over-ftp
fn publish_existing_extended_rest_is_in_place() {
    let served = Served::new();
    served.put("x", b"older");
    let mut client = served.extended();
    client.ok("REST 0-4");
    client.store_blocks("226", "STOR x", &[(4, b"R")]);
    assert_eq!(served.bytes("x"), b"oldeR");
}

#[test] //= publishing#over-ftp
fn publish_of_two_last_wins_whole() {
    let served = Served::new();
    let (mut one, mut two) = (served.client(), served.client());
    let (first, second) = (bytes(2_000_000), vec![7; 1_500_000]);
    let mut first_data = begin(&mut one, "STOR x", &first[..1_000_000]);
    let mut second_data = begin(&mut two, "STOR x", &second[..500_000]);
    first_data.write_all(&first[1_000_000..]).unwrap();
    second_data.write_all(&second[500_000..]).unwrap();
    drop(first_data);
    assert!(one.reply().starts_with("226"));
    assert_eq!(served.bytes("x"), first);
    drop(second_data);
    assert!(two.reply().starts_with("226"));
    assert_eq!(served.bytes("x"), second);
}

#[test] //= publishing#over-ftp
fn publish_named_upload_may_finish_later() {
    let served = Served::new();
    let whole = bytes(2_500_000);
    let mut client = served.client();
    client.ok("OPTS GODWIT 1");
    client.ok("MODE E");
    let upload = "ESTO GODWIT=\"size=2500000;id=u1;hold=1\" x";
    let (_, end) = client.put_blocks(upload, &[(0, &whole[..1_000_000])]);
    assert!(
        end.starts_with("226") && end.contains("done=0-1000000;published=0;"),
        "{end}"
    );
    assert_hidden(&served, "x");
    let done = client.ok("SITE GODWIT DONE id=u1 x");
    assert_eq!(done, "250 GODWIT size=2500000;done=0-1000000");
    let early = client.ask("SITE GODWIT FINISH id=u1;size=2500000 x");
    assert!(
        early.starts_with("550") && early.contains("1000000-2500000"),
        "{early}"
    );
    let (markers, end) = client.put_blocks(upload, &[(1_000_000, &whole[1_000_000..])]);
    assert!(end.contains("done=0-2500000"), "{end}");
    assert!(
        markers.iter().any(|m| m.starts_with("115 Leaves ")),
        "{markers:?}"
    );
    let digest = godwit_core::Digest::of(godwit_core::Algorithm::Blake3, &whole).hex();
    let wrong = "0".repeat(64);
    let refused = client.ask(&format!(
        "SITE GODWIT FINISH id=u1;size=2500000;blake3={wrong} x"
    ));
    assert!(
        refused.starts_with("550") && refused.contains("c=INCORRECT_CHECKSUM"),
        "{refused}"
    );
    assert_hidden(&served, "x");
    // The wrong byte may be in any leaf, so none of them is trusted.
    assert!(client.ask("SITE GODWIT DONE id=u1 x").starts_with("550"));
    let (_, end) = client.put_blocks(upload, &[(0, &whole)]);
    assert!(end.contains("done=0-2500000"), "{end}");
    let finished = client.ok(&format!(
        "SITE GODWIT FINISH id=u1;size=2500000;modify=20200101000000;mode=0600;blake3={digest} x"
    ));
    assert!(
        finished.contains(&format!("blake3={digest};published=1")),
        "{finished}"
    );
    assert!(finished.contains("modify=20200101000000;"), "{finished}");
    assert_eq!(served.bytes("x"), whole);
    let mode = std::fs::metadata(served.file("x"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(client.ask("SITE GODWIT DONE id=u1 x").starts_with("550"));
}

#[test] //= publishing#over-ftp
fn publish_named_wrong_digest_keeps_upload() {
    let served = Served::new();
    served.put("x", b"older");
    let mut client = served.client();
    client.ok("OPTS GODWIT 1");
    client.ok("MODE E");
    let wrong = "0".repeat(64);
    for size in [5, 2_000_000] {
        let bytes = bytes(size);
        let command = format!("ESTO GODWIT=\"size={size};id=u{size};blake3={wrong}\" x");
        let (_, end) = client.put_blocks(&command, &[(0, &bytes)]);
        assert!(
            end.starts_with("550") && end.contains("c=INCORRECT_CHECKSUM"),
            "{end}"
        );
        assert_eq!(served.bytes("x"), b"older");
    }
}

#[test] //= publishing#over-ftp
fn publish_named_new_upload_replaces_nothing() {
    let served = Served::new();
    served.put("x", b"older");
    let mut client = served.extended();
    let (_, end) = client.put_blocks("ESTO GODWIT=\"size=5;how=new\" x", &[(0, b"hello")]);
    assert!(end.starts_with("553"), "{end}");
    assert_eq!(served.bytes("x"), b"older");
}

#[test] //= publishing#over-ftp
fn publish_abandoned_upload_is_gone() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("ALLO 10");
    assert!(client.put("STOR x", b"hello").starts_with("426"));
    client.ok("MODE E");
    let (_, end) = client.put_blocks("ESTO GODWIT=\"size=5;id=u1;hold=1\" x", &[(0, b"he")]);
    assert!(end.starts_with("226"), "{end}");
    client.ok("SITE GODWIT ABANDON id=u1 x");
    assert!(client.ask("SITE GODWIT DONE id=u1 x").starts_with("550"));
    assert_eq!(client.ok("SIZE x"), "213 5"); // the other one, without a name
}

#[test] //= publishing#over-ftp
fn publish_compares_what_scks_announced() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("SITE CLIENTINFO x");
    for (by, right) in [
        ("MD5", "5d41402abc4b2a76b9719d911017c592"),
        ("ADLER32", "062c0215"),
    ] {
        client.ok(&format!("SCKS {by} {right}"));
        assert!(client.put("STOR x", b"hello").starts_with("226"));
        client.ok(&format!("SCKS {by} {right}"));
        let end = client.put("STOR y", b"hallo");
        assert!(
            end.starts_with("550-GlobusError: v=1 c=INCORRECT_CHECKSUM"),
            "{end}"
        );
        assert!(
            end.contains(&format!("GridFTP-Expected-Checksum: {right}")),
            "{end}"
        );
        assert!(!served.has("y"));
    }
}

#[test] //= publishing#over-ftp
fn publish_gives_the_time_that_storattr_said() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("SITE STORATTR modify=20200101000000;");
    assert!(client.put("STOR x", b"hello").starts_with("226"));
    assert_eq!(client.ok("MDTM x"), "213 20200101000000");
}

#[test]
fn time_fractions_are_accepted_from_all() {
    let served = Served::new();
    let mut client = served.client();
    assert!(client.put("STOR x", b"hello").starts_with("226"));
    for set in [
        "MFMT 20200101000000.25 x",
        "SITE UTIME 20200101000000.250 x",
    ] {
        client.ok("MFMT 20190101000000 x");
        client.ok(set);
        assert_eq!(client.ok("MDTM x"), "213 20200101000000");
        assert!(client.ok("MLST x").contains("Modify=20200101000000;"));
    }
    client.ok("OPTS GODWIT 1");
    assert_eq!(client.ok("MDTM x"), "213 20200101000000.250000000");
    assert!(
        client
            .ok("MLST x")
            .contains("Modify=20200101000000.250000000;")
    );
}
