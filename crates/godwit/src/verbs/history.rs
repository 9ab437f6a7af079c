//! `godwit history`: how a file of the catalog was made.

use super::catalog;
use crate::{
    out::{CliError, Facts, Run, Screen, facts},
    units,
};
use clap::Args;
use godwit_catalog::{MadeFile, Recipe, history};
use godwit_farm::kept_as;
use godwit_store::Error;
use godwit_wire::door::call::Text;
use serde_json::json;
use std::{ffi::OsString, time::Duration};

/// Tell how a file of the catalog was made
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit history grid:/run7/a
  godwit history grid:/run7/a --json

Of a file that godwit farm run made: the program and its arguments, the versions of its inputs, and
of each fragment the node that made it, the time that took, and the digest. A file that was removed
is found by its last name.

Exit status: 0; 4 no such name.")]
pub(crate) struct HistoryArgs {
    /// The file
    #[arg(value_name = "NAME")]
    name: OsString,
}

impl HistoryArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let name = catalog::name(&self.name)?;
        let wanted = format!("tell how {} was made", catalog::shown(&name.0));
        let made = history(&*catalog::open()?, &name.0);
        let made = made.map_err(|refusal| catalog::refused(&wanted, &refusal))?;
        let Some(made) = made else {
            screen.note("it was not made by a run: its bytes were written or registered");
            return Ok(facts([("made", false.into())]));
        };
        let shown = match screen.json() {
            true => screen.object(&in_json(&made)),
            false => show(screen, &made),
        };
        shown.map_err(|error| CliError::store(wanted, error))?;
        Ok(facts([("made", true.into())]))
    }
}

fn in_json(made: &MadeFile) -> serde_json::Value {
    let ran = &made.ran;
    let ranks = ran.ranks.iter().map(|rank| {
        json!({
            "fragment": rank.fragment, "node": rank.node, "exit_status": rank.exit_status,
            "seconds": rank.took_ms as f64 / 1e3, "digest": rank.digests.get(index(made)),
        })
    });
    json!({
        "event": "made", "name": catalog::shown(&made.name.0), "version": made.version,
        "output": made.output, "argv": argv(&ran.recipe), "program": ran.recipe.program, "programs": ran.recipe.programs,
        "platform": ran.recipe.platform, "inputs": ran.recipe.inputs, "outputs": ran.recipe.outputs,
        "ranks": ranks.collect::<Vec<_>>(), "job": ran.run, "who": ran.who, "at": ran.at_s,
        "engine": ran.engine, "recipe": ran.recipe.id(), "is_proved": made.is_proved,
    })
}

fn show(screen: &Screen, made: &MadeFile) -> Result<(), Error> {
    let ran = &made.ran;
    let name = catalog::shown(&made.name.0);
    screen.line(format!("{name}  version {}", made.version))?;
    screen.line(format!("program  {}", argv(&ran.recipe).join(" ")))?;
    let programs = ran.recipe.programs.values();
    for Text(digest) in ran.recipe.program.iter().chain(programs) {
        let kept = catalog::shown(&kept_as(digest));
        screen.line(format!("kept as  {kept}"))?;
    }
    for input in &ran.recipe.inputs {
        let name = catalog::shown(&input.name.0);
        let what = if input.whole {
            "whole"
        } else {
            "a fragment for each program"
        };
        screen.line(format!(
            "input    {name}  version {}, {what}",
            input.version
        ))?;
    }
    let at = units::instant(Duration::from_secs(ran.at_s));
    screen.line(format!("run      {at} by {}, job {}", ran.who, ran.run))?;
    for rank in &ran.ranks {
        let digest = rank.digests.get(index(made));
        let digest = digest
            .map(|digest| digest.0.to_string())
            .unwrap_or_default();
        let seconds = rank.took_ms as f64 / 1e3;
        screen.line(format!(
            "fragment {}  {}  {seconds:.3} s  {digest}",
            rank.fragment, rank.node
        ))?;
    }
    let proved = match made.is_proved {
        true => "a second run gave the same bytes",
        false => "no second run has compared its bytes",
    };
    screen.line(format!("proof    {proved}"))
}

fn argv(recipe: &Recipe) -> Vec<String> {
    let words = recipe.argv.iter();
    words
        .map(|word| word.0.to_string_lossy().into_owned())
        .collect()
}

/// Returns which digest of a task is that of this output.
fn index(made: &MadeFile) -> usize {
    usize::try_from(made.output).unwrap_or(usize::MAX)
}
