//! A cluster whose members trust each other: by a key, by an address, for themselves and for
//! others.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Client, Scratch, Served, bytes};
use godwit_core::{Block, Extents, Url};
use godwit_store::{
    BlockWriter, Error, Expected, Level, Remote, RemoteOptions, Result, Store, TrustOptions, Whom,
    Write, channel::Cancel,
};
use godwit_trust::{Authorities, Channel, Context, Credential, Delegate, Expect, new_key};
use std::{fs, path::PathBuf, sync::Mutex};

/// A directory with a key and a gridmap.
struct Cluster(Scratch);

impl Cluster {
    fn new() -> Self {
        let cluster = Self(Scratch::new());
        new_key(&cluster.path("key")).unwrap();
        let map = "\"/O=Lab/CN=alice\" alice,carol\n\"/O=Lab/CN=bob\" bob\n";
        fs::write(cluster.path("gridmap"), map).unwrap();
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn key(&self) -> Credential {
        Credential::from_cluster_key(&self.path("key")).unwrap()
    }

    fn serve(&self, settings: &[(&'static str, &str)]) -> Served {
        let text = |name| self.path(name).display().to_string();
        let (key, map) = (text("key"), text("gridmap"));
        let mut all = vec![
            ("cluster.key", key.as_str()),
            ("trust.gridmap", &map),
            ("anonymous.access", "none"),
        ];
        all.extend(settings);
        Served::with(&all)
    }
}

fn open(served: &Served, credential: Credential, whom: Whom, level: Level) -> Remote {
    open_as(served, "", credential, whom, level)
}

fn open_as(
    served: &Served,
    user: &str,
    credential: Credential,
    whom: Whom,
    level: Level,
) -> Remote {
    let url: Url = format!("gsiftp://{user}{}/", served.address)
        .parse()
        .unwrap();
    let trust = TrustOptions {
        credential: Some(credential),
        level,
        whom,
        ..TrustOptions::default()
    };
    let options = RemoteOptions {
        trust,
        ..RemoteOptions::new(Cancel::new().unwrap())
    };
    Remote::open(&url, &options).unwrap()
}

fn alice(account: Option<&str>) -> Whom {
    Whom::Subject {
        subject: "/O=Lab/CN=alice".into(),
        account: account.map(Into::into),
    }
}

#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl BlockWriter for Kept {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let (mut bytes, range) = (self.0.lock().unwrap(), block.range());
        let end = bytes.len().max(range.end as usize);
        bytes.resize(end, 0);
        bytes[range.start as usize..range.end as usize].copy_from_slice(block.bytes);
        Ok(())
    }
}

fn get(store: &Remote, name: &str) -> Result<Vec<u8>> {
    let kept = Kept::default();
    store.read(name.as_ref(), &Extents::from(0..u64::MAX), 2, &kept)?;
    Ok(kept.0.into_inner().unwrap())
}

fn put(store: &Remote, name: &str, whole: &[u8]) -> Result<()> {
    let sink = store.write(name.as_ref(), &Write::default())?;
    sink.put(Block::at(0, whole))?;
    sink.finish(&Expected::default()).map(drop)
}

fn refusal(store: &Remote) -> Error {
    store.stat("".as_ref()).expect_err("must be refused")
}

#[test]
fn key_holder_moves_files_at_all_protections() {
    let cluster = Cluster::new();
    let served = cluster.serve(&[]);
    let whole = bytes(3_000_000);
    for level in [Level::Clear, Level::Safe, Level::Private] {
        let store = open(&served, cluster.key(), Whom::Myself, level);
        put(&store, "x", &whole).unwrap();
        assert!(served.bytes("x") == whole, "{level:?}");
        assert!(get(&store, "x").unwrap() == whole, "{level:?}");
    }
}

#[test]
fn another_key_is_refused_by_name() {
    let cluster = Cluster::new();
    let served = cluster.serve(&[]);
    new_key(&cluster.path("other")).unwrap();
    let other = Credential::from_cluster_key(&cluster.path("other")).unwrap();
    let (shown, counts) = (other.key_id().unwrap().to_owned(), cluster.key());
    let error = refusal(&open(&served, other, Whom::Myself, Level::Clear)).to_string();
    let file = cluster.path("other").display().to_string();
    for word in [&shown, counts.key_id().unwrap(), &file] {
        assert!(error.contains(word), "wanted {word} in {error}");
    }
    for name in ["key", "other"] {
        let secret = fs::read_to_string(cluster.path(name)).unwrap();
        assert!(!error.contains(&secret[..8]), "{error}");
    }
}

#[test]
fn replaced_key_counts_at_next_login() {
    let cluster = Cluster::new();
    let served = cluster.serve(&[]);
    let old = cluster.key();
    let before = open(&served, old.clone(), Whom::Myself, Level::Clear);
    before.stat("".as_ref()).unwrap();
    fs::remove_file(cluster.path("key")).unwrap();
    new_key(&cluster.path("key")).unwrap();
    let store = open(&served, cluster.key(), Whom::Myself, Level::Clear);
    store.stat("".as_ref()).unwrap();
    let error = refusal(&open(&served, old, Whom::Myself, Level::Clear));
    assert!(matches!(error, Error::Trust { .. }), "{error}");
    // An open session is not ended.
    before.stat("".as_ref()).unwrap();
    fs::write(cluster.path("key"), "garbage").unwrap();
    let error = refusal(&open(&served, old_key(), Whom::Myself, Level::Clear)).to_string();
    assert!(error.contains("cannot use a file of its own"), "{error}");
    let path = cluster.path("key").display().to_string();
    assert!(!error.contains(&path), "{error}");
}

fn old_key() -> Credential {
    let scratch = Scratch::new();
    let path = scratch.path().join("key");
    new_key(&path).unwrap();
    Credential::from_cluster_key(&path).unwrap()
}

#[test]
fn node_outside_cluster_refuses_key() {
    let cluster = Cluster::new();
    let served = Served::new();
    let error = refusal(&open(&served, cluster.key(), Whom::Myself, Level::Clear)).to_string();
    assert!(error.contains("AUTH GODWIT is not offered here"), "{error}");
    let mut client = Client::new(served.address);
    assert!(!client.ask("FEAT").contains("AUTH GODWIT"));
    let served = cluster.serve(&[]);
    let mut client = Client::new(served.address);
    assert!(client.ask("FEAT").contains("AUTH GODWIT"));
}

#[test]
fn member_acts_with_rights_of_named_user() {
    let cluster = Cluster::new();
    let served = cluster.serve(&[]);
    for (account, logged_in) in [(None, "alice"), (Some("carol"), "carol")] {
        let mut member = Member::begin(&served, &cluster.key());
        let user = account.unwrap_or(":globus-mapping:");
        member.ask(&format!("USER {user}"));
        let reply = member.ask("PASS for=/O=Lab/CN=alice");
        assert_eq!(reply, format!("230 User {logged_in} logged in."));
        let store = open(&served, cluster.key(), alice(account), Level::Clear);
        put(&store, "of-alice", b"x").unwrap();
    }
    for (whom, said) in [
        (
            alice(Some("root")),
            "/O=Lab/CN=alice may not log in as root",
        ),
        (
            Whom::Subject {
                subject: "/O=Lab/CN=mallory".into(),
                account: None,
            },
            "/O=Lab/CN=mallory has no account here",
        ),
        (Whom::Anonymous, "this server knows only members"),
    ] {
        let error = refusal(&open(&served, cluster.key(), whom, Level::Clear)).to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn member_acts_for_users_in_turn() {
    let cluster = Cluster::new();
    let served = cluster.serve(&[("anonymous.access", "read")]);
    let mut member = Member::begin(&served, &cluster.key());
    for (user, password, logged_in) in [
        (":globus-mapping:", "for=/O=Lab/CN=alice", "alice"),
        (":globus-mapping:", "for=/O=Lab/CN=bob", "bob"),
        ("anonymous", "for=/O=Lab/CN=bob", "anonymous"),
    ] {
        member.ask(&format!("USER {user}"));
        let reply = member.ask(&format!("PASS {password}"));
        assert_eq!(reply, format!("230 User {logged_in} logged in."));
        member.ask("REIN");
    }
    for password in ["for=alice", "for=", "for=/O=Lab/CN=a\tb"] {
        member.ask("USER :globus-mapping:");
        let reply = member.ask(&format!("PASS {password}"));
        assert!(
            reply.starts_with("530 Login incorrect: a subject"),
            "{reply}"
        );
    }
}

#[test]
fn who_is_no_member_acts_for_nobody() {
    let lab = Cluster::new();
    let ca = godwit_trust::lab::Ca::init(
        &lab.path("ca"),
        "/O=Lab/CN=CA",
        std::time::Duration::from_secs(86_400),
        godwit_trust::KeyKind::Elliptic,
    );
    let ca = ca.unwrap();
    let issue = |issue: godwit_trust::lab::Issue| {
        let key = godwit_trust::KeyKind::Elliptic;
        ca.issue(&godwit_trust::lab::Issue { key, ..issue })
            .unwrap()
    };
    let host = issue(godwit_trust::lab::Issue::host(&["127.0.0.1"]));
    let (cert, key) = (lab.path("cert.pem"), lab.path("key.pem"));
    godwit_trust::lab::write_pair(&host, &cert, &key).unwrap();
    let text = |path: PathBuf| path.display().to_string();
    let served = lab.serve(&[
        ("trust.certificate", &text(cert)),
        ("trust.key", &text(key)),
        ("trust.authorities", &text(ca.certificates())),
    ]);
    let bob = issue(godwit_trust::lab::Issue::user("bob"));
    let them = Authorities::in_dir(&ca.certificates()).unwrap();
    let mut bob = Member::begin_by(&served, "GSSAPI", &bob, &them);
    bob.ask("USER :globus-mapping:");
    let reply = bob.ask("PASS for=/O=Lab/CN=alice");
    assert!(
        reply.contains("only members of the cluster may act for others"),
        "{reply}"
    );
    bob.ask("USER :globus-mapping:");
    assert_eq!(bob.ask("PASS dummy"), "230 User bob logged in.");
    let mut stranger = Client::new(served.address);
    stranger.ok("USER :globus-mapping:");
    let reply = stranger.ask("PASS for=/O=Lab/CN=alice");
    assert!(reply.starts_with("530"), "{reply}");
}

#[test]
fn trusted_address_needs_no_key() {
    let cluster = Cluster::new();
    let served = cluster.serve(&[("cluster.addresses", "10.0.0.0/8, 127.0.0.1")]);
    let whole = bytes(2_000_000);
    let store = open(&served, Credential::by_address(), alice(None), Level::Clear);
    put(&store, "x", &whole).unwrap();
    assert!(get(&store, "x").unwrap() == whole);
    open(&served, cluster.key(), Whom::Myself, Level::Private)
        .stat("".as_ref())
        .unwrap();
    // The credential of trusted addresses is public: it protects nothing.
    let error = refusal(&open(
        &served,
        Credential::by_address(),
        Whom::Myself,
        Level::Private,
    ));
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    // Bytes that a server was talked into sending are no member.
    let mut bounced = Client::new(served.address);
    bounced.raw(b"USER :globus-mapping:\r\nPASS for=/O=Lab/CN=alice\r\nDELE x\r\n");
    let replies = [bounced.reply(), bounced.reply(), bounced.reply()];
    assert!(
        replies[1].starts_with("530") && replies[2].starts_with("530"),
        "{replies:?}"
    );
    assert!(served.has("x"));
}

#[test]
fn an_address_that_nobody_named_is_none() {
    let cluster = Cluster::new();
    for settings in [&[][..], &[("cluster.addresses", "10.0.0.0/8")]] {
        let served = cluster.serve(settings);
        let store = open(
            &served,
            Credential::by_address(),
            Whom::Myself,
            Level::Clear,
        );
        let error = refusal(&store).to_string();
        assert!(error.contains("does not count here"), "{error}");
    }
}

#[test]
fn a_line_said_twice_ends_the_conversation() {
    let cluster = Cluster::new();
    let served = cluster.serve(&[]);
    let mut member = Member::begin(&served, &cluster.key());
    let line = member.seal("NOOP");
    member.client.raw(line.as_bytes());
    assert!(member.reply().starts_with("200"));
    member.client.raw(line.as_bytes());
    assert!(member.client.is_closed());
}

/// A control channel behind `AUTH`, line by line.
struct Member {
    client: Client,
    channel: Channel,
}

impl Member {
    fn begin(served: &Served, key: &Credential) -> Self {
        Self::begin_by(served, "GODWIT", key, &Authorities::none())
    }

    fn begin_by(served: &Served, how: &str, us: &Credential, them: &Authorities) -> Self {
        let mut client = Client::new(served.address);
        client.expect(&format!("AUTH {how}"), "334");
        let (mut channel, mut token) =
            Channel::initiate(us, them, Expect::Anyone, Delegate::No).unwrap();
        loop {
            let reply = client.ask(&format!("ADAT {}", godwit_wire::base64::encode(&token)));
            if let Some((_, text)) = reply.split_once("ADAT=") {
                let came = godwit_wire::base64::decode(text.as_bytes()).unwrap();
                token = channel.step(&came).unwrap().token.unwrap_or_default();
            }
            if reply.starts_with("235") {
                return Self { client, channel };
            }
            assert!(reply.starts_with("335"), "{reply}");
        }
    }

    fn seal(&mut self, line: &str) -> String {
        let sealed = self.channel.wrap(format!("{line}\r\n").as_bytes()).unwrap();
        format!("ENC {}\r\n", godwit_wire::base64::encode(&sealed))
    }

    fn reply(&mut self) -> String {
        let line = self.client.line();
        let sealed = godwit_wire::base64::decode(&line.as_bytes()[4..]).unwrap();
        let plain = self.channel.unwrap(&sealed).unwrap();
        String::from_utf8(plain).unwrap().trim_end().into()
    }

    fn ask(&mut self, line: &str) -> String {
        let sealed = self.seal(line);
        self.client.raw(sealed.as_bytes());
        self.reply()
    }
}
