//! Kerberos: a ticket proves our identity to the server, and the server proves that it could read the ticket. Nothing
//! is delegated.

use super::{
    proven::{BLOCK_BYTES_MAX, exchange, settle_level},
    session::RemoteSession,
};
use crate::{Error, LineGuard, Result, channel::Safety};
use godwit_trust::{Blockwise, Context, Kerberos};
use godwit_wire::client::{ProofPace, Refusal};

/// The result of a proof by ticket.
pub(super) struct ProvedTicket {
    /// Our principal: `alice@REALM`.
    principal: String,
    /// The context that wraps data.
    data: Blockwise,
}

impl ProvedTicket {
    /// Returns the account that the principal would have in its own realm.
    pub(super) fn usual_account(&self) -> Option<&str> {
        usual_account(&self.principal)
    }
}

/// Proves both identities; all later lines are protected.
pub(super) fn prove(
    session: &mut RemoteSession,
    host: &str,
    pace: ProofPace,
) -> Result<std::result::Result<ProvedTicket, Refusal>> {
    let at = session.host.clone();
    let begun = Kerberos::initiate(host);
    let (mut ticket, first) = begun.map_err(Error::not_proved(&at))?;
    if let Err(refusal) = exchange(session, "GSSAPI", &mut ticket, first, pace)? {
        return Ok(Err(refusal));
    }
    let peer = ticket.peer().map(ToString::to_string);
    let principal = ticket.ourselves().unwrap_or_default().to_owned();
    tracing::debug!(host = %at, peer, principal, "proved by a ticket");
    let data = ticket.blockwise().map_err(Error::not_proved(&at))?;
    session.protect(Box::new(LineGuard(ticket)))?;
    Ok(Ok(ProvedTicket { principal, data }))
}

/// Settles with the server how data connections are protected.
pub(super) fn settle_data(session: &mut RemoteSession, proved: &ProvedTicket) -> Result<()> {
    let level = session.options.trust.level;
    let bytes_max = settle_level(session, level, BLOCK_BYTES_MAX)?;
    session.safety = Safety::of_blocks(&proved.data, level, bytes_max);
    Ok(())
}

fn usual_account(principal: &str) -> Option<&str> {
    let name = principal.split(['@', '/']).next()?;
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_first_part_of_principal() {
        assert_eq!(usual_account("alice/admin@R"), Some("alice"));
        assert_eq!(usual_account("alice@R"), Some("alice"));
        assert_eq!(usual_account("@R"), None);
    }
}
