//! Every key of the configuration, with default and description.

/// A key with default and description.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// `section.key`.
    pub name: &'static str,
    /// The value if no source has the key.
    pub default: &'static str,
    /// Description of the key.
    pub about: &'static str,
}

/// Writes a table of keys: `"section.key" = "default", "description";`.
macro_rules! keys {
    ($($name:literal = $default:literal, $about:literal;)*) => {
        &[$(ConfigKey { name: $name, default: $default, about: $about }),*]
    };
}
pub(super) use keys;

/// Every key there is.
pub const KEYS: &[ConfigKey] = keys! {
    "node.export" = ".",
        "the directory that is served";
    "node.user" = "",
        "as whom the node runs when root starts it; empty: as the owner of the export";
    "node.state" = "",
        "directory in which transfers.jsonl tells every transfer, a line each, and where notes of what was published lie; what a resume needs lies beside the files";
    "node.via" = "",
        "peers that this node is reached through as well, by their names here, separated by commas";
    "node.spool" = "",
        "directory in which what is written is kept on its way to node.next; empty: the node serves node.export";
    "node.next" = "",
        "URL of the node, or server, that what is written goes to by way of node.spool";
    "node.spool_bytes" = "",
        "how much is kept in node.spool at most; empty: as much as its disk has room for";
    "node.cache" = "false",
        "true: what is read by way of node.next is kept in node.spool as well, as long as there is room";
    "node.routes" = "",
        "which hop leads where, PREFIX=URL with commas between; also as section [routes], PREFIX = URL";
    "node.rights" = "",
        "file of rules that say who may do what where (godwit auth); empty: what accounts and anonymous.access permit";
    "catalog.url" = "",
        "the catalog whose names this node knows; sqlite:PATH: it answers others through its door too";
    "catalog.site" = "",
        "the site of that catalog that this node is: it obeys the catalog's rights (godwit auth) where the bytes lie";
    "catalog.rate" = "",
        "bytes a second at most that the rules of the catalog copy (godwit rule); empty: no bound";
    "catalog.scrub" = "10000000",
        "bytes a second at most that are read again to compare digests, of files with a rule; 0: none are";
    "farm.slots" = "0",
        "how many programs peers that may write run here at the same time, beside files and as the account of the node; 0: none";
    "farm.down_after" = "300",
        "seconds of silence after which the copies at a site count as lost, and rules make others; of the node that serves the catalog";
    "ftp.listen" = "[::]:2811",
        "addresses with ports, separated by commas; none: no FTP";
    "https.listen" = "",
        "addresses with ports, separated by commas, of the door for other godwits; empty or none: no door";
    "ftp.host" = "",
        "the name in the greeting; empty: that of the machine";
    "anonymous.access" = "none",
        "what clients that log in as anonymous may do: none, read or write";
    "anonymous.account" = "",
        "whose rights they have, where root starts the node; empty: those of the node";
    "peers.account" = "",
        "as whom nodes act that joined, where root starts the node and peers invite --as did not say; empty: none";
    "accounts.uid_min" = "1000",
        "accounts below this number, root above all, cannot log in";
    "accounts.strict" = "true",
        "refuse names that are no accounts of this machine; false: serve them as the node, unless it runs as root";
    "accounts.idle_seconds" = "300",
        "without a request before the process of an account ends";
    "limits.sessions" = "3000",
        "sessions at once";
    "limits.sessions_per_address" = "1024",
        "sessions of one address";
    "limits.line_bytes" = "65536",
        "the longest command line";
    "limits.pipeline" = "16384",
        "commands that wait; then reading stops";
    "limits.streams" = "64",
        "data connections of one transfer";
    "limits.listing_entries" = "10000000",
        "entries of one listing";
    "limits.login_seconds" = "60",
        "from the connection to the login";
    "limits.idle_seconds" = "600",
        "without a command";
    "limits.stall_seconds" = "60",
        "of a transfer in which nothing moves";
    "limits.grace_seconds" = "60",
        "for transfers to end after SIGTERM";
    "limits.upload_seconds" = "300",
        "without a request before an upload through the door is closed; what arrived is kept";
    "limits.partial_seconds" = "604800",
        "before the bytes of an abandoned upload are removed";
    "data.ports" = "",
        "ports to listen on, like 50000-51000; empty: any";
    "data.third_party" = "true",
        "data may go to and come from others than the client";
    "data.address" = "",
        "the address told in PASV, behind a translator";
    "data.wait_seconds" = "30",
        "for a port of the range to become free";
    "trust.certificate" = "",
        "certificate of this host for GSI; empty: X509_USER_CERT, /etc/grid-security/hostcert.pem or your own";
    "trust.key" = "",
        "its private key; empty: it is in the same file";
    "trust.authorities" = "",
        "directory of authorities; empty: X509_CERT_DIR, ~/.globus or /etc/grid-security";
    "trust.gridmap" = "",
        "who may log in by GSI or Kerberos; empty: GRIDMAP, ~/.gridmap or, for root, /etc/grid-security/grid-mapfile";
    "trust.limited_proxies" = "yes",
        "no: who shows a limited proxy, as running jobs have them, is turned away";
    "kerberos.keytab" = "",
        "keys of ftp/HOST or host/HOST for logins by Kerberos; empty: KRB5_KTNAME or /etc/krb5.keytab; none: no Kerberos";
    "passwords.file" = "",
        "file of those who log in by a password or a token under TLS (godwit auth password); empty: no user does";
    "passwords.in_clear" = "false",
        "take them from clients that do not say AUTH TLS too: everybody on the way can read them";
    "cluster.key" = "",
        "file with the key that all nodes of a cluster share (godwit cluster key); its holder may act for any user";
    "cluster.addresses" = "",
        "addresses and networks, like 10.0.0.0/8, whose machines may act for anybody without a key";
    "stripes.members" = "",
        "nodes that serve the same files, HOST:PORT with commas: they make striped transfers for this one";
    "log.level" = "info",
        "error, warn, info, debug or trace";
};

/// Keys that change only by a restart: sockets and files are open, and peers have been told.
pub(crate) const FIXED: &[&str] = &[
    "node.export",
    "node.spool",
    "node.next",
    "node.spool_bytes",
    "node.cache",
    "node.routes",
    "node.user",
    "node.state",
    "node.via",
    "catalog.url",
    "catalog.site",
    "catalog.rate",
    "catalog.scrub",
    "ftp.listen",
    "https.listen",
    "anonymous.account",
    "accounts.uid_min",
    "accounts.strict",
    "accounts.idle_seconds",
    "log.level",
];
