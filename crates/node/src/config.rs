//! The configuration of a node, and the origin of each value.
//!
//! One table ([`KEYS`]) defines every key; file, environment and flags are read against it. A later source wins:
//! default, file, environment, flag.

mod ask_program;
mod keys;
mod modules;
mod network;
mod on_fault;
pub(crate) mod routes;
mod sources;
mod values;

pub(crate) use ask_program::{AccessWord, Porter};
pub(crate) use keys::FIXED;
pub use keys::{ConfigKey, KEYS};
pub use modules::{Allowed, MODULE_KEYS, ModuleConfig};
pub use network::Network;
pub use on_fault::OnFault;
pub use routes::Routes;

use crate::Error;
use godwit_core::Url;
use sources::{OURS, defaults, is_of_others, key_of_variable, known, read_file};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    num::NonZeroU64,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};
use values::{
    ConfigValues, parse, parse_access, parse_bool, parse_doors, parse_ftp, parse_level, parse_list,
    parse_members, parse_names, parse_next, parse_ports,
};

/// All that a node needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory that is served.
    pub export: PathBuf,
    /// Set if the node forwards what is written to it; `export` is then the spool.
    pub hop: Option<Hop>,
    /// Which hop leads where.
    pub routes: Routes,
    /// Where what must survive is kept, if not beside the files.
    pub state: Option<PathBuf>,
    /// The account of nodes that joined without one; `None`: none.
    pub peers_account: Option<String>,
    /// Peers that this node is reached through as well.
    pub via: Vec<String>,
    /// The catalog whose names it knows.
    pub catalog: Option<String>,
    /// How many bytes a second its rules copy at most.
    pub catalog_rate: Option<NonZeroU64>,
    /// How many bytes a second of files with a rule are read again at most.
    pub catalog_scrub: Option<NonZeroU64>,
    /// The site of the catalog that it is, whose rights it obeys.
    pub site: Option<String>,
    /// How many programs peers may run beside files at the same time.
    pub slots: usize,
    /// The silence after which the copies at a site count as lost.
    pub down_after: Duration,
    /// The file of rights; `None`: the rights of the client's account.
    pub rights: Option<PathBuf>,
    /// Decides instead of the file of rights.
    pub(crate) porter: Option<Porter>,
    /// Where FTP is spoken.
    pub ftp: Vec<SocketAddr>,
    /// Where the door is.
    pub https: Vec<SocketAddr>,
    /// The name in the greeting.
    pub host: String,
    /// The access of clients without a name.
    pub anonymous: Access,
    /// How much of everything.
    pub limits: Limits,
    /// Data connections.
    pub data: Data,
    /// With whose rights files are opened.
    pub accounts: Accounts,
    /// The node's credential, and the identities it trusts.
    pub trust: TrustConfig,
    /// The source of keys for Kerberos.
    pub kerberos: KerberosConfig,
    /// Users that log in by a password or a token, under TLS.
    pub passwords: PasswordConfig,
    /// Nodes of the same cluster.
    pub cluster: Cluster,
    /// Nodes that make striped transfers for this one.
    pub stripes: Vec<Url>,
    /// Programs that bytes of files may go through.
    pub modules: Vec<ModuleConfig>,
    /// Variables of the environment that begin as ours do and that nothing reads.
    pub unread: Vec<String>,
    values: BTreeMap<&'static str, ConfigValue>,
    said_of_modules: Vec<modules::ModuleText>,
}

/// A node that passes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hop {
    /// The directory for pending changes.
    pub spool: PathBuf,
    /// Where that goes.
    pub next: Url,
    /// How many bytes it keeps at most; `None`: as many as the disk.
    pub bytes: Option<u64>,
    /// Whether files that are read are kept as well.
    pub caches: bool,
    /// Receives alerts when a change is not delivered.
    pub on_fault: OnFault,
}

/// The access of anonymous clients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Access {
    None,
    Read,
    Write,
}

impl Access {
    /// Writes it as a file of rights would: clients that prove their name may do all.
    pub(crate) fn as_rights(self) -> String {
        let may = match self {
            Self::None => "",
            Self::Read => "[[rule]]\nwho = \"anonymous\"\nmay = [\"read\", \"list\"]\n",
            Self::Write => "[[rule]]\nwho = \"anonymous\"\nmay = \"all\"\n",
        };
        format!("[[rule]]\nwho = \"identified\"\nmay = [\"all\", \"run\"]\n{may}")
    }
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
    /// An upload of the door without a request for this long is closed.
    pub upload: Duration,
    /// How long the bytes of an unfinished upload are kept.
    pub partial: Duration,
}

/// Data connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Data {
    /// Ports to listen on; `None` is any.
    pub ports: Option<RangeInclusive<u16>>,
    /// Whether data may go to, and come from, others than the client.
    pub third_party: bool,
    /// The address for PASV, if a translator is in front of the node.
    pub address: Option<IpAddr>,
    /// How long a session waits for a port of the range.
    pub wait: Duration,
}

/// With whose rights files are opened, where root starts the node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Accounts {
    /// The account of the node; empty: the owner of the export.
    pub user: String,
    /// The account of clients without a name; empty: that of the node.
    pub anonymous: String,
    /// No account below this number is served.
    pub uid_min: u32,
    /// Whether a name that the machine does not know is refused.
    pub strict: bool,
    /// How long the process of an account stays without a request.
    pub idle: Duration,
}

/// The node's credential, and the identities it trusts. An unset path is searched at the usual places.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TrustConfig {
    /// Certificate with its chain, PEM.
    pub certificate: Option<PathBuf>,
    /// Its key; `None`: in the same file.
    pub key: Option<PathBuf>,
    /// Directory of authorities.
    pub authorities: Option<PathBuf>,
    /// The identities that may log in, and their accounts.
    pub gridmap: Option<PathBuf>,
    /// Whether who shows a limited proxy is turned away.
    pub refuses_limited: bool,
}

/// The source of keys for Kerberos.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum KerberosConfig {
    /// By the keys where the environment says, or the machine has them.
    #[default]
    Found,
    /// By those of this file.
    Keytab(PathBuf),
    /// Tickets are not read.
    Off,
}

/// Users that log in by a password or a token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PasswordConfig {
    /// The file of passwords; `None`: no user logs in so.
    pub file: Option<PathBuf>,
    /// Whether passwords are accepted without TLS.
    pub in_clear: bool,
}

/// Nodes of the same cluster: they may act for any user.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cluster {
    /// The file with the key that members share.
    pub key: Option<PathBuf>,
    /// Machines with one of these addresses are members without a key.
    pub addresses: Vec<Network>,
}

impl TrustConfig {
    /// Returns where the node's private key is, or would be.
    pub(crate) fn key_file(&self) -> PathBuf {
        let named = self.key.as_ref().or(self.certificate.as_ref());
        named.cloned().unwrap_or_else(godwit_trust::host_key_file)
    }
}

/// Where a value came from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ValueOrigin {
    /// No source has the key.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// A variable of the environment.
    Environment(String),
    /// An option on the command line.
    Flag(String),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One key with its value and its source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Setting {
    /// `section.key`.
    pub key: Cow<'static, str>,
    /// The value as text.
    pub value: String,
    /// The source of the value.
    pub origin: ValueOrigin,
    /// Description of the key.
    pub about: &'static str,
}

#[derive(Clone, Debug)]
struct ConfigValue {
    text: String,
    origin: ValueOrigin,
}

impl Config {
    /// Tells whether rights beside those of the kernel are asked.
    pub(crate) fn asks_rights(&self) -> bool {
        self.asks_own_rights() || self.site.is_some()
    }

    /// Tells the same without the rules of a catalog.
    pub(crate) fn asks_own_rights(&self) -> bool {
        self.rights.is_some() || self.porter.is_some()
    }

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
                    ConfigValue {
                        text,
                        origin: ValueOrigin::Environment(name),
                    },
                );
            } else if name.starts_with(OURS) && !is_of_others(&name, &text) {
                unread.push(name);
            }
        }
        for (key, flag, text) in flags {
            let origin = ValueOrigin::Flag((*flag).into());
            let key = known(key, &origin)?;
            values.insert(
                key,
                ConfigValue {
                    text: text.clone(),
                    origin,
                },
            );
        }
        let config = Self::of(values)?;
        let all = modules.iter().map(modules::ModuleText::module);
        Ok(Self {
            unread,
            modules: all.collect::<Result<_, _>>()?,
            said_of_modules: modules,
            ..config
        })
    }

    /// Returns every key with its value and its source.
    pub fn origins(&self) -> Vec<Setting> {
        let setting = |key: &ConfigKey| {
            let value = &self.values[key.name];
            Setting {
                key: key.name.into(),
                value: value.text.clone(),
                origin: value.origin.clone(),
                about: key.about,
            }
        };
        let of_modules = self.said_of_modules.iter();
        let of_modules = of_modules.flat_map(modules::ModuleText::settings);
        KEYS.iter().map(setting).chain(of_modules).collect()
    }

    /// Tells whether a flag set this key: its value must then be valid at once.
    pub(crate) fn is_flag(&self, key: &str) -> bool {
        let value = self.values.get(key);
        value.is_some_and(|value| matches!(value.origin, ValueOrigin::Flag(_)))
    }

    /// Returns the configuration with the old values of `fixed` keys, and the keys whose new values differ.
    pub(crate) fn keeping(
        self,
        before: &Self,
        fixed: &[&'static str],
    ) -> Result<(Self, Vec<&'static str>), Error> {
        let mut values = self.values.clone();
        let mut kept = Vec::new();
        for &key in fixed {
            let old = &before.values[key];
            if values[key].text != old.text {
                kept.push(key);
            }
            values.insert(key, old.clone());
        }
        let config = Self {
            modules: self.modules,
            unread: self.unread,
            said_of_modules: self.said_of_modules,
            ..Self::of(values)?
        };
        Ok((config, kept))
    }

    /// Returns the level of the log.
    pub fn log_level(&self) -> &str {
        &self.values["log.level"].text
    }

    fn of(values: BTreeMap<&'static str, ConfigValue>) -> Result<Self, Error> {
        let take = ConfigValues(&values);
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
            upload: seconds("limits.upload_seconds")?,
            partial: seconds("limits.partial_seconds")?,
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
        let trust = TrustConfig {
            certificate: file("trust.certificate"),
            key: file("trust.key"),
            authorities: file("trust.authorities"),
            gridmap: file("trust.gridmap"),
            refuses_limited: !take.one("trust.limited_proxies", parse_bool)?,
        };
        let kerberos = match take.text("kerberos.keytab").trim() {
            "" => KerberosConfig::Found,
            "none" => KerberosConfig::Off,
            path => KerberosConfig::Keytab(path.into()),
        };
        let passwords = PasswordConfig {
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
        let hop = hop_of(&take)?;
        let export = hop.as_ref().map(|hop| hop.spool.clone());
        Ok(Self {
            export: export.unwrap_or_else(|| take.text("node.export").into()),
            hop,
            routes: take.one("node.routes", parse::<Routes>)?,
            state: Some(take.text("node.state"))
                .filter(|s| !s.is_empty())
                .map(Into::into),
            peers_account: Some(take.text("peers.account").trim())
                .filter(|name| !name.is_empty())
                .map(Into::into),
            via: take.one("node.via", parse_names)?,
            catalog: Some(take.text("catalog.url").trim())
                .filter(|text| !text.is_empty())
                .map(Into::into),
            catalog_rate: take
                .optional("catalog.rate", parse::<u64>)?
                .and_then(NonZeroU64::new),
            catalog_scrub: take
                .optional("catalog.scrub", parse::<u64>)?
                .and_then(NonZeroU64::new),
            rights: file("node.rights"),
            site: site_of(&take)?,
            slots: take.one("farm.slots", parse::<usize>)?,
            down_after: Duration::from_secs(take.one("farm.down_after", parse::<u64>)?),
            porter: None,
            ftp: take.one("ftp.listen", parse_ftp)?,
            https: take.one("https.listen", parse_doors)?,
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

fn site_of(take: &ConfigValues<'_>) -> Result<Option<String>, Error> {
    let has_catalog = !take.text("catalog.url").trim().is_empty();
    take.one("catalog.site", |text| match text.trim() {
        "" => Ok(None),
        _ if !has_catalog => Err("catalog.url (--catalog URL) says whose site it is".into()),
        name if name.contains(['/', ':']) => {
            Err("no site has / or : in its name; godwit location ls grid:/ shows the sites".into())
        }
        name => Ok(Some(name.into())),
    })
}

/// One of the two alone is of no use.
fn hop_of(take: &ConfigValues<'_>) -> Result<Option<Hop>, Error> {
    let next = take.optional("node.next", parse_next)?;
    let spool = take.text("node.spool").trim();
    let bytes = take.optional("node.spool_bytes", parse::<u64>)?;
    let caches = take.one("node.cache", parse_bool)?;
    match (spool, next) {
        ("", None) => Ok(None),
        ("", Some(_)) => {
            let lacks = |_: &str| {
                Err::<(), _>("node.spool (--spool DIR) says where it is kept until then".into())
            };
            take.one("node.next", lacks).map(|()| None)
        }
        (_, None) => {
            let lacks = |_: &str| Err::<(), _>("node.next (--next URL) says where it goes".into());
            take.one("node.spool", lacks).map(|()| None)
        }
        (spool, Some(next)) => Ok(Some(Hop {
            spool: spool.into(),
            next,
            bytes,
            caches,
            on_fault: OnFault::default(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::{sources::distance, *};

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
        assert_eq!(config.anonymous, Access::None);
        assert_eq!(config.limits.idle, Duration::from_secs(600));
        assert_eq!(config.origins().len(), KEYS.len());
        assert!(
            config
                .origins()
                .iter()
                .all(|s| s.origin == ValueOrigin::Default)
        );
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
    fn near_miss_variable_is_refused() {
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
    fn node_without_listener_is_refused() {
        for nowhere in ["", " ", ","] {
            let error = load(&[("ftp.listen", nowhere)]).unwrap_err().to_string();
            assert!(error.ends_with("a port, or none"), "{error}");
        }
        let path = std::env::temp_dir().join(format!("godwit-nowhere-{}", std::process::id()));
        std::fs::write(&path, "[ftp]\nlisten = []\n").unwrap();
        let refused = Config::load(Some(&path), [], &[]);
        std::fs::remove_file(&path).unwrap();
        assert!(refused.is_err());
    }

    #[test]
    fn invalid_toml_gives_one_line() {
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
    fn wrong_key_names_nearest_key() {
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
            ("node.via", "lab,fermi:13560"),
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
    fn port_range_of_one_is_valid() {
        assert_eq!(parse_ports("2000"), Ok(2000..=2000));
        assert_eq!(parse_ports("2000-2001"), Ok(2000..=2001));
        assert_eq!(parse_ports("2000,2001"), Ok(2000..=2001));
    }
}
