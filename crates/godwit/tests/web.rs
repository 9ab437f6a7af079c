//! Files on foreign web servers are read, resumed and verified, and never written.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Machine, Said, Scratch, assert_same, godwit, have, lasting_port, noise, ours_within};
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A foreign web server.
struct Server(Child, u16);

impl Server {
    fn start(mut command: Command, port: u16) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Self(command.spawn().unwrap(), port);
        common::wait_until("the server listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }

    /// nginx, with these lines in its `server`.
    fn nginx(scratch: &Scratch, lines: &str) -> Option<Self> {
        if !have("nginx") {
            return None;
        }
        let (port, at) = (lasting_port(), scratch.path().display());
        let ssl = if lines.contains("ssl_certificate") {
            " ssl"
        } else {
            ""
        };
        let config = format!(
            "daemon off; pid {at}/nginx.pid; error_log {at}/nginx.log; worker_processes 1;\n\
             events {{ }}\n\
             http {{ access_log off; client_body_temp_path {at}/t; proxy_temp_path {at}/t; fastcgi_temp_path {at}/t;\n\
             uwsgi_temp_path {at}/t; scgi_temp_path {at}/t;\n\
             server {{ listen 127.0.0.1:{port}{ssl}; root {at}/www; {lines} }} }}\n"
        );
        fs::write(scratch.join("nginx.conf"), config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(scratch.join("nginx.conf"));
        Some(Self::start(command, port))
    }

    fn python(scratch: &Scratch) -> Option<Self> {
        if !have("python3") {
            return None;
        }
        let port = lasting_port();
        let mut command = Command::new("python3");
        command.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]);
        command.arg(scratch.join("www")).arg(port.to_string());
        Some(Self::start(command, port))
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.0.wait();
    }
}

fn run(scratch: &Scratch, arguments: &[&str]) -> Said {
    let mut command = godwit();
    command.current_dir(scratch.path());
    Said::of(command.args(arguments).stdin(Stdio::null()))
}

/// Puts a large and a small file where the server finds them.
fn www() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("www/d/large file", 5_000_000);
    scratch.file("www/d/small", 1000);
    fs::write(scratch.join("www/empty"), "").unwrap();
    scratch
}

#[track_caller]
fn must_be_read(scratch: &Scratch, server: &Server) {
    for name in ["d/large file", "d/small", "empty"] {
        let url = server.url(&name.replace(' ', "%20"));
        run(scratch, &["cp", &url, "got"]).ok();
        assert_same(&scratch.join("www").join(name), &scratch.join("got"));
    }
    let bytes = fs::read(scratch.join("www/d/large file")).unwrap();
    let large = server.url("d/large%20file");
    let part = run(
        scratch,
        &["cat", "--offset", "1000000", "--length", "70000", &large],
    )
    .ok();
    assert!(
        part.stdout == bytes[1_000_000..1_070_000],
        "the part differs"
    );
    let told = run(scratch, &["stat", "--json", &large]).ok();
    assert!(
        String::from_utf8_lossy(&told.stdout).contains("5000000"),
        "{told}"
    );
    let sum = run(scratch, &["sum", "--algorithm", "sha256", &large]).ok();
    let ours = run(
        scratch,
        &["sum", "--algorithm", "sha256", "www/d/large file"],
    )
    .ok();
    assert_eq!(sum.stdout[..64], ours.stdout[..64]);
    let missing = run(scratch, &["cp", &server.url("nothing"), "none"]);
    assert_eq!(missing.status, Some(4), "{missing}");
}

#[test]
fn web_server_with_ranges_is_read() {
    let scratch = www();
    let Some(server) = Server::nginx(&scratch, "") else {
        return;
    };
    must_be_read(&scratch, &server);
}

#[test]
fn web_server_without_ranges_is_read() {
    let scratch = www();
    let Some(server) = Server::nginx(&scratch, "max_ranges 0;") else {
        return;
    };
    must_be_read(&scratch, &server);
}

#[test]
fn web_server_of_python_is_read() {
    let scratch = www();
    let Some(server) = Server::python(&scratch) else {
        return;
    };
    must_be_read(&scratch, &server);
}

#[test]
fn web_server_is_read_only() {
    let scratch = www();
    let Some(server) = Server::nginx(&scratch, "autoindex on;") else {
        return;
    };
    let url = server.url("d");
    for (arguments, words) in [
        (vec!["ls", &url], "listing a directory on 127.0.0.1"),
        (
            vec!["cp", "-r", &url, "none"],
            "listing a directory on 127.0.0.1",
        ),
        (vec!["cp", &url, "none"], "it is a directory"),
        (
            vec!["cp", "www/d/small", &server.url("new")],
            "writing on 127.0.0.1",
        ),
        (vec!["rm", &server.url("d/small")], "removing on 127.0.0.1"),
    ] {
        let said = run(&scratch, &arguments);
        assert!(matches!(said.status, Some(1 | 2)), "{arguments:?}: {said}");
        assert!(said.stderr.contains(words), "{arguments:?}: {said}");
    }
    assert!(!scratch.join("www/new").exists());
}

#[test]
fn redirect_of_web_server_is_followed() {
    let scratch = www();
    let lines = "location /old { return 302 /d/small?by=us; } location /ring { return 302 /ring; }";
    let Some(server) = Server::nginx(&scratch, lines) else {
        return;
    };
    run(&scratch, &["cp", &server.url("old"), "got"]).ok();
    assert_same(&scratch.join("www/d/small"), &scratch.join("got"));
    let ring = run(
        &scratch,
        &["cp", "--retries", "0", &server.url("ring"), "none"],
    );
    assert!(ring.stderr.contains("redirects for ever"), "{ring}");
}

#[test]
fn digest_of_web_server_is_compared() {
    let scratch = www();
    let sum = |name: &str| {
        let script = format!("openssl dgst -sha256 -binary '{name}' | base64 -w0");
        let said = common::run(
            10,
            "sh",
            ["-c", &format!("cd {}; {script}", scratch.path().display())],
        );
        String::from_utf8(said.stdout).unwrap()
    };
    let (small, large) = (sum("www/d/small"), sum("www/d/large file"));
    let lines = format!(
        "location /d/small {{ add_header Digest 'SHA-256={small}'; }}\n\
         location '/d/large file' {{ add_header Repr-Digest 'sha-256=:{large}:'; }}\n\
         location /wrong/ {{ alias {}/www/d/; add_header Digest 'SHA-256={small}'; add_header X 1; }}\n\
         location /false/ {{ alias {}/www/d/; add_header Digest 'SHA-256={large}'; }}",
        scratch.path().display(),
        scratch.path().display(),
    );
    let Some(server) = Server::nginx(&scratch, &lines) else {
        return;
    };
    for name in ["d/small", "d/large%20file"] {
        let said = run(&scratch, &["cp", "-v", &server.url(name), "got"]).ok();
        let told = String::from_utf8_lossy(&said.stdout).into_owned() + &said.stderr;
        assert!(told.contains("verified sha256"), "{name}: {said}");
    }
    for name in ["wrong/large%20file", "false/small"] {
        let said = run(&scratch, &["cp", &server.url(name), "none"]);
        assert_eq!(said.status, Some(12), "{name}: {said}");
        assert!(!scratch.join("none").exists());
    }
}

#[test]
fn broken_download_is_resumed() {
    let scratch = Scratch::new();
    let bytes = noise(4_000_000, 7);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = bytes.clone();
    let server = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for connection in listener.incoming() {
            let (mut peer, mut head) = (connection.unwrap(), Vec::new());
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && peer.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let from = head.split("range: bytes=").nth(1);
            let from: usize =
                from.map_or(0, |from| from.split('-').next().unwrap().parse().unwrap());
            let status = match head.contains("range:") {
                true => format!("206 Partial\r\nContent-Range: bytes {from}-3999999/4000000"),
                false => "200 OK".into(),
            };
            let length = served.len() - from;
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            let _ = peer.write_all(answer.as_bytes());
            if head.starts_with("get") {
                asked.push(from);
                let end = if asked.len() == 1 {
                    2_500_000
                } else {
                    served.len()
                };
                let _ = peer.write_all(&served[from..end]);
                if asked.len() == 2 {
                    return asked;
                }
            }
        }
        asked
    });
    let url = format!("http://127.0.0.1:{port}/f");
    let said = run(&scratch, &["cp", "--json", &url, "got"]).ok();
    assert!(fs::read(scratch.join("got")).unwrap() == bytes, "{said}");
    let asked = server.join().unwrap();
    assert!(asked[0] == 0 && asked[1] >= 2_000_000, "{asked:?}");
}

/// Makes a certificate of 127.0.0.1 that vouches for itself.
fn certificate(scratch: &Scratch) -> bool {
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=127.0.0.1 \
                  -addext subjectAltName=IP:127.0.0.1";
    let said = common::run(
        20,
        "sh",
        [
            "-c",
            &format!("cd {} && {script}", scratch.path().display()),
        ],
    );
    said.status == Some(0)
}

#[test]
fn vouched_https_is_read() {
    let scratch = www();
    if !certificate(&scratch) {
        return common::skip("openssl makes no certificate");
    }
    let at = scratch.path().display().to_string();
    let lines = format!("ssl_certificate {at}/cert.pem; ssl_certificate_key {at}/key.pem;");
    let Some(server) = Server::nginx(&scratch, &lines) else {
        return;
    };
    let url = server.url("d/large%20file").replace("http:", "https:");
    let mut command = godwit();
    command.env("SSL_CERT_FILE", scratch.join("cert.pem"));
    ours_within(
        60,
        command,
        ["cp", &url, scratch.join("got").to_str().unwrap()],
    )
    .ok();
    assert_same(&scratch.join("www/d/large file"), &scratch.join("got"));
    let said = run(&scratch, &["cp", &url, "none"]);
    assert_eq!(said.status, Some(13), "{said}");
    assert!(!said.stderr.contains("has not joined"), "{said}");
    assert!(!Path::new(&scratch.join("none")).exists());
}

#[test]
fn password_is_not_sent_in_clear() {
    let scratch = www();
    let Some(server) = Server::nginx(&scratch, "") else {
        return;
    };
    let url = server.url("d/small").replace("//", "//me:secret@");
    let said = run(&scratch, &["cp", &url, "none"]);
    assert_eq!(said.status, Some(2), "{said}");
    assert!(
        said.stderr.contains("https://") && !said.stderr.contains("secret"),
        "{said}"
    );
}

#[test]
fn unjoined_node_is_named() {
    let scratch = Scratch::new();
    let lab = Machine::lab(&scratch);
    for scheme in ["https", "godwit"] {
        let said = run(
            &scratch,
            &["cp", &format!("{scheme}://{}/f", lab.at), "none"],
        );
        assert_eq!(said.status, Some(13), "{said}");
        for words in [
            "is a node that this machine has not joined",
            "godwit join INVITE",
        ] {
            assert!(said.stderr.contains(words), "{said}");
        }
    }
}

/// Serves one file of 4 MB: of each GET so many bytes, then nothing for so long, then the end of the connection.
fn halting(parts: &'static [usize], silence: Duration) -> (u16, std::sync::mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, gets) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut nth = 0;
        for mut peer in listener.incoming().map_while(Result::ok) {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && peer.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let from = head.split("range: bytes=").nth(1);
            let from: usize =
                from.map_or(0, |from| from.split('-').next().unwrap().parse().unwrap());
            let answer = format!(
                "HTTP/1.1 206 Partial\r\nContent-Range: bytes {from}-3999999/4000000\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n",
                4_000_000 - from
            );
            let _ = peer.write_all(answer.as_bytes());
            if head.starts_with("get") {
                let part = parts.get(nth).copied().unwrap_or(0);
                let _ = peer.write_all(&vec![7; part]);
                std::thread::sleep(silence);
                nth += 1;
                let _ = asked.send(());
            }
        }
    });
    (port, gets)
}

#[test]
fn retries_said_are_retries_done() {
    let scratch = Scratch::new();
    let (port, gets) = halting(&[2_000_000], Duration::ZERO);
    let url = format!("http://127.0.0.1:{port}/f");
    let said = run(&scratch, &["cp", "--json", "--retries", "2", &url, "got"]);
    assert_eq!(said.status, Some(5), "{said}");
    let told: Vec<(u64, u64)> = String::from_utf8_lossy(&said.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|event| event["event"] == "retry")
        .map(|event| {
            (
                event["try"].as_u64().unwrap(),
                event["tries"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [(1, 2), (2, 2)], "{said}");
    assert_eq!(gets.try_iter().count(), 3, "{said}");
}

#[test]
fn copy_that_stands_says_for_whom() {
    let scratch = Scratch::new();
    let (port, _gets) = halting(&[], Duration::from_secs(5));
    let url = format!("http://127.0.0.1:{port}/f");
    let said = run(&scratch, &["cp", "--retries", "0", &url, "got"]);
    let waits = format!("waiting for 127.0.0.1:{port}");
    assert!(said.stderr.contains(&waits), "{said}");
}
