//! Files that programs read in part.

use crate::local::{
    answers::{LocalResult, done, not_open},
    asks::{read::fresh_of, share::extents},
    client::{Client, OpenHandle},
    connection::LocalReply,
    refusals,
};
use godwit_core::{STEP_BYTES, Url};
use godwit_depot::Error;
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{Response, request, response};
use std::{os::fd::AsFd, sync::Arc};

impl Client {
    /// Opens a file of which parts come here when they are read; a small one comes at once.
    pub(crate) fn open_lazily(
        &self,
        url: &Url,
        open: &request::OpenRequest,
        reply: &LocalReply,
    ) -> LocalResult {
        let wanted = format!("read {}", url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(url), &error);
        let (depot, is_wanted) = (&self.keeping.depot, || !reply.is_over());
        let lazily = depot.lazily_while(url, &self.who, fresh_of(open.fresh), &is_wanted);
        let lazily = Arc::new(lazily.map_err(bad)?);
        lazily.follow(open.hints);
        let size = lazily.size();
        if size <= STEP_BYTES {
            drop(lazily);
            self.hand_over(self.read(url, open.fresh)?, reply);
            return Ok(None);
        }
        let handle = self.keep(OpenHandle::Lazy(Arc::clone(&lazily)));
        let told = response::OpenedFile {
            handle,
            size,
            version: lazily.version().into(),
            lazy: true,
            ..response::OpenedFile::default()
        };
        reply.tell_with(Response::Opened(told), b"", &[lazily.file().as_fd()]);
        Ok(None)
    }

    /// Waits until ranges of an open file are here.
    pub(crate) fn ensure(&self, ensure: &request::Ensure, reply: &LocalReply) -> LocalResult {
        let ranges = extents("read a file in part", &ensure.ranges)?;
        let open = self.open.lock();
        let lazily = match open.get(&ensure.handle) {
            Some(OpenHandle::Lazy(lazily)) => Arc::clone(lazily),
            Some(OpenHandle::Shared(sharer)) => {
                let sharer = Arc::clone(sharer);
                drop(open);
                return self.ensure_shared(&sharer, &ranges, reply);
            }
            // It is here as a whole.
            Some(_) => return done(response::Done::default()),
            None => return Err(not_open("read it", ensure.handle)),
        };
        drop(open);
        let wanted = format!("read {}", lazily.url().without_password());
        match lazily.ensure(&ranges, &|| !reply.is_over()) {
            Ok(()) => done(response::Done::default()),
            Err(Error::Busy { .. }) => {
                let words = "the server has another file of this name by now";
                let refusal = Refusal::new(Kind::Changed, wanted, words);
                Err(refusal
                    .next("open it again")
                    .about(lazily.url().to_string()))
            }
            Err(error) => Err(refusals::depot(&wanted, Some(&lazily.url()), &error)),
        }
    }
}
