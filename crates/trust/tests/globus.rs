//! Our security contexts with those of the Grid Community Toolkit: its server, its client, its proxies.
#![allow(clippy::unwrap_used)] // it is all test

use godwit_trust::{
    Authorities, Channel, Context, Credential, Delegate, Expect, KeyKind, NewProxy,
    lab::{self, Ca, Issue},
};
use openssl::base64;
use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

#[test] //= GRIDFTP-9
fn globus_server_accepts_us_and_delegation() {
    if !have("globus-gridftp-server") {
        return;
    }
    let lab = Lab::new();
    let alice = &lab.alice;
    let full = alice.proxy(&NewProxy::default()).unwrap();
    let limited = alice.proxy(&less()).unwrap();
    let deep = full
        .proxy(&NewProxy::default())
        .unwrap()
        .proxy(&less())
        .unwrap();
    let (new, old) = ("TLS1_3_VERSION", "TLS1_2_VERSION");
    for (tls, credential, delegate) in [
        (new, alice, Delegate::No),
        (new, alice, Delegate::Limited),
        (new, &full, Delegate::Full),
        (new, &limited, Delegate::Limited),
        (new, &deep, Delegate::Limited),
        (old, &full, Delegate::No),
        (old, &full, Delegate::Limited),
    ] {
        let what = format!("{tls} {:?} {delegate:?}", credential.identity().chain());
        let mut session = Session::with_its_server(&lab, tls);
        let expect = Expect::Host("localhost".into());
        let reply = session.log_in(credential, &lab.authorities(), expect, delegate);
        assert!(reply.starts_with("235"), "{what}: {reply}");
        let protection = session.channel.as_ref().unwrap().protection();
        assert!(
            protection.starts_with(tls_name(tls)),
            "{what}: {protection}"
        );
        let reply = session.ask("USER :globus-mapping:");
        assert!(reply.starts_with("331"), "{what}: {reply}");
        let reply = session.ask("PASS x");
        assert!(reply.starts_with("230"), "{what}: {reply}");
        let features = session.ask("FEAT");
        assert!(features.contains("\r\n DCAU\r\n"), "{what}: {features}");
        assert!(features.ends_with("211 End.\r\n"), "{what}: {features}");
    }
}

#[test]
fn globus_server_accepts_elliptic_key() {
    if !have("globus-gridftp-server") {
        return;
    }
    let lab = Lab::new();
    let key = KeyKind::Elliptic;
    let proxy = lab
        .alice
        .proxy(&NewProxy {
            key,
            ..NewProxy::default()
        })
        .unwrap();
    let mut session = Session::with_its_server(&lab, "TLS1_3_VERSION");
    let reply = session.log_in(&proxy, &lab.authorities(), Expect::Anyone, Delegate::No);
    assert!(reply.starts_with("235"), "{reply}");
}

#[test]
fn wrong_peers_are_refused_both_ways() {
    if !have("globus-gridftp-server") {
        return;
    }
    let (lab, other) = (Lab::new(), Lab::named("/O=Else/CN=Other CA"));
    let mut session = Session::with_its_server(&lab, "TLS1_3_VERSION");
    let stranger = other.alice.clone();
    let reply = session.log_in(&stranger, &lab.authorities(), Expect::Anyone, Delegate::No);
    assert!(
        reply.starts_with("535") || reply.starts_with("530"),
        "{reply}"
    );
    let mut session = Session::with_its_server(&lab, "TLS1_3_VERSION");
    let error = session
        .try_log_in(
            &lab.alice,
            &lab.authorities(),
            Expect::Host("fermi.lab".into()),
            Delegate::No,
        )
        .unwrap_err();
    assert!(
        error.starts_with("the peer's certificate is for localhost"),
        "{error}"
    );
    let mut session = Session::with_its_server(&lab, "TLS1_3_VERSION");
    let error = session
        .try_log_in(
            &lab.alice,
            &other.authorities(),
            Expect::Anyone,
            Delegate::No,
        )
        .unwrap_err();
    assert!(error.contains("has no such authority"), "{error}");
}

#[test] //= GRIDFTP-9
fn globus_client_accepts_us_and_delegates() {
    if !have("globus-url-copy") {
        return;
    }
    let lab = Lab::new();
    for tls in ["TLS1_2_VERSION", "TLS1_3_VERSION"] {
        let proxy = lab.proxy_file(&NewProxy::default());
        let (peer, delegated, said) = serve_its_client(&lab, &proxy, tls);
        assert_eq!(peer, "/O=Lab/CN=alice", "{tls}");
        assert!(delegated.identity().is_limited());
        assert_eq!(delegated.key_kind(), "RSA 2048");
        assert_eq!(said[0], "USER :globus-mapping:\r\n", "{tls}");
        assert_eq!(said[1], "PASS \r\n", "{tls}");
    }
}

#[test]
fn elliptic_proxy_receives_elliptic_delegation() {
    if !have("globus-url-copy") {
        return;
    }
    let lab = Lab::new();
    let proxy = lab.proxy_file(&NewProxy {
        key: KeyKind::Elliptic,
        ..NewProxy::default()
    });
    let (_, delegated, _) = serve_its_client(&lab, &proxy, "TLS1_3_VERSION");
    assert_eq!(delegated.key_kind(), "EC 256");
}

#[test]
fn proxies_are_interchangeable_with_globus() {
    if !(have("grid-proxy-init") && have("grid-proxy-info") && have("openssl")) {
        return;
    }
    let lab = Lab::new();
    let (cert, key) = lab.pair("user", &lab.alice);
    for (options, is_limited) in [(&["-rfc"][..], false), (&["-rfc", "-limited"], true)] {
        let out = lab.path("theirs");
        lab.run("grid-proxy-init", |c| {
            c.args(["-q", "-bits", "2048"]).args(options);
            c.arg("-cert")
                .arg(&cert)
                .arg("-key")
                .arg(&key)
                .arg("-out")
                .arg(&out)
        });
        let theirs = Credential::from_files(&out, &out).unwrap();
        assert_eq!(theirs.identity().subject(), "/O=Lab/CN=alice");
        assert_eq!(theirs.identity().is_limited(), is_limited);
        meet(&lab, &theirs);
    }
    for wanted in [NewProxy::default(), less()] {
        let ours = lab.proxy_file(&wanted);
        let told = lab.run("grid-proxy-info", |c| c.arg("-file").arg(&ours));
        assert!(told.contains("identity : /O=Lab/CN=alice"), "{told}");
        let kind = if wanted.limited { "limited" } else { "full" };
        assert!(
            told.contains(&format!("RFC 3820 compliant {kind}")) || told.contains("impersonation"),
            "{told}"
        );
        lab.run("openssl", |c| {
            c.args(["verify", "-allow_proxy_certs", "-CApath"])
                .arg(lab.ca.certificates());
            c.arg("-untrusted").arg(&ours).arg(&ours)
        });
    }
}

#[test]
fn old_proxy_is_refused_with_reason() {
    if !have("grid-proxy-init") {
        return;
    }
    let lab = Lab::new();
    let (cert, key) = lab.pair("user", &lab.alice);
    let out = lab.path("old");
    lab.run("grid-proxy-init", |c| {
        c.args(["-q", "-old", "-bits", "2048", "-cert"])
            .arg(&cert)
            .arg("-key")
            .arg(&key)
            .arg("-out")
            .arg(&out)
    });
    let error = Credential::from_files(&out, &out)
        .and_then(|old| try_meet(&lab, &old))
        .unwrap_err();
    assert!(
        error.to_string().contains("proxy of the old kind"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("proxy init"));
}

/// Lets `globus-url-copy` log in to a server of a few lines. Returns its identity, the delegated
/// credential, and the first commands.
fn serve_its_client(lab: &Lab, proxy: &Path, tls: &str) -> (String, Credential, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = lab.command("globus-url-copy");
    client
        .env("X509_USER_PROXY", proxy)
        .env("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", tls);
    client
        .arg(format!("gsiftp://localhost:{port}/x"))
        .arg(format!("file://{}", lab.path("x").display()));
    let client = Owned(
        client
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut session = Session::over(listener.accept().unwrap().0, None);
    session.say("220 ready");
    let mut channel = Channel::accept(&lab.host, &lab.authorities()).unwrap();
    assert_eq!(session.read(), "AUTH GSSAPI\r\n");
    session.say("334 go on");
    loop {
        let line = session.read();
        let token = base64::decode_block(line.strip_prefix("ADAT ").unwrap().trim()).unwrap();
        let step = channel.step(&token).unwrap();
        match (step.done, step.token) {
            (true, None) => break session.say("235 welcome"),
            (_, Some(token)) => session.say(&format!("335 ADAT={}", base64::encode_block(&token))),
            (false, None) => panic!("nothing to answer"),
        }
    }
    let (peer, delegated) = (
        channel.peer().unwrap().to_string(),
        channel.delegated().unwrap().clone(),
    );
    let mut said = Vec::new();
    for reply in ["331 password?\r\n", "230 in\r\n"] {
        let line = session.read();
        let token = base64::decode_block(line.split(' ').nth(1).unwrap().trim()).unwrap();
        said.push(String::from_utf8(channel.unwrap(&token).unwrap()).unwrap());
        let reply = channel.wrap(reply.as_bytes()).unwrap();
        session.say(&format!("632 {}", base64::encode_block(&reply)));
    }
    drop(client);
    (peer, delegated, said)
}

/// A control connection, from either end.
struct Session {
    reader: BufReader<TcpStream>,
    channel: Option<Channel>,
    _server: Option<Owned>,
}

impl Session {
    /// Has its server serve one connection, as inetd would.
    fn with_its_server(lab: &Lab, tls: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (cert, key) = lab.pair("host", &lab.host);
        let accepted = OwnedFd::from(listener.accept().unwrap().0);
        let mut server = lab.command("globus-gridftp-server");
        server.args([
            "-i",
            "-c",
            "/dev/null",
            "-allow-disabled-login",
            "-d",
            "error",
        ]);
        server.arg("-l").arg(lab.path("server.log"));
        server.env("X509_USER_CERT", cert).env("X509_USER_KEY", key);
        server
            .env("GRIDMAP", lab.gridmap())
            .env("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", tls);
        server
            .stdin(accepted)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut session = Self::over(stream, Some(Owned(server.spawn().unwrap())));
        let greeting = session.read();
        assert!(greeting.starts_with("220"), "{greeting}");
        session
    }

    fn over(stream: TcpStream, server: Option<Owned>) -> Self {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self {
            reader: BufReader::new(stream),
            channel: None,
            _server: server,
        }
    }

    fn log_in(
        &mut self,
        who: &Credential,
        authorities: &Authorities,
        expect: Expect,
        delegate: Delegate,
    ) -> String {
        self.try_log_in(who, authorities, expect, delegate).unwrap()
    }

    /// AUTH and ADAT until the server says something final, or we refuse.
    fn try_log_in(
        &mut self,
        who: &Credential,
        authorities: &Authorities,
        expect: Expect,
        delegate: Delegate,
    ) -> Result<String, String> {
        self.say("AUTH GSSAPI");
        assert!(self.read().starts_with("334"));
        let (mut channel, mut token) =
            Channel::initiate(who, authorities, expect, delegate).unwrap();
        loop {
            self.say(&format!("ADAT {}", base64::encode_block(&token)));
            let reply = self.read();
            let Some(answer) = reply.strip_prefix("335 ADAT=") else {
                self.channel = Some(channel);
                return Ok(reply);
            };
            let answer = base64::decode_block(answer.trim()).unwrap();
            token = channel
                .step(&answer)
                .map_err(|error| error.to_string())?
                .token
                .unwrap();
        }
    }

    /// Sends a protected command; returns the lines of its reply.
    fn ask(&mut self, command: &str) -> String {
        let mut channel = self.channel.take().unwrap();
        let token = channel.wrap(format!("{command}\r\n").as_bytes()).unwrap();
        self.say(&format!("ENC {}", base64::encode_block(&token)));
        let mut reply = String::new();
        loop {
            let line = self.read();
            assert!(line.starts_with('6'), "{line}");
            let clear = channel
                .unwrap(&base64::decode_block(line[4..].trim()).unwrap())
                .unwrap();
            reply.push_str(&String::from_utf8(clear).unwrap());
            if line.as_bytes()[3] == b' ' {
                self.channel = Some(channel);
                return reply;
            }
        }
    }

    fn say(&mut self, line: &str) {
        self.reader
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())
            .unwrap();
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line
    }
}

/// Runs our two roles against each other.
fn meet(lab: &Lab, who: &Credential) {
    try_meet(lab, who).unwrap();
}

fn try_meet(lab: &Lab, who: &Credential) -> godwit_trust::Result<()> {
    let authorities = lab.authorities();
    let (mut client, mut token) =
        Channel::initiate(who, &authorities, Expect::Anyone, Delegate::Limited)?;
    let mut server = Channel::accept(&lab.host, &authorities)?;
    loop {
        let answer = server.step(&token)?;
        if answer.done {
            return Ok(());
        }
        token = client.step(&answer.token.unwrap())?.token.unwrap();
    }
}

/// An authority, a person, a host, and the environment in which programs see them.
struct Lab {
    dir: TempDir,
    ca: Ca,
    alice: Credential,
    host: Credential,
}

impl Lab {
    fn new() -> Self {
        Self::named("/O=Lab/CN=Lab CA")
    }

    fn named(subject: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::init(
            &dir.path().join("ca"),
            subject,
            Duration::from_secs(86_400),
            KeyKind::default(),
        )
        .unwrap();
        Self {
            alice: ca.issue(&Issue::user("alice")).unwrap(),
            host: ca.issue(&Issue::host(&["localhost", "127.0.0.1"])).unwrap(),
            dir,
            ca,
        }
    }

    fn authorities(&self) -> Authorities {
        Authorities::in_dir(&self.ca.certificates()).unwrap()
    }

    fn proxy_file(&self, wanted: &NewProxy) -> PathBuf {
        let path = self.path("proxy");
        lab::write_proxy(&self.alice.proxy(wanted).unwrap(), &path).unwrap();
        path
    }

    fn pair(&self, name: &str, credential: &Credential) -> (PathBuf, PathBuf) {
        let (cert, key) = (
            self.path(&format!("{name}cert.pem")),
            self.path(&format!("{name}key.pem")),
        );
        lab::write_pair(credential, &cert, &key).unwrap();
        (cert, key)
    }

    fn gridmap(&self) -> PathBuf {
        let path = self.path("grid-mapfile");
        let is_root = fs::metadata(self.dir.path())
            .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
        let me = env::var("USER")
            .or_else(|_| env::var("LOGNAME"))
            .unwrap_or_default();
        let account = if is_root { "nobody" } else { &me };
        fs::write(&path, format!("\"/O=Lab/CN=alice\" {account}\n")).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.dir.path());
        command.env("PATH", env::var_os("PATH").unwrap());
        command
            .env("X509_CERT_DIR", self.ca.certificates())
            .env("GLOBUS_HOSTNAME", "localhost");
        command.stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, program: &str, more: impl FnOnce(&mut Command) -> &mut Command) -> String {
        let mut command = self.command(program);
        let output = more(&mut command).output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(output.status.success(), "{program}: {told}");
        told
    }
}

/// A child that does not outlive its test.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn less() -> NewProxy {
    NewProxy {
        limited: true,
        ..NewProxy::default()
    }
}

fn tls_name(version: &str) -> &'static str {
    match version {
        "TLS1_2_VERSION" => "TLSv1.2",
        _ => "TLSv1.3",
    }
}

/// Tells whether a program is installed; says that the test is skipped if it is not.
fn have(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut dirs = env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = dirs.any(|dir| dir.join(program).is_file());
    if !found {
        let why = format!("{program} is missing (tests/peers/install)");
        assert!(
            env::var_os("GODWIT_PEERS_REQUIRED").is_none(),
            "must not be skipped here: {why}"
        );
        eprintln!(
            "SKIPPED {}: {why}",
            std::thread::current().name().unwrap_or("a test")
        );
    }
    found
}
