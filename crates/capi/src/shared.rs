//! `godwit_open` and what goes with it: files that several programs of this machine read and write together.

use crate::{
    face::{buffer, place, text, told},
    failure::{Failure, Result, odd},
    files::{give_up, passed},
    name::Name,
    ops::Number,
    process::Instance,
    shares::{Shared, lock},
    system,
};
use godwit_core::{Extents, STEP_BYTES};
use godwit_local::{Kind, NodeAnswer, Refusal};
use godwit_wire::{
    client::DataHints,
    local::{
        Request, Response,
        request::{self, Act, RANGES_MAX},
    },
};
use libc::{c_char, c_int, c_long, size_t};
use std::{
    fs, mem,
    os::fd::{AsRawFd, RawFd},
    slice,
    sync::{Arc, Mutex},
};

/// The bytes from one offset to another.
#[repr(C)]
#[derive(Debug)]
pub struct Range {
    start: u64,
    end: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct SharedOptions {
    size: size_t,
    session: *const c_char,
    parallelism: u32,
    tcp_buffer: u32,
    stream_mode: c_int,
    one_host: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct Report {
    size: size_t,
    fetched: u64,
    delivered: u64,
    transfers: u64,
}

const SYNC_TELL: c_int = 1;
const SYNC_LOOK: c_int = 2;
const SYNC_CHANGED: c_int = 4;

#[unsafe(no_mangle)]
pub extern "C" fn godwit_open(
    name: *const c_char,
    flags: c_int,
    options: *const SharedOptions,
) -> c_int {
    told(-1, || {
        // SAFETY: godwit.h asks for NULL or options that are as long as they say.
        let options = unsafe { options.as_ref() };
        let is_known = |options: &&SharedOptions| options.size == mem::size_of::<SharedOptions>();
        let options = match options {
            Some(options) if !is_known(&options) => {
                let words = "the size in the options is not that of godwit.h";
                return Err(Failure::invalid("open a shared file", words));
            }
            options => options,
        };
        let session = options.filter(|options| !options.session.is_null());
        let session = session.map(|options| text(options.session)).transpose()?;
        let share = request::ShareRequest {
            url: Name::there(text(name)?)?,
            session: session.map(|word| word.to_string_lossy().into_owned()),
            create: flags & libc::O_CREAT != 0,
            excl: flags & libc::O_EXCL != 0,
            hints: options.map(hints_of).unwrap_or_default(),
        };
        open(share, flags & libc::O_ACCMODE == libc::O_RDONLY)
    })
}

fn hints_of(options: &SharedOptions) -> DataHints {
    DataHints {
        streams: match options.stream_mode {
            0 => options.parallelism,
            _ => 1, // it has one connection
        },
        tcp_buffer: options.tcp_buffer,
        passive: options.stream_mode != 0,
        one_host: options.one_host != 0,
    }
}

fn open(share: request::ShareRequest, is_read_only: bool) -> Result<RawFd> {
    let ours = Instance::ours()?;
    let (url, hints) = (share.url.clone(), share.hints);
    let ask = match is_read_only {
        true => to_read(&url, share.hints, request::Freshness::Usual),
        false => Request::Share(share),
    };
    let (era, answer) = ours.talk.ask(None, ask, None, &mut |_| ())?;
    let free_from = match &answer.tell {
        Response::Opened(opened) => opened.free_from.unwrap_or(u64::MAX),
        _ => u64::MAX,
    };
    let (handle, file) = passed(&ours.talk, &url, era, answer)?;
    let fd = system::hand_out(file, true).map_err(|error| {
        give_up(&ours.talk, era, handle);
        Failure::system(&format!("open {url}"), &error)
    })?;
    let shared = Shared {
        url,
        hints,
        era,
        handle,
        is_read_only,
        free_from,
        here: Extents::new(),
        granted: Extents::new(),
        wrote: Extents::new(),
    };
    ours.shared.insert(fd, shared);
    Ok(fd)
}

fn to_read(url: &str, hints: DataHints, fresh: request::Freshness) -> Request {
    Request::Open(request::OpenRequest {
        url: url.to_owned(),
        read: true,
        lazy: true,
        hints,
        fresh,
        ..request::OpenRequest::default()
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_file_fd(file: c_int) -> c_int {
    told(-1, || find(file).map(|_| file))
}

/// Waits until ranges of a shared file are here; `None`: the descriptor is of no shared file.
pub(crate) fn ensure(fd: RawFd, ranges: &[(u64, u64)]) -> Option<Result<()>> {
    let shared = Instance::existing()?.shared.find(fd)?;
    let mut shared = lock(&shared);
    let missing = shared.missing(ranges);
    Some(match missing.is_empty() {
        true => Ok(()),
        false => shared.ensure(fd, &missing),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_ensure_begin(file: c_int, ranges: *const Range, count: size_t) -> Number {
    told(-1, || {
        let shared = find(file)?;
        let shared = lock(&shared);
        let missing = pairs(&shared.missing(&ranges_of(ranges, count)?));
        if missing.is_empty() {
            return Ok(0);
        }
        let ours = Instance::ours()?;
        let parts = missing.chunks(RANGES_MAX).map(<[_]>::to_vec).collect();
        (ours.ops).ensure(&ours.talk, (shared.era, shared.handle), parts)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_grant(file: c_int, ranges: *const Range, count: size_t) -> c_int {
    told(-1, || {
        let shared = find(file)?;
        let mut shared = lock(&shared);
        let ranges = extents(&ranges_of(ranges, count)?);
        let below = Extents::from(0..shared.free_from);
        for part in pairs(&ranges.and(&below).minus(&shared.granted)).chunks(RANGES_MAX) {
            if let Response::Done(done) = shared.act(Act::Grant(part.to_vec()))?.tell {
                shared.free_from = done.bytes;
            }
            for (start, end) in part {
                shared.granted.insert(*start..*end);
            }
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_wrote(file: c_int, ranges: *const Range, count: size_t) -> c_int {
    told(-1, || {
        let shared = find(file)?;
        let mut shared = lock(&shared);
        for (start, end) in ranges_of(ranges, count)? {
            shared.wrote.insert(start..end);
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_resize(file: c_int, size: u64) -> c_int {
    told(-1, || {
        let shared = find(file)?;
        let mut shared = lock(&shared);
        shared.act(Act::Resize(size))?;
        let Shared {
            here,
            granted,
            wrote,
            ..
        } = &mut *shared;
        for ranges in [here, granted, wrote] {
            ranges.remove(size..u64::MAX);
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_sync(file: c_int, flags: c_int) -> i64 {
    told(-1, || {
        let shared = find(file)?;
        let mut shared = lock(&shared);
        let wrote = mem::take(&mut shared.wrote);
        if !wrote.is_empty()
            && let Err(error) = shared.act_on(&wrote, Act::Wrote)
        {
            shared.wrote = wrote;
            return Err(error);
        }
        let mut bytes = 0;
        if flags & SYNC_TELL == 0 && !shared.is_read_only {
            let answer = shared.act(Act::Deliver)?;
            if let Response::Done(done) = answer.tell {
                bytes = i64::try_from(done.bytes).unwrap_or(i64::MAX);
            }
        }
        if flags & (SYNC_LOOK | SYNC_CHANGED) != 0 {
            let is_changed = flags & SYNC_CHANGED != 0;
            match shared.is_read_only {
                _ if flags & SYNC_TELL != 0 => {} // another process looks
                true => shared.renew(file, request::Freshness::Asked)?,
                false => drop(shared.act(Act::Look { is_changed })?),
            }
            (shared.here, shared.granted) = (Extents::new(), Extents::new());
            shared.free_from = u64::MAX; // the next grant tells
        }
        Ok(bytes)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_file_close(file: c_int) -> c_int {
    told(-1, || {
        let ours = Instance::ours()?;
        let shared = find(file)?;
        ours.shared.remove(file);
        let shared = lock(&shared);
        give_up(&ours.talk, shared.era, shared.handle);
        let closed = system::close(file);
        closed.map_err(|error| Failure::system(&format!("close {}", shared.url), &error))?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_file_report(file: c_int, report: *mut Report) -> c_int {
    told(-1, || {
        let report = place(report)?;
        if report.size != mem::size_of::<Report>() {
            let words = "the size in the report is not that of godwit.h";
            return Err(Failure::invalid("count the bytes of a shared file", words));
        }
        let shared = find(file)?;
        let answer = lock(&shared).act(Act::Count)?;
        let mut numbers = answer.body.as_chunks::<8>().0.iter();
        let mut next = || numbers.next().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (report.fetched, report.delivered, report.transfers) = (next(), next(), next());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_node_name(name: *mut c_char, size: size_t) -> c_long {
    told(-1, || {
        let (_, answer) = Instance::ours()?.talk.ask_twice(&Request::Status)?;
        let Response::Status(status) = answer.tell else {
            return Err(odd("", &format!("{:?}", answer.tell)).into());
        };
        let boot = fs::read_to_string(BOOT)
            .map_err(|error| Failure::system(&format!("read {BOOT}"), &error))?;
        let word = format!("{}-{}", boot.trim(), status.process);
        let mut into = buffer(name.cast(), size)?;
        if word.len() < size {
            into.part_mut(0, word.len())
                .copy_from_slice(word.as_bytes());
            into.part_mut(word.len(), 1).fill(0);
        }
        Ok(c_long::try_from(word.len()).unwrap_or(c_long::MAX))
    })
}

/// Tells one boot of a machine from all others.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

fn find(fd: RawFd) -> Result<Arc<Mutex<Shared>>> {
    let found = Instance::existing().and_then(|ours| ours.shared.find(fd));
    found.ok_or_else(|| {
        let words = format!("{fd} is no file that godwit_open() returned");
        Refusal::new(Kind::NotOpen, "use a shared file", words).into()
    })
}

impl Shared {
    fn act(&self, act: Act) -> Result<NodeAnswer> {
        let handle = self.handle;
        let ask = Request::Shared(request::SharedRequest { handle, act });
        let (_, answer) = (Instance::ours()?.talk).ask(Some(self.era), ask, None, &mut |_| ())?;
        Ok(answer)
    }

    /// Says something of ranges, in as many pieces as it takes.
    fn act_on(&self, ranges: &Extents, act: fn(Vec<(u64, u64)>) -> Act) -> Result<()> {
        let pairs = pairs(ranges);
        (pairs.chunks(RANGES_MAX)).try_for_each(|part| self.act(act(part.to_vec())).map(drop))
    }

    /// Returns the steps of ranges of which it is not known that they are here.
    fn missing(&self, ranges: &[(u64, u64)]) -> Extents {
        let mut missing = Extents::new();
        for (start, end) in ranges {
            let start = start - start % STEP_BYTES;
            let end = end.checked_next_multiple_of(STEP_BYTES);
            missing.insert(start..end.unwrap_or(u64::MAX));
        }
        missing.minus(&self.here)
    }

    fn ensure(&mut self, fd: RawFd, missing: &Extents) -> Result<()> {
        for part in pairs(missing).chunks(RANGES_MAX) {
            loop {
                let ensure = Request::Ensure(request::Ensure {
                    handle: self.handle,
                    ranges: part.to_vec(),
                });
                let talk = &Instance::ours()?.talk;
                match talk.ask(Some(self.era), ensure, None, &mut |_| ()) {
                    Err(refusal)
                        if self.is_read_only
                            && matches!(refusal.kind, Kind::NodeLost | Kind::Changed) =>
                    {
                        self.renew(fd, request::Freshness::Usual)?;
                    }
                    ensured => {
                        ensured?;
                        break;
                    }
                }
            }
        }
        (missing.iter()).for_each(|range| self.here.insert(range));
        Ok(())
    }

    /// Opens a file that is only read once more: its descriptor is of the server's file as it is now.
    fn renew(&mut self, fd: RawFd, fresh: request::Freshness) -> Result<()> {
        let talk = &Instance::ours()?.talk;
        let (era, answer) = talk.ask(
            None,
            to_read(&self.url, self.hints, fresh),
            None,
            &mut |_| (),
        )?;
        let (handle, file) = passed(talk, &self.url, era, answer)?;
        let replaced = system::put_over(file.as_raw_fd(), fd);
        replaced.map_err(|error| Failure::system(&format!("open {}", self.url), &error))?;
        give_up(talk, self.era, self.handle);
        (self.era, self.handle) = (era, handle);
        self.here = Extents::new();
        Ok(())
    }
}

fn pairs(ranges: &Extents) -> Vec<(u64, u64)> {
    ranges
        .iter()
        .map(|range| (range.start, range.end))
        .collect()
}

fn extents(pairs: &[(u64, u64)]) -> Extents {
    let mut extents = Extents::new();
    for (start, end) in pairs {
        extents.insert(*start..*end);
    }
    extents
}

/// Returns ranges of the caller.
pub(crate) fn ranges_of(ranges: *const Range, count: size_t) -> Result<Vec<(u64, u64)>> {
    if ranges.is_null() && count > 0 {
        let words = "the ranges are NULL";
        return Err(Failure::invalid("use a file in part", words));
    }
    let ranges = match count {
        0 => &[],
        // SAFETY: godwit.h asks for that many.
        _ => unsafe { slice::from_raw_parts(ranges, count) },
    };
    Ok(ranges
        .iter()
        .map(|range| (range.start, range.end))
        .collect())
}
