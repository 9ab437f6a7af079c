//! Rows that tell of pending changes and of cached files.

use crate::local::{
    answers::{LocalResult, done},
    connection::LocalReply,
};
use godwit_depot::{Holds, Pending, Stage, Tag, Verified, count_names};
use godwit_local::Kind;
use godwit_wire::local::{Response, response};
use std::time::Duration;

/// Sends rows of the entries, and counts a file once even if several versions of it are kept.
pub(crate) fn rows(
    reply: &LocalReply,
    held: Vec<Holds>,
    row: impl Fn(Holds) -> response::Row,
) -> LocalResult {
    let mut told = response::Done {
        files: count_names(&held),
        ..response::Done::default()
    };
    for held in held {
        told.bytes += held.present;
        reply.tell(Response::Row(Box::new(row(held))));
    }
    done(told)
}

pub(crate) fn kept_row(held: Holds) -> response::Row {
    let tags = held.tags.iter().map(tag_words).collect();
    response::Row {
        id: held.id,
        url: held.url.without_password().to_string(),
        audience: held.audience,
        size: held.size,
        present_bytes: held.present,
        owed_bytes: held.pending_bytes,
        owes: held.pending_bytes > 0,
        stage: match held.is_current {
            true => "current",
            false => "old",
        }
        .into(),
        transfers: held.transfers,
        timestamp: (held.stamp).or_else(|| held.tags.iter().find_map(|tag| tag.timestamp)),
        tags,
        readers: held.users.into(),
        used_s: Some(held.used),
        base: Some(held.base),
        ..response::Row::default()
    }
}

pub(crate) fn verified_row(found: &Verified) -> response::Row {
    let stage = match (found.wrong.is_empty(), found.is_unknown) {
        (false, _) => "wrong",
        (true, true) => "unknown",
        (true, false) => "whole",
    };
    let is_wrong = !found.wrong.is_empty();
    response::Row {
        url: found.url.without_password().to_string(),
        size: found.bytes,
        stage: stage.into(),
        why: is_wrong.then(|| format!("{} leaves of 1 MiB differ", found.wrong.len())),
        reason: is_wrong.then_some(Kind::Corrupt),
        ..response::Row::default()
    }
}

fn tag_words(tag: &Tag) -> String {
    match tag.count {
        0 | 1 => tag.name.clone(),
        count => format!("{} ({count} times)", tag.name),
    }
}

pub(crate) fn why_kept(held: &Holds) -> String {
    let mut why = Vec::new();
    if held.pending_bytes > 0 {
        why.push(format!("its target lacks {} bytes", held.pending_bytes));
    }
    if held.users > 0 {
        why.push(format!("{} programs have it open", held.users));
    }
    for tag in &held.tags {
        why.push(format!("the tag {} is on it", tag_words(tag)));
    }
    match why.is_empty() {
        true => "nothing keeps it: it goes when room is wanted".into(),
        false => format!("kept, since {}", why.join(" and ")),
    }
}

pub(crate) fn row(owed: Pending) -> response::Row {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (stage, next) = match owed.stage {
        Stage::Open => ("writing", None),
        Stage::Queued => ("queued", None),
        Stage::Sending => ("sending", None),
        Stage::Waiting { again_in } => ("waiting", Some(again_in)),
        Stage::Held => ("held", None),
    };
    response::Row {
        id: owed.id,
        what: owed.what.into(),
        to: owed.to.map(|to| to.without_password().to_string()),
        url: owed.url.without_password().to_string(),
        session: Some(owed.session).filter(|session| !session.is_empty()),
        size: owed.size,
        present_bytes: owed.size,
        owed_bytes: owed.pending_bytes,
        owes: true,
        stage: stage.into(),
        waits_for: owed.waits_for.map(|first| first.id),
        why: Some(owed.why).filter(|why| !why.is_empty()),
        reason: owed.is_conflict.then_some(Kind::OnHold),
        next_ms: next.map(ms),
        age_ms: Some(ms(owed.age)),
        attempts: owed.tries.into(),
        committed: owed.is_committed,
        ..response::Row::default()
    }
}
