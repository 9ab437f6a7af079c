//! `godwit tee`: lines for the end of a file elsewhere, as they come.

use super::{Facts, local, put::input_of};
use crate::{
    screen::Screen,
    trouble::{Run, Trouble},
};
use clap::{Args, ValueEnum};
use godwit_local::Refusal;
use godwit_store::Error;
use godwit_wire::local::{
    Ask,
    ask::{self, Close},
};
use std::{
    ffi::OsString,
    io::{self, Read, Write},
};

/// Append standard input to a file at a server, line by line as it comes, and print it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  simulate | godwit tee godwit://lab/logs/run7.log > /dev/null
  simulate | godwit tee --wait commit godwit://lab/logs/run7.log

Lines go to the node of this machine as they come, which keeps them and appends them at the server:
each once, whole, and in the order they came, whatever breaks on the way. Others may append to the
same file meanwhile: their lines stand between ours, never within them. Whoever follows the file
(godwit tail -f) sees them within a second while the server can be reached.

What does not end in a newline is appended when the input ends. Lines beyond 256 KiB may be divided.
Servers of others cannot tell what came twice, and are refused.

Exit status: 0 all of it is where --wait says; 5 it is kept here and the server cannot be reached;
13 not allowed.")]
pub(crate) struct Tee {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
    /// What the end of the input waits for
    #[arg(long, value_enum, default_value_t = Until::Push, value_name = "WHAT")]
    wait: Until,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Until {
    /// All of it is at the server.
    Push,
    /// All of it is safe on this machine's disk, and goes to the server by itself.
    Commit,
    /// Nothing.
    Nothing,
}

impl Tee {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let target = local::named(&self.url)?;
        let wanted = format!("append to {}", target.shown);
        let mut input = input_of(&wanted)?;
        let mut here = local::here()?;
        let append = ask::Append {
            url: target.told,
            record: false,
            end: false,
            stream: true,
            wait: ask::Wait::Nothing,
        };
        let told = |refusal: Refusal| Trouble::local(&refusal);
        let (opened, stream) = here.open(Ask::Append(append)).map_err(told)?;
        let stream = stream.ok_or_else(|| {
            Trouble::kept(&wanted, "the node of this machine gave nothing to write to")
        })?;
        let bytes = pass_on(screen, &wanted, &mut input, stream)?;
        let close = Close {
            handle: opened.handle,
            wait: match self.wait {
                Until::Push => ask::Wait::Push,
                Until::Commit => ask::Wait::Commit,
                Until::Nothing => ask::Wait::Nothing,
            },
            give_up: false,
            timeout_ms: None,
        };
        let done = local::done(screen, &mut here, Ask::Close(close))?;
        let mut facts = local::facts(&done);
        facts.insert("bytes".into(), bytes.into());
        Ok(facts)
    }
}

/// Writes what comes to the node and to our own output, to the end. Who reads our output may go away.
fn pass_on(
    screen: &Screen,
    wanted: &str,
    input: &mut dyn Read,
    mut stream: impl Write,
) -> Run<u64> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    loop {
        let len = match input.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(cause) => return Err(Trouble::store(wanted, Error::io("the input", cause))),
        };
        stream.write_all(&buffer[..len]).map_err(|cause| {
            Trouble::store(wanted, Error::io("the node of this machine", cause))
                .next("what came before is kept; see godwit queue")
        })?;
        bytes += len as u64;
        if !screen.json() && !screen.gone() {
            let printed = screen.bytes(&buffer[..len]).and_then(|()| screen.flush());
            printed.map_err(|error| Trouble::store("print what was appended", error))?;
        }
    }
}

const PIECE_BYTES: usize = 64 << 10;
