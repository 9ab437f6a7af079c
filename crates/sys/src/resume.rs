//! Taking up a session of TLS that an earlier connection agreed on.

use openssl::{
    error::ErrorStack,
    ssl::{SslRef, SslSession, SslSessionRef},
};
use std::{fmt, ptr};

/// What two sides agreed on, and with which settings. May be taken up any number of times.
pub struct Agreed {
    /// Written down: the library takes one of TLS 1.3 up only once.
    session: Vec<u8>,
    /// Where the settings lie; only compared.
    settings: usize,
}

impl Agreed {
    /// Keeps what a connection has agreed on.
    pub fn on(ssl: &SslRef, session: &SslSessionRef) -> Result<Self, ErrorStack> {
        let (session, settings) = (session.to_der()?, settings_of(ssl));
        Ok(Self { session, settings })
    }

    /// Has a connection that has not begun offer it; the peer need not take it. Returns
    /// false if the connection has other settings.
    #[allow(unsafe_code)]
    pub fn offer(&self, ssl: &mut SslRef) -> Result<bool, ErrorStack> {
        if settings_of(ssl) != self.settings {
            return Ok(false);
        }
        let session = SslSession::from_der(&self.session)?;
        // SAFETY: the session was agreed on under the settings that this connection has,
        // which is what the library asks of us; it counts its references itself.
        unsafe { ssl.set_session(&session) }?;
        Ok(true)
    }
}

impl fmt::Debug for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Agreed")
    }
}

fn settings_of(ssl: &SslRef) -> usize {
    ptr::from_ref(ssl.ssl_context()).addr()
}
