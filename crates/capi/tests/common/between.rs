//! Proxy between a client and an FTP server: it forwards both ways, and can stop in the middle of a
//! file.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

pub struct Between {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    /// Port of the server.
    server: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many bytes of files went from the server to the client.
    passed: u64,
    /// Bytes that pass before it stops.
    until: Option<u64>,
    /// Bytes that pass in each transfer before it stops once.
    each: Option<u64>,
    is_held: bool,
    is_over: bool,
}

impl Between {
    /// Listens as a proxy of that server.
    pub fn before(server: u16) -> Self {
        Self::on(0, server)
    }

    pub fn on(port: u16, server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let ours = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let shared = Arc::clone(&ours);
                if shared.state().is_over {
                    return;
                }
                thread::spawn(move || shared.converse(client));
            }
        });
        Self { port, shared }
    }

    pub fn url(&self, name: &str) -> String {
        format!("ftp://127.0.0.1:{}/{name}", self.port)
    }

    /// Returns how many bytes of files have come by.
    pub fn passed(&self) -> u64 {
        self.shared.state().passed
    }

    /// Stops when so many more bytes of files have come by.
    pub fn stop_after(&self, bytes: u64) {
        let mut state = self.shared.state();
        state.until = Some(state.passed + bytes);
    }

    /// Stops once in each transfer that begins from now on.
    pub fn stop_in_each(&self, bytes: u64) {
        self.shared.state().each = Some(bytes);
    }

    /// Returns when it has stopped; false: `is_over` was first.
    pub fn stopped(&self, mut is_over: impl FnMut() -> bool) -> bool {
        let mut state = self.shared.state();
        while !state.is_held {
            if is_over() {
                return false;
            }
            let soon = Duration::from_millis(20);
            state = self.shared.changed.wait_timeout(state, soon).unwrap().0;
        }
        true
    }

    pub fn goes_on(&self) {
        let mut state = self.shared.state();
        (state.until, state.is_held) = (None, false);
        self.shared.changed.notify_all();
    }

    /// Stops listening.
    pub fn ends(&self) {
        self.shared.state().is_over = true;
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
            thread::yield_now();
        }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.goes_on();
        if !self.shared.state().is_over {
            self.ends();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Passes on what is said, and has data connections go by here.
    fn converse(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server)) else {
            return;
        };
        let (mut up, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let ours = Arc::clone(self);
        thread::spawn(move || {
            let mut said = vec![0; 4096];
            while let Ok(came) = up.read(&mut said) {
                if came == 0 {
                    break;
                }
                ours.hear(&said[..came]);
                if to_server.write_all(&said[..came]).is_err() {
                    break;
                }
            }
            let _ = to_server.shutdown(Shutdown::Write);
        });
        let mut replies = BufReader::new(server);
        let mut line = Vec::new();
        while replies.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let said = self.led_by_here(&line);
            if (&client).write_all(&said).is_err() {
                break;
            }
            line.clear();
        }
        let _ = client.shutdown(Shutdown::Both);
    }

    /// Notes that a transfer is asked for: its data may come by a connection that is there already.
    fn hear(&self, said: &[u8]) {
        let text = String::from_utf8_lossy(said);
        let mut state = self.state();
        if let Some(bytes) = state.each.filter(|_| text.contains("RETR ")) {
            state.until = Some(state.passed + bytes);
        }
    }

    /// Replaces the port of a data connection by one of ours.
    fn led_by_here(self: &Arc<Self>, line: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(line);
        if let Some((before, rest)) = text.split_once("(|||").filter(|_| text.starts_with("229")) {
            let (port, after) = rest.split_once('|').unwrap();
            let ours = self.data(port.parse().unwrap());
            return format!("{before}(|||{ours}|{after}").into_bytes();
        }
        let address = "127,0,0,1,";
        if let Some((before, rest)) = text.split_once(address) {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',');
            let (port, after) = rest.split_at(end.unwrap_or(rest.len()));
            let (high, low) = port.split_once(',').unwrap();
            let theirs = high.parse::<u16>().unwrap() * 256 + low.parse::<u16>().unwrap();
            let ours = self.data(theirs);
            let said = format!("{before}{address}{},{}{after}", ours >> 8, ours & 255);
            return said.into_bytes();
        }
        line.to_vec()
    }

    fn data(self: &Arc<Self>, server: u16) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::clone(self);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
                    return;
                };
                let (mut up, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut up, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.pass(server, client));
            }
        });
        port
    }

    /// Passes on bytes of files, as long as it has not stopped.
    fn pass(&self, mut server: TcpStream, mut client: TcpStream) {
        let mut piece = vec![0; 16 << 10];
        while let Ok(came) = server.read(&mut piece) {
            if came == 0 || client.write_all(&piece[..came]).is_err() {
                break;
            }
            let mut state = self.state();
            state.passed += came as u64;
            while state.until.is_some_and(|until| state.passed >= until) {
                state.is_held = true;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap();
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }
}
