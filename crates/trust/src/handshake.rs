//! Settings that all our handshakes share.

use openssl::{
    error::ErrorStack,
    ssl::{SslContextBuilder, SslMode, SslOptions, SslSessionCacheMode},
};

/// Role of a side in the handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Initiator,
    Acceptor,
    /// An acceptor that asks for no certificate.
    Host,
    /// An initiator at a host, which shows the certificate that it has.
    Visitor,
}

/// A record is written at a time: there may be no room for more.
pub(crate) fn write_in_pieces(context: &mut SslContextBuilder) {
    context.set_mode(SslMode::ENABLE_PARTIAL_WRITE);
}

/// Tickets would be a token that no side waits for; GSI never resumes.
pub(crate) fn resume_never(context: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    context.set_mode(SslMode::NO_AUTO_CHAIN | SslMode::RELEASE_BUFFERS);
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_num_tickets(0)?;
    context.set_options(
        SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION | SslOptions::NO_COMPRESSION,
    );
    Ok(())
}
