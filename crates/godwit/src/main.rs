//! The one binary: every verb of godwit, and the node.
//!
//! A face: it reads arguments, calls the stores, the engine and the node, and
//! says what came of it. It decides where files go ([`transfer::layout`]) and nothing else
//! about data.

mod args;
mod bytes;
mod cli;
mod client;
mod config;
mod names;
mod out;
mod places;
#[cfg(test)]
mod reference;
mod signals;
mod transfer;
mod units;
mod verbs;

use clap::{Command, CommandFactory, FromArgMatches};
use cli::{CommandLine, Verb};
use out::{
    CliError, Facts, Screen,
    error::abridged,
    log,
    screen::{self, Tone},
};
use serde_json::Value;
use std::{ffi::OsString, io::Write, process::ExitCode};

fn main() -> ExitCode {
    let arguments = args::conditions::long_options(std::env::args_os().collect::<Vec<OsString>>());
    let godwit = match CommandLine::grouped()
        .try_get_matches_from(arguments)
        .and_then(|matches| CommandLine::from_arg_matches(&matches))
    {
        Ok(godwit) => godwit,
        Err(error) => return refuse(&error),
    };
    let common = godwit.common;
    let tone = Tone {
        json: common.json,
        quiet: common.quiet,
        verbose: common.verbose,
        log_format: common.log_format,
    };
    names::keep(common.catalog);
    if !matches!(godwit.verb, Verb::Node(_)) {
        log::start(tone, "warn"); // a node is told by its configuration
    }
    // The screen lives until the end: a store may print to it.
    let screen: &'static Screen = Box::leak(Box::new(Screen::new(tone)));
    let verb = godwit.verb.name();
    let facts = godwit.verb.run(screen).unwrap_or_else(|trouble| {
        screen.trouble(&trouble);
        Facts::new()
    });
    screen.show(None);
    if screen.json() && screen.is_heard() {
        let said = screen.object(&summary(verb, screen.exit_code(), facts));
        unless_gone(screen, said);
    }
    unless_gone(screen, screen.flush());
    if screen.exit_code() == screen::OUTPUT_GONE {
        // Other tools end by this signal too. If it is blocked, the status says the same.
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
    }
    ExitCode::from(screen.exit_code())
}

/// Reports a result that could not be written, unless its reader is gone.
fn unless_gone(screen: &Screen, said: Result<(), godwit_store::Error>) {
    if let Err(error) = said
        && !screen.gone()
    {
        screen.trouble(&CliError::store("write the result", error));
    }
}

/// Says what is wrong with the arguments; help and version are no error.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that is gone is no reason for another exit status.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let command = CommandLine::command();
    let verb = arguments
        .iter()
        .find_map(|word| command.find_subcommand(word));
    let next = format!(
        "godwit help {} shows how",
        verb.map_or("", Command::get_name)
    )
    .replace("  ", " ");
    let text = error
        .render()
        .to_string()
        .replace(HELP, &format!("hint: {next}"));
    let _ = write!(std::io::stderr(), "{}", abridged(&text));
    if arguments.iter().any(|argument| argument == "--json") {
        let screen = Screen::new(Tone::default());
        let text = error.render().to_string().replace(HELP, "");
        let fact = text.trim().trim_start_matches("error: ");
        let trouble = CliError::asked("understand the arguments", fact).next(next);
        let _ = screen.object(&trouble.to_json());
        let _ = screen.object(&summary("", 2, Facts::new()));
        let _ = screen.flush();
    }
    ExitCode::from(2)
}

/// The last line of each message of clap.
const HELP: &str = "For more information, try '--help'.";

/// The counts of a copy in the summary (docs/formats/json-lines.md).
const COUNTS: [&str; 14] = [
    "bytes",
    "files",
    "seconds",
    "streams",
    "resumed_bytes",
    "reread_bytes",
    "reread_source_bytes",
    "reread_target_bytes",
    "in_place",
    "directories",
    "removed",
    "failed",
    "skipped",
    "faults",
];

/// Returns the object that ends every `--json`.
fn summary(verb: &str, code: u8, mut facts: Facts) -> Value {
    if matches!(verb, "cp" | "mv" | "sync") {
        // Scripts rely on these, whatever went wrong.
        for count in COUNTS {
            facts.entry(count).or_insert(0.into());
        }
        for unknown in ["digest", "verified"] {
            facts.entry(unknown).or_insert(Value::Null);
        }
        if verb == "mv" {
            facts.entry("renamed").or_insert(0.into());
        }
        facts.entry("not_deleted").or_insert(false.into());
        facts.entry("left_out").or_insert(Value::Array(Vec::new()));
    }
    facts.insert("event".into(), "summary".into());
    facts.insert("verb".into(), verb.into());
    facts.insert(
        "status".into(),
        if code == 0 { "ok" } else { "error" }.into(),
    );
    facts.insert("exit_code".into(), code.into());
    facts.into()
}
