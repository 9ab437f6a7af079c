//! Files of the node that this process has open.

use crate::{
    failure::{self, Failure, Result, odd},
    puts::Puts,
    system::{self, Inode},
};
use godwit_local::{Kind, NodeAnswer, PendingRequest, Refusal, SharedConnection};
use godwit_wire::local::{
    Handle, Request, Response,
    request::{self, Wait},
};
use std::{
    collections::HashMap,
    env,
    fs::File,
    os::fd::{AsRawFd, RawFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Files of the node that this process has open.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<HashMap<RawFd, Opened>>);

/// A file of the node's.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) era: u64,
    pub(crate) handle: Handle,
    /// The number may have been closed and be another file's by now.
    pub(crate) inode: Inode,
    /// URL of the file, if it is open for writing.
    pub(crate) written: Option<String>,
    /// Name of the file, if its parts are fetched on demand.
    pub(crate) lazy: Option<String>,
}

/// Condition on which a close returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CloseMode {
    Wait(Wait),
    /// At once: the file is not delivered.
    Discard,
}

/// Returns what was opened, and the file that came with the answer.
pub(crate) fn passed(
    talk: &SharedConnection,
    url: &str,
    era: u64,
    mut answer: NodeAnswer,
) -> Result<(Handle, File)> {
    match (answer.tell, answer.files.pop()) {
        (Response::Opened(opened), Some(file)) => Ok((opened.handle, File::from(file))),
        (Response::Opened(opened), None) => {
            give_up(talk, era, opened.handle);
            Err(odd(url, "a file that was to come did not").into())
        }
        (tell, _) => Err(odd(url, &format!("{tell:?}")).into()),
    }
}

impl OpenFiles {
    /// Takes what the node has open for a number. If the program has a copy of it (dup(2)), the file stays open, under
    /// that number: it is given back once, with the last.
    pub(crate) fn take(&self, fd: RawFd, talk: &SharedConnection) -> Option<Opened> {
        let mut all = self.lock();
        let opened = all.remove(&fd)?;
        match system::inode(fd) {
            Ok(inode) if inode == opened.inode => {}
            _ => {
                drop(all);
                opened.give_back(talk, false);
                return None;
            }
        }
        if opened.written.is_none() {
            return Some(opened);
        }
        let copies = system::copies(fd, opened.inode);
        match copies.into_iter().find(|copy| !all.contains_key(copy)) {
            Some(copy) => {
                all.insert(copy, opened);
                None
            }
            None => Some(opened),
        }
    }

    /// At exit(3): delivers files that were written and closed by close(2). Files still open are
    /// not delivered, since they may be incomplete.
    pub(crate) fn leave(&self, talk: &SharedConnection) -> Vec<PendingRequest> {
        let Ok(mut all) = self.0.try_lock() else {
            return Vec::new();
        };
        let is_closed = |fd: RawFd, opened: &Opened| {
            opened.written.is_some() && !system::inode(fd).is_ok_and(|inode| inode == opened.inode)
        };
        let closed = all.extract_if(|fd, opened| is_closed(*fd, opened));
        let ended = closed.filter_map(|(_, opened)| {
            let close = Request::Close(opened.close());
            talk.send(Some(opened.era), close, b"").ok()
        });
        ended.collect()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<RawFd, Opened>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    /// Ends it, and waits as was said. `is_held`: its inode cannot be another file's meanwhile.
    pub(crate) fn end(
        &self,
        talk: &SharedConnection,
        puts: &Puts,
        how: Option<CloseMode>,
        is_held: bool,
    ) -> Result<()> {
        let Some(url) = &self.written else {
            self.give_back(talk, false);
            return Ok(());
        };
        // It was looked at when the file was opened; since then only the strongest is sure to be enough.
        let (usual, limit) = usual_close().unwrap_or((Wait::Push, None));
        let mut close = self.close();
        match how.unwrap_or(CloseMode::Wait(usual)) {
            CloseMode::Wait(wait) => close.wait = wait,
            CloseMode::Discard => close.give_up = true,
        }
        close.timeout_ms = limit.filter(|_| close.wait != Wait::Nothing);
        let (mut era, mut outcome) = (self.era, closed(talk, self.era, &close));
        if is_held
            && let Err(lost) = &outcome
            && lost.kind == Kind::NodeLost
            && let Some((next, handle)) = self.opened_again(talk, url)
        {
            (era, close.handle) = (next, handle);
            outcome = closed(talk, era, &close);
        }
        if !close.give_up && close.wait != Wait::Push {
            puts.wrote(era, close.wait);
        }
        outcome.map_err(Failure::from)
    }

    /// Opens the file again if its node has ended, so that it can be given up. A node that starts
    /// delivers files that no process has open.
    pub(crate) fn keep_from_going(&mut self, talk: &SharedConnection) {
        let Some(url) = &self.written else {
            return;
        };
        let status = talk.ask(Some(self.era), Request::Status, None, &mut |_| ());
        if !matches!(status, Err(refusal) if refusal.kind == Kind::NodeLost) {
            return;
        }
        if let Some((era, handle)) = self.opened_again(talk, url) {
            (self.era, self.handle) = (era, handle);
        }
    }

    /// The node that had it open is gone, and what it kept the next one has. If that is the file that was written here, it
    /// is as if it had been opened there.
    pub(crate) fn opened_again(&self, talk: &SharedConnection, url: &str) -> Option<(u64, Handle)> {
        let open = Request::Open(request::OpenRequest {
            url: url.to_owned(),
            read: true,
            write: self.written.is_some(),
            lazy: self.lazy.is_some(),
            ..request::OpenRequest::default()
        });
        let (era, answer) = talk.ask(None, open, None, &mut |_| ()).ok()?;
        let (handle, file) = passed(talk, url, era, answer).ok()?;
        let is_it = system::inode(file.as_raw_fd()).is_ok_and(|inode| inode == self.inode);
        drop(file);
        if !is_it {
            let close = request::Close {
                handle,
                ..self.close()
            };
            talk.give_back(era, Request::Close(close));
        }
        is_it.then_some((era, handle))
    }

    /// Gives it back without waiting for anything.
    pub(crate) fn give_back(&self, talk: &SharedConnection, is_given_up: bool) {
        let mut close = self.close();
        close.give_up = is_given_up;
        talk.give_back(self.era, Request::Close(close));
    }

    fn close(&self) -> request::Close {
        request::Close {
            handle: self.handle,
            wait: Wait::Nothing,
            give_up: false,
            timeout_ms: None,
        }
    }
}

/// Closes at the node what was written, and keeps what it has to say.
fn closed(talk: &SharedConnection, era: u64, close: &request::Close) -> Result<(), Refusal> {
    let (_, answer) = talk.ask(Some(era), Request::Close(close.clone()), None, &mut |_| ())?;
    if let Response::Done(done) = &answer.tell {
        failure::say(&done.notes);
    }
    Ok(())
}

/// Gives back what was opened and is of no use, as if it had never been.
pub(crate) fn give_up(talk: &SharedConnection, era: u64, handle: Handle) {
    let close = request::Close {
        handle,
        wait: Wait::Nothing,
        give_up: true,
        timeout_ms: None,
    };
    talk.give_back(era, Request::Close(close));
}

/// Returns what closing waits for if the program does not say, and for how many milliseconds at most.
pub(crate) fn usual_close() -> Result<(Wait, Option<u64>)> {
    let told = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let wait = match told("GODWIT_CLOSE") {
        None => Wait::Push,
        Some(value) => match value.to_str() {
            Some("push") => Wait::Push,
            Some("commit") => Wait::Commit,
            _ => {
                let words = format!("it is \"{}\"", value.to_string_lossy());
                let refusal = Refusal::new(Kind::Invalid, "understand GODWIT_CLOSE", words);
                return Err(refusal.next("say push, or commit").into());
            }
        },
    };
    let limit = match told("GODWIT_CLOSE_TIMEOUT") {
        None => None,
        Some(value) => {
            let seconds = value.to_str().and_then(|text| text.parse::<f64>().ok());
            let is_one = |seconds: &f64| seconds.is_finite() && (0.0..1e9).contains(seconds);
            let Some(seconds) = seconds.filter(is_one) else {
                let words = format!("it is \"{}\"", value.to_string_lossy());
                let wanted = "understand GODWIT_CLOSE_TIMEOUT";
                let refusal = Refusal::new(Kind::Invalid, wanted, words);
                return Err(refusal.next("say a number of seconds").into());
            };
            let limit = Duration::from_secs_f64(seconds).as_millis();
            u64::try_from(limit).ok()
        }
    };
    Ok((wait, limit))
}
