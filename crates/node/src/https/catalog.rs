//! The catalog of names, for clients of other machines.
//!
//! A client that may read at the root of the export may ask. A client that may write there may change; without a file of
//! rights that is a client that is known, may write, and acts as the account of this node. Then the rights that the
//! catalog keeps are asked of each name.

use super::{
    calls::{CallResult, ClientCall},
    reply::BEAT,
};
use crate::Asker;
use godwit_catalog::{AskMake, CHANGES_MAX, Catalog, CatalogAnswer, Changes, PAGE, Question};
use godwit_core::Kind;
use godwit_trust::Permission;
use godwit_wire::door::call::{Line, Refusal};
use std::sync::Arc;

/// Answers a question. The catalog has read the whole page before the first answer is sent.
pub(super) fn ask(asked: ClientCall<'_>) {
    let catalog = || {
        asked.known.dir.may_at_root(Permission::Read)?;
        served(&asked)
    };
    let (catalog, names) = (catalog(), asked.door.shared.names.clone());
    asked.say(|_, lines, question: Question| {
        if let Question::Locate { names } = &question {
            must_fit(names.len(), PAGE, "names")?;
        }
        catalog?.ask(&question, &mut |mut answer| {
            if let (CatalogAnswer::Location(location), Some(names)) = (&mut answer, &names) {
                names.introduce(location)?;
            }
            lines.say(&Line::Answer(answer)).map_err(Refusal::from)
        })
    });
}

/// Applies changes, which are durable once they are answered.
pub(super) fn change(asked: ClientCall<'_>) {
    let ready = asked.read::<Changes>().and_then(|changes| {
        may_change(&asked)?;
        must_fit(changes.changes.len(), CHANGES_MAX, "changes")?;
        Ok((changes, served(&asked)?))
    });
    let (changes, catalog) = match ready {
        Ok(ready) => ready,
        Err(refusal) => return asked.reply.refuse(refusal),
    };
    // Another process may hold the catalog for longer than a client waits for a word.
    let beat = Arc::new(|| Line::Beat(0));
    let lines = asked.reply.lines();
    let (mut lines, made) = lines.during(BEAT, beat, || (), || catalog.change(&changes));
    let made = asked.known.dir.audited("catalog", "".as_ref(), made);
    godwit_sys::crash::point("catalog-changed");
    let told = made.and_then(|made| lines.say(&Line::Made(made)).map_err(Refusal::from));
    lines.end(told);
}

/// Makes a file again, as this node: the client needs no right to run programs.
pub(super) fn make(asked: ClientCall<'_>) {
    let ready = asked.read::<AskMake>().and_then(|ask| {
        asked.known.dir.may_at_root(Permission::Read)?;
        served(&asked)?.make(&ask.name.0)?;
        let names = asked.door.shared.names.as_ref();
        let names = names.map(|names| names.maker()).transpose()?;
        Ok((ask.name.0, names))
    });
    let (name, names) = match ready {
        Ok((name, Some(names))) => (name, names),
        Ok((_, None)) => return,
        Err(refusal) => return asked.reply.refuse(refusal),
    };
    let beat = Arc::new(|| Line::Beat(0));
    let lines = asked.reply.lines();
    let work = || names.make(&name).map_err(|error| Refusal::from(&error));
    let (mut lines, made) = lines.during(BEAT, beat, || (), work);
    let made = asked.known.dir.audited("make", &name, made);
    let told = made.and_then(|made| {
        lines
            .say(&Line::Made(vec![made as u64]))
            .map_err(Refusal::from)
    });
    lines.end(told);
}

fn served(asked: &ClientCall<'_>) -> Result<Arc<dyn Catalog>, Refusal> {
    let names = asked.door.shared.names.as_ref();
    let said = match names {
        Some(names) if names.is_ours() => {
            return names.obeyed(Asker::Client(asked.known.who.clone()));
        }
        // Another node would be asked with the rights of this one.
        Some(names) => format!("this node asks {} for names", names.text),
        None => "this node serves no catalog".to_owned(),
    };
    let next = "start the node of the catalog with --catalog sqlite:PATH, and ask that one";
    Err(Refusal::of_kind(Kind::Unsupported, said).next(next))
}

fn must_fit(count: usize, most: usize, what: &str) -> CallResult {
    if count <= most {
        return Ok(());
    }
    let refusal = Refusal::of_kind(Kind::Invalid, format!("{count} {what} came at once"));
    Err(refusal.next(format!("send {most} {what} at most")))
}

fn may_change(asked: &ClientCall<'_>) -> CallResult {
    let (known, shared) = (asked.known, &asked.door.shared);
    known.must_write()?;
    if shared.config.asks_own_rights() {
        return known
            .dir
            .may_at_root(Permission::Write)
            .map_err(Refusal::from);
    }
    match asked.acts_as_node()? {
        true => Ok(()),
        false => {
            let said = "only the account of this node, and those whom its rights let write at /, change its catalog";
            let next = "have its owner name you in the file of --rights: godwit help auth";
            Err(Refusal::of_kind(Kind::Denied, said).next(next))
        }
    }
}
