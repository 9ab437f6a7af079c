//! Topics that `godwit help` explains beside the verbs.

/// Returns the text of a topic.
pub(crate) fn topic(name: &str) -> Option<&'static str> {
    match name {
        "exit-codes" => Some(EXIT_CODES),
        "env" => Some(ENV),
        "config" => Some(CONFIG),
        "schemes" => Some(SCHEMES),
        _ => None,
    }
}

const EXIT_CODES: &str = "\
Exit status of every verb

    0  all is well
    1  other: no such host, a name that is taken; or several different ones (each is told)
    2  the arguments ask for what cannot be
    3  a directory was not found, or is none
    4  a file was not found
    5  it may work later: no connection, a busy server, a stall
    7  it will not work again soon: no space left
   12  bytes differ from what their digest says
   13  not allowed, or the login was refused
  130  interrupted (^C); 143 told to stop. What a resume needs is kept.

0 to 10 are those of rclone. If several files fail for the same reason, that is the exit
status; for different reasons it is 1. A signal outranks both. When the reader of our
standard output goes away (| head) we end quietly by SIGPIPE, as other tools do: 141 to a
shell that asks. A standard input or output that is closed and needed is 2.

With --json, each error is an object: error_type (Parameter, Resolution, Contact,
Authorization, Specification, Transfer), code (the numbers above), retryable,
retry_after_s, culprit (you, site, network, peer), wanted, message, next.
";

const ENV: &str = "\
Environment

  GODWIT_SECTION_KEY   overrides that key of the configuration, as in
                       GODWIT_ANONYMOUS_ACCESS=write
  GODWIT_CONFIG        the configuration file
  GODWIT_CATALOG       the catalog of grid: names, where --catalog names none
  GODWIT_SOCKET        where the node of this machine listens for your programs
                       [default: godwit/socket in XDG_RUNTIME_DIR, or in /run/user/N,
                       else /tmp/godwit-N/socket, N being your number; if another
                       user made that, /tmp/godwit-N-WORD, and godwit node status
                       says so]
  GODWIT_STATE         where that node keeps its files, on a disk of this machine
                       [default: godwit/local below XDG_STATE_HOME; /var/tmp/godwit-N
                       where that lies elsewhere]
  GODWIT_BIN           the godwit that is started as that node [default: this one]
  GODWIT_LOCAL_IDLE    how long it waits for programs before it ends [default: 5m]
  GODWIT_DEPOT_QUOTA   how many bytes it keeps at most [default: as the disk has room]
  GODWIT_SCRUB         after how long each file that it keeps is read again and compared
                       with what it was when it came; never [default: 30d]
  GODWIT_ON_FAULT      a command that it runs when something is held, or waits too long;
                       GODWIT_EVENT tells it kind, id, url and why, as JSON
  GODWIT_FAULT_AFTER   how long something may wait before that is a fault [default: 15m]
  GODWIT_SESSION       what belongs together of what programs put: commit and push are
                       of that alone
  GODWIT_LOG           what is logged, in detail: godwit_store=debug,godwit_wire=trace
  XDG_CONFIG_HOME      where godwit/config.toml is [default: ~/.config]
  XDG_STATE_HOME       where godwit/ keeps transfers.jsonl, a line for each transfer, and
                       what a resume needs [default: ~/.local/state]
  GODWIT_SSH           the ssh for sshftp:, with options [default: ssh]
  X509_USER_PROXY      your proxy [default: /tmp/x509up_u and your number]
  X509_USER_CERT, X509_USER_KEY
                       your certificate and its key, or a host's [default: ~/.globus]
  X509_CERT_DIR        whom you trust [default: ~/.globus/certificates,
                       /etc/grid-security/certificates]
  GODWIT_CLUSTER_KEY   the key of your cluster: gsiftp:// servers in it are told that you
                       are a member; none: if they know you by your address
  NETRC                logins of ftp: servers, mode 0600 [default: ~/.netrc]
  KRB5CCNAME, KRB5_CONFIG, KRB5_KTNAME
                       your tickets, the realms, and a node's keys, as Kerberos has them
  GODWIT_GSSAPI        the library that speaks Kerberos [default: libgssapi_krb5.so.2]
  NO_COLOR             no colors if set and not empty
  TERM=dumb            no progress bar
  COLUMNS              width of help
";

const CONFIG: &str = "\
Configuration of a node

Nothing needs to be configured. What is, comes from, in this order, the last one winning:
defaults, a file, GODWIT_SECTION_KEY in the environment, options. The file is the first
that exists of $GODWIT_CONFIG, $XDG_CONFIG_HOME/godwit/config.toml (~/.config without it),
/etc/godwit/config.toml.

  godwit config show     every key with its value and where that came from
  godwit config check    whether all is in order; a wrong key is an error, and so is a
                         GODWIT_ variable that looks like one
  godwit config path     which files are looked for, and which one is read

An example:

  [anonymous]
  access = \"read\"

  [data]
  ports = \"50000-50100\"

A module is a program that the bytes of files may go through, by cp --through and by the
commands ERET and ESTO of FTP. This one gives the first bytes of a file, as many as the
client says, in digits:

  [modules.first]
  command = [\"/usr/bin/head\", \"-c\", \"{}\"]
  parameters = \"[0-9]\"
  about = \"the first bytes, as many as told\"

It runs without a shell and without an environment, and sees no file but what it is given
and those of the system. Its other keys, with what they are unless they are set:
direction = \"read\" (or \"write\"), seconds = 600, cpu_seconds = 600, memory_bytes = 1 GiB,
out_bytes = 1 TiB, at_once = 4, reads = [] (what else it may read), confined = true.
";

const SCHEMES: &str = "\
What can be named

  data/run7.root             a file here; so is anything without a known scheme
  file:///data/run7.root     the same as a URL
  -                          standard input (source of cp)
  ftp://host:port/a/b        a/b below the login directory of an FTP or GridFTP server;
                             of a godwit node: below its export
  ftp://host/%2Fa/b          /a/b from the server's root
  ftp://user@host/a          with a login; the password is that of ~/.netrc (or of the file
                             that NETRC names), or stands in the URL, user:secret@host,
                             where ps shows it; anonymous without a user
  (cp --private, ls --private: the same under TLS; without a user that of ~/.netrc;
  --kerberos: with your ticket)
  gsiftp://host/a            the same server after a login by GSI, with your proxy
  sshftp://user@host/a       /a there, by ssh, which starts the server (~/.globus/sshftp or
                             `godwit node --stdio`); commands go through ssh, data does not
  /godwit/ftp:host:port/a    the path form of ftp://host:port/a

  godwit://lab/a             a on the node that is called lab here (godwit join);
                             through one port, HTTPS, encrypted both ways
  godwit://host:port/a       a on a node whose host an authority vouches for [port 13560]
  https://host/a             the same, port 443; any other server of HTTPS can be read
  http://host/a              a web server, to be read; a password is not sent in clear

  grid:/a/b                  a name: a catalog knows where its bytes lie
  /godwit/grid/a/b           the path form of grid:/a/b

dav and davs are understood, but not served by this version; they say so.
Percent signs count in URLs (%20 is a space), never in paths. A
local name that looks like a URL is written ./ftp://...

A slash behind a directory means what is in it: see godwit help cp.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_fit_a_terminal() {
        for name in ["exit-codes", "env", "config", "schemes"] {
            let text = topic(name).unwrap();
            assert!(text.lines().all(|line| line.len() <= 92), "{name}");
        }
    }
}
