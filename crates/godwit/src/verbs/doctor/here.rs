//! Checks of this machine and of its node.

use super::{CONNECT, CheckResult, PORT, STALL};
use crate::{args::NodeOptions, config, out::CliError, units, verbs::init};
use godwit_store::{Error, RemoteOptions, Store, door::Door};
use godwit_trust::{Credential, Peer, PeersDir};
use std::time::SystemTime;

/// Checks this machine.
pub(super) fn looks() -> Vec<CheckResult> {
    let mut looks = vec![configuration(), certificate()];
    let Some(home) = config::home() else {
        let said = "there is nowhere to keep keys and notes";
        looks.push(CheckResult::ill(
            "state",
            said,
            "set HOME, or XDG_STATE_HOME",
            2,
        ));
        return looks;
    };
    looks.push(state(&home));
    looks.push(keys(&home));
    looks.push(peers(&home));
    looks
}

fn configuration() -> CheckResult {
    match config::load(&NodeOptions::default()) {
        Ok(_) => CheckResult::well("config", "is in order"),
        Err(error) => {
            let fix = "godwit config check says so too; godwit config show lists the keys";
            CheckResult::ill("config", CliError::from(error).fact().to_owned(), fix, 2)
        }
    }
}

fn certificate() -> CheckResult {
    let credential = match Credential::discover() {
        Ok(None) => {
            return CheckResult::well("certificate", "none; gsiftp: needs one (godwit proxy init)");
        }
        Ok(Some(credential)) => credential,
        Err(error) => {
            let hint = error.hint();
            let fix = hint.unwrap_or_else(|| "godwit proxy info shows what is there".into());
            return CheckResult::ill("certificate", error.to_string(), fix, 13);
        }
    };
    let who = credential.identity();
    match credential.check_dates(SystemTime::now()) {
        Ok(()) => {
            let left = credential.not_after().duration_since(SystemTime::now());
            let left = units::duration(left.unwrap_or_default());
            CheckResult::well("certificate", format!("{who}, for another {left}"))
        }
        Err(error) => {
            let hint = error.hint();
            let fix = hint.unwrap_or_else(|| "godwit proxy init makes a new one".into());
            CheckResult::ill("certificate", error.to_string(), fix, 13)
        }
    }
}

fn state(home: &PeersDir) -> CheckResult {
    let nearest = home.path().ancestors().find(|path| path.exists());
    match nearest.map(|path| (path, path.is_dir() && godwit_sys::may_write(path))) {
        Some((_, true)) => CheckResult::well("state", home.path().display().to_string()),
        Some((path, false)) => {
            let said = format!(
                "{} cannot be written: keys, notes and what a resume needs are not kept",
                path.display()
            );
            let fix = "give it to the account that runs this, or set XDG_STATE_HOME";
            CheckResult::ill("state", said, fix, 13)
        }
        None => {
            let said = "no part of its path exists";
            CheckResult::ill("state", said, "set XDG_STATE_HOME", 4)
        }
    }
}

fn keys(home: &PeersDir) -> CheckResult {
    match home.key().and_then(|key| match key {
        Some(_) => Ok(Some(home.keys()?.len())),
        None => Ok(None),
    }) {
        Ok(None) => CheckResult::well("key", "none yet: godwit init or godwit join makes one"),
        Ok(Some(1)) => CheckResult::well("key", "godwit peers rotate replaces it"),
        Ok(Some(count)) => {
            let waiting = home.waiting_for_key().map_or(0, |peers| peers.len());
            let said = format!("{} older kept, {waiting} peers know no newer", count - 1);
            CheckResult::well("key", said)
        }
        Err(error) => {
            let hint = error.hint();
            let fix = hint.unwrap_or_else(|| {
                "restore node.pem from a copy; or remove it, and have everybody join again".into()
            });
            CheckResult::ill("key", error.to_string(), fix, 13)
        }
    }
}

fn peers(home: &PeersDir) -> CheckResult {
    match home.peers() {
        Ok(peers) => CheckResult::well("peers", format!("{} known (godwit peers)", peers.len())),
        Err(error) => {
            let hint = error.hint();
            let fix = hint.unwrap_or_else(|| "mend the file, or remove it and join again".into());
            CheckResult::ill("peers", error.to_string(), fix, 2)
        }
    }
}

/// Checks whether the node of this machine runs, with the key that others know.
pub(super) fn node() -> Vec<CheckResult> {
    let Some((home, port)) = configured() else {
        return Vec::new();
    };
    let Ok(Some(myself)) = home.myself() else {
        return Vec::new();
    };
    let at = format!("localhost:{port}");
    let peer = Peer::new(&myself.name, myself.key, std::slice::from_ref(&at));
    let asked = init::asking().map_err(|_| ()).and_then(|options| {
        let options = RemoteOptions {
            connect: CONNECT,
            stall: STALL,
            ..options
        };
        let door = Door::of_peer(&peer, Credential::nobody(), &options).map_err(|_| ())?;
        Ok(door.can().map(drop))
    });
    let Ok(asked) = asked else {
        return Vec::new();
    };
    vec![match asked {
        // The node proved its key before the request.
        Ok(()) | Err(Error::Denied { .. }) => {
            CheckResult::well("node", format!("{} answers at {at}", myself.name))
        }
        Err(error @ Error::Unreachable { .. }) => {
            CheckResult::ill(PORT, error.to_string(), "start the node: godwit node", 5)
        }
        Err(error @ Error::Trust { .. }) => {
            let fix = "another program has its port: stop that, or set https.listen; or the node runs with another state";
            CheckResult::ill("node", error.to_string(), fix, 13)
        }
        Err(error) => CheckResult::ill("node", error.to_string(), "its log says more", 1),
    }]
}

/// Returns where the node of this machine keeps its state, and the port of its door.
fn configured() -> Option<(PeersDir, u16)> {
    let config = config::load(&NodeOptions::default()).ok()?;
    let door = config.https.first()?;
    Some((PeersDir::at(config.state.as_deref()?), door.port()))
}
