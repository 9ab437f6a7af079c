//! `godwit completions`: the script by which a shell completes commands.

use crate::{
    cli::CommandLine,
    out::{CliError, Facts, Run, Screen},
};
use clap::Args;
use clap_complete::Shell;

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  godwit completions bash > godwit.bash\n  godwit completions zsh > _godwit"
)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut CommandLine::grouped(), "godwit", &mut text);
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if self.shell == Shell::Bash {
            text = text.replace("complete -F _godwit ", "complete -F _godwit_or_peer ") + PEERS;
        }
        screen
            .page(&text)
            .map_err(|error| CliError::store("write the completions", error))?;
        Ok(Facts::new())
    }
}

/// Offers the names of peers behind `godwit://`, and else what clap knows. Bash may have cut the word at its colon.
const PEERS: &str = r#"
_godwit_or_peer() {
    local word=${COMP_LINE:0:COMP_POINT}
    word=${word##* }
    local typed=${word#godwit://}
    if [[ $word != godwit://* || $typed == */* ]]; then
        _godwit "$@"
        return
    fi
    local names
    names=$(godwit peers --json 2>/dev/null | sed -n '/"event":"peer"/s/.*"name":"\([^"]*\)".*/\1/p')
    compopt -o nospace 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -P "${2%"$typed"}" -S / -W "$names" -- "$typed")
}
"#;
