//! The queue of pending changes, and decisions about one of them.

use crate::local::{
    answers::{LocalResult, done, not_yet, of_files},
    client::Client,
    connection::LocalReply,
    refusals::{self, url},
    rows::row,
};
use godwit_depot::{Depot, Pending, Scope};
use godwit_local::Refusal;
use godwit_wire::local::{
    Response,
    request::{FileTarget, Selector},
    response,
};

impl Client {
    pub(crate) fn queue(&self, whose: &Selector, reply: &LocalReply) -> LocalResult {
        let scope = self.scope(whose)?;
        let owed = self.owed_of(&scope);
        let answer = self.told_of(&owed);
        for owed in owed {
            if reply.is_over() {
                return Ok(None);
            }
            reply.tell(Response::Row(Box::new(row(owed))));
        }
        done(answer)
    }

    pub(crate) fn decide(
        &self,
        what: &str,
        place: &FileTarget,
        decide: fn(&Depot, &str) -> godwit_depot::Result<()>,
    ) -> LocalResult {
        if place.on.is_some() {
            return Err(not_yet("decide about the depot of a peer"));
        }
        let wanted = format!("{what} {}", place.url);
        decide(&self.keeping.depot, &place.url)
            .map_err(|error| refusals::depot(&wanted, None, &error))?;
        of_files(1)
    }

    pub(crate) fn scope(&self, whose: &Selector) -> Result<Scope, Refusal> {
        if whose.on.is_some() {
            return Err(not_yet("ask the depot of a peer"));
        }
        Ok(match (&whose.url, &whose.session, whose.mine) {
            (Some(text), ..) if whose.below => Scope::Below(url(text)?),
            (Some(text), ..) => Scope::Url(url(text)?),
            (None, Some(session), _) => Scope::Session(session.clone()),
            (None, None, true) => Scope::Session(self.session.clone()),
            (None, None, false) => Scope::All,
        })
    }

    pub(crate) fn owed_of(&self, scope: &Scope) -> Vec<Pending> {
        self.keeping.depot.pending_of(scope)
    }

    /// Counts pending changes, with notes for the user.
    pub(crate) fn told_of(&self, owed: &[Pending]) -> response::Done {
        let mut notes = Vec::new();
        if !owed.is_empty() && !self.keeping.bounds.is_installed {
            notes.push(AFTER_RESTART.into());
        }
        response::Done {
            files: owed.len() as u64,
            bytes: owed.iter().map(|owed| owed.pending_bytes).sum(),
            notes,
        }
    }
}

const AFTER_RESTART: &str = "after a restart of this machine, delivery waits for the next program that asks; \
                             godwit node install has it begin by itself";
