//! What whoever waits for a delivery is told meanwhile: how much is not there yet and why, and what is held.

use super::{
    Reply, STACK_BYTES,
    desk::{Guest, row},
};
use godwit_depot::{Owed, Scope, Stage};
use godwit_wire::local::{Tell, tell};
use std::{
    collections::HashSet,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

impl Guest {
    /// Waits, and tells meanwhile how what is owed of a scope goes.
    pub(super) fn telling<T>(&self, scope: &Scope, reply: &Reply, wait: impl FnOnce() -> T) -> T {
        thread::scope(|threads| {
            let (waits, is_over) = mpsc::channel::<()>();
            let tell = move || self.tell_until(&is_over, scope, reply);
            let named = thread::Builder::new().name("teller".into());
            // Where no thread is to be had it goes without a word, as it would anyway.
            let telling = named.stack_size(STACK_BYTES).spawn_scoped(threads, tell);
            let waited = wait();
            drop((waits, telling));
            waited
        })
    }

    fn tell_until(&self, is_over: &Receiver<()>, scope: &Scope, reply: &Reply) {
        let mut held = HashSet::new();
        let mut said: Option<(Instant, String)> = None;
        while is_over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            if reply.is_over() {
                return;
            }
            let owed = self.owed_of(scope);
            for owed in owed.iter().filter(|owed| owed.stage == Stage::Held) {
                if held.len() < HELD_MAX && held.insert(owed.id.clone()) {
                    reply.tell(Tell::Row(Box::new(row(owed.clone()))));
                }
            }
            let Some(words) = words(&owed) else {
                continue;
            };
            let is_known = said
                .as_ref()
                .is_some_and(|(at, was)| *was == words || at.elapsed() < TOLD_AGAIN);
            if !is_known {
                reply.tell(Tell::Row(Box::new(tell::Row {
                    what: "delivery".into(),
                    stage: "waiting".into(),
                    why: Some(words.clone()),
                    ..tell::Row::default()
                })));
                said = Some((Instant::now(), words));
            }
        }
    }
}

/// Says what is waited for; `None`: for nothing but what is held.
fn words(owed: &[Owed]) -> Option<String> {
    let going = || owed.iter().filter(|owed| owed.stage != Stage::Held);
    if owed.is_empty() {
        return Some(
            "it left this machine, and the next node has not said yet that it is there".into(),
        );
    }
    let first = going().next()?;
    let bytes: u64 = going().map(|owed| owed.owed).sum();
    let told = going().find(|owed| !owed.why.is_empty());
    let shown = told.unwrap_or(first).url.without_password();
    let why = told.map_or_else(|| "on its way".to_owned(), |owed| owed.why.clone());
    Some(match going().count() {
        1 => format!("{shown} is not there yet, {bytes} bytes: {why}"),
        count => format!("{count} are not there yet, {bytes} bytes; {shown}: {why}"),
    })
}

/// Adds to what is told of one, or of a time that is over, which others are likewise.
pub(super) fn with_others<'a>(
    because: &mut String,
    how: &str,
    owed: impl Iterator<Item = &'a Owed>,
    but: Option<&str>,
) {
    let names = owed.map(|owed| owed.url.without_password().to_string());
    let mut names: Vec<String> = names.filter(|name| Some(&**name) != but).collect();
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

/// The first word comes after that, and then it is looked again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon it is said anew what is waited for.
const TOLD_AGAIN: Duration = Duration::from_secs(10);
/// So many are told by themselves; all are in the queue.
const HELD_MAX: usize = 100;
/// So many are named at the end.
const NAMED_MAX: usize = 8;
