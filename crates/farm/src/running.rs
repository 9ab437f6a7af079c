//! Programs run where fragments lie.

use crate::{Logical, failed, sites::best};
use godwit_catalog::{Entry, Home, is_good};
use godwit_core::{BadUrl, Digest, Url};
use godwit_store::{Error, Result, door::Door, engine::Options};
use godwit_wire::door::{
    call::{Line, Name},
    run::AskRun,
};
use std::{collections::HashMap, path::Path};

/// A fragment, and the nodes that have it.
#[derive(Clone, Debug)]
pub struct Task {
    /// The index of the fragment.
    pub fragment: u64,
    /// The bytes of the file that it is.
    pub range: (u64, u64),
    /// The digest of these bytes, if it is known.
    pub digest: Option<Digest>,
    /// The homes that are tried, one after another.
    pub homes: Vec<Home>,
}

impl Logical {
    /// Returns a task for each fragment of a file. Of the homes of a fragment the one whose node has the fewest tasks
    /// so far comes first.
    pub fn tasks(&self, name: &Path) -> Result<Vec<Task>> {
        let entry = self.sites.file(name)?;
        // A file in one piece is its own only fragment.
        let parts = match entry.parts() {
            parts if parts.is_empty() => vec![entry],
            parts => parts,
        };
        let mut counts: HashMap<String, u64> = HashMap::new();
        let mut start = 0;
        let task = |(fragment, part): (u64, Entry)| {
            let mut homes: Vec<Home> = part
                .homes
                .iter()
                .filter(|home| is_good(home, &part))
                .cloned()
                .collect();
            homes.sort_by_key(|home| counts.get(&home.site).copied().unwrap_or_default());
            if let Some(first) = homes.first() {
                *counts.entry(first.site.clone()).or_default() += 1;
            }
            let range = (start, start + part.size.unwrap_or_default());
            start = range.1;
            Task {
                fragment,
                range,
                digest: best(&part.digests).cloned(),
                homes,
            }
        };
        Ok((0..).zip(parts).map(task).collect())
    }
}

/// Runs a program beside a home, at its node; returns its exit status. `each` receives the lines that it writes.
pub fn run_at(
    home: &Home,
    asked: &AskRun,
    options: &Options,
    each: &mut dyn FnMut(Line) -> Result<()>,
) -> Result<i32> {
    let bad = |bad: BadUrl| Error::bad_name(&home.url, bad.to_string());
    let url: Url = home.url.parse().map_err(bad)?;
    let asked = AskRun {
        path: Name(url.as_path().into()),
        ..asked.clone()
    };
    let door = Door::open(&url, &options.remote())?;
    let mut status = None;
    let done = door.run(&asked, &mut |line| match line {
        Line::Ended(code) => {
            status = Some(code);
            Ok(())
        }
        Line::Beat(_) => Ok(()),
        line => each(line),
    })?;
    done.map_err(|refusal| failed(url.as_path(), refusal))?;
    let said = "it does not tell how the program ended";
    status.ok_or_else(|| Error::misbehaved("a node", said))
}
