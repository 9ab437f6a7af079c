//! `godwit node`: serves a directory.

use super::Facts;
use crate::{
    screen::Screen,
    trouble::{Run, Trouble},
};
use clap::Args;

/// Serve a directory over FTP and GridFTP
#[derive(Args, Debug)]
pub(crate) struct Node {}

impl Node {
    pub(crate) fn run(self, _: &Screen) -> Run<Facts> {
        Err(Trouble::asked("serve", "this version cannot yet"))
    }
}
