//! `godwit config`: what a node would be told, and by whom.

use super::{Facts, node::Told};
use crate::{
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::{Args, Subcommand};
use godwit_node::{Config as NodeConfig, Error as NodeError};
use godwit_store::Error;
use serde_json::json;
use std::{
    env,
    path::{Path, PathBuf},
};

/// Show and check the configuration
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit config show
  godwit config show --anonymous write --json
  godwit config check
  godwit config path

godwit help config tells where values come from.

Exit status: 0; 2 a wrong key or value, with the nearest right one.")]
pub(crate) struct Config {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Every key, its value, and where that came from
    #[command(
        after_help = "Examples:\n  godwit config show\n  godwit config show --anonymous write --json"
    )]
    Show(#[command(flatten)] Told),
    /// Whether the configuration is in order
    #[command(after_help = "Examples:\n  godwit config check\n  godwit config check --export data")]
    Check(#[command(flatten)] Told),
    /// Which files are looked for, and which one is read
    #[command(after_help = "Examples:\n  godwit config path\n  godwit config path --json")]
    Path,
}

impl Config {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.what {
            What::Show(told) => show(screen, &told),
            What::Check(told) => {
                let config = load(&told)?;
                for name in &config.unread {
                    screen.note(&format!("{name}: nothing reads it"));
                }
                // What it names is read too: nothing else keeps a node from going on with it.
                godwit_node::rehearse(&config)
                    .map_err(|error| CliError::asked("use the configuration", error))?;
                screen.note("the configuration is in order");
                Ok(Facts::new())
            }
            What::Path => path(screen),
        }
    }
}

/// Reads the configuration: file, environment, options.
pub(crate) fn load(told: &Told) -> Run<NodeConfig> {
    let file = told.config.clone().or_else(file_in_use);
    read(file.as_deref(), told).map_err(|error| match error {
        NodeError::Unreadable { path, cause } => {
            CliError::store("read the configuration", Error::io(path, cause))
        }
        wrong => CliError::asked("use the configuration", wrong)
            .next("godwit config show lists the keys and where their values come from"),
    })
}

/// Refuses text that says nowhere to listen at.
pub(crate) fn must_listen(wanted: &str, text: &str) -> Run {
    let told = [("https.listen", "--https", text.to_owned())];
    let read = NodeConfig::load(None, [], &told).map_err(|error| CliError::asked(wanted, error))?;
    match read.https.is_empty() {
        true => Err(
            CliError::asked(wanted, "a node without a door cannot be joined")
                .next("leave --https out, or name an address and a port"),
        ),
        false => Ok(()),
    }
}

/// Returns what reads the configuration once more, from the file that is in use now: that it is gone for
/// a moment must not mean that nothing is configured.
pub(crate) fn again(told: &Told) -> impl Fn() -> Result<NodeConfig, NodeError> + Send + 'static {
    let (file, told) = (told.config.clone().or_else(file_in_use), told.clone());
    move || read(file.clone().or_else(file_in_use).as_deref(), &told)
}

/// Returns where the node of this machine keeps what must survive, if the configuration says so.
pub(crate) fn state_of_node() -> Option<PathBuf> {
    read(file_in_use().as_deref(), &Told::default()).ok()?.state
}

fn read(file: Option<&Path>, told: &Told) -> Result<NodeConfig, NodeError> {
    // Names that are not text are nobody's configuration.
    let environment = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    NodeConfig::load(file, environment, &told.flags())
}

fn show(screen: &Screen, told: &Told) -> Run<Facts> {
    for setting in load(told)?.origins() {
        let said = if screen.json() {
            screen.object(&json!({
                "event": "setting",
                "key": setting.key,
                "value": setting.value,
                "origin": setting.origin.to_string(),
                "about": setting.about,
            }))
        } else {
            screen.line(format!(
                "{:30} = {:20} # {}; {}",
                setting.key,
                format!("{:?}", setting.value),
                setting.origin,
                setting.about
            ))
        };
        said.map_err(|error| CliError::store("show the configuration", error))?;
    }
    Ok(Facts::new())
}

fn path(screen: &Screen) -> Run<Facts> {
    let used = file_in_use();
    for path in files() {
        let is_used = used.as_deref() == Some(&*path);
        let said = if screen.json() {
            screen.object(
                &json!({ "event": "path", "path": path.to_string_lossy(), "used": is_used }),
            )
        } else {
            let remark = if is_used {
                "read"
            } else {
                "not there, or not needed"
            };
            screen.line(format!("{}  # {remark}", path.display()))
        };
        said.map_err(|error| CliError::store("show the paths", error))?;
    }
    Ok(Facts::new())
}

/// The first of these that exists is read; one that was named must exist.
pub(super) fn file_in_use() -> Option<PathBuf> {
    if let Some(named) = env::var_os("GODWIT_CONFIG").filter(|name| !name.is_empty()) {
        return Some(named.into());
    }
    files().into_iter().find(|path| path.exists())
}

/// Returns where this person's configuration is, or would be.
pub(crate) fn of_this_user() -> Option<PathBuf> {
    files().into_iter().next()
}

fn files() -> Vec<PathBuf> {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let home = || Some(absolute("HOME")?.join(".config"));
    let user = absolute("XDG_CONFIG_HOME").or_else(home);
    let named = env::var_os("GODWIT_CONFIG").map(PathBuf::from);
    named
        .into_iter()
        .chain(user.map(|directory| directory.join("godwit/config.toml")))
        .chain([Path::new("/etc/godwit/config.toml").into()])
        .collect()
}
