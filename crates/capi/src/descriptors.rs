//! `gass_open` and `gass_close`: descriptors for files of the node.

use crate::{
    failure::{self, Failure, Result},
    files::{CloseMode, Opened, give_up, passed, usual_close},
    name::Name,
    process::Instance,
    system,
};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{
    Request, Response,
    request::{self, Wait},
};
use std::{ffi::CStr, io, os::fd::RawFd};

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
    if let Request::Open(open) = &mut ask {
        open.lazy = is_lazy;
    }
    if writes {
        usual_close()?; // what it says wrongly is said now, and not when all is written
    }
    let ours = Instance::ours()?;
    // What was not to be there may be there because it was asked for before.
    let (era, answer) = match flags & libc::O_EXCL {
        0 => ours.talk.ask_twice(&ask)?,
        _ => ours.talk.ask(None, ask, None, &mut |_| ())?,
    };
    let is_lazy = matches!(&answer.tell, Response::Opened(opened) if opened.lazy);
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
    let Some(ours) = Instance::existing() else {
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
    for ranges in ranges.chunks(request::RANGES_MAX) {
        loop {
            let ensure = Request::Ensure(request::Ensure {
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

/// Closes as close(2) does, and waits for what was written.
pub(crate) fn close(fd: RawFd, how: Option<CloseMode>) -> Result<()> {
    close_with(fd, how, &mut || system::close(fd))
}

/// Closes a file; `shut` closes the descriptor and returns its error.
pub(crate) fn close_with(
    fd: RawFd,
    how: Option<CloseMode>,
    shut: &mut dyn FnMut() -> io::Result<()>,
) -> Result<()> {
    let closed = |error: io::Error| Failure::system(&format!("close descriptor {fd}"), &error);
    failure::say(&[]);
    let Some(ours) = Instance::existing() else {
        return shut().map_err(closed);
    };
    let Some(mut opened) = ours.files.take(fd, &ours.talk) else {
        return shut().map_err(closed);
    };
    if how == Some(CloseMode::Discard) {
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
    opened.end(&ours.talk, &ours.puts, how, held.is_some())
}

/// Returns what is asked of the node, in its words.
fn asked(url: &str, flags: i32, mode: u32) -> Result<Request> {
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
        return Ok(Request::Append(request::Append {
            url: url.to_owned(),
            record: false,
            end: false,
            stream: true,
            wait: Wait::Nothing,
        }));
    }
    let create = has(libc::O_CREAT);
    Ok(Request::Open(request::OpenRequest {
        url: url.to_owned(),
        read,
        write,
        create,
        excl: create && has(libc::O_EXCL),
        truncate: has(libc::O_TRUNC),
        mode: create.then(|| mode & 0o7777 & !system::umask()),
        ..request::OpenRequest::default()
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
pub(crate) fn open_stream(name: &CStr, mode: &CStr) -> Result<system::StdioStream> {
    let wanted = || format!("open {}", name.to_string_lossy());
    if let Name::Here(path) = Name::of(name)? {
        return system::open_stream(&path, mode)
            .map_err(|error| Failure::system(&wanted(), &error));
    }
    let flags = flags_of(mode);
    let flags = flags.ok_or_else(|| Failure::invalid(wanted(), "no such mode of fopen(3)"))?;
    let fd = open(name, flags, 0o666)?;
    system::stream_of(fd, mode).map_err(|error| {
        let _ = close(fd, Some(CloseMode::Discard));
        Failure::system(&wanted(), &error)
    })
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
