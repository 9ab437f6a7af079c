//! `godwit put`: a file or a pipe, kept here at once and delivered.

use super::{Facts, local};
use crate::{
    screen::Screen,
    trouble::{Run, Trouble},
    units,
};
use clap::Args;
use godwit_local::{Here, Refusal};
use godwit_store::Error;
use godwit_sys::begin_to_sync;
use godwit_wire::local::{
    Ask, Handle, Tell,
    ask::{self, Close, Wait},
};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
};

/// Keep a file or standard input here, and have it delivered to a server
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit put run7.root godwit://lab/data/run7.root
  simulate | godwit put - godwit://lab/data/out.log
  godwit put run7.root godwit://lab/data/run7.root && godwit push godwit://lab/data/run7.root

It ends when the bytes are safe on this machine's disk, however far the server is and whether it
answers or not; the node of this machine delivers them, tries again as long as it takes, and goes on
after this command, the network or the machine ended. Programs on this machine that read that
URL see them at once; others when they are all there. godwit queue shows what is on its way,
godwit push waits for it.

The file at the server is replaced as a whole, once the end of the input has come. --offset writes
into it instead: what is elsewhere in it stays.

In a job of a batch system the node ends with the job: there this command waits until the server
has the file.

Exit status: 0 the bytes are safe; 4 no such file; 7 no room is left here; 13 not allowed;
5 the node of this machine cannot be reached.")]
pub(crate) struct Put {
    /// A file; - is standard input
    #[arg(value_name = "FILE")]
    file: OsString,
    /// Where it belongs
    #[arg(value_name = "URL")]
    url: OsString,
    /// Write at this byte of the file that is there, instead of replacing it
    #[arg(long, value_name = "BYTE", value_parser = units::parse_size, allow_negative_numbers = true)]
    offset: Option<u64>,
    /// Only if there is nothing of that name
    #[arg(long)]
    new: bool,
}

impl Put {
    pub(crate) fn run(self, _: &Screen) -> Run<Facts> {
        let target = local::named(&self.url)?;
        let source = Path::new(&self.file).display();
        let wanted = format!("put {source} to {}", target.shown);
        let mut input: Box<dyn Read> = self.input(&wanted)?;
        let mut here = local::here()?;
        let put = ask::Put {
            url: target.told,
            in_place: self.offset.is_some(),
            new: self.new,
            ..ask::Put::default()
        };
        let told = |refusal: Refusal| Trouble::local(&refusal);
        let (opened, file) = here.open(Ask::Put(put)).map_err(told)?;
        let file = file.ok_or_else(|| {
            Trouble::kept(&wanted, "the node of this machine gave no file to write to")
        })?;
        let start = self.offset.unwrap_or(0);
        let bytes = copy(&wanted, &mut here, opened.handle, &mut input, &file, start)?;
        drop(file);
        let close = Close {
            handle: opened.handle,
            wait: Wait::Commit,
            give_up: false,
            timeout_ms: None,
        };
        // How it goes on from here is said by commit and queue.
        here.ask(Ask::End(close)).map_err(told)?;
        let mut facts = Facts::new();
        facts.insert("bytes".into(), bytes.into());
        Ok(facts)
    }

    fn input(&self, wanted: &str) -> Run<Box<dyn Read>> {
        if self.file == "-" {
            return input_of(wanted);
        }
        let path = Path::new(&self.file);
        let failed = |cause| Trouble::store(wanted, Error::io(path, cause));
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            let path = path.into();
            return Err(Trouble::store(wanted, Error::IsDirectory { path })
                .next("godwit cp -r copies a directory"));
        }
        Ok(Box::new(file))
    }
}

/// Returns standard input.
pub(super) fn input_of(wanted: &str) -> Run<Box<dyn Read>> {
    match godwit_sys::is_input_closed() {
        true => {
            Err(Trouble::asked(wanted, "standard input is closed")
                .next("give it something to read"))
        }
        false => Ok(Box::new(io::stdin().lock())),
    }
}

/// Writes into the file that the node keeps, each piece with its leave: so that it can be sent while it grows, and
/// waits for room where there is none.
fn copy(
    wanted: &str,
    here: &mut Here,
    handle: Handle,
    input: &mut dyn Read,
    file: &File,
    start: u64,
) -> Run<u64> {
    let told = |refusal: Refusal| Trouble::local(&refusal);
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut end, mut begun) = (start, start);
    loop {
        let len = fill(input, &mut buffer)
            .map_err(|cause| Trouble::store(wanted, Error::io("the input", cause)))?;
        if len == 0 {
            return Ok(end - start);
        }
        let grant = ask::Grant {
            handle,
            start: end,
            end: end + len as u64,
        };
        let granted = here.ask(Ask::Grant(grant)).map_err(told)?;
        let Tell::Granted { grant } = granted.tell else {
            return Err(Trouble::kept(wanted, "the node gave no leave to write"));
        };
        file.write_all_at(&buffer[..len], end)
            .map_err(|cause| Trouble::store(wanted, Error::io("what is kept here", cause)))?;
        end += len as u64;
        // The disk writes while the rest is read: at the end less is left to wait for.
        if end - begun >= EARLY_BYTES {
            begin_to_sync(file, begun..end);
            begun = end;
        }
        let written = ask::Written {
            handle,
            grant,
            size: end,
        };
        here.send(Ask::Written(written), b"").map_err(told)?;
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(came) => filled += came,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

const PIECE_BYTES: usize = 1 << 20;
/// So much is written before the disk is to begin with it.
const EARLY_BYTES: u64 = 2 << 20;
