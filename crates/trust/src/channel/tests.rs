//! Both roles against each other: every judgement, both versions of TLS, and what a hostile peer sends.

use super::*;
use crate::{
    KeyKind, NewProxy,
    lab::{Ca, Issue},
};
use std::{fs, sync::LazyLock, time::Duration};
use tempfile::TempDir;

/// An authority, its trust store, a user and a host.
struct World {
    dir: TempDir,
    ca: Ca,
    authorities: Authorities,
    alice: Credential,
    host: Credential,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::init(dir.path(), "/O=Lab/CN=Lab CA", DAY * 30, KeyKind::Elliptic).unwrap();
        Self {
            authorities: Authorities::in_dir(&ca.certificates()).unwrap(),
            alice: ca.issue(&quick(Issue::user("alice"))).unwrap(),
            host: ca
                .issue(&quick(Issue::host(&["fermi.lab", "127.0.0.1"])))
                .unwrap(),
            ca,
            dir,
        }
    }

    fn initiate(&self, who: &Credential, expect: Expect, delegate: Delegate) -> (Channel, Vec<u8>) {
        Channel::initiate(who, &self.authorities, expect, delegate).unwrap()
    }

    fn accept(&self) -> Channel {
        Channel::accept(&self.host, &self.authorities).unwrap()
    }

    /// Both sides until both are done, or the first refusal.
    fn meet(
        &self,
        who: &Credential,
        expect: Expect,
        delegate: Delegate,
    ) -> Result<(Channel, Channel)> {
        let (mut client, token) = Channel::initiate(who, &self.authorities, expect, delegate)?;
        let mut server = self.accept();
        run(&mut client, token, &mut server)?;
        Ok((client, server))
    }

    fn refusal(&self, who: &Credential) -> String {
        let refused = self.meet(who, Expect::Anyone, Delegate::No);
        refused.expect_err("must be refused").to_string()
    }
}

/// Fixture that most tests share.
static WORLD: LazyLock<World> = LazyLock::new(World::new);

/// Elliptic keys: RSA keys take their time.
fn quick(issue: Issue) -> Issue {
    Issue {
        key: KeyKind::Elliptic,
        ..issue
    }
}

fn proxy(of: &Credential, wanted: NewProxy) -> Credential {
    of.proxy(&NewProxy {
        key: KeyKind::Elliptic,
        ..wanted
    })
    .unwrap()
}

fn limited() -> NewProxy {
    NewProxy {
        limited: true,
        ..NewProxy::default()
    }
}

/// Carries tokens to and fro as AUTH and ADAT do: an answer that is no end has a token.
fn run(client: &mut Channel, mut token: Vec<u8>, server: &mut Channel) -> Result<usize> {
    for round in 1..=10 {
        let answer = server.step(&token)?;
        if answer.done {
            assert!(
                answer.token.is_none(),
                "GSI's acceptor never has a last word"
            );
            return Ok(round);
        }
        let reply = answer.token.expect("335 wants a token");
        assert!(!reply.is_empty(), "Globus refuses a token of no bytes");
        let next = client.step(&reply)?;
        token = next.token.expect("ADAT wants a token");
    }
    panic!("no end of tokens")
}

#[test]
fn each_learns_who_the_other_is() {
    let (client, server) = WORLD
        .meet(&WORLD.alice, Expect::Anyone, Delegate::No)
        .unwrap();
    assert_eq!(server.peer().unwrap().subject(), "/O=Lab/CN=alice");
    assert_eq!(client.peer().unwrap().subject(), "/O=Lab/CN=fermi.lab");
    assert!(server.delegated().is_none());
    assert!(client.protection().starts_with("TLSv1.3"));
}

#[test]
fn wrapped_tokens_unwrap_in_order_only() {
    let (mut client, mut server) = WORLD
        .meet(&WORLD.alice, Expect::Anyone, Delegate::Limited)
        .unwrap();
    for (line, large) in [("USER :globus-mapping:\r\n", 0), ("x", 100_000)] {
        let clear = [line.as_bytes(), &vec![7; large]].concat();
        let token = client.wrap(&clear).unwrap();
        assert_eq!(server.unwrap(&token).unwrap(), clear);
        let token = server.wrap(&clear).unwrap();
        assert_eq!(client.unwrap(&token).unwrap(), clear);
    }
    let token = client.wrap(b"PASS \r\n").unwrap();
    assert_eq!(server.unwrap(&token).unwrap(), b"PASS \r\n");
    assert!(server.unwrap(&token).is_err(), "a replay");
    assert!(
        server.unwrap(&client.wrap(b"QUIT").unwrap()).is_err(),
        "nothing after it"
    );
}

#[test]
fn half_a_message_is_refused() {
    let (mut client, mut server) = WORLD
        .meet(&WORLD.alice, Expect::Anyone, Delegate::No)
        .unwrap();
    let token = client.wrap(b"NOOP\r\n").unwrap();
    let half = server.unwrap(&token[..token.len() - 1]);
    assert!(half.is_err() || half.is_ok_and(|clear| clear.is_empty()));
    let (mut client, mut server) = WORLD
        .meet(&WORLD.alice, Expect::Anyone, Delegate::No)
        .unwrap();
    let mut token = client.wrap(b"NOOP\r\n").unwrap();
    *token.last_mut().unwrap() ^= 1;
    assert!(server.unwrap(&token).is_err());
}

#[test]
fn null_token_follows_tls13_only() {
    // Rounds as measured with Globus: see the module's words on the null byte.
    for (is_old, delegate, rounds) in [
        (false, Delegate::No, 3),
        (false, Delegate::Limited, 4),
        (true, Delegate::No, 3),
        (true, Delegate::Limited, 4),
    ] {
        let alice = Credential::from_pem(&WORLD.alice.to_pem().unwrap()).unwrap();
        if is_old {
            context::make_old(&alice);
        }
        let (mut client, token) = WORLD.initiate(&alice, Expect::Anyone, delegate);
        let mut server = WORLD.accept();
        assert_eq!(run(&mut client, token, &mut server).unwrap(), rounds);
        assert_eq!(client.protection().starts_with("TLSv1.2"), is_old);
        assert_eq!(server.delegated().is_some(), delegate != Delegate::No);
    }
}

/// Cuts the bytes for a socket into records.
fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some((head, _)) = bytes.split_first_chunk() {
        let (record, rest) = bytes.split_at(record_bytes(*head).unwrap());
        records.push(record);
        bytes = rest;
    }
    records
}

/// Feeds record by record, as on a data connection; returns the bytes of the answer.
fn feed(channel: &mut Channel, bytes: &[u8]) -> (Vec<u8>, bool) {
    let (mut answer, mut done) = (Vec::new(), false);
    for record in records(bytes) {
        assert!(!done, "a record behind the last");
        let step = channel.step(record).unwrap();
        answer.extend(step.token.unwrap_or_default());
        done = step.done;
    }
    (answer, done)
}

#[test]
fn data_connection_is_framed_by_records() {
    for (is_old, is_gsi) in [(false, true), (false, false), (true, true), (true, false)] {
        let alice = Credential::from_pem(&WORLD.alice.to_pem().unwrap()).unwrap();
        if is_old {
            context::make_old(&alice);
        }
        let authorities = &WORLD.authorities;
        let (mut client, mut token) = match is_gsi {
            true => Channel::initiate(&alice, authorities, Expect::Myself, Delegate::No),
            false => Channel::initiate_tls(&alice, authorities, Expect::Myself),
        }
        .unwrap();
        let mut server = match is_gsi {
            true => Channel::accept(&alice, authorities),
            false => Channel::accept_tls(&alice, authorities),
        }
        .unwrap();
        let (mut client_done, mut server_done) = (false, false);
        while !(client_done && server_done) {
            let (reply, done) = feed(&mut server, &token);
            server_done |= done;
            if !reply.is_empty() {
                (token, client_done) = feed(&mut client, &reply);
            }
        }
        let data = vec![7; 100_000];
        let sent = client.wrap(&data).unwrap();
        let mut came = Vec::new();
        for record in records(&sent) {
            came.extend(server.unwrap(record).unwrap());
        }
        assert_eq!(came, data, "{is_old} {is_gsi}");
        assert_eq!(client.unwrap(&server.wrap(b"x").unwrap()).unwrap(), b"x");
    }
}

#[test]
fn non_record_is_refused_by_its_head() {
    assert_eq!(record_bytes([22, 3, 1, 1, 0]).unwrap(), 261);
    for head in [
        *b"GET /",
        [22, 3, 1, 0xff, 0xff],
        [19, 3, 1, 0, 1],
        [22, 2, 1, 0, 1],
    ] {
        assert!(record_bytes(head).is_err(), "{head:?}");
    }
}

#[test]
fn delegated_proxy_logs_in_and_stays_limited() {
    let (_, server) = WORLD
        .meet(&WORLD.alice, Expect::Anyone, Delegate::Limited)
        .unwrap();
    let delegated = server.delegated().unwrap();
    assert!(delegated.identity().is_limited());
    let (_, next) = WORLD
        .meet(delegated, Expect::Anyone, Delegate::Full)
        .unwrap();
    let peer = next.peer().unwrap();
    assert_eq!(peer.subject(), "/O=Lab/CN=alice");
    assert!(peer.is_limited());
    assert_eq!(peer.chain().len(), 2);
    assert!(
        next.delegated().unwrap().identity().is_limited(),
        "less cannot become more"
    );
}

#[test]
fn a_full_proxy_is_delegated_when_asked() {
    let (_, server) = WORLD
        .meet(&WORLD.alice, Expect::Anyone, Delegate::Full)
        .unwrap();
    let delegated = server.delegated().unwrap();
    assert!(!delegated.identity().is_limited());
    assert!(delegated.not_after() <= WORLD.alice.not_after());
}

#[test]
fn rsa_peer_delegates_to_rsa_unless_godwit() {
    for (is_ours, kind) in [(true, "EC 256"), (false, "RSA 2048")] {
        let bob = WORLD.ca.issue(&Issue::user("bob")).unwrap();
        if !is_ours {
            context::make_strange(&bob);
        }
        let (_, server) = WORLD.meet(&bob, Expect::Anyone, Delegate::Limited).unwrap();
        assert_eq!(server.delegated().unwrap().key_kind(), kind);
    }
}

#[test]
fn proxies_of_proxies_are_their_owner() {
    let first = proxy(&WORLD.alice, NewProxy::default());
    let second = proxy(&first, limited());
    let third = proxy(&second, NewProxy::default());
    for (credential, is_limited) in [(&first, false), (&second, true), (&third, true)] {
        let (_, server) = WORLD
            .meet(credential, Expect::Anyone, Delegate::Limited)
            .unwrap();
        let peer = server.peer().unwrap();
        assert_eq!(
            (peer.subject(), peer.is_limited()),
            ("/O=Lab/CN=alice", is_limited)
        );
    }
}

fn last_proxy() -> Credential {
    let none_follow = NewProxy {
        depth_max: Some(0),
        ..NewProxy::default()
    };
    proxy(&WORLD.alice, none_follow)
}

#[test]
fn proxy_with_zero_depth_delegates_nothing() {
    let last = last_proxy();
    let error = WORLD
        .meet(&last, Expect::Anyone, Delegate::Limited)
        .unwrap_err();
    assert!(matches!(error, Error::NoDelegation { .. }), "{error}");
    assert!(WORLD.meet(&last, Expect::Anyone, Delegate::No).is_ok());
}

/// Returns a proxy that `Credential::sign` would not make: below `issuer`, by the key of `signer`.
fn unasked(kind: ProxyKind, issuer: &Credential, signer: &Credential) -> Credential {
    let key = keys::elliptic().unwrap();
    let wanted = proxy::ProxyRequest {
        kind,
        not_before: SystemTime::now() - DAY,
        not_after: SystemTime::now() + DAY,
        depth_max: None,
    };
    let leaf = proxy::sign(issuer.leaf().unwrap(), signer.key().unwrap(), &key, &wanted).unwrap();
    let chain = [vec![leaf], issuer.chain().to_vec()].concat();
    Credential::new(key, chain, None).unwrap()
}

#[test]
fn a_path_length_is_obeyed_whoever_signs() {
    let last = last_proxy();
    let bad = unasked(ProxyKind::Full, &last, &last);
    let refusal = WORLD.refusal(&bad);
    assert!(refusal.contains("path length"), "{refusal}");
}

#[test]
fn proxy_of_unknown_kind_is_refused() {
    let bad = unasked(ProxyKind::Independent, &WORLD.alice, &WORLD.alice);
    assert!(WORLD.refusal(&bad).contains("independent"));
}

#[test]
fn certificate_signed_by_person_is_refused() {
    // Neither proxy nor authority: a forgery for bob by a thief of alice's key.
    let key = keys::elliptic().unwrap();
    let mut forged = openssl::x509::X509Builder::new().unwrap();
    forged.set_version(2).unwrap();
    let name = crate::lab::name("/O=Lab/CN=bob").unwrap();
    forged.set_subject_name(&name).unwrap();
    forged
        .set_issuer_name(WORLD.alice.leaf().unwrap().subject_name())
        .unwrap();
    forged.set_pubkey(&key).unwrap();
    forged
        .set_not_before(WORLD.alice.leaf().unwrap().not_before())
        .unwrap();
    forged
        .set_not_after(WORLD.alice.leaf().unwrap().not_after())
        .unwrap();
    forged
        .sign(
            WORLD.alice.key().unwrap(),
            openssl::hash::MessageDigest::sha256(),
        )
        .unwrap();
    let chain = [vec![forged.build()], WORLD.alice.chain().to_vec()].concat();
    let bad = Credential::new(key, chain, None).unwrap();
    let refusal = WORLD.refusal(&bad);
    assert!(refusal.contains("no authority"), "{refusal}");
}

#[test]
fn proxy_with_foreign_subject_is_refused() {
    let bob = WORLD.ca.issue(&quick(Issue::user("bob"))).unwrap();
    // Names bob as its issuer, but alice signed it.
    let bad = unasked(ProxyKind::Full, &bob, &WORLD.alice);
    let refusal = WORLD.refusal(&bad);
    assert!(refusal.contains("signature"), "{refusal}");
}

#[test]
fn expired_certificate_is_refused_with_date() {
    let world = World::new();
    let old = world.ca.issue(&quick(Issue {
        not_before: SystemTime::now() - DAY * 2,
        not_after: SystemTime::now() - Duration::from_secs(3 * 3600 + 60),
        ..Issue::user("old")
    }));
    let error = Channel::initiate(
        &old.unwrap(),
        &world.authorities,
        Expect::Anyone,
        Delegate::No,
    )
    .unwrap_err();
    let said = error.to_string();
    assert!(
        said.starts_with("our certificate /O=Lab/CN=old expired 3 hours ago, at 20"),
        "{said}"
    );
    let early = world.ca.issue(&quick(Issue {
        not_before: SystemTime::now() + DAY,
        ..Issue::user("early")
    }));
    let early = early.unwrap();
    let judged = world.authorities.judge(early.chain(), SystemTime::now());
    let error = judged.unwrap_err();
    assert!(error.to_string().contains("not valid before"), "{error}");
    assert!(error.hint().unwrap().contains("clock"));
    let later = SystemTime::now() + DAY * 2;
    assert!(world.authorities.judge(early.chain(), later).is_ok());
    // Of an authority the file is named too.
    let long_after = later + DAY * 400;
    let error = world
        .authorities
        .judge(early.chain(), long_after)
        .unwrap_err();
    assert!(matches!(error, Error::Expired { .. }), "{error}");
    let said = error.to_string();
    let file = format!("certificates/{}.0)", world.ca.hash());
    assert!(
        said.contains("/O=Lab/CN=Lab CA expired") && said.ends_with(&file),
        "{said}"
    );
}

#[test]
fn unknown_authority_is_named_with_directory() {
    let stranger = World::new();
    let other = stranger.ca.issue(&quick(Issue::user("mallory"))).unwrap();
    // The same name, another key: an impostor.
    let said = WORLD.refusal(&other);
    let wanted = "another key than that of /O=Lab/CN=Lab CA in /";
    assert!(said.contains(wanted), "{said}");
    let elsewhere = tempfile::tempdir().unwrap();
    let ca = Ca::init(elsewhere.path(), "/O=Else/CN=CA", DAY, KeyKind::Elliptic).unwrap();
    let foreign = ca.issue(&quick(Issue::user("x"))).unwrap();
    let said = WORLD.refusal(&foreign);
    assert!(
        said.contains("/O=Else/CN=CA") && said.contains(&format!("{}.0", ca.hash())),
        "{said}"
    );
    let said = WORLD.refusal(&proxy(&foreign, NewProxy::default()));
    assert!(said.contains("/O=Else/CN=CA"), "{said}");
}

#[test]
fn an_authority_vouches_within_its_policy_only() {
    let world = World::new();
    let outside = world
        .ca
        .issue(&quick(Issue::user("/O=Other/CN=alice")))
        .unwrap();
    let said = world.refusal(&outside);
    assert!(
        said.contains("may not vouch for /O=Other/CN=alice"),
        "{said}"
    );
    assert!(
        world
            .refusal(&proxy(&outside, NewProxy::default()))
            .contains("may not vouch")
    );
    let policy = world
        .ca
        .certificates()
        .join(format!("{}.signing_policy", world.ca.hash()));
    fs::remove_file(&policy).unwrap();
    let said = world.refusal(&world.alice);
    assert!(
        said.contains("no signing policy") && said.contains(".signing_policy"),
        "{said}"
    );
}

#[test] //= GRIDFTP-9
fn proxy_of_revoked_owner_is_refused() {
    let world = World::new();
    let proxy = proxy(&world.alice, NewProxy::default());
    assert!(
        world.meet(&proxy, Expect::Anyone, Delegate::No).is_ok(),
        "no list, no revocation"
    );
    let pem = world.alice.leaf().unwrap().to_pem().unwrap();
    world.ca.renew_list_for(DAY).unwrap();
    assert!(
        world.meet(&proxy, Expect::Anyone, Delegate::No).is_ok(),
        "an empty list"
    );
    assert_eq!(world.ca.revoke(&pem).unwrap(), "/O=Lab/CN=alice");
    for credential in [&world.alice, &proxy] {
        let said = world.refusal(credential);
        assert!(
            said.contains("was revoked at 20") && said.contains(".r0"),
            "{said}"
        );
    }
    let bob = world.ca.issue(&quick(Issue::user("bob"))).unwrap();
    assert!(world.meet(&bob, Expect::Anyone, Delegate::No).is_ok());
    world
        .ca
        .revoke(&bob.leaf().unwrap().to_pem().unwrap())
        .unwrap();
    assert!(
        world.refusal(&world.alice).contains("revoked"),
        "the list keeps what it had"
    );
}

#[test]
fn intermediate_authority_needs_policies_and_lists() {
    let world = World::new();
    let sub = world
        .ca
        .below(&world.dir.path().join("sub"), "/O=Lab/OU=Sub/CN=Sub CA");
    let carol = sub.issue(&quick(Issue::user("carol"))).unwrap();
    let judge = |shown: &[X509]| {
        let judged = world.authorities.judge(shown, SystemTime::now());
        judged.map_err(|error| error.to_string())
    };
    let said = judge(carol.chain()).unwrap_err();
    assert!(said.contains("has no such authority"), "{said}");
    for file in fs::read_dir(sub.certificates()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), world.ca.certificates().join(file.file_name())).unwrap();
    }
    assert_eq!(
        judge(carol.chain()).unwrap().subject(),
        "/O=Lab/OU=Sub/CN=carol"
    );
    // Shown by the peer, and not in the directory: then its policy is missing.
    let sub_cert = X509::from_pem(&fs::read(world.dir.path().join("sub/ca.pem")).unwrap()).unwrap();
    let shown = [carol.chain(), std::slice::from_ref(&sub_cert)].concat();
    fs::remove_file(world.ca.certificates().join(format!("{}.0", sub.hash()))).unwrap();
    assert_eq!(judge(&shown).unwrap().subject(), "/O=Lab/OU=Sub/CN=carol");
    let policy = world
        .ca
        .certificates()
        .join(format!("{}.signing_policy", sub.hash()));
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, text.replace("/O=Lab/OU=Sub/*", "/O=Else/*")).unwrap();
    let said = judge(&shown).unwrap_err();
    assert!(said.contains("Sub CA may not vouch for"), "{said}");
    fs::write(&policy, text).unwrap();
    world.ca.revoke(&sub_cert.to_pem().unwrap()).unwrap();
    let said = judge(&shown).unwrap_err();
    assert!(
        said.contains("/O=Lab/OU=Sub/CN=Sub CA was revoked"),
        "{said}"
    );
}

#[test]
fn globus_dcsc_credential_works() {
    // `-data-cred auto`: its own issuer, signed with MD5, sent as certificate, key and certificate again.
    let key = keys::rsa(2048).unwrap();
    let name = crate::lab::name("/C=US/CN=Globus DCSC Cert").unwrap();
    let mut cert = openssl::x509::X509Builder::new().unwrap();
    cert.set_version(2).unwrap();
    cert.set_subject_name(&name).unwrap();
    cert.set_issuer_name(&name).unwrap();
    cert.set_pubkey(&key).unwrap();
    cert.set_not_before(WORLD.alice.leaf().unwrap().not_before())
        .unwrap();
    cert.set_not_after(WORLD.alice.leaf().unwrap().not_after())
        .unwrap();
    cert.sign(&key, openssl::hash::MessageDigest::md5())
        .unwrap();
    let cert = cert.build().to_pem().unwrap();
    let pem = [cert.clone(), key.private_key_to_pem_pkcs8().unwrap(), cert].concat();
    let credential = Credential::from_pem(&pem).unwrap();
    let authorities = WORLD.authorities.and_these(&pem).unwrap();
    let begun = Channel::initiate(&credential, &authorities, Expect::Myself, Delegate::No);
    let (mut client, token) = begun.unwrap();
    let mut server = Channel::accept(&credential, &authorities).unwrap();
    run(&mut client, token, &mut server).unwrap();
    assert_eq!(
        server.peer().unwrap().subject(),
        "/C=US/CN=Globus DCSC Cert"
    );
    assert!(server.peer().unwrap() == client.peer().unwrap());
}

#[test]
fn expired_revocation_list_is_refused() {
    let world = World::new();
    world.ca.renew_list_for(Duration::from_secs(3600)).unwrap();
    let later = SystemTime::now() + Duration::from_secs(7200);
    let error = world
        .authorities
        .judge(world.alice.chain(), later)
        .unwrap_err();
    assert!(matches!(error, Error::StaleList { .. }), "{error}");
    assert!(error.to_string().contains("out of date since"), "{error}");
}

#[test]
fn revocation_list_of_other_signer_is_refused() {
    let (world, other) = (World::new(), World::new());
    other.ca.renew_list_for(DAY).unwrap();
    let name = format!("{}.r0", world.ca.hash());
    fs::copy(
        other.ca.certificates().join(&name),
        world.ca.certificates().join(&name),
    )
    .unwrap();
    assert!(world.refusal(&world.alice).contains("not signed by"));
}

#[test]
fn initiator_accepts_expected_peer_only() {
    let meet = |expect| WORLD.meet(&WORLD.alice, expect, Delegate::No);
    for good in [
        Expect::Host("fermi.lab".into()),
        Expect::Host("FERMI.lab.".into()),
        Expect::Host("127.0.0.1".into()),
        Expect::Subject("/O=Lab/CN=fermi.lab".into()),
    ] {
        assert!(meet(good.clone()).is_ok(), "{good:?}");
    }
    let said = meet(Expect::Host("dirac.lab".into()))
        .unwrap_err()
        .to_string();
    assert_eq!(
        said,
        "the peer's certificate is for fermi.lab, 127.0.0.1, not for dirac.lab (/O=Lab/CN=fermi.lab)"
    );
    let said = meet(Expect::Subject("/O=Lab/CN=x".into()))
        .unwrap_err()
        .to_string();
    assert_eq!(said, "the peer is /O=Lab/CN=fermi.lab, not /O=Lab/CN=x");
    assert!(meet(Expect::Myself).is_err());
    assert!(
        WORLD
            .meet(&WORLD.host, Expect::Myself, Delegate::No)
            .is_ok()
    );
}

#[test]
fn old_host_certificate_matches_common_name() {
    let world = World::new();
    for (cn, host, is_good) in [
        ("host/dirac.lab", "dirac.lab", true),
        ("ftp/dirac.lab", "dirac.lab", true),
        ("dirac.lab", "other.lab", false),
    ] {
        let credential = world.ca.issue(&quick(Issue::user(cn))).unwrap();
        assert_eq!(
            is_for_host(credential.leaf().unwrap(), host),
            is_good,
            "{cn}"
        );
    }
}

#[test]
fn nothing_a_peer_sends_first_does_harm() {
    let (_, hello) = WORLD.initiate(&WORLD.alice, Expect::Anyone, Delegate::No);
    for bad in [
        &b""[..],
        b"\0",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x16, 3, 1, 0xff, 0xff],
        &[0x80; 3000],
    ] {
        let mut server = WORLD.accept();
        match server.step(bad) {
            Ok(step) => assert!(!step.done && step.token.is_none(), "{bad:?}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    for cut in 0..hello.len() {
        let step = WORLD.accept().step(&hello[..cut]).unwrap();
        assert!(step.token.is_none() && !step.done);
    }
    let mut server = WORLD.accept();
    assert!(server.step(&vec![0x16; TOKEN_BYTES_MAX + 1]).is_err());
    assert!(server.step(&hello).is_err(), "broken stays broken");
}

#[test]
fn endless_handshake_is_bounded() {
    let mut server = WORLD.accept();
    // A record that says it is large, and then bytes that never complete a message.
    let piece = [
        &[0x16, 3, 1, 0x3f, 0xff, 1, 0xff, 0xff, 0xff][..],
        &[0; 0x3ffb],
    ]
    .concat();
    let refused = (0..100).any(|_| server.step(&piece).is_err());
    assert!(refused);
}

#[test]
fn a_flag_that_is_none_is_refused() {
    for (bytes, is_good) in [
        (&b"0"[..], true),
        (b"X", false),
        (b"00", false),
        (b"\0", false),
    ] {
        let (mut client, token) = WORLD.initiate(&WORLD.alice, Expect::Anyone, Delegate::No);
        let mut server = WORLD.accept();
        let token = client
            .step(&server.step(&token).unwrap().token.unwrap())
            .unwrap()
            .token;
        server.step(&token.unwrap()).unwrap();
        client.say(bytes).unwrap();
        assert_eq!(
            server.step(&client.outgoing()).is_ok(),
            is_good,
            "{bytes:?}"
        );
    }
}

/// Brings both to where the server waits for the delegated certificate; returns it.
fn until_the_proxy() -> (Channel, Channel, Vec<u8>) {
    let (mut client, mut token) = WORLD.initiate(&WORLD.alice, Expect::Anyone, Delegate::Limited);
    let mut server = WORLD.accept();
    loop {
        let reply = server.step(&token).unwrap().token.unwrap();
        if matches!(server.phase, ChannelPhase::Proxy(_)) {
            return (client, server, reply);
        }
        token = client.step(&reply).unwrap().token.unwrap();
    }
}

#[test]
fn unrequested_certificate_is_no_delegation() {
    let own = WORLD.alice.leaf().unwrap().to_der().unwrap();
    let other = proxy(&WORLD.alice, NewProxy::default());
    let other = other.leaf().unwrap().to_der().unwrap();
    for (bad, said) in [
        (&own[..], "not a proxy for the key"),
        (&other, "not a proxy for the key"),
        (b"0\x03abc", "not a certificate"),
        (&[0; 10], "not a certificate"),
    ] {
        let (mut client, mut server, _) = until_the_proxy();
        client.say(bad).unwrap();
        let error = server.step(&client.outgoing()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert!(server.delegated().is_none());
    }
}

/// Brings both to where the client waits for the server's request.
fn until_the_request() -> (Channel, Channel) {
    let (mut client, mut token) = WORLD.initiate(&WORLD.alice, Expect::Anyone, Delegate::Limited);
    let mut server = WORLD.accept();
    while !matches!(client.phase, ChannelPhase::Request) {
        let reply = server.step(&token).unwrap().token.unwrap();
        token = client.step(&reply).unwrap().token.unwrap();
    }
    (client, server)
}

#[test]
fn malformed_request_is_not_signed() {
    let good = request(&keys::elliptic().unwrap()).unwrap();
    let weak = request(&keys::rsa(1024).unwrap()).unwrap();
    let mut stolen = good.clone();
    let last = stolen.len() - 1;
    stolen[last] ^= 1;
    let endless = vec![0x30; REQUEST_BYTES_MAX + 1];
    for (bytes, said) in [
        (&good, None),
        (&b"nonsense".to_vec(), Some("not a certificate request")),
        (&weak, Some("1024 bits")),
        (&stolen, Some("not signed with its own key")),
        (&endless, Some("more than")),
    ] {
        let (mut client, mut server) = until_the_request();
        server.say(bytes).unwrap();
        let error = client
            .step(&server.outgoing())
            .err()
            .map(|error| error.to_string());
        match (error, said) {
            (None, None) => {}
            (Some(error), Some(said)) => assert!(error.contains(said), "{said}: {error}"),
            (error, said) => panic!("{said:?}: {error:?}"),
        }
    }
}

#[test]
fn no_secret_is_shown() {
    let shown = format!("{:?} {:?}", WORLD.alice, WORLD.accept());
    assert!(
        shown.contains("/O=Lab/CN=alice") && !shown.contains("PRIVATE"),
        "{shown}"
    );
}

#[test]
fn self_signed_certificate_counts_if_handed_over() {
    // Like DCSC's automatic credential: no authority vouches for it, only the session that brought
    // it.
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::init(
        dir.path(),
        "/C=US/CN=Globus DCSC Cert",
        DAY,
        KeyKind::Elliptic,
    )
    .unwrap();
    let pem = [
        fs::read(dir.path().join("ca.pem")).unwrap(),
        fs::read(dir.path().join("ca.key")).unwrap(),
    ]
    .concat();
    let credential = Credential::from_pem(&pem).unwrap();
    let judge =
        |authorities: &Authorities| authorities.judge(credential.chain(), SystemTime::now());
    assert!(judge(&WORLD.authorities).is_err());
    let with = WORLD.authorities.and_these(&pem).unwrap();
    assert_eq!(judge(&with).unwrap().subject(), ca.subject());
    assert!(with.judge(WORLD.alice.chain(), SystemTime::now()).is_ok());
}

#[test]
fn more_certificates_than_anybody_needs_are_refused() {
    let many = vec![WORLD.alice.chain()[0].clone(); 40];
    assert!(matches!(
        WORLD.authorities.judge(&many, SystemTime::now()),
        Err(Error::BadChain { .. })
    ));
    assert!(WORLD.authorities.judge(&[], SystemTime::now()).is_err());
    assert!(WORLD.dir.path().exists());
}

const DAY: Duration = Duration::from_secs(86_400);
