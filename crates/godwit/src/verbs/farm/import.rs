//! `godwit farm import`: a file is cut into fragments at the sites of a collection.

use crate::{
    options::Talking,
    places,
    screen::Screen,
    trouble::{CliError, Run},
    units,
    verbs::{Facts, catalog, facts},
};
use clap::Args;
use godwit_farm::{Cut, Imported};
use godwit_store::{Error, engine::Stores};
use serde_json::json;
use std::ffi::OsString;

/// Cut a file into fragments, and write each to a site of its own
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm import --lines --parts 2 notes.txt grid:/run7/notes.txt
  godwit farm import --size 1M run7.root grid:/run7/run7.root

The fragments go to the locations of the collection in turn (godwit location ls). They become
visible together, when all have landed, and their digests are known. If there are fewer lines than
fragments, some are empty. Reading needs no verb of its own: godwit cat and cp put the
fragments together, and NAME#I/N is one of them.

Exit status: 0; 1 the name is taken, or a site refuses its fragment; 4 no such file; 5 a site does
not answer.")]
pub(crate) struct Import {
    /// The file
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// The name that it gets
    #[arg(value_name = "NAME")]
    name: OsString,
    /// Fragments [default: one for each location]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    parts: Option<u64>,
    /// Bytes of each fragment, instead (64M)
    #[arg(long, value_name = "BYTES", value_parser = units::parse_offset, conflicts_with = "parts")]
    size: Option<u64>,
    /// End each fragment with a line
    #[arg(long)]
    lines: bool,
    #[command(flatten)]
    talking: Talking,
}

impl Import {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let options = places::options(&self.talking)?;
        let source = places::url(&self.source)?;
        let name = catalog::name(&self.name)?;
        let names = catalog::logical(options.clone())?;
        let from = places::open(&Stores::new(options), &source)?;
        let wanted = format!("import {source} as {}", catalog::shown(&name.0));
        let cut = Cut {
            parts: self.parts,
            size: self.size,
            lines: self.lines,
        };
        let imported = names.import(&from, &name.0, cut);
        let imported = imported.map_err(|error| {
            let is_taken = matches!(error, Error::Exists { .. });
            let trouble = CliError::store(&*wanted, error);
            match is_taken {
                true => trouble.or_next("choose another name, or say first: godwit rm NAME"),
                false => trouble,
            }
        })?;
        let bytes = imported.last().map_or(0, |last| last.range.end);
        for (index, Imported { range, site }) in imported.iter().enumerate() {
            if !screen.json() {
                continue;
            }
            let told = json!({
                "event": "fragment", "fragment": index, "site": site, "start": range.start,
                "size": range.end - range.start,
            });
            screen
                .object(&told)
                .map_err(|error| CliError::store(&*wanted, error))?;
        }
        if !screen.json() {
            let (count, shown) = (imported.len(), catalog::shown(&name.0));
            screen.note(&format!(
                "{} in {count} fragments; godwit locate {shown} shows where",
                units::size(bytes)
            ));
        }
        Ok(facts([
            ("fragments", imported.len().into()),
            ("bytes", bytes.into()),
        ]))
    }
}
