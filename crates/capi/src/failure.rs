//! Failures of calls, as C reads them.

use godwit_core::Fault;
use godwit_local::{Kind, Refusal};
use std::{cell::RefCell, ffi::CString, io};

/// Failure of a call: a number and a name as in errno(3), and words.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) errno: i32,
    name: &'static str,
    words: String,
    next: Option<String>,
    is_passing: bool,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Returns the failure of a call for a local file.
    pub(crate) fn system(wanted: &str, error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let known = Kind::all().find(|kind| kind.errno() == errno);
        Self {
            errno,
            name: known.map_or("", |why| why.symbol()),
            words: format!("cannot {wanted}: {}", godwit_sys::why(error)),
            next: None,
            is_passing: false,
        }
    }

    /// Returns the failure of a call whose arguments make no sense.
    pub(crate) fn invalid(wanted: impl Into<String>, because: impl Into<String>) -> Self {
        Refusal::new(Kind::Invalid, wanted, because).into()
    }

    /// Returns the failure of a question about an operation that has not ended.
    pub(crate) fn under_way(wanted: &str) -> Self {
        Self {
            errno: libc::EINPROGRESS,
            name: "EINPROGRESS",
            words: format!("cannot {wanted}: it has not ended yet"),
            next: Some("godwit_wait() waits for it".into()),
            is_passing: true,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self {
            errno: refusal.kind.errno(),
            name: refusal.kind.symbol(),
            words: refusal.to_string(),
            is_passing: Fault::from(refusal.waiting) != Fault::Lasting,
            next: refusal.next,
        }
    }
}

/// Returns the failure of an answer that does not fit its request.
pub(crate) fn odd(url: &str, words: &str) -> Refusal {
    let words = format!("the node answers otherwise than was asked: {words}");
    Refusal::new(Kind::Version, format!("open {url}"), words)
}

/// The last failure, in strings for C.
struct LastFailure {
    errno: i32,
    name: CString,
    words: CString,
    next: CString,
    is_passing: bool,
}

thread_local! {
    static LAST: RefCell<LastFailure> = RefCell::new(LastFailure {
        errno: 0,
        name: CString::default(),
        words: CString::default(),
        next: CString::default(),
        is_passing: false,
    });
}

thread_local! {
    static NOTE: RefCell<CString> = RefCell::new(CString::default());
}

thread_local! {
    static SENTENCE: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps what is to be said of a call that did not fail.
pub(crate) fn say(words: &[String]) {
    let words = text(words.join("; "));
    let _ = NOTE.try_with(|kept| *kept.borrow_mut() = words);
}

/// Returns it.
pub(crate) fn said() -> *const libc::c_char {
    let found = NOTE.try_with(|kept| kept.borrow().as_ptr());
    found.unwrap_or(c"".as_ptr())
}

/// Part of the last failure to read.
#[derive(Clone, Copy)]
pub(crate) enum About {
    Words,
    Next,
    Name,
}

/// Keeps a failure for the next question of this thread.
pub(crate) fn note(failure: Failure) {
    let last = LastFailure {
        errno: failure.errno,
        name: text(failure.name.into()),
        words: text(failure.words),
        next: text(failure.next.unwrap_or_default()),
        is_passing: failure.is_passing,
    };
    // A thread that is ending asks no more.
    let _ = LAST.try_with(|kept| *kept.borrow_mut() = last);
}

/// Returns where the text stands until the next failure of this thread.
pub(crate) fn last(about: About) -> *const libc::c_char {
    let found = LAST.try_with(|last| {
        let last = last.borrow();
        match about {
            About::Words => last.words.as_ptr(),
            About::Next => last.next.as_ptr(),
            About::Name => last.name.as_ptr(),
        }
    });
    found.unwrap_or(c"".as_ptr())
}

/// Returns the address of the failure as one sentence, valid until this thread asks for a sentence
/// again.
pub(crate) fn sentence() -> *const libc::c_char {
    let said = LAST.try_with(|last| {
        let last = last.borrow();
        let texts = [&last.words, &last.next].map(|text| text.to_string_lossy());
        let texts = texts.into_iter().filter(|text| !text.is_empty());
        text(texts.collect::<Vec<_>>().join("; "))
    });
    let found = SENTENCE.try_with(|kept| {
        *kept.borrow_mut() = said.unwrap_or_default();
        kept.borrow().as_ptr()
    });
    found.unwrap_or(c"".as_ptr())
}

/// Returns the number, and whether waiting may help.
pub(crate) fn last_number() -> (i32, bool) {
    let found = LAST.try_with(|last| (last.borrow().errno, last.borrow().is_passing));
    found.unwrap_or((0, false))
}

/// Words of a server, and names, may have anything in them: what would move a terminal's cursor is written as its number.
fn text(words: String) -> CString {
    let plain = words.chars().fold(String::new(), |mut plain, c| {
        match c.is_control() {
            true => plain.push_str(&format!("\\x{:02x}", u32::from(c))),
            false => plain.push(c),
        }
        plain
    });
    CString::new(plain).unwrap_or_default()
}
