//! Large files of which only parts are local while they are written.
//!
//! All mounts of the machine share one sparse file of the node. A mount records its writes, and hands exactly these in:
//! the node delivers them into the server's file.

use crate::{
    Shared,
    asking::{NO_THREAD, NodeTalk, Result},
    body::Body,
    changes::FileParts,
    reader::read_all,
};
use godwit_core::{Extents, LEAF_BYTES};
use godwit_local::{Kind, Refusal, odd};
use godwit_sys::append_told;
use godwit_wire::local::{
    Request, Response, records,
    request::{self, Act, NameDeed},
};
use std::{fs::File, io, ops::Range, os::unix::fs::FileExt};

impl Shared {
    /// Waits until a range of a file in parts is local.
    pub(crate) fn ensure_parts(&self, body: &Body, range: Range<u64>, thread: u32) -> Result<()> {
        if body.parts.is_none() {
            return Ok(());
        }
        let (era, handle) = body.at_node();
        let ensure = Request::Ensure(request::Ensure {
            handle,
            ranges: vec![(range.start, range.end)],
        });
        let asked = (self.asking).ask_patiently_on(Some(era), thread, &ensure);
        asked.map(drop)
    }

    /// Writes to a file of which parts are here; `at`: its end, if `None`.
    pub(crate) fn write_parts(
        &self,
        (body, parts): (&Body, &FileParts),
        at: Option<u64>,
        data: &[u8],
        thread: u32,
    ) -> Result<()> {
        let Some(at) = at else {
            // Bytes after the end need no grant.
            let mut ranges = Vec::new();
            let appended = body.with(|file| append_told(file, data, |range| ranges.push(range)));
            let mut changes = parts.changes.lock();
            (ranges.into_iter()).for_each(|range| changes.wrote(range));
            return appended;
        };
        let range = FileParts::range(at, data)?;
        if at < parts.free_from {
            self.act_on(body, thread, Act::Grant(vec![(range.start, range.end)]))?;
        }
        body.with(|file| file.write_all_at(data, at))?;
        parts.changes.lock().wrote(range);
        Ok(())
    }

    /// Gives a file a length.
    pub(crate) fn resize(&self, body: &Body, size: u64, thread: u32) -> Result<()> {
        let Some(parts) = &body.parts else {
            return self.change(body, thread, |file| file.set_len(size));
        };
        let mut changes = parts.changes.lock();
        let before = body.with(length)?;
        self.act_on(body, thread, Act::Resize(size))?;
        body.with(|file| file.set_len(size))?;
        changes.resized(before, size);
        Ok(())
    }

    /// Tells the node of an act on a file. If the node has ended, no fetch is in flight that could overwrite the file.
    fn act_on(&self, body: &Body, thread: u32, act: Act) -> Result<()> {
        let (era, handle) = body.at_node();
        let ask = Request::Shared(request::SharedRequest { handle, act });
        match self.asking.ask_on(Some(era), thread, &ask) {
            Err(failed) if failed.is_node_lost() => Ok(()),
            acted => acted.map(drop),
        }
    }

    /// Hands in the changes to a file that were made by now: they survive the end of this machine when this returns.
    pub(crate) fn keep_parts(&self, body: &Body, parts: &FileParts) -> Result<()> {
        let _turn = body.turn.lock();
        if body.state.lock().is_unlinked {
            return Ok(());
        }
        let size = body.with(length)?;
        let mut changes = parts.changes.lock();
        let size_at_server = changes.size_at_server;
        let (cut, ranges) = changes.take(size);
        drop(changes);
        if cut.is_none() && ranges.is_empty() {
            return Ok(());
        }
        let put = || {
            self.asking.must_be_there(&body.url())?;
            if let Some(cut) = cut {
                let (url, size) = (body.url(), cut);
                self.asking
                    .ask(NO_THREAD, &Request::Deed(NameDeed::Truncate { url, size }))?;
            }
            body.with(|file| Ok(self.asking.put_parts(&body.url(), file, &ranges, size)))?
        };
        let kept = match put() {
            Err(failed) if failed.is_node_lost() => put(), // by the next node
            kept => kept,
        };
        if kept.is_err() {
            parts.changes.lock().put_back(cut, &ranges, size_at_server);
        }
        kept
    }
}

impl NodeTalk {
    /// Refuses if the server has no such file any more. It is not made again: most of its bytes are not here.
    fn must_be_there(&self, url: &str) -> Result<()> {
        let open = Request::Open(request::OpenRequest {
            url: url.to_owned(),
            read: true,
            lazy: true,
            fresh: request::Freshness::Asked,
            ..request::OpenRequest::default()
        });
        match self.ask(NO_THREAD, &open) {
            Ok((era, answer)) => {
                if let Response::Opened(opened) = &answer.tell {
                    self.give_back((era, opened.handle));
                }
                Ok(())
            }
            Err(failed) if failed.is_missing() => {
                let words = "it was removed at its server while it was changed";
                let refusal = Refusal::new(Kind::Changed, format!("keep {url}"), words);
                Err(refusal.next("write the whole file again").into())
            }
            // A server that is away gets the changes later.
            Err(_) => Ok(()),
        }
    }

    /// Writes ranges of a file of this machine into the server's file, as one change.
    fn put_parts(&self, url: &str, file: &File, ranges: &Extents, size: u64) -> Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let put = Request::Put(request::PutRequest {
            url: url.to_owned(),
            in_place: !ranges.contains(&(0..size)),
            size: Some(size),
            packed: true,
            ..request::PutRequest::default()
        });
        let (era, answer) = self.ask(NO_THREAD, &put)?;
        let Response::Opened(opened) = &answer.tell else {
            return Err(odd(&answer.tell).into());
        };
        let handle = opened.handle;
        let (mut left, mut bytes) = (ranges.clone(), Vec::new());
        while let Some(range) = left.take_aligned(LEAF_BYTES) {
            bytes.resize((range.end - range.start) as usize, 0);
            // If the file is cut meanwhile, the next changes tell so.
            let came = read_all(file, range.start, &mut bytes)?;
            let mut body = Vec::with_capacity(came + records::BEFORE_BYTES);
            records::push(&mut body, range.start, &bytes[..came]);
            self.talk
                .say(era, Request::Write(request::WriteRequest { handle }), &body)?;
        }
        self.end((era, handle), false)
    }
}

fn length(file: &File) -> io::Result<u64> {
    file.metadata().map(|meta| meta.len())
}
