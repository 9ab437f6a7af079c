//! A catalog that a node serves, asked through its door.

use godwit_catalog::{
    AskMake, CHANGES_MAX, Catalog, CatalogAnswer, Changes, Each, PAGE, Question, Refusal, Result,
};
use godwit_core::{Fault, Kind, Url};
use godwit_store::{
    Error,
    door::{CatalogReply, Door, RequestId},
    engine::{CopyOptions, Retry},
};
use godwit_wire::door::call::{Line, Name};
use parking_lot::Mutex;
use std::{os::fd::AsFd, path::Path, sync::Arc};

/// Opens the catalog that a text names: `sqlite:PATH` is made first if `create`, `godwit://PEER` is asked through the door of
/// that node, as `options` say.
pub fn open(text: &str, options: &CopyOptions, create: bool) -> Result<Arc<dyn Catalog>> {
    if !text.starts_with("godwit:") {
        return godwit_catalog::open(text, create);
    }
    let invalid = |said| Refusal::of_kind(Kind::Invalid, said);
    if create {
        let said = format!("{text} is made at the node that serves it");
        let next = "say there: godwit catalog init --catalog sqlite:PATH, then godwit node --catalog sqlite:PATH";
        return Err(invalid(said).next(next));
    }
    let url: Url = text
        .parse()
        .map_err(|bad| invalid(format!("{text}: {bad}")))?;
    if url.path().iter().any(|&byte| byte != b'/') {
        let said = format!("{text} names a file, and a node has one catalog");
        return Err(invalid(said).next("write godwit://PEER"));
    }
    let door = Door::open(&url, &options.remote()).map_err(|error| unreached(&error))?;
    Ok(Arc::new(AtNode {
        door,
        options: options.clone(),
        writers: Mutex::default(),
    }))
}

struct AtNode {
    door: Door,
    options: CopyOptions,
    /// Random words under which no list is under way, with the counts of their last lists.
    writers: Mutex<Vec<(String, u64)>>,
}

impl AtNode {
    /// Asks until the node answers, as often as passing faults are retried.
    fn persist<T>(&self, attempt: &dyn Fn() -> godwit_store::Result<CatalogReply<T>>) -> Result<T> {
        let mut retry = Retry::new(self.options.retries);
        loop {
            let refusal = match attempt() {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(refusal)) => {
                    let fault = refusal.kind.fault();
                    refusal.waiting(fault)
                }
                Err(error) => unreached(&error),
            };
            let Some(pause) = retry.after(refusal.waiting.into()) else {
                return Err(refusal);
            };
            tracing::info!(said = refusal.said, ?pause, "the catalog is asked again");
            let canceled = godwit_sys::wait_readable([self.options.cancel.as_fd()], pause);
            if canceled.is_ok_and(|[is_canceled]| is_canceled) {
                return Err(refusal);
            }
        }
    }

    fn send(&self, changes: &Changes) -> Result<Vec<u64>> {
        self.persist(&|| {
            let mut all = None;
            let changed = self
                .door
                .catalog("catalog/change", changes, &mut |line| match line {
                    Line::Made(made) if made.len() == changes.changes.len() => {
                        all = Some(made);
                        Ok(())
                    }
                    _ => Err(misbehaved("it does not tell a number for each change")),
                })?;
            match (changed, all) {
                (Ok(()), Some(made)) => Ok(Ok(made)),
                (Ok(()), None) => Err(misbehaved("it does not say what changed")),
                (Err(refusal), _) => Ok(Err(refusal)),
            }
        })
    }
}

impl Catalog for AtNode {
    fn ask(&self, question: &Question, each: &mut Each<'_>) -> Result<()> {
        if let Question::Locate { names } = question
            && names.len() > PAGE
        {
            let mut parts = names.chunks(PAGE).map(<[_]>::to_vec);
            return parts.try_for_each(|names| self.ask(&Question::Locate { names }, each));
        }
        // A page that was cut is requested again, so no answer is passed on before its end.
        let page = self.persist(&|| {
            let mut page: Vec<CatalogAnswer> = Vec::new();
            let asked = self
                .door
                .catalog("catalog", question, &mut |line| match line {
                    Line::Answer(answer) if page.len() < ANSWERS_MAX => {
                        page.push(answer);
                        Ok(())
                    }
                    _ => Err(misbehaved("it tells more than was asked")),
                })?;
            Ok(asked.map(|()| page))
        })?;
        page.into_iter().try_for_each(each)
    }

    fn make(&self, name: &Path) -> Result<Option<u64>> {
        let asked = AskMake {
            name: Name(name.into()),
        };
        let mut count = None;
        let made = self
            .door
            .catalog("catalog/make", &asked, &mut |line| match line {
                Line::Made(made) => {
                    count = made.first().copied();
                    Ok(())
                }
                _ => Err(misbehaved("it tells something else than what it made")),
            });
        made.unwrap_or_else(|error| Err(unreached(&error)))?;
        Ok(count.or(Some(0)))
    }

    fn change(&self, changes: &Changes) -> Result<Vec<u64>> {
        if changes.once.is_some() {
            return self.send(changes);
        }
        // A list that is sent again, since its answer was lost, is applied once.
        let idle = self.writers.lock().pop();
        let (writer, count) = idle.unwrap_or_else(|| (RequestId::new().to_string(), 0));
        let numbered = Changes {
            changes: changes.changes.clone(),
            once: Some((writer.clone(), count + 1)),
        };
        let made = self.send(&numbered);
        self.writers.lock().push((writer, count + 1));
        made
    }
}

fn misbehaved(what: &str) -> Error {
    Error::misbehaved("the node of the catalog", what)
}

/// Returns the refusal for a caller of the catalog whose node did not answer.
fn unreached(error: &Error) -> Refusal {
    let refusal = Refusal::of_kind(error.kind(), error.to_string()).waiting(error.fault());
    match (error.hint(), error.fault()) {
        (Some(hint), _) => refusal.next(hint),
        (None, Fault::Lasting) => refusal,
        (None, _) => {
            refusal.next("see that the node of the catalog runs: godwit node --catalog sqlite:PATH")
        }
    }
}

/// The most answers to a question; a page of entries has fewer.
const ANSWERS_MAX: usize = 10 * CHANGES_MAX;
