//! `RETR STOR APPE ERET ESTO LIST NLST MLSD MLSR`, and the commands that set up the next one: `ALLO REST SCKS SITE
//! STORATTR`.

use super::{
    Ask, DataSetup, Form, FtpAnswer, FtpOutcome, Give, Leg, Listing, ListingDepth, Refusal,
    Session, SessionState, Then, UploadPlace, Want, data::Direction, place,
};
use crate::{
    command::{Command, Rest, Site, TransferMode, Type},
    features::algorithm,
    marker::{Marker, Progress},
    reply::Inner,
    shield::{DataPeer, Level},
    time::Written,
    tuned::TunedStreams,
};
use godwit_core::{Algorithm, Chain, Extents, Kind};
use std::{ops::Range, path::Path, time::Duration};

/// Settings for the next transfer, which any transfer uses up.
#[derive(Debug, Default)]
pub(super) struct NextTransfer {
    pub(super) rest: Option<Rest>,
    pub(super) size: Option<u64>,
    pub(super) check: Option<(Algorithm, String)>,
    pub(super) modify: Option<Duration>,
    direction: Option<Direction>,
    /// Data connections were used for it.
    opened: bool,
    /// The name that was found for `STOU`.
    unique: Option<String>,
}

/// A command that is answered during a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Urgent {
    /// `ABOR`: end the transfer, then answer the ask as `Aborted`.
    Abort,
    /// `STAT`: tell [`Session::on_status`] how far it is.
    Status,
}

impl Session {
    /// RFC 959: a `REST` belongs to the command that follows at once.
    pub(super) fn next_belongs_to(&mut self, command: &Command) {
        // Clients send these between REST and the transfer.
        let between = matches!(
            command,
            Command::Pasv
                | Command::Epsv(_)
                | Command::Spas(_)
                | Command::Port(_)
                | Command::Allo(_)
                | Command::Rest(_)
                | Command::Scks { .. }
                | Command::Site(Site::StorAttr { .. })
                | Command::Type(_)
                | Command::Mode(_)
                | Command::Opts(_)
                | Command::Retr(_)
                | Command::Eret { .. }
                | Command::EretThrough { .. }
                | Command::Stor(_)
                | Command::Appe(_)
                | Command::Esto { .. }
                | Command::EstoGodwit { .. }
                | Command::EstoThrough { .. }
                | Command::List(_)
                | Command::Nlst(_)
                | Command::Mlsd(_)
                | Command::Mlsr(_)
        );
        if !between {
            self.ready().next.rest = None;
        }
    }

    pub(super) fn announce_size(&mut self, size: u64) {
        // Some clients send ALLO 0 when they do not know the size.
        self.ready().next.size = Some(size).filter(|&size| size > 0);
        self.say.line(200, "ALLO command successful.");
    }

    pub(super) fn go_on_behind(&mut self, rest: Rest) {
        self.ready().next.rest = Some(rest);
        self.say.line(
            350,
            "Restart Marker OK. Send STORE or RETR to initiate transfer.",
        );
    }

    pub(super) fn expect_checksum(&mut self, by: &str, value: String) {
        let Some(by) = algorithm(by) else {
            return self.say.line(500, "Unknown checksum algorithm requested.");
        };
        self.ready().next.check = Some((by, value.to_ascii_lowercase()));
        self.say.line(200, "OK.");
    }

    pub(super) fn expect_time(&mut self, modify: Option<Duration>) {
        self.ready().next.modify = modify;
        self.say.line(250, "OK.");
    }

    /// Takes the settings of this transfer, and resets them.
    pub(super) fn take_next(&mut self) -> NextTransfer {
        std::mem::take(&mut self.ready().next)
    }

    pub(super) fn retrieve(&mut self, name: &[u8], part: Range<u64>) -> Option<Ask> {
        let next = self.take_next();
        let path = self.path(name, "open it")?;
        let leg = self.leg(Direction::Out)?;
        let have = match next.rest {
            None => Extents::new(),
            Some(Rest::From(start)) => Extents::from(0..start),
            Some(Rest::Have(have)) => have,
        };
        let a_prefix = have.prefix() == have.len_bytes();
        if leg.mode == TransferMode::Stream && !a_prefix {
            self.say.line(
                501,
                "In MODE S only the beginning can be there already: REST n.",
            );
            return None;
        }
        self.transfer(
            Ask::Retrieve {
                path,
                want: Want { part, have },
                leg,
            },
            Direction::Out,
        )
    }

    pub(super) fn store(&mut self, name: &[u8], place: UploadPlace) -> Option<Ask> {
        let next = self.take_next();
        let path = self.path_to_change(name, "open it")?;
        let leg = self.leg(Direction::In)?;
        if let (TransferMode::Stream, Some(Rest::Have(have))) = (leg.mode, &next.rest)
            && have.prefix() != have.len_bytes()
        {
            self.say.line(
                501,
                "In MODE S only the beginning can be there already: REST n.",
            );
            return None;
        }
        let NextTransfer {
            rest,
            size,
            check,
            modify,
            ..
        } = next;
        let give = Give {
            place,
            rest,
            size: size.filter(|_| !leg.is_text), // it counts bytes of the wire

            check,
            modify,
        };
        self.transfer(Ask::Store { path, give, leg }, Direction::In)
    }

    pub(super) fn list_facts(&mut self, name: &[u8], at: ListingDepth) -> Option<Ask> {
        let facts = self.ready().settings.facts.clone();
        self.list(name, Form::Facts(facts), at)
    }

    pub(super) fn list(&mut self, name: &[u8], form: Form, at: ListingDepth) -> Option<Ask> {
        self.ready().next = NextTransfer::default();
        let mut path = self.path(name, "look at it")?;
        let globs = !matches!(form, Form::Facts(_));
        let mut pattern = None;
        if globs
            && let Some(last) = path.file_name().map(|n| n.as_encoded_bytes().to_vec())
            && last.iter().any(|b| matches!(b, b'*' | b'?'))
        {
            path.pop();
            pattern = Some(last);
        }
        let leg = self.leg(Direction::Out)?;
        let ready = self.ready();
        let listing = Listing {
            form,
            recursive: at == ListingDepth::AllBelow,
            pattern,
            raw_names: ready.settings.ours,
            may_write: ready.may_write,
            times: ready.times(),
        };
        self.transfer(Ask::List { path, listing, leg }, Direction::Out)
    }

    pub(super) fn transfer(&mut self, ask: Ask, direction: Direction) -> Option<Ask> {
        let next = &mut self.ready().next;
        (next.direction, next.opened) = (Some(direction), false);
        self.ask(ask, Then::Transfer)
    }

    /// Returns how bytes will travel, or replies with the reason why they cannot.
    pub(super) fn leg(&mut self, direction: Direction) -> Option<Leg> {
        let (is_under_tls, in_blocks) = (self.shield.is_flow(), self.goes_in_blocks());
        let block_bytes = self.block_bytes.unwrap_or(u32::MAX);
        let ready = self.ready();
        let (settings, data) = (&ready.settings, ready.data);
        if let Some((code, text)) = data.refusal(settings.mode, direction, settings.ours) {
            self.say.line(code, text);
            return None;
        }
        let has_keys = is_under_tls || in_blocks || settings.peer != DataPeer::Anyone;
        if settings.level != Level::Clear && !has_keys {
            let text = "Data cannot be protected without keys: DCAU A first, or PROT C.";
            self.say.line(521, text);
            return None;
        }
        let extended = settings.mode == TransferMode::Extended;
        Some(Leg {
            mode: settings.mode,
            is_text: settings.representation == Type::Ascii && !extended,
            streams: settings.streams,
            striping: settings.striping,
            share: settings.share,
            streams_first: settings.streams_first,
            buffer_bytes: settings.buffer_bytes,
            delayed: match data {
                DataSetup::Delayed(_, family) => Some(family),
                _ => None,
            },
            restart_every: settings.restart_every,
            progress_every: match direction {
                Direction::In => extended.then_some(settings.progress_every),
                Direction::Out => settings.sending_every,
            },
            leaves: settings.ours && settings.digests,
            digests: settings.digests,
            ours: settings.ours,
            peer: settings.peer.clone(),
            level: settings.level,
            block_bytes,
        })
    }

    /// Replies that data connections exist, so that the transfer begins.
    pub fn on_open(&mut self, warm: bool) {
        self.ready().next.opened = true;
        if let Some(name) = self.ready().next.unique.clone() {
            // RFC 1123, 4.1.2.9.
            let code = if warm { 125 } else { 150 };
            self.say.line(code, &format!("FILE: {name}"));
        } else if warm {
            self.say
                .line(125, "Beginning transfer; reusing existing data connection.");
        } else {
            self.say.line(150, "Beginning transfer.");
        }
    }

    /// Tells under which name a `STOU` stores.
    pub fn on_unique(&mut self, path: &Path) {
        let name = String::from_utf8_lossy(&place::shown(path)).into_owned();
        self.ready().next.unique = Some(name);
    }

    /// Sends how many bytes each stripe has moved, with the time since the epoch.
    pub fn on_progress(&mut self, bytes: &[u64], at: Duration) {
        let stripes = bytes.len() as u64;
        for (stripe, &bytes) in (0..).zip(bytes) {
            self.say_marker(&Marker::Progress(Progress {
                at,
                stripe,
                bytes,
                stripes,
            }));
        }
    }

    /// Sends the ranges that landed since the last call.
    pub fn on_range(&mut self, landed: &Extents) {
        if !landed.is_empty() {
            self.say_marker(&Marker::Ranges(landed.clone()));
        }
    }

    /// Tells chaining values of leaves, in ascending order.
    pub fn on_leaves(&mut self, leaves: &[(u64, Chain)]) {
        for run in leaves.chunk_by(|a, b| a.0 + 1 == b.0) {
            for some in run.chunks(LEAVES_A_LINE) {
                let (first, chains) = (some[0].0, some.iter().map(|&(_, c)| c).collect());
                self.say_marker(&Marker::Leaves { first, chains });
            }
        }
    }

    /// Sends how many bytes of a checksum are done.
    pub fn on_checksum_progress(&mut self, bytes: u64) {
        self.say_marker(&Marker::Checksum { bytes });
    }

    fn say_marker(&mut self, marker: &Marker) {
        self.say.reply(&marker.to_reply(), Inner::Indented);
    }

    /// Returns an urgent command that the client sent during a transfer.
    pub fn urgent(&mut self) -> Option<Urgent> {
        if self.wants_abort() {
            return Some(Urgent::Abort);
        }
        // Replies to the commands in front of it must be sent first.
        let first = self.queue.lines().next()?;
        if Command::is(first, "STAT") && first.len() == b"STAT".len() {
            self.queue.pop();
            return Some(Urgent::Status);
        }
        None
    }

    /// Sends how far the transfer is.
    pub fn on_status(&mut self, bytes: u64) {
        self.say.more(213, "Status of the transfer:");
        self.say.inner(format!("{bytes} bytes moved").as_bytes());
        self.say.line(213, "End.");
    }

    /// Tells whether an `ABOR` waits: nothing in front of it is to be done.
    pub fn wants_abort(&self) -> bool {
        self.queue.has_abort()
    }

    pub(super) fn on_transfer(&mut self, answer: FtpAnswer) {
        let SessionState::Ready(ready) = &mut self.state else {
            return; // closed while it went on
        };
        let went_well = matches!(answer, FtpAnswer::Sent(_) | FtpAnswer::NotKept(_));
        let (direction, opened) = (ready.next.direction, ready.next.opened);
        // A failure before the start leaves connections and addresses as they were. One missing file among many that
        // were sent ahead does not spoil the rest.
        ready.next.direction = None;
        if let Some(direction) = direction
            && opened
        {
            ready.data = ready.data.after(ready.settings.mode, direction, went_well);
        }
        match answer {
            FtpAnswer::Sent(outcome) => self.tell_outcome(&outcome),
            FtpAnswer::Failed(failure) | FtpAnswer::NotKept(failure) => {
                let doing = doing(failure.kind, direction, opened);
                failure.say(doing, &mut self.say);
            }
            _ => self.say.line(451, INTERNAL),
        }
    }

    fn tell_outcome(&mut self, outcome: &FtpOutcome) {
        let facts = outcome.facts();
        if self.ready().settings.ours && !facts.is_empty() {
            self.say.more(226, "Transfer Complete.");
            self.say.inner(format!("GODWIT {facts}").as_bytes());
            self.say.line(226, "End.");
        } else {
            match self.ready().next.unique.take() {
                Some(name) => self.say.line(226, &format!("FILE: {name}")),
                None => self.say.line(226, "Transfer Complete."),
            }
        }
    }

    pub(super) fn on_finished(&mut self, answer: FtpAnswer) {
        match answer {
            FtpAnswer::Sent(outcome) => {
                let text = format!("GODWIT {}", outcome.facts());
                self.say.line(250, &text);
            }
            FtpAnswer::Failed(failure) => match failure.kind {
                // The missing ranges are a state of the upload, not of the network.
                Kind::Incomplete => {
                    Refusal::of_kind(Kind::Changed, failure.said)
                        .say("publish the upload", &mut self.say);
                }
                _ => failure.say("publish the upload", &mut self.say),
            },
            _ => self.say.line(451, INTERNAL),
        }
    }
}

impl FtpOutcome {
    /// `size=N;modify=T;…`, see docs/formats/ftp-extensions.md.
    fn facts(&self) -> String {
        let mut facts = String::new();
        let mut tell = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                facts.push_str(&format!("{key}={value};"));
            }
        };
        tell("size", self.size.map(|n| n.to_string()));
        tell("modify", self.modify.map(|t| Written(t).to_string()));
        tell("touched", self.touched.map(|t| Written(t).to_string()));
        tell("blake3", self.blake3.clone());
        tell("kept", self.kept.map(|n| n.to_string()));
        tell("done", self.done.as_ref().map(Extents::to_string));
        tell("published", self.published.map(|p| u8::from(p).to_string()));
        tell(
            "reread",
            (self.reread_bytes > 0).then(|| self.reread_bytes.to_string()),
        );
        tell("inplace", self.in_place.then(|| "1".into()));
        tell("tuned", self.tuned.as_ref().map(TunedStreams::to_string));
        facts
    }
}

/// Names the step at which a transfer failed. Files are opened before the data connections, and a lack of room shows
/// only at a write.
fn doing(kind: Kind, direction: Option<Direction>, opened: bool) -> &'static str {
    let is_late = opened
        && [Kind::Changed, Kind::Io]
            .iter()
            .any(|of| of.ftp() == kind.ftp());
    match (direction, kind) {
        (_, Kind::Module) => "put it through the module",
        (Some(Direction::In), Kind::NoSpace) => "write it to its end",
        (Some(Direction::In), _) if is_late => "write it to its end",
        (Some(Direction::Out), _) if is_late => "read it to its end",
        _ => "open it",
    }
}

/// The reply to an answer that the session did not expect.
const INTERNAL: &str =
    "The transfer failed by an error of the server; its log tells more. Try again in a while.";
/// docs/formats/ftp-extensions.md.
const LEAVES_A_LINE: usize = 64;
