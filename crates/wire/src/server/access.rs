//! `USER PASS ACCT REIN QUIT`: the login and its end.

use super::{
    Ask, DataSetup, FtpAnswer, NextTransfer, ReadyState, Refusal, Session, SessionState, Settings,
    Then,
};
use crate::shield::Shield;

impl Session {
    pub(super) fn user_command(&mut self, user: String) -> Option<Ask> {
        if self.is_ready() {
            self.say.line(503, "You are already logged in.");
            return None;
        }
        if self.goes_in_blocks() {
            // RFC 2228: a ticket is enough. yafc asks its user for a password after a 331.
            let password = Vec::new();
            return self.ask(Ask::Login { user, password }, Then::Login);
        }
        let is_clear = matches!(self.shield, Shield::Clear);
        if is_clear && self.profile.passwords_need_tls && !is_nobody(&user) {
            // Refused before the client sends the password.
            self.say.line(530, TLS_FIRST);
            return None;
        }
        self.say
            .line(331, &format!("Password required for {user}."));
        self.state = SessionState::Named { user };
        None
    }

    pub(super) fn pass(&mut self, password: Vec<u8>) -> Option<Ask> {
        match &self.state {
            SessionState::Named { user } => {
                let user = user.clone();
                self.ask(Ask::Login { user, password }, Then::Login)
            }
            SessionState::Ready(_) => {
                // GCT's client sends PASS even when USER was enough.
                self.say.line(230, "You are already logged in.");
                None
            }
            _ => {
                self.say.line(503, "Login with USER first.");
                None
            }
        }
    }

    pub(super) fn on_login(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Welcome(welcome) => {
                let code = if self.goes_in_blocks() { 232 } else { 230 };
                self.say
                    .line(code, &format!("User {} logged in.", welcome.user));
                self.state = SessionState::Ready(Box::new(ReadyState {
                    user: welcome.user,
                    may_write: welcome.may_write,
                    current: welcome.home.clone(),
                    home: welcome.home,
                    settings: Settings::of_login(self.has_proofs(), self.level),
                    next: NextTransfer::default(),
                    data: DataSetup::None,
                    rename_from: None,
                    link_target: None,
                }));
            }
            FtpAnswer::Failed(Refusal { said, .. }) => {
                self.state = SessionState::Greeted;
                self.turn_down(530, &said);
            }
            _ => self.close("The login failed by an error of the server; its log tells more. Try again in a while."),
        }
    }

    /// Refuses a login, and closes the session after too many failures.
    pub(super) fn turn_down(&mut self, code: u16, why: &str) {
        self.say.line(code, why);
        self.logins_failed += 1;
        if self.logins_failed >= LOGINS_FAILED_MAX {
            self.close("Too many failed logins.");
        }
    }

    pub(super) fn reinitialize(&mut self) -> Option<Ask> {
        if self.shield.is_flow() {
            // RFC 4217, 11: it would end TLS in the middle of a connection.
            self.say
                .line(502, "REIN would end TLS: connect anew instead.");
            return None;
        }
        self.ask(Ask::Hang, Then::Reset)
    }

    pub(super) fn on_reset(&mut self) {
        self.state = SessionState::Greeted;
        self.say.line(220, "Ready for a new user.");
    }

    pub(super) fn quit(&mut self) {
        self.say.line(221, "Goodbye.");
        self.state = SessionState::Closed;
    }
}

/// Tells whether a user name is an anonymous one.
pub fn is_nobody(user: &str) -> bool {
    ["anonymous", "ftp"].contains(&user)
}

const TLS_FIRST: &str = "Passwords are not taken in clear here: say AUTH TLS first.";

/// Guessing passwords costs a connection each time.
const LOGINS_FAILED_MAX: u32 = 5;
