//! `AUTH ADAT PBSZ PROT CCC DCAU DCSC`: the proofs of identity, and their effect on data connections. RFC 2228 and
//! GFD.20, as in GCT; RFC 4217.

use super::{Ask, FtpAnswer, Mechanism, Refusal, Session, SessionState, Then};
use crate::{
    base64,
    shield::{Cover, DataPeer, Guard, Level, Shield},
};
use godwit_core::Kind;

/// How far the client is in proving who it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ProofStep {
    None,
    Begun,
    Done,
}

impl Session {
    /// Wraps every line behind the reply to `Proved`, and expects the same.
    pub fn guard_with(&mut self, guard: Box<dyn Guard>) {
        self.guard = Some(guard);
    }

    /// Tells whether the control channel is protected.
    pub fn is_guarded(&self) -> bool {
        self.shield.is_guarded()
    }

    /// Tells whether data connections can prove where they lead.
    pub(super) fn has_proofs(&self) -> bool {
        self.is_guarded() && self.cover == Cover::Proofs
    }

    /// Tells whether protected data is sent in blocks.
    pub(super) fn goes_in_blocks(&self) -> bool {
        self.is_guarded() && self.cover == Cover::Blocks
    }

    pub(super) fn authenticate(&mut self, mechanism: &str) -> Option<Ask> {
        if self.is_ready() || self.proof == ProofStep::Done {
            self.say.line(503, "You are already logged in.");
            return None;
        }
        if self.shield.is_flow() {
            self.say.line(503, "This is under TLS already.");
            return None;
        }
        let has_tls = self.profile.offers_tls;
        let by = Mechanism::of(mechanism).filter(|by| has_tls || *by != Mechanism::Tls);
        let Some(by) = by else {
            let known = if has_tls {
                "GSSAPI and TLS are"
            } else {
                "GSSAPI is"
            };
            let text = format!("AUTH {mechanism} is not known here; AUTH {known}.");
            self.say.line(504, &text);
            return None;
        };
        self.proof = ProofStep::None;
        self.ask(Ask::Authenticate { by }, Then::Offer(by))
    }

    pub(super) fn on_offer(&mut self, by: Mechanism, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Failed(Refusal { said, .. }) => {
                let text = format!("AUTH {} is not offered here: {said}", by.word());
                self.say.line(504, &text);
            }
            _ if by == Mechanism::Tls => self.go_under_tls(),
            _ => {
                self.proof = ProofStep::Begun;
                self.say
                    .line(334, "Using authentication type; ADAT must follow.");
            }
        }
    }

    /// The 234 is the last line in clear. An attacker on the path may have added the bytes behind the AUTH. They are
    /// not obeyed, and the session ends.
    fn go_under_tls(&mut self) {
        let Some(guard) = self.guard.take() else {
            return self.close("TLS cannot begin by an error of the server; its log tells more.");
        };
        if !self.queue.is_clean() {
            return self.close(
                "Something came in clear behind AUTH TLS, and is not obeyed: wait for the 234.",
            );
        }
        self.say.line(234, "AUTH TLS: begin.");
        if let Err(error) = self.say.sealed(&mut self.shield) {
            return self.spoil(error);
        }
        self.shield = Shield::Flow(guard);
        self.state = SessionState::Greeted;
    }

    pub(super) fn prove(&mut self, token: Vec<u8>) -> Option<Ask> {
        if self.proof != ProofStep::Begun || self.is_ready() {
            self.say.line(503, "AUTH GSSAPI first.");
            return None;
        }
        self.ask(Ask::Prove { token }, Then::Prove)
    }

    pub(super) fn on_proof(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Token(token) => {
                let text = format!("ADAT={}", base64::encode(&token));
                self.say.line(335, &text);
            }
            FtpAnswer::Proved { token, cover } => {
                self.cover = cover;
                if cover == Cover::Proofs {
                    self.say.explain();
                }
                let text = match token {
                    Some(token) => format!("ADAT={}", base64::encode(&token)),
                    None => "GSSAPI Authentication successful.".into(),
                };
                self.say.line(235, &text);
                self.raise_shield();
            }
            FtpAnswer::Failed(Refusal { said, .. }) => {
                self.proof = ProofStep::None;
                self.turn_down(535, &said);
            }
            _ => self.close("The login failed by an error of the server; its log tells more. Try again in a while."),
        }
    }

    /// The 235 is the last line in clear. Commands sent ahead of it came from a client that had proved nothing.
    fn raise_shield(&mut self) {
        let Some(guard) = self.guard.take() else {
            return self.close("The login failed by an error of the server; its log tells more. Try again in a while.");
        };
        if let Err(error) = self.say.sealed(&mut self.shield) {
            return self.spoil(error);
        }
        self.shield = Shield::Guarded(guard);
        self.proof = ProofStep::Done;
        self.queue.open(&mut self.shield);
    }

    /// `PBSZ`: TLS has buffers of its own (RFC 4217, 9).
    pub(super) fn size_protected_blocks(&mut self, size: u64) {
        let size = if self.shield.is_flow() { 0 } else { size };
        self.say.line(200, &format!("PBSZ={size}"));
    }

    /// `PBSZ` for data in blocks: longer blocks are refused from now on. RFC 2228 lets the server answer with less
    /// than the client asked for.
    pub(super) fn size_blocks(&mut self, size: u64) {
        if size < BLOCK_BYTES_MIN.into() {
            let text =
                format!("PBSZ: blocks of less than {BLOCK_BYTES_MIN} bytes are not for files.");
            return self.say.line(501, &text);
        }
        let size = u32::try_from(size).map_or(BLOCK_BYTES_MAX, |size| size.min(BLOCK_BYTES_MAX));
        self.block_bytes = Some(size);
        self.say.line(200, &format!("PBSZ={size}"));
    }

    /// `PROT` for data in blocks; clients may send it before the login.
    pub(super) fn set_level_of_blocks(&mut self, letter: &str) -> Option<Ask> {
        let level = self.level_among(&[Level::Clear, Level::Safe, Level::Private], letter)?;
        if level != Level::Clear && self.block_bytes.is_none() {
            self.say.line(503, "PBSZ first.");
            return None;
        }
        self.set_early_level(level)
    }

    /// `CCC`: a control channel in clear again can be led anywhere by who stands between.
    pub(super) fn keep_control(&mut self) {
        match self.is_guarded() || self.shield.is_flow() {
            true => self
                .say
                .line(534, "CCC is refused: commands stay protected."),
            false => self.say.line(533, "Commands go in clear already."),
        }
    }

    /// `PROT` under TLS, which has two levels; clients may send it before the login.
    pub(super) fn set_level_under_tls(&mut self, letter: &str) -> Option<Ask> {
        let level = self.level_among(&[Level::Clear, Level::Private], letter)?;
        self.set_early_level(level)
    }

    fn set_early_level(&mut self, level: Level) -> Option<Ask> {
        self.level = level;
        if !self.is_ready() {
            self.say.line(200, &set_to(level));
            return None;
        }
        self.change_level(level)
    }

    /// Refuses all but `PROT C` in a session in clear: otherwise protected data would travel in clear.
    pub(super) fn set_level(&mut self, letter: &str) -> Option<Ask> {
        let known: &[Level] = match self.is_guarded() {
            true => &[Level::Clear, Level::Safe, Level::Private],
            false => &[Level::Clear],
        };
        let level = self.level_among(known, letter)?;
        self.change_level(level)
    }

    fn change_level(&mut self, level: Level) -> Option<Ask> {
        let settings = &mut self.ready().settings;
        let changed = std::mem::replace(&mut settings.level, level) != level;
        self.say_and_hang(changed, &set_to(level))
    }

    /// Returns the level of a letter, or replies that the letter is none of those.
    fn level_among(&mut self, levels: &[Level], letter: &str) -> Option<Level> {
        let level = Level::of_letter(letter).filter(|level| levels.contains(level));
        if level.is_none() {
            let here = if self.shield.is_flow() {
                " under TLS"
            } else {
                ""
            };
            let text = match letter {
                "" => "No protection level was named.".into(),
                _ => format!("{letter} protection level not supported{here}."),
            };
            self.say.line(536, &text);
        }
        level
    }

    pub(super) fn set_data_peer(&mut self, mode: &str) -> Option<Ask> {
        let (letter, subject) = mode.split_once(' ').unwrap_or((mode, ""));
        let letter = letter.to_ascii_uppercase();
        let peer = match (letter.as_str(), subject.trim()) {
            ("N", _) => DataPeer::Anyone,
            ("A" | "S", _) if !self.has_proofs() => {
                self.say.line(504, "DCAU needs a login by GSI.");
                return None;
            }
            ("A", _) => DataPeer::Myself,
            ("S", "") => {
                self.say.line(501, "DCAU S needs a subject.");
                return None;
            }
            ("S", subject) => DataPeer::Subject(subject.into()),
            ("T", _) => {
                self.say.line(504, "DCAU N, A and S are known.");
                return None;
            }
            _ => {
                self.say.line(501, "Bad DCAU mode.");
                return None;
            }
        };
        let settings = &mut self.ready().settings;
        let changed = settings.peer != peer;
        settings.peer = peer;
        self.say_and_hang(changed, &format!("DCAU {letter}."))
    }

    pub(super) fn set_data_credential(&mut self, pem: Option<Vec<u8>>) -> Option<Ask> {
        if !self.has_proofs() {
            self.say.line(504, "DCSC needs a login by GSI.");
            return None;
        }
        let told = Then::Say {
            code: 250,
            text: "OK.".into(),
            doing: "take the credential",
        };
        self.ask(Ask::DataCredential { pem }, told)
    }
}

fn set_to(level: Level) -> String {
    format!("Protection level set to {}.", level.letter())
}

/// Smaller blocks are mostly wrapping.
const BLOCK_BYTES_MIN: u32 = 1024;
/// The memory of one connection's block.
const BLOCK_BYTES_MAX: u32 = 1 << 20;

impl Refusal {
    /// Returns the refusal of a failed login.
    pub fn of_login(said: impl Into<String>) -> Self {
        Self::of_kind(Kind::Login, said)
    }
}
