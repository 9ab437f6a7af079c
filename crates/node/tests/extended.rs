//! Extended block mode, markers, and what godwit adds, over raw sockets.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Client, Served, accept, block, bytes, data_to, read_blocks};
use godwit_core::{Algorithm, Digest};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

/// Asks for a file over connections that the server makes; puts it together.
fn retrieve(
    client: &mut Client,
    listener: &TcpListener,
    command: &str,
    streams: usize,
) -> (Vec<u8>, Vec<String>, String) {
    client.send(command);
    let mut data: Vec<TcpStream> = (0..streams).map(|_| accept(listener)).collect();
    assert!(client.reply().starts_with("150"));
    collect(client, &mut data)
}

fn collect(client: &mut Client, data: &mut [TcpStream]) -> (Vec<u8>, Vec<String>, String) {
    let (mut whole, mut announced, mut covered) = (Vec::new(), None, 0);
    let all: Vec<_> = std::thread::scope(|scope| {
        let readers: Vec<_> = data
            .iter_mut()
            .map(|d| scope.spawn(|| read_blocks(d)))
            .collect();
        readers.into_iter().map(|r| r.join().unwrap()).collect()
    });
    for (blocks, ends) in all {
        announced = announced.or(ends);
        for (offset, bytes) in blocks {
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            whole.resize(whole.len().max(end), 0);
            whole[start..end].copy_from_slice(&bytes);
            covered += bytes.len();
        }
    }
    assert_eq!(announced, Some(data.len() as u64), "EODC");
    assert_eq!(covered, whole.len(), "bytes came twice, or not at all");
    let (markers, end) = client.last_reply();
    (whole, markers, end)
}

fn listener() -> TcpListener {
    TcpListener::bind((common::HERE, 0)).unwrap()
}

#[test]
fn connecting_server_uses_requested_streams() {
    let served = Served::new();
    let whole = bytes(9_000_001);
    served.put("x", &whole);
    let mut client = served.extended();
    client.ok("OPTS RETR Parallelism=3,3,3;");
    let listener = listener();
    client.port(listener.local_addr().unwrap());
    let (got, _, end) = retrieve(&mut client, &listener, "RETR x", 3);
    assert_eq!(end, "226 Transfer Complete.");
    assert_eq!(got, whole);
}

#[test] //= GRIDFTP-51
fn connections_live_on_into_the_next_transfer() {
    let served = Served::new();
    let mut client = served.extended();
    let listener = listener();
    client.port(listener.local_addr().unwrap());
    for (i, size) in [3_000_000, 10, 0, 2_000_000].into_iter().enumerate() {
        served.put(&format!("x{i}"), &bytes(size));
    }
    client.send("RETR x0");
    let mut data = [accept(&listener)];
    assert!(client.reply().starts_with("150"));
    assert_eq!(collect(&mut client, &mut data).0, bytes(3_000_000));
    for (i, size) in [(1, 10), (2, 0), (3, 2_000_000)] {
        client.send(&format!("RETR x{i}"));
        assert!(client.reply().starts_with("125"));
        assert_eq!(collect(&mut client, &mut data).0, bytes(size));
    }
    // They led one way; the other way wants others.
    assert!(client.ask("STOR y").starts_with('5') || client.ask("STOR y").starts_with('4'));
}

#[test]
fn parts_count_from_their_start() {
    let served = Served::new();
    let whole = bytes(100_000);
    served.put("x", &whole);
    let mut client = served.extended();
    let listener = listener();
    client.port(listener.local_addr().unwrap());
    client.send("ERET P 1000 5000 x");
    let mut data = accept(&listener);
    assert!(client.reply().starts_with("150"));
    let (blocks, _) = read_blocks(&mut data);
    assert_eq!(blocks, [(0, whole[1000..6000].to_vec())]);
    assert!(client.last_reply().1.starts_with("226"));
    client.ok("REST 0-2000");
    client.send("ERET P 1000 5000 x");
    assert!(client.reply().starts_with("125"));
    let (blocks, _) = read_blocks(&mut data);
    assert_eq!(blocks, [(2000, whole[3000..6000].to_vec())]);
    assert!(client.last_reply().1.starts_with("226"));
    client.ok("REST 0-10,20-30,50-100000");
    client.send("RETR x");
    assert!(client.reply().starts_with("125"));
    let (blocks, _) = read_blocks(&mut data);
    assert_eq!(
        blocks,
        [(10, whole[10..20].to_vec()), (30, whole[30..50].to_vec())]
    );
}

#[test]
fn upload_reports_progress_and_landed_ranges() {
    let served = Served::new();
    let mut client = served.extended();
    let whole = bytes(3_000_000);
    let (markers, end) = client.put_blocks(
        "STOR x",
        &[(0, &whole[..2_000_000]), (2_000_000, &whole[2_000_000..])],
    );
    assert!(end.starts_with("226"), "{end}");
    let first = &markers[0];
    assert!(
        first.starts_with("112-Perf Marker\n Timestamp: "),
        "{first}"
    );
    assert!(
        first.contains("Stripe Bytes Transferred: 0\n Total Stripe Count: 1\n112 End"),
        "{first}"
    );
    assert!(
        markers.iter().any(|m| m.contains("Transferred: 3000000")),
        "{markers:?}"
    );
    assert_eq!(markers.last().unwrap(), "111 Range Marker 0-3000000");
}

#[test] //= GRIDFTP-45
fn markers_come_as_often_as_trev_says() {
    let served = Served::new();
    let mut client = served.extended();
    client.ok("TREV RESTART 1");
    let mut data = client.begin("STOR x");
    data.write_all(&block(0, 5, 0)).unwrap();
    data.write_all(b"hello").unwrap();
    // No end: the marker must come all the same.
    loop {
        let marker = client.reply();
        if marker.starts_with("111") {
            assert_eq!(marker, "111 Range Marker 0-5");
            break;
        }
        assert!(marker.starts_with("112"), "{marker}");
    }
    data.write_all(&block(0x48, 0, 1)).unwrap();
    assert!(client.last_reply().1.starts_with("226"));
}

#[test]
fn end_of_file_may_overtake_data() {
    let served = Served::new();
    let mut client = served.extended();
    let at = client.passive();
    client.send("STOR x");
    let (mut one, mut two) = (data_to(at), data_to(at));
    assert!(client.reply().starts_with("150"));
    one.write_all(&block(0x48, 0, 2)).unwrap();
    two.write_all(&block(0, 5, 0)).unwrap();
    two.write_all(b"hello").unwrap();
    two.write_all(&block(0x08, 0, 0)).unwrap();
    assert!(client.last_reply().1.starts_with("226"));
    assert_eq!(served.bytes("x"), b"hello");
}

#[test]
fn a_delayed_address_comes_with_the_transfer() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("OPTS PASV AllowDelayed=1;");
    assert_eq!(client.ok("PASV"), "200 Passive delayed.");
    client.send("STOR x");
    let told = client.reply();
    assert!(told.starts_with("127 "), "{told}");
    let mut data = data_to(common::commas(&told));
    assert!(client.reply().starts_with("150"));
    data.write_all(b"hello").unwrap();
    drop(data);
    assert!(client.reply().starts_with("226"));
    assert_eq!(served.bytes("x"), b"hello");
}

#[test]
fn passive_sender_reports_sent_bytes() {
    let served = Served::new();
    let mut client = served.client();
    client.ok("OPTS GODWIT 1");
    client.ok("MODE E");
    for size in [5, 1_048_576, 5_000_000] {
        let whole = bytes(size);
        served.put("x", &whole);
        let at = client.passive();
        let mut data = [data_to(at), data_to(at)];
        client.send("RETR x");
        assert!(client.reply().starts_with("150"));
        let (got, markers, end) = collect(&mut client, &mut data);
        assert!(got == whole, "{size}");
        let digest = Digest::of(Algorithm::Blake3, &whole).hex();
        assert!(end.contains(&format!("GODWIT size={size};")), "{end}");
        assert!(end.contains(&format!("blake3={digest};")), "{size}: {end}");
        assert!(!end.contains("reread"), "{end}");
        let leaves: usize = markers
            .iter()
            .filter(|m| m.starts_with("115 Leaves"))
            .map(|m| m.split(',').count())
            .sum();
        assert_eq!(
            leaves,
            if size > 1_048_576 {
                size.div_ceil(1 << 20)
            } else {
                0
            },
            "{markers:?}"
        );
    }
}

#[test]
fn between_ours_small_files_flow_without_waiting() {
    let served = Served::new();
    let count = 300;
    for i in 0..count {
        served.put(&format!("f{i}"), &bytes(4096 + i));
    }
    let mut client = served.client();
    client.ok("OPTS GODWIT 1");
    client.ok("MODE E");
    let at = client.passive();
    let mut data = data_to(at);
    let all: String = (0..count).map(|i| format!("RETR f{i}\r\n")).collect();
    client.raw(all.as_bytes());
    for i in 0..count {
        let (blocks, end) = read_blocks(&mut data);
        assert_eq!((blocks, end), (vec![(0, bytes(4096 + i))], Some(1)), "{i}");
    }
    for i in 0..count {
        let first = client.reply();
        assert!(
            first.starts_with(if i == 0 { "150" } else { "125" }),
            "{i}: {first}"
        );
        let end = client.reply();
        let digest = Digest::of(Algorithm::Blake3, &bytes(4096 + i)).hex();
        assert!(end.contains(&digest), "{i}: {end}");
    }
    // The other way: data may come before it is asked for.
    let at = client.passive();
    let mut data = data_to(at);
    let all: String = (0..count)
        .map(|i| format!("ESTO GODWIT=\"size={}\" g{i}\r\n", 4096 + i))
        .collect();
    client.raw(all.as_bytes());
    let sender = std::thread::spawn(move || {
        for i in 0..count {
            data.write_all(&block(0, 4096 + i as u64, 0)).unwrap();
            data.write_all(&bytes(4096 + i)).unwrap();
            data.write_all(&block(0x48, 0, 1)).unwrap();
        }
        data
    });
    for i in 0..count {
        assert!(client.reply().starts_with("1"));
        let end = client.reply();
        assert!(
            end.contains("published=1") && !end.contains("reread"),
            "{i}: {end}"
        );
        assert_eq!(served.bytes(&format!("g{i}")), bytes(4096 + i));
    }
    drop(sender.join().unwrap());
}

#[test]
fn missing_file_spares_pipelined_files() {
    let served = Served::new();
    served.put("a", b"one");
    served.put("c", b"three");
    let mut client = served.client();
    client.ok("OPTS GODWIT 1");
    client.ok("MODE E");
    let at = client.passive();
    let mut data = data_to(at);
    client.raw(b"RETR a\r\nRETR b\r\nRETR c\r\n");
    let both = [read_blocks(&mut data).0, read_blocks(&mut data).0];
    assert_eq!(
        both,
        [vec![(0, b"one".to_vec())], vec![(0, b"three".to_vec())]]
    );
    let codes: Vec<String> = (0..5).map(|_| client.reply()[..3].to_owned()).collect();
    assert_eq!(codes, ["150", "226", "550", "125", "226"]);
    // Nor does an upload of which no file can be made: its data was taken.
    let at = client.passive();
    let mut data = data_to(at);
    for name in ["d", "no/e", "f"] {
        client.send(&format!("ESTO GODWIT=\"size=1\" {name}"));
        data.write_all(&[&block(0, 1, 0), &b"x"[..], &block(0x48, 0, 1)].concat())
            .unwrap();
    }
    let codes: Vec<String> = (0..6).map(|_| client.reply()[..3].to_owned()).collect();
    assert_eq!(codes, ["150", "226", "125", "550", "125", "226"]);
    assert_eq!(
        (served.bytes("d"), served.bytes("f")),
        (b"x".to_vec(), b"x".to_vec())
    );
}

#[test]
fn unrequested_digests_are_left_out() {
    let served = Served::new();
    served.put("x", &bytes(3_000_000));
    let mut client = served.client();
    client.ok("OPTS GODWIT 1;digests=0");
    client.ok("MODE E");
    let at = client.passive();
    let mut data = [data_to(at)];
    client.send("RETR x");
    assert!(client.reply().starts_with("150"));
    let (_, markers, end) = collect(&mut client, &mut data);
    assert!(
        end.contains("size=3000000;") && !end.contains("blake3"),
        "{end}"
    );
    assert!(markers.is_empty(), "{markers:?}");
    let upload = "ESTO GODWIT=\"size=3000000;id=a;hold=1\" y";
    let (markers, end) = client.put_blocks(upload, &[(0, &bytes(3_000_000))]);
    assert!(end.starts_with("226"), "{end}");
    assert!(!markers.iter().any(|m| m.starts_with("115")), "{markers:?}");
    let end = client.ok("SITE GODWIT FINISH id=a;size=3000000 y");
    assert!(
        end.contains("published=1") && !end.contains("blake3"),
        "{end}"
    );
    assert_eq!(served.bytes("y"), bytes(3_000_000));
}

#[test]
fn leaves_can_be_asked_for() {
    let served = Served::new();
    let whole = bytes(2_500_000);
    served.put("x", &whole);
    let mut client = served.client();
    client.ok("OPTS GODWIT 1");
    let told = client.ok("SITE GODWIT LEAVES from=1;count=9 x");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    assert!(
        lines[1].starts_with(" 1 ") && lines[2].starts_with(" 2 "),
        "{told}"
    );
    assert_eq!(lines[1].len(), " 1 ".len() + 64);
}

#[test] //= GRIDFTP-20
fn abort_ends_transfer_and_pipelined_commands() {
    let served = Served::new();
    served.put("x", &vec![7; 60_000_000]);
    let mut client = served.client();
    let mut data = client.begin("RETR x");
    client.raw(b"STAT\r\n");
    let status = client.reply();
    assert!(
        status.starts_with("213-Status") && status.contains(" bytes moved"),
        "{status}"
    );
    client.raw(b"RETR x\r\nNOOP\r\n\xff\xf4\xff\xf2ABOR\r\n");
    for which in ["the one under way", "one sent ahead", "another"] {
        assert!(client.reply().starts_with("426"), "{which}");
    }
    assert!(client.reply().starts_with("226"));
    let mut rest = Vec::new();
    let _ = data.read_to_end(&mut rest);
    assert!(rest.len() < 60_000_000);
    assert!(client.get("RETR x").unwrap() == vec![7; 60_000_000]);
}

#[test]
fn abort_overtakes_ten_thousand_commands() {
    let served = Served::new();
    served.put("x", &vec![7; 60_000_000]);
    let mut client = served.client();
    let at = client.passive();
    client.send("RETR x");
    let _data = data_to(at); // nobody reads
    assert!(client.reply().starts_with("150"));
    let ahead = 10_000;
    client.raw(&[&b"NOOP\r\n".repeat(ahead)[..], b"ABOR\r\n"].concat());
    for _ in 0..=ahead {
        let said = client.reply();
        assert!(said.starts_with("426"), "{said}");
    }
    assert!(client.reply().starts_with("226"));
}

#[test]
fn comparison_by_scks_can_be_aborted() {
    let served = Served::new();
    let huge = std::fs::File::create(served.file("huge")).unwrap();
    huge.set_len(1 << 40).unwrap(); // takes long to hash, and no room
    let mut client = served.client();
    client.ok(&format!("SCKS MD5 {}", "0".repeat(32)));
    let mut data = client.begin("ESTO A 0 huge");
    data.write_all(b"hello").unwrap();
    drop(data);
    // It reads a hole, in pieces of at least a leaf.
    client.until(&|told| !told.contains(" 0 bytes") && !told.contains(" 5 bytes"));
    client.send("ABOR");
    let said = client.reply();
    assert!(said.starts_with("426"), "{said}");
    assert!(client.reply().starts_with("226"));
}

#[test]
fn an_aborted_upload_is_kept() {
    let served = Served::new();
    let mut client = served.client();
    let mut data = client.begin("STOR x");
    data.write_all(&bytes(2_000_000)).unwrap();
    // It has landed once STAT says so.
    client.until_moved(1_048_576);
    client.send("ABOR");
    assert!(client.reply().starts_with("426"));
    assert!(client.reply().starts_with("226"));
    assert!(!served.has("x"));
    let kept: u64 = client.ok("SIZE x")[4..].parse().unwrap();
    assert!((1_048_576..=2_000_000).contains(&kept), "{kept}");
}

#[test]
fn listings_come_over_blocks_too() {
    let served = Served::new();
    for i in 0..3000 {
        served.put(&format!("a name that is somewhat long {i}"), b"");
    }
    let mut client = served.extended();
    let listener = listener();
    client.port(listener.local_addr().unwrap());
    for (command, lines) in [("MLSD", 3001), ("NLST", 3000), ("MLSR", 3001)] {
        client.send(command);
        let mut data = accept_or_reuse(&listener, &mut client);
        let (blocks, _) = read_blocks(&mut data);
        let text: Vec<u8> = blocks.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert_eq!(
            text.iter().filter(|&&b| b == b'\n').count(),
            lines,
            "{command}"
        );
        assert!(client.last_reply().1.starts_with("226"));
        client.port(listener.local_addr().unwrap());
    }
}

fn accept_or_reuse(listener: &TcpListener, client: &mut Client) -> TcpStream {
    let data = accept(listener);
    assert!(client.reply().starts_with("150"));
    data
}

#[test]
fn sessions_over_ipv6_speak_epsv() {
    if !has_ipv6() {
        return;
    }
    let served = Served::with(&[("ftp.listen", "[::1]:0")]);
    served.put("x", b"hello");
    let mut client = served.client();
    assert!(client.ask("PASV").starts_with("425"));
    let reply = client.ok("EPSV 2");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    client.send("RETR x");
    let mut data = TcpStream::connect(("::1", port)).unwrap();
    let mut got = Vec::new();
    data.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"hello");
    assert!(client.reply().starts_with("150"));
    assert!(client.reply().starts_with("226"));
}

#[test]
fn one_listener_serves_both_protocol_families() {
    if !has_ipv6() {
        return;
    }
    let served = Served::with(&[("ftp.listen", "[::]:0")]);
    served.put("x", b"hello");
    let address = std::net::SocketAddr::new(common::HERE, served.address.port());
    let mut client = Client::new(address);
    client.ok("USER anonymous");
    client.ok("PASS me@");
    assert_eq!(client.get("RETR x").unwrap(), b"hello");
    let address = std::net::SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], served.address.port()));
    Client::new(address).ok("NOOP");
}

fn has_ipv6() -> bool {
    let has = TcpListener::bind("[::1]:0").is_ok();
    if !has {
        common::skip("this machine has no IPv6");
    }
    has
}

#[test] //= GRIDFTP-38 GRIDFTP-39
fn data_buffers_follow_request_or_kernel() {
    common::needs!("ss");
    let served = Served::new();
    served.put("x", &bytes(9_000_001));
    let mut client = served.client();
    for (command, held_bytes) in [
        ("SBUF 65536", Some(65_536)),
        ("SITE RETRBUFSIZE 32768", Some(32_768)),
        ("SITE STORBUFSIZE 1", Some(4096)),
        ("ABUF", None),
        ("SBUF 99999999999", None),
        ("SBUF 0", None),
    ] {
        client.ok(command);
        let data = client.begin("RETR x");
        let port = data.peer_addr().unwrap().port().to_string();
        let told = common::run(
            "ss",
            &["-Htnm", "state", "established", "sport", "=", &port],
        );
        // The kernel doubles it, and has a bound of its own.
        let is = |bytes: u32| {
            let (r, t) = (format!("rb{},", 2 * bytes), format!("tb{},", 2 * bytes));
            told.contains(&r) && told.contains(&t)
        };
        assert!(told.contains("skmem"), "{command}: {told}");
        match held_bytes {
            Some(bytes) => assert!(is(bytes), "{command}: {told}"),
            None => assert!(
                ![65_536, 32_768, 4096].map(is).contains(&true),
                "{command}: {told}"
            ),
        }
        drop(data);
        client.last_reply();
    }
}
