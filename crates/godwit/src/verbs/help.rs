//! `godwit help`: of a verb, or of one of the topics.

use super::Facts;
use crate::{
    options::Godwit,
    screen::Screen,
    topics,
    trouble::{Run, Trouble},
};
use clap::{Args, CommandFactory};

/// Explain a verb, or one of: exit-codes, env, config, schemes
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  godwit help cp\n  godwit help exit-codes")]
pub(crate) struct Help {
    /// A verb, or exit-codes, env, config, schemes
    #[arg(value_name = "VERB_OR_TOPIC")]
    about: Option<String>,
}

impl Help {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let text = match self.about.as_deref() {
            None => Godwit::command().render_long_help().to_string(),
            Some(word) => explain(word)?,
        };
        screen
            .page(&text)
            .map_err(|error| Trouble::store("write the help", error))?;
        Ok(Facts::new())
    }
}

fn explain(word: &str) -> Run<String> {
    if let Some(text) = topics::topic(word) {
        return Ok(text.into());
    }
    let mut whole = Godwit::command();
    whole.build();
    match whole.find_subcommand_mut(word) {
        Some(verb) => Ok(verb.render_long_help().to_string()),
        None => Err(Trouble::asked(
            format!("explain {word:?}"),
            "there is no such verb or topic",
        )
        .next("godwit --help lists the verbs; topics are exit-codes, env, config, schemes")),
    }
}
