//! Draws of one node from another: the client receives the landed ranges meanwhile.
#![allow(clippy::unwrap_used)]

mod common;

use common::{PATIENCE, Served, faking::Fake, lab::Lab};
use godwit_core::Extents;
use godwit_store::{
    Error, Sink, SinkExt, Stat, Store, Write,
    channel::Cancel,
    door::{RequestBody, words::CallForm},
};
use godwit_trust::{Credential, lab::Issue};
use godwit_wire::door::{
    PACK_TYPE, ROOT,
    call::{self, AskRead, DoorCan, Grant, Hello, Line, PackedEnd},
    pack::{self, FrameKind},
};
use hyper::{Response, body::Bytes};
use std::{
    ops::Range,
    sync::{Arc, Mutex},
};
use tokio::{runtime::Builder, sync::mpsc, time::timeout};

/// A source that sends half of its file, and the rest on command; and its requests.
struct Source {
    fake: Fake,
    asked: Arc<Mutex<Vec<Extents>>>,
    more: Arc<Mutex<Option<mpsc::Sender<Bytes>>>>,
}

impl Source {
    fn new() -> Self {
        let (asked, more) = (
            Arc::<Mutex<Vec<Extents>>>::default(),
            Arc::<Mutex<_>>::default(),
        );
        let (noted, kept) = (Arc::clone(&asked), Arc::clone(&more));
        let fake = Fake::new(Arc::new(move |target, body| {
            let head = Response::builder().header(call::MARK, "1");
            let lines = match target.strip_prefix(ROOT).unwrap() {
                "hello" => Line::Hello(Hello {
                    name: "godwit".into(),
                    version: "0.1.0".into(),
                    speaks: (1, 1),
                    revision: 0,
                    who: None,
                    account: None,
                    can: DoorCan::default(),
                    key: None,
                    slots: None,
                    running: None,
                    platform: None,
                }),
                "grant" => Line::Grant(Grant { secret: "s".into() }),
                _ => {
                    let asked: AskRead = call::read(&body).unwrap();
                    let wanted = asked.files[0].ranges.0.clone();
                    let start = wanted.iter().next().unwrap().start;
                    noted.lock().unwrap().push(wanted);
                    let (to, stream) = mpsc::channel(4);
                    let half = vec![7; HALF as usize];
                    let begun = [
                        pack::frame(FrameKind::File, 0, b"{}"),
                        pack::frame(FrameKind::Data, start, &half),
                    ];
                    to.try_send(begun.concat().into()).unwrap();
                    *kept.lock().unwrap() = Some(to);
                    let head = head.header("content-type", PACK_TYPE);
                    return head.body(RequestBody::Stream(stream)).unwrap();
                }
            };
            head.body(RequestBody::whole(
                [lines.write(), Line::End.write()].concat(),
            ))
            .unwrap()
        }));
        Self { fake, asked, more }
    }

    /// Sends the rest if `whole`, and ends.
    fn end(&self, whole: bool) {
        let Some(to) = self.more.lock().unwrap().take() else {
            return;
        };
        if !whole {
            return; // the body is cut
        }
        let stat = Stat::of(godwit_store::EntryKind::File, 2 * HALF).say();
        let rest = [
            pack::frame(FrameKind::Data, HALF, &[7; HALF as usize]),
            pack::frame(
                FrameKind::End,
                0,
                &call::write(&PackedEnd::Read(stat, None)),
            ),
            pack::frame(FrameKind::Last, 1, b""),
        ];
        to.try_send(rest.concat().into()).unwrap();
    }
}

/// A node of ours, and a peer that it knows.
fn node() -> (Lab, Served, Credential) {
    let lab = Lab::new();
    let gridmap = lab.path("gridmap");
    std::fs::write(&gridmap, "\"/O=Lab/CN=alice\" alice\n").unwrap();
    let gridmap = gridmap.display().to_string();
    let served = lab.node(&[("trust.gridmap", &gridmap)]);
    let alice = lab.ca.issue(&Issue::user("alice")).unwrap();
    (lab, served, alice)
}

/// A node of ours, and the upload of a file to it.
fn begun() -> ((Lab, Served), Box<dyn Sink>) {
    let (lab, served, alice) = node();
    let write = Write::of_size(2 * HALF);
    let sink = lab.client_of(&served, alice).write("f".as_ref(), &write);
    ((lab, served), sink.unwrap())
}

#[test]
fn stranger_has_nothing_drawn() {
    let source = Source::new();
    let (lab, served, _) = node();
    let sink = lab
        .anonymous(&served)
        .write("f".as_ref(), &Write::default());
    let want = Extents::from(0..2 * HALF);
    let drawn = sink
        .unwrap()
        .draw(&source.fake.door(), "f".as_ref(), &want, 1, &|_| ());
    assert!(drawn.unwrap().is_none());
    assert!(source.asked.lock().unwrap().is_empty());
}

#[test]
fn draw_reports_landed_ranges() {
    let source = Source::new();
    let (_served, sink) = begun();
    let told = Mutex::new(Vec::new());
    let want = Extents::from(0..2 * HALF);
    // The source sends the rest once the client has seen the first half reported.
    let drawn = sink.draw(
        &source.fake.door(),
        "f".as_ref(),
        &want,
        1,
        &|range: Range<u64>| {
            told.lock().unwrap().push(range);
            source.end(true);
        },
    );
    assert_eq!(drawn.unwrap().unwrap().stat.size, 2 * HALF);
    let told = told.into_inner().unwrap();
    let first = told.first().expect("something was told");
    assert!(first.start == 0 && first.end <= HALF, "{told:?}");
    assert_eq!(told.iter().cloned().collect::<Extents>(), want);
    assert_eq!(sink.done(), want);
}

#[test]
fn cut_draw_resumes_after_landed_bytes() {
    let source = Source::new();
    let (_served, sink) = begun();
    let want = Extents::from(0..2 * HALF);
    let drawn = sink.draw(&source.fake.door(), "f".as_ref(), &want, 1, &|_: Range<
        u64,
    >| {
        source.end(false)
    });
    assert!(drawn.is_err(), "{drawn:?}");
    let done = sink.done();
    assert!(!done.is_empty() && done.end() <= HALF, "{done}");
    let left = want.minus(&sink.done());
    let drawn = sink.draw(&source.fake.door(), "f".as_ref(), &left, 1, &|_: Range<
        u64,
    >| {
        source.end(false)
    });
    drop(drawn);
    let asked = source.asked.lock().unwrap();
    assert_eq!(asked.last(), Some(&left), "{asked:?}");
}

#[test]
fn draw_stops_with_client_and_resumes() {
    let ((lab, served, alice), source) = (node(), Source::new());
    let write = Write {
        size: Some(2 * HALF),
        resume: true,
        ..Write::default()
    };
    let want = Extents::from(0..2 * HALF);
    let cancel = Cancel::new().unwrap();
    let port = served.node().addresses().https[0].port();
    let leaving = lab.door(port, alice.clone(), &|options| {
        options.cancel = cancel.clone();
    });
    let sink = leaving.write("f".as_ref(), &write).unwrap();
    let drawn = sink.draw(&source.fake.door(), "f".as_ref(), &want, 1, &|_: Range<
        u64,
    >| {
        cancel.cancel();
    });
    assert!(matches!(drawn, Err(Error::Canceled)), "{drawn:?}");
    drop(sink);
    // The same command again, at once: there is nothing beside what landed before.
    let again = lab.client_of(&served, alice);
    let sink = again.write("f".as_ref(), &write).unwrap();
    assert_eq!(sink.done(), Extents::from(0..HALF));
    // The source still has more: the node that drew has hung up.
    let more = source.more.lock().unwrap().take().unwrap();
    let hung_up = async { timeout(PATIENCE, more.closed()).await };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(hung_up)
        .expect("nothing is drawn any more");
}

/// Shorter than is read at once by several connections.
const HALF: u64 = 1 << 20;
