//! TLS of the door between nodes: the host's certificate, the visitor's, and the proof of each.
//!
//! The engine is handed out as it is, since the HTTP library drives it; its peer is checked here. A
//! node has a key of its own, which others *pin*: then no name, authority or clock counts.

use crate::{
    Authorities, Credential, Error, Expect, Identity, Result,
    channel::{check_expected, shown},
    cluster, context,
    error::Doing,
    handshake::Role,
};
use godwit_core::{hex, unhex};
pub use openssl::ssl::{Ssl, SslRef};
use openssl::{
    ex_data::Index,
    hash::{MessageDigest, hash},
    ssl::{NameType, SniError, SslAlert, SslContext},
    x509::{X509, X509Ref},
};
use std::{
    fmt,
    net::IpAddr,
    str::FromStr,
    sync::{Arc, LazyLock, OnceLock},
    time::SystemTime,
};

/// Hash of a public key (SHA-256 of its SubjectPublicKeyInfo).
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(certificate: &X509Ref) -> Result<Self> {
        let doing = "reading a public key";
        let key = certificate.public_key().doing(doing)?;
        let der = key.public_key_to_der().doing(doing)?;
        let digest = hash(MessageDigest::sha256(), &der).doing(doing)?;
        Ok(Self(digest[..].try_into().expect("SHA-256 has 32 bytes")))
    }

    /// Returns how a visitor asks for this key: a name as TLS knows them, which no host can have.
    pub fn label(&self) -> String {
        format!("{}{LABEL_END}", &self.to_string()[..LABEL_DIGITS])
    }

    /// Returns that of a credential's own key.
    pub fn of_credential(credential: &Credential) -> Result<Self> {
        Self::of(credential.leaf()?)
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::bad_request(format!(
                "'{text}' is no fingerprint of a key: 64 hexadecimal digits"
            ))
        };
        let bytes = unhex(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(wrong)
    }
}

/// Host that a visitor wants to reach.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WantedHost {
    /// The holder of this key.
    Key(Fingerprint),
    /// A host that authorities vouch for.
    Vouched(Expect),
    /// Any host: for public questions only, without a secret.
    Anybody,
}

/// Label of a key that a visitor asked for and that is not shown here; empty until then.
///
/// TLS ends such a connection with an alert only. A caller that knows the way to that key keeps the
/// alert back, and forwards the bytes.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere(Arc<OnceLock<String>>);

impl Elsewhere {
    /// Returns the label of the key that is wanted.
    pub fn label(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Certificates shown at a door: the host's, and our own keys for visitors that ask for one.
pub struct Doorway {
    context: SslContext,
    shown: Vec<Credential>,
    /// How visitors ask for each of our own keys.
    labels: Vec<(String, Fingerprint)>,
    member: Option<Credential>,
}

impl Doorway {
    /// Returns the door that shows `usual`, and each key of `own` to visitors that ask for it.
    ///
    /// Members of a cluster need neither: `member` has their key.
    pub fn of(usual: &Credential, own: &[Credential], member: Option<&Credential>) -> Result<Self> {
        let doing = "using our own certificate";
        let (mut contexts, mut labels) = (Vec::new(), Vec::new());
        for key in own {
            let context = context::make_door(key)?.build();
            let pin = Fingerprint::of_credential(key)?;
            contexts.push((pin.label(), context));
            labels.push((pin.label(), pin));
        }
        let (mut builder, label) = (
            context::make_door(usual)?,
            usual.leaf().and_then(Fingerprint::of)?.label(),
        );
        builder.set_servername_callback(move |ssl, alert| {
            let wanted = ssl.servername(NameType::HOST_NAME).unwrap_or_default();
            match contexts.iter().find(|(label, _)| label == wanted) {
                Some((_, context)) => ssl
                    .set_ssl_context(context)
                    .map_err(|_| SniError::ALERT_FATAL),
                // To show another key would look like an attacker in between.
                None if wanted.ends_with(LABEL_END) && wanted != label => {
                    if let Some(elsewhere) = ssl.ex_data(*ELSEWHERE) {
                        let _ = elsewhere.0.set(wanted.to_owned());
                    }
                    *alert = SslAlert::UNRECOGNIZED_NAME;
                    Err(SniError::ALERT_FATAL)
                }
                None => Ok(()),
            }
        });
        if let Some(keys) = member.and_then(Credential::keys) {
            keys.let_in(&mut builder);
        }
        let shown = [std::slice::from_ref(usual), own].concat();
        let context = builder.build();
        // Made for each connection; that it can be is seen now.
        Ssl::new(&context).doing(doing)?;
        Ok(Self {
            context,
            shown,
            labels,
            member: member.cloned(),
        })
    }

    /// Tells whether these are shown, and members with that key let in.
    pub fn shows(
        &self,
        usual: &Credential,
        own: &[Credential],
        member: Option<&Credential>,
    ) -> bool {
        let key = |member: Option<&Credential>| member?.key_id().map(str::to_owned);
        let is_same = key(self.member.as_ref()) == key(member);
        is_same
            && self
                .shown
                .split_first()
                .is_some_and(|(first, rest)| first == usual && rest == own)
    }

    /// Returns which of our own keys a visitor asked for; `None`: for none that we have.
    pub fn asked(&self, ssl: &SslRef) -> Option<Fingerprint> {
        let wanted = ssl.servername(NameType::HOST_NAME)?;
        let (_, pin) = self.labels.iter().find(|(label, _)| label == wanted)?;
        Some(*pin)
    }

    /// Returns the engine of one connection. Visitors may show a certificate, and need not. A
    /// visitor that asks for an unknown key is refused, and `elsewhere` receives its label.
    pub fn open(&self, elsewhere: &Elsewhere) -> Result<Ssl> {
        let mut ssl = Ssl::new(&self.context).doing("beginning TLS")?;
        ssl.set_ex_data(*ELSEWHERE, elsewhere.clone());
        ssl.set_accept_state();
        Ok(ssl)
    }
}

impl fmt::Debug for Doorway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Doorway").field(&self.shown).finish()
    }
}

/// Returns the engine of one connection to a door; [`Credential::nobody`] shows no certificate.
pub fn visit(credential: &Credential, wanted: &WantedHost, host: &str) -> Result<Ssl> {
    let doing = "beginning TLS";
    if let WantedHost::Vouched(_) = wanted {
        // Keys that know each other do not depend on a clock.
        credential.check_dates(SystemTime::now())?;
    }
    let mut ssl = Ssl::new(context::of(credential, Role::Visitor)?).doing(doing)?;
    ssl.set_connect_state();
    match wanted {
        WantedHost::Key(pin) => ssl.set_hostname(&pin.label()).doing(doing)?,
        WantedHost::Vouched(_) if host.parse::<IpAddr>().is_err() => {
            ssl.set_hostname(host.trim_end_matches('.')).doing(doing)?;
        }
        WantedHost::Vouched(_) | WantedHost::Anybody => {}
    }
    Ok(ssl)
}

/// Checks the visitor's peer, once the handshake is over.
pub fn met(
    ssl: &SslRef,
    wanted: &WantedHost,
    authorities: &Authorities,
    ours: &Credential,
) -> Result<Identity> {
    if ours.keys().is_some() {
        // The holder of the key is the right peer, whatever its name.
        return cluster::met(ssl);
    }
    let shown = shown(ssl);
    match wanted {
        WantedHost::Anybody => Ok(Identity::peer("anybody")),
        WantedHost::Vouched(expect) => {
            let peer = authorities.judge(&shown, SystemTime::now())?;
            check_expected(expect, &peer, &shown, ours)?;
            Ok(peer)
        }
        WantedHost::Key(pin) => {
            let leaf = shown.first().ok_or_else(showed_nothing)?;
            let found = Fingerprint::of(leaf)?;
            match found == *pin {
                true => Ok(Identity::peer(&found.to_string())),
                false => Err(Error::wrong_peer(
                    format!("whoever has the key {pin}"),
                    format!("somebody with the key {found}"),
                )),
            }
        }
    }
}

/// Returns the hash of the key at the other end; `None`: no certificate was shown.
pub fn key_shown(ssl: &SslRef) -> Result<Option<Fingerprint>> {
    shown(ssl)
        .first()
        .map(|leaf| Fingerprint::of(leaf))
        .transpose()
}

/// Certificates that a visitor showed, to be checked when needed.
#[derive(Clone)]
pub struct ShownCertificates(Vec<X509>);

impl ShownCertificates {
    /// Returns the certificates shown; `None`: there were none.
    pub fn of(ssl: &SslRef) -> Option<Self> {
        Some(Self(shown(ssl))).filter(|shown| !shown.0.is_empty())
    }

    /// Returns the hash of the visitor's key.
    pub fn key(&self) -> Result<Fingerprint> {
        Fingerprint::of(self.0.first().ok_or_else(showed_nothing)?)
    }

    /// Returns the identity that an authority vouches for.
    pub fn vouched(&self, authorities: &Authorities) -> Result<Identity> {
        authorities.judge(&self.0, SystemTime::now())
    }
}

impl fmt::Debug for ShownCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShownCertificates")
            .field(&self.key().ok())
            .finish()
    }
}

/// Returns the member of our cluster that visits our door; `None` for other visitors.
pub fn member_visitor(ssl: &SslRef) -> Option<Identity> {
    // No other session is ever resumed here.
    ssl.session_reused()
        .then(|| cluster::met(ssl).ok())
        .flatten()
}

/// Returns the identity of a node that is known here by that name.
pub fn peer(name: &str) -> Identity {
    Identity::peer(name)
}

/// Tells whether the other side knows no way to the key that was asked for.
pub fn is_elsewhere(error: &openssl::ssl::Error) -> bool {
    let stack = error.ssl_error();
    stack.is_some_and(|stack| {
        let mut errors = stack.errors().iter();
        errors.any(|error| error.reason_code() == UNRECOGNIZED_NAME)
    })
}

/// Returns the engine's error: the peer's alert, or our own refusal.
pub use crate::channel::refusal;

fn showed_nothing() -> Error {
    Error::Token("it showed no certificate".into())
}

/// A label of a name has at most 63 characters; the key itself is compared afterwards.
const LABEL_DIGITS: usize = 32;
/// No host can be called so (RFC 6761).
const LABEL_END: &str = ".godwit.invalid";
/// OpenSSL: 1000 and the number of the alert (RFC 6066).
const UNRECOGNIZED_NAME: i32 = 1112;
/// Slot of a connection for the label that its visitor asked for.
static ELSEWHERE: LazyLock<Index<Ssl, Elsewhere>> =
    LazyLock::new(|| Ssl::new_ex_index().expect("a number for our own data is free memory"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab;
    use openssl::ssl::SslStream;
    use std::{os::unix::net::UnixStream, thread, time::Duration};

    fn key() -> (Credential, Fingerprint) {
        let key = lab::throw_away(Duration::from_secs(3600)).unwrap();
        let print = Fingerprint::of_credential(&key).unwrap();
        (key, print)
    }

    /// Connects a visitor that wants `pin` to `door`.
    fn meet(door: Ssl, pin: Fingerprint) -> std::result::Result<Result<Identity>, bool> {
        let (here, there) = UnixStream::pair().unwrap();
        let served = thread::spawn(move || SslStream::new(door, there).unwrap().accept().is_ok());
        let (ours, _) = key();
        let wanted = WantedHost::Key(pin);
        let mut visit = SslStream::new(visit(&ours, &wanted, "fermi").unwrap(), here).unwrap();
        let met = match visit.connect() {
            Ok(()) => Ok(met(visit.ssl(), &wanted, &Authorities::none(), &ours)),
            Err(error) => Err(is_elsewhere(&error)),
        };
        drop(visit);
        let _ = served.join().unwrap();
        met
    }

    #[test]
    fn other_key_is_refused_by_visitor() {
        let ((usual, print), (_, wanted)) = (key(), key());
        let open = || Ssl::new(&context::make_door(&usual).unwrap().build()).unwrap();
        assert!(meet(open(), print).unwrap().is_ok());
        let refused = meet(open(), wanted).unwrap().unwrap_err();
        assert!(matches!(refused, Error::WrongPeer { .. }), "{refused}");
    }

    #[test]
    fn unknown_key_is_elsewhere() {
        let ((host, _), (own, print), (_, wanted)) = (key(), key(), key());
        let door = Doorway::of(&host, std::slice::from_ref(&own), None).unwrap();
        let elsewhere = Elsewhere::default();
        let at_home = meet(door.open(&elsewhere).unwrap(), print);
        assert!(at_home.unwrap().is_ok());
        assert_eq!(elsewhere.label(), None);
        let away = meet(door.open(&elsewhere).unwrap(), wanted);
        assert!(away.unwrap_err(), "another alert than that came");
        assert_eq!(elsewhere.label(), Some(&*wanted.label()));
    }
}
