//! From one server to another, for a program that is neither.

use crate::local::{
    answers::{LocalResult, done},
    client::Client,
    connection::LocalReply,
    refusals::{self, url},
};
use godwit_depot::Scope;
use godwit_store::{
    EntryKind, TrustOptions,
    channel::Cancel,
    engine::{self, CopyEvent, CopyOptions, CopyTask, OverwriteRule, Place},
};
use godwit_wire::local::{Response, request, response};
use std::{
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

impl Client {
    /// Copies a file, between the servers alone if both can. Pending changes of the source are delivered first.
    pub(crate) fn copy(&self, copy: &request::Copy, reply: &LocalReply) -> LocalResult {
        let (from, to) = (url(&copy.url)?, url(&copy.to)?);
        let wanted = format!(
            "copy {} to {}",
            from.without_password(),
            to.without_password()
        );
        let bad = |url, error: godwit_store::Error| refusals::store(&wanted, url, &error);
        for url in [&from, &to] {
            let scope = Scope::Url(url.clone());
            if !self.owed_of(&scope).is_empty() {
                self.deliver(&wanted, &scope, None, reply)?;
            }
        }
        let place = |url| (self.keeping.connect)(url, &self.who).map_err(|error| bad(url, error));
        let (source, target) = (place(&from)?, place(&to)?);
        let stat = source
            .store
            .stat(&source.path)
            .map_err(|error| bad(&from, error))?;
        if stat.kind == EntryKind::Directory {
            return Err(bad(&from, godwit_store::Error::directory(source.path)));
        }
        let moved = self.moved(source, target, stat.mode, reply);
        // The next reader sees the server's current version, even if the outcome of the copy is unknown.
        self.keeping.depot.changed(&to);
        let (bytes, error) = moved.map_err(|error| refusals::disk(&wanted, &error))?;
        match error {
            Some(error) => Err(bad(&from, error)),
            None => done(response::Done {
                files: 1,
                bytes,
                ..response::Done::default()
            }),
        }
    }

    fn moved(
        &self,
        source: Place,
        target: Place,
        mode: Option<u32>,
        reply: &LocalReply,
    ) -> io::Result<(u64, Option<godwit_store::Error>)> {
        let cancel = Cancel::new()?;
        let ours = CopyOptions::new(cancel.clone());
        let trust = TrustOptions {
            home: self.keeping.home.clone(),
            ..ours.trust
        };
        let options = CopyOptions { trust, ..ours };
        let task = CopyTask {
            source,
            target,
            tree: false,
            mode,
            range: None,
            rule: OverwriteRule::Always,
            delete: false,
        };
        let (came, total) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let on = |event: &CopyEvent<'_>| {
            if reply.is_over() {
                cancel.cancel();
            }
            match event {
                CopyEvent::Found { bytes, .. } => total.store(*bytes, Relaxed),
                CopyEvent::Moved { bytes } | CopyEvent::Resumed { bytes } => {
                    let before = came.fetch_add(*bytes, Relaxed);
                    // Not each block is news.
                    if (before + bytes) / TOLD_BYTES > before / TOLD_BYTES {
                        let total = total.load(Relaxed);
                        reply.tell(Response::Progress {
                            done: before + bytes,
                            total: (total < u64::MAX).then_some(total),
                        });
                    }
                }
                _ => {}
            }
        };
        let mut summary = engine::copy(vec![task], &options, &on);
        let error = (!summary.errors.is_empty()).then(|| summary.errors.remove(0));
        Ok((summary.bytes, error))
    }
}

const TOLD_BYTES: u64 = 8 << 20;
