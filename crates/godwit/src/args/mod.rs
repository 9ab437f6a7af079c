//! Options that several verbs have in common.

pub(crate) mod conditions;
mod node;

pub(crate) use node::NodeOptions;

use crate::units;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use godwit_core::Choice;
use godwit_store::{Level, LoginBy, Proofs};
use godwit_trust::{Credential, Expect};
use std::{
    ffi::OsString,
    num::NonZeroU64,
    path::{Path, PathBuf},
    time::Duration,
};

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Print results as JSON lines, one object each; the last is a summary
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
    /// Say nothing but results and errors
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) quiet: bool,
    /// Name each step; twice, three times: log more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Everywhere")]
    pub(crate) verbose: u8,
    /// Form of the log on standard error: text or json
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, hide_possible_values = true, value_name = "FORM", help_heading = "Everywhere")]
    pub(crate) log_format: LogFormat,
    /// The catalog of grid: names (sqlite:PATH, postgres://USER@HOST:PORT/DB or godwit://PEER) [default: GODWIT_CATALOG]
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "CATALOG",
        help_heading = "Everywhere"
    )]
    pub(crate) catalog: Option<String>,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Options of `cp`, `mv` and `sync`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MoveOptions {
    /// Data streams for each large file [default: as many as prove useful]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), allow_negative_numbers = true, help_heading = "Moving")]
    pub(crate) streams: Option<u16>,
    /// Files moved at the same time [default: as many as prove useful]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), allow_negative_numbers = true, help_heading = "Moving")]
    pub(crate) parallel: Option<u16>,
    /// How progress is shown: auto, bar, plain, json or none
    #[arg(long, value_enum, default_value_t = Progress::Auto, hide_possible_values = true, value_name = "HOW", help_heading = "Moving")]
    pub(crate) progress: Progress,
    /// Compare sizes only, not digests
    #[arg(long, help_heading = "Moving")]
    pub(crate) no_verify: bool,
    /// Have the bytes come through this machine, also between two servers
    #[arg(long, hide_short_help = true, help_heading = "Moving")]
    pub(crate) via_me: bool,
    /// Begin anew instead of continuing an earlier run
    #[arg(long, help_heading = "Moving")]
    pub(crate) no_resume: bool,
    /// Tries after a passing fault of each file [default: 5; 15 once some moved]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Moving"
    )]
    pub(crate) retries: Option<u32>,
    /// Give a connection up after this long without a byte (30, 5m) [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true, hide_short_help = true, help_heading = "Moving")]
    pub(crate) stall_timeout: Option<Duration>,
    /// Size of the socket buffers of data connections, at both ends where the server knows SBUF (64K, 4M);
    /// by default the kernels tune them, which is nearly always better
    #[arg(long, value_name = "BYTES", value_parser = units::parse_buffer, allow_negative_numbers = true, hide_short_help = true, help_heading = "Moving")]
    pub(crate) tcp_buffer: Option<u32>,
    /// Encrypt the transfer, and with ftp: the commands, or fail
    #[arg(long, group = "protection", help_heading = "Moving")]
    pub(crate) private: bool,
    /// Notice each change of the bytes on their way (gsiftp: and --kerberos only); an error where the server cannot
    #[arg(
        long,
        group = "protection",
        hide_short_help = true,
        help_heading = "Moving"
    )]
    pub(crate) safe: bool,
    /// Transfer in clear; with gsiftp: still only from and to whom it must be [the default]
    #[arg(
        long,
        group = "protection",
        hide_short_help = true,
        help_heading = "Moving"
    )]
    pub(crate) clear: bool,
    /// Log in to servers of ftp: by Kerberos, with your ticket (kinit)
    #[arg(long, hide_short_help = true, help_heading = "Moving")]
    pub(crate) kerberos: bool,
    #[command(flatten)]
    pub(crate) choosing: Choosing,
    /// Let at most so many bytes a second come through here (20M)
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, allow_negative_numbers = true, help_heading = "Moving")]
    pub(crate) bwlimit: Option<NonZeroU64>,
    /// Make the directories above the target that are missing
    #[arg(long, help_heading = "Moving")]
    pub(crate) parents: bool,
    /// Say what would be done, with the very paths, and do nothing
    #[arg(long, help_heading = "Moving")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) whom: PeerArgs,
}

/// Patterns of the names to copy below a directory, in the order of the options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choosing(pub(crate) Choice);

impl Args for Choosing {
    fn augment_args(command: Command) -> Command {
        let arg = |id: &'static str, help: &'static str| {
            Arg::new(id)
                .long(id)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .allow_hyphen_values(true)
                .value_parser(clap::value_parser!(OsString))
                .help_heading("Moving")
                .help(help)
        };
        command
            .arg(arg(
                "exclude",
                "Leave out what matches below a directory; the first match decides",
            ))
            .arg(arg(
                "include",
                "Take what matches, whatever a later --exclude says",
            ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Choosing {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut rules: Vec<(usize, bool, &OsString)> = Vec::new();
        for (id, includes) in [("exclude", false), ("include", true)] {
            let patterns = matches.get_many::<OsString>(id).into_iter().flatten();
            let places = matches.indices_of(id).into_iter().flatten();
            rules.extend(
                places
                    .zip(patterns)
                    .map(|(at, pattern)| (at, includes, pattern)),
            );
        }
        rules.sort_unstable();
        let mut choice = Choice::default();
        for (_, includes, pattern) in rules {
            choice.push(includes, pattern);
        }
        Ok(Self(choice))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Proofs between this program and servers, where the host's name is not enough.
#[derive(Args, Clone, Debug)]
pub(crate) struct PeerArgs {
    /// The server's certificate must have this subject (/O=Lab/CN=fermi), instead of the host's name (gsiftp:, and ftp: with --private)
    #[arg(long, value_name = "DN", value_parser = parse_subject, hide_short_help = true, help_heading = "Moving")]
    subject: Option<String>,
    /// Like --subject, for the source alone
    #[arg(long, value_name = "DN", value_parser = parse_subject, hide_short_help = true, help_heading = "Moving")]
    source_subject: Option<String>,
    /// Like --subject, for the target alone
    #[arg(long, value_name = "DN", value_parser = parse_subject, hide_short_help = true, help_heading = "Moving")]
    target_subject: Option<String>,
    /// Prove who you are to the source by this file (certificate and key, or a proxy), instead of what is found as always
    #[arg(long, value_name = "FILE", value_parser = read_credential, hide_short_help = true, help_heading = "Moving")]
    source_credential: Option<Credential>,
    /// Like --source-credential, for the target: two sites may trust different authorities
    #[arg(long, value_name = "FILE", value_parser = read_credential, hide_short_help = true, help_heading = "Moving")]
    target_credential: Option<Credential>,
}

impl PeerArgs {
    /// Returns the proofs between this program and a source.
    pub(crate) fn source(&self) -> Proofs {
        let subject = self.source_subject.as_ref().or(self.subject.as_ref());
        Proofs {
            expect: subject.cloned().map(Expect::Subject),
            credential: self.source_credential.clone(),
        }
    }

    /// Returns the proofs between this program and the target.
    pub(crate) fn target(&self) -> Proofs {
        let subject = self.target_subject.as_ref().or(self.subject.as_ref());
        Proofs {
            expect: subject.cloned().map(Expect::Subject),
            credential: self.target_credential.clone(),
        }
    }
}

fn read_credential(file: &str) -> Result<Credential, String> {
    Credential::from_file(Path::new(file)).map_err(|error| error.to_string())
}

fn parse_subject(text: &str) -> Result<String, String> {
    match text.starts_with('/') && text.contains('=') {
        true => Ok(text.into()),
        false => Err("a subject is written /O=Lab/CN=fermi, as godwit proxy info shows it".into()),
    }
}

impl MoveOptions {
    /// Returns how this program logs in to servers of ftp:.
    pub(crate) fn by(&self) -> LoginBy {
        shown(self.kerberos)
    }

    /// Returns how the bytes of files are protected.
    pub(crate) fn level(&self) -> Level {
        match (self.private, self.safe) {
            (true, _) => Level::Private,
            (_, true) => Level::Safe,
            _ => Level::Clear,
        }
    }
}

/// How requests to servers are protected, in verbs that move no bytes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Talking {
    /// Encrypt all that is said and shown: with ftp: by AUTH TLS or --kerberos; an error where the server cannot
    #[arg(long)]
    private: bool,
    /// The server's certificate must have this subject (/O=Lab/CN=fermi), instead of the host's name (gsiftp:, and ftp: with --private)
    #[arg(long, value_name = "DN", value_parser = parse_subject)]
    subject: Option<String>,
    /// Log in to servers of ftp: by Kerberos, with your ticket (kinit)
    #[arg(long)]
    kerberos: bool,
}

impl Talking {
    /// Returns how this program logs in to servers of ftp:.
    pub(crate) fn by(&self) -> LoginBy {
        shown(self.kerberos)
    }

    /// Returns how bytes are protected.
    pub(crate) fn level(&self) -> Level {
        match self.private {
            true => Level::Private,
            false => Level::Clear,
        }
    }

    /// Returns the subject that servers must prove; `None`: the name of the host.
    pub(crate) fn expect(&self) -> Option<Expect> {
        self.subject.clone().map(Expect::Subject)
    }
}

fn shown(kerberos: bool) -> LoginBy {
    match kerberos {
        true => LoginBy::Ticket,
        false => LoginBy::Password,
    }
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Progress {
    /// A bar on a terminal, else plain lines; with --json, objects.
    Auto,
    /// A bar.
    Bar,
    /// A line every few seconds.
    Plain,
    /// An object every second.
    Json,
    /// Not at all.
    None,
}

/// Names on the command line, in a file, or both.
#[derive(Args, Clone, Debug)]
pub(crate) struct Names {
    /// Paths or URLs
    #[arg(value_name = "PATH_OR_URL")]
    pub(crate) names: Vec<OsString>,
    /// Read more of them from FILE (- is standard input), by lines or NUL
    #[arg(long, value_name = "FILE")]
    pub(crate) from_file: Option<PathBuf>,
}
