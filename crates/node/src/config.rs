//! What a node can be told, and where each value came from.
//!
//! One table ([`KEYS`]) defines every key; file, environment and flags are read
//! against it. A later source wins: default, file, environment, flag.

mod modules;

pub use modules::{Allowed, MODULE_KEYS, Module};

use godwit_core::Url;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

/// All that a node needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory that is served.
    pub export: PathBuf,
    /// Where what must survive is kept, if not beside the files.
    pub state: Option<PathBuf>,
    /// Who may do what where; `None`: whatever their account may.
    pub rights: Option<PathBuf>,
    /// Where FTP is spoken.
    pub ftp: Vec<SocketAddr>,
    /// The name in the greeting.
    pub host: String,
    /// What who does not say their name may do.
    pub anonymous: Access,
    /// How much of everything.
    pub limits: Limits,
    /// Data connections.
    pub data: Data,
    /// With whose rights files are opened.
    pub accounts: Accounts,
    /// By what the node proves who it is, and whom it believes.
    pub trust: Trust,
    /// By what the node can read tickets.
    pub kerberos: Kerberos,
    /// Who comes in by a password or a token, under TLS.
    pub passwords: Passwords,
    /// Whom the node believes to be of its kind.
    pub cluster: Cluster,
    /// Nodes that make striped transfers for this one.
    pub stripes: Vec<Url>,
    /// Programs that bytes of files may go through.
    pub modules: Vec<Module>,
    /// Variables of the environment that begin as ours do and that nothing reads.
    pub unread: Vec<String>,
    values: BTreeMap<&'static str, Value>,
    said_of_modules: Vec<modules::Said>,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Access {
    None,
    Read,
    Write,
}

/// How much of everything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub struct Limits {
    pub sessions: usize,
    pub sessions_per_address: usize,
    pub line_bytes: usize,
    pub pipeline: usize,
    pub streams: usize,
    pub listing_entries: u64,
    pub login: Duration,
    pub idle: Duration,
    pub stall: Duration,
    pub grace: Duration,
}

/// Data connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Data {
    /// Ports to listen on; `None` is any.
    pub ports: Option<RangeInclusive<u16>>,
    /// Whether data may go to, and come from, others than the client.
    pub third_party: bool,
    /// The address to tell in PASV, where a translator stands in front of us.
    pub address: Option<IpAddr>,
    /// How long a session waits for a port of the range.
    pub wait: Duration,
}

/// With whose rights files are opened, where root starts the node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Accounts {
    /// As whom the node runs; empty: as the owner of the export.
    pub user: String,
    /// The account of those who do not say their name; empty: that of the node.
    pub anonymous: String,
    /// No account below this number is served.
    pub uid_min: u32,
    /// Whether a name that the machine does not know is refused.
    pub strict: bool,
    /// An opener that nobody needs for so long ends.
    pub idle: Duration,
}

/// By what the node proves who it is, and whom it believes. What is not said is
/// looked for where everybody keeps it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Trust {
    /// Certificate with its chain, PEM.
    pub certificate: Option<PathBuf>,
    /// Its key; `None`: in the same file.
    pub key: Option<PathBuf>,
    /// Directory of authorities.
    pub authorities: Option<PathBuf>,
    /// Who may come in, and under which name.
    pub gridmap: Option<PathBuf>,
    /// Whether who shows a limited proxy is turned away.
    pub refuses_limited: bool,
}

/// By what the node can read tickets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Kerberos {
    /// By the keys where the environment says, or the machine has them.
    #[default]
    Found,
    /// By those of this file.
    Keytab(PathBuf),
    /// It reads none.
    Off,
}

/// Who comes in by a password or a token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Passwords {
    /// The file of them; `None`: nobody does.
    pub file: Option<PathBuf>,
    /// Whether they may be said where everybody on the way can read them.
    pub in_clear: bool,
}

/// Whom the node believes to be of its kind: such may act for anybody.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cluster {
    /// The file with the key that members share.
    pub key: Option<PathBuf>,
    /// Who comes from one of these is a member without a key.
    pub addresses: Vec<Network>,
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network {
    ip: IpAddr,
    bits: u32,
}

impl Network {
    /// Tells whether an address is one of these.
    pub fn holds(&self, ip: IpAddr) -> bool {
        let shift = |width: u32| width - self.bits;
        match (self.ip, ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let differs = net.to_bits() ^ ip.to_bits();
                differs.checked_shr(shift(32)).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let differs = net.to_bits() ^ ip.to_bits();
                differs.checked_shr(shift(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

impl FromStr for Network {
    type Err = String;

    /// `10.0.0.0/8`, or one address.
    fn from_str(text: &str) -> Result<Self, String> {
        let (ip, bits) = text.split_once('/').unwrap_or((text, ""));
        let ip = parse::<IpAddr>(ip)?.to_canonical();
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            "" => most,
            bits => parse::<u32>(bits)?,
        };
        let network = Self { ip, bits };
        if bits > most {
            return Err(format!("{ip} has no more than {most} bits"));
        }
        // Whoever wrote 10.1.2.3/8 meant something else than they would get.
        match network.first() == ip {
            true => Ok(network),
            false => Err(format!("the first address of that is {}", network.first())),
        }
    }
}

impl Network {
    fn first(&self) -> IpAddr {
        match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                IpAddr::V4((ip.to_bits() & mask).into())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                IpAddr::V6((ip.to_bits() & mask).into())
            }
        }
    }
}

impl Trust {
    /// Returns where the node's private key is, or would be.
    pub(crate) fn key_file(&self) -> PathBuf {
        let named = self.key.as_ref().or(self.certificate.as_ref());
        named.cloned().unwrap_or_else(godwit_trust::host_key_file)
    }
}

/// Where a value came from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// Nobody said otherwise.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// A variable of the environment.
    Environment(String),
    /// An option on the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One key, its value, and who said so.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Setting {
    /// `section.key`.
    pub key: Cow<'static, str>,
    /// The value as text.
    pub value: String,
    /// Who said so.
    pub origin: Origin,
    /// What it is about.
    pub about: &'static str,
}

/// Something in the configuration is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Error {
    #[error("{}: {}", .path.display(), godwit_sys::why(.cause))]
    Unreadable {
        path: PathBuf,
        cause: std::io::Error,
    },
    #[error("{}: {what}", .path.display())]
    NotToml { path: PathBuf, what: String },
    #[error("{origin}: unknown key {key}; did you mean {nearest}?")]
    UnknownKey {
        origin: Origin,
        key: String,
        nearest: &'static str,
    },
    #[error("{origin}: {key} = {value:?}: {why}")]
    BadValue {
        origin: Origin,
        key: Cow<'static, str>,
        value: String,
        why: String,
    },
}

#[derive(Clone, Debug)]
struct Value {
    text: String,
    origin: Origin,
}

/// A key with its default and what it is about.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// `section.key`.
    pub name: &'static str,
    /// Its value if nobody says anything.
    pub default: &'static str,
    /// What it is about.
    pub about: &'static str,
}

/// Every key there is.
pub const KEYS: [Key; 37] = [
    Key {
        name: "node.export",
        default: ".",
        about: "the directory that is served",
    },
    Key {
        name: "node.user",
        default: "",
        about: "as whom the node runs when root starts it; empty: as the owner of the export",
    },
    Key {
        name: "node.state",
        default: "",
        about: "directory in which transfers.jsonl tells every transfer, a line each; what a resume needs lies beside the files",
    },
    Key {
        name: "node.rights",
        default: "",
        about: "file of rules that say who may do what where (godwit auth); empty: what accounts and anonymous.access permit",
    },
    Key {
        name: "ftp.listen",
        default: "[::]:2811",
        about: "addresses with ports, separated by commas",
    },
    Key {
        name: "ftp.host",
        default: "",
        about: "the name in the greeting; empty: that of the machine",
    },
    Key {
        name: "anonymous.access",
        default: "read",
        about: "none, read or write",
    },
    Key {
        name: "anonymous.account",
        default: "",
        about: "whose rights they have, where root starts the node; empty: those of the node",
    },
    Key {
        name: "accounts.uid_min",
        default: "1000",
        about: "accounts below this number, root above all, are nobody's to log in",
    },
    Key {
        name: "accounts.strict",
        default: "false",
        about: "refuse names that are no accounts of this machine, instead of serving them as the node",
    },
    Key {
        name: "accounts.idle_seconds",
        default: "300",
        about: "without a request before the process of an account ends",
    },
    Key {
        name: "limits.sessions",
        default: "4096",
        about: "sessions at once",
    },
    Key {
        name: "limits.sessions_per_address",
        default: "1024",
        about: "sessions of one address",
    },
    Key {
        name: "limits.line_bytes",
        default: "65536",
        about: "the longest command line",
    },
    Key {
        name: "limits.pipeline",
        default: "16384",
        about: "commands that wait; then reading stops",
    },
    Key {
        name: "limits.streams",
        default: "64",
        about: "data connections of one transfer",
    },
    Key {
        name: "limits.listing_entries",
        default: "10000000",
        about: "entries of one listing",
    },
    Key {
        name: "limits.login_seconds",
        default: "60",
        about: "from the connection to the login",
    },
    Key {
        name: "limits.idle_seconds",
        default: "600",
        about: "without a command",
    },
    Key {
        name: "limits.stall_seconds",
        default: "60",
        about: "of a transfer in which nothing moves",
    },
    Key {
        name: "limits.grace_seconds",
        default: "60",
        about: "for transfers to end after SIGTERM",
    },
    Key {
        name: "data.ports",
        default: "",
        about: "ports to listen on, like 50000-51000; empty: any",
    },
    Key {
        name: "data.third_party",
        default: "true",
        about: "data may go to and come from others than the client",
    },
    Key {
        name: "data.address",
        default: "",
        about: "the address told in PASV, behind a translator",
    },
    Key {
        name: "data.wait_seconds",
        default: "30",
        about: "for a port of the range to become free",
    },
    Key {
        name: "trust.certificate",
        default: "",
        about: "certificate of this host for GSI; empty: X509_USER_CERT, /etc/grid-security/hostcert.pem or your own",
    },
    Key {
        name: "trust.key",
        default: "",
        about: "its private key; empty: it is in the same file",
    },
    Key {
        name: "trust.authorities",
        default: "",
        about: "directory of authorities; empty: X509_CERT_DIR, ~/.globus or /etc/grid-security",
    },
    Key {
        name: "trust.gridmap",
        default: "",
        about: "who may log in by GSI or Kerberos; empty: GRIDMAP, ~/.gridmap or, for root, /etc/grid-security/grid-mapfile",
    },
    Key {
        name: "trust.limited_proxies",
        default: "yes",
        about: "no: who shows a limited proxy, as running jobs have them, is turned away",
    },
    Key {
        name: "kerberos.keytab",
        default: "",
        about: "keys of ftp/HOST or host/HOST for logins by Kerberos; empty: KRB5_KTNAME or /etc/krb5.keytab; none: no Kerberos",
    },
    Key {
        name: "passwords.file",
        default: "",
        about: "file of those who log in by a password or a token under TLS (godwit auth password); empty: nobody does",
    },
    Key {
        name: "passwords.in_clear",
        default: "false",
        about: "take them from clients that do not say AUTH TLS too: everybody on the way can read them",
    },
    Key {
        name: "cluster.key",
        default: "",
        about: "file with the key that all nodes of a cluster share (godwit cluster key); whoever has it may act for anybody",
    },
    Key {
        name: "cluster.addresses",
        default: "",
        about: "addresses and networks, like 10.0.0.0/8, whose machines may act for anybody without a key",
    },
    Key {
        name: "stripes.members",
        default: "",
        about: "nodes that serve the same files, HOST:PORT with commas: they make striped transfers for this one",
    },
    Key {
        name: "log.level",
        default: "info",
        about: "error, warn, info, debug or trace",
    },
];

impl Config {
    /// Reads the file, if one is named, then `environment`, then `flags`
    /// (`("node.export", "--export", "/data")`).
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[(&str, &str, String)],
    ) -> Result<Self, Error> {
        let (mut values, mut unread, mut modules) = (defaults(), Vec::new(), Vec::new());
        if let Some(path) = file {
            modules = read_file(path, &mut values)?;
        }
        for (name, text) in environment {
            if let Some(key) = key_of_variable(&name, &text)? {
                values.insert(
                    key,
                    Value {
                        text,
                        origin: Origin::Environment(name),
                    },
                );
            } else if name.starts_with(OURS) && !is_of_others(&name, &text) {
                unread.push(name);
            }
        }
        for (key, flag, text) in flags {
            let origin = Origin::Flag((*flag).into());
            let key = known(key, &origin)?;
            values.insert(
                key,
                Value {
                    text: text.clone(),
                    origin,
                },
            );
        }
        let config = Self::of(values)?;
        let all = modules.iter().map(modules::Said::module);
        Ok(Self {
            unread,
            modules: all.collect::<Result<_, _>>()?,
            said_of_modules: modules,
            ..config
        })
    }

    /// Returns every key with its value and who said so.
    pub fn origins(&self) -> Vec<Setting> {
        let setting = |key: &Key| {
            let value = &self.values[key.name];
            Setting {
                key: key.name.into(),
                value: value.text.clone(),
                origin: value.origin.clone(),
                about: key.about,
            }
        };
        let of_modules = self.said_of_modules.iter();
        let of_modules = of_modules.flat_map(modules::Said::settings);
        KEYS.iter().map(setting).chain(of_modules).collect()
    }

    /// Tells whether somebody named this on the command line, and so means it to be of use now.
    pub(crate) fn is_flag(&self, key: &str) -> bool {
        let value = self.values.get(key);
        value.is_some_and(|value| matches!(value.origin, Origin::Flag(_)))
    }

    /// Returns the level of the log.
    pub fn log_level(&self) -> &str {
        &self.values["log.level"].text
    }

    fn of(values: BTreeMap<&'static str, Value>) -> Result<Self, Error> {
        let take = Take(&values);
        let seconds = |key| take.number(key).map(Duration::from_secs);
        let limits = Limits {
            sessions: take.at_least_one("limits.sessions")?,
            sessions_per_address: take.at_least_one("limits.sessions_per_address")?,
            line_bytes: take.at_least_one("limits.line_bytes")?,
            pipeline: take.at_least_one("limits.pipeline")?,
            streams: take.at_least_one("limits.streams")?,
            listing_entries: take.number("limits.listing_entries")?,
            login: seconds("limits.login_seconds")?,
            idle: seconds("limits.idle_seconds")?,
            stall: seconds("limits.stall_seconds")?,
            grace: seconds("limits.grace_seconds")?,
        };
        let data = Data {
            ports: take.optional("data.ports", parse_ports)?,
            third_party: take.one("data.third_party", parse_bool)?,
            address: take.optional("data.address", parse::<IpAddr>)?,
            wait: seconds("data.wait_seconds")?,
        };
        let file = |key| {
            Some(take.text(key).trim())
                .filter(|s| !s.is_empty())
                .map(Into::into)
        };
        let trust = Trust {
            certificate: file("trust.certificate"),
            key: file("trust.key"),
            authorities: file("trust.authorities"),
            gridmap: file("trust.gridmap"),
            refuses_limited: !take.one("trust.limited_proxies", parse_bool)?,
        };
        let kerberos = match take.text("kerberos.keytab").trim() {
            "" => Kerberos::Found,
            "none" => Kerberos::Off,
            path => Kerberos::Keytab(path.into()),
        };
        let passwords = Passwords {
            file: file("passwords.file"),
            in_clear: take.one("passwords.in_clear", parse_bool)?,
        };
        let cluster = Cluster {
            // What members by their address say as clients.
            key: file("cluster.key").filter(|path: &PathBuf| path != Path::new("none")),
            addresses: take.one("cluster.addresses", parse_list::<Network>)?,
        };
        let accounts = Accounts {
            user: take.text("node.user").trim().into(),
            anonymous: take.text("anonymous.account").trim().into(),
            uid_min: take.one("accounts.uid_min", parse::<u32>)?,
            strict: take.one("accounts.strict", parse_bool)?,
            idle: Duration::from_secs(take.at_least_one("accounts.idle_seconds")? as u64),
        };
        take.one("log.level", parse_level)?;
        Ok(Self {
            export: take.text("node.export").into(),
            state: Some(take.text("node.state"))
                .filter(|s| !s.is_empty())
                .map(Into::into),
            rights: file("node.rights"),
            ftp: take.one("ftp.listen", parse_addresses)?,
            host: take.text("ftp.host").into(),
            anonymous: take.one("anonymous.access", parse_access)?,
            limits,
            data,
            accounts,
            trust,
            kerberos,
            passwords,
            cluster,
            stripes: take.one("stripes.members", parse_members)?,
            modules: Vec::new(),
            unread: Vec::new(),
            values,
            said_of_modules: Vec::new(),
        })
    }
}

/// Reads values out of texts, and says whose fault it was.
struct Take<'a>(&'a BTreeMap<&'static str, Value>);

impl<'a> Take<'a> {
    fn text(&self, key: &'static str) -> &'a str {
        &self.0[key].text
    }

    fn one<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        let value = &self.0[key];
        read(value.text.trim()).map_err(|why| Error::BadValue {
            origin: value.origin.clone(),
            key: key.into(),
            value: value.text.clone(),
            why,
        })
    }

    fn optional<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        match self.text(key).trim() {
            "" => Ok(None),
            _ => self.one(key, read).map(Some),
        }
    }

    fn number(&self, key: &'static str) -> Result<u64, Error> {
        self.one(key, parse::<u64>)
    }

    fn at_least_one(&self, key: &'static str) -> Result<usize, Error> {
        self.one(key, |text| match parse::<usize>(text)? {
            0 => Err("must be at least 1".into()),
            number => Ok(number),
        })
    }
}

fn defaults() -> BTreeMap<&'static str, Value> {
    let value = |key: &Key| Value {
        text: key.default.into(),
        origin: Origin::Default,
    };
    KEYS.iter().map(|key| (key.name, value(key))).collect()
}

/// Reads values, and returns what is said of modules.
fn read_file(
    path: &Path,
    values: &mut BTreeMap<&'static str, Value>,
) -> Result<Vec<modules::Said>, Error> {
    let text = std::fs::read_to_string(path).map_err(|cause| Error::Unreadable {
        path: path.into(),
        cause,
    })?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| Error::NotToml {
            path: path.into(),
            what: godwit_trust::not_toml(&text, &error),
        })?;
    let origin = Origin::File(path.into());
    let mut of_modules = Vec::new();
    for (section, inside) in table {
        if section == "modules" {
            of_modules = modules::read(inside, &origin)?;
            continue;
        }
        let toml::Value::Table(inside) = inside else {
            known(&section, &origin)?;
            continue;
        };
        for (name, value) in inside {
            let key = known(&format!("{section}.{name}"), &origin)?;
            values.insert(
                key,
                Value {
                    text: text_of(&value),
                    origin: origin.clone(),
                },
            );
        }
    }
    Ok(of_modules)
}

fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(truth) => truth.to_string(),
        // No key takes any of these; what is said of the text is good enough.
        other => format!("{other:?}"),
    }
}

/// `GODWIT_LIMITS_IDLE_SECONDS` is `limits.idle_seconds`. What looks like a key and
/// is none is refused; other variables with that beginning belong to other parts of
/// godwit, or to somebody else.
fn key_of_variable(name: &str, text: &str) -> Result<Option<&'static str>, Error> {
    let Some(rest) = name.strip_prefix(OURS).map(str::to_ascii_lowercase) else {
        return Ok(None);
    };
    let mut keys = KEYS.iter().map(|key| key.name);
    if let Some(key) = keys.find(|key| key.replace('.', "_") == rest) {
        return Ok(Some(key));
    }
    let looks_like_one = |key: &Key| {
        let section = key.name.split('.').next().unwrap_or_default();
        let below = rest.strip_prefix(section);
        below.is_some_and(|below| below.starts_with('_'))
            || distance(&key.name.replace('.', "_"), &rest) <= SLIPS_MAX
    };
    if is_of_others(name, text) || !KEYS.iter().any(looks_like_one) {
        return Ok(None);
    }
    known(
        &rest.replacen('_', ".", 1),
        &Origin::Environment(name.into()),
    )
    .map(Some)
}

/// How our variables begin.
const OURS: &str = "GODWIT_";
/// What variables without a key mean, in lower case: see `godwit help environment`.
const OF_OTHERS: [&str; 6] = ["config", "log", "ssh", "gssapi", "crash", "child"];
/// So many wrong letters still look like a slip.
const SLIPS_MAX: usize = 3;

/// Tells whether a variable means something else, or is an orchestrator's, which says
/// where what it calls godwit is: `GODWIT_NODE_SERVICE_HOST`,
/// `GODWIT_NODE_PORT=tcp://10.0.0.1:2811`.
fn is_of_others(name: &str, text: &str) -> bool {
    let rest = name.trim_start_matches(OURS).to_ascii_lowercase();
    let marks = ["_service_host", "_service_port", "_tcp", "_udp"];
    OF_OTHERS.contains(&&*rest)
        || marks.iter().any(|mark| rest.contains(mark))
        || text.contains("://")
}

fn known(key: &str, origin: &Origin) -> Result<&'static str, Error> {
    let all = || KEYS.iter().map(|key| key.name);
    all()
        .find(|&name| name == key)
        .ok_or_else(|| Error::UnknownKey {
            origin: origin.clone(),
            key: key.into(),
            nearest: all()
                .min_by_key(|name| distance(name, key))
                .expect("there are keys"),
        })
}

/// Letters to insert, remove or exchange to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let exchanged = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn parse<T: FromStr>(text: &str) -> Result<T, String>
where
    T::Err: fmt::Display,
{
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err("true or false".into()),
    }
}

fn parse_access(text: &str) -> Result<Access, String> {
    match text {
        "none" => Ok(Access::None),
        "read" => Ok(Access::Read),
        "write" => Ok(Access::Write),
        _ => Err("none, read or write".into()),
    }
}

fn parse_level(text: &str) -> Result<(), String> {
    match text {
        "error" | "warn" | "info" | "debug" | "trace" => Ok(()),
        _ => Err("error, warn, info, debug or trace".into()),
    }
}

/// `50000-51000`, `50000,51000` as Globus writes it, or one port.
fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once(['-', ',']).unwrap_or((text, text));
    let (first, last) = (parse::<u16>(first.trim())?, parse::<u16>(last.trim())?);
    if first == 0 || first > last {
        return Err("the first port must be above 0 and not above the last".into());
    }
    Ok(first..=last)
}

/// Several with commas, or none.
fn parse_list<T: FromStr<Err = String>>(text: &str) -> Result<Vec<T>, String> {
    let parts = text.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(T::from_str)
        .collect()
}

/// An address with a port, or a bare port for all addresses.
fn parse_addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    let one = |part: &str| match part.trim().parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([0u16; 8], port))),
        Err(_) => parse::<SocketAddr>(part.trim()),
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    let addresses: Vec<SocketAddr> = parts.map(one).collect::<Result<_, _>>()?;
    match addresses.is_empty() {
        true => Err("an address with a port, or a port: without one it serves nowhere".into()),
        false => Ok(addresses),
    }
}

/// `HOST:PORT`, with commas between.
fn parse_members(text: &str) -> Result<Vec<Url>, String> {
    let one = |part: &str| {
        let url: Url = format!("ftp://{part}/")
            .parse()
            .map_err(|bad| format!("{bad}"))?;
        let is_plain = url.user().is_none() && url.port().is_some();
        is_plain
            .then_some(url)
            .ok_or_else(|| format!("{part}: a member is HOST:PORT"))
    };
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(pairs: &[(&'static str, &str)]) -> Vec<(&'static str, &'static str, String)> {
        pairs
            .iter()
            .map(|&(key, value)| (key, "--flag", value.into()))
            .collect()
    }

    fn load(pairs: &[(&'static str, &str)]) -> Result<Config, Error> {
        Config::load(None, [], &flags(pairs))
    }

    #[test]
    fn every_default_can_be_read() {
        let config = load(&[]).unwrap();
        assert_eq!(config.anonymous, Access::Read);
        assert_eq!(config.limits.idle, Duration::from_secs(600));
        assert_eq!(config.origins().len(), KEYS.len());
        assert!(config.origins().iter().all(|s| s.origin == Origin::Default));
    }

    #[test]
    fn a_later_source_wins_and_is_told() {
        let path = std::env::temp_dir().join(format!("godwit-config-{}", std::process::id()));
        std::fs::write(&path, "[limits]\nsessions = 7\nidle_seconds = 8\n[ftp]\nlisten = [\"127.0.0.1:1\", \"[::1]:1\"]\n").unwrap();
        let environment = [
            ("GODWIT_LIMITS_IDLE_SECONDS".to_owned(), "9".to_owned()),
            ("GODWIT_OTHER".to_owned(), "x".to_owned()),
        ];
        let config = Config::load(
            Some(&path),
            environment,
            &flags(&[("limits.stall_seconds", "3")]),
        );
        std::fs::remove_file(&path).unwrap();
        let config = config.unwrap();
        assert_eq!((config.limits.sessions, config.ftp.len()), (7, 2));
        assert_eq!(config.limits.idle, Duration::from_secs(9));
        let origin = |key| {
            config
                .origins()
                .into_iter()
                .find(|s| s.key == key)
                .unwrap()
                .origin
                .to_string()
        };
        assert_eq!(
            origin("limits.sessions"),
            format!("file {}", path.display())
        );
        assert_eq!(
            origin("limits.idle_seconds"),
            "environment GODWIT_LIMITS_IDLE_SECONDS"
        );
        assert_eq!(origin("limits.stall_seconds"), "flag --flag");
        assert_eq!(origin("limits.grace_seconds"), "default");
    }

    #[test]
    fn a_variable_that_looks_like_a_key_must_be_one() {
        let load = |name: &str, text: &str| {
            let variable = (name.to_owned(), text.to_owned());
            Config::load(None, [variable], &[])
        };
        for (name, nearest) in [
            ("GODWIT_ANONYMOUS_ACESS", "anonymous.access"),
            ("GODWIT_ANONYMUS_ACCESS", "anonymous.access"),
            ("GODWIT_FTP_LISTEN_ON", "ftp.listen"),
            ("GODWIT_NODE_EXPORTS", "node.export"),
        ] {
            let error = load(name, "none").unwrap_err().to_string();
            let wanted = format!("environment {name}: unknown key ");
            assert!(error.starts_with(&wanted), "{error}");
            assert!(
                error.ends_with(&format!("did you mean {nearest}?")),
                "{error}"
            );
        }
        for name in ["GODWIT_LOG", "GODWIT_SSH", "GODWIT_CONFIG", "GODWIT_CRASH"] {
            assert!(load(name, "x").unwrap().unread.is_empty());
        }
        for (name, text) in [
            ("GODWIT_NODE_SERVICE_PORT", "2811"),
            ("GODWIT_NODE_PORT", "tcp://10.0.0.1:2811"),
            ("GODWIT_CLUSTER_KEY", "/etc/key"),
            ("HOME", "/root"),
        ] {
            assert!(load(name, text).unwrap().unread.is_empty(), "{name}");
        }
        let unread = load("GODWIT_OTHER_THINGS", "x").unwrap().unread;
        assert_eq!(unread, ["GODWIT_OTHER_THINGS"]);
    }

    #[test]
    fn a_node_that_would_serve_nowhere_is_refused() {
        for nowhere in ["", " ", ","] {
            let error = load(&[("ftp.listen", nowhere)]).unwrap_err().to_string();
            assert!(error.ends_with("without one it serves nowhere"), "{error}");
        }
        let path = std::env::temp_dir().join(format!("godwit-nowhere-{}", std::process::id()));
        std::fs::write(&path, "[ftp]\nlisten = []\n").unwrap();
        let refused = Config::load(Some(&path), [], &[]);
        std::fs::remove_file(&path).unwrap();
        assert!(refused.is_err());
    }

    #[test]
    fn what_is_not_toml_is_told_in_one_line() {
        let path = std::env::temp_dir().join(format!("godwit-not-toml-{}", std::process::id()));
        std::fs::write(&path, "[ftp]\nlisten 2811\n").unwrap();
        let error = Config::load(Some(&path), [], &[]).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        let (_, what) = error.split_once(": ").unwrap();
        assert!(
            what.starts_with("line 2: ") && !what.contains('\n'),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_key_is_told_the_nearest_right_one() {
        let error = load(&[("limit.session", "1")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "flag --flag: unknown key limit.session; did you mean limits.sessions?"
        );
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn wrong_values_are_refused_with_a_reason() {
        for (key, value) in [
            ("limits.sessions", "0"),
            ("limits.sessions", "many"),
            ("data.ports", "9-3"),
            ("data.ports", "0"),
            ("data.third_party", "maybe"),
            ("anonymous.access", "all"),
            ("ftp.listen", "localhost"),
            ("log.level", "loud"),
            ("cluster.addresses", "10.0.0.0/33"),
            ("cluster.addresses", "10.0.0.1/8"),
            ("cluster.addresses", "fermi"),
        ] {
            assert!(
                matches!(load(&[(key, value)]), Err(Error::BadValue { .. })),
                "{key} {value}"
            );
        }
    }

    #[test]
    fn a_range_of_ports_may_be_one_port() {
        assert_eq!(parse_ports("2000"), Ok(2000..=2000));
        assert_eq!(parse_ports("2000-2001"), Ok(2000..=2001));
        assert_eq!(parse_ports("2000,2001"), Ok(2000..=2001));
    }

    #[test]
    fn a_network_holds_the_addresses_that_begin_like_it() {
        for (network, address, held) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::1", "::1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "2001:db8::1", true),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(
                network.holds(address.parse().unwrap()),
                held,
                "{network} {address}"
            );
        }
    }
}
