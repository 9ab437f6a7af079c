//! `godwit help`: explains a verb or a topic.

use crate::{
    cli::{CommandLine, topics},
    out::{CliError, Facts, Run, Screen},
};
use clap::Args;

/// Explain a verb, or one of: exit-codes, env, config, schemes
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  godwit help cp\n  godwit help cache ls\n  godwit help exit-codes"
)]
pub(crate) struct HelpArgs {
    /// A verb, or exit-codes, env, config, schemes
    #[arg(value_name = "VERB_OR_TOPIC")]
    about: Vec<String>,
}

impl HelpArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let text = match &*self.about {
            [] => CommandLine::grouped().render_help().to_string(),
            words => explain(words)?,
        };
        screen
            .page(&text)
            .map_err(|error| CliError::store("write the help", error))?;
        Ok(Facts::new())
    }
}

fn explain(words: &[String]) -> Run<String> {
    if let [word] = words
        && let Some(text) = topics::topic(word)
    {
        return Ok(text.into());
    }
    let mut whole = CommandLine::grouped();
    whole.build();
    let mut verb = Some(&mut whole);
    for word in words {
        verb = verb.and_then(|verb| verb.find_subcommand_mut(word));
    }
    match verb {
        Some(verb) => Ok(verb.render_help().to_string()),
        None => Err(CliError::asked(
            format!("explain {:?}", words.join(" ")),
            "there is no such verb or topic",
        )
        .next("godwit --help lists the verbs; topics are exit-codes, env, config, schemes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn first_page_lists_every_verb() {
        let page = CommandLine::grouped().render_help().to_string();
        for verb in CommandLine::command().get_subcommands() {
            let about = verb.get_about().unwrap().to_string();
            let row = format!("\n  {:<11}  {about}\n", verb.get_name());
            assert!(page.contains(&row), "{row}");
        }
        assert!(
            page.contains("\nCache and deliver:\n") && page.contains("--json"),
            "{page}"
        );
    }

    /// A page fits a screen; longer texts belong in the guide.
    #[test]
    fn pages_are_short_and_have_examples() {
        let mut root = CommandLine::grouped();
        root.build();
        let (mut all, mut bad) = (vec![(String::new(), root)], Vec::new());
        while let Some((above, command)) = all.pop() {
            let name = format!("{above} {}", command.get_name());
            let below = command.get_subcommands();
            all.extend(below.map(|below| (name.clone(), below.clone())));
            let page = command.clone().term_width(100).render_help();
            let page = page.to_string();
            let (_, examples) = page.split_once("Examples:\n").unwrap_or_default();
            let examples = examples.lines().take_while(|line| line.starts_with("  "));
            let (lines, examples) = (page.lines().count(), examples.count());
            // The page of all verbs lists them instead, a line each.
            let most = if above.is_empty() { 72 } else { 60 };
            if lines > most || examples < 2 && !above.is_empty() {
                bad.push(format!("{name}: {lines} lines, {examples} examples"));
            }
        }
        assert!(bad.is_empty(), "{}", bad.join("\n"));
    }

    /// A terminal or pager breaks wider lines again.
    #[test]
    fn help_lines_have_hundred_columns_at_most() {
        let (mut all, mut seen) = (vec![CommandLine::grouped()], 0);
        while let Some(command) = all.pop() {
            all.extend(command.get_subcommands().cloned());
            let after = command.get_after_help().map(ToString::to_string);
            for line in after.unwrap_or_default().lines() {
                assert!(
                    line.chars().count() <= 100,
                    "{}: {line}",
                    command.get_name()
                );
                seen += 1;
            }
        }
        assert!(seen > 100);
    }
}
