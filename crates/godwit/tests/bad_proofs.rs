//! Refusals of a node to clients with missing or wrong proofs. The clients check nothing, so the node has to. Each
//! refusal has its own words, names a date if there is one, and is logged with the file. No log has a secret, and no
//! answer a path of the node.

#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    Node, account, godwit,
    lab::{DAY, Lab, authority, quick, url},
    noise,
};
use godwit_core::Block;
use godwit_store::{Remote, RemoteOptions, Store, TrustOptions, Write as Upload, channel::Cancel};
use godwit_trust::{
    Authorities, Channel, Context, Credential, Delegate, Expect, KeyKind, NewProxy,
    lab::{Issue, write_proxy},
};
use godwit_wire::base64;
use openssl::{
    pkey::PKey,
    ssl::{ErrorCode, Ssl, SslContext, SslMethod, SslStream, SslVerifyMode},
    x509::X509,
};
use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::Stdio,
    time::{Duration, Instant, SystemTime},
};

/// A refusal, and the proof that causes it.
struct Case {
    name: &'static str,
    shown: Vec<u8>,
    words: Vec<String>,
    /// Words that only the log has.
    file: String,
}

#[test]
fn wrong_proofs_have_own_messages() {
    let lab = Lab::new();
    let cases = cases(&lab);
    let node = lab.node("host");
    let place = lab.scratch.path().display().to_string();
    let mut told: Vec<String> = Vec::new();
    for case in &cases {
        let reply = Conversation::with(&node).show(Some(&case.shown));
        assert!(reply.starts_with("535 "), "{}: {reply}", case.name);
        for word in &case.words {
            assert!(
                reply.contains(word.as_str()),
                "{}: wanted {word:?} in {reply}",
                case.name
            );
        }
        assert!(!reply.contains(&place), "a path of the node in {reply}");
        // Each case has its own sentence.
        assert!(!told.contains(&reply), "{}: {reply}", case.name);
        let log = log(&node);
        let last = log
            .lines()
            .rfind(|line| line.contains("authentication failed"));
        for word in case.words.iter().chain([&case.file]) {
            assert!(
                last.is_some_and(|line| line.contains(word.as_str())),
                "{}: {log}",
                case.name
            );
        }
        told.push(reply);
    }
    let reply = Conversation::with(&node).show(None);
    assert!(
        reply.starts_with("535 ") && reply.contains("certificate"),
        "{reply}"
    );

    // A valid proof is still accepted.
    let alice = fs::read(lab.path("alice")).unwrap();
    assert_eq!(Conversation::with(&node).show(Some(&alice)), "proved");
    for case in &cases {
        assert_no_secret(&log(&node), &case.shown);
    }
    assert_no_secret(&log(&node), &alice);
    assert_no_secret(&log(&node), &fs::read(lab.path("host.key")).unwrap());
}

fn cases(lab: &Lab) -> Vec<Case> {
    let now = SystemTime::now();
    let year = ", at 20";
    let issue = |issue: Issue| lab.ca.issue(&quick(issue)).unwrap();
    let expired = issue(Issue {
        not_before: now - DAY * 2,
        not_after: now - Duration::from_secs(3 * 3600 + 60),
        ..Issue::user("old")
    });
    let early = issue(Issue {
        not_before: now + DAY,
        ..Issue::user("early")
    });
    let revoked = issue(Issue::user("revoked"));
    lab.ca.revoke(&revoked.to_pem().unwrap()).unwrap();
    let list = lab.ca.list_file().display().to_string();
    let other = authority(&lab.path("other"), "/O=Other/CN=CA");
    let stranger = other.issue(&quick(Issue::user("eve"))).unwrap();
    let impostor = authority(&lab.path("impostor"), "/O=Lab/CN=Lab CA");
    let forged = impostor.issue(&quick(Issue::user("alice"))).unwrap();
    let outside = issue(Issue::user("/O=Elsewhere/CN=alice"));

    let alice = lab.user("alice");
    let proxy = |of: &Credential, wanted: NewProxy| {
        let key = KeyKind::Elliptic;
        of.proxy(&NewProxy { key, ..wanted }).unwrap()
    };
    let twice = proxy(&proxy(&alice, NewProxy::default()), NewProxy::default());
    let mut long = proxy(&alice, NewProxy::default());
    for _ in 0..32 {
        long = proxy(&long, NewProxy::default());
    }
    let limited = proxy(
        &expired_soon(lab, 2),
        NewProxy {
            limited: true,
            ..NewProxy::default()
        },
    );
    until_expired(&limited);

    let case = |name, credential: &Credential, words: &[&str]| Case {
        name,
        shown: credential.to_pem().unwrap(),
        words: words.iter().map(|&word| word.to_owned()).collect(),
        file: String::new(),
    };
    let wanted = format!("{}.0", other.hash());
    let impostor_file = format!("{}/{}.0", lab.ca.certificates().display(), lab.ca.hash());
    let policy = format!("{}.signing_policy", lab.ca.hash());
    let mut cases = vec![
        case(
            "expired",
            &expired,
            &["the certificate /O=Lab/CN=old expired 3 hours ago", year],
        ),
        case(
            "not yet valid",
            &early,
            &["/O=Lab/CN=early is not valid before 20", "from now"],
        ),
        case(
            "revoked",
            &revoked,
            &["/O=Lab/CN=revoked was revoked at 20"],
        ),
        case(
            "unknown authority",
            &stranger,
            &["/O=Other/CN=CA", "no such authority", &wanted],
        ),
        case(
            "forged",
            &forged,
            &["another key than that of /O=Lab/CN=Lab CA"],
        ),
        case(
            "outside of the policy",
            &outside,
            &["may not vouch for /O=Elsewhere"],
        ),
        case("expired proxy", &limited, &["/CN=", "expired", year]),
        case(
            "too long",
            &long,
            &["certificates are more than anybody needs"],
        ),
        case(
            "broken",
            &twice,
            &["the certificate that signed this proxy is not among those shown"],
        ),
        case(
            "no owner",
            &twice,
            &["the certificate that signed this proxy is not among those shown"],
        ),
    ];
    for (name, left_out) in [("broken", 1), ("no owner", 2)] {
        let case = cases.iter_mut().find(|case| case.name == name).unwrap();
        case.shown = without(&case.shown, left_out);
    }
    for (name, file) in [
        ("revoked", list),
        ("forged", impostor_file),
        ("outside of the policy", policy),
    ] {
        let case = cases.iter_mut().find(|case| case.name == name).unwrap();
        case.file = file;
    }
    cases
}

/// Alice, for a moment.
fn expired_soon(lab: &Lab, seconds: u64) -> Credential {
    let soon = SystemTime::now() + Duration::from_secs(seconds);
    let short = Issue {
        not_after: soon,
        ..Issue::user("short")
    };
    lab.ca.issue(&quick(short)).unwrap()
}

/// The test needs a later date.
fn until_expired(credential: &Credential) {
    while credential.check_dates(SystemTime::now()).is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns a credential without the certificate of that number.
fn without(pem: &[u8], left_out: usize) -> Vec<u8> {
    let key = PKey::private_key_from_pem(pem).unwrap();
    let mut all = key.private_key_to_pem_pkcs8().unwrap();
    for (nth, certificate) in X509::stack_from_pem(pem).unwrap().iter().enumerate() {
        if nth != left_out {
            all.extend(certificate.to_pem().unwrap());
        }
    }
    all
}

#[test]
fn malformed_tokens_have_own_messages() {
    let lab = Lab::new();
    let node = lab.node("host");
    let large = "A".repeat(60_000); // as long as a line may be, nearly
    let huge = large.repeat(7);
    let cut = base64::encode(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    for (lines, code, words) in [
        (&["ADAT AAAA"][..], "503", "AUTH GSSAPI first"),
        (&["AUTH GSSAPI", "ADAT !!!"], "501", ""),
        (
            &["AUTH GSSAPI", "ADAT R0VUIC8gSFRUUC8xLjENCg0K"],
            "535",
            "broke the security dialogue",
        ),
        (
            &["AUTH GSSAPI", &format!("ADAT {large}")],
            "535",
            "broke the security dialogue",
        ),
        (
            &["AUTH GSSAPI", &format!("ADAT {large}{large}")],
            "500",
            "too long",
        ),
        (&["AUTH GSSAPI", &format!("ADAT {huge}")], "500", "too long"),
        (
            &["AUTH GSSAPI", &format!("ADAT {cut}")],
            "535",
            "That token is not whole.",
        ),
        (&["AUTH KERBEROS_V4"], "504", "AUTH GSSAPI and TLS are"),
        (&["ENC AAAA"], "503", ""),
    ] {
        let mut conversation = Conversation::with(&node);
        let (mut reply, before) = (String::new(), log(&node).len());
        for line in lines {
            reply = conversation.ask(line);
        }
        assert!(reply.starts_with(code), "{}: {reply}", &lines[0]);
        assert!(reply.contains(words), "{}: {reply}", &lines[0]);
        let logged = log(&node).split_off(before);
        let line = logged
            .lines()
            .find(|line| line.contains("authentication failed"));
        assert_eq!(line.is_some(), lines.len() > 1, "{reply}{logged}");
        if let Some(line) = line {
            assert!(line.contains("peer=") && line.contains(words), "{line}");
            assert!(line.len() < 1000, "{line}");
        }
    }
    let alice = fs::read(lab.path("alice")).unwrap();
    assert_eq!(Conversation::with(&node).show(Some(&alice)), "proved");
}

#[test]
fn endless_proof_is_hung_up_on() {
    let lab = Lab::new();
    let node = lab.node("host");
    let mut conversation = Conversation::with(&node);
    let mut replies = Vec::new();
    for _ in 0..10 {
        conversation.ask("AUTH GSSAPI");
        replies.push(conversation.ask("ADAT !!!"));
    }
    assert!(replies[3].starts_with("501"), "{replies:?}");
    assert_eq!(replies[9], "", "{replies:?}");
    let logged = log(&node).matches("authentication failed").count();
    assert_eq!(logged, 5);
}

#[test]
fn replayed_message_ends_session() {
    let lab = Lab::new();
    let node = lab.node("host");
    let alice = Credential::from_file(&lab.path("alice")).unwrap();
    let authorities = Authorities::in_dir(&lab.ca.certificates()).unwrap();
    for tamper in [false, true] {
        let mut conversation = Conversation::with(&node);
        let begun = Channel::initiate(&alice, &authorities, Expect::Anyone, Delegate::No);
        let (mut channel, mut token) = begun.unwrap();
        assert!(conversation.ask("AUTH GSSAPI").starts_with("334"));
        loop {
            let reply = conversation.ask(&format!("ADAT {}", base64::encode(&token)));
            if reply.starts_with("235") {
                break;
            }
            let came = base64::decode(reply.strip_prefix("335 ADAT=").unwrap().as_bytes());
            token = channel.step(&came.unwrap()).unwrap().token.unwrap();
        }
        let wrapped = channel.wrap(b"USER :globus-mapping:\r\n").unwrap();
        let mut line = format!("ENC {}", base64::encode(&wrapped));
        let reply = conversation.ask(&line);
        assert!(reply.starts_with("63"), "{reply}");
        if tamper {
            let mut wrapped = channel.wrap(b"PASS x\r\n").unwrap();
            *wrapped.last_mut().unwrap() ^= 1;
            line = format!("ENC {}", base64::encode(&wrapped));
        }
        let reply = conversation.ask(&line);
        assert!(!reply.starts_with("2"), "{reply}");
        assert_eq!(conversation.hear(), "", "it hung up after {reply}");
    }
    let log = log(&node);
    assert!(log.contains("broke the security dialogue"), "{log}");
}

#[test]
fn limited_proxy_can_be_refused() {
    let lab = Lab::new();
    let limited = NewProxy {
        key: KeyKind::Elliptic,
        limited: true,
        ..NewProxy::default()
    };
    let limited = lab.user("alice").proxy(&limited).unwrap().to_pem().unwrap();
    let alice = fs::read(lab.path("alice")).unwrap();
    fs::write(lab.path("node.toml"), "[trust]\nlimited_proxies = false\n").unwrap();
    let config = lab.text("node.toml");
    let strict = lab.node_at(&lab.path("export"), "host", &["--config", &config]);
    let reply = Conversation::with(&strict).show(Some(&limited));
    let words = "The proxy of /O=Lab/CN=alice is limited, and this node takes only full ones";
    assert!(
        reply.starts_with("535 ") && reply.contains(words),
        "{reply}"
    );
    assert!(log(&strict).contains(words), "{}", log(&strict));
    assert_eq!(Conversation::with(&strict).show(Some(&alice)), "proved");
    assert_eq!(
        Conversation::with(&lab.node("host")).show(Some(&limited)),
        "proved"
    );
}

#[test]
fn stalled_handshake_is_hung_up_on() {
    let lab = Lab::new();
    fs::write(lab.path("node.toml"), "[limits]\nlogin_seconds = 1\n").unwrap();
    let config = lab.text("node.toml");
    let node = lab.node_at(&lab.path("export"), "host", &["--config", &config]);
    let mut conversation = Conversation::with(&node);
    let began = Instant::now();
    let alice = fs::read(lab.path("alice")).unwrap();
    let mut tls = client(Some(&alice));
    assert!(conversation.ask("AUTH GSSAPI").starts_with("334"));
    let reply = conversation.ask(&adat(&mut tls));
    assert!(reply.starts_with("335"), "{reply}");
    // The answer has no other word.
    let reply = conversation.hear();
    assert!(reply.starts_with("421 "), "{reply}");
    let words = "The proof of who you are did not come to its end within 1 s";
    assert!(reply.contains(words), "{reply}");
    assert!(log(&node).contains(words), "{}", log(&node));
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(conversation.hear(), "", "it hung up");
    assert_eq!(Conversation::with(&node).show(Some(&alice)), "proved");
}

#[test]
fn expired_proxy_ends_no_transfer() {
    let lab = Lab::new();
    lab.map(&format!("\"/O=Lab/CN=short\" {}\n", account()));
    let export = lab.path("export");
    let mut node = lab.node_at(&export, "host", &[]);
    let whole = noise(24 << 20, 3);
    fs::write(export.join("f"), &whole).unwrap();

    for server_comes_back in [false, true] {
        let short = expired_soon(&lab, 6);
        write_proxy(&short, &lab.path("short")).unwrap();
        let mut command = godwit();
        command
            .args(["cp", "--retries", "3", &url(&node, "f"), "-"])
            .env("X509_USER_PROXY", lab.path("short"))
            .env("X509_CERT_DIR", lab.ca.certificates())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut cp = command.spawn().unwrap();
        let mut out = cp.stdout.take().unwrap();
        // The transfer stalls until the test reads: the pipe and the sockets are full.
        let mut came = vec![0; 1 << 20];
        out.read_exact(&mut came).unwrap();
        until_expired(&short);
        if server_comes_back {
            let port = node.port;
            node.kill();
            node = lab.node_on(&export, port);
        }
        out.read_to_end(&mut came).unwrap();
        let done = cp.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        if !server_comes_back {
            assert!(done.status.success() && came == whole, "{said}");
            continue;
        }
        assert_eq!(done.status.code(), Some(13), "{said}");
        assert!(came.len() < whole.len() && whole.starts_with(&came));
        for words in [
            "our certificate /O=Lab/CN=short expired",
            ", at 20",
            &lab.text("short"),
            "hint: renew it (a proxy: godwit proxy init)",
        ] {
            assert!(said.contains(words), "wanted {words:?} in {said}");
        }
    }
}

#[test]
fn expired_own_proxy_fails_early() {
    let lab = Lab::new();
    lab.map(&format!("\"/O=Lab/CN=short\" {}\n", account()));
    let node = lab.node("host");
    let short = expired_soon(&lab, 4);
    let options = RemoteOptions {
        trust: TrustOptions {
            credential: Some(short.clone()),
            authorities: Some(Authorities::in_dir(&lab.ca.certificates()).unwrap()),
            ..TrustOptions::default()
        },
        ..RemoteOptions::new(Cancel::new().unwrap())
    };
    let at = url(&node, "").parse().unwrap();
    let remote = Remote::open(&at, &options).unwrap();
    remote.mkdir(Path::new("d")).unwrap();
    until_expired(&short);
    // A proxy that was accepted stays accepted.
    remote.mkdir(Path::new("e")).unwrap();
    let began = Instant::now();
    let write = Upload {
        size: Some(9 << 20),
        streams: 4,
        ..Upload::default()
    };
    let sink = remote.write(Path::new("f"), &write).unwrap();
    let error = sink.put(Block::at(0, &noise(1 << 20, 1))).unwrap_err();
    assert_eq!(error.exit_code(), 13, "{error}");
    let told = error.to_string();
    assert!(
        told.starts_with("localhost:") && told.contains("our certificate /O=Lab/CN=short expired"),
        "{told}"
    );
    assert!(error.hint().unwrap().contains("renew"));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn unprovable_data_connection_is_explained() {
    let lab = Lab::new();
    lab.map(&format!("\"/O=Lab/CN=short\" {}\n", account()));
    let node = lab.node("host");
    let short = expired_soon(&lab, 4);
    let authorities = Authorities::in_dir(&lab.ca.certificates()).unwrap();
    let mut protected = Protected::with(&node, &short, &authorities);
    assert!(protected.ask("USER :globus-mapping:").starts_with("331"));
    assert!(protected.ask("PASS x").starts_with("230"));
    assert!(protected.ask("PASV").starts_with("227"));
    until_expired(&short);
    let began = Instant::now();
    // The client never connects.
    let reply = protected.ask("STOR f");
    assert!(reply.starts_with('5'), "{reply}");
    for words in [
        "/O=Lab/CN=short",
        "expired",
        "if you delegated it, renew yours",
    ] {
        assert!(reply.contains(words), "wanted {words:?} in {reply}");
    }
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// A client that proves itself and delegates, and checks no date.
struct Protected(Conversation, Channel);

impl Protected {
    fn with(node: &Node, who: &Credential, authorities: &Authorities) -> Self {
        let mut conversation = Conversation::with(node);
        let begun = Channel::initiate(who, authorities, Expect::Anyone, Delegate::Limited);
        let (mut channel, mut token) = begun.unwrap();
        assert!(conversation.ask("AUTH GSSAPI").starts_with("334"));
        loop {
            let reply = conversation.ask(&format!("ADAT {}", base64::encode(&token)));
            if reply.starts_with("235") {
                return Self(conversation, channel);
            }
            let came = base64::decode(
                reply
                    .trim_end()
                    .strip_prefix("335 ADAT=")
                    .unwrap()
                    .as_bytes(),
            );
            token = channel.step(&came.unwrap()).unwrap().token.unwrap();
        }
    }

    fn ask(&mut self, line: &str) -> String {
        let wrapped = self.1.wrap(format!("{line}\r\n").as_bytes()).unwrap();
        let reply = self.0.ask(&format!("ENC {}", base64::encode(&wrapped)));
        let mut clear = Vec::new();
        for line in reply.lines() {
            let came = base64::decode(&line.as_bytes()[4..]).unwrap();
            clear.extend(self.1.unwrap(&came).unwrap());
        }
        String::from_utf8(clear).unwrap()
    }
}

/// A client that speaks lines and TLS, and trusts every server.
struct Conversation(BufReader<TcpStream>);

impl Conversation {
    fn with(node: &Node) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", node.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut conversation = Self(BufReader::new(stream));
        assert!(conversation.hear().starts_with("220"));
        conversation
    }

    fn ask(&mut self, line: &str) -> String {
        // The node may hang up while we still speak.
        let _ = self.0.get_mut().write_all(format!("{line}\r\n").as_bytes());
        self.hear()
    }

    /// Returns a whole reply; nothing if there is none any more.
    fn hear(&mut self) -> String {
        let mut reply = String::new();
        loop {
            let mut line = String::new();
            if !matches!(self.0.read_line(&mut line), Ok(1..)) {
                return reply;
            }
            reply.push_str(&line);
            if line.as_bytes().get(3) == Some(&b' ') {
                return reply;
            }
        }
    }

    /// Shows a certificate and returns what is said to it: `proved`, or the refusal.
    fn show(&mut self, pem: Option<&[u8]>) -> String {
        let mut tls = client(pem);
        let reply = self.ask("AUTH GSSAPI");
        assert!(reply.starts_with("334"), "{reply}");
        loop {
            let reply = self.ask(&adat(&mut tls));
            let Some(token) = reply.strip_prefix("335 ADAT=") else {
                return reply;
            };
            let token = base64::decode(token.trim_end().as_bytes()).unwrap();
            if tls.ssl().is_init_finished() {
                // A message behind the handshake: the node accepted the proof.
                return "proved".into();
            }
            tls.get_mut().incoming.extend(token);
        }
    }
}

/// Goes on with a handshake; returns the line that carries what is to be said.
fn adat(tls: &mut SslStream<Pipe>) -> String {
    if let Err(error) = tls.do_handshake() {
        assert_eq!(error.code(), ErrorCode::WANT_READ, "{error}");
    }
    format!(
        "ADAT {}",
        base64::encode(&std::mem::take(&mut tls.get_mut().outgoing))
    )
}

fn client(pem: Option<&[u8]>) -> SslStream<Pipe> {
    let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
    context.set_verify(SslVerifyMode::NONE);
    if let Some(pem) = pem {
        let mut chain = X509::stack_from_pem(pem).unwrap().into_iter();
        context.set_certificate(&chain.next().unwrap()).unwrap();
        let key = PKey::private_key_from_pem(pem).unwrap();
        context.set_private_key(&key).unwrap();
        chain.for_each(|issuer| context.add_extra_chain_cert(issuer).unwrap());
    }
    let mut ssl = Ssl::new(&context.build()).unwrap();
    ssl.set_connect_state();
    SslStream::new(ssl, Pipe::default()).unwrap()
}

#[derive(Default)]
struct Pipe {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = buffer.len().min(self.incoming.len());
        buffer[..count].copy_from_slice(&self.incoming[..count]);
        self.incoming.drain(..count);
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log(node: &Node) -> String {
    fs::read_to_string(node.export.with_extension("log")).unwrap()
}

/// Not a line of a private key.
#[track_caller]
fn assert_no_secret(log: &str, pem: &[u8]) {
    assert!(!log.contains("PRIVATE KEY"));
    let text = String::from_utf8_lossy(pem);
    let key = text.split("-----").find(|part| part.len() > 40).unwrap();
    let secret = text.split("PRIVATE KEY-----").nth(1).unwrap_or(key);
    for line in secret.lines().filter(|line| line.len() > 30) {
        assert!(!log.contains(line), "{line}");
    }
}
