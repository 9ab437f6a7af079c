//! Every key of the configuration, with its default and what it is about.

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
pub const KEYS: [Key; 47] = [
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
        about: "directory in which transfers.jsonl tells every transfer, a line each, and where notes of what was published lie; what a resume needs lies beside the files",
    },
    Key {
        name: "node.via",
        default: "",
        about: "peers that this node is reached through as well, by their names here, separated by commas",
    },
    Key {
        name: "node.spool",
        default: "",
        about: "directory in which what is written is kept on its way to node.next; empty: the node serves node.export",
    },
    Key {
        name: "node.next",
        default: "",
        about: "URL of the node, or server, that what is written goes to by way of node.spool",
    },
    Key {
        name: "node.spool_bytes",
        default: "",
        about: "how much is kept in node.spool at most; empty: as much as its disk has room for",
    },
    Key {
        name: "node.cache",
        default: "false",
        about: "true: what is read by way of node.next is kept in node.spool as well, as long as there is room",
    },
    Key {
        name: "node.routes",
        default: "",
        about: "which hop leads where, PREFIX=URL with commas between; also as section [routes], PREFIX = URL",
    },
    Key {
        name: "node.rights",
        default: "",
        about: "file of rules that say who may do what where (godwit auth); empty: what accounts and anonymous.access permit",
    },
    Key {
        name: "ftp.listen",
        default: "[::]:2811",
        about: "addresses with ports, separated by commas; none: no FTP",
    },
    Key {
        name: "https.listen",
        default: "",
        about: "addresses with ports, separated by commas, of the door for other godwits; empty or none: no door",
    },
    Key {
        name: "ftp.host",
        default: "",
        about: "the name in the greeting; empty: that of the machine",
    },
    Key {
        name: "anonymous.access",
        default: "none",
        about: "what clients that log in as anonymous may do: none, read or write",
    },
    Key {
        name: "anonymous.account",
        default: "",
        about: "whose rights they have, where root starts the node; empty: those of the node",
    },
    Key {
        name: "peers.account",
        default: "",
        about: "as whom nodes act that joined, where root starts the node and peers invite --as did not say; empty: nobody",
    },
    Key {
        name: "accounts.uid_min",
        default: "1000",
        about: "accounts below this number, root above all, are nobody's to log in",
    },
    Key {
        name: "accounts.strict",
        default: "true",
        about: "refuse names that are no accounts of this machine; false: serve them as the node, unless it runs as root",
    },
    Key {
        name: "accounts.idle_seconds",
        default: "300",
        about: "without a request before the process of an account ends",
    },
    Key {
        name: "limits.sessions",
        default: "3000",
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
        name: "limits.upload_seconds",
        default: "300",
        about: "without a request before an upload through the door is closed; what arrived is kept",
    },
    Key {
        name: "limits.partial_seconds",
        default: "604800",
        about: "before what arrived of an upload that nobody goes on with is removed",
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

/// What stays as it was until a restart: sockets are open, files are, and others were told.
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
    "ftp.listen",
    "https.listen",
    "anonymous.account",
    "accounts.uid_min",
    "accounts.strict",
    "accounts.idle_seconds",
    "log.level",
];
