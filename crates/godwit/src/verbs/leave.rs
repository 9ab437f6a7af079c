//! `godwit leave`: two nodes forget each other.

use super::init;
use crate::out::{CliError, Facts, Run, Screen};
use clap::Args;
use godwit_store::{Error, door::Door};
use serde_json::json;

/// Forget a node, and have it forget this one
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit leave lab
  godwit leave --json lab

It is forgotten here in any case. If it does not answer, say godwit leave there as well: until then
this machine could still come in there. One that has forgotten this machine already need not be
told.

Exit status: 0; 4 no node of that name is known. With the others it is forgotten here, and was not
told: 5 it does not answer; 13 another node answers at its address; 1 it could not do it.")]
pub(crate) struct LeaveArgs {
    /// How it is called here
    #[arg(value_name = "NAME")]
    name: String,
}

impl LeaveArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("leave {}", self.name);
        let trust = |error: godwit_trust::Error| CliError::trust(&wanted, error);
        let home = init::home(&wanted)?;
        let Some(peer) = home.peer(&self.name).map_err(trust)? else {
            let missing = Error::missing(self.name.clone());
            return Err(CliError::store(&wanted, missing).next("godwit peers shows who is known"));
        };
        let told = match peer.addresses.is_empty() {
            // The peer connects to this machine, and is told then.
            true => Ok(()),
            false => Door::of_known(&home, &peer, &init::asking()?).and_then(|door| door.leave()),
        };
        home.remove(&self.name).map_err(trust)?;
        let (was_known, told) = match told {
            // The peer has already forgotten this machine; older nodes say so as a refusal.
            Err(Error::Stranger { .. } | Error::Denied { .. }) => (false, Ok(())),
            told => (true, told),
        };
        if let Err(error) = told {
            let next = format!(
                "{} is forgotten here; say godwit leave there as well",
                self.name
            );
            return Err(
                CliError::store(format!("tell {} that we leave", self.name), error).next(next),
            );
        }
        let said = match screen.json() {
            true => screen
                .object(&json!({ "event": "left", "name": self.name, "was_known": was_known })),
            false if was_known => screen.line(format!("left {}", self.name)),
            false => screen.line(format!(
                "left {}, which did not know this machine any more",
                self.name
            )),
        };
        said.map_err(|error| CliError::store(&wanted, error))?;
        Ok(Facts::new())
    }
}
