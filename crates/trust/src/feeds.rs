//! What is fed with whatever a peer or a file may say, for `cargo fuzz` and the bounded run
//! in the tests: one function for each parser. No promise to anybody else.

use crate::{
    Credential, Rights, der, gridmap,
    identity::{host_names, slashed},
    policy::Policy,
    proxy::{self, Kind},
    when,
};
use openssl::x509::{X509, X509Req};

/// A signing policy.
pub fn policy(bytes: &[u8]) {
    if let Ok(policy) = Policy::parse(&String::from_utf8_lossy(bytes)) {
        policy.allows("/O=Lab/CN=CA", "/O=Lab/CN=alice");
    }
}

/// A grid-mapfile.
pub fn mapfile(bytes: &[u8]) {
    for (subject, accounts) in gridmap::parse(bytes).into_iter().flatten() {
        assert!(!accounts.is_empty(), "{subject}: mapped to nobody");
    }
}

/// A file of rights.
pub fn rights(bytes: &[u8]) {
    let _ = Rights::parse(&String::from_utf8_lossy(bytes));
}

/// DER, as extensions of certificates are.
pub fn elements(bytes: &[u8]) {
    der::extension(bytes, &[0x2b, 6, 1, 5, 5, 7, 1, 14]);
}

/// A certificate, as a peer delegates one.
pub fn certificate(bytes: &[u8]) {
    let Ok(certificate) = X509::from_der(bytes) else {
        return;
    };
    let _ = Kind::of(&certificate);
    let _ = when::moment(certificate.not_after());
    slashed(certificate.subject_name());
    host_names(&certificate);
}

/// A request for a proxy.
pub fn request(bytes: &[u8]) {
    if let Ok(request) = X509Req::from_der(bytes) {
        let _ = proxy::check_request(&request);
    }
}

/// A credential, as DCSC brings one.
pub fn credential(bytes: &[u8]) {
    let _ = Credential::from_pem(bytes);
}

#[cfg(test)]
mod tests;
