//! Clients that mean harm, or know nothing. After each the node serves others.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Client, Served, block, bytes, data_to};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::symlink,
};

/// The node still serves.
fn assert_alive(served: &Served) {
    served.put("alive", b"yes");
    assert_eq!(served.client().get("RETR alive").unwrap(), b"yes");
}

#[test]
fn garbage_is_answered_then_disconnected() {
    let served = Served::new();
    let mut client = Client::new(served.address);
    let mut garbage = bytes(200_000);
    garbage.extend(b"\r\n".repeat(10));
    // The node may hang up while we still speak.
    let _ = client.control.get_ref().write_all(&garbage);
    assert!(client.is_closed());
    let mut web = Client::new(served.address);
    let _ = web
        .control
        .get_ref()
        .write_all(&b"GET / HTTP/1.1\r\n".repeat(200));
    assert!(web.is_closed());
    assert_alive(&served);
}

#[test]
fn half_lines_and_sudden_ends_are_survived() {
    let served = Served::new();
    for half in [
        &b"US"[..],
        b"USER anonymous\r\nPASS",
        b"\r",
        b"\xff",
        b"\0\0\0",
    ] {
        let stream = TcpStream::connect(served.address).unwrap();
        (&stream).write_all(half).unwrap();
    }
    common::until("an empty node", || served.node().sessions() == 0);
    assert_alive(&served);
}

#[test]
fn names_do_not_leave_the_export() {
    let served = Served::new();
    let outside = common::Scratch::new();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    fs::create_dir(served.file("d")).unwrap();
    symlink(outside.path().join("secret"), served.file("link")).unwrap();
    symlink(outside.path(), served.file("dirlink")).unwrap();
    symlink("../../../../../../etc/passwd", served.file("d/up")).unwrap();
    let mut client = served.client();
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    let out = [
        format!("../{name}/secret"),
        format!("/../{name}/secret"),
        format!("d/../../{name}/secret"),
        "link".into(),
        "dirlink/secret".into(),
        "d/up".into(),
        "..".into(),
    ];
    for name in &out {
        let refused = client.get(&format!("RETR {name}")).unwrap_err();
        assert!(refused.starts_with('5'), "{name}: {refused}");
        let refused = client.put(&format!("STOR {name}"), b"mine now");
        assert!(refused.starts_with('5'), "STOR {name}: {refused}");
        for verb in [
            "SIZE",
            "MLST",
            "DELE",
            "CWD",
            "SITE CHMOD 0777",
            "SITE RDEL",
            "CKSM MD5 0 -1",
        ] {
            if ["DELE", "SITE RDEL"].contains(&verb) && ["link", "d/up"].contains(&name.as_str()) {
                continue; // the link itself is inside
            }
            let refused = client.ask(&format!("{verb} {name}"));
            assert!(refused.starts_with('5'), "{verb} {name}: {refused}");
        }
    }
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
    // Removing a tree removes links, not their targets.
    symlink(outside.path(), served.file("d/dirlink")).unwrap();
    client.ok("SITE RDEL d");
    assert!(!served.has("d") && outside.path().join("secret").exists());
}

#[test]
fn partials_of_others_cannot_be_named() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("ALLO 10");
    assert!(client.put("STOR x", b"hello").starts_with("426"));
    let hidden: Vec<String> = fs::read_dir(served.scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!hidden.is_empty());
    for name in hidden {
        assert!(client.get(&format!("RETR {name}")).is_err(), "{name}");
        assert!(
            client.ask(&format!("DELE {name}")).starts_with('5'),
            "{name}"
        );
        assert!(
            client.put(&format!("STOR {name}"), b"x").starts_with('5'),
            "{name}"
        );
    }
}

#[test]
fn nonsense_addresses_are_refused() {
    let served = Served::new();
    let mut client = served.client();
    for nonsense in [
        "PORT",
        "PORT 1",
        "PORT 300,0,0,1,1,1",
        "PORT 127,0,0,1,1,1,1",
        "PORT 127,0,0,1,0,22",
        "PORT 127,0,0,1,0,0",
        "PORT 0,0,0,0,200,1",
        "PORT 255,255,255,255,200,1",
        "PORT 224,0,0,1,200,1",
        "EPRT |1|127.0.0.1|22|",
        "EPRT |2|::ffff:127.0.0.1|80|",
        "EPRT ||||",
        "EPRT |1|127.0.0.1|99999|",
        "SPOR",
        "SPOR 127,0,0,1,200,1 x",
    ] {
        let refused = client.ask(nonsense);
        assert!(refused.starts_with('5'), "{nonsense}: {refused}");
    }
    assert_alive(&served);
}

#[test]
fn absurd_blocks_end_only_the_transfer() {
    // Some leave open whether more connections will come.
    let served = Served::with(&[("limits.stall_seconds", "1")]);
    let absurd: [(&str, Vec<u8>); 7] = [
        ("a count beyond any file", block(0, u64::MAX, 0)),
        (
            "an end beyond any file",
            [block(0, 5, u64::MAX - 2), b"hello".to_vec()].concat(),
        ),
        (
            "an offset that no disk has",
            [block(0, 5, 1 << 62), b"hello".to_vec()].concat(),
        ),
        (
            "a count that does not come",
            [block(0, 1 << 40, 0), b"hello".to_vec()].concat(),
        ),
        ("an end for no stream", block(0x48, 0, 0)),
        (
            "two ends of file",
            [block(0x40, 0, 2), block(0x40, 0, 3)].concat(),
        ),
        ("unknown flags", block(0x93, 5, 0)),
    ];
    for (what, blocks) in absurd {
        let mut client = served.extended();
        let mut data = client.begin("STOR x");
        let _ = data.write_all(&blocks);
        let _ = data.shutdown(std::net::Shutdown::Write);
        let (_, end) = client.last_reply();
        assert!(
            end.starts_with('4') || end.starts_with('5'),
            "{what}: {end}"
        );
        assert!(!served.has("x"), "{what}");
        client.ok("NOOP");
    }
    assert_alive(&served);
}

#[test]
fn absurd_command_offsets_do_no_harm() {
    let served = Served::new();
    served.put("x", b"hello");
    let mut client = served.client();
    for command in [
        "REST 18446744073709551616",
        "ERET P 18446744073709551615 18446744073709551615 x",
        "CKSM MD5 18446744073709551615 2 x",
        "SITE GODWIT LEAVES from=-1 x",
        "ALLO -1",
        "SITE CHMOD 99999 x",
        "MFMT 99999999999999 x",
        "OPTS RETR Parallelism=-1;",
    ] {
        let refused = client.ask(command);
        assert!(refused.starts_with('5'), "{command}: {refused}");
    }
    client.ok("REST 18446744073709551615");
    assert_eq!(client.get("RETR x").unwrap(), b"");
    assert_eq!(
        client.get("ERET P 3 18446744073709551000 x").unwrap(),
        b"lo"
    );
    assert_eq!(client.get("ERET P 18446744073709551000 5 x").unwrap(), b"");
    client.ok("SITE GODWIT LEAVES from=18446744073709551615;count=9 x");
    client.ok("OPTS RETR Parallelism=4000000000;");
    let refused = client.put("ESTO A 18446744073709551614 x", b"hello");
    assert!(
        refused.starts_with('5') || refused.starts_with('4'),
        "{refused}"
    );
    assert_eq!(served.bytes("x"), b"hello");
    assert_alive(&served);
}

#[test]
fn client_without_reads_blocks_no_others() {
    let served = Served::with(&[("limits.stall_seconds", "1")]);
    let deaf = served.client();
    // Replies fill the buffers; then it is hung up on.
    let commands = b"HELP\r\n".repeat(1000);
    let mut deaf_stream = deaf.control.into_inner();
    deaf_stream
        .set_write_timeout(Some(common::PATIENCE))
        .unwrap();
    while deaf_stream.write_all(&commands).is_ok() {}
    common::until("an empty node", || served.node().sessions() == 0);
    assert_alive(&served);
}

#[test]
fn names_with_line_ends_forge_nothing() {
    let served = Served::new();
    served.put("x\r\n226 forged", b"1");
    served.put("y\nType=file;Size=1; forged", b"2");
    let mut client = served.client();
    let listed = String::from_utf8(client.get("MLSD").unwrap()).unwrap();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let told = client.ok("MLSC /");
    assert!(
        told.lines()
            .all(|line| line.starts_with(' ') || line.starts_with("250")),
        "{told}"
    );
    // Ours may name them.
    client.ok("OPTS GODWIT 1");
    let listed = client.get("NLST").unwrap();
    assert!(listed.windows(2).any(|w| w == b"\r\0"), "{listed:?}");
    let at = client.passive();
    client.raw(b"RETR y\nType=file;Size=1; forged\r\n");
    let mut got = Vec::new();
    let mut data = data_to(at);
    assert!(client.reply().starts_with("150"));
    data.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"2");
}

#[test]
fn what_is_no_file_is_not_read() {
    let served = Served::new();
    common::run("mkfifo", &[served.file("pipe").to_str().unwrap()]);
    let mut client = served.client();
    assert!(client.get("RETR pipe").unwrap_err().starts_with('5'));
    assert!(client.put("STOR pipe", b"x").starts_with('5'));
    assert!(client.ask("CKSM MD5 0 -1 pipe").starts_with('5'));
    assert_alive(&served);
}
