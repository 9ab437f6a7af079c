//! Small writes, gathered: `godwit_put`, and `godwit_commit` and `godwit_push` behind them.

use crate::{
    failure::{Failure, Result, odd},
    name::Name,
};
use godwit_local::{Kind, PendingRequest, Refusal, SharedConnection, gone};
use godwit_wire::local::{
    Handle, Request, Response, records,
    request::{self, Wait},
};
use std::{
    collections::HashMap,
    ffi::CStr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Files into which this process puts.
#[derive(Debug, Default)]
pub(crate) struct Puts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    files: HashMap<String, OpenPut>,
    /// On which connection something was written that was not committed since.
    uncommitted: Option<u64>,
    /// Connection with writes that were not pushed since.
    unpushed: Option<u64>,
}

/// One of them. Its generation ends with a commit or push.
#[derive(Debug)]
struct OpenPut {
    era: u64,
    handle: Handle,
    gathered: Vec<u8>,
    sent: Instant,
    /// Why nothing more of it arrives: told by what waits for it.
    failed: Option<Refusal>,
}

impl Puts {
    /// Puts bytes into a file.
    pub(crate) fn put(
        &self,
        talk: &SharedConnection,
        name: &CStr,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let mut state = self.lock();
        let known = name
            .to_str()
            .ok()
            .filter(|name| state.files.contains_key(*name));
        let url = match known {
            Some(known) => known,
            None => {
                let url = Name::there(name)?;
                self.begin(talk, &mut state, &url)?;
                return self.add(talk, &mut state, &url, offset, data);
            }
        };
        self.add(talk, &mut state, url, offset, data)
    }

    fn add(
        &self,
        talk: &SharedConnection,
        state: &mut State,
        url: &str,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > i64::MAX as u64) {
            let words = "it would reach beyond what a file can have";
            return Err(Failure::invalid(format!("write {url}"), words));
        }
        let put = state.files.get_mut(url).expect("it was begun");
        if let Some(failed) = &put.failed {
            return Err(failed.clone().into());
        }
        let mut offset = offset;
        for piece in data.chunks(PIECE_BYTES) {
            if put.gathered.len() + records::BEFORE_BYTES + piece.len() > GATHERED_BYTES {
                put.send(talk);
            }
            records::push(&mut put.gathered, offset, piece);
            offset += piece.len() as u64;
        }
        if put.gathered.len() >= GATHERED_BYTES || put.sent.elapsed() >= GATHERED_FOR {
            put.send(talk);
        }
        match &put.failed {
            None => Ok(()),
            Some(failed) => Err(failed.clone().into()),
        }
    }

    fn begin(&self, talk: &SharedConnection, state: &mut State, url: &str) -> Result<()> {
        if state.files.contains_key(url) {
            return Ok(());
        }
        let asked = || {
            Request::Put(request::PutRequest {
                url: url.to_owned(),
                in_place: true,
                packed: true,
                ..request::PutRequest::default()
            })
        };
        let begun = talk.ask(None, asked(), None, &mut |_| ());
        let begun = match begun {
            // The generations of the others end, and go on with the next that is put.
            Err(refusal) if refusal.kind == Kind::TooManyOpen && !state.files.is_empty() => {
                hear(talk, end(talk, state, None))?;
                talk.ask(None, asked(), None, &mut |_| ())
            }
            begun => begun,
        };
        let (era, answer) = begun?;
        let Response::Opened(opened) = answer.tell else {
            return Err(odd(url, &format!("{:?}", answer.tell)).into());
        };
        state.wrote(era);
        let put = OpenPut {
            era,
            handle: opened.handle,
            gathered: Vec::new(),
            // The first of them goes at once.
            sent: Instant::now() - GATHERED_FOR,
            failed: None,
        };
        state.files.insert(url.to_owned(), put);
        Ok(())
    }

    /// Notes that something was written otherwise than by puts, and how far it was waited for.
    pub(crate) fn wrote(&self, era: u64, waited: Wait) {
        let mut state = self.lock();
        match waited {
            Wait::Nothing => state.wrote(era),
            Wait::Commit => state.unpushed = state.unpushed.or(Some(era)),
            Wait::Push => {}
        }
    }

    /// Sends what was gathered; of one file, or of all.
    pub(crate) fn flush(&self, talk: &SharedConnection, of: Option<&str>) -> Result<()> {
        let mut failed = None;
        for (url, put) in &mut self.lock().files {
            if of.is_none_or(|of| of == url) {
                put.send(talk);
                // A reader of its own put must not see older bytes.
                if of.is_some() && put.failed.is_none() && talk.is_lost(put.era) {
                    put.failed = Some(gone());
                }
                failed = failed.or_else(|| put.failed.clone());
            }
        }
        failed.map_or(Ok(()), |failed| Err(failed.into()))
    }

    /// Returns when all that this process wrote survives a crash of this machine.
    pub(crate) fn commit(&self, talk: &SharedConnection, limit: Option<Duration>) -> Result<()> {
        let until = limit.map(|limit| Instant::now() + limit);
        let (ended, era) = {
            let mut state = self.lock();
            (end(talk, &mut state, None), state.uncommitted.take())
        };
        let Some(era) = era else {
            return hear(talk, ended);
        };
        hear(talk, ended)?;
        let whose = request::Selector {
            mine: true,
            timeout_ms: left(until),
            ..request::Selector::default()
        };
        let answer = talk.ask(Some(era), Request::Commit(whose), None, &mut |_| ());
        if let Err(refusal) = answer {
            if refusal.kind == Kind::Late {
                // It can be asked for again.
                self.lock().uncommitted.get_or_insert(era);
            }
            return Err(refusal.into());
        }
        Ok(())
    }

    /// Returns when it is at its target: one file, or all that this process wrote.
    pub(crate) fn push(
        &self,
        talk: &SharedConnection,
        url: Option<&str>,
        limit: Option<Duration>,
    ) -> Result<()> {
        let until = limit.map(|limit| Instant::now() + limit);
        let (ended, era) = {
            let mut state = self.lock();
            (end(talk, &mut state, url), state.unpushed)
        };
        hear(talk, ended)?;
        if url.is_none() && era.is_none() {
            return Ok(());
        }
        let mut whose = request::Selector {
            url: url.map(str::to_owned),
            mine: url.is_none(),
            timeout_ms: left(until),
            ..request::Selector::default()
        };
        // Bytes written through another connection are not in this era. All pending bytes of this
        // user include them.
        let era = era.filter(|_| whose.mine);
        let mut answer = talk.ask(era, Request::Push(whose.clone()), None, &mut |_| ());
        if matches!(&answer, Err(refusal) if refusal.kind == Kind::NodeLost) && whose.mine {
            whose.mine = false;
            answer = talk.ask(None, Request::Push(whose.clone()), None, &mut |_| ());
        }
        answer?;
        if url.is_none() {
            self.lock().unpushed = None;
        }
        Ok(())
    }

    /// At exit(3): sends the gathered bytes. A thread that is putting is left alone, since its
    /// bytes are incomplete.
    pub(crate) fn leave(&self, talk: &SharedConnection) -> Vec<PendingRequest> {
        let Ok(mut state) = self.0.try_lock() else {
            return Vec::new();
        };
        end(talk, &mut state, None).into_iter().flatten().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wrote(&mut self, era: u64) {
        self.uncommitted.get_or_insert(era);
        self.unpushed.get_or_insert(era);
    }
}

impl OpenPut {
    fn send(&mut self, talk: &SharedConnection) {
        if self.gathered.is_empty() || self.failed.is_some() {
            return;
        }
        let write = Request::Write(request::WriteRequest {
            handle: self.handle,
        });
        if let Err(refusal) = talk.say(self.era, write, &self.gathered) {
            self.failed = Some(refusal);
        }
        self.gathered.clear();
        self.sent = Instant::now();
    }

    fn ended(&self) -> request::Close {
        request::Close {
            handle: self.handle,
            wait: Wait::Nothing,
            give_up: false,
            timeout_ms: None,
        }
    }
}

/// Ends the generations of one file or of all: what is put next begins another.
fn end(
    talk: &SharedConnection,
    state: &mut State,
    of: Option<&str>,
) -> Vec<Result<PendingRequest, Refusal>> {
    let is_meant = |url: &String| of.is_none_or(|of| of == url);
    let ending: Vec<OpenPut> = {
        let names: Vec<String> = state
            .files
            .keys()
            .filter(|url| is_meant(url))
            .cloned()
            .collect();
        names
            .iter()
            .filter_map(|url| state.files.remove(url))
            .collect()
    };
    let ended = ending.into_iter().map(|mut put| {
        put.send(talk);
        match put.failed.take() {
            Some(failed) => Err(failed),
            None => talk.send(Some(put.era), Request::End(put.ended()), b""),
        }
    });
    ended.collect()
}

/// Waits until all have ended, and tells the first that failed.
fn hear(talk: &SharedConnection, ended: Vec<Result<PendingRequest, Refusal>>) -> Result<()> {
    let mut outcome = Ok(());
    for ticket in ended {
        let heard = ticket.and_then(|ticket| talk.receive(ticket, None));
        let heard = heard.and_then(|answer| match answer.tell {
            Response::Refused(refusal) => Err(*refusal),
            _ => Ok(()),
        });
        outcome = outcome.and(heard);
    }
    outcome.map_err(Failure::from)
}

/// Returns how many milliseconds are left.
fn left(until: Option<Instant>) -> Option<u64> {
    let left = until?.saturating_duration_since(Instant::now()).as_millis();
    Some(u64::try_from(left).unwrap_or(u64::MAX))
}

const GATHERED_BYTES: usize = 64 << 10;
/// Longest time for which bytes are gathered while more are put.
const GATHERED_FOR: Duration = Duration::from_millis(1);
/// A longer write is sent in pieces: a body has at most 4 MiB.
const PIECE_BYTES: usize = 1 << 20;
