//! `godwit stage`: fetches files before they are needed.

use crate::{
    client,
    out::{CliError, Facts, Run, Screen, facts},
    units,
};
use clap::Args;
use godwit_core::Url;
use godwit_store::Error as StoreError;
use godwit_wire::local::{Request, request::StageRequest as Fetch};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    num::NonZeroU64,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Fetch files before they are needed, and keep them in the cache
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit stage godwit://lab/data/run7.root
  godwit stage --tag night --lasts 2d godwit://lab/data/run7.root godwit://lab/data/run8.root
  godwit unstage --tag night godwit://lab/data/run7.root
  godwit stage --on cluster godwit://lab/data/run7.root
  godwit stage --rate 20M --list inputs.txt

They stay under the tag until godwit unstage or godwit cache clean takes it off, or its time is
over; whatever program wants one then reads it from this machine's disk. Each time it is staged
counts.

With --on they come to the depot of another machine that runs a node: so that they are there before
a job is. What is asked is the node there, which reads the URL with its own proof and its own names
of peers.

With --rate they come one after the other and no faster than that, so that a line is left to others.
A program that reads one meanwhile is not slowed: what it misses comes at once.

Exit status: 0; 13 the rights there say no; 4 no such file; 7 no room is left here; 5 its server
cannot be reached.")]
pub(crate) struct StageArgs {
    /// The files
    #[arg(value_name = "URL", required_unless_present = "list")]
    urls: Vec<OsString>,
    /// And those whose URLs are in this file, one a line; - reads standard input
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// No more bytes a second (500K, 20M) [default: as fast as they come]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_rate, allow_negative_numbers = true)]
    rate: Option<NonZeroU64>,
    /// By what they are kept [default: the job that this is part of, else staged]
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// On the machine of that peer, where the rights must let this one (godwit help cache)
    #[arg(long, value_name = "PEER")]
    on: Option<String>,
    /// How long (12h, 2d) [default: until it is taken off]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    lasts: Option<Duration>,
}

impl StageArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let listed = self.list.as_deref().map(listed).transpose()?;
        if let (Some(list), Some([])) = (&self.list, listed.as_deref()) {
            screen.note(&format!("{} names no URL", list_named(list)));
        }
        let mut here = client::here()?;
        let (mut files, mut bytes) = (0, 0);
        for url in self.urls.iter().chain(listed.iter().flatten()) {
            let fetch = Fetch {
                url: client::named(url)?.told,
                tag: self.tag.clone(),
                expires_in_s: self.lasts.map(|time| time.as_secs()),
                bytes_per_s: self.rate,
                ..Fetch::default()
            };
            let ask = client::on(self.on.as_deref(), Request::Stage(fetch));
            match client::done(screen, &mut here, ask) {
                Ok(done) => (files, bytes) = (files + done.files, bytes + done.bytes),
                Err(trouble) => screen.trouble(&trouble),
            }
        }
        Ok(facts([("files", files.into()), ("bytes", bytes.into())]))
    }
}

fn list_named(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".into(),
        false => path.display().to_string(),
    }
}

/// Reads URLs, one a line. Lines that are empty or begin with # are none; where another is none nothing is staged.
fn listed(path: &Path) -> Run<Vec<OsString>> {
    let mut text = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().take(LIST_BYTES_MAX).read_to_end(&mut text),
        false => File::open(path).and_then(|file| file.take(LIST_BYTES_MAX).read_to_end(&mut text)),
    };
    let wanted = || format!("read which files to stage from {}", list_named(path));
    read.map_err(|cause| CliError::store(wanted(), StoreError::io(path, cause)))?;
    if text.len() as u64 == LIST_BYTES_MAX {
        return Err(CliError::asked(
            wanted(),
            "it has 64 MiB or more: name fewer at once",
        ));
    }
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let named = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"#");
    let urls = (1..).zip(lines).filter(|(_, line)| named(line));
    let url = |(number, line): (u64, &[u8])| {
        let text = OsStr::from_bytes(line);
        let read = Url::from_argument(text);
        let why = match &read {
            Ok(url) if !url.is_local() || line.starts_with(b"file:") => {
                return Ok(text.to_owned());
            }
            Ok(_) => "it names no server".to_owned(),
            Err(bad) => bad.to_string(),
        };
        let shown: String = text.to_string_lossy().chars().take(SHOWN_CHARS).collect();
        Err(CliError::asked(
            wanted(),
            format!("line {number} is no URL, {shown:?}: {why}"),
        ))
    };
    urls.map(url).collect()
}

const SHOWN_CHARS: usize = 80;

const LIST_BYTES_MAX: u64 = 64 << 20;
