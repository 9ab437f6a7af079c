//! Commands of a client: one line, parsed once into a [`Command`].
//!
//! A line that cannot be understood becomes a [`Refusal`], the reply that says
//! why. Names are raw bytes here; where they lead is decided in the session.

mod extended;
mod options;
mod site;

pub use extended::{Through, Upload, UploadHow};
pub use options::{Opts, Parallelism, StripeShare};
pub use site::{Godwit, Site};

use crate::{
    Refusal,
    address::{self, Bars},
    base64, time,
};
use extended::{parse_eret, parse_esto};
use godwit_core::{Extents, Kind};
use options::parse_options;
use site::parse_site;
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
    Mode(TransferMode),
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
    // Settings of the next transfer.
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
pub enum TransferMode {
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

/// The part of a file that the receiver has when a transfer resumes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Rest {
    /// `REST n`: everything before `n`.
    From(u64),
    /// `REST a-b,c-d`, GFD.20: these ranges.
    Have(Extents),
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

fn parse_mode(rest: &[u8]) -> Parsed<TransferMode> {
    match rest {
        b"S" | b"s" => Ok(TransferMode::Stream),
        b"E" | b"e" => Ok(TransferMode::Extended),
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

/// Returns the value of `KEY=value;`.
fn option<'a>(items: &'a str, key: &str) -> Option<&'a str> {
    items
        .split(';')
        .filter_map(|item| item.split_once('='))
        .find(|(k, _)| k.trim().eq_ignore_ascii_case(key))
        .map(|(_, v)| v.trim())
}

/// Reads a size of socket buffers; 0 leaves it to the kernel. The size is bounded, since the memory is the server's.
fn buffer_bytes(text: &[u8]) -> Parsed<Option<u32>> {
    let bytes = number(text)?;
    let within = bytes.clamp(u64::from(BUFFER_MIN), u64::from(BUFFER_MAX));
    Ok((bytes > 0).then_some(within as u32))
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
    Err(Refusal::coded(code, Kind::Other, text))
}

/// A day, the longest interval between markers.
const SECONDS_MAX: u64 = 86_400;

const BUFFER_MIN: u32 = 4 << 10;
const BUFFER_MAX: u32 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn parse(line: &str) -> Command {
        Command::parse(line.as_bytes()).unwrap()
    }

    pub(super) fn code(line: &str) -> u16 {
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
    fn tokens_and_credentials_are_base64() {
        assert_eq!(parse("ADAT Zm9v"), Command::Adat(b"foo".to_vec()));
        assert_eq!(parse("dcsc p Zm9v"), Command::Dcsc(Some(b"foo".to_vec())));
        assert_eq!(parse("DCSC D"), Command::Dcsc(None));
        assert_eq!(code("ADAT {}"), 501);
        assert_eq!(code("DCSC P {}"), 501);
        assert_eq!(code("DCSC"), 504);
    }
}
