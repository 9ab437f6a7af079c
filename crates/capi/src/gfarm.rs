//! The functions of `gfarm.h`: each returns NULL, or why not in a sentence.

use crate::{
    face::{text, told},
    failure::{self, Failure, Result},
    pio::{AccessMode, Hints, Pio},
    system::{self, CallerBuffer},
};
use libc::{c_char, c_int, c_void, mode_t, off_t, size_t};
use std::{
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A handle as C has it.
#[derive(Debug)]
pub struct GfsFile(Mutex<Pio>);

/// Calls; returns NULL or what went wrong.
fn said(call: impl FnOnce() -> Result<()>) -> *mut c_char {
    match told(false, || call().map(|()| true)) {
        true => ptr::null_mut(),
        false => failure::sentence().cast_mut(),
    }
}

fn file<'a>(gf: *mut GfsFile) -> Result<MutexGuard<'a, Pio>> {
    // SAFETY: gfarm.h asks for a handle that is open, or NULL.
    let file = unsafe { gf.as_ref() };
    let file = file.ok_or_else(|| Failure::invalid("use a file", "its handle is NULL"))?;
    Ok(file.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Writes a result, where one is wanted.
fn give<T>(at: *mut T, value: T) -> Result<()> {
    match at.is_null() {
        true => Err(Failure::invalid(
            "write a result",
            "there is no place for it",
        )),
        false => {
            // SAFETY: gfarm.h asks for a place of that type, or NULL.
            unsafe { at.write(value) };
            Ok(())
        }
    }
}

fn access(flags: c_int) -> Result<AccessMode> {
    let (read, write) = match flags & (RDONLY | WRONLY | RDWR) {
        RDONLY => (true, false),
        WRONLY => (false, true),
        RDWR => (true, true),
        _ => {
            let fact = "flags have exactly one of GFARM_FILE_RDONLY, _WRONLY, _RDWR";
            return Err(Failure::invalid("open a file", fact));
        }
    };
    Ok(AccessMode { read, write })
}

fn hints(flags: c_int) -> Result<Hints> {
    let known = RDONLY | WRONLY | RDWR | SEQUENTIAL | REPLICATION | NOT_REPLICATION;
    if flags & !known != 0 {
        let fact = format!("{flags:#x} has flags that gfarm.h does not");
        return Err(Failure::invalid("understand flags", fact));
    }
    if flags & REPLICATION != 0 && flags & NOT_REPLICATION != 0 {
        let fact = "GFARM_FILE_REPLICATION and GFARM_FILE_NOT_REPLICATION exclude each other";
        return Err(Failure::invalid("understand flags", fact));
    }
    Ok(Hints {
        replicate: flags & REPLICATION != 0,
    })
}

fn begin(gf: *mut *mut GfsFile, open: impl FnOnce() -> Result<Pio>) -> *mut c_char {
    said(|| {
        give(gf, ptr::null_mut())?;
        give(gf, Box::into_raw(Box::new(GfsFile(Mutex::new(open()?)))))
    })
}

fn utf8<'a>(url: *const c_char) -> Result<&'a str> {
    let url = text(url)?.to_str();
    url.map_err(|_| Failure::invalid("read a name", "it is no text in UTF-8"))
}

fn buffer(at: *mut c_void, size: c_int) -> Result<CallerBuffer> {
    let size = size_t::try_from(size).ok();
    let lent = size.and_then(|size| CallerBuffer::lent(at.cast(), size));
    lent.ok_or_else(|| Failure::invalid("use that buffer", "it is NULL, or its size is negative"))
}

/// See gfarm.h, as for all that follow.
#[unsafe(no_mangle)]
pub extern "C" fn gfarm_initialize(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> *mut c_char {
    ptr::null_mut()
}

#[unsafe(no_mangle)]
pub extern "C" fn gfarm_terminate() -> *mut c_char {
    ptr::null_mut()
}

#[unsafe(no_mangle)]
pub extern "C" fn gfs_pio_open(
    url: *mut c_char,
    flags: c_int,
    gf: *mut *mut GfsFile,
) -> *mut c_char {
    begin(gf, || Pio::open(utf8(url)?, access(flags)?, hints(flags)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn gfs_pio_create(
    url: *mut c_char,
    flags: c_int,
    mode: mode_t,
    gf: *mut *mut GfsFile,
) -> *mut c_char {
    begin(gf, || {
        let access = access(flags)?;
        if !access.write {
            return Err(Failure::invalid("create a file", "it would be only read"));
        }
        let mode = mode & 0o777 & !system::umask();
        Pio::create(utf8(url)?, access, hints(flags)?, mode)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gfs_pio_set_view_global(gf: *mut GfsFile, flags: c_int) -> *mut c_char {
    said(|| file(gf)?.set_view_global(hints(flags)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn gfs_pio_set_view_local(gf: *mut GfsFile, flags: c_int) -> *mut c_char {
    said(|| file(gf)?.set_view_local(hints(flags)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn gfs_pio_set_view_index(
    gf: *mut GfsFile,
    nfrags: c_int,
    index: c_int,
    host: *mut c_char,
    flags: c_int,
) -> *mut c_char {
    said(|| {
        let wrong = |what: &str, number: c_int| {
            Failure::invalid("see a fragment", format!("{what} is {number}"))
        };
        let count = match nfrags {
            DONTCARE => None,
            1.. => u64::try_from(nfrags).ok(),
            _ => return Err(wrong("nfrags", nfrags)),
        };
        let index = u64::try_from(index).map_err(|_| wrong("index", index))?;
        let host = match host.is_null() {
            true => None,
            false => Some(utf8(host)?.to_owned()),
        };
        file(gf)?.set_view_index(count, index, host, hints(flags)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gfs_pio_read(
    gf: *mut GfsFile,
    buf: *mut c_void,
    size: c_int,
    nread: *mut c_int,
) -> *mut c_char {
    said(|| {
        give(nread, 0)?;
        let mut into = buffer(buf, size)?;
        let len = into.len();
        let came = file(gf)?.read(into.part_mut(0, len))?;
        give(nread, c_int::try_from(came).unwrap_or(c_int::MAX))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gfs_pio_write(
    gf: *mut GfsFile,
    buf: *mut c_void,
    size: c_int,
    nwrite: *mut c_int,
) -> *mut c_char {
    said(|| {
        give(nwrite, 0)?;
        let from = buffer(buf, size)?;
        let went = file(gf)?.write(from.part(0, from.len()))?;
        give(nwrite, c_int::try_from(went).unwrap_or(c_int::MAX))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gfs_pio_seek(
    gf: *mut GfsFile,
    offset: off_t,
    whence: c_int,
    result: *mut off_t,
) -> *mut c_char {
    said(|| {
        let at = file(gf)?.seek(offset, whence)?;
        match result.is_null() {
            true => Ok(()),
            false => give(result, off_t::try_from(at).unwrap_or(off_t::MAX)),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gfs_pio_close(gf: *mut GfsFile) -> *mut c_char {
    said(|| {
        drop(file(gf)?);
        // SAFETY: it was made by `begin`, and gfarm.h has a handle be closed once.
        let file = unsafe { Box::from_raw(gf) };
        file.0
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .close()
    })
}

const RDONLY: c_int = 0x1;
const WRONLY: c_int = 0x2;
const RDWR: c_int = 0x4;
const SEQUENTIAL: c_int = 0x100;
const REPLICATION: c_int = 0x200;
const NOT_REPLICATION: c_int = 0x400;
const DONTCARE: c_int = -1;
