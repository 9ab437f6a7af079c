//! Proxies: certificates that people sign themselves, so that a program can act for them (RFC 3820).

use crate::{
    Error, Result, dates,
    der::{self, INTEGER, OBJECT, SEQUENCE},
    error::Doing,
};
use openssl::{
    asn1::{Asn1Integer, Asn1Object, Asn1OctetString, Asn1Time},
    bn::BigNum,
    error::ErrorStack,
    hash::{MessageDigest, hash},
    nid::Nid,
    pkey::{HasPublic, Id, PKeyRef, Private},
    x509::{
        X509, X509Builder, X509Extension, X509Name, X509NameBuilder, X509NameRef, X509Ref,
        X509ReqRef, extension::KeyUsage,
    },
};
use std::time::{Duration, SystemTime};

/// How much of its owner's rights a proxy carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ProxyKind {
    /// All.
    Full,
    /// Files yes, jobs no (Globus).
    Limited,
    /// None of them: a name of its own.
    Independent,
    /// A policy that we cannot read.
    Restricted,
}

impl ProxyKind {
    /// Returns what kind of proxy a certificate is; `None` if it is none.
    pub(crate) fn of(certificate: &X509Ref) -> Result<Option<Self>> {
        let bytes = certificate.to_der().doing("reading a certificate")?;
        Ok(der::extension(&bytes, PROXY_CERT_INFO).map(Self::parse))
    }

    /// Reads the value of proxyCertInfo. What cannot be read is what gives no rights.
    fn parse(value: &[u8]) -> Self {
        let language = || {
            let mut fields = der::expect(value, SEQUENCE)?.contents;
            if let Some(depth) = der::expect(fields, INTEGER) {
                fields = depth.rest;
            }
            let policy = der::expect(fields, SEQUENCE)?;
            Some(der::expect(policy.contents, OBJECT)?.contents)
        };
        match language() {
            Some(INHERIT_ALL) => Self::Full,
            Some(LIMITED) => Self::Limited,
            Some(INDEPENDENT) => Self::Independent,
            _ => Self::Restricted,
        }
    }
}

/// Properties of a proxy to sign.
pub(crate) struct ProxyRequest {
    pub(crate) kind: ProxyKind,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    /// How many proxies may follow; as many as one likes if `None`.
    pub(crate) depth_max: Option<u8>,
}

/// Signs a proxy for `key` with the certificate and key of its issuer.
pub(crate) fn sign<T: HasPublic>(
    issuer: &X509Ref,
    signer: &PKeyRef<Private>,
    key: &PKeyRef<T>,
    wanted: &ProxyRequest,
) -> Result<X509> {
    let validity = (
        dates::asn1(wanted.not_before)?,
        dates::asn1(wanted.not_after)?,
    );
    build(issuer, signer, key, wanted, &validity).doing("signing a proxy")
}

fn build<T: HasPublic>(
    issuer: &X509Ref,
    signer: &PKeyRef<Private>,
    key: &PKeyRef<T>,
    wanted: &ProxyRequest,
    (from, to): &(Asn1Time, Asn1Time),
) -> Result<X509, ErrorStack> {
    let serial = serial(key)?;
    let mut proxy = X509Builder::new()?;
    proxy.set_version(2)?;
    let number = Asn1Integer::from_bn(&*BigNum::from_u32(serial)?)?;
    proxy.set_serial_number(&number)?;
    proxy.set_issuer_name(issuer.subject_name())?;
    let subject = below(issuer.subject_name(), &serial.to_string())?;
    proxy.set_subject_name(&subject)?;
    proxy.set_pubkey(key)?;
    proxy.set_not_before(from)?;
    proxy.set_not_after(to)?;
    let mut usage = KeyUsage::new();
    usage.critical().digital_signature();
    if key.id() == Id::RSA {
        usage.key_encipherment();
    }
    proxy.append_extension(usage.build()?)?;
    proxy.append_extension(info(wanted.kind, wanted.depth_max)?)?;
    proxy.sign(signer, digest_for(signer))?;
    Ok(proxy.build())
}

/// Returns the extension that makes a certificate, or a request for one, a proxy's.
pub(crate) fn info(kind: ProxyKind, depth_max: Option<u8>) -> Result<X509Extension, ErrorStack> {
    let language = match kind {
        ProxyKind::Limited => LIMITED,
        ProxyKind::Independent => INDEPENDENT,
        ProxyKind::Full | ProxyKind::Restricted => INHERIT_ALL,
    };
    let policy = der::write(SEQUENCE, &der::write(OBJECT, language));
    let depth = depth_max.map_or(Vec::new(), |depth| der::write(INTEGER, &[depth.min(127)]));
    let value = der::write(SEQUENCE, &[depth, policy].concat());
    let name = Asn1Object::from_str(PROXY_CERT_INFO_TEXT)?;
    X509Extension::new_from_der(&name, true, &*Asn1OctetString::new_from_bytes(&value)?)
}

/// Tells whether a proxy says that none may follow it: a path length of 0.
pub(crate) fn ends_the_chain(certificate: &X509Ref) -> Result<bool> {
    let bytes = certificate.to_der().doing("reading a certificate")?;
    let depth = || {
        let value = der::extension(&bytes, PROXY_CERT_INFO)?;
        let fields = der::expect(value, SEQUENCE)?.contents;
        Some(der::expect(fields, INTEGER)?.contents)
    };
    Ok(depth().is_some_and(|depth| depth.iter().all(|&byte| byte == 0)))
}

/// Refuses a request with a weak key, or with a key that its sender does not have.
pub(crate) fn check_request(request: &X509ReqRef) -> Result<()> {
    let key = request.public_key().doing("reading the peer's request")?;
    if !request.verify(&key).doing("checking the peer's request")? {
        return Err(Error::Token(
            "its request is not signed with its own key".into(),
        ));
    }
    check_strength(&key).map_err(Error::Token)
}

/// Refuses keys that are too weak.
pub(crate) fn check_strength<T: HasPublic>(key: &PKeyRef<T>) -> Result<(), String> {
    let enough = match key.id() {
        Id::RSA => (2048..=RSA_BITS_MAX).contains(&key.bits()),
        Id::EC => key.bits() >= 256,
        Id::ED25519 | Id::ED448 => true,
        _ => false,
    };
    if enough {
        Ok(())
    } else {
        Err(format!(
            "its new key has {} bits; RSA of 2048 to {RSA_BITS_MAX} bits or an elliptic curve of 256 is wanted",
            key.bits()
        ))
    }
}

/// Returns the digest that a key signs with.
pub(crate) fn digest_for(signer: &PKeyRef<Private>) -> MessageDigest {
    match signer.id() {
        Id::ED25519 | Id::ED448 => MessageDigest::null(),
        _ if signer.bits() == 384 => MessageDigest::sha384(),
        _ => MessageDigest::sha256(),
    }
}

/// Returns the 31 bits that name a proxy among those of its issuer, as Globus takes them: from its key.
fn serial<T: HasPublic>(key: &PKeyRef<T>) -> Result<u32, ErrorStack> {
    let digest = hash(MessageDigest::sha256(), &key.public_key_to_der()?)?;
    let bits = digest
        .iter()
        .take(4)
        .fold(0, |bits, &byte| bits << 8 | u32::from(byte));
    Ok((bits & 0x7fff_ffff).max(1))
}

fn below(issuer: &X509NameRef, common_name: &str) -> Result<X509Name, ErrorStack> {
    let mut name = X509NameBuilder::new()?;
    for entry in issuer.entries() {
        name.append_entry(entry)?;
    }
    name.append_entry_by_nid(Nid::COMMONNAME, common_name)?;
    Ok(name.build())
}

/// Clocks differ: a proxy counts from a little earlier.
pub(crate) const CLOCK_SKEW: Duration = Duration::from_secs(300);
const RSA_BITS_MAX: u32 = 8192;

const PROXY_CERT_INFO_TEXT: &str = "1.3.6.1.5.5.7.1.14";
const PROXY_CERT_INFO: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
const INHERIT_ALL: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 1];
const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 2];
const LIMITED: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_proxy_matches_globus_encoding() {
        let bytes = info(ProxyKind::Limited, None).unwrap().to_der().unwrap();
        let wire = [
            0x30, 0x0f, 0x30, 0x0d, 0x06, 0x0b, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x9b, 0x50, 0x01,
            0x01, 0x01, 0x09,
        ];
        assert!(bytes.ends_with(&wire), "{bytes:02x?}");
        assert_eq!(ProxyKind::parse(&wire), ProxyKind::Limited);
    }

    #[test]
    fn unreadable_policy_gives_no_rights() {
        for value in [
            &[][..],
            &[0x30, 0],
            &[0x30, 2, 0x30, 0],
            &[0x30, 4, 0x30, 2, 6, 0],
        ] {
            assert_eq!(ProxyKind::parse(value), ProxyKind::Restricted, "{value:?}");
        }
    }
}
