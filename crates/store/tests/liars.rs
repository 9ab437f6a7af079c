//! `Remote` against servers that lie, stall, babble and hang up: small scripted
//! ones, each for one conversation.

#![allow(clippy::unwrap_used)] // it is all test

use godwit_core::{Algorithm, Block, Digest, Extents, Url};
use godwit_store::{BlockWriter, Error, Remote, RemoteOptions, Result, Store, channel::Cancel};
use godwit_wire::transcript::{Spoken, SpokenBy, parse};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::Mutex,
    thread::{self, JoinHandle},
    time::Duration,
};

/// Keeps the bytes that arrive.
#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl BlockWriter for Kept {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.0.lock().unwrap().extend(block.bytes);
        Ok(())
    }
}

/// A server for one client: its reply to each command, and its bytes on data connections.
struct Liar {
    address: String,
    thread: Option<JoinHandle<()>>,
}

/// How long a client waits without progress, and how long a server needs for a piece of work.
const STALL: Duration = Duration::from_millis(700);
const BUSY: Duration = Duration::from_millis(250);

/// A liar's reaction to one command.
enum Does {
    Say(String),
    /// Says 150, sends bytes on the data connection and closes it, and says the rest.
    Send(Vec<u8>, &'static str),
    /// Says 150, takes bytes until there are no more, and says nothing of them.
    TakeInSilence,
    /// Says one after the other, and is busy before each.
    Work(Vec<String>),
    Stall,
    HangUp,
}

impl Liar {
    fn new(answer: impl Fn(&str) -> Does + Send + 'static) -> Self {
        Self::of(1, answer)
    }

    /// Serves that many sessions, one after the other.
    fn of(conversations: usize, answer: impl Fn(&str) -> Does + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let thread = thread::spawn(move || {
            for _ in 0..conversations {
                let (stream, _) = listener.accept().unwrap();
                // The client hangs up when it has enough of us.
                let _ = converse(stream, &answer);
            }
        });
        Self {
            address,
            thread: Some(thread),
        }
    }

    fn open(&self) -> Remote {
        let url: Url = format!("ftp://{}/", self.address).parse().unwrap();
        let options = RemoteOptions {
            stall: STALL,
            ..RemoteOptions::new(Cancel::new().unwrap())
        };
        Remote::open(&url, &options).unwrap()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        self.thread.take().unwrap().join().unwrap();
    }
}

fn converse(mut stream: TcpStream, answer: &dyn Fn(&str) -> Does) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut passive = None;
    let greeting = answer("");
    let mut next = Some(greeting);
    loop {
        match next.take() {
            Some(Does::Say(text)) => stream.write_all(text.as_bytes())?,
            Some(Does::Send(bytes, last)) => {
                let listener: TcpListener = passive.take().unwrap();
                let (mut data, _) = listener.accept()?;
                stream.write_all(b"150 here it comes\r\n")?;
                let _ = data.write_all(&bytes);
                drop(data);
                stream.write_all(last.as_bytes())?;
            }
            Some(Does::TakeInSilence) => {
                let listener: TcpListener = passive.take().unwrap();
                let (mut data, _) = listener.accept()?;
                stream.write_all(b"150 go on\r\n")?;
                std::io::copy(&mut data, &mut std::io::sink())?;
                let _ = stream.read(&mut [0; 64]);
            }
            Some(Does::Work(steps)) => {
                for step in steps {
                    thread::sleep(BUSY);
                    stream.write_all(step.as_bytes())?;
                }
            }
            Some(Does::Stall) => {
                // Until the client has had enough.
                let _ = stream.read(&mut [0; 64]);
            }
            Some(Does::HangUp) => return Ok(()),
            None => {}
        }
        let Some(line) = lines.next() else {
            return Ok(());
        };
        let line = line?;
        if line == "PASV" {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let [high, low] = listener.local_addr()?.port().to_be_bytes();
            passive = Some(listener);
            stream.write_all(format!("227 (127,0,0,1,{high},{low})\r\n").as_bytes())?;
            continue;
        }
        next = Some(answer(&line));
    }
}

/// The part of every conversation that is no lie.
fn civil(line: &str) -> Does {
    let word = line.split(' ').next().unwrap();
    Does::Say(
        match word {
            "" => "220 hello\r\n",
            "USER" => "230 in\r\n",
            "FEAT" => "211-so\r\n SIZE\r\n MDTM\r\n REST STREAM\r\n211 End\r\n",
            "SIZE" => "213 1000\r\n",
            "MDTM" => "213 20200101000000\r\n",
            "PWD" => "257 \"/\"\r\n",
            _ => "200 yes\r\n",
        }
        .to_owned(),
    )
}

fn get(store: &Remote) -> Result<Vec<u8>> {
    let kept = Kept::default();
    store.read(Path::new("f"), &Extents::from(0..1000), 1, &kept)?;
    Ok(kept.0.into_inner().unwrap())
}

#[test]
fn honest_server_is_believed() {
    let liar = Liar::new(|line| match line {
        "RETR f" => Does::Send(vec![7; 1000], "226 done\r\n"),
        line => civil(line),
    });
    assert_eq!(get(&liar.open()).unwrap(), vec![7; 1000]);
}

#[test]
fn file_shorter_than_size_is_error() {
    let liar = Liar::new(|line| match line {
        "RETR f" => Does::Send(vec![7; 400], "226 done\r\n"),
        line => civil(line),
    });
    let error = get(&liar.open()).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

#[test]
fn file_longer_than_size_is_error() {
    let liar = Liar::new(|line| match line {
        "RETR f" => Does::Send(vec![7; 2000], "226 done\r\n"),
        line => civil(line),
    });
    let error = get(&liar.open()).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
}

#[test]
fn disk_failure_of_server_is_quoted() {
    let liar = Liar::new(|line| match line {
        "RETR f" => Does::Send(vec![7; 400], "451 the disk here is broken\r\n"),
        line => civil(line),
    });
    let error = get(&liar.open()).unwrap_err();
    assert!(error.to_string().contains("disk here is broken"), "{error}");
}

#[test]
fn garbage_greeting_is_reported() {
    let liar = Liar::new(|_| Does::Say("SSH-2.0-OpenSSH_9.9\r\n".into()));
    let error = get(&liar.open()).unwrap_err();
    assert!(matches!(error, Error::NotFtp { .. }), "{error}");
    assert!(error.to_string().contains("SSH-2.0"), "{error}");
}

#[test]
fn missing_greeting_times_out() {
    let liar = Liar::new(|_| Does::Stall);
    let error = get(&liar.open()).unwrap_err();
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
}

#[test]
fn hang_up_counts_as_lost() {
    let liar = Liar::new(|line| match line {
        "SIZE f" => Does::HangUp,
        line => civil(line),
    });
    let error = get(&liar.open()).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

#[test]
fn stalled_transfer_is_abandoned() {
    let liar = Liar::new(|line| match line {
        "RETR f" => Does::Stall,
        line => civil(line),
    });
    let error = get(&liar.open()).unwrap_err();
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
}

/// Asks a server for a digest, which it announces by progress lines before the answer.
fn digest(
    features: &'static str,
    on_the_way: impl Fn(u64) -> String + Send + 'static,
) -> Result<Digest> {
    let liar = Liar::new(move |line| match line.split(' ').next().unwrap() {
        "FEAT" => Does::Say(format!("211-so\r\n CKSM MD5:1;\r\n{features}211 End\r\n")),
        "OPTS" => Does::Say("200 so be it\r\n".into()),
        "CKSM" => {
            let mut steps: Vec<String> = (1..=4).map(&on_the_way).collect();
            steps.push("213 0123456789abcdef0123456789abcdef\r\n".into());
            Does::Work(steps)
        }
        _ => civil(line),
    });
    liar.open().digest(Path::new("f"), Algorithm::Md5, None)
}

#[test]
fn digest_with_progress_does_not_time_out() {
    let far = |bytes| {
        format!("113-Status Marker\r\n Timestamp: 1.0\r\n Bytes Processed: {bytes}\r\n113 End.\r\n")
    };
    let grid = " PARALLEL\r\n";
    let told = digest(grid, move |step| far(step << 30));
    assert_eq!(told.unwrap().hex(), "0123456789abcdef0123456789abcdef");
    let error = digest(grid, move |_| far(1 << 30)).unwrap_err();
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
    // Who never says how far it is may still get on.
    assert!(digest("", |_| String::new()).is_ok());
}

#[test]
fn done_returns_at_once_during_upload() {
    let liar = Liar::new(|line| match line {
        line if line.starts_with("STOR ") => Does::TakeInSilence,
        line if line.starts_with("SIZE ") => Does::Say("550 no\r\n".into()),
        line => civil(line),
    });
    let store = liar.open();
    let write = godwit_store::Write::of_size(5);
    let sink = store.write(Path::new("f"), &write).unwrap();
    let bytes = b"hello";
    sink.put(Block { offset: 0, bytes }).unwrap();
    assert_eq!(sink.done(), Extents::from(0..5));
    assert_eq!(sink.done(), Extents::from(0..5), "asked twice");
    let error = sink.settle().unwrap_err();
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
}

#[test]
fn endless_reply_does_not_fill_memory() {
    let liar = Liar::new(|line| match line {
        "FEAT" => Does::Say("211-so\r\n".to_owned() + &" X\r\n".repeat(2_000_000)),
        line => civil(line),
    });
    let error = get(&liar.open()).unwrap_err();
    assert!(matches!(error, Error::PeerMisbehaved { .. }), "{error}");
}

#[test]
fn listing_outside_the_directory_is_refused() {
    for name in ["../x", "/etc/passwd", "a/b"] {
        let line = format!("-rw-r--r-- 1 a b 5 Nov 21 2025 {name}\r\n");
        let liar = Liar::new(move |said| match said {
            "LIST -a" => Does::Send(line.clone().into_bytes(), "226 done\r\n"),
            said => civil(said),
        });
        let mut seen = 0;
        let listed = liar.open().list(Path::new("d"), &mut |_| {
            seen += 1;
            Ok(())
        });
        let error = listed.unwrap_err();
        assert!(matches!(error, Error::PeerMisbehaved { .. }), "{error}");
        assert_eq!(seen, 0);
    }
}

#[test]
fn busy_server_differs_from_broken_one() {
    let liar = Liar::new(|_| Does::Say("421 too many of you\r\n".into()));
    let error = get(&liar.open()).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
}

/// A GridFTP server that cannot reach the client: it waits, or says so.
fn behind_wall(line: &str, in_blocks: impl Fn() -> Does) -> Does {
    thread_local!(static BLOCKS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    let facts = "250-so\r\n Type=file;Size=1000;Modify=20200101000000; /f\r\n250 End\r\n";
    match line {
        "FEAT" => Does::Say("211-so\r\n PARALLEL\r\n MLST\r\n SIZE\r\n211 End\r\n".into()),
        "MODE E" | "MODE S" | "" => {
            BLOCKS.set(line == "MODE E");
            civil(line)
        }
        "RETR /f" if BLOCKS.get() => in_blocks(),
        "RETR /f" => Does::Send(vec![7; 1000], "226 done\r\n"),
        "MLST /f" => Does::Say(facts.into()),
        line => civil(line),
    }
}

#[test]
fn nat_client_falls_back_to_stream_mode() {
    let silent = Liar::of(2, |line| behind_wall(line, || Does::Stall));
    assert_eq!(get(&silent.open()).unwrap(), vec![7; 1000]);
    let frank = Liar::new(|line| {
        let refused = "500-Command failed.\r\n500-globus_xio: Connection refused\r\n500 End.\r\n";
        behind_wall(line, || Does::Say(refused.into()))
    });
    assert_eq!(get(&frank.open()).unwrap(), vec![7; 1000]);
}

/// The dialogues that the pure client holds, held over a socket as well: login and looks.
#[test]
fn dialogues_are_held_over_socket() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/transcripts");
    for file in [
        "gct-13.24.txt",
        "vsftpd-3.0.3.txt",
        "godwit.txt",
        "busy.txt",
    ] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let spoken = parse(&text).unwrap();
        let login_and_looks: Vec<Spoken> = until_another_verb(spoken);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = login_and_looks.clone();
        let server = thread::spawn(move || play(listener.accept().unwrap().0, &script));
        let url: Url = format!("ftp://{address}/").parse().unwrap();
        let options = RemoteOptions::new(Cancel::new().unwrap());
        let store = Remote::open(&url, &options).unwrap();
        for look in login_and_looks.iter().filter(|s| s.by == SpokenBy::Want) {
            match look.text.split_once(' ').unwrap() {
                ("look", name) => drop(store.stat(Path::new(name))),
                _ => drop(store.can()),
            }
        }
        drop(store);
        server.join().unwrap();
    }
}

/// Cuts a dialogue where something is wanted that a socket does otherwise.
fn until_another_verb(spoken: Vec<Spoken>) -> Vec<Spoken> {
    let other = |s: &Spoken| {
        s.by == SpokenBy::Want && !["login ", "look "].iter().any(|v| s.text.starts_with(v))
    };
    let end = spoken.iter().position(other).unwrap_or(spoken.len());
    spoken.into_iter().take(end).collect()
}

/// Plays the server's part and checks the client's.
fn play(mut stream: TcpStream, script: &[Spoken]) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for spoken in script {
        match spoken.by {
            SpokenBy::Server => stream
                .write_all(format!("{}\r\n", spoken.text).as_bytes())
                .unwrap(),
            SpokenBy::Client => assert_eq!(lines.next().unwrap().unwrap(), spoken.text, "{spoken}"),
            _ => {}
        }
    }
}
