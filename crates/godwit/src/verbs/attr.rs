//! `godwit attr`: attributes that users give to names.

use super::catalog;
use crate::out::{CliError, Facts, Run, Screen};
use clap::Args;
use godwit_catalog::{CatalogEntry, Change, find};
use godwit_wire::door::call::Name;
use serde_json::json;
use std::ffi::OsString;

/// Set and show attributes of a file or collection of the catalog
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit attr grid:/run7 energy=13TeV owner=alice
  godwit attr grid:/run7

KEY=VALUE sets, KEY= removes, KEY shows one, and without any all are shown.

Exit status: 0; 2 a key that cannot be; 4 no such name, or no such attribute.")]
pub(crate) struct AttrArgs {
    /// The file or collection
    #[arg(value_name = "NAME")]
    name: OsString,
    /// The attributes
    #[arg(value_name = "KEY[=VALUE]")]
    pairs: Vec<String>,
}

impl AttrArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let name = catalog::name(&self.name)?;
        let changes = changes(&name, None, &self.pairs);
        let wanted: Vec<_> = self
            .pairs
            .iter()
            .filter(|pair| !pair.contains('='))
            .collect();
        let is_change = !changes.is_empty();
        if is_change {
            catalog::change("change attributes", changes)?;
        }
        if is_change && wanted.is_empty() {
            return Ok(Facts::new());
        }
        let entry = find(&*catalog::open()?, &name.0);
        let entry = entry.map_err(|refusal| catalog::refused("show attributes", &refusal))?;
        let shown = self.name.to_string_lossy();
        let Some(entry) = entry else {
            let fact = format!("{shown} is not in the catalog");
            return Err(CliError::found("show attributes", fact, 4));
        };
        for key in &wanted {
            if !entry.attributes.contains_key(*key) {
                let fact = format!("{shown} has no attribute {key}");
                screen.trouble(&CliError::found("show attributes", fact, 4));
            }
        }
        show(screen, &entry, &wanted)
    }
}

/// Returns the changes for the pairs `KEY=VALUE` and `KEY=`, of a name or of its location at a site.
pub(super) fn changes(name: &Name, site: Option<&String>, pairs: &[String]) -> Vec<Change> {
    let set = pairs.iter().filter_map(|pair| pair.split_once('='));
    set.map(|(key, value)| Change::Attribute {
        name: name.clone(),
        site: site.cloned(),
        key: key.into(),
        value: (!value.is_empty()).then(|| value.into()),
    })
    .collect()
}

fn show(screen: &Screen, entry: &CatalogEntry, wanted: &[&String]) -> Run<Facts> {
    for (key, value) in &entry.attributes {
        if !wanted.is_empty() && !wanted.contains(&key) {
            continue;
        }
        let shown = match screen.json() {
            true => screen.object(&json!({"event": "attribute", "key": key, "value": value})),
            false => screen.line(format!("{key}={value}")),
        };
        shown.map_err(|error| CliError::store("show attributes", error))?;
    }
    Ok(Facts::new())
}
