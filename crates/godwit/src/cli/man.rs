//! `godwit man`: manual pages, from the same table as the help.

use crate::{
    cli::CommandLine,
    out::{CliError, Facts, Run, Screen, facts},
};
use clap::{Args, Command, CommandFactory};
use godwit_store::Error;
use std::path::{Path, PathBuf};

/// Write manual pages into a directory
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  godwit man man1\n  godwit man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The directory; it is made if there is none
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl ManArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("write manual pages into {}", self.directory.display());
        let pages = write_pages(&self.directory)
            .map_err(|cause| CliError::store(wanted, Error::io(&self.directory, cause)))?;
        screen.note(&format!("{pages} pages in {}", self.directory.display()));
        Ok(facts([("pages", pages.into())]))
    }
}

fn write_pages(directory: &Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(directory)?;
    let mut whole = CommandLine::command();
    whole.build();
    write_page(directory, "godwit", whole.clone())?;
    let mut pages = 1;
    for verb in whole.get_subcommands() {
        let name = format!("godwit-{}", verb.get_name());
        let page = verb.clone().display_name(&name);
        write_page(directory, &name, page)?;
        pages += 1;
    }
    Ok(pages)
}

fn write_page(directory: &Path, name: &str, command: Command) -> std::io::Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    std::fs::write(directory.join(format!("{name}.1")), text)
}
