//! `godwit_catalog`: questions and changes of the catalog, as texts of JSON.

use crate::{
    face::{text, told},
    process::Instance,
};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{Request, Response};
use libc::{c_char, c_int, c_void};
use std::ffi::CString;

/// Receives one answer; anything but 0 ends the call.
type Each = extern "C" fn(*mut c_void, *const c_char) -> c_int;

#[unsafe(no_mangle)]
pub extern "C" fn godwit_catalog(
    json: *const c_char,
    each: Option<Each>,
    context: *mut c_void,
) -> i64 {
    told(-1, || {
        let json = text(json)?;
        let ours = Instance::ours()?;
        let ticket = ours.talk.send(None, Request::Catalog, json.to_bytes())?;
        let mut count = 0;
        loop {
            let answer = ours.talk.receive(ticket, None)?;
            match answer.tell {
                Response::Refused(refusal) => return Err((*refusal).into()),
                Response::Answers => {}
                _ => return Ok(count),
            }
            let lines = answer.body.split(|&byte| byte == b'\n');
            for line in lines.filter(|line| !line.is_empty()) {
                let line = CString::new(line).map_err(|_| {
                    Refusal::new(
                        Kind::Protocol,
                        "use the catalog",
                        "an answer has a zero byte",
                    )
                })?;
                count += 1;
                if each.is_some_and(|each| each(context, line.as_ptr()) != 0) {
                    ours.talk.cancel(ticket);
                    return Ok(count);
                }
            }
        }
    })
}
