//! kill -9 of our client while it uploads to a GridFTP server of others: what the server told by
//! 111 markers outlives the client, and is not sent again.

#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Kind, Peer, Scratch, assert_same, godwit, noise, ours_within};
use godwit_core::Extents;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// A proxy through which all connections pass. It lets a number of bytes pass, and
/// no more until its dam is opened; and it hears what the server says has landed.
struct Proxy {
    port: u16,
    water: Arc<Water>,
}

struct Water {
    server_port: u16,
    passed_bytes: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    dam_bytes: Option<u64>,
    /// Connections made before are of a client that is dead.
    run: u32,
    landed: Extents,
}

impl Proxy {
    fn before(server_port: u16, dam_bytes: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let water = Arc::new(Water {
            server_port,
            passed_bytes: AtomicU64::new(0),
            state: Mutex::new(State {
                dam_bytes: Some(dam_bytes),
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        let of_all = water.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let water = of_all.clone();
                thread::spawn(move || water.converse(client.unwrap()));
            }
        });
        Proxy { port, water }
    }

    /// Waits until the server has said that something landed.
    fn marker(&self) {
        let state = self.water.state.lock().unwrap();
        let patience = Duration::from_secs(40);
        let waited = self
            .water
            .changed
            .wait_timeout_while(state, patience, |state| state.landed.is_empty());
        assert!(!waited.unwrap().1.timed_out(), "no marker came");
    }

    /// Cuts all connections and opens the dam; later bytes are counted from 0.
    fn open(&self) {
        let mut state = self.water.state.lock().unwrap();
        state.run += 1;
        state.dam_bytes = None;
        self.water.passed_bytes.store(0, SeqCst);
        self.water.changed.notify_all();
    }

    fn landed(&self) -> Extents {
        self.water.state.lock().unwrap().landed.clone()
    }
}

impl Water {
    fn converse(self: Arc<Self>, client: TcpStream) {
        let server = TcpStream::connect(("127.0.0.1", self.server_port)).unwrap();
        let (mut commands, mut to_server) =
            (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut commands, &mut to_server);
            let _ = to_server.shutdown(Shutdown::Write);
        });
        let mut client = client;
        for line in BufReader::new(server).split(b'\n') {
            let Ok(line) = line else { break };
            let line = self.reply(String::from_utf8(line).unwrap());
            if client.write_all(line.as_bytes()).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }

    /// Replaces addresses by ours, and hears markers.
    fn reply(self: &Arc<Self>, line: String) -> String {
        if let Some(ranges) = line.strip_prefix("111 Range Marker ") {
            let ranges: Extents = ranges.trim().parse().unwrap();
            let mut state = self.state.lock().unwrap();
            state.landed = state.landed.or(&ranges);
            self.changed.notify_all();
        }
        let numbers = |text: &str| -> Vec<u16> {
            let parts = text.split(|c: char| !c.is_ascii_digit());
            parts.filter_map(|part| part.parse().ok()).collect()
        };
        if line.starts_with("229 ") {
            let port = self.door(numbers(&line)[1]);
            return format!("229 Entering Passive Mode (|||{port}|)\r\n");
        }
        if line.starts_with("227 ") {
            let told = numbers(&line);
            let port = self.door(told[5] << 8 | told[6]);
            let (high, low) = (port >> 8, port & 255);
            return format!("227 Entering Passive Mode (127,0,0,1,{high},{low})\r\n");
        }
        line + "\n"
    }

    /// Returns a port that leads to a data port of the server.
    fn door(self: &Arc<Self>, to: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let water = self.clone();
        thread::spawn(move || {
            let run = water.state.lock().unwrap().run;
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)));
                let Ok(server) = server else { return };
                let water = water.clone();
                thread::spawn(move || water.pour(client, server, run));
            }
        });
        port
    }

    fn pour(&self, mut client: TcpStream, mut server: TcpStream, run: u32) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(len @ 1..) = client.read(&mut buffer) {
            if !self.passes(len as u64, run) || server.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }

    /// Waits at the dam; false: the client is dead.
    fn passes(&self, len: u64, run: u32) -> bool {
        let mut state = self.state.lock().unwrap();
        while state.run == run
            && let Some(dam) = state.dam_bytes
            && self.passed_bytes.load(SeqCst) + len > dam
        {
            state = self.changed.wait(state).unwrap();
        }
        self.passed_bytes.fetch_add(len, SeqCst);
        state.run == run
    }
}

/// An upload whose client was killed once the server had told what landed.
struct Killed {
    peer: Peer,
    proxy: Proxy,
    home: PathBuf,
    source: PathBuf,
    url: String,
    /// Last: a peer is stopped by what lies there.
    _scratch: Scratch,
}

impl Killed {
    fn new() -> Option<Killed> {
        let scratch = Scratch::new();
        let peer = Peer::start(Kind::Gct, scratch.path())?;
        let source = scratch.file("source", SIZE);
        let proxy = Proxy::before(peer.port, DAM);
        let url = format!("ftp://127.0.0.1:{}{}", proxy.port, peer.name("target"));
        let home = scratch.dir("home");
        let mut client = client(&home)
            .args(["cp", source.to_str().unwrap(), &url])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        proxy.marker();
        // A marker that was received is not recorded yet; a client that dies in between has lost it.
        let until = Instant::now() + Duration::from_secs(10);
        while notes(&home) == 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(notes(&home) > 0, "nothing was noted");
        client.kill().unwrap();
        client.wait().unwrap();
        proxy.open();
        assert!(!peer.r#where.join("target").exists(), "half a file");
        Some(Killed {
            _scratch: scratch,
            peer,
            proxy,
            home,
            source,
            url,
        })
    }

    /// Runs the same command again; returns how many bytes went over data connections,
    /// and what was said at the end.
    fn again(&self) -> (u64, Value) {
        let said = ours_within(
            120,
            client(&self.home),
            ["cp", "--json", self.source.to_str().unwrap(), &self.url],
        );
        let said = String::from_utf8(said.ok().stdout).unwrap();
        let last = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_same(&self.source, &self.peer.r#where.join("target"));
        (self.proxy.water.passed_bytes.load(SeqCst), last)
    }
}

fn client(home: &Path) -> Command {
    let mut command = godwit();
    command.env("HOME", home);
    command
}

/// Returns how many uploads are noted.
fn notes(home: &Path) -> usize {
    let notes = fs::read_dir(home.join(".local/state/godwit/uploads"));
    let names = notes
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    names
        .filter(|path| path.extension().is_some_and(|e| e == "landed"))
        .count()
}

#[test] //= GRIDFTP-43
fn killed_client_resumes_foreign_upload() {
    let Some(killed) = Killed::new() else { return };
    let landed = killed.proxy.landed().len_bytes();
    assert!(landed > DAM / 2, "only {landed} bytes landed");
    let (sent, last) = killed.again();
    // The headers of blocks pass, too.
    let most = (SIZE as u64 - landed) * 101 / 100 + 4096;
    assert!(sent <= most, "{sent} bytes sent, {landed} had landed");
    // GCT computes ADLER32 of the whole, so what was not sent again is read again here.
    assert_eq!(last["resumed_bytes"], landed, "{last}");
    assert_eq!(last["reread_source_bytes"], landed, "{last}");
    assert_eq!(last["reread_target_bytes"], 0, "{last}");
    assert_eq!(last["reread_bytes"], landed, "{last}");
    assert_eq!(notes(&killed.home), 0, "a note of what is whole");
}

#[test]
fn changed_source_restarts_upload() {
    let Some(killed) = Killed::new() else { return };
    fs::write(&killed.source, noise(SIZE, 5)).unwrap();
    let (sent, _) = killed.again();
    assert!(sent >= SIZE as u64, "only {sent} bytes sent");
}

const SIZE: usize = 40 << 20;
const DAM: u64 = 20 << 20;
