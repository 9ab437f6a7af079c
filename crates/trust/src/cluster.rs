//! Keys that the members of a cluster share: external pre-shared keys of TLS with fresh secrets for
//! each connection (RFC 8446, 4.2.11).
//!
//! Such a key proves that the peer is a member, not which one. Members by address use a public key,
//! and so prove nothing. But they must answer our messages. Bytes that an attacker makes a server
//! send to us do not answer (RFC 2577, bounce).

use crate::{
    Error, Identity, Result,
    error::Doing,
    handshake::{Role, resume_never},
    identity::ProofKind,
};
use godwit_core::{hex, unhex};
use openssl::{
    error::ErrorStack,
    ex_data::Index,
    rand::rand_bytes,
    sha::Sha256,
    ssl::{Ssl, SslContext, SslContextBuilder, SslMethod, SslRef, SslVerifyMode, SslVersion},
};
use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, LazyLock},
};

/// Keys of a cluster, any of which counts. We show the first ourselves.
#[derive(Clone)]
pub(crate) struct ClusterKeys(Arc<[ClusterKey]>);

#[derive(Clone)]
struct ClusterKey {
    id: String,
    secret: [u8; SECRET_BYTES],
}

/// Makes a key for a cluster in a new file that only its owner may read; returns its id.
pub fn new_key(path: &Path) -> Result<String> {
    let mut secret = [0; SECRET_BYTES];
    rand_bytes(&mut secret).doing("making a key")?;
    let id = ClusterKey::of(secret).id;
    let io = |cause: std::io::Error| match cause.kind() {
        std::io::ErrorKind::AlreadyExists => Error::exists(path),
        _ => Error::io(path, cause),
    };
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let text = format!("{}\n", hex(&secret));
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(io)?;
    Ok(id)
}

impl ClusterKeys {
    /// Reads a file: 64 hexadecimal digits. An error does not repeat the text.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let digits = bytes.trim_ascii();
        let digits = std::str::from_utf8(digits).ok().and_then(unhex);
        let secret = digits.and_then(|secret| secret.try_into().ok());
        let secret = secret.ok_or("is no cluster key: those are 64 hexadecimal digits")?;
        Ok(Self([ClusterKey::of(secret)].into()))
    }

    pub(crate) fn by_address() -> Self {
        Self([ClusterKey::of_nobody()].into())
    }

    pub(crate) fn or_by_address(&self) -> Self {
        Self(
            self.0
                .iter()
                .cloned()
                .chain([ClusterKey::of_nobody()])
                .collect(),
        )
    }

    /// Returns how people name the key that we show.
    pub(crate) fn id(&self) -> &str {
        self.0.first().map_or("", |key| &key.id)
    }

    /// Returns the identity of a holder of the key.
    pub(crate) fn identity(&self) -> Identity {
        Identity::member(by(self.id()), None)
    }

    /// Sets the engine.
    pub(crate) fn context(&self, role: Role) -> Result<SslContextBuilder, ErrorStack> {
        let mut context = SslContext::builder(SslMethod::tls())?;
        context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        // RFC 8446, 4.2.11: a key has one hash function, and this is ours.
        context.set_ciphersuites("TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256")?;
        resume_never(&mut context)?;
        match role {
            // A server that shows a certificate instead is refused.
            Role::Initiator | Role::Visitor => {
                context.set_verify_callback(SslVerifyMode::PEER, |_, _| false);
            }
            // The client shows none, and so the engine asks for none.
            Role::Acceptor | Role::Host => context.set_verify(SslVerifyMode::NONE),
        }
        let keys = self.clone();
        context.set_psk_client_callback(move |_, _, said, secret| Ok(keys.show(said, secret)));
        let keys = self.clone();
        context.set_psk_server_callback(move |ssl, said, secret| keys.find(ssl, said, secret));
        Ok(context)
    }

    /// Makes a server accept members by these keys, besides clients with certificates.
    pub(crate) fn let_in(&self, context: &mut SslContextBuilder) {
        let keys = self.clone();
        context.set_psk_server_callback(move |ssl, said, secret| keys.find(ssl, said, secret));
    }

    /// Fills in the client's identity, ended by a zero, and its secret.
    fn show(&self, said: &mut [u8], secret: &mut [u8]) -> usize {
        let Some(key) = self.0.first() else { return 0 };
        let text = format!("{MARK} {} {}\0", key.id, our_name());
        if text.len() > said.len() || SECRET_BYTES > secret.len() {
            return 0;
        }
        said[..text.len()].copy_from_slice(text.as_bytes());
        secret[..SECRET_BYTES].copy_from_slice(&key.secret);
        SECRET_BYTES
    }

    /// Finds the secret for a client's identity, and notes the identity.
    fn find(
        &self,
        ssl: &mut SslRef,
        said: Option<&[u8]>,
        secret: &mut [u8],
    ) -> Result<usize, ErrorStack> {
        let Some(said) = said.and_then(MemberClaim::parse) else {
            return Ok(0);
        };
        let key = self.0.iter().find(|key| key.id == said.id);
        ssl.set_ex_data(*SAID, said);
        match key {
            Some(key) if SECRET_BYTES <= secret.len() => {
                secret[..SECRET_BYTES].copy_from_slice(&key.secret);
                Ok(SECRET_BYTES)
            }
            _ => Ok(0),
        }
    }

    /// Says why a handshake failed.
    pub(crate) fn why_not(&self, ssl: &SslRef, said: String, file: Option<&Path>) -> Error {
        let is_ours = |id: &str| self.0.iter().any(|key| key.id == id);
        match ssl.ex_data(*SAID) {
            Some(MemberClaim { id, .. }) if !is_ours(id) && id == ADDRESS => {
                Error::no_member("it says only where it comes from, which does not count here")
            }
            Some(MemberClaim { id, .. }) if !is_ours(id) => {
                Error::other_key(id.clone(), self.id(), file.map(Into::into))
            }
            _ => Error::no_member(said),
        }
    }
}

/// Returns the identity of the peer in a handshake by a key.
pub(crate) fn met(ssl: &SslRef) -> Result<Identity> {
    // TLS reports an external key as a resumed session.
    if !ssl.session_reused() {
        return Err(Error::no_member("it got through without"));
    }
    Ok(match ssl.ex_data(*SAID) {
        Some(said) => Identity::member(by(&said.id), said.name.as_deref()),
        None => Identity::member(ProofKind::Key, None),
    })
}

impl ClusterKey {
    fn of(secret: [u8; SECRET_BYTES]) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"godwit cluster key\0");
        hash.update(&secret);
        let id = hex(&hash.finish()[..ID_BYTES]);
        Self { id, secret }
    }

    fn of_nobody() -> Self {
        Self {
            id: ADDRESS.into(),
            secret: [0; SECRET_BYTES],
        }
    }
}

/// Claim of a client before its proof.
struct MemberClaim {
    id: String,
    name: Option<String>,
}

impl MemberClaim {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let (mark, id, name) = (words.next()?, words.next()?, words.next());
        let is_id = id.len() <= 2 * ID_BYTES && id.bytes().all(|b| b.is_ascii_alphanumeric());
        (mark == MARK && is_id).then(|| Self {
            id: id.into(),
            name: name.filter(|name| is_name(name)).map(Into::into),
        })
    }
}

fn by(id: &str) -> ProofKind {
    match id {
        ADDRESS => ProofKind::Address,
        _ => ProofKind::Key,
    }
}

/// Returns the name of this machine, as far as it can be said.
fn our_name() -> String {
    let name = godwit_sys::host_name().filter(|name| is_name(name));
    name.unwrap_or_else(|| "unnamed".into())
}

/// Goes into a log, and so is short and plain.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

static SAID: LazyLock<Index<Ssl, MemberClaim>> =
    LazyLock::new(|| Ssl::new_ex_index().expect("the TLS library has room for a pointer"));

const MARK: &str = "godwit1";
/// Id of the public key, for members by address.
const ADDRESS: &str = "address";
const SECRET_BYTES: usize = 32;
const ID_BYTES: usize = 8;
/// The TLS library takes 128 bytes of all, at least.
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Authorities, Channel, Context, Credential, Delegate, Expect, KeyKind,
        lab::{Ca, Issue},
    };
    use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

    fn key(dir: &tempfile::TempDir, name: &str) -> Credential {
        let path = dir.path().join(name);
        new_key(&path).unwrap();
        Credential::from_cluster_key(&path).unwrap()
    }

    /// Token by token until both are done, or one refuses.
    fn meet(client: &Credential, server: &Credential) -> Result<(Channel, Channel)> {
        let nobody = Authorities::none();
        let (mut client, first) =
            Channel::initiate(client, &nobody, Expect::Myself, Delegate::Limited)?;
        let mut server = Channel::accept(server, &nobody)?;
        let mut token = first;
        loop {
            let Some(back) = server.step(&token)?.token else {
                return Ok((client, server));
            };
            let Some(next) = client.step(&back)?.token else {
                return Ok((client, server));
            };
            token = next;
        }
    }

    fn refusal(client: &Credential, server: &Credential) -> Error {
        meet(client, server).expect_err("must be refused")
    }

    #[test]
    fn key_holder_is_a_member() {
        let dir = tempfile::tempdir().unwrap();
        let ours = key(&dir, "key");
        let (mut client, mut server) = meet(&ours, &ours).unwrap();
        for channel in [&client, &server] {
            let peer = channel.peer().unwrap();
            assert!(peer.is_member() && !peer.is_by_address());
            assert_eq!(
                peer,
                &Identity {
                    chain: peer.chain.clone(),
                    ..ours.identity()
                }
            );
            assert!(
                channel.protection().starts_with("TLSv1.3"),
                "{}",
                channel.protection()
            );
        }
        let called = server.peer().unwrap().chain()[0].clone();
        assert_eq!(called, format!("{}/CN={}", ours.identity(), our_name()));
        assert!(server.delegated().is_none());
        let sealed = client.wrap(b"NOOP").unwrap();
        assert!(!sealed.windows(4).any(|bytes| bytes == b"NOOP"));
        assert_eq!(server.unwrap(&sealed).unwrap(), b"NOOP");
        let sealed = server.wrap(b"200").unwrap();
        assert_eq!(client.unwrap(&sealed).unwrap(), b"200");
    }

    #[test]
    fn other_key_is_refused_without_disclosure() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (key(&dir, "ours"), key(&dir, "theirs"));
        let error = refusal(&theirs, &ours);
        let said = error.to_string();
        for credential in [&ours, &theirs] {
            assert!(said.contains(credential.key_id().unwrap()), "{said}");
        }
        assert!(
            error.hint().unwrap().contains("/ours"),
            "{:?}",
            error.hint()
        );
        let all = format!("{said} {error:?} {ours:?} {:?}", error.hint());
        for name in ["ours", "theirs"] {
            let secret = fs::read_to_string(dir.path().join(name)).unwrap();
            assert!(!all.contains(&secret[..8]), "{all}");
        }
    }

    /// A peer that overheard the id can send it, and must still prove that it has the key.
    #[test]
    fn key_id_is_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let ours = key(&dir, "key");
        let mut guessed = ClusterKey::of([7; SECRET_BYTES]);
        guessed.id = ours.key_id().unwrap().into();
        let thief = Credential::shared(ClusterKeys([guessed].into()), None);
        for (client, server) in [(&thief, &ours), (&ours, &thief)] {
            let error = refusal(client, server);
            assert!(matches!(error, Error::NoMember { .. }), "{error}");
        }
    }

    #[test]
    fn a_certificate_is_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let ours = key(&dir, "key");
        let day = Duration::from_secs(86_400);
        let ca = Ca::init(
            &dir.path().join("ca"),
            "/O=Lab/CN=CA",
            day,
            KeyKind::Elliptic,
        )
        .unwrap();
        let host = Issue {
            key: KeyKind::Elliptic,
            ..Issue::host(&["localhost"])
        };
        let host = ca.issue(&host).unwrap();
        let error = refusal(&ours, &host);
        assert!(matches!(error, Error::NoMember { .. }), "{error}");
        let error = refusal(&host, &ours);
        assert!(matches!(error, Error::NoMember { .. }), "{error}");
    }

    #[test]
    fn address_counts_only_after_check() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, address) = (key(&dir, "key"), Credential::by_address());
        let (_, server) = meet(&address, &ours.clone().or_by_address()).unwrap();
        assert!(server.peer().unwrap().is_by_address());
        let (_, server) = meet(&ours, &ours.clone().or_by_address()).unwrap();
        assert!(!server.peer().unwrap().is_by_address());
        let error = refusal(&address, &ours);
        assert!(error.to_string().contains("does not count here"), "{error}");
        refusal(&ours, &address);
    }

    #[test]
    fn replayed_handshake_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, nobody) = (key(&dir, "key"), Authorities::none());
        let begin = || Channel::accept(&ours, &nobody).unwrap();
        let (mut client, hello) =
            Channel::initiate(&ours, &nobody, Expect::Myself, Delegate::No).unwrap();
        let mut server = begin();
        let back = server.step(&hello).unwrap().token.unwrap();
        let proof = client.step(&back).unwrap().token.unwrap();
        let mut other = begin();
        other.step(&hello).unwrap();
        assert!(other.step(&proof).is_err());
        assert!(other.peer().is_none());
        server.step(&proof).unwrap();
        assert!(server.peer().is_some());
        assert!(server.step(&proof).is_err());
    }

    #[test]
    fn member_receives_no_delegation() {
        let dir = tempfile::tempdir().unwrap();
        let ours = key(&dir, "key");
        let wanted = crate::NewProxy::default();
        for made in [ours.proxy(&wanted).map(drop), ours.to_pem().map(drop)] {
            let error = made.unwrap_err();
            assert!(error.to_string().contains("no certificate"), "{error}");
        }
    }

    #[test]
    fn key_readable_by_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        new_key(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Credential::from_cluster_key(&path).unwrap_err();
            assert!(matches!(error, Error::Exposed { .. }), "{mode:o}: {error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        Credential::from_cluster_key(&path).unwrap();
    }

    #[test]
    fn a_key_is_never_made_over_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        new_key(&path).unwrap();
        let before = fs::read(&path).unwrap();
        assert!(matches!(new_key(&path), Err(Error::Exists { .. })));
        assert_eq!(fs::read(&path).unwrap(), before);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn bad_key_is_refused_without_disclosure() {
        let digits = "0123456789abcdef".repeat(4);
        for good in [digits.clone(), format!("{digits}\n"), digits.to_uppercase()] {
            assert!(ClusterKeys::parse(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in [
            "",
            "hunter2",
            &digits[1..],
            &format!("{digits}0"),
            &digits.replace('f', "g"),
        ] {
            let error = ClusterKeys::parse(bad.as_bytes()).map(drop).unwrap_err();
            assert_eq!(error, "is no cluster key: those are 64 hexadecimal digits");
        }
    }

    #[test]
    fn client_names_are_plain_before_logging() {
        let name = |said: &str| MemberClaim::parse(said.as_bytes()).and_then(|said| said.name);
        assert_eq!(name("godwit1 00ff fermi.lab").as_deref(), Some("fermi.lab"));
        assert_eq!(name("godwit1 00ff a\nb"), None);
        assert!(MemberClaim::parse(b"godwit1 00ff").is_some());
        for bad in [
            &b"godwit2 00ff x"[..],
            b"godwit1",
            b"",
            b"\xff",
            b"godwit1 0\nf x",
            b"godwit1 00ff00ff00ff00ff0 x",
        ] {
            assert!(MemberClaim::parse(bad).is_none(), "{bad:?}");
        }
    }
}
