//! Functions of `godwit.h` for a directory that others see.

use crate::{
    face::{deadline, optional, text, told, utf8},
    failure::{Failure, Result},
    serving::{DirectoryServer, ServeOptions, Word},
    system,
};
use godwit_wire::local::response::AccessRequest;
use libc::{c_char, c_int, c_void, size_t};
use std::{
    ffi::{CStr, CString},
    mem::offset_of,
    os::unix::ffi::OsStrExt,
    ptr,
};

#[repr(C)]
#[derive(Debug)]
pub struct VisitRequest {
    who: *const c_char,
    deed: *const c_char,
    path: *const c_char,
}

type Authorise = extern "C" fn(*mut c_void, *const VisitRequest) -> c_int;
type Refer = extern "C" fn(*mut c_void, *const VisitRequest) -> *const c_char;
type Printer = extern "C" fn(*mut c_void, *const c_char, *const c_void, size_t);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    size: size_t,
    listen: *const c_char,
    config: *const c_char,
    authorise: Option<Authorise>,
    context: *mut c_void,
    writes: c_int,
    outputs: c_int,
    print: Option<Printer>,
    refer: Option<Refer>,
}

#[derive(Debug)]
pub struct ServedDirectory {
    server: DirectoryServer,
    authorise: Option<Authorise>,
    refer: Option<Refer>,
    print: Option<Printer>,
    context: *mut c_void,
}

impl ServedDirectory {
    /// Asks the program for its answer to a visitor.
    fn decide(&self, visit: &VisitRequest, is_read: bool) -> Word {
        if let Some(refer) = self.refer.filter(|_| is_read) {
            let url = refer(self.context, visit);
            if !url.is_null() {
                // What cannot be read leads nowhere, and is refused.
                return Word::Elsewhere(utf8(url, "a URL").unwrap_or_default().to_owned());
            }
        }
        let authorise = self.authorise;
        // Who cannot be asked says yes to whom all may read.
        Word::May(authorise.is_none_or(|authorise| authorise(self.context, visit) == 1))
    }

    /// Gives what was appended to the program, or to its own standard output and error.
    fn print(&self, name: &CStr, bytes: &[u8]) {
        match self.print {
            Some(print) => print(
                self.context,
                name.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
            ),
            None => system::print(name == c"/dev/stderr", bytes),
        }
    }
}

fn terms(terms: *const Terms) -> Result<Terms> {
    let mut known = Terms {
        size: size_of::<Terms>(),
        listen: ptr::null(),
        config: ptr::null(),
        authorise: None,
        context: ptr::null_mut(),
        writes: 0,
        outputs: 0,
        print: None,
        refer: None,
    };
    if terms.is_null() {
        return Ok(known);
    }
    // SAFETY: godwit.h asks for a struct that begins with its size.
    let size = unsafe { ptr::read_unaligned(terms.cast::<size_t>()) };
    if size < offset_of!(Terms, print) {
        let words = "size is not sizeof(struct gass_server_options)";
        return Err(Failure::invalid("read options", words));
    }
    let size = size.min(size_of::<Terms>());
    // SAFETY: both are that long. An older caller's struct ends between two fields, and each field
    // has its type.
    unsafe {
        ptr::copy_nonoverlapping(terms.cast::<u8>(), (&raw mut known).cast::<u8>(), size);
    }
    Ok(known)
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_server_open(
    directory: *const c_char,
    options: *const Terms,
) -> *mut ServedDirectory {
    told(ptr::null_mut(), || {
        let terms = terms(options)?;
        let config = match terms.config.is_null() {
            true => None,
            false => Some(text(terms.config)?),
        };
        let manner = ServeOptions {
            listen: optional(terms.listen, "where to listen")?,
            config,
            writes: terms.writes != 0,
            asks: terms.authorise.is_some() || terms.refer.is_some(),
            outputs: terms.outputs != 0,
        };
        let served = ServedDirectory {
            server: DirectoryServer::open(text(directory)?, &manner)?,
            authorise: terms.authorise,
            refer: terms.refer,
            print: terms.print,
            context: terms.context,
        };
        Ok(Box::into_raw(Box::new(served)))
    })
}

fn served<'a>(server: *const ServedDirectory) -> Result<&'a ServedDirectory> {
    // SAFETY: godwit.h asks for what gass_server_open() returned and gass_server_close() was not told.
    unsafe { server.as_ref() }.ok_or_else(|| Failure::invalid("serve", "the server is NULL"))
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_server_url(server: *const ServedDirectory) -> *const c_char {
    told(ptr::null(), || Ok(served(server)?.server.url().as_ptr()))
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_server_step(server: *mut ServedDirectory, timeout_ms: c_int) -> c_int {
    told(-1, || {
        let served = served(server)?;
        let mut decide = |knock: &AccessRequest| {
            let c = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
            let who = knock.who.as_ref().map(|who| c(who.as_bytes()));
            let (deed, path) = (
                c(knock.deed.as_bytes()),
                c(knock.path.0.as_os_str().as_bytes()),
            );
            let visit = VisitRequest {
                who: who.as_ref().map_or(ptr::null(), |who| who.as_ptr()),
                deed: deed.as_ptr(),
                path: path.as_ptr(),
            };
            served.decide(&visit, knock.deed == "read")
        };
        let mut print = |name: &CStr, bytes: &[u8]| served.print(name, bytes);
        let until = deadline(timeout_ms);
        let count = served.server.step(until, &mut decide, &mut print)?;
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gass_server_close(server: *mut ServedDirectory) -> c_int {
    told(-1, || {
        if server.is_null() {
            return Err(Failure::invalid("close a server", "it is NULL"));
        }
        // SAFETY: godwit.h asks for what gass_server_open() returned, once.
        let served = unsafe { Box::from_raw(server) };
        let mut print = |name: &CStr, bytes: &[u8]| served.print(name, bytes);
        served.server.close(&mut print)?;
        Ok(0)
    })
}
