//! `godwit farm nodes`, `drain` and `return`: the nodes that keep files of the catalog.

use crate::{
    args::Talking,
    out::{CliError, Facts, Run, Screen, facts},
    places, units,
    verbs::catalog,
};
use clap::Args;
use godwit_farm::Node;
use godwit_store::Error;
use serde_json::json;
use std::path::Path;

/// Show the nodes of the farm, and how they are
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm nodes
  godwit farm nodes --json

Each site of the catalog is asked now; one that does not answer within 3 seconds is silent. The
node of the catalog asks them all the time: one that is silent for 10 seconds gets no new copies;
after farm.down_after seconds (300) its copies count as lost, and rules make others.

Exit status: 0; 5 the catalog does not answer.")]
pub(super) struct FarmNodesArgs {
    #[command(flatten)]
    talking: Talking,
}

/// Keep the files of the farm elsewhere than on this node
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm drain archive
  godwit farm drain archive --json

No new files come to the node, and its copies do not count: rules make as many elsewhere (godwit
rule add grid:/ copies=1 is the least). The copies there are read as before until godwit rm -r --at
NODE grid:/ removes them, which keeps the last copy of each file. godwit farm return ends it.

Exit status: 0; 4 the catalog has no such node.")]
pub(super) struct DrainArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    talking: Talking,
}

/// Let files come to a node again that was drained
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm return archive
  godwit farm return archive --json

Exit status: 0; 4 the catalog has no such node.")]
pub(super) struct ReturnArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    talking: Talking,
}

impl FarmNodesArgs {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = "show the nodes";
        let names = catalog::logical(places::options(&self.talking)?)?;
        let nodes = names.nodes(Path::new(""));
        let nodes = nodes.map_err(|error| CliError::store(wanted, error))?;
        for node in &nodes {
            let shown = show(screen, node);
            shown.map_err(|error| CliError::store(wanted, error))?;
        }
        let silent = nodes.iter().filter(|node| !node.is_up).count();
        Ok(facts([
            ("nodes", nodes.len().into()),
            ("silent", silent.into()),
        ]))
    }
}

fn show(screen: &Screen, node: &Node) -> Result<(), Error> {
    let state = match (node.is_up, node.is_draining) {
        (false, _) => "silent",
        (true, true) => "draining",
        (true, false) => "up",
    };
    if screen.json() {
        return screen.object(&json!({
            "event": "node", "node": node.site, "state": state, "slots": node.slots,
            "running": node.running, "free_bytes": node.free_bytes,
        }));
    }
    let programs = match (node.running, node.slots) {
        (Some(running), Some(slots)) => format!("{running} of {slots} programs"),
        _ => "no programs".into(),
    };
    let free = node
        .free_bytes
        .map(|free| format!("  {} free", units::size(free)));
    let free = free.unwrap_or_default();
    screen.line(format!("{:12} {state:8}  {programs}{free}", node.site))
}

fn set(node: &str, talking: &Talking, is_draining: bool) -> Run<Facts> {
    let wanted = match is_draining {
        true => format!("drain {node}"),
        false => format!("let files come to {node} again"),
    };
    let names = catalog::logical(places::options(talking)?)?;
    match names.drain(node, is_draining) {
        Ok(()) => Ok(Facts::new()),
        Err(Error::Missing { .. }) => {
            let fact = format!("the catalog has no location at {node}");
            Err(CliError::found(wanted, fact, 4).next("godwit farm nodes"))
        }
        Err(error) => Err(CliError::store(wanted, error)),
    }
}

impl DrainArgs {
    pub(super) fn run(self) -> Run<Facts> {
        set(&self.node, &self.talking, true)
    }
}

impl ReturnArgs {
    pub(super) fn run(self) -> Run<Facts> {
        set(&self.node, &self.talking, false)
    }
}
