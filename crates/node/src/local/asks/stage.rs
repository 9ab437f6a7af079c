//! Keeping a file under a tag, and giving it up.

use crate::local::{
    answers::{LocalResult, done},
    client::Client,
    connection::LocalReply,
    peer_out,
    refusals::{self, url},
};
use godwit_core::Url;
use godwit_depot::{Error, Lazily, Scope};
use godwit_wire::local::{request, response};
use std::{num::NonZeroU64, time::Duration};

impl Client {
    pub(crate) fn stage(&self, stage: &request::StageRequest, reply: &LocalReply) -> LocalResult {
        let url = url(&stage.url)?;
        self.unlocked(&url, reply)?;
        let tag = stage.tag.as_deref().map(refusals::tag).transpose()?;
        let tag = tag.or(self.job.as_deref());
        let lasts = stage.expires_in_s.map(Duration::from_secs);
        let wanted = format!("stage {}", url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(&url), &error);
        // Kept until a tag keeps it.
        let ahead = self.ahead(&url, stage.bytes_per_s, reply).map_err(bad)?;
        let (as_tag, is_wanted) = ((tag.unwrap_or(STAGED), lasts), || !reply.is_over());
        let staged = (self.keeping.depot).stage_while(&url, &self.who, as_tag, &is_wanted);
        let (bytes, _) = staged.map_err(bad)?;
        drop(ahead);
        done(response::Done {
            files: 1,
            bytes,
            notes: Vec::new(),
        })
    }

    /// Fetches it no faster than is wished, if anything is.
    pub(crate) fn ahead(
        &self,
        url: &Url,
        rate: Option<NonZeroU64>,
        reply: &LocalReply,
    ) -> godwit_depot::Result<Option<Lazily>> {
        let is_wanted = || !reply.is_over();
        rate.map(|rate| (self.keeping.depot).prefetch(url, &self.who, rate, &is_wanted))
            .transpose()
    }

    /// Delivers pending changes of a file, then takes the tag off.
    pub(crate) fn unstage(&self, stage: &request::StageRequest, reply: &LocalReply) -> LocalResult {
        let url = url(&stage.url)?;
        let wanted = format!("unstage {}", url.without_password());
        let scope = Scope::Url(url.clone());
        let delivered = self.deliver(&wanted, &scope, stage.timeout_ms, reply)?;
        let tag = stage.tag.as_deref().or(self.job.as_deref());
        match self.keeping.depot.untag(&url, tag.unwrap_or(STAGED)) {
            Ok(()) => Ok(delivered),
            Err(Error::Unknown(_)) => Ok(peer_out::without_tag(delivered)),
            Err(error) => Err(refusals::depot(&wanted, Some(&url), &error)),
        }
    }
}

pub(crate) const STAGED: &str = "staged";
