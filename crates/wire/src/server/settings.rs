//! `TYPE MODE OPTS TREV`: how transfers are to be made.

use super::{Ask, DataSetup, Facts, Session, Then};
use crate::{
    command::{Opts, Parallelism, StripeShare, TransferMode, Type},
    shield::{DataPeer, Level},
};
use godwit_core::Striping;
use std::time::Duration;

/// Settings that stay until a command changes them.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) representation: Type,
    pub(super) mode: TransferMode,
    pub(super) streams: usize,
    /// With how many to begin, if the sender may use fewer.
    pub(super) streams_first: Option<usize>,
    /// The facts of MLST, and those of MLSD, MLSR and MLSC.
    pub(super) facts: Facts,
    pub(super) restart_every: Duration,
    pub(super) progress_every: Duration,
    /// Performance markers while sending, if wanted.
    pub(super) sending_every: Option<Duration>,
    pub(super) checksum_every: Option<Duration>,
    /// The buffer size of data connections; `None`: the kernel's choice.
    pub(super) buffer_bytes: Option<u32>,
    /// `OPTS PASV AllowDelayed=1;`
    pub(super) delayed: bool,
    /// `EPSV ALL`
    pub(super) only_epsv: bool,
    /// `OPTS RETR StripeLayout=…`
    pub(super) striping: Option<Striping>,
    /// `OPTS GODWIT 1`
    pub(super) ours: bool,
    /// `OPTS GODWIT 1;stripe=I/N`
    pub(super) share: Option<StripeShare>,
    /// Not `digests=0`.
    pub(super) digests: bool,
    pub(super) peer: DataPeer,
    pub(super) level: Level,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            representation: Type::Ascii, // RFC 959 says so, and GCT does
            mode: TransferMode::Stream,
            streams: 1,
            streams_first: None,
            facts: Facts::default(),
            restart_every: MARKERS_EVERY,
            progress_every: MARKERS_EVERY,
            sending_every: None,
            checksum_every: None,
            buffer_bytes: None,
            delayed: false,
            only_epsv: false,
            striping: None,
            ours: false,
            share: None,
            digests: true,
            peer: DataPeer::Anyone,
            level: Level::Clear,
        }
    }
}

impl Settings {
    /// Returns the settings after a login. GFD.20: after a login by GSI, both ends of a data connection prove the
    /// identity that logged in. The client may have set `level` before.
    pub(super) fn of_login(has_proofs: bool, level: Level) -> Self {
        Self {
            level,
            peer: if has_proofs {
                DataPeer::Myself
            } else {
                DataPeer::Anyone
            },
            ..Self::default()
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
    pub(super) fn set_mode(&mut self, mode: TransferMode) -> Option<Ask> {
        let ready = self.ready();
        let changed = ready.settings.mode != mode;
        ready.settings.mode = mode;
        let text = match mode {
            TransferMode::Stream => "Mode set to S.",
            TransferMode::Extended => "Mode set to E.",
        };
        self.say_and_hang(changed, text)
    }

    /// Replies that something is set, and closes data connections that were used with another setting.
    pub(super) fn say_and_hang(&mut self, changed: bool, text: &str) -> Option<Ask> {
        let ready = self.ready();
        if changed && ready.data.was_used() {
            ready.data = DataSetup::None;
            return self.ask(
                Ask::Hang,
                Then::Say {
                    code: 200,
                    text: text.into(),
                    doing: "let go of data connections",
                },
            );
        }
        self.say.line(200, text);
        None
    }

    /// A connection with a fixed size keeps it, so those connections are closed.
    pub(super) fn size_buffers_by_themselves(&mut self) -> Option<Ask> {
        let had_size = self.ready().settings.buffer_bytes.take().is_some();
        self.say_and_hang(had_size, "ABUF: the kernel sizes buffers as it goes.")
    }

    pub(super) fn set_options(&mut self, options: Opts) {
        let settings = &mut self.ready().settings;
        match options {
            Opts::Retr {
                parallelism,
                markers,
                striping,
            } => {
                if let Some(Parallelism { first, most }) = parallelism {
                    // Other clients mean the first number throughout.
                    let varies = settings.ours && first < most;
                    settings.streams = if varies { most } else { first }.min(STREAMS_MAX);
                    settings.streams_first = varies.then_some(first);
                }
                if let Some(every) = markers {
                    settings.sending_every = (!every.is_zero()).then_some(every);
                }
                settings.striping = striping.or(settings.striping);
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
            Opts::Godwit { digests, share } => {
                settings.ours = true;
                settings.digests = digests;
                settings.share = share;
                self.queue.only_crlf_ends_lines();
                self.say.explain();
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
}

/// The interval of GCT.
const MARKERS_EVERY: Duration = Duration::from_secs(5);

/// The most connections for one file; more do not raise throughput.
const STREAMS_MAX: usize = 64;
