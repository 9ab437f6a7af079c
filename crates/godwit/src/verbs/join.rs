//! `godwit join`: two nodes come to know each other.

use super::init;
use crate::out::{CliError, Facts, Run, Screen};
use clap::Args;
use godwit_store::{Error, door::Door};
use godwit_trust::{Invite, Peer, door::Fingerprint, is_same_name};
use serde_json::json;
use std::{
    io::{self, Read},
    path::Path,
};

/// Connect this machine to a node, by its invite
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit join godwit-invite:lab@fermi.example:13560/4be1…/91c0…
  godwit join INVITE --name laptop --address laptop.example:13560
  godwit join - < invite

An invite is what godwit init, or godwit peers invite, printed on the other machine. It is good
once; said to godwit join on standard input, it is in no list of processes. Before it is said to
the other node, that must show the key whose fingerprint is in the invite. A name is shown as it
was written; capitals in it make no other name. The other node must be
running: godwit node. What is wrong with names and addresses, here or there, uses no invite up.

Exit status: 0; 1 what answers at its address is no node; 2 that is no invite, or a name or an
address cannot be; 5 the node does not answer, or is not there at the moment; 13 the invite is not
good any more, or another node answers at its address.")]
pub(crate) struct JoinArgs {
    /// The whole word; - reads it from standard input
    #[arg(value_name = "INVITE")]
    invite: String,
    /// How this machine will be called there [default: as godwit init calls it, or the name it has, or USER-NAME where that is taken]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How the other node will be called here [default: as it calls itself]
    #[arg(long, value_name = "NAME")]
    call: Option<String>,
    /// Where this machine can be reached by others, HOST:PORT; several times for several [default: nowhere, it only asks]
    #[arg(long = "address", value_name = "HOST:PORT")]
    addresses: Vec<String>,
}

impl JoinArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let (peer, name) = self.connect()?;
        let said = match screen.json() {
            true => screen.object(&json!({
                "event": "joined",
                "name": peer.name,
                "as": name,
                "key": peer.key.to_string(),
                "addresses": peer.addresses,
            })),
            false => screen.line(format!(
                "joined {} as {name}: godwit ls godwit://{}/",
                peer.name, peer.name
            )),
        };
        said.map_err(|error| CliError::store("join", error))?;
        Ok(Facts::new())
    }

    /// Returns what joins by an invite, under the name that this node has.
    pub(super) fn by(invite: String, addresses: Vec<String>) -> Self {
        Self {
            invite,
            name: None,
            call: None,
            addresses,
        }
    }

    /// Joins; returns the node, and the name of this machine there.
    pub(super) fn connect(self) -> Run<(Peer, String)> {
        let wanted = "join";
        let word = match &*self.invite {
            "-" => from_stdin(wanted)?,
            word => word.to_owned(),
        };
        let invite: Invite = word
            .parse()
            .map_err(|error: godwit_trust::Error| CliError::asked(wanted, error))?;
        let wanted = format!("join {}", invite.name);
        let trust = |error: godwit_trust::Error| CliError::trust(&wanted, error);
        let home = init::home(&wanted)?;
        let ours = home.key_or_new().map_err(trust)?;
        let (mut name, other) = match (self.name, home.myself().map_err(trust)?) {
            (Some(name), _) => (name, None),
            (None, Some(myself)) => (myself.name, None),
            (None, None) => (short_name(), of_user()),
        };
        let mut peer = invite.peer();
        peer.name = self.call.unwrap_or(peer.name);
        // Conflicts are found before the invite is used up.
        let pin = Fingerprint::of_credential(&ours).map_err(trust)?;
        let myself = Peer::new(&name, pin, &self.addresses);
        myself.check().map_err(trust)?;
        home.check(&peer)
            .map_err(|error| in_the_way(&wanted, error))?;
        if is_same_name(&name, &invite.name) {
            let fact = format!(
                "the node that is to be joined is called {} itself",
                invite.name
            );
            return Err(CliError::asked(&wanted, fact).next(OTHER_NAME));
        }
        home.must_be_writable().map_err(trust)?;
        let door = Door::of_peer(&peer, ours, &init::asking()?);
        let joined = door.and_then(|door| {
            let joined = door.join(&invite, &name, &self.addresses);
            match (&joined, other) {
                // Another user of this machine has joined by its name; the invite is still good.
                (Err(Error::BadName { why, .. }), Some(other)) if *why == taken(&name) => {
                    name = other;
                    door.join(&invite, &name, &self.addresses)
                }
                _ => joined,
            }
        });
        joined.map_err(|error| {
            let next = match &error {
                Error::BadName { why, .. } => Some(in_the_way_there(why, &name)),
                _ => None,
            };
            CliError::store(&wanted, error).maybe_next(next)
        })?;
        home.add(&peer).map_err(|error| {
            trust(error).next(format!(
                "{} knows this machine by now; once that is mended, say the same again",
                invite.name
            ))
        })?;
        Ok((peer, name))
    }
}

/// Returns the error if this machine cannot record a peer, with a hint.
fn in_the_way(wanted: &str, error: godwit_trust::Error) -> CliError {
    use godwit_trust::Error as E;
    let next = match &error {
        E::NameTaken { name } => Some(format!(
            "{OTHER_CALL}; if it is the same machine with a new key: godwit leave {name}, then join again"
        )),
        E::OwnName { .. } => Some(OTHER_CALL.to_owned()),
        E::KeyTaken { known_as } => Some(format!(
            "godwit ls godwit://{known_as}/ works already; to call it otherwise, first godwit leave {known_as}"
        )),
        E::OwnKey => {
            Some("say this on the machine that is to join; the invite is still good".into())
        }
        _ => None,
    };
    CliError::trust(wanted, error).maybe_next(next)
}

/// Returns the hint if the other node refuses the name of this machine.
fn in_the_way_there(told: &str, name: &str) -> String {
    use godwit_trust::Error as E;
    let known_as = String::new();
    let known = E::KeyTaken { known_as }.to_string();
    match told.strip_prefix(&*known) {
        Some(known_as) => format!(
            "this machine is known there already: --name {known_as}, or first godwit peers remove {known_as}, there; \
             the invite is still good"
        ),
        None if told == taken(name) => format!(
            "{OTHER_NAME}; if {name} there is this machine with an older key: godwit peers remove {name}, there, \
             then join again"
        ),
        None => OTHER_NAME.to_owned(),
    }
}

/// Returns the message of a node that already knows that name.
fn taken(name: &str) -> String {
    godwit_trust::Error::name_taken(name).to_string()
}

/// Returns a name for this user among those of this machine.
fn of_user() -> Option<String> {
    let user = godwit_sys::UserAccount::of_number(godwit_sys::user_id())
        .ok()?
        .name;
    let user = user.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    Some(format!("{user}-{}", short_name()))
}

/// Reads an invite that is not to be seen in a list of processes.
fn from_stdin(wanted: &str) -> Run<String> {
    let mut word = String::new();
    let read = io::stdin().take(INVITE_BYTES_MAX).read_to_string(&mut word);
    read.map_err(|cause| CliError::store(wanted, Error::io(Path::new("-"), cause)))?;
    Ok(word)
}

/// Returns the first part of the host name, as far as it can be the name of a node.
fn short_name() -> String {
    let names = godwit_sys::names_of_this_machine();
    let name = names
        .first()
        .map_or("node", |name| name.split('.').next().unwrap_or(name));
    name.chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
        .collect()
}

const OTHER_NAME: &str = "choose how this machine is called there: godwit join INVITE --name NAME; the invite is still good";
const OTHER_CALL: &str = "call it otherwise here: godwit join INVITE --call NAME";
/// Longer than any invite.
const INVITE_BYTES_MAX: u64 = 64 << 10;
