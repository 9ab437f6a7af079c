//! A line between a client and a server of this machine: it may change what is sent, or swallow it.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

/// Which way bytes are sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// Sees what is sent over one connection, numbered from 0; changes it, or says no to have it swallowed.
type Change = Arc<dyn Fn(usize, Way, &mut Vec<u8>) -> bool + Send + Sync>;

/// Stands until the test program ends; returns its port.
pub fn to(
    server: u16,
    change: impl Fn(usize, Way, &mut Vec<u8>) -> bool + Send + Sync + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let change: Change = Arc::new(change);
    thread::spawn(move || {
        for (nth, client) in listener.incoming().enumerate() {
            let (client, change) = (client.unwrap(), change.clone());
            // Closed, as the server's own port would be.
            let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                continue;
            };
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let there = change.clone();
            thread::spawn(move || pump(client, server, &|b| there(nth, Way::ToServer, b)));
            thread::spawn(move || pump(back.0, back.1, &|b| change(nth, Way::ToClient, b)));
        }
    });
    port
}

/// The control connection of FTP, whose data connections are led over lines of their own.
pub fn to_ftp(
    server: u16,
    data: impl Fn(usize, Way, &mut Vec<u8>) -> bool + Send + Sync + 'static,
) -> u16 {
    let data: Change = Arc::new(data);
    to(server, move |_, way, bytes| {
        let said = String::from_utf8_lossy(bytes).into_owned();
        let told = said.split_once("(|||").filter(|_| way == Way::ToClient);
        if let Some((_, rest)) = told {
            let port = rest.split('|').next().unwrap();
            let data = data.clone();
            let line = to(port.parse().unwrap(), move |nth, way, bytes| {
                data(nth, way, bytes)
            });
            let (was, is) = (format!("(|||{port}|"), format!("(|||{line}|"));
            *bytes = said.replace(&was, &is).into_bytes();
        }
        true
    })
}

fn pump(mut from: TcpStream, mut to: TcpStream, change: &dyn Fn(&mut Vec<u8>) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(came @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..came].to_vec();
        if change(&mut bytes) && to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// A line whose connections can vanish without a word: what they are sent is swallowed from then on.
pub struct Vanishing {
    pub port: u16,
    /// How many connections there were, and how many of those have vanished.
    counts: Arc<(AtomicUsize, AtomicUsize)>,
}

impl Vanishing {
    pub fn to(server: u16) -> Self {
        let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let seen = counts.clone();
        let port = to(server, move |nth, _, _| {
            seen.0.fetch_max(nth + 1, Relaxed);
            nth >= seen.1.load(Relaxed)
        });
        Self { port, counts }
    }

    /// Returns how many connections are no more.
    pub fn vanish(&self) -> usize {
        let all = self.counts.0.load(Relaxed);
        all - self.counts.1.swap(all, Relaxed)
    }
}
