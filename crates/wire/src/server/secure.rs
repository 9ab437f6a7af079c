//! `AUTH ADAT PROT DCAU DCSC`: proving who is there, and what follows from it for
//! data connections. RFC 2228 and GFD.20, as GCT speaks them.

use super::{Answer, Ask, Cause, Failure, Mechanism, Session, Then};
use crate::{
    base64,
    shield::{DataPeer, Guard, Level, Shield},
};

/// How far the client is in proving who it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Proof {
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

    pub(super) fn authenticate(&mut self, mechanism: &str) -> Option<Ask> {
        if self.is_ready() || self.proof == Proof::Done {
            self.say.line(503, "You are already logged in.");
            return None;
        }
        let known = [Mechanism::Gssapi, Mechanism::Godwit];
        let Some(by) = known.into_iter().find(|by| by.word() == mechanism) else {
            let text = format!("AUTH {mechanism} is not known here; AUTH GSSAPI is.");
            self.say.line(504, &text);
            return None;
        };
        self.proof = Proof::None;
        self.ask(Ask::Authenticate { by }, Then::Offer(by))
    }

    pub(super) fn on_offer(&mut self, by: Mechanism, answer: Answer) {
        match answer {
            Answer::Failed(Failure { said, .. }) => {
                let text = format!("AUTH {} is not offered here: {said}", by.word());
                self.say.line(504, &text);
            }
            _ => {
                self.proof = Proof::Begun;
                self.say
                    .line(334, "Using authentication type; ADAT must follow.");
            }
        }
    }

    pub(super) fn prove(&mut self, token: Vec<u8>) -> Option<Ask> {
        if self.proof != Proof::Begun || self.is_ready() {
            self.say.line(503, "AUTH GSSAPI first.");
            return None;
        }
        self.ask(Ask::Prove { token }, Then::Prove)
    }

    pub(super) fn on_proof(&mut self, answer: Answer) {
        match answer {
            Answer::Token(token) => {
                let text = format!("ADAT={}", base64::encode(&token));
                self.say.line(335, &text);
            }
            Answer::Proved { token } => {
                let text = match token {
                    Some(token) => format!("ADAT={}", base64::encode(&token)),
                    None => "GSSAPI Authentication successful.".into(),
                };
                self.say.line(235, &text);
                self.raise_shield();
            }
            Answer::Failed(Failure { said, .. }) => {
                self.proof = Proof::None;
                self.turn_down(535, &said);
            }
            _ => self.close("The login failed by an error of the server; its log tells more. Try again in a while."),
        }
    }

    /// The 235 is the last line in clear. Commands that were sent ahead of it were
    /// sent by somebody who had proved nothing.
    fn raise_shield(&mut self) {
        let Some(guard) = self.guard.take() else {
            return self.close("The login failed by an error of the server; its log tells more. Try again in a while.");
        };
        if let Err(error) = self.say.sealed(&mut self.shield) {
            return self.spoil(error);
        }
        self.shield = Shield::Guarded(guard);
        self.proof = Proof::Done;
        self.queue.open(&mut self.shield);
    }

    /// In clear there is no security to protect with, and saying otherwise would
    /// send in clear what somebody wants kept.
    pub(super) fn set_level(&mut self, letter: &str) -> Option<Ask> {
        let level = match letter {
            "C" => Level::Clear,
            "S" if self.is_guarded() => Level::Safe,
            "P" if self.is_guarded() => Level::Private,
            _ => {
                let text = format!("{letter} protection level not supported.");
                self.say.line(536, &text);
                return None;
            }
        };
        let settings = &mut self.ready().settings;
        let changed = std::mem::replace(&mut settings.level, level) != level;
        self.say_and_hang(changed, &format!("Protection level set to {letter}."))
    }

    pub(super) fn set_data_peer(&mut self, mode: &str) -> Option<Ask> {
        let (letter, subject) = mode.split_once(' ').unwrap_or((mode, ""));
        let letter = letter.to_ascii_uppercase();
        let peer = match (letter.as_str(), subject.trim()) {
            ("N", _) => DataPeer::Anyone,
            ("A" | "S", _) if !self.is_guarded() => {
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
        if !self.is_guarded() {
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

impl Failure {
    /// Returns the failure of somebody's proof.
    pub fn of_login(said: impl Into<String>) -> Self {
        Self::new(Cause::Login, said)
    }
}
