//! `godwit peers`: which nodes know each other.

use super::{Facts, config, init, node::Told};
use crate::{
    screen::Screen,
    trouble::{Run, Trouble},
    units,
};
use clap::{Args, Subcommand};
use serde_json::json;
use std::time::Duration;

/// Show the nodes that are known by their keys, or invite another
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit peers
  godwit peers --json
  godwit peers invite --valid 1h

Exit status: 0.")]
pub(crate) struct Peers {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print another invite to this node
    Invite(Invite),
}

#[derive(Args, Debug)]
struct Invite {
    /// How long it is good (10m, 1d)
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1d")]
    valid: Duration,
    /// A peer that this node is reached through, beside those of node.via; several times for several
    #[arg(long, value_name = "PEER")]
    via: Vec<String>,
}

impl Peers {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.what {
            Some(What::Invite(invite)) => invite.run(screen),
            None => list(screen),
        }
    }
}

impl Invite {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = "invite somebody";
        let home = init::home(wanted)?;
        let configured = config::load(&Told::default())?.via;
        let made = home.invite(self.valid);
        let mut invite = made.map_err(|error| Trouble::trust(wanted, error))?;
        let via = [configured, self.via].concat();
        init::through(wanted, &home, &via, &mut invite.addresses)?;
        init::tell(screen, wanted, &invite, self.valid)
    }
}

fn list(screen: &Screen) -> Run<Facts> {
    let wanted = "list the peers";
    let peers = init::home(wanted)?.peers();
    let peers = peers.map_err(|error| Trouble::trust(wanted, error))?;
    for peer in &peers {
        let said = match screen.json() {
            true => screen.object(&json!({
                "event": "peer",
                "name": peer.name,
                "key": peer.key.to_string(),
                "addresses": peer.addresses,
            })),
            false => {
                let at = match &*peer.addresses {
                    [] => "comes to us".to_owned(),
                    addresses => addresses.join(" "),
                };
                screen.line(format!("{:<20} {at}  key {}", peer.name, peer.key))
            }
        };
        said.map_err(|error| Trouble::store(wanted, error))?;
    }
    if peers.is_empty() {
        screen.note("no peers: godwit init makes an invite, godwit join takes one");
    }
    Ok(Facts::from_iter([("peers".to_owned(), peers.len().into())]))
}
