//! `godwit mkdir`: makes directories.

use crate::{
    args::{Names, Talking},
    client::pending::{NameScope, Turn},
    out::{CliError, Facts, Run, Screen},
    places, transfer,
};
use clap::Args;
use godwit_core::Url;
use godwit_store::engine::Stores;
use godwit_store::{Error, Set};

/// Make directories
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit mkdir new
  godwit mkdir -p ftp://fermi.example/2026/november/raw

Exit status: 0; 1 it exists already (not with -p); 4 the directory above is missing;
13 not allowed.")]
pub(crate) struct MkdirArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    talking: Talking,
    /// Make the directories above as well; one that exists is no error
    #[arg(short, long)]
    parents: bool,
    /// Permission bits, octal
    #[arg(short, long, value_name = "MODE", value_parser = octal)]
    mode: Option<u32>,
    /// Say what would be made, and make nothing
    #[arg(long)]
    dry_run: bool,
}

impl MkdirArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let stores = places::stores(&self.talking)?;
        let mut made = 0;
        let mut turn = Turn::of(screen, self.dry_run);
        for url in self.names.some("mkdir")? {
            match self.one(screen, &stores, &url, &mut turn) {
                Ok(()) => made += 1,
                Err(trouble) => screen.trouble(&trouble),
            }
        }
        let mut facts = Facts::new();
        facts.insert("made".into(), made.into());
        if self.dry_run {
            facts.insert("dry_run".into(), true.into());
        }
        Ok(facts)
    }

    fn one(&self, screen: &Screen, stores: &Stores, url: &Url, turn: &mut Turn<'_>) -> Run {
        let wanted = format!("make the directory {url}");
        turn.wait(url, NameScope::Name, &wanted)?;
        let trouble = |error: Error| CliError::store(&*wanted, error);
        let place = places::open(stores, url)?;
        if self.dry_run {
            return transfer::would(screen, "make", url, None, 0).map_err(trouble);
        }
        if self.parents {
            places::make_with_parents(&place).map_err(trouble)?;
        } else {
            place.store.mkdir(&place.path).map_err(trouble)?;
        }
        if self.mode.is_some() {
            let mode = self.mode;
            let set = Set {
                mode,
                ..Set::default()
            };
            place.store.set(&place.path, &set).map_err(trouble)?;
        }
        if screen.verbose() && !screen.json() {
            screen.line(format!("made {url}")).map_err(trouble)?;
        }
        Ok(())
    }
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("write permission bits in octal, like 755".into()),
    }
}
