//! Broken, slow and hostile clients of a door: each gets an error, or is ended in bounded time, and the log says why.
//! For hostile nodes see `door_liars.rs`.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    PATIENCE, Scratch, Served, bytes,
    lab::Lab,
    log,
    raw::{Answer, Raw, context},
    until,
};
use godwit_core::{Block, Digest, Extents};
use godwit_store::{Error, Expected, Result, Sink, Store, StoreExt, Write as Upload, WriteMode};
use godwit_trust::{Credential, lab::Issue};
use godwit_wire::door::pack::{self, FrameKind};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    thread,
    time::Instant,
};

struct Door {
    lab: Lab,
    served: Served,
}

impl Door {
    fn new(settings: &[(&'static str, &str)]) -> Self {
        log::keep();
        let lab = Lab::new();
        let served = lab.node(settings);
        served.put("f", b"here");
        Self { lab, served }
    }

    /// With little patience.
    fn hasty() -> Self {
        Self::new(&[("limits.stall_seconds", "1")])
    }

    fn at(&self) -> SocketAddr {
        self.served.node().addresses().https[0]
    }

    fn raw(&self) -> Raw {
        Raw::new(self.at())
    }

    /// Begins an upload; returns its name.
    fn upload(&self, raw: &mut Raw, path: &str) -> String {
        let asked = format!(
            "{{\"path\":\"{path}\",\"how\":\"new\",\"checks\":[true,false],\"resume\":true}}"
        );
        let said = raw.call("uploads", asked);
        assert_eq!(said.status, 200, "{}", said.text());
        id(&said)
    }

    /// Others are served as before.
    fn must_serve(&self) {
        let said = self.raw().ask("GET /f", "");
        assert_eq!((said.status, &*said.body), (200, &b"here"[..]));
    }
}

fn id(said: &Answer) -> String {
    let text = said.text();
    text.split("\"id\":\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn requests_of_two_readings_are_refused() {
    let door = Door::new(&[]);
    let post = |lines: &str| format!("POST /.godwit/v1/stat HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    // Read in the other way, the rest of each is a second request.
    let smuggled = "GET /f HTTP/1.1\r\nHost: a\r\n\r\n";
    for head in [
        post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"),
        post("Content-Length: 4\r\nContent-Length: 5\r\n"),
        post("Content-Length: 4\r\nContent-Length: 4\r\n"),
        post("Content-Length: 4, 4\r\n"),
        post("Content-Length: +4\r\n"),
        post("Content-Length: -4\r\n"),
        post("Content-Length: 99999999999999999999\r\n"),
        post("Transfer-Encoding: xchunked\r\n"),
        post("Transfer-Encoding: chunked, identity\r\n"),
        post("Transfer-Encoding: gzip, chunked\r\n"),
        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        post("Transfer-Encoding: \x0bchunked\r\n"),
        post("Transfer-Encoding : chunked\r\n"),
        post("X: a\r\n Content-Length: 4\r\n"),
        post("X: a\nContent-Length: 4\r\n"),
        post("X: a\rContent-Length: 4\r\n"),
        post("X: a\0b\r\n"),
        post("Content-Encoding: gzip\r\n"),
        "POST /.godwit/v1/stat HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
        "GET http://other/f HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n".into(),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET /f HTTP/1.1\r\n\r\n".into(),
        "GET /f HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(),
        "GET /f  HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "G@T /f HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET /f HTTP/3.7\r\nHost: a\r\n\r\n".into(),
    ] {
        let mut raw = door.raw();
        raw.send([head.as_bytes(), smuggled.as_bytes()].concat());
        let said = raw.answer();
        let is_encoded = head.contains("Content-Encoding");
        let status = if is_encoded { 501 } else { 400 };
        assert_eq!(said.status, status, "{head:?}: {}", said.text());
        // Nothing of what follows is taken for a request.
        let rest = raw.rest();
        assert!(!rest.contains("HTTP/1.1"), "{head:?}: {rest}");
        log::has(&[&raw.hang_up()]);
    }
    door.must_serve();
}

#[test]
fn heads_have_a_bound() {
    let door = Door::new(&[]);
    let many: String = (0..70).map(|nth| format!("X-{nth}: 1\r\n")).collect();
    let huge = format!("X: {}\r\n", "a".repeat(70 << 10));
    for lines in [many, huge] {
        let mut raw = door.raw();
        raw.send(format!("GET /f HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        assert_eq!(raw.answer().status, 431);
        raw.rest();
        log::has(&[&raw.hang_up(), "a connection ended"]);
    }
    let mut raw = door.raw();
    raw.send(format!(
        "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
        "a".repeat(66 << 10)
    ));
    assert!([414, 431].contains(&raw.answer().status));
    // One that never ends is not waited for.
    let mut raw = door.raw();
    let _ = raw.tls.write_all("GET /f HTTP/1.1\r\n".as_bytes());
    while raw
        .tls
        .write_all(b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")
        .is_ok()
    {}
    door.must_serve();
}

#[test]
fn broken_chunks_are_told() {
    let door = Door::new(&[]);
    let flood = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(20 << 10));
    let floods = format!("{}0\r\n\r\n", "1;aaaaaaaaaaaaaaaaaa\r\n \r\n".repeat(2000));
    for body in [
        "fffffffffffffffff\r\nhello",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "x\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloo\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        &flood,
        &floods,
    ] {
        let mut raw = door.raw();
        raw.send(format!(
            "POST /.godwit/v1/stat HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        let said = raw.answer();
        assert_eq!(said.status, 400, "{body:.40}: {}", said.text());
        raw.rest();
        log::has(&[&raw.called, "refuse"]);
    }
    door.must_serve();
}

#[test]
fn who_drips_is_ended_in_bounded_time() {
    let door = Door::hasty();
    // Headers.
    let mut raw = door.raw();
    raw.send("GET /f HTTP/1.1\r\nHost: ");
    assert_eq!(raw.drip(b'a'), "");
    log::has(&[&raw.called, "the headers of a request were not whole"]);
    // The next one of a connection, too.
    let mut raw = door.raw();
    assert_eq!(raw.ask("GET /f", "").status, 200);
    raw.send("GET /f HTTP/1.1\r\nHost: ");
    assert_eq!(raw.drip(b'a'), "");
    log::has(&[&raw.called, "the headers of a request were not whole"]);
    // A call.
    let mut raw = door.raw();
    raw.send("POST /.godwit/v1/stat HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{");
    let said = raw.drip(b' ');
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    log::has(&[&raw.called, "refuse", "for 1 s"]);
    // Bytes of an upload; those that arrived are kept.
    let mut raw = door.raw();
    let id = door.upload(&mut raw, "slow");
    raw.send(format!(
        "PUT /.godwit/v1/uploads/{id}/slow HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\nContent-Range: bytes 0-99999/*\r\n\r\n"
    ));
    let said = raw.drip(b'x');
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    log::has(&[&raw.called, "refuse", "for 1 s"]);
    door.must_serve();
}

#[test]
fn client_that_never_reads_is_ended() {
    let door = Door::hasty();
    door.served.put("large", &bytes(64 << 20));
    let mut raws = [door.raw(), door.raw()];
    raws[0].send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let asked = "{\"files\":[{\"path\":\"large\",\"ranges\":\"0-67108864\"}],\"digests\":true}";
    raws[1].send(format!(
        "POST /.godwit/v1/read HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{asked}",
        asked.len()
    ));
    for raw in &raws {
        log::has(&[&raw.called, "was not sent whole"]);
        log::has(&[&raw.called, "nothing was taken of an answer"]);
    }
    // One after the other, without a look at the answers: it is neither held for ever nor
    // does the node keep them all.
    let mut raw = door.raw();
    let some = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
    let before = resident_bytes();
    let begun = Instant::now();
    while raw.tls.write_all(some.as_bytes()).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it goes on for ever");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(
        grown < 64 << 20,
        "{grown} bytes are held for who takes nothing"
    );
    log::has(&[&raw.called, "nothing was taken of an answer"]);
    door.must_serve();
}

/// Of this process, with the node in it.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn silent_tls_clients_block_no_others() {
    let door = Door::new(&[]);
    let context = context(None);
    let mut idle: Vec<Raw> = (0..1000).map(|_| Raw::with(door.at(), &context)).collect();
    door.must_serve();
    // One address has a bounded number of them: the oldest was closed.
    assert_eq!(idle[0].rest(), "");
    assert_eq!(idle[999].ask("GET /f", "").status, 200);
}

#[test]
fn half_closed_connections_end() {
    let door = Door::new(&[]);
    // In the middle of headers, of a body, and while an answer is due.
    let mut raw = door.raw();
    raw.send("GET /f HTTP/1.1\r\nHost");
    raw.end_ours();
    raw.rest();
    let mut raw = door.raw();
    let id = door.upload(&mut raw, "half");
    raw.send(format!(
        "PUT /.godwit/v1/uploads/{id}/half HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nContent-Range: bytes 0-9/10\r\n\r\nhello"
    ));
    raw.end_ours();
    raw.rest();
    log::has(&[&raw.called, "refuse", "Connection lost while sending"]);
    let mut raw = door.raw();
    raw.send("GET /f HTTP/1.1\r\nHost: a\r\n\r\n");
    raw.end_ours();
    raw.rest();
    assert!(!door.served.has("half"));
    // Without TLS: another protocol, or a port scan.
    let mut plain = TcpStream::connect(door.at()).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    let called = plain.local_addr().unwrap().to_string();
    log::has(&[&called, "no TLS"]);
    door.must_serve();
}

#[test]
fn refused_client_still_sending_learns_why() {
    let door = Door::new(&[]);
    for _ in 0..5 {
        let mut raw = door.raw();
        raw.send(
            "PUT /.godwit/v1/uploads/nobodys/f HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n",
        );
        // More than socket buffers hold, so the node must be reading it.
        raw.send(vec![7; 16 << 20]);
        let said = raw.answer();
        assert_eq!(said.status, 503, "{}", said.text());
        log::has(&[&raw.called, "refuse", "no upload of that name"]);
    }
    door.must_serve();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let door = Door::new(&[]);
    door.served.put("g", b"there");
    let mut raw = door.raw();
    let asked = "{\"paths\":[\"f\"]}";
    raw.send(format!(
        "GET /f HTTP/1.1\r\nHost: a\r\n\r\nPOST /.godwit/v1/stat HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{asked}GET /g HTTP/1.1\r\nHost: a\r\n\r\n",
        asked.len()
    ));
    assert_eq!(raw.answer().text(), "here");
    assert!(raw.answer().text().contains("\"size\":4"));
    assert_eq!(raw.answer().text(), "there");
}

#[test]
fn invalid_ranges_and_names_are_refused() {
    let door = Door::new(&[]);
    for (range, status) in [
        ("bytes=5-4", 400),
        ("bytes=a-b", 400),
        ("bytes=", 400),
        ("bytes=-", 400),
        ("bytes=0-18446744073709551616", 400),
        ("bytes", 400),
        ("bytes=4-", 416),
        ("bytes=-0", 416),
        ("bytes=0-18446744073709551614", 206),
        ("lines=1-2", 200),
        ("bytes=0-1,2-3", 200),
    ] {
        let mut raw = door.raw();
        let said = raw.ask_with("GET /f", &format!("Range: {range}\r\n"), "");
        assert_eq!(said.status, status, "{range}");
    }
    let mut raw = door.raw();
    let id = door.upload(&mut raw, "up");
    for name in [
        "a%2Fup",
        "..%2Fup",
        "%2e%2e/up",
        ".",
        "//up",
        "up%00",
        "%zz",
        "other",
    ] {
        let mut raw = door.raw();
        let said = raw.put(&id, name, "0-0/1", "x");
        assert!([400, 503].contains(&said.status), "{name}: {}", said.text());
    }
    for (range, body) in [
        ("5-4/10", "x"),
        ("0-10/10", "0123456789a"),
        ("0-1", "x"),
        ("*/10", "x"),
        ("0-0/10", "more"),
        ("0-9/10", "less"),
        (
            "18446744073709551613-18446744073709551614/*",
            "more than two",
        ),
        (
            "18446744073709551600-18446744073709551614/*",
            "0123456789abcde",
        ),
        ("0-18446744073709551615/*", "x"),
    ] {
        let mut raw = door.raw();
        let said = raw.put(&id, "up", range, body);
        assert!(said.status >= 400, "{range}: {}", said.text());
        log::has(&[&raw.called, "refuse"]);
    }
    door.must_serve();
}

#[test]
fn json_that_is_a_bomb_is_refused() {
    let door = Door::new(&[]);
    let deep = format!("{{\"paths\":{}", "[".repeat(100_000));
    let deep_objects = "{\"a\":".repeat(100_000);
    let long = format!("{{\"paths\":[\"{}\"]}}", "a".repeat(5 << 20));
    for body in [
        deep.as_bytes(),
        deep_objects.as_bytes(),
        long.as_bytes(),
        b"{\"paths\":[\"\xff\xfe\"]}",
        b"{\"paths\":[\"\\ud800\"]}",
        b"{\"paths\":[],\"paths\":[\"f\"]}",
        b"{\"paths\":[],\"deep\":true}",
        b"{\"paths\":[\"a\\u0000\"]}",
        b"{\"paths\":[1e999]}",
        b"{\"paths\":[]} x",
        b"[]",
        b"\"f\"",
        b"",
        b"\xef\xbb\xbf{\"paths\":[]}",
    ] {
        let mut raw = door.raw();
        let said = raw.call("stat", body);
        let told = said.text();
        assert_eq!(said.status, 400, "{told}");
        assert!(told.contains("bad_request") && told.len() < 1000, "{told}");
        log::has(&[&raw.called, "refuse"]);
    }
    door.must_serve();
}

#[test]
fn lengths_that_no_disk_has_are_refused() {
    let door = Door::new(&[]);
    let most = u64::MAX;
    for asked in [
        format!("{{\"path\":\"f\",\"length\":{most}}}"),
        format!("{{\"path\":\"f\",\"mtime\":\"{most}.000000000\"}}"),
    ] {
        let said = door.raw().call("set", asked);
        assert!(said.status >= 400, "{}", said.text());
    }
    let said = door.raw().call(
        "digest",
        format!("{{\"path\":\"f\",\"by\":\"blake3\",\"range\":[{most},0]}}"),
    );
    assert!(said.status >= 400, "{}", said.text());
    let mut raw = door.raw();
    let said = raw.call(
        "uploads",
        format!("{{\"path\":\"x\",\"how\":\"new\",\"size\":{most},\"checks\":[true,true],\"resume\":true}}"),
    );
    if said.status == 200 {
        let id = id(&said);
        let said = raw.call(
            &format!("uploads/{id}/finish"),
            "{\"path\":\"x\",\"whole\":{}}",
        );
        assert!(said.status >= 400, "{}", said.text());
    }
    door.must_serve();
    assert_eq!(door.served.bytes("f"), b"here");
}

#[test]
fn lying_pack_keeps_files_before_it() {
    let door = Door::new(&[]);
    let digest = |bytes: &[u8]| Digest::of(godwit_core::Algorithm::Blake3, bytes);
    let head = |path: &str, size: u64, of: &[u8]| {
        let text = format!(
            "{{\"path\":\"{path}\",\"how\":\"new\",\"size\":{size},\"digest\":\"{}\"}}",
            digest(of)
        );
        pack::frame(FrameKind::File, 0, text.as_bytes())
    };
    let data = |offset, bytes: &[u8]| pack::frame(FrameKind::Data, offset, bytes);
    let last = pack::frame(FrameKind::Last, 1, b"");
    for (nth, frames) in [
        // Only its hash is wrong.
        vec![head("NAME", 5, b"hello"), data(0, b"hella"), last.clone()],
        vec![head("NAME", 5, b"hello"), data(0, b"hell"), last.clone()],
        vec![head("NAME", 4, b"hell"), data(0, b"hello"), last.clone()],
        vec![head("NAME", 5, b"hello"), data(1, b"hello"), last.clone()],
        vec![data(0, b"hello"), last.clone()],
        vec![
            head("NAME", 5, b"hello"),
            head("other", 0, b""),
            last.clone(),
        ],
        vec![head("NAME", 2 << 20, b""), last.clone()],
        vec![head("NAME", u64::MAX, b""), last.clone()],
        vec![head("../NAME", 0, b""), last.clone()],
        vec![
            pack::frame(FrameKind::File, 0, b"{\"path\":\"NAME\"}"),
            last.clone(),
        ],
        vec![b"what is this?".to_vec()],
        vec![last.clone(), data(0, b"more")],
        vec![head("NAME", 5, b"hello"), data(0, b"hello")],
    ]
    .into_iter()
    .enumerate()
    {
        let why = if nth == 0 { "corrupt" } else { "bad_request" };
        let (good, bad) = (format!("good-{nth}"), format!("bad{nth}"));
        let mut raw = door.raw();
        let mut body = [head(&good, 5, b"hello"), data(0, b"hello")].concat();
        for frame in frames {
            let at = frame.windows(4).position(|four| four == b"NAME");
            let mut frame = frame;
            if let Some(at) = at {
                frame[at..at + 4].copy_from_slice(&bad.as_bytes()[..4]);
            }
            body.extend(frame);
        }
        let said = raw.call("write", body);
        let told = said.text();
        assert!(told.contains(why), "{nth}: wanted {why} in {told}");
        assert!(told.contains("finished"), "{nth}: {told}");
        assert_eq!(door.served.bytes(&good), b"hello");
        if nth < 12 {
            assert!(!door.served.has(&bad[..4]), "{nth}");
        }
        if why == "bad_request" {
            assert_eq!(said.status, 400, "{nth}: {told}");
            log::has(&[&raw.called, "refuse"]);
        }
    }
    // Of an upload.
    let mut raw = door.raw();
    let id = door.upload(&mut raw, "up");
    for body in [
        data(0, b"cut"),
        pack::frame(FrameKind::Data, u64::MAX - 1, b"over"),
        [last.clone(), data(0, b"more")].concat(),
        b"Dxxxxxxxxxxxxxxxxxxxxxxx".to_vec(),
    ] {
        let mut raw = door.raw();
        let target = format!("PUT /.godwit/v1/uploads/{id}/up");
        let said = raw.ask_with(&target, "Content-Type: application/x-godwit-pack\r\n", body);
        assert_eq!(said.status, 400, "{}", said.text());
        log::has(&[&raw.called, "refuse"]);
    }
    door.must_serve();
}

#[test]
fn abandoned_upload_is_closed_then_removed() {
    let door = Door::new(&[
        ("limits.upload_seconds", "1"),
        ("limits.partial_seconds", "2"),
    ]);
    let mut raw = door.raw();
    let id = door.upload(&mut raw, "left");
    let said = raw.put(&id, "left", "0-4/*", "hello");
    assert_eq!(said.status, 200, "{}", said.text());
    let stranger = door.lab.anonymous(&door.served);
    assert!(!stranger.hidden(Path::new("")).unwrap().is_empty());
    log::has(&["an unused upload is closed", "path=left"]);
    // Its writer receives an error, and resumes it under a new name.
    let said = raw.put(&id, "left", "5-9/*", "again");
    assert_eq!(said.status, 503);
    assert!(said.text().contains("begin it again"), "{}", said.text());
    until("a sweep", || {
        stranger.hidden(Path::new("")).unwrap().is_empty()
    });
    log::has(&["sweep partials"]);
    assert!(!door.served.has("left"));
}

/// Uploads all bytes; the caller finishes the upload.
fn sent(
    door: &godwit_store::door::Door,
    path: &str,
    bytes: &[u8],
    how: WriteMode,
) -> Result<Box<dyn Sink>> {
    let write = Upload {
        how,
        size: Some(bytes.len() as u64),
        ..Upload::default()
    };
    let sink = door.write(Path::new(path), &write)?;
    let missing = Extents::from(0..bytes.len() as u64).minus(&sink.done());
    for range in missing.iter() {
        let mut start = range.start as usize;
        while start < range.end as usize {
            let end = (start + (1 << 20)).min(range.end as usize);
            sink.put(Block::at(start as u64, &bytes[start..end]))?;
            start = end;
        }
    }
    sink.settle()?;
    Ok(sink)
}

fn all_of(bytes: &[u8]) -> Expected {
    Expected {
        size: Some(bytes.len() as u64),
        digest: Some(Digest::of(godwit_core::Algorithm::Blake3, bytes)),
        ..Expected::default()
    }
}

#[test]
fn concurrent_publish_has_one_winner() {
    let door = Door::new(&[]);
    let doors = [
        door.lab.anonymous(&door.served),
        door.lab.anonymous(&door.served),
    ];
    let files = [bytes(3_000_000), bytes(2_500_000)];
    for round in 0..6 {
        let name = format!("new-{round}");
        let first = door.lab.anonymous(&door.served);
        let how = || match round % 3 {
            0 => WriteMode::New,
            1 => {
                let sink = sent(&first, &name, b"before", WriteMode::New);
                sink.and_then(|sink| sink.finish(&all_of(b"before")))
                    .map_or_else(
                        |_| unreachable!(),
                        |done| WriteMode::Replace(Some(done.version)),
                    )
            }
            _ => WriteMode::Replace(None),
        };
        let how = how();
        let sinks = [0, 1].map(|nth| sent(&doors[nth], &name, &files[nth], how.clone()).unwrap());
        let done = thread::scope(|scope| {
            let threads = sinks
                .into_iter()
                .zip(&files)
                .map(|(sink, bytes)| scope.spawn(move || sink.finish(&all_of(bytes))));
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        let published = door.served.bytes(&name);
        let (won, lost): (Vec<usize>, Vec<usize>) = (0..2).partition(|&nth| done[nth].is_ok());
        if round % 3 == 2 {
            assert_eq!(won.len(), 2, "{done:?}");
            assert!(files.contains(&published));
            continue;
        }
        assert_eq!(won.len(), 1, "{name}: {done:?}");
        assert!(
            published == files[won[0]],
            "{name}: the one that won is whole"
        );
        let told = done[lost[0]].as_ref().unwrap_err();
        let is_told = matches!(told, Error::Exists { .. } | Error::Changed { .. });
        assert!(is_told, "{told}");
        let why = if round % 3 == 0 {
            "why=Exists"
        } else {
            "why=Changed"
        };
        log::has(&["refuse", why]);
    }
}

#[test]
fn uploads_and_grants_are_bounded() {
    let lab = Lab::new();
    let gridmap = lab.path("gridmap");
    let names = "\"/O=Lab/CN=alice\" alice\n\"/O=Lab/CN=bob\" bob\n";
    std::fs::write(&gridmap, names).unwrap();
    let gridmap = gridmap.display().to_string();
    log::keep();
    let served = lab.node(&[("anonymous.access", "write"), ("trust.gridmap", &gridmap)]);
    let door = Door { lab, served };
    let person = |name| {
        let credential: Credential = door.lab.ca.issue(&Issue::user(name)).unwrap();
        Raw::of(door.at(), &door.lab, &credential)
    };
    let (mut alice, mut bob, mut stranger) = (person("alice"), person("bob"), door.raw());
    let id = door.upload(&mut alice, "hers");
    for other in [&mut bob, &mut stranger] {
        assert_eq!(other.put(&id, "hers", "0-4/5", "wrong").status, 503);
        let about = "{\"path\":\"hers\"}";
        for verb in ["commit", "abandon", "leave"] {
            assert_eq!(
                other.call(&format!("uploads/{id}/{verb}"), about).status,
                503,
                "{verb}"
            );
        }
        let whole = "{\"path\":\"hers\",\"whole\":{}}";
        assert_eq!(
            other.call(&format!("uploads/{id}/finish"), whole).status,
            503
        );
        log::has(&[&other.called, "refuse", "no upload of that name"]);
    }
    // Nor is it hers for another path.
    assert_eq!(alice.put(&id, "other", "0-4/5", "wrong").status, 503);
    assert_eq!(alice.put(&id, "hers", "0-4/5", "right").status, 200);
    let whole = "{\"path\":\"hers\",\"whole\":{\"size\":5}}";
    assert_eq!(
        alice.call(&format!("uploads/{id}/finish"), whole).status,
        200
    );
    assert_eq!(door.served.bytes("hers"), b"right");

    door.served.put("g", b"other");
    let mut grant = |seconds: u64| {
        let said = alice.call(
            "grant",
            format!("{{\"path\":\"hers\",\"seconds\":{seconds}}}"),
        );
        let text = said.text();
        text.split("\"secret\":\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    };
    let (good, over) = (grant(60), grant(0));
    let mut read = |secret: &str, paths: &str| {
        let asked = format!("{{\"files\":[{paths}],\"digests\":false}}");
        let bearer = format!("Authorization: Bearer {secret}\r\n");
        let said = stranger.ask_with("POST /.godwit/v1/read", &bearer, asked);
        said.status
    };
    let (hers, other) = (
        "{\"path\":\"hers\",\"ranges\":\"0-5\"}",
        "{\"path\":\"g\",\"ranges\":\"0-5\"}",
    );
    assert_eq!(read(&good, hers), 200);
    assert_eq!(read(&good, other), 403);
    assert_eq!(read(&good, &format!("{hers},{other}")), 403);
    assert_eq!(read(&over, hers), 403);
    assert_eq!(read(&"0".repeat(32), hers), 403);
    log::has(&[&stranger.called, "refuse", "another file was granted"]);
    log::has(&[&stranger.called, "refuse", "is over"]);
}

#[test]
fn full_disk_is_told_and_part_goes() {
    log::keep();
    let (lab, export) = (Lab::new(), Scratch::new());
    let at = export.path().to_owned();
    let mount = |options: &str| {
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&at)
            .output();
        done.is_ok_and(|done| done.status.success())
    };
    if !mount("size=8m") {
        common::skip("only root can mount a disk");
        return;
    }
    struct Mounted(std::path::PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).output();
        }
    }
    // Unmounted before the directory is removed.
    let served = lab.node_over(export, &[]);
    let _mounted = Mounted(at.clone());
    let all = bytes(12 << 20);
    let full = sent(&lab.anonymous(&served), "large", &all, WriteMode::New)
        .err()
        .unwrap();
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    log::has(&["refuse", "NoSpace"]);
    until("an empty disk", || {
        std::fs::read_dir(&at).unwrap().next().is_none()
    });
    assert!(mount("remount,size=32m"));
    let door = lab.anonymous(&served);
    let sink = sent(&door, "large", &all, WriteMode::New).unwrap();
    sink.finish(&all_of(&all)).unwrap();
    assert!(served.bytes("large") == all);
}

/// As many as a connection can ask for, and numbers that are none.
#[test]
fn attempt_numbers_fill_no_memory() {
    let lab = Lab::new();
    let gridmap = lab.scratch.path().join("gridmap");
    let names = "\"/O=Lab/CN=alice\" alice\n\"/O=Lab/CN=bob\" bob\n";
    std::fs::write(&gridmap, names).unwrap();
    let gridmap = gridmap.display().to_string();
    let served = lab.node(&[("trust.gridmap", &gridmap)]);
    let door = Door { lab, served };
    let person = |name| {
        let credential: Credential = door.lab.ca.issue(&Issue::user(name)).unwrap();
        Raw::of(door.at(), &door.lab, &credential)
    };
    let (mut alice, mut bob) = (person("alice"), person("bob"));
    let begin = |raw: &mut Raw, attempt: &str| {
        let asked = format!(
            "{{\"path\":\"f\",\"id\":\"1f.7\",\"attempt\":{attempt},\"how\":\"new\",\"checks\":[true,false],\"resume\":true}}"
        );
        raw.call("uploads", asked)
    };
    for none in ["-1", "1.5", "\"1\"", "null", "18446744073709551616"] {
        assert_eq!(begin(&mut alice, none).status, 400, "{none}");
    }
    let mut hers = Vec::new();
    for attempt in 1..=1200 {
        let said = begin(&mut alice, &attempt.to_string());
        assert_eq!(said.status, 200, "{attempt}: {}", said.text());
        hers.push(id(&said));
    }
    let most = begin(&mut bob, &u64::MAX.to_string());
    assert_eq!(most.status, 200, "{}", most.text());
    let about = "{\"path\":\"f\"}";
    let last = hers.pop().unwrap();
    let said = alice.call(&format!("uploads/{last}/commit"), about);
    assert_eq!(said.status, 200, "his are not hers: {}", said.text());
    let late = begin(&mut alice, "1199");
    assert_eq!(late.status, 409, "{}", late.text());
    for old in [&hers[0], hers.last().unwrap()] {
        let said = alice.call(&format!("uploads/{old}/commit"), about);
        assert_eq!(said.status, 409);
        assert!(said.text().contains("\"superseded\""), "{}", said.text());
        assert_eq!(alice.put(old, "f", "0-4/5", "wrong").status, 409);
    }
    assert_eq!(alice.put(&last, "f", "0-4/5", "right").status, 200);
    let whole = "{\"path\":\"f\",\"whole\":{}}";
    let said = alice.call(&format!("uploads/{last}/finish"), whole);
    assert_eq!(said.status, 200, "{}", said.text());
    assert_eq!(door.served.bytes("f"), b"right");
    let became = "{\"path\":\"f\",\"id\":\"1f.7\"}";
    let told = alice.call("became", became);
    assert!(told.text().contains("\"weak\""), "{}", told.text());
    let told = bob.call("became", became);
    assert!(told.text().contains("{\"became\":null}"), "{}", told.text());
    for none in [
        "{\"path\":\"../f\",\"id\":\"1f.7\"}",
        "{\"path\":\"f\"}",
        "{\"path\":\"f\",\"id\":7}",
    ] {
        assert_eq!(alice.call("became", none).status, 400, "{none}");
    }
}
