//! A certificate with its key: what we show to prove who we are.

use crate::{Error, Identity, Result};
use std::{path::Path, sync::Arc, time::SystemTime};

/// Our own certificate, its key and the certificates up to the end entity. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Credential(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    identity: Identity,
}

impl Credential {
    /// Finds the credential of whoever runs this program, where everybody expects it.
    pub fn discover() -> Result<Option<Self>> {
        Ok(None)
    }

    /// Finds the credential of this machine.
    pub fn discover_host() -> Result<Option<Self>> {
        Ok(None)
    }

    /// Reads a certificate (with its chain) and a key that lie in files of their own.
    pub fn from_files(_cert: &Path, _key: &Path) -> Result<Self> {
        Err(UNREADY)
    }

    /// Reads certificate, key and chain from one PEM text, as a proxy file has them.
    pub fn from_pem(_pem: &[u8]) -> Result<Self> {
        Err(UNREADY)
    }

    /// Returns whom it names.
    pub fn identity(&self) -> Identity {
        self.0.identity.clone()
    }

    /// Returns when it expires: when the first certificate of the chain does.
    pub fn not_after(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

pub(crate) const UNREADY: Error = Error::Library {
    doing: "security",
    said: String::new(),
};
