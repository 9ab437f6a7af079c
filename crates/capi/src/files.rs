//! Files as descriptors: `gass_open` and `gass_close`.

use crate::{
    failure::{self, Failure, Result},
    name::Name,
    process::Library,
    system::{self, Inode},
};
use godwit_local::{Answer, Kind, Refusal, Talk, Ticket};
use godwit_wire::local::{
    Ask, Handle, Tell,
    ask::{self, Wait},
};
use std::{
    collections::HashMap,
    env,
    ffi::CStr,
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Files of the node that this process has open.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<HashMap<RawFd, Opened>>);

/// A file of the node's.
#[derive(Clone, Debug)]
struct Opened {
    era: u64,
    handle: Handle,
    /// The number may have been closed and be another file's by now.
    inode: Inode,
    /// URL of the file, if it is open for writing.
    written: Option<String>,
    /// Name of the file, if its parts are fetched on demand.
    lazy: Option<String>,
}

/// Condition on which a close returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum How {
    Wait(Wait),
    /// At once: the file is not delivered.
    Discard,
}

/// Opens as open(2) does.
pub(crate) fn open(name: &CStr, flags: i32, mode: u32) -> Result<RawFd> {
    open_as(name, flags, mode, false)
}

/// Opens a file to read, without its bytes where `is_lazy`.
pub(crate) fn open_as(name: &CStr, flags: i32, mode: u32, is_lazy: bool) -> Result<RawFd> {
    let url = match Name::of(name)? {
        Name::There(url) => url,
        Name::Here(path) => {
            let wanted = || format!("open {}", path.to_string_lossy());
            return system::open(&path, flags, mode)
                .map_err(|error| Failure::system(&wanted(), &error));
        }
    };
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let mut ask = asked(&url, flags, mode)?;
    if let Ask::Open(open) = &mut ask {
        open.lazy = is_lazy;
    }
    if writes {
        usual_close()?; // what it says wrongly is said now, and not when all is written
    }
    let ours = Library::ours()?;
    // What was not to be there may be there because it was asked for before.
    let (era, answer) = match flags & libc::O_EXCL {
        0 => ours.talk.ask_twice(&ask)?,
        _ => ours.talk.ask(None, ask, None, &mut |_| ())?,
    };
    let is_lazy = matches!(&answer.tell, Tell::Opened(opened) if opened.lazy);
    let (handle, file) = passed(&ours.talk, &url, era, answer)?;
    let handed = system::hand_out(file, flags & libc::O_CLOEXEC != 0)
        .and_then(|fd| Ok((fd, system::inode(fd)?)));
    let (fd, inode) = handed.map_err(|error| {
        give_up(&ours.talk, era, handle);
        Failure::system(&format!("open {url}"), &error)
    })?;
    let opened = Opened {
        era,
        handle,
        inode,
        lazy: is_lazy.then(|| url.clone()),
        written: writes.then_some(url),
    };
    // Who had that number before was closed by close(2).
    if let Some(before) = ours.files.lock().insert(fd, opened) {
        before.give_back(&ours.talk, false);
    }
    Ok(fd)
}

/// Waits until ranges of a file are here.
pub(crate) fn ensure(fd: RawFd, ranges: &[(u64, u64)]) -> Result<()> {
    let Some(ours) = Library::existing() else {
        return Ok(());
    };
    let opened = ours.files.lock().get(&fd).cloned();
    let opened = opened.filter(|opened| system::inode(fd).is_ok_and(|inode| inode == opened.inode));
    let Some(mut opened) = opened else {
        return Ok(()); // a file of this machine, or none
    };
    let Some(url) = opened.lazy.clone() else {
        return Ok(());
    };
    for ranges in ranges.chunks(ask::RANGES_MAX) {
        loop {
            let ensure = Ask::Ensure(ask::Ensure {
                handle: opened.handle,
                ranges: ranges.to_vec(),
            });
            let lost = match ours.talk.ask(Some(opened.era), ensure, None, &mut |_| ()) {
                Err(lost) if lost.kind == Kind::NodeLost => lost,
                ensured => {
                    ensured?;
                    break;
                }
            };
            let Some((era, handle)) = opened.opened_again(&ours.talk, &url) else {
                return Err(lost.next("open it again").into());
            };
            (opened.era, opened.handle) = (era, handle);
            if let Some(kept) = ours.files.lock().get_mut(&fd) {
                (kept.era, kept.handle) = (era, handle);
            }
        }
    }
    Ok(())
}

/// Returns what was opened, and the file that came with the answer.
pub(crate) fn passed(
    talk: &Talk,
    url: &str,
    era: u64,
    mut answer: Answer,
) -> Result<(Handle, File)> {
    match (answer.tell, answer.files.pop()) {
        (Tell::Opened(opened), Some(file)) => Ok((opened.handle, File::from(file))),
        (Tell::Opened(opened), None) => {
            give_up(talk, era, opened.handle);
            Err(odd(url, "a file that was to come did not").into())
        }
        (tell, _) => Err(odd(url, &format!("{tell:?}")).into()),
    }
}

/// Closes as close(2) does, and waits for what was written.
pub(crate) fn close(fd: RawFd, how: Option<How>) -> Result<()> {
    close_with(fd, how, &mut || system::close(fd))
}

/// Closes a file; `shut` closes the descriptor and returns its error.
pub(crate) fn close_with(
    fd: RawFd,
    how: Option<How>,
    shut: &mut dyn FnMut() -> io::Result<()>,
) -> Result<()> {
    let closed = |error: io::Error| Failure::system(&format!("close descriptor {fd}"), &error);
    failure::say(&[]);
    let Some(ours) = Library::existing() else {
        return shut().map_err(closed);
    };
    let Some(mut opened) = ours.files.take(fd, &ours.talk) else {
        return shut().map_err(closed);
    };
    if how == Some(How::Discard) {
        opened.keep_from_going(&ours.talk);
    }
    // As long as it is held its inode is no other file's; it does not count as open to be written.
    let held = match opened.written {
        Some(_) => system::hold(fd).ok(),
        None => None,
    };
    let shut = shut();
    if shut.is_err() {
        // stdio could not write the rest: half a file must not be delivered.
        opened.give_back(&ours.talk, true);
        return shut.map_err(closed);
    }
    opened.end(&ours.talk, how, held.is_some())
}

impl Files {
    /// Takes what the node has open for a number. If the program has a copy of it (dup(2)), the file stays open, under
    /// that number: it is given back once, with the last.
    fn take(&self, fd: RawFd, talk: &Talk) -> Option<Opened> {
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
    pub(crate) fn leave(&self, talk: &Talk) -> Vec<Ticket> {
        let Ok(mut all) = self.0.try_lock() else {
            return Vec::new();
        };
        let is_closed = |fd: RawFd, opened: &Opened| {
            opened.written.is_some() && !system::inode(fd).is_ok_and(|inode| inode == opened.inode)
        };
        let closed = all.extract_if(|fd, opened| is_closed(*fd, opened));
        let ended = closed.filter_map(|(_, opened)| {
            let close = Ask::Close(opened.close());
            talk.send(Some(opened.era), close, b"").ok()
        });
        ended.collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RawFd, Opened>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    /// Ends it, and waits as was said. `is_held`: its inode cannot be another file's meanwhile.
    fn end(&self, talk: &Talk, how: Option<How>, is_held: bool) -> Result<()> {
        let Some(url) = &self.written else {
            self.give_back(talk, false);
            return Ok(());
        };
        // It was looked at when the file was opened; since then only the strongest is sure to be enough.
        let (usual, limit) = usual_close().unwrap_or((Wait::Push, None));
        let mut close = self.close();
        match how.unwrap_or(How::Wait(usual)) {
            How::Wait(wait) => close.wait = wait,
            How::Discard => close.give_up = true,
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
            Library::ours()?.puts.wrote(era, close.wait);
        }
        outcome.map_err(Failure::from)
    }

    /// Opens the file again if its node has ended, so that it can be given up. A node that starts
    /// delivers files that no process has open.
    fn keep_from_going(&mut self, talk: &Talk) {
        let Some(url) = &self.written else {
            return;
        };
        let status = talk.ask(Some(self.era), Ask::Status, None, &mut |_| ());
        if !matches!(status, Err(refusal) if refusal.kind == Kind::NodeLost) {
            return;
        }
        if let Some((era, handle)) = self.opened_again(talk, url) {
            (self.era, self.handle) = (era, handle);
        }
    }

    /// The node that had it open is gone, and what it kept the next one has. If that is the file that was written here, it
    /// is as if it had been opened there.
    fn opened_again(&self, talk: &Talk, url: &str) -> Option<(u64, Handle)> {
        let open = Ask::Open(ask::Open {
            url: url.to_owned(),
            read: true,
            write: self.written.is_some(),
            lazy: self.lazy.is_some(),
            ..ask::Open::default()
        });
        let (era, answer) = talk.ask(None, open, None, &mut |_| ()).ok()?;
        let (handle, file) = passed(talk, url, era, answer).ok()?;
        let is_it = system::inode(file.as_raw_fd()).is_ok_and(|inode| inode == self.inode);
        drop(file);
        if !is_it {
            let close = ask::Close {
                handle,
                ..self.close()
            };
            talk.give_back(era, Ask::Close(close));
        }
        is_it.then_some((era, handle))
    }

    /// Gives it back without waiting for anything.
    fn give_back(&self, talk: &Talk, is_given_up: bool) {
        let mut close = self.close();
        close.give_up = is_given_up;
        talk.give_back(self.era, Ask::Close(close));
    }

    fn close(&self) -> ask::Close {
        ask::Close {
            handle: self.handle,
            wait: Wait::Nothing,
            give_up: false,
            timeout_ms: None,
        }
    }
}

/// Closes at the node what was written, and keeps what it has to say.
fn closed(talk: &Talk, era: u64, close: &ask::Close) -> Result<(), Refusal> {
    let (_, answer) = talk.ask(Some(era), Ask::Close(close.clone()), None, &mut |_| ())?;
    if let Tell::Done(done) = &answer.tell {
        failure::say(&done.notes);
    }
    Ok(())
}

/// Gives back what was opened and is of no use, as if it had never been.
pub(crate) fn give_up(talk: &Talk, era: u64, handle: Handle) {
    let close = ask::Close {
        handle,
        wait: Wait::Nothing,
        give_up: true,
        timeout_ms: None,
    };
    talk.give_back(era, Ask::Close(close));
}

/// Returns what is asked of the node, in its words.
fn asked(url: &str, flags: i32, mode: u32) -> Result<Ask> {
    let wanted = || format!("open {url}");
    let has = |flag: i32| flags & flag == flag;
    let (read, write) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(Failure::invalid(wanted(), "it is neither read nor written")),
    };
    for (flag, name) in [
        (libc::O_TMPFILE, "O_TMPFILE"),
        (libc::O_DIRECTORY, "O_DIRECTORY"),
        (libc::O_PATH, "O_PATH"),
    ] {
        if has(flag) {
            let words = format!("{name} means nothing for a file of another machine");
            return Err(Refusal::new(Kind::Unsupported, wanted(), words).into());
        }
    }
    if has(libc::O_TRUNC) && !write {
        return Err(Failure::invalid(
            wanted(),
            "it would be emptied, and only read",
        ));
    }
    if has(libc::O_APPEND) {
        if read || has(libc::O_TRUNC) || has(libc::O_EXCL) {
            let words = "O_APPEND is a stream: it goes with O_WRONLY and O_CREAT alone";
            return Err(Failure::invalid(wanted(), words));
        }
        return Ok(Ask::Append(ask::Append {
            url: url.to_owned(),
            record: false,
            end: false,
            stream: true,
            wait: Wait::Nothing,
        }));
    }
    let create = has(libc::O_CREAT);
    Ok(Ask::Open(ask::Open {
        url: url.to_owned(),
        read,
        write,
        create,
        excl: create && has(libc::O_EXCL),
        truncate: has(libc::O_TRUNC),
        mode: create.then(|| mode & 0o7777 & !system::umask()),
        ..ask::Open::default()
    }))
}

/// Returns the flags that a mode of fopen(3) stands for.
pub(crate) fn flags_of(mode: &CStr) -> Option<i32> {
    let (first, rest) = mode.to_bytes().split_first()?;
    let is_both = rest.contains(&b'+');
    let access = |alone: i32| if is_both { libc::O_RDWR } else { alone };
    let mut flags = match first {
        b'r' => access(libc::O_RDONLY),
        b'w' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        b'a' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    for letter in rest {
        flags |= match letter {
            b'x' => libc::O_EXCL,
            b'e' => libc::O_CLOEXEC,
            b',' => break,
            _ => 0,
        };
    }
    Some(flags)
}

/// Opens as fopen(3) does.
pub(crate) fn open_stream(name: &CStr, mode: &CStr) -> Result<system::Stream> {
    let wanted = || format!("open {}", name.to_string_lossy());
    if let Name::Here(path) = Name::of(name)? {
        return system::open_stream(&path, mode)
            .map_err(|error| Failure::system(&wanted(), &error));
    }
    let flags = flags_of(mode);
    let flags = flags.ok_or_else(|| Failure::invalid(wanted(), "no such mode of fopen(3)"))?;
    let fd = open(name, flags, 0o666)?;
    system::stream_of(fd, mode).map_err(|error| {
        let _ = close(fd, Some(How::Discard));
        Failure::system(&wanted(), &error)
    })
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

pub(crate) fn odd(url: &str, words: &str) -> Refusal {
    let words = format!("the node answers otherwise than was asked: {words}");
    Refusal::new(Kind::Version, format!("open {url}"), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_stdio_are_flags() {
        for (mode, flags) in [
            (c"r", libc::O_RDONLY),
            (c"rb", libc::O_RDONLY),
            (c"r+", libc::O_RDWR),
            (c"w", libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC),
            (
                c"wxe",
                libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL | libc::O_CLOEXEC,
            ),
            (c"w+b", libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC),
            (c"a", libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND),
            (c"r,ccs=x", libc::O_RDONLY),
        ] {
            assert_eq!(flags_of(mode), Some(flags), "{mode:?}");
        }
        assert_eq!(flags_of(c"z"), None);
        assert_eq!(flags_of(c""), None);
    }

    #[test]
    fn invalid_arguments_are_refused_locally() {
        let errno = |flags| asked("ftp://a/x", flags, 0).unwrap_err().errno;
        assert_eq!(errno(libc::O_ACCMODE), libc::EINVAL);
        assert_eq!(errno(libc::O_RDONLY | libc::O_TRUNC), libc::EINVAL);
        assert_eq!(errno(libc::O_RDWR | libc::O_APPEND), libc::EINVAL);
        assert_eq!(errno(libc::O_WRONLY | libc::O_PATH), libc::EOPNOTSUPP);
        assert_eq!(errno(libc::O_DIRECTORY), libc::EOPNOTSUPP);
    }
}
