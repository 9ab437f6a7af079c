//! A proved name.

use std::fmt;

/// Who somebody is: the subject of the end entity, whatever proxies stand before it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    subject: String,
    chain: Vec<String>,
    limited: bool,
}

impl Identity {
    /// Returns somebody of that name, as if a certificate of the name had been shown.
    pub fn named(subject: impl Into<String>) -> Self {
        let subject = subject.into();
        Self {
            chain: vec![subject.clone()],
            subject,
            limited: false,
        }
    }

    /// Returns the subject of the end entity: `/O=Grid/CN=alice`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the subjects that were shown, proxies first.
    pub fn chain(&self) -> &[String] {
        &self.chain
    }

    /// Tells whether the rights of a limited proxy are all there are: files yes, jobs no.
    pub fn is_limited(&self) -> bool {
        self.limited
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)
    }
}
