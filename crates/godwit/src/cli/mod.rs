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
    ($($group:literal: $($verb:ident($args:ident) $module:ident),+;)+) => {
        /// The verbs.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Verb {
            $($($verb($module::$args),)+)+
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
    "Copy and look": Cp(CpArgs) cp, Mv(MvArgs) mv, Sync(SyncArgs) sync, Ls(LsArgs) ls, Find(FindArgs) find, Du(DuArgs) du,
        Stat(StatArgs) stat, Cat(CatArgs) cat, Sum(SumArgs) sum, Mkdir(MkdirArgs) mkdir, Rm(RmArgs) rm;
    "Names and replicas": Catalog(CatalogArgs) catalog, Register(RegisterArgs) register, Unregister(UnregisterArgs) unregister,
        Locate(LocateArgs) locate, Publish(PublishArgs) publish, Replicate(ReplicateArgs) replicate, Audit(AuditArgs) audit,
        Rule(RuleArgs) rule, Location(LocationArgs) location, Link(LinkArgs) link, Attr(AttrArgs) attr, Farm(FarmArgs) farm,
        Run(RunArgs) run, Mpi(MpiArgs) mpi, History(HistoryArgs) history;
    "Cache and deliver": Get(GetArgs) get, Put(PutArgs) put, Tee(TeeArgs) tee, Tail(TailArgs) tail, Commit(CommitArgs) commit,
        Push(PushArgs) push, Queue(QueueArgs) queue, Trace(TraceArgs) trace, Retry(RetryArgs) retry,
        Redirect(RedirectArgs) redirect, Release(ReleaseArgs) release, Drop(DropArgs) drop, Mount(MountArgs) mount,
        Umount(UmountArgs) umount, Stage(StageArgs) stage, Unstage(UnstageArgs) unstage, Cache(CacheArgs) cache;
    "Serve and connect": Init(InitArgs) init, Node(NodeArgs) node, Join(JoinArgs) join, Peers(PeersArgs) peers,
        Leave(LeaveArgs) leave, Uninit(UninitArgs) uninit, Doctor(DoctorArgs) doctor;
    "Security and system": Ca(CaArgs) ca, Proxy(ProxyArgs) proxy, Auth(AuthArgs) auth, Cluster(ClusterArgs) cluster,
        Config(ConfigArgs) config, Version(VersionArgs) version, Help(HelpArgs) help, Completions(CompletionsArgs) completions,
        Man(ManArgs) man;
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
