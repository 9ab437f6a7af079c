//! Programs run where fragments lie.

use crate::{Logical, failed};
use godwit_catalog::{Home, fragments, is_good, is_part};
use godwit_core::{BadUrl, Url};
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
    /// The homes that are tried, one after another.
    pub homes: Vec<Home>,
}

impl Logical {
    /// Returns a task for each fragment of a file. Of the homes of a fragment the one whose node has the fewest tasks
    /// so far comes first.
    pub fn tasks(&self, name: &Path) -> Result<Vec<Task>> {
        let entry = self.sites.file(name)?;
        let size = entry.size.unwrap_or_default();
        let mut ranges = fragments(&entry);
        if ranges.is_empty() {
            ranges.push((0, size));
        }
        let mut next = 0;
        for (start, end) in &ranges {
            if *start != next {
                return Err(gap(name, (next, *start)));
            }
            next = *end;
        }
        if next != size {
            return Err(gap(name, (next, size)));
        }
        let mut counts: HashMap<String, u64> = HashMap::new();
        let task = |(fragment, wanted): (usize, (u64, u64))| {
            // A copy of the whole file is a fragment only if there are no others.
            let is_usable = |home: &&Home| match home.range {
                Some(range) => range == wanted && home.offset == 0 && is_part(home, &entry),
                None => wanted == (0, size) && is_good(home, &entry),
            };
            let mut homes: Vec<Home> = entry.homes.iter().filter(is_usable).cloned().collect();
            homes.sort_by_key(|home| counts.get(&home.site).copied().unwrap_or_default());
            if let Some(first) = homes.first() {
                *counts.entry(first.site.clone()).or_default() += 1;
            }
            Task {
                fragment: fragment as u64,
                range: wanted,
                homes,
            }
        };
        Ok(ranges.into_iter().enumerate().map(task).collect())
    }
}

fn gap(name: &Path, (start, end): (u64, u64)) -> Error {
    let why =
        format!("no node has a fragment that is bytes {start}-{end}; godwit locate shows them");
    Error::unsupported(format!("running beside grid:/{}", name.display()), why)
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
