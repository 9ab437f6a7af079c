//! `godwit tee`: appends lines to a file at a server as they arrive.

use super::put::input_of;
use crate::{
    client,
    out::{CliError, Facts, Run, Screen},
    places,
};
use clap::{Args, ValueEnum};
use godwit_local::{Kind, NodeConnection, Refusal};
use godwit_store::Error;
use godwit_sys::wait_readable;
use godwit_wire::local::{
    Request, Response,
    request::{self, Selector},
    response,
};
use serde_json::json;
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// Append standard input to a file at a server, line by line as it comes, and print it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  simulate | godwit tee godwit://lab/logs/run7.log > /dev/null
  simulate | godwit tee --wait commit godwit://lab/logs/run7.log

Lines go to the node of this machine as they come, which keeps them and appends them at the server:
each once, whole, and in the order they came, whatever breaks on the way. Others may append to the
same file meanwhile: their lines stand between ours, never within them. A reader of the file
(godwit tail -f) sees them within a second while the server can be reached.

It says once when the server cannot be reached, and once when it can again. If the node of this
machine ends meanwhile, it is started again, and goes on where it was: no line is lost or doubled.

What does not end in a newline is appended when the input ends. Lines beyond 256 KiB may be divided.
Servers of others cannot tell what came twice, and are refused.

Exit status: 0 all of it is where --wait says; 1 the server cannot append, or it is on hold;
2 not understood; 5 the node of this machine cannot be started; 7 no room is left here; 13 not
allowed.")]
pub(crate) struct TeeArgs {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
    /// Until when the end of the input waits
    #[arg(long, value_enum, default_value_t = Until::Push, value_name = "WHAT")]
    wait: Until,
}

/// The event that the end of the input waits for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Until {
    /// All of it is at the server.
    Push,
    /// All of it is durable on this machine, which delivers it.
    Commit,
    /// Nothing.
    Nothing,
}

impl TeeArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        places::target(&self.url)?;
        let target = client::named(&self.url)?;
        let wanted = format!("append to {}", target.shown);
        let input = input_of(&wanted)?;
        let mut line = Line {
            screen,
            wanted,
            whose: Selector {
                url: Some(target.told.clone()),
                ..Selector::default()
            },
            url: target.told,
            shown: target.shown,
            by: number()?,
            seq: 0,
            here: client::here()?,
            is_told: false,
            looked: Instant::now(),
        };
        // A target that cannot be appended to is refused before anything is read.
        line.append(b"")?;
        let bytes = line.pass_on(input)?;
        let done = match self.wait {
            Until::Push => line.wait(Request::Push(line.whose.clone()))?,
            Until::Commit => line.wait(Request::Commit(line.whose.clone()))?,
            Until::Nothing => response::Done::default(),
        };
        let mut facts = client::facts(&done);
        facts.insert("bytes".into(), bytes.into());
        Ok(facts)
    }
}

/// An input that is appended to a file through the local node, which is started again if it ends.
struct Line<'a> {
    screen: &'a Screen,
    wanted: String,
    url: String,
    shown: String,
    whose: Selector,
    /// Number by which the node knows this writer.
    by: u64,
    seq: u64,
    here: NodeConnection,
    /// The user was told that the server cannot be reached.
    is_told: bool,
    looked: Instant,
}

impl Line<'_> {
    /// Reads to the end, gives whole lines to the node, and prints the lines that the node has. The reader of the output
    /// may go away.
    fn pass_on(&mut self, mut input: Box<dyn Read>) -> Run<u64> {
        let (mut kept, mut bytes) = (Vec::new(), 0);
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let came = wait_readable([io::stdin().as_fd()], LOOK_EVERY);
            if self.looked.elapsed() >= LOOK_EVERY {
                self.look();
            }
            if !came.unwrap_or([true])[0] {
                continue;
            }
            let len = match input.read(&mut buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(cause) => {
                    return Err(CliError::store(&self.wanted, Error::io("the input", cause)));
                }
            };
            kept.extend(&buffer[..len]);
            let whole = match kept.iter().rposition(|byte| *byte == b'\n') {
                _ if len == 0 || kept.len() >= LINE_MAX => kept.len(),
                Some(last) => last + 1,
                None => 0,
            };
            let piece: Vec<u8> = kept.drain(..whole).collect();
            if !piece.is_empty() {
                self.append(&piece)?;
                self.print(&piece)?;
                bytes += piece.len() as u64;
            }
            if len == 0 {
                return Ok(bytes);
            }
        }
    }

    /// Returns when the node has taken the bytes; the node may be another one by then.
    fn append(&mut self, piece: &[u8]) -> Run<()> {
        self.seq += 1;
        let lines = request::LinesRequest {
            url: self.url.clone(),
            by: self.by,
            seq: self.seq,
        };
        loop {
            let asked = Request::Lines(lines.clone());
            let told = &mut |tell| client::note(self.screen, &tell);
            match self.here.ask_with(asked, piece, None, told) {
                Ok(_) => return Ok(()),
                Err(refusal) => self.begin_again(&refusal)?,
            }
        }
    }

    /// Sends a request that ends with [`Response::Done`], and tells the user if delivery stops meanwhile.
    fn wait(&mut self, ask: Request) -> Run<response::Done> {
        loop {
            match self.wait_once(&ask) {
                Ok(done) => {
                    done.notes.iter().for_each(|note| self.screen.note(note));
                    return Ok(done);
                }
                Err(refusal) => self.begin_again(&refusal)?,
            }
        }
    }

    fn wait_once(&mut self, ask: &Request) -> Result<response::Done, Refusal> {
        let n = self.here.send(ask.clone(), b"")?;
        loop {
            match self.here.receive(n, Some(Instant::now() + LOOK_EVERY)) {
                Ok(answer) => match answer.tell {
                    Response::Done(done) => return Ok(done),
                    Response::Refused(refusal) => return Err(*refusal),
                    _ => {}
                },
                Err(refusal) if refusal.kind == Kind::Late => self.look(),
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// Finds or starts the node again if it has ended. Any other refusal ends the verb.
    fn begin_again(&mut self, refusal: &Refusal) -> Run<()> {
        let is_over = matches!(refusal.kind, Kind::NodeLost | Kind::Ending | Kind::NoNode);
        if !is_over {
            return Err(self.at_last(refusal.clone().into()));
        }
        self.tell(
            "node",
            "the node of this machine has ended; it is started again",
        );
        let until = Instant::now() + PATIENCE;
        loop {
            match client::here() {
                Ok(here) => {
                    self.here = here;
                    return Ok(());
                }
                Err(trouble) if !trouble.is_passing() || Instant::now() >= until => {
                    return Err(self.at_last(trouble));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Adds the hint that bytes are kept, unless only the empty first piece was sent.
    fn at_last(&self, trouble: CliError) -> CliError {
        match self.seq > 1 {
            true => trouble.or_next(KEPT),
            false => trouble,
        }
    }

    /// Says once that nothing is delivered, and why, and once that delivery goes on.
    fn look(&mut self) {
        self.looked = Instant::now();
        let mut why = None;
        let mut is_pending = false;
        let queue = Request::Queue(self.whose.clone());
        let until = Some(Instant::now() + LOOK_EVERY);
        let asked = self.here.ask_with(queue, b"", until, &mut |tell| {
            if let Response::Row(row) = tell
                && row.what == "append"
            {
                is_pending = true;
                why = row.why.or(why.take());
            }
        });
        if asked.is_err() {
            return; // The next append meets the error.
        }
        match (why, self.is_told) {
            (Some(why), false) => {
                let words = format!("{}: {why}; what comes is kept here meanwhile", self.shown);
                self.tell("server", &words);
                self.is_told = true;
            }
            (None, true) => {
                let words = format!("{}: it goes on", self.shown);
                self.tell("", &words);
                self.is_told = false;
            }
            _ => {}
        }
    }

    /// Says that the delivery waits, or goes on.
    fn tell(&self, awaited: &str, words: &str) {
        if !self.screen.json() {
            return self.screen.note(words);
        }
        let event = match awaited {
            "" => json!({"event": "going", "url": self.shown}),
            _ => json!({"event": "waiting", "for": awaited, "url": self.shown, "why": words}),
        };
        self.screen.event(&event);
    }

    fn print(&self, bytes: &[u8]) -> Run<()> {
        if self.screen.json() || self.screen.gone() {
            return Ok(());
        }
        let printed = self.screen.bytes(bytes).and_then(|()| self.screen.flush());
        printed.map_err(|error| CliError::store("print what was appended", error))
    }
}

/// Returns a random number that names this writer.
fn number() -> Run<u64> {
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|cause| CliError::store("begin to append", Error::io("/dev/urandom", cause)))?;
    Ok(u64::from_le_bytes(bytes))
}

const PIECE_BYTES: usize = 64 << 10;

/// The longest line that is kept whole.
const LINE_MAX: usize = 256 << 10;

/// How often the queue is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a node may take to start again.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
const KEPT: &str = "what was printed is kept here, and goes; see godwit queue";
