//! The door: our client against our server, by HTTPS, with an authority made here.
#![allow(clippy::unwrap_used)]

mod common;

use common::{lab::Lab, log, needs};
use godwit_core::{Algorithm, Digest, Extents};
use godwit_store::{
    Error, Expected, Nowhere, RemoteOptions, RemovalKind, SinkExt, Store, Write,
    channel::Cancel,
    check,
    door::{Door, DoorPool},
};
use godwit_trust::{Credential, NewProxy, Peer, PeersDir, door::Fingerprint, lab::Issue};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::Command,
};

#[test]
fn door_passes_the_store_suite() {
    let lab = Lab::new();
    let mut failed = Vec::new();
    for (name, check) in check::CHECKS {
        let served = lab.node(&[]);
        let store = lab.anonymous(&served);
        let mut can = store.can().unwrap();
        // The other checks need a file, not an upload.
        if !name.starts_with("digests of files") {
            can.digests.retain(|by| *by == Algorithm::Blake3);
        }
        let kept = catch_unwind(AssertUnwindSafe(|| check(&store, &can)));
        eprintln!("{name}: {:?}", kept.is_ok());
        if kept.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "not kept: {failed:#?}");
}

#[test]
fn curl_reads_file_and_range() {
    needs!("curl");
    let (lab, bytes) = (Lab::new(), common::bytes(3_000_000));
    let served = lab.node(&[]);
    served.put("a file", &bytes);
    let port = served.node().addresses().https[0].port();
    let curl = |words: &[&str]| {
        let ca = lab.ca.certificates().join(format!("{}.0", lab.ca.hash()));
        let asked = Command::new("curl")
            .args(["-sS", "--fail-with-body", "--cacert"])
            .arg(ca)
            .args(words)
            .arg(format!("https://localhost:{port}/a%20file"))
            .output();
        asked.unwrap()
    };
    let whole = curl(&[]);
    assert!(
        whole.status.success(),
        "{}",
        String::from_utf8_lossy(&whole.stderr)
    );
    assert_eq!(whole.stdout, bytes);
    assert_eq!(
        curl(&["-r", "1000000-1999999"]).stdout,
        &bytes[1_000_000..2_000_000]
    );
    assert_eq!(curl(&["-r", "-5"]).stdout, &bytes[2_999_995..]);
    let beyond = curl(&["-r", "3000000-"]);
    assert_eq!(
        String::from_utf8_lossy(&beyond.stdout),
        "the file has 3000000 bytes\n"
    );
}

#[test]
fn health_calls_need_no_identity() {
    needs!("curl");
    let lab = Lab::new();
    let served = lab.node(&[("anonymous.access", "none")]);
    let port = served.node().addresses().https[0].port();
    let get = |path: &str| {
        let ca = lab.ca.certificates().join(format!("{}.0", lab.ca.hash()));
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-w", "%{http_code}", "--cacert"]).arg(ca);
        let asked = curl.arg(format!("https://localhost:{port}{path}")).output();
        String::from_utf8(asked.unwrap().stdout).unwrap()
    };
    assert_eq!(get("/healthz"), "ok\n200");
    assert_eq!(get("/readyz"), "ready\n200");
    let refused = get("/file");
    assert!(
        refused.ends_with("403") && refused.contains("show a certificate"),
        "{refused}"
    );
    let metrics = get("/metrics");
    for line in [
        "godwit_http_requests_total{method=\"GET\",code=\"403\"} 1",
        "godwit_auth_denied_total{reason=\"nothing\"}",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[test]
fn ambiguous_requests_are_refused() {
    needs!("curl");
    let lab = Lab::new();
    let served = lab.node(&[]);
    served.put("f", b"here");
    let port = served.node().addresses().https[0].port();
    let status = |words: &[&str], target: &str| {
        let ca = lab.ca.certificates().join(format!("{}.0", lab.ca.hash()));
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--path-as-is",
            "--cacert",
        ]);
        let asked = curl
            .arg(ca)
            .args(words)
            .arg(format!("https://localhost:{port}{target}"))
            .output();
        String::from_utf8(asked.unwrap().stdout).unwrap()
    };
    assert_eq!(status(&[], "/f"), "200");
    for target in [
        "/a%2Ff",
        "/../f",
        "/%2e%2e/f",
        "/./f",
        "//f",
        "/f%00",
        "/%zz",
    ] {
        assert_eq!(status(&[], target), "400", "{target}");
    }
    assert_eq!(status(&[], "/.godwit/v9/stat"), "501");
    assert_eq!(status(&["-X", "POST"], "/.godwit/v1/nothing"), "501");
    assert_eq!(status(&["-X", "GET"], "/.godwit/v1/stat"), "405");
    assert_eq!(
        status(&["-d", "{\"paths\":[\"..\"]}"], "/.godwit/v1/stat"),
        "400"
    );
    assert_eq!(status(&["-d", "{"], "/.godwit/v1/stat"), "400");
    assert_eq!(status(&["-r", "9-"], "/f"), "416");
    assert_eq!(status(&["-r", "3-2"], "/f"), "400");
    assert_eq!(
        status(&["-T", "/dev/null"], "/.godwit/v1/uploads/nobodys/f"),
        "503"
    );
    let many: Vec<String> = (0..70)
        .flat_map(|i| ["-H".to_owned(), format!("X-{i}: 1")])
        .collect();
    let many: Vec<&str> = many.iter().map(|word| &**word).collect();
    assert_eq!(status(&many, "/f"), "431");
}

#[test]
fn door_accepts_credentials_of_ftp() {
    let lab = Lab::new();
    let gridmap = lab.path("gridmap");
    std::fs::write(&gridmap, "\"/O=Lab/CN=alice\" alice\n").unwrap();
    let key = lab.path("cluster.key");
    godwit_trust::new_key(&key).unwrap();
    let (gridmap, key_file) = (gridmap.display().to_string(), key.display().to_string());
    let served = lab.node(&[
        ("anonymous.access", "none"),
        ("trust.gridmap", &gridmap),
        ("cluster.key", &key_file),
    ]);
    served.put("f", b"here");
    let alice = lab.ca.issue(&Issue::user("alice")).unwrap();
    let proxy = alice.proxy(&NewProxy::default()).unwrap();
    let member = Credential::from_cluster_key(&key).unwrap();
    for credential in [alice, proxy, member] {
        let who = credential.identity().to_string();
        let stat = lab.client_of(&served, credential).stat("f".as_ref());
        assert_eq!(
            stat.unwrap_or_else(|error| panic!("{who}: {error}")).size,
            4
        );
    }
    // A user outside the gridmap, one with another key, and one without a name.
    let bob = lab.ca.issue(&Issue::user("bob")).unwrap();
    let refused = lab.client_of(&served, bob).stat("f".as_ref()).unwrap_err();
    assert!(refused.to_string().contains("/O=Lab/CN=bob"), "{refused}");
    let other = lab.path("other.key");
    godwit_trust::new_key(&other).unwrap();
    let other = Credential::from_cluster_key(&other).unwrap();
    assert!(lab.client_of(&served, other).stat("f".as_ref()).is_err());
    let refused = lab.anonymous(&served).stat("f".as_ref()).unwrap_err();
    assert!(matches!(refused, Error::Denied { .. }), "{refused}");
}

#[test]
fn node_draws_by_grant() {
    let (lab, bytes) = (Lab::new(), common::bytes(5_000_000));
    let gridmap = lab.path("gridmap");
    std::fs::write(&gridmap, "\"/O=Lab/CN=alice\" alice\n").unwrap();
    let gridmap = gridmap.display().to_string();
    let (from, to) = (lab.node(&[]), lab.node(&[("trust.gridmap", &gridmap)]));
    from.put("f", &bytes);
    let alice = lab.ca.issue(&Issue::user("alice")).unwrap();
    let (source, target) = (lab.anonymous(&from), lab.client_of(&to, alice));
    let size = Some(bytes.len() as u64);
    let write = Write {
        size,
        ..Write::default()
    };
    let sink = target.write("g".as_ref(), &write).unwrap();
    let want = Extents::from(0..bytes.len() as u64);
    let drawn = sink.draw(&source, "f".as_ref(), &want, 2, &|_| ()).unwrap();
    let read = drawn.expect("both are nodes");
    assert_eq!(read.stat.size, bytes.len() as u64);
    assert_eq!(sink.done(), want);
    assert!(!to.has("g"));
    let whole = Expected {
        size,
        ..Expected::default()
    };
    let finished = sink.finish(&whole).unwrap();
    assert_eq!(
        finished.digests.first(),
        Some(&Digest::of(Algorithm::Blake3, &bytes))
    );
    assert_eq!(to.bytes("g"), bytes);
    // What cannot be read cannot be granted.
    let sink = target.write("h".as_ref(), &write).unwrap();
    let refused = sink.draw(&source, "nothing".as_ref(), &want, 2, &|_| ());
    assert!(matches!(refused, Err(Error::Missing { .. })));
}

#[test]
fn grant_covers_one_file_for_any_holder() {
    let lab = Lab::new();
    let gridmap = lab.path("gridmap");
    std::fs::write(&gridmap, "\"/O=Lab/CN=alice\" alice\n").unwrap();
    let gridmap = gridmap.display().to_string();
    let served = lab.node(&[("anonymous.access", "none"), ("trust.gridmap", &gridmap)]);
    served.put("f", b"granted");
    served.put("g", b"kept");
    let alice = lab.client_of(&served, lab.ca.issue(&Issue::user("alice")).unwrap());
    let secret = alice.grant("f".as_ref()).unwrap();
    let (from, key) = alice.place().unwrap();
    let options = RemoteOptions::new(Cancel::new().unwrap());
    let read = |secret: &str, path: &str| {
        let door = Door::with_grant(&from, key, secret, (&options, &DoorPool::default())).unwrap();
        let want = Extents::from(0..10);
        door.read(path.as_ref(), &want, 1, &Nowhere)
            .map(|read| read.stat.size)
    };
    assert_eq!(read(&secret, "f").unwrap(), 7);
    assert!(matches!(read(&secret, "g"), Err(Error::Denied { .. })));
    assert!(matches!(
        read("00000000000000000000000000000000", "f"),
        Err(Error::Denied { .. })
    ));
}

#[test]
fn stopping_node_ignores_silent_clients() {
    let lab = Lab::new();
    let served = lab.node(&[("limits.grace_seconds", "3600")]);
    served.put("f", b"here");
    let idle = lab.anonymous(&served);
    assert_eq!(idle.stat("f".as_ref()).unwrap().size, 4);
    let (stopped, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || stopped.send(served.stop()));
    told.recv_timeout(common::PATIENCE)
        .expect("its connection is closed, and the node ends");
    drop(idle);
}

#[test]
fn removed_peer_loses_open_connection() {
    let lab = Lab::new();
    let state = lab.path("state");
    let account = std::env::var("USER").unwrap_or_default();
    let served = lab.node(&[
        ("node.state", &state.display().to_string()),
        ("anonymous.access", "none"),
        ("peers.account", &account),
    ]);
    served.put("file", &common::bytes(1000));
    let (theirs, ours) = (PeersDir::at(&state), PeersDir::at(&lab.path("ours")));
    let pin = |home: &PeersDir| Fingerprint::of_credential(&home.key_or_new().unwrap()).unwrap();
    let at = served.node().addresses().https[0].to_string();
    let us = Peer::new("us", pin(&ours), &[]);
    theirs.add(&us).unwrap();
    ours.add(&Peer::new("lab", pin(&theirs), &[at])).unwrap();
    let options = RemoteOptions::new(Cancel::new().unwrap());
    let door =
        |home: &PeersDir| Door::of_known(home, &home.peer("lab").unwrap().unwrap(), &options);
    let door = door(&ours).unwrap();
    let file = std::path::Path::new("file");
    door.stat(file).unwrap();
    let grant = door.grant(file).unwrap();
    let (from, key) = door.place().unwrap();
    let drawn = || {
        let other = Door::with_grant(&from, key, &grant, (&options, &DoorPool::default())).unwrap();
        other.read(file, &Extents::from(0..1000), 1, &Nowhere)
    };
    drawn().unwrap();
    theirs.remove("us").unwrap();
    let refused = door.stat(file).unwrap_err();
    assert!(matches!(refused, Error::Stranger { .. }), "{refused}");
    // Nor may the holder of a grant of theirs.
    let refused = drawn().unwrap_err();
    assert!(matches!(refused, Error::Denied { .. }), "{refused}");
    // Once it is known again, the same connection is as good as another, within a moment.
    theirs.add(&us).unwrap();
    common::until("it is known again", || door.stat(file).is_ok());
}

#[test]
fn changes_are_told_with_their_author() {
    log::keep();
    let lab = Lab::new();
    let served = lab.node(&[]);
    let door = lab.anonymous(&served);
    let sink = door.write(Path::new("put-f"), &Write::default()).unwrap();
    sink.finish(&Expected::default()).unwrap();
    door.rename(Path::new("put-f"), Path::new("put-g")).unwrap();
    door.remove(Path::new("put-g"), RemovalKind::File).unwrap();
    log::has(&[
        "INFO",
        "target=put-f",
        "who=anonymous",
        "from=127.0.0.1",
        "received",
    ]);
    log::has(&[
        "INFO",
        "did=rename",
        "path=put-f -> put-g",
        "who=anonymous",
        "from=127.0.0.1",
    ]);
    log::has(&[
        "INFO",
        "did=remove",
        "path=put-g",
        "who=anonymous",
        "from=127.0.0.1",
    ]);
    let mut client = served.client();
    client.ok("MKD made-by-ftp");
    client.ok("RMD made-by-ftp");
    log::has(&[
        "INFO",
        "did=make directory",
        "path=made-by-ftp",
        "from=127.0.0.1",
    ]);
    log::has(&["INFO", "did=remove", "path=made-by-ftp", "from=127.0.0.1"]);
}
