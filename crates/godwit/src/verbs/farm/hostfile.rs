//! `godwit farm hostfile`: the hosts of the fragments of a file, for programs that start others.

use crate::{
    args::Talking,
    out::{CliError, Facts, Run, Screen, facts},
    places,
    verbs::catalog,
};
use clap::Args;
use serde_json::json;
use std::ffi::OsString;

/// Print the host of each fragment of a file, as mpirun reads it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm hostfile grid:/run7/a > hosts
  godwit farm hostfile grid:/run7/a --json

A line a fragment, in their order: the host of a node that has it, so that rank I of mpirun
--hostfile hosts --map-by seq PROGRAM runs beside fragment I. The host is the attribute host of the
location (godwit location set n1 grid:/ host=NAME), or else the name of the site.

Exit status: 0; 1 no node has one of them; 4 no such file.")]
pub(super) struct HostfileArgs {
    /// The file
    #[arg(value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    talking: Talking,
}

impl HostfileArgs {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let name = catalog::name(&self.name)?;
        let shown = catalog::shown(&name.0);
        let wanted = format!("find the hosts of {shown}");
        let fails = |error| CliError::store(&*wanted, error);
        let hosts = catalog::logical(places::options(&self.talking)?)?.hosts(&name.0);
        let hosts = hosts.map_err(fails)?;
        if let Some(fragment) = hosts.iter().position(Option::is_none) {
            let fact = format!("no node has fragment {fragment}");
            let next = format!("godwit farm make {shown}");
            return Err(CliError::found(&*wanted, fact, 1).next(next));
        }
        for (fragment, (site, host)) in hosts.iter().flatten().enumerate() {
            let told = match screen.json() {
                true => screen.object(&json!({
                    "event": "host", "fragment": fragment, "node": site, "host": host,
                })),
                false => screen.line(host),
            };
            told.map_err(fails)?;
        }
        Ok(facts([("fragments", hosts.len().into())]))
    }
}
