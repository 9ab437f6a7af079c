//! Commit and push: waiting until pending changes are durable, or at their target.

use crate::local::{
    answers::{LocalResult, done},
    client::Client,
    connection::LocalReply,
    progress, refusals,
};
use godwit_depot::{Error, Scope};
use godwit_wire::local::{Response, request::Selector};
use std::time::Duration;

impl Client {
    pub(crate) fn commit(&self, whose: &Selector, reply: &LocalReply) -> LocalResult {
        let scope = self.scope(whose)?;
        self.make_safe("commit", &scope, whose.timeout_ms, reply)
    }

    pub(crate) fn push(&self, whose: &Selector, reply: &LocalReply) -> LocalResult {
        let scope = self.scope(whose)?;
        let is_owed = !self.owed_of(&scope).is_empty();
        let mut answer = self.deliver("push", &scope, whose.timeout_ms, reply)?;
        // The hop may have the file from another user, or from a verb.
        if let (Scope::Url(url) | Scope::Below(url), false) = (&scope, is_owed) {
            let limit = whose.timeout_ms.map(Duration::from_millis);
            let pushed = (self.keeping.depot)
                .push_unowed_while((url, &self.who), limit, &|| !reply.is_over());
            let unseen = pushed.map_err(|error| self.not_delivered("push", &scope, &error))?;
            if let (Some(hop), Some(Response::Done(done))) = (unseen, &mut answer) {
                let words = progress::out_of_sight(&hop);
                if !done.notes.contains(&words) {
                    done.notes.push(words);
                }
            }
        }
        Ok(answer)
    }

    /// Makes changes safe against the end of this machine's disk, or of the job that the node is part of.
    pub(crate) fn make_safe(
        &self,
        wanted: &str,
        scope: &Scope,
        timeout_ms: Option<u64>,
        reply: &LocalReply,
    ) -> LocalResult {
        if self.ends_soon {
            let mut answer = self.deliver(wanted, scope, timeout_ms, reply)?;
            if let Some(Response::Done(done)) = &mut answer {
                done.notes
                    .push("this node ends with the job, so what it had was delivered first".into());
            }
            return Ok(answer);
        }
        let bad = |error: Error| refusals::depot(wanted, None, &error);
        self.keeping.depot.commit(scope).map_err(bad)?;
        done(self.told_of(&self.owed_of(scope)))
    }
}
