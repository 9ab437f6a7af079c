//! A Kerberos security context: tokens in, tokens out, no socket (RFC 2228, appendix I, and RFC
//! 4121).
//!
//! One token is sent each way: the ticket with a proof of its freshness, and the server's proof
//! that it could read the ticket. Then the same context wraps lines and, in [`Blocks`], data
//! connections. Keytab and ticket cache belong to the machine's Kerberos.

mod blocks;
mod frames;
mod keys;
mod seen;

pub use blocks::{Blocks, Blockwise};

use crate::{
    Context, ContextStep, Error, Identity, Result, TOKEN_BYTES_MAX,
    error::NoTicket,
    identity::{is_principal, spelled},
};
use godwit_sys::{KerberosContext, KerberosNames, KerberosRefusal, Unwrapped, Wrapping};
use seen::SeenTokens;
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A context in either role.
pub struct Kerberos {
    /// Shared with the data connections of this login.
    context: SharedContext,
    phase: KerberosPhase,
    side: KerberosSide,
    /// Keytab of an acceptor, for the log.
    keytab: Option<PathBuf>,
    peer: Option<Identity>,
    ourselves: Option<String>,
    /// Bytes that the peer sent before it was known.
    taken: usize,
}

type SharedContext = Arc<Mutex<Both>>;

/// A context, and the numbers of its tokens.
struct Both {
    context: KerberosContext,
    /// The library looks for replays; yafc does not ask it to.
    sees_replays: bool,
    seen: SeenTokens,
}

impl Both {
    /// Returns the plain bytes of a protected token, once.
    fn unwrap(&mut self, token: &[u8]) -> Result<Unwrapped> {
        let unwrapped = self.context.unwrap(token).map_err(refusal)?;
        let is_new = match seen::number_of(token) {
            Some(number) => self.seen.note(number),
            // Of an older kind: the library has to know.
            None => unwrapped.in_turn && self.sees_replays,
        };
        match is_new {
            true => Ok(unwrapped),
            false => Err(twice()),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum KerberosSide {
    Initiator,
    Acceptor,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum KerberosPhase {
    /// Tokens go back and forth.
    Underway,
    Done,
    /// An earlier token was wrong.
    Broken,
}

impl Kerberos {
    /// Begins as the server, with the keys of a keytab; `None`: of that which the environment
    /// or the machine names. The first token is the peer's.
    pub fn accept(keytab: Option<&Path>) -> Result<Self> {
        let named = keytab.map(Path::to_owned).or_else(keys::in_environment);
        if let Some(path) = &named {
            // The library's words for this name neither file nor cause.
            fs::File::open(path).map_err(|cause| {
                Error::ticket(
                    NoTicket::Keys,
                    format!("{}: {}", path.display(), crate::error::why(&cause)),
                )
            })?;
        }
        let context =
            KerberosContext::accept(keytab).map_err(|why| no_keys(named.as_deref(), why))?;
        Ok(Self {
            keytab: named.or_else(keys::usual_keytab),
            ..Self::new(context, KerberosSide::Acceptor)
        })
    }

    /// Refuses a keytab or a replay cache with which every login would fail.
    pub fn check_place(keytab: Option<&Path>) -> Result<()> {
        keys::must_be_ours(keytab)?;
        keys::must_be_noted()
    }

    /// Refuses a keytab that others may read or write: they could pass for this host.
    pub fn check_mode(keytab: Option<&Path>) -> Result<()> {
        keys::must_be_kept(keytab)
    }

    /// Begins as the client of a host, with the user's ticket; returns the first token.
    pub fn initiate(host: &str) -> Result<(Self, Vec<u8>)> {
        let mut refused = None;
        for kind in KINDS {
            let target = format!("{kind}@{host}");
            let begun = KerberosContext::initiate(&target)
                .and_then(|mut context| context.step(&[]).map(|stepped| (context, stepped)));
            let error = match begun {
                Ok((context, stepped)) => {
                    return Ok((Self::new(context, KerberosSide::Initiator), stepped.token));
                }
                Err(why) => of_cache(refusal(why)),
            };
            if !matches!(
                &error,
                Error::Ticket {
                    why: NoTicket::UnknownServer,
                    ..
                }
            ) {
                return Err(error);
            }
            refused = Some(error);
        }
        let said = match refused {
            Some(Error::Ticket { said, .. }) => said,
            _ => String::new(),
        };
        let names = KINDS.map(|kind| format!("{kind}/{host}")).join(" nor ");
        Err(Error::ticket(
            NoTicket::UnknownServer,
            format!("the KDC knows neither {names} ({said})"),
        ))
    }

    fn new(context: KerberosContext, side: KerberosSide) -> Self {
        Self {
            context: Arc::new(Mutex::new(Both {
                context,
                sees_replays: false,
                seen: SeenTokens::default(),
            })),
            phase: KerberosPhase::Underway,
            side,
            keytab: None,
            peer: None,
            ourselves: None,
            taken: 0,
        }
    }

    /// Tells whether a first token is one of GSSAPI in its frame (RFC 2743, 3.1), which no
    /// record of TLS begins like.
    pub fn is_token(token: &[u8]) -> bool {
        token.first() == Some(&FRAME)
    }

    /// Learns the peer's identity, once it is proved.
    fn meet(&mut self) -> Result<()> {
        let ends = self.context().context.ends().map_err(refusal)?;
        if !ends.hides || !ends.is_safe {
            let why = "its context does not protect what is said";
            return Err(Error::Token(why.into()));
        }
        self.context().sees_replays = ends.sees_replays;
        let KerberosNames {
            initiator,
            acceptor,
            ..
        } = ends;
        self.peer = Some(match self.side {
            KerberosSide::Initiator => {
                self.ourselves = Some(String::from_utf8_lossy(&initiator).into_owned());
                // Only the log uses this name; often its realm is left to the KDC.
                Identity::named(String::from_utf8_lossy(&acceptor))
            }
            KerberosSide::Acceptor => {
                must_be_for_us(&acceptor)?;
                Identity::by_ticket(&initiator)?
            }
        });
        Ok(())
    }

    /// Returns the principal that an initiator has shown: `alice@REALM`.
    pub fn ourselves(&self) -> Option<&str> {
        self.ourselves.as_deref()
    }

    /// Returns what wraps the bytes of data connections.
    pub fn blockwise(&self) -> Result<Blockwise> {
        self.must_stand()?;
        Ok(Blockwise::new(self.context.clone()))
    }

    fn context(&self) -> MutexGuard<'_, Both> {
        held(&self.context)
    }

    fn must_stand(&self) -> Result<()> {
        match self.phase {
            KerberosPhase::Done => Ok(()),
            _ => Err(Error::Token(
                "a protected message where no context stands".into(),
            )),
        }
    }
}

impl Context for Kerberos {
    fn step(&mut self, token: &[u8]) -> Result<ContextStep> {
        self.taken += token.len();
        let phase = std::mem::replace(&mut self.phase, KerberosPhase::Broken);
        if phase != KerberosPhase::Underway {
            return Err(Error::Token("it goes on after its end".into()));
        }
        if self.taken > TOKEN_BYTES_MAX {
            return Err(Error::Token(format!(
                "more than {TOKEN_BYTES_MAX} bytes in tokens"
            )));
        }
        if self.side == KerberosSide::Acceptor && !is_of_kerberos(token) {
            return Err(Error::Token("what came is no token of Kerberos".into()));
        }
        let stepped = self.context().context.step(token);
        let stepped = stepped.map_err(|why| in_keytab(self.keytab.as_deref(), refusal(why)))?;
        if stepped.stands {
            self.meet().map_err(|error| match self.side {
                KerberosSide::Initiator => of_cache(error),
                KerberosSide::Acceptor => error,
            })?;
        }
        self.phase = match stepped.stands {
            true => KerberosPhase::Done,
            false => KerberosPhase::Underway,
        };
        Ok(ContextStep {
            token: Some(stepped.token).filter(|token| !token.is_empty()),
            done: stepped.stands,
        })
    }

    fn wrap(&mut self, clear: &[u8]) -> Result<Vec<u8>> {
        self.must_stand()?;
        self.context()
            .context
            .wrap(clear, Wrapping::Private)
            .map_err(refusal)
    }

    /// Readably or not: `MIC` or `ENC`.
    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>> {
        self.must_stand()?;
        let unwrapped = self.context().unwrap(token);
        if unwrapped.is_err() {
            self.phase = KerberosPhase::Broken;
        }
        Ok(unwrapped?.clear)
    }

    fn peer(&self) -> Option<&Identity> {
        self.peer.as_ref()
    }
}

impl fmt::Debug for Kerberos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kerberos")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// Returns the identity of a proved ticket: `alice@REALM`. A principal that looks like a
    /// certificate's subject is refused.
    fn by_ticket(principal: &[u8]) -> Result<Self> {
        let mut name = String::new();
        for &byte in principal {
            match byte {
                b' '..=b'~' => name.push(char::from(byte)),
                _ => name.push_str(&format!("\\x{byte:02X}")),
            }
        }
        match is_principal(&name) && spelled(&name) == name {
            true => Ok(Self::named(name)),
            false => Err(Error::Token(format!(
                "{name} is no name that can be told from others"
            ))),
        }
    }
}

/// Refuses a ticket for another service of this host. That service may be less trusted than we are.
fn must_be_for_us(acceptor: &[u8]) -> Result<()> {
    let is_ours = |kind: &str| {
        let rest = acceptor.strip_prefix(kind.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    };
    match KINDS.iter().any(|kind| is_ours(kind)) {
        true => Ok(()),
        false => Err(Error::Token(format!(
            "the ticket is for {}, and neither for ftp nor for host",
            String::from_utf8_lossy(acceptor)
        ))),
    }
}

/// Tells whether a first token is Kerberos' own by its frame. Negotiation (SPNEGO) would admit
/// other mechanisms.
fn is_of_kerberos(token: &[u8]) -> bool {
    let behind_length = match token {
        [FRAME, 0..=0x7f, rest @ ..] => rest,
        [FRAME, 0x81, _, rest @ ..] => rest,
        [FRAME, 0x82, _, _, rest @ ..] => rest,
        [FRAME, 0x83, _, _, _, rest @ ..] => rest,
        _ => return false,
    };
    behind_length.starts_with(KERBEROS)
}

/// Fuzz target for bytes of an unknown peer and for frames.
pub(crate) fn feed(bytes: &[u8]) {
    if is_of_kerberos(bytes) {
        assert!(Kerberos::is_token(bytes));
    }
    seen::number_of(bytes);
    if let Ok(who) = Identity::by_ticket(bytes) {
        assert!(crate::is_name(who.subject()) && !who.subject().starts_with('/'));
    }
    let mut frames = frames::Frames::new(100);
    for piece in bytes.chunks(7) {
        frames.take_in(piece);
        while let Ok(Some(block)) = frames.next() {
            assert!(block.len() <= 100);
        }
    }
}

fn twice() -> Error {
    Error::Token("a protected message came twice".into())
}

fn held(context: &SharedContext) -> MutexGuard<'_, Both> {
    context.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_keys(keytab: Option<&Path>, why: KerberosRefusal) -> Error {
    match why {
        KerberosRefusal::Missing { .. } => refusal(why),
        KerberosRefusal::No { said, .. } => Error::ticket(
            NoTicket::Keys,
            match keytab {
                Some(path) => format!("{}: {said}", path.display()),
                None => said,
            },
        ),
    }
}

/// Names the keytab whose keys do not fit a ticket.
fn in_keytab(keytab: Option<&Path>, error: Error) -> Error {
    match (keytab, error) {
        (Some(path), Error::Ticket { why, said }) if why == NoTicket::Keytab => {
            Error::ticket(why, format!("{}: {said}", path.display()))
        }
        (_, error) => error,
    }
}

/// Names the cache whose ticket has expired.
fn of_cache(error: Error) -> Error {
    match (error, KerberosContext::cache()) {
        (Error::Ticket { why, said }, Some(cache)) if why == NoTicket::Expired => {
            Error::ticket(why, format!("{said} (in {cache})"))
        }
        (error, _) => error,
    }
}

fn refusal(why: KerberosRefusal) -> Error {
    let (major, minor, said) = match why {
        KerberosRefusal::Missing { library, said } => return Error::no_kerberos(library, said),
        KerberosRefusal::No { major, minor, said } => (major, minor, said),
    };
    let why = match minor.wrapping_sub(KRB5) {
        7 => NoTicket::UnknownServer,
        32 => NoTicket::Expired,
        33 | 37 => NoTicket::Clock,
        // Of the ticket's key: not this one, not ours, not this version, none; of a keytab: no entry.
        31 | 35 | 44 | 45 | 144 | 181 | 230 => NoTicket::Keytab,
        156 => NoTicket::NoKdc,
        _ => match major >> 16 {
            NO_CREDENTIAL => NoTicket::Nothing,
            // Reported when a new context is queried.
            EXPIRED | CONTEXT_EXPIRED => NoTicket::Expired,
            _ => NoTicket::Other,
        },
    };
    let said = match major >> 16 {
        CONTEXT_EXPIRED => "the ticket has expired".into(),
        _ => said,
    };
    Error::ticket(why, said)
}

/// Services of a server, before the slash, in the order in which clients ask for them.
const KINDS: [&str; 2] = ["ftp", "host"];
const FRAME: u8 = 0x60;
/// The number of Kerberos as DER has it: 1.2.840.113554.1.2.2.
const KERBEROS: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
/// Offset of Kerberos' own error numbers.
const KRB5: i32 = -1_765_328_384;
const NO_CREDENTIAL: u32 = 7;
const EXPIRED: u32 = 11;
const CONTEXT_EXPIRED: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_mechanism_token_is_not_kerberos() {
        let framed =
            |length: &[u8], number: &[u8]| [&[FRAME], length, number, b"\x01\x00"].concat();
        for length in [
            &b"\x20"[..],
            b"\x81\x90",
            b"\x82\x02\x00",
            b"\x83\x01\x00\x00",
        ] {
            assert!(is_of_kerberos(&framed(length, KERBEROS)));
            let spnego = b"\x06\x06\x2b\x06\x01\x05\x05\x02";
            assert!(!is_of_kerberos(&framed(length, spnego)));
        }
        for wrong in [
            &b""[..],
            b"\x60",
            b"\x60\x82",
            b"\x16\x03\x01",
            &framed(b"\x88", KERBEROS),
        ] {
            assert!(!is_of_kerberos(wrong));
        }
    }

    #[test]
    fn clock_and_key_errors_are_distinct() {
        let why = |code: i32| {
            let (major, minor, said) = (13 << 16, KRB5 + code, String::new());
            match refusal(KerberosRefusal::No { major, minor, said }) {
                Error::Ticket { why, .. } => why,
                other => panic!("{other}"),
            }
        };
        for code in [33, 37] {
            assert_eq!(why(code), NoTicket::Clock);
        }
        for code in [31, 35, 44, 45] {
            assert_eq!(why(code), NoTicket::Keytab);
        }
        assert_eq!(why(34), NoTicket::Other);
    }

    #[test]
    fn only_ftp_and_host_tickets_count() {
        for name in ["ftp/fermi@R", "host/fermi@R"] {
            must_be_for_us(name.as_bytes()).unwrap();
        }
        for name in [
            "HTTP/fermi@R",
            "ftp@R",
            "ftpd/fermi@R",
            "",
            "nfs/ftp/fermi@R",
        ] {
            let error = must_be_for_us(name.as_bytes()).unwrap_err();
            assert!(
                error.to_string().contains("neither for ftp nor for host"),
                "{error}"
            );
        }
    }

    #[test]
    fn principal_is_never_a_certificate_subject() {
        let named = |name: &str| Identity::by_ticket(name.as_bytes());
        assert_eq!(named("alice/admin@R").unwrap().subject(), "alice/admin@R");
        assert_eq!(named("j\u{fc}rg@R").unwrap().subject(), "j\\xC3\\xBCrg@R");
        for wrong in [
            "/O=Grid/CN=alice@R",
            "alice",
            "a/Email=b@R",
            "@R",
            "alice@",
            "",
        ] {
            named(wrong).unwrap_err();
        }
    }
}
