//! The one table of verbs: help, man pages and completions come from it.

mod completions;
mod help;
mod man;
pub(crate) mod topics;

use crate::{
    args::Common,
    out::{Facts, Run, Screen},
    verbs::*,
};
use clap::{Arg, ArgAction, Command, CommandFactory, Parser, Subcommand};

/// Moves files between this machine, FTP and GridFTP servers, and serves them.
///
/// Wherever a file is named, a path or a URL will do: data/run7.root,
/// ftp://fermi.example/run7.root. Copies run over several streams, go on where they
/// were broken off, and are verified.
#[derive(Debug, Parser)]
#[command(
    name = "godwit",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    infer_subcommands = false,
    max_term_width = 100,
    after_help = "godwit help VERB explains one verb; godwit help exit-codes, env, config and schemes the rest.
Every verb takes --json, --quiet, --verbose and --log-format."
)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

macro_rules! verbs {
    ($($group:literal: $($verb:ident $module:ident),+;)+) => {
        /// The verbs.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Verb {
            $($($verb($module::$verb),)+)+
        }

        /// Verbs by their purpose, in the order of the first page of help.
        pub(crate) const GROUPS: &[(&str, &[&str])] = &[$(($group, &[$(stringify!($module)),+])),+];

        impl Verb {
            /// Returns the word as it is typed.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $($(Self::$verb(_) => stringify!($module),)+)+
                }
            }

            /// Runs the verb. The facts become part of the summary.
            pub(crate) fn run(self, screen: &'static Screen) -> Run<Facts> {
                match self {
                    $($(Self::$verb(verb) => verb.run(screen),)+)+
                }
            }
        }
    };
}

verbs! {
    "Copy and look": Cp cp, Mv mv, Sync sync, Ls ls, Find find, Du du, Stat stat, Cat cat, Sum sum, Mkdir mkdir, Rm rm;
    "Names and replicas": Catalog catalog, Register register, Unregister unregister, Locate locate,
        Publish publish, Replicate replicate, Audit audit, Rule rule, Location location, Link link, Attr attr, Farm farm, Run run, Mpi mpi,
        History history;
    "Cache and deliver": Get get, Put put, Tee tee, Tail tail, Commit commit, Push push, Queue queue, Trace trace,
        Retry retry, Redirect redirect, Release release, Drop drop, Mount mount, Umount umount, Stage stage, Unstage unstage, Cache cache;
    "Serve and connect": Init init, Node node, Join join, Peers peers, Leave leave, Uninit uninit,
        Doctor doctor;
    "Security and system": Ca ca, Proxy proxy, Auth auth, Cluster cluster, Config config, Version version, Help help, Completions completions, Man man;
}

impl CommandLine {
    /// Returns the command line as it is read and explained, with its verbs in groups.
    pub(crate) fn grouped() -> Command {
        let help = Arg::new("help").short('h').long("help").global(true);
        let help = help.action(ArgAction::HelpShort).help("Print this page");
        let command = Self::command().disable_help_flag(true);
        let command = command.arg(help.help_heading("Everywhere"));
        let mut listed = String::new();
        for (group, verbs) in GROUPS {
            listed.push_str(&format!("{group}:\n"));
            for verb in *verbs {
                let about = command.find_subcommand(verb).and_then(Command::get_about);
                let about = about.map(ToString::to_string).unwrap_or_default();
                listed.push_str(&format!("  {verb:<11}  {about}\n"));
            }
        }
        let template = format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{{after-help}}",
            listed.trim_end()
        );
        command.help_template(template)
    }
}
