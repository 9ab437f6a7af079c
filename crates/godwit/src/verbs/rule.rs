//! `godwit rule`: the number of copies that files shall have, and their sites.

use super::catalog;
use crate::{
    out::{CliError, Facts, Run, Screen, facts},
    places,
};
use clap::{Args, Subcommand};
use godwit_catalog::{CatalogRule as Ruled, Change};
use godwit_farm::Wanted;
use godwit_store::{Error, engine::CopyOptions};
use godwit_wire::door::call::Name;
use serde_json::json;
use std::ffi::OsString;

/// Say how many copies the files of a collection shall have
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit rule add grid:/run7 copies=2
  godwit rule add grid:/run7 'at=archive from=lab every=2d'
  godwit rule why grid:/run7/a

The node that serves the catalog (godwit node --catalog) keeps the rules by itself: it copies a file
soon after each change, replaces damaged and lost copies from good ones, and reads files again to
compare their digests. It never removes a copy.

Exit status: 0; 1 why: the file is not as a rule says; 2 a rule that cannot be read; 4 no such name.")]
pub(crate) struct RuleArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a rule to a collection
    #[command(after_help = "\
Examples:
  godwit rule add grid:/run7 copies=2
  godwit rule add grid:/run7 'at=archive,cluster from=lab every=12h'

copies=N: at N sites. at=SITE,...: at these. from=SITE: copies come from there. every=TIME (s, m,
h, d): all files are compared so often, not each after its change. A collection may have several
rules.")]
    Add {
        /// The collection
        name: OsString,
        /// Words like copies=2
        #[arg(required = true)]
        rule: Vec<String>,
    },
    /// List the rules of a collection, of those above it and of those below it
    #[command(after_help = "\
Examples:
  godwit rule ls grid:/run7
  godwit rule ls grid:/ --json")]
    Ls {
        /// The collection
        name: OsString,
    },
    /// Remove a rule; copies stay
    #[command(after_help = "\
Examples:
  godwit rule rm grid:/run7 copies=1
  godwit rule rm grid:/run7 copies=1 --json")]
    Rm {
        /// The collection
        name: OsString,
        /// The words, as ls shows them
        #[arg(required = true)]
        rule: Vec<String>,
    },
    /// Show what each rule wants of a file, and why it has not got it
    #[command(after_help = "\
Examples:
  godwit rule why grid:/run7/a
  godwit rule why grid:/run7/a --json

Exit status: 0 the file is as all rules say; 1 it is not.")]
    Why {
        /// The file
        name: OsString,
    },
}

impl RuleArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.action {
            Action::Add { name, rule } => add(screen, catalog::name(&name)?, &rule.join(" ")),
            Action::Ls { name } => list(screen, &catalog::name(&name)?),
            Action::Rm { name, rule } => remove(&catalog::name(&name)?, &rule.join(" ")),
            Action::Why { name } => why(screen, &catalog::name(&name)?),
        }
    }
}

fn add(screen: &Screen, name: Name, text: &str) -> Run<Facts> {
    let wanted = format!("add a rule to {}", catalog::shown(&name.0));
    Wanted::read(text).map_err(|why| CliError::asked(&*wanted, why))?;
    let text = text.to_owned();
    let made = catalog::open()?.change(&Change::AddRule { name, text }.into());
    let made = made.map_err(|refusal| catalog::refused(&wanted, &refusal))?;
    let rule = made.first().copied().unwrap_or_default();
    if !screen.json() {
        screen.note(&format!(
            "this is rule {rule}; the node that serves the catalog keeps it"
        ));
    }
    Ok(facts([("rule", rule.into())]))
}

fn remove(name: &Name, text: &str) -> Run<Facts> {
    let shown = catalog::shown(&name.0);
    let wanted = format!("remove a rule of {shown}");
    let rules = rules_of(name)?;
    let rule = rules
        .iter()
        .find(|rule| rule.name == *name && rule.text == text);
    let Some(&Ruled { rule, .. }) = rule else {
        let fact = format!("there is no rule {text}");
        return Err(CliError::found(wanted, fact, 4).next(format!("godwit rule ls {shown}")));
    };
    catalog::change(&wanted, Change::RemoveRule { rule })?;
    Ok(Facts::new())
}

fn rules_of(name: &Name) -> Run<Vec<Ruled>> {
    let found = godwit_catalog::rules(&*catalog::open()?, &name.0);
    found.map_err(|refusal| catalog::refused("list the rules", &refusal))
}

fn list(screen: &Screen, name: &Name) -> Run<Facts> {
    let found = rules_of(name)?;
    for rule in &found {
        let name = catalog::shown(&rule.name.0);
        let shown = match screen.json() {
            true => screen.object(&json!({
                "event": "rule", "rule": rule.rule, "name": name, "text": rule.text,
            })),
            false => screen.line(format!("{name}  {}", rule.text)),
        };
        shown.map_err(|error| CliError::store("list the rules", error))?;
    }
    Ok(facts([("rules", found.len().into())]))
}

fn why(screen: &Screen, name: &Name) -> Run<Facts> {
    let shown = catalog::shown(&name.0);
    let wanted = format!("compare {shown} with the rules");
    let trouble = |error: Error| CliError::store(&*wanted, error);
    let names = catalog::logical(CopyOptions::new(places::cancel()?))?;
    let (rules, todo) = names.why(&name.0).map_err(trouble)?;
    let mut unmet = 0_u64;
    for (rule, needs) in &rules {
        let mut lacks: Vec<String> = needs
            .copies
            .keys()
            .map(|site| format!("a copy at {site} is to be made"))
            .collect();
        lacks.extend(needs.unmet.iter().cloned());
        unmet += u64::from(!needs.is_met());
        let line = match screen.json() {
            true => screen.object(&json!({
                "event": "rule", "rule": rule.rule, "name": shown, "text": rule.text, "met": needs.is_met(), "lacks": lacks,
            })),
            false if needs.is_met() => screen.line(format!("{}: it is so", rule.text)),
            false => screen.line(format!("{}: {}", rule.text, lacks.join("; "))),
        };
        line.map_err(trouble)?;
    }
    let last = todo.filter(|todo| !todo.said.is_empty());
    if let (Some(todo), false) = (&last, screen.json()) {
        screen.note(&format!(
            "{} attempts failed; the last: {}",
            todo.tries, todo.said
        ));
    }
    if rules.is_empty() && !screen.json() {
        screen.note(&format!(
            "no rule covers {shown}; godwit rule add grid:/COLLECTION copies=2"
        ));
    }
    if unmet > 0 {
        let trouble = CliError::found(&*wanted, format!("{unmet} rules are not met"), 1);
        screen.trouble(&trouble.next(
            "the node that serves the catalog does it; see that it runs: godwit node --catalog",
        ));
    }
    Ok(facts([
        ("rules", rules.len().into()),
        ("unmet", unmet.into()),
        ("said", last.map(|todo| todo.said).into()),
    ]))
}
