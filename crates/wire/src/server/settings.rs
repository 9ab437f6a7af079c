//! `TYPE MODE OPTS TREV PROT DCAU`: how transfers are to be made.

use super::{Ask, Data, Facts, Session, Then};
use crate::command::{Mode, Opts, Type};
use std::time::Duration;

/// What stays set until it is set again.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) representation: Type,
    pub(super) mode: Mode,
    pub(super) streams: usize,
    /// Of listings: what MLST tells, and what MLSD, MLSR and MLSC tell.
    pub(super) facts: Facts,
    pub(super) restart_every: Duration,
    pub(super) progress_every: Duration,
    /// Performance markers while sending, if wanted.
    pub(super) sending_every: Option<Duration>,
    pub(super) checksum_every: Option<Duration>,
    /// `OPTS PASV AllowDelayed=1;`
    pub(super) delayed: bool,
    /// `EPSV ALL`
    pub(super) only_epsv: bool,
    /// `OPTS GODWIT 1`
    pub(super) ours: bool,
    /// Not `digests=0`.
    pub(super) digests: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            representation: Type::Ascii, // RFC 959 says so; bytes go as they are
            mode: Mode::Stream,
            streams: 1,
            facts: Facts::default(),
            restart_every: MARKERS_EVERY,
            progress_every: MARKERS_EVERY,
            sending_every: None,
            checksum_every: None,
            delayed: false,
            only_epsv: false,
            ours: false,
            digests: true,
        }
    }
}

impl Session {
    pub(super) fn set_type(&mut self, representation: Type) {
        self.ready().settings.representation = representation;
        let name = match representation {
            Type::Ascii => "A",
            Type::Image => "I",
        };
        self.say.line(200, &format!("Type set to {name}."));
    }

    /// Connections that were used in the other mode cannot be used in this one.
    pub(super) fn set_mode(&mut self, mode: Mode) -> Option<Ask> {
        let ready = self.ready();
        let changed = ready.settings.mode != mode;
        ready.settings.mode = mode;
        let text = match mode {
            Mode::Stream => "Mode set to S.",
            Mode::Extended => "Mode set to E.",
        };
        if changed && ready.data.was_used() {
            ready.data = Data::None;
            return self.ask(
                Ask::Hang,
                Then::Say {
                    code: 200,
                    text: text.into(),
                    doing: "mode",
                },
            );
        }
        self.say.line(200, text);
        None
    }

    pub(super) fn set_options(&mut self, options: Opts) {
        let settings = &mut self.ready().settings;
        match options {
            Opts::Retr {
                parallelism,
                markers,
            } => {
                if let Some(streams) = parallelism {
                    settings.streams = streams.min(STREAMS_MAX);
                }
                if let Some(every) = markers {
                    settings.sending_every = (!every.is_zero()).then_some(every);
                }
            }
            Opts::PasvAllowDelayed(on) => settings.delayed = on,
            Opts::CksmMarkers(every) => {
                settings.checksum_every = (!every.is_zero()).then_some(every);
            }
            Opts::Facts { of, names } => {
                settings.facts = Facts::of(&names);
                let chosen = settings.facts.chosen();
                return self.say.line(200, &format!("{of} OPTS {chosen}"));
            }
            Opts::Godwit { digests } => {
                settings.ours = true;
                settings.digests = digests;
                self.queue.only_crlf_ends_lines();
                return self.say.line(200, "GODWIT 1");
            }
            Opts::Utf8 => {}
        }
        self.say.line(200, "OPTS Command Successful.");
    }

    pub(super) fn set_trigger(&mut self, event: &str, every: Duration) {
        let settings = &mut self.ready().settings;
        let every = every.max(Duration::from_secs(1));
        match event {
            "PERF" => settings.progress_every = every,
            _ => settings.restart_every = every,
        }
        self.say.line(200, "Command Successful.");
    }

    /// There is no security to protect with, and saying otherwise would send in
    /// clear what somebody wants kept.
    pub(super) fn set_protection(&mut self, level: &str) {
        match level {
            "C" => self.say.line(200, "Protection level set to C."),
            _ => self
                .say
                .line(536, &format!("{level} protection level not supported.")),
        }
    }

    pub(super) fn set_data_authentication(&mut self, mode: &str) {
        let letter = mode.split(' ').next().unwrap_or("").to_ascii_uppercase();
        match letter.as_str() {
            "N" => self.say.line(200, "DCAU N."),
            "A" | "S" => self.say.line(504, "DCAU needs a login by GSI."),
            _ => self.say.line(501, "Bad DCAU mode."),
        }
    }
}

/// As GCT does.
const MARKERS_EVERY: Duration = Duration::from_secs(5);

/// More connections than this for one file help nobody.
const STREAMS_MAX: usize = 64;
