//! Appending to the end of a file: lines in the body of a request, or by a stream.

use crate::local::{
    answers::{LocalResult, done, opened},
    client::{Client, OpenHandle},
    connection::LocalReply,
    refusals::{self, url_to_deliver},
    stream::AppendPipe,
};
use godwit_core::Url;
use godwit_depot::{Appending, Error, Nth};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{
    request::{self, Close, Wait},
    response,
};
use std::{os::fd::AsFd, sync::Arc, time::Duration};

impl Client {
    /// Lines for the end of a file, in the body or by a stream.
    pub(crate) fn append(
        &self,
        append: &request::Append,
        body: &[u8],
        reply: &LocalReply,
    ) -> LocalResult {
        let url = self.target(&append.url)?;
        let wanted = format!("append to {}", url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(&url), &error);
        if append.record && body.len() > RECORD_BYTES_MAX {
            let len = body.len();
            let words = format!(
                "a record of {len} bytes would be divided: {RECORD_BYTES_MAX} are the most that stay together"
            );
            let refusal = Refusal::new(Kind::TooLarge, &*wanted, words).about(&append.url);
            return Err(refusal.next("append it in records that are shorter"));
        }
        let appending = self.appending(&url).map_err(bad)?;
        if append.stream {
            let (stream, theirs) = AppendPipe::begin(&url, appending)?;
            let handle = self.keep(OpenHandle::Appending(stream));
            reply.tell_with(opened(handle, 0), b"", &[theirs.as_fd()]);
            return Ok(None);
        }
        if !body.is_empty() {
            let wanted = |_: &Error| !reply.is_gone();
            appending.add_while(body, &wanted).map_err(bad)?;
        }
        self.appended_to(&appending, append.wait, None)
            .map_err(bad)?;
        if append.end {
            self.appends.lock().remove(&url);
        }
        done(response::Done::default())
    }

    pub(crate) fn lines(
        &self,
        lines: &request::LinesRequest,
        body: &[u8],
        reply: &LocalReply,
    ) -> LocalResult {
        // Programs ask with nothing first.
        let url = match body.is_empty() {
            true => self.target_found(&lines.url, reply)?,
            false => url_to_deliver(&lines.url)?,
        };
        let wanted = format!("append to {}", url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(&url), &error);
        let appending = self.appending(&url).map_err(bad)?;
        let nth = Nth {
            by: lines.by,
            seq: lines.seq,
        };
        if !body.is_empty() {
            let wanted = |_: &Error| !reply.is_gone();
            appending.add_once(body, nth, &wanted).map_err(bad)?;
        }
        done(response::Done {
            bytes: body.len() as u64,
            ..response::Done::default()
        })
    }

    pub(crate) fn appending(&self, url: &Url) -> Result<Arc<Appending>, Error> {
        let mut appends = self.appends.lock();
        if let Some(appending) = appends.get(url) {
            return Ok(Arc::clone(appending));
        }
        let appending = Arc::new(
            self.keeping
                .depot
                .append_of(url, &self.who, &self.session)?,
        );
        if appends.len() >= APPENDS_MAX {
            appends.clear();
        }
        appends.insert(url.clone(), Arc::clone(&appending));
        Ok(appending)
    }

    pub(crate) fn appended(&self, close: &Close, stream: &AppendPipe) -> LocalResult {
        let wanted = format!("append to {}", stream.url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(&stream.url), &error);
        let limit = close.timeout_ms.map(Duration::from_millis);
        let appending = stream.wait(limit.unwrap_or(LAST_CLOSE)).map_err(bad)?;
        self.appended_to(appending, close.wait, limit)
            .map_err(bad)?;
        done(response::Done::default())
    }

    /// Waits for lines, as long as their program wants.
    fn appended_to(
        &self,
        appending: &Appending,
        wait: Wait,
        limit: Option<Duration>,
    ) -> godwit_depot::Result<()> {
        match wait {
            Wait::Nothing => Ok(()),
            Wait::Commit if !self.ends_soon => appending.commit(),
            Wait::Commit | Wait::Push => appending.push(limit),
        }
    }
}

/// How many logs of one program stay open.
const APPENDS_MAX: usize = 256;

/// The longest record that is appended undivided; the target is sent no more at a time.
const RECORD_BYTES_MAX: usize = godwit_depot::RECORD_BYTES_MAX;

/// How long a close waits for copies of the stream in child processes.
const LAST_CLOSE: Duration = Duration::from_secs(10);
