//! Requests of the session to its driver, and the driver's answers.
//!
//! Paths are relative to the root of the export, without `..`.

use crate::command::{Family, StripeShare, Through, TransferMode, Upload};
use crate::server::listing::Listing;
use crate::shield::{Cover, DataPeer, Level};
use crate::tuned::TunedStreams;
use godwit_core::{Algorithm, Chain, Extents, Striping};
use std::{net::SocketAddr, ops::Range, path::PathBuf, time::Duration};

/// A wish of the session. Each is answered once, by [`super::Session::on_answer`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Ask {
    /// Begin the proof of both identities. → `Done`; for TLS with [`super::Session::guard_with`]
    Authenticate { by: Mechanism },
    /// A token of the client. → `Token`; or, with [`super::Session::guard_with`],
    /// → `Proved`
    Prove { token: Vec<u8> },
    /// Checks a name and password, and finds the user's rights. → `Welcome`
    Login { user: String, password: Vec<u8> },
    /// Listen for data connections, forgetting earlier ones: at one address, or
    /// at one for each stripe. → `Listening`
    Listen {
        family: Option<Family>,
        striped: bool,
    },
    /// Remember where to connect to for data, forgetting earlier ones. → `Done`
    Aim { to: Vec<SocketAddr> },
    /// Forget data connections and addresses. → `Done`
    Hang,
    /// Use this credential (PEM) on data connections; `None`: the delegated one again. → `Done`
    DataCredential { pem: Option<Vec<u8>> },
    /// → `Stat`
    Stat { path: PathBuf },
    /// As `Stat`, for a name that a listing shows next, if the user may see that name. → `Stat`
    Look { path: PathBuf },
    /// As `Stat`, of the name itself, even if the name is a link whose target is missing. → `Stat`
    Name { path: PathBuf },
    /// Length; of a name that is only a partial of this user: its prefix. → `Size`
    Size { path: PathBuf },
    /// → `Done`
    Remove { path: PathBuf, what: Removed },
    /// → `Done`
    MakeDir { path: PathBuf },
    /// → `Done`
    Rename { from: PathBuf, to: PathBuf },
    /// → `Done`
    Change { path: PathBuf, change: Change },
    /// → `Done`
    Link { path: PathBuf, target: PathBuf },
    /// → `Digest`
    Digest {
        path: PathBuf,
        by: Algorithm,
        range: Option<Range<u64>>,
        markers: Option<Duration>,
    },
    /// Call `Session::on_entry` for each entry, then → `Done`
    Show { path: PathBuf, listing: Listing },
    /// Send a listing over a data connection. → `Sent`
    List {
        path: PathBuf,
        listing: Listing,
        leg: Leg,
    },
    /// Send a file. → `Sent`
    Retrieve { path: PathBuf, want: Want, leg: Leg },
    /// Receive a file. → `Sent`
    Store { path: PathBuf, give: Give, leg: Leg },
    /// Send a module's output for a file. → `Sent`
    RetrieveThrough {
        path: PathBuf,
        through: Through,
        leg: Leg,
    },
    /// Receive bytes of which a module makes a file. → `Sent`
    StoreThrough {
        path: PathBuf,
        through: Through,
        give: Give,
        leg: Leg,
    },
    /// Finds the ranges of an upload that have landed. → `Landed`
    Landed { path: PathBuf, id: Option<String> },
    /// Publish an upload. → `Sent`
    Finish {
        path: PathBuf,
        upload: Upload,
        digests: bool,
    },
    /// → `Leaves`
    Leaves {
        path: PathBuf,
        id: Option<String>,
        leaves: Range<u64>,
    },
    /// Forget an upload. → `Done`
    Abandon { path: PathBuf, id: Option<String> },
    /// → `Space`
    Space { path: PathBuf },
    /// Wait until all that was written where `path` is would survive a power cut. → `Done`
    Flush { path: PathBuf },
    /// List unfinished uploads below a directory, the first of them, with paths relative to it. → `Names`
    Hidden { path: PathBuf },
}

/// A way to prove an identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mechanism {
    /// Certificates, as Globus uses, or a ticket (Kerberos).
    Gssapi,
    /// The key of a cluster (docs/formats/ftp-extensions.md).
    Godwit,
    /// The server by a certificate, the client by a password afterwards (RFC 4217).
    Tls,
}

impl Mechanism {
    /// Returns the word behind `AUTH`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gssapi => "GSSAPI",
            Self::Godwit => "GODWIT",
            Self::Tls => "TLS",
        }
    }

    /// Returns the mechanism of a word behind `AUTH`.
    pub(super) fn of(word: &str) -> Option<Self> {
        let known = [Self::Gssapi, Self::Godwit, Self::Tls];
        let word = if word == "TLS-C" { "TLS" } else { word };
        known.into_iter().find(|by| by.word() == word)
    }
}

/// The kind of name to remove.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Removed {
    File,
    Directory,
    Tree,
}

/// One attribute to change.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Change {
    Mode(u32),
    Modify(Duration),
    Group(String),
    Length(u64),
}

/// How the bytes of a transfer travel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leg {
    /// Stream or extended blocks.
    pub mode: TransferMode,
    /// Lines end in CR LF on the wire and in LF in files: `TYPE A`. Blocks of MODE E have
    /// offsets of the file, so their bytes go as they are.
    pub is_text: bool,
    /// Data connections to open, where the sender opens them.
    pub streams: usize,
    /// With how many of them to begin, where the sender decides how many to use:
    /// `OPTS RETR Parallelism=first,least,most;` with a first below the most.
    pub streams_first: Option<usize>,
    /// Which bytes each of several senders has; `None`: any division.
    pub striping: Option<Striping>,
    /// This session is one of several that make a striped transfer.
    pub share: Option<StripeShare>,
    /// The buffer size of data connections; `None`: the kernel's choice.
    pub buffer_bytes: Option<u32>,
    /// The client needs the address before the transfer: listen first, in this family if one was named, and call
    /// `Session::on_address`.
    pub delayed: Option<Option<Family>>,
    /// How often to call `Session::on_range` with the landed ranges.
    pub restart_every: Duration,
    /// How often to call `Session::on_progress`; `None`: never.
    pub progress_every: Option<Duration>,
    /// Whether to call `Session::on_leaves`.
    pub leaves: bool,
    /// Whether the client wants digests; true unless it declined them.
    pub digests: bool,
    /// Whether the peer of the data connection is a node: a sender may then be passive.
    pub ours: bool,
    /// The identity that the peer of each data connection must prove.
    pub peer: DataPeer,
    /// The protection of the bytes on data connections.
    pub level: Level,
    /// How long a block may be, where they go in blocks.
    pub block_bytes: u32,
}

/// The bytes of a file to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Want {
    /// The part asked for; block offsets on the wire count from its start.
    pub part: Range<u64>,
    /// The ranges of the part that the receiver has, counted from the part's start.
    pub have: Extents,
}

/// The target of the bytes that arrive, and the checks at their end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Give {
    /// Where they go.
    pub place: UploadPlace,
    /// The ranges that the receiver has, by `REST`; in stream mode the bytes follow them.
    pub rest: Option<crate::command::Rest>,
    /// The announced length (`ALLO`): of the whole file, or of the bytes that follow.
    pub size: Option<u64>,
    /// The hash that the whole file must have (`SCKS`).
    pub check: Option<(Algorithm, String)>,
    /// Time of change to give it.
    pub modify: Option<Duration>,
}

/// Where bytes of an upload go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum UploadPlace {
    /// `STOR`.
    Whole,
    /// `APPE`.
    End,
    /// `ESTO A`: offsets on the wire count from here.
    At(u64),
    /// `ESTO GODWIT`: offsets are the file's.
    Named(Upload),
    /// `STOU`: under a new name that begins like this one; pass the name to `Session::on_unique`.
    Unique,
}

/// How an [`Ask`] ended.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum FtpAnswer {
    Done,
    /// For the client, who answers with another.
    Token(Vec<u8>),
    /// Both identities are proved; a last token may be due.
    Proved {
        token: Option<Vec<u8>>,
        cover: Cover,
    },
    Welcome(Welcome),
    Listening(Vec<SocketAddr>),
    Stat(super::ListedStat),
    Size(u64),
    Digest(String),
    Sent(FtpOutcome),
    Landed {
        size: Option<u64>,
        done: Extents,
    },
    Leaves(Vec<(u64, Chain)>),
    Names(Vec<PathBuf>),
    Space {
        total_bytes: u64,
        free_bytes: u64,
    },
    /// All bytes of an upload arrived, but no file was made of them; or a listing is incomplete. The data connections
    /// are as after a successful transfer.
    NotKept(super::Refusal),
    Failed(super::Refusal),
}

/// A user who was let in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Welcome {
    /// Under which name.
    pub user: String,
    /// Whether they may change anything.
    pub may_write: bool,
    /// The starting directory and meaning of `~`, beneath the root of the export.
    pub home: PathBuf,
}

/// The result of a transfer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FtpOutcome {
    /// Length of the file; with a module, of the bytes on the data connections.
    pub size: Option<u64>,
    /// Its time of change.
    pub modify: Option<Duration>,
    /// When anything of a file that was read was last changed.
    pub touched: Option<Duration>,
    /// 64 hex digits, if known without another read; with a module, the hash of the bytes on the data connections.
    pub blake3: Option<String>,
    /// Length of the file that a module made of an upload.
    pub kept: Option<u64>,
    /// The landed ranges of an upload that is not published.
    pub done: Option<Extents>,
    /// Whether an upload is under its name now.
    pub published: Option<bool>,
    /// Bytes that were read a second time.
    pub reread_bytes: u64,
    /// A file was to be replaced, and readers saw it change: its directory is closed.
    pub in_place: bool,
    /// How the sender tuned its streams, if the choice was this server's.
    pub tuned: Option<TunedStreams>,
}
