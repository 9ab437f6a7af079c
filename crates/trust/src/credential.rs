//! Credential: a certificate with its key, or a cluster's shared key, by which we prove our
//! identity.

use crate::{
    Error, Identity, Result,
    cluster::ClusterKeys,
    dates,
    error::{CertificateOwner, Doing, NO_CREDENTIAL},
    identity::slashed,
    kept::Stamp,
    keys,
    proxy::{self, CLOCK_SKEW, ProxyKind, ProxyRequest},
    when,
};
use godwit_sys::Agreed;
use openssl::{
    error::ErrorStack,
    pkey::{HasPublic, PKey, PKeyRef, Private},
    ssl::SslContext,
    x509::{X509, X509Ref},
};
use std::{
    cell::Cell,
    cmp::Ordering,
    fmt,
    fs::{self, File},
    io::{self, Read},
    ops::Range,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, SystemTime},
};

/// Our own certificate, its key and the certificates up to the end entity; or the key of a
/// cluster. Cheap to clone.
#[derive(Clone)]
pub struct Credential(Arc<CredentialData>);

/// Equal only to itself and its clones.
impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Credential {}

struct CredentialData {
    proof: IdentityProof,
    identity: Identity,
    /// From when on, and until when, all of it is believed.
    dates: Range<SystemTime>,
    file: Option<PathBuf>,
    /// Files that the credential was read from, with their stamps.
    sources: SourceFiles,
    contexts: Contexts,
}

/// Certificate and key, in this order; empty where it was not read from files.
type SourceFiles = Vec<(PathBuf, Stamp)>;

/// How a file is opened.
type OpenFile<'a> = &'a dyn Fn(&Path) -> io::Result<File>;

/// Proof of the identity.
enum IdentityProof {
    Certificate {
        key: PKey<Private>,
        /// Leaf first, each signed by the next; the authority's own is left out.
        chain: Vec<X509>,
    },
    /// Membership: knowledge of one of these keys.
    Shared(ClusterKeys),
    /// No proof; a resumed session shows a server that this is the same client.
    Nothing(ResumableSession),
}

/// Session that a server lets its client resume.
pub(crate) type ResumableSession = Arc<Mutex<Option<Agreed>>>;

/// Settings that the TLS library makes of a credential, once for each role.
#[derive(Default)]
pub(crate) struct Contexts {
    pub(crate) initiator: OnceLock<SslContext>,
    pub(crate) acceptor: OnceLock<SslContext>,
    pub(crate) host: OnceLock<SslContext>,
    pub(crate) visitor: OnceLock<SslContext>,
}

impl Credential {
    /// Reads a certificate (with its chain) and a key from two files, or from one.
    ///
    /// A key that other users could read or write is refused.
    pub fn from_files(cert: &Path, key: &Path) -> Result<Self> {
        Self::unlock(cert, key, Passphrase::Never)
    }

    /// Reads a certificate and a key that may be encrypted.
    pub fn unlock(cert: &Path, key: &Path, passphrase: Passphrase<'_>) -> Result<Self> {
        Self::from_sources(cert, key, passphrase, &|path| File::open(path))
    }

    /// Tells whether the credential's files are unchanged. A credential without files stays as it
    /// is.
    pub fn is_current(&self) -> bool {
        let mut sources = self.0.sources.iter();
        sources.all(|(path, stamp)| fs::metadata(path).is_ok_and(|meta| Stamp::of(&meta) == *stamp))
    }

    /// Reads the credential again from its files; `open` opens those of another user. `None` if the
    /// credential did not come from files.
    pub fn read_again(&self, open: OpenFile<'_>) -> Option<Result<Self>> {
        let ((cert, _), (key, _)) = (self.0.sources.first()?, self.0.sources.last()?);
        Some(Self::from_sources(cert, key, Passphrase::Never, open))
    }

    fn from_sources(
        cert: &Path,
        key: &Path,
        passphrase: Passphrase<'_>,
        open: OpenFile<'_>,
    ) -> Result<Self> {
        let (mut pem, stamp) = read_key_by(key, open)?;
        let mut sources = vec![(key.to_owned(), stamp)];
        if cert != key {
            // The certificate's own file first: its chain is the one that counts.
            let (mut both, stamp) = read_stamped(cert)?;
            sources.insert(0, (cert.to_owned(), stamp));
            both.push(b'\n');
            both.append(&mut pem);
            pem = both;
        }
        Self::parse(&pem, passphrase, Some(key), Some(cert), sources)
    }

    /// Reads a proxy: certificate, key and chain in one file.
    pub fn from_file(path: &Path) -> Result<Self> {
        Self::from_files(path, path)
    }

    /// Reads certificate, key and chain from one PEM text, as a proxy file has them.
    pub fn from_pem(pem: &[u8]) -> Result<Self> {
        Self::parse(pem, Passphrase::Never, None, None, SourceFiles::new())
    }

    fn parse(
        pem: &[u8],
        passphrase: Passphrase<'_>,
        key_file: Option<&Path>,
        file: Option<&Path>,
        sources: SourceFiles,
    ) -> Result<Self> {
        let named =
            |path: Option<&Path>| path.map_or_else(|| "the credential".into(), PathBuf::from);
        let key = private_key(pem, passphrase, &named(key_file))?;
        let bad = |what: String| Error::bad_file(named(file), what);
        let certificates = X509::stack_from_pem(pem).map_err(|stack| {
            bad(format!(
                "{NO_CREDENTIAL}certificate: {}",
                crate::error::reasons(&stack)
            ))
        })?;
        if certificates.is_empty() {
            return Err(bad(format!(
                "{NO_CREDENTIAL}certificate: there is none in it"
            )));
        }
        if certificates.len() > CHAIN_MAX {
            return Err(bad(format!("more than {CHAIN_MAX} certificates")));
        }
        let chain = ordered(certificates, &key).map_err(bad)?;
        Self::of_files(key, chain, file.map(PathBuf::from), sources)
    }

    /// Puts together what belongs together; `chain` is in order, leaf first.
    pub(crate) fn new(key: PKey<Private>, chain: Vec<X509>, file: Option<PathBuf>) -> Result<Self> {
        Self::of_files(key, chain, file, SourceFiles::new())
    }

    fn of_files(
        key: PKey<Private>,
        chain: Vec<X509>,
        file: Option<PathBuf>,
        sources: SourceFiles,
    ) -> Result<Self> {
        let identity = identity_of(&chain)?;
        let dates = dates_of(&chain)?;
        Ok(Self(Arc::new(CredentialData {
            proof: IdentityProof::Certificate { key, chain },
            identity,
            dates,
            file,
            sources,
            contexts: Contexts::default(),
        })))
    }

    /// Reads the key that the members of a cluster share; it must be ours alone.
    pub fn from_cluster_key(path: &Path) -> Result<Self> {
        let keys =
            ClusterKeys::parse(&read_key(path)?).map_err(|what| Error::bad_file(path, what))?;
        Ok(Self::shared(keys, Some(path.into())))
    }

    /// Returns the credential of members by address. It proves nothing: the acceptor has checked
    /// the peer's address.
    pub fn by_address() -> Self {
        Self::shared(ClusterKeys::by_address(), None)
    }

    /// Accepts members by their address too, for a peer that comes from such an address. A
    /// certificate stays as it is.
    pub fn or_by_address(self) -> Self {
        match &self.0.proof {
            IdentityProof::Shared(keys) => Self::shared(keys.or_by_address(), self.0.file.clone()),
            IdentityProof::Certificate { .. } | IdentityProof::Nothing(_) => self,
        }
    }

    /// Returns the empty credential of a TLS client that logs in later. All its connections to one
    /// server should share it, since some servers require that.
    pub fn nobody() -> Self {
        Self::of_proof(
            Identity::named("nobody"),
            IdentityProof::Nothing(ResumableSession::default()),
            None,
        )
    }

    /// Returns the slot for a server's session, if the credential is empty.
    pub(crate) fn agreed(&self) -> Option<&ResumableSession> {
        match &self.0.proof {
            IdentityProof::Nothing(kept) => Some(kept),
            _ => None,
        }
    }

    /// Returns the error for a refused cluster key, if we showed one and the reply is about it (RFC
    /// 2228: 535).
    pub fn key_refused(&self, code: u16, said: &str) -> Option<Error> {
        let keys = self.keys().filter(|_| code == 535)?;
        let what = match (&self.0.file, self.0.identity.is_by_address()) {
            (_, true) => "membership by address".into(),
            (None, false) => format!("the cluster key {}", keys.id()),
            (Some(file), false) => format!("the cluster key {} ({})", keys.id(), file.display()),
        };
        Some(Error::key_refused(what, said))
    }

    pub(crate) fn shared(keys: ClusterKeys, file: Option<PathBuf>) -> Self {
        Self::of_proof(keys.identity(), IdentityProof::Shared(keys), file)
    }

    fn of_proof(identity: Identity, proof: IdentityProof, file: Option<PathBuf>) -> Self {
        Self(Arc::new(CredentialData {
            identity,
            proof,
            dates: SystemTime::UNIX_EPOCH..SystemTime::UNIX_EPOCH + NEVER,
            file,
            sources: SourceFiles::new(),
            contexts: Contexts::default(),
        }))
    }

    /// Returns the keys, if it is not by a certificate that it proves something.
    pub(crate) fn keys(&self) -> Option<&ClusterKeys> {
        match &self.0.proof {
            IdentityProof::Shared(keys) => Some(keys),
            IdentityProof::Certificate { .. } | IdentityProof::Nothing(_) => None,
        }
    }

    /// Returns how people name the key of the cluster, which tells nothing of it.
    pub fn key_id(&self) -> Option<&str> {
        self.keys().map(ClusterKeys::id)
    }

    /// Returns the identity that the credential names.
    pub fn identity(&self) -> Identity {
        self.0.identity.clone()
    }

    /// Returns when it expires: when the first certificate of the chain does.
    pub fn not_after(&self) -> SystemTime {
        self.0.dates.end
    }

    /// Tells whether it is a proxy, and not its owner's own certificate.
    pub fn is_proxy(&self) -> bool {
        let leaf = self.chain().first();
        leaf.is_some_and(|leaf| matches!(ProxyKind::of(leaf), Ok(Some(_))))
    }

    /// Returns the issuer of the last certificate of the chain: the authority.
    pub fn authority(&self) -> String {
        let last = self.chain().last();
        last.map_or_else(|| "nobody".into(), |last| slashed(last.issuer_name()))
    }

    /// Returns the file it was read from.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// Returns the kind and length of its key: `RSA 2048`.
    pub fn key_kind(&self) -> String {
        let Ok(key) = self.key() else {
            return "shared 256".into();
        };
        let kind = match key.id() {
            openssl::pkey::Id::RSA => "RSA",
            openssl::pkey::Id::EC => "EC",
            openssl::pkey::Id::ED25519 => "Ed25519",
            _ => "other",
        };
        format!("{kind} {}", key.bits())
    }

    /// Returns the whole as a proxy file has it: leaf, key, chain. Keep it secret.
    pub fn to_pem(&self) -> Result<Vec<u8>> {
        let doing = "writing a credential";
        let mut pem = self.leaf()?.to_pem().doing(doing)?;
        // The traditional form of an RSA key, which the oldest readers want.
        let key = self.key()?;
        let key = match key.rsa() {
            Ok(rsa) => rsa.private_key_to_pem(),
            Err(_) => key.private_key_to_pem_pkcs8(),
        };
        pem.extend(key.doing(doing)?);
        for certificate in &self.chain()[1..] {
            pem.extend(certificate.to_pem().doing(doing)?);
        }
        Ok(pem)
    }

    /// Returns the whole credential as it is handed over for the data connections of a session
    /// (DCSC). Certificates after the key are trusted there, so a self-signed certificate is
    /// written twice.
    pub fn to_session_pem(&self) -> Result<Vec<u8>> {
        let mut pem = self.to_pem()?;
        if is_self_signed(self.leaf()?) {
            pem.extend(self.leaf()?.to_pem().doing("writing a credential")?);
        }
        Ok(pem)
    }

    /// Makes a proxy of this credential with a new key.
    pub fn proxy(&self, wanted: &NewProxy) -> Result<Self> {
        let key = match wanted.key {
            KeyKind::Rsa(2048) => keys::ready_rsa()?,
            KeyKind::Rsa(bits) => keys::rsa(bits)?,
            KeyKind::Elliptic => keys::elliptic()?,
        };
        let kind = match wanted.limited {
            true => ProxyKind::Limited,
            false => ProxyKind::Full,
        };
        let not_after = when::after(SystemTime::now(), wanted.lifetime);
        let leaf = self.sign(&key, kind, not_after, wanted.depth_max)?;
        let chain = [vec![leaf], self.chain().to_vec()].concat();
        Self::new(key, chain, None)
    }

    /// Signs a proxy for a key that another process keeps.
    pub(crate) fn sign<T: HasPublic>(
        &self,
        key: &PKeyRef<T>,
        kind: ProxyKind,
        not_after: SystemTime,
        depth_max: Option<u8>,
    ) -> Result<X509> {
        self.check_dates(SystemTime::now())?;
        let leaf = self.leaf()?;
        let kind = match kind {
            // A verifier would accept it for no more than its issuer.
            ProxyKind::Full if self.0.identity.limited => ProxyKind::Limited,
            kind => kind,
        };
        if proxy::ends_the_chain(leaf)? {
            return Err(Error::no_delegation(
                slashed(leaf.subject_name()),
                "no proxy may follow it (its path length is 0)",
            ));
        }
        let starts = dates::moment(leaf.not_before())?;
        let wanted = ProxyRequest {
            kind,
            not_before: (SystemTime::now() - CLOCK_SKEW).max(starts),
            not_after: not_after.min(self.not_after()),
            depth_max,
        };
        proxy::sign(leaf, self.key()?, key, &wanted)
    }

    /// Refuses a credential that has expired or is not valid yet.
    pub fn check_dates(&self, now: SystemTime) -> Result<()> {
        // Asked for each file.
        if self.0.dates.contains(&now) {
            return Ok(());
        }
        for certificate in self.chain() {
            check_dates(certificate, now, CertificateOwner::Us)
                .map_err(|error| error.of_ours(self.0.file.as_ref()))?;
        }
        Ok(())
    }

    pub(crate) fn leaf(&self) -> Result<&X509Ref> {
        Ok(self.chain().first().ok_or_else(no_certificate)?)
    }

    /// Returns the certificates, leaf first; none of a cluster's shared key.
    pub(crate) fn chain(&self) -> &[X509] {
        match &self.0.proof {
            IdentityProof::Certificate { chain, .. } => chain,
            IdentityProof::Shared(_) | IdentityProof::Nothing(_) => &[],
        }
    }

    pub(crate) fn key(&self) -> Result<&PKeyRef<Private>> {
        match &self.0.proof {
            IdentityProof::Certificate { key, .. } => Ok(key),
            IdentityProof::Shared(_) | IdentityProof::Nothing(_) => Err(no_certificate()),
        }
    }

    pub(crate) fn contexts(&self) -> &Contexts {
        &self.0.contexts
    }
}

/// Never the key.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("identity", &self.0.identity.subject)
            .field("not_after", &when::utc(self.not_after()))
            .field("file", &self.0.file)
            .finish_non_exhaustive()
    }
}

/// How an encrypted key is opened.
#[derive(Clone, Copy, Debug, Default)]
pub enum Passphrase<'a> {
    /// Not at all: it is refused.
    #[default]
    Never,
    /// By asking at the terminal.
    Ask,
    /// With these bytes.
    Given(&'a [u8]),
}

/// Properties of a new proxy.
#[derive(Clone, Debug)]
pub struct NewProxy {
    /// Files yes, jobs no.
    pub limited: bool,
    /// How long it lives; never longer than what signs it.
    pub lifetime: Duration,
    /// Its key.
    pub key: KeyKind,
    /// How many proxies may be made of it in turn; any number if `None`.
    pub depth_max: Option<u8>,
}

impl Default for NewProxy {
    fn default() -> Self {
        Self {
            limited: false,
            lifetime: Duration::from_secs(12 * 3600),
            key: KeyKind::default(),
            depth_max: None,
        }
    }
}

/// The kind of a new key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyKind {
    /// RSA of that many bits. Globus servers can delegate to nothing else.
    Rsa(u32),
    /// The curve P-256: quick, small, and no delegation to Globus servers.
    Elliptic,
}

impl Default for KeyKind {
    fn default() -> Self {
        Self::Rsa(2048)
    }
}

fn no_certificate() -> Error {
    Error::bad_request("the key of a cluster is no certificate: nothing can be made of it")
}

/// Refuses a certificate that has expired or is not valid yet.
pub(crate) fn check_dates(
    certificate: &X509Ref,
    now: SystemTime,
    ours: CertificateOwner,
) -> Result<()> {
    let subject = || slashed(certificate.subject_name());
    let file = None;
    let at = dates::moment(certificate.not_after())?;
    if at <= now {
        return Err(Error::expired(subject(), ours, at, now, file));
    }
    let from = dates::moment(certificate.not_before())?;
    if from > now {
        return Err(Error::not_yet(subject(), ours, from, now, file));
    }
    Ok(())
}

/// Returns when all certificates of a chain are believed; never, if there are none.
fn dates_of(chain: &[X509]) -> Result<Range<SystemTime>> {
    let mut dates: Option<Range<SystemTime>> = None;
    for certificate in chain {
        let from = dates::moment(certificate.not_before())?;
        let until = dates::moment(certificate.not_after())?;
        dates = Some(match dates {
            None => from..until,
            Some(dates) => dates.start.max(from)..dates.end.min(until),
        });
    }
    Ok(dates.unwrap_or(SystemTime::UNIX_EPOCH..SystemTime::UNIX_EPOCH))
}

/// Returns the identity of a chain, without checking it.
pub(crate) fn identity_of(chain: &[X509]) -> Result<Identity> {
    let mut identity = Identity::named("");
    identity.chain = chain.iter().map(|c| slashed(c.subject_name())).collect();
    for certificate in chain {
        let not_after = dates::moment(certificate.not_after())?;
        let first = identity
            .not_after
            .map_or(not_after, |first| first.min(not_after));
        identity.not_after = Some(first);
    }
    for certificate in chain {
        match ProxyKind::of(certificate)? {
            Some(ProxyKind::Limited) => identity.limited = true,
            Some(_) => {}
            None => {
                identity.subject = slashed(certificate.subject_name());
                return Ok(identity);
            }
        }
    }
    Err(Error::bad_chain(
        identity.chain.first().cloned().unwrap_or_default(),
        "the certificate of its owner is not among those shown, only proxies",
    ))
}

/// Puts the certificate of `key` first and behind each the one that signed it.
fn ordered(mut certificates: Vec<X509>, key: &PKeyRef<Private>) -> Result<Vec<X509>, String> {
    let is_ours = |certificate: &X509| {
        certificate
            .public_key()
            .is_ok_and(|public| public.public_eq(key))
    };
    let at = certificates
        .iter()
        .position(is_ours)
        .ok_or("the key does not belong to the certificate")?;
    let mut chain = vec![certificates.remove(at)];
    while let Some(last) = chain.last() {
        let is_next = |c: &X509| {
            let same = c.subject_name().try_cmp(last.issuer_name());
            same.is_ok_and(|order| order == Ordering::Equal) && !is_self_signed(c)
        };
        let Some(at) = certificates.iter().position(is_next) else {
            break;
        };
        chain.push(certificates.remove(at));
    }
    Ok(chain)
}

pub(crate) fn is_self_signed(certificate: &X509Ref) -> bool {
    let same = certificate
        .subject_name()
        .try_cmp(certificate.issuer_name());
    same.is_ok_and(|order| order == Ordering::Equal)
}

fn private_key(pem: &[u8], passphrase: Passphrase<'_>, path: &Path) -> Result<PKey<Private>> {
    let is_locked = Cell::new(false);
    let key = match passphrase {
        // Else the library would ask at the terminal.
        Passphrase::Never => PKey::private_key_from_pem_callback(pem, |_| {
            is_locked.set(true);
            Err(ErrorStack::get())
        }),
        Passphrase::Ask => PKey::private_key_from_pem(pem),
        Passphrase::Given(words) => PKey::private_key_from_pem_passphrase(pem, words),
    };
    let path = path.to_owned();
    key.map_err(|stack| {
        let said = crate::error::reasons(&stack);
        match is_locked.get() {
            true => Error::encrypted(path),
            false if said.contains("bad decrypt") => {
                Error::bad_file(path, "that is not its passphrase")
            }
            false => Error::bad_file(path, format!("{NO_CREDENTIAL}private key: {said}")),
        }
    })
}

/// Reads a file that must be ours alone.
pub(crate) fn read_key(path: &Path) -> Result<Vec<u8>> {
    Ok(read_key_by(path, &|path| File::open(path))?.0)
}

fn read_key_by(path: &Path, open: OpenFile<'_>) -> Result<(Vec<u8>, Stamp)> {
    let io = |cause| Error::io(path, cause);
    let file = open(path).map_err(io)?;
    // Of the opened file, so that it cannot be swapped in between.
    let meta = file.metadata().map_err(io)?;
    let exposed = |what: String| Error::exposed(path, what);
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(exposed(format!(
            "others may use it (mode {mode:04o}, at most 0600 is safe)"
        )));
    }
    let (owner, us) = (meta.uid(), rustix::process::geteuid().as_raw());
    if owner != us && owner != 0 {
        return Err(exposed(format!(
            "belongs to user {owner}, not to us (user {us})"
        )));
    }
    Ok((read_open(file, path)?, Stamp::of(&meta)))
}

/// Reads a file that is not secret.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    Ok(read_stamped(path)?.0)
}

fn read_stamped(path: &Path) -> Result<(Vec<u8>, Stamp)> {
    let io = |cause| Error::io(path, cause);
    let file = File::open(path).map_err(io)?;
    let stamp = Stamp::of(&file.metadata().map_err(io)?);
    Ok((read_open(file, path)?, stamp))
}

fn read_open(file: File, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|cause| Error::io(path, cause))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::bad_file(
            path,
            format!("is larger than {FILE_BYTES_MAX} bytes"),
        ));
    }
    Ok(bytes)
}

/// Keys of a cluster do not expire: the end of the year 9999.
const NEVER: Duration = Duration::from_secs(253_402_300_799);

/// Longer chains than exist: a proxy of a proxy of a proxy is three.
pub(crate) const CHAIN_MAX: usize = 32;

/// The revocation lists of the largest authorities have some megabytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
