//! `godwit config`: the values of the configuration, and their origins.

use crate::{
    args::NodeOptions,
    config,
    out::{CliError, Facts, Run, Screen},
};
use clap::{Args, Subcommand};
use serde_json::json;

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
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Every key, its value, and where that came from
    #[command(
        after_help = "Examples:\n  godwit config show\n  godwit config show --anonymous write --json"
    )]
    Show(#[command(flatten)] NodeOptions),
    /// Whether the configuration is in order
    #[command(after_help = "Examples:\n  godwit config check\n  godwit config check --export data")]
    Check(#[command(flatten)] NodeOptions),
    /// Which files are looked for, and which one is read
    #[command(after_help = "Examples:\n  godwit config path\n  godwit config path --json")]
    Path,
}

impl ConfigArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.action {
            Action::Show(told) => show(screen, &told),
            Action::Check(told) => {
                let config = config::load(&told)?;
                for name in &config.unread {
                    screen.note(&format!("{name}: nothing reads it"));
                }
                // The files that it names are read too, as a node would.
                godwit_node::rehearse(&config)
                    .map_err(|error| CliError::asked("use the configuration", error))?;
                screen.note("the configuration is in order");
                Ok(Facts::new())
            }
            Action::Path => path(screen),
        }
    }
}

fn show(screen: &Screen, told: &NodeOptions) -> Run<Facts> {
    for setting in config::load(told)?.origins() {
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
    let used = config::file_in_use();
    for path in config::files() {
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
