//! `godwit cache`: the files that the node of this machine keeps.

use crate::{
    client,
    out::{CliError, Facts, Run, Screen, facts, plain},
    units,
};
use clap::{Args, Subcommand};
use godwit_local::{Kind, odd};
use godwit_store::Error;
use godwit_wire::local::{
    Request, Response,
    request::{AddDone as Added, AddRequest as Adding, Cache as Of, FileTarget},
    response::{LocalSpace, Row},
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
  godwit cache ls godwit://lab/data/
  godwit cache stat --json godwit://lab/data/run7.root
  godwit cache df
  godwit cache ls --on cluster

If room is wanted, the file that was used least recently is forgotten; never one that is not
delivered yet, is open, or has a tag. godwit stage puts a tag on, and so do jobs of batch systems
that read (slurm-77 and the like, for a day). cache add has a program make a file: it is filled at
the path that is printed, and closed before cache add-done. --on asks the depot of a peer's machine
for what this one has staged there. docs/guide/delivering.md explains both.

Exit status: 0; 13 the rights there say no; 4 nothing of that name is kept; 5 it is in use, or being
filled; 12 verify found bytes that differ.")]
pub(crate) struct CacheArgs {
    /// Act on the depot of that peer: on the files that this machine has staged there
    #[arg(long, global = true, value_name = "PEER")]
    on: Option<String>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show what is kept, a line each: how much of it is here, its length, how often it was fetched
    #[command(after_help = "Examples:\n  godwit cache ls\n  godwit cache ls --on cluster")]
    Ls {
        /// Only URLs that begin with this
        #[arg(value_name = "URL", default_value = "")]
        prefix: String,
    },
    /// Show what is kept of one file; with --json also transfers, how often it was fetched
    #[command(
        after_help = "Examples:\n  godwit cache stat godwit://lab/data/run7.root\n  godwit cache stat --json godwit://lab/data/run7.root"
    )]
    Stat(CachedFile),
    /// Say why a file is kept
    #[command(
        after_help = "Examples:\n  godwit cache why godwit://lab/data/run7.root\n  godwit cache why --json godwit://lab/data/run7.root"
    )]
    Why(CachedFile),
    /// Lock a name: others wait. Prints where the file is, which is to be filled if it is new. With --on: fetch it there,
    /// and keep it under the tag
    #[command(
        after_help = "Examples:\n  godwit cache add --tag study7 godwit://lab/data/grid.bin\n  godwit cache add --on cluster --tag study7 godwit://lab/data/grid.bin"
    )]
    Add(AddArgs),
    /// Say that an added file is filled: it stands for the URL while the tag is on it. With --on: note a time with the tag
    #[command(
        after_help = "Examples:\n  godwit cache add-done --timestamp 7 godwit://lab/data/grid.bin\n  godwit cache add-done --failed godwit://lab/data/grid.bin"
    )]
    AddDone(CacheAddDoneArgs),
    /// Forget a file, whatever tags it has, unless it is pending
    #[command(
        after_help = "Examples:\n  godwit cache rm godwit://lab/data/run7.root\n  godwit cache rm --tag study7 godwit://lab/data/run7.root"
    )]
    Rm(RmArgs),
    /// Take a tag off all files: at the end of a job, say
    #[command(
        after_help = "Examples:\n  godwit cache clean slurm-77\n  godwit cache clean slurm-77 godwit://lab/data/run7.root"
    )]
    Clean {
        /// The tag
        #[arg(value_name = "TAG")]
        tag: String,
        /// Off this file alone
        #[arg(value_name = "URL")]
        url: Option<OsString>,
    },
    /// Show how full it is
    #[command(after_help = "Examples:\n  godwit cache df\n  godwit cache df --json")]
    Df,
    /// Read what is kept, and compare it with its hash from when it arrived
    #[command(
        after_help = "Examples:\n  godwit cache verify\n  godwit cache verify godwit://lab/data/run7.root"
    )]
    Verify {
        /// This file alone
        #[arg(value_name = "URL")]
        url: Option<OsString>,
    },
}

#[derive(Args, Debug)]
struct CachedFile {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
}

#[derive(Args, Debug)]
struct RmArgs {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
    /// Take this tag off once, and keep the file
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
}

#[derive(Args, Debug)]
struct AddArgs {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
    /// The tag that keeps it [default: that of the job, or staged; with --on: staged]
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// The tag falls by itself after so long
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    lasts: Option<Duration>,
    /// How long other programs wait for add-done before they go on; with --on none waits
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true, default_value = "1h")]
    within: Duration,
}

#[derive(Args, Debug)]
struct CacheAddDoneArgs {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
    /// A number that cache add and cache stat tell: a time that means what you say
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    timestamp: Option<i64>,
    /// With --on: the tag that was said to cache add [default: staged]
    #[arg(long, value_name = "TAG", requires = "on")]
    tag: Option<String>,
    /// The file was not filled: the next program that waits fills it. With --on: the tag is taken off once
    #[arg(long, conflicts_with = "timestamp")]
    failed: bool,
}

impl CacheArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let named = |url: &OsString| client::named(url).map(|named| named.told);
        let at = At {
            screen,
            on: self.on,
        };
        match self.action {
            Action::Ls { prefix } => at.list(Of::Ls { prefix, on: None }, None),
            Action::Stat(file) => {
                at.list(Of::Stat(FileTarget::is(named(&file.url)?)), Some(FILLED))
            }
            Action::Why(file) => at.why(named(&file.url)?),
            Action::Add(add) => at.begin(named(&add.url)?, &add),
            Action::AddDone(added) => at.count(Of::AddDone(Added {
                handle: 0,
                url: Some(named(&added.url)?),
                tag: added.tag,
                timestamp: added.timestamp,
                give_up: added.failed,
            })),
            Action::Rm(rm) => at.count(Of::Rm {
                url: named(&rm.url)?,
                tag: rm.tag,
            }),
            Action::Clean { tag, url } => {
                let url = url.as_ref().map(named).transpose()?;
                at.count(Of::Clean { tag, url })
            }
            Action::Df => at.df(),
            Action::Verify { url } => at.verify(url.as_ref().map(named).transpose()?),
        }
    }
}

/// The depot that is asked, and the screen for its answers.
struct At<'a> {
    screen: &'a Screen,
    on: Option<String>,
}

impl At<'_> {
    fn ask(&self, of: Of) -> Request {
        client::on(self.on.as_deref(), Request::Cache(of))
    }

    fn list(&self, of: Of, patience: Option<Duration>) -> Run<Facts> {
        let screen = self.screen;
        let mut here = client::here()?;
        let mut rows = Vec::new();
        // The program that fills a name locks it meanwhile; this call only looks.
        let patience = patience.filter(|_| self.on.is_none());
        let deadline = patience.map(|patience| Instant::now() + patience);
        let answer = here.ask_with(self.ask(of), b"", deadline, &mut |tell| {
            if let Response::Row(row) = tell {
                rows.push(*row);
            }
        });
        let answer = answer.map_err(|refusal| match refusal.kind {
            Kind::Late => CliError::found("look at it", LOCKED, 5).next(UNLOCKS),
            _ => CliError::from(refusal),
        })?;
        let done = match answer.tell {
            Response::Done(done) => done,
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
        Ok(client::facts(&done))
    }

    fn why(&self, url: String) -> Run<Facts> {
        let screen = self.screen;
        let mut here = client::here()?;
        let answer = here.ask(self.ask(Of::Why(FileTarget::is(url))));
        let answer = answer?;
        let mut facts = Facts::new();
        if let Response::Words(words) = answer.tell {
            if !screen.json() {
                screen.line(plain(&words).as_bytes()).map_err(shown)?;
            }
            facts.insert("why".into(), words.into());
        }
        Ok(facts)
    }

    /// Waits until no other program has the name locked, and says where its file is.
    fn begin(&self, url: String, add: &AddArgs) -> Run<Facts> {
        let screen = self.screen;
        let mut here = client::here()?;
        let answer = here.ask(self.ask(Of::Add(Adding {
            url,
            tag: add.tag.clone(),
            expires_in_s: add.lasts.map(|lasts| lasts.as_secs()),
            is_there: false,
            lasts_s: Some(add.within.as_secs().max(1)),
        })));
        let answer = answer?;
        let mut facts = Facts::new();
        if let Response::Opened(opened) = answer.tell {
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
        let mut here = client::here()?;
        let done = client::done(self.screen, &mut here, self.ask(of))?;
        Ok(client::facts(&done))
    }

    fn df(&self) -> Run<Facts> {
        let screen = self.screen;
        let mut here = client::here()?;
        let answer = here.ask(self.ask(Of::Df { on: None }));
        let space = match answer.map(|answer| answer.tell) {
            Ok(Response::Space(space)) => space,
            Ok(other) => return Err(odd(&other).into()),
            Err(refusal) => return Err(refusal.into()),
        };
        if !screen.json() {
            screen.line(room(&space)).map_err(shown)?;
        }
        Ok(facts([
            ("path", space.path.into()),
            ("quota_bytes", space.quota_bytes.into()),
            ("used_bytes", space.used_bytes.into()),
            ("owed_bytes", space.owed_bytes.into()),
            ("kept_bytes", space.kept_bytes.into()),
            ("free_bytes", space.free_bytes.into()),
            ("files", space.files.into()),
        ]))
    }

    fn verify(&self, url: Option<String>) -> Run<Facts> {
        let screen = self.screen;
        let mut here = client::here()?;
        let (mut rows, mut wrong) = (Vec::new(), 0_u64);
        let ask = self.ask(Of::Verify { url });
        let answer = here.ask_with(ask, b"", None, &mut |tell| {
            if let Response::Row(row) = tell {
                rows.push(*row);
            }
        })?;
        let done = client::done_of(screen, answer)?;
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
        let mut facts = client::facts(&done);
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

fn room(space: &LocalSpace) -> String {
    let quota = match space.quota_bytes {
        Some(quota) => format!(" of {}", units::size(quota)),
        None => String::new(),
    };
    let free = match space.free_bytes {
        Some(free) => format!("; the disk has {} left", units::size(free)),
        None => String::new(),
    };
    format!(
        "{} files take {}{quota}: {} are pending, {} open or tagged{free}\n{}",
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
    "some program fills it (godwit cache add), and no other program sees it before that is done";
const UNLOCKS: &str =
    "godwit cache add-done ends that, as does the time that was said with --within";
/// How long a look at a file waits for a lock.
const FILLED: Duration = Duration::from_secs(2);
