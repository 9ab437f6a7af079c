//! Explicit TLS (RFC 4217): the server shows a certificate, and the login follows under its protection.

use super::session::RemoteSession;
use crate::{Error, Flow, Result, channel::Safety};
use godwit_trust::{Authorities, Channel, Context, Credential, Expect};
use godwit_wire::client::{Line, Talk};
use std::time::Instant;

/// Begins TLS with the server, which must prove the identity `host`. Returns the requirements of data connections,
/// after they are settled too.
pub(super) fn begin(session: &mut RemoteSession, host: &str) -> Result<Safety> {
    let reply = session.ask_one(Line::new("AUTH TLS"))?;
    if reply.code != 234 {
        return Err(Error::unsupported(
            "protecting what is said and transferred",
            format!(
                "{} does not take AUTH TLS ({} {})",
                session.host,
                reply.code,
                reply.said()
            ),
        ));
    }
    let at = session.host.clone();
    let wrong = Error::not_proved(&at);
    let trust = session.options.trust.clone();
    let authorities = trust.authorities.unwrap_or_else(Authorities::of_servers);
    let expect = trust.expect.unwrap_or_else(|| Expect::Host(host.into()));
    let nobody = Credential::nobody();
    let begun = Channel::initiate_tls(&nobody, &authorities, expect.clone());
    let (mut channel, first) = begun.map_err(&wrong)?;
    session.send_raw(&first, SHAKING_HANDS)?;
    let deadline = Instant::now() + session.options.stall;
    loop {
        let came = session.hear_raw(SHAKING_HANDS, deadline)?;
        let step = channel.step(&came).map_err(&wrong)?;
        if let Some(token) = step.token {
            session.send_raw(&token, SHAKING_HANDS)?;
        }
        if step.done {
            break;
        }
    }
    let peer = channel.peer().map(ToString::to_string);
    tracing::debug!(host = %at, peer, protection = channel.protection(), "under TLS");
    session.protect_flow(Box::new(Flow::standing(channel)))?;
    Ok(Safety::of_client(nobody, authorities, expect))
}

const SHAKING_HANDS: &str = "beginning TLS";
