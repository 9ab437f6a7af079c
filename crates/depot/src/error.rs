//! Why a depot does not do what was asked.

use godwit_core::{Fault, Kind, Url};
use godwit_store::Error as E;
use godwit_sys::why;
use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// The result of what a depot is asked.
pub type Result<T, E = Error> = std::result::Result<T, E>;

godwit_core::errors! {
    /// Errors that a caller may tell apart. One error may go to many callers.
    #[derive(Clone, Debug)]
    pub enum Error {
        /// The answer of the origin or of the target.
        #[error("{0}")]
        Store(Arc<godwit_store::Error>), Other;
        #[error("{}: {}", .path.display(), why(.cause))]
        Disk { path: PathBuf, cause: Arc<io::Error> } => of_disk, Disk;
        #[error("{}: the records cannot be kept: {what}", .path.display())]
        Records { path: PathBuf, what: String } => records, Disk;
        #[error("{}: was written by a newer godwit ({found:?}); this one knows {known:?}", .path.display())]
        Newer { path: PathBuf, found: String, known: &'static str } => newer, Newer;
        #[error("{}: is damaged: it should say {known:?}, and {}", .path.display(), what_it_says(.found))]
        Damaged { path: PathBuf, found: String, known: &'static str } => damaged, Disk;
        #[error("{}: is no depot, and not empty", .path.display())]
        Foreign { path: PathBuf } => foreign, Exists;
        #[error("{}: another node has it{}", .path.display(), which(*.process))]
        Taken {
            path: PathBuf,
            /// Which, where the kernel tells.
            process: Option<u32>
        } => taken, InUse;
        #[error("{}: lies on a network file system ({kind}), whose locks cannot be relied on", .path.display())]
        Network { path: PathBuf, kind: &'static str } => network, Unsupported;
        /// The file is larger than the depot.
        #[error("{url}: needs room for {size} bytes, and the depot holds {quota} at most")]
        TooLarge { url: Box<Url>, size: u64, quota: u64 } => too_large, TooLarge;
        /// Nothing more can be forgotten.
        #[error(
            "the depot is full: {wanted} bytes are wanted of {quota}, {owed} wait for delivery{} and {used} in use{}",
            to_whom(.to),
            who_else(*.before)
        )]
        Full {
            wanted: u64,
            quota: u64,
            owed: u64,
            used: u64,
            /// Servers for which bytes are pending, the one with most bytes first.
            to: Vec<String>,
            /// The number of writers that wait, and get room first.
            before: usize
        } => full, Quota;
        /// Those who wait for room wait for each other.
        #[error(
            "{url}: {wanted} bytes more are wanted, and there will be no room for them: who else writes here holds \
             {} of {quota} bytes and waits too, and this one began last",
            .held - .ours
        )]
        Crowded {
            url: Box<Url>,
            wanted: u64,
            quota: u64,
            /// The bytes that all writers have taken.
            held: u64,
            /// The bytes that this writer has taken.
            ours: u64
        } => crowded, Quota;
        #[error("{url}: {}: {why}", on_hold(.deed))]
        Held {
            url: Box<Url>,
            why: String,
            /// The change of the name; empty: its file is not delivered.
            deed: String
        } => held, OnHold;
        /// Files that left this machine are on hold at nodes on their way.
        #[error("{first}{}{}", as_well(.others), in_turn(.waiting))]
        OnHoldDownstream {
            first: Box<Error>,
            others: Vec<Url>,
            /// Names that wait for one of these.
            waiting: Vec<String>
        } => on_hold_downstream, OnHold;
        /// A file that left this machine is at no node on its way.
        #[error(
            "{url}: was given to {hop}, which has it no more, and it is not at its end: it was removed there, or the hop lost it"
        )]
        GoneBehind { url: Box<Url>, hop: String } => was_lost, OnHold;
        /// Our own disk has other bytes than were written.
        #[error(
            "{url}: this machine's disk has damaged the bytes from {at} on since they were written here, and they are not delivered"
        )]
        Rotten { url: Box<Url>, at: u64 } => rotten, Corrupt;
        #[error("nothing of that name is pending or kept here: {0}")]
        Unknown(String), Missing;
        /// The write counts, and is not durable.
        #[error(
            "{url}: what was written counts and goes, and would not survive an end of this machine: {why}"
        )]
        Unsafe { url: Box<Url>, why: String } => not_safe, Disk;
        #[error("{url}: is {what}")]
        Busy { url: Box<Url>, what: String } => in_use, InUse;
        /// Some of it came, and then nothing more did, however often it was tried.
        #[error("{url}: only {came} of {size} bytes came before its server went away: {cause}")]
        BrokeOff { url: Box<Url>, came: u64, size: u64, cause: Arc<godwit_store::Error> } => broke_off, Lost;
        #[error("{url}: changed at its origin again and again while it was fetched")]
        Restless { url: Box<Url> } => restless, Restless;
        #[error("{url} and {to} are not on one server")]
        OtherServer { url: Box<Url>, to: Box<Url> } => other_server, OtherServer;
        #[error("not done within {} s: {what}", seconds(*.waited))]
        TimedOut { waited: Duration, what: String } => timed_out, Late;
        #[error("the caller waits for it no more")]
        Unwanted, Canceled;
        #[error("the node ends")]
        Ending, Ending;
    }
}

/// Says what is on hold of a name.
fn on_hold(deed: &str) -> String {
    match deed {
        "" => "is on hold until you run godwit retry, release or drop".into(),
        deed => format!("its {deed} is on hold"),
    }
}

/// Returns a time as a person would have said it.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

impl Error {
    pub(crate) fn disk(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::of_disk(path, cause)
    }

    pub(crate) fn busy(url: &Url, what: &dyn std::fmt::Display) -> Self {
        Self::in_use(url.clone(), what.to_string())
    }

    pub(crate) fn gone_downstream(url: &Url) -> Self {
        Self::was_lost(url.without_password(), url.host_port())
    }

    /// Returns what the store of a target said.
    pub(crate) fn of_store(&self) -> Option<&godwit_store::Error> {
        match self {
            Self::Store(error) | Self::BrokeOff { cause: error, .. } => Some(error),
            Self::OnHoldDownstream { first, .. } => first.of_store(),
            _ => None,
        }
    }

    /// Returns the row of the table of errors that this one has.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Store(error) => error.origin().kind(),
            Self::OnHoldDownstream { first, .. } => first.kind(),
            Self::Disk { cause, .. } => Self::kind_of_disk(cause),
            _ => self.row(),
        }
    }

    /// Returns the kind of what a disk of this machine answered. A file of ours that is not there is not one that a
    /// program named.
    pub fn kind_of_disk(cause: &io::Error) -> Kind {
        match cause.kind() {
            io::ErrorKind::PermissionDenied => Kind::Denied,
            io::ErrorKind::StorageFull => Kind::NoSpace,
            io::ErrorKind::QuotaExceeded => Kind::Quota,
            io::ErrorKind::FileTooLarge => Kind::TooLarge,
            io::ErrorKind::ReadOnlyFilesystem => Kind::ReadOnly,
            _ => Kind::Disk,
        }
    }

    /// Tells whether waiting can help.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Store(error) | Self::BrokeOff { cause: error, .. } => error.fault(),
            // Our own disk may have room again, and then it goes on.
            Self::Disk { .. } => Fault::Passing,
            Self::Taken { .. } | Self::Damaged { .. } | Self::OnHoldDownstream { .. } => {
                Fault::Lasting
            }
            _ => self.kind().fault(),
        }
    }

    /// Returns what to do next, where we know.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Store(error) => return error.hint(),
            Self::OnHoldDownstream { first, .. } => return first.hint(),
            Self::Newer { .. } => format!("run the newer godwit, or {ANOTHER_STATE}"),
            Self::Damaged { known, .. } => format!(
                "if the rest of that directory is as it was, write {known:?} into that file; else {ANOTHER_STATE}"
            ),
            Self::Foreign { .. } => ANOTHER_STATE.into(),
            Self::Taken { process, .. } => format!(
                "it goes on until that node is ended{} (what it keeps stays); or {ANOTHER_STATE}",
                process.map_or_else(String::new, |process| format!(" by kill {process}"))
            ),
            Self::Network { .. } => format!("{ANOTHER_STATE}, on a disk of this machine"),
            Self::TooLarge { .. } => {
                format!("godwit cp and reading to memory keep nothing here; {MORE_QUOTA}")
            }
            Self::Full { .. } => format!(
                "godwit queue shows what is pending; it frees room when it is delivered, and {MORE_QUOTA}"
            ),
            Self::Crowded { .. } => format!(
                "put it again when they have ended, or put a file instead of a pipe: how much room it needs is \
                 known then; {MORE_QUOTA}"
            ),
            Self::GoneBehind { .. } => "put it again if it is to be there".into(),
            Self::Rotten { .. } => "put it again, or give it up with godwit drop".into(),
            Self::Unsafe { .. } => "make room or mend the disk, then: godwit commit".into(),
            Self::Held { url, deed, .. } if !deed.is_empty() => {
                let url = url.without_password().pasted();
                format!(
                    "godwit retry {url} tries it again, godwit release {url} does it whatever is there by now, godwit drop \
                     {url} gives it up"
                )
            }
            Self::Held { url, .. } => {
                let url = url.without_password().pasted();
                format!(
                    "its bytes are kept: godwit retry {url} tries it again, godwit release {url} delivers it over what is \
                     there, godwit drop {url} gives it up"
                )
            }
            Self::Unknown(_) => "godwit queue shows what is pending, and how it is named".into(),
            Self::OtherServer { .. } => {
                "godwit mv copies to the other server and removes the original".into()
            }
            Self::BrokeOff { .. } => "ask again when the server is there".into(),
            _ => return None,
        };
        Some(hint)
    }
}

const ANOTHER_STATE: &str =
    "name another directory in GODWIT_STATE, or with --state of godwit node --local";
const MORE_QUOTA: &str = "a larger GODWIT_DEPOT_QUOTA gives more, after godwit node stop";

impl Error {
    /// Returns the fault of an operation that is pending since `created_at` (seconds since the epoch). An unknown host may
    /// be away, or new to its name service; after [`UNKNOWN_MAX`] it counts as one that does not exist.
    pub(crate) fn fault_since(&self, created_at: u64) -> Fault {
        let is_recent = crate::clock::now().saturating_sub(created_at) < UNKNOWN_MAX.as_secs();
        match is_unknown_host(self) && is_recent {
            true => Fault::Passing,
            false => self.fault(),
        }
    }

    /// Returns the reason of a hold that ends when the user renews a credential, with the command; `None` of others.
    pub(crate) fn wants_proof(&self) -> Option<String> {
        let said = self.of_store().filter(|said| said.is_of_our_proof())?;
        Some(format!("{self}; {}{RETRY}", said.hint()?))
    }

    /// Returns it as the queue says it.
    pub(crate) fn reason(&self) -> String {
        match self.of_store().and_then(godwit_store::Error::hint) {
            _ if is_unknown_host(self) => format!("{self}; it is tried for a day, and then held"),
            Some(hint) if self.of_store().is_some_and(is_on_hold_downstream) => {
                format!("{self}; {hint}")
            }
            _ => self.to_string(),
        }
    }
}

/// Since when a server has answered nothing but that it has trouble of its own, which it does not name: it may be
/// dying, and be well when it is there again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
    /// How often it said that something is not there, and knew of what is above that.
    missing: u32,
    /// How often something else landed there than what was sent.
    spoilt: u32,
}

impl Patience {
    /// Tells whether one more such answer may pass, as that has not gone on for so long.
    pub(crate) fn may_pass(&mut self, error: &Error, longest: Duration) -> bool {
        if !error.of_store().is_some_and(is_trouble) {
            self.since = None;
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() < longest
    }

    /// Tells whether that something is not there may pass: it was not said so often yet by a server that knows
    /// something `above` it.
    pub(crate) fn may_be_there(&mut self, error: &Error, above: Option<usize>) -> bool {
        self.missing += u32::from(above.is_some());
        let is_missing = error.of_store().is_some_and(is_missing);
        is_missing && (above.is_none() || self.missing < TRIES_MISSING)
    }

    /// Tells whether something else landed than what was sent, and that was not so often yet.
    pub(crate) fn may_be_sent_anew(&mut self, error: &Error) -> bool {
        let is_spoilt = matches!(error.of_store(), Some(E::Corrupt { .. }));
        self.spoilt += u32::from(is_spoilt);
        is_spoilt && self.spoilt <= TRIES_SPOILT
    }
}

/// Tells whether the server says that something is not there.
pub(crate) fn is_missing(error: &godwit_store::Error) -> bool {
    matches!(error, E::Missing { .. })
}

/// Tells whether nothing can be at a name: it is not there, or what is above it is a file.
pub(crate) fn is_nowhere(error: &godwit_store::Error) -> bool {
    matches!(error, E::Missing { .. } | E::NotDirectory { .. })
}

/// Tells whether the server did not manage what it would have done, or one wrong bit may have ended the handshake.
pub(crate) fn is_trouble(error: &godwit_store::Error) -> bool {
    match error {
        E::Refused { code: 500, .. } | E::Io { .. } | E::NotTls { .. } => true,
        E::Trust { cause, .. } => cause.is_doubtful(),
        _ => false,
    }
}

/// Tells whether the disk of the target takes nothing at the moment: it is full, or read-only, as Linux makes one that
/// fails. It takes something again some day, and no user need say so.
pub(crate) fn is_shut(error: &godwit_store::Error) -> bool {
    match error {
        E::NoSpace { .. } => true,
        E::Denied { said, .. } => said.to_ascii_lowercase().contains("read-only file system"),
        _ => false,
    }
}

/// Tells whether the file is on hold at a node behind the server.
pub(crate) fn is_on_hold_downstream(error: &godwit_store::Error) -> bool {
    matches!(error, E::Held { .. })
}

/// Tells whether the name of the server is unknown.
pub(crate) fn is_unknown_host(error: &Error) -> bool {
    matches!(error, Error::Store(error) if matches!(**error, godwit_store::Error::NoSuchHost { .. }))
}

/// Tells whether waiting may help, as far as one answer tells.
pub(crate) fn may_pass(error: &godwit_store::Error) -> bool {
    let is_unknown = matches!(error, godwit_store::Error::NoSuchHost { .. });
    is_unknown || is_shut(error) || error.fault() != Fault::Lasting
}

/// Says what is to be done first.
pub(crate) fn wants_directory(above: &Url) -> String {
    let command = format!("godwit mkdir -p {}", above.pasted());
    format!(
        "{}; {command} makes it, and then it goes by itself",
        no_directory(above)
    )
}

/// Tells whether `why` is that a directory is not there.
pub(crate) fn is_for_directory(why: &str, above: &Url) -> bool {
    why.starts_with(&no_directory(above))
}

fn no_directory(above: &Url) -> String {
    format!("the directory {above} is not there")
}

const RETRY: &str = ", and godwit retry then delivers it";

/// Names what is held besides.
fn as_well(others: &[Url]) -> String {
    let names = others.iter().take(NAMED_MAX);
    let names: Vec<_> = names
        .map(|url| url.without_password().to_string())
        .collect();
    match (names.is_empty(), others.len() - names.len()) {
        (true, _) => String::new(),
        (_, 0) => format!("; held as well: {}", names.join(", ")),
        (_, more) => format!("; held as well: {} and {more} more", names.join(", ")),
    }
}

/// Names what waits for what is held.
fn in_turn(waiting: &[String]) -> String {
    match waiting {
        [] => String::new(),
        [one] => format!("; {one} waits for that"),
        [one, more @ ..] => format!("; {one} and {} more wait for that", more.len()),
    }
}

/// The number of names that a message lists.
const NAMED_MAX: usize = 8;

/// So often a file that is not there is looked for.
const TRIES_MISSING: u32 = 3;

/// So often what landed as something else is sent anew.
const TRIES_SPOILT: u32 = 3;

/// So long a name that leads nowhere is taken for a machine that is away.
const UNKNOWN_MAX: Duration = Duration::from_secs(24 * 3600);

fn what_it_says(found: &str) -> String {
    match found {
        "" => "is empty".into(),
        other => format!("says {other:?}"),
    }
}

fn which(process: Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(": process {process}"))
}

fn to_whom(servers: &[String]) -> String {
    match servers {
        [] => String::new(),
        [one] => format!(" to {one}"),
        [one, others @ ..] => format!(" to {one} and {} others", others.len()),
    }
}

fn who_else(before: usize) -> String {
    match before {
        0 => String::new(),
        1 => "; one other waits and came before".into(),
        others => format!("; {others} others wait and came before"),
    }
}

impl From<godwit_store::Error> for Error {
    fn from(error: godwit_store::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}
/// An upload whose bytes were written again meanwhile, to a server that takes no byte twice: it begins anew.
pub(crate) fn written_again(url: &Url) -> E {
    E::lost(
        url.host_port(),
        "sending what was written again",
        std::io::ErrorKind::Interrupted,
    )
}
