//! Clients that know FTP and nothing of Globus, and what GCT does for them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, HERE, PATIENCE, Served, bound_to, data_to};
use std::{
    io::{BufReader, Read},
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant},
};

/// The bytes that globus-gridftp-server 13.24 sends and keeps.
#[test] //= nodes#text-and-names
fn type_a_translates_as_gct_does() {
    let served = Served::new();
    served.put("t", b"a\nb\r\nc\rd\n");
    let mut client = served.client();
    // RFC 959: the default.
    let mut fresh = Client::new(served.address);
    fresh.ok("USER anonymous");
    fresh.ok("PASS me@");
    assert_eq!(fresh.get("RETR t").unwrap(), b"a\r\nb\r\r\nc\rd\r\n");
    client.ok("TYPE A");
    assert_eq!(client.ok("SIZE t"), "213 9");
    client.ok("REST 3");
    assert_eq!(client.get("RETR t").unwrap(), b"\r\r\nc\rd\r\n");
    assert_eq!(
        client.ok("CKSM MD5 0 -1 t"),
        "213 4df69565d96a624ce75a71156b8e4553"
    );
    client.ok("ALLO 10");
    assert!(client.put("STOR u", b"a\r\nb\nc\rd\r\n").starts_with("226"));
    assert_eq!(served.bytes("u"), b"a\nb\nc\rd\n");
    client.ok("REST 3");
    assert!(client.put("STOR u", b"X\r\nY").starts_with("226"));
    assert!(client.put("APPE u", b"Z\r\n\r").starts_with("226"));
    assert_eq!(served.bytes("u"), b"a\nbX\nYd\nZ\n\r");
    // Blocks have offsets of the file.
    client.ok("MODE E");
    client.store_blocks("226", "STOR v", &[(3, b"lo"), (0, b"a\r\n")]);
    assert_eq!(served.bytes("v"), b"a\r\nlo");
}

#[test]
fn type_a_keeps_long_text_whole() {
    let served = Served::new();
    let text = "a line that is long enough\n\r\n"
        .repeat(200_000)
        .into_bytes();
    served.put("t", &text);
    let mut client = served.client();
    client.ok("TYPE A");
    let wire = client.get("RETR t").unwrap();
    assert_eq!(wire.len(), text.len() + 400_000);
    assert!(client.put("STOR u", &wire).starts_with("226"));
    assert!(served.bytes("u") == text);
}

#[test]
fn delayed_epsv_tells_its_port_at_retr() {
    let served = Served::new();
    served.put("x", b"hello");
    let mut client = served.client();
    client.ok("OPTS PASV AllowDelayed=1;");
    assert_eq!(client.ok("EPSV"), "200 Passive delayed.");
    let told = client.expect("RETR x", "129 Entering Extended Passive Mode (|||");
    let port = told.split('|').nth(3).unwrap().parse().unwrap();
    let mut data = data_to(SocketAddr::new(HERE, port));
    let mut bytes = Vec::new();
    data.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"hello");
    assert!(client.reply().starts_with("150"));
    assert!(client.reply().starts_with("226"));
}

#[test] //= nodes#text-and-names
fn refusal_is_one_line_for_plain_clients() {
    let served = Served::new();
    let mut client = served.client();
    assert_eq!(client.ask("SIZE x"), "550 No such file or directory");
    client.ok("SITE CLIENTINFO appname=\"globus-url-copy\";");
    let said = client.ask("SIZE x");
    assert!(
        said.starts_with("550-GlobusError: v=1 c=PATH_NOT_FOUND\n"),
        "{said}"
    );
}

#[test]
fn listing_tells_names_of_accounts() {
    let served = Served::new();
    served.put("x", b"hello");
    let id = |what: &str| {
        let told = Command::new("id").arg(what).output().unwrap().stdout;
        String::from_utf8(told).unwrap().trim().to_owned()
    };
    let mut client = served.client();
    let facts = client.ok("MLST x");
    let wanted = format!(
        "UNIX.owner={};UNIX.uid={};UNIX.group={};UNIX.gid={};",
        id("-un"),
        id("-u"),
        id("-gn"),
        id("-g")
    );
    assert!(facts.contains(&wanted), "{wanted} in {facts}");
    let listed = String::from_utf8(client.get("LIST").unwrap()).unwrap();
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(words[2..4], [id("-un"), id("-gn")]);
}

/// Before, each upload waited 50 ms for a client that might have been killed.
#[test]
fn stream_upload_costs_no_fixed_pause() {
    let served = Served::new();
    let mut client = served.client();
    let fastest = (0..20).map(|i| {
        let began = Instant::now();
        assert!(
            client
                .put(&format!("STOR f{i}"), b"hello")
                .starts_with("226")
        );
        began.elapsed()
    });
    assert!(fastest.min().unwrap() < Duration::from_millis(40));
}

/// From another address of this machine.
fn client_from(last: u8, served: &Served) -> Client {
    let stream = bound_to(&format!("127.0.0.{last}:0"), served.address);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client {
        control: BufReader::new(stream),
    };
    assert!(client.reply().starts_with("220"));
    client.ok("USER anonymous");
    client.ok("PASS me@");
    client
}

#[test] //= nodes#third-parties
fn port_elsewhere_needs_the_right_to_write() {
    let reader = Served::with(&[("anonymous.access", "read")]);
    let mut client = reader.client();
    client.expect("PORT 127,0,0,1,200,1", "200 ");
    let said = client.expect("PORT 192,0,2,1,200,1", "504 ");
    assert!(said.contains("may not write"), "{said}");
    client.expect("EPRT |1|192.0.2.1|50000|", "504 ");
    client.expect("SPOR 127,0,0,1,200,1 192,0,2,1,200,1", "504 ");
    let writer = Served::new();
    let mut client = writer.client();
    client.expect("PORT 192,0,2,1,200,1", "200 ");
    for local in [
        "PORT 127,0,0,2,200,1",
        "PORT 169,254,0,1,200,1",
        "EPRT |2|::1|50000|",
        "EPRT |2|fe80::1|50000|",
    ] {
        client.expect(local, "504 ");
    }
    let mut client = client_from(2, &writer);
    client.expect("PORT 127,0,0,1,200,1", "504 ");
    client.expect("PORT 127,0,0,2,200,1", "200 ");
}
