//! How the TLS engine is set: what GSI needs, and nothing that surprises its peers.

use crate::{
    Credential, Result,
    error::Doing,
    handshake::{Role, resume_never, write_in_pieces},
};
use godwit_sys::Agreed;
use openssl::{
    error::ErrorStack,
    pkey::{PKeyRef, Private},
    ssl::{
        AlpnError, SslContext, SslContextBuilder, SslContextRef, SslMethod, SslMode, SslOptions,
        SslRef, SslSessionCacheMode, SslVerifyMode, SslVersion, select_next_proto,
    },
    x509::{X509, X509Ref},
};
use std::sync::PoisonError;

/// Returns the engine's settings for a credential, made once.
pub(crate) fn of(credential: &Credential, role: Role) -> Result<&SslContextRef> {
    let kept = match role {
        Role::Initiator => &credential.contexts().initiator,
        Role::Acceptor => &credential.contexts().acceptor,
        Role::Host => &credential.contexts().host,
        Role::Visitor => &credential.contexts().visitor,
    };
    if let Some(context) = kept.get() {
        return Ok(context);
    }
    let made = match (credential.keys(), role) {
        (_, Role::Host) => make_host(credential)?,
        (None, Role::Visitor) => make_visitor(credential)?,
        _ if credential.agreed().is_some() => make_nobody(credential).doing("beginning TLS")?,
        (Some(keys), _) => {
            let mut context = keys.context(role).doing("using the key of the cluster")?;
            if role == Role::Visitor {
                write_in_pieces(&mut context);
            }
            context
        }
        (None, _) => make(credential)?,
    };
    Ok(kept.get_or_init(|| made.build()))
}

/// Has a credential speak nothing newer than TLS 1.2, as an old peer would.
#[cfg(test)]
pub(crate) fn make_old(credential: &Credential) {
    let make = || {
        let mut context = make(credential).unwrap();
        context
            .set_max_proto_version(Some(SslVersion::TLS1_2))
            .unwrap();
        context.build()
    };
    credential.contexts().initiator.get_or_init(make);
    credential.contexts().acceptor.get_or_init(make);
}

fn make(credential: &Credential) -> Result<SslContextBuilder> {
    let (leaf, key) = (credential.leaf()?, credential.key()?);
    let made = certified(leaf, key, &credential.chain()[1..]).and_then(|mut context| {
        context.set_alpn_protos(OURS_LISTED)?;
        context.set_alpn_select_callback(|_, theirs| {
            select_next_proto(OURS_LISTED, theirs).ok_or(AlpnError::NOACK)
        });
        Ok(context)
    });
    made.doing("using our own certificate")
}

/// Settings of an ordinary TLS client. The session is kept: some servers admit only resumed
/// sessions at their data ports, as a proof of the same client.
fn make_nobody(credential: &Credential) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(SslMethod::tls())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    context.set_mode(SslMode::NO_AUTO_CHAIN | SslMode::RELEASE_BUFFERS);
    context.set_options(SslOptions::NO_RENEGOTIATION | SslOptions::NO_COMPRESSION);
    context.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
    if let Some(agreed) = credential.agreed().cloned() {
        context.set_new_session_callback(move |ssl, session| {
            let mut kept = agreed.lock().unwrap_or_else(PoisonError::into_inner);
            // Only the first session: it is a control channel's, whose server was checked. Later
            // ones may be with a server that is checked only afterwards.
            if kept.is_none() {
                *kept = Agreed::on(ssl, &session).ok();
            }
        });
    }
    // Judged by `Authorities`, as all are.
    context.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
    Ok(context)
}

/// Settings of an ordinary TLS server. To resume saves a signature for each data connection; the
/// state is in tickets that the client keeps.
fn make_host(credential: &Credential) -> Result<SslContextBuilder> {
    let (leaf, key) = (credential.leaf()?, credential.key()?);
    let made = shown(leaf, key, &credential.chain()[1..]).and_then(|mut context| {
        context.set_mode(SslMode::NO_AUTO_CHAIN | SslMode::RELEASE_BUFFERS);
        context.set_session_cache_mode(SslSessionCacheMode::OFF);
        context.set_session_id_context(OURS_LISTED)?;
        context.set_options(SslOptions::NO_RENEGOTIATION | SslOptions::NO_COMPRESSION);
        context.set_verify(SslVerifyMode::NONE);
        Ok(context)
    });
    made.doing("using our own certificate")
}

/// As servers of HTTPS are set that have use for a certificate of their client.
pub(crate) fn make_door(credential: &Credential) -> Result<SslContextBuilder> {
    let (leaf, key) = (credential.leaf()?, credential.key()?);
    let made = shown(leaf, key, &credential.chain()[1..]).and_then(|mut context| {
        resume_never(&mut context)?;
        write_in_pieces(&mut context);
        context.set_alpn_select_callback(|_, theirs| {
            select_next_proto(HTTP_LISTED, theirs).ok_or(AlpnError::NOACK)
        });
        context.set_session_id_context(HTTP_LISTED)?;
        // `Authorities` or our list of peers checks the identity.
        context.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        Ok(context)
    });
    made.doing("using our own certificate")
}

/// As clients of HTTPS are set.
fn make_visitor(credential: &Credential) -> Result<SslContextBuilder> {
    let begun = match credential.leaf() {
        Ok(leaf) => shown(leaf, credential.key()?, &credential.chain()[1..]),
        Err(_) => SslContext::builder(SslMethod::tls()),
    };
    let made = begun.and_then(|mut context| {
        context.set_min_proto_version(Some(SslVersion::TLS1_2))?;
        resume_never(&mut context)?;
        write_in_pieces(&mut context);
        context.set_ciphersuites(SUITES)?;
        context.set_alpn_protos(HTTP_LISTED)?;
        context.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        Ok(context)
    });
    made.doing("beginning TLS")
}

/// Tells whether an acceptor's peer is a godwit: such a one says so in its first word (ALPN),
/// which others do not and which others do not mind.
pub(crate) fn is_with_ours(ssl: &SslRef) -> bool {
    ssl.selected_alpn_protocol() == Some(&OURS_LISTED[1..])
}

/// Has a credential not say that it is a godwit's, as those of others do not.
#[cfg(test)]
pub(crate) fn make_strange(credential: &Credential) {
    let (leaf, key) = (credential.leaf().unwrap(), credential.key().unwrap());
    let make = || {
        certified(leaf, key, &credential.chain()[1..])
            .unwrap()
            .build()
    };
    credential.contexts().initiator.get_or_init(make);
}

fn certified(
    leaf: &X509Ref,
    key: &PKeyRef<Private>,
    above: &[X509],
) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = shown(leaf, key, above)?;
    resume_never(&mut context)?;
    // Both sides show a certificate, and the engine checks that the peer has its key. `Authorities`
    // checks the peer's identity before any byte is sent or believed.
    context.set_verify_callback(
        SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT,
        |_, _| true,
    );
    Ok(context)
}

fn shown(
    leaf: &X509Ref,
    key: &PKeyRef<Private>,
    above: &[X509],
) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(SslMethod::tls())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    context.set_certificate(leaf)?;
    context.set_private_key(key)?;
    for certificate in above {
        context.add_extra_chain_cert(certificate.clone())?;
    }
    context.check_private_key()?;
    Ok(context)
}

/// As TLS lists it: its length before it.
const OURS_LISTED: &[u8] = b"\x06godwit";
/// Preferred cipher suites of a visitor. All protect equally well; the first costs least where the
/// processor helps.
const SUITES: &str = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
/// Protocols of HTTP that we speak: the first version that keeps connections.
const HTTP_LISTED: &[u8] = b"\x08http/1.1";
