//! TLS under HTTP over lines of any width, its ends and its cuts.

use super::*;
use godwit_trust::{
    Credential,
    door::{Doorway, Elsewhere, Fingerprint, WantedHost, visit},
    lab,
};
use std::{future::poll_fn, time::Duration};
use tokio::io::{DuplexStream, duplex};

/// Both ends of a connection over a line that holds `room` bytes.
async fn conversation(room: usize) -> (Tls<DuplexStream>, Tls<DuplexStream>) {
    let key = lab::throw_away(Duration::from_secs(60)).unwrap();
    let wanted = WantedHost::Key(Fingerprint::of_credential(&key).unwrap());
    let doorway = Doorway::of(&key, &[], None).unwrap();
    let (ours, theirs) = duplex(room);
    let visiting = visit(&Credential::nobody(), &wanted, "host").unwrap();
    let (server, client) = tokio::join!(
        Tls::begin(doorway.open(&Elsewhere::default()).unwrap(), theirs),
        Tls::begin(visiting, ours)
    );
    (server.unwrap(), client.unwrap())
}

async fn write_all(tls: &mut Tls<DuplexStream>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (first, rest) = bytes.split_at(bytes.len() / 3);
        let slices = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)];
        let written = poll_fn(|context| Pin::new(&mut *tls).poll_write_vectored(context, &slices));
        bytes = &bytes[written.await.unwrap()..];
    }
    poll_fn(|context| Pin::new(&mut *tls).poll_flush(context))
        .await
        .unwrap();
}

async fn read_exactly(tls: &mut Tls<DuplexStream>, count: usize) -> Vec<u8> {
    let mut found = Vec::new();
    while found.len() < count {
        let mut bytes = vec![0; 50_000];
        let mut room = ReadBuf::new(&mut bytes);
        poll_fn(|context| Pin::new(&mut *tls).poll_read(context, &mut room))
            .await
            .unwrap();
        assert!(!room.filled().is_empty(), "it ends after {}", found.len());
        found.extend_from_slice(room.filled());
    }
    found
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(async {
        let done = tokio::time::timeout(Duration::from_secs(60), work);
        done.await.expect("in time")
    })
}

fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|nth| (nth * 7 + nth / 251) as u8).collect()
}

#[test]
fn bytes_pass_through_lines_of_any_width() {
    for room in [1, 700, 20_000, 1 << 20] {
        run(async {
            let (mut server, mut client) = conversation(room).await;
            let (up, down) = (
                sample(700_000.min(room * 5000)),
                sample(900_000.min(room * 5000)),
            );
            let both = async {
                tokio::join!(
                    write_all(&mut client, &up),
                    read_exactly(&mut server, up.len())
                )
            };
            assert!(both.await.1 == up, "{room}");
            let both = async {
                tokio::join!(
                    write_all(&mut server, &down),
                    read_exactly(&mut client, down.len())
                )
            };
            assert!(both.await.1 == down, "{room}");
        });
    }
}

#[test]
fn what_is_idle_holds_nothing() {
    run(async {
        let (mut server, mut client) = conversation(1 << 20).await;
        let sample = sample(300_000);
        tokio::join!(
            write_all(&mut client, &sample),
            read_exactly(&mut server, sample.len())
        );
        let mut byte = [0];
        let mut room = ReadBuf::new(&mut byte);
        poll_fn(|context| {
            let read = Pin::new(&mut server).poll_read(context, &mut room);
            assert!(read.is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(server.0.get_ref().read.bytes.capacity(), 0);
        assert_eq!(client.0.get_ref().written.bytes.capacity(), 0);
    });
}

#[test]
fn end_arrives_after_all_bytes() {
    run(async {
        let (mut server, mut client) = conversation(1 << 10).await;
        let sample = sample(100_000);
        let say = async {
            write_all(&mut client, &sample).await;
            poll_fn(|context| Pin::new(&mut client).poll_shutdown(context))
                .await
                .unwrap();
        };
        let hear = async {
            let found = read_exactly(&mut server, sample.len()).await;
            let mut byte = [0];
            let mut room = ReadBuf::new(&mut byte);
            poll_fn(|context| Pin::new(&mut server).poll_read(context, &mut room))
                .await
                .unwrap();
            assert!(room.filled().is_empty(), "an end");
            found
        };
        assert!(tokio::join!(say, hear).1 == sample);
    });
}

#[test]
fn a_cut_is_no_end() {
    run(async {
        let (mut server, mut client) = conversation(1 << 20).await;
        write_all(&mut client, b"all that came").await;
        drop(client);
        assert_eq!(read_exactly(&mut server, 13).await, b"all that came");
        let mut byte = [0];
        let mut room = ReadBuf::new(&mut byte);
        let cut = poll_fn(|context| Pin::new(&mut server).poll_read(context, &mut room)).await;
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn early_hangup_is_a_broken_connection() {
    run(async {
        let key = lab::throw_away(Duration::from_secs(60)).unwrap();
        let doorway = Doorway::of(&key, &[], None).unwrap();
        let (ours, theirs) = duplex(1000);
        drop(ours);
        let engine = doorway.open(&Elsewhere::default()).unwrap();
        let failed = Tls::begin(engine, theirs).await.unwrap_err();
        assert!(matches!(failed, TlsFailure::Io(_)), "{failed:?}");
    });
}
