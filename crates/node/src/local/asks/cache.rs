//! Questions about the cache, and changes of it.

use crate::local::{
    answers::{LocalResult, done, of_files, unknown},
    client::Client,
    connection::LocalReply,
    refusals::{self, url},
    rows::{kept_row, rows, verified_row, why_kept},
};
use godwit_core::Url;
use godwit_depot::{Error, Holds};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{
    Response,
    request::{Cache, FileTarget},
    response,
};

impl Client {
    pub(crate) fn cache(&self, cache: Cache, reply: &LocalReply) -> LocalResult {
        let depot = &self.keeping.depot;
        let bad = |what: &'static str, url: Option<Url>| {
            move |error: Error| refusals::depot(what, url.as_ref(), &error)
        };
        match cache {
            Cache::Ls { prefix, .. } => rows(reply, depot.list(&prefix), kept_row),
            Cache::Add(add) => self.add(&add, reply),
            Cache::AddDone(added) => self.add_done(&added),
            Cache::Stat(place) => rows(reply, self.held(&place, reply)?, kept_row),
            Cache::Why(place) => {
                let held = self.held(&place, reply)?;
                let words: Vec<String> = held.iter().map(why_kept).collect();
                Ok(Some(Response::Words(words.join("; "))))
            }
            Cache::Rm { url: text, tag } => {
                let url = url(&text)?;
                self.unlocked(&url, reply)?;
                let files = match tag {
                    Some(tag) => depot.untag(&url, &tag).map(|()| 1).map_err(|error| {
                        let mut refusal = bad("take a tag off", Some(url.clone()))(error);
                        if refusal.kind == Kind::Missing {
                            refusal.kind = Kind::NoTag;
                        }
                        refusal
                    })?,
                    None => depot
                        .forget(&url)
                        .map_err(bad("forget it", Some(url.clone())))?,
                };
                of_files(files)
            }
            Cache::Clean { tag, url: text } => {
                let url = text.map(|text| url(&text)).transpose()?;
                if let Some(url) = &url {
                    self.unlocked(url, reply)?;
                }
                let cleaned = depot.clean(&tag, url.as_ref());
                of_files(cleaned.map_err(bad("take a tag off", url.clone()))?)
            }
            Cache::Df { .. } => {
                let usage = depot.usage();
                Ok(Some(Response::Space(response::LocalSpace {
                    path: depot.root().display().to_string(),
                    quota_bytes: usage.quota,
                    used_bytes: usage.taken,
                    owed_bytes: usage.pending_bytes,
                    kept_bytes: usage.kept,
                    free_bytes: godwit_sys::free_bytes(depot.root()).ok(),
                    files: usage.files,
                })))
            }
            Cache::Verify { url: text } => {
                let url = text.map(|text| url(&text)).transpose()?;
                let mut told = response::Done::default();
                let verified = depot.verify(url.as_ref(), |found| {
                    told.files += 1;
                    told.bytes += found.bytes;
                    reply.tell(Response::Row(Box::new(verified_row(&found))));
                });
                verified.map_err(bad("verify what is kept", url))?;
                done(told)
            }
            _ => Err(unknown()),
        }
    }

    pub(crate) fn held(
        &self,
        place: &FileTarget,
        reply: &LocalReply,
    ) -> Result<Vec<Holds>, Refusal> {
        let url = url(&place.url)?;
        self.unlocked(&url, reply)?;
        let held = self.keeping.depot.holds(&url);
        match held.is_empty() {
            true => Err(Refusal::new(
                Kind::Missing,
                format!("look at {}", url.without_password()),
                "nothing of it is kept here",
            )),
            false => Ok(held),
        }
    }
}
