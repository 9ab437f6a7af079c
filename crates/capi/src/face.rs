//! The functions of `godwit.h`. Each checks its pointers, calls a safe function, and keeps the failure.
//!
//! No panic unwinds into C: a panic is a failure of its own kind.

use crate::{
    cache::CacheHandle,
    descriptors,
    failure::{self, About, Failure, Result},
    files::CloseMode,
    name::Name,
    ops::{End, Number, OpOptions, OpSource, OpTarget, UNIT_BYTES},
    process::{self, Instance},
    system::{self, CallerBuffer, Mapped, StdioStream},
};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{
    Request,
    frame::BODY_BYTES_MAX,
    request::{self, FileTarget, Wait},
    response::Row,
};
use libc::{c_char, c_int, c_long, c_void, mode_t, size_t};
use std::{
    ffi::{CStr, CString},
    fs::File,
    os::{
        fd::{AsFd, IntoRawFd},
        unix::ffi::OsStrExt,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    time::{Duration, Instant},
};

/// Calls, and keeps why it failed.
pub(crate) fn told<T>(failed: T, call: impl FnOnce() -> Result<T>) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        let words = "the library has a fault; what it said is on standard error";
        Err(Refusal::new(Kind::Disk, "go on", words).into())
    });
    match outcome {
        Ok(value) => value,
        Err(failure) => {
            let errno = failure.errno;
            failure::note(failure);
            // SAFETY: it is this thread's own.
            unsafe { *libc::__errno_location() = errno };
            failed
        }
    }
}

/// Reads a name; the caller guarantees that it ends with a zero byte.
pub(crate) fn text<'a>(name: *const c_char) -> Result<&'a CStr> {
    if name.is_null() {
        return Err(Failure::invalid("read a name", "it is NULL"));
    }
    // SAFETY: godwit.h asks for a C string.
    Ok(unsafe { CStr::from_ptr(name) })
}

pub(crate) fn utf8<'a>(name: *const c_char, what: &str) -> Result<&'a str> {
    let words = text(name)?.to_str();
    words.map_err(|_| Failure::invalid(format!("read {what}"), "it is no text in UTF-8"))
}

pub(crate) fn optional<'a>(name: *const c_char, what: &str) -> Result<Option<&'a str>> {
    match name.is_null() {
        true => Ok(None),
        false => utf8(name, what).map(Some),
    }
}

/// Lends where a result is to be written.
pub(crate) fn place<'a, T>(at: *mut T) -> Result<&'a mut T> {
    // SAFETY: godwit.h asks for a struct of that type, or NULL.
    unsafe { at.as_mut() }
        .ok_or_else(|| Failure::invalid("write a result", "there is no place for it"))
}

pub(crate) fn buffer(at: *mut u8, len: size_t) -> Result<CallerBuffer> {
    let lent = CallerBuffer::lent(at, len);
    lent.ok_or_else(|| Failure::invalid("use that buffer", "it is NULL, or longer than memory"))
}

pub(crate) fn deadline(timeout_ms: c_int) -> Option<Instant> {
    let timeout = u64::try_from(timeout_ms).ok()?;
    Some(Instant::now() + Duration::from_millis(timeout))
}

fn waits(how: c_int) -> Result<CloseMode> {
    Ok(match how {
        NOWAIT => CloseMode::Wait(Wait::Nothing),
        COMMIT => CloseMode::Wait(Wait::Commit),
        PUSH => CloseMode::Wait(Wait::Push),
        DISCARD => CloseMode::Discard,
        _ => {
            let words = format!("{how} is none of GODWIT_NOWAIT, _COMMIT, _PUSH, _DISCARD");
            return Err(Failure::invalid("close", words));
        }
    })
}

const NOWAIT: c_int = 1;
const COMMIT: c_int = 2;
const PUSH: c_int = 3;
const DISCARD: c_int = 4;

// ---- Why not

/// See godwit.h, as for all that follow.
#[unsafe(no_mangle)]
pub extern "C" fn godwit_api_version() -> c_int {
    6
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_strerror() -> *const c_char {
    failure::last(About::Words)
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_hint() -> *const c_char {
    failure::last(About::Next)
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_error() -> c_int {
    failure::last_number().0
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_error_name() -> *const c_char {
    failure::last(About::Name)
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_error_passes() -> c_int {
    c_int::from(failure::last_number().1)
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_note() -> *const c_char {
    failure::said()
}

// ---- Files

/// `mode` is for callers that create a file: C says `...`, which Linux passes in the same place.
#[unsafe(no_mangle)]
pub extern "C" fn gass_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    told(-1, || descriptors::open(text(name)?, flags, mode))
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_fopen(name: *const c_char, mode: *const c_char) -> StdioStream {
    told(ptr::null_mut(), || {
        descriptors::open_stream(text(name)?, text(mode)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_close(fd: c_int) -> c_int {
    told(-1, || descriptors::close(fd, None).map(|()| 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_close(fd: c_int, how: c_int) -> c_int {
    told(-1, || descriptors::close(fd, Some(waits(how)?)).map(|()| 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_fclose(stream: StdioStream) -> c_int {
    close_stream(stream, || Ok(None))
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_fclose(stream: StdioStream, how: c_int) -> c_int {
    close_stream(stream, || waits(how).map(Some))
}

fn close_stream(stream: StdioStream, how: impl FnOnce() -> Result<Option<CloseMode>>) -> c_int {
    told(libc::EOF, || {
        if stream.is_null() {
            return Err(Failure::invalid("close a stream", "it is NULL"));
        }
        // SAFETY: godwit.h asks for a stream that is open, which is closed once.
        let fd = unsafe { libc::fileno(stream) };
        // SAFETY: the same; `close_with` calls it once.
        let mut shut = || match unsafe { libc::fclose(stream) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        descriptors::close_with(fd, how()?, &mut shut).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_stage(name: *const c_char, tag: *const c_char, expires_s: u64) -> c_int {
    told(-1, || {
        let stage = stage(name, tag, expires_s)?;
        let ours = Instance::ours()?;
        ours.talk.ask_twice(&Request::Stage(stage))?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_unstage(name: *const c_char, tag: *const c_char) -> c_int {
    told(-1, || {
        let stage = stage(name, tag, 0)?;
        let ours = Instance::ours()?;
        ours.talk
            .ask(None, Request::Unstage(stage), None, &mut |_| ())?;
        Ok(0)
    })
}

fn stage(name: *const c_char, tag: *const c_char, expires_s: u64) -> Result<request::StageRequest> {
    Ok(request::StageRequest {
        url: Name::there(text(name)?)?,
        tag: optional(tag, "a tag")?.map(str::to_owned),
        expires_in_s: (expires_s > 0).then_some(expires_s),
        ..request::StageRequest::default()
    })
}

// ---- The cache

#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    fd: c_int,
    has_timestamp: c_int,
    timestamp: i64,
    size: u64,
    transfers: u64,
    tags: u64,
    is_whole: c_int,
}

impl Entry {
    fn of(row: &Row) -> Self {
        Self {
            fd: -1,
            has_timestamp: c_int::from(row.timestamp.is_some()),
            timestamp: row.timestamp.unwrap_or(0),
            size: row.size,
            transfers: row.transfers,
            tags: row.tags.len() as u64,
            is_whole: c_int::from(row.present_bytes >= row.size),
        }
    }
}

fn cache<'a>(cache: *mut CacheHandle) -> Result<&'a CacheHandle> {
    // SAFETY: godwit.h asks for what gass_cache_open() returned and gass_cache_close() was not told.
    unsafe { cache.as_ref() }.ok_or_else(|| Failure::invalid("use a cache", "it is NULL"))
}

fn cached(url: *const c_char) -> Result<String> {
    Name::there(text(url)?)
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_open(on: *const c_char) -> *mut CacheHandle {
    told(ptr::null_mut(), || {
        let cache = CacheHandle::open(optional(on, "where the cache is")?)?;
        Ok(Box::into_raw(Box::new(cache)))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_close(cache: *mut CacheHandle) -> c_int {
    told(-1, || {
        if cache.is_null() {
            return Err(Failure::invalid("close a cache", "it is NULL"));
        }
        // SAFETY: godwit.h asks for what gass_cache_open() returned, once.
        unsafe { Box::from_raw(cache) }.close();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_add(
    on: *mut CacheHandle,
    url: *const c_char,
    tag: *const c_char,
    entry: *mut Entry,
) -> c_int {
    told(-1, || {
        let entry = place(entry)?;
        let added = cache(on)?.add(&cached(url)?, optional(tag, "a tag")?)?;
        *entry = Entry {
            fd: added.fd,
            has_timestamp: c_int::from(added.opened.timestamp.is_some()),
            timestamp: added.opened.timestamp.unwrap_or(0),
            size: added.opened.size,
            transfers: 0,
            tags: 0,
            is_whole: c_int::from(added.opened.exists),
        };
        Ok(c_int::from(!added.opened.exists))
    })
}

/// Returns how long the path is; a buffer that is too short for it and its end is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_path(
    on: *mut CacheHandle,
    url: *const c_char,
    at: *mut c_char,
    size: size_t,
) -> c_long {
    told(-1, || {
        let path = cache(on)?.path(&cached(url)?)?;
        let bytes = path.as_os_str().as_bytes();
        let mut into = buffer(at.cast(), size)?;
        if bytes.len() < size {
            into.part_mut(0, bytes.len()).copy_from_slice(bytes);
            into.part_mut(bytes.len(), 1).fill(0);
        }
        Ok(c_long::try_from(bytes.len()).unwrap_or(c_long::MAX))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_add_done(
    on: *mut CacheHandle,
    url: *const c_char,
    timestamp: i64,
) -> c_int {
    told(-1, || {
        cache(on)?
            .add_done(&cached(url)?, Some(timestamp), false)
            .map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_add_failed(on: *mut CacheHandle, url: *const c_char) -> c_int {
    told(-1, || {
        cache(on)?.add_done(&cached(url)?, None, true).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_delete_start(
    on: *mut CacheHandle,
    url: *const c_char,
    entry: *mut Entry,
) -> c_int {
    told(-1, || {
        let entry = place(entry)?;
        *entry = Entry::of(&cache(on)?.delete_start(&cached(url)?)?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_delete(
    on: *mut CacheHandle,
    url: *const c_char,
    tag: *const c_char,
) -> c_int {
    told(-1, || {
        cache(on)?
            .delete(&cached(url)?, utf8(tag, "a tag")?)
            .map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_query(
    on: *mut CacheHandle,
    url: *const c_char,
    entry: *mut Entry,
) -> c_int {
    told(-1, || {
        let entry = place(entry)?;
        *entry = Entry::of(&cache(on)?.query(&cached(url)?)?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_cleanup_tag(
    on: *mut CacheHandle,
    url: *const c_char,
    tag: *const c_char,
) -> c_int {
    told(-1, || {
        let url = cached(url)?;
        cache(on)?
            .clean_up(Some(&url), utf8(tag, "a tag")?)
            .map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_cleanup_tag_all(on: *mut CacheHandle, tag: *const c_char) -> c_int {
    told(-1, || {
        cache(on)?.clean_up(None, utf8(tag, "a tag")?).map(|()| 0)
    })
}

type Each = extern "C" fn(*mut c_void, *const c_char, *const *const c_char, *const Entry) -> c_int;

#[unsafe(no_mangle)]
pub extern "C" fn gass_cache_list(
    on: *mut CacheHandle,
    prefix: *const c_char,
    each: Option<Each>,
    context: *mut c_void,
) -> c_long {
    told(-1, || {
        let each =
            each.ok_or_else(|| Failure::invalid("list a cache", "there is no function to call"))?;
        let rows = cache(on)?.list(optional(prefix, "the beginning of a URL")?.unwrap_or(""))?;
        let mut count = 0;
        for row in &rows {
            let c = |text: &String| CString::new(text.replace('\0', "?")).unwrap_or_default();
            let (url, tags) = (c(&row.url), row.tags.iter().map(c).collect::<Vec<_>>());
            let mut names: Vec<_> = tags.iter().map(|tag| tag.as_ptr()).collect();
            names.push(ptr::null());
            count += 1;
            if each(context, url.as_ptr(), names.as_ptr(), &Entry::of(row)) != 0 {
                break;
            }
        }
        Ok(count)
    })
}

// ---- Bytes, while the program does something else

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    size: size_t,
    unit_bytes: size_t,
    how: c_int,
    record: c_int,
    tag: *const c_char,
    expires_s: u64,
}

/// Reads what the program was compiled with: what it does not know is as if it had said nothing.
fn wishes(options: *const Wishes) -> Result<(Wishes, OpOptions)> {
    let mut wishes = Wishes {
        size: size_of::<Wishes>(),
        unit_bytes: 0,
        how: 0,
        record: 0,
        tag: ptr::null(),
        expires_s: 0,
    };
    if !options.is_null() {
        // SAFETY: godwit.h asks for a struct that begins with its size.
        let size = unsafe { ptr::read_unaligned(options.cast::<size_t>()) };
        if size < size_of::<size_t>() {
            let words = "size is not sizeof(struct godwit_options)";
            return Err(Failure::invalid("read options", words));
        }
        let known = size.min(size_of::<Wishes>());
        // SAFETY: both are that long; every pattern of bytes is such a struct.
        unsafe {
            ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut wishes).cast::<u8>(), known);
        }
    }
    let wait = match wishes.how {
        0 => Wait::Push,
        how => match waits(how)? {
            CloseMode::Wait(wait) => wait,
            CloseMode::Discard => {
                return Err(Failure::invalid(
                    "read options",
                    "what is put is not discarded",
                ));
            }
        },
    };
    let unit_bytes = match wishes.unit_bytes {
        0 => UNIT_BYTES,
        bytes => bytes.clamp(512, 256 << 20),
    };
    Ok((wishes, OpOptions { unit_bytes, wait }))
}

fn descriptor(fd: c_int) -> Result<File> {
    let copy = system::copy_of(fd);
    copy.map(File::from)
        .map_err(|error| Failure::system(&format!("use descriptor {fd}"), &error))
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_get_begin(
    name: *const c_char,
    offset: u64,
    at: *mut u8,
    length: size_t,
    options: *const Wishes,
) -> Number {
    let range = (offset, length as u64);
    get(name, range, options, || {
        buffer(at, length).map(OpTarget::Buffer)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_get_file_begin(
    name: *const c_char,
    offset: u64,
    length: u64,
    fd: c_int,
    options: *const Wishes,
) -> Number {
    let range = (offset, length);
    get(name, range, options, || {
        descriptor(fd).map(OpTarget::Descriptor)
    })
}

fn get(
    name: *const c_char,
    range: (u64, u64),
    options: *const Wishes,
    into: impl FnOnce() -> Result<OpTarget>,
) -> Number {
    told(-1, || {
        let (url, into) = (Name::there(text(name)?)?, into()?);
        let options = wishes(options)?.1;
        let ours = Instance::ours()?;
        ours.ops.get(&ours.talk, url, range, into, options)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_memory_begin(name: *const c_char, options: *const Wishes) -> Number {
    told(-1, || {
        let ask = Request::Memory(FileTarget::is(Name::there(text(name)?)?));
        let ours = Instance::ours()?;
        ours.ops.one(&ours.talk, ask, b"", wishes(options)?.1)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_put_begin(
    name: *const c_char,
    at: *const u8,
    length: size_t,
    options: *const Wishes,
) -> Number {
    told(-1, || {
        let (url, from) = (Name::there(text(name)?)?, buffer(at.cast_mut(), length)?);
        let ours = Instance::ours()?;
        ours.ops
            .put(&ours.talk, url, OpSource::Buffer(from), wishes(options)?.1)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_put_file_begin(
    name: *const c_char,
    fd: c_int,
    options: *const Wishes,
) -> Number {
    told(-1, || {
        let (url, from) = (Name::there(text(name)?)?, descriptor(fd)?);
        let ours = Instance::ours()?;
        ours.ops.put(
            &ours.talk,
            url,
            OpSource::Descriptor(from),
            wishes(options)?.1,
        )
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_append_begin(
    name: *const c_char,
    at: *const u8,
    length: size_t,
    options: *const Wishes,
) -> Number {
    told(-1, || {
        let (url, from) = (Name::there(text(name)?)?, buffer(at.cast_mut(), length)?);
        if length > BODY_BYTES_MAX {
            let words = format!("{length} bytes at once are more than {BODY_BYTES_MAX}");
            let refusal = Refusal::new(Kind::TooLarge, format!("append to {url}"), words);
            return Err(refusal.next("divide it").into());
        }
        let (wishes, options) = wishes(options)?;
        let ask = Request::Append(request::Append {
            url,
            record: wishes.record != 0,
            end: false,
            stream: false,
            wait: options.wait,
        });
        let ours = Instance::ours()?;
        ours.ops.one(&ours.talk, ask, from.part(0, length), options)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_stage_begin(name: *const c_char, options: *const Wishes) -> Number {
    told(-1, || {
        let (wishes, options) = wishes(options)?;
        let ask = Request::Stage(stage(name, wishes.tag, wishes.expires_s)?);
        let ours = Instance::ours()?;
        ours.ops.one(&ours.talk, ask, b"", options)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_copy_begin(
    from: *const c_char,
    to: *const c_char,
    options: *const Wishes,
) -> Number {
    told(-1, || {
        let (url, to) = (Name::there(text(from)?)?, Name::there(text(to)?)?);
        let options = wishes(options)?.1;
        let ours = Instance::ours()?;
        let ask = Request::Copy(request::Copy { url, to });
        ours.ops.one(&ours.talk, ask, b"", options)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_fd() -> c_int {
    told(-1, || process::watch(Instance::ours()?.talk.ready.as_fd()))
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_poll(done: *mut Number, max: c_int, timeout_ms: c_int) -> c_int {
    told(-1, || {
        let room = usize::try_from(max).unwrap_or(0);
        if done.is_null() || room == 0 {
            return Err(Failure::invalid(
                "tell what has ended",
                "there is no place for it",
            ));
        }
        let Some(ours) = Instance::existing() else {
            return Ok(0);
        };
        let ended = ours.ops.poll(&ours.talk, room, deadline(timeout_ms));
        if ours.talk.is_over() {
            process::unwatch_socket();
        }
        for (at, number) in ended.iter().enumerate() {
            // SAFETY: godwit.h asks for `max` of them, and there are no more.
            unsafe { done.add(at).write(*number) };
        }
        Ok(c_int::try_from(ended.len()).unwrap_or(max))
    })
}

fn known() -> Result<&'static Instance> {
    Instance::existing()
        .ok_or_else(|| Failure::invalid("find what is under way", "nothing was begun"))
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_wait(op: Number, timeout_ms: c_int) -> c_int {
    told(-1, || {
        let ours = known()?;
        ours.ops
            .wait(&ours.talk, op, deadline(timeout_ms))
            .map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_result(op: Number) -> i64 {
    told(-1, || {
        let ours = known()?;
        ours.ops.end(&ours.talk, op).map(count)
    })
}

fn count(end: End) -> i64 {
    let (End::Bytes(bytes) | End::Memory(_, bytes)) = end;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_progress(op: Number, done: *mut u64, total: *mut u64) -> c_int {
    told(-1, || {
        let (done, total) = (place(done)?, place(total)?);
        let told = known()?.ops.with(op, |op| (op.done, op.total))?;
        (*done, *total) = (told.0, told.1.unwrap_or(u64::MAX));
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_cancel(op: Number) -> c_int {
    told(-1, || {
        let ours = known()?;
        ours.ops.cancel(&ours.talk, op).map(|()| 0)
    })
}

#[repr(C)]
#[derive(Debug)]
pub struct MemoryFile {
    data: *const c_void,
    size: size_t,
    fd: c_int,
    reserved: c_int,
}

fn mapped(end: End, memory: &mut MemoryFile) -> Result<c_int> {
    let End::Memory(file, len) = end else {
        return Err(Failure::invalid(
            "map it",
            "it was not begun by gass_memory_begin()",
        ));
    };
    let failed = |error| Failure::system("map a file in memory", &error);
    let size = usize::try_from(len).unwrap_or(usize::MAX);
    let Mapped { data, size } = system::map(&file, size).map_err(failed)?;
    *memory = MemoryFile {
        data,
        size,
        fd: file.into_raw_fd(),
        reserved: 0,
    };
    Ok(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_memory_result(op: Number, memory: *mut MemoryFile) -> c_int {
    told(-1, || {
        let (ours, memory) = (known()?, place(memory)?);
        mapped(ours.ops.end(&ours.talk, op)?, memory)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_memory(name: *const c_char, memory: *mut MemoryFile) -> c_int {
    told(-1, || {
        let (url, memory) = (Name::there(text(name)?)?, place(memory)?);
        let ours = Instance::ours()?;
        let once = || {
            let ask = Request::Memory(FileTarget::is(&*url));
            let op = ours.ops.one(&ours.talk, ask, b"", wishes(ptr::null())?.1)?;
            ours.ops.outcome(&ours.talk, op)
        };
        let came = match once() {
            Err(lost) if lost.errno == Kind::NodeLost.errno() => once(),
            came => came,
        };
        mapped(came?, memory)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_memory_free(memory: *mut MemoryFile) -> c_int {
    told(-1, || {
        let memory = place(memory)?;
        system::unmap(&Mapped {
            data: memory.data,
            size: memory.size,
        });
        let closed = system::close(memory.fd);
        (memory.data, memory.size, memory.fd) = (ptr::null(), 0, -1);
        closed.map_err(|error| Failure::system("close a file in memory", &error))?;
        Ok(0)
    })
}

fn outcome(op: Number) -> i64 {
    match op {
        -1 => -1, // why is kept already
        op => told(-1, || {
            let ours = known()?;
            ours.ops.outcome(&ours.talk, op).map(count)
        }),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_get(name: *const c_char, offset: u64, at: *mut u8, length: size_t) -> i64 {
    let once = || outcome(gass_get_begin(name, offset, at, length, ptr::null()));
    match once() {
        // The next node has it as well.
        -1 if failure::last_number().0 == Kind::NodeLost.errno() => once(),
        came => came,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_put(name: *const c_char, at: *const u8, length: size_t) -> i64 {
    outcome(gass_put_begin(name, at, length, ptr::null()))
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_copy(from: *const c_char, to: *const c_char) -> i64 {
    outcome(gass_copy_begin(from, to, ptr::null()))
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_append(
    name: *const c_char,
    at: *const u8,
    length: size_t,
    how: c_int,
) -> i64 {
    let wishes = Wishes {
        size: size_of::<Wishes>(),
        unit_bytes: 0,
        how,
        record: 1,
        tag: ptr::null(),
        expires_s: 0,
    };
    outcome(gass_append_begin(name, at, length, &raw const wishes))
}

// ---- Bytes, wherever they are

#[unsafe(no_mangle)]
pub extern "C" fn godwit_put(
    name: *const c_char,
    offset: u64,
    length: size_t,
    at: *const u8,
) -> c_int {
    told(-1, || {
        let (name, data) = (text(name)?, buffer(at.cast_mut(), length)?);
        let ours = Instance::ours()?;
        ours.puts
            .put(&ours.talk, name, offset, data.part(0, length))
            .map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_get(name: *const c_char, offset: u64, length: size_t, at: *mut u8) -> i64 {
    let flushed = told(-1, || {
        let url = Name::there(text(name)?)?;
        let ours = Instance::ours()?;
        ours.puts.flush(&ours.talk, Some(&url)).map(|()| 0)
    });
    match flushed {
        0 => gass_get(name, offset, at, length),
        _ => -1,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_flush() -> c_int {
    told(-1, || match Instance::existing() {
        None => Ok(0),
        Some(ours) => ours.puts.flush(&ours.talk, None).map(|()| 0),
    })
}

fn limit(timeout_ms: c_int) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_commit(timeout_ms: c_int) -> c_int {
    told(-1, || match Instance::existing() {
        None => Ok(0),
        Some(ours) => ours.puts.commit(&ours.talk, limit(timeout_ms)).map(|()| 0),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_push(name: *const c_char, timeout_ms: c_int) -> c_int {
    told(-1, || {
        let url = match name.is_null() {
            true => None,
            false => Some(Name::there(text(name)?)?),
        };
        let library = match &url {
            // Others may owe it.
            Some(_) => Some(Instance::ours()?),
            None => Instance::existing(),
        };
        let Some(ours) = library else {
            return Ok(0);
        };
        ours.puts
            .push(&ours.talk, url.as_deref(), limit(timeout_ms))
            .map(|()| 0)
    })
}
