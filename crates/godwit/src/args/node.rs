//! The options of a node, which `godwit config` takes as well.

use crate::names;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Options of a node.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct NodeOptions {
    /// The directory that is served [default: .]
    #[arg(long, value_name = "DIR")]
    pub(crate) export: Option<PathBuf>,
    /// Serve what is at --next instead of a directory: keep what is written in this directory, and pass it on
    #[arg(long, value_name = "DIR", requires = "next", conflicts_with = "export")]
    spool: Option<PathBuf>,
    /// With --spool: the node or server that it goes to, which this node reaches as itself
    #[arg(long, value_name = "URL", requires = "spool")]
    next: Option<String>,
    /// With --spool: keep what is read as well, for later readers, as long as there is room
    #[arg(long, requires = "spool")]
    cache: bool,
    /// Where FTP is spoken, IPv6 in brackets; several with commas; none: nowhere [default: [::]:2811]
    #[arg(long, value_name = "ADDRESS:PORT")]
    ftp: Option<String>,
    /// Where other godwits find the door to this node: address and port, or only a port, commas
    /// between several; none: nowhere [default: nowhere; the usual port is 13560]
    #[arg(long, value_name = "ADDR:PORT")]
    https: Option<String>,
    /// A peer that this node is reached through as well, by its name here: connections to it wait for
    /// visitors, so none need reach this machine. It sees no byte of what is said; several may be named
    #[arg(long, value_name = "PEER")]
    via: Vec<String>,
    /// Rights of clients that do not say their name [default: none]
    #[arg(long, value_enum, value_name = "RIGHT")]
    anonymous: Option<Anonymous>,
    /// Certificate of this host, for GSI and TLS [default: where everybody keeps it, or your own]
    #[arg(long, value_name = "FILE")]
    host_cert: Option<PathBuf>,
    /// Its private key [default: in the file of the certificate]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        requires = "host_cert"
    )]
    host_key: Option<PathBuf>,
    /// Directory of the authorities whose word counts [default: X509_CERT_DIR, or the usual]
    #[arg(hide_short_help = true, long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// Subjects that may log in by GSI, beside you, and by Kerberos [default: GRIDMAP, or the usual]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    gridmap: Option<PathBuf>,
    /// Keys of ftp/HOST or host/HOST, for logins by Kerberos; none: no Kerberos
    /// [default: KRB5_KTNAME, or /etc/krb5.keytab]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    keytab: Option<PathBuf>,
    /// Users that may log in by a password or a token, under TLS: the lines of godwit auth password [default: none]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    passwords: Option<PathBuf>,
    /// The key that all nodes of a cluster share: its holders may act for any account [default: no cluster]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    cluster_key: Option<PathBuf>,
    /// Rules that say who may do what where, as godwit auth explains them; what none allows is denied
    /// [default: what the account may, and --anonymous]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    rights: Option<PathBuf>,
    /// With --catalog: the site of it that this node is, whose rights (godwit auth allow) it obeys for the bytes too
    #[arg(hide_short_help = true, long, value_name = "NAME")]
    site: Option<String>,
    /// Write every transfer down in transfers.jsonl there; what a resume needs lies beside the files
    /// [default: none is written]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// A node that serves the same files and makes striped transfers for this one; several may be named
    #[arg(hide_short_help = true, long, value_name = "HOST:PORT")]
    stripe_member: Vec<String>,
    /// Read this configuration file instead of the usual one
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Anonymous {
    /// Nothing.
    None,
    /// Read and list.
    Read,
    /// Write as well.
    Write,
}

impl NodeOptions {
    /// Returns the given options as keys of the configuration.
    pub(crate) fn flags(&self) -> Vec<(&'static str, &'static str, String)> {
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let access = |access: Anonymous| match access {
            Anonymous::None => "none".to_owned(),
            Anonymous::Read => "read".to_owned(),
            Anonymous::Write => "write".to_owned(),
        };
        let several = |names: &[String]| Some(names.join(",")).filter(|names| !names.is_empty());
        [
            (
                "stripes.members",
                "--stripe-member",
                several(&self.stripe_member),
            ),
            ("node.export", "--export", self.export.as_ref().map(path)),
            ("node.spool", "--spool", self.spool.as_ref().map(path)),
            ("node.next", "--next", self.next.clone()),
            (
                "node.cache",
                "--cache",
                self.cache.then(|| "true".to_owned()),
            ),
            ("node.via", "--via", several(&self.via)),
            ("catalog.url", "--catalog", names::said()),
            ("catalog.site", "--site", self.site.clone()),
            ("node.rights", "--rights", self.rights.as_ref().map(path)),
            ("node.state", "--state", self.state.as_ref().map(path)),
            ("ftp.listen", "--ftp", self.ftp.clone()),
            ("https.listen", "--https", self.https.clone()),
            (
                "trust.certificate",
                "--host-cert",
                self.host_cert.as_ref().map(path),
            ),
            ("trust.key", "--host-key", self.host_key.as_ref().map(path)),
            (
                "trust.authorities",
                "--ca-dir",
                self.ca_dir.as_ref().map(path),
            ),
            (
                "trust.gridmap",
                "--gridmap",
                self.gridmap.as_ref().map(path),
            ),
            (
                "kerberos.keytab",
                "--keytab",
                self.keytab.as_ref().map(path),
            ),
            (
                "passwords.file",
                "--passwords",
                self.passwords.as_ref().map(path),
            ),
            (
                "cluster.key",
                "--cluster-key",
                self.cluster_key.as_ref().map(path),
            ),
            (
                "anonymous.access",
                "--anonymous",
                self.anonymous.map(access),
            ),
        ]
        .into_iter()
        .filter_map(|(key, flag, value)| Some((key, flag, value?)))
        .collect()
    }
}
