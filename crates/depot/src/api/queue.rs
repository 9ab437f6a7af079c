//! The queue of pending files and operations: listing, retry, release, discard.

use crate::{
    Before, Depot, Error, Result, Scope,
    clock::now,
    disk::logs::{Log, Upto},
    error::{is_for_directory, is_on_hold_downstream},
    id::Id,
    inner::Inner,
    paths::{is_at_or_below, path_of, server_of},
    plan::{
        entry::Entry,
        order::{Fact, deed_id},
    },
    words::{deed_words, reason_of, word_of},
};
use godwit_core::{
    Url,
    deeds::{self, Deed, Over},
    holding::{Base, Held as Why},
};
use godwit_store::Error as StoreError;
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Where something is on its way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Stage {
    /// A program writes it.
    Open,
    /// The entry waits for its turn.
    Queued,
    /// The entry is in flight.
    Sending,
    /// The target cannot be reached at the moment; it is tried again.
    Waiting {
        /// When.
        again_in: Duration,
    },
    /// On hold until a person decides.
    Held,
}

/// Something that a target lacks.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its number, for [`Depot::retry`] and the others.
    pub id: String,
    /// The operation at the target: `publish`, `rename`, `unlink`, `mkdir`, `set`, `append`.
    pub what: &'static str,
    /// The new name of a rename.
    pub to: Option<Url>,
    /// Where it belongs.
    pub url: Url,
    /// Where it is on its way.
    pub stage: Stage,
    /// The file or operation that goes first, if this one waits for one.
    pub waits_for: Option<Before>,
    /// Its length.
    pub size: u64,
    /// Bytes that the target lacks.
    pub pending_bytes: u64,
    /// How long it has been on its way.
    pub age: Duration,
    /// How often it was tried in vain since something moved.
    pub tries: u32,
    /// Why it is not there yet.
    pub why: String,
    /// A conflict: the target has something else by now.
    pub is_conflict: bool,
    /// How it ended the last time that it was tried.
    pub last: Option<Error>,
    /// Durable on this machine.
    pub is_committed: bool,
    /// The session that wrote it.
    pub session: String,
}

impl Pending {
    /// Tells whether it is on hold, here or at a node that it goes by.
    pub fn is_held(&self) -> bool {
        let last = self.last.as_ref().and_then(Error::of_store);
        self.stage == Stage::Held || last.is_some_and(is_on_hold_downstream)
    }

    /// Returns the error of a caller that waits for it while it is on hold.
    pub fn on_hold(&self) -> Error {
        let deed = deed_words(self.what, self.to.as_ref());
        Error::held(self.url.clone(), self.why.clone(), deed)
    }

    /// Returns its name in a list: a file has its URL.
    pub fn named(&self) -> String {
        let url = self.url.without_password();
        match self.what {
            "publish" | "append" => url.to_string(),
            what => format!("the {what} of {url}"),
        }
    }

    /// Tells whether it goes by itself once the directory where it belongs is there.
    pub(crate) fn waits_for_directory(&self) -> bool {
        let above = self.to.as_ref().unwrap_or(&self.url).parent();
        self.stage == Stage::Held && above.is_some_and(|above| is_for_directory(&self.why, &above))
    }
}

impl Depot {
    /// Returns all that is pending, the oldest first.
    pub fn queue(&self) -> Vec<Pending> {
        self.queue_of(&Scope::All)
    }

    /// Returns what is pending of a scope, the oldest first. If `scope` is a name, returns its entries.
    pub fn queue_of(&self, scope: &Scope) -> Vec<Pending> {
        let pending: Vec<_> = match scope {
            Scope::Url(url) => self.inner.plan().pending_called(url),
            Scope::Below(url) => self.inner.plan().pending_below(url),
            _ => self.inner.plan().pending.values().cloned().collect(),
        };
        let mut all: Vec<Pending> = pending
            .iter()
            .filter_map(|entry| self.pending(entry))
            .collect();
        all.extend(self.inner.pending_deeds());
        all.retain(|pending| match scope {
            Scope::All => true,
            Scope::Url(url) => pending.url == *url,
            Scope::Below(url) => {
                let mut names = [Some(&pending.url), pending.to.as_ref()]
                    .into_iter()
                    .flatten();
                names.any(|name| is_at_or_below(name, url))
            }
            Scope::Session(session) => pending.session == *session,
        });
        let logs = self.inner.logs_of(scope);
        all.extend(logs.iter().map(|(log, _)| pending_pieces(log)));
        if *scope == Scope::All {
            all.extend(self.inner.unreadable());
        }
        all
    }

    /// Returns the queue of a scope as users see it: what waits for a directory is pending, not on hold.
    pub fn pending_of(&self, scope: &Scope) -> Vec<Pending> {
        let mut all = self.queue_of(scope);
        for pending in all
            .iter_mut()
            .filter(|pending| pending.waits_for_directory())
        {
            let again = self
                .inner
                .plan()
                .backoff
                .directories
                .map(|(at, _)| at - Instant::now());
            let again_in = again.unwrap_or_default();
            pending.stage = Stage::Waiting { again_in };
        }
        all
    }

    /// Returns the answer of the target for which an entry or operation of a name is on hold; `None` for a conflict, or if
    /// the answer is not known.
    pub(crate) fn why_on_hold(&self, url: &Url) -> Option<Arc<StoreError>> {
        let pending = self.queue_of(&Scope::Url(url.clone()));
        let on_hold = || {
            pending
                .iter()
                .filter(|pending| pending.stage == Stage::Held)
        };
        if on_hold().any(|pending| pending.is_conflict) {
            return None;
        }
        let error = on_hold().find_map(|pending| match &pending.last {
            Some(Error::Store(error)) => Some(error),
            _ => None,
        });
        if let (None, Some(pending)) = (
            error,
            on_hold().find(|pending| pending.waits_for_directory()),
        ) {
            return Some(Arc::new(StoreError::missing(pending.url.as_path())));
        }
        match error.map(|error| &**error) {
            // It is held further on.
            Some(StoreError::Held { cause, .. }) => cause.clone(),
            _ => error.cloned(),
        }
    }

    fn pending(&self, entry: &Entry) -> Option<Pending> {
        let server = entry.url().host_port();
        let (away, before) = {
            let plan = self.inner.plan();
            let away = plan.backoff.servers.get(&server);
            let away = away.map(|away| (away.until, away.why.clone()));
            (away, plan.before_file(entry))
        };
        let state = entry.lock();
        if !state.machine.owes() || state.is_gone {
            return None;
        }
        let left = away
            .as_ref()
            .map(|(until, _)| until.saturating_duration_since(Instant::now()));
        let stage = match (state.machine.held(), left) {
            (Some(_), _) => Stage::Held,
            _ if state.delivery.is_in_flight => Stage::Sending,
            _ if before.as_ref().is_some_and(|before| before.is_held) => Stage::Queued,
            (None, Some(again_in)) if state.delivery.is_due => Stage::Waiting { again_in },
            _ if state.machine.writers().is_some() => Stage::Open,
            _ => Stage::Queued,
        };
        let goes_first = before.as_ref().filter(|_| stage == Stage::Queued);
        let why = match (goes_first, &state.delivery.retry.last, &away) {
            _ if state.machine.held().is_some() => state.delivery.reason.clone(),
            _ if state.delivery.upload.waits_for_writer && state.machine.writers().is_some() => {
                WHOLE_ONLY.into()
            }
            (Some(before), ..) => before.reason(),
            (None, Some(error), _) => error.reason(),
            (None, None, Some((_, error))) if stage != Stage::Sending => error.reason(),
            _ => String::new(),
        };
        Some(Pending {
            id: entry.id.to_string(),
            what: "publish",
            to: None,
            url: entry.url(),
            stage,
            waits_for: before,
            size: state.machine.size(),
            pending_bytes: state.unsent_bytes(),
            age: Duration::from_secs(now().saturating_sub(entry.created_at)),
            tries: state.delivery.retry.tries,
            why,
            is_conflict: matches!(state.machine.held(), Some(Why::Conflict(_))),
            last: state.delivery.retry.last.clone(),
            is_committed: !state.record.is_ahead() || state.meta.committed > 0,
            session: state.meta.session.clone(),
        })
    }

    /// Tries again now what was not delivered; what is held as well, as it is.
    pub fn retry(&self, id: &str) -> Result<()> {
        self.inner.retry(id)
    }

    /// Delivers what is held, in place of whatever is there now.
    pub fn release(&self, id: &str) -> Result<()> {
        if self.inner.logs.release(id) {
            tracing::info!(
                id,
                "what is to be appended goes on, past what cannot be read"
            );
            self.inner.retry_servers();
            return Ok(());
        }
        if self.inner.decide_deed(id, |deeds, number| {
            deeds.release(number, Over::Anything);
            Ok(())
        })? {
            self.inner.retry_servers();
            return Ok(());
        }
        self.inner.decide(id, |entry| {
            let mut state = entry.lock();
            state.machine.release(Some(Base::Any));
            state.delivery.reason.clear();
            state.delivery.is_due = true;
            state.record.change();
            Ok(())
        })?;
        self.inner.retry_servers();
        Ok(())
    }

    /// Gives up what is pending: its bytes are lost, unless its target has them.
    pub fn discard(&self, id: &str) -> Result<()> {
        if self.inner.logs.discard(id) {
            tracing::info!(id, "what was to be appended is dropped");
            return Ok(());
        }
        if self.inner.forget_unreadable(id)? || self.inner.forget_odd_deed(id)? {
            tracing::info!(id, "what has a name that cannot be read is dropped");
            return Ok(());
        }
        let names = self.inner.plan().order.names_of(id);
        let dropped = self.inner.decide_deed(id, |deeds, number| {
            let url = Url::from_argument(id).ok();
            match deeds.drop(number) {
                Some(_) => Ok(()),
                None => Err(busy(url, "being done at the moment")),
            }
        })?;
        if dropped {
            self.inner.plan().names_again();
            names.iter().for_each(|name| self.changed(name));
            self.inner.nudge();
            return Ok(());
        }
        let entry = self.inner.by_name(id)?;
        let state = entry.lock();
        if state.delivery.is_in_flight || state.machine.writers().is_some() {
            return Err(Error::in_use(
                entry.url(),
                "being sent or written at the moment; try again when it waits or its writer has ended",
            ));
        }
        tracing::info!(id, url = %entry.url(), "dropped");
        self.inner.unlink(&entry, state)?;
        // Some of it may be there already.
        self.changed(&entry.url());
        Ok(())
    }

    /// Delivers a pending file to another name, perhaps on another server, over any file there. The part that the old
    /// target has is given up.
    pub fn redirect(&self, id: &str, to: &Url) -> Result<()> {
        let entry = self.inner.by_name(id)?;
        drop((self.inner.connect)(to, &entry.who)?);
        let mut plan = self.inner.plan();
        let mut state = entry.lock();
        let what = match () {
            () if state.delivery.is_in_flight => {
                Some("being sent; once it is held or waits it can go elsewhere")
            }
            () if state.machine.is_asked() => {
                Some("perhaps there already; that is found out first")
            }
            () if !state.machine.is_whole() || state.machine.is_blind() => {
                let what = format!("delivering {} elsewhere", entry.url().without_password());
                let why = "only parts of it are here, which belong into the file there";
                return Err(StoreError::unsupported(what, why).into());
            }
            () if entry.is_renamed() && !plan.order.is_overtaken(&entry) => None,
            () if entry.is_renamed() => {
                Some("renamed, which is on its way; redirect that, or drop it")
            }
            () => None,
        };
        if let Some(what) = what {
            return Err(busy(Some(entry.url()), what));
        }
        let leftover = state.take_leftover(&entry.url(), &entry.who);
        state.machine.release(Some(Base::Any));
        state.meta.replaces = None;
        state.delivery.reason.clear();
        state.delivery.is_due = true;
        state.delivery.retry.reset();
        state.record.change();
        let was_current = state.is_current();
        drop(state);
        tracing::info!(id, from = %entry.url().without_password(), to = %to.without_password(), "redirected");
        plan.cleanup.leftovers.extend(leftover);
        plan.remove_current(&entry);
        let is_promised = plan.order.has(&entry);
        plan.settle(&entry);
        entry.redirect(to.clone());
        match is_promised {
            true => plan.enqueue(&entry),
            false => drop(plan.pending.insert(entry.number(), Arc::clone(&entry))),
        }
        if was_current {
            plan.make_newest(&entry);
        }
        drop(plan);
        entry.tell();
        entry.commit(&self.inner)?;
        self.inner.retry_servers();
        Ok(())
    }
}

fn busy(url: Option<Url>, what: &str) -> Error {
    match url {
        Some(url) => Error::in_use(url, what),
        None => Error::Unknown(what.into()),
    }
}

/// Describes a row whose name cannot be read.
fn unreadable(id: Id, what: &'static str, url: &str, path: &Path, why: &str) -> Option<Pending> {
    let escaped = escaped(url);
    let path = std::path::absolute(path).ok()?;
    Some(Pending {
        id: id.to_string(),
        what,
        to: None,
        url: Url::file(&path).ok()?,
        stage: Stage::Held,
        waits_for: None,
        size: 0,
        pending_bytes: 0,
        age: Duration::ZERO,
        tries: 0,
        why: format!(
            "its name on record, \"{escaped}\", {why}; its bytes lie in {}: copy them from there, then drop it",
            path.display()
        ),
        is_conflict: false,
        last: None,
        is_committed: true,
        session: String::new(),
    })
}

/// Returns of a name that is none what may be shown.
pub(crate) fn escaped(name: &str) -> String {
    let shown = name.chars().take(URL_SHOWN);
    shown.flat_map(char::escape_default).collect()
}

/// Describes the pending pieces of a log.
fn pending_pieces(log: &Log) -> Pending {
    let (why, tries, is_held, last) = log.trouble();
    let stage = match (is_held, tries) {
        (true, _) => Stage::Held,
        (false, 0) => Stage::Sending,
        _ => Stage::Waiting {
            again_in: Duration::ZERO,
        },
    };
    Pending {
        id: log.id().to_string(),
        what: "append",
        to: None,
        url: log.url().clone(),
        stage,
        waits_for: None,
        size: log.pending(),
        pending_bytes: log.pending(),
        age: Duration::ZERO,
        tries,
        why,
        is_conflict: false,
        last,
        is_committed: true,
        session: log.session(),
    }
}

impl Inner {
    /// Returns what has a name that cannot be read. It is told where its bytes lie, and what its name says.
    fn unreadable(&self) -> Vec<Pending> {
        let plan = self.plan();
        let files = plan.unreadable.entries.iter().filter_map(|(id, it)| {
            let path = self.disk.path(*id);
            let mut pending = unreadable(*id, "publish", &it.url, &path, "is no URL")?;
            pending.pending_bytes = it.pending_bytes;
            pending.size = it.size;
            pending.age = Duration::from_secs(now().saturating_sub(it.created_at));
            pending.session.clone_from(&it.session);
            Some(pending)
        });
        let mut found: Vec<_> = files.collect();
        drop(plan);
        for (id, url, error, path) in self.logs.unreadable() {
            let why = format!("cannot be gone on with ({error})");
            let Some(mut pending) = unreadable(id, "append", &url, &path, &why) else {
                continue;
            };
            pending.size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            pending.pending_bytes = pending.size;
            found.push(pending);
        }
        found.extend(self.odd_deeds());
        found
    }

    /// Returns the deeds that are no publications.
    fn pending_deeds(&self) -> Vec<Pending> {
        let plan = self.plan();
        let pending = plan.order.deeds().map(|(deed, fact, deeds)| {
            let away = plan.backoff.servers.get(&fact.url.host_port());
            let again = away.map(|away| away.until).or(fact.later);
            let again_in = again.map(|at| at.saturating_duration_since(Instant::now()));
            let before = plan.before_deed(deed, fact);
            let stage = match (&deed.held, again_in) {
                (Some(_), _) => Stage::Held,
                _ if deeds.is_under_way(deed.number) => Stage::Sending,
                (None, Some(again_in)) if before.is_none() => Stage::Waiting { again_in },
                _ => Stage::Queued,
            };
            let why = match (&deed.held, &before, &fact.last) {
                (Some(why), ..) => reason_of(why),
                (None, Some(before), _) => before.reason(),
                (None, None, Some(error)) => error.reason(),
                (None, None, None) => away.map_or_else(String::new, |away| away.why.reason()),
            };
            Pending {
                id: deed_id(deed.number),
                what: word_of(&deed.what),
                to: fact.to.clone(),
                url: fact.url.clone(),
                stage,
                waits_for: before,
                size: 0,
                pending_bytes: 0,
                age: Duration::from_secs(now().saturating_sub(fact.created_at)),
                tries: fact.tries,
                why,
                is_conflict: deed.held == Some(deeds::Held::Conflict),
                last: fact.last.clone(),
                is_committed: true,
                session: fact.session.clone(),
            }
        });
        pending.collect()
    }

    /// Returns the numbers of the deeds of a scope.
    pub(crate) fn deeds_of(&self, scope: &Scope) -> Vec<u64> {
        let plan = self.plan();
        let is_meant = |deed: &Deed, fact: &Fact| match scope {
            Scope::All => true,
            Scope::Session(session) => fact.session == *session,
            Scope::Url(url) | Scope::Below(url) => {
                server_of(url) == server_of(&fact.url) && deed.concerns(&path_of(url))
            }
        };
        let meant = plan.order.deeds().filter(|(d, f, _)| is_meant(d, f));
        meant.map(|(deed, ..)| deed.number).collect()
    }

    /// Returns what is to be appended of a scope, and up to where it is meant.
    pub(crate) fn logs_of(&self, scope: &Scope) -> Vec<(Arc<Log>, Upto)> {
        let upto = |log: &Log| match scope {
            Scope::Url(url) if log.url() != url => None,
            Scope::Below(url) if !is_at_or_below(log.url(), url) => None,
            Scope::Session(session) => log.upto_of(session),
            _ => Some(log.upto()),
        };
        let pending = self.logs.pending().into_iter();
        pending
            .filter_map(|log| upto(&log).map(|upto| (log, upto)))
            .collect()
    }
}

pub(crate) fn is_meant(scope: &Scope, entry: &Entry) -> bool {
    match scope {
        Scope::All => true,
        Scope::Url(url) => entry.name() == *url || entry.url() == *url,
        Scope::Below(url) => [entry.name(), entry.url()]
            .iter()
            .any(|name| is_at_or_below(name, url)),
        Scope::Session(session) => entry.lock().meta.session == *session,
    }
}

/// So much is shown of a name that is none.
const URL_SHOWN: usize = 200;

const WHOLE_ONLY: &str =
    "its server takes whole files only: it is sent when its writer has closed it";
