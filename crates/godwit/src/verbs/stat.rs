//! `godwit stat`: shows all that is known of a file.

use crate::{
    args::{Names, Talking},
    client::pending::{self, NameScope},
    out::{CliError, Facts, Run, Screen, listing},
    places, units,
};
use clap::Args;
use godwit_core::Url;
use godwit_store::engine::Stores;
use godwit_store::{Error, Stat as Known};

/// Show all that is known of a file or directory
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit stat run7.root
  godwit stat --json ftp://fermi.example/run7.root

Links are followed. Times are UTC. It tells what the server has, and whether something was put
there on this machine that is on its way still.

Exit status: 0; 4 no such file; 13 not allowed; 5 the server cannot be reached now;
1 there is no such host.")]
pub(crate) struct StatArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    talking: Talking,
}

impl StatArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let stores = places::stores(&self.talking)?;
        for url in self.names.some("stat")? {
            if let Err(trouble) = one(screen, &stores, &url) {
                screen.trouble(&trouble);
            }
        }
        Ok(Facts::new())
    }
}

fn one(screen: &Screen, stores: &Stores, url: &Url) -> Run {
    let trouble = |error: Error| CliError::store(format!("stat {url}"), error);
    pending::note(screen, url, NameScope::Name);
    let place = places::open(stores, url)?;
    let known = place.store.stat(&place.path).map_err(trouble)?;
    if screen.json() {
        screen.object(&listing::object(url.as_path(), url, &known))
    } else {
        page(url, &known)
            .lines()
            .try_for_each(|line| screen.line(line))
    }
    .map_err(trouble)
}

fn page(url: &Url, known: &Known) -> String {
    let unknown = || "not told".to_owned();
    let mut page = format!(
        "{url}\n  kind      {}\n  size      {} ({})\n  modified  {}\n  mode      {}\n  owner     {}\n  group     {}",
        listing::word(known.kind),
        known.size,
        units::size(known.size),
        known.mtime.map_or_else(unknown, units::instant),
        known.mode.map_or_else(unknown, |mode| format!(
            "{mode:04o} ({})",
            listing::mode(Some(mode))
        )),
        known.owner.clone().unwrap_or_else(unknown),
        known.group.clone().unwrap_or_else(unknown),
    );
    if let Some(target) = &known.target {
        page.push_str(&format!("\n  points to {}", target.display()));
    }
    page
}
