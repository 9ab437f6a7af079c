//! Requests of users of other machines to this machine's depot. The door speaks for them, after it has checked their
//! rights.
//!
//! Each user has an audience of their own, so a hit on a file fetched for others is first revalidated at its origin.
//! Their tags carry their name, and they see no others. All their tags together keep at most half of the depot.

use crate::local::{
    answers::{LocalResult, done, of_files},
    asks::stage::STAGED,
    client::Client,
    connection::LocalReply,
    keeping::DepotState,
    refusals::{self, url},
    rows::{kept_row, rows, verified_row, why_kept},
};
use godwit_core::{Fault, Url};
use godwit_depot::{Error, Fresh, Holds, Reading, Tag, count_names};
use godwit_local::{Kind, Refusal};
use godwit_wire::{
    door::call::Link,
    local::{
        Request, Response,
        request::{self, Cache},
        response,
    },
};
use std::{
    num::NonZeroU64,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

/// A user of another machine.
pub(crate) struct PeerClient {
    name: String,
}

impl PeerClient {
    pub(crate) fn new(name: String) -> Self {
        Self { name }
    }

    /// Returns the audience of the user's files. The audience of a credential is its absolute path.
    pub(crate) fn audience(&self) -> String {
        format!("{VISITOR}{}", self.name)
    }

    /// Returns what their tag is called among all.
    fn tag(&self, tag: Option<&str>) -> Result<String, Refusal> {
        let tag = tag.unwrap_or(STAGED);
        match is_tag(tag) {
            true => Ok(format!("{VISITOR}{}: {tag}", self.name)),
            false => Err(Refusal::new(
                Kind::Invalid,
                "understand a tag",
                "tags of visitors have 64 visible characters of ASCII at most, and no colon",
            )),
        }
    }

    /// Returns the user's name for a tag of theirs. Names may contain the separator, tags may not.
    fn own<'a>(&self, tag: &'a str) -> Option<&'a str> {
        let (name, tag) = tag.strip_prefix(VISITOR)?.rsplit_once(": ")?;
        (name == self.name && is_tag(tag)).then_some(tag)
    }

    /// Returns the part of an entry that the user may see; `None`: it has no tag of theirs.
    fn seen(&self, held: Holds) -> Option<Holds> {
        let own = |tag: &Tag| {
            let name = self.own(&tag.name)?.to_owned();
            Some(Tag {
                name,
                ..tag.clone()
            })
        };
        let tags: Vec<Tag> = held.tags.iter().filter_map(own).collect();
        (held.audience == self.audience() || !tags.is_empty()).then(|| Holds {
            id: String::new(),
            audience: String::new(),
            base: String::new(),
            stamp: None,
            pending_bytes: 0,
            users: 0,
            tags,
            ..held
        })
    }
}

fn is_tag(tag: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    !tag.is_empty() && tag.len() <= TAG_BYTES_MAX && tag.bytes().all(is_plain)
}

impl Client {
    pub(crate) fn attend_visitor(
        &self,
        staying: &PeerClient,
        ask: Request,
        reply: &LocalReply,
    ) -> LocalResult {
        match ask {
            Request::Stage(stage) => self.stage_for(staying, &stage, reply),
            Request::Unstage(stage) => {
                match self.untag_for(staying, &stage.url, stage.tag.as_deref()) {
                    // It is off, as was wished.
                    Err(refusal) if refusal.kind == Kind::NoTag => of_files(0),
                    untagged => untagged,
                }
            }
            Request::Cache(Cache::Ls { prefix, .. }) => {
                let held = self.keeping.depot.list(&prefix);
                rows(reply, seen_by(staying, held), kept_row)
            }
            Request::Cache(Cache::Stat(place)) => {
                rows(reply, self.held_for(staying, &place.url)?, kept_row)
            }
            Request::Cache(Cache::Why(place)) => {
                let row = |held: Holds| response::Row {
                    why: Some(why_kept(&held)),
                    ..kept_row(held)
                };
                rows(reply, self.held_for(staying, &place.url)?, row)
            }
            Request::Cache(Cache::Rm { url, tag }) => match tag {
                Some(tag) => self.untag_for(staying, &url, Some(&tag)),
                None => self.forget_for(staying, &url),
            },
            Request::Cache(Cache::Clean { tag, url: text }) => {
                let url = text.map(|text| url(&text)).transpose()?;
                let cleaned = self
                    .keeping
                    .depot
                    .clean(&staying.tag(Some(&tag))?, url.as_ref());
                of_files(cleaned.map_err(bad("take a tag off", url.as_ref()))?)
            }
            Request::Cache(Cache::Add(add)) => self.add_for(staying, add, reply),
            Request::Cache(Cache::AddDone(added)) => self.add_done_for(staying, &added),
            Request::Cache(Cache::Df { .. }) => Ok(Some(Response::Space(self.space_for(staying)))),
            Request::Cache(Cache::Verify { url: text }) => self.verify_for(staying, text, reply),
            _ => Err(Refusal::new(
                Kind::Unsupported,
                "do what was asked for a user of another machine",
                "they stage files here, look at theirs, and take them away",
            )),
        }
    }

    fn stage_for(
        &self,
        staying: &PeerClient,
        stage: &request::StageRequest,
        reply: &LocalReply,
    ) -> LocalResult {
        let come = self.staged_for(staying, stage, reply)?;
        done(response::Done {
            files: 1,
            bytes: come.size(),
            notes: Vec::new(),
        })
    }

    /// Has it come, and puts their tag on it.
    fn staged_for(
        &self,
        staying: &PeerClient,
        stage: &request::StageRequest,
        reply: &LocalReply,
    ) -> Result<Reading, Refusal> {
        let (url, tag) = (url(&stage.url)?, staying.tag(stage.tag.as_deref())?);
        let wanted = format!("stage {}", url.without_password());
        // The door takes no names with users either, but a client on this socket need not be our door.
        if url.path_form().is_none() {
            let words = "only files of servers, without a user, come for visitors";
            return Err(Refusal::new(Kind::Denied, wanted, words));
        }
        let _turn = FetchSlot::take(&self.keeping.fetching, &wanted)?;
        self.must_fit(&wanted, &url)?;
        let bad = |error: Error| refusals::depot(&wanted, Some(&url), &error);
        let come = self.fetched(&url, stage.bytes_per_s, reply).map_err(bad)?;
        let _alone = self.keeping.visitors.lock();
        self.keeping.must_have_room(&wanted, &url, come.size())?;
        let lasts = stage.expires_in_s.map(Duration::from_secs);
        let staged = self.keeping.depot.stage(&url, &self.who, &tag, lasts);
        staged.map_err(bad)?;
        Ok(come)
    }

    /// Fetches a file as staging does, and returns its path. No name is locked for a user of another machine, who fills
    /// nothing. Programs of this machine read what the server of a name has, not what a visitor says.
    fn add_for(
        &self,
        staying: &PeerClient,
        add: request::AddRequest,
        reply: &LocalReply,
    ) -> LocalResult {
        let name = staying.tag(add.tag.as_deref())?;
        let stage = request::StageRequest {
            url: add.url,
            tag: add.tag,
            expires_in_s: add.expires_in_s,
            ..request::StageRequest::default()
        };
        let come = self.staged_for(staying, &stage, reply)?;
        let held = self.keeping.depot.holds(&url(&stage.url)?);
        let mut tags = held.iter().flat_map(|held| &held.tags);
        Ok(Some(Response::Opened(response::OpenedFile {
            size: come.size(),
            exists: true,
            timestamp: tags
                .find(|tag| tag.name == name)
                .and_then(|tag| tag.timestamp),
            path: Some(Link(self.keeping.depot.lies_at(&come))),
            ..response::OpenedFile::default()
        })))
    }

    /// Notes a time with the tag that was put on as it was added; or takes it off again.
    fn add_done_for(&self, staying: &PeerClient, added: &request::AddDone) -> LocalResult {
        let text = added.url.as_deref().unwrap_or_default();
        if added.give_up {
            return self.untag_for(staying, text, added.tag.as_deref());
        }
        let (url, tag) = (url(text)?, staying.tag(added.tag.as_deref())?);
        let stamped = self.keeping.depot.stamp(&url, &tag, added.timestamp);
        stamped.map_err(|error| {
            let wanted = format!("be done with {}", url.without_password());
            let mut refusal = refusals::depot(&wanted, Some(&url), &error);
            if refusal.kind == Kind::Missing {
                refusal.said = "no such tag of yours is on it: it was not added".into();
            }
            refusal
        })?;
        of_files(1)
    }

    /// Refuses a file that is too large before it is fetched.
    fn must_fit(&self, wanted: &str, url: &Url) -> Result<(), Refusal> {
        let there = (self.keeping.connect)(url, &self.who)
            .and_then(|place| place.store.stat(&place.path))
            .map_err(|error| refusals::store(wanted, url, &error))?;
        self.keeping.must_have_room(wanted, url, there.size)
    }

    /// Has it come, and stay until a tag keeps it.
    fn fetched(
        &self,
        url: &Url,
        rate: Option<NonZeroU64>,
        reply: &LocalReply,
    ) -> godwit_depot::Result<Reading> {
        let _ahead = self.ahead(url, rate, reply)?;
        let is_wanted = || !reply.is_over();
        (self.keeping.depot).read_while(url, &self.who, Fresh::Usual, &is_wanted)
    }

    fn untag_for(&self, staying: &PeerClient, text: &str, tag: Option<&str>) -> LocalResult {
        let (url, tag) = (url(text)?, staying.tag(tag)?);
        let untagged = self.keeping.depot.untag(&url, &tag);
        untagged.map_err(|error| {
            let mut refusal = refusals::depot("take a tag off", Some(&url), &error);
            if refusal.kind == Kind::Missing {
                refusal.kind = Kind::NoTag;
                refusal.said = "no such tag of yours is on it".into();
            }
            refusal
        })?;
        of_files(1)
    }

    /// Takes their tags off, and forgets what came for them, unless it has tags of others.
    fn forget_for(&self, staying: &PeerClient, text: &str) -> LocalResult {
        let held = self.held_for(staying, text)?;
        let url = url(text)?;
        let depot = &self.keeping.depot;
        let bad = bad("forget it", Some(&url));
        for tag in held.iter().flat_map(|held| &held.tags) {
            let tag = staying.tag(Some(&tag.name))?;
            depot.clean(&tag, Some(&url)).map_err(&bad)?;
        }
        match depot.forget_of(&url, &self.who.audience) {
            Ok(_) | Err(Error::Unknown(_)) => of_files(held.len() as u64),
            Err(error) => Err(bad(error)),
        }
    }

    fn verify_for(
        &self,
        staying: &PeerClient,
        text: Option<String>,
        reply: &LocalReply,
    ) -> LocalResult {
        let url = text.map(|text| url(&text)).transpose()?;
        let mut told = response::Done::default();
        let audience = staying.audience();
        let verified = self
            .keeping
            .depot
            .verify_of(url.as_ref(), &audience, |found| {
                (told.files, told.bytes) = (told.files + 1, told.bytes + found.bytes);
                reply.tell(Response::Row(Box::new(verified_row(&found))));
            });
        verified.map_err(bad("verify what is kept", url.as_ref()))?;
        done(told)
    }

    fn space_for(&self, staying: &PeerClient) -> response::LocalSpace {
        let held = seen_by(staying, self.keeping.depot.list(""));
        let kept = held.iter().filter(|held| !held.tags.is_empty());
        response::LocalSpace {
            quota_bytes: Some(self.keeping.share()),
            used_bytes: held.iter().map(|held| held.present).sum(),
            kept_bytes: kept.map(|held| held.present).sum(),
            files: count_names(&held),
            ..response::LocalSpace::default()
        }
    }

    fn held_for(&self, staying: &PeerClient, text: &str) -> Result<Vec<Holds>, Refusal> {
        let url = url(text)?;
        let held = seen_by(staying, self.keeping.depot.holds(&url));
        match held.is_empty() {
            true => Err(Refusal::new(
                Kind::Missing,
                format!("look at {}", url.without_password()),
                "nothing of it is kept for you",
            )),
            false => Ok(held),
        }
    }
}

impl DepotState {
    /// Returns the bytes that all visitors together may keep by tags.
    fn share(&self) -> u64 {
        let usage = self.depot.usage();
        let free = || godwit_sys::free_bytes(self.depot.root()).unwrap_or(0);
        usage
            .quota
            .unwrap_or_else(|| usage.taken.saturating_add(free()))
            / 2
    }

    /// Refuses what would be more than visitors may keep.
    fn must_have_room(&self, wanted: &str, url: &Url, size: u64) -> Result<(), Refusal> {
        let is_visitors = |held: &Holds| held.tags.iter().any(|tag| tag.name.starts_with(VISITOR));
        let mut held = self.depot.list("");
        held.retain(is_visitors);
        let is_there = |held: &&Holds| held.url == *url && held.is_current;
        let there = held.iter().find(is_there);
        let tags = there.map_or(0, |held| held.tags.len());
        let kept: u64 = held.iter().map(|held| held.size).sum();
        let more = match there {
            Some(_) => 0,
            None => size,
        };
        let share = self.share();
        let words = if kept.saturating_add(more) > share {
            format!(
                "visitors keep {kept} bytes here, {share} are the most, and this one has {size}"
            )
        } else if held.len() >= FILES_MAX {
            format!("visitors keep {FILES_MAX} files here already")
        } else if tags >= TAGS_MAX {
            format!("{TAGS_MAX} tags are on it already")
        } else {
            return Ok(());
        };
        Err(Refusal::new(Kind::Quota, wanted, words)
            .next("unstage what is not needed any more")
            .about(url.without_password().to_string()))
    }
}

/// One of the fetches for visitors in flight. A fetch outlives its request, so it is counted.
struct FetchSlot<'a>(&'a AtomicUsize);

impl<'a> FetchSlot<'a> {
    fn take(fetching: &'a AtomicUsize, wanted: &str) -> Result<Self, Refusal> {
        let turn = Self(fetching);
        match fetching.fetch_add(1, SeqCst) < AT_ONCE_MAX {
            true => Ok(turn),
            false => {
                let words = format!("{AT_ONCE_MAX} files are being fetched for visitors already");
                Err(Refusal::new(Kind::Busy, wanted, words).waiting(Fault::Passing))
            }
        }
    }
}

impl Drop for FetchSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn seen_by(staying: &PeerClient, held: Vec<Holds>) -> Vec<Holds> {
    let seen = held.into_iter().filter_map(|held| staying.seen(held));
    seen.collect()
}

fn bad<'a>(wanted: &'a str, url: Option<&'a Url>) -> impl Fn(Error) -> Refusal + 'a {
    move |error| refusals::depot(wanted, url, &error)
}

/// The prefix of visitors' audiences and tags.
const VISITOR: &str = "visitor ";
const TAG_BYTES_MAX: usize = 64;
/// On one file, of all visitors.
const TAGS_MAX: usize = 64;
const FILES_MAX: usize = 100_000;
const AT_ONCE_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_similar_names_stay_apart() {
        let people = ["a", "a: b", "/O=x/CN=a: b: c"].map(|name| PeerClient::new(name.into()));
        for (at, one) in people.iter().enumerate() {
            let tag = one.tag(Some("night")).unwrap();
            for (nth, other) in people.iter().enumerate() {
                assert_eq!(other.own(&tag), (at == nth).then_some("night"), "{tag}");
            }
            assert_eq!(one.own("night"), None);
        }
        for tag in ["", "b: t", "a b", "a\nb", "\u{e9}", &"x".repeat(65)] {
            assert!(people[0].tag(Some(tag)).is_err(), "{tag:?}");
        }
    }
}
