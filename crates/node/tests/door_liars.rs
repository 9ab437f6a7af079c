//! Our client at the door of a broken or hostile node: it takes no unrequested bytes, ends in bounded time, and reports
//! the error.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    PATIENCE,
    lab::Lab,
    raw::{Liar, chunk, chunked, whole},
};
use godwit_core::{Block, Chain, Extents};
use godwit_store::{
    BlockWriter, Error, Expected, Result, Sink, SinkExt, Store, StoreExt, Write as Upload,
    channel::Cancel, door::Door,
};
use godwit_trust::Credential;
use godwit_wire::door::{
    LINES_TYPE, PACK_TYPE,
    pack::{self, FrameKind},
};
use openssl::ssl::SslStream;
use std::{
    io::{self, Write},
    net::{Shutdown, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

const STALL: Duration = Duration::from_millis(700);

type Tls = SslStream<TcpStream>;

/// A client of a liar, with little patience.
fn at(lab: &Lab, liar: &Liar) -> Door {
    lab.door(liar.port, Credential::nobody(), &|options| {
        options.stall = STALL;
        options.digests = true;
    })
}

/// Asks a liar who says these bytes to every request.
fn told<T>(answer: Vec<u8>, ask: impl FnOnce(&Door) -> Result<T>) -> Error {
    lied(move |_, tls| tls.write_all(&answer), ask)
}

fn lied<T>(
    lie: impl Fn(&str, &mut Tls) -> io::Result<()> + Send + Sync + 'static,
    ask: impl FnOnce(&Door) -> Result<T>,
) -> Error {
    let lab = Lab::new();
    let liar = Liar::new(&lab, lie);
    let begun = Instant::now();
    let error = ask(&at(&lab, &liar)).err().expect("it is a lie");
    assert!(begun.elapsed() < PATIENCE, "it took too long: {error}");
    error
}

fn stat(door: &Door) -> Result<()> {
    door.stat(Path::new("f")).map(drop)
}

fn lines(text: &str) -> Vec<u8> {
    whole("200 OK", LINES_TYPE, text.as_bytes())
}

const BEGUN: &str = "{\"landed\":{\"id\":\"x\",\"done\":\"\"}}\n\"end\"\n";
const STAT: &str = "{\"stat\":{\"kind\":\"file\",\"size\":4}}\n";

#[test]
fn wrong_answer_lines_are_errors() {
    let long = format!("{{\"stat\":\"{}\"}}\n", "a".repeat(5 << 20));
    for (text, wanted) in [
        ("\"end\"\n", "fewer names"),
        (&*format!("{STAT}{STAT}\"end\"\n"), "more names"),
        ("\"done\"\n\"end\"\n", "not asked for"),
        (
            "{\"entry\":{\"path\":\"a\",\"stat\":{\"kind\":\"file\",\"size\":4}}}\n\"end\"\n",
            "not asked for",
        ),
        (&*format!("{STAT}\"end\"\n{STAT}"), "behind the end"),
        ("what is this?\n", "JSON"),
        ("\"unheard\"\n\"end\"\n", "JSON"),
        (
            "{\"stat\":{\"kind\":\"file\",\"size\":-4}}\n\"end\"\n",
            "JSON",
        ),
        ("\u{1f}\u{8b}\u{8}\n", "JSON"),
        (&*long, "a line of more than"),
    ] {
        let error = told(lines(text), stat);
        let text = error.to_string();
        let is_told = matches!(error, Error::PeerMisbehaved { .. })
            && text.contains(wanted)
            && text.starts_with("localhost");
        assert!(is_told, "{text:.60}: {error}");
    }
    // An answer that was cut is lost, and may be asked for again.
    for text in [STAT, "", "{\"stat\""] {
        let error = told(lines(text), stat);
        assert!(matches!(error, Error::Lost { .. }), "{text}: {error}");
    }
}

#[test]
fn invalid_heads_and_bodies_are_errors() {
    let good = format!("{STAT}\"end\"\n");
    let length = good.len();
    let mark = "godwit-request: 1\r\n";
    let cases: Vec<(String, &str)> = vec![
        // A server of another kind, and one that redirects.
        (
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{good}"),
            "no godwit",
        ),
        (
            "HTTP/1.1 302 Found\r\nlocation: https://elsewhere/\r\ncontent-length: 0\r\n\r\n"
                .into(),
            "no godwit (it answered 302",
        ),
        (
            format!(
                "HTTP/1.1 302 Found\r\n{mark}location: https://elsewhere/\r\ncontent-length: {length}\r\n\r\n{good}"
            ),
            "302",
        ),
        (
            format!("HTTP/1.1 500 No\r\n{mark}content-length: {length}\r\n\r\n{good}"),
            "500",
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\n{mark}content-encoding: gzip\r\ncontent-length: {length}\r\n\r\n{good}"
            ),
            "gzip",
        ),
        // Cut in the middle, in each of the ways in which bodies end.
        (
            format!("HTTP/1.1 200 OK\r\n{mark}content-length: 1000\r\n\r\n{good}"),
            "lost",
        ),
        (
            format!("HTTP/1.1 200 OK\r\n{mark}transfer-encoding: chunked\r\n\r\n5\r\n\"end"),
            "lost",
        ),
        (
            format!("HTTP/1.1 200 OK\r\n{mark}transfer-encoding: chunked\r\n\r\nxx\r\n{good}"),
            "",
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\n{mark}transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{good}"
            ),
            "",
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\n{mark}content-length: 5\r\ncontent-length: 6\r\n\r\n{good}"
            ),
            "",
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\n{mark}{}\r\n{good}",
                "x: y\r\n".repeat(1000)
            ),
            "",
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\n{mark}x: {}\r\n\r\n{good}",
                "y".repeat(2 << 20)
            ),
            "",
        ),
        ("SSH-2.0-OpenSSH_9.2\r\n".into(), ""),
        (String::new(), "lost"),
    ];
    for (answer, wanted) in cases {
        let error = lied(
            {
                let answer = answer.clone();
                move |_, tls| {
                    tls.write_all(answer.as_bytes())?;
                    tls.get_ref().shutdown(Shutdown::Write)
                }
            },
            stat,
        );
        let text = format!("{error} {:?}", error).to_lowercase();
        assert!(text.contains(wanted), "{answer:.90}: {text}");
    }
}

#[test]
fn what_goes_on_for_ever_is_ended() {
    let flood = |head: Vec<u8>, again: Vec<u8>| {
        lied(
            move |_, tls| {
                tls.write_all(&head)?;
                loop {
                    tls.write_all(&again)?;
                }
            },
            stat,
        )
    };
    let beats = chunk("{\"beat\":0}\n".repeat(100).as_bytes());
    let error = flood(chunked(LINES_TYPE), beats);
    assert!(error.to_string().contains("that it goes on"), "{error}");
    let error = flood(chunked(LINES_TYPE), chunk(&[b'a'; 1000]));
    assert!(matches!(error, Error::PeerMisbehaved { .. }), "{error}");
    let error = flood(Vec::new(), b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100));
    assert!(
        matches!(error, Error::Stalled { .. } | Error::Lost { .. }),
        "{error}"
    );
    let error = flood(b"HTTP/1.1 200 OK\r\n".to_vec(), b"x: y\r\n".repeat(10));
    assert!(
        matches!(error, Error::Stalled { .. } | Error::Lost { .. }),
        "{error}"
    );
    // The error is reported, and nothing after it is waited for.
    let refused = chunk(b"{\"error\":{\"why\":\"missing\",\"said\":\"\"}}\n");
    let error = flood([chunked(LINES_TYPE), refused].concat(), chunk(b"more\n"));
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    // Nor is one who says nothing at all.
    let error = lied(
        |_, _| {
            thread::sleep(4 * STALL);
            Err(io::ErrorKind::Other.into())
        },
        stat,
    );
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
    // A byte now and then is no answer.
    let error = lied(
        |_, tls| {
            loop {
                tls.write_all(b"HTTP/1.1 200 OK"[..1].as_ref())?;
                thread::sleep(STALL / 7);
            }
        },
        stat,
    );
    assert!(
        matches!(error, Error::Stalled { .. } | Error::Lost { .. }),
        "{error}"
    );
}

#[test]
fn beats_are_waited_for_until_somebody_cancels() {
    let lab = Lab::new();
    let liar = Liar::new(&lab, |_, tls| {
        tls.write_all(&chunked(LINES_TYPE))?;
        loop {
            tls.write_all(&chunk(b"{\"beat\":7}\n"))?;
            thread::sleep(STALL / 7);
        }
    });
    let cancel = Cancel::new().unwrap();
    let door = lab.door(liar.port, Credential::nobody(), &|options| {
        options.stall = STALL;
        options.cancel = cancel.clone();
    });
    thread::scope(|scope| {
        let asked = scope.spawn(|| stat(&door));
        thread::sleep(3 * STALL);
        assert!(!asked.is_finished(), "it is said that it goes on");
        cancel.cancel();
        assert!(matches!(asked.join().unwrap(), Err(Error::Canceled)));
    });
}

#[test]
fn listings_lead_nowhere_else() {
    for (path, wanted) in [
        ("", "lists"),
        ("a/b", "lists"),
        ("..", "JSON"),
        ("/etc", "JSON"),
        ("a%2Fb", "JSON"),
        ("a%00", "JSON"),
    ] {
        let text = format!(
            "{{\"entry\":{{\"path\":\"{path}\",\"stat\":{{\"kind\":\"file\",\"size\":4}}}}}}\n\"end\"\n"
        );
        let error = told(lines(&text), |door| {
            door.list(Path::new("d"), &mut |_| Ok(()))
        });
        assert!(error.to_string().contains(wanted), "{path}: {error}");
    }
    let hidden = "{\"hidden\":\"a\"}\n".repeat(20_000);
    let error = told(lines(&format!("{hidden}\"end\"\n")), |door| {
        door.hidden(Path::new(""))
    });
    assert!(matches!(error, Error::PeerMisbehaved { .. }), "{error}");
}

/// Keeps what comes, and where it belongs.
#[derive(Default)]
struct Kept(Mutex<Vec<(u64, Vec<u8>)>>);

impl BlockWriter for Kept {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let mut kept = self.0.lock().unwrap();
        kept.push((block.offset, block.bytes.to_vec()));
        Ok(())
    }

    fn said(&self, _: u64, _: Chain) -> Result<()> {
        Ok(())
    }
}

fn file() -> Vec<u8> {
    pack::frame(FrameKind::File, 0, b"{}")
}

fn data(offset: u64, bytes: &[u8]) -> Vec<u8> {
    pack::frame(FrameKind::Data, offset, bytes)
}

fn ended(size: u64) -> Vec<u8> {
    let text = format!("{{\"read\":[{{\"kind\":\"file\",\"size\":{size}}},null]}}");
    pack::frame(FrameKind::End, 0, text.as_bytes())
}

fn last(count: u64) -> Vec<u8> {
    pack::frame(FrameKind::Last, count, b"")
}

#[test]
fn unrequested_bytes_are_refused() {
    let leaf = |leaf| pack::leaf(leaf, &Chain([7; 32]));
    let end = || [ended(100), last(1)].concat();
    for (pack, wanted) in [
        (vec![file(), data(9, b"before"), end()], "not asked for"),
        (
            vec![file(), data(18, b"over the end"), end()],
            "not asked for",
        ),
        (
            vec![file(), data(u64::MAX - 9, b"far away"), end()],
            "not asked for",
        ),
        (
            vec![file(), data(10, b"once"), data(10, b"once"), end()],
            "not asked for",
        ),
        (vec![file(), data(10, b"some"), end()], "did not come"),
        (vec![file(), leaf(u64::MAX), end()], "not asked for"),
        (vec![file(), leaf(1), end()], "not asked for"),
        (vec![data(10, b"0123456789"), end()], "of no file"),
        (vec![file(), file(), end()], "not asked for"),
        (
            vec![pack::frame(FrameKind::File, 1, b"{}"), end()],
            "not asked for",
        ),
        (
            vec![
                file(),
                data(10, b"0123456789"),
                ended(100),
                ended(100),
                last(1),
            ],
            "of no file",
        ),
        (
            vec![file(), data(10, b"0123456789"), ended(100), last(2)],
            "miscounts",
        ),
        (vec![file(), data(10, b"0123456789"), last(1)], "miscounts"),
        (vec![last(0)], "miscounts"),
        (
            vec![file(), data(10, b"0123456789"), end(), b"more".to_vec()],
            "behind its end",
        ),
        (vec![b"what is this, then?".to_vec()], "no known kind"),
        (
            vec![file(), pack::frame(FrameKind::End, 0, b"{}"), last(1)],
            "JSON",
        ),
        (vec![file(), data(10, b"0123456789"), ended(100)], ""),
    ] {
        let kept = Kept::default();
        let answer = whole("200 OK", PACK_TYPE, &pack.concat());
        let error = told(answer, |door| {
            door.read(Path::new("f"), &Extents::from(10..20), 1, &kept)
        });
        let text = error.to_string();
        assert!(text.contains(wanted), "wanted {wanted:?} in {text:?}");
        for (offset, bytes) in kept.0.into_inner().unwrap() {
            let end = offset + bytes.len() as u64;
            assert!(
                10 <= offset && end <= 20,
                "{offset}..{end} was not asked for"
            );
        }
    }
    // Frames that bring nothing, for ever.
    for frame in [data(12, b""), pack::leaf(0, &Chain([7; 32]))] {
        let error = lied(
            move |_, tls| {
                tls.write_all(&chunked(PACK_TYPE))?;
                tls.write_all(&chunk(&file()))?;
                loop {
                    tls.write_all(&chunk(&frame.repeat(1000)))?;
                }
            },
            |door| door.read(Path::new("f"), &Extents::from(10..20), 1, &Kept::default()),
        );
        assert!(error.to_string().contains("bring nothing"), "{error}");
    }
}

#[test]
fn small_files_must_match_request_order() {
    let small = |pack: Vec<Vec<u8>>| {
        let answer = whole("200 OK", PACK_TYPE, &pack.concat());
        let mut names = ["f", "g"].map(PathBuf::from).into_iter();
        told(answer, |door| {
            let mut wrong = None;
            door.read_small(&mut || names.next(), &mut |_, small| {
                if let Err(error) = small {
                    wrong.get_or_insert(error);
                }
            })?;
            wrong.map_or(Ok(()), Err)
        })
        .to_string()
    };
    let frame = |kind, number, text: &str| pack::frame(kind, number, text.as_bytes());
    let end = |number, size| {
        frame(
            FrameKind::End,
            number,
            &format!("{{\"read\":[{{\"kind\":\"file\",\"size\":{size}}},null]}}"),
        )
    };
    let begin = |number| frame(FrameKind::File, number, "{}");
    let good = || vec![begin(0), data(0, b"hello"), end(0, 5)];
    let with = |more: Vec<Vec<u8>>| [good(), more].concat();
    for (pack, wanted) in [
        (vec![begin(1)], "not asked for"),
        (vec![begin(0), data(1, b"hello")], "out of order"),
        (
            vec![
                begin(0),
                data(0, b"hello"),
                end(0, 6),
                begin(1),
                end(1, 0),
                last(2),
            ],
            "5 bytes came of 6",
        ),
        (vec![data(0, b"hello")], "of no file"),
        (with(vec![begin(0)]), "not asked for"),
        (with(vec![last(1)]), "before its last file"),
        (
            with(vec![begin(1), data(0, b"x"), end(1, 1), last(3)]),
            "miscounts",
        ),
        (
            with(vec![begin(1), data(0, b"x"), end(1, 1), begin(2)]),
            "miscounts",
        ),
    ] {
        let text = small(pack);
        assert!(text.contains(wanted), "wanted {wanted:?} in {text:?}");
    }
    let digest = "\"blake3:0000000000000000000000000000000000000000000000000000000000000000\"";
    let wrong = frame(
        FrameKind::End,
        0,
        &format!("{{\"read\":[{{\"kind\":\"file\",\"size\":5}},{digest}]}}"),
    );
    let text = small(vec![
        begin(0),
        data(0, b"hello"),
        wrong,
        begin(1),
        end(1, 0),
        last(2),
    ]);
    assert!(text.contains("blake3"), "{text}");
}

/// Uploads 64 MiB, and leaves them unfinished.
fn sent(door: &Door) -> Result<Box<dyn Sink>> {
    let sink = door.write(Path::new("f"), &Upload::default())?;
    for block in 0..64 {
        sink.put(Block::at(block << 20, &vec![0; 1 << 20]))?;
    }
    sink.settle()?;
    Ok(sink)
}

#[test]
fn uploads_end_whatever_is_said_of_them() {
    let upload = |landed: &'static str| {
        lied(
            move |target, tls| {
                if target.ends_with("/uploads") {
                    return tls.write_all(&lines(BEGUN));
                }
                // It answers before it has heard anything.
                tls.write_all(&lines(landed))?;
                thread::sleep(STALL);
                Err(io::ErrorKind::Other.into())
            },
            |door| {
                let sink = sent(door)?;
                sink.finish(&Expected::default()).map(drop)
            },
        )
    };
    for landed in [
        "\"end\"\n",
        "\"done\"\n\"end\"\n",
        "{\"landed\":{\"id\":\"x\",\"done\":\"0-18446744073709551615\",\"leaves\":[[18446744073709551615,\"0000000000000000000000000000000000000000000000000000000000000000\"]]}}\n\"end\"\n",
        "{\"landed\":{\"id\":\"x\",\"done\":\"5-0\"}}\n\"end\"\n",
        "{\"error\":{\"why\":\"no_space\",\"said\":\"full\"}}\n",
        "",
    ] {
        let error = upload(landed);
        if landed.contains("no_space") {
            assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        }
    }
    // A server that reads nothing and sends nothing.
    let error = lied(
        |target, tls| {
            if target.ends_with("/uploads") {
                return tls.write_all(&lines(BEGUN));
            }
            thread::sleep(20 * STALL);
            Err(io::ErrorKind::Other.into())
        },
        |door| sent(door).map(drop),
    );
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
}

/// A server that refuses a body unread closes the connection a moment after its answer.
#[test]
fn refused_body_ends_the_connection() {
    let lab = Lab::new();
    let left = Arc::new(AtomicBool::new(false));
    let is_left = Arc::clone(&left);
    let liar = Liar::new(&lab, move |target, tls| {
        if target.ends_with("/uploads") {
            return tls.write_all(&lines(BEGUN));
        }
        if target.ends_with("/leave") {
            is_left.store(true, Relaxed);
            return tls.write_all(&lines("\"done\"\n\"end\"\n"));
        }
        if target.ends_with("/stat") {
            return tls.write_all(&lines(&format!("{STAT}\"end\"\n")));
        }
        let refusal = "{\"error\":{\"why\":\"no_space\",\"said\":\"full\"}}\n";
        tls.write_all(&lines(refusal))?;
        // Further requests on this connection get no answer.
        io::copy(tls, &mut io::sink())?;
        Err(io::ErrorKind::UnexpectedEof.into())
    });
    let door = at(&lab, &liar);
    let refused = sent(&door).err().expect("it is refused");
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert!(left.load(Relaxed), "the client did not leave");
    stat(&door).expect("it is asked by another connection");
}

/// A client that counts attempts asks for the chaining values of landed leaves, range by range.
#[test]
fn endless_leaves_end_the_resume() {
    let chain = "0".repeat(64);
    let leaves: Vec<String> = (0..16384).map(|n| format!("[{n},\"{chain}\"]")).collect();
    let landed = format!(
        "{{\"landed\":{{\"id\":\"x\",\"done\":\"0-1048576\",\"leaves\":[{}]}}}}\n\"end\"\n",
        leaves.join(",")
    );
    let hello = format!("{HELLO}\"end\"\n");
    let answer = lines(&landed);
    let error = lied(
        move |target, tls| match target.rsplit('/').next() {
            Some("hello") => tls.write_all(&lines(&hello)),
            _ => tls.write_all(&answer),
        },
        |door| {
            let write = Upload {
                id: Some("1f.7"),
                attempt: 1,
                ..Upload::default()
            };
            let sink = door.write(Path::new("f"), &write)?;
            // The bytes at the server differ from these.
            sink.show(Block::at(0, &vec![1; 1 << 20]))?;
            assert_eq!(sink.done(), Extents::new());
            door.published_as(Path::new("f"), "1f.7").map(drop)
        },
    );
    assert!(matches!(error, Error::PeerMisbehaved { .. }), "{error}");
}

const HELLO: &str = "{\"hello\":{\"name\":\"godwit\",\"version\":\"0.1.0\",\"speaks\":[1,1],\"revision\":2,\"who\":null,\"account\":null,\"can\":{\"attempts\":true}}}\n";
