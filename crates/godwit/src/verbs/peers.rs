//! `godwit peers`: the nodes that know this one, and their keys.

use super::init;
use crate::{
    args::NodeOptions,
    config,
    out::{CliError, Facts, Run, Screen},
    units,
};
use clap::{Args, Subcommand};
use godwit_store::{Error, door::Door};
use godwit_trust::{Peer, PeersDir, door::Fingerprint};
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Show the nodes that this machine knows, or invite another
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit peers
  godwit peers --json
  godwit peers invite --valid 1h
  godwit peers invite --as alice
  godwit peers invite --read-only
  godwit peers rotate
  godwit peers remove laptop

rotate makes another key for this node. No peer need join again: the old key is kept beside the new
one until every peer knows that; godwit peers shows since when, and for whom. Peers with an address
are told at once, the others when they come; who cannot be reached is told at the next visit, or by
saying rotate again. If a thief may have the key, that is not enough, since the thief could do the
same: have each peer forget this node (godwit peers remove, there) and join again by a new invite.

Where root starts the node, a peer acts as the account that --as said, with invite or with map,
else as the gridmap or peers.account says, and else as nobody.

Exit status: 0; 2 there is no such account; 4 no node of that name is known.")]
pub(crate) struct PeersArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print another invite to this node
    #[command(
        after_help = "Examples:\n  godwit peers invite --valid 1h\n  godwit peers invite --as alice"
    )]
    Invite(PeersInviteArgs),
    /// Make another key for this node, and tell those that know the old one
    #[command(after_help = "Examples:\n  godwit peers rotate\n  godwit peers rotate --forget-old")]
    Rotate(RotateArgs),
    /// Say as which account of this machine a node acts that has joined
    #[command(
        after_help = "Examples:\n  godwit peers map laptop --as alice\n  godwit peers map cluster --as batch"
    )]
    Map(MapArgs),
    /// Forget a node, and tell it nothing
    Remove(RemoveArgs),
}

#[derive(Args, Debug)]
struct PeersInviteArgs {
    /// How long it is good (10m, 1d), 30 days at most
    #[arg(long, value_name = "TIME", value_parser = init::lifetime, default_value = "1d")]
    valid: Duration,
    /// The account of this machine that a joining node acts as, if root starts this node
    #[arg(long = "as", value_name = "ACCOUNT")]
    account: Option<String>,
    /// Refuse every change by the node that joins: it may read and list
    #[arg(long)]
    read_only: bool,
    /// A peer that this node is reached through, beside those of node.via; several times for several
    #[arg(long, value_name = "PEER")]
    via: Vec<String>,
}

#[derive(Args, Debug)]
struct RotateArgs {
    /// Make another key though some do not know the one before yet
    #[arg(long)]
    anew: bool,
    /// Remove old keys now: who knows no newer one has to join again
    #[arg(long)]
    forget_old: bool,
}

#[derive(Args, Debug)]
struct MapArgs {
    /// How it is called here
    #[arg(value_name = "NAME")]
    name: String,
    /// The account
    #[arg(long = "as", value_name = "ACCOUNT")]
    account: String,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit peers remove laptop
  godwit peers remove --json laptop

What it has on its way goes on until the request that it is in ends; whatever it asks then is
refused, and an upload that it has begun is not published.

Exit status: 0; 4 no node of that name is known.")]
struct RemoveArgs {
    /// How it is called here
    #[arg(value_name = "NAME")]
    name: String,
}

impl PeersArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.action {
            Some(Action::Invite(invite)) => invite.run(screen),
            Some(Action::Rotate(rotate)) => rotate.run(screen),
            Some(Action::Map(map)) => map.run(screen),
            Some(Action::Remove(remove)) => remove.run(screen),
            None => list(screen),
        }
    }
}

impl PeersInviteArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = "invite a node";
        if let Some(account) = &self.account {
            must_be_account(wanted, account)?;
        }
        let home = init::home(wanted)?;
        let configured = config::load(&NodeOptions::default())?.via;
        let made = home.invite(self.valid, self.account.as_deref(), self.read_only);
        let mut invite = made.map_err(|error| CliError::trust(wanted, error))?;
        let via = [configured, self.via].concat();
        init::through(wanted, &home, &via, &mut invite.addresses)?;
        init::tell(screen, wanted, &invite, self.valid)
    }
}

impl RotateArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = "replace the key of this node";
        let trust = |error| CliError::trust(wanted, error);
        let home = init::home(wanted)?;
        if home.key().map_err(trust)?.is_none() {
            let none = "this machine has no key yet: godwit init or godwit join makes one";
            return Err(CliError::asked(wanted, none));
        }
        let is_new = match self.anew {
            true => home.rotate_anew().map(|()| true),
            // What was only said to be forgotten needs no other key.
            false if self.forget_old && rotates(&home).map_err(trust)? => Ok(false),
            false => home.rotate(),
        };
        let is_new = is_new.map_err(trust)?;
        let newest = newest(&home).map_err(trust)?;
        let forgotten = match self.forget_old {
            true => home.forget_old_keys().map_err(trust)?,
            false => 0,
        };
        let said = match screen.json() {
            true => screen.object(&json!({
                "event": "rotated",
                "key": newest.to_string(),
                "new": is_new,
                "forgotten": forgotten,
            })),
            false if is_new => screen.line(format!("the key of this node is now {newest}")),
            false => screen.line(format!(
                "the key of this node is {newest} since the last time"
            )),
        };
        said.map_err(|error| CliError::store(wanted, error))?;
        let mut waiting = 0;
        for peer in home.peers().map_err(trust)? {
            let why = told(&home, &peer, newest)?;
            let peer = home.peer(&peer.name).map_err(trust)?.unwrap_or(peer);
            waiting += usize::from(!knows(&peer, newest));
            let said = tell(screen, &peer, newest, why.as_deref());
            said.map_err(|error| CliError::store(wanted, error))?;
        }
        let kept = home.drop_unneeded().map_err(trust)?;
        if kept > 0 {
            screen.note(&match waiting {
                0 => "the old key is kept as long as an invite waits that tells it".to_owned(),
                _ => format!(
                    "the old key is kept for those who do not know the new one yet ({waiting})"
                ),
            });
        }
        Ok(Facts::from_iter([
            ("waiting".to_owned(), waiting.into()),
            ("older_keys".to_owned(), kept.into()),
        ]))
    }
}

fn rotates(home: &PeersDir) -> godwit_trust::Result<bool> {
    Ok(home.keys()?.len() > 1)
}

/// Sends a peer the new key of this node. Returns why the peer does not know that key now.
fn told(home: &PeersDir, peer: &Peer, newest: Fingerprint) -> Run<Option<String>> {
    if peer.addresses.is_empty() {
        return Ok(Some("is told when it comes".into()));
    }
    // Once by the key that it knows, and once by the new one.
    for _ in 0..2 {
        let peer = home.peer(&peer.name);
        let peer = peer.map_err(|error| CliError::trust("tell the peers", error))?;
        let Some(peer) = peer.filter(|peer| !knows(peer, newest)) else {
            return Ok(None);
        };
        let door = Door::of_known(home, &peer, &init::asking()?);
        match door.and_then(|door| door.tell_key()) {
            Ok(()) => {}
            Err(error @ Error::Missing { .. }) => {
                tracing::debug!(%error, "no such call");
                return Ok(Some("must be upgraded before it can be told".into()));
            }
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
    Ok(None)
}

fn knows(peer: &Peer, newest: Fingerprint) -> bool {
    peer.knows.is_none_or(|key| key == newest)
}

fn newest(home: &PeersDir) -> godwit_trust::Result<Fingerprint> {
    Fingerprint::of_credential(&home.key_or_new()?)
}

impl MapArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("let {} act as {}", self.name, self.account);
        must_be_account(&wanted, &self.account)?;
        let mapped = init::home(&wanted)?.map(&self.name, Some(&self.account));
        must_be_known(&wanted, &self.name, mapped)?;
        say(
            screen,
            &wanted,
            "mapped",
            &self.name,
            &format!("acts as {}", self.account),
        )
    }
}

impl RemoveArgs {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("forget {}", self.name);
        let removed = init::home(&wanted)?.remove(&self.name);
        must_be_known(&wanted, &self.name, removed)?;
        say(
            screen,
            &wanted,
            "removed",
            &self.name,
            "is not known here any more",
        )
    }
}

fn must_be_known(wanted: &str, name: &str, found: godwit_trust::Result<bool>) -> Run {
    match found {
        Ok(true) => Ok(()),
        Ok(false) => {
            let trouble = CliError::store(wanted, Error::missing(name));
            Err(trouble.next("godwit peers shows who is known"))
        }
        Err(error) => Err(CliError::trust(wanted, error)),
    }
}

/// Refuses accounts that no peer can act as: only root can start a node that acts for others.
pub(super) fn must_be_account(wanted: &str, account: &str) -> Run {
    if godwit_sys::user_id() != 0 {
        let fact =
            "a node that root did not start serves every peer as the account that started it";
        return Err(CliError::asked(wanted, fact).next("say this as root, or leave --as out"));
    }
    match godwit_sys::UserAccount::find(account) {
        Ok(user) if user.uid != 0 => Ok(()),
        Ok(_) => Err(CliError::asked(wanted, "no joining node acts as root")
            .next("name the account whose files they may use")),
        Err(cause) => {
            let fact = format!("{account}: {}", godwit_sys::why(&cause));
            Err(CliError::asked(wanted, fact).next("getent passwd shows the accounts"))
        }
    }
}

fn say(screen: &Screen, wanted: &str, event: &str, name: &str, what: &str) -> Run<Facts> {
    let said = match screen.json() {
        true => screen.object(&json!({ "event": event, "name": name })),
        false => screen.line(format!("{name} {what}")),
    };
    said.map_err(|error| CliError::store(wanted, error))?;
    Ok(Facts::new())
}

fn list(screen: &Screen) -> Run<Facts> {
    let wanted = "list the peers";
    let trust = |error| CliError::trust(wanted, error);
    let home = init::home(wanted)?;
    let peers = home.peers().map_err(trust)?;
    if peers.is_empty() {
        screen.note("no peers: godwit init makes an invite, godwit join takes one");
    } else {
        let newest = newest(&home).map_err(trust)?;
        for peer in &peers {
            let said = tell(screen, peer, newest, None);
            said.map_err(|error| CliError::store(wanted, error))?;
        }
    }
    for (key, since) in home.old_keys_since().map_err(trust)? {
        let said = tell_old(screen, key, since, &peers);
        said.map_err(|error| CliError::store(wanted, error))?;
    }
    Ok(Facts::from_iter([("peers".to_owned(), peers.len().into())]))
}

/// Shows a key of ours that was replaced and still counts, and for whom.
fn tell_old(
    screen: &Screen,
    key: Fingerprint,
    since: SystemTime,
    peers: &[Peer],
) -> Result<(), Error> {
    let known_by = peers.iter().filter(|peer| peer.knows == Some(key));
    let known_by: Vec<&str> = known_by.map(|peer| &*peer.name).collect();
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    if screen.json() {
        return screen.object(&json!({
            "event": "old_key",
            "key": key.to_string(),
            "replaced": units::instant(since),
            "known_by": known_by,
        }));
    }
    let of_whom = match &*known_by {
        [] => "no peer, but an invite tells it".to_owned(),
        names => names.join(" "),
    };
    screen.line(format!(
        "our old key {key}, replaced {}, still counts: {of_whom} (godwit peers rotate --forget-old ends that)",
        units::minute(since)
    ))
}

/// Shows a peer, and whether it knows our key.
fn tell(screen: &Screen, peer: &Peer, newest: Fingerprint, why: Option<&str>) -> Result<(), Error> {
    let knows = knows(peer, newest);
    if screen.json() {
        return screen.object(&json!({
            "event": "peer",
            "name": peer.name,
            "key": peer.key.to_string(),
            "next_key": peer.next.as_ref().map(ToString::to_string),
            "addresses": peer.addresses,
            "account": peer.account,
            "read_only": peer.read_only,
            "by": peer.by,
            "knows_our_key": knows,
            "was_told": knows || peer.told == Some(newest),
            "why": why.filter(|_| !knows),
        }));
    }
    let at = match &*peer.addresses {
        [] => "comes to us".to_owned(),
        addresses => addresses.join(" "),
    };
    let mut line = format!("{:<20} {at}  key {}", peer.name, peer.key);
    if let Some(account) = &peer.account {
        line += &format!("  as {account}");
    }
    if peer.read_only {
        line += "  may only read";
    }
    if let Some(by) = &peer.by {
        line += &format!("  named by {by}");
    }
    if !knows {
        line += "  does not know our new key yet";
        if let Some(why) = why {
            line += &format!(": {why}");
        }
    }
    screen.line(line)
}
