//! Trusted authorities, and the check of a certificate chain.
//!
//! The library builds the chain and checks signatures, dates and the rules of proxies. What
//! Globus adds is checked here: signing policies, revocation lists, the languages of proxies.

use crate::{
    Credential, Error, Identity, Result,
    credential::{self, CHAIN_MAX, check_dates, identity_of, is_self_signed},
    dates,
    discover::Surroundings,
    error::{CertificateOwner, Doing, NO_AUTHORITY, NO_LIST, unreadable},
    identity::slashed,
    kept::Stamp,
    policy::Policy,
    proxy::ProxyKind,
    when,
};
use openssl::{
    error::ErrorStack,
    stack::Stack,
    x509::{
        CrlStatus, X509, X509Crl, X509PurposeId, X509Ref, X509StoreContext, X509VerifyResult,
        store::{X509Store, X509StoreBuilder},
        verify::{X509VerifyFlags, X509VerifyParam},
    },
};
use std::{
    collections::{BTreeSet, HashMap},
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::SystemTime,
};

/// A directory of authorities (`HASH.0`, `HASH.signing_policy`, `HASH.r0`), read again for each
/// check: a change counts from the next check on. Cheap to clone.
#[derive(Clone)]
pub struct Authorities(Arc<AuthorityDir>);

struct AuthorityDir {
    dir: PathBuf,
    /// Trusted beside the directory, and without a policy: what DCSC brings.
    also: Vec<X509>,
    /// The system's authorities count as well, for public servers.
    system: bool,
}

impl Authorities {
    /// Finds the authorities for a public server: the grid's directory, if there is one, and the
    /// system's. The system's are in `SSL_CERT_FILE`, `SSL_CERT_DIR`, or the library's default
    /// `/etc/ssl/certs`.
    pub fn of_servers() -> Self {
        let found = Surroundings::of_this_process().authorities();
        Self(Arc::new(AuthorityDir {
            dir: found.unwrap_or_else(|_| SYSTEM.into()),
            also: Vec::new(),
            system: true,
        }))
    }

    /// Finds the directory in the usual places: `X509_CERT_DIR`, `~/.globus/certificates`,
    /// `/etc/grid-security/certificates`.
    pub fn discover() -> Result<Self> {
        Self::in_dir(&Surroundings::of_this_process().authorities()?)
    }

    /// Takes that directory.
    pub fn in_dir(dir: &Path) -> Result<Self> {
        fs::read_dir(dir).map_err(|cause| Error::io(dir, cause))?;
        Ok(Self::new(dir.into(), Vec::new()))
    }

    /// Returns no authorities, for a cluster with a key and no certificates.
    pub fn none() -> Self {
        Self::new("/nonexistent".into(), Vec::new())
    }

    fn new(dir: PathBuf, also: Vec<X509>) -> Self {
        Self(Arc::new(AuthorityDir {
            dir,
            also,
            system: false,
        }))
    }

    /// Returns these authorities with those of a PEM text, which need no signing policy. A client
    /// brings them for the data channels of one session (DCSC).
    pub fn and_these(&self, pem: &[u8]) -> Result<Self> {
        let more = X509::stack_from_pem(pem).doing("reading certificates")?;
        let also = [self.0.also.clone(), more].concat();
        Ok(Self::new(self.0.dir.clone(), also))
    }

    /// Checks a credential of our own as a peer with the same authorities would.
    pub fn check(&self, credential: &Credential) -> Result<Identity> {
        self.judge(credential.chain(), SystemTime::now())
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Checks a certificate chain, leaf first, and returns its identity.
    pub(crate) fn judge(&self, shown: &[X509], now: SystemTime) -> Result<Identity> {
        match self.judge_here(shown, now) {
            Err(unknown @ (Error::UnknownAuthority { .. } | Error::NoPolicy { .. }))
                if self.0.system =>
            {
                self.judge_by_system(shown, now, unknown)
            }
            judged => judged,
        }
    }

    /// Checks a chain by the system's authorities. They have no policies, and vouch for no proxies.
    fn judge_by_system(&self, shown: &[X509], now: SystemTime, unknown: Error) -> Result<Identity> {
        let doing = "reading what this machine trusts";
        let store = system_store(now).doing(doing)?;
        match self.verified(shown, &store, now) {
            Ok(_) => identity_of(shown),
            Err(
                Error::UnknownAuthority { .. } | Error::OtherIssuer { .. } | Error::BadChain { .. },
            ) => Err(unknown),
            Err(error) => Err(error),
        }
    }

    fn judge_here(&self, shown: &[X509], now: SystemTime) -> Result<Identity> {
        let Some(leaf) = shown.first() else {
            return Err(Error::Token("it showed no certificate".into()));
        };
        if shown.len() > CHAIN_MAX {
            let subject = slashed(leaf.subject_name());
            let why = format!("{} certificates are more than anybody needs", shown.len());
            return Err(Error::bad_chain(subject, why));
        }
        if let [only] = shown
            && self.0.also.iter().any(|trusted| trusted == only)
        {
            // A certificate that was handed to us is known by equality, whatever its issuer.
            check_dates(only, now, CertificateOwner::Peer)?;
            return identity_of(shown);
        }
        let trusted = self.authorities_above(shown)?;
        let store = store(&trusted, now).doing("checking certificates")?;
        let chain = self.verified(shown, &store, now)?;
        let identity = identity_of(&chain)?;
        check_languages(&chain)?;
        for pair in chain.windows(2) {
            let [subject, issuer] = pair else { continue };
            if ProxyKind::of(subject)?.is_none() && self.is_of_the_directory(issuer) {
                self.check_policy(subject, issuer)?;
                self.check_revocation(subject, issuer, now)?;
            }
        }
        Ok(Identity {
            // The authorities at the end were not shown.
            chain: shown.iter().map(|c| slashed(c.subject_name())).collect(),
            ..identity
        })
    }

    /// Returns every certificate of the directory that may stand above those shown.
    fn authorities_above(&self, shown: &[X509]) -> Result<Vec<X509>> {
        let mut found = self.0.also.clone();
        let mut wanted: Vec<u32> = shown.iter().map(|c| c.issuer_name_hash()).collect();
        let mut seen = BTreeSet::new();
        while let Some(hash) = wanted.pop() {
            if !seen.insert(hash) || seen.len() > 2 * CHAIN_MAX {
                continue;
            }
            for authority in self.certificates(hash)? {
                if !is_self_signed(&authority) {
                    wanted.push(authority.issuer_name_hash());
                }
                found.push(authority);
            }
        }
        Ok(found)
    }

    fn verified(&self, shown: &[X509], store: &X509Store, now: SystemTime) -> Result<Vec<X509>> {
        let doing = "checking certificates";
        let mut untrusted = Stack::new().doing(doing)?;
        for certificate in &shown[1..] {
            untrusted.push(certificate.clone()).doing(doing)?;
        }
        let mut context = X509StoreContext::new().doing(doing)?;
        let verdict = context
            .init(store, &shown[0], &untrusted, |context| {
                let is_good = context.verify_cert()?;
                let chain = context
                    .chain()
                    .map(|chain| chain.iter().map(ToOwned::to_owned).collect());
                let at = context.current_cert().map(ToOwned::to_owned);
                Ok((is_good, context.error(), at, chain))
            })
            .doing(doing)?;
        let (is_good, error, at, chain) = verdict;
        match (is_good, chain) {
            (true, Some(chain)) => Ok(chain),
            _ => Err(self.explain(&error, at.as_ref().unwrap_or(&shown[0]), &shown[0], now)),
        }
    }

    /// Translates the library's error about the certificate `at`.
    fn explain(
        &self,
        error: &X509VerifyResult,
        at: &X509Ref,
        leaf: &X509Ref,
        now: SystemTime,
    ) -> Error {
        let subject = slashed(at.subject_name());
        let is_proxy = |certificate| ProxyKind::of(certificate).is_ok_and(|kind| kind.is_some());
        let leaf_name = slashed(leaf.subject_name());
        let why = match error.as_raw() {
            EXPIRED | NOT_YET_VALID => match check_dates(at, now, CertificateOwner::Peer) {
                Err(dates) => return dates.in_file(self.file_of(at)),
                Ok(()) => error.error_string().into(),
            },
            INVALID_CA if is_old_proxy(&leaf_name) && !is_proxy(leaf) => {
                return Error::old_proxy(leaf_name);
            }
            NO_ISSUER | NO_ISSUER_HERE | NO_FIRST_ISSUER if is_proxy(at) => {
                "the certificate that signed this proxy is not among those shown".into()
            }
            NO_ISSUER | NO_ISSUER_HERE | NO_FIRST_ISSUER | SELF_SIGNED_LEAF | SELF_SIGNED_ROOT => {
                return self.unknown(subject, at);
            }
            INVALID_CA => "is no authority, and what it signed is no proxy (RFC 3820)".into(),
            SIGNATURE => format!(
                "its signature is not that of {}",
                slashed(at.issuer_name())
            ),
            PROXY_TOO_DEEP => "more proxies follow it than it allows (path length)".into(),
            PROXY_NAME => {
                "a proxy's name must be that of its issuer and one common name more; this one's is not".into()
            }
            _ => error.error_string().into(),
        };
        Error::bad_chain(subject, why)
    }

    fn unknown(&self, subject: String, at: &X509Ref) -> Error {
        let (issuer, hash) = (slashed(at.issuer_name()), at.issuer_name_hash());
        if self.certificates(hash).is_ok_and(|known| !known.is_empty()) {
            return Error::other_issuer(subject, issuer, self.hashed(hash, "0"));
        }
        Error::unknown_authority(subject, issuer, hex(hash), self.0.dir.clone())
    }

    /// Returns the file of an authority of the directory; `None` if it is none.
    fn file_of(&self, at: &X509Ref) -> Option<PathBuf> {
        (0..FILES_MAX)
            .map(|number| self.hashed(at.subject_name_hash(), &number.to_string()))
            .take_while(|path| path.exists())
            .find(|path| match self.file(path, read_certificates) {
                Ok(Some(AuthorityFile::Certificates(all))) => all.iter().any(|one| **one == *at),
                _ => false,
            })
    }

    /// Tells whether the rules of the directory count for an issuer: not if it was brought by hand.
    fn is_of_the_directory(&self, issuer: &X509Ref) -> bool {
        !self.0.also.iter().any(|also| **also == *issuer)
    }

    fn check_policy(&self, subject: &X509Ref, issuer: &X509Ref) -> Result<()> {
        if *subject == *issuer {
            return Ok(());
        }
        let file = format!("{}.signing_policy", hex(issuer.subject_name_hash()));
        let path = self.0.dir.join(file);
        let authority = slashed(issuer.subject_name());
        let Some(AuthorityFile::Policy(policy)) = self.file(&path, read_policy)? else {
            return Err(Error::no_policy(authority, path));
        };
        let subject = slashed(subject.subject_name());
        if policy.allows(&authority, &subject) {
            return Ok(());
        }
        Err(Error::outside_policy(authority, subject, path))
    }

    /// An authority without a list revokes no certificate; an expired list proves nothing.
    fn check_revocation(&self, subject: &X509, issuer: &X509Ref, now: SystemTime) -> Result<()> {
        let authority = || slashed(issuer.subject_name());
        let key = issuer.public_key().doing("reading a certificate")?;
        let (mut newest, mut foreign) = (None, None);
        for number in 0..FILES_MAX {
            let path = self.hashed(issuer.subject_name_hash(), &format!("r{number}"));
            let Some(AuthorityFile::List(list)) = self.file(&path, read_list)? else {
                break;
            };
            if !list.verify(&key).unwrap_or(false) {
                foreign = Some(path);
                continue;
            }
            let until = list.next_update().map(dates::moment).transpose()?;
            if newest.as_ref().is_none_or(|(_, _, known)| until > *known) {
                newest = Some((list, path, until));
            }
        }
        let Some((list, path, until)) = newest else {
            return match foreign {
                None => Ok(()),
                Some(path) => Err(Error::bad_file(
                    path,
                    format!("this revocation list is not signed by {}", authority()),
                )),
            };
        };
        if let CrlStatus::Revoked(entry) = list.get_by_cert(subject) {
            return Err(Error::revoked(
                slashed(subject.subject_name()),
                authority(),
                dates::moment(entry.revocation_date())?,
                path,
            ));
        }
        match until {
            Some(since) if since <= now => Err(Error::stale_list(authority(), since, path)),
            _ => Ok(()),
        }
    }

    fn certificates(&self, hash: u32) -> Result<Vec<X509>> {
        let mut found = Vec::new();
        for number in 0..FILES_MAX {
            let path = self.hashed(hash, &number.to_string());
            let Some(AuthorityFile::Certificates(certificates)) =
                self.file(&path, read_certificates)?
            else {
                break;
            };
            found.extend(certificates.iter().cloned());
        }
        Ok(found)
    }

    fn hashed(&self, hash: u32, ending: &str) -> PathBuf {
        self.0.dir.join(format!("{}.{ending}", hex(hash)))
    }

    /// Returns the content of a file, read again if it changed; `None` if there is no such file.
    fn file(
        &self,
        path: &Path,
        parse: fn(&Path, &[u8]) -> Result<AuthorityFile>,
    ) -> Result<Option<AuthorityFile>> {
        let stamp = match fs::metadata(path) {
            Ok(meta) => Stamp::of(&meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => {
                return Err(Error::io(path, cause));
            }
        };
        let lock = || READ.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, file)) = lock().get(path)
            && *known == stamp
        {
            return Ok(Some(file.clone()));
        }
        let file = parse(path, &credential::read(path)?)?;
        let mut read = lock();
        if read.len() >= KEPT_MAX {
            read.clear();
        }
        read.insert(path.into(), (stamp, file.clone()));
        Ok(Some(file))
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authorities").field(&self.0.dir).finish()
    }
}

/// Files as they were read, with the stamps that tell whether they have changed.
static READ: LazyLock<Mutex<HashMap<PathBuf, (Stamp, AuthorityFile)>>> =
    LazyLock::new(Mutex::default);

/// Content of a file of the directory.
#[derive(Clone)]
enum AuthorityFile {
    Certificates(Arc<Vec<X509>>),
    Policy(Arc<Policy>),
    List(Arc<X509Crl>),
}

fn read_certificates(path: &Path, bytes: &[u8]) -> Result<AuthorityFile> {
    let certificates = match bytes.starts_with(DER_SEQUENCE) {
        true => X509::from_der(bytes).map(|certificate| vec![certificate]),
        false => X509::stack_from_pem(bytes),
    };
    let certificates = certificates.map_err(unreadable(path, NO_AUTHORITY))?;
    Ok(AuthorityFile::Certificates(Arc::new(certificates)))
}

fn read_list(path: &Path, bytes: &[u8]) -> Result<AuthorityFile> {
    let list = match bytes.starts_with(DER_SEQUENCE) {
        true => X509Crl::from_der(bytes),
        false => X509Crl::from_pem(bytes),
    };
    let list = list.map_err(unreadable(path, NO_LIST))?;
    Ok(AuthorityFile::List(Arc::new(list)))
}

fn read_policy(path: &Path, bytes: &[u8]) -> Result<AuthorityFile> {
    let policy = Policy::parse(&String::from_utf8_lossy(bytes))
        .map_err(|what| Error::bad_file(path, what))?;
    Ok(AuthorityFile::Policy(Arc::new(policy)))
}

fn store(trusted: &[X509], now: SystemTime) -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    for authority in trusted {
        store.add_cert(authority.clone())?;
    }
    let mut rules = X509VerifyParam::new()?;
    // Not X509_STRICT: it wants key identifiers, which proxies usually lack.
    rules.set_flags(X509VerifyFlags::ALLOW_PROXY_CERTS)?;
    rules.set_time(when::seconds(now));
    rules.set_auth_level(STRENGTH);
    store.set_param(&rules)?;
    Ok(store.build())
}

fn system_store(now: SystemTime) -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    store.set_default_paths()?;
    store.set_purpose(X509PurposeId::SSL_SERVER)?;
    let mut rules = X509VerifyParam::new()?;
    rules.set_time(when::seconds(now));
    rules.set_auth_level(STRENGTH);
    store.set_param(&rules)?;
    Ok(store.build())
}

/// Refuses proxies that carry none of their owner's rights, or some that we cannot tell.
fn check_languages(chain: &[X509]) -> Result<()> {
    for certificate in chain {
        let why = match ProxyKind::of(certificate)? {
            Some(ProxyKind::Independent) => "an independent proxy carries no rights of its owner",
            Some(ProxyKind::Restricted) => "a proxy with a policy that godwit cannot read",
            _ => continue,
        };
        return Err(Error::bad_chain(slashed(certificate.subject_name()), why));
    }
    Ok(())
}

fn is_old_proxy(subject: &str) -> bool {
    ["/CN=proxy", "/CN=limited proxy"]
        .iter()
        .any(|ending| subject.ends_with(ending))
}

fn hex(hash: u32) -> String {
    format!("{hash:08x}")
}

// X509_V_ERR_* of x509_vfy.h, which the library's safe face shows as numbers only.
const NO_ISSUER: i32 = 2;
const SIGNATURE: i32 = 7;
const NOT_YET_VALID: i32 = 9;
const EXPIRED: i32 = 10;
const SELF_SIGNED_LEAF: i32 = 18;
const SELF_SIGNED_ROOT: i32 = 19;
const NO_ISSUER_HERE: i32 = 20;
const NO_FIRST_ISSUER: i32 = 21;
const PROXY_TOO_DEEP: i32 = 38;
const PROXY_NAME: i32 = 72;
const INVALID_CA: i32 = 79;

/// RSA of 1024 bits and SHA-1 of authorities' own signatures pass, MD5 and shorter keys do not.
const STRENGTH: i32 = 1;
const DER_SEQUENCE: &[u8] = &[0x30];
const FILES_MAX: usize = 16;
const SYSTEM: &str = "/etc/ssl/certs";
const KEPT_MAX: usize = 4096;
