//! `godwit doctor`: what keeps a user from their files, the cause first.

mod here;

use crate::{
    args::Talking,
    names,
    out::{CliError, Facts, Run, Screen},
    places, units,
};
use clap::Args;
use godwit_core::Url;
use godwit_store::{
    Error, StoreExt,
    door::Door,
    engine::{CopyOptions, Place, Stores},
};
use godwit_trust::Error as TrustError;
use serde_json::json;
use std::{ffi::OsString, io, path::Path, sync::mpsc, thread, time::Duration};

/// Find out why something does not work, here or at a server
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit doctor
  godwit doctor godwit://lab/data
  godwit doctor --json gsiftp://fermi.example/data

Looks, in this order, at this machine (configuration, certificate, state, keys, peers), and of a URL
at its name, port, clock, proof of who is there, rights and disk, with one question; without one,
at the node of this machine. Takes under five seconds. What is wrong comes first, the cause before
what comes of it, each with one line of what to do about it; changes nothing.

Exit status: 0 all is well; else that of the first thing that is wrong.")]
pub(crate) struct DoctorArgs {
    /// A file or directory that cannot be reached, read or written
    #[arg(value_name = "URL")]
    url: Option<OsString>,
    #[command(flatten)]
    talking: Talking,
}

/// The result of one check.
struct CheckResult {
    what: &'static str,
    said: String,
    wrong: Option<Problem>,
}

struct Problem {
    fix: String,
    code: u8,
}

impl CheckResult {
    fn well(what: &'static str, said: impl Into<String>) -> Self {
        Self {
            what,
            said: said.into(),
            wrong: None,
        }
    }

    fn ill(what: &'static str, said: impl Into<String>, fix: impl Into<String>, code: u8) -> Self {
        Self {
            what,
            said: said.into(),
            wrong: Some(Problem {
                fix: fix.into(),
                code,
            }),
        }
    }
}

impl DoctorArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut looks = here::looks();
        looks.extend(match &self.url {
            Some(url) => {
                let (url, talking) = (places::url(url)?, self.talking);
                let at = url.host_port().to_owned();
                in_time(&at, move || there(&url, &talking))?
            }
            None => in_time("the node", || Ok(here::node()))?,
        });
        // A stable sort: an earlier check is the cause of a later one.
        looks.sort_by_key(|look| look.wrong.is_none());
        for look in &looks {
            look.tell(screen)
                .map_err(|error| CliError::store("tell what was found", error))?;
        }
        let wrong = looks
            .iter()
            .filter_map(|look| Some((look, look.wrong.as_ref()?)));
        let (count, first) = (wrong.clone().count(), wrong.into_iter().next());
        match first {
            None => Ok(Facts::from_iter([("wrong".to_owned(), 0.into())])),
            Some((look, wrong)) => {
                let wanted = match count {
                    1 => "say that all is well".to_owned(),
                    count => format!("say that all is well ({count} things are not)"),
                };
                let trouble =
                    CliError::found(wanted, format!("{}: {}", look.what, look.said), wrong.code);
                Err(trouble.next(wrong.fix.clone()))
            }
        }
    }
}

impl CheckResult {
    fn tell(&self, screen: &Screen) -> Result<(), Error> {
        if screen.json() {
            return screen.object(&json!({
                "event": "look",
                "at": self.what,
                "well": self.wrong.is_none(),
                "said": self.said,
                "fix": self.wrong.as_ref().map(|wrong| &wrong.fix),
            }));
        }
        match &self.wrong {
            None if screen.quiet() => Ok(()),
            None => screen.line(format!("well   {:<12} {}", self.what, self.said)),
            Some(wrong) => screen.line(format!(
                "WRONG  {:<12} {}\n       fix: {}",
                self.what, self.said, wrong.fix
            )),
        }
    }
}

/// Runs a check with a deadline, since several silent addresses take their time one after the other.
fn in_time(
    at: &str,
    look: impl FnOnce() -> Run<Vec<CheckResult>> + Send + 'static,
) -> Run<Vec<CheckResult>> {
    let (tell, told) = mpsc::sync_channel(1);
    // After the deadline no receiver is left.
    thread::spawn(move || drop(tell.send(look())));
    told.recv_timeout(WITHIN).unwrap_or_else(|_| {
        let said = format!("{at} does not answer within {} s", WITHIN.as_secs());
        let look = CheckResult::ill(PORT, said, SWALLOWED, 5);
        Ok(vec![look])
    })
}

/// Checks the server of a URL, with as few requests as possible.
fn there(url: &Url, talking: &Talking) -> Run<Vec<CheckResult>> {
    let stores = Stores::new(names::with_names(CopyOptions {
        connect: CONNECT,
        stall: STALL,
        retries: Some(0),
        ..places::without_names(talking)?
    }));
    // A node is asked while its store is opened.
    if let Err(error @ Error::NotJoined { .. }) = stores.open(&places::without_slashes(url)) {
        return Ok(stopped_by(&error));
    }
    let place = places::open(&stores, url)?;
    let mut looks = Vec::new();
    match place.store.stat(&place.path) {
        Err(error) => {
            looks.extend(skew(&place).or_else(|| skew_of_anybody(&place, &error)));
            looks.extend(stopped_by(&error));
            return Ok(looks);
        }
        Ok(stat) => {
            let distance = place.store.distance();
            if place.is_remote() {
                let far = format!(
                    "{} answers within {} ms",
                    url.host_port(),
                    distance.as_millis()
                );
                looks.push(CheckResult::well(PORT, far));
            }
            looks.push(CheckResult::well(
                RIGHTS,
                format!("{url} can be seen, {} bytes", stat.size),
            ));
        }
    }
    looks.extend(skew(&place));
    looks.extend(disk(&place));
    Ok(looks)
}

/// Returns the stages before an error, then the error with its remedy.
fn stopped_by(error: &Error) -> Vec<CheckResult> {
    let passed = before(stage(error)).iter();
    let mut looks: Vec<_> = passed
        .map(|well| CheckResult::well(well, "got that far"))
        .collect();
    let fix = match error {
        Error::Unreachable { cause, .. } if cause.kind() == io::ErrorKind::TimedOut => {
            SWALLOWED.into()
        }
        Error::Missing { .. } => {
            "the file is missing, and all else is well: see what is there (godwit ls), or write it"
                .into()
        }
        error => error.hint().unwrap_or_else(|| "its log says more".into()),
    };
    looks.push(CheckResult::ill(
        stage(error),
        error.to_string(),
        fix,
        error.exit_code(),
    ));
    looks
}

/// Compares clocks, where the other side tells its own.
fn skew(place: &Place) -> Option<CheckResult> {
    Some(apart(place.store.clock_skew()?))
}

/// Compares clocks with a server that did not prove its identity: a wrong clock may be the reason.
fn skew_of_anybody(place: &Place, error: &Error) -> Option<CheckResult> {
    if !matches!(error, Error::Trust { .. }) {
        return None;
    }
    let door = Door::of(&*place.store)?;
    Some(apart(door.clock_of_anybody().ok()??))
}

fn apart(skew: Duration) -> CheckResult {
    let seconds = skew.as_secs();
    match skew > SKEW_MAX {
        false => CheckResult::well(CLOCK, format!("{seconds} s apart")),
        true => {
            let said = format!(
                "the clocks are {} apart: certificates and tickets may be refused",
                units::duration(skew)
            );
            CheckResult::ill(
                CLOCK,
                said,
                "set the one that is wrong (timedatectl; chronyc tracking)",
                1,
            )
        }
    }
}

fn disk(place: &Place) -> Option<CheckResult> {
    let space = place
        .store
        .space(&place.path)
        .or_else(|_| place.store.space(Path::new("")));
    let space = space.ok()?;
    let free = units::short(space.free_bytes);
    Some(match is_scarce(space.free_bytes, space.total_bytes) {
        false => CheckResult::well(
            DISK,
            format!("{free} free of {}", units::short(space.total_bytes)),
        ),
        true => CheckResult::ill(DISK, format!("only {free} are free"), "make room there", 7),
    })
}

/// Tells whether a disk is nearly full: less than the smaller of 1 % and 1 GiB is free. One percent of a large disk
/// is room for a long while.
fn is_scarce(free_bytes: u64, total_bytes: u64) -> bool {
    free_bytes < (total_bytes / 100).min(1 << 30)
}

/// Returns the stage at which an error occurs.
fn stage(error: &Error) -> &'static str {
    match error {
        Error::Trust { cause, .. } if matches!(**cause, TrustError::NotYet { .. }) => CLOCK,
        Error::NoSuchHost { .. } | Error::NameService { .. } => NAME,
        Error::Unreachable { .. } | Error::NoShell { .. } => PORT,
        Error::Away { .. }
        | Error::Stranger { .. }
        | Error::NotJoined { .. }
        | Error::NotTls { .. }
        | Error::Trust { .. }
        | Error::NoCredential { .. }
        | Error::NotFtp { .. } => PROOF,
        Error::Lost { .. } | Error::Stalled { .. } if error.is_of_contact() => PROOF,
        Error::Lost { .. } | Error::Stalled { .. } => "conversation",
        _ => RIGHTS,
    }
}

/// Returns the stages that passed before that one.
fn before(stage: &str) -> &'static [&'static str] {
    const ORDER: [&str; 3] = [NAME, PORT, PROOF];
    match stage {
        NAME => &[],
        PORT => &ORDER[..1],
        CLOCK | PROOF => &ORDER[..2],
        _ => &ORDER,
    }
}

const NAME: &str = "name";
const PORT: &str = "port";
const PROOF: &str = "proof";
const CLOCK: &str = "clock";
const RIGHTS: &str = "rights";
const DISK: &str = "disk";
const SWALLOWED: &str = "something on the way swallows packets: a firewall, or a machine that is off; see whether another \
     port of it answers";
const CONNECT: Duration = Duration::from_millis(1500);
const STALL: Duration = Duration::from_millis(2500);
/// How long the verb takes at most.
const WITHIN: Duration = Duration::from_secs(4);
const SKEW_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::is_scarce;

    #[test]
    fn disk_is_scarce_below_hundredth_or_gibibyte() {
        const GIB: u64 = 1 << 30;
        const MIB: u64 = 1 << 20;
        let small = 100 * MIB;
        assert!(is_scarce(MIB - 1, small) && !is_scarce(MIB, small));
        for large in [100 * GIB, 101 * GIB, 1 << 50, u64::MAX] {
            assert!(is_scarce(0, large) && is_scarce(GIB - 1, large));
            assert!(!is_scarce(GIB, large) && !is_scarce(large, large));
        }
        // A disk of unknown size is not scarce.
        assert!(!is_scarce(0, 0));
    }
}
