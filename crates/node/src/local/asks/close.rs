//! Closes files, and waits for their delivery.

use crate::local::{
    answers::{LocalResult, done, not_open},
    asks::put::{of_new, waiting},
    client::{Client, OpenHandle},
    connection::LocalReply,
    refusals,
};
use godwit_depot::{Editing, Ended, Error, Scope};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{
    request::{Close, Wait},
    response,
};
use parking_lot::Mutex;
use std::sync::{Arc, atomic::Ordering::Relaxed};

impl Client {
    pub(crate) fn close(&self, close: &Close, reply: &LocalReply) -> LocalResult {
        let open = self.open.lock().remove(&close.handle);
        let pen = match open {
            None => return Err(not_open("close it", close.handle)),
            Some(
                OpenHandle::Reading(_)
                | OpenHandle::Lazy(_)
                | OpenHandle::Shared(_)
                | OpenHandle::Lying,
            ) => {
                return done(response::Done::default());
            }
            Some(OpenHandle::Fragment(fragment)) => {
                if let Some(fragment) = fragment.lock().take() {
                    fragment.give_up();
                }
                return done(response::Done::default());
            }
            Some(OpenHandle::Editing(editing)) => return self.edited(close, &editing, reply),
            Some(OpenHandle::Appending(stream)) => return self.appended(close, &stream),
            Some(OpenHandle::Adding(_)) => return done(response::Done::default()), // given up
            Some(OpenHandle::Writing(pen)) => pen,
        };
        let url = pen.url.clone();
        let wanted = format!("write {}", url.without_password());
        let Ok(pen) = Arc::try_unwrap(pen).map_err(drop) else {
            let words = "something is still being written";
            return Err(Refusal::new(Kind::InUse, wanted, words));
        };
        if close.give_up {
            return done(response::Done::default()); // dropped, and forgotten
        }
        if let Some(failed) = pen.failed.lock().take() {
            return Err(failed);
        }
        let bad = |error: Error| refusals::depot(&wanted, Some(&url), &error);
        if !pen.is_told.load(Relaxed) {
            // A program that has the descriptor does not report its writes: the whole file counts as written.
            let file = pen.writing.file().map_err(bad)?;
            let size = file
                .metadata()
                .map_err(|error| refusals::disk(&wanted, &error))?
                .len();
            let granted = pen.writing.grant_while(0..size, &waiting(reply));
            let ticket = granted.map_err(bad)?;
            pen.writing.written(0..size, ticket, size);
        }
        let ended = pen.writing.end_while(&waiting(reply), &|| !reply.is_gone());
        ended.map_err(|error| of_new(bad(error)))?;
        self.closed(&wanted, &Scope::Url(url.clone()), close, reply)
    }

    fn edited(
        &self,
        close: &Close,
        editing: &Mutex<Option<Editing>>,
        reply: &LocalReply,
    ) -> LocalResult {
        const WANTED: &str = "close it";
        let Some(editing) = editing.lock().take() else {
            return Err(not_open(WANTED, close.handle));
        };
        let bad = |error: Error| refusals::depot(WANTED, None, &error);
        if close.give_up {
            editing.discard().map_err(bad)?;
            return done(response::Done::default());
        }
        let scope = Scope::Url(editing.url().clone());
        let ended = (editing.end_while(&|| !reply.is_gone())).map_err(bad)?;
        if ended == Ended::Open && close.wait != Wait::Nothing {
            let note = "another program, or a copy of the descriptor, can still write it: it goes when the last is closed";
            return done(response::Done {
                notes: vec![note.into()],
                ..response::Done::default()
            });
        }
        self.closed(WANTED, &scope, close, reply)
    }

    /// Waits for the written bytes as far as the program asked.
    fn closed(
        &self,
        wanted: &str,
        scope: &Scope,
        close: &Close,
        reply: &LocalReply,
    ) -> LocalResult {
        match close.wait {
            Wait::Nothing => done(response::Done::default()),
            Wait::Commit => self.make_safe(wanted, scope, close.timeout_ms, reply),
            Wait::Push => self.deliver(wanted, scope, close.timeout_ms, reply),
        }
    }
}
