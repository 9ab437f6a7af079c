//! Messages for programs that wait for a delivery: the number of pending bytes, the cause, and changes on hold.

use crate::local::{
    answers::{LocalResult, done},
    client::Client,
    connection::LocalReply,
    refusals,
    rows::row,
    server::STACK_BYTES,
};
use godwit_core::Fault;
use godwit_depot::{Error, Pending, Scope, Stage};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{Response, response};
use std::{
    collections::HashSet,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

impl Client {
    pub(crate) fn deliver(
        &self,
        wanted: &str,
        scope: &Scope,
        timeout_ms: Option<u64>,
        reply: &LocalReply,
    ) -> LocalResult {
        let limit = timeout_ms.map(Duration::from_millis);
        let owed = self.owed_of(scope);
        let mut answer = response::Done {
            files: owed.len() as u64,
            bytes: owed.iter().map(|owed| owed.pending_bytes).sum(),
            notes: Vec::new(),
        };
        let is_wanted = || !reply.is_over();
        let pushed = self.telling(scope, reply, || {
            self.keeping.depot.push_while(scope, limit, &is_wanted)
        });
        let unseen = pushed.map_err(|error| self.not_delivered(wanted, scope, &error))?;
        answer
            .notes
            .extend(unseen.iter().map(|hop| out_of_sight(hop)));
        done(answer)
    }

    pub(crate) fn not_delivered(&self, wanted: &str, scope: &Scope, error: &Error) -> Refusal {
        let mut refusal = refusals::depot(wanted, None, error);
        if matches!(error, Error::TimedOut { .. }) {
            refusal.next = Some(GOES_ON.into());
        }
        if let Error::Held { url, why, .. } = error {
            let mut held = self.owed_of(scope);
            let is_pending = |owed: &Pending| matches!(owed.stage, Stage::Waiting { .. });
            let mut of_it = held.iter().filter(|owed| owed.url == **url);
            if of_it.clone().any(is_pending) && !of_it.any(Pending::is_held) {
                // The others will be delivered by themselves; a change on hold needs a decision, so it is named first.
                if let Some(other) = held.iter().find(|owed| owed.is_held()) {
                    return self.not_delivered(wanted, scope, &other.on_hold());
                }
                let shown = url.without_password().to_string();
                let mut because = format!("{shown} waits: {why}");
                let others = held.iter().filter(|owed| is_pending(owed));
                with_others(&mut because, "waiting as well", others, Some(&shown));
                let late = Refusal::new(Kind::Late, wanted, because);
                return late.waiting(Fault::Passing).next(GOES_ON).about(shown);
            }
            held.retain(|owed| owed.url == **url && owed.is_held());
            if !held.iter().any(|owed| owed.is_conflict) {
                // What the server said, if that is known.
                let said = held.iter().find_map(|owed| owed.last.as_ref());
                refusal.kind = match said {
                    Some(last @ Error::Store(_)) => last.kind(),
                    _ => Kind::Remote,
                };
            }
            refusal.more.url = Some(url.without_password().to_string());
        }
        if matches!(error, Error::TimedOut { .. } | Error::Held { .. }) {
            let how = match refusal.more.url {
                Some(_) => "held as well",
                None => "on hold until you decide",
            };
            let owed = self.owed_of(scope);
            let held = owed.iter().filter(|owed| owed.is_held());
            with_others(&mut refusal.said, how, held, refusal.more.url.as_deref());
        }
        refusal
    }

    /// Waits, and meanwhile reports the pending changes of a scope.
    pub(crate) fn telling<T>(
        &self,
        scope: &Scope,
        reply: &LocalReply,
        wait: impl FnOnce() -> T,
    ) -> T {
        thread::scope(|threads| {
            let (waits, is_over) = mpsc::channel::<()>();
            let tell = move || self.tell_until(&is_over, scope, reply);
            let named = thread::Builder::new().name("teller".into());
            // Without a thread there is no report.
            let telling = named.stack_size(STACK_BYTES).spawn_scoped(threads, tell);
            let waited = wait();
            drop((waits, telling));
            waited
        })
    }

    fn tell_until(&self, is_over: &Receiver<()>, scope: &Scope, reply: &LocalReply) {
        let mut held = HashSet::new();
        let mut said: Option<(Instant, String)> = None;
        while is_over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            if reply.is_over() {
                return;
            }
            let owed = self.owed_of(scope);
            for owed in owed.iter().filter(|owed| owed.stage == Stage::Held) {
                if held.len() < HELD_MAX && held.insert(owed.id.clone()) {
                    reply.tell(Response::Row(Box::new(row(owed.clone()))));
                }
            }
            let Some(words) = words(&owed) else {
                continue;
            };
            let is_known = said
                .as_ref()
                .is_some_and(|(at, was)| *was == words || at.elapsed() < TOLD_AGAIN);
            if !is_known {
                reply.tell(Response::Row(Box::new(response::Row {
                    what: "delivery".into(),
                    stage: "waiting".into(),
                    why: Some(words.clone()),
                    ..response::Row::default()
                })));
                said = Some((Instant::now(), words));
            }
        }
    }
}

/// Describes the pending changes; `None`: all are on hold.
fn words(owed: &[Pending]) -> Option<String> {
    let going = || owed.iter().filter(|owed| owed.stage != Stage::Held);
    if owed.is_empty() {
        return Some(
            "it left this machine, and the next node has not said yet that it is there".into(),
        );
    }
    let first = going().next()?;
    let bytes: u64 = going().map(|owed| owed.pending_bytes).sum();
    let told = going().find(|owed| !owed.why.is_empty());
    let shown = told.unwrap_or(first).url.without_password();
    let why = told.map_or_else(|| "on its way".to_owned(), |change| change.why.clone());
    Some(match going().count() {
        1 => format!("{shown} is not there yet, {bytes} bytes: {why}"),
        count => format!("{count} are not there yet, {bytes} bytes; {shown}: {why}"),
    })
}

/// Adds the names of other changes with the same problem.
fn with_others<'a>(
    because: &mut String,
    how: &str,
    owed: impl Iterator<Item = &'a Pending>,
    but: Option<&str>,
) {
    let others = owed.filter(|owed| Some(&*owed.url.without_password().to_string()) != but);
    let mut names: Vec<String> = others.map(Pending::named).collect();
    names.dedup();
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    if names.is_empty() {
        return;
    }
    because.push_str(&format!("; {how}: {}", names.join(", ")));
    if more > 0 {
        because.push_str(&format!(" and {more} more"));
    }
}

/// The delay of the first report, and the interval of checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon an unchanged report is sent again.
const TOLD_AGAIN: Duration = Duration::from_secs(10);
/// The most changes on hold that are reported one by one; the queue shows all.
const HELD_MAX: usize = 100;
/// The most changes that a final message names.
const NAMED_MAX: usize = 8;
const GOES_ON: &str = "it is kept here and delivered as soon as that is possible: godwit queue shows it, \
                       godwit push waits on";
/// Says that a push ends at a node that does not report its deliveries.
pub(crate) fn out_of_sight(hop: &str) -> String {
    format!(
        "{hop} has it and passes it on; whether it has is not told by FTP, so it was not waited for: a URL by its door \
         (godwit://…) waits until it is at its end"
    )
}
