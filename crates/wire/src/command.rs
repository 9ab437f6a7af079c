//! What a client can say: one line, parsed once into a [`Command`].
//!
//! A line that cannot be understood becomes a [`Refusal`], the reply that says
//! why. Names are raw bytes here; where they lead is decided in the session.

use crate::{
    address::{self, Bars, STRIPES_MAX},
    base64, time,
};
use godwit_core::{Extents, Striping};
use std::{net::SocketAddr, ops::Range, time::Duration};

/// A name as it stood on the line: everything behind the first space.
pub type RawName = Vec<u8>;

/// A command line, understood.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Command {
    // Access.
    User(String),
    Pass(Vec<u8>),
    Acct,
    Auth(String),
    /// A token of the mechanism.
    Adat(Vec<u8>),
    /// `ENC`, `MIC` or `CONF` where nothing is protected.
    Wrapped,
    /// Commands in clear again.
    Ccc,
    Rein,
    Quit,
    // Where we stand.
    Cwd(RawName),
    Cdup,
    Pwd,
    // Settings.
    Type(Type),
    Stru,
    Mode(Mode),
    Opts(Opts),
    Trev {
        event: String,
        every: Duration,
    },
    Sbuf(Option<u32>),
    /// Buffers are sized by themselves again.
    Abuf,
    Lang,
    Pbsz(u64),
    Prot(String),
    Dcau(String),
    /// The credential of data connections, or `None`: that of the login.
    Dcsc(Option<Vec<u8>>),
    // Data connections.
    Pasv,
    Epsv(Option<Family>),
    EpsvAll,
    Spas(Option<Family>),
    Port(Vec<SocketAddr>),
    // What the next transfer is to be.
    Allo(u64),
    Rest(Rest),
    Scks {
        by: String,
        value: String,
    },
    // Transfers.
    Retr(RawName),
    Eret {
        part: Range<u64>,
        name: RawName,
    },
    EretThrough {
        through: Through,
        name: RawName,
    },
    Stor(RawName),
    Appe(RawName),
    Stou(String),
    Esto {
        offset: u64,
        name: RawName,
    },
    EstoGodwit {
        upload: Upload,
        name: RawName,
    },
    EstoThrough {
        through: Through,
        name: RawName,
    },
    List(RawName),
    Nlst(RawName),
    Mlsd(RawName),
    Mlsr(RawName),
    // Names.
    Mlst(RawName),
    Mlsc(RawName),
    Stat(RawName),
    Size(RawName),
    Mdtm(RawName),
    Mfmt {
        modify: Duration,
        name: RawName,
    },
    Cksm {
        by: String,
        range: Option<Range<u64>>,
        name: RawName,
    },
    Rnfr(RawName),
    Rnto(RawName),
    Dele(RawName),
    Rmd(RawName),
    Mkd(RawName),
    Site(Site),
    // The rest.
    Feat,
    Help(String),
    Syst,
    Noop,
    Abor,
}

/// `SITE` and what follows it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Site {
    Help,
    Chmod {
        mode: u32,
        name: RawName,
    },
    Chgrp {
        group: String,
        name: RawName,
    },
    Utime {
        modify: Duration,
        name: RawName,
    },
    Symlink {
        target: RawName,
        name: RawName,
    },
    SymlinkFrom(RawName),
    SymlinkTo(RawName),
    Trnc {
        length: u64,
        name: RawName,
    },
    Rdel(RawName),
    StorAttr {
        modify: Option<Duration>,
    },
    Buffer(Option<u32>),
    /// `CLIENTINFO`, `TASKID`: who asks, for the log.
    Note(String),
    Version,
    Whoami,
    Godwit(Godwit),
}

/// Our own commands, see FORMATS.md §1.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Godwit {
    Done {
        id: Option<String>,
        name: RawName,
    },
    Finish {
        upload: Upload,
        name: RawName,
    },
    Leaves {
        id: Option<String>,
        leaves: Range<u64>,
        name: RawName,
    },
    Abandon {
        id: Option<String>,
        name: RawName,
    },
    Space {
        name: RawName,
    },
    Flush {
        name: RawName,
    },
    Hidden {
        name: RawName,
    },
    Modules,
}

/// A program of the server that bytes go through, as the client names it:
/// `NAME="PARAMETERS"`, or `NAME`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Through {
    /// What the server calls it.
    pub module: String,
    /// What it is told; may be empty.
    pub parameters: String,
}

impl std::fmt::Display for Through {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=\"{}\"", self.module, self.parameters)
    }
}

impl std::str::FromStr for Through {
    type Err = &'static str;

    /// Reads `NAME` or `NAME=PARAMETERS`, of which a command line can be made.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (module, parameters) = text.split_once('=').unwrap_or((text, ""));
        let through = Self {
            module: module.into(),
            parameters: parameters.into(),
        };
        match parse_through(format!("{through} x").as_bytes()) {
            Ok((read, name)) if read == through && name == b"x" => Ok(read),
            _ => Err(
                "MODULE or MODULE=PARAMETERS: a name of A-Z a-z 0-9 . _ -, and at most \
                      1024 bytes on one line without quotation marks",
            ),
        }
    }
}

/// What `ESTO GODWIT` and `SITE GODWIT FINISH` say about an upload.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Upload {
    /// Name of the upload.
    pub id: Option<String>,
    /// Length of the whole file.
    pub size: Option<u64>,
    /// Time of change to give it.
    pub modify: Option<Duration>,
    /// Permission bits to give it.
    pub mode: Option<u32>,
    /// What the whole must hash to, 64 lower-case hex digits.
    pub blake3: Option<String>,
    /// The end of data does not publish.
    pub hold: bool,
    /// What may stand under the name.
    pub how: UploadHow,
}

/// What an upload does to what stands under its name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum UploadHow {
    New,
    #[default]
    Replace,
    InPlace,
}

/// Representation type. Both send bytes as they are: like most servers we do
/// not change line ends, which would make sizes and digests lie.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Type {
    Ascii,
    Image,
}

/// Transmission mode.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// `MODE S`: the end of the file is the end of the connection.
    #[default]
    Stream,
    /// `MODE E`, GFD.20: blocks with offsets, any number of connections.
    Extended,
}

/// Address family of RFC 2428.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Family {
    V4,
    V6,
}

/// What is there already when a transfer goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Rest {
    /// `REST n`: everything before `n`.
    From(u64),
    /// `REST a-b,c-d`, GFD.20: these ranges.
    Have(Extents),
}

/// `Parallelism=` of `OPTS RETR`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parallelism {
    /// Data connections to begin with.
    pub first: usize,
    /// At most.
    pub most: usize,
}

/// `OPTS`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Opts {
    /// Of sending.
    Retr {
        /// Data connections.
        parallelism: Option<Parallelism>,
        /// Seconds between performance markers; 0 is none.
        markers: Option<Duration>,
        /// Which bytes each of several senders has.
        striping: Option<Striping>,
    },
    /// The address of a passive port may come with the transfer.
    PasvAllowDelayed(bool),
    /// Markers while a checksum is computed.
    CksmMarkers(Duration),
    /// Which facts listings tell, as written; unknown ones are left out later.
    Facts {
        /// `MLST`, `MLSD`, `MLSR` or `MLSC`.
        of: &'static str,
        /// Their names.
        names: Vec<String>,
    },
    /// Names are UTF-8, or any bytes.
    Utf8,
    /// `OPTS GODWIT 1`, and what stands behind it.
    Godwit {
        /// Whether digests are computed and told: not `digests=0`.
        digests: bool,
        /// `stripe=I/N;ends=E`: the part that this session has in striped transfers.
        share: Option<Share>,
    },
}

/// The part that a member has in the striped transfers of its front.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Share {
    /// Which stripe.
    pub index: u64,
    /// Of how many.
    pub count: u64,
    /// How many ends of data are announced to where it sends, others' among them;
    /// 0: somebody else announces them; `None`: its own, since it alone sends there.
    pub ends: Option<u64>,
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stripe={}/{};", self.index, self.count)?;
        match self.ends {
            Some(ends) => write!(f, "ends={ends};"),
            None => Ok(()),
        }
    }
}

/// The reply to a line that is no command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// Its code.
    pub code: u16,
    /// Why.
    pub text: String,
}

type Parsed<T> = Result<T, Refusal>;

impl Command {
    /// Parses a line without its line end.
    pub fn parse(line: &[u8]) -> Parsed<Self> {
        let (verb, rest) = word(line);
        let verb = verb.to_ascii_uppercase();
        Ok(match verb.as_slice() {
            b"USER" => Self::User(needed_text(rest)?),
            b"PASS" => Self::Pass(rest.to_vec()),
            b"ACCT" => Self::Acct,
            b"AUTH" => Self::Auth(text(rest).to_ascii_uppercase()),
            b"ADAT" => Self::Adat(parse_base64(rest)?),
            b"ENC" | b"MIC" | b"CONF" => Self::Wrapped,
            b"CCC" => Self::Ccc,
            b"REIN" => Self::Rein,
            b"QUIT" => Self::Quit,
            b"CWD" | b"XCWD" => Self::Cwd(needed(rest)?),
            b"CDUP" | b"XCUP" => Self::Cdup,
            b"PWD" | b"XPWD" => Self::Pwd,
            b"TYPE" => Self::Type(parse_type(rest)?),
            b"STRU" => parse_structure(rest)?,
            b"MODE" => Self::Mode(parse_mode(rest)?),
            b"OPTS" => Self::Opts(parse_options(rest)?),
            b"TREV" => parse_trev(rest)?,
            b"SBUF" => Self::Sbuf(buffer_bytes(rest)?),
            // Whatever way of negotiating is named: there is one, the kernel's.
            b"ABUF" => Self::Abuf,
            b"LANG" => parse_language(rest)?,
            b"PBSZ" => Self::Pbsz(number(rest)?),
            b"PROT" => Self::Prot(text(rest).to_ascii_uppercase()),
            b"DCAU" => Self::Dcau(needed_text(rest)?),
            b"DCSC" => parse_data_credential(rest)?,
            b"PASV" => Self::Pasv,
            b"EPSV" if rest.eq_ignore_ascii_case(b"ALL") => Self::EpsvAll,
            b"EPSV" => Self::Epsv(parse_family(rest)?),
            b"SPAS" => Self::Spas(parse_family(rest)?),
            b"PORT" => Self::Port(parse_port(rest)?),
            b"EPRT" => Self::Port(parse_extended_port(rest)?),
            b"SPOR" => Self::Port(parse_striped_port(rest)?),
            b"ALLO" => Self::Allo(number(word(rest).0)?),
            b"REST" => Self::Rest(parse_rest(rest)?),
            b"SCKS" => {
                let (by, value) = word(rest);
                Self::Scks {
                    by: needed_text(by)?,
                    value: needed_text(value)?,
                }
            }
            b"RETR" => Self::Retr(needed(rest)?),
            b"ERET" => parse_eret(rest)?,
            b"STOR" => Self::Stor(needed(rest)?),
            b"APPE" => Self::Appe(needed(rest)?),
            // RFC 959 knows no argument; some clients suggest a name.
            b"STOU" => Self::Stou(text(rest)),
            b"ESTO" => parse_esto(rest)?,
            b"LIST" => Self::List(without_options(rest).to_vec()),
            b"NLST" => Self::Nlst(without_options(rest).to_vec()),
            b"MLSD" => Self::Mlsd(rest.to_vec()),
            b"MLSR" => Self::Mlsr(rest.to_vec()),
            b"MLST" => Self::Mlst(rest.to_vec()),
            b"MLSC" => Self::Mlsc(rest.to_vec()),
            b"STAT" => Self::Stat(without_options(rest).to_vec()),
            b"SIZE" => Self::Size(needed(rest)?),
            b"MDTM" => Self::Mdtm(needed(rest)?),
            b"MFMT" => {
                let (time, name) = word(rest);
                Self::Mfmt {
                    modify: parse_time(time)?,
                    name: needed(name)?,
                }
            }
            b"CKSM" => parse_checksum(rest)?,
            b"RNFR" => Self::Rnfr(needed(rest)?),
            b"RNTO" => Self::Rnto(needed(rest)?),
            b"DELE" => Self::Dele(needed(rest)?),
            b"RMD" | b"XRMD" => Self::Rmd(needed(rest)?),
            b"MKD" | b"XMKD" => Self::Mkd(needed(rest)?),
            b"SITE" => Self::Site(parse_site(rest)?),
            b"FEAT" => Self::Feat,
            b"HELP" => Self::Help(text(rest).to_ascii_uppercase()),
            b"SYST" => Self::Syst,
            b"NOOP" => Self::Noop,
            b"ABOR" => Self::Abor,
            _ => return refuse(500, "Command not supported."),
        })
    }

    /// Tells whether the line is `verb`, without parsing the rest.
    pub fn is(line: &[u8], verb: &str) -> bool {
        word(line).0.eq_ignore_ascii_case(verb.as_bytes())
    }
}

fn parse_base64(text: &[u8]) -> Parsed<Vec<u8>> {
    match base64::decode(text) {
        Some(bytes) => Ok(bytes),
        None => refuse(501, "That is not base64."),
    }
}

/// `DCSC P <PEM in base64>`, `DCSC D`. GCT's client also writes a small letter.
fn parse_data_credential(rest: &[u8]) -> Parsed<Command> {
    let (letter, text) = word(rest);
    match letter {
        b"P" | b"p" => Ok(Command::Dcsc(Some(parse_base64(text)?))),
        b"D" | b"d" => Ok(Command::Dcsc(None)),
        _ => refuse(504, "P and D are known."),
    }
}

fn parse_type(rest: &[u8]) -> Parsed<Type> {
    match text(rest).to_ascii_uppercase().as_str() {
        "I" | "L 8" | "L8" => Ok(Type::Image),
        "A" | "A N" => Ok(Type::Ascii),
        _ => refuse(501, "Unrecognized type; A and I are known."),
    }
}

fn parse_structure(rest: &[u8]) -> Parsed<Command> {
    if rest.eq_ignore_ascii_case(b"F") {
        return Ok(Command::Stru);
    }
    refuse(501, "Syntax error in parameter; only structure F is known.")
}

fn parse_mode(rest: &[u8]) -> Parsed<Mode> {
    match rest {
        b"S" | b"s" => Ok(Mode::Stream),
        b"E" | b"e" => Ok(Mode::Extended),
        _ => refuse(501, "Unrecognized transfer mode; S and E are known."),
    }
}

fn parse_language(rest: &[u8]) -> Parsed<Command> {
    let language = text(rest).to_ascii_uppercase();
    if language.is_empty() || language == "EN" || language.starts_with("EN-") {
        return Ok(Command::Lang);
    }
    refuse(504, "Only EN is spoken here.")
}

fn parse_family(rest: &[u8]) -> Parsed<Option<Family>> {
    match rest {
        b"" => Ok(None),
        b"1" => Ok(Some(Family::V4)),
        b"2" => Ok(Some(Family::V6)),
        _ => refuse(522, "Network protocol not supported, use (1,2)"),
    }
}

/// `TREV PERF 10 X`: GCT ignores what follows the number, and so do we.
fn parse_trev(rest: &[u8]) -> Parsed<Command> {
    let (event, rest) = word(rest);
    let event = text(event).to_ascii_uppercase();
    if !["PERF", "RESTART"].contains(&event.as_str()) {
        return refuse(501, "Unknown event; PERF and RESTART are known.");
    }
    let seconds = number(word(rest).0)?.min(SECONDS_MAX);
    Ok(Command::Trev {
        event,
        every: Duration::from_secs(seconds),
    })
}

fn parse_rest(rest: &[u8]) -> Parsed<Rest> {
    let marker = text(rest);
    if marker.bytes().all(|b| b.is_ascii_digit()) {
        return number(rest).map(Rest::From);
    }
    match marker.parse() {
        Ok(ranges) => Ok(Rest::Have(ranges)),
        Err(_) => refuse(
            501,
            "Bad restart marker: a number, or ranges like 0-100,200-300.",
        ),
    }
}

fn parse_port(rest: &[u8]) -> Parsed<Vec<SocketAddr>> {
    match address::commas(rest.trim_ascii()) {
        Ok(at) => Ok(vec![at.into()]),
        Err(_) => refuse(501, "Bad address: six numbers below 256, with commas."),
    }
}

fn parse_extended_port(rest: &[u8]) -> Parsed<Vec<SocketAddr>> {
    match address::bars(rest.trim_ascii()) {
        Ok(Bars { ip: Some(ip), port }) => Ok(vec![SocketAddr::new(ip, port)]),
        _ => refuse(501, "Bad address: |1|address|port| or |2|address|port|."),
    }
}

fn parse_striped_port(rest: &[u8]) -> Parsed<Vec<SocketAddr>> {
    address::list(rest).or_else(|_| refuse(501, "Bad addresses, or too many."))
}

fn parse_eret(rest: &[u8]) -> Parsed<Command> {
    let (module, behind) = word(rest);
    if !module.eq_ignore_ascii_case(b"P") {
        let (through, name) = parse_through(rest)?;
        return Ok(Command::EretThrough { through, name });
    }
    let (offset, rest) = word(behind);
    let (length, name) = word(rest);
    let (offset, length) = (number(offset)?, number(length)?);
    let Some(end) = offset.checked_add(length) else {
        return refuse(501, "Offset and length are beyond any file.");
    };
    Ok(Command::Eret {
        part: offset..end,
        name: needed(name)?,
    })
}

fn parse_esto(rest: &[u8]) -> Parsed<Command> {
    if let Some(rest) = after_word(rest, b"GODWIT=\"") {
        let Some(end) = rest.windows(2).position(|w| w == b"\" ") else {
            return refuse(501, "The parameters of the module have no end.");
        };
        let upload = parse_upload(&rest[..end])?;
        return Ok(Command::EstoGodwit {
            upload,
            name: needed(&rest[end + 2..])?,
        });
    }
    let (module, behind) = word(rest);
    if !module.eq_ignore_ascii_case(b"A") {
        let (through, name) = parse_through(rest)?;
        return Ok(Command::EstoThrough { through, name });
    }
    let (offset, name) = word(behind);
    Ok(Command::Esto {
        offset: number(offset)?,
        name: needed(name)?,
    })
}

/// `module="parameters" name` as GCT has it, whose parameters end at the next quotation
/// mark, or `module name`.
fn parse_through(rest: &[u8]) -> Parsed<(Through, RawName)> {
    let known = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    let end = rest.iter().position(|b| !known(b)).unwrap_or(rest.len());
    let (module, behind) = rest.split_at(end);
    if module.is_empty() || end > MODULE_MAX {
        return refuse(501, "A module is named by at most 32 of A-Z a-z 0-9 . _ -");
    }
    let (parameters, name) = match behind.strip_prefix(b"=\"") {
        None => (&b""[..], behind),
        Some(quoted) => match quoted.iter().position(|&b| b == b'"') {
            Some(end) => (&quoted[..end], &quoted[end + 1..]),
            None => return refuse(501, "The parameters of the module have no end."),
        },
    };
    let Some(name) = name.strip_prefix(b" ") else {
        return refuse(
            501,
            "A module is told as NAME=\"PARAMETERS\" and then a pathname.",
        );
    };
    let parameters = match str::from_utf8(parameters) {
        Ok(text) if text.len() <= PARAMETERS_MAX && !text.contains(char::is_control) => text,
        _ => {
            let why = "Parameters of a module are at most 1024 bytes of UTF-8 on one line.";
            return refuse(501, why);
        }
    };
    let through = Through {
        module: text(module),
        parameters: parameters.into(),
    };
    Ok((through, needed(name)?))
}

/// `size=N;modify=T;…`, every fact optional, unknown ones refused: whoever
/// sends one counts on it.
fn parse_upload(facts: &[u8]) -> Parsed<Upload> {
    let mut upload = Upload::default();
    for fact in text(facts).split(';').filter(|fact| !fact.is_empty()) {
        let (key, value) = fact.split_once('=').unwrap_or((fact, ""));
        match key.to_ascii_lowercase().as_str() {
            "id" => upload.id = Some(parse_id(value)?),
            "size" => upload.size = Some(number(value.as_bytes())?),
            "modify" => upload.modify = Some(parse_time(value.as_bytes())?),
            "mode" => upload.mode = Some(parse_permissions(value.as_bytes())?),
            "blake3" => upload.blake3 = Some(parse_blake3(value)?),
            "hold" => upload.hold = value == "1",
            "how" => upload.how = parse_how(value)?,
            _ => return refuse(501, format!("Unknown fact {key}.")),
        }
    }
    Ok(upload)
}

fn parse_id(value: &str) -> Parsed<String> {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    // A name of dots alone would lead out of the directory of partials.
    let dots = value.bytes().all(|b| b == b'.');
    if dots || value.len() > 64 || !value.bytes().all(known) {
        return refuse(501, "An upload id is 1 to 64 of A-Z a-z 0-9 . _ -");
    }
    Ok(value.into())
}

fn parse_blake3(value: &str) -> Parsed<String> {
    if value.len() != 64 || !value.bytes().all(|b| b.is_ascii_hexdigit()) {
        return refuse(501, "A BLAKE3 digest has 64 hex digits.");
    }
    Ok(value.to_ascii_lowercase())
}

fn parse_how(value: &str) -> Parsed<UploadHow> {
    match value {
        "new" => Ok(UploadHow::New),
        "replace" => Ok(UploadHow::Replace),
        "inplace" => Ok(UploadHow::InPlace),
        _ => refuse(501, "how is new, replace or inplace."),
    }
}

/// `CKSM alg offset length name`; length -1 means to the end.
fn parse_checksum(rest: &[u8]) -> Parsed<Command> {
    let (by, rest) = word(rest);
    let (offset, rest) = word(rest);
    let (length, name) = word(rest);
    let offset = number(offset)?;
    let range = match (offset, length) {
        (0, b"-1") => None,
        (offset, b"-1") => Some(offset..u64::MAX),
        (offset, length) => match offset.checked_add(number(length)?) {
            Some(end) => Some(offset..end),
            None => return refuse(501, "Offset and length are beyond any file."),
        },
    };
    Ok(Command::Cksm {
        by: needed_text(by)?,
        range,
        name: needed(name)?,
    })
}

fn parse_options(rest: &[u8]) -> Parsed<Opts> {
    let (of, rest) = word(rest);
    let value = text(rest);
    match text(of).to_ascii_uppercase().as_str() {
        "RETR" => parse_retr_options(&value),
        "PASV" => match option(&value, "ALLOWDELAYED") {
            Some(on) => Ok(Opts::PasvAllowDelayed(on == "1")),
            None => refuse(501, "AllowDelayed=0; or =1; is known."),
        },
        "CKSM" => match option(&value, "MARKERS").and_then(|n| n.parse().ok()) {
            Some(seconds) => Ok(Opts::CksmMarkers(seconds_at_most(seconds))),
            None => refuse(501, "Markers=seconds; is known."),
        },
        "MLST" => Ok(facts_of("MLST", &value)),
        "MLSD" => Ok(facts_of("MLSD", &value)),
        "MLSR" => Ok(facts_of("MLSR", &value)),
        "MLSC" => Ok(facts_of("MLSC", &value)),
        "UTF8" | "UTF-8" => match value.to_ascii_uppercase().as_str() {
            "" | "ON" => Ok(Opts::Utf8),
            _ => refuse(501, "Names are sent as they are stored, UTF-8 or not."),
        },
        "GODWIT" => parse_godwit_options(&value),
        _ => refuse(500, "OPTS failed."),
    }
}

fn facts_of(of: &'static str, value: &str) -> Opts {
    let names = value.split(';').map(str::trim).filter(|n| !n.is_empty());
    Opts::Facts {
        of,
        names: names.take(FACTS_MAX).map(Into::into).collect(),
    }
}

fn parse_godwit_options(value: &str) -> Parsed<Opts> {
    let not_spoken = || {
        refuse(
            501,
            "GODWIT 1 is spoken here, with digests=0 if they are not wanted.",
        )
    };
    let mut items = value.trim_end_matches(';').split(';');
    if items.next() != Some("1") {
        return not_spoken();
    }
    let (mut digests, mut stripe, mut ends) = (true, None, None);
    for item in items {
        match item.split_once('=') {
            Some(("digests", "0")) => digests = false,
            Some(("stripe", value)) => stripe = Some(value),
            Some(("ends", value)) => ends = Some(value),
            _ => return not_spoken(),
        }
    }
    let number = |text: &str| text.parse::<u64>().ok();
    let share = stripe.map(|stripe| {
        let (index, count) = stripe.split_once('/')?;
        let (index, count) = (number(index)?, number(count)?);
        let ends = match ends {
            Some(ends) => Some(number(ends)?),
            None => None,
        };
        (index < count && count <= STRIPES_MAX as u64).then_some(Share { index, count, ends })
    });
    match share {
        Some(None) => refuse(501, "A stripe is told as I/N, counted from 0."),
        share => Ok(Opts::Godwit {
            digests,
            share: share.flatten(),
        }),
    }
}

fn parse_retr_options(value: &str) -> Parsed<Opts> {
    let (mut parallelism, mut markers) = (None, None);
    let (mut layout, mut block) = (None, None);
    for item in value.split(';').filter(|item| !item.trim().is_empty()) {
        let (key, value) = item.split_once('=').unwrap_or((item, ""));
        match key.trim().to_ascii_uppercase().as_str() {
            "PARALLELISM" => match parse_parallelism(value) {
                Some(numbers) => parallelism = Some(numbers),
                None => return refuse(501, "Parallelism is a number above 0."),
            },
            "MARKERS" => match value.trim().parse() {
                Ok(seconds) => markers = Some(seconds_at_most(seconds)),
                Err(_) => return refuse(501, "Markers is a number of seconds."),
            },
            "STRIPELAYOUT" => layout = Some(value.trim().to_ascii_uppercase()),
            "BLOCKSIZE" => match value.trim().parse() {
                Ok(bytes) if bytes > 0 => block = Some(bytes),
                _ => return refuse(501, "BlockSize is a number of bytes above 0."),
            },
            _ => return refuse(500, "OPTS failed."),
        }
    }
    let blocked = block.map(|bytes| Striping::Blocked { bytes });
    let striping = match layout.as_deref() {
        Some("PARTITIONED") => Some(Striping::Partitioned),
        Some("BLOCKED") => Some(blocked.unwrap_or_default()),
        Some(_) => return refuse(501, "StripeLayout is Partitioned or Blocked."),
        None => blocked,
    };
    Ok(Opts::Retr {
        parallelism,
        markers,
        striping,
    })
}

/// Start, least, most. Of others only the first counts, as with GCT.
fn parse_parallelism(value: &str) -> Option<Parallelism> {
    let mut numbers = value.split(',').map(|number| number.trim().parse().ok());
    let first = numbers.next()?.filter(|&first| first > 0)?;
    let most = numbers.nth(1).flatten().unwrap_or(first);
    Some(Parallelism { first, most })
}

/// Returns the value of `KEY=value;`.
fn option<'a>(items: &'a str, key: &str) -> Option<&'a str> {
    items
        .split(';')
        .filter_map(|item| item.split_once('='))
        .find(|(k, _)| k.trim().eq_ignore_ascii_case(key))
        .map(|(_, v)| v.trim())
}

/// A size of socket buffers; 0 leaves them to the kernel. What a client may ask for
/// has a bound, since it is memory of ours.
fn buffer_bytes(text: &[u8]) -> Parsed<Option<u32>> {
    let bytes = number(text)?;
    let within = bytes.clamp(u64::from(BUFFER_MIN), u64::from(BUFFER_MAX));
    Ok((bytes > 0).then_some(within as u32))
}

fn parse_site(rest: &[u8]) -> Parsed<Site> {
    let (verb, rest) = word(rest);
    Ok(match text(verb).to_ascii_uppercase().as_str() {
        "HELP" => Site::Help,
        "CHMOD" => {
            let (mode, name) = word(rest);
            Site::Chmod {
                mode: parse_permissions(mode)?,
                name: needed(name)?,
            }
        }
        "CHGRP" => {
            let (group, name) = word(rest);
            Site::Chgrp {
                group: needed_text(group)?,
                name: needed(name)?,
            }
        }
        "UTIME" => parse_utime(rest)?,
        "SYMLINK" => parse_symlink(rest)?,
        "SYMLINKFROM" => Site::SymlinkFrom(needed(rest)?),
        "SYMLINKTO" => Site::SymlinkTo(needed(rest)?),
        "TRNC" => {
            let (length, name) = word(rest);
            Site::Trnc {
                length: number(length)?,
                name: needed(name)?,
            }
        }
        "RDEL" => Site::Rdel(needed(rest)?),
        "STORATTR" => {
            let facts = text(rest);
            let modify = option(&facts, "MODIFY").map(|t| parse_time(t.as_bytes()));
            Site::StorAttr {
                modify: modify.transpose()?,
            }
        }
        "SBUF" | "BUFSIZE" | "RETRBUFSIZE" | "RBUFSZ" | "RBUFSIZ" | "STORBUFSIZE" | "SBUFSZ"
        | "SBUFSIZ" => Site::Buffer(buffer_bytes(rest)?),
        "CLIENTINFO" | "TASKID" => Site::Note(text(rest)),
        "VERSION" => Site::Version,
        "WHOAMI" => Site::Whoami,
        "GODWIT" => Site::Godwit(parse_godwit(rest)?),
        _ => return refuse(500, "Invalid command."),
    })
}

/// `SITE UTIME time name`, and the form of ncftp and others:
/// `SITE UTIME name atime mtime ctime UTC`.
fn parse_utime(rest: &[u8]) -> Parsed<Site> {
    let (time, name) = word(rest);
    if let Ok(modify) = parse_time(time) {
        return Ok(Site::Utime {
            modify,
            name: needed(name)?,
        });
    }
    let parts: Vec<&[u8]> = rest.rsplitn(5, |&b| b == b' ').collect();
    match parts.as_slice() {
        &[b"UTC", _, modify, _, name] => Ok(Site::Utime {
            modify: parse_time(modify)?,
            name: needed(name)?,
        }),
        _ => refuse(501, "A time is 14 digits, YYYYMMDDHHMMSS, in UTC."),
    }
}

/// The client library of GCT sends `SITE SYMLINK a b` with nothing quoted: we
/// cut at the only space, or in front of the second name if that is absolute.
fn parse_symlink(rest: &[u8]) -> Parsed<Site> {
    let spaces: Vec<usize> = (0..rest.len()).filter(|&i| rest[i] == b' ').collect();
    let absolute: Vec<usize> = spaces
        .iter()
        .copied()
        .filter(|&i| rest.get(i + 1) == Some(&b'/'))
        .collect();
    let cut = match (spaces.as_slice(), absolute.as_slice()) {
        (&[one], _) | (_, &[one]) => one,
        _ => {
            return refuse(
                501,
                "Two names, or use SITE SYMLINKFROM and SITE SYMLINKTO.",
            );
        }
    };
    Ok(Site::Symlink {
        target: needed(&rest[..cut])?,
        name: needed(&rest[cut + 1..])?,
    })
}

fn parse_godwit(rest: &[u8]) -> Parsed<Godwit> {
    let (verb, rest) = word(rest);
    let verb = text(verb).to_ascii_uppercase();
    let name = rest.to_vec(); // may be that of the current directory
    match verb.as_str() {
        "SPACE" => return Ok(Godwit::Space { name }),
        "FLUSH" => return Ok(Godwit::Flush { name }),
        "HIDDEN" => return Ok(Godwit::Hidden { name }),
        "MODULES" => return Ok(Godwit::Modules),
        _ => {}
    }
    let (facts, name) = word(rest);
    let name = needed(name)?;
    let id = || option(&text(facts), "ID").map(parse_id).transpose();
    Ok(match verb.as_str() {
        "DONE" => Godwit::Done { id: id()?, name },
        "ABANDON" => Godwit::Abandon { id: id()?, name },
        "FINISH" => Godwit::Finish {
            upload: parse_upload(facts)?,
            name,
        },
        "LEAVES" => {
            let facts = text(facts);
            let from = number(option(&facts, "FROM").unwrap_or("0").as_bytes())?;
            let count = number(option(&facts, "COUNT").unwrap_or("65536").as_bytes())?;
            let leaves = from..from.saturating_add(count.min(LEAVES_MAX));
            Godwit::Leaves {
                id: option(&facts, "ID").map(parse_id).transpose()?,
                leaves,
                name,
            }
        }
        _ => return refuse(500, "Invalid command."),
    })
}

fn parse_time(text: &[u8]) -> Parsed<Duration> {
    match time::parse(text) {
        Some(time) => Ok(time),
        None => refuse(501, "A time is 14 digits, YYYYMMDDHHMMSS, in UTC."),
    }
}

fn parse_permissions(text: &[u8]) -> Parsed<u32> {
    let octal = std::str::from_utf8(text)
        .ok()
        .and_then(|t| u32::from_str_radix(t, 8).ok());
    match octal {
        Some(mode) if mode <= 0o7777 => Ok(mode),
        _ => refuse(501, "Permissions are an octal number up to 7777."),
    }
}

fn without_options(mut rest: &[u8]) -> &[u8] {
    // `LIST -la name`: habit of many clients. A name that begins with a dash
    // can be written ./-name.
    while rest.first() == Some(&b'-') {
        rest = word(rest).1;
    }
    rest
}

/// Splits at the first space; what follows it is kept as it is.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    match line.iter().position(|&b| b == b' ') {
        Some(space) => (&line[..space], &line[space + 1..]),
        None => (line, b""),
    }
}

fn after_word<'a>(line: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
    let head = line.get(..start.len())?;
    head.eq_ignore_ascii_case(start)
        .then(|| &line[start.len()..])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn needed_text(bytes: &[u8]) -> Parsed<String> {
    let text = text(bytes);
    if text.is_empty() {
        return refuse(501, "A parameter is missing.");
    }
    Ok(text)
}

fn needed(name: &[u8]) -> Parsed<RawName> {
    if name.is_empty() {
        return refuse(501, "A name is missing.");
    }
    Ok(name.to_vec())
}

fn number(text: &[u8]) -> Parsed<u64> {
    let digits = text.trim_ascii();
    // `parse` alone would take "+5".
    let known = digits.iter().all(u8::is_ascii_digit);
    let value = std::str::from_utf8(digits).ok().filter(|_| known);
    match value.and_then(|t| t.parse().ok()) {
        Some(number) => Ok(number),
        None => refuse(501, "A number is needed."),
    }
}

fn seconds_at_most(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(SECONDS_MAX))
}

fn refuse<T>(code: u16, text: impl Into<String>) -> Parsed<T> {
    Err(Refusal {
        code,
        text: text.into(),
    })
}

const FACTS_MAX: usize = 64;
const LEAVES_MAX: u64 = 65_536;
const MODULE_MAX: usize = 32;
const PARAMETERS_MAX: usize = 1024;
/// A day: nobody waits longer for a marker.
const SECONDS_MAX: u64 = 86_400;

const BUFFER_MIN: u32 = 4 << 10;
const BUFFER_MAX: u32 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Command {
        Command::parse(line.as_bytes()).unwrap()
    }

    fn code(line: &str) -> u16 {
        Command::parse(line.as_bytes()).unwrap_err().code
    }

    #[test]
    fn names_are_all_behind_the_first_space() {
        assert_eq!(parse("RETR  a b "), Command::Retr(b" a b ".to_vec()));
        assert_eq!(parse("retr %41;\"x"), Command::Retr(b"%41;\"x".to_vec()));
        assert_eq!(parse("LIST -la x y"), Command::List(b"x y".to_vec()));
        assert_eq!(
            parse("ESTO A 12 sp ace"),
            Command::Esto {
                offset: 12,
                name: b"sp ace".to_vec()
            }
        );
        assert_eq!(code("RETR"), 501);
        assert_eq!(code("RETR "), 501);
    }

    #[test]
    fn addresses_are_six_numbers_or_delimited() {
        let at = |text: &str| vec![text.parse().unwrap()];
        assert_eq!(
            parse("PORT 127,0,0,1,1,2"),
            Command::Port(at("127.0.0.1:258"))
        );
        assert_eq!(parse("EPRT |2|::1|2000|"), Command::Port(at("[::1]:2000")));
        assert_eq!(
            parse("EPRT ,1,10.0.0.1,2000,"),
            Command::Port(at("10.0.0.1:2000"))
        );
        let Command::Port(two) = parse("SPOR 127,0,0,1,1,1 127,0,0,1,1,2") else {
            panic!()
        };
        assert_eq!(two.len(), 2);
        for bad in [
            "PORT 1,2,3,4,5",
            "PORT 256,0,0,1,1,1",
            "PORT",
            "PORT a,b,c,d,e,f",
            "EPRT",
            "EPRT |1|::1|5|",
            "EPRT |1|1.2.3.4|99999|",
            "SPOR",
        ] {
            assert_eq!(code(bad), 501, "{bad}");
        }
        assert_eq!(code("EPRT |3|x|5|"), 501);
    }

    #[test]
    fn restart_is_a_number_or_ranges() {
        assert_eq!(parse("REST 100"), Command::Rest(Rest::From(100)));
        let ranges = "0-10,20-30".parse().unwrap();
        assert_eq!(parse("REST 0-10,20-30"), Command::Rest(Rest::Have(ranges)));
        for bad in [
            "REST",
            "REST 0-10,",
            "REST abc",
            "REST -1",
            "REST 99999999999999999999",
        ] {
            assert_eq!(code(bad), 501, "{bad}");
        }
    }

    #[test]
    fn parts_beyond_any_file_are_refused() {
        assert_eq!(code("ERET P 18446744073709551615 2 x"), 501);
        assert_eq!(code("CKSM MD5 18446744073709551615 2 x"), 501);
        assert_eq!(
            parse("CKSM md5 0 -1 x"),
            Command::Cksm {
                by: "md5".into(),
                range: None,
                name: b"x".to_vec()
            }
        );
    }

    #[test]
    fn an_upload_says_what_it_is() {
        let Command::EstoGodwit { upload, name } = parse(
            "ESTO GODWIT=\"size=5;id=a.b;mode=0644;hold=1;how=new;modify=20200101000000.5;\" a b",
        ) else {
            panic!()
        };
        assert_eq!(
            (upload.size, upload.mode, upload.hold),
            (Some(5), Some(0o644), true)
        );
        assert_eq!(
            upload.modify,
            Some(Duration::new(1_577_836_800, 500_000_000))
        );
        assert_eq!(
            (upload.id.as_deref(), name.as_slice()),
            (Some("a.b"), &b"a b"[..])
        );
        for bad in [
            "id=../x",
            "id=..",
            "id=",
            "size=x",
            "how=so",
            "blake3=00",
            "colour=red",
            "mode=9",
        ] {
            assert_eq!(code(&format!("ESTO GODWIT=\"{bad}\" x")), 501, "{bad}");
        }
        assert_eq!(code("ESTO GODWIT=\"size=5 x"), 501);
    }

    #[test]
    fn a_module_is_named_with_parameters_or_without() {
        let through = |module: &str, parameters: &str| Through {
            module: module.into(),
            parameters: parameters.into(),
        };
        for (line, module, parameters, name) in [
            (r#"reduce="7 8" a b"#, "reduce", "7 8", "a b"),
            (r#"reduce="" x"#, "reduce", "", "x"),
            ("reduce x", "reduce", "", "x"),
            (r#"Re-1.2_c="é"  x"#, "Re-1.2_c", "é", " x"),
            (r#"head="5" a" b"#, "head", "5", "a\" b"),
        ] {
            let (through, name) = (through(module, parameters), name.as_bytes().to_vec());
            let (eret, esto) = (format!("ERET {line}"), format!("ESTO {line}"));
            let read = Command::EretThrough {
                through: through.clone(),
                name: name.clone(),
            };
            assert_eq!(parse(&eret), read, "{eret}");
            assert_eq!(
                parse(&esto),
                Command::EstoThrough { through, name },
                "{esto}"
            );
        }
        assert_eq!("reduce".parse(), Ok(through("reduce", "")));
        assert_eq!("reduce=a=b".parse(), Ok(through("reduce", "a=b")));
        for bad in ["", "=7", "re duce", "reduce=a\"b", "reduce=a\nb"] {
            assert!(bad.parse::<Through>().is_err(), "{bad}");
        }
        let long = format!("ERET reduce=\"{}\" x", "p".repeat(1025));
        for bad in [
            "ERET",
            "ERET reduce",
            "ERET reduce=7 x",
            "ERET reduce=\"7 x",
            "ERET reduce=\"7\"x",
            "ERET reduce=\"7\" ",
            "ERET reduce=\"7\u{7f}\" x",
            "ERET ../reduce x",
            "ERET =\"7\" x",
            "ERET a23456789012345678901234567890123 x",
            &long,
        ] {
            assert_eq!(code(bad), 501, "{bad}");
        }
    }

    #[test]
    fn options_of_listings_and_sending() {
        assert_eq!(
            parse("OPTS RETR StripeLayout=Blocked;BlockSize=1000;Parallelism=4,4,4;"),
            Command::Opts(Opts::Retr {
                parallelism: Some(Parallelism { first: 4, most: 4 }),
                markers: None,
                striping: Some(Striping::Blocked { bytes: 1000 }),
            })
        );
        assert_eq!(parse("OPTS UTF8 ON"), Command::Opts(Opts::Utf8));
        assert_eq!(code("OPTS STOR Parallelism=2;"), 500);
        assert_eq!(code("OPTS RETR packetsize=1;"), 500);
        for bad in ["StripeLayout=Odd;", "StripeLayout=Blocked;BlockSize=0;"] {
            assert_eq!(code(&format!("OPTS RETR {bad}")), 501, "{bad}");
        }
        assert_eq!(code("OPTS RETR Parallelism=0;"), 501);
    }

    #[test]
    fn a_member_is_told_its_share() {
        let share = Share {
            index: 2,
            count: 8,
            ends: Some(0),
        };
        assert_eq!(
            parse(&format!("OPTS GODWIT 1;digests=0;{share}")),
            Command::Opts(Opts::Godwit {
                digests: false,
                share: Some(share),
            })
        );
        let alone = Share {
            ends: None,
            ..share
        };
        assert_eq!(
            parse(&format!("OPTS GODWIT 1;{alone}")),
            Command::Opts(Opts::Godwit {
                digests: true,
                share: Some(alone),
            })
        );
        for bad in [
            "stripe=8/8",
            "stripe=1",
            "stripe=0/99999",
            "stripe=0/2;ends=x",
            "so=1",
        ] {
            assert_eq!(code(&format!("OPTS GODWIT 1;{bad}")), 501, "{bad}");
        }
    }

    #[test]
    fn tokens_and_credentials_are_base64() {
        assert_eq!(parse("ADAT Zm9v"), Command::Adat(b"foo".to_vec()));
        assert_eq!(parse("dcsc p Zm9v"), Command::Dcsc(Some(b"foo".to_vec())));
        assert_eq!(parse("DCSC D"), Command::Dcsc(None));
        assert_eq!(code("ADAT {}"), 501);
        assert_eq!(code("DCSC P {}"), 501);
        assert_eq!(code("DCSC"), 504);
    }

    #[test]
    fn links_with_two_names() {
        let link = |t: &str, n: &str| {
            Command::Site(Site::Symlink {
                target: t.into(),
                name: n.into(),
            })
        };
        assert_eq!(parse("SITE SYMLINK a b"), link("a", "b"));
        assert_eq!(parse("SITE SYMLINK /a b /c d"), link("/a b", "/c d"));
        assert_eq!(code("SITE SYMLINK a b c"), 501);
    }
}
