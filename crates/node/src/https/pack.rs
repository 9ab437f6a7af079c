//! Files that a node brings to a program before it runs, and takes from it after it ended.
//!
//! The depot of this machine fetches what comes from a server, once for all programs, and delivers what goes there, also
//! if the client is gone by then.

use super::{
    KnownCaller,
    depot::heard,
    reply::{BEAT, ReplyLines},
    run::below_root,
};
use crate::task::{
    other,
    workplace::{self, Workplace},
};
use godwit_core::{Algorithm, Kind, Url};
use godwit_local::{NodeAnswer, NodeConnection, NodePlace as Local, who};
use godwit_store::Store as _;
use godwit_wire::{
    door::{
        call::{Line, Refusal, Text},
        run::AskRun,
        staging::{Executable, Staged, StagedPlace, VARIABLES, filled, kept},
    },
    local::{
        Request, Response,
        request::{Append, Cache, Close, Hello, OpenRequest, PutRequest, Wait},
    },
};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStringExt,
            fs::{OpenOptionsExt, PermissionsExt},
        },
    },
    path::{Component, Path, PathBuf},
    time::Instant,
};

/// The files of one program, on their way.
pub(super) struct Carrier<'a> {
    known: &'a KnownCaller,
    ask: &'a AskRun,
    place: &'a Workplace,
    /// Whether the program has ended: the rest is done also if the client is gone.
    has_ended: bool,
    /// A connection to the local node; files opened by it stay open as long.
    here: Option<NodeConnection>,
}

impl<'a> Carrier<'a> {
    pub(super) fn new(known: &'a KnownCaller, ask: &'a AskRun, place: &'a Workplace) -> Self {
        Self {
            known,
            ask,
            place,
            has_ended: false,
            here: None,
        }
    }

    /// Brings all that the program reads; returns its standard input.
    pub(super) fn bring(&mut self, lines: &mut ReplyLines) -> Result<File, Refusal> {
        let staging = &self.ask.staging;
        for Staged { name, .. } in staging.inputs.iter().chain(&staging.outputs) {
            self.path_of(&name.0)?;
        }
        for Staged {
            name,
            place,
            digest,
        } in &staging.inputs
        {
            let file = self.opened(place, lines)?;
            self.copy_here(&file, &self.path_of(&name.0)?, 0o600, lines)?;
            let here = self.place.below_export().join(&name.0);
            if let Some(Text(digest)) = digest
                && *digest != self.known.dir.digest(&here, Algorithm::Blake3, None)?
            {
                let said = format!(
                    "{} has other bytes by now than those that were meant",
                    name.0.display()
                );
                return Err(Refusal::of_kind(Kind::Invalid, said).next("run it again"));
            }
        }
        match &staging.reads {
            Some(place) => self.opened(place, lines),
            None => File::open("/dev/null").map_err(|cause| other(&cause)),
        }
    }

    /// Returns the path of the program, if it is no file of this machine.
    pub(super) fn executable(
        &mut self,
        lines: &mut ReplyLines,
    ) -> Result<Option<OsString>, Refusal> {
        let path = match &self.ask.staging.executable {
            None => return Ok(None),
            Some(Executable::Kept(digest)) => {
                let path = PathBuf::from(kept(&digest.0));
                let dir = &self.known.dir;
                // A client that may write but not run could have replaced it.
                let found = dir.digest(&path, Algorithm::Blake3, None)?;
                if found != digest.0 {
                    let path = path.display();
                    let said = format!("{path} is not the program that was put there");
                    let next =
                        format!("godwit rm godwit://NODE/{path}; the next run puts it there");
                    return Err(Refusal::of_kind(Kind::Corrupt, said).next(next));
                }
                let path = self.place.export().join(below_root(&dir.may_run(&path)?));
                workplace::touch(&path);
                path
            }
            Some(Executable::Url(url)) => {
                let url = self.url(url)?;
                let file = self.fetched(&url, lines)?;
                let name = Url::from_argument(&url).ok();
                let name = name.and_then(|url| Some(url.file_name()?.to_owned()));
                let name = OsString::from_vec(name.unwrap_or_else(|| b"program".into()));
                let path = self.path_of(Path::new(&name))?;
                self.copy_here(&file, &path, 0o700, lines)?;
                path
            }
        };
        Ok(Some(path.into_os_string()))
    }

    /// Appends lines to the URL of a stream; returns them if they are to be told.
    pub(super) fn append(
        &mut self,
        line: Line,
        lines: &mut ReplyLines,
    ) -> Result<Option<Line>, Refusal> {
        let staging = &self.ask.staging;
        let (url, body) = match (&line, &staging.out, &staging.words) {
            (Line::Out(body), Some(url), _) | (Line::Words(body), _, Some(url)) => (url, &body.0),
            _ => return Ok(Some(line)),
        };
        self.appended(&self.url(url)?, body, false, lines)?;
        Ok(None)
    }

    /// Delivers all that the program wrote, once it ended with that status.
    pub(super) fn deliver(&mut self, status: i32, lines: &mut ReplyLines) -> Result<(), Refusal> {
        self.has_ended = true;
        let staging = &self.ask.staging;
        for url in staging.out.iter().chain(&staging.words) {
            self.appended(&self.url(url)?, b"", true, lines)?;
        }
        if status != 0 {
            return Ok(());
        }
        for Staged { name, .. } in &staging.outputs {
            let is_file = fs::metadata(self.path_of(&name.0)?).is_ok_and(|meta| meta.is_file());
            if !is_file {
                let name = name.0.display();
                let said = format!("the program ended with 0 and wrote no file {name}");
                let next = format!("have it write {name} into the directory where it starts");
                return Err(Refusal::of_kind(Kind::Missing, said).next(next));
            }
        }
        for Staged { name, place, .. } in &staging.outputs {
            let from = self.path_of(&name.0)?;
            match place {
                StagedPlace::Url(url) => self.put(&from, &self.url(url)?, lines)?,
                StagedPlace::Path(to) => {
                    let from = self.place.below_export().join(&name.0);
                    self.known.dir.rename(&from, &to.0)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the tags off that the files of this job have here.
    pub(super) fn end(mut self) {
        let environment = |name: &str| env::var_os(name);
        let hello = self.hello();
        let there = || NodeConnection::at(&Local::find(&environment).ok()?, &hello).ok()?;
        if let Some(mut here) = self.here.take().or_else(there) {
            let tag = format!("godwit-{}", self.ask.job);
            // That it has none is as well.
            let _ = here.ask(Request::Cache(Cache::Clean { tag, url: None }));
        }
    }

    /// Returns the path of a name in the directory.
    fn path_of(&self, name: &Path) -> Result<PathBuf, Refusal> {
        let mut parts = name.components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(name)), None) => Ok(self.place.path().join(name)),
            _ => {
                let said = format!("{} is no name of a file in a directory", name.display());
                Err(Refusal::of_kind(Kind::Invalid, said))
            }
        }
    }

    /// Returns a URL with the variables of this node and of the process.
    fn url(&self, text: &str) -> Result<String, Refusal> {
        let ask = self.ask;
        let values = [
            env::consts::ARCH.to_owned(),
            env::consts::OS.to_owned(),
            ask.job.clone(),
            ask.fragment.to_string(),
            ask.fragments.to_string(),
        ];
        let value = |name: &str| {
            let at = VARIABLES.iter().position(|known| *known == name)?;
            values.get(at).cloned()
        };
        filled(text, value).map_err(|name| {
            let said = format!("{text}: this node has no variable {name}");
            Refusal::of_kind(Kind::Invalid, said)
        })
    }

    fn opened(&mut self, place: &StagedPlace, lines: &mut ReplyLines) -> Result<File, Refusal> {
        match place {
            StagedPlace::Path(path) => Ok(self.known.dir.lend(&path.0)?.0),
            StagedPlace::Url(url) => self.fetched(&self.url(url)?, lines),
        }
    }

    fn fetched(&mut self, url: &str, lines: &mut ReplyLines) -> Result<File, Refusal> {
        let open = Request::Open(OpenRequest {
            url: url.into(),
            read: true,
            ..OpenRequest::default()
        });
        let (_, file) = self.file(open, lines).map_err(about("fetch", url))?;
        // Programs that have the same file open each read it from its beginning.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        File::open(own).map_err(|cause| other(&cause))
    }

    fn put(&mut self, from: &Path, url: &str, lines: &mut ReplyLines) -> Result<(), Refusal> {
        let source = File::open(from).map_err(|cause| other(&cause))?;
        let meta = source.metadata().map_err(|cause| other(&cause))?;
        let put = Request::Put(PutRequest {
            url: url.into(),
            size: Some(meta.len()),
            mode: Some(meta.permissions().mode() & 0o777),
            ..PutRequest::default()
        });
        let about = about("deliver", url);
        let (handle, target) = self.file(put, lines).map_err(&about)?;
        self.copied(&source, &target, lines)?;
        let close = Close {
            handle,
            wait: Wait::Commit,
            give_up: false,
            timeout_ms: None,
        };
        self.say(Request::Close(close), b"", lines)
            .map(drop)
            .map_err(about)
    }

    fn appended(
        &mut self,
        url: &str,
        body: &[u8],
        end: bool,
        lines: &mut ReplyLines,
    ) -> Result<(), Refusal> {
        let append = Request::Append(Append {
            url: url.into(),
            record: true,
            end,
            stream: false,
            wait: if end { Wait::Commit } else { Wait::Nothing },
        });
        let done = self.say(append, body, lines).map(drop);
        done.map_err(about("append to", url))
    }

    fn copy_here(
        &self,
        from: &File,
        to: &Path,
        mode: u32,
        lines: &mut ReplyLines,
    ) -> Result<(), Refusal> {
        let mut options = fs::OpenOptions::new();
        let made = options.write(true).create_new(true).mode(mode).open(to);
        let to = made.map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => {
                let name = to.file_name().unwrap_or_default().to_string_lossy();
                Refusal::of_kind(Kind::Invalid, format!("two files are called {name}"))
            }
            _ => other(&cause),
        })?;
        self.copied(from, &to, lines)
    }

    /// Copies the bytes of a file, with beats to the client.
    fn copied(
        &self,
        mut from: &File,
        mut to: &File,
        lines: &mut ReplyLines,
    ) -> Result<(), Refusal> {
        let mut told = Instant::now();
        loop {
            let piece = io::copy(&mut (&mut from).take(PIECE_BYTES), &mut to);
            if piece.map_err(|cause| other(&cause))? == 0 {
                return Ok(());
            }
            if told.elapsed() >= BEAT {
                told = Instant::now();
                beat(self.has_ended, lines)?;
            }
        }
    }

    /// Has the local node open a file.
    fn file(&mut self, ask: Request, lines: &mut ReplyLines) -> Result<(u64, File), Refusal> {
        let mut answer = self.say(ask, b"", lines)?;
        match (answer.tell, answer.files.pop()) {
            (Response::Opened(opened), Some(file)) => Ok((opened.handle, file.into())),
            _ => Err(Refusal::of_kind(
                Kind::Other,
                "the node of this machine opens no file",
            )),
        }
    }

    /// Asks the local node, starting it if necessary, with beats to the client.
    fn say(
        &mut self,
        ask: Request,
        body: &[u8],
        lines: &mut ReplyLines,
    ) -> Result<NodeAnswer, Refusal> {
        let hello = self.hello();
        let here = match &mut self.here {
            Some(here) => here,
            none => none.insert(
                NodeConnection::find(&hello, &|name| env::var_os(name)).map_err(|e| heard(&e))?,
            ),
        };
        let n = here.send(ask, body).map_err(|refusal| heard(&refusal))?;
        loop {
            match here.receive(n, Some(Instant::now() + BEAT)) {
                Ok(NodeAnswer {
                    tell: Response::Refused(refusal),
                    ..
                }) => return Err(heard(&refusal)),
                Ok(answer) if answer.tell.is_last() => return Ok(answer),
                Ok(_) => {}
                Err(refusal) if refusal.kind == Kind::Late => beat(self.has_ended, lines)?,
                Err(refusal) => return Err(heard(&refusal)),
            }
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            job: BTreeMap::from([("GODWIT_JOB".to_owned(), self.ask.job.clone())]),
            ..who("godwit run", &|name| env::var_os(name))
        }
    }
}

/// Sends a beat. If the client has left, work for an unfinished program ends.
fn beat(has_ended: bool, lines: &mut ReplyLines) -> Result<(), Refusal> {
    match lines.tell(&Line::Beat(0)) {
        Err(error) if !has_ended => Err(error.into()),
        _ => Ok(()),
    }
}

fn about<'a>(deed: &'a str, url: &'a str) -> impl Fn(Refusal) -> Refusal + 'a {
    move |mut refusal| {
        let shown = Url::from_argument(url)
            .map_or_else(|_| url.to_owned(), |url| url.without_password().to_string());
        refusal.said = format!("the node cannot {deed} {shown}: {}", refusal.said);
        refusal
    }
}

const PIECE_BYTES: u64 = 64 << 20;
