//! Visitors of a door, and servers, that know nothing but bytes under TLS.

use super::{PATIENCE, lab::Lab};
use godwit_trust::{Credential, lab::write_pair};
use openssl::ssl::{
    ShutdownState, Ssl, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslStream,
    SslVerifyMode,
};
use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A connection to a door.
pub struct Raw {
    pub tls: SslStream<TcpStream>,
    /// How the node calls us in its log.
    pub called: String,
}

/// An answer of the door.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Raw {
    /// Returns a client without a name.
    pub fn new(at: SocketAddr) -> Self {
        Self::with(at, &context(None))
    }

    /// Returns a client with a certificate.
    pub fn of(at: SocketAddr, lab: &Lab, credential: &Credential) -> Self {
        Self::with(at, &context(Some((lab, credential))))
    }

    pub fn with(at: SocketAddr, context: &SslContext) -> Self {
        Self::over(TcpStream::connect(at).unwrap(), context)
    }

    pub fn over(stream: TcpStream, context: &SslContext) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let called = stream.local_addr().unwrap().to_string();
        let mut ssl = Ssl::new(context).unwrap();
        ssl.set_hostname("localhost").unwrap();
        let tls = ssl.connect(stream).unwrap();
        Self { tls, called }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.tls.write_all(bytes.as_ref()).unwrap();
    }

    /// A request with a body that is whole.
    pub fn ask(&mut self, begin: &str, body: impl AsRef<[u8]>) -> Answer {
        self.ask_with(begin, "", body)
    }

    /// Sends a request with more headers, each with its line end.
    pub fn ask_with(&mut self, begin: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        let body = body.as_ref();
        let head = format!(
            "{begin} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.send([head.as_bytes(), body].concat());
        self.answer()
    }

    /// A call of ours.
    pub fn call(&mut self, name: &str, body: impl AsRef<[u8]>) -> Answer {
        self.ask(&format!("POST /.godwit/v1/{name}"), body)
    }

    /// Bytes of an upload: which, `0-4/5` or `0-4/*`.
    pub fn put(&mut self, id: &str, path: &str, range: &str, body: impl AsRef<[u8]>) -> Answer {
        let target = format!("PUT /.godwit/v1/uploads/{id}/{path}");
        self.ask_with(&target, &format!("Content-Range: bytes {range}\r\n"), body)
    }

    /// The next answer, to its end.
    pub fn answer(&mut self) -> Answer {
        self.try_answer().expect("an answer comes")
    }

    pub fn try_answer(&mut self) -> io::Result<Answer> {
        let head = self.line_block()?;
        let status = head[9..12].parse().unwrap();
        let lower = head.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1);
        let mut body = Vec::new();
        if let Some(length) = length {
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            body.resize(length, 0);
            self.tls.read_exact(&mut body)?;
        } else if lower.contains("transfer-encoding: chunked") {
            while let len @ 1.. = self.chunk_len()? {
                let begin = body.len();
                body.resize(begin + len, 0);
                self.tls.read_exact(&mut body[begin..])?;
                self.line()?;
            }
            self.line()?;
        }
        Ok(Answer { status, head, body })
    }

    fn chunk_len(&mut self) -> io::Result<usize> {
        let line = self.line()?;
        Ok(usize::from_str_radix(line.trim(), 16).unwrap())
    }

    fn line_block(&mut self) -> io::Result<String> {
        let mut block = String::new();
        loop {
            let line = self.line()?;
            if line == "\r\n" {
                return Ok(block);
            }
            block.push_str(&line);
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            self.tls.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// Reads until the other side ends it, which must be soon.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // Whether it says goodbye is of no matter.
        if let Err(error) = self.tls.read_to_end(&mut rest) {
            assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "it goes on");
        }
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Sends one byte again and again, until the server closes or answers. Returns the answer.
    pub fn drip(&mut self, byte: u8) -> String {
        let pause = Duration::from_millis(50);
        self.tls.get_ref().set_read_timeout(Some(pause)).unwrap();
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "it goes on for ever");
            if self.tls.write_all(&[byte]).is_err() {
                return String::new();
            }
            let mut said = [0; 1024];
            match self.tls.read(&mut said) {
                Ok(len) => return String::from_utf8_lossy(&said[..len]).into_owned(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return String::new(),
            }
        }
    }

    /// Ends the connection; returns how the node calls it in its log.
    pub fn hang_up(self) -> String {
        self.called
    }

    /// Says that no more comes; more can still be heard.
    pub fn end_ours(&mut self) {
        self.tls.set_shutdown(ShutdownState::empty());
        let _ = self.tls.shutdown();
        self.tls.get_ref().shutdown(Shutdown::Write).unwrap();
    }
}

/// Returns the TLS settings of a client that trusts every server.
pub fn context(shown: Option<(&Lab, &Credential)>) -> SslContext {
    let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
    context.set_verify(SslVerifyMode::NONE);
    if let Some((lab, credential)) = shown {
        let name = credential.identity().to_string().replace('/', "_");
        let paths = (
            lab.path(&format!("{name}.pem")),
            lab.path(&format!("{name}.key")),
        );
        write_pair(credential, &paths.0, &paths.1).unwrap();
        show(&mut context, paths);
    }
    context.build()
}

fn show(context: &mut SslContextBuilder, (certificate, key): (PathBuf, PathBuf)) {
    context.set_certificate_chain_file(certificate).unwrap();
    context.set_private_key_file(key, SslFiletype::PEM).unwrap();
}

/// A server whose answers a test makes, on any number of connections.
pub struct Liar {
    pub port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Answers a request, by its target; an error closes the connection.
pub type Lie = dyn Fn(&str, &mut SslStream<TcpStream>) -> io::Result<()> + Send + Sync;

impl Liar {
    pub fn new(
        lab: &Lab,
        lie: impl Fn(&str, &mut SslStream<TcpStream>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let mut context = SslContext::builder(SslMethod::tls_server()).unwrap();
        show(
            &mut context,
            (lab.path("host.pem"), lab.path("hostkey.pem")),
        );
        let (context, lie) = (context.build(), Arc::new(lie));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Relaxed) {
                    return;
                }
                let (stream, ssl) = (stream.unwrap(), Ssl::new(&context).unwrap());
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let lie = Arc::clone(&lie);
                // The client hangs up when it has enough of us.
                thread::spawn(move || converse(ssl.accept(stream).ok()?, &*lie));
            }
        });
        Self {
            port,
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.thread.take().unwrap().join();
    }
}

/// Reads requests with their bodies, and answers each.
fn converse(mut tls: SslStream<TcpStream>, lie: &Lie) -> Option<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tls.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        if let Some(length) = head.split("content-length: ").nth(1) {
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            tls.read_exact(&mut vec![0; length]).ok()?;
        }
        lie(&target, &mut tls).ok()?;
    }
}

/// An answer of ours, in one piece.
pub fn whole(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ngodwit-request: 1\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Returns the head of a chunked answer.
pub fn chunked(kind: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\ngodwit-request: 1\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes()
}

pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}
