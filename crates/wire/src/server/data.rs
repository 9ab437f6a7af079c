//! `PASV EPSV SPAS PORT EPRT SPOR`: who listens and who connects.

use super::{Ask, FtpAnswer, Refusal, Session, Then};
use crate::{
    address::{Bars, Passive as Told, When},
    command::{Family, TransferMode},
    reply::Inner,
};
use godwit_core::Kind;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};

/// The way in which data connections are made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum DataSetup {
    /// No command has chosen one.
    None,
    /// `PASV` was answered "later".
    Delayed(Passive, Option<Family>),
    /// The server listens, or holds accepted connections.
    Passive { used: Option<Direction> },
    /// We connect, or hold connections that we made.
    Active { used: Option<Direction> },
}

/// The direction of the bytes so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Direction {
    Out,
    In,
}

/// The command that asks the server to listen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Passive {
    Pasv,
    Epsv,
    Spas,
}

impl DataSetup {
    pub(super) fn was_used(self) -> bool {
        matches!(
            self,
            Self::Passive { used: Some(_) } | Self::Active { used: Some(_) }
        )
    }

    /// Tells why a transfer cannot use this.
    pub(super) fn refusal(
        self,
        mode: TransferMode,
        to: Direction,
        ours: bool,
    ) -> Option<(u16, &'static str)> {
        match self {
            Self::None => Some((425, "Use PASV, EPSV, PORT or EPRT first.")),
            Self::Passive { used: Some(was) } | Self::Active { used: Some(was) } if was != to => {
                Some((
                    425,
                    "The data connections were used in the other direction: PASV or PORT first.",
                ))
            }
            // GFD.20: in extended block mode the sender makes the connections.
            Self::Passive { .. } | Self::Delayed(..)
                if mode == TransferMode::Extended && to == Direction::Out && !ours =>
            {
                Some((
                    500,
                    "In MODE E the sender connects: use PORT, or OPTS GODWIT 1.",
                ))
            }
            Self::Active { .. } if mode == TransferMode::Extended && to == Direction::In => {
                Some((500, "In MODE E the sender connects: use PASV."))
            }
            _ => None,
        }
    }

    /// Returns the connections that remain after a transfer. Addresses of stream mode are used up; connections of
    /// extended mode stay after a success.
    pub(super) fn after(self, mode: TransferMode, direction: Direction, went_well: bool) -> Self {
        let used = Some(direction);
        match self {
            _ if mode == TransferMode::Stream || !went_well => Self::None,
            Self::Passive { .. } | Self::Delayed(..) => Self::Passive { used },
            Self::Active { .. } => Self::Active { used },
            Self::None => Self::None,
        }
    }
}

impl Session {
    pub(super) fn passive(&mut self, how: Passive, family: Option<Family>) -> Option<Ask> {
        let settings = &self.ready().settings;
        if settings.only_epsv && how != Passive::Epsv {
            self.say
                .line(503, "EPSV ALL was said: only EPSV is allowed.");
            return None;
        }
        let is_delayed = settings.delayed;
        let family = family.or((how == Passive::Pasv).then_some(Family::V4));
        if is_delayed {
            self.ready().data = DataSetup::Delayed(how, family);
            self.say.line(200, "Passive delayed.");
            return None;
        }
        let striped = how == Passive::Spas && self.stripes();
        self.ask(Ask::Listen { family, striped }, Then::Passive(how))
    }

    /// Several can make one transfer: in blocks, unless this is one of them itself.
    fn stripes(&mut self) -> bool {
        let has_members = self.profile.stripes > 0;
        let settings = &self.ready().settings;
        has_members && settings.mode == TransferMode::Extended && settings.share.is_none()
    }

    pub(super) fn only_epsv(&mut self) {
        self.ready().settings.only_epsv = true;
        self.say.line(229, "EPSV ALL Successful.");
    }

    pub(super) fn on_passive(&mut self, how: Passive, answer: FtpAnswer) {
        self.ready().data = DataSetup::None;
        let failure = match answer {
            FtpAnswer::Listening(at) if self.tell_passive(how, &at, When::AtOnce) => {
                self.ready().data = DataSetup::Passive { used: None };
                return;
            }
            FtpAnswer::Listening(_) => {
                Refusal::of_kind(Kind::Unreachable, "This session speaks IPv6: use EPSV.")
            }
            FtpAnswer::Failed(failure) => failure,
            _ => Refusal::of_kind(Kind::Io, "No address."),
        };
        failure.say("listen for data", &mut self.say);
    }

    /// Sends the address that was delayed.
    pub fn on_address(&mut self, address: SocketAddr) {
        if let DataSetup::Delayed(how, _) = self.ready().data {
            self.ready().data = DataSetup::Passive { used: None };
            self.tell_passive(how, &[address], When::Delayed);
        }
    }

    /// `false`: this form of reply cannot carry that address.
    fn tell_passive(&mut self, how: Passive, all: &[SocketAddr], when: When) -> bool {
        let Some(at) = all.first() else {
            return false;
        };
        let told = match (how, at.ip().to_canonical()) {
            (Passive::Pasv, IpAddr::V4(ip)) => Told::Commas(SocketAddrV4::new(ip, at.port())),
            (Passive::Pasv, IpAddr::V6(_)) => return false,
            (Passive::Epsv, _) => Told::Bars(Bars {
                ip: None,
                port: at.port(),
            }),
            (Passive::Spas, _) => {
                let plain = |at: &SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
                Told::Stripes(all.iter().map(plain).collect())
            }
        };
        self.say.reply(&told.to_reply(when), Inner::Indented);
        true
    }

    pub(super) fn aim(&mut self, to: Vec<SocketAddr>) -> Option<Ask> {
        if self.ready().settings.only_epsv {
            self.say
                .line(503, "EPSV ALL was said: only EPSV is allowed.");
            return None;
        }
        self.ask(Ask::Aim { to }, Then::Aimed)
    }

    pub(super) fn on_aimed(&mut self, answer: FtpAnswer) {
        let failed = match answer {
            FtpAnswer::Failed(failure) => Some(failure),
            _ => None,
        };
        match failed {
            Some(failure) => {
                self.ready().data = DataSetup::None;
                // RFC 959 knows no better code for an address we will not call.
                self.say.line(504, &failure.said);
            }
            None => {
                self.ready().data = DataSetup::Active { used: None };
                self.say.line(200, "PORT Command successful.");
            }
        }
    }
}
