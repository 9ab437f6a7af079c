//! The proofs between the greeting and the login, of any kind, and the resulting protection of data connections.

use super::{LoginKind, proof, session::RemoteSession, ticket, tls};
use crate::{Error, Result, channel::Safety};
use godwit_trust::Context;
use godwit_wire::{
    client::{self, Credentials, Line, ProofPace, Refusal, Talk, Token},
    shield::Level,
};

/// The result of the proofs before a login.
pub(super) enum Proven {
    /// No proof.
    Nothing,
    /// Both identities, by certificates or the key of a cluster.
    Both(proof::ProvedIdentity),
    /// Both identities, by a ticket.
    Ticket(ticket::ProvedTicket),
    /// The server's identity; the requirements of data connections.
    Server(Safety),
}

impl Proven {
    /// Runs the proofs that a login needs; `host` is the identity that the server must prove. The inner error is the
    /// server's refusal.
    pub(super) fn of(
        session: &mut RemoteSession,
        login: LoginKind,
        host: &str,
        pace: ProofPace,
    ) -> Result<std::result::Result<Self, Refusal>> {
        Ok(match login {
            LoginKind::Password | LoginKind::Shell => Ok(Self::Nothing),
            LoginKind::Proof => proof::prove(session, host, pace)?.map(Self::Both),
            LoginKind::Ticket => ticket::prove(session, host, pace)?.map(Self::Ticket),
            LoginKind::Tls => Ok(Self::Server(tls::begin(session, host)?)),
        })
    }

    /// Returns the user of the login. A server that is no node hardly knows the name that a node maps to an account.
    pub(super) fn named(&self, who: &Credentials, pace: ProofPace) -> Credentials {
        let mut who = who.clone();
        if let Self::Ticket(proved) = self
            && pace == ProofPace::StepByStep
            && who.is_mapped()
            && let Some(account) = proved.usual_account()
        {
            who.user = account.into();
        }
        who
    }

    /// Sets the protection of data connections with the server, after the login.
    pub(super) fn settle_data(self, session: &mut RemoteSession) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Both(proved) => proof::settle_data(session, proved),
            Self::Ticket(proved) => ticket::settle_data(session, &proved),
            Self::Server(safety) => {
                settle_level(session, Level::Private, BUFFERS_OF_TLS)?;
                session.safety = Some(safety);
                Ok(())
            }
        }
    }
}

/// Exchanges the tokens of a context until both sides are content.
pub(super) fn exchange(
    session: &mut RemoteSession,
    mechanism: &str,
    context: &mut dyn Context,
    first: Vec<u8>,
    pace: ProofPace,
) -> Result<std::result::Result<(), Refusal>> {
    let at = session.host.clone();
    let mut step = |token: &[u8]| {
        let step = context.step(token).map_err(Error::not_proved(&at))?;
        Ok(Token {
            bytes: step.token,
            done: step.done,
        })
    };
    client::authenticate(session, mechanism, first, pace, &mut step)
}

/// Sets the protection of the bytes of files, in blocks of at most `bytes_max`; returns the server's limit. Without
/// the command there is no protection.
pub(super) fn settle_level(
    session: &mut RemoteSession,
    level: Level,
    bytes_max: u32,
) -> Result<u32> {
    let mut bytes_max = bytes_max;
    if level == Level::Clear {
        return Ok(bytes_max);
    }
    for line in [
        format!("PBSZ {bytes_max}"),
        format!("PROT {}", level.letter()),
    ] {
        let reply = session.ask_one(Line::new(&line))?;
        let said = reply.said();
        if !reply.is_positive() {
            return Err(Error::unsupported(
                "protecting what is transferred",
                format!("{} refuses {line} ({} {said})", session.host, reply.code),
            ));
        }
        bytes_max = told_size(&said).map_or(bytes_max, |told| told.min(bytes_max));
    }
    Ok(bytes_max)
}

/// Reads the size that a server can do, where it says so (RFC 2228).
fn told_size(said: &str) -> Option<u32> {
    let (_, behind) = said.split_once("PBSZ=")?;
    let digits = behind.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The longest block that a peer may wrap.
pub(super) const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// TLS has buffers of its own (RFC 4217, 9).
const BUFFERS_OF_TLS: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_want_smaller_blocks() {
        assert_eq!(told_size("PBSZ=4096"), Some(4096));
        assert_eq!(told_size("200 ok, PBSZ=65536."), Some(65536));
        assert_eq!(told_size("ok"), None);
        assert_eq!(told_size("PBSZ=99999999999"), None);
    }
}
