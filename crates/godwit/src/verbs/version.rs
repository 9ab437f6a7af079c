//! `godwit version`: prints the version.

use crate::out::{CliError, Facts, Run, Screen, facts};
use clap::Args;
use serde_json::json;

/// Print the version
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  godwit version\n  godwit version --json")]
pub(crate) struct VersionArgs {}

impl VersionArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let version = env!("CARGO_PKG_VERSION");
        if !screen.json() {
            screen
                .line(format!("godwit {version}"))
                .map_err(|error| CliError::store("write", error))?;
        }
        Ok(facts([
            ("version", version.into()),
            ("formats", json!({ "ftp": "GODWIT 1" })),
        ]))
    }
}
