//! The depot of this machine, for users of other machines. Their requests go to the local node of their account here,
//! or of the node's own account.
//!
//! This module decides which users may ask and which files are fetched for them: those that a rule lets them `stage`.
//! Before that, no server is asked. Their view is their own (`local/peer_in.rs`).

use super::{
    calls::ClientCall,
    reply::{BEAT, ReplyLines},
};
use crate::{access::account_call, shared::NodeState};
use godwit_core::{Kind, Url};
use godwit_local::NodeConnection;
use godwit_sys::Steward;
use godwit_trust::Identity;
use godwit_wire::{
    door::call::{AskDepot, Count, DepotRoom, Kept, Line, OfDepot, Refusal},
    local::{
        Request, Response,
        request::{AddDone, AddRequest, Cache, FileTarget, StageRequest},
        response::Row,
    },
};
use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Answers a request to the depot.
pub(super) fn ask(asked: ClientCall<'_>) {
    let wish: AskDepot = match asked.read() {
        Ok(wish) => wish,
        Err(refusal) => return asked.reply.refuse(refusal),
    };
    let known = visitor(&asked, &wish).and_then(|visitor| Ok((visitor, whose(&asked)?)));
    let (visitor, whose) = match known {
        Ok(known) => known,
        Err(refusal) => return asked.reply.refuse(refusal),
    };
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&is_gone);
    let did = format!("{:?} in the depot", wish.what);
    let changes = !matches!(
        wish.what,
        OfDepot::Ls | OfDepot::Stat | OfDepot::Why | OfDepot::Df | OfDepot::Verify
    );
    let url = wish.url.as_deref().map(Url::from_argument);
    let url = url
        .and_then(Result::ok)
        .map(|url| url.without_password().to_string());
    let (lines, told) = asked.reply.lines().during(
        BEAT,
        Arc::new(|| Line::Beat(0)),
        move || gone.store(true, Relaxed),
        || {
            let told = pass_on(begin(&visitor, whose)?, wish, &is_gone);
            match changes {
                true => (asked.known.dir).audited(&did, url.unwrap_or_default().as_ref(), told),
                false => told,
            }
        },
    );
    tell(lines, told);
}

fn tell(mut lines: ReplyLines, told: Result<Vec<Line>, Refusal>) {
    let told = told.and_then(|told| {
        let mut said = told.iter().map(|line| lines.say(line));
        said.try_for_each(|said| said.map_err(Refusal::from))
    });
    lines.end(told);
}

/// Returns the name under which the user's files are kept, if the user may do this.
fn visitor(asked: &ClientCall<'_>, wish: &AskDepot) -> Result<String, Refusal> {
    let url = wish.url.as_deref().filter(|_| wish.what != OfDepot::Ls);
    let url = url.map(|text| {
        let url = Url::from_argument(text);
        url.map_err(|bad| Refusal::of_kind(Kind::Invalid, bad.to_string()))
    });
    let url = url.transpose()?;
    let is_taken_away = matches!(wish.what, OfDepot::Unstage | OfDepot::Rm | OfDepot::Clean)
        || wish.what == OfDepot::AddDone && wish.give_up;
    let about = url.as_ref().filter(|_| !is_taken_away);
    let may = asked.known.dir.may_stage(about);
    may?;
    let who = asked.known.who.as_ref().map(Identity::subject);
    who.map(str::to_owned)
        .ok_or_else(|| Refusal::of_kind(Kind::Denied, "the client has no name"))
}

/// Returns the user's account here, with its steward, if it is not the node's own account.
fn whose(asked: &ClientCall<'_>) -> Result<Option<(Steward, String)>, Refusal> {
    let shared: &NodeState = &asked.door.shared;
    let Some(account) = &asked.known.account else {
        return Ok(None);
    };
    let other = shared.of_another(account);
    other.map_err(Refusal::from)
}

/// Begins a conversation with that account's node, in which the visitor speaks.
fn begin(visitor: &str, whose: Option<(Steward, String)>) -> Result<NodeConnection, Refusal> {
    let Some((steward, account)) = whose else {
        let environment = |name: &str| env::var_os(name);
        let here = NodeConnection::find(&account_call::hello(visitor, &environment), &environment);
        return here.map_err(|refusal| heard(&refusal));
    };
    account_call::converse(&steward, &account, visitor).map_err(|refusal| {
        tracing::warn!(account, %refusal, "no node of that account");
        let told = heard(&refusal);
        let next = refusal.next.unwrap_or_default();
        let said = format!("the node of {account} there: {}; {next}", told.said);
        Refusal::of_kind(told.kind, said)
    })
}

fn pass_on(
    mut here: NodeConnection,
    wish: AskDepot,
    is_gone: &AtomicBool,
) -> Result<Vec<Line>, Refusal> {
    let about = wish.url.clone();
    let ask = local(wish)?;
    let n = here.send(ask, b"").map_err(|refusal| heard(&refusal))?;
    let (mut lines, mut bytes) = (Vec::new(), 0);
    loop {
        let answer = here.receive(n, Some(Instant::now() + LOOK_EVERY));
        let tell = match answer {
            // An endless task may send lines all the time, so the client is checked here too.
            Ok(_) if is_gone.load(Relaxed) => {
                return Err(Refusal::of_kind(Kind::Lost, "the client has left"));
            }
            Ok(answer) => answer.tell,
            Err(refusal) if refusal.kind == Kind::Late && !is_gone.load(Relaxed) => continue,
            Err(refusal) => return Err(heard(&refusal)),
        };
        let is_last = tell.is_last();
        match tell {
            Response::Row(row) if lines.len() < ROWS_MAX && bytes < ROWS_BYTES_MAX => {
                bytes += length(&row);
                lines.push(Line::Kept(kept(*row)));
            }
            Response::Done(done) => lines.push(Line::Count(Count {
                files: done.files,
                bytes: done.bytes,
            })),
            Response::Opened(opened) => {
                lines.push(Line::Kept(Kept {
                    url: about.clone().unwrap_or_default(),
                    size: opened.size,
                    present_bytes: opened.size,
                    stage: "current".into(),
                    timestamp: opened.timestamp,
                    path: opened.path,
                    ..Kept::default()
                }));
                lines.push(Line::Count(Count {
                    files: 1,
                    bytes: opened.size,
                }));
            }
            Response::Space(space) => lines.push(Line::Room(DepotRoom {
                quota_bytes: space.quota_bytes.unwrap_or_default(),
                used_bytes: space.used_bytes,
                kept_bytes: space.kept_bytes,
                files: space.files,
            })),
            Response::Refused(refusal) => return Err(heard(&refusal)),
            _ => {}
        }
        if is_last {
            return Ok(lines);
        }
    }
}

/// Returns what the node of this machine is asked.
fn local(wish: AskDepot) -> Result<Request, Refusal> {
    let AskDepot {
        what,
        url,
        tag,
        lasts_s,
        bytes_per_s,
        timestamp,
        give_up,
    } = wish;
    let missing = |name: &str| Refusal::of_kind(Kind::Protocol, format!("{what:?} wants a {name}"));
    let named = || url.clone().ok_or_else(|| missing("url"));
    Ok(match what {
        OfDepot::Stage => Request::Stage(StageRequest {
            url: named()?,
            tag,
            expires_in_s: lasts_s,
            bytes_per_s,
            ..StageRequest::default()
        }),
        OfDepot::Unstage => Request::Unstage(StageRequest {
            url: named()?,
            tag,
            ..StageRequest::default()
        }),
        OfDepot::Ls => Request::Cache(Cache::Ls {
            prefix: url.unwrap_or_default(),
            on: None,
        }),
        OfDepot::Stat => Request::Cache(Cache::Stat(FileTarget::is(named()?))),
        OfDepot::Why => Request::Cache(Cache::Why(FileTarget::is(named()?))),
        OfDepot::Rm => Request::Cache(Cache::Rm { url: named()?, tag }),
        OfDepot::Clean => Request::Cache(Cache::Clean {
            tag: tag.ok_or_else(|| missing("tag"))?,
            url,
        }),
        OfDepot::Df => Request::Cache(Cache::Df { on: None }),
        OfDepot::Verify => Request::Cache(Cache::Verify { url }),
        OfDepot::Add => Request::Cache(Cache::Add(AddRequest {
            url: named()?,
            tag,
            expires_in_s: lasts_s,
            ..AddRequest::default()
        })),
        OfDepot::AddDone => Request::Cache(Cache::AddDone(AddDone {
            handle: 0,
            url: Some(named()?),
            tag,
            timestamp,
            give_up,
        })),
    })
}

/// Returns about how many bytes a row takes here.
fn length(row: &Row) -> usize {
    let tags = row.tags.iter().map(|tag| tag.len() + size_of::<String>());
    let why = row.why.as_ref().map_or(0, String::len);
    size_of::<Kept>() + row.url.len() + row.stage.len() + why + tags.sum::<usize>()
}

fn kept(row: Row) -> Kept {
    Kept {
        url: row.url,
        size: row.size,
        present_bytes: row.present_bytes,
        transfers: row.transfers,
        tags: row.tags,
        used_s: row.used_s,
        stage: row.stage,
        why: row.why,
        timestamp: row.timestamp,
        path: None,
    }
}

/// Returns the part of a local refusal that a visitor may see.
pub(super) fn heard(refusal: &Refusal) -> Refusal {
    let why = match refusal.kind {
        Kind::NoProof | Kind::Expired | Kind::Unproven => Kind::Denied,
        Kind::NoTag => Kind::Missing,
        kind => kind,
    };
    Refusal::of_kind(why, refusal.said.clone())
}

/// How often the connection of the client is checked.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The most rows of one answer; a client with more files asks by a prefix.
const ROWS_MAX: usize = 100_000;
/// The most bytes of one answer: the account's owner may have replaced its node by any program.
const ROWS_BYTES_MAX: usize = 64 << 20;
