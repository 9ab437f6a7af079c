//! Both ends of data channels against each other, over loopback.

use super::{Cancel, ConnectionUse, DataChannel, TransferMode, Watch};
use crate::{BlockWriter, BlockWriterExt, Checks, Error, LocalFile, Result};
use godwit_core::{Algorithm, Block, Digest, Extents, LEAF_BYTES};
use godwit_wire::mode_e::Header;
use parking_lot::Mutex;
use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, TcpStream},
    thread,
    time::Duration,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const UNCHECKED: Checks = Checks::blake3(false);

/// Keeps the bytes that arrive, and which of them arrived twice.
#[derive(Default)]
struct Kept(Mutex<(Vec<u8>, Extents)>);

impl BlockWriter for Kept {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let (bytes, done) = &mut *self.0.lock();
        let range = block.range();
        assert!(
            done.within(range.clone()).next().is_none(),
            "{range:?} came twice"
        );
        assert_eq!(range.start / LEAF_BYTES, (range.end - 1) / LEAF_BYTES);
        bytes.resize(bytes.len().max(range.end as usize), 0);
        bytes[range.start as usize..range.end as usize].copy_from_slice(block.bytes);
        done.insert(range);
        Ok(())
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn watch() -> Watch {
    Watch::new(Duration::from_secs(20)).unwrap()
}

/// Sends `whole` in leaves from as many threads as streams.
fn send(
    channel: &mut DataChannel,
    mode: TransferMode,
    streams: usize,
    whole: &[u8],
    watch: &Watch,
) -> u64 {
    channel.open(streams, watch).unwrap();
    let sending = channel.send(mode, 0, UNCHECKED, watch);
    let left = Mutex::new(Extents::from(0..whole.len() as u64));
    thread::scope(|scope| {
        for _ in 0..streams {
            scope.spawn(|| {
                while let Some(r) = { left.lock().take_aligned(LEAF_BYTES / 4) } {
                    let bytes = &whole[r.start as usize..r.end as usize];
                    sending.put(Block::at(r.start, bytes)).unwrap();
                }
            });
        }
    });
    let sent = sending.end().unwrap();
    assert_eq!(sent.bytes, whole.len() as u64);
    sent.streams
}

fn moves_whole(mode: TransferMode, streams: usize, sizes: &[usize], sender_listens: bool) {
    let watch = watch();
    let (passive, address) = DataChannel::listen(HERE, None).unwrap();
    let mut active = DataChannel::connect(vec![address]);
    if sender_listens {
        active.open(streams, &watch).unwrap();
    }
    let (mut sender, mut receiver) = if sender_listens {
        (passive, active)
    } else {
        (active, passive)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for &size in sizes {
                send(&mut sender, mode, streams, &bytes(size), &watch);
            }
        });
        for &size in sizes {
            let kept = Kept::default();
            let received = receiver.receive(mode, 0, &kept, &watch).unwrap();
            assert_eq!(received.bytes, size as u64);
            assert!(
                kept.0.lock().0 == bytes(size),
                "{size} bytes over {streams} streams"
            );
        }
    });
}

#[test] //= GRIDFTP-25
fn blocks_arrive_whole_over_any_streams() {
    for streams in [1, 2, 5] {
        let sizes = [0, 1, 300_000, 5_000_000, 17, 3 << 20];
        moves_whole(TransferMode::Extended, streams, &sizes, false);
        moves_whole(TransferMode::Extended, streams, &sizes, true);
    }
}

/// Returns how many connections to a port have been asked for and not answered.
fn asked_for(port: u16) -> usize {
    let to = format!(":{port:04X} 02"); // SYN_SENT
    let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
    all.lines().filter(|line| line.contains(&to)).count()
}

#[test]
fn open_asks_for_all_connections_at_once() {
    let listener = std::net::TcpListener::bind((HERE, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // The kernel accepts no more connections while its backlog is full.
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
    }
    let (streams, watch) = (5, watch());
    let mut channel = DataChannel::connect(vec![address]);
    thread::scope(|scope| {
        let opening = scope.spawn(|| channel.open(streams, &watch).map(drop));
        let began = std::time::Instant::now();
        while asked_for(address.port()) < streams {
            let asked = asked_for(address.port());
            assert!(began.elapsed() < Duration::from_secs(10), "{asked} at once");
            thread::sleep(Duration::from_millis(2)); // there is nothing to wait on
        }
        // Now there is room: they come through.
        let taking = scope.spawn(|| {
            let all = waiting.len() + streams;
            let come = listener.incoming().take(all);
            come.collect::<std::io::Result<Vec<_>>>().unwrap().len()
        });
        opening.join().unwrap().unwrap();
        assert_eq!(taking.join().unwrap(), waiting.len() + streams);
    });
    assert_eq!(channel.streams(), streams);
}

#[test]
fn a_stream_ends_with_its_connection() {
    for size in [0, 1, 3_000_001] {
        moves_whole(TransferMode::Stream, 1, &[size], false);
        moves_whole(TransferMode::Stream, 1, &[size], true);
    }
}

#[test]
fn connections_of_mode_e_are_used_again() {
    let watch = watch();
    let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
    let mut sender = DataChannel::connect(vec![address]);
    for opened in [
        ConnectionUse::New,
        ConnectionUse::Reused,
        ConnectionUse::Reused,
    ] {
        assert_eq!(sender.open(1, &watch).unwrap(), opened);
        sender
            .send(TransferMode::Extended, 0, UNCHECKED, &watch)
            .end()
            .unwrap();
        receiver
            .receive(TransferMode::Extended, 0, &Kept::default(), &watch)
            .unwrap();
    }
    assert!(receiver.is_warm());
    sender.close(&watch);
    assert!(!sender.is_warm());
}

#[test]
fn small_files_share_one_connection() {
    let watch = watch();
    let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
    let mut sender = DataChannel::connect(vec![address]);
    sender.open(1, &watch).unwrap();
    let sizes = [0, 4096, 1, 70_000, 0, 9];
    sizes
        .iter()
        .for_each(|&size| sender.queue_whole(&bytes(size), &watch).unwrap());
    sender.flush(&watch).unwrap();
    for size in sizes {
        assert_eq!(
            receiver.receive_whole(LEAF_BYTES, &watch).unwrap(),
            bytes(size)
        );
    }
    sender.queue_whole(&bytes(100), &watch).unwrap();
    sender.flush(&watch).unwrap();
    assert!(matches!(
        receiver.receive_whole(99, &watch),
        Err(Error::PeerMisbehaved { .. })
    ));
}

#[test]
fn small_file_arrives_over_late_connections() {
    let watch = watch();
    let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
    let mut first = TcpStream::connect(address).unwrap();
    receiver.open(1, &watch).unwrap();
    let header = |header: Header| header.encode();
    first.write_all(&header(Header::data(0..1))).unwrap();
    first.write_all(&bytes(1)).unwrap();
    first.write_all(&header(Header::end_of_file(2))).unwrap();
    let mut second = TcpStream::connect(address).unwrap();
    second.write_all(&header(Header::end_of_data())).unwrap();
    assert_eq!(receiver.receive_whole(99, &watch).unwrap(), bytes(1));
}

/// Puts a file into a directory of its own and opens it.
fn lying(whole: &[u8]) -> (tempfile::TempDir, std::path::PathBuf, std::fs::File) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    std::fs::write(&path, whole).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    (place, path, file)
}

#[test]
fn bytes_sent_by_kernel_match_their_hash() {
    let whole = bytes(3 * LEAF_BYTES as usize + 4321);
    let (_place, path, file) = lying(&whole);
    let file = LocalFile {
        path: &path,
        file: &file,
    };
    let watch = watch();
    for (mode, blake3) in [
        (TransferMode::Stream, false),
        (TransferMode::Extended, false),
        (TransferMode::Extended, true),
    ] {
        let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
        let mut sender = DataChannel::connect(vec![address]);
        thread::scope(|scope| {
            let sent = scope.spawn(|| {
                sender.open(1, &watch).unwrap();
                let checks = Checks::blake3(blake3);
                let sending = sender.send(mode, 0, checks, &watch);
                let mut left = Extents::from(0..whole.len() as u64);
                let mut buffer = vec![0; LEAF_BYTES as usize];
                while let Some(range) = left.take_aligned(LEAF_BYTES) {
                    sending.put_from(&file, range, &mut buffer).unwrap();
                }
                sending.end().unwrap()
            });
            let kept = Kept::default();
            receiver.receive(mode, 0, &kept, &watch).unwrap();
            assert!(kept.0.lock().0 == whole, "{mode:?}");
            let told = sent
                .join()
                .unwrap()
                .leaves
                .and_then(|leaves| leaves.root(whole.len() as u64));
            let expected = blake3.then(|| Digest::of(Algorithm::Blake3, &whole));
            assert_eq!(told, expected);
        });
    }
}

#[test]
fn file_cut_while_sent_fails_both_ends() {
    let (_place, path, file) = lying(&bytes(100_000));
    let file = LocalFile {
        path: &path,
        file: &file,
    };
    let watch = watch();
    let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
    let mut sender = DataChannel::connect(vec![address]);
    thread::scope(|scope| {
        scope.spawn(|| {
            sender.open(1, &watch).unwrap();
            let sending = sender.send(TransferMode::Extended, 0, UNCHECKED, &watch);
            let short = sending.put_from(&file, 0..150_000, &mut vec![0; 150_000]);
            assert!(matches!(short, Err(Error::Changed { .. })), "{short:?}");
        });
        let cut = receiver.receive(TransferMode::Extended, 0, &Kept::default(), &watch);
        assert!(matches!(cut, Err(Error::Lost { .. })), "{cut:?}");
    });
}

#[test]
fn dead_sender_is_no_end_of_file() {
    let watch = watch();
    let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    peer.write_all(&Header::data(0..100).encode()).unwrap();
    peer.write_all(&bytes(60)).unwrap();
    drop(peer);
    let kept = Kept::default();
    let error = receiver
        .receive(TransferMode::Extended, 0, &kept, &watch)
        .unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(kept.0.lock().1, Extents::from(0..60), "what came is kept");
}

#[test] //= GRIDFTP-9
fn port_scan_leaves_transfer_running() {
    let watch = watch();
    let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
    drop(TcpStream::connect(address).unwrap());
    TcpStream::connect(address)
        .unwrap()
        .write_all(b"GET / HTTP/1.1\r\nHost: stranger\r\n\r\n")
        .unwrap();
    let mut sender = DataChannel::connect(vec![address]);
    let whole = bytes(2_000_000);
    thread::scope(|scope| {
        scope.spawn(|| send(&mut sender, TransferMode::Extended, 2, &whole, &watch));
        let kept = Kept::default();
        receiver
            .receive(TransferMode::Extended, 0, &kept, &watch)
            .unwrap();
        assert!(kept.0.lock().0 == whole);
    });
}

#[test]
fn silent_peer_times_out_after_stall() {
    let watch = Watch::new(Duration::from_millis(60)).unwrap();
    let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
    let none = receiver
        .receive(TransferMode::Stream, 0, &Kept::default(), &watch)
        .unwrap_err();
    assert!(matches!(none, Error::Stalled { .. }), "{none}");
    let _silent = TcpStream::connect(address).unwrap();
    let silent = receiver
        .receive(TransferMode::Extended, 0, &Kept::default(), &watch)
        .unwrap_err();
    assert!(matches!(silent, Error::Stalled { .. }), "{silent}");
}

#[test]
fn a_cancel_ends_the_wait() {
    let cancel = Cancel::new().unwrap();
    let watch = Watch::over(cancel.clone(), Duration::from_secs(3600));
    let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
    let _silent = [
        TcpStream::connect(address).unwrap(),
        TcpStream::connect(address).unwrap(),
    ];
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| receiver.receive(TransferMode::Extended, 0, &Kept::default(), &watch));
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Canceled)));
    });
}

#[test]
fn blocks_at_absurd_offsets_are_refused() {
    let watch = watch();
    let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    peer.write_all(&Header::data(0..1).encode()).unwrap();
    peer.write_all(b"x").unwrap();
    peer.write_all(&Header::data(u64::MAX - 5..u64::MAX).encode())
        .unwrap();
    let error = receiver
        .receive(TransferMode::Extended, 100, &Kept::default(), &watch)
        .unwrap_err();
    assert!(matches!(error, Error::PeerMisbehaved { .. }), "{error}");
}

#[test]
fn buffer_sizes_are_set_or_kernels_own() {
    let watch = watch();
    let open = |told: Option<u32>| {
        let (mut receiver, address) = DataChannel::listen(HERE, None).unwrap();
        let mut sender = DataChannel::connect(vec![address]);
        receiver.size_buffers(told);
        sender.size_buffers(told);
        sender.open(2, &watch).unwrap();
        receiver.open(2, &watch).unwrap();
        let sizes = |channel: &DataChannel| -> Vec<_> {
            let links = channel.links.iter();
            links.map(|stripe| stripe.link.buffer_sizes()).collect()
        };
        let all = [sizes(&sender), sizes(&receiver)].concat();
        // Connections that are open already are resized too.
        sender.size_buffers(Some(16 << 10));
        assert!(
            sizes(&sender)
                .iter()
                .all(|&held| held == (32 << 10, 32 << 10))
        );
        all
    };
    // The kernel doubles it.
    let told = open(Some(64 << 10));
    assert!(
        told.iter().all(|&held| held == (128 << 10, 128 << 10)),
        "{told:?}"
    );
    let tuned = open(None);
    assert!(!tuned.contains(&(128 << 10, 128 << 10)), "{tuned:?}");
}
