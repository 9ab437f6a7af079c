//! A conversation with a server that does a part of our work: the member of a
//! striped server, spoken to by its front, which hears several at once.

use super::{Remote, faults, session::RemoteSession};
use crate::{Error, Result, channel::Cancel};
use godwit_sys::wait_any;
use godwit_wire::{
    address::Passive,
    client::{Family, Line, Talk},
    reply::Reply,
};
use std::{
    net::SocketAddr,
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant},
};

/// A node that sends or receives on command of another.
#[derive(Debug)]
pub struct Member(RemoteSession);

impl Member {
    /// Logs in to `server`, in a conversation of its own.
    pub fn open(server: &Remote) -> Result<Self> {
        let session = server.0.take()?;
        match session.family() {
            Family::Godwit => Ok(Self(session)),
            _ => Err(Error::misbehaved(
                session.host.clone(),
                "it is no godwit node, and cannot be a member",
            )),
        }
    }

    /// Returns its host and port.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Tells whether the session can be used further.
    pub fn is_alive(&self) -> bool {
        !self.0.is_broken && self.0.outstanding() == 0 && !self.0.is_stale()
    }

    /// Tells whether a command has no final reply yet.
    pub fn is_busy(&self) -> bool {
        !self.0.is_broken && self.0.outstanding() > 0
    }

    /// Has waiting end with `cancel`.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.0.options.cancel = cancel.clone();
    }

    /// Says something that it must not refuse, and waits for the reply.
    pub fn settle(&mut self, line: Line) -> Result<Reply> {
        let reply = self.0.ask_one(line)?;
        faults::check(&self.0.host, Path::new(""), &reply)?;
        Ok(reply)
    }

    /// Has it listen for data.
    pub fn listen(&mut self) -> Result<Vec<SocketAddr>> {
        let reply = self.settle(Line::new("SPAS"))?;
        Ok(match Passive::from_reply(&reply)? {
            Passive::Stripes(all) => all,
            Passive::Commas(at) => vec![SocketAddr::V4(at)],
            Passive::Bars(bars) => {
                let ip = bars
                    .ip
                    .map_or_else(|| self.0.peer_address().map(|at| at.ip()), Ok)?;
                vec![SocketAddr::new(ip, bars.port)]
            }
        })
    }

    /// Says lines without waiting for replies.
    pub fn say(&mut self, lines: &[Line]) -> Result<()> {
        self.0.say_all(lines)
    }

    /// Returns the error that a negative reply means.
    pub fn check(&self, path: &Path, reply: &Reply) -> Result<()> {
        faults::check(&self.0.host, path, reply).map(drop)
    }

    /// Returns the next reply of any of `members`, and the member's index; `None` if none arrived within `patience`.
    /// A lost member is reported once, as an error, and is then not busy any more.
    pub fn hear_any(
        members: &mut [Self],
        cancel: &Cancel,
        patience: Duration,
    ) -> Result<Option<(usize, Result<Reply>)>> {
        let until = Instant::now() + patience;
        loop {
            let busy = |member: &Self| member.is_busy();
            for (nth, member) in members.iter_mut().enumerate().filter(|(_, m)| busy(m)) {
                match member.0.heard() {
                    Ok(None) => {}
                    Ok(Some(reply)) => return Ok(Some((nth, Ok(reply)))),
                    Err(error) => return Ok(Some((nth, Err(member.lost(error))))),
                }
            }
            cancel.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !members.iter().any(busy) {
                return Ok(None);
            }
            let waiting: Vec<usize> = (0..members.len()).filter(|&i| busy(&members[i])).collect();
            let mut fds = vec![cancel.as_fd()];
            fds.extend(waiting.iter().map(|&i| members[i].0.as_fd()));
            let ready = wait_any(&fds, left).map_err(|cause| Error::io("a socket", cause))?;
            for (&nth, _) in waiting.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
                let member = &mut members[nth];
                if let Err(error) = member.0.listen("a striped transfer") {
                    return Ok(Some((nth, Err(member.lost(error)))));
                }
            }
        }
    }

    fn lost(&mut self, error: Error) -> Error {
        self.0.is_broken = true;
        error
    }
}
