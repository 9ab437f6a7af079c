//! The server's side of a session: command lines in, replies and requests out.
//!
//! [`Session`] does no I/O. Its driver passes in the bytes that arrived, does what [`Session::poll`] asks, reports
//! the result, and sends [`Session::output`]. Commands are executed strictly in order, one at a time; only `ABOR` and
//! a bare `STAT` are seen during a transfer.

mod access;
mod ask;
mod data;
mod failure;
mod listing;
mod names;
mod place;
mod queue;
mod say;
mod secure;
mod settings;
mod site;
mod tell;
mod through;
mod transfer;

pub use crate::Refusal;
pub use crate::tuned::TunedStreams;
pub use access::is_nobody;
pub use ask::{
    Ask, Change, FtpAnswer, FtpOutcome, Give, Leg, Mechanism, Removed, UploadPlace, Want, Welcome,
};
pub use listing::{Facts, Form, ListedKind, ListedStat, Listing, Times};
pub use place::resolve;
pub use transfer::Urgent;

use crate::{
    command::Command,
    shield::{Cover, Guard, Level, Shield},
};
use data::DataSetup;
use godwit_core::Kind;
use queue::{CommandQueue, Queued};
use say::Say;
use settings::Settings;
use std::path::PathBuf;
use transfer::NextTransfer;

/// One session with one client.
#[derive(Debug)]
pub struct Session {
    profile: Profile,
    state: SessionState,
    queue: CommandQueue,
    say: Say,
    /// The next step after the answer to the open request.
    then: Option<Then>,
    /// An ask that follows from an answer.
    follow: Option<Ask>,
    /// Lines in a row that were no commands.
    refused_lines: u32,
    logins_failed: u32,
    shield: Shield,
    proof: secure::ProofStep,
    /// The guard of all lines after the next 235.
    guard: Option<Box<dyn Guard>>,
    /// The protection of data connections, once both sides have proved their identity.
    cover: Cover,
    /// The level of protection that the client set before the login.
    level: Level,
    /// The block size by `PBSZ`, if data is sent in blocks.
    block_bytes: Option<u32>,
    /// The failure of a line that was not protected as required.
    spoiled: Option<crate::Error>,
    /// The commands sent instead of a proof, until they are logged.
    unproved: Vec<String>,
    /// The client's description of itself (`SITE CLIENTINFO`).
    note: String,
}

/// The server's name, its abilities and its limits.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Host name for the greeting.
    pub host: String,
    /// Version of the program.
    pub version: String,
    /// The longest command line.
    pub line_bytes_max: usize,
    /// Commands that wait; then no more is read.
    pub pipeline_max: usize,
    /// How many sessions can have a data port at once, if that is limited.
    pub data_ports: Option<usize>,
    /// Whether `AUTH GSSAPI` is worth a try.
    pub offers_gssapi: bool,
    /// Whether `AUTH GODWIT` is.
    pub offers_cluster: bool,
    /// Whether `AUTH TLS` is.
    pub offers_tls: bool,
    /// Whether passwords in clear are refused.
    pub passwords_need_tls: bool,
    /// How many others make striped transfers for this server.
    pub stripes: usize,
    /// Programs that bytes can go through.
    pub modules: Vec<ModuleName>,
    /// Whether files are delivered to another server.
    pub passes_on: bool,
}

/// A program that filters the bytes of files, as clients see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModuleName {
    /// The name that clients use.
    pub name: String,
    /// On which way.
    pub way: ModuleDirection,
    /// A few words on the program and its parameters.
    pub about: String,
}

/// The direction of bytes through a module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ModuleDirection {
    /// Out of a file, to the client: `ERET`.
    Read,
    /// Into a file: `ESTO`.
    Write,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            host: "localhost".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            line_bytes_max: 64 << 10, // lines of ADAT and DCSC carry certificate chains
            pipeline_max: 16_384,
            data_ports: None,
            offers_gssapi: false,
            offers_cluster: false,
            offers_tls: false,
            passwords_need_tls: false,
            stripes: 0,
            modules: Vec::new(),
            passes_on: false,
        }
    }
}

/// The next step of the session's driver.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // one exists at a time
pub enum SessionStep {
    /// Do this and answer.
    Ask(Ask),
    /// Send the bytes in `output`, then close.
    Close,
}

#[derive(Debug)]
enum SessionState {
    Greeted,
    Named { user: String },
    Ready(Box<ReadyState>),
    Closed,
}

/// The state of a session after the login.
#[derive(Debug)]
struct ReadyState {
    user: String,
    may_write: bool,
    home: PathBuf,
    current: PathBuf,
    settings: Settings,
    next: NextTransfer,
    data: DataSetup,
    rename_from: Option<PathBuf>,
    link_target: Option<PathBuf>,
}

impl ReadyState {
    /// The resolution of times that this peer receives.
    fn times(&self) -> Times {
        match self.settings.ours {
            true => Times::Nanoseconds,
            false => Times::Seconds,
        }
    }
}

/// How an answer becomes a reply.
#[derive(Clone, Debug)]
enum Then {
    Offer(Mechanism),
    Prove,
    Login,
    Reset,
    /// This, if it was done.
    Say {
        code: u16,
        text: String,
        doing: &'static str,
    },
    Made(PathBuf),
    Enter(PathBuf),
    RenameFrom(PathBuf),
    Size,
    Modified,
    Facts(PathBuf),
    ShowIfThere {
        path: PathBuf,
        form: Form,
        code: u16,
        first: &'static str,
    },
    Contents(u16),
    Digest,
    Passive(data::Passive),
    Aimed,
    Transfer,
    Landed,
    Finished,
    Leaves,
    Space,
    Hidden,
}

impl Session {
    /// Returns a session that greets.
    pub fn new(profile: Profile) -> Self {
        let mut say = Say::default();
        let (host, version) = (&profile.host, &profile.version);
        say.line(
            220,
            &format!("{host} GridFTP Server godwit {version} ready."),
        );
        Self {
            queue: CommandQueue::new(profile.line_bytes_max, profile.pipeline_max),
            profile,
            state: SessionState::Greeted,
            say,
            then: None,
            follow: None,
            refused_lines: 0,
            logins_failed: 0,
            shield: Shield::Clear,
            proof: secure::ProofStep::None,
            guard: None,
            cover: Cover::Proofs,
            level: Level::Clear,
            block_bytes: None,
            spoiled: None,
            unproved: Vec::new(),
            note: String::new(),
        }
    }

    /// Returns all bytes for a client that is refused for lack of room.
    pub fn turned_away(why: &str) -> Vec<u8> {
        let mut say = Say::default();
        say.line(421, why);
        say.sealed(&mut Shield::Clear)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Takes bytes of the client.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        match &mut self.shield {
            Shield::Clear => self.queue.on_bytes(bytes),
            Shield::Guarded(_) => {
                self.queue.on_bytes(bytes);
                self.queue.open(&mut self.shield);
            }
            flow => match flow.open_flow(bytes) {
                Ok(plain) => self.queue.on_bytes(&plain),
                Err(error) => self.queue.spoil(error),
            },
        }
    }

    /// Tells whether more should be read now. If not, enough commands wait.
    pub fn wants_bytes(&self) -> bool {
        !self.queue.is_full()
    }

    /// Returns the next step; `None`: the session waits for bytes, or for the answer to the open request.
    pub fn poll(&mut self) -> Option<SessionStep> {
        if let Some(ask) = self.follow.take() {
            return Some(SessionStep::Ask(ask));
        }
        while self.then.is_none() {
            if matches!(self.state, SessionState::Closed) {
                return Some(SessionStep::Close);
            }
            let ask = match self.queue.pop()? {
                Queued::Line(line) => self.on_line(&line),
                Queued::TooLong => self.refuse(500, "The line is too long."),
                // As in GCT: the sender of a broken line gets no protected reply.
                Queued::Spoiled(error) => {
                    self.spoil(error);
                    continue;
                }
            };
            if let Some(ask) = ask {
                return Some(SessionStep::Ask(ask));
            }
        }
        None
    }

    /// Returns the reply bytes to send; the driver drains them.
    pub fn output(&mut self) -> &mut Vec<u8> {
        if let Err(error) = self.say.sealed(&mut self.shield) {
            self.spoil(error);
        }
        self.say.wire()
    }

    /// Returns the closing word of the protection, if it has one.
    pub fn end(&mut self) -> Vec<u8> {
        match &self.spoiled {
            Some(_) => Vec::new(),
            None => self.shield.end(),
        }
    }

    /// Tells whether TLS has begun and both sides are not agreed yet.
    pub fn is_shaking_hands(&self) -> bool {
        matches!(&self.shield, Shield::Flow(guard) if !guard.stands())
    }

    /// Tells why the session was ended without a word, for the log.
    pub fn spoiled(&self) -> Option<&crate::Error> {
        self.spoiled.as_ref()
    }

    /// Tells, for the log, why lines were refused that should have proved who the client is:
    /// the driver was never asked about them.
    pub fn take_unproved(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unproved)
    }

    /// Returns the user who is logged in.
    pub fn user(&self) -> Option<&str> {
        match &self.state {
            SessionState::Ready(ready) => Some(&ready.user),
            _ => None,
        }
    }

    /// Tells whether the client is logged in and may change something.
    pub fn may_write(&self) -> bool {
        matches!(&self.state, SessionState::Ready(ready) if ready.may_write)
    }

    /// Returns the client's description of itself, for the log.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Tells whether the client is a node, which knows what to do when its data connections are closed between
    /// transfers.
    pub fn is_ours(&self) -> bool {
        matches!(&self.state, SessionState::Ready(ready) if ready.settings.ours)
    }

    /// Tells whether nothing is asked and no command waits.
    pub fn is_idle(&self) -> bool {
        self.then.is_none() && self.queue.is_empty()
    }

    /// Ends the session from our side: too long idle, or the server stops.
    pub fn close(&mut self, why: &str) {
        self.say.line(421, why);
        self.state = SessionState::Closed;
    }

    /// Takes the answer to the open ask.
    pub fn on_answer(&mut self, answer: FtpAnswer) {
        let then = self.then.take().expect("an answer follows an ask");
        match then {
            Then::Offer(by) => self.on_offer(by, answer),
            Then::Prove => self.on_proof(answer),
            Then::Login => self.on_login(answer),
            Then::Reset => self.on_reset(),
            Then::Say { code, text, doing } => match answer {
                FtpAnswer::Failed(failure) => failure.say(doing, &mut self.say),
                _ => self.say.line(code, &text),
            },
            Then::Made(path) => self.on_made(&path, answer),
            Then::Enter(path) => self.on_entered(path, answer),
            Then::RenameFrom(path) => self.on_rename_from(path, answer),
            Then::Size => self.on_size(answer),
            Then::Modified => self.on_modified(answer),
            Then::Facts(path) => self.on_facts(&path, answer),
            Then::ShowIfThere {
                path,
                form,
                code,
                first,
            } => {
                self.on_show_if_there(path, form, (code, first), answer);
            }
            Then::Contents(code) => self.on_contents(code, answer),
            Then::Digest => self.on_digest(answer),
            Then::Passive(how) => self.on_passive(how, answer),
            Then::Aimed => self.on_aimed(answer),
            Then::Transfer => self.on_transfer(answer),
            Then::Landed => self.on_landed(answer),
            Then::Finished => self.on_finished(answer),
            Then::Leaves => self.on_leaf_list(answer),
            Then::Space => self.on_space(answer),
            Then::Hidden => self.on_hidden(answer),
        }
    }

    fn on_line(&mut self, line: &[u8]) -> Option<Ask> {
        match Command::parse(line) {
            Ok(command) => {
                self.refused_lines = 0;
                self.on_command(command)
            }
            Err(refusal) => self.on_refused(&refusal),
        }
    }

    fn on_refused(&mut self, refusal: &Refusal) -> Option<Ask> {
        if let SessionState::Ready(ready) = &mut self.state {
            // RFC 959: RNTO follows RNFR at once; after any other command the name is discarded.
            ready.rename_from = None;
        }
        if self.says_why() || refusal.code == 500 {
            self.refuse(refusal.code, &refusal.said)
        } else {
            self.refuse(530, LOGIN_FIRST)
        }
    }

    fn on_command(&mut self, command: Command) -> Option<Ask> {
        if self.is_ready() && self.wants_abort() && command != Command::Abor {
            // ABOR cancels the commands that were sent ahead of it.
            self.say.line(426, "Aborted before it began.");
            return None;
        }
        match command {
            // These need no login.
            Command::User(user) => return self.user_command(user),
            Command::Pass(password) => return self.pass(password),
            Command::Auth(mechanism) => return self.authenticate(&mechanism),
            Command::Adat(token) => return self.prove(token),
            Command::Wrapped => self.say.line(503, "Nothing is protected yet: AUTH first."),
            Command::Ccc => self.keep_control(),
            Command::Pbsz(size) if self.shield.is_flow() => self.size_protected_blocks(size),
            Command::Pbsz(size) if self.goes_in_blocks() => self.size_blocks(size),
            Command::Prot(level) if self.goes_in_blocks() => {
                return self.set_level_of_blocks(&level);
            }
            Command::Prot(level) if self.shield.is_flow() => {
                return self.set_level_under_tls(&level);
            }
            Command::Quit => self.quit(),
            Command::Feat => self.feat(),
            Command::Help(about) => self.help(&about),
            Command::Syst => self.say.line(215, "UNIX Type: L8"),
            Command::Noop => self.say.line(200, "NOOP command successful."),
            Command::Lang => self.say.line(200, "lang set to EN."),
            Command::Opts(crate::command::Opts::Utf8) => self.say.line(200, "Names are bytes."),
            command => return self.on_command_of_user(command),
        }
        None
    }

    fn on_command_of_user(&mut self, command: Command) -> Option<Ask> {
        if !self.is_ready() {
            return self.refuse(530, LOGIN_FIRST);
        }
        self.next_belongs_to(&command);
        match command {
            Command::Rein => return self.reinitialize(),
            Command::Acct => self.say.line(202, "No account is needed."),
            Command::Cwd(name) => return self.enter(&name),
            Command::Cdup => return self.enter_parent(),
            Command::Pwd => self.tell_current(),
            Command::Type(representation) => self.set_type(representation),
            Command::Stru => self.say.line(200, "STRU F ok."),
            Command::Mode(mode) => return self.set_mode(mode),
            Command::Opts(options) => self.set_options(options),
            Command::Trev { event, every } => self.set_trigger(&event, every),
            Command::Abuf => return self.size_buffers_by_themselves(),
            Command::Sbuf(bytes) => {
                self.ready().settings.buffer_bytes = bytes;
                self.say.line(200, "SBUF Command Successful.");
            }
            Command::Pbsz(size) => self.size_protected_blocks(size),
            Command::Prot(level) => return self.set_level(&level),
            Command::Dcau(mode) => return self.set_data_peer(&mode),
            Command::Dcsc(pem) => return self.set_data_credential(pem),
            Command::Pasv => return self.passive(data::Passive::Pasv, None),
            Command::Epsv(family) => return self.passive(data::Passive::Epsv, family),
            Command::EpsvAll => self.only_epsv(),
            Command::Spas(family) => return self.passive(data::Passive::Spas, family),
            Command::Port(to) => return self.aim(to),
            Command::Allo(size) => self.announce_size(size),
            Command::Rest(rest) => self.go_on_behind(rest),
            Command::Scks { by, value } => self.expect_checksum(&by, value),
            Command::Retr(name) => return self.retrieve(&name, 0..u64::MAX),
            Command::Eret { part, name } => return self.retrieve(&name, part),
            Command::EretThrough { through, name } => {
                return self.retrieve_through(&name, through);
            }
            Command::Stor(name) => return self.store(&name, UploadPlace::Whole),
            Command::Appe(name) => return self.store(&name, UploadPlace::End),
            Command::Esto { offset, name } => return self.store(&name, UploadPlace::At(offset)),
            Command::EstoGodwit { upload, name } => {
                return self.store(&name, UploadPlace::Named(upload));
            }
            Command::EstoThrough { through, name } => {
                return self.store_through(&name, through);
            }
            Command::Stou(name) => {
                let name = if name.is_empty() { "stou" } else { &name };
                return self.store(name.as_bytes(), UploadPlace::Unique);
            }
            Command::List(name) => return self.list(&name, Form::Long, ListingDepth::TheseOnly),
            Command::Nlst(name) => return self.list(&name, Form::Names, ListingDepth::TheseOnly),
            Command::Mlsd(name) => return self.list_facts(&name, ListingDepth::TheseOnly),
            Command::Mlsr(name) => return self.list_facts(&name, ListingDepth::AllBelow),
            Command::Mlst(name) => return self.tell_facts(&name),
            Command::Mlsc(name) => return self.contents(&name),
            Command::Stat(name) if name.is_empty() => self.status(),
            Command::Stat(name) => return self.stat(&name),
            Command::Size(name) => return self.size(&name),
            Command::Mdtm(name) => return self.modified(&name),
            Command::Mfmt { modify, name } => {
                return self.set_time(&name, modify);
            }
            Command::Cksm { by, range, name } => return self.digest(&by, range, &name),
            Command::Rnfr(name) => return self.rename_from(&name),
            Command::Rnto(name) => return self.rename_to(&name),
            Command::Dele(name) => return self.remove(&name, Removed::File),
            Command::Rmd(name) => return self.remove(&name, Removed::Directory),
            Command::Mkd(name) => return self.make_dir(&name),
            Command::Site(site) => return self.site(site),
            Command::Abor => self.say.line(226, "Abort successful"),
            Command::User(_)
            | Command::Pass(_)
            | Command::Auth(_)
            | Command::Adat(_)
            | Command::Wrapped
            | Command::Ccc
            | Command::Quit
            | Command::Feat
            | Command::Help(_)
            | Command::Syst
            | Command::Noop
            | Command::Lang => unreachable!("answered before login is asked for"),
        }
        None
    }

    fn spoil(&mut self, error: crate::Error) {
        self.spoiled = Some(error);
        self.state = SessionState::Closed;
    }

    /// Clients without a login receive no reason for a refused command.
    fn says_why(&self) -> bool {
        self.is_ready() || self.proof == secure::ProofStep::Begun
    }

    fn is_ready(&self) -> bool {
        matches!(self.state, SessionState::Ready(_))
    }

    /// The state of a user, for commands after the login only.
    fn ready(&mut self) -> &mut ReadyState {
        match &mut self.state {
            SessionState::Ready(ready) => ready,
            _ => unreachable!("commands of users are refused before login"),
        }
    }

    fn ask(&mut self, ask: Ask, then: Then) -> Option<Ask> {
        self.then = Some(then);
        Some(ask)
    }

    /// A command where a proof is due counts as a failed login.
    fn refuse(&mut self, code: u16, text: &str) -> Option<Ask> {
        if self.proof == secure::ProofStep::Begun && !self.is_ready() {
            self.unproved
                .push(text.chars().take(LOGGED_CHARS).collect());
            self.turn_down(code, text);
            return None;
        }
        self.say.line(code, text);
        self.refused_lines += 1;
        if self.refused_lines >= REFUSED_LINES_MAX {
            self.close("That is not FTP.");
        }
        None
    }

    /// Resolves a name, or replies with the reason for a refusal.
    fn path(&mut self, name: &[u8], doing: &str) -> Option<PathBuf> {
        let ready = self.ready();
        match place::resolve_from(&ready.home, &ready.current, name) {
            Ok(path) => Some(path),
            Err(failure) => {
                failure.say(doing, &mut self.say);
                None
            }
        }
    }

    /// Resolves the name of a command that changes something; refused for a login that may only read.
    fn path_to_change(&mut self, name: &[u8], doing: &str) -> Option<PathBuf> {
        if !self.ready().may_write {
            let failure =
                Refusal::of_kind(Kind::Denied, "Permission denied: this login may only read");
            failure.say(doing, &mut self.say);
            return None;
        }
        self.path(name, doing)
    }
}

/// How many levels a listing covers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ListingDepth {
    TheseOnly,
    AllBelow,
}

const LOGIN_FIRST: &str = "Please login with USER and PASS.";

/// A client that is refused this often in a row speaks something else.
const REFUSED_LINES_MAX: u32 = 100;
/// The most characters of a refused command that are logged.
const LOGGED_CHARS: usize = 200;
