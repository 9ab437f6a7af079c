//! `godwit doctor`: what keeps somebody from their files, the cause first.

use super::Facts;
use crate::{
    options::Talking,
    places, record,
    screen::Screen,
    trouble::{Run, Trouble},
    units,
};
use clap::Args;
use godwit_core::Url;
use godwit_store::{
    Error, Trust,
    engine::{Options, Place, Stores},
};
use godwit_trust::Credential;
use serde_json::json;
use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, SystemTime},
};

/// Find out why something does not work, here or with a server
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit doctor
  godwit doctor godwit://lab/data
  godwit doctor --json gsiftp://fermi.example/data

Looks, in this order, at this machine (keys, certificate, state, disk), and of a URL at its name, port, proof of
who is there, clock, rights and disk, with one question. Takes a few seconds at most. What is wrong
comes first, each with what to do about it; changes nothing.

Exit status: 0 all is well; else that of the first thing that is wrong.")]
pub(crate) struct Doctor {
    /// What cannot be reached, read or written
    #[arg(value_name = "URL")]
    url: Option<OsString>,
    #[command(flatten)]
    talking: Talking,
}

/// What came of one look.
struct Look {
    what: &'static str,
    said: String,
    wrong: Option<Wrong>,
}

struct Wrong {
    fix: String,
    code: u8,
}

impl Look {
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
            wrong: Some(Wrong {
                fix: fix.into(),
                code,
            }),
        }
    }
}

impl Doctor {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut looks = here();
        if let Some(url) = &self.url {
            let url = places::url(url)?;
            looks.extend(there(&url, &self.talking)?);
        }
        // Stable: what was looked at first is the cause of what comes after it.
        looks.sort_by_key(|look| look.wrong.is_none());
        for look in &looks {
            look.tell(screen)
                .map_err(|error| Trouble::store("tell what was found", error))?;
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
                    Trouble::found(wanted, format!("{}: {}", look.what, look.said), wrong.code);
                Err(trouble.next(wrong.fix.clone()))
            }
        }
    }
}

impl Look {
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

/// Looks at this machine.
fn here() -> Vec<Look> {
    let mut looks = Vec::new();
    match Credential::discover() {
        Ok(None) => looks.push(Look::well(
            "certificate",
            "none; gsiftp: needs one (godwit proxy init)",
        )),
        Ok(Some(credential)) => looks.push(certificate(&credential)),
        Err(error) => {
            let fix = error
                .hint()
                .unwrap_or_else(|| "godwit proxy info shows what is there".into());
            looks.push(Look::ill("certificate", error.to_string(), fix, 13));
        }
    }
    let Some(home) = record::home() else {
        let fix = "set HOME, or XDG_STATE_HOME";
        looks.push(Look::ill(
            "state",
            "there is nowhere to keep keys and notes",
            fix,
            2,
        ));
        return looks;
    };
    looks.push(match home.peers() {
        Ok(peers) => Look::well("peers", format!("{} known (godwit peers)", peers.len())),
        Err(error) => Look::ill(
            "peers",
            error.to_string(),
            "mend the file, or remove it and join again",
            2,
        ),
    });
    let nearest = home.path().ancestors().find(|path| path.exists());
    looks.push(
        match nearest.map(|path| (path, godwit_sys::may_write(path))) {
            Some((_, true)) => Look::well("state", home.path().display().to_string()),
            Some((path, false)) => {
                let said = format!(
                    "{} cannot be written: keys, notes and what a resume needs are not kept",
                    path.display()
                );
                Look::ill(
                    "state",
                    said,
                    "give it to whoever runs this, or set XDG_STATE_HOME",
                    13,
                )
            }
            None => Look::ill(
                "state",
                "no part of its path exists",
                "set XDG_STATE_HOME",
                4,
            ),
        },
    );
    looks
}

fn certificate(credential: &Credential) -> Look {
    let who = credential.identity();
    match credential.check_dates(SystemTime::now()) {
        Ok(()) => {
            let left = credential.not_after().duration_since(SystemTime::now());
            let left = units::duration(left.unwrap_or_default());
            Look::well("certificate", format!("{who}, for another {left}"))
        }
        Err(error) => {
            let fix = error
                .hint()
                .unwrap_or_else(|| "godwit proxy init makes a new one".into());
            Look::ill("certificate", error.to_string(), fix, 13)
        }
    }
}

/// Looks at what a URL names, with as few questions as it takes.
fn there(url: &Url, talking: &Talking) -> Run<Vec<Look>> {
    let options = Options::new(places::cancel()?);
    let trust = Trust {
        by: talking.by(),
        level: talking.level(),
        home: record::home(),
        expect: talking.expect(),
        ..options.trust
    };
    let stores = Stores::new(Options {
        trust,
        connect: CONNECT,
        stall: STALL,
        retries: 0,
        mark: places::mark(),
        ..options
    });
    let place = places::open(&stores, url)?;
    let mut looks = Vec::new();
    match place.store.stat(&place.path) {
        Err(error) => {
            for well in before(stage(&error)) {
                looks.push(Look::well(well, "got that far"));
            }
            let fix = error.hint().unwrap_or_else(|| "its log says more".into());
            looks.push(Look::ill(
                stage(&error),
                error.to_string(),
                fix,
                error.exit_code(),
            ));
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
                looks.push(Look::well(PORT, far));
            }
            looks.push(Look::well(
                RIGHTS,
                format!("{url} can be seen, {} bytes", stat.size),
            ));
        }
    }
    looks.extend(skew(&place));
    looks.extend(disk(&place));
    Ok(looks)
}

/// Compares clocks, where the other side tells its own.
fn skew(place: &Place) -> Option<Look> {
    let skew = place.store.clock_skew()?;
    let seconds = skew.as_secs();
    Some(match skew > SKEW_MAX {
        false => Look::well(CLOCK, format!("{seconds} s apart")),
        true => {
            let said = format!(
                "the clocks are {} apart: certificates and tickets may be refused",
                units::duration(skew)
            );
            Look::ill(
                CLOCK,
                said,
                "set the one that is wrong (timedatectl; chronyc tracking)",
                1,
            )
        }
    })
}

fn disk(place: &Place) -> Option<Look> {
    let space = place
        .store
        .space(&place.path)
        .or_else(|_| place.store.space(Path::new("")));
    let space = space.ok()?;
    let free = units::short(space.free_bytes);
    Some(match space.free_bytes * 100 < space.total_bytes {
        false => Look::well(
            DISK,
            format!("{free} free of {}", units::short(space.total_bytes)),
        ),
        true => Look::ill(DISK, format!("only {free} are free"), "make room there", 7),
    })
}

/// Tells how far one got that met this.
fn stage(error: &Error) -> &'static str {
    match error {
        Error::NoSuchHost { .. } | Error::NameService { .. } => NAME,
        Error::Unreachable { .. } | Error::NoShell { .. } => PORT,
        Error::Away { .. }
        | Error::Trust { .. }
        | Error::NoCredential { .. }
        | Error::NotFtp { .. } => PROOF,
        Error::Lost { .. } | Error::Stalled { .. } if error.is_of_contact() => PROOF,
        Error::Lost { .. } | Error::Stalled { .. } => "conversation",
        _ => RIGHTS,
    }
}

/// Returns what must have been well before that.
fn before(stage: &str) -> &'static [&'static str] {
    const ORDER: [&str; 3] = [NAME, PORT, PROOF];
    let at = ORDER.iter().position(|one| *one == stage);
    match at {
        Some(at) => &[NAME, PORT, PROOF][..at],
        None => &[NAME, PORT, PROOF],
    }
}

const NAME: &str = "name";
const PORT: &str = "port";
const PROOF: &str = "proof";
const CLOCK: &str = "clock";
const RIGHTS: &str = "rights";
const DISK: &str = "disk";
const CONNECT: Duration = Duration::from_secs(2);
const STALL: Duration = Duration::from_secs(3);
const SKEW_MAX: Duration = Duration::from_secs(60);
