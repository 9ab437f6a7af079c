//! A directory of this program that others see, and who of them may what.
//!
//! The node of this machine serves it; here their knocks are heard and answered, in the program's own calls.

use crate::{
    failure::{Failure, Result, odd},
    outputs::{Print, ServedOutputs},
    process::Instance,
};
use godwit_local::{Kind, PendingRequest, Refusal};
use godwit_wire::{
    door::call::Link,
    local::{
        Request, Response,
        request::{AccessReply, Serve},
        response::AccessRequest,
    },
};
use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::{self, Path},
    time::{Duration, Instant},
};

/// A directory that is served until it is closed.
#[derive(Debug)]
pub(crate) struct DirectoryServer {
    ticket: PendingRequest,
    url: CString,
    outputs: Option<ServedOutputs>,
}

/// Answer of a program to a visitor.
#[derive(Debug)]
pub(crate) enum Word {
    May(bool),
    /// The visitor must go to that URL.
    Elsewhere(String),
}

/// Options of serving.
#[derive(Debug)]
pub(crate) struct ServeOptions<'a> {
    pub(crate) listen: Option<&'a str>,
    pub(crate) config: Option<&'a CStr>,
    pub(crate) writes: bool,
    pub(crate) asks: bool,
    pub(crate) outputs: bool,
}

impl DirectoryServer {
    pub(crate) fn open(directory: &CStr, manner: &ServeOptions<'_>) -> Result<Self> {
        let wanted = || format!("serve {}", directory.to_string_lossy());
        let whole = |name: &CStr| {
            let path = path::absolute(Path::new(OsStr::from_bytes(name.to_bytes())));
            path.map(Link)
                .map_err(|error| Failure::system(&wanted(), &error))
        };
        // Opened before a client can append, so that no line is missed.
        let outputs = match manner.outputs {
            true => Some(ServedOutputs::open(directory)?),
            false => None,
        };
        let ask = Request::Serve(Serve {
            directory: whole(directory)?,
            listen: manner.listen.map(str::to_owned),
            writes: manner.writes,
            asks: manner.asks,
            outputs: manner.outputs,
            config: manner.config.map(whole).transpose()?,
        });
        let ours = Instance::ours()?;
        let ticket = ours.talk.send(None, ask, b"")?;
        let answer = ours.talk.receive(ticket, None)?;
        let url = match answer.tell {
            Response::Serving { url } => CString::new(url).unwrap_or_default(),
            Response::Refused(refusal) => return Err((*refusal).into()),
            tell => return Err(odd(&wanted(), &format!("{tell:?}")).into()),
        };
        ours.ops.serves(&ours.talk, true);
        Ok(Self {
            ticket,
            url,
            outputs,
        })
    }

    pub(crate) fn url(&self) -> &CStr {
        &self.url
    }

    /// Answers all who knock and hands on what was appended, and waits for one or the other until the deadline. Returns
    /// how many knocked.
    pub(crate) fn step(
        &self,
        deadline: Option<Instant>,
        decide: &mut dyn FnMut(&AccessRequest) -> Word,
        print: Print<'_>,
    ) -> Result<usize> {
        let ours = Instance::ours()?;
        let (mut count, mut has_come) = (0, false);
        let news = self.outputs.as_ref().map(ServedOutputs::news);
        loop {
            if let Some(outputs) = &self.outputs {
                has_come |= outputs.hand_on(print, false)?;
            }
            let turns = ours.talk.turns();
            match ours.talk.look(self.ticket)?.map(|answer| answer.tell) {
                Some(Response::AccessRequest(knock)) => {
                    let (may, refer) = match decide(&knock) {
                        Word::May(may) => (may, None),
                        Word::Elsewhere(url) => (false, Some(url)),
                    };
                    let knock = knock.knock;
                    let told = AccessReply { knock, may, refer };
                    ours.talk
                        .say(self.ticket.era, Request::AccessReply(told), b"")?;
                    count += 1;
                }
                Some(Response::Refused(refusal)) => return Err((*refusal).into()),
                Some(tell) if tell.is_last() => {
                    let words = "the node of this machine serves it no more";
                    return Err(Refusal::new(Kind::Ending, "serve on", words).into());
                }
                Some(_) => {}
                None if count > 0 || has_come => return Ok(count),
                None if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                    return Ok(count);
                }
                None => ours.talk.await_turn_or(turns, news, deadline),
            }
        }
    }

    /// Ends the serving. Returns when no client sees the directory any more, and all appended lines
    /// are handed on.
    pub(crate) fn close(&self, print: Print<'_>) -> Result<()> {
        self.end();
        match &self.outputs {
            Some(outputs) => outputs.hand_on(print, true).map(drop),
            None => Ok(()),
        }
    }

    fn end(&self) {
        let Some(ours) = Instance::existing() else {
            return; // a parent's
        };
        ours.ops.serves(&ours.talk, false);
        ours.talk.take_back(self.ticket);
        let until = Some(Instant::now() + LEAVING);
        while let Ok(answer) = ours.talk.receive(self.ticket, until) {
            if answer.tell.is_last() {
                return;
            }
        }
    }
}

/// How long visitors have to leave.
const LEAVING: Duration = Duration::from_secs(10);
