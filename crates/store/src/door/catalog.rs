//! Calls whose refusals are returned as the node sent them: those of the catalog, and of programs.

use super::{Door, cannot_speak, visit::RequestBody};
use crate::{Error, Result, refused};
use godwit_wire::door::{
    JSON_TYPE, ROOT,
    call::{self, Hello, Line, Refusal},
    run::AskRun,
};
use hyper::{Method, body::Bytes};
use serde::Serialize;
use std::{path::Path, time::Duration};

/// The answer of a node to a call: done, or refused.
pub type CatalogReply<T = ()> = std::result::Result<T, Refusal>;

impl Door {
    /// Makes a call of the catalog that the node serves. The inner result is the answer of that catalog.
    pub fn catalog(
        &self,
        call: &str,
        asked: &impl Serialize,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<CatalogReply> {
        self.must_know(HAS_CATALOG, "knows no catalog")?;
        let mut each = |line| match line {
            Line::Beat(_) => Ok(()),
            line => each(line),
        };
        let heard = self.call_raw(call, Method::POST, asked, &mut each)?;
        Ok(heard.map(drop))
    }

    /// Has a program run beside a file. The inner result is the answer of that node.
    pub fn run(
        &self,
        asked: &AskRun,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<CatalogReply> {
        self.must_know(RUNS, "runs no programs")?;
        let heard = self.call_raw("run", Method::POST, asked, each)?;
        Ok(heard.map(drop))
    }

    /// Asks the node to introduce itself, with the number of programs that it runs.
    pub fn hello(&self) -> Result<Hello> {
        let mut told = None;
        self.call_raw("hello", Method::GET, &(), &mut |line| {
            if let Line::Hello(hello) = line {
                told = Some(hello);
            }
            Ok(())
        })?
        .map_err(|refusal| refused(&self.0.limits.at.to_string(), Path::new(""), refusal))?;
        told.ok_or_else(|| {
            Error::misbehaved(self.0.limits.at.to_string(), "it does not say what it is")
        })
    }

    fn must_know(&self, revision: u32, lack: &str) -> Result<()> {
        if self.known()?.revision >= revision {
            return Ok(());
        }
        let at = &self.0.limits.at;
        Err(cannot_speak(format!(
            "{at} must be upgraded: its godwit {lack}"
        )))
    }

    /// Makes a call; a refusal is returned as the node sent it.
    pub(super) fn call_raw<T: Serialize>(
        &self,
        name: &str,
        method: Method,
        asked: &T,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<CatalogReply<Duration>> {
        let mut visit = self.0.take()?;
        let body = match method {
            Method::GET => RequestBody::whole(Bytes::new()),
            _ => RequestBody::whole(call::write(asked)),
        };
        let request = self
            .0
            .request(method, &format!("{ROOT}{name}"), JSON_TYPE, body);
        let answer = visit.ask(request, name)?;
        let round_trip = visit.round_trip;
        let heard = self.0.hear_raw(visit, answer, name, each)?;
        Ok(heard.map(|()| round_trip))
    }
}

/// The first revision that has calls of a catalog.
const HAS_CATALOG: u32 = 4;
/// The first revision that runs programs.
const RUNS: u32 = 5;
