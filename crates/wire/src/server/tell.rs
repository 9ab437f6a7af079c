//! `FEAT HELP STAT`: the server describes itself.

use super::{Facts, Session, SessionState};
use crate::command::TransferMode;

impl Session {
    /// Without DCAU, Globus clients send data in the clear; with it they expect
    /// security that is there only after a login by GSI.
    pub(super) fn feat(&mut self) {
        let facts = match &self.state {
            SessionState::Ready(ready) => ready.settings.facts.announced(),
            _ => Facts::default().announced(),
        };
        self.say.more(211, "Extensions supported");
        let gssapi = self.profile.offers_gssapi.then_some(["AUTH GSSAPI"]);
        let cluster = self.profile.offers_cluster.then_some(["AUTH GODWIT"]);
        let tls = self.profile.offers_tls.then_some(["AUTH TLS"]);
        let gsi_stands = self.has_proofs();
        let has_levels = self.profile.offers_tls || self.goes_in_blocks();
        let protected: &[&str] = match (gsi_stands, has_levels) {
            (true, _) => &["DCAU", "DCSC P,D", "PBSZ", "PROT"],
            (false, true) => &["PBSZ", "PROT"],
            (false, false) => &[],
        };
        let more = gssapi.iter().chain(&cluster).chain(&tls).flatten();
        let more = more.chain(protected);
        for line in FEATURES.iter().chain(more) {
            self.say.inner(line.as_bytes());
        }
        if self.profile.passes_on {
            self.say.inner(b"GODWIT-HOP");
        }
        if let Some(ports) = self.profile.data_ports {
            self.say.inner(format!("GODWIT-PORTS {ports}").as_bytes());
        }
        self.say.inner(format!("MLST {facts}").as_bytes());
        if self.profile.stripes > 0 {
            let stripes = format!("STRIPES {}", self.profile.stripes);
            self.say.inner(stripes.as_bytes());
        }
        self.say.line(211, "End.");
    }

    pub(super) fn help(&mut self, about: &str) {
        if about.is_empty() || about == "SITE" {
            return self.list_commands();
        }
        match SYNTAX.iter().find(|(verb, _)| *verb == about) {
            Some((verb, syntax)) => {
                self.say.more(214, &format!("Help for {verb}:"));
                self.say
                    .inner(format!("{verb} {syntax}").trim_end().as_bytes());
                self.say.line(214, "End.");
            }
            None => self.say.line(502, &format!("Unknown command {about}.")),
        }
    }

    /// Globus clients look here for commands of buffers.
    fn list_commands(&mut self) {
        self.say.more(214, "The following commands are recognized:");
        for eight in SYNTAX.chunks(8) {
            let row: String = eight.iter().map(|(verb, _)| format!("{verb:<8}")).collect();
            self.say.inner(format!("   {row}").as_bytes());
        }
        self.say.line(214, "End");
    }

    pub(super) fn status(&mut self) {
        let (host, version) = (self.profile.host.clone(), self.profile.version.clone());
        let ready = self.ready();
        let mode = match ready.settings.mode {
            TransferMode::Stream => "S",
            TransferMode::Extended => "E",
        };
        let user = ready.user.clone();
        self.say
            .more(211, &format!("{host} GridFTP server status:"));
        self.say.inner(format!("godwit {version}").as_bytes());
        self.say
            .inner(format!("logged in as {user}, MODE {mode}, no transfer").as_bytes());
        self.say.line(211, "End.");
    }
}

/// MLST follows, since its line has the chosen facts.
const FEATURES: [&str; 20] = [
    "CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:11;SHA512:12;BLAKE3:5;",
    "EPRT",
    "EPSV",
    "ERET",
    "ESTO",
    "GODWIT 1",
    "LANG EN",
    "MDTM",
    "MFMT",
    "MLSC",
    "MLSR",
    "PARALLEL",
    "PASV AllowDelayed;",
    "REST STREAM",
    "SIZE",
    "SPAS",
    "SPOR",
    "STORATTR",
    "UTF8",
    "WHOAMI",
];

/// Commands and their arguments, in the notation of RFC 959.
const SYNTAX: [(&str, &str); 68] = [
    ("ABOR", ""),
    ("ABUF", "[<sp> way]"),
    ("ACCT", "<sp> account"),
    ("ADAT", "<sp> base64"),
    ("ALLO", "<sp> size"),
    ("APPE", "<sp> pathname"),
    ("AUTH", "<sp> mechanism"),
    ("CCC", ""),
    ("CDUP", ""),
    (
        "CKSM",
        "<sp> algorithm <sp> offset <sp> length <sp> pathname",
    ),
    ("CONF", "<sp> base64"),
    ("CWD", "<sp> pathname"),
    ("DCAU", "<sp> N|A|S subject"),
    ("DCSC", "<sp> P base64 | D"),
    ("DELE", "<sp> pathname"),
    ("ENC", "<sp> base64"),
    ("EPRT", "<sp> |family|address|port|"),
    ("EPSV", "[<sp> 1|2|ALL]"),
    (
        "ERET",
        "<sp> P <sp> offset <sp> length <sp> pathname | <sp> module=\"parameters\" <sp> pathname",
    ),
    (
        "ESTO",
        "<sp> A <sp> offset <sp> pathname | <sp> module=\"parameters\" <sp> pathname",
    ),
    ("FEAT", ""),
    ("HELP", "[<sp> command]"),
    ("LANG", "[<sp> EN]"),
    ("LIST", "[<sp> pathname]"),
    ("MDTM", "<sp> pathname"),
    ("MFMT", "<sp> YYYYMMDDHHMMSS <sp> pathname"),
    ("MIC", "<sp> base64"),
    ("MKD", "<sp> pathname"),
    ("MLSC", "[<sp> pathname]"),
    ("MLSD", "[<sp> pathname]"),
    ("MLSR", "[<sp> pathname]"),
    ("MLST", "[<sp> pathname]"),
    ("MODE", "<sp> S|E"),
    ("NLST", "[<sp> pathname]"),
    ("NOOP", ""),
    ("OPTS", "<sp> command <sp> options"),
    ("PASS", "<sp> password"),
    ("PASV", ""),
    ("PBSZ", "<sp> size"),
    ("PORT", "<sp> h1,h2,h3,h4,p1,p2"),
    ("PROT", "<sp> C|S|P"),
    ("PWD", ""),
    ("QUIT", ""),
    ("REIN", ""),
    ("REST", "<sp> offset | start-end,start-end,..."),
    ("RETR", "<sp> pathname"),
    ("RMD", "<sp> pathname"),
    ("RNFR", "<sp> pathname"),
    ("RNTO", "<sp> pathname"),
    ("SBUF", "<sp> size"),
    ("SCKS", "<sp> algorithm <sp> value"),
    ("SITE", "<sp> command"),
    ("SIZE", "<sp> pathname"),
    ("SPAS", "[<sp> 2]"),
    ("SPOR", "<sp> address <sp> address ..."),
    ("STAT", "[<sp> pathname]"),
    ("STOR", "<sp> pathname"),
    ("STOU", "[<sp> beginning of the name]"),
    ("STRU", "<sp> F"),
    ("SYST", ""),
    ("TREV", "<sp> PERF|RESTART <sp> seconds"),
    ("TYPE", "<sp> A|I"),
    ("USER", "<sp> name"),
    ("XCUP", ""),
    ("XCWD", "<sp> pathname"),
    ("XMKD", "<sp> pathname"),
    ("XPWD", ""),
    ("XRMD", "<sp> pathname"),
];
