//! `godwit cache`: what the node of this machine keeps.

use super::{Facts, local};
use crate::{
    screen::Screen,
    trouble::{CliError, Run, plain},
    units,
};
use clap::{Args, Subcommand};
use godwit_local::{Kind, odd};
use godwit_store::Error;
use godwit_wire::local::{
    Ask, Tell,
    ask::{Add as Adding, AddDone as Added, Cache as Of, Where},
    tell::{Row, Space},
};
use serde_json::json;
use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

/// Show, check and remove what the cache of this machine keeps
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit cache ls
  godwit cache ls godwit://lab/data/
  godwit cache stat --json godwit://lab/data/run7.root
  godwit cache why godwit://lab/data/run7.root
  godwit cache add --tag study7 godwit://lab/data/grid.bin
  godwit cache add-done --timestamp 7 godwit://lab/data/grid.bin
  godwit cache rm godwit://lab/data/run7.root
  godwit cache clean slurm-77
  godwit cache df
  godwit cache verify
  godwit cache ls --on cluster
  godwit cache add --on cluster --tag study7 godwit://lab/data/grid.bin

What is kept is forgotten by itself when room is wanted, what was used least recently first; never
what is owed to a server, is open, or has a tag. A tag is put on by godwit stage, and by what jobs
of batch systems read (slurm-77 and the like, for a day).

What is new for cache add is filled at the path that it prints, or moved there, and closed
before cache add-done. Until then whoever adds, reads or untags the name waits.
With --json, the field new says whether it is to be filled. What was filled goes with its last tag.

With --on it is the depot of a machine whose node was joined, and of that what this machine has
staged there: its files and tags, and nobody else's. A file of rights there must say so, for the URL
as that node calls it:
  [[rule]]
  who = '/O=godwit/OU=peer/CN=laptop'
  may = 'stage'
  under = '/godwit/lab/data'
cache add fetches there what is not there yet, puts the tag on, and prints where it lies on that
machine, as long as the tag is on it; add-done notes a time with that tag, and with --failed takes
it off. Nothing is locked there, and nothing is filled from here: programs of that machine read what
the server of a name has, and not what a visitor says of it. What no server has yet is put there
first (godwit put), and then added. Who is interrupted (Ctrl-C) ends what is fetched there within
seconds, if nobody else waits for it.

Exit status: 0; 13 the rights there say no; 4 nothing of that name is kept; 5 it is in use, or being
filled; 12 verify found bytes that differ.")]
pub(crate) struct Cache {
    /// Of the depot of that peer's machine: of what this one has staged there
    #[arg(long, global = true, value_name = "PEER")]
    on: Option<String>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show what is kept, a line each: how much of it is here, its length, how often it was fetched
    Ls {
        /// Only what begins so
        #[arg(value_name = "URL", default_value = "")]
        prefix: String,
    },
    /// Show what is kept of one file; with --json also transfers, how often it was fetched
    Stat(File),
    /// Say why a file is kept
    Why(File),
    /// Lock a name: others wait. Prints where the file is, which is to be filled if it is new. With --on: fetch it there,
    /// and keep it under the tag
    Add(Add),
    /// What was added is filled: it is what the URL says as long as the tag is on it. With --on: note a time with the tag
    AddDone(AddDone),
    /// Forget a file, whatever tags it has; not what is owed
    Rm(Rm),
    /// Take a tag off all files: at the end of a job, say
    Clean {
        /// The tag
        #[arg(value_name = "TAG")]
        tag: String,
        /// Off this file alone
        #[arg(value_name = "URL")]
        url: Option<OsString>,
    },
    /// Show how full it is
    Df,
    /// Read what is kept, and compare it with what it hashed to when it came
    Verify {
        /// This file alone
        #[arg(value_name = "URL")]
        url: Option<OsString>,
    },
}

#[derive(Args, Debug)]
struct File {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
}

#[derive(Args, Debug)]
struct Rm {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
    /// Take this tag off once, and keep the file
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
}

#[derive(Args, Debug)]
struct Add {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
    /// What keeps it [default: that of the job, or staged; with --on: staged]
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// The tag falls by itself after so long
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    lasts: Option<Duration>,
    /// After so long whoever waits goes on, though nothing was said; with --on nobody waits
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true, default_value = "1h")]
    within: Duration,
}

#[derive(Args, Debug)]
struct AddDone {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
    /// A number that cache add and cache stat tell: a time that means what you say
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    timestamp: Option<i64>,
    /// With --on: the tag that was said to cache add [default: staged]
    #[arg(long, value_name = "TAG", requires = "on")]
    tag: Option<String>,
    /// It did not become anything: the next who waits fills it. With --on: the tag is taken off once
    #[arg(long, conflicts_with = "timestamp")]
    failed: bool,
}

impl Cache {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let named = |url: &OsString| local::named(url).map(|named| named.told);
        let at = At {
            screen,
            on: self.on,
        };
        match self.what {
            What::Ls { prefix } => at.list(Of::Ls { prefix, on: None }, None),
            What::Stat(file) => at.list(Of::Stat(Where::is(named(&file.url)?)), Some(FILLED)),
            What::Why(file) => at.why(named(&file.url)?),
            What::Add(add) => at.begin(named(&add.url)?, &add),
            What::AddDone(added) => at.count(Of::AddDone(Added {
                handle: 0,
                url: Some(named(&added.url)?),
                tag: added.tag,
                timestamp: added.timestamp,
                give_up: added.failed,
            })),
            What::Rm(rm) => at.count(Of::Rm {
                url: named(&rm.url)?,
                tag: rm.tag,
            }),
            What::Clean { tag, url } => {
                let url = url.as_ref().map(named).transpose()?;
                at.count(Of::Clean { tag, url })
            }
            What::Df => at.df(),
            What::Verify { url } => at.verify(url.as_ref().map(named).transpose()?),
        }
    }
}

/// Whose depot is asked, and who is told.
struct At<'a> {
    screen: &'a Screen,
    on: Option<String>,
}

impl At<'_> {
    fn ask(&self, of: Of) -> Ask {
        local::on(self.on.as_deref(), Ask::Cache(of))
    }

    fn list(&self, of: Of, patience: Option<Duration>) -> Run<Facts> {
        let screen = self.screen;
        let mut here = local::here()?;
        let mut rows = Vec::new();
        // Whoever fills a name locks it for as long as that takes; here somebody only looks.
        let patience = patience.filter(|_| self.on.is_none());
        let deadline = patience.map(|patience| Instant::now() + patience);
        let answer = here.ask_with(self.ask(of), b"", deadline, &mut |tell| {
            if let Tell::Row(row) = tell {
                rows.push(*row);
            }
        });
        let answer = answer.map_err(|refusal| match refusal.why {
            Kind::Late => CliError::found("look at it", LOCKED, 5).next(UNLOCKS),
            _ => CliError::from(refusal),
        })?;
        let done = match answer.tell {
            Tell::Done(done) => done,
            other => return Err(odd(&other).into()),
        };
        for row in &rows {
            let told = match screen.json() {
                true => screen.object(&json!({
                    "event": "kept",
                    "id": row.id,
                    "url": row.url,
                    "size": row.size,
                    "present_bytes": row.present_bytes,
                    "owed_bytes": row.owed_bytes,
                    "transfers": row.transfers,
                    "open": row.readers,
                    "tags": row.tags,
                    "timestamp": row.timestamp,
                    "used": row.used_s,
                    "is_current": row.stage == "current",
                    "version": row.base,
                })),
                false => screen.line(line(row)),
            };
            told.map_err(shown)?;
        }
        Ok(local::facts(&done))
    }

    fn why(&self, url: String) -> Run<Facts> {
        let screen = self.screen;
        let mut here = local::here()?;
        let answer = here.ask(self.ask(Of::Why(Where::is(url))));
        let answer = answer?;
        let mut facts = Facts::new();
        if let Tell::Words(words) = answer.tell {
            if !screen.json() {
                screen.line(plain(&words).as_bytes()).map_err(shown)?;
            }
            facts.insert("why".into(), words.into());
        }
        Ok(facts)
    }

    /// Waits until nobody else has it locked, and says where it is.
    fn begin(&self, url: String, add: &Add) -> Run<Facts> {
        let screen = self.screen;
        let mut here = local::here()?;
        let answer = here.ask(self.ask(Of::Add(Adding {
            url,
            tag: add.tag.clone(),
            expires_in_s: add.lasts.map(|lasts| lasts.as_secs()),
            is_there: false,
            lasts_s: Some(add.within.as_secs().max(1)),
        })));
        let answer = answer?;
        let mut facts = Facts::new();
        if let Tell::Opened(opened) = answer.tell {
            let path = opened.path.map(|path| path.0).unwrap_or_default();
            let path = path.display().to_string();
            if !screen.json() {
                screen.line(path.as_bytes()).map_err(shown)?;
            }
            facts.insert("new".into(), (!opened.exists).into());
            if let Some(on) = &self.on {
                facts.insert("on".into(), on.clone().into());
            }
            facts.insert("path".into(), path.into());
            facts.insert("size".into(), opened.size.into());
            facts.insert("timestamp".into(), opened.timestamp.into());
        }
        Ok(facts)
    }

    fn count(&self, of: Of) -> Run<Facts> {
        let mut here = local::here()?;
        let done = local::done(self.screen, &mut here, self.ask(of))?;
        Ok(local::facts(&done))
    }

    fn df(&self) -> Run<Facts> {
        let screen = self.screen;
        let mut here = local::here()?;
        let answer = here.ask(self.ask(Of::Df { on: None }));
        let space = match answer.map(|answer| answer.tell) {
            Ok(Tell::Space(space)) => space,
            Ok(other) => return Err(odd(&other).into()),
            Err(refusal) => return Err(refusal.into()),
        };
        let mut facts = Facts::new();
        facts.insert("path".into(), space.path.clone().into());
        facts.insert("quota_bytes".into(), space.quota_bytes.into());
        facts.insert("used_bytes".into(), space.used_bytes.into());
        facts.insert("owed_bytes".into(), space.owed_bytes.into());
        facts.insert("kept_bytes".into(), space.kept_bytes.into());
        facts.insert("free_bytes".into(), space.free_bytes.into());
        facts.insert("files".into(), space.files.into());
        if !screen.json() {
            screen.line(room(&space)).map_err(shown)?;
        }
        Ok(facts)
    }

    fn verify(&self, url: Option<String>) -> Run<Facts> {
        let screen = self.screen;
        let mut here = local::here()?;
        let (mut rows, mut wrong) = (Vec::new(), 0_u64);
        let ask = self.ask(Of::Verify { url });
        let answer = here.ask_with(ask, b"", None, &mut |tell| {
            if let Tell::Row(row) = tell {
                rows.push(*row);
            }
        })?;
        let done = local::done_of(screen, answer)?;
        for row in &rows {
            if row.reason.is_some() {
                wrong += 1;
                let fact = row.why.clone().unwrap_or_default();
                screen.trouble(&CliError::differs(format!("vouch for {}", row.url), fact));
            }
            let told = match screen.json() {
                true => screen.object(&json!({
                    "event": "verified",
                    "url": row.url,
                    "bytes": row.size,
                    "status": row.stage,
                })),
                false => screen.line(format!("{:<7}  {}", row.stage, plain(&row.url))),
            };
            told.map_err(shown)?;
        }
        let mut facts = local::facts(&done);
        facts.insert("wrong".into(), wrong.into());
        Ok(facts)
    }
}

fn line(row: &Row) -> String {
    let mut line = format!(
        "{:>9} {:>9} {:>3}x  {}",
        units::size(row.present_bytes),
        units::size(row.size),
        row.transfers,
        plain(&row.url)
    );
    if row.stage == "old" {
        line.push_str("  (an old version)");
    }
    if !row.tags.is_empty() {
        line.push_str(&format!("  [{}]", plain(&row.tags.join(", "))));
    }
    line
}

fn room(space: &Space) -> String {
    let quota = match space.quota_bytes {
        Some(quota) => format!(" of {}", units::size(quota)),
        None => String::new(),
    };
    let free = match space.free_bytes {
        Some(free) => format!("; the disk has {} left", units::size(free)),
        None => String::new(),
    };
    format!(
        "{} files take {}{quota}: {} are owed, {} open or tagged{free}\n{}",
        space.files,
        units::size(space.used_bytes),
        units::size(space.owed_bytes),
        units::size(space.kept_bytes),
        space.path
    )
}

fn shown(error: Error) -> CliError {
    CliError::store("show what is kept", error)
}

const LOCKED: &str =
    "some program fills it (godwit cache add), and nobody sees it before that is done";
const UNLOCKS: &str =
    "godwit cache add-done ends that, as does the time that was said with --within";
/// What is kept is told at once, unless it is locked.
const FILLED: Duration = Duration::from_secs(2);
