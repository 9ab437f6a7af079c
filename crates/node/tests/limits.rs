//! How much of everything, and how a node ends.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Client, Scratch, Served, block, bound_to, bytes, data_to, free_port};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

fn first_line(address: SocketAddr) -> String {
    Client::connect(address).line()
}

#[test]
fn session_above_limit_is_refused() {
    let served = Served::with(&[("limits.sessions", "2")]);
    let (one, two) = (Client::new(served.address), Client::new(served.address));
    let refused = first_line(served.address);
    assert!(
        refused.starts_with("421 Too many sessions (2)"),
        "{refused}"
    );
    drop(one);
    common::until("room for another", || served.node().sessions() == 1);
    drop(Client::new(served.address));
    drop(two);
}

#[test]
fn sessions_of_one_address_are_counted() {
    let served = Served::with(&[("limits.sessions_per_address", "1")]);
    let _one = Client::new(served.address);
    let refused = first_line(served.address);
    assert!(refused.contains("from 127.0.0.1"), "{refused}");
}

#[test]
fn thousands_of_refused_connections_do_not_hurt() {
    let served = Served::with(&[("limits.sessions", "1")]);
    served.put("x", b"hello");
    let mut inside = served.client();
    let mut refused = 0;
    let held: Vec<TcpStream> = (0..3000)
        .filter_map(|_| TcpStream::connect(served.address).ok())
        .collect();
    for mut stream in held {
        let mut said = String::new();
        stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
        // A reset may overtake the word.
        match stream.read_to_string(&mut said) {
            Ok(_) => refused += u32::from(said.starts_with("421")),
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
        }
    }
    assert!(refused > 2900, "{refused} of 3000 were told");
    assert_eq!(inside.get("RETR x").unwrap(), b"hello");
    drop(inside);
    common::until("an empty node", || served.node().sessions() == 0);
    assert_eq!(served.client().get("RETR x").unwrap(), b"hello");
}

#[test]
fn who_says_nothing_is_sent_away() {
    let served = Served::with(&[("limits.login_seconds", "1"), ("limits.idle_seconds", "2")]);
    let begun = Instant::now();
    let mut stranger = Client::new(served.address);
    let mut idle = served.client();
    assert!(stranger.line().starts_with("421"));
    assert!(stranger.is_closed());
    assert!(idle.line().starts_with("421"));
    assert!(idle.is_closed());
    assert!(begun.elapsed() >= Duration::from_secs(2));
}

#[test]
fn client_sending_single_bytes_is_idle() {
    let served = Served::with(&[("limits.idle_seconds", "1")]);
    let client = served.client();
    let begun = Instant::now();
    while begun.elapsed() < common::PATIENCE {
        // Slow loris: never a whole line.
        if client.control.get_ref().write_all(b"x").is_err() {
            break;
        }
        client
            .control
            .get_ref()
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let mut said = [0; 3];
        if client.control.get_ref().read_exact(&mut said).is_ok() {
            assert_eq!(&said, b"421");
            break;
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_transfer_that_stands_still_ends() {
    let served = Served::with(&[("limits.stall_seconds", "1")]);
    served.put("x", &vec![1; 60_000_000]);
    let mut client = served.client();
    // A reader that does not read.
    let still = client.begin("RETR x");
    let end = client.reply();
    assert!(end.starts_with("426 Nothing came for 1 s"), "{end}");
    drop(still);
    // A writer that does not write.
    let mut still = client.begin("STOR y");
    still.write_all(b"abc").unwrap();
    let end = client.reply();
    assert!(end.starts_with("426"), "{end}");
    // A client that asks for a data connection and does not make it.
    client.passive();
    let end = client.ask("RETR x");
    assert!(end.starts_with("425"), "{end}");
    assert!(client.ok("NOOP").starts_with("200"));
}

#[test]
fn slow_writer_is_not_stalled() {
    let served = Served::with(&[("limits.stall_seconds", "1")]);
    let mut client = served.client();
    let mut slow = client.begin("STOR y");
    let begun = Instant::now();
    // Less than a block in more than the limit: the pace counts.
    while begun.elapsed() < Duration::from_millis(2500) {
        slow.write_all(b"a").unwrap();
        std::thread::sleep(Duration::from_millis(400));
    }
    drop(slow);
    assert!(client.reply().starts_with("226"));
}

#[test]
fn overlong_line_is_refused_alone() {
    let served = Served::new();
    let mut client = served.client();
    client.raw(&vec![b'x'; 1 << 20]);
    client.raw(b"\r\n");
    assert_eq!(client.reply(), "500 The line is too long.");
    client.ok("NOOP");
}

#[test]
fn listings_have_a_limit() {
    let served = Served::with(&[("limits.listing_entries", "10")]);
    for i in 0..11 {
        served.put(&format!("f{i}"), b"");
    }
    let mut client = served.client();
    let end = client.get("NLST").unwrap_err();
    assert!(end.contains("the limit is 10"), "{end}");
    std::fs::remove_file(served.file("f0")).unwrap();
    assert_eq!(
        client
            .get("NLST")
            .unwrap()
            .iter()
            .filter(|&&b| b == b'\n')
            .count(),
        10
    );
}

#[test]
fn many_sessions_share_one_data_port() {
    let port = free_port();
    let served = Served::with(&[("data.ports", &port.to_string())]);
    served.put("x", &bytes(300_000));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = served.client();
                for _ in 0..5 {
                    assert!(client.get("RETR x").unwrap() == bytes(300_000));
                }
            });
        }
    });
    assert_eq!(served.client().passive().port(), port);
}

#[test]
fn wait_for_port_times_out() {
    let port = free_port();
    let served = Served::with(&[
        ("data.ports", &port.to_string()),
        ("data.wait_seconds", "1"),
    ]);
    let mut first = served.client();
    first.passive();
    let mut second = served.client();
    let told = second.ask("PASV");
    assert!(told.starts_with("425"), "{told}");
    drop(first);
    second.passive();
}

#[test]
fn idle_session_frees_port_for_waiter() {
    let port = free_port();
    let served = Served::with(&[("data.ports", &port.to_string())]);
    served.put("x", &bytes(10));
    let mut first = served.client();
    assert!(first.ok("FEAT").contains("GODWIT-PORTS 1"));
    first.ok("OPTS GODWIT 1");
    let at = first.passive();
    let mut second = served.client();
    assert_eq!(second.passive(), at, "within the wait of half a minute");
    assert!(first.ask("RETR x").starts_with("425"));
    drop(second);
    first.passive();
}

#[test] //= GRIDFTP-9
fn strangers_at_data_port_are_dropped() {
    let served = Served::new();
    let mut client = served.extended();
    let at = client.passive();
    client.send("STOR x");
    let mut data = data_to(at);
    assert!(client.reply().starts_with("150"));
    // A port scan: some say nothing, some speak HTTP, some leave at once.
    let silent = data_to(at);
    let mut web = data_to(at);
    web.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    drop(data_to(at));
    data.write_all(&block(0, 5, 0)).unwrap();
    data.write_all(b"hello").unwrap();
    data.write_all(&block(0x48, 0, 1)).unwrap();
    let (_, end) = client.last_reply();
    assert!(end.starts_with("226"), "{end}");
    assert_eq!(served.bytes("x"), b"hello");
    drop(silent);
}

#[test]
fn data_without_third_party_stays_with_client() {
    let served = Served::with(&[("data.third_party", "false")]);
    served.put("x", b"hello");
    let mut client = served.client();
    assert!(client.ask("PORT 127,0,0,2,200,1").starts_with("504"));
    client.ok("PORT 127,0,0,1,200,1");
    let at = client.passive();
    client.send("RETR x");
    // A stranger connects first, and gets nothing.
    let thief = bound_to("127.0.0.2:0", at);
    let mut data = data_to(at);
    let mut got = Vec::new();
    data.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"hello");
    let mut stolen = Vec::new();
    let _ = (&thief).read_to_end(&mut stolen);
    assert!(stolen.is_empty());
}

#[test]
fn drain_ends_idle_sessions_and_finishes_transfers() {
    let served = Served::new();
    let mut busy = served.client();
    let mut data = busy.begin("STOR x");
    let mut idle = served.client();
    served.node().stopper().drain();
    assert_eq!(idle.line(), "421 The server stops.");
    data.write_all(b"hello").unwrap();
    drop(data);
    assert!(busy.reply().starts_with("226"));
    assert_eq!(busy.line(), "421 The server stops.");
    assert!(TcpStream::connect(served.address).map_or(true, |mut late| {
        late.set_read_timeout(Some(common::PATIENCE)).unwrap();
        let mut said = Vec::new();
        late.read_to_end(&mut said).is_err() || said.is_empty()
    }));
    assert_eq!(served.bytes("x"), b"hello");
}

#[test]
fn stopping_at_once_keeps_what_landed() {
    let served = Served::new();
    let whole = bytes(3_000_000);
    let mut client = served.extended();
    let mut data = client.begin("STOR x");
    data.write_all(&block(0, 2_000_000, 0)).unwrap();
    data.write_all(&whole[..2_000_000]).unwrap();
    client.until_moved(2_000_000);
    served.node().stopper().at_once();
    let (_, end) = client.last_reply();
    assert!(end.starts_with("426"), "{end}");
    let scratch: Scratch = served.stop();
    let served = Served::over(scratch, &[]);
    let mut client = served.client();
    assert_eq!(client.ok("SIZE x"), "213 2000000");
    client.ok("REST 2000000");
    assert!(client.put("STOR x", &whole[2_000_000..]).starts_with("226"));
    assert_eq!(served.bytes("x"), whole);
}

#[test]
fn three_hundred_commands_may_be_sent_ahead() {
    let served = Served::with(&[("limits.pipeline", "16")]);
    let mut client = served.client();
    client.raw(&b"NOOP\r\n".repeat(3000));
    for _ in 0..3000 {
        assert!(client.reply().starts_with("200"));
    }
}
