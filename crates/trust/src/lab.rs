//! A certificate authority for a laboratory that has none, and for tests.
//!
//! Its directory has `ca.pem`, `ca.key` and the issued certificates. Under `certificates/` it has
//! the files that others need to trust it (hash links, signing policy, revocation list). One person
//! keeps it; it does not replace an authority that checks passports.

use crate::{
    Credential, Error, KeyKind, Result,
    credential::{check_dates, read, read_key},
    dates, der,
    error::{CertificateOwner, Doing, NO_AUTHORITY, unreadable},
    identity::slashed,
    keys,
    policy::Policy,
    proxy, when,
};
use openssl::{
    asn1::{Asn1Integer, Asn1Object, Asn1OctetString},
    bn::{BigNum, MsbOption},
    error::ErrorStack,
    nid::Nid,
    pkey::{PKey, PKeyRef, Private},
    x509::{
        CrlNumber, X509, X509Builder, X509Crl, X509CrlRef, X509Extension, X509Name,
        X509NameBuilder, X509Ref, X509RevokedBuilder, X509v3Context,
        extension::{
            AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage,
            SubjectAlternativeName, SubjectKeyIdentifier,
        },
    },
};
use std::{
    fs, io,
    io::Write,
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// An authority in a directory.
pub struct Ca {
    dir: PathBuf,
    certificate: X509,
    key: PKey<Private>,
}

/// Certificate to issue.
#[derive(Clone, Debug)]
pub struct Issue {
    /// Under the authority's own name: `alice` becomes `/O=Lab/CN=alice`. A whole subject,
    /// that begins with a slash, is taken as it is.
    pub name: String,
    /// Names and addresses of a host; of a person none.
    pub hosts: Vec<String>,
    /// From when it counts.
    pub not_before: SystemTime,
    /// Until when.
    pub not_after: SystemTime,
    /// Its key.
    pub key: KeyKind,
}

impl Issue {
    /// A certificate for a person, valid for a year.
    pub fn user(name: &str) -> Self {
        let now = SystemTime::now();
        Self {
            name: name.into(),
            hosts: Vec::new(),
            not_before: now - proxy::CLOCK_SKEW,
            not_after: now + YEAR,
            key: KeyKind::default(),
        }
    }

    /// Returns the request with another lifetime; never longer than the authority's own.
    pub fn lasting(self, lifetime: Duration) -> Self {
        let not_after = when::after(SystemTime::now(), lifetime);
        Self { not_after, ..self }
    }

    /// A certificate for a host and its other names and addresses.
    pub fn host(names: &[&str]) -> Self {
        let hosts = names.iter().map(|&name| name.to_owned()).collect();
        Self {
            hosts,
            ..Self::user(names.first().unwrap_or(&"localhost"))
        }
    }
}

impl Ca {
    /// Makes a new authority; the directory may exist, an authority in it may not.
    pub fn init(dir: &Path, subject: &str, lifetime: Duration, key: KeyKind) -> Result<Self> {
        let file = dir.join(CERTIFICATE);
        if file.exists() {
            return Err(Error::exists(file));
        }
        let key = new_key(key)?;
        let name = name(subject)?;
        let now = SystemTime::now();
        let validity = (now - proxy::CLOCK_SKEW, when::after(now, lifetime));
        let certificate = own_certificate(&name, &key, validity)?;
        let ca = Self {
            dir: dir.into(),
            certificate,
            key,
        };
        ca.write_all()?;
        Ok(ca)
    }

    /// Opens the authority of a directory, if its key is that of its certificate.
    pub fn open(dir: &Path) -> Result<Self> {
        let (at, key_at) = (dir.join(CERTIFICATE), dir.join(KEY));
        let certificate = X509::from_pem(&read(&at)?).map_err(unreadable(&at, NO_AUTHORITY))?;
        let key =
            PKey::private_key_from_pem_callback(&read_key(&key_at)?, |_| Err(ErrorStack::get()));
        let key = key.map_err(|_| {
            Error::bad_file(
                key_at.clone(),
                "it holds no private key that can be read without a passphrase",
            )
        })?;
        // No client accepts the signature of another key.
        if !is_of(&certificate, &key) {
            let (key, certificate) = (key_at.display(), at.display());
            return Err(Error::bad_request(format!(
                "{key} does not belong to {certificate}"
            )));
        }
        Ok(Self {
            dir: dir.into(),
            certificate,
            key,
        })
    }

    /// Makes an authority below this one, that is no root.
    #[cfg(test)]
    pub(crate) fn below(&self, dir: &Path, subject: &str) -> Self {
        let key = keys::elliptic().unwrap();
        let name = name(subject).unwrap();
        let now = SystemTime::now();
        let mut builder = begin(&name, &key, (now - proxy::CLOCK_SKEW, now + YEAR / 100)).unwrap();
        builder
            .set_issuer_name(self.certificate.subject_name())
            .unwrap();
        let constraint = BasicConstraints::new().critical().ca().build().unwrap();
        builder.append_extension(constraint).unwrap();
        let own = SubjectKeyIdentifier::new().build(&builder.x509v3_context(None, None));
        builder.append_extension(own.unwrap()).unwrap();
        builder
            .sign(&self.key, proxy::digest_for(&self.key))
            .unwrap();
        let ca = Self {
            dir: dir.into(),
            certificate: builder.build(),
            key,
        };
        ca.write_all().unwrap();
        ca
    }

    /// Returns the subject: `/O=Lab/CN=Lab CA`.
    pub fn subject(&self) -> String {
        slashed(self.certificate.subject_name())
    }

    /// Returns the hash that its files are named by.
    pub fn hash(&self) -> String {
        format!("{:08x}", self.certificate.subject_name_hash())
    }

    /// Returns when it expires.
    pub fn not_after(&self) -> Result<SystemTime> {
        dates::moment(self.certificate.not_after())
    }

    /// Returns the directory that others need in order to trust it (`X509_CERT_DIR`).
    pub fn certificates(&self) -> PathBuf {
        self.dir.join(CERTIFICATES)
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, issue: &Issue) -> Result<Credential> {
        let key = new_key(issue.key)?;
        let subject = name(&self.subject_of(issue))?;
        let certificate = self.sign(&subject, &key, issue)?;
        let record = self
            .dir
            .join(ISSUED)
            .join(format!("{}.pem", serial_of(&certificate)?));
        put(
            &record,
            &certificate.to_pem().doing("writing a certificate")?,
            0o644,
        )?;
        Credential::new(key, vec![certificate], None)
    }

    /// Returns the subject that a certificate would have.
    fn subject_of(&self, issue: &Issue) -> String {
        match issue.name.starts_with('/') {
            true => issue.name.clone(),
            false => format!("{}/CN={}", self.realm(), issue.name),
        }
    }

    /// Refuses certificates that no client would accept, however well they are signed.
    pub fn check(&self, issue: &Issue) -> Result<()> {
        check_dates(&self.certificate, SystemTime::now(), CertificateOwner::Us)
            .map_err(|error| error.of_ours(Some(&self.dir.join(CERTIFICATE))))?;
        let subject = name(&self.subject_of(issue))?;
        // A chain ends at what names itself as its issuer: this one would not.
        if subject
            .try_cmp(self.certificate.subject_name())
            .doing("comparing names")?
            .is_eq()
        {
            return Err(Error::bad_request(format!(
                "{} is the authority itself",
                self.subject()
            )));
        }
        check_names(issue)?;
        self.check_policy(issue)
    }

    fn check_policy(&self, issue: &Issue) -> Result<()> {
        let path = self.policy_file();
        if !path.exists() {
            return Ok(());
        }
        let subject = slashed(&*name(&self.subject_of(issue))?);
        let bad = |what| Error::bad_file(path.clone(), what);
        let text = String::from_utf8(read(&path)?).map_err(|_| bad("is not UTF-8".into()))?;
        let policy = Policy::parse(&text).map_err(bad)?;
        if policy.allows(&self.subject(), &subject) {
            return Ok(());
        }
        Err(Error::outside_policy(self.subject(), subject, path))
    }

    fn policy_file(&self) -> PathBuf {
        let name = format!("{}.signing_policy", self.hash());
        self.certificates().join(name)
    }

    /// Revokes a certificate (PEM) that it issued, and renews the list.
    pub fn revoke(&self, pem: &[u8]) -> Result<String> {
        let certificate = X509::from_pem(pem)
            .map_err(|_| Error::bad_request("there is no certificate (PEM) in it"))?;
        let subject = slashed(certificate.subject_name());
        let is_ours = certificate.verify(&self.key).unwrap_or(false);
        if !is_ours {
            return Err(Error::bad_request(format!(
                "{subject} was not issued by {}",
                self.subject()
            )));
        }
        // No client accepts a list signed by a certificate that the list revokes.
        if is_of(&certificate, &self.key) {
            return Err(Error::itself(subject));
        }
        self.write_list(Some(&certificate), LIST_LIFETIME)?;
        Ok(subject)
    }

    /// Writes a new revocation list.
    pub fn renew_list(&self) -> Result<()> {
        self.write_list(None, LIST_LIFETIME)
    }

    /// Writes it to count for that long.
    #[cfg(test)]
    pub(crate) fn renew_list_for(&self, lifetime: Duration) -> Result<()> {
        self.write_list(None, lifetime)
    }

    /// Returns the subject without its last common name: the authority vouches for names below it.
    fn realm(&self) -> String {
        let subject = self.subject();
        let realm = subject.rfind("/CN=").map_or("", |at| &subject[..at]);
        realm.to_owned()
    }

    fn sign(&self, subject: &X509Name, key: &PKey<Private>, issue: &Issue) -> Result<X509> {
        let validity = (issue.not_before, issue.not_after.min(self.not_after()?));
        let mut builder = begin(subject, key, validity)?;
        self.finish(&mut builder, &issue.hosts)
            .doing("signing a certificate")?;
        Ok(builder.build())
    }

    fn finish(&self, builder: &mut X509Builder, hosts: &[String]) -> Result<(), ErrorStack> {
        builder.set_issuer_name(self.certificate.subject_name())?;
        builder.append_extension(BasicConstraints::new().critical().build()?)?;
        let mut usage = KeyUsage::new();
        usage.critical().digital_signature().key_encipherment();
        builder.append_extension(usage.build()?)?;
        let mut purpose = ExtendedKeyUsage::new();
        purpose.client_auth();
        if !hosts.is_empty() {
            purpose.server_auth();
        }
        builder.append_extension(purpose.build()?)?;
        let context = builder.x509v3_context(Some(&self.certificate), None);
        let own = SubjectKeyIdentifier::new().build(&context)?;
        let issuer = AuthorityKeyIdentifier::new().keyid(true).build(&context)?;
        let names = (!hosts.is_empty())
            .then(|| alternatives(hosts, &context))
            .transpose()?;
        for extension in [own, issuer].into_iter().chain(names) {
            builder.append_extension(extension)?;
        }
        builder.sign(&self.key, proxy::digest_for(&self.key))
    }

    fn write_all(&self) -> Result<()> {
        let doing = "writing the authority";
        for dir in [&self.dir, &self.certificates(), &self.dir.join(ISSUED)] {
            fs::create_dir_all(dir).map_err(|cause| Error::io(dir.clone(), cause))?;
        }
        let certificate = self.certificate.to_pem().doing(doing)?;
        let key = self.key.private_key_to_pem_pkcs8().doing(doing)?;
        put(&self.dir.join(KEY), &key, 0o600)?;
        put(
            &self.certificates().join(format!("{}.0", self.hash())),
            &certificate,
            0o644,
        )?;
        let policy = format!(
            "# Which names {} may vouch for.\n\
             access_id_CA   X509    '{}'\n\
             pos_rights     globus  CA:sign\n\
             cond_subjects  globus  '\"{}/*\"'\n",
            self.subject(),
            self.subject(),
            self.realm()
        );
        put(&self.policy_file(), policy.as_bytes(), 0o644)?;
        // Last: its being there says that all of it is.
        put(&self.dir.join(CERTIFICATE), &certificate, 0o644)
    }

    /// Returns the file of its revocation list, which is not there before the first.
    pub fn list_file(&self) -> PathBuf {
        self.certificates().join(format!("{}.r0", self.hash()))
    }

    fn write_list(&self, revoked: Option<&X509Ref>, lifetime: Duration) -> Result<()> {
        let file = self.list_file();
        let old = match file.exists() {
            true => Some(X509Crl::from_pem(&read(&file)?).doing("reading the revocation list")?),
            false => None,
        };
        let now = SystemTime::now();
        let validity = (dates::asn1(now)?, dates::asn1(now + lifetime)?);
        let list = self
            .list(old, revoked, &validity)
            .doing("writing the revocation list")?;
        put(&file, &list, 0o644)
    }

    fn list(
        &self,
        old: Option<X509Crl>,
        revoked: Option<&X509Ref>,
        (from, to): &(openssl::asn1::Asn1Time, openssl::asn1::Asn1Time),
    ) -> Result<Vec<u8>, ErrorStack> {
        let mut list = openssl::x509::X509CrlBuilder::new()?;
        list.set_issuer_name(self.certificate.subject_name())?;
        list.set_last_update(from)?;
        list.set_next_update(to)?;
        for known in old.iter().filter_map(|old| old.get_revoked()).flatten() {
            let is_same = revoked.is_some_and(|c| same_serial(c, known.serial_number()));
            if !is_same {
                list.add_revoked(known.to_owned()?)?;
            }
        }
        if let Some(certificate) = revoked {
            let mut entry = X509RevokedBuilder::new()?;
            entry.set_serial_number(certificate.serial_number())?;
            entry.set_revocation_date(from)?;
            list.add_revoked(entry.build())?;
        }
        let number = number_after(old.as_deref())?;
        for extension in self.list_extensions(number)? {
            list.append_extension(extension)?;
        }
        list.sort()?;
        list.sign(&self.key, proxy::digest_for(&self.key))?;
        list.build()?.to_pem()
    }

    /// RFC 5280, 5.2: key identifier of the list's issuer, and the list's number.
    fn list_extensions(&self, number: i64) -> Result<[X509Extension; 2], ErrorStack> {
        let key = self
            .certificate
            .subject_key_id()
            .map_or(&[][..], |id| id.as_slice());
        let issuer = der::write(der::SEQUENCE, &der::write(0x80, key));
        let number = der::write(der::INTEGER, &der::integer(number));
        let make = |nid: Nid, value: &[u8]| {
            let name = Asn1Object::from_str(nid.short_name()?)?;
            X509Extension::new_from_der(&name, false, &*Asn1OctetString::new_from_bytes(value)?)
        };
        Ok([
            make(Nid::AUTHORITY_KEY_IDENTIFIER, &issuer)?,
            make(Nid::CRL_NUMBER, &number)?,
        ])
    }
}

/// Writes a credential as two files: the certificate readable by all, the key by its owner.
pub fn write_pair(credential: &Credential, cert: &Path, key: &Path) -> Result<()> {
    let doing = "writing a certificate";
    let mut pem = Vec::new();
    for certificate in credential.chain() {
        pem.extend(certificate.to_pem().doing(doing)?);
    }
    put(cert, &pem, 0o644)?;
    let secret = credential.key()?.private_key_to_pem_pkcs8().doing(doing)?;
    put(key, &secret, 0o600)
}

/// Writes a proxy file, for its owner only.
pub fn write_proxy(credential: &Credential, path: &Path) -> Result<()> {
    put(path, &credential.to_pem()?, 0o600)
}

/// Replaces a file as a whole: no reader sees half of it, and a secret is never readable by others.
fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let io = |cause: io::Error| Error::io(path, cause);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    write().map_err(|cause| {
        // The error is returned; the partial file is removed.
        let _ = fs::remove_file(&partial);
        io(cause)
    })
}

/// Tells whether it is the key of a certificate.
fn is_of(certificate: &X509Ref, key: &PKeyRef<Private>) -> bool {
    let public = certificate.public_key();
    public.is_ok_and(|public| public.public_eq(key))
}

fn new_key(kind: KeyKind) -> Result<PKey<Private>> {
    match kind {
        KeyKind::Rsa(2048) => keys::ready_rsa(),
        KeyKind::Rsa(bits) => keys::rsa(bits),
        KeyKind::Elliptic => keys::elliptic(),
    }
}

/// Refuses wrong host names, and characters that would break a line of a grid-mapfile.
fn check_names(issue: &Issue) -> Result<()> {
    let bad = |what| Err(Error::BadRequest { what });
    if issue.name.chars().any(char::is_control) {
        return bad(format!("{:?} has a control character in it", issue.name));
    }
    match issue.hosts.iter().find(|host| !is_host(host)) {
        Some(host) => bad(format!("{host:?} is no name or address of a host")),
        None => Ok(()),
    }
}

fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        label == "*" || (!label.is_empty() && label.chars().all(is_plain))
    };
    text.parse::<IpAddr>().is_ok() || text.trim_end_matches('.').split('.').all(is_label)
}

/// Reads `/O=Lab/CN=alice` into a name; a slash within a value (`CN=host/a`) is part of it.
pub(crate) fn name(subject: &str) -> Result<X509Name> {
    let wrong = |why: &str| Error::bad_request(format!("{subject:?}: {why}"));
    let mut parts: Vec<(String, String)> = Vec::new();
    for part in subject
        .strip_prefix('/')
        .ok_or_else(|| wrong("a subject begins with a slash"))?
        .split('/')
    {
        match (part.split_once('='), parts.last_mut()) {
            (Some((key, value)), _)
                if !key.is_empty()
                    && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '.') =>
            {
                parts.push((key.into(), value.into()));
            }
            (_, Some((_, value))) => {
                value.push('/');
                value.push_str(part);
            }
            _ => return Err(wrong("a subject is made of /KEY=VALUE")),
        }
    }
    let build = || {
        let mut name = X509NameBuilder::new()?;
        for (key, value) in &parts {
            name.append_entry_by_text(key, value)?;
        }
        Ok(name.build())
    };
    build().map_err(|stack: ErrorStack| wrong(&crate::error::reasons(&stack)))
}

/// Makes a certificate that no authority vouches for: it counts only where it is handed over
/// (DCSC).
pub fn throw_away(lifetime: Duration) -> Result<Credential> {
    let doing = "making a certificate for data connections";
    let key = keys::elliptic()?;
    let mut unlike_others = [0; 8];
    openssl::rand::rand_bytes(&mut unlike_others).doing(doing)?;
    let name = name(&format!(
        "/CN=godwit data {:016x}",
        u64::from_be_bytes(unlike_others)
    ))?;
    let now = SystemTime::now();
    let validity = (now - proxy::CLOCK_SKEW, now + lifetime);
    let mut builder = begin(&name, &key, validity)?;
    builder.set_issuer_name(&name).doing(doing)?;
    builder.sign(&key, proxy::digest_for(&key)).doing(doing)?;
    Credential::new(key, vec![builder.build()], None)
}

fn own_certificate(
    name: &X509Name,
    key: &PKey<Private>,
    validity: (SystemTime, SystemTime),
) -> Result<X509> {
    let mut builder = begin(name, key, validity)?;
    let mut finish = || {
        builder.set_issuer_name(name)?;
        builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
        let mut usage = KeyUsage::new();
        usage.critical().key_cert_sign().crl_sign();
        builder.append_extension(usage.build()?)?;
        let own = SubjectKeyIdentifier::new().build(&builder.x509v3_context(None, None))?;
        builder.append_extension(own)?;
        builder.sign(key, proxy::digest_for(key))
    };
    finish().doing("signing the authority's certificate")?;
    Ok(builder.build())
}

fn begin(
    name: &X509Name,
    key: &PKey<Private>,
    validity: (SystemTime, SystemTime),
) -> Result<X509Builder> {
    let (from, to) = (dates::asn1(validity.0)?, dates::asn1(validity.1)?);
    let begin = || {
        let mut builder = X509Builder::new()?;
        builder.set_version(2)?;
        let mut serial = BigNum::new()?;
        serial.rand(127, MsbOption::MAYBE_ZERO, false)?;
        builder.set_serial_number(&*Asn1Integer::from_bn(&serial)?)?;
        builder.set_subject_name(name)?;
        builder.set_pubkey(key)?;
        builder.set_not_before(&from)?;
        builder.set_not_after(&to)?;
        Ok(builder)
    };
    begin().doing("making a certificate")
}

fn alternatives(
    hosts: &[String],
    context: &X509v3Context<'_>,
) -> Result<X509Extension, ErrorStack> {
    let mut names = SubjectAlternativeName::new();
    for host in hosts {
        match host.parse::<IpAddr>() {
            Ok(_) => names.ip(host),
            Err(_) => names.dns(host),
        };
    }
    names.build(context)
}

/// Returns the number of a new list: the second in which it is made, but always more than that
/// of the one before.
fn number_after(old: Option<&X509CrlRef>) -> Result<i64, ErrorStack> {
    let now = when::seconds(SystemTime::now());
    let before = match old {
        Some(old) => old.extension::<CrlNumber>()?,
        None => None,
    };
    let Some((_, before)) = before else {
        return Ok(now);
    };
    // One that we cannot count from was not made here.
    let before = before.to_bn()?.to_dec_str()?.parse().unwrap_or(0i64);
    Ok(now.max(before.saturating_add(1)))
}

fn same_serial(certificate: &X509Ref, serial: &openssl::asn1::Asn1IntegerRef) -> bool {
    let text = |number: &openssl::asn1::Asn1IntegerRef| {
        number
            .to_bn()
            .and_then(|n| n.to_hex_str())
            .map(|s| s.to_string())
    };
    matches!((text(certificate.serial_number()), text(serial)), (Ok(a), Ok(b)) if a == b)
}

fn serial_of(certificate: &X509Ref) -> Result<String> {
    let doing = "reading a serial number";
    let number = certificate.serial_number().to_bn().doing(doing)?;
    Ok(number.to_hex_str().doing(doing)?.to_string())
}

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";
const CERTIFICATES: &str = "certificates";
const ISSUED: &str = "issued";
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// How long a list counts unless it is renewed; a laboratory forgets.
const LIST_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_vouches_only_on_its_days() {
        let dir = tempfile::tempdir().unwrap();
        let (now, day) = (SystemTime::now(), YEAR / 365);
        let authority = |validity| {
            let key = keys::elliptic().unwrap();
            let name = name("/O=Lab/CN=Lab CA").unwrap();
            Ca {
                dir: dir.path().into(),
                certificate: own_certificate(&name, &key, validity).unwrap(),
                key,
            }
        };
        let bob = Issue::user("bob");
        authority((now - day, now + day)).check(&bob).unwrap();
        let over = authority((now - day * 2, now - day)).check(&bob);
        assert!(matches!(over, Err(Error::Expired { .. })), "{over:?}");
        let early = authority((now + day, now + day * 2)).check(&bob);
        assert!(matches!(early, Err(Error::NotYet { .. })), "{early:?}");
    }
}
