//! `godwit replicate`: one more copy of files, at a site.

use super::catalog;
use crate::{
    args::{MoveOptions, conditions::ConditionArgs},
    out::{CliError, Facts, Run, Screen},
    transfer::{self, Pair, TransferWork},
};
use clap::Args;
use godwit_farm::CopyAim;
use godwit_store::{EntryKind, engine::OverwriteRule};
use std::ffi::OsString;

/// Copy files of the catalog to one more site
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit replicate grid:/run7 --to archive
  godwit replicate grid:/run7/a grid:/run7/b --to cluster --from lab
  godwit replicate grid:/run7 --to archive -copies 1 -name '*.root'

Collections are copied whole, or the files in them that meet all conditions, as in godwit find.
The bytes go from server to server where both can do that. A file that the site has is left alone;
one that lies there with equal bytes is noted as a copy; one with other bytes is refused, never
replaced. godwit location add says where a site keeps the files of a collection. Run again, it
copies what is missing.

Exit status: as cp; 12 the site has other bytes under that path.")]
pub(crate) struct ReplicateArgs {
    /// Names of the catalog
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,
    /// The site that gets the copies
    #[arg(long, value_name = "SITE")]
    to: String,
    /// The site that they come from [default: whichever has them]
    #[arg(long, value_name = "SITE")]
    from: Option<String>,
    #[command(flatten)]
    wanted: ConditionArgs,
    #[command(flatten)]
    moving: MoveOptions,
}

impl ReplicateArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut options = transfer::options(&self.moving)?;
        catalog::must_be_site("replicate", self.from.as_ref())?;
        let names = catalog::logical(options.clone())?;
        let target = names.aimed(CopyAim {
            site: Some(self.to.clone()),
            from: self.from.clone(),
            copy: true,
            ..CopyAim::default()
        });
        let source = names.aimed(CopyAim {
            from: self.from.clone(),
            wanted: self.wanted.0.clone(),
            in_one_piece: true,
            ..CopyAim::default()
        });
        let (mut pairs, mut refused) = (Vec::new(), 0);
        for argument in &self.names {
            let url = catalog::url(argument)?;
            let place = source.place(&url);
            let is_tree = place.store.stat(&place.path).and_then(|stat| {
                let is_tree = stat.kind == EntryKind::Directory;
                let is_wanted = is_tree || source.wants(&place.path)?;
                Ok(is_wanted.then_some(is_tree))
            });
            match is_tree {
                Ok(None) => {}
                Ok(Some(tree)) => {
                    let fragments = source.fragments(&place.path);
                    let fragments = fragments
                        .map_err(|error| CliError::store(format!("replicate {url}"), error))?;
                    let is_one = !tree && !fragments.is_empty();
                    // Each fragment has a home of its own.
                    options.holders = options.holders.max(fragments.len().min(HOLDERS_MAX));
                    let whole = (!is_one).then(|| (url.clone(), tree)).into_iter();
                    for (url, tree) in whole.chain(fragments.into_iter().map(|url| (url, false))) {
                        pairs.push(Pair {
                            source: source.place(&url),
                            target: target.place(&url),
                            tree,
                            mode: None,
                        });
                    }
                }
                Err(error) => {
                    refused += 1;
                    screen.trouble(&CliError::store(format!("replicate {url}"), error));
                }
            }
        }
        if self.moving.dry_run {
            let facts = transfer::rehearse(
                screen,
                &pairs,
                "copy",
                &self.moving.choosing.0,
                &|_, _, target| Ok(target.store.stat(&target.path).is_err()),
            );
            return Ok(transfer::with_failed(facts, refused));
        }
        let work = TransferWork {
            act: "copy",
            pairs,
            rule: OverwriteRule::Update,
            range: None,
            delete: false,
        };
        let facts = transfer::run(screen, &self.moving, work, &options).facts;
        Ok(transfer::with_failed(facts, refused))
    }
}

/// Fragments that are copied at the same time.
const HOLDERS_MAX: usize = 8;
