//! Names: attributes of a name, deeds on it, and `godwit_begin`.

use crate::{
    face::{place, text, told},
    failure::{Result, odd},
    name::Name,
    process::Instance,
};
use godwit_wire::local::{
    Request, Response,
    request::{FileTarget, NameDeed},
};
use libc::{c_char, c_int};
use std::time::Duration;

#[repr(C)]
#[derive(Debug)]
pub struct GodwitStat {
    size: u64,
    mtime_ns: i64,
    mode: i32,
    is_directory: i32,
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_stat(name: *const c_char, stat: *mut GodwitStat) -> c_int {
    told(-1, || {
        let url = Name::there(text(name)?)?;
        let stat = place(stat)?;
        let ours = Instance::ours()?;
        let ask = Request::Stat(FileTarget::is(&*url));
        let (_, answer) = ours.talk.ask_twice(&ask)?;
        let Response::Stat(told) = answer.tell else {
            return Err(odd(&url, &format!("{:?}", answer.tell)).into());
        };
        let mtime = told.mtime_ns.and_then(|ns| i64::try_from(ns).ok());
        *stat = GodwitStat {
            size: told.size,
            mtime_ns: mtime.unwrap_or(-1),
            mode: told
                .mode
                .and_then(|mode| i32::try_from(mode).ok())
                .unwrap_or(-1),
            is_directory: i32::from(told.is_directory),
        };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_begin() -> c_int {
    told(-1, || {
        Instance::ours()?.talk.ask_twice(&Request::Status)?;
        Ok(0)
    })
}

/// Reads a name and has a deed done to it.
fn done(name: *const c_char, deed: impl FnOnce(String) -> Result<NameDeed>) -> c_int {
    told(-1, || {
        let deed = deed(Name::there(text(name)?)?)?;
        let ours = Instance::ours()?;
        ours.talk
            .ask(None, Request::Deed(deed), None, &mut |_| ())?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_unlink(name: *const c_char) -> c_int {
    done(name, |url| Ok(NameDeed::Unlink { url }))
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_remove(name: *const c_char) -> c_int {
    told(-1, || {
        let url = Name::there(text(name)?)?;
        let ours = Instance::ours()?;
        let deed = NameDeed::Unlink { url: url.clone() };
        ours.talk.ask_twice(&Request::Deed(deed))?;
        ours.puts.push(&ours.talk, Some(&url), Some(PATIENCE))?;
        Ok(0)
    })
}

/// How long a server may be away before the program gets an error.
const PATIENCE: Duration = Duration::from_secs(30);

#[unsafe(no_mangle)]
pub extern "C" fn godwit_mkdir(name: *const c_char) -> c_int {
    done(name, |url| Ok(NameDeed::Mkdir { url }))
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_rename(name: *const c_char, to: *const c_char) -> c_int {
    done(name, |url| {
        let to = Name::there(text(to)?)?;
        Ok(NameDeed::Rename { url, to })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_truncate(name: *const c_char, size: u64) -> c_int {
    done(name, |url| Ok(NameDeed::Truncate { url, size }))
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_set(name: *const c_char, mode: i32, mtime_ns: i64) -> c_int {
    done(name, |url| {
        Ok(NameDeed::Set {
            url,
            mode: u32::try_from(mode).ok(),
            mtime_ns: u64::try_from(mtime_ns).ok(),
        })
    })
}
