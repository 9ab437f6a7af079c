//! Requests of local programs to the depot of another machine, sent through the door of its node.

use crate::local::{
    answers::{LocalResult, done},
    client::Client,
    connection::LocalReply,
    refusals,
};
use godwit_core::Url;
use godwit_local::{Kind, Refusal};
use godwit_store::{Error, door::Door};
use godwit_wire::{
    door::call::{AskDepot, Kept, Line, OfDepot},
    local::{
        Request, Response,
        request::{Cache, FileTarget, StageRequest},
        response,
    },
};

/// Returns whose depot something is asked of, if not this machine's.
pub(crate) fn place_of(ask: &Request) -> Option<String> {
    match ask {
        Request::On(on) => Some(on.on.clone()),
        Request::Stage(StageRequest { on, .. }) | Request::Unstage(StageRequest { on, .. }) => {
            on.clone()
        }
        Request::Cache(Cache::Stat(FileTarget { on, .. }) | Cache::Why(FileTarget { on, .. })) => {
            on.clone()
        }
        Request::Cache(Cache::Ls { on, .. } | Cache::Df { on }) => on.clone(),
        _ => None,
    }
}

impl Client {
    pub(crate) fn ask_elsewhere(&self, on: &str, ask: Request, reply: &LocalReply) -> LocalResult {
        let ask = match ask {
            Request::On(on) => *on.ask,
            ask => ask,
        };
        let wanted = format!("ask the depot of {on}");
        let asked = asked(ask).ok_or_else(|| {
            Refusal::new(
                Kind::Unsupported,
                &*wanted,
                "what is open or pending there is so by programs of that machine",
            )
        })?;
        must_be_there(&wanted, &asked)?;
        let peer = peer(&wanted, on)?;
        let bad = |error: Error| refusals::store(&wanted, &peer, &error);
        let place = (self.keeping.direct)(&peer, &self.who).map_err(bad)?;
        let Some(door) = Door::of(&*place.store) else {
            let words = "it is no node with a door";
            return Err(Refusal::new(Kind::Unsupported, wanted, words));
        };
        let is_unstaged = asked.what == OfDepot::Unstage;
        let mut told = PeerAnswer {
            what: asked.what,
            answer: response::Done::default(),
            opened: None,
            space: None,
            words: Vec::new(),
        };
        let heard = door.depot(&asked, &|| !reply.is_over(), &mut |line| {
            told.hear(line, on, reply)
        });
        heard.map_err(|error| match (not_kept(&asked), &error) {
            (Some(because), Error::Missing { .. }) => {
                let about = asked.url.clone().unwrap_or_default();
                Refusal::new(Kind::Missing, &*wanted, format!("{about}: {because}"))
                    .about(about)
                    .next(format!(
                        "godwit cache ls --on {} lists what is",
                        name_of(on)
                    ))
            }
            _ => bad(error),
        })?;
        let is_without = is_unstaged && told.answer.files == 0;
        let answer = told.end()?;
        Ok(match is_without {
            true => without_tag(answer),
            false => answer,
        })
    }
}

/// Says that the tag that was to be taken off was on nothing.
pub(crate) fn without_tag(mut answer: Option<Response>) -> Option<Response> {
    if let Some(Response::Done(done)) = &mut answer {
        done.notes.push(NO_TAG.into());
    }
    answer
}

const NO_TAG: &str = "it was not kept under that tag; godwit cache stat shows its tags";

/// Lines of the answer that have arrived so far.
struct PeerAnswer {
    what: OfDepot,
    answer: response::Done,
    opened: Option<response::OpenedFile>,
    space: Option<response::LocalSpace>,
    words: Vec<String>,
}

impl PeerAnswer {
    fn hear(&mut self, line: Line, on: &str, reply: &LocalReply) -> godwit_store::Result<()> {
        match line {
            Line::Kept(kept) if self.what == OfDepot::Why => self.words.extend(kept.why),
            Line::Kept(kept) if self.what == OfDepot::Add => {
                self.opened = Some(response::OpenedFile {
                    size: kept.size,
                    exists: true,
                    timestamp: kept.timestamp,
                    path: kept.path,
                    ..response::OpenedFile::default()
                });
            }
            Line::Kept(kept) => reply.tell(Response::Row(Box::new(row(kept)))),
            Line::Count(count) => {
                (self.answer.files, self.answer.bytes) = (count.files, count.bytes);
            }
            Line::Room(room) => {
                self.space = Some(response::LocalSpace {
                    path: on.to_owned(),
                    quota_bytes: Some(room.quota_bytes),
                    used_bytes: room.used_bytes,
                    kept_bytes: room.kept_bytes,
                    files: room.files,
                    ..response::LocalSpace::default()
                });
            }
            _ => {
                return Err(Error::misbehaved(
                    on,
                    "it answers something that was not asked",
                ));
            }
        }
        Ok(())
    }

    fn end(self) -> LocalResult {
        match (self.space, self.opened) {
            (Some(space), _) => Ok(Some(Response::Space(space))),
            (None, Some(opened)) => Ok(Some(Response::Opened(opened))),
            (None, None) if self.what == OfDepot::Why => {
                Ok(Some(Response::Words(self.words.join("; "))))
            }
            (None, None) => done(self.answer),
        }
    }
}

/// Returns the request for the node there; `None`: it is for programs of that machine alone.
fn asked(ask: Request) -> Option<AskDepot> {
    let of = |what, url, tag| AskDepot {
        what,
        url,
        tag,
        ..AskDepot::default()
    };
    Some(match ask {
        Request::Stage(stage) => AskDepot {
            lasts_s: stage.expires_in_s,
            bytes_per_s: stage.bytes_per_s,
            ..of(OfDepot::Stage, Some(stage.url), stage.tag)
        },
        Request::Unstage(stage) => of(OfDepot::Unstage, Some(stage.url), stage.tag),
        Request::Cache(Cache::Ls { prefix, .. }) => of(OfDepot::Ls, Some(prefix), None),
        Request::Cache(Cache::Stat(place)) => of(OfDepot::Stat, Some(place.url), None),
        Request::Cache(Cache::Why(place)) => of(OfDepot::Why, Some(place.url), None),
        Request::Cache(Cache::Rm { url, tag }) => of(OfDepot::Rm, Some(url), tag),
        Request::Cache(Cache::Clean { tag, url }) => of(OfDepot::Clean, url, Some(tag)),
        Request::Cache(Cache::Df { .. }) => of(OfDepot::Df, None, None),
        Request::Cache(Cache::Verify { url }) => of(OfDepot::Verify, url, None),
        Request::Cache(Cache::Add(add)) => AskDepot {
            lasts_s: add.expires_in_s,
            ..of(OfDepot::Add, Some(add.url), add.tag)
        },
        Request::Cache(Cache::AddDone(added)) => AskDepot {
            timestamp: added.timestamp,
            give_up: added.give_up,
            ..of(OfDepot::AddDone, added.url, added.tag)
        },
        _ => return None,
    })
}

/// A path of this machine is another file there.
fn must_be_there(wanted: &str, asked: &AskDepot) -> Result<(), Refusal> {
    let Some(text) = asked.url.as_ref().filter(|_| asked.what != OfDepot::Ls) else {
        return Ok(());
    };
    match refusals::url(text)?.is_local() {
        true => {
            let words = format!("{text} is a file of this machine: name a URL");
            Err(Refusal::new(Kind::Invalid, wanted, words))
        }
        false => Ok(()),
    }
}

/// Returns the reason for a missing file if the request only looks at kept files.
fn not_kept(asked: &AskDepot) -> Option<&'static str> {
    match (asked.what, &asked.tag) {
        (OfDepot::AddDone, _) | (OfDepot::Rm, Some(_)) => {
            Some("it is not kept there for this machine under that tag")
        }
        (OfDepot::Stat | OfDepot::Why | OfDepot::Rm, _) => {
            Some("nothing of it is kept there for this machine")
        }
        _ => None,
    }
}

fn name_of(on: &str) -> &str {
    on.strip_prefix("peer:").unwrap_or(on)
}

fn peer(wanted: &str, on: &str) -> Result<Url, Refusal> {
    let name = name_of(on);
    let is_name = !name.is_empty() && !name.contains(['/', '@', '?', '#', '%']);
    let url = is_name.then(|| format!("godwit://{name}/").parse().ok());
    url.flatten().ok_or_else(|| {
        Refusal::new(Kind::Invalid, wanted, format!("{on:?} names no peer"))
            .next("godwit peers lists those that this machine knows")
    })
}

fn row(kept: Kept) -> response::Row {
    let reason = (kept.stage == "wrong").then_some(Kind::Corrupt);
    response::Row {
        url: kept.url,
        size: kept.size,
        present_bytes: kept.present_bytes,
        transfers: kept.transfers,
        tags: kept.tags,
        used_s: kept.used_s,
        timestamp: kept.timestamp,
        stage: kept.stage,
        why: kept.why,
        reason,
        ..response::Row::default()
    }
}
