//! `godwit get`: reads a file through the node of this machine, which caches it.

use crate::{
    client,
    out::{CliError, Facts, Run, Screen, error::OUTPUT, facts, progress::Reporter},
    places,
};
use clap::Args;
use godwit_local::NodeConnection;
use godwit_store::Error;
use godwit_wire::local::{
    Request, Response,
    request::{Cache, FileTarget, Freshness, OpenRequest},
};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Read a file through the cache of this machine, which keeps it for the next time
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit get godwit://lab/data/run7.root
  godwit get godwit://lab/data/run7.root /scratch/in.root
  godwit get godwit://lab/readme.txt -

However many programs of this machine want a file, it is fetched once. What was put here and is
still on its way is what is read. Whether the file at the server has changed is asked, unless that
was done in the last 5 seconds (--fresh asks always). FILE is replaced when all is there; a device
or a pipe is written into. godwit cp copies directories, over many streams, and keeps nothing.

Exit status: 0; 4 no such file; 13 not allowed; 7 no room is left here; 5 the server cannot be
reached, and nothing is here.")]
pub(crate) struct GetArgs {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
    /// Where it goes; - prints it [default: its name, here]
    #[arg(value_name = "FILE")]
    file: Option<OsString>,
    /// Ask the server whether it has changed, however short ago that was done, and believe no length and time alone
    #[arg(long)]
    fresh: bool,
}

impl GetArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let source = client::named(&self.url)?;
        let wanted = format!("get {}", source.shown);
        let target = self.target(&wanted)?;
        let mut here = client::here()?;
        let open = OpenRequest {
            url: source.told,
            read: true,
            fresh: match self.fresh {
                true => Freshness::Asked,
                false => Freshness::Usual,
            },
            ..OpenRequest::default()
        };
        let reporter = Reporter::patient(screen);
        let kept = Request::Cache(Cache::Stat(FileTarget::is(&*open.url)));
        let look = &mut |here: &mut NodeConnection| -> Run<bool> {
            if reporter.is_shown() {
                // Nothing of it is kept yet, where that is refused.
                let _ = here.ask_with(kept.clone(), b"", None, &mut |tell| {
                    if let Response::Row(row) = tell {
                        reporter.at((0, 1), (row.present_bytes, row.size));
                    }
                });
            }
            Ok(true)
        };
        let fetching = || client::ask_looking(&mut here, Request::Open(open), &mut |_| (), look);
        let answer = reporter.while_running(fetching)?;
        let (opened, mut file) = match answer.map(|answer| (answer.tell, answer.files)) {
            Some((Response::Opened(opened), mut files)) if !files.is_empty() => {
                (opened, File::from(files.remove(0)))
            }
            _ => {
                let words = "the node of this machine gave no file to read";
                return Err(CliError::kept(&wanted, words));
            }
        };
        let bytes = match &target {
            None => print(screen, &wanted, &mut file)?,
            Some(path) => save(&mut file, path)
                .map_err(|cause| CliError::store(&wanted, Error::io(path, cause)))?,
        };
        if bytes != opened.size {
            return Err(CliError::differs(
                wanted,
                format!("{bytes} bytes came of {}", opened.size),
            ));
        }
        Ok(facts([("bytes", bytes.into())]))
    }

    /// Returns the path to write to; `None` is standard output.
    fn target(&self, wanted: &str) -> Run<Option<PathBuf>> {
        let file = self.file.as_ref().filter(|file| *file != "-");
        if let Some(url) = file.map(|file| places::target(file)).transpose()?
            && !url.is_local()
        {
            return Err(CliError::asked(wanted, "get writes files of this machine")
                .next(format!("godwit cp {} {url}", self.url.to_string_lossy())));
        }
        match &self.file {
            Some(dash) if dash == "-" => Ok(None),
            Some(file) if Path::new(file).is_dir() => {
                Ok(Some(Path::new(file).join(self.name(wanted)?)))
            }
            Some(file) => Ok(Some(file.into())),
            None => Ok(Some(self.name(wanted)?)),
        }
    }

    fn name(&self, wanted: &str) -> Run<PathBuf> {
        let url = places::url(&self.url)?;
        let name = url
            .file_name()
            .map(|name| PathBuf::from(OsStr::from_bytes(name)));
        name.ok_or_else(|| {
            CliError::asked(wanted, "its URL ends with no name").next("say where it goes")
        })
    }
}

fn print(screen: &Screen, wanted: &str, file: &mut File) -> Run<u64> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    loop {
        let came = file
            .read(&mut buffer)
            .map_err(|cause| CliError::store(wanted, Error::io("what is kept here", cause)))?;
        if came == 0 {
            return Ok(bytes);
        }
        bytes += came as u64;
        if !screen.json() {
            let printed = screen.bytes(&buffer[..came]);
            printed.map_err(|error| CliError::store(format!("write to {OUTPUT}"), error))?;
        }
    }
}

/// Writes a file that appears under its name when it is whole. Bytes for a device or a pipe are written into it.
fn save(file: &mut File, path: &Path) -> io::Result<u64> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let mut into = File::options().write(true).open(path)?;
        return io::copy(file, &mut into);
    }
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".godwit-{}", std::process::id()));
    let part = path.with_file_name(name);
    let saved = File::create(&part)
        .and_then(|mut into| io::copy(file, &mut into))
        .and_then(|bytes| fs::rename(&part, path).map(|()| bytes));
    if saved.is_err() {
        let _ = fs::remove_file(&part);
    }
    saved
}

const PIECE_BYTES: usize = 1 << 20;
