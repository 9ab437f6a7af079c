//! `godwit audit`: whether the catalog tells the truth about the sites.

use super::catalog;
use crate::{
    args::MoveOptions,
    out::{CliError, Facts, Run, Screen, facts},
    transfer,
};
use clap::Args;
use godwit_farm::{AuditFault, AuditFinding, AuditScope, Audited, Logical, Settled};
use godwit_store::Error;
use serde_json::json;
use std::{ffi::OsString, path::Path};

/// Compare the catalog with what lies at the sites, and repair what is wrong
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit audit grid:/run7
  godwit audit archive --repair
  godwit audit grid:/ --digests --json

lost: the catalog has a copy, and nothing lies there. dark: a file lies there that the catalog
does not know. size, digest: the bytes there are others. Lengths are compared; with --digests
each site also reads its files. What is wrong is marked at once, so that no reader uses it.
--repair ends what processes that died had begun, replaces wrong copies that godwit made by good
ones, and adopts a dark file if its name has the same bytes. Bytes that were registered are never
replaced: their owner may have changed them. Those, and other dark files, are left: register them
anew, or remove them.

Exit status: 0 nothing wrong remains; 12 something does; 5 a site cannot be reached now.")]
pub(crate) struct AuditArgs {
    /// A site, or a name of the catalog with all that is below it
    #[arg(value_name = "SITE|NAME")]
    what: OsString,
    /// Replace wrong copies by good ones
    #[arg(long)]
    repair: bool,
    /// Compare digests too
    #[arg(long)]
    digests: bool,
    #[command(flatten)]
    moving: MoveOptions,
}

impl AuditArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let options = transfer::options(&self.moving)?;
        let names = catalog::logical(options.clone())?;
        let scope = self.scope(&names)?;
        let wanted = format!("audit {}", self.what.display());
        let trouble = |error: Error| CliError::store(&*wanted, error);
        if self.repair {
            settle(screen, &names, &scope).map_err(trouble)?;
        }
        let told = godwit_farm::audit(&names, &scope, &mut |one| match one {
            Ok(finding) => {
                if let Err(error) = tell(screen, &finding) {
                    screen.trouble(&trouble(error));
                }
            }
            Err((location, error)) => {
                let wanted = format!(
                    "audit {} at {}",
                    catalog::shown(&location.name.0),
                    location.site
                );
                screen.trouble(&CliError::store(wanted, error));
            }
        });
        let (mut audited, found) = told.map_err(trouble)?;
        if self.repair && !found.is_empty() {
            let repaired = godwit_farm::repair(&names, found, &options, &|finding, error| {
                let wanted = format!(
                    "repair {} at {}",
                    catalog::shown(&finding.name),
                    finding.site
                );
                screen.trouble(&CliError::store(wanted, error));
            });
            audited.repaired = repaired.map_err(trouble)?;
        }
        self.end(screen, &wanted, &audited)
    }

    fn scope(&self, names: &Logical) -> Run<AuditScope> {
        let digests = self.digests;
        let text = self.what.to_string_lossy();
        if text.contains(":/") || text.starts_with('/') {
            let name = catalog::name(&self.what)?.0;
            return Ok(AuditScope {
                name,
                digests,
                ..AuditScope::default()
            });
        }
        let scope = AuditScope {
            site: Some(text.into_owned()),
            digests,
            ..AuditScope::default()
        };
        let wanted = format!("audit {}", self.what.display());
        let known = names.sites(Path::new(""));
        let known = known.map_err(|error| CliError::store(&*wanted, error))?;
        match scope.site.as_ref().is_some_and(|site| known.contains(site)) {
            true => Ok(scope),
            false => {
                let fact = format!(
                    "no collection has a location at this site; there are {}",
                    known.join(", ")
                );
                Err(CliError::found(wanted, fact, 4).next("godwit location ls grid:/"))
            }
        }
    }

    fn end(&self, screen: &Screen, wanted: &str, audited: &Audited) -> Run<Facts> {
        let Audited {
            copies,
            lost,
            dark,
            size,
            digest,
            repaired,
        } = *audited;
        let left = audited.left();
        if !screen.json() {
            screen.note(&format!(
                "{copies} copies compared: {lost} lost, {dark} dark, {size} of another size, {digest} of another digest; \
                 {repaired} repaired"
            ));
        }
        if left > 0 {
            let trouble = CliError::found(
                wanted,
                format!("{left} of what was told is still wrong"),
                12,
            );
            screen.trouble(&match self.repair {
                true => trouble.next(
                    "register what is dark, or remove it; what is lost everywhere: godwit rm NAME",
                ),
                false => trouble.next(format!("godwit audit {} --repair", self.what.display())),
            });
        }
        Ok(facts([
            ("copies", copies.into()),
            ("lost", lost.into()),
            ("dark", dark.into()),
            ("size", size.into()),
            ("digest", digest.into()),
            ("repaired", repaired.into()),
        ]))
    }
}

/// Ends what processes that died had begun.
fn settle(screen: &Screen, names: &Logical, scope: &AuditScope) -> Result<(), Error> {
    names.settle(&scope.name, &mut |intent, settled| {
        let name = catalog::shown(&intent.name.0);
        match settled {
            Ok(Settled::Elsewhere) => {}
            Ok(settled) => {
                let what = match settled {
                    Settled::Published => "published",
                    Settled::Kept => "kept as it was",
                    Settled::Gone => "nothing lies there",
                    _ => "damaged",
                };
                screen.note(&format!(
                    "{name} at {}: a process had died there; {what}",
                    intent.url
                ));
            }
            Err(error) => {
                let wanted = format!("end what had begun with {name} at {}", intent.url);
                screen.trouble(&CliError::store(wanted, error));
            }
        }
    })
}

fn tell(screen: &Screen, finding: &AuditFinding) -> Result<(), Error> {
    let wrong = match finding.wrong {
        AuditFault::Lost => "lost",
        AuditFault::Dark => "dark",
        AuditFault::Size => "size",
        AuditFault::Digest => "digest",
    };
    let name = catalog::shown(&finding.name);
    match screen.json() {
        true => screen.object(&json!({
            "event": "wrong", "wrong": wrong, "name": name, "site": finding.site, "url": finding.url,
        })),
        false => screen.line(format!("{wrong:6}  {}  {}  {name}", finding.site, finding.url)),
    }
}
