//! Shared by tests of the node: a directory, a node that serves it, and a client made of lines and sockets only.
#![allow(dead_code, unreachable_pub, unused_imports, unused_macros)] // not every test uses all of it

pub mod asking;
pub mod faking;
pub mod lab;
pub mod log;
pub mod raw;
#[path = "../../../godwit/tests/common/skip.rs"]
mod skipped;

pub use skipped::skip;

use godwit_node::{Config, Node};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a port that is free now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A directory of its own, which goes with it.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "godwit-node-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A node that serves a directory of its own.
pub struct Served {
    node: Option<Node>,
    pub address: SocketAddr,
    pub scratch: Scratch,
}

impl Served {
    /// Anonymous may write.
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(settings: &[(&'static str, &str)]) -> Self {
        Self::over(Scratch::new(), settings)
    }

    pub fn over(scratch: Scratch, settings: &[(&'static str, &str)]) -> Self {
        Self::configured(scratch, None, settings)
    }

    /// With a configuration file as well.
    pub fn configured(
        scratch: Scratch,
        file: Option<&Path>,
        settings: &[(&'static str, &str)],
    ) -> Self {
        let mut flags = vec![
            (
                "node.export",
                "--export",
                scratch.path().display().to_string(),
            ),
            ("ftp.listen", "--ftp", "127.0.0.1:0".to_owned()),
            ("anonymous.access", "--anonymous", "write".to_owned()),
        ];
        flags.extend(
            settings
                .iter()
                .map(|&(key, value)| (key, "test", value.to_owned())),
        );
        let config = Config::load(file, [], &flags).unwrap();
        let node = Node::start(config).unwrap();
        let address = node.addresses().ftp[0];
        Self {
            node: Some(node),
            address,
            scratch,
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.file(name), bytes).unwrap();
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    pub fn url(&self, name: &str) -> String {
        format!("ftp://{}/{name}", self.address)
    }

    pub fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    /// Logged in, binary.
    pub fn client(&self) -> Client {
        let mut client = Client::new(self.address);
        client.ok("USER anonymous");
        client.ok("PASS me@");
        client.ok("TYPE I");
        client
    }

    /// Logged in, MODE E.
    pub fn extended(&self) -> Client {
        let mut client = self.client();
        client.ok("MODE E");
        client
    }

    pub fn stop(mut self) -> Scratch {
        let node = self.node.take().unwrap();
        node.stopper().drain();
        node.wait();
        std::mem::replace(&mut self.scratch, Scratch(PathBuf::from("/nonexistent")))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stopper().at_once();
            node.wait();
        }
    }
}

/// Lines and sockets.
pub struct Client {
    pub control: BufReader<TcpStream>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let mut client = Self::connect(address);
        let greeting = client.reply();
        assert!(greeting.starts_with("220"), "{greeting}");
        client
    }

    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            control: BufReader::new(stream),
        }
    }

    pub fn send(&mut self, line: &str) {
        self.raw(format!("{line}\r\n").as_bytes());
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.control.get_ref().write_all(bytes).unwrap();
    }

    /// One line without its end; empty at the end of the conversation.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.control.read_until(b'\n', &mut line).unwrap();
        String::from_utf8_lossy(&line)
            .trim_end_matches(['\r', '\n'])
            .to_owned()
    }

    /// A whole reply, lines joined by line feeds.
    pub fn reply(&mut self) -> String {
        let first = self.line();
        if first.as_bytes().get(3) != Some(&b'-') {
            return first;
        }
        let last = format!("{} ", &first[..3]);
        let mut all = first;
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "the reply did not end: {all}");
            all = format!("{all}\n{line}");
            if line.starts_with(&last) {
                return all;
            }
        }
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.reply()
    }

    /// Asks and expects that it is done.
    pub fn ok(&mut self, line: &str) -> String {
        let reply = self.ask(line);
        assert!(reply.starts_with(['2', '3']), "{line}: {reply}");
        reply
    }

    pub fn expect(&mut self, line: &str, code: &str) -> String {
        let reply = self.ask(line);
        assert!(reply.starts_with(code), "{line}: {reply}");
        reply
    }

    /// The next reply that is no marker.
    pub fn last_reply(&mut self) -> (Vec<String>, String) {
        let mut markers = Vec::new();
        loop {
            let reply = self.reply();
            if !reply.starts_with('1') || reply.starts_with("15") || reply.starts_with("125") {
                return (markers, reply);
            }
            markers.push(reply);
        }
    }

    /// Asks again and again how far the transfer is.
    pub fn until_moved(&mut self, bytes: u64) {
        let text = format!(" {bytes} bytes moved");
        self.until(&|told| told.contains(&text));
    }

    /// Asks again and again how far the transfer is, until that is the answer.
    pub fn until(&mut self, is_it: &dyn Fn(&str) -> bool) {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "it never came");
            self.send("STAT");
            let mut told = self.reply();
            while !told.starts_with("213") {
                assert!(told.starts_with('1'), "{told}"); // a marker
                told = self.reply();
            }
            if is_it(&told) {
                return;
            }
        }
    }

    pub fn passive(&mut self) -> SocketAddr {
        let reply = self.ok("PASV");
        commas(&reply)
    }

    pub fn port(&mut self, to: SocketAddr) {
        let [high, low] = to.port().to_be_bytes();
        self.ok(&format!("PORT 127,0,0,1,{high},{low}"));
    }

    /// Retrieves in stream mode.
    pub fn get(&mut self, command: &str) -> Result<Vec<u8>, String> {
        let at = self.passive();
        self.send(command);
        let mut data = data_to(at);
        let began = self.reply();
        if !began.starts_with("150") {
            return Err(began);
        }
        let mut bytes = Vec::new();
        data.read_to_end(&mut bytes).unwrap();
        let end = self.reply();
        if end.starts_with("226") {
            Ok(bytes)
        } else {
            Err(end)
        }
    }

    /// Stores in stream mode.
    pub fn put(&mut self, command: &str, bytes: &[u8]) -> String {
        let at = self.passive();
        self.send(command);
        let mut data = data_to(at);
        let began = self.reply();
        if !began.starts_with("150") {
            return began;
        }
        data.write_all(bytes).unwrap();
        drop(data);
        self.reply()
    }

    /// Begins a transfer on a passive connection, which it returns.
    pub fn begin(&mut self, command: &str) -> TcpStream {
        let at = self.passive();
        self.send(command);
        let data = data_to(at);
        assert!(self.reply().starts_with("150"));
        data
    }

    /// Stores blocks; the last reply must begin with `code`.
    pub fn store_blocks(&mut self, code: &str, command: &str, blocks: &[(u64, &[u8])]) {
        let (_, end) = self.put_blocks(command, blocks);
        assert!(end.starts_with(code), "{end}");
    }

    /// Stores one connection's worth of blocks in extended mode; says the last reply.
    pub fn put_blocks(&mut self, command: &str, blocks: &[(u64, &[u8])]) -> (Vec<String>, String) {
        let at = self.passive();
        self.send(command);
        let mut data = data_to(at);
        let began = self.reply();
        if !began.starts_with("1") {
            return (Vec::new(), began);
        }
        for (offset, bytes) in blocks {
            data.write_all(&block(0, bytes.len() as u64, *offset))
                .unwrap();
            data.write_all(bytes).unwrap();
        }
        data.write_all(&block(0x48, 0, 1)).unwrap();
        self.last_reply()
    }

    /// Tells whether the server has ended the conversation.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.control.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A block header of extended mode.
pub fn block(flags: u8, count: u64, offset: u64) -> Vec<u8> {
    [&[flags][..], &count.to_be_bytes(), &offset.to_be_bytes()].concat()
}

/// Reads blocks of one connection until its end of data.
pub fn read_blocks(data: &mut TcpStream) -> (Vec<(u64, Vec<u8>)>, Option<u64>) {
    let (mut blocks, mut announced) = (Vec::new(), None);
    loop {
        let mut header = [0; 17];
        data.read_exact(&mut header).unwrap();
        let count = u64::from_be_bytes(header[1..9].try_into().unwrap());
        let offset = u64::from_be_bytes(header[9..17].try_into().unwrap());
        if header[0] & 0x40 != 0 {
            announced = Some(offset);
        } else {
            let mut bytes = vec![0; count as usize];
            data.read_exact(&mut bytes).unwrap();
            if count > 0 {
                blocks.push((offset, bytes));
            }
        }
        if header[0] & 0x08 != 0 {
            return (blocks, announced);
        }
    }
}

pub fn data_to(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Connects from an address of our choice, which std cannot.
pub fn bound_to(from: &str, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let from: SocketAddr = from.parse().unwrap();
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &from).unwrap();
    connect(&fd, &to).unwrap();
    fd.into()
}

/// Waits for a connection.
pub fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub fn commas(reply: &str) -> SocketAddr {
    let inside = reply
        .split(['(', ')'])
        .nth(1)
        .unwrap_or_else(|| panic!("no address: {reply}"));
    let n: Vec<u8> = inside.split(',').map(|n| n.parse().unwrap()).collect();
    SocketAddr::from(([n[0], n[1], n[2], n[3]], u16::from_be_bytes([n[4], n[5]])))
}

/// Bytes that no two offsets share for long.
pub fn bytes(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Ends a test if one of these programs is not installed.
macro_rules! needs {
    ($($program:literal),*) => {
        if !($($crate::common::have($program) &&)* true) {
            return;
        }
    };
}
pub(crate) use needs;

/// Tells whether a program is installed; if not, prints that the test is skipped.
pub fn have(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program} >/dev/null")])
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// Runs a program to its end, which must come, and must be good.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

/// Waits until something is so.
pub fn until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "it never came to {what}");
        std::thread::yield_now();
    }
}
