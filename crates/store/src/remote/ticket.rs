//! Kerberos: a ticket shows the server who we are, and the server shows that it could read it.
//! Nothing is delegated.

use super::session::Session;
use crate::{Error, Lines, Result, channel::Safety};
use godwit_trust::{Blockwise, Context, Kerberos};
use godwit_wire::{
    client::{self, Line, Pace, Refusal, Talk, Token},
    shield::Level,
};

/// What was proved.
pub(super) struct Proved {
    /// Who we are: `alice@REALM`.
    pub(super) principal: String,
    /// What data can be wrapped with.
    pub(super) data: Blockwise,
}

/// Proves who we are and that the server is who we want; what is said behind is protected.
pub(super) fn prove(
    session: &mut Session,
    host: &str,
    pace: Pace,
) -> Result<std::result::Result<Proved, Refusal>> {
    let at = session.host.clone();
    let wrong = |cause| Error::Trust {
        host: at.clone(),
        cause: Box::new(cause),
    };
    let (mut ticket, first) = Kerberos::initiate(host).map_err(wrong)?;
    let mut step = |token: &[u8]| {
        let step = ticket.step(token).map_err(wrong)?;
        Ok(Token {
            bytes: step.token,
            done: step.done,
        })
    };
    if let Err(refusal) = client::authenticate(session, "GSSAPI", first, pace, &mut step)? {
        return Ok(Err(refusal));
    }
    let peer = ticket.peer().map(ToString::to_string);
    let principal = ticket.ourselves().unwrap_or_default().to_owned();
    tracing::debug!(host = %at, peer, principal, "proved by a ticket");
    let data = ticket.blockwise().map_err(wrong)?;
    session.protect(Box::new(Lines(ticket)))?;
    Ok(Ok(Proved { principal, data }))
}

/// Settles with the server how data connections are protected.
pub(super) fn settle_data(session: &mut Session, data: &Blockwise) -> Result<()> {
    let letter = match session.options.trust.level {
        Level::Clear => return Ok(()),
        Level::Safe => "S",
        Level::Private => "P",
    };
    let mut bytes_max = BLOCK_BYTES_MAX;
    for line in [
        Line::new("PBSZ").and(bytes_max),
        Line::new("PROT").and(letter),
    ] {
        let reply = session.ask_one(line)?;
        if !reply.is_positive() {
            return Err(Error::Unsupported {
                what: "protecting what is transferred".into(),
                why: format!(
                    "{} refuses it ({} {})",
                    session.host,
                    reply.code,
                    reply.said()
                ),
            });
        }
        if let Some(told) = told_size(&reply.said()) {
            bytes_max = bytes_max.min(told);
        }
    }
    session.safety = Safety::of_blocks(data, session.options.trust.level, bytes_max);
    Ok(())
}

/// Reads the size that a server can do, where it says so (RFC 2228).
fn told_size(said: &str) -> Option<u32> {
    let (_, behind) = said.split_once("PBSZ=")?;
    let digits = behind.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Returns the account that a principal would have in its own realm.
pub(super) fn usual_account(principal: &str) -> Option<&str> {
    let name = principal.split(['@', '/']).next()?;
    Some(name).filter(|name| !name.is_empty())
}

const BLOCK_BYTES_MAX: u32 = 1 << 20;

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

    #[test]
    fn an_account_is_called_like_the_first_part_of_a_principal() {
        assert_eq!(usual_account("alice/admin@R"), Some("alice"));
        assert_eq!(usual_account("alice@R"), Some("alice"));
        assert_eq!(usual_account("@R"), None);
    }
}
