//! `godwit cluster`: the key that the nodes of a cluster share.

use crate::out::{CliError, Facts, Run, Screen};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;

/// Let nodes trust each other by a shared key
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit cluster key cluster.key
  godwit cluster key --json other.key

Every node gets a copy of the file, mode 0600, and is told it with --cluster-key. Programs
on machines that have it log in to gsiftp:// servers of the cluster with
GODWIT_CLUSTER_KEY=FILE, without a certificate. Keep it secret: its holders may act for
any account, as each of the nodes may. To replace it, give all of them a new one; it counts from
the next login on. The id that is printed tells keys apart and tells nothing of them.

Exit status: 0; 1 the name is taken.")]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key
    #[command(
        after_help = "Examples:\n  godwit cluster key cluster.key\n  godwit cluster key --json other.key"
    )]
    Key(KeyArgs),
}

#[derive(Args, Debug)]
struct KeyArgs {
    /// Where it will be
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl ClusterArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let Action::Key(KeyArgs { file }) = self.action;
        let wanted = format!("make a cluster key in {}", file.display());
        let id = godwit_trust::new_key(&file).map_err(|error| CliError::trust(&wanted, error))?;
        let said = if screen.json() {
            screen.object(&json!({ "event": "cluster_key", "id": id, "file": file }))
        } else {
            screen.line(format!(
                "cluster key {id} in {}; give every node a copy, and name it with --cluster-key",
                file.display()
            ))
        };
        said.map_err(|error| CliError::store(wanted, error))?;
        Ok(Facts::new())
    }
}
