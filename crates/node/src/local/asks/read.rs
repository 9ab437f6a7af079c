//! Reads a file or a part of it, without a descriptor that stays open.

use crate::local::{
    answers::LocalResult,
    asks::fragments::{Filling, digest},
    client::Client,
    connection::LocalReply,
    refusals::{self, url},
};
use godwit_core::{Algorithm, Extents, Url};
use godwit_depot::{Error, Fresh, Reading, Scope};
use godwit_local::{Kind, Refusal};
use godwit_sys::{memory, seal};
use godwit_wire::local::{
    Response,
    frame::BODY_BYTES_MAX,
    request::{self, FileTarget},
};
use std::{
    io,
    os::{fd::AsFd, unix::fs::FileExt},
};

impl Client {
    pub(crate) fn get(&self, get: &request::Get, reply: &LocalReply) -> LocalResult {
        let url = url(&get.url)?;
        self.unlocked(&url, reply)?;
        if get.start > 0
            || get
                .end
                .is_some_and(|end| end <= get.start + BODY_BYTES_MAX as u64)
        {
            return self.part(&url, get, reply);
        }
        let reading = self.read(&url, get.fresh)?;
        let wanted = format!("read {}", url.without_password());
        let read = |at, bytes: &mut [u8]| {
            let read = reading.file().read_exact_at(bytes, at);
            read.map_err(|error| refusals::disk(&wanted, &error))
        };
        tell_part(get, reading.size(), &wanted, read, reply)
    }

    /// A part of a file: of the rest nothing comes here for that.
    pub(crate) fn part(&self, url: &Url, get: &request::Get, reply: &LocalReply) -> LocalResult {
        let wanted = format!("read {}", url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(url), &error);
        let part = self
            .keeping
            .depot
            .lazily(url, &self.who, fresh_of(get.fresh))
            .map_err(bad)?;
        let read = |at, bytes: &mut [u8]| part.read(at, bytes).map_err(bad);
        tell_part(get, part.size(), &wanted, read, reply)
    }

    /// Reads a file into memory, not onto the disk, unless the local version is newer than its origin's.
    pub(crate) fn memory(&self, place: &FileTarget, reply: &LocalReply) -> LocalResult {
        let url = url(&place.url)?;
        if !self.owed_of(&Scope::Url(url.clone())).is_empty() {
            let get = request::Get {
                url: place.url.clone(),
                ..request::Get::default()
            };
            return self.get(&get, reply);
        }
        let wanted = format!("read {} to memory", url.without_password());
        let bad = |error: godwit_store::Error| refusals::store(&wanted, &url, &error);
        let failed = |error: io::Error| refusals::disk(&wanted, &error);
        let from = (self.keeping.connect)(&url, &self.who).map_err(bad)?;
        let file = memory(&place.url).map_err(failed)?;
        let into = Filling(&file, "memory");
        let want = Extents::from(0..u64::MAX);
        let read = from
            .store
            .read(&from.path, &want, STREAMS, &into)
            .map_err(bad)?;
        let size = read.stat.size;
        file.set_len(size).map_err(failed)?;
        if let Some(told) = read
            .digest
            .filter(|told| told.algorithm() == Algorithm::Blake3)
        {
            let found = digest(&file, size).map_err(failed)?;
            if found != told {
                let words = format!("the server told {told}, the bytes have {found}");
                return Err(Refusal::new(Kind::Corrupt, wanted, words).about(&place.url));
            }
        }
        seal(&file).map_err(failed)?;
        let tell = Response::Bytes { len: size, size };
        reply.tell_with(tell, b"", &[file.as_fd()]);
        Ok(None)
    }

    /// Reads a file. Its fetch continues for the next reader if this program is killed.
    pub(crate) fn read(&self, url: &Url, fresh: request::Freshness) -> Result<Reading, Refusal> {
        self.keeping
            .depot
            .read(url, &self.who, fresh_of(fresh))
            .map_err(|error| {
                let wanted = format!("read {}", url.without_password());
                refusals::depot(&wanted, Some(url), &error)
            })
    }
}

/// Sends a range of a file of `size` bytes: in the body of the answer if it fits, else in memory.
pub(crate) fn tell_part(
    get: &request::Get,
    size: u64,
    wanted: &str,
    read: impl Fn(u64, &mut [u8]) -> Result<(), Refusal>,
    reply: &LocalReply,
) -> LocalResult {
    let end = get.end.unwrap_or(size).min(size);
    let start = get.start.min(end);
    let len = end - start;
    let tell = Response::Bytes { len, size };
    let mut piece = vec![0; len.min(BODY_BYTES_MAX as u64) as usize];
    if len <= BODY_BYTES_MAX as u64 {
        read(start, &mut piece)?;
        reply.tell_with(tell, &piece, &[]);
        return Ok(None);
    }
    let failed = |error: io::Error| refusals::disk(wanted, &error);
    let into = memory(&get.url).map_err(failed)?;
    let mut at = start;
    while at < end {
        let len = (end - at).min(piece.len() as u64) as usize;
        read(at, &mut piece[..len])?;
        let written = into.write_all_at(&piece[..len], at - start);
        written.map_err(failed)?;
        at += len as u64;
    }
    seal(&into).map_err(failed)?;
    reply.tell_with(tell, b"", &[into.as_fd()]);
    Ok(None)
}

pub(crate) fn fresh_of(fresh: request::Freshness) -> Fresh {
    match fresh {
        request::Freshness::Usual => Fresh::Usual,
        request::Freshness::Asked => Fresh::Proved,
        request::Freshness::Kept => Fresh::Any,
    }
}

pub(crate) const STREAMS: usize = 4;
