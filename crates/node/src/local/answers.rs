//! Answers that several requests have in common.

use godwit_local::{Kind, Refusal};
use godwit_wire::local::{Handle, Response, response};

pub(crate) type LocalResult = Result<Option<Response>, Refusal>;

pub(crate) fn done(done: response::Done) -> LocalResult {
    Ok(Some(Response::Done(done)))
}

pub(crate) fn of_files(files: u64) -> LocalResult {
    done(response::Done {
        files,
        ..response::Done::default()
    })
}

/// Returns the answer for an open file.
pub(crate) fn opened(handle: Handle, size: u64) -> Response {
    Response::Opened(response::OpenedFile {
        handle,
        size,
        ..response::OpenedFile::default()
    })
}

pub(crate) fn not_open(wanted: &str, number: u64) -> Refusal {
    let words = format!("nothing is open as number {number} on this connection");
    Refusal::new(Kind::NotOpen, wanted, words)
}

pub(crate) fn not_yet(what: &str) -> Refusal {
    Refusal::new(Kind::Unsupported, what, "this version of godwit cannot")
}

pub(crate) fn unknown() -> Refusal {
    not_yet("do what was asked")
}
