//! The scripts in `tests/peers` start servers that answer, and stop them.

mod common;

use common::{Kind, Peer, Scratch, assert_same, run};

#[test]
fn every_peer_starts_answers_and_stops() {
    let scratch = Scratch::new();
    let source = scratch.file("source", 100_000);
    for kind in [Kind::Gct, Kind::Vsftpd, Kind::Pureftpd] {
        let Some(peer) = Peer::start(kind, scratch.path()) else {
            continue;
        };
        let from = source.to_str().expect("UTF-8");
        // Two slashes: curl goes by CWD from where the login leads, which need not be the root.
        let to = format!("ftp://127.0.0.1:{}/{}", peer.port, peer.name("put"));
        run(20, "curl", ["-sS", "-T", from, &to]).ok();
        assert_same(&source, &peer.r#where.join("put"));
        let port = peer.port;
        drop(peer);
        let refused = std::net::TcpStream::connect(("127.0.0.1", port));
        assert!(refused.is_err(), "{kind:?} still listens");
    }
}

#[test]
fn missing_server_sums_are_computed() {
    let scratch = Scratch::new();
    let source = scratch.file("source", 3_000_000);
    let expected = common::ours(["sum", source.to_str().expect("UTF-8")]).ok();
    let hex = |said: &common::Said| {
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        text.split(' ').next().unwrap_or_default().to_owned()
    };
    for kind in [Kind::Gct, Kind::Vsftpd, Kind::Pureftpd] {
        let Some(peer) = Peer::start(kind, scratch.path()) else {
            continue;
        };
        std::fs::copy(&source, peer.r#where.join("f")).expect("room");
        let said = common::ours(["sum", &peer.url("f")]).ok();
        assert_eq!(hex(&said), hex(&expected), "{kind:?}");
        let part = ["sum", "-a", "md5", "--offset", "5", "--length", "1M"];
        let remote = common::ours(part.into_iter().chain([&*peer.url("f")])).ok();
        let local = common::ours(part.into_iter().chain([source.to_str().expect("UTF-8")])).ok();
        assert_eq!(hex(&remote), hex(&local), "{kind:?}");
    }
}
