//! Proving to a server who we are, and learning who it is: GSI on the control
//! channel, or the key of a cluster.

use super::{
    faults,
    proven::{BLOCK_BYTES_MAX, exchange, settle_level},
    session::RemoteSession,
};
use crate::{
    Error, LineGuard, Result,
    channel::{Safety, Tls, TlsPart},
};
use godwit_trust::{Authorities, Channel, Context, Credential, Delegate, Expect, PeersDir};
use godwit_wire::{
    base64,
    client::{self, Line, ProofPace, Refusal, Talk},
    shield::Level,
};
use std::{path::Path, time::SystemTime};

/// Our credentials, and the authorities that we trust. `None`: the value is read from its usual place at each login,
/// so that a renewed proxy counts at once.
#[derive(Clone, Debug, Default)]
pub struct TrustOptions {
    /// The credential that servers of `ftp:` are shown.
    pub by: LoginBy,
    /// Our own: a certificate, or the key of a cluster.
    pub credential: Option<Credential>,
    /// The authorities that are trusted.
    pub authorities: Option<Authorities>,
    /// The identity that the server must prove; `None`: the host of the URL.
    pub expect: Option<Expect>,
    /// The rights that the server receives in our name.
    pub delegate: Delegate,
    /// The protection of the bytes of files. Unless we delegate nothing, data connections always prove their
    /// identity.
    pub level: Level,
    /// Where the nodes stand that are known by their keys.
    pub home: Option<PeersDir>,
    /// The user for whom we act; another than ourselves only as a member of a cluster.
    pub whom: Whom,
}

/// The proofs between us and one server; `None`: as [`TrustOptions`] says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Proofs {
    /// The identity that the server must prove.
    pub expect: Option<Expect>,
    /// Our own credential.
    pub credential: Option<Credential>,
}

/// The credential for servers that accept names alone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LoginBy {
    /// A name and a password.
    #[default]
    Password,
    /// A ticket of Kerberos.
    Ticket,
}

/// The user for whom a session acts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Whom {
    /// For themselves.
    #[default]
    Myself,
    /// An anonymous user.
    Anonymous,
    /// A user who proved an identity to us.
    Subject {
        /// Their name.
        subject: String,
        /// The account that the user chose; `None`: the first one.
        account: Option<String>,
    },
}

impl Whom {
    /// Returns the user name and password to send, if the URL has none.
    pub(super) fn credentials(&self) -> client::Credentials {
        match self {
            Self::Myself => client::Credentials::mapped(),
            Self::Anonymous => client::Credentials::anonymous(),
            Self::Subject { subject, account } => {
                client::Credentials::for_subject(subject, account.as_deref())
            }
        }
    }
}

/// The credential and the authorities of a finished proof.
#[derive(Clone, Debug)]
pub(super) struct ProvedIdentity {
    pub(super) credential: Credential,
    pub(super) authorities: Authorities,
}

/// Proves both identities; all later lines are protected.
pub(super) fn prove(
    session: &mut RemoteSession,
    host: &str,
    pace: ProofPace,
) -> Result<std::result::Result<ProvedIdentity, Refusal>> {
    let (at, trust) = (session.host.clone(), session.options.trust.clone());
    let wrong = Error::not_proved(&at);
    let (credential, authorities) = ours(&at, &trust)?;
    let is_member = credential.identity().is_member();
    let (mechanism, usual) = match is_member {
        // Any member will do: a key does not tell them apart.
        true => ("GODWIT", Expect::Myself),
        false => ("GSSAPI", Expect::Host(host.into())),
    };
    let expect = trust.expect.clone().unwrap_or(usual);
    let begun = Channel::initiate(&credential, &authorities, expect, trust.delegate);
    let (mut channel, first) = begun.map_err(&wrong)?;
    if let Err(refusal) = exchange(session, mechanism, &mut channel, first, pace)? {
        return match credential.key_refused(refusal.code, &refusal.said) {
            Some(cause) => Err(wrong(cause)),
            None => Ok(Err(refusal)),
        };
    }
    let peer = channel.peer().map(ToString::to_string);
    tracing::debug!(host = %at, peer, protection = channel.protection(), "proved");
    session.protect(Box::new(LineGuard(channel)))?;
    Ok(Ok(ProvedIdentity {
        credential,
        authorities,
    }))
}

fn ours(at: &str, trust: &TrustOptions) -> Result<(Credential, Authorities)> {
    let wrong = Error::not_proved(at);
    let credential = match &trust.credential {
        Some(credential) => credential.clone(),
        None => discovered()
            .map_err(&wrong)?
            .ok_or_else(|| Error::NoCredential { host: at.into() })?,
    };
    let authorities = match &trust.authorities {
        Some(authorities) => authorities.clone(),
        None if credential.identity().is_member() => Authorities::none(),
        None => Authorities::discover().map_err(wrong)?,
    };
    Ok((credential, authorities))
}

/// The key of a cluster has priority: a user who sets one means it.
fn discovered() -> godwit_trust::Result<Option<Credential>> {
    match Credential::discover_member()? {
        None => Credential::discover(),
        member => Ok(member),
    }
}

/// Tells whether the credential of the next login is valid.
pub(crate) fn is_renewed(trust: &TrustOptions) -> bool {
    let now = SystemTime::now();
    let found = match &trust.credential {
        Some(credential) => Ok(Some(credential.clone())),
        None => discovered(),
    };
    matches!(found, Ok(Some(credential)) if credential.check_dates(now).is_ok())
}

/// Settles with the server how data connections are protected.
pub(super) fn settle_data(session: &mut RemoteSession, proved: ProvedIdentity) -> Result<()> {
    let TrustOptions {
        level, delegate, ..
    } = session.options.trust;
    let knows = session.peer.features.has("DCAU");
    let cannot = |why: &str| {
        Error::unsupported(
            "protecting what is transferred",
            format!("{} {why}", session.host),
        )
    };
    if !knows {
        return match level {
            Level::Clear => Ok(()),
            _ => Err(cannot("does not know DCAU")),
        };
    }
    if proved.credential.identity().is_by_address() {
        // A secret that every user knows protects nothing.
        return match level {
            Level::Clear => session.settle("DCAU N"),
            _ => Err(cannot("knows us by our address only")),
        };
    }
    if delegate == Delegate::No {
        // With nothing of ours the server could not prove to act for us.
        return match level {
            Level::Clear => session.settle("DCAU N"),
            _ => Err(cannot("needs a credential that you delegate")),
        };
    }
    settle_level(session, level, BLOCK_BYTES_MAX)?;
    session.safety = Some(safety(proved.credential, proved.authorities, level));
    Ok(())
}

/// Makes the data connections of a session use `credential`, and accept peers that show it.
pub(super) fn show_instead(session: &mut RemoteSession, credential: &Credential) -> Result<()> {
    let Some(Safety::Tls(tls)) = session.safety.clone() else {
        return Ok(());
    };
    let Tls {
        credential: before,
        authorities,
        level,
        ..
    } = *tls;
    if before == *credential {
        return Ok(());
    }
    let pem = credential.to_session_pem();
    let pem = pem.map_err(Error::not_proved(&session.host))?;
    let authorities = authorities.and_these(&pem);
    let authorities = authorities.map_err(Error::not_proved(&session.host))?;
    let line = Line::new("DCSC P").and(base64::encode(&pem));
    let reply = session.ask_one(line)?;
    faults::check(&session.host, Path::new("DCSC"), &reply)?;
    // Globus' server takes it up with the next word of the three.
    session.settle("DCAU A")?;
    settle_level(session, level, BLOCK_BYTES_MAX)?;
    session.warm = None;
    session.safety = Some(safety(credential.clone(), authorities, level));
    Ok(())
}

/// Data connections must lead to a peer with the identity that we have ourselves.
fn safety(credential: Credential, authorities: Authorities, level: Level) -> Safety {
    Safety::Tls(Box::new(Tls {
        expect: Expect::Subject(credential.identity().subject().into()),
        credential,
        authorities,
        level,
        part: TlsPart::Peer,
    }))
}
