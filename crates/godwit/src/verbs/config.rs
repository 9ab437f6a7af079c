//! `godwit config`: what is configured.

use super::Facts;
use crate::{
    screen::Screen,
    trouble::{Run, Trouble},
};
use clap::Args;

/// Show and check the configuration
#[derive(Args, Debug)]
pub(crate) struct Config {}

impl Config {
    pub(crate) fn run(self, _: &Screen) -> Run<Facts> {
        Err(Trouble::asked(
            "show the configuration",
            "this version cannot yet",
        ))
    }
}
