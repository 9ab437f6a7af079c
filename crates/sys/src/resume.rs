//! Taking up a session of TLS that an earlier connection agreed on.

use openssl::{
    error::ErrorStack,
    ssl::{SslRef, SslSession, SslSessionRef},
};
use std::{fmt, ptr};

/// TLS session that two sides agreed on, and its settings. May be resumed any number of times.
pub struct Agreed {
    /// Serialized session: the library resumes a TLS 1.3 session object only once.
    session: Vec<u8>,
    /// Address of the settings; only compared.
    settings: usize,
}

impl Agreed {
    /// Keeps the session of a connection.
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
        // SAFETY: the session was agreed on under the settings of this connection, as the library
        // requires. The library counts its references itself.
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
