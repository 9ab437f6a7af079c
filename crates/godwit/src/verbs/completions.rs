//! `godwit completions`: what a shell needs to complete our words.

use super::Facts;
use crate::{
    options::Godwit,
    screen::Screen,
    trouble::{Run, Trouble},
};
use clap::Args;
use clap_complete::Shell;

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  godwit completions bash > godwit.bash\n  godwit completions zsh > _godwit"
)]
pub(crate) struct Completions {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Godwit::grouped(), "godwit", &mut text);
        screen
            .page(&String::from_utf8_lossy(&text))
            .map_err(|error| Trouble::store("write the completions", error))?;
        Ok(Facts::new())
    }
}
